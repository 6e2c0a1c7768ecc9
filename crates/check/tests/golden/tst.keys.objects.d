struct point { char c; int x; };
union both { struct point p; short s; };
struct flags { unsigned a:3; unsigned b:7; };
struct point p;
union both u;
struct flags f;
self struct point mine;
int declared[struct point, string];
BEGIN {
	near[p] = 1;
	far[1, p, execname] = near[p];
	self->of[u] = "x";
	declared[self->mine, "k"]++;
	near[p] = 0;
	@[p] = count();
	@two[f, *(struct point *)arg0] = sum(near[p]);
	whole[p] = u;
	whole[p].s = 3;
}
BEGIN { @k[curthread->tasks] = count(); }
syscall::write:entry { @w[*(struct point *)args[1]] = count(); }
