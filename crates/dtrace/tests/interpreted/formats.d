/*
 * Conversions, names, identities and strings.
 *
 * option quiet
 * user 0x1000 "/usr/lib/libc.so.6\0"
 * tracer pid=100 execname=dtrace uid=0 walltime=1000000000000000000
 * fire syscall::openat:return pid=12 tid=13 uid=1000 gid=100 ancestors=11,1 execname=a-long-name-of-a-program errno=2 args=-1,-1 cpu=3 time=77
 * fire syscall::execve:entry pid=12 args=0x1000 cpu=3 time=78
 */
BEGIN { printf("%s %d %d\n", execname, pid, walltimestamp); }
syscall::openat:return
{
	printf("%s:%s:%s:%s\n", probeprov, probemod, probefunc, probename);
	printf("%d %d %d %d %d %s\n", pid, tid, ppid, uid, gid, execname);
	printf("%d %d %d [%5d] [%-5d] %x %05d\n", (int)arg0, errno, cpu, 42, 42, 255, 42);
	printf("%d %d\n", progenyof(1), progenyof(99));
}
syscall::execve:entry
{
	this->path = copyinstr(arg0);
	printf("%s %s %d %s\n", basename(this->path), dirname(this->path), strlen(this->path),
	    strjoin(substr(this->path, 0, 4), "..."));
}
