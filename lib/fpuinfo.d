/* ARCH(x86-64): names and numbers of what the kernel tells of these registers are of this machine. */

/*
 * Registers of floating point (and of vectors, which are kept with them): when a processor takes and gives up those of
 * a thread, and exceptions of what computes with them. Elsewhere this provider has the operations that SPARC has its
 * kernel compute; processors of Linux compute all, so they have no clause: crates/dtrace/src/compile/absent.txt.
 */
provider fpuinfo {
	probe fpu_save();
	probe fpu_restore();
	probe fpu_copy();
	probe fpu_drop();
	probe fpu_exception(int CODE, int TRAP, uintptr_t PC);
	probe fpu_first_use();
};

/* The registers of a thread that ends are given up so, too. (4 is PF_EXITING.) */
rawtp:x86_fpu::x86_fpu_regs_deactivated /!(curthread->flags & 4)/ { fpu_save(); }
rawtp:x86_fpu::x86_fpu_regs_activated { fpu_restore(); }
rawtp:x86_fpu::x86_fpu_copy_dst { fpu_copy(); }
rawtp:x86_fpu::x86_fpu_dropped { fpu_drop(); }

/*
 * The exceptions of the x87 (16) and of SSE and AVX (19) are signals to the thread that has them. One that a program
 * sends has no code of these; a division of integers has another.
 */
inline int _fpu_trap[struct task_struct *T] = T->thread.trap_nr;

rawtp:signal::signal_generate
/args[0] == SIGFPE && (uintptr_t)args[1] > 1 && args[2] == curthread && args[1]->si_code >= FPE_FLTDIV &&
    (_fpu_trap[args[2]] == 16 || _fpu_trap[args[2]] == 19)/
{
	fpu_exception(args[1]->si_code, _fpu_trap[args[2]], (uintptr_t)args[1]->_sifields._sigfault._addr);
}
