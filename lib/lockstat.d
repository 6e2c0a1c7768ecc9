/*
 * Locks of the kernel: waiting, acquiring, releasing.
 */

inline int RW_WRITER = 0;
inline int RW_READER = 1;

/*
 * The lock is the first argument, with its type. Where locks of two types fire a probe, the argument behind those that are
 * listed tells (as arg2, arg3) that it is of the other: 1 for an rt_mutex in place of a mutex, for an rw_semaphore in place
 * of a rwlock_t, for a percpu_rw_semaphore in place of an rw_semaphore.
 *
 * No thread spins for another's own lock (thread-spin), and no lock of readers becomes one of a writer (rw-upgrade): these
 * have no clause.
 */
provider lockstat {
	probe adaptive__acquire(struct mutex *M);
	probe adaptive__release(struct mutex *M);
	probe adaptive__acquire__error(struct mutex *M, int error, int other : struct mutex *M, int error);
	probe adaptive__block(struct mutex *M, uint64_t ns, int other : struct mutex *M, uint64_t ns);
	probe adaptive__spin(struct mutex *M, uint64_t ns, int other : struct mutex *M, uint64_t ns);
	probe spin__acquire(spinlock_t *L);
	probe spin__release(spinlock_t *L);
	probe spin__spin(spinlock_t *L, uint64_t ns);
	probe rw__acquire(rwlock_t *L, int kind, int other : rwlock_t *L, int kind);
	probe rw__release(rwlock_t *L, int kind, int other : rwlock_t *L, int kind);
	probe rw__block(struct rw_semaphore *L, uint64_t ns, int kind, int other :
	    struct rw_semaphore *L, uint64_t ns, int kind);
	probe rw__spin(rwlock_t *L, uint64_t ns, int kind);
	probe rw__upgrade(rwlock_t *L);
	probe rw__downgrade(struct rw_semaphore *L);
	probe thread__spin(spinlock_t *L, uint64_t ns);
};

#pragma D attributes Evolving/Evolving/Common provider lockstat provider
#pragma D attributes Private/Private/Unknown provider lockstat module
#pragma D attributes Private/Private/Unknown provider lockstat function
#pragma D attributes Evolving/Evolving/Common provider lockstat name
#pragma D attributes Evolving/Evolving/Common provider lockstat args

/* Flags of contention_begin. A wait for a counting semaphore has none. */
inline uint_t _lock_spins = 0x1;
inline uint_t _lock_reads = 0x2;
inline uint_t _lock_writes = 0x4;
inline uint_t _lock_rt = 0x8;
inline uint_t _lock_percpu = 0x10;
inline uint_t _lock_mutex = 0x20;

inline int _lock_is_rw[uint_t FLAGS] = (FLAGS & (_lock_reads | _lock_writes)) != 0;
inline int _lock_is_mutex[uint_t FLAGS] = !_lock_is_rw[FLAGS] && (FLAGS & (_lock_mutex | _lock_rt)) != 0;
inline int _lock_kind[uint_t FLAGS] = FLAGS & _lock_reads ? RW_READER : RW_WRITER;

/* A wait of a thread for a lock. That for a mutex has several phases: each begins with contention_begin. */
struct _lock_wait {
	uint64_t since;			/* the beginning of the phase */
	uint64_t spun;			/* ns of the phases before */
	uint64_t blocked;
	uint_t flags;			/* of the phase */
	uint_t all;			/* bit 0: a phase spins, bit 1: one blocks */
};

this struct _lock_wait wait;

/*
 * A thread can wait for a spinlock while it waits for a mutex, an interrupt handler can wait meanwhile, and the wait may
 * end on another CPU.
 */
rawtp:lock::contention_begin
{
	this->wait.since = timestamp;
	this->wait.flags = args[1];
	this->wait.all = args[1] & _lock_spins ? 1 : 2;
}
rawtp:lock::contention_begin /!(args[1] & _lock_mutex)/ { waits[curthread, args[0]] = this->wait; }
rawtp:lock::contention_begin /(args[1] & _lock_mutex) && waits[curthread, args[0]].since == 0/
{
	waits[curthread, args[0]] = this->wait;
}
rawtp:lock::contention_begin /(args[1] & _lock_mutex) && waits[curthread, args[0]].since != timestamp/
{
	this->before = waits[curthread, args[0]];
	this->wait.all |= this->before.all;
	this->wait.spun = this->before.spun +
	    (this->before.flags & _lock_spins ? timestamp - this->before.since : 0);
	this->wait.blocked = this->before.blocked +
	    (this->before.flags & _lock_spins ? 0 : timestamp - this->before.since);
	waits[curthread, args[0]] = this->wait;
}

