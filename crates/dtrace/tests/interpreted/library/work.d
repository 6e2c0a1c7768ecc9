provider work {
	probe tick();
	probe begin(int n, string who);
	probe done(int n, uint64_t took : uint64_t took, int n, work_t *n);
	probe never();
};

/* The number of a task. */
typedef struct work {
	int w_number;
	int w_twice;
} work_t;

translator work_t < int N > {
	w_number = N;
	w_twice = 2 * N;
};

base:::start { tick(); }
base:::start { self->n = arg0; self->t = timestamp; begin(self->n, execname); }
base:::stop /self->n/ { done(self->n, timestamp - self->t); self->n = 0; }
base:::stop { tick(); }
base:::stop /!defined(base:::stop)/ { never(); }
