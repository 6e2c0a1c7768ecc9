int (*f)(int, void);
