/*
 * IP: protocols, the flags in an IPv4 header's fragment word, and packets, from the kernel's struct sk_buff or from a
 * header.
 */

inline int IPPROTO_IP = 0;
inline int IPPROTO_ICMP = 1;
inline int IPPROTO_IGMP = 2;
inline int IPPROTO_IPIP = 4;
inline int IPPROTO_ENCAP = IPPROTO_IPIP;
inline int IPPROTO_TCP = 6;
inline int IPPROTO_EGP = 8;
inline int IPPROTO_PUP = 12;
inline int IPPROTO_UDP = 17;
inline int IPPROTO_IDP = 22;
inline int IPPROTO_DCCP = 33;
inline int IPPROTO_IPV6 = 41;
inline int IPPROTO_ROUTING = 43;
inline int IPPROTO_FRAGMENT = 44;
inline int IPPROTO_RSVP = 46;
inline int IPPROTO_GRE = 47;
inline int IPPROTO_ESP = 50;
inline int IPPROTO_AH = 51;
inline int IPPROTO_ICMPV6 = 58;
inline int IPPROTO_NONE = 59;
inline int IPPROTO_DSTOPTS = 60;
inline int IPPROTO_OSPF = 89;
inline int IPPROTO_PIM = 103;
inline int IPPROTO_SCTP = 132;
inline int IPPROTO_UDPLITE = 136;
inline int IPPROTO_RAW = 255;

inline int IPH_DF = 0x4000;
inline int IPH_MF = 0x2000;

typedef uintptr_t netstackid_t;

typedef struct ipinfo {
	uint8_t ip_ver;			/* 4, 6; 0 if not known */
	uint32_t ip_plength;		/* bytes behind the IPv4 header and its options, or behind the first IPv6 header */
	string ip_saddr;		/* source address */
	string ip_daddr;		/* destination address */
} ipinfo_t;

typedef struct ifinfo {
	string if_name;			/* interface */
	int8_t if_local;		/* 1 for the loopback, and where there is no interface */
	netstackid_t if_ipstack;	/* address of its network namespace */
	uintptr_t if_addr;		/* address of the interface */
} ifinfo_t;

typedef struct ipv4info {
	uint8_t ipv4_ver;		/* 4 */
	uint8_t ipv4_ihl;		/* bytes of the header */
	uint8_t ipv4_tos;		/* type of service */
	uint16_t ipv4_length;		/* bytes of header and payload */
	uint16_t ipv4_ident;		/* identification */
	uint8_t ipv4_flags;		/* IPH_DF >> 12, IPH_MF >> 12 */
	uint16_t ipv4_offset;		/* offset of the fragment, in units of 8 bytes */
	uint8_t ipv4_ttl;		/* time to live */
	uint8_t ipv4_protocol;		/* IPPROTO_* */
	string ipv4_protostr;		/* its name */
	uint16_t ipv4_checksum;		/* of the header */
	in_addr_t ipv4_src;		/* source address, network order */
	in_addr_t ipv4_dst;		/* destination address, network order */
	string ipv4_saddr;		/* source address */
	string ipv4_daddr;		/* destination address */
	struct iphdr *ipv4_hdr;		/* the header */
} ipv4info_t;

typedef struct ipv6info {
	uint8_t ipv6_ver;		/* 6 */
	uint8_t ipv6_tclass;		/* traffic class */
	uint32_t ipv6_flow;		/* flow label */
	uint16_t ipv6_plen;		/* bytes of the payload */
	uint8_t ipv6_nexthdr;		/* IPPROTO_* */
	string ipv6_nextstr;		/* its name */
	uint8_t ipv6_hlim;		/* hop limit */
	struct in6_addr *ipv6_src;	/* source address */
	struct in6_addr *ipv6_dst;	/* destination address */
	string ipv6_saddr;		/* source address */
	string ipv6_daddr;		/* destination address */
	struct ipv6hdr *ipv6_hdr;	/* the header */
} ipv6info_t;

inline string _ip_protocol[int P] = P == IPPROTO_TCP ? "TCP" : P == IPPROTO_UDP ? "UDP" : P == IPPROTO_IP ? "IP" :
    P == IPPROTO_ICMP ? "ICMP" : P == IPPROTO_IGMP ? "IGMP" : P == IPPROTO_EGP ? "EGP" : P == IPPROTO_IPV6 ? "IPv6" :
    P == IPPROTO_ROUTING ? "ROUTE" : P == IPPROTO_ESP ? "ESP" : P == IPPROTO_AH ? "AH" :
    P == IPPROTO_ICMPV6 ? "ICMPv6" : P == IPPROTO_OSPF ? "OSPF" : P == IPPROTO_SCTP ? "SCTP" :
    P == IPPROTO_RAW ? "RAW" : lltostr(P);

