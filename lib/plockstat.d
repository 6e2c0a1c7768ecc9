/*
 * Locks of a process: mutexes and reader-writer locks of POSIX threads, in glibc since 2.34, or in its libpthread before.
 *
 * What is not known of a lock by the calls of its functions is read from the lock. A thread blocks where it calls futex for
 * a word of the lock that it is about to acquire. It spins in its own code, where nothing can be attached.
 *
 * The functions of mutexes that are robust, inherit priority or protect by a ceiling are jumped to. Where returns are
 * probed at instructions, which arg0 tells, the result is not known at the jump: such an acquisition is not seen there.
 */
provider plockstat[pid] {
	probe mutex__acquire(void *M, int recursive, int spins);
	probe mutex__release(void *M, int recursive);
	probe mutex__block(void *M);
	probe mutex__blocked(void *M, int success);
	probe mutex__spin(void *M);
	probe mutex__spun(void *M, int success, int spins);
	probe mutex__error(void *M, int error);
	probe rw__acquire(void *L, int writer);
	probe rw__release(void *L, int writer);
	probe rw__block(void *L, int writer);
	probe rw__blocked(void *L, int writer, int success);
	probe rw__error(void *L, int writer, int error);
};

#pragma D attributes Evolving/Evolving/Common provider plockstat provider
#pragma D attributes Private/Private/Unknown provider plockstat module
#pragma D attributes Private/Private/Unknown provider plockstat function
#pragma D attributes Evolving/Evolving/Common provider plockstat name
#pragma D attributes Evolving/Evolving/Common provider plockstat args

/* A mutex in the memory of its process, and a reader-writer lock. */
struct _pthread_mutex {
	int lock;
	uint32_t count;			/* of a recursive one: how often its owner has it */
	int owner;			/* its thread, as its process numbers threads */
	uint32_t users;
	int kind;
	int16_t spins;
};
struct _pthread_rwlock {
	uint32_t readers;
	uint32_t writers;
	uint32_t wrphase_futex;
	uint32_t writers_futex;
	uint32_t pad[2];
	int cur_writer;
	int shared;
	char rest[24];
};
inline struct _pthread_mutex *_mutex[uintptr_t M] = (struct _pthread_mutex *)copyin(M, sizeof (struct _pthread_mutex));
inline struct _pthread_rwlock *_rwlock[uintptr_t L] = (struct _pthread_rwlock *)copyin(L, sizeof (struct _pthread_rwlock));

inline int _mutex_special = 0x7c;	/* of kind: robust, with priorities */
inline int _mutex_type[int KIND] = KIND & 3;
inline int _mutex_recursive = 1;
inline int _mutex_errorcheck = 2;
inline int _mutex_adaptive = 3;
/* Only its owner can release it: others of its kind anybody can. */
inline int _mutex_owned[int KIND] =
    (KIND & 0x10) || _mutex_type[KIND] == _mutex_recursive || _mutex_type[KIND] == _mutex_errorcheck;

/* EOWNERDEAD comes with the lock. */
inline int _lock_acquired[int ERROR] = ERROR == 0 || ERROR == EOWNERDEAD;
/* Whether arg1 of a return is the result. */
inline int _mutex_returns[int OFFSET, int KIND] = OFFSET == 0 || (KIND & _mutex_special) == 0;

/* The number of the thread in its process. */
inline int _own_tid = curthread->thread_pid->numbers[curthread->thread_pid->level].nr;

/* Operations of futex that wait: FUTEX_WAIT, _LOCK_PI, _WAIT_BITSET, _LOCK_PI2. */
inline int _futex_waits[int OP] = (OP & 0x7f) == 0 || (OP & 0x7f) == 6 || (OP & 0x7f) == 9 || (OP & 0x7f) == 13;

/* The lock that the thread is about to acquire. */
self uintptr_t mutex;
self int kind;
self int spins;			/* it has spun for it, as far as is known */
self int blocks;		/* it has called futex for it */
self uintptr_t rwlock;
self int writer;
self int sleeps;

this struct _pthread_mutex m;
this int fails;
this struct _pthread_rwlock rw;

/*
 * Before 2.34 the functions of libc call those of libpthread, where there is one.
 */
