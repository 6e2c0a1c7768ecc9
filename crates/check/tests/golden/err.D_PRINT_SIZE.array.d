struct big { char c[70000]; }; BEGIN { print(*(struct big *)arg0); }
