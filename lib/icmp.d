/*
 * ICMP and ICMPv6: messages that are sent and received.
 */

inline int ICMP_ECHOREPLY = 0;
inline int ICMP_UNREACH = 3;
inline int ICMP_SOURCEQUENCH = 4;
inline int ICMP_REDIRECT = 5;
inline int ICMP_ECHO = 8;
inline int ICMP_ROUTERADVERT = 9;
inline int ICMP_ROUTERSOLICIT = 10;
inline int ICMP_TIMXCEED = 11;
inline int ICMP_PARAMPROB = 12;
inline int ICMP_TSTAMP = 13;
inline int ICMP_TSTAMPREPLY = 14;
inline int ICMP_IREQ = 15;
inline int ICMP_IREQREPLY = 16;
inline int ICMP_MASKREQ = 17;
inline int ICMP_MASKREPLY = 18;

inline int ICMP6_DST_UNREACH = 1;
inline int ICMP6_PACKET_TOO_BIG = 2;
inline int ICMP6_TIME_EXCEEDED = 3;
inline int ICMP6_PARAM_PROB = 4;
inline int ICMP6_ECHO_REQUEST = 128;
inline int ICMP6_ECHO_REPLY = 129;
inline int MLD_LISTENER_QUERY = 130;
inline int MLD_LISTENER_REPORT = 131;
inline int MLD_LISTENER_REDUCTION = 132;
inline int ND_ROUTER_SOLICIT = 133;
inline int ND_ROUTER_ADVERT = 134;
inline int ND_NEIGHBOR_SOLICIT = 135;
inline int ND_NEIGHBOR_ADVERT = 136;
inline int ND_REDIRECT = 137;
inline int ICMP6_ROUTER_RENUMBERING = 138;
inline int MLD_V2_LISTENER_REPORT = 143;

/* A member that a message of this type does not have is 0, or "<unknown>". */
typedef struct icmpinfo {
	uint8_t icmp_version;		/* 4 for ICMP, 6 for ICMPv6 */
	uint8_t icmp_type;		/* ICMP_*; ICMP6_*, ND_*, MLD_* */
	uint8_t icmp_code;		/* code */
	uint16_t icmp_checksum;		/* of header and payload */
	uint32_t icmp_address_mask;	/* address mask */
	uint16_t icmp_echo_id;		/* echo: identifier */
	uint16_t icmp_echo_seq;		/* echo: sequence number */
	uint32_t icmp_param_problem_ptr;	/* parameter problem: offset of the error */
	uint32_t icmp_pmtu_update;	/* fragmentation needed, packet too big: MTU */
	uint8_t icmp_radv_num_addrs;	/* router advertisement: number of addresses */
	uint16_t icmp_radv_lifetime;	/* router advertisement: seconds */
	uint32_t *icmp_radv_addrs;	/* router advertisement: the addresses */
	string icmp_redirect_gateway;	/* redirect: the gateway */
	uint32_t icmp_timestamp_otime;	/* timestamp: originate */
	uint32_t icmp_timestamp_rtime;	/* timestamp: receive */
	uint32_t icmp_timestamp_ttime;	/* timestamp: transmit */
	string icmp6_mld_addr;		/* multicast listener: the group */
	uint16_t icmp6_mld_v2_num_mars;	/* version 2 report: number of records */
	uintptr_t icmp6_mld_v2_mars;	/* version 2 report: the records */
	string icmp6_nd_target;		/* neighbor solicitation and advertisement, redirect: target */
	string icmp6_nd_redirect_destination;	/* redirect: destination */
	uint32_t icmp6_nd_radv_reachable;	/* router advertisement: milliseconds */
	uint32_t icmp6_nd_radv_retransmit;	/* router advertisement: milliseconds */
	uint8_t icmp6_rr_segnum;	/* router renumbering: segment */
	uint8_t icmp6_rr_flags;		/* router renumbering: flags */
	uint16_t icmp6_rr_maxdelay;	/* router renumbering: milliseconds */
	struct iphdr *icmp_error_ip_hdr;	/* error: header of the packet that it is about */
	struct ipv6hdr *icmp_error_ip6_hdr;	/* the same of IPv6 */
	uint16_t icmp_error_sport;	/* error about TCP or UDP: source port */
	uint16_t icmp_error_dport;	/* and destination port */
	struct icmphdr *icmp_hdr;	/* the header */
	struct icmp6hdr *icmp6_hdr;	/* the header of ICMPv6 */
} icmpinfo_t;

