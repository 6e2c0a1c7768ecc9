struct s { int a; int b:3; char *name; char text[8]; };
syscall::openat:entry
{
	this->p = (struct s *)arg0;
	trace(this->p->a);
	trace(this->p->b);
	trace(stringof(this->p->name));
	printf("%s %d\n", copyinstr(arg1), *(short *)(arg2 + 1));
	trace(strlen(stringof(this->p->text)));
}