rawtp:lock::contention_end { this->wait = waits[curthread, args[0]]; }
rawtp:lock::contention_end /this->wait.since != 0/
{
	this->spun = this->wait.spun + (this->wait.flags & _lock_spins ? timestamp - this->wait.since : 0);
	this->blocked = this->wait.blocked + (this->wait.flags & _lock_spins ? 0 : timestamp - this->wait.since);
	waits[curthread, args[0]] = 0;
}
rawtp:lock::contention_end /_lock_is_mutex[this->wait.flags] && (this->wait.all & 2)/
{
	adaptive__block((struct mutex *)args[0], this->blocked, !(this->wait.flags & _lock_mutex));
}
rawtp:lock::contention_end /_lock_is_mutex[this->wait.flags] && (this->wait.all & 1)/
{
	adaptive__spin((struct mutex *)args[0], this->spun, !(this->wait.flags & _lock_mutex));
}
rawtp:lock::contention_end /_lock_is_mutex[this->wait.flags] && args[1] < 0/
{
	adaptive__acquire__error((struct mutex *)args[0], -args[1], !(this->wait.flags & _lock_mutex));
}
rawtp:lock::contention_end /_lock_is_rw[this->wait.flags] && (this->wait.all & 2)/
{
	rw__block((struct rw_semaphore *)args[0], this->blocked, _lock_kind[this->wait.flags],
	    (this->wait.flags & _lock_percpu) != 0);
}
rawtp:lock::contention_end /_lock_is_rw[this->wait.flags] && (this->wait.all & 1)/
{
	rw__spin((rwlock_t *)args[0], this->spun, _lock_kind[this->wait.flags]);
}
rawtp:lock::contention_end /this->wait.flags == _lock_spins/ { spin__spin((spinlock_t *)args[0], this->spun); }

/*
 * Acquiring and releasing. A lock is acquired when its function returns. What an interrupt handler calls in the middle has
 * another level.
 */
fbt:vmlinux:mutex_lock*:entry, fbt:vmlinux:mutex_trylock:entry, fbt:vmlinux:ww_mutex_lock*:entry
{
	mutexes[curthread, ipl] = arg0;
}
fbt:vmlinux:mutex_lock:return, fbt:vmlinux:mutex_lock_io:return /mutexes[curthread, ipl]/
{
	adaptive__acquire((struct mutex *)mutexes[curthread, ipl]);
}
fbt:vmlinux:mutex_lock_interruptible:return, fbt:vmlinux:mutex_lock_killable:return, fbt:vmlinux:ww_mutex_lock*:return
/mutexes[curthread, ipl] && (int)arg1 == 0/
{
	adaptive__acquire((struct mutex *)mutexes[curthread, ipl]);
}
fbt:vmlinux:mutex_trylock:return /mutexes[curthread, ipl] && (int)arg1 != 0/
{
	adaptive__acquire((struct mutex *)mutexes[curthread, ipl]);
}
fbt:vmlinux:mutex_lock*:return, fbt:vmlinux:mutex_trylock:return, fbt:vmlinux:ww_mutex_lock*:return
{
	mutexes[curthread, ipl] = 0;
}
fbt:vmlinux:mutex_unlock:entry { adaptive__release((struct mutex *)arg0); }

fbt:vmlinux:_raw_spin_lock*:entry, fbt:vmlinux:_raw_spin_trylock*:entry { spinlocks[curthread, ipl] = arg0; }
fbt:vmlinux:_raw_spin_lock*:return /spinlocks[curthread, ipl]/
{
	spin__acquire((spinlock_t *)spinlocks[curthread, ipl]);
}
fbt:vmlinux:_raw_spin_trylock*:return /spinlocks[curthread, ipl] && (int)arg1 != 0/
{
	spin__acquire((spinlock_t *)spinlocks[curthread, ipl]);
}
fbt:vmlinux:_raw_spin_lock*:return, fbt:vmlinux:_raw_spin_trylock*:return { spinlocks[curthread, ipl] = 0; }
fbt:vmlinux:_raw_spin_unlock*:entry { spin__release((spinlock_t *)arg0); }

