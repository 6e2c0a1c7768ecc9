/*
 * Control groups, of the unified hierarchy and of others.
 */

typedef struct cgroupinfo {
	int cg_root;			/* hierarchy, as in /proc/cgroups; 0: the unified one, or none */
	uint64_t cg_id;			/* inode number of its directory */
	int cg_level;			/* 0: the root of its hierarchy */
	string cg_name;			/* its directory; / of a root */
	uint64_t cg_parent;		/* id of the group that it is in; 0: none */
} cgroupinfo_t;

inline uint64_t _cgroup_id[struct cgroup *C] = C->kn == NULL ? 0 : C->kn->id;
inline struct cgroup *_cgroup_parent[struct cgroup *C] = C->self.parent == NULL ? (struct cgroup *)NULL :
    (struct cgroup *)((uintptr_t)C->self.parent - offsetof(struct cgroup, self));

translator cgroupinfo_t < struct cgroup *C > {
	cg_root = C->root->hierarchy_id;
	cg_id = _cgroup_id[C];
	cg_level = C->level;
	cg_name = C->level == 0 || C->kn == NULL ? "/" : stringof(C->kn->name);
	cg_parent = _cgroup_parent[C] == NULL ? 0 : _cgroup_id[_cgroup_parent[C]];
};

translator cgroupinfo_t < struct cgroup_root *R > {
	cg_root = R->hierarchy_id;
	cg_id = _cgroup_id[&R->cgrp];
	cg_level = 0;
	cg_name = "/";
	cg_parent = 0;
};

provider cgroup {
	probe mkdir(struct cgroup *C, string path : cgroupinfo_t *C, string path);
	probe rmdir(struct cgroup *C, string path : cgroupinfo_t *C, string path);
	probe release(struct cgroup *C, string path : cgroupinfo_t *C, string path);
	probe rename(struct cgroup *C, string path : cgroupinfo_t *C, string path);
	probe freeze(struct cgroup *C, string path : cgroupinfo_t *C, string path);
	probe unfreeze(struct cgroup *C, string path : cgroupinfo_t *C, string path);
	probe attach__task(struct cgroup *C, string path, struct task_struct *T, int process :
	    cgroupinfo_t *C, string path, lwpsinfo_t *T, psinfo_t *T, int process);
	probe transfer__tasks(struct cgroup *C, string path, struct task_struct *T, int process :
	    cgroupinfo_t *C, string path, lwpsinfo_t *T, psinfo_t *T, int process);
	probe notify__populated(struct cgroup *C, string path, int value : cgroupinfo_t *C, string path, int value);
	probe notify__frozen(struct cgroup *C, string path, int value : cgroupinfo_t *C, string path, int value);
	probe setup__root(struct cgroup_root *R, string name : cgroupinfo_t *R, string name);
	probe destroy__root(struct cgroup_root *R, string name : cgroupinfo_t *R, string name);
	probe remount(struct cgroup_root *R, string name : cgroupinfo_t *R, string name);
};

rawtp:cgroup::cgroup_mkdir { mkdir(args[0], stringof(args[1])); }
rawtp:cgroup::cgroup_rmdir { rmdir(args[0], stringof(args[1])); }
rawtp:cgroup::cgroup_release { release(args[0], stringof(args[1])); }
rawtp:cgroup::cgroup_rename { rename(args[0], stringof(args[1])); }
rawtp:cgroup::cgroup_freeze { freeze(args[0], stringof(args[1])); }
rawtp:cgroup::cgroup_unfreeze { unfreeze(args[0], stringof(args[1])); }
rawtp:cgroup::cgroup_attach_task { attach__task(args[0], stringof(args[1]), args[2], args[3]); }
rawtp:cgroup::cgroup_transfer_tasks { transfer__tasks(args[0], stringof(args[1]), args[2], args[3]); }
rawtp:cgroup::cgroup_notify_populated { notify__populated(args[0], stringof(args[1]), args[2]); }
rawtp:cgroup::cgroup_notify_frozen { notify__frozen(args[0], stringof(args[1]), args[2]); }
rawtp:cgroup::cgroup_setup_root { setup__root(args[0], stringof(args[0]->name)); }
rawtp:cgroup::cgroup_destroy_root { destroy__root(args[0], stringof(args[0]->name)); }
rawtp:cgroup::cgroup_remount { remount(args[0], stringof(args[0]->name)); }
