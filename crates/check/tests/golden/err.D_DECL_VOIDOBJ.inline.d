inline void nothing = 3;
inline void f[int x] = x;
