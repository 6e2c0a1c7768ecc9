int char a;
signed unsigned b;
short long c;
long long long d;
struct s { int x; } int e;
unsigned size_t f;
