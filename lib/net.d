/*
 * Address families, socket types and hardware types of Linux.
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
