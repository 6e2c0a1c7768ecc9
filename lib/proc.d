/*
 * Processes and threads: their creation, programs, signals and ends.
 *
 * A thread whose id is that of its process is the first one of it.
 */

inline int FLTILL = 1;			/* illegal instruction */
inline int FLTPRIV = 2;			/* privileged instruction */
inline int FLTBPT = 3;			/* breakpoint */
inline int FLTTRACE = 4;		/* single step */
inline int FLTACCESS = 5;		/* access that is not allowed, alignment */
inline int FLTBOUNDS = 6;		/* no memory at this address */
inline int FLTIOVF = 7;			/* integer overflow */
inline int FLTIZDIV = 8;		/* integer division by zero */
inline int FLTFPE = 9;			/* floating point */
inline int FLTSTACK = 10;		/* not used */
inline int FLTPAGE = 11;		/* page that cannot be read */
inline int FLTWATCH = 12;		/* watched address */

typedef struct siginfo {
	int si_signo;			/* signal */
	int si_errno;			/* 0, or an error */
	int si_code;			/* SI_USER, SEGV_MAPERR, … */
	pid_t si_pid;			/* SI_USER, SI_QUEUE, CLD_*: sender, or child */
	uint_t si_uid;			/* its user */
	int si_status;			/* CLD_*: exit status or signal */
	uintptr_t si_addr;		/* of a fault: the address */
	int si_timerid;			/* SI_TIMER: the timer */
	int si_overrun;			/* and how many expirations were missed */
	uint64_t si_value;		/* SI_QUEUE, SI_TIMER: what the sender gave */
	long si_band;			/* POLL_* */
	int si_fd;			/* POLL_*: file descriptor */
} siginfo_t;

translator siginfo_t < struct kernel_siginfo *I > {
	si_signo = I->si_signo;
	si_errno = I->si_errno;
	si_code = I->si_code;
	si_pid = I->_sifields._kill._pid;
	si_uid = I->_sifields._kill._uid;
	si_status = I->_sifields._sigchld._status;
	si_addr = (uintptr_t)I->_sifields._sigfault._addr;
	si_timerid = I->_sifields._timer._tid;
	si_overrun = I->_sifields._timer._overrun;
	si_value = (uint64_t)I->_sifields._rt._sigval.sival_ptr;
	si_band = I->_sifields._sigpoll._band;
	si_fd = I->_sifields._sigpoll._fd;
};

/* SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV. */
inline int _is_fault[int SIG] = SIG <= 11 && (1 << SIG & 0x9b0);

inline int _fault[int SIG, int CODE] =
    SIG == SIGILL ? (CODE == ILL_PRVOPC || CODE == ILL_PRVREG ? FLTPRIV : FLTILL) :
    SIG == SIGTRAP ? (CODE == TRAP_TRACE ? FLTTRACE : CODE == TRAP_HWBKPT ? FLTWATCH : FLTBPT) :
    SIG == SIGFPE ? (CODE == FPE_INTDIV ? FLTIZDIV : CODE == FPE_INTOVF ? FLTIOVF : FLTFPE) :
    SIG == SIGBUS ? (CODE == BUS_ADRALN ? FLTACCESS : FLTPAGE) :
    CODE == SEGV_MAPERR ? FLTBOUNDS : FLTACCESS;

inline int _exit_reason[int STATUS] =
    (STATUS & 0x7f) == 0 ? CLD_EXITED : STATUS & 0x80 ? CLD_DUMPED : CLD_KILLED;

provider proc {
	probe create(struct task_struct *T : psinfo_t *T);
	probe lwp__create(struct task_struct *T : lwpsinfo_t *T, psinfo_t *T);
	probe start();
	probe lwp__start();
	probe exec(string path);
	probe exec__success();
	probe exec__failure(int error);
	probe exit(int reason);
	probe lwp__exit();
	probe fault(int code, struct kernel_siginfo *I : int code, siginfo_t *I);
	probe signal__send(struct task_struct *T, int sig : lwpsinfo_t *T, psinfo_t *T, int sig);
	probe signal__discard(struct task_struct *T, int sig : lwpsinfo_t *T, psinfo_t *T, int sig);
	probe signal__handle(int sig, struct kernel_siginfo *I, void *handler :
	    int sig, siginfo_t *I, void *handler);
	probe signal__clear(int sig);
};