/* A message: the version of IP, and the header behind that of IP. */
struct _icmp_message {
	int version;
	uint8_t *header;
};

/* The message is of one of these types, of ICMP or of ICMPv6. */
inline int _is_icmp4[struct _icmp_message *M, int FIRST, int LAST] =
    M->version == 4 && M->header[0] >= FIRST && M->header[0] <= LAST;
inline int _is_icmp6[struct _icmp_message *M, int FIRST, int LAST] =
    M->version == 6 && M->header[0] >= FIRST && M->header[0] <= LAST;
inline int _is_icmp_echo[struct _icmp_message *M] = M->version == 4 ?
    M->header[0] == ICMP_ECHOREPLY || M->header[0] == ICMP_ECHO :
    M->header[0] == ICMP6_ECHO_REQUEST || M->header[0] == ICMP6_ECHO_REPLY;

inline uint16_t _icmp_16[struct _icmp_message *M, int AT] = ntohs(*(uint16_t *)(M->header + AT));
inline uint32_t _icmp_32[struct _icmp_message *M, int AT] = ntohl(*(uint32_t *)(M->header + AT));

/* The packet that an error is about follows it. All types of ICMPv6 below 128 are errors. */
inline int _is_icmp4_error[struct _icmp_message *M] =
    _is_icmp4[M, ICMP_UNREACH, ICMP_REDIRECT] || _is_icmp4[M, ICMP_TIMXCEED, ICMP_PARAMPROB];
inline struct iphdr *_icmp_packet4[struct _icmp_message *M] = (struct iphdr *)(M->header + 8);
inline struct ipv6hdr *_icmp_packet6[struct _icmp_message *M] = (struct ipv6hdr *)(M->header + 8);

/* TCP and UDP begin with the ports. */
inline int _has_ports[int P] = P == IPPROTO_TCP || P == IPPROTO_UDP;
inline int _icmp_ports[struct _icmp_message *M] =
    _is_icmp4_error[M] ? (_has_ports[_icmp_packet4[M]->protocol] &&
	(_icmp_packet4[M]->frag_off & htons(0x1fff)) == 0 ? 8 + _icmp_packet4[M]->ihl * 4 : 0) :
    _is_icmp6[M, 0, 127] && _has_ports[_icmp_packet6[M]->nexthdr] ? 48 : 0;

