struct point { int x; unsigned int k : 3; };
struct point g;
self struct point t;
this int m[2][3];
struct point a[int];
BEGIN {
	g.x = 1;
	g.k = arg0;
	this->m[1][arg0] += 7;
	self->t = g;
	a[1].x++;
	a[2] = g;
	a[1] = 0;
	this->p = &g;
	trace(this->p->x);
	trace(g);
}
BEGIN {
	this->b = (int *)alloca(arg0);
	*this->b = 5;
	bcopy(curthread, this->b, arg1);
	trace(stringof(copyin(arg0, 8)));
}
