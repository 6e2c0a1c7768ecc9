// types: foo_t mod`foo_t
int x;
self int t, *p;
this string s;
extern unsigned char c; static long long ll;
string names[int, string];
self uint64_t counts[pid_t, char *];
int a[5], m[2][3], *ap[4], (*pa)[4], (*fp)(int, char *), *f(void), (*(*ff)(int))[3];
char buf[SIZE]; char buf2[SIZE * 2]; int empty[];
unknown_t u; unknown_t *v; unknown_t arr[4]; unknown_t a1[other_t, int]; int a2[other_t *];
int*x1;
int*x2, y2;
foo_t*x3;
foo_t x4;
mod`foo_t x5;
typedef unsigned long my_t; my_t z; my_t*z2;
typedef struct node { int value; struct node *next; } node_t;
struct s { int a:3, b:4, :2; unsigned c : 1 + 1; char name[16]; struct { int in; }; union { int i; float f; } u; node_t *n;
	const char *const *q; int (*cb)(void *, ...); };
struct fwd;
struct s sv; struct mod`task *tp; union un { int a; };
enum color { RED, GREEN = 5, BLUE = GREEN + 1, };
enum color col; enum { ANON };
const volatile int cv; int const ci; userland char *up; char *restrict rp;
short sh; short int shi; long l; long int li; unsigned u1; signed char sc; long unsigned int lui; int long long ill; double d; long double ld;
float fl; void *vp; void fn(int a, char b[], foo_t); int va(const char *, ...);
void
fn2(void);