/* Threads of the kernel too. The idle thread of a CPU has id 0. */
rawtp:task::task_newtask /args[0]->pid && args[0]->tgid == args[0]->pid/ { create(args[0]); }
rawtp:task::task_newtask /args[0]->tgid != args[0]->pid/ { lwp__create(args[0]); }

/* A thread that was never switched away from is at its beginning. */
rawtp:::sched_exit_tp
/args[0] && curthread->nvcsw + curthread->nivcsw == 0 && curthread->tgid == curthread->pid/
{
	start();
}
rawtp:::sched_exit_tp /args[0] && curthread->nvcsw + curthread->nivcsw == 0/ { lwp__start(); }
fbt::schedule_tail:entry /!defined(rawtp:::sched_exit_tp) && curthread->tgid == curthread->pid/ { start(); }
fbt::schedule_tail:entry /!defined(rawtp:::sched_exit_tp)/ { lwp__start(); }

/* Programs that the kernel itself starts make no system call. */
syscall::execve:entry { exec(copyinstr(arg0)); }
syscall::execveat:entry { exec(copyinstr(arg1)); }
fbt::kernel_execve:entry { exec(stringof(args[0])); }
rawtp:sched::sched_process_exec { exec__success(); }
syscall::execve:return, syscall::execveat:return /errno/ { exec__failure(errno); }
fbt::kernel_execve:return /args[1] < 0/ { exec__failure(-args[1]); }

/*
 * The last thread of a process is the one that counted its threads down to 0. It alone is told so (args[1]), and it
 * alone calls acct_process. Where neither can be seen, two threads that end at once may both find that none is left.
 */
rawtp:sched::sched_process_exit { lwp__exit(); }
rawtp:sched::sched_process_exit
/defined(rawtp:sched::sched_process_exit, args[1]) ? args[1] :
    defined(fbt::acct_process:entry) ? 0 : args[0]->signal->live.counter == 0/
{
	exit(_exit_reason[args[0]->signal->group_exit_code]);
}
fbt::acct_process:entry /!defined(rawtp:sched::sched_process_exit, args[1])/
{
	exit(_exit_reason[curthread->signal->group_exit_code]);
}

/* Addresses 0 and 1 are no information. What the kernel itself sends has a code above 0. */
rawtp:signal::signal_generate
/_is_fault[args[0]] && (uintptr_t)args[1] > 1 && args[2] == curthread && args[1]->si_code > 0/
{
	fault(_fault[args[0], args[1]->si_code], args[1]);
}

/* Results: 0 and 4 sent, 1 ignored, 2 already pending, 3 no memory. */
rawtp:signal::signal_generate /args[4] != 1 && args[4] != 3/ { signal__send(args[2], args[0]); }
rawtp:signal::signal_generate /args[4] == 1/ { signal__discard(args[2], args[0]); }

/*
 * A signal that ends a process reaches each of its threads as SIGKILL without information. The signal is the process's
 * status then. Threads that end because another one called exit or exec handle no signal.
 */
rawtp:signal::signal_deliver /args[1] != NULL/
{
	signal__handle(args[0], args[1], (void *)args[2]->sa.sa_handler);
}
rawtp:signal::signal_deliver /args[1] == NULL && (curthread->signal->group_exit_code & 0x7f)/
{
	signal__handle(curthread->signal->group_exit_code & 0x7f, args[1], (void *)NULL);
}

syscall::rt_sigtimedwait:return, syscall::rt_sigtimedwait_time64:return /(int)arg0 > 0/
{
	signal__clear((int)arg0);
}
