inline int f[int a, ...] = a;
