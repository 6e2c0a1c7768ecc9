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
inline struct out *cur = xlate <struct out *> ((struct in *)arg0);
BEGIN { trace(cur + 1); }
BEGIN { trace(cur == 0); }
BEGIN { trace(!cur); }
BEGIN { trace(pid ? cur : cur); }
BEGIN { x = (1, cur); }
BEGIN { self->s = xlate <struct out> ((struct in *)arg0); }
BEGIN { y += cur; }
BEGIN { trace(*cur); }
BEGIN { trace(&cur->s); }
BEGIN { printf("%d", cur); }
BEGIN { self->u = xlate <struct sub *> (cur); }
struct in e[int];
BEGIN { e[1].a = 2; self->v = xlate <struct sub *> (e[1]); }
translator struct sub < struct in I > { x = I.a; };
BEGIN { trace(xlate <struct sub> (e[1]).x); self->w = xlate <struct sub *> (e[1]); }
