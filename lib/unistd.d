/*
 * Constants of open(2), fcntl(2), access(2) and stat(2) on Linux, and D's fault codes.
 * ARCH(x86-64): the constants of open(2).
 */

inline int O_RDONLY = 0;
inline int O_WRONLY = 01;
inline int O_RDWR = 02;
inline int O_ACCMODE = 03;
inline int O_CREAT = 0100;
inline int O_EXCL = 0200;
inline int O_NOCTTY = 0400;
inline int O_TRUNC = 01000;
inline int O_APPEND = 02000;
inline int O_NONBLOCK = 04000;
inline int O_DSYNC = 010000;
inline int O_ASYNC = 020000;
inline int O_DIRECT = 040000;
inline int O_LARGEFILE = 0100000;
inline int O_DIRECTORY = 0200000;
inline int O_NOFOLLOW = 0400000;
inline int O_NOATIME = 01000000;
inline int O_CLOEXEC = 02000000;
inline int O_SYNC = 04010000;
inline int O_PATH = 010000000;
inline int O_TMPFILE = 020200000;

inline int O_NDELAY = O_NONBLOCK;
inline int O_RSYNC = O_SYNC;
inline int O_FSYNC = O_SYNC;

inline int F_DUPFD = 0;
inline int F_GETFD = 1;
inline int F_SETFD = 2;
inline int F_GETFL = 3;
inline int F_SETFL = 4;
inline int F_GETLK = 5;
inline int F_SETLK = 6;
inline int F_SETLKW = 7;
inline int F_SETOWN = 8;
inline int F_GETOWN = 9;
inline int F_SETSIG = 10;
inline int F_GETSIG = 11;
inline int F_OFD_GETLK = 36;
inline int F_OFD_SETLK = 37;
inline int F_OFD_SETLKW = 38;
inline int F_SETLEASE = 1024;
inline int F_GETLEASE = 1025;
inline int F_NOTIFY = 1026;
inline int F_DUPFD_CLOEXEC = 1030;
inline int F_SETPIPE_SZ = 1031;
inline int F_GETPIPE_SZ = 1032;
inline int F_ADD_SEALS = 1033;
inline int F_GET_SEALS = 1034;

inline int F_RDLCK = 0;
inline int F_WRLCK = 1;
inline int F_UNLCK = 2;

inline int F_OK = 0;
inline int X_OK = 1;
inline int W_OK = 2;
inline int R_OK = 4;

inline int S_IFMT = 0170000;
inline int S_IFSOCK = 0140000;
inline int S_IFLNK = 0120000;
inline int S_IFREG = 0100000;
inline int S_IFBLK = 060000;
inline int S_IFDIR = 040000;
inline int S_IFCHR = 020000;
inline int S_IFIFO = 010000;
inline int S_ISUID = 04000;
inline int S_ISGID = 02000;
inline int S_ISVTX = 01000;

inline int DTRACEFLT_UNKNOWN = 0;
inline int DTRACEFLT_BADADDR = 1;
inline int DTRACEFLT_BADALIGN = 2;
inline int DTRACEFLT_ILLOP = 3;
inline int DTRACEFLT_DIVZERO = 4;
inline int DTRACEFLT_NOSCRATCH = 5;
inline int DTRACEFLT_KPRIV = 6;
inline int DTRACEFLT_UPRIV = 7;
inline int DTRACEFLT_TUPOFLOW = 8;
inline int DTRACEFLT_BADSTACK = 9;
inline int DTRACEFLT_BADSIZE = 10;
inline int DTRACEFLT_BADINDEX = 11;
inline int DTRACEFLT_LIBRARY = 1000;
