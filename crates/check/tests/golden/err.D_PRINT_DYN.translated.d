struct in { int a; char name[8]; struct in *next; unsigned flags : 3; };
struct sub { int x; long y; };
struct out { int pid; string name; char fname[8]; long wide; struct sub s; int missing; int flags; struct in *in; };
translator struct sub < struct in *I > { x = I->a; };
translator struct out < struct in *I > {
	pid = I->a;
	name = stringof(I->name);
	fname = I->name;
	wide = arg1 + pid;
	s = xlate <struct sub> (I);
	flags = I->flags;
	in = I->next;
};
BEGIN { print(xlate <struct out *> ((struct in *)arg0)); }
