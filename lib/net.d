/*
 * Address families, socket types and hardware types of Linux; packets and sockets as arguments of probes.
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
	uint64_t cs_cid;		/* its cookie, as getsockopt(SO_COOKIE) gives it; 0 before somebody asked for it */
	pid_t cs_pid;			/* 0: the kernel does not know whose a socket is */
	zoneid_t cs_zoneid;		/* 0 */
} csinfo_t;

translator csinfo_t < struct sock *S > {
	cs_addr = (uintptr_t)S;
	cs_cid = S == NULL ? 0 : S->__sk_common.skc_cookie.counter;
	cs_pid = 0;
	cs_zoneid = 0;
};

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
