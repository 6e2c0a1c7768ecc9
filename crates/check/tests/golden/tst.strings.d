BEGIN
{
	s = "x"; s = execname; s = NULL; self->s = probefunc; self->s = 0;
	trace(s == NULL); trace(execname < "m"); trace(strlen(s)); trace(stringof(arg0));
	trace(pid ? s : "y"); names["a", 1] = execname; names["a", 1] = 0; names[s, pid] = "z";
	trace((string)arg1); trace(s == (char *)arg0);
}
