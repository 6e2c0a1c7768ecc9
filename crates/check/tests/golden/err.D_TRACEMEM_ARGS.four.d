struct big { char c[70000]; }; BEGIN { tracemem(arg0, 4, 4, 4); }
