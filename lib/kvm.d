/*
 * Virtual machines: their processors, in the thread that runs one.
 * ARCH(x86-64): reasons of exits and registers of a machine are those of this machine's processors.
 */

inline uint_t KVM_ISA_VMX = 1;
inline uint_t KVM_ISA_SVM = 2;

typedef struct vcpuinfo {
	int vcpu_id;			/* number in its machine */
	pid_t vcpu_pid;			/* the process of the machine */
	int vcpu_count;			/* processors of the machine */
	uint64_t vcpu_exits;		/* exits so far */
} vcpuinfo_t;

translator vcpuinfo_t < struct kvm_vcpu *V > {
	vcpu_id = V->vcpu_id;
	vcpu_pid = V->kvm->userspace_pid;
	vcpu_count = V->kvm->created_vcpus;
	vcpu_exits = V->stat.exits;
};

/* The kernel's names of reasons of an exit (asm/vmx.h, asm/svm.h), in lower case: kvm_exit_name[args[3], args[1]]. */
inline string _vmx_exit_name[uint_t R] =
    R == 0 ? "exception_nmi" : R == 1 ? "external_interrupt" : R == 2 ? "triple_fault" :
    R == 3 ? "init_signal" : R == 4 ? "sipi_signal" : R == 7 ? "interrupt_window" : R == 8 ? "nmi_window" :
    R == 9 ? "task_switch" : R == 10 ? "cpuid" : R == 12 ? "hlt" : R == 13 ? "invd" : R == 14 ? "invlpg" :
    R == 15 ? "rdpmc" : R == 16 ? "rdtsc" : R == 18 ? "vmcall" : R == 19 ? "vmclear" :
    R == 20 ? "vmlaunch" : R == 21 ? "vmptrld" : R == 22 ? "vmptrst" : R == 23 ? "vmread" :
    R == 24 ? "vmresume" : R == 25 ? "vmwrite" : R == 26 ? "vmoff" : R == 27 ? "vmon" :
    R == 28 ? "cr_access" : R == 29 ? "dr_access" : R == 30 ? "io_instruction" : R == 31 ? "msr_read" :
    R == 32 ? "msr_write" : R == 33 ? "invalid_state" : R == 34 ? "msr_load_fail" :
    R == 36 ? "mwait_instruction" : R == 37 ? "monitor_trap_flag" : R == 39 ? "monitor_instruction" :
    R == 40 ? "pause_instruction" : R == 41 ? "mce_during_vmentry" : R == 43 ? "tpr_below_threshold" :
    R == 44 ? "apic_access" : R == 45 ? "eoi_induced" : R == 46 ? "gdtr_idtr" : R == 47 ? "ldtr_tr" :
    R == 48 ? "ept_violation" : R == 49 ? "ept_misconfig" : R == 50 ? "invept" : R == 51 ? "rdtscp" :
    R == 52 ? "preemption_timer" : R == 53 ? "invvpid" : R == 54 ? "wbinvd" : R == 55 ? "xsetbv" :
    R == 56 ? "apic_write" : R == 57 ? "rdrand" : R == 58 ? "invpcid" : R == 59 ? "vmfunc" :
    R == 60 ? "encls" : R == 61 ? "rdseed" : R == 62 ? "pml_full" : R == 63 ? "xsaves" :
    R == 64 ? "xrstors" : R == 67 ? "umwait" : R == 68 ? "tpause" : R == 74 ? "bus_lock" :
    R == 75 ? "notify" :
    "<unknown>";
