/*
 * Address families and socket types of Linux.
 */

inline int AF_UNSPEC = 0;
inline int AF_UNIX = 1;
inline int AF_LOCAL = AF_UNIX;
inline int AF_INET = 2;
inline int AF_INET6 = 10;
inline int AF_NETLINK = 16;
inline int AF_PACKET = 17;
inline int AF_BLUETOOTH = 31;
inline int AF_VSOCK = 40;
inline int AF_XDP = 44;

inline int SOCK_STREAM = 1;
inline int SOCK_DGRAM = 2;
inline int SOCK_RAW = 3;
inline int SOCK_RDM = 4;
inline int SOCK_SEQPACKET = 5;
inline int SOCK_PACKET = 10;

/* What inet_ntoa6() takes. */
typedef struct in6_addr in6_addr_t;
