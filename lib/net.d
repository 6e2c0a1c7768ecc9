/*
 * Constants of socket(2) and its family, and hardware types of Linux; packets and sockets as arguments of probes.
 */

inline int AF_UNSPEC = 0;
inline int AF_UNIX = 1;
inline int AF_LOCAL = AF_UNIX;
inline int AF_INET = 2;
inline int AF_AX25 = 3;
inline int AF_IPX = 4;
inline int AF_APPLETALK = 5;
inline int AF_X25 = 9;
inline int AF_INET6 = 10;
inline int AF_KEY = 15;
inline int AF_NETLINK = 16;
inline int AF_ROUTE = AF_NETLINK;
inline int AF_PACKET = 17;
inline int AF_PPPOX = 24;
inline int AF_CAN = 29;
inline int AF_TIPC = 30;
inline int AF_BLUETOOTH = 31;
inline int AF_RXRPC = 33;
inline int AF_ALG = 38;
inline int AF_VSOCK = 40;
inline int AF_SMC = 43;
inline int AF_XDP = 44;

inline int PF_UNSPEC = AF_UNSPEC;
inline int PF_UNIX = AF_UNIX;
inline int PF_LOCAL = AF_LOCAL;
inline int PF_INET = AF_INET;
inline int PF_INET6 = AF_INET6;
inline int PF_KEY = AF_KEY;
inline int PF_NETLINK = AF_NETLINK;
inline int PF_ROUTE = AF_ROUTE;
inline int PF_PACKET = AF_PACKET;
inline int PF_VSOCK = AF_VSOCK;

inline int SOCK_STREAM = 1;
inline int SOCK_DGRAM = 2;
inline int SOCK_RAW = 3;
inline int SOCK_RDM = 4;
inline int SOCK_SEQPACKET = 5;
inline int SOCK_DCCP = 6;
inline int SOCK_PACKET = 10;
inline int SOCK_NONBLOCK = 04000;
inline int SOCK_CLOEXEC = 02000000;

inline int SOL_SOCKET = 1;
inline int SO_DEBUG = 1;
inline int SO_REUSEADDR = 2;
inline int SO_TYPE = 3;
inline int SO_ERROR = 4;
inline int SO_DONTROUTE = 5;
inline int SO_BROADCAST = 6;
inline int SO_SNDBUF = 7;
inline int SO_RCVBUF = 8;
inline int SO_KEEPALIVE = 9;
inline int SO_OOBINLINE = 10;
inline int SO_PRIORITY = 12;
inline int SO_LINGER = 13;
inline int SO_REUSEPORT = 15;
inline int SO_PASSCRED = 16;
inline int SO_PEERCRED = 17;
inline int SO_RCVLOWAT = 18;
inline int SO_SNDLOWAT = 19;
inline int SO_RCVTIMEO = 20;
inline int SO_SNDTIMEO = 21;
inline int SO_BINDTODEVICE = 25;
inline int SO_TIMESTAMP = 29;
inline int SO_ACCEPTCONN = 30;
inline int SO_MARK = 36;
inline int SO_PROTOCOL = 38;
inline int SO_DOMAIN = 39;

inline int MSG_OOB = 0x1;
inline int MSG_PEEK = 0x2;
inline int MSG_DONTROUTE = 0x4;
inline int MSG_CTRUNC = 0x8;
inline int MSG_TRUNC = 0x20;
inline int MSG_DONTWAIT = 0x40;
inline int MSG_EOR = 0x80;
inline int MSG_WAITALL = 0x100;
inline int MSG_CONFIRM = 0x800;
inline int MSG_ERRQUEUE = 0x2000;
inline int MSG_NOSIGNAL = 0x4000;
inline int MSG_MORE = 0x8000;
inline int MSG_ZEROCOPY = 0x4000000;
inline int MSG_FASTOPEN = 0x20000000;
inline int MSG_CMSG_CLOEXEC = 0x40000000;

inline int SHUT_RD = 0;
inline int SHUT_WR = 1;
inline int SHUT_RDWR = 2;

/* The argument of inet_ntoa6(). */
typedef struct in6_addr in6_addr_t;

typedef uint16_t in_port_t;
typedef uint32_t in_addr_t;

/*
 * Hardware types, as link_ntop() takes them.
 */

