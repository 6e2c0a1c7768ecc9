/*
 * Processes and threads: states, flags and data models.
 */

inline int SSLEEP = 1;
inline int SRUN = 2;
inline int SZOMB = 3;
inline int SSTOP = 4;
inline int SIDL = 5;
inline int SONPROC = 6;
inline int SWAIT = 7;

inline int PR_STOPPED = 0x1;
inline int PR_ISTOP = 0x2;
inline int PR_DSTOP = 0x4;
inline int PR_STEP = 0x8;
inline int PR_ASLEEP = 0x10;
inline int PR_PCINVAL = 0x20;
inline int PR_ASLWP = 0x40;
inline int PR_AGENT = 0x80;
inline int PR_DETACH = 0x100;
inline int PR_DAEMON = 0x200;
inline int PR_IDLE = 0x400;
inline int PR_ISSYS = 0x1000;
inline int PR_VFORKP = 0x2000;
inline int PR_ORPHAN = 0x4000;
inline int PR_NOSIGCHLD = 0x8000;
inline int PR_WAITPID = 0x10000;
inline int PR_FORK = 0x100000;
inline int PR_RLC = 0x200000;
inline int PR_KLC = 0x400000;
inline int PR_ASYNC = 0x800000;
inline int PR_MSACCT = 0x1000000;
inline int PR_BPTADJ = 0x2000000;
inline int PR_PTRACE = 0x4000000;
inline int PR_MSFORK = 0x8000000;

inline int PR_REQUESTED = 1;
inline int PR_SIGNALLED = 2;
inline int PR_SYSENTRY = 3;
inline int PR_SYSEXIT = 4;
inline int PR_JOBCONTROL = 5;
inline int PR_FAULTED = 6;
inline int PR_SUSPENDED = 7;
inline int PR_CHECKPOINT = 8;

inline int PR_MODEL_UNKNOWN = 0;
inline int PR_MODEL_ILP32 = 1;
inline int PR_MODEL_LP64 = 2;

inline int SOBJ_NONE = 0;
inline int SOBJ_MUTEX = 1;
inline int SOBJ_RWLOCK = 2;
inline int SOBJ_CV = 3;
inline int SOBJ_SEMA = 4;
inline int SOBJ_USER = 5;
inline int SOBJ_USER_PI = 6;
inline int SOBJ_SHUTTLE = 7;

/*
 * Processes and threads as curpsinfo and curlwpsinfo show them. Every member is an expression over the kernel's
 * task_struct. It is compiled only if a script uses it, against the types of the running kernel.
 */

typedef struct timestruc {
	long tv_sec;
	long tv_nsec;
} timestruc_t;

/* Nanoseconds. */
translator timestruc_t < uint64_t NS > {
	tv_sec = NS / 1000000000;
	tv_nsec = NS % 1000000000;
};

typedef struct lwpsinfo {
	int pr_flag;			/* PR_STOPPED, PR_ISSYS, PR_IDLE */
	id_t pr_lwpid;			/* thread id */
	uintptr_t pr_addr;		/* address of the task */
	uintptr_t pr_wchan;		/* not known */
	char pr_stype;			/* not known */
	char pr_state;			/* SSLEEP, SRUN, … */
	char pr_sname;			/* the state as a letter */
	char pr_nice;			/* nice value */
	short pr_syscall;		/* system call of the current thread, or -1 */
	char pr_oldpri;			/* not known */
	char pr_cpu;			/* not known */
	int pr_pri;			/* priority, the lower the better */
	ushort_t pr_pctcpu;		/* not known */
	timestruc_t pr_start;		/* start, since 1970 */
	timestruc_t pr_time;		/* CPU time, user and system */
	char pr_clname[8];		/* scheduling class */
	char pr_name[16];		/* name */
	processorid_t pr_onpro;		/* CPU on which it runs or last ran */
	processorid_t pr_bindpro;	/* the only CPU it may run on, or -1 */
	psetid_t pr_bindpset;		/* -1 */
	int pr_lgrp;			/* NUMA node of pr_onpro */
} lwpsinfo_t;