fbt:vmlinux:down_read*:entry, fbt:vmlinux:down_write*:entry { semaphores[curthread, ipl] = arg0; }
fbt:vmlinux:down_read:return /semaphores[curthread, ipl]/
{
	rw__acquire((rwlock_t *)semaphores[curthread, ipl], RW_READER, 1);
}
fbt:vmlinux:down_read_interruptible:return, fbt:vmlinux:down_read_killable:return
/semaphores[curthread, ipl] && (int)arg1 == 0/
{
	rw__acquire((rwlock_t *)semaphores[curthread, ipl], RW_READER, 1);
}
fbt:vmlinux:down_read_trylock:return /semaphores[curthread, ipl] && (int)arg1 != 0/
{
	rw__acquire((rwlock_t *)semaphores[curthread, ipl], RW_READER, 1);
}
fbt:vmlinux:down_write:return /semaphores[curthread, ipl]/
{
	rw__acquire((rwlock_t *)semaphores[curthread, ipl], RW_WRITER, 1);
}
fbt:vmlinux:down_write_killable:return /semaphores[curthread, ipl] && (int)arg1 == 0/
{
	rw__acquire((rwlock_t *)semaphores[curthread, ipl], RW_WRITER, 1);
}
fbt:vmlinux:down_write_trylock:return /semaphores[curthread, ipl] && (int)arg1 != 0/
{
	rw__acquire((rwlock_t *)semaphores[curthread, ipl], RW_WRITER, 1);
}
fbt:vmlinux:down_read*:return, fbt:vmlinux:down_write*:return { semaphores[curthread, ipl] = 0; }
fbt:vmlinux:up_read:entry { rw__release((rwlock_t *)arg0, RW_READER, 1); }
fbt:vmlinux:up_write:entry { rw__release((rwlock_t *)arg0, RW_WRITER, 1); }
fbt:vmlinux:downgrade_write:entry { rw__downgrade((struct rw_semaphore *)arg0); }

fbt:vmlinux:_raw_read_lock*:entry, fbt:vmlinux:_raw_read_trylock:entry { rwlocks[curthread, ipl] = arg0; }
fbt:vmlinux:_raw_write_lock*:entry, fbt:vmlinux:_raw_write_trylock:entry { rwlocks[curthread, ipl] = arg0; }
fbt:vmlinux:_raw_read_lock*:return /rwlocks[curthread, ipl]/
{
	rw__acquire((rwlock_t *)rwlocks[curthread, ipl], RW_READER, 0);
}
fbt:vmlinux:_raw_read_trylock:return /rwlocks[curthread, ipl] && (int)arg1 != 0/
{
	rw__acquire((rwlock_t *)rwlocks[curthread, ipl], RW_READER, 0);
}
fbt:vmlinux:_raw_write_lock*:return /rwlocks[curthread, ipl]/
{
	rw__acquire((rwlock_t *)rwlocks[curthread, ipl], RW_WRITER, 0);
}
fbt:vmlinux:_raw_write_trylock:return /rwlocks[curthread, ipl] && (int)arg1 != 0/
{
	rw__acquire((rwlock_t *)rwlocks[curthread, ipl], RW_WRITER, 0);
}
fbt:vmlinux:_raw_read_lock*:return, fbt:vmlinux:_raw_read_trylock:return { rwlocks[curthread, ipl] = 0; }
fbt:vmlinux:_raw_write_lock*:return, fbt:vmlinux:_raw_write_trylock:return { rwlocks[curthread, ipl] = 0; }
fbt:vmlinux:_raw_read_unlock*:entry { rw__release((rwlock_t *)arg0, RW_READER, 0); }
fbt:vmlinux:_raw_write_unlock*:entry { rw__release((rwlock_t *)arg0, RW_WRITER, 0); }