inline string _svm_exit_name[uint_t R] =
    R == 0x41 ? "excp_db" : R == 0x43 ? "excp_bp" : R == 0x46 ? "excp_ud" : R == 0x47 ? "excp_nm" :
    R == 0x4d ? "excp_gp" : R == 0x4e ? "excp_pf" : R == 0x51 ? "excp_ac" : R == 0x52 ? "excp_mc" :
    R == 0x60 ? "interrupt" : R == 0x61 ? "nmi" : R == 0x62 ? "smi" : R == 0x63 ? "init" :
    R == 0x64 ? "vintr" : R == 0x65 ? "cr0_sel_write" : R == 0x6e ? "rdtsc" : R == 0x6f ? "rdpmc" :
    R == 0x70 ? "pushf" : R == 0x71 ? "popf" : R == 0x72 ? "cpuid" : R == 0x73 ? "rsm" :
    R == 0x74 ? "iret" : R == 0x75 ? "swint" : R == 0x76 ? "invd" : R == 0x77 ? "pause" :
    R == 0x78 ? "hlt" : R == 0x79 ? "invlpg" : R == 0x7a ? "invlpga" : R == 0x7b ? "ioio" :
    R == 0x7c ? "msr" : R == 0x7d ? "task_switch" : R == 0x7e ? "ferr_freeze" : R == 0x7f ? "shutdown" :
    R == 0x80 ? "vmrun" : R == 0x81 ? "vmmcall" : R == 0x82 ? "vmload" : R == 0x83 ? "vmsave" :
    R == 0x84 ? "stgi" : R == 0x85 ? "clgi" : R == 0x86 ? "skinit" : R == 0x87 ? "rdtscp" :
    R == 0x88 ? "icebp" : R == 0x89 ? "wbinvd" : R == 0x8a ? "monitor" : R == 0x8b ? "mwait" :
    R == 0x8c ? "mwait_cond" : R == 0x8d ? "xsetbv" : R == 0x8e ? "rdpru" : R == 0x8f ? "efer_write_trap" :
    R == 0xa2 ? "invpcid" : R == 0x400 ? "npf" : R == 0x401 ? "avic_incomplete_ipi" :
    R == 0x402 ? "avic_unaccelerated_access" : R == 0x403 ? "vmgexit" :
    R < 0x10 ? "read_cr" : R < 0x20 ? "write_cr" : R < 0x30 ? "read_dr" : R < 0x40 ? "write_dr" : R < 0x60 ? "excp" :
    R >= 0x90 && R < 0xa0 ? "cr_write_trap" : "<unknown>";
inline string kvm_exit_name[uint_t ISA, uint_t REASON] =
    ISA == KVM_ISA_SVM ? _svm_exit_name[REASON] : _vmx_exit_name[REASON & 0xffff];

provider kvm {
	probe entry(struct kvm_vcpu *V : vcpuinfo_t *V);
	probe exit(int vcpu, uint_t reason, uint64_t address, uint_t isa);
	probe userspace__exit(uint_t reason, int error);
	probe inject__interrupt(uint_t vector, int again);
	probe inject__exception(uint_t vector, int again);
	probe page__fault(int vcpu, uint64_t address, uint64_t error, uint64_t instruction);
	probe mmio__read(uint64_t address, uint_t length, uint64_t value);
	probe mmio__write(uint64_t address, uint_t length, uint64_t value);
	probe pio__read(uint_t port, uint_t size, uint_t count);
	probe pio__write(uint_t port, uint_t size, uint_t count, uint_t value);
	probe msr__read(uint_t msr, uint64_t value, int refused);
	probe msr__write(uint_t msr, uint64_t value, int refused);
	probe hypercall(uint64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d);
};

/* The reason is in the event only. */
rawtp:kvm::kvm_entry { entry(args[0]); }
sdt:kvm::kvm_exit { exit(args[7], args[0], args[1], args[2]); }
rawtp:kvm::kvm_userspace_exit { userspace__exit(args[0], args[1] < 0 ? -args[1] : 0); }
sdt:kvm::kvm_inj_virq { inject__interrupt(args[0], args[2]); }
sdt:kvm::kvm_inj_exception { inject__exception(args[0], args[3]); }
sdt:kvm::kvm_page_fault { page__fault(args[0], args[2], args[3], args[1]); }
/* Of a read that the machine's program is to answer there is another event with the answer. */
sdt:kvm::kvm_mmio /args[0] == 1/ { mmio__read(args[2], args[1], args[3]); }
sdt:kvm::kvm_mmio /args[0] == 2/ { mmio__write(args[2], args[1], args[3]); }
sdt:kvm::kvm_pio /args[0] == 0/ { pio__read(args[1], args[2], args[3]); }
sdt:kvm::kvm_pio /args[0] == 1/ { pio__write(args[1], args[2], args[3], args[4]); }
sdt:kvm::kvm_msr /args[0] == 0/ { msr__read(args[1], args[2], args[3]); }
sdt:kvm::kvm_msr /args[0] == 1/ { msr__write(args[1], args[2], args[3]); }
sdt:kvm::kvm_hypercall { hypercall(args[0], args[1], args[2], args[3], args[4]); }

