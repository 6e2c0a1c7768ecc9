string s;
BEGIN { s[255] = 1; s[256] = 1; s[-1] = 1; }
