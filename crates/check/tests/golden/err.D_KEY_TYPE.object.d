struct point { int x; int y; };
struct point p;
int v[3];
int a[string];
BEGIN { b[p] = 1; c[v] = 1; @[p] = count(); @[v] = count(); d[1, p] = 2; }
