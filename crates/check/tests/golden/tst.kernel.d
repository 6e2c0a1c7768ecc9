/* Types, members and enumerators of the kernel. */
struct task_struct *global;
u64 wide;
typedef struct cred cred;
BEGIN
{
	trace(curthread->pid); trace(curthread->real_parent->group_leader->tgid);
	trace(curthread->__state); trace(curthread->in_execve); trace(curthread->thread_info.status);
	trace(curthread->cred->uid.val); trace(&curthread->cred->uid); trace(curthread->thread_pid->numbers[0].nr);
	trace(curthread->thread_pid->numbers[arg1].ns->ns.inum); trace(curthread->matrix[1][2]);
	trace(&curthread->matrix[1]); trace(curthread->sched_class->enqueue_task);
	trace(stringof(curthread->sched_class->name)); trace(curthread->pid_links[PIDTYPE_SID].pprev);
	trace((struct vmlinux`cred *)arg0); trace((u64)arg0); trace((vmlinux`uid_t)arg0); trace((pid_t)-1);
	trace(sizeof (struct task_struct)); trace(offsetof(struct task_struct, comm)); trace(sizeof (curthread->comm));
	trace((enum pid_type)arg0 == PIDTYPE_TGID); trace(PIDTYPE_PGID);
	global = curthread; wide = global->start_time; trace(((cred *)arg0)->gid.val);
	trace(curthread->tasks.next->prev == &curthread->tasks); trace(&curthread->real_parent[1] - curthread);
	trace(curthread->comm); name = curthread->comm; trace(curthread->comm == "sh"); names[curthread->comm] = 1;
	names["x"] = 2; @[curthread->comm] = count(); printf("%s %.3s", curthread->comm, curthread->real_parent->comm);
	trace(execname == curthread->comm ? curthread->comm : "other"); trace(&curthread->comm[3]); trace(curthread->comm[3]);
	this->where = (char *)&curthread->comm; trace(*curthread->comm); trace(curthread->comm + 1);
}
