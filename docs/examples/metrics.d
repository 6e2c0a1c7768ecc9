#!/usr/sbin/dtrace -qs
/* Writes in each second, by program. */

syscall::write:entry
{
	@writes[execname] = count();
}

tick-1s
{
	printf("%Y\n", walltimestamp);
	printa("  %-16s %@8u\n", @writes);
	clear(@writes);
}
