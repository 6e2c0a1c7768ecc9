struct point { int x; int y; };
struct shape { char name[8]; struct point at; unsigned int kind : 3; int depth : 5; string note; };
struct shape g;
self struct shape mine;
this int m[2][3];
struct point a[int, string];
string names[2];
BEGIN {
	g.at.x = 1;
	g.kind = 5;
	g.depth++;
	g.note = "n";
	this->m[1][2] += 7;
	this->m[arg0][arg1] = 1;
	self->mine = g;
	this->p = a[1, "k"];
	a[1, "k"].x++;
	a[2, "k"] = this->p;
	a[1, "k"] = 0;
	names[arg0] = "x";
	this->q = &g.at;
	this->q->y = 4;
	trace(g);
	trace(this->m);
	trace(g.name);
	trace(g.depth);
	trace(sizeof(g));
}
BEGIN {
	this->b = alloca(16);
	*(int *)this->b = 5;
	bcopy(&g, this->b, 8);
	copyinto(arg0, 4, this->b);
	this->s = stringof(copyin(arg0, arg1));
	trace(probename[0]);
	trace(*execname);
	trace(stringof(probename + 1));
}