inline int ARPHRD_NETROM = 0;
inline int ARPHRD_ETHER = 1;
inline int ARPHRD_EETHER = 2;
inline int ARPHRD_AX25 = 3;
inline int ARPHRD_PRONET = 4;
inline int ARPHRD_CHAOS = 5;
inline int ARPHRD_IEEE802 = 6;
inline int ARPHRD_ARCNET = 7;
inline int ARPHRD_APPLETLK = 8;
inline int ARPHRD_DLCI = 15;
inline int ARPHRD_ATM = 19;
inline int ARPHRD_METRICOM = 23;
inline int ARPHRD_IEEE1394 = 24;
inline int ARPHRD_EUI64 = 27;
inline int ARPHRD_INFINIBAND = 32;
inline int ARPHRD_SLIP = 256;
inline int ARPHRD_CSLIP = 257;
inline int ARPHRD_SLIP6 = 258;
inline int ARPHRD_CSLIP6 = 259;
inline int ARPHRD_RSRVD = 260;
inline int ARPHRD_ADAPT = 264;
inline int ARPHRD_ROSE = 270;
inline int ARPHRD_X25 = 271;
inline int ARPHRD_HWX25 = 272;
inline int ARPHRD_CAN = 280;
inline int ARPHRD_MCTP = 290;
inline int ARPHRD_PPP = 512;
inline int ARPHRD_CISCO = 513;
inline int ARPHRD_HDLC = 513;
inline int ARPHRD_LAPB = 516;
inline int ARPHRD_DDCMP = 517;
inline int ARPHRD_RAWHDLC = 518;
inline int ARPHRD_RAWIP = 519;
inline int ARPHRD_TUNNEL = 768;
inline int ARPHRD_TUNNEL6 = 769;
inline int ARPHRD_FRAD = 770;
inline int ARPHRD_SKIP = 771;
inline int ARPHRD_LOOPBACK = 772;
inline int ARPHRD_LOCALTLK = 773;
inline int ARPHRD_FDDI = 774;
inline int ARPHRD_BIF = 775;
inline int ARPHRD_SIT = 776;
inline int ARPHRD_IPDDP = 777;
inline int ARPHRD_IPGRE = 778;
inline int ARPHRD_PIMREG = 779;
inline int ARPHRD_HIPPI = 780;
inline int ARPHRD_ASH = 781;
inline int ARPHRD_ECONET = 782;
inline int ARPHRD_IRDA = 783;
inline int ARPHRD_FCPP = 784;
inline int ARPHRD_FCAL = 785;
inline int ARPHRD_FCPL = 786;
inline int ARPHRD_FCFABRIC = 787;
inline int ARPHRD_IEEE802_TR = 800;
inline int ARPHRD_IEEE80211 = 801;
inline int ARPHRD_IEEE80211_PRISM = 802;
inline int ARPHRD_IEEE80211_RADIOTAP = 803;
inline int ARPHRD_IEEE802154 = 804;
inline int ARPHRD_IEEE802154_MONITOR = 805;
inline int ARPHRD_PHONET = 820;
inline int ARPHRD_PHONET_PIPE = 821;
inline int ARPHRD_CAIF = 822;
inline int ARPHRD_IP6GRE = 823;
inline int ARPHRD_NETLINK = 824;
inline int ARPHRD_6LOWPAN = 825;
inline int ARPHRD_VSOCKMON = 826;
inline int ARPHRD_NONE = 0xfffe;
inline int ARPHRD_VOID = 0xffff;

typedef struct pktinfo {
	uintptr_t pkt_addr;		/* address of the packet */
} pktinfo_t;

translator pktinfo_t < struct sk_buff *S > {
	pkt_addr = (uintptr_t)S;
};

typedef struct csinfo {
	uintptr_t cs_addr;		/* address of the socket */
	uint64_t cs_cid;		/* number of the connection (TCP), address of the socket (others); 0 for none */
	pid_t cs_pid;			/* 0: the kernel does not know whose a socket is */
	zoneid_t cs_zoneid;		/* 0 */
} csinfo_t;

typedef struct conninfo {
	string ci_local;		/* local address */
	string ci_remote;		/* remote address */
	string ci_protocol;		/* "ipv4", "ipv6" */
} conninfo_t;

/*
 * What sockets of all kinds have: full ones, those that wait for the end of a handshake, and those that wait for late
 * segments.
 */

inline int _sock_family[struct sock *S] = S == NULL ? AF_UNSPEC : S->__sk_common.skc_family;
inline int _sock_state[struct sock *S] = S->__sk_common.skc_state;