/*
 * The network header of a packet. A driver that passes a packet up does not always say where it is: it is then at the
 * beginning of the data.
 */
inline uintptr_t _skb_network[struct sk_buff *S] =
    S->network_header == 0 ? (uintptr_t)S->data : (uintptr_t)S->head + S->network_header;

/* ETH_P_IP and ETH_P_IPV6. */
inline int _ethernet_ipv4 = 2048;
inline int _ethernet_ipv6 = 34525;

/*
 * 4 or 6 where the packet has a header of IP; 0 for what TCP has not yet given to IP. A packet that another protocol
 * gives to IP has a header and no type.
 */
inline int _header_version[uintptr_t H] = *(uint8_t *)H >> 4 == 4 ? 4 : *(uint8_t *)H >> 4 == 6 ? 6 : 0;
inline int _skb_version[struct sk_buff *S] =
    S == NULL ? 0 : S->protocol == htons(_ethernet_ipv4) ? 4 : S->protocol == htons(_ethernet_ipv6) ? 6 :
    S->protocol == 0 && S->network_header != 0 ? _header_version[(uintptr_t)S->head + S->network_header] : 0;
inline struct iphdr *_skb_ipv4[struct sk_buff *S] =
    _skb_version[S] == 4 ? (struct iphdr *)_skb_network[S] : (struct iphdr *)NULL;
inline struct ipv6hdr *_skb_ipv6[struct sk_buff *S] =
    _skb_version[S] == 6 ? (struct ipv6hdr *)_skb_network[S] : (struct ipv6hdr *)NULL;

/* Bytes from the network header to the end. */
inline uint32_t _skb_network_length[struct sk_buff *S] = S->len - (_skb_network[S] - (uintptr_t)S->data);

/* Packets over 64 KB, which only the kernel has, say 0. */
inline uint32_t _skb_plength4[struct sk_buff *S, struct iphdr *I] =
    (I->tot_len == 0 ? _skb_network_length[S] : ntohs(I->tot_len)) - I->ihl * 4;
inline uint32_t _skb_plength6[struct sk_buff *S, struct ipv6hdr *I] =
    I->payload_len == 0 ? _skb_network_length[S] - sizeof (struct ipv6hdr) : ntohs(I->payload_len);

inline int _family_version[int F] = F == AF_INET ? 4 : F == AF_INET6 ? 6 : 0;

/* A packet without a header of IP has the addresses of its socket. */
translator ipinfo_t < struct sk_buff *S > {
	ip_ver = _skb_version[S] != 0 ? _skb_version[S] : S == NULL ? 0 : _family_version[_sock_family[S->sk]];
	ip_plength = _skb_version[S] == 4 ? _skb_plength4[S, _skb_ipv4[S]] :
	    _skb_version[S] == 6 ? _skb_plength6[S, _skb_ipv6[S]] : S == NULL ? 0 : S->len;
	ip_saddr = _skb_version[S] == 4 ? inet_ntoa(&_skb_ipv4[S]->saddr) :
	    _skb_version[S] == 6 ? inet_ntoa6(&_skb_ipv6[S]->saddr) : S == NULL ? "<unknown>" : _sock_laddr[S->sk];
	ip_daddr = _skb_version[S] == 4 ? inet_ntoa(&_skb_ipv4[S]->daddr) :
	    _skb_version[S] == 6 ? inet_ntoa6(&_skb_ipv6[S]->daddr) : S == NULL ? "<unknown>" : _sock_raddr[S->sk];
};

translator ipinfo_t < struct iphdr *I > {
	ip_ver = I == NULL ? 0 : I->version;
	ip_plength = I == NULL ? 0 : ntohs(I->tot_len) - I->ihl * 4;
	ip_saddr = I == NULL ? "<unknown>" : inet_ntoa(&I->saddr);
	ip_daddr = I == NULL ? "<unknown>" : inet_ntoa(&I->daddr);
};

translator ipinfo_t < struct ipv6hdr *I > {
	ip_ver = I == NULL ? 0 : I->version;
	ip_plength = I == NULL ? 0 : ntohs(I->payload_len);
	ip_saddr = I == NULL ? "<unknown>" : inet_ntoa6(&I->saddr);
	ip_daddr = I == NULL ? "<unknown>" : inet_ntoa6(&I->daddr);
};

