void *p;
int (*f)(int);
BEGIN { trace(p + 1); trace(1 + p); trace(p - 1); trace(p - p); trace(f + 1); trace(p == f); }
