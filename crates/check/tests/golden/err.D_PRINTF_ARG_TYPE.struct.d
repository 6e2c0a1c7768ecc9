struct big { char c[7]; }; BEGIN { printf("%s", *(struct big *)arg0); }
