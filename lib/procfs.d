/*
 * Processes and threads: states, flags and data models.
 */

inline int SSLEEP = 1;
inline int SRUN = 2;
inline int SZOMB = 3;
inline int SSTOP = 4;
inline int SIDL = 5;
inline int SONPROC = 6;
inline int SWAIT = 7;

inline int PR_STOPPED = 0x1;
inline int PR_ISTOP = 0x2;
inline int PR_DSTOP = 0x4;
inline int PR_STEP = 0x8;
inline int PR_ASLEEP = 0x10;
inline int PR_PCINVAL = 0x20;
inline int PR_ASLWP = 0x40;
inline int PR_AGENT = 0x80;
inline int PR_DETACH = 0x100;
inline int PR_DAEMON = 0x200;
inline int PR_IDLE = 0x400;
inline int PR_ISSYS = 0x1000;
inline int PR_VFORKP = 0x2000;
inline int PR_ORPHAN = 0x4000;
inline int PR_NOSIGCHLD = 0x8000;
inline int PR_WAITPID = 0x10000;
inline int PR_FORK = 0x100000;
inline int PR_RLC = 0x200000;
inline int PR_KLC = 0x400000;
inline int PR_ASYNC = 0x800000;
inline int PR_MSACCT = 0x1000000;
inline int PR_BPTADJ = 0x2000000;
inline int PR_PTRACE = 0x4000000;
inline int PR_MSFORK = 0x8000000;

inline int PR_REQUESTED = 1;
inline int PR_SIGNALLED = 2;
inline int PR_SYSENTRY = 3;
inline int PR_SYSEXIT = 4;
inline int PR_JOBCONTROL = 5;
inline int PR_FAULTED = 6;
inline int PR_SUSPENDED = 7;
inline int PR_CHECKPOINT = 8;

inline int PR_MODEL_UNKNOWN = 0;
inline int PR_MODEL_ILP32 = 1;
inline int PR_MODEL_LP64 = 2;

inline int SOBJ_NONE = 0;
inline int SOBJ_MUTEX = 1;
inline int SOBJ_RWLOCK = 2;
inline int SOBJ_CV = 3;
inline int SOBJ_SEMA = 4;
inline int SOBJ_USER = 5;
inline int SOBJ_USER_PI = 6;
inline int SOBJ_SHUTTLE = 7;
