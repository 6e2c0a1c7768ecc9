/*
 * Counts and sums by keys, printed at the end as they are.
 *
 * 3 times fire syscall::read:entry execname=cat args=3,0,4096
 * 2 times fire syscall::write:entry execname=cat args=1,0,100
 * fire syscall::read:entry execname=sh args=0,0,1
 * fire syscall::close:entry execname=sh
 */
syscall::read:entry, syscall::write:entry
{
	@calls[execname, probefunc] = count();
	@bytes[probefunc] = sum(arg2);
	@all = count();
}
