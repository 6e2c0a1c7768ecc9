/* Types of the kernel come later; the message says so. */
BEGIN {
	trace(((struct task_struct *)arg0)->pid);
	trace(sizeof (struct task_struct));
	trace(offsetof(struct task_struct, pid));
	trace((u64)arg0);
	trace(((struct vmlinux`task_struct *)arg0)->pid);
}