pid$target:libpthread*:pthread_mutex_[clt]*ock:entry
{
	self->mutex = arg0;
	self->kind = _mutex[arg0]->kind;
	self->spins = 0;
	self->blocks = 0;
}
pid$target:libc:pthread_mutex_[clt]*ock:entry /!defined(pid$target:libpthread*:pthread_mutex_lock:entry)/
{
	self->mutex = arg0;
	self->kind = _mutex[arg0]->kind;
	self->spins = 0;
	self->blocks = 0;
}

/* An adaptive mutex that is locked is tried a number of times. trylock tries once. */
pid$target:libpthread*:pthread_mutex_lock:entry, pid$target:libpthread*:pthread_mutex_[ct][li]*ock:entry,
pid$target:libc:pthread_mutex_lock:entry, pid$target:libc:pthread_mutex_[ct][li]*ock:entry
/self->mutex == arg0 && self->kind == _mutex_adaptive && _mutex[arg0]->lock != 0/
{
	self->spins = 1;
	mutex__spin((void *)arg0);
}

/* These jump to a function of both. */
pid$target:libpthread*:pthread_mutex_[ct][li]*ock:entry, pid$target:libc:pthread_mutex_[ct][li]*ock:entry
/self->mutex == arg0/
{
	self->kind |= _mutex_special;
}

/* A wait for a condition releases the mutex and acquires it again. */
pid$target:libpthread*:pthread_cond_*wait:entry
{
	self->mutex = arg1;
	self->kind = 0;
	self->spins = 0;
	self->blocks = 0;
	mutex__release((void *)arg1, 0);
}
pid$target:libc:pthread_cond_*wait:entry /!defined(pid$target:libpthread*:pthread_mutex_lock:entry)/
{
	self->mutex = arg1;
	self->kind = 0;
	self->spins = 0;
	self->blocks = 0;
	mutex__release((void *)arg1, 0);
}

syscall::futex:entry
/pid == $target && self->mutex && arg0 == self->mutex && !self->blocks && _futex_waits[(int)arg1] && self->spins/
{
	self->spins = 0;
	mutex__spun((void *)self->mutex, 0, 0);
}
syscall::futex:entry
/pid == $target && self->mutex && arg0 == self->mutex && !self->blocks && _futex_waits[(int)arg1]/
{
	self->blocks = 1;
	mutex__block((void *)self->mutex);
}

pid$target:libpthread*:pthread_mutex_[clt]*ock:return, pid$target:libc:pthread_mutex_[clt]*ock:return
/self->mutex && self->spins/
{
	mutex__spun((void *)self->mutex, (int)arg1 == 0, 0);
}
pid$target:libpthread*:pthread_mutex_[clt]*ock:return, pid$target:libc:pthread_mutex_[clt]*ock:return
/self->mutex && self->blocks && _mutex_returns[(int)arg0, self->kind]/
{
	mutex__blocked((void *)self->mutex, _lock_acquired[(int)arg1]);
}
pid$target:libpthread*:pthread_mutex_[clt]*ock:return, pid$target:libc:pthread_mutex_[clt]*ock:return
/self->mutex && _mutex_returns[(int)arg0, self->kind] && _lock_acquired[(int)arg1]/
{
	mutex__acquire((void *)self->mutex,
	    _mutex_type[self->kind] == _mutex_recursive && _mutex[self->mutex]->count > 1, 0);
}
pid$target:libpthread*:pthread_mutex_[clt]*ock:return, pid$target:libc:pthread_mutex_[clt]*ock:return
/self->mutex && _mutex_returns[(int)arg0, self->kind] && !_lock_acquired[(int)arg1]/
{
	mutex__error((void *)self->mutex, (int)arg1);
}
pid$target:libpthread*:pthread_cond_*wait:return, pid$target:libc:pthread_cond_*wait:return /self->mutex && self->blocks/
{
	mutex__blocked((void *)self->mutex, 1);
}
pid$target:libpthread*:pthread_cond_*wait:return, pid$target:libc:pthread_cond_*wait:return /self->mutex/
{
	mutex__acquire((void *)self->mutex, 0, 0);
}
pid$target:libpthread*:pthread_mutex_[clt]*ock:return, pid$target:libc:pthread_mutex_[clt]*ock:return,
pid$target:libpthread*:pthread_cond_*wait:return, pid$target:libc:pthread_cond_*wait:return
{
	self->mutex = 0;
	self->kind = 0;
	self->spins = 0;
	self->blocks = 0;
}