translator icmpinfo_t < struct _icmp_message *M > {
	icmp_version = M->version;
	icmp_type = M->header[0];
	icmp_code = M->header[1];
	icmp_checksum = _icmp_16[M, 2];
	icmp_address_mask = _is_icmp4[M, ICMP_MASKREQ, ICMP_MASKREPLY] ? _icmp_32[M, 8] : 0;
	icmp_echo_id = _is_icmp_echo[M] ? _icmp_16[M, 4] : 0;
	icmp_echo_seq = _is_icmp_echo[M] ? _icmp_16[M, 6] : 0;
	icmp_param_problem_ptr = _is_icmp4[M, ICMP_PARAMPROB, ICMP_PARAMPROB] ? M->header[4] :
	    _is_icmp6[M, ICMP6_PARAM_PROB, ICMP6_PARAM_PROB] ? _icmp_32[M, 4] : 0;
	icmp_pmtu_update = _is_icmp4[M, ICMP_UNREACH, ICMP_UNREACH] && M->header[1] == 4 ? _icmp_16[M, 6] :
	    _is_icmp6[M, ICMP6_PACKET_TOO_BIG, ICMP6_PACKET_TOO_BIG] ? _icmp_32[M, 4] : 0;
	icmp_radv_num_addrs = _is_icmp4[M, ICMP_ROUTERADVERT, ICMP_ROUTERADVERT] ? M->header[4] : 0;
	icmp_radv_lifetime = _is_icmp4[M, ICMP_ROUTERADVERT, ICMP_ROUTERADVERT] ||
	    _is_icmp6[M, ND_ROUTER_ADVERT, ND_ROUTER_ADVERT] ? _icmp_16[M, 6] : 0;
	icmp_radv_addrs = _is_icmp4[M, ICMP_ROUTERADVERT, ICMP_ROUTERADVERT] ? (uint32_t *)(M->header + 8) :
	    (uint32_t *)NULL;
	icmp_redirect_gateway = _is_icmp4[M, ICMP_REDIRECT, ICMP_REDIRECT] ?
	    inet_ntoa((in_addr_t *)(M->header + 4)) : "<unknown>";
	icmp_timestamp_otime = _is_icmp4[M, ICMP_TSTAMP, ICMP_TSTAMPREPLY] ? _icmp_32[M, 8] : 0;
	icmp_timestamp_rtime = _is_icmp4[M, ICMP_TSTAMP, ICMP_TSTAMPREPLY] ? _icmp_32[M, 12] : 0;
	icmp_timestamp_ttime = _is_icmp4[M, ICMP_TSTAMP, ICMP_TSTAMPREPLY] ? _icmp_32[M, 16] : 0;
	icmp6_mld_addr = _is_icmp6[M, MLD_LISTENER_QUERY, MLD_LISTENER_REDUCTION] ?
	    inet_ntoa6((in6_addr_t *)(M->header + 8)) : "<unknown>";
	icmp6_mld_v2_num_mars = _is_icmp6[M, MLD_V2_LISTENER_REPORT, MLD_V2_LISTENER_REPORT] ? _icmp_16[M, 6] : 0;
	icmp6_mld_v2_mars = _is_icmp6[M, MLD_V2_LISTENER_REPORT, MLD_V2_LISTENER_REPORT] ?
	    (uintptr_t)(M->header + 8) : 0;
	icmp6_nd_target = _is_icmp6[M, ND_NEIGHBOR_SOLICIT, ND_REDIRECT] ?
	    inet_ntoa6((in6_addr_t *)(M->header + 8)) : "<unknown>";
	icmp6_nd_redirect_destination = _is_icmp6[M, ND_REDIRECT, ND_REDIRECT] ?
	    inet_ntoa6((in6_addr_t *)(M->header + 24)) : "<unknown>";
	icmp6_nd_radv_reachable = _is_icmp6[M, ND_ROUTER_ADVERT, ND_ROUTER_ADVERT] ? _icmp_32[M, 8] : 0;
	icmp6_nd_radv_retransmit = _is_icmp6[M, ND_ROUTER_ADVERT, ND_ROUTER_ADVERT] ? _icmp_32[M, 12] : 0;
	icmp6_rr_segnum = _is_icmp6[M, ICMP6_ROUTER_RENUMBERING, ICMP6_ROUTER_RENUMBERING] ? M->header[8] : 0;
	icmp6_rr_flags = _is_icmp6[M, ICMP6_ROUTER_RENUMBERING, ICMP6_ROUTER_RENUMBERING] ? M->header[9] : 0;
	icmp6_rr_maxdelay = _is_icmp6[M, ICMP6_ROUTER_RENUMBERING, ICMP6_ROUTER_RENUMBERING] ? _icmp_16[M, 10] : 0;
	icmp_error_ip_hdr = _is_icmp4_error[M] ? _icmp_packet4[M] : (struct iphdr *)NULL;
	icmp_error_ip6_hdr = _is_icmp6[M, 0, 127] ? _icmp_packet6[M] : (struct ipv6hdr *)NULL;
	icmp_error_sport = _icmp_ports[M] != 0 ? _icmp_16[M, _icmp_ports[M]] : 0;
	icmp_error_dport = _icmp_ports[M] != 0 ? _icmp_16[M, _icmp_ports[M] + 2] : 0;
	icmp_hdr = M->version == 4 ? (struct icmphdr *)M->header : (struct icmphdr *)NULL;
	icmp6_hdr = M->version == 6 ? (struct icmp6hdr *)M->header : (struct icmp6hdr *)NULL;
};

