struct inner { short x; unsigned flag:1; int neg:4; };
typedef struct outer { struct inner in; struct inner *p; char name[8]; union { int u; long v; }; userland char *text; } outer_t;
enum color { RED, GREEN = 5, BLUE };
BEGIN
{
	this->o = (outer_t *)arg0;
	trace(this->o->in.x); trace(this->o->p->neg); trace(this->o->in.flag); trace(stringof(this->o->name));
	trace(this->o->v); trace(&this->o->in); trace(this->o->name[2]); trace(stringof(this->o->text));
	trace((enum color)arg1 == BLUE); trace(GREEN); trace(sizeof (outer_t)); trace(offsetof(outer_t, name));
	trace(*(int *)arg2); trace(((int *)arg2)[pid]); trace(*(userland int *)arg2); trace(&((int *)0)[3]);
}
