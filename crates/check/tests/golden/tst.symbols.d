/* External symbols: types from BTF, from the table of well-known ones, or by cast. */
BEGIN
{
	trace(`jiffies); trace(vmlinux`jiffies + 1); trace(&`jiffies); trace(*(int *)&`untyped);
	trace(((char *)&`untyped)[3]); trace(`current_task->pid); trace(&`current_task); trace(`vfs_read);
	trace(&`vfs_read == `vfs_read); trace(&ext4`ext4_sync); trace(&`ext4_sync); trace(`PIDTYPE_SID);
	trace(vmlinux`PIDTYPE_SID); func((uintptr_t)`vfs_read); trace(sizeof (`jiffies));
}
