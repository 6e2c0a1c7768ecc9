/*
 * The records of a speculation are printed where it is committed. An id is free when the next firing comes.
 *
 * option quiet
 * option nspec=2
 * cpus 2
 * fire syscall::openat:entry tid=1 cpu=0
 * fire syscall::openat:entry tid=2 cpu=1
 * fire syscall::openat:entry tid=3 cpu=0
 * fire syscall::openat:return tid=1 cpu=1 errno=2
 * fire syscall::openat:return tid=2 cpu=1
 * fire syscall::openat:return tid=3 cpu=1 errno=5
 * fire syscall::openat:entry tid=4 cpu=0
 * fire syscall::openat:return tid=4 cpu=0 errno=13
 * fire syscall::openat:entry tid=5 cpu=0
 */
syscall::openat:entry { self->id = speculation(); printf("%d begins %d\n", tid, self->id); }
syscall::openat:entry { speculate(self->id); printf("  %d entry\n", tid); reached[tid] = 1; }
syscall::openat:return /self->id/ { speculate(self->id); printf("  %d return\n", tid); }
syscall::openat:return { printf("%d returns %d\n", tid, errno); }
syscall::openat:return /errno/ { commit(self->id); self->id = 0; }
syscall::openat:return /!errno/ { discard(self->id); self->id = 0; }
END { printf("%d %d %d\n", reached[1], reached[3], reached[5]); }
END { commit(3); }
ERROR { printf("fault %d\n", arg4); }
