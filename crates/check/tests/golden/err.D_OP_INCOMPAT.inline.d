inline int f[int a] = b;
inline int g = "text";
inline string s[int a] = a;
inline int v[3] = 1;
BEGIN { trace(f[1]); }
