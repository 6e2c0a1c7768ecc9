int (*f)(static int);
int a[self int];
