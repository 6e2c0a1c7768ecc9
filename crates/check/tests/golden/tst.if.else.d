syscall::read:entry
/pid == 7/
{
	trace(1);
	if (arg0 > 3) {
		x = 1;
		if (!arg1)
			@a = count();
		else if (execname == "sh") {
			trace("sh");
		} else
			;
		trace(x);
	}
	;
	if (arg2) { }
	exit(x);
}
BEGIN { if (1) trace(2); else trace(3); }
BEGIN { if (pid) ; }
ERROR { if (arg4) { trace(arg4); } }
