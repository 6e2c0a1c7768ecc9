BEGIN { printf("%q", 1); printf("%"); }