/* Whether a mutex can be released is known before. Once it is, another thread may have it. */
pid$target:libpthread*:pthread_mutex_unlock:entry
{
	this->m = *_mutex[arg0];
	this->fails = _mutex_owned[this->m.kind] && this->m.owner != _own_tid;
}
pid$target:libc:pthread_mutex_unlock:entry /!defined(pid$target:libpthread*:pthread_mutex_lock:entry)/
{
	this->m = *_mutex[arg0];
	this->fails = _mutex_owned[this->m.kind] && this->m.owner != _own_tid;
}
pid$target:libpthread*:pthread_mutex_unlock:entry, pid$target:libc:pthread_mutex_unlock:entry /this->fails == 0/
{
	mutex__release((void *)arg0, _mutex_type[this->m.kind] == _mutex_recursive && this->m.count > 1);
}
pid$target:libpthread*:pthread_mutex_unlock:entry, pid$target:libc:pthread_mutex_unlock:entry /this->fails == 1/
{
	mutex__error((void *)arg0, EPERM);
}

/*
 * Reader-writer locks: the names of the functions end with rdlock and wrlock.
 */
pid$target:libpthread*:pthread_rwlock_*rdlock:entry
{
	self->rwlock = arg0;
	self->writer = 0;
	self->sleeps = 0;
}
pid$target:libc:pthread_rwlock_*rdlock:entry /!defined(pid$target:libpthread*:pthread_mutex_lock:entry)/
{
	self->rwlock = arg0;
	self->writer = 0;
	self->sleeps = 0;
}
pid$target:libpthread*:pthread_rwlock_*wrlock:entry
{
	self->rwlock = arg0;
	self->writer = 1;
	self->sleeps = 0;
}
pid$target:libc:pthread_rwlock_*wrlock:entry /!defined(pid$target:libpthread*:pthread_mutex_lock:entry)/
{
	self->rwlock = arg0;
	self->writer = 1;
	self->sleeps = 0;
}
syscall::futex:entry
/pid == $target && self->rwlock && arg0 - self->rwlock < sizeof (struct _pthread_rwlock) && !self->sleeps &&
    _futex_waits[(int)arg1]/
{
	self->sleeps = 1;
	rw__block((void *)self->rwlock, self->writer);
}
pid$target:libpthread*:pthread_rwlock_*[dr]lock:return, pid$target:libc:pthread_rwlock_*[dr]lock:return
/self->rwlock && self->sleeps/
{
	rw__blocked((void *)self->rwlock, self->writer, (int)arg1 == 0);
}
pid$target:libpthread*:pthread_rwlock_*[dr]lock:return, pid$target:libc:pthread_rwlock_*[dr]lock:return
/self->rwlock && (int)arg1 == 0/
{
	rw__acquire((void *)self->rwlock, self->writer);
}
pid$target:libpthread*:pthread_rwlock_*[dr]lock:return, pid$target:libc:pthread_rwlock_*[dr]lock:return
/self->rwlock && (int)arg1 != 0/
{
	rw__error((void *)self->rwlock, self->writer, (int)arg1);
}
pid$target:libpthread*:pthread_rwlock_*[dr]lock:return, pid$target:libc:pthread_rwlock_*[dr]lock:return
{
	self->rwlock = 0;
	self->writer = 0;
	self->sleeps = 0;
}

pid$target:libpthread*:pthread_rwlock_unlock:entry
{
	this->rw = *_rwlock[arg0];
	rw__release((void *)arg0, this->rw.cur_writer != 0);
}
pid$target:libc:pthread_rwlock_unlock:entry /!defined(pid$target:libpthread*:pthread_mutex_lock:entry)/
{
	this->rw = *_rwlock[arg0];
	rw__release((void *)arg0, this->rw.cur_writer != 0);
}
