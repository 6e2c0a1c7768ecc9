/*
 * Interrupts: the handlers of devices, and what the kernel does after them.
 */

typedef struct irqinfo {
	int irq_number;			/* as in /proc/interrupts */
	string irq_name;		/* of the device, likewise */
	uintptr_t irq_handler;		/* the function that handles it */
	int irq_shared;			/* 1: several devices may share it */
	int irq_has_thread;		/* 1: a thread handles the rest */
} irqinfo_t;

translator irqinfo_t < struct irqaction *A > {
	irq_number = A->irq;
	irq_name = A->name == NULL ? "<none>" : stringof(A->name);
	irq_handler = (uintptr_t)A->handler;
	irq_shared = (A->flags & 0x80) != 0;
	irq_has_thread = A->thread != NULL;
};

provider irq {
	probe handler__entry(struct irqaction *A : irqinfo_t *A);
	probe handler__exit(struct irqaction *A, int result : irqinfo_t *A, int result);
};

rawtp:irq::irq_handler_entry { handler__entry(args[1]); }
rawtp:irq::irq_handler_exit { handler__exit(args[1], args[2]); }

/* The names of /proc/softirqs. */
inline string _softirq_name[uint_t V] =
    V == 0 ? "HI" : V == 1 ? "TIMER" : V == 2 ? "NET_TX" : V == 3 ? "NET_RX" : V == 4 ? "BLOCK" :
    V == 5 ? "IRQ_POLL" : V == 6 ? "TASKLET" : V == 7 ? "SCHED" : V == 8 ? "HRTIMER" : V == 9 ? "RCU" : "<unknown>";

provider softirq {
	probe entry(uint_t vector, string name);
	probe exit(uint_t vector, string name);
	probe raise(uint_t vector, string name);
};

rawtp:irq::softirq_entry { entry(args[0], _softirq_name[args[0]]); }
rawtp:irq::softirq_exit { exit(args[0], _softirq_name[args[0]]); }
rawtp:irq::softirq_raise { raise(args[0], _softirq_name[args[0]]); }
