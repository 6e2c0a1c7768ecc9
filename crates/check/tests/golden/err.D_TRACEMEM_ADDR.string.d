struct big { char c[70000]; }; BEGIN { tracemem("x", 4); }
