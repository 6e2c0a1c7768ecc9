BEGIN { pid ? trace(1) : trace(2); }
END { 1, trace(2); }
ERROR { x = @a; }