/* A struct of its own stands for a connection in these states. It is no more than a struct sock_common. */
inline int _sock_is_full[struct sock *S] = S != NULL && _sock_state[S] != 6 /* TIME_WAIT */ &&
    _sock_state[S] != 12 /* NEW_SYN_RECV */;

/* A socket that closes gives its port back, and keeps it in network order. */
inline uint16_t _sock_lport[struct sock *S] = S == NULL ? 0 : S->__sk_common.skc_num != 0 || !_sock_is_full[S] ?
    S->__sk_common.skc_num : ntohs(((struct inet_sock *)S)->inet_sport);
inline uint16_t _sock_rport[struct sock *S] = S == NULL ? 0 : ntohs(S->__sk_common.skc_dport);

inline string _sock_laddr[struct sock *S] = _sock_family[S] == AF_INET ? inet_ntoa(&S->__sk_common.skc_rcv_saddr) :
    _sock_family[S] == AF_INET6 ? inet_ntoa6(&S->__sk_common.skc_v6_rcv_saddr) : "<unknown>";
inline string _sock_raddr[struct sock *S] = _sock_family[S] == AF_INET ? inet_ntoa(&S->__sk_common.skc_daddr) :
    _sock_family[S] == AF_INET6 ? inet_ntoa6(&S->__sk_common.skc_v6_daddr) : "<unknown>";

translator conninfo_t < struct sock *S > {
	ci_local = _sock_laddr[S];
	ci_remote = _sock_raddr[S];
	ci_protocol = _sock_family[S] == AF_INET ? "ipv4" : _sock_family[S] == AF_INET6 ? "ipv6" : "<unknown>";
};

/*
 * The number of a connection of TCP. It has several structs, one after the other: one for the handshake, the socket, one
 * for TIME_WAIT; and a segment may have none. What all of them have are the network and the two ends. So the number is
 * computed from these: it is the same for all, is not 0, and no two connections of a machine have one at a time, but for a
 * chance of 2^-63. (The kernel's cookie is 0 until somebody asks for it.) An address of IPv4 in one of IPv6 is the same
 * address.
 */
inline uint64_t _number_of_ipv4[uint64_t L, uint64_t R] = (L << 32 | R) * 0x1e3779b97f4a7c15;
inline uint64_t _number_of_ipv6[uintptr_t L, uintptr_t R] = *(uint64_t *)L * 0x3f58476d1ce4e5b9 +
    *(uint64_t *)(L + 8) * 0x14d049bb133111eb + *(uint64_t *)R * 0x56e8feb86659fd93 +
    *(uint64_t *)(R + 8) * 0x7f51afd7ed558ccd;
inline uint64_t _number_of[uint64_t ADDRESSES, uint64_t LPORT, uint64_t RPORT, uint64_t NET] =
    (ADDRESSES + (LPORT << 16 | RPORT) * 0x44ceb9fe1a85ec53 + NET * 0x2545f4914f6cdd1d) | 1;

/* A socket of IPv6 has the addresses of IPv4 too, where it uses that. */
inline int _uses_ipv6[struct sock *S] = S->__sk_common.skc_family == AF_INET6 &&
    *((uint32_t *)&S->__sk_common.skc_v6_daddr + 2) != htonl(0xffff);
inline uint64_t _number_of_sock[struct sock *S] = _number_of[_uses_ipv6[S] ?
    _number_of_ipv6[(uintptr_t)&S->__sk_common.skc_v6_rcv_saddr, (uintptr_t)&S->__sk_common.skc_v6_daddr] :
    _number_of_ipv4[(uint64_t)S->__sk_common.skc_rcv_saddr, (uint64_t)S->__sk_common.skc_daddr],
    S->__sk_common.skc_num != 0 ? S->__sk_common.skc_num : ntohs(((struct inet_sock *)S)->inet_sport),
    ntohs(S->__sk_common.skc_dport), (uint64_t)S->__sk_common.skc_net.net];

inline int _sock_connects[struct sock *S] = (_sock_family[S] == AF_INET || _sock_family[S] == AF_INET6) &&
    (!_sock_is_full[S] || S->sk_protocol == 6 /* IPPROTO_TCP */);

translator csinfo_t < struct sock *S > {
	cs_addr = (uintptr_t)S;
	cs_cid = _sock_connects[S] ? _number_of_sock[S] : (uint64_t)S;
	cs_pid = 0;
	cs_zoneid = 0;
};
