# 1 "/usr/include/some/header.h" 1 3 4
typedef unsigned int id_t;
typedef int timestamp;
enum limits { L_FILES = 7, L_OLD_FILES = L_FILES, L_NEXT, L_ALL = 0xffffffffu };
struct flexible { int n; char old[0]; };
extern int raise(int sig);
extern char *environ[];
extern int strlen;
static inline unsigned short swapped(unsigned short x)
{
	struct { int a; } nested;
	return (x >> 8) | (x << 8);
}
static int *pointed(int a[], char *const argv[]);
# 1 "/usr/include/some/header.h" 1 3 4
struct flexible { int n; char old[0]; };
enum limits { L_FILES = 7 };
# 3 "tst.headers.d" 2
struct tail { int n; short rest[]; };
enum own { ONE = 1, TWO = ONE << 1, FOUR = TWO * TWO };
int prototype(int values[], char *names[]);
struct flexible *f;
BEGIN
{
	trace((id_t)-1);
	trace(timestamp);
	trace(sizeof (struct flexible));
	trace(sizeof (struct tail));
	trace(L_OLD_FILES + L_NEXT + FOUR);
	f = (struct flexible *)alloca(16);
	f->old[2] = strlen("x");
}
