/*
 * CPUs. Their properties are read once, when tracing begins.
 */

typedef int processorid_t;
typedef int psetid_t;
typedef int chipid_t;
typedef int lgrp_id_t;

inline int P_OFFLINE = 1;
inline int P_ONLINE = 2;

typedef struct processor_info {
	int pi_state;			/* P_ONLINE */
	char pi_processor_type[16];	/* machine name as of uname -m */
	char pi_fputypes[32];		/* type of the floating-point unit */
	int pi_clock;			/* nominal clock in MHz, where known */
} processor_info_t;

typedef struct cpuinfo {
	processorid_t cpu_id;		/* its number; -1 for none */
	psetid_t cpu_pset;		/* 0 */
	chipid_t cpu_chip;		/* its package */
	lgrp_id_t cpu_lgrp;		/* its NUMA node */
	processor_info_t cpu_info;
} cpuinfo_t;

translator processor_info_t < int CPU > {
	pi_state = CPU < 0 ? P_OFFLINE : P_ONLINE;
	pi_processor_type = _processor_type;
	pi_fputypes = _fputypes;
	pi_clock = _cpu_clock[CPU];
};

translator cpuinfo_t < int CPU > {
	cpu_id = CPU;
	cpu_pset = 0;
	cpu_chip = _cpu_chip[CPU];
	cpu_lgrp = _cpu_lgrp[CPU];
	cpu_info = xlate <processor_info_t> (CPU);
};

inline cpuinfo_t *curcpu = xlate <cpuinfo_t *> (cpu);
inline psetid_t pset = curcpu->cpu_pset;
inline chipid_t chip = curcpu->cpu_chip;
inline lgrp_id_t lgrp = curcpu->cpu_lgrp;

#pragma D attributes Stable/Stable/Common curcpu
#pragma D attributes Stable/Stable/Common pset
#pragma D attributes Stable/Stable/Common chip
#pragma D attributes Stable/Stable/Common lgrp

/*
 * The scheduler's decisions. A probe fires in the thread that it is about, where no argument names another.
 */
provider sched {
	probe on__cpu();
	probe off__cpu(struct task_struct *NEXT : lwpsinfo_t *NEXT, psinfo_t *NEXT);
	probe remain__cpu();
	probe sleep();
	probe preempt();
	probe wakeup(struct task_struct *T : lwpsinfo_t *T, psinfo_t *T);
	probe enqueue(struct task_struct *T, int CPU, int FRONT : lwpsinfo_t *T, psinfo_t *T, cpuinfo_t *CPU, int FRONT);
	probe dequeue(struct task_struct *T, int CPU : lwpsinfo_t *T, psinfo_t *T, cpuinfo_t *CPU);
	probe surrender(struct task_struct *T : lwpsinfo_t *T, psinfo_t *T);
	probe tick(struct task_struct *T : lwpsinfo_t *T, psinfo_t *T);
	probe change__pri(struct task_struct *T, int PRI : lwpsinfo_t *T, psinfo_t *T, int PRI);
};

/* A thread that has ended (TASK_DEAD) does not sleep. */
rawtp:sched::sched_switch /!args[0] && args[3] != 0 && args[3] != 0x80/ { sleep(); }
/* On the return to user mode the flag (args[0]) is false: there the thread could go on (state 0). The idle thread cannot. */
rawtp:sched::sched_switch /args[1]->pid && (args[0] || args[3] == 0)/ { preempt(); }
rawtp:sched::sched_switch { off__cpu(args[2]); }

/* The thread that was switched to runs this. At sched_switch the other one still does. */
rawfbt:vmlinux:finish_task_switch:entry { on__cpu(); }
rawfbt:vmlinux:finish_task_switch.isra.0:entry { on__cpu(); }
rawtp:::sched_exit_tp /!defined(rawfbt:vmlinux:finish_task_switch*:entry) && args[0]/ { on__cpu(); }
rawtp:::sched_exit_tp /!args[0]/ { remain__cpu(); }

/* In the thread that wakes. (sched_wakeup may be on the other's CPU.) */
rawtp:sched::sched_waking { wakeup(args[0]); }

/*
 * Since 6.12 a thread may stay in its queue after it has left it. It leaves once, and it comes back once.
 * Of the flags of enqueue_task, ENQUEUE_HEAD has moved.
 */
fbt:vmlinux:enqueue_task_*:entry
{
	enqueue(args[1], args[0]->cpu, (args[2] & (defined(struct sched_change_ctx) ? 0x10000 : 0x10)) != 0);
}
fbt:vmlinux:dequeue_task_*:entry
/!(defined(struct sched_entity, sched_delayed) ? args[1]->se.sched_delayed : 0)/
{
	dequeue(args[1], args[0]->cpu);
}

/* Few kernels can have a program at the tracepoint: it is left out where the program's end would pass it again. */
rawtp:::sched_set_need_resched_tp { surrender(args[0]); }
fbt:vmlinux:resched_curr:entry,
fbt:vmlinux:resched_curr_lazy:entry
/!defined(rawtp:::sched_set_need_resched_tp)/
{
	surrender(args[0]->curr);
}

fbt:vmlinux:sched_tick:entry { tick(curthread); }
fbt:vmlinux:scheduler_tick:entry { tick(curthread); }

/* Priorities of the kernel: 120 is a nice value of 0, below 100 are those of real time. */
fbt:vmlinux:set_user_nice:entry /args[1] >= -20 && args[1] < 20 && args[0]->static_prio != 120 + args[1]/
{
	change__pri(args[0], 120 + args[1]);
}
fbt:vmlinux:__sched_setscheduler:entry
{
	change__pri(args[0], args[1]->sched_policy == 6 ? -1 :
	    args[1]->sched_policy == 1 || args[1]->sched_policy == 2 ? 99 - args[1]->sched_priority :
	    120 + args[1]->sched_nice);
}
rawtp:sched::sched_pi_setprio
{
	change__pri(args[0], args[1] != NULL && args[1]->prio < args[0]->normal_prio ? args[1]->prio :
	    args[0]->normal_prio);
}
