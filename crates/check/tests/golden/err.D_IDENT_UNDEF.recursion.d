inline int f[int n] = n ? f[n - 1] : 0;
inline int a = b;
inline int b = a;
BEGIN { trace(f[3]); trace(a); trace(b); }