translator ifinfo_t < struct net_device *D > {
	if_name = D == NULL ? "<null>" : stringof(D->name);
	if_local = D == NULL || (D->flags & IFF_LOOPBACK) != 0;
	if_ipstack = D == NULL ? 0 : (netstackid_t)D->nd_net.net;
	if_addr = (uintptr_t)D;
};

inline struct net_device *_skb_device[struct sk_buff *S] = S == NULL ? (struct net_device *)NULL : S->dev;

translator ifinfo_t < struct sk_buff *S > {
	if_name = xlate <ifinfo_t> (_skb_device[S]).if_name;
	if_local = xlate <ifinfo_t> (_skb_device[S]).if_local;
	if_ipstack = xlate <ifinfo_t> (_skb_device[S]).if_ipstack;
	if_addr = (uintptr_t)_skb_device[S];
};

translator ipv4info_t < struct iphdr *I > {
	ipv4_ver = I == NULL ? 0 : I->version;
	ipv4_ihl = I == NULL ? 0 : I->ihl * 4;
	ipv4_tos = I == NULL ? 0 : I->tos;
	ipv4_length = I == NULL ? 0 : ntohs(I->tot_len);
	ipv4_ident = I == NULL ? 0 : ntohs(I->id);
	ipv4_flags = I == NULL ? 0 : ntohs(I->frag_off) >> 12 & 0xe;
	ipv4_offset = I == NULL ? 0 : ntohs(I->frag_off) & 0x1fff;
	ipv4_ttl = I == NULL ? 0 : I->ttl;
	ipv4_protocol = I == NULL ? 0 : I->protocol;
	ipv4_protostr = I == NULL ? "<null>" : _ip_protocol[I->protocol];
	ipv4_checksum = I == NULL ? 0 : ntohs(I->check);
	ipv4_src = I == NULL ? 0 : I->saddr;
	ipv4_dst = I == NULL ? 0 : I->daddr;
	ipv4_saddr = I == NULL ? "<unknown>" : inet_ntoa(&I->saddr);
	ipv4_daddr = I == NULL ? "<unknown>" : inet_ntoa(&I->daddr);
	ipv4_hdr = I;
};

/* The first word has 4 bits of version, 8 of traffic class, 20 of flow label. */
inline uint32_t _ipv6_word[struct ipv6hdr *I] = ntohl(*(uint32_t *)I);

translator ipv6info_t < struct ipv6hdr *I > {
	ipv6_ver = I == NULL ? 0 : I->version;
	ipv6_tclass = I == NULL ? 0 : _ipv6_word[I] >> 20 & 0xff;
	ipv6_flow = I == NULL ? 0 : _ipv6_word[I] & 0xfffff;
	ipv6_plen = I == NULL ? 0 : ntohs(I->payload_len);
	ipv6_nexthdr = I == NULL ? 0 : I->nexthdr;
	ipv6_nextstr = I == NULL ? "<null>" : _ip_protocol[I->nexthdr];
	ipv6_hlim = I == NULL ? 0 : I->hop_limit;
	ipv6_src = I == NULL ? (struct in6_addr *)NULL : &I->saddr;
	ipv6_dst = I == NULL ? (struct in6_addr *)NULL : &I->daddr;
	ipv6_saddr = I == NULL ? "<unknown>" : inet_ntoa6(&I->saddr);
	ipv6_daddr = I == NULL ? "<unknown>" : inet_ntoa6(&I->daddr);
	ipv6_hdr = I;
};

translator ipv4info_t < struct sk_buff *S > {
	ipv4_ver = xlate <ipv4info_t> (_skb_ipv4[S]).ipv4_ver;
	ipv4_ihl = xlate <ipv4info_t> (_skb_ipv4[S]).ipv4_ihl;
	ipv4_tos = xlate <ipv4info_t> (_skb_ipv4[S]).ipv4_tos;
	ipv4_length = xlate <ipv4info_t> (_skb_ipv4[S]).ipv4_length;
	ipv4_ident = xlate <ipv4info_t> (_skb_ipv4[S]).ipv4_ident;
	ipv4_flags = xlate <ipv4info_t> (_skb_ipv4[S]).ipv4_flags;
	ipv4_offset = xlate <ipv4info_t> (_skb_ipv4[S]).ipv4_offset;
	ipv4_ttl = xlate <ipv4info_t> (_skb_ipv4[S]).ipv4_ttl;
	ipv4_protocol = xlate <ipv4info_t> (_skb_ipv4[S]).ipv4_protocol;
	ipv4_protostr = xlate <ipv4info_t> (_skb_ipv4[S]).ipv4_protostr;
	ipv4_checksum = xlate <ipv4info_t> (_skb_ipv4[S]).ipv4_checksum;
	ipv4_src = xlate <ipv4info_t> (_skb_ipv4[S]).ipv4_src;
	ipv4_dst = xlate <ipv4info_t> (_skb_ipv4[S]).ipv4_dst;
	ipv4_saddr = xlate <ipv4info_t> (_skb_ipv4[S]).ipv4_saddr;
	ipv4_daddr = xlate <ipv4info_t> (_skb_ipv4[S]).ipv4_daddr;
	ipv4_hdr = _skb_ipv4[S];
};

