inline int SIZE = 5 * 2;
inline string name = "x"; inline pid_t ppid = curthread->p;
inline psinfo_t *cur = xlate <psinfo_t *> (curthread);
inline fileinfo_t fds[int fd] = xlate <fileinfo_t> (fd >= 0 ? curthread->fds[fd] : 0);
inline int add[int a, int b] = a + b;
translator psinfo_t < struct task_struct *T > {
	pr_pid = T->tgid;
	pr_uid = T->cred->uid.val;
	string = 1;
};
translator out_t < in_t I > { };
translator struct out < mod`in_t *I > { a = b ? c : d; };
provider myprov {
	probe start(int, char *);
	probe query__done(uint64_t n, string s) : (my_t *, int);
	probe none();
	probe counter(void);
};
#pragma D attributes Evolving/Evolving/Common provider myprov provider
#pragma D attributes Private/Private/Unknown SIZE
#pragma D binding "1.5" SIZE
  #  pragma D depends_on library procfs.d
#pragma D depends_on module vmlinux
#pragma D depends_on provider io /* comment */
#pragma D option quiet
#pragma D option bufsize=4m
#pragma D option x="a b"
#pragma ident "@(#)x.d 1.1"
#ident "x"
#pragma GCC visibility
#pragma pack(1)
#
BEGIN {
#pragma D option destructive
	trace(1);
}
#pragma D \
  option split
provider p { probe q(int n, char *s : my_t *n, string s); probe r(: int); };
inline int has = defined(fbt:vmlinux:vfs_*:entry) && !defined(rawtp:::sched_exit_tp) && defined(my_t, b);

provider each[pid] { probe one(int n); };
