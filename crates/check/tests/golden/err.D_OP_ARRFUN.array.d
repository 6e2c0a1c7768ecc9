int a[3];
int b[3];
struct s { int v[2]; };
struct s g;
BEGIN { a = b; g.v = 0; }