translator ipv6info_t < struct sk_buff *S > {
	ipv6_ver = xlate <ipv6info_t> (_skb_ipv6[S]).ipv6_ver;
	ipv6_tclass = xlate <ipv6info_t> (_skb_ipv6[S]).ipv6_tclass;
	ipv6_flow = xlate <ipv6info_t> (_skb_ipv6[S]).ipv6_flow;
	ipv6_plen = xlate <ipv6info_t> (_skb_ipv6[S]).ipv6_plen;
	ipv6_nexthdr = xlate <ipv6info_t> (_skb_ipv6[S]).ipv6_nexthdr;
	ipv6_nextstr = xlate <ipv6info_t> (_skb_ipv6[S]).ipv6_nextstr;
	ipv6_hlim = xlate <ipv6info_t> (_skb_ipv6[S]).ipv6_hlim;
	ipv6_src = xlate <ipv6info_t> (_skb_ipv6[S]).ipv6_src;
	ipv6_dst = xlate <ipv6info_t> (_skb_ipv6[S]).ipv6_dst;
	ipv6_saddr = xlate <ipv6info_t> (_skb_ipv6[S]).ipv6_saddr;
	ipv6_daddr = xlate <ipv6info_t> (_skb_ipv6[S]).ipv6_daddr;
	ipv6_hdr = _skb_ipv6[S];
};

/*
 * The header of the protocol above. Only the first fragment of a packet has one. Behind several extension headers of
 * IPv6, and before TCP or UDP has given the packet to IP, it is where the packet says.
 */
inline uintptr_t _skb_transport[struct sk_buff *S] = S->transport_header == 0 || S->transport_header == 0xffff ? 0 :
    (uintptr_t)S->head + S->transport_header;
inline uintptr_t _behind_ipv4[struct iphdr *I, int P] =
    I->protocol == P && (I->frag_off & htons(0x1fff)) == 0 ? (uintptr_t)I + I->ihl * 4 : 0;

/* An extension header begins with the number of the next header and its own length, or with a fragment's offset. */
inline uint8_t *_ipv6_extension[struct ipv6hdr *I] = (uint8_t *)(I + 1);
inline int _is_extension[int P] = P == IPPROTO_IP || P == IPPROTO_ROUTING || P == IPPROTO_DSTOPTS;
inline int _is_later_fragment[struct ipv6hdr *I] =
    (_ipv6_extension[I][2] << 8 | _ipv6_extension[I][3] & 0xf8) != 0;
inline uintptr_t _behind_extension[struct sk_buff *S, struct ipv6hdr *I, int P, int LENGTH] =
    _ipv6_extension[I][0] == P ? (uintptr_t)_ipv6_extension[I] + LENGTH :
    (_is_extension[_ipv6_extension[I][0]] || _ipv6_extension[I][0] == IPPROTO_FRAGMENT) &&
    _skb_transport[S] > (uintptr_t)I ? _skb_transport[S] : 0;
inline uintptr_t _behind_ipv6[struct sk_buff *S, struct ipv6hdr *I, int P] =
    I->nexthdr == P ? (uintptr_t)(I + 1) :
    I->nexthdr == IPPROTO_FRAGMENT ? (_is_later_fragment[I] ? 0 : _behind_extension[S, I, P, 8]) :
    _is_extension[I->nexthdr] ? _behind_extension[S, I, P, (_ipv6_extension[I][1] + 1) * 8] : 0;
inline uintptr_t _skb_header[struct sk_buff *S, int P] = S == NULL ? 0 :
    _skb_version[S] == 4 ? _behind_ipv4[_skb_ipv4[S], P] :
    _skb_version[S] == 6 ? _behind_ipv6[S, _skb_ipv6[S], P] : _skb_transport[S];

