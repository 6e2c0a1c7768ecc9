struct big { char c[70000]; }; BEGIN { print((void)0); }
