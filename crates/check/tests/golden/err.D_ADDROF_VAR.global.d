BEGIN { x = 1; trace(&x); }
END { trace(&pid); }