/*
 * vmregs[]: the registers of the machine whose processor the current thread runs, between the kernel's vcpu_load and
 * vcpu_put: there the thread has the processor's preempt notifier. Elsewhere it is a fault. Indexes are those of uregs[]
 * (general registers, R_RIP, R_RSP, R_RFL) and those of the original, which are Intel's encodings of fields. An AMD
 * processor saves all of them at each exit. One of Intel keeps RIP, RSP, RFLAGS and the control registers to itself
 * until the kernel has read them (regs_avail): until then they are a fault too, never an earlier value.
 */
inline int VMX_GUEST_CR0 = 0x6800;
inline int VMX_GUEST_CR3 = 0x6802;
inline int VMX_GUEST_CR4 = 0x6804;
inline int VMX_GUEST_RSP = 0x681c;
inline int VMX_GUEST_RIP = 0x681e;
inline int VMX_GUEST_RFLAGS = 0x6820;

inline struct preempt_notifier *_vcpu_notifier =
    (struct preempt_notifier *)((uintptr_t)curthread->preempt_notifiers.first - offsetof(struct preempt_notifier, link));
inline struct kvm_vcpu *_vcpu = (struct kvm_vcpu *)(curthread->preempt_notifiers.first == NULL ? 0 :
    (uintptr_t)_vcpu_notifier - offsetof(struct kvm_vcpu, preempt_notifier));

inline uint64_t _vm_fault = *(uint64_t *)0;
/* Numbers of the kernel's enum kvm_reg. */
inline int _vm_has[int R] = (*(uint32_t *)&_vcpu->arch.regs_avail >> R) & 1;
inline int _vm_general[int N] =
    N == R_RAX ? 0 : N == R_RCX ? 1 : N == R_RDX ? 2 : N == R_RBX ? 3 : N == R_RSP || N == VMX_GUEST_RSP ? 4 :
    N == R_RBP ? 5 : N == R_RSI ? 6 : N == R_RDI ? 7 : N == R_R8 ? 8 : N == R_R9 ? 9 : N == R_R10 ? 10 : N == R_R11 ? 11 :
    N == R_R12 ? 12 : N == R_R13 ? 13 : N == R_R14 ? 14 : N == R_R15 ? 15 : N == R_RIP || N == VMX_GUEST_RIP ? 16 : 31;
inline uint64_t _vm_at[int R] = R < 17 && _vm_has[R] ? ((uint64_t *)&_vcpu->arch.regs)[R] : _vm_fault;
inline uint64_t _vm_control[int R] = R == 18 && _vm_has[18] ? _vcpu->arch.cr0 : R == 19 && _vm_has[19] ? _vcpu->arch.cr3 :
    R == 20 && _vm_has[20] ? _vcpu->arch.cr4 : _vm_fault;

inline uint64_t vmregs[int N] =
    N == VMX_GUEST_CR0 ? (defined(struct vcpu_svm, vmcb) ? ((struct vcpu_svm *)_vcpu)->vmcb->save.cr0 : _vm_control[18]) :
    N == VMX_GUEST_CR3 ? (defined(struct vcpu_svm, vmcb) ? ((struct vcpu_svm *)_vcpu)->vmcb->save.cr3 : _vm_control[19]) :
    N == VMX_GUEST_CR4 ? (defined(struct vcpu_svm, vmcb) ? ((struct vcpu_svm *)_vcpu)->vmcb->save.cr4 : _vm_control[20]) :
    N == R_RFL || N == VMX_GUEST_RFLAGS ?
        (defined(struct vcpu_svm, vmcb) ? ((struct vcpu_svm *)_vcpu)->vmcb->save.rflags :
        defined(struct vcpu_vmx, rflags) ? (_vm_has[21] ? ((struct vcpu_vmx *)_vcpu)->rflags : _vm_fault) : _vm_fault) :
    _vm_at[_vm_general[N]];

/* The name of the machine in the command line of its process, which is QEMU's. */
inline string _machine_line = _args(curthread->mm->arg_start, curthread->mm->arg_end);
inline string guestname = curthread->mm == NULL || strstr(_machine_line, " -name ") == NULL ? "<unknown>" :
    strtok(strstr(_machine_line, " -name guest=") == NULL ? substr(strstr(_machine_line, " -name "), 7) :
    substr(strstr(_machine_line, " -name guest="), 13), ", ");