typedef struct psinfo {
	int pr_flag;			/* not known */
	int pr_nlwp;			/* threads */
	pid_t pr_pid;			/* process id */
	pid_t pr_ppid;			/* parent's */
	pid_t pr_pgid;			/* process group */
	pid_t pr_sid;			/* session */
	uint_t pr_uid;			/* real user id */
	uint_t pr_euid;			/* effective */
	uint_t pr_gid;			/* real group id */
	uint_t pr_egid;			/* effective */
	uintptr_t pr_addr;		/* address of the first thread's task: one for all threads of a process */
	size_t pr_size;			/* address space, KB */
	size_t pr_rssize;		/* resident KB, without pages that CPUs have not yet reported */
	uint_t pr_ttydev;		/* controlling terminal, or -1 */
	ushort_t pr_pctcpu;		/* not known */
	ushort_t pr_pctmem;		/* not known */
	timestruc_t pr_start;		/* start, since 1970 */
	timestruc_t pr_time;		/* CPU time of this thread and of those that ended */
	timestruc_t pr_ctime;		/* CPU time of children that ended */
	char pr_fname[16];		/* name */
	char pr_psargs[80];		/* arguments of the current process; otherwise its name */
	int pr_wstat;			/* 0 */
	int pr_argc;			/* number of arguments of the current process; otherwise 0 */
	uintptr_t pr_argv;		/* user address of the arguments, one string after the other */
	uintptr_t pr_envp;		/* user address of the environment, as the arguments */
	size_t pr_arglen;		/* bytes of the arguments */
	char pr_dmodel;			/* PR_MODEL_ILP32, PR_MODEL_LP64 */
	id_t pr_taskid;			/* 0 */
	id_t pr_projid;			/* 0 */
	int pr_nzomb;			/* 0 */
	id_t pr_poolid;			/* 0 */
	id_t pr_zoneid;			/* 0 */
	id_t pr_contract;		/* 0 */
	int pr_jailid;			/* 0 */
	lwpsinfo_t pr_lwp;		/* this thread */
} psinfo_t;

/* A process id in the tracer's pid namespace; 0 if the process has none there. */
inline pid_t _pid_at[struct pid *P, int LEVEL] =
    P->level >= LEVEL && P->numbers[LEVEL].ns->ns.inum == _pidns ? P->numbers[LEVEL].nr : 0;

inline pid_t _pid[struct pid *P] = _pidns == 0 ? P->numbers[0].nr :
    _pid_at[P, 1] | _pid_at[P, 2] | _pid_at[P, 3] | _pid_at[P, 4];

inline pid_t _process[struct task_struct *T] =
    _pidns == 0 ? T->tgid : _pid[T->signal->pids[PIDTYPE_TGID]];

/* Number of resident pages. */
inline long _rss[struct mm_struct *M] = defined(struct mm_struct, rss_stat.count) ?
    M->rss_stat.count[MM_FILEPAGES].counter + M->rss_stat.count[MM_ANONPAGES].counter +
    M->rss_stat.count[MM_SHMEMPAGES].counter :
    M->rss_stat[MM_FILEPAGES].count + M->rss_stat[MM_ANONPAGES].count + M->rss_stat[MM_SHMEMPAGES].count;

/* A device number of the kernel: 12 bits of major, 20 bits of minor number. */
inline uint_t _ttydev[struct tty_struct *TTY] = TTY == NULL ? -1 :
    TTY->driver->major << 20 | (TTY->driver->minor_start + TTY->index);

/* The number of arguments, which is where the stack of the program begins. */
inline int _argc[struct mm_struct *M] = *(int *)copyin(M->start_stack, sizeof (int));

/* The CPU of a task. */
inline int _task_cpu[struct task_struct *T] =
    defined(struct task_struct, cpu) ? T->cpu : T->thread_info.cpu;

/* Bits of TASK_* and EXIT_*: 1 and 2 sleep, 4 and 8 are stopped, 0x10, 0x20 and 0x80 are dead,
 * 0x100 and 0x200 wake. */
inline int _task_bits[struct task_struct *T] = T->__state | T->exit_state;

inline int _bits_state[int BITS, int RUNS] = BITS & 0x3 ? SSLEEP : BITS & 0xc ? SSTOP : BITS & 0xb0 ? SZOMB :
    BITS & 0x300 ? SWAIT : RUNS ? SONPROC : SRUN;

inline int _bits_name[int BITS, int RUNS] = BITS & 0x3 ? 'S' : BITS & 0xc ? 'T' : BITS & 0xb0 ? 'Z' :
    BITS & 0x300 ? 'W' : RUNS ? 'O' : 'R';

translator lwpsinfo_t < struct task_struct *T > {
	pr_flag = (T->__state & 0x4 ? PR_STOPPED : 0) | (T->mm == NULL ? PR_ISSYS : 0) | (T->pid == 0 ? PR_IDLE : 0);
	pr_lwpid = _pidns == 0 ? T->pid : _pid[T->thread_pid];
	pr_addr = (uintptr_t)T;
	pr_wchan = 0;
	pr_stype = SOBJ_NONE;
	pr_state = _bits_state[_task_bits[T], T->on_cpu];
	pr_sname = _bits_name[_task_bits[T], T->on_cpu];
	pr_nice = T->static_prio - 120;
	pr_syscall = T == curthread && T->mm != NULL ? uregs[R_ERR] : -1;
	pr_oldpri = 0;
	pr_cpu = 0;
	pr_pri = T->prio;
	pr_pctcpu = 0;
	pr_start = xlate <timestruc_t> (T->start_boottime + _boottime);
	pr_time = xlate <timestruc_t> (T->utime + T->stime);
	pr_clname = T->policy == 0 ? "TS" : T->policy == 1 ? "FIFO" : T->policy == 2 ? "RR" :
	    T->policy == 3 ? "BATCH" : T->policy == 5 ? "IDLE" : T->policy == 6 ? "DEADLINE" : "EXT";
	pr_name = stringof(T->comm);
	pr_onpro = _task_cpu[T];
	pr_bindpro = T->nr_cpus_allowed == 1 ? _task_cpu[T] : -1;
	pr_bindpset = -1;
	pr_lgrp = _cpu_lgrp[_task_cpu[T]];
};

