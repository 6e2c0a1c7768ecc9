/*
 * What the system's counters count. The argument is the amount that is added.
 *
 * A probe without a clause is of a counter that Linux cannot have, or has no place for. Its reason is in
 * crates/dtrace/src/absent.txt.
 */

provider sysinfo {
	probe bawrite(uint64_t N);
	probe bread(uint64_t N);
	probe bwrite(uint64_t N);
	probe canch(uint64_t N);
	probe cpumigrate(uint64_t N);
	probe idlethread(uint64_t N);
	probe intr(uint64_t N);
	probe intrblk(uint64_t N);
	probe intrthread(uint64_t N);
	probe inv_swtch(uint64_t N);
	probe lread(uint64_t N);
	probe lwrite(uint64_t N);
	probe mdmint(uint64_t N);
	probe modload(uint64_t N);
	probe modunload(uint64_t N);
	probe msg(uint64_t N);
	probe mutex_adenters(uint64_t N);
	probe namei(uint64_t N);
	probe nthreads(uint64_t N);
	probe outch(uint64_t N);
	probe phread(uint64_t N);
	probe phwrite(uint64_t N);
	probe procovf(uint64_t N);
	probe pswitch(uint64_t N);
	probe rawch(uint64_t N);
	probe rcvint(uint64_t N);
	probe readch(uint64_t N);
	probe rw_rdfails(uint64_t N);
	probe rw_wrfails(uint64_t N);
	probe sema(uint64_t N);
	probe sysexec(uint64_t N);
	probe sysfork(uint64_t N);
	probe sysread(uint64_t N);
	probe sysvfork(uint64_t N);
	probe syswrite(uint64_t N);
	probe trap(uint64_t N);
	probe ufsdirblk(uint64_t N);
	probe ufsiget(uint64_t N);
	probe ufsinopage(uint64_t N);
	probe ufsipage(uint64_t N);
	probe wait_ticks_io(uint64_t N);
	probe writech(uint64_t N);
	probe xcalls(uint64_t N);
	probe xmtint(uint64_t N);
};

/* System calls. */
syscall::read:entry, syscall::readv:entry, syscall::pread64:entry, syscall::preadv:entry, syscall::preadv2:entry
{
	sysread(1);
}
syscall::write:entry, syscall::writev:entry, syscall::pwrite64:entry, syscall::pwritev:entry, syscall::pwritev2:entry
{
	syswrite(1);
}
syscall::read:return, syscall::readv:return, syscall::pread64:return, syscall::preadv:return, syscall::preadv2:return
/errno == 0/
{
	readch(arg0);
}
syscall::write:return, syscall::writev:return, syscall::pwrite64:return, syscall::pwritev:return,
syscall::pwritev2:return
/errno == 0/
{
	writech(arg0);
}
syscall::execve:entry, syscall::execveat:entry { sysexec(1); }
syscall::msgsnd:entry, syscall::msgrcv:entry { msg(1); }
syscall::semop:entry, syscall::semtimedop:entry { sema(1); }

/* No process could be made: there are too many, of all users or of this one. */
syscall::fork:return, syscall::vfork:return, syscall::clone:return, syscall::clone3:return /errno == EAGAIN/
{
	procovf(1);
}

/* A thread of the kernel (PF_KTHREAD) makes no system call. The idle thread of a CPU has id 0. */
rawtp:task::task_newtask
/args[0]->tgid == args[0]->pid && !(curthread->flags & 0x200000) && !(args[1] & 0x4000)/
{
	sysfork(1);
}
rawtp:task::task_newtask
/args[0]->tgid == args[0]->pid && !(curthread->flags & 0x200000) && (args[1] & 0x4000)/
{
	sysvfork(1);
}
rawtp:task::task_newtask /args[0]->pid/ { nthreads(1); }

