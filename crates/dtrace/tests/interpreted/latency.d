/*
 * The time of each call, by thread.
 *
 * option quiet
 * fire syscall::openat:entry pid=7 tid=7 time=1000
 * fire syscall::openat:entry pid=7 tid=8 time=1100
 * fire syscall::openat:return pid=7 tid=8 time=1164
 * fire syscall::openat:return pid=7 tid=7 time=3000
 * fire syscall::openat:return pid=9 time=4000
 */
syscall::openat:entry { self->begun = timestamp; }
syscall::openat:return /self->begun/
{
	@["ns"] = quantize(timestamp - self->begun);
	@spread = lquantize(timestamp - self->begun, 0, 2000, 500);
	printf("%d/%d: %d ns\n", pid, tid, timestamp - self->begun);
	self->begun = 0;
}
