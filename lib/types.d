/*
 * Types of sys/types.h on other systems that the types of a kernel may lack. Types that both define (dev_t, ino_t,
 * loff_t) are those of the kernel.
 */

typedef enum { B_FALSE, B_TRUE } boolean_t;

typedef _Bool bool;

typedef unsigned char u_char;
typedef unsigned short u_short;
typedef unsigned int u_int;
typedef unsigned long u_long;
typedef unsigned char unchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef long long quad_t;
typedef unsigned long long u_quad_t;
typedef long long longlong_t;
typedef int64_t intmax_t;
typedef uint64_t uintmax_t;

typedef char *caddr_t;
typedef long daddr_t;
typedef unsigned long long diskaddr_t;
typedef unsigned long long u_offset_t;
typedef unsigned long long len_t;
typedef unsigned long paddr_t;
typedef unsigned long pfn_t;
typedef unsigned long pgcnt_t;
typedef long spgcnt_t;
typedef long off_t;
typedef uint_t socklen_t;
typedef int clockid_t;

typedef uint_t uid_t;
typedef uint_t gid_t;
typedef id_t taskid_t;
typedef id_t projid_t;
typedef id_t poolid_t;
typedef id_t zoneid_t;
typedef id_t ctid_t;
typedef id_t lwpid_t;
typedef int key_t;
typedef short pri_t;

typedef uint_t major_t;
typedef uint_t minor_t;
typedef uint_t mode_t;
typedef uint_t nlink_t;
typedef ushort_t o_mode_t;
typedef short cnt_t;
typedef short index_t;
typedef short sysid_t;
typedef uchar_t use_t;

/* Nanoseconds. */
typedef long long hrtime_t;
typedef long time_t;
typedef long suseconds_t;
typedef uint_t useconds_t;
