/*
 * What is read in the kernel's memory: the holder of a lock, the file of a descriptor, the load averages.
 */

typedef struct mutex kmutex_t;
typedef struct qrwlock krwlock_t;

/* The low bits of the owner word are flags. */
inline struct task_struct *mutex_owner[struct mutex *lock] = (struct task_struct *)(lock->owner.counter & ~7);
inline int mutex_owned[struct mutex *lock] = (lock->owner.counter & ~7) == (long)curthread;
/* A struct mutex spins only while its owner runs. */
inline int mutex_type_adaptive[struct mutex *lock] = 1;
inline int mutex_type_spin[struct mutex *lock] = 0;

/*
 * A rwlock_t is a queued lock and further fields. Readers are counted from bit 9. A writer holds the low byte; a
 * waiting writer sets the bit between.
 */
inline int rw_read_held[void *lock] = ((struct qrwlock *)lock)->cnts.counter >> 9 != 0;
inline int rw_write_held[void *lock] = (((struct qrwlock *)lock)->cnts.counter & 0xff) == 0xff;
inline int rw_iswriter[void *lock] = (((struct qrwlock *)lock)->cnts.counter & 0x1ff) != 0;

inline struct file *getf[int fd] = fd >= 0 && fd < curthread->files->fdt->max_fds ?
    curthread->files->fdt->fd[fd] : (struct file *)0;

/*
 * The load averages of one, five and fifteen minutes, as 16 bits of integer and 16 bits of fraction. The kernel's own numbers
 * have 11 bits of fraction.
 */
inline uint64_t hp_avenrun[int N] = N >= 0 && N < 3 ? `avenrun[N] << 5 : 0;

#pragma D attributes Stable/Stable/Common hp_avenrun