/* Before the switch. A thread that could go on (state 0) gives its CPU up because it has to. */
rawtp:sched::sched_switch { pswitch(1); }
rawtp:sched::sched_switch /args[1]->pid && (args[0] || args[3] == 0)/ { inv_swtch(1); }
rawtp:sched::sched_switch /args[2]->pid == 0/ { idlethread(1); }
rawtp:sched::sched_migrate_task { cpumigrate(1); }

/* Interrupts between CPUs: one for each CPU that is to get it, of the first 256. */
inline uint64_t _bits2[uint64_t W] = W - (W >> 1 & 0x5555555555555555);
inline uint64_t _bits4[uint64_t W] = (W & 0x3333333333333333) + (W >> 2 & 0x3333333333333333);
inline uint64_t _bits8[uint64_t W] = (W + (W >> 4) & 0x0f0f0f0f0f0f0f0f) * 0x0101010101010101 >> 56;
inline uint64_t _bits[uint64_t W] = _bits8[_bits4[_bits2[W]]];

rawtp:ipi::ipi_send_cpu { xcalls(1); }
rawtp:ipi::ipi_send_cpumask
{
	xcalls(_bits[args[0]->bits[0]] + _bits[args[0]->bits[1]] + _bits[args[0]->bits[2]] + _bits[args[0]->bits[3]]);
}
fbt:vmlinux:native_smp_send_reschedule:entry, fbt:vmlinux:native_send_call_func_single_ipi:entry
/!defined(rawtp:ipi::ipi_send_cpu)/
{
	xcalls(1);
}
fbt:vmlinux:native_send_call_func_ipi:entry /!defined(rawtp:ipi::ipi_send_cpu)/
{
	xcalls(_bits[args[0]->bits[0]] + _bits[args[0]->bits[1]] + _bits[args[0]->bits[2]] + _bits[args[0]->bits[3]]);
}

rawtp:irq::irq_handler_entry { intr(1); }

/*
 * Locks of the kernel that are waited for. A mutex may be waited for in several ways, one after the other
 * (LCB_F_MUTEX 0x20): that is one attempt. LCB_F_READ is 2, LCB_F_WRITE is 4. A
 * percpu_rw_semaphore (LCB_F_PERCPU 0x10) says that it is waited for whenever it is to be written.
 */
self void *mutex;
rawtp:lock::contention_begin /(args[1] & 0x20) && self->mutex != args[0]/ { mutex_adenters(1); }
rawtp:lock::contention_begin /args[1] & 0x20/ { self->mutex = args[0]; }
rawtp:lock::contention_end /self->mutex == args[0]/ { self->mutex = NULL; }
rawtp:lock::contention_begin /args[1] & 2/ { rw_rdfails(1); }
rawtp:lock::contention_begin /(args[1] & 4) && !(args[1] & 0x10)/ { rw_wrfails(1); }

rawtp:module::module_load { modload(1); }
rawtp:module::module_free { modunload(1); }

/* A walk along a path begins. One that is begun again, with locks, is the same. */
fbt:vmlinux:path_init:entry /args[1] & 0x140/ { namei(1); }

/* Requests for a device: of the cache and of file systems, and by a process for memory of its own. */
rawtp:block::block_bio_queue /_io_op[args[0]->bi_opf] == REQ_OP_READ/ { bread(1); }
rawtp:block::block_bio_queue /_io_op[args[0]->bi_opf] == REQ_OP_WRITE && args[0]->bi_iter.bi_size/ { bwrite(1); }
rawtp:block::block_bio_queue
/_io_op[args[0]->bi_opf] == REQ_OP_WRITE && _io_async[args[0]->bi_opf] && args[0]->bi_iter.bi_size/
{
	bawrite(1);
}
rawtp:block::block_bio_queue
/_io_op[args[0]->bi_opf] == REQ_OP_READ && _vec_flags[_io_vec[args[0]]] == B_PHYS/
{
	phread(1);
}
rawtp:block::block_bio_queue
/_io_op[args[0]->bi_opf] == REQ_OP_WRITE && _vec_flags[_io_vec[args[0]]] == B_PHYS/
{
	phwrite(1);
}