translator psinfo_t < struct task_struct *T > {
	pr_flag = 0;
	pr_nlwp = T->signal->nr_threads;
	pr_pid = _process[T];
	pr_ppid = _process[T->real_parent];
	pr_pgid = _pid[T->signal->pids[PIDTYPE_PGID]];
	pr_sid = _pid[T->signal->pids[PIDTYPE_SID]];
	pr_uid = T->cred->uid.val;
	pr_euid = T->cred->euid.val;
	pr_gid = T->cred->gid.val;
	pr_egid = T->cred->egid.val;
	pr_addr = (uintptr_t)T->group_leader;
	pr_size = T->mm == NULL ? 0 : T->mm->total_vm * (_pagesize / 1024);
	pr_rssize = T->mm == NULL ? 0 : _rss[T->mm] * (_pagesize / 1024);
	pr_ttydev = _ttydev[T->signal->tty];
	pr_pctcpu = 0;
	pr_pctmem = 0;
	pr_start = xlate <timestruc_t> (T->group_leader->start_boottime + _boottime);
	pr_time = xlate <timestruc_t> (T->utime + T->stime + T->signal->utime + T->signal->stime);
	pr_ctime = xlate <timestruc_t> (T->signal->cutime + T->signal->cstime);
	pr_fname = stringof(T->comm);
	pr_psargs = T == curthread && T->mm != NULL ? _psargs[T->mm] : stringof(T->comm);
	pr_wstat = 0;
	pr_argc = T->mm != NULL && T->mm == curthread->mm ? _argc[T->mm] : 0;
	pr_argv = T->mm == NULL ? 0 : T->mm->arg_start;
	pr_envp = T->mm == NULL ? 0 : T->mm->env_start;
	pr_arglen = T->mm == NULL ? 0 : T->mm->arg_end - T->mm->arg_start;
	pr_dmodel = T->mm != NULL && T->mm->task_size <= 0xffffffff ? PR_MODEL_ILP32 : PR_MODEL_LP64;
	pr_taskid = 0;
	pr_projid = 0;
	pr_nzomb = 0;
	pr_poolid = 0;
	pr_zoneid = 0;
	pr_contract = 0;
	pr_jailid = 0;
	pr_lwp = xlate <lwpsinfo_t> (T);
};

/* The arguments of the current process as one string. For a kernel thread, its name. */
inline string execargs = curthread->mm == NULL ? execname :
    _args(curthread->mm->arg_start, curthread->mm->arg_end);

/* The arguments as far as they fit in pr_psargs. */
inline string _psargs[struct mm_struct *M] =
    _args(M->arg_start, M->arg_end - M->arg_start > 80 ? M->arg_start + 80 : M->arg_end);

inline psinfo_t *curpsinfo = xlate <psinfo_t *> (curthread);
inline lwpsinfo_t *curlwpsinfo = xlate <lwpsinfo_t *> (curthread);

inline string cwd = curthread->fs == NULL ? "<unknown>" : d_path(&curthread->fs->pwd);
inline string root = curthread->fs == NULL ? "<unknown>" : _fullpath(&curthread->fs->root);

/*
 * The container of the current process, by the convention of container managers: a container has its own cgroup
 * namespace, and the root cgroup of that namespace is named after the container. The name is "global" outside of
 * containers. With cgroups version 1 the names of cgroups are not available; then it is the container's host name.
 */
inline string zonename =
    curthread->nsproxy == NULL || curthread->nsproxy->cgroup_ns->ns.inum == 0xeffffffb ? "global" :
    *curthread->nsproxy->cgroup_ns->root_cset->dfl_cgrp->kn->name != 0 ?
    stringof(curthread->nsproxy->cgroup_ns->root_cset->dfl_cgrp->kn->name) :
    stringof(curthread->nsproxy->uts_ns->name.nodename);

#pragma D attributes Stable/Stable/Common curpsinfo
#pragma D attributes Stable/Stable/Common curlwpsinfo
#pragma D attributes Stable/Stable/Common cwd
#pragma D attributes Stable/Stable/Common execargs
#pragma D attributes Stable/Stable/Common root
#pragma D attributes Stable/Stable/Common zonename
