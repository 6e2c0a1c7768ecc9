nosuch_t x;
struct task_strct y;
BEGIN { trace(sizeof (struct vmlinux`nowhere)); trace((struct ext9`inode *)0); trace((enum pid_typ)0); trace((uid_u)arg0); }
