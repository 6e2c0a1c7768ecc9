inline int f[int a] = a;
inline int g = f;
BEGIN { trace(f); f[1] = 2; trace(f(1)); }
