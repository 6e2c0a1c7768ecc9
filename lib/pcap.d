/*
 * Link types of pcap(): what the bytes of a packet begin with. They are DLT_ values of libpcap (pcap/bpf.h), which
 * pcap() takes too where this list lacks one.
 */

inline int PCAP_NULL = 0;
inline int PCAP_ETHER = 1;
inline int PCAP_PPP = 9;
/* An IPv4 or IPv6 header. */
inline int PCAP_IP = 12;
inline int PCAP_WIFI = 105;
inline int PCAP_IPNET = 226;
inline int PCAP_IPOIB = 242;
