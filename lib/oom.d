/*
 * Memory that is exhausted: what the kernel then kills.
 */

typedef struct oominfo {
	uint64_t oom_pages;		/* pages that the whole system, or the memory group, may have */
	int64_t oom_points;		/* what speaks for this victim: its pages, changed by its score */
	int oom_order;			/* the allocation that failed was of 2^order pages; -1: asked for by a user */
	uint64_t oom_cgroup;		/* id of the memory group that is full; 0: the system is */
} oominfo_t;

translator oominfo_t < struct oom_control *O > {
	oom_pages = O->totalpages;
	oom_points = O->chosen_points;
	oom_order = O->order;
	oom_cgroup = O->memcg == NULL ? 0 : O->memcg->css.cgroup->kn->id;
};

provider oom {
	probe kill(struct task_struct *T, struct oom_control *O : lwpsinfo_t *T, psinfo_t *T, oominfo_t *O);
	probe mark__victim(struct task_struct *T : lwpsinfo_t *T, psinfo_t *T);
	probe score__adj__update(struct task_struct *T, int score : lwpsinfo_t *T, psinfo_t *T, int score);
};

fbt:vmlinux:oom_kill_process:entry { kill(args[0]->chosen, args[0]); }

/* Older kernels give the id of the process only. */
rawtp:oom::mark_victim /defined(rawtp:oom::mark_victim, args[1])/ { mark__victim(args[0]); }
fbt:vmlinux:mark_oom_victim:entry /!defined(rawtp:oom::mark_victim, args[1])/ { mark__victim(args[0]); }

/* The kernel's member is that of the process. */
rawtp:oom::oom_score_adj_update { score__adj__update(args[0], args[0]->signal->oom_score_adj); }
