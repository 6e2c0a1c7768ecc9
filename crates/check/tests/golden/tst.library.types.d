/* A name that the program defines is the program's, even if a library defines it too. */
typedef short uint;
typedef struct mine { int a; } processorid_t;
typedef enum { B_FALSE = 5, B_TRUE } boolean_t;
uint u;
processorid_t p;
zoneid_t z;
BEGIN {
	u = (uint)70000;
	p.a = (boolean_t)B_TRUE;
	trace((hrtime_t)-1); trace(sizeof (major_t)); trace((caddr_t)arg0); trace((uid_t)arg1 == z);
	trace(ARPHRD_INFINIBAND);
}
