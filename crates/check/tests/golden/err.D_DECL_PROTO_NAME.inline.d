inline int f[int] = 1;
inline int g[int a, int a] = a;
int (*h)(void v);
