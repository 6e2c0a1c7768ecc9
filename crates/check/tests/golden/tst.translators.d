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

translator struct sub < long N > { x = N; y = N * N; };
inline struct out *cur = xlate <struct out *> ((struct in *)arg0);

syscall::read:entry
/cur->pid == 1 && xlate <struct out> ((struct in *)arg0).pid != 2/
{
	trace(cur->name);
	@[cur->fname] = sum(cur->wide);
	trace(cur->s.x + cur->flags);
	trace(xlate <struct sub> (arg0 + 1).y);
	trace(xlate <struct out *> (cur->in)->in->a);
	printf("%s %d", stringof(cur->fname), xlate <struct sub *> (pid)->x);
	self->p = xlate <struct out *> ((struct in *)arg1);
	a[pid] = self->p;
	this->q = a[tid];
	trace(self->p->pid + a[1]->pid + this->q->wide);
	self->p = 0;
	a[pid] = 0;
}

syscall::read:return
{
	trace(defined(struct out) + 2 * defined(struct out, s.x) + 4 * defined(struct out, in.next.next.a));
	trace(defined(struct nothing) + defined(struct out, nothing) + defined(nothing_t, a) + defined(struct in, a.b));
	trace(defined(struct out, nothing) ? cur->nothing : defined(int) ? 1 : 2);
}

struct twice { int pid; string name; };
translator struct twice < struct out *O > { pid = O->pid + O->s.x; name = O->name; };
syscall::write:entry
{
	trace(xlate <struct twice> (cur).pid);
	self->t = xlate <struct twice *> (cur);
	trace(self->t->pid);
	self->t = 0;
	trace(sizeof (cur->fname) + sizeof (cur->s));
}
