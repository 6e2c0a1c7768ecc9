/*
 * CPUs. Their properties are read once, when tracing begins.
 */

typedef int processorid_t;
typedef int psetid_t;
typedef int chipid_t;
typedef int lgrp_id_t;

inline int P_OFFLINE = 1;
inline int P_ONLINE = 2;

typedef struct processor_info {
	int pi_state;			/* P_ONLINE */
	char pi_processor_type[16];	/* machine name as of uname -m */
	char pi_fputypes[32];		/* type of the floating-point unit */
	int pi_clock;			/* nominal clock in MHz, where known */
} processor_info_t;

typedef struct cpuinfo {
	processorid_t cpu_id;		/* its number; -1 for none */
	psetid_t cpu_pset;		/* 0 */
	chipid_t cpu_chip;		/* its package */
	lgrp_id_t cpu_lgrp;		/* its NUMA node */
	processor_info_t cpu_info;
} cpuinfo_t;

translator processor_info_t < int CPU > {
	pi_state = CPU < 0 ? P_OFFLINE : P_ONLINE;
	pi_processor_type = _processor_type;
	pi_fputypes = _fputypes;
	pi_clock = _cpu_clock[CPU];
};

translator cpuinfo_t < int CPU > {
	cpu_id = CPU;
	cpu_pset = 0;
	cpu_chip = _cpu_chip[CPU];
	cpu_lgrp = _cpu_lgrp[CPU];
	cpu_info = xlate <processor_info_t> (CPU);
};

inline cpuinfo_t *curcpu = xlate <cpuinfo_t *> (cpu);
inline psetid_t pset = curcpu->cpu_pset;
inline chipid_t chip = curcpu->cpu_chip;
inline lgrp_id_t lgrp = curcpu->cpu_lgrp;

#pragma D attributes Stable/Stable/Common curcpu
#pragma D attributes Stable/Stable/Common pset
#pragma D attributes Stable/Stable/Common chip
#pragma D attributes Stable/Stable/Common lgrp
