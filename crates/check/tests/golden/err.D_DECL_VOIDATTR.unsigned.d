unsigned void *a;
long void *b;
