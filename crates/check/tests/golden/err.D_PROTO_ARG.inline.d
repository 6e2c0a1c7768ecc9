inline int f[int a, string b] = strlen(b) + a;
BEGIN { trace(f[1, 2]); trace(f["x", "y"]); }
