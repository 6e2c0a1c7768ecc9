void a[3];
struct s { void b[2]; };
typedef void t[2];
