int g; int a[int];
inline int rand = 1;
inline int trace = 1;
inline int pid = 1;
inline int g = 1;
inline int a = 1;
inline int twice = 1;
inline int twice = 2;
BEGIN { trace(twice); }