/*
 * The provider. Elsewhere, too, argument 3 is empty.
 */
provider icmp {
	probe send(struct sk_buff *S, struct sock *K, void *NONE, struct _icmp_message *M :
	    pktinfo_t *S, csinfo_t *K, ipinfo_t *S, void *NONE, icmpinfo_t *M);
	probe receive(struct sk_buff *S, struct sock *K, void *NONE, struct _icmp_message *M :
	    pktinfo_t *S, csinfo_t *K, ipinfo_t *S, void *NONE, icmpinfo_t *M);
};

this struct _icmp_message message;

inline uint8_t *_icmp4_header[struct sk_buff *S] =
    (uint8_t *)_behind_ipv4[(struct iphdr *)_skb_network[S], IPPROTO_ICMP];
inline uint8_t *_icmp6_header[struct sk_buff *S] =
    (uint8_t *)_behind_ipv6[S, (struct ipv6hdr *)_skb_network[S], IPPROTO_ICMPV6];

/* A message that is forwarded has no socket. Each other one has: that of a program, or one of the kernel. */
fbt::ip_finish_output:entry /args[2]->sk != NULL && _icmp4_header[args[2]] != NULL/
{
	this->message.version = 4;
	this->message.header = _icmp4_header[args[2]];
	send(args[2], args[2]->sk, NULL, &this->message);
}
fbt::ip6_finish_output:entry /args[2]->sk != NULL && _icmp6_header[args[2]] != NULL/
{
	this->message.version = 6;
	this->message.header = _icmp6_header[args[2]];
	send(args[2], args[2]->sk, NULL, &this->message);
}

/* Here the message is what remains of the packet. */
fbt::icmp_rcv:entry
{
	this->message.version = 4;
	this->message.header = args[0]->data;
	receive(args[0], args[0]->sk, NULL, &this->message);
}
fbt::icmpv6_rcv:entry
{
	this->message.version = 6;
	this->message.header = args[0]->data;
	receive(args[0], args[0]->sk, NULL, &this->message);
}

/*
 * Where functions cannot be traced, messages are those that devices send and receive. Of fragments only the first has
 * the header. (3 and 4 mean packets for others.)
 */
inline int _is_own_message[struct sk_buff *S] = S->sk != NULL && _is_first_device[S];
inline int _is_for_us[struct sk_buff *S] = S->pkt_type != 3 && S->pkt_type != 4;

rawtp:net::net_dev_queue
/!defined(fbt::ip_finish_output:entry) && _is_own_message[args[0]] && _skb_version[args[0]] == 4 &&
    _icmp4_header[args[0]] != NULL/
{
	this->message.version = 4;
	this->message.header = _icmp4_header[args[0]];
	send(args[0], args[0]->sk, NULL, &this->message);
}
rawtp:net::net_dev_queue
/!defined(fbt::ip_finish_output:entry) && _is_own_message[args[0]] && _skb_version[args[0]] == 6 &&
    _icmp6_header[args[0]] != NULL/
{
	this->message.version = 6;
	this->message.header = _icmp6_header[args[0]];
	send(args[0], args[0]->sk, NULL, &this->message);
}
rawtp:net::netif_receive_skb
/!defined(fbt::icmp_rcv:entry) && _is_for_us[args[0]] && _skb_version[args[0]] == 4 &&
    _icmp4_header[args[0]] != NULL/
{
	this->message.version = 4;
	this->message.header = _icmp4_header[args[0]];
	receive(args[0], args[0]->sk, NULL, &this->message);
}
rawtp:net::netif_receive_skb
/!defined(fbt::icmp_rcv:entry) && _is_for_us[args[0]] && _skb_version[args[0]] == 6 &&
    _icmp6_header[args[0]] != NULL/
{
	this->message.version = 6;
	this->message.header = _icmp6_header[args[0]];
	receive(args[0], args[0]->sk, NULL, &this->message);
}
