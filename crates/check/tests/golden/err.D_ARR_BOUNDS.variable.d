int a[5];
this int one[1];
struct s { int v[2]; };
struct s e[int];
BEGIN { a[5] = 1; trace(a[-1]); this->one[1] = 1; e[1].v[2] = 1; trace(a[4]); }
