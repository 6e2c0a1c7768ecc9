/*
 * printa() prints the aggregations as they are at its firing; clear() and trunc() change them from there on.
 *
 * option quiet
 * 5 times fire syscall::read:entry execname=cat
 * 2 times fire syscall::read:entry execname=sh
 * fire profile:::tick-1s time=1000000000
 * fire syscall::read:entry execname=cat
 * fire profile:::tick-1s time=2000000000
 * fire syscall::read:entry execname=ls
 * fire profile:::tick-1s time=3000000000
 * fire syscall::read:entry execname=ls
 */
syscall::read:entry { @n[execname] = count(); @all = count(); }
tick-1s { printf("%d s\n", timestamp / 1000000000); printa("%8s %@d\n", @n); printa("all %@d\n", @all); }
tick-1s { clear(@n); }
tick-1s /timestamp > 2500000000/ { trunc(@n); }
