#!/usr/sbin/dtrace -qs
/* latency.d CALL: how long a system call takes, by program. */

syscall::$1:entry
{
	self->start = timestamp;
}

syscall::$1:return
/self->start/
{
	@ns[execname] = quantize(timestamp - self->start);
	@calls[execname, errno] = count();
	self->start = 0;
}

END
{
	printf("nanoseconds in %s\n", $$1);
	printa(@ns);
	printf("%-20s %8s %8s\n", "program", "errno", "calls");
	printa("%-20s %8d %@8u\n", @calls);
}
