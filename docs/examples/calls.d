#!/usr/sbin/dtrace -qs
/* calls.d: system calls of a process, how many and how long, every second. */

syscall:::entry
/pid == $target/
{
	self->t = timestamp;
}

syscall:::return
/self->t/
{
	@calls[probefunc] = count();
	@us[probefunc] = sum((timestamp - self->t) / 1000);
	self->t = 0;
}

tick-1s, END
{
	printf("%-20s %10s %10s\n", "CALL", "COUNT", "us");
	printa("%-20s %@10d %@10d\n", @calls, @us);
	clear(@calls);
	clear(@us);
}
