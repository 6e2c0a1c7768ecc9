/* Opens of grep that fail, with their names. */
syscall::openat:entry
/pid == $target && execname == "grep"/
{
	self->id = speculation();
}

syscall::openat:entry
/self->id/
{
	speculate(self->id);
	printf("%s\n", copyinstr(arg1));
}

syscall::openat:return
/self->id/
{
	speculate(self->id);
	printf("  errno %d\n", errno);
}

syscall::openat:return
/self->id && errno/
{
	commit(self->id);
	self->id = 0;
}

syscall::openat:return
/self->id/
{
	discard(self->id);
	self->id = 0;
}
