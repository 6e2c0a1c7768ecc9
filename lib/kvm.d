/*
 * Virtual machines: their processors, in the thread that runs one.
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

provider kvm {
	probe entry(struct kvm_vcpu *V : vcpuinfo_t *V);
	probe exit(int vcpu, uint_t reason, uint64_t address, uint_t isa);
	probe userspace__exit(uint_t reason, int error);
};

/* The reason is in the event only. */
rawtp:kvm::kvm_entry { entry(args[0]); }
sdt:kvm::kvm_exit { exit(args[7], args[0], args[1], args[2]); }
rawtp:kvm::kvm_userspace_exit { userspace__exit(args[0], args[1] < 0 ? -args[1] : 0); }