/* Where the packet is routed to. The low bit says whether it is counted. */
inline struct dst_entry *_skb_route[struct sk_buff *S] = (struct dst_entry *)(S->_skb_refdst & ~1);

/* The device to which it is routed, not one below that. */
inline int _is_first_device[struct sk_buff *S] = _skb_route[S] != NULL && _skb_route[S]->dev == S->dev;

provider ip {
	probe send(struct sk_buff *S, struct sock *K, struct net_device *D :
	    pktinfo_t *S, csinfo_t *K, ipinfo_t *S, ifinfo_t *D, ipv4info_t *S, ipv6info_t *S);
	probe receive(struct sk_buff *S, struct sock *K, struct net_device *D :
	    pktinfo_t *S, csinfo_t *K, ipinfo_t *S, ifinfo_t *D, ipv4info_t *S, ipv6info_t *S);
	probe drop__in(struct sk_buff *S, struct sock *K, struct net_device *D, string reason :
	    pktinfo_t *S, csinfo_t *K, ipinfo_t *S, ifinfo_t *D, ipv4info_t *S, ipv6info_t *S, string reason);
	probe drop__out(struct sk_buff *S, struct sock *K, struct net_device *D, string reason :
	    pktinfo_t *S, csinfo_t *K, ipinfo_t *S, ifinfo_t *D, ipv4info_t *S, ipv6info_t *S, string reason);
};

/*
 * A packet came in if it has the number of the interface on which it did, or if nothing says where it goes to and whose
 * it is.
 */
inline int _skb_came_in[struct sk_buff *S] = S->skb_iif != 0 || S->sk == NULL && S->_skb_refdst == 0;

/*
 * The interface of a packet. A socket may keep other things in its place: lengths, which are no address of the kernel, or
 * another packet. The interface of a packet that has none yet is that of its route.
 */
inline struct net_device *_drop_device[struct sk_buff *S] =
    S->dev == NULL ? (_skb_came_in[S] || _skb_route[S] == NULL ? (struct net_device *)NULL : _skb_route[S]->dev) :
    (int64_t)S->dev > 0 ? (struct net_device *)NULL :
    S->skb_iif != 0 && S->sk != NULL && S->dev->ifindex != S->skb_iif ? (struct net_device *)NULL : S->dev;

rawtp:skb::kfree_skb /_skb_version[args[0]] != 0 && _skb_came_in[args[0]]/
{
	drop__in(args[0], defined(rawtp:skb::kfree_skb, args[3]) ?
	    (args[3] != NULL ? (struct sock *)args[3] : args[0]->sk) : args[0]->sk,
	    _drop_device[args[0]], _enumerator[args[2], "SKB_DROP_REASON_"]);
}
rawtp:skb::kfree_skb /_skb_version[args[0]] != 0 && !_skb_came_in[args[0]]/
{
	drop__out(args[0], defined(rawtp:skb::kfree_skb, args[3]) ?
	    (args[3] != NULL ? (struct sock *)args[3] : args[0]->sk) : args[0]->sk,
	    _drop_device[args[0]], _enumerator[args[2], "SKB_DROP_REASON_"]);
}

/* Each fragment, for this system and for others. */
fbt::ip_finish_output2:entry, fbt::ip6_finish_output2:entry { send(args[2], args[2]->sk, args[2]->dev); }
fbt::ip_local_deliver:entry, fbt::ip6_input:entry, fbt::ip_forward:entry, fbt::ip6_forward:entry
{
	receive(args[0], args[0]->sk, args[0]->dev);
}

/*
 * As devices send and receive. A port of a bridge and a part of a bond send only what the bridge or bond does, and what a
 * port receives is received by its bridge. PACKET_OTHERHOST is 3.
 */
inline int _skb_goes_out[struct sk_buff *S] = _skb_version[S] != 0 && (S->dev->flags & IFF_SLAVE) == 0 &&
    (S->dev->priv_flags & IFF_BRIDGE_PORT) == 0;
inline int _skb_is_for_us[struct sk_buff *S] = _skb_version[S] != 0 && S->pkt_type != 3 &&
    (S->dev->priv_flags & IFF_BRIDGE_PORT) == 0;

rawtp:net::net_dev_queue /!defined(fbt::ip_finish_output2:entry) && _skb_goes_out[args[0]]/
{
	send(args[0], args[0]->sk, args[0]->dev);
}
rawtp:net::netif_receive_skb /!defined(fbt::ip_local_deliver:entry) && _skb_is_for_us[args[0]]/
{
	receive(args[0], args[0]->sk, args[0]->dev);
}
