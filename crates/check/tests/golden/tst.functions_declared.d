int f(int, char *);
extern void g(void);
BEGIN { trace(1); }
