BEGIN { printf(123); printf(pid, 4); system(1); freopen(timestamp); printf(trace(1)); }
BEGIN { trace(strlen(trace(1))); exit(printf("x")); raise(stop()); sym(trace(1)); }
inline int twice[int n] = n + n;
BEGIN { trace(twice[trace(1)]); }
