/*
 * TCP: flags of a segment, states, segments and sockets. The names are DTrace's, the numbers are those of Linux. Linux
 * has no states IDLE and BOUND. Their numbers are not used by any state.
 */

inline int TH_FIN = 0x01;
inline int TH_SYN = 0x02;
inline int TH_RST = 0x04;
inline int TH_PUSH = 0x08;
inline int TH_ACK = 0x10;
inline int TH_URG = 0x20;
inline int TH_ECE = 0x40;
inline int TH_CWR = 0x80;
inline int TH_PSH = TH_PUSH;

inline int TCP_STATE_ESTABLISHED = 1;
inline int TCP_STATE_SYN_SENT = 2;
inline int TCP_STATE_SYN_RECEIVED = 3;
inline int TCP_STATE_FIN_WAIT_1 = 4;
inline int TCP_STATE_FIN_WAIT_2 = 5;
inline int TCP_STATE_TIME_WAIT = 6;
inline int TCP_STATE_CLOSED = 7;
inline int TCP_STATE_CLOSE_WAIT = 8;
inline int TCP_STATE_LAST_ACK = 9;
inline int TCP_STATE_LISTEN = 10;
inline int TCP_STATE_CLOSING = 11;
inline int TCP_STATE_NEW_SYN_RECV = 12;
inline int TCP_STATE_IDLE = -5;
inline int TCP_STATE_BOUND = -4;

inline string tcp_state_string[int32_t state] =
    state == TCP_STATE_ESTABLISHED ? "state-established" :
    state == TCP_STATE_SYN_SENT ? "state-syn-sent" :
    state == TCP_STATE_SYN_RECEIVED ? "state-syn-received" :
    state == TCP_STATE_FIN_WAIT_1 ? "state-fin-wait-1" :
    state == TCP_STATE_FIN_WAIT_2 ? "state-fin-wait-2" :
    state == TCP_STATE_TIME_WAIT ? "state-time-wait" :
    state == TCP_STATE_CLOSED ? "state-closed" :
    state == TCP_STATE_CLOSE_WAIT ? "state-close-wait" :
    state == TCP_STATE_LAST_ACK ? "state-last-ack" :
    state == TCP_STATE_LISTEN ? "state-listen" :
    state == TCP_STATE_CLOSING ? "state-closing" :
    state == TCP_STATE_NEW_SYN_RECV ? "state-new-syn-recv" :
    "<unknown>";

typedef struct tcpinfo {
	uint16_t tcp_sport;		/* source port */
	uint16_t tcp_dport;		/* destination port */
	uint32_t tcp_seq;		/* sequence number */
	uint32_t tcp_ack;		/* acknowledgment number */
	uint8_t tcp_offset;		/* bytes of the header */
	uint8_t tcp_flags;		/* TH_* */
	uint16_t tcp_window;		/* window, not scaled */
	uint16_t tcp_checksum;		/* checksum */
	uint16_t tcp_urgent;		/* urgent pointer */
	struct tcphdr *tcp_hdr;		/* the header */
} tcpinfo_t;

/* What a connection had before. */
typedef struct tcplsinfo {
	int32_t tcps_state;		/* TCP_STATE_* */
} tcplsinfo_t;

typedef struct tcpsinfo {
	uintptr_t tcps_addr;		/* address of the socket */
	int tcps_local;			/* 1 if both ends have the same address */
	int tcps_active;		/* 1 if this end opened the connection */
	uint16_t tcps_lport;		/* local port */
	uint16_t tcps_rport;		/* remote port */
	string tcps_laddr;		/* local address */
	string tcps_raddr;		/* remote address */
	int32_t tcps_state;		/* TCP_STATE_* */
	uint32_t tcps_iss;		/* first sequence number that was sent */
	uint32_t tcps_suna;		/* first that is sent and not acknowledged */
	uint32_t tcps_snxt;		/* next that will be sent */
	uint32_t tcps_rack;		/* first that was received and not acknowledged */
	uint32_t tcps_rnxt;		/* next that is expected */
	uint32_t tcps_swnd;		/* bytes that the other end takes */
	int32_t tcps_snd_ws;		/* its scale, in bits */
	uint32_t tcps_rwnd;		/* bytes that this end takes */
	int32_t tcps_rcv_ws;		/* its scale, in bits */
	uint32_t tcps_cwnd;		/* congestion window, bytes */
	uint32_t tcps_cwnd_ssthresh;	/* threshold of slow start, bytes; 0x7fffffff before the first loss */
	uint32_t tcps_sack_fack;	/* highest that is acknowledged by SACK */
	uint32_t tcps_sack_snxt;	/* the same */
	uint32_t tcps_rto;		/* retransmission timeout, ms */
	uint32_t tcps_mss;		/* bytes of a segment */
	int tcps_retransmit;		/* 1 while data is sent again */
	uint32_t tcps_rtt;		/* smoothed round-trip time, ms */
	uint32_t tcps_rtt_sd;		/* its deviation, ms */
	uint32_t tcps_irs;		/* first sequence number that was received */
} tcpsinfo_t;

translator tcpinfo_t < struct tcphdr *T > {
	tcp_sport = T == NULL ? 0 : ntohs(T->source);
	tcp_dport = T == NULL ? 0 : ntohs(T->dest);
	tcp_seq = T == NULL ? 0 : ntohl(T->seq);
	tcp_ack = T == NULL ? 0 : ntohl(T->ack_seq);
	tcp_offset = T == NULL ? 0 : T->doff * 4;
	tcp_flags = T == NULL ? 0 : *((uint8_t *)T + 13);
	tcp_window = T == NULL ? 0 : ntohs(T->window);
	tcp_checksum = T == NULL ? 0 : ntohs(T->check);
	tcp_urgent = T == NULL ? 0 : ntohs(T->urg_ptr);
	tcp_hdr = T;
};

inline struct tcphdr *_skb_tcp[struct sk_buff *S] = (struct tcphdr *)_skb_header[S, IPPROTO_TCP];

translator tcpinfo_t < struct sk_buff *S > {
	tcp_sport = xlate <tcpinfo_t> (_skb_tcp[S]).tcp_sport;
	tcp_dport = xlate <tcpinfo_t> (_skb_tcp[S]).tcp_dport;
	tcp_seq = xlate <tcpinfo_t> (_skb_tcp[S]).tcp_seq;
	tcp_ack = xlate <tcpinfo_t> (_skb_tcp[S]).tcp_ack;
	tcp_offset = xlate <tcpinfo_t> (_skb_tcp[S]).tcp_offset;
	tcp_flags = xlate <tcpinfo_t> (_skb_tcp[S]).tcp_flags;
	tcp_window = xlate <tcpinfo_t> (_skb_tcp[S]).tcp_window;
	tcp_checksum = xlate <tcpinfo_t> (_skb_tcp[S]).tcp_checksum;
	tcp_urgent = xlate <tcpinfo_t> (_skb_tcp[S]).tcp_urgent;
	tcp_hdr = _skb_tcp[S];
};

/* Only a full socket of TCP is a struct tcp_sock. The others have addresses, ports and a state. */
inline int _is_tcp[struct sock *S] = _sock_is_full[S] && S->sk_protocol == IPPROTO_TCP;

inline int _same_ipv6[struct in6_addr *A, struct in6_addr *B] =
    *(uint64_t *)A == *(uint64_t *)B && *((uint64_t *)A + 1) == *((uint64_t *)B + 1);
inline int _sock_is_local[struct sock *S] = S->__sk_common.skc_family == AF_INET6 ?
    _same_ipv6[&S->__sk_common.skc_v6_rcv_saddr, &S->__sk_common.skc_v6_daddr] :
    S->__sk_common.skc_rcv_saddr == S->__sk_common.skc_daddr;

/*
 * A socket that a listener made has the interface on which the connection arrived where others have the interface for
 * multicast, which a socket of TCP does not set.
 */
inline int _tcp_is_active[struct sock *S] =
    _is_tcp[S] && S->__sk_common.skc_dport != 0 && ((struct inet_sock *)S)->mc_index == 0 &&
    (S->__sk_common.skc_family != AF_INET6 || ((struct inet_sock *)S)->pinet6->mcast_oif == 0);

/* What is acknowledged is counted with SYN where this end opened the connection, else without. */
inline uint32_t _tcp_iss[struct tcp_sock *T, int ACTIVE] =
    T->snd_una == 0 ? 0 : T->snd_una - (uint32_t)T->bytes_acked - (ACTIVE ? 0 : 1);

/* What is received is counted without SYN. */
inline uint32_t _tcp_irs[struct tcp_sock *T] =
    T->rcv_nxt == 0 ? 0 : T->rcv_nxt - (uint32_t)T->bytes_received - 1;

inline uint32_t _tcp_fack[struct tcp_sock *T] = T->sacked_out == 0 ? T->snd_una : T->highest_sack == NULL ? T->snd_nxt :
    ((struct tcp_skb_cb *)&T->highest_sack->cb)->seq;

/* The kernel counts segments. The greatest number stands for no threshold. */
inline uint32_t _tcp_ssthresh[struct tcp_sock *T] =
    T->snd_ssthresh >= 0x7fffffff ? 0x7fffffff : T->snd_ssthresh * T->mss_cache;

translator tcpsinfo_t < struct sock *S > {
	tcps_addr = (uintptr_t)S;
	tcps_local = S != NULL && _sock_is_local[S];
	tcps_active = _tcp_is_active[S];
	tcps_lport = _sock_lport[S];
	tcps_rport = _sock_rport[S];
	tcps_laddr = _sock_laddr[S];
	tcps_raddr = _sock_raddr[S];
	tcps_state = S == NULL ? TCP_STATE_CLOSED : _sock_state[S];
	tcps_iss = !_is_tcp[S] ? 0 : _tcp_iss[(struct tcp_sock *)S, _tcp_is_active[S]];
	tcps_suna = !_is_tcp[S] ? 0 : ((struct tcp_sock *)S)->snd_una;
	tcps_snxt = !_is_tcp[S] ? 0 : ((struct tcp_sock *)S)->snd_nxt;
	tcps_rack = !_is_tcp[S] ? 0 : ((struct tcp_sock *)S)->rcv_wup;
	tcps_rnxt = !_is_tcp[S] ? 0 : ((struct tcp_sock *)S)->rcv_nxt;
	tcps_swnd = !_is_tcp[S] ? 0 : ((struct tcp_sock *)S)->snd_wnd;
	tcps_snd_ws = !_is_tcp[S] ? 0 : ((struct tcp_sock *)S)->rx_opt.snd_wscale;
	tcps_rwnd = !_is_tcp[S] ? 0 : ((struct tcp_sock *)S)->rcv_wnd;
	tcps_rcv_ws = !_is_tcp[S] ? 0 : ((struct tcp_sock *)S)->rx_opt.rcv_wscale;
	tcps_cwnd = !_is_tcp[S] ? 0 : ((struct tcp_sock *)S)->snd_cwnd * ((struct tcp_sock *)S)->mss_cache;
	tcps_cwnd_ssthresh = !_is_tcp[S] ? 0 : _tcp_ssthresh[(struct tcp_sock *)S];
	tcps_sack_fack = !_is_tcp[S] ? 0 : _tcp_fack[(struct tcp_sock *)S];
	tcps_sack_snxt = !_is_tcp[S] ? 0 : _tcp_fack[(struct tcp_sock *)S];
	tcps_rto = !_is_tcp[S] ? 0 : ((struct tcp_sock *)S)->inet_conn.icsk_rto * _tick / 1000000;
	tcps_mss = !_is_tcp[S] ? 0 : ((struct tcp_sock *)S)->mss_cache;
	tcps_retransmit = !_is_tcp[S] ? 0 :
	    ((struct tcp_sock *)S)->inet_conn.icsk_retransmits != 0 || ((struct tcp_sock *)S)->retrans_out != 0;
	tcps_rtt = !_is_tcp[S] ? 0 : (((struct tcp_sock *)S)->srtt_us >> 3) / 1000;
	tcps_rtt_sd = !_is_tcp[S] ? 0 : (((struct tcp_sock *)S)->mdev_us >> 2) / 1000;
	tcps_irs = !_is_tcp[S] ? 0 : _tcp_irs[(struct tcp_sock *)S];
};

translator tcpsinfo_t < struct tcp_sock *T > {
	tcps_addr = (uintptr_t)T;
	tcps_local = xlate <tcpsinfo_t> ((struct sock *)T).tcps_local;
	tcps_active = xlate <tcpsinfo_t> ((struct sock *)T).tcps_active;
	tcps_lport = xlate <tcpsinfo_t> ((struct sock *)T).tcps_lport;
	tcps_rport = xlate <tcpsinfo_t> ((struct sock *)T).tcps_rport;
	tcps_laddr = xlate <tcpsinfo_t> ((struct sock *)T).tcps_laddr;
	tcps_raddr = xlate <tcpsinfo_t> ((struct sock *)T).tcps_raddr;
	tcps_state = xlate <tcpsinfo_t> ((struct sock *)T).tcps_state;
	tcps_iss = xlate <tcpsinfo_t> ((struct sock *)T).tcps_iss;
	tcps_suna = xlate <tcpsinfo_t> ((struct sock *)T).tcps_suna;
	tcps_snxt = xlate <tcpsinfo_t> ((struct sock *)T).tcps_snxt;
	tcps_rack = xlate <tcpsinfo_t> ((struct sock *)T).tcps_rack;
	tcps_rnxt = xlate <tcpsinfo_t> ((struct sock *)T).tcps_rnxt;
	tcps_swnd = xlate <tcpsinfo_t> ((struct sock *)T).tcps_swnd;
	tcps_snd_ws = xlate <tcpsinfo_t> ((struct sock *)T).tcps_snd_ws;
	tcps_rwnd = xlate <tcpsinfo_t> ((struct sock *)T).tcps_rwnd;
	tcps_rcv_ws = xlate <tcpsinfo_t> ((struct sock *)T).tcps_rcv_ws;
	tcps_cwnd = xlate <tcpsinfo_t> ((struct sock *)T).tcps_cwnd;
	tcps_cwnd_ssthresh = xlate <tcpsinfo_t> ((struct sock *)T).tcps_cwnd_ssthresh;
	tcps_sack_fack = xlate <tcpsinfo_t> ((struct sock *)T).tcps_sack_fack;
	tcps_sack_snxt = xlate <tcpsinfo_t> ((struct sock *)T).tcps_sack_snxt;
	tcps_rto = xlate <tcpsinfo_t> ((struct sock *)T).tcps_rto;
	tcps_mss = xlate <tcpsinfo_t> ((struct sock *)T).tcps_mss;
	tcps_retransmit = xlate <tcpsinfo_t> ((struct sock *)T).tcps_retransmit;
	tcps_rtt = xlate <tcpsinfo_t> ((struct sock *)T).tcps_rtt;
	tcps_rtt_sd = xlate <tcpsinfo_t> ((struct sock *)T).tcps_rtt_sd;
	tcps_irs = xlate <tcpsinfo_t> ((struct sock *)T).tcps_irs;
};

translator tcplsinfo_t < int STATE > {
	tcps_state = STATE;
};

translator tcplsinfo_t < struct sock *S > {
	tcps_state = S == NULL ? TCP_STATE_CLOSED : _sock_state[S];
};

translator tcplsinfo_t < struct tcp_sock *T > {
	tcps_state = T == NULL ? TCP_STATE_CLOSED : _sock_state[(struct sock *)T];
};

/*
 * The types of what the probes pass. Each is an address, of a socket, a packet or a header, whose highest byte (0xff in
 * all addresses of the kernel) may say more: the state that a socket is about to have, or that the address is that of
 * something else.
 */
struct _tcp_conn { char first; };
struct _tcp_segment { char first; };
struct _tcp_header { char first; };

inline uintptr_t _with_tag[uintptr_t A, int TAG] = A ^ (uintptr_t)TAG << 56;
inline int _tag[uintptr_t A] = ~A >> 56;
inline uintptr_t _without_tag[uintptr_t A] = A | (uintptr_t)0xff << 56;
inline int _other = 0x40;
inline int _outgoing = 0x41;

/*
 * A connection is a socket, with the state that it is about to have, or a segment that was received or is sent for none.
 */
inline int _is_segment[struct _tcp_conn *C] = _tag[(uintptr_t)C] >= _other;
inline int _is_outgoing[struct _tcp_conn *C] = _tag[(uintptr_t)C] == _outgoing;
inline int _has_state[struct _tcp_conn *C] = _tag[(uintptr_t)C] != 0 && _tag[(uintptr_t)C] < _other;
inline struct sk_buff *_segment[struct _tcp_conn *C] = (struct sk_buff *)_without_tag[(uintptr_t)C];
inline struct sock *_tcp_sock[struct _tcp_conn *C] =
    _tag[(uintptr_t)C] >= _other ? (struct sock *)NULL : (struct sock *)_without_tag[(uintptr_t)C];
inline struct _tcp_conn *_conn[struct sock *S] = (struct _tcp_conn *)S;
inline struct _tcp_conn *_conn_to[struct sock *S, int STATE] = (struct _tcp_conn *)_with_tag[(uintptr_t)S, STATE];
inline struct _tcp_conn *_no_conn[struct sk_buff *P] = (struct _tcp_conn *)_with_tag[(uintptr_t)P, _other];

inline int _segment_is_local[struct sk_buff *S] = _skb_version[S] == 4 ? _skb_ipv4[S]->saddr == _skb_ipv4[S]->daddr :
    _skb_version[S] == 6 ? _same_ipv6[&_skb_ipv6[S]->saddr, &_skb_ipv6[S]->daddr] : 0;

/* The local end of a segment is the destination, and the source of what is sent. The headers are read by offset. */
inline uint16_t _segment_port[struct sk_buff *S, int DESTINATION] = ntohs(*(uint16_t *)(DESTINATION * 2 +
    (defined(fbt::tcp_v4_do_rcv:entry) ? _skb_transport[S] : (uintptr_t)_skb_tcp[S])));
inline uintptr_t _at_address[struct sk_buff *S, int DESTINATION, int FIRST, int BYTES] =
    _skb_network[S] + FIRST + DESTINATION * BYTES;

/* What is sent may have no device yet, and no route any more. */
inline struct net_device *_segment_device[struct sk_buff *S, int OUTGOING] =
    OUTGOING && _skb_route[S] != NULL ? _skb_route[S]->dev : S->dev;

inline uint64_t _number_of_segment[struct sk_buff *S, int OUTGOING] = _number_of[_skb_version[S] == 4 ?
    _number_of_ipv4[*(uint32_t *)_at_address[S, !OUTGOING, 12, 4], *(uint32_t *)_at_address[S, OUTGOING, 12, 4]] :
    _number_of_ipv6[_at_address[S, !OUTGOING, 8, 16], _at_address[S, OUTGOING, 8, 16]],
    _segment_port[S, !OUTGOING], _segment_port[S, OUTGOING],
    (uint64_t)_segment_device[S, OUTGOING]->nd_net.net];

translator csinfo_t < struct _tcp_conn *C > {
	cs_addr = (uintptr_t)_tcp_sock[C];
	cs_cid = _is_segment[C] ? _number_of_segment[_segment[C], _is_outgoing[C]] :
	    _number_of_sock[(struct sock *)_without_tag[(uintptr_t)C]];
	cs_pid = 0;
	cs_zoneid = 0;
};

translator tcpsinfo_t < struct _tcp_conn *C > {
	tcps_addr = xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_addr;
	tcps_local = _is_segment[C] ? _segment_is_local[_segment[C]] : xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_local;
	tcps_active = xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_active;
	tcps_lport = !_is_segment[C] ? _sock_lport[_tcp_sock[C]] :
	    _segment_port[_segment[C], !_is_outgoing[C]];
	tcps_rport = !_is_segment[C] ? _sock_rport[_tcp_sock[C]] :
	    _segment_port[_segment[C], _is_outgoing[C]];
	tcps_laddr = !_is_segment[C] ? _sock_laddr[_tcp_sock[C]] : _is_outgoing[C] ?
	    xlate <ipinfo_t> (_segment[C]).ip_saddr : xlate <ipinfo_t> (_segment[C]).ip_daddr;
	tcps_raddr = !_is_segment[C] ? _sock_raddr[_tcp_sock[C]] : _is_outgoing[C] ?
	    xlate <ipinfo_t> (_segment[C]).ip_daddr : xlate <ipinfo_t> (_segment[C]).ip_saddr;
	tcps_state = _has_state[C] ? _tag[(uintptr_t)C] : xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_state;
	tcps_iss = xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_iss;
	tcps_suna = xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_suna;
	tcps_snxt = xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_snxt;
	tcps_rack = xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_rack;
	tcps_rnxt = xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_rnxt;
	tcps_swnd = xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_swnd;
	tcps_snd_ws = xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_snd_ws;
	tcps_rwnd = xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_rwnd;
	tcps_rcv_ws = xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_rcv_ws;
	tcps_cwnd = xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_cwnd;
	tcps_cwnd_ssthresh = xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_cwnd_ssthresh;
	tcps_sack_fack = xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_sack_fack;
	tcps_sack_snxt = xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_sack_snxt;
	tcps_rto = xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_rto;
	tcps_mss = xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_mss;
	tcps_retransmit = xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_retransmit;
	tcps_rtt = xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_rtt;
	tcps_rtt_sd = xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_rtt_sd;
	tcps_irs = xlate <tcpsinfo_t> (_tcp_sock[C]).tcps_irs;
};

/*
 * A segment is a packet with a header of IP. Where the kernel's functions cannot be traced, some probes have no packet.
 * Then it is the socket that received it.
 */
inline int _has_functions = defined(fbt::tcp_init_transfer:entry);
inline int _is_receiver[uintptr_t A] = _has_functions ? 0 : _tag[A] == _other;
inline struct sock *_receiver[uintptr_t A] = (struct sock *)_without_tag[A];
inline struct sk_buff *_packet[struct _tcp_segment *P] = (struct sk_buff *)P;
inline int _is_ipv6[struct _tcp_segment *P] = _packet[P]->protocol == htons(_ethernet_ipv6);
inline struct iphdr *_ipv4[struct _tcp_segment *P] = (struct iphdr *)_skb_network[_packet[P]];
inline struct ipv6hdr *_ipv6[struct _tcp_segment *P] = (struct ipv6hdr *)_skb_network[_packet[P]];

translator pktinfo_t < struct _tcp_segment *P > {
	pkt_addr = _is_receiver[(uintptr_t)P] ? 0 : (uintptr_t)P;
};

translator ipinfo_t < struct _tcp_segment *P > {
	ip_ver = _is_receiver[(uintptr_t)P] ? _family_version[_sock_family[_receiver[(uintptr_t)P]]] :
	    _is_ipv6[P] ? 6 : 4;
	ip_plength = _is_receiver[(uintptr_t)P] ? 0 : _is_ipv6[P] ? _skb_plength6[_packet[P], _ipv6[P]] :
	    _skb_plength4[_packet[P], _ipv4[P]];
	ip_saddr = _is_receiver[(uintptr_t)P] ? _sock_raddr[_receiver[(uintptr_t)P]] :
	    _is_ipv6[P] ? inet_ntoa6(&_ipv6[P]->saddr) : inet_ntoa(&_ipv4[P]->saddr);
	ip_daddr = _is_receiver[(uintptr_t)P] ? _sock_laddr[_receiver[(uintptr_t)P]] :
	    _is_ipv6[P] ? inet_ntoa6(&_ipv6[P]->daddr) : inet_ntoa(&_ipv4[P]->daddr);
};

/* The header of such a segment likewise. */
inline struct tcphdr *_header[struct _tcp_header *T] =
    _is_receiver[(uintptr_t)T] ? (struct tcphdr *)NULL : (struct tcphdr *)T;
inline struct _tcp_header *_tcp_header[struct sk_buff *P] = (struct _tcp_header *)_skb_transport[P];

translator tcpinfo_t < struct _tcp_header *T > {
	tcp_sport = _is_receiver[(uintptr_t)T] ? _sock_rport[_receiver[(uintptr_t)T]] :
	    xlate <tcpinfo_t> (_header[T]).tcp_sport;
	tcp_dport = _is_receiver[(uintptr_t)T] ? _sock_lport[_receiver[(uintptr_t)T]] :
	    xlate <tcpinfo_t> (_header[T]).tcp_dport;
	tcp_seq = xlate <tcpinfo_t> (_header[T]).tcp_seq;
	tcp_ack = xlate <tcpinfo_t> (_header[T]).tcp_ack;
	tcp_offset = xlate <tcpinfo_t> (_header[T]).tcp_offset;
	tcp_flags = xlate <tcpinfo_t> (_header[T]).tcp_flags;
	tcp_window = xlate <tcpinfo_t> (_header[T]).tcp_window;
	tcp_checksum = xlate <tcpinfo_t> (_header[T]).tcp_checksum;
	tcp_urgent = xlate <tcpinfo_t> (_header[T]).tcp_urgent;
	tcp_hdr = _header[T];
};

provider tcp {
	probe send(struct _tcp_segment *P, struct sock *S, struct _tcp_conn *C, struct _tcp_header *T :
	    pktinfo_t *P, csinfo_t *C, ipinfo_t *P, tcpsinfo_t *C, tcpinfo_t *T);
	probe receive(struct _tcp_segment *P, struct sock *S, struct _tcp_conn *C, struct _tcp_header *T :
	    pktinfo_t *P, csinfo_t *C, ipinfo_t *P, tcpsinfo_t *C, tcpinfo_t *T);
	probe connect__request(struct _tcp_segment *P, struct sock *S, struct _tcp_conn *C, struct _tcp_header *T :
	    pktinfo_t *P, csinfo_t *S, ipinfo_t *P, tcpsinfo_t *C, tcpinfo_t *T);
	probe connect__established(struct _tcp_segment *P, struct sock *S, struct _tcp_conn *C, struct _tcp_header *T :
	    pktinfo_t *P, csinfo_t *S, ipinfo_t *P, tcpsinfo_t *C, tcpinfo_t *T);
	probe connect__refused(struct _tcp_segment *P, struct sock *S, struct _tcp_conn *C, struct _tcp_header *T :
	    pktinfo_t *P, csinfo_t *S, ipinfo_t *P, tcpsinfo_t *C, tcpinfo_t *T);
	probe accept__established(struct _tcp_segment *P, struct sock *S, struct _tcp_conn *C, struct _tcp_header *T :
	    pktinfo_t *P, csinfo_t *S, ipinfo_t *P, tcpsinfo_t *C, tcpinfo_t *T);
	probe accept__refused(struct _tcp_segment *P, struct sock *S, struct _tcp_conn *C, struct _tcp_header *T :
	    pktinfo_t *P, csinfo_t *C, ipinfo_t *P, tcpsinfo_t *C, tcpinfo_t *T);
	probe state__change(void *N, struct sock *S, struct _tcp_conn *C, int LAST :
	    void *N, csinfo_t *S, void *N, tcpsinfo_t *C, void *N, tcplsinfo_t *LAST);
};

#pragma D attributes Evolving/Evolving/ISA provider tcp provider
#pragma D attributes Private/Private/Unknown provider tcp module
#pragma D attributes Private/Private/Unknown provider tcp function
#pragma D attributes Evolving/Evolving/ISA provider tcp name
#pragma D attributes Evolving/Evolving/ISA provider tcp args

/* What TCP sends for no connection comes from a raw socket of the kernel, and on newer kernels from any. */
inline struct sock *_sender[struct sock *S] =
    _sock_is_full[S] && S->sk_type != SOCK_STREAM ? (struct sock *)NULL : S;
inline struct _tcp_conn *_conn_or_sent[struct sock *S, struct sk_buff *P] = _sender[S] != NULL ?
    (struct _tcp_conn *)S : (struct _tcp_conn *)_with_tag[(uintptr_t)P, _outgoing];
inline int _tcp_sends[struct sock *S] = S != NULL && (!_sock_is_full[S] || S->sk_protocol == IPPROTO_TCP);

inline int _flags[struct _tcp_header *T] = xlate <tcpinfo_t> (T).tcp_flags;

/* The first SYN of a connection. */
inline int _requests[struct sock *S, struct _tcp_header *T] = _is_tcp[S] && S->sk_type == SOCK_STREAM &&
    (_flags[T] & (TH_SYN | TH_ACK)) == TH_SYN && ((struct tcp_sock *)S)->total_retrans == 0;

/* Only the reset that answers a SYN has the sequence number 0 and acknowledges something. */
inline int _refuses[struct _tcp_header *T] = (_flags[T] & (TH_RST | TH_ACK)) == (TH_RST | TH_ACK) &&
    xlate <tcpinfo_t> (T).tcp_seq == 0;

/*
 * The kernel changes two states before the socket has both ends: SYN_SENT before it has chosen a port, and, on older
 * kernels, SYN_RECEIVED of what a listener copies for a new connection. They are told when the function returns that gives
 * the socket the rest. Where functions cannot be traced, that is with the first segment, or before the next state.
 */
int changes[struct sock *];
self struct sock *binds;

inline int _lacks_an_end[struct sock *S, int FROM, int TO] = TO == TCP_STATE_SYN_SENT ? S->__sk_common.skc_num == 0 :
    TO == TCP_STATE_SYN_RECEIVED && FROM == TCP_STATE_LISTEN && S->__sk_common.skc_dport == 0;
inline int _state_before[int TO] = TO == TCP_STATE_SYN_SENT ? TCP_STATE_CLOSED : TCP_STATE_LISTEN;

rawtp:sock::inet_sock_set_state /args[0]->sk_protocol == IPPROTO_TCP && changes[args[0]]/
{
	state__change(NULL, args[0], _conn_to[args[0], changes[args[0]]], _state_before[changes[args[0]]]);
	changes[args[0]] = 0;
}
rawtp:sock::inet_sock_set_state
/args[0]->sk_protocol == IPPROTO_TCP && _lacks_an_end[args[0], args[1], args[2]]/
{
	changes[args[0]] = args[2];
	self->binds = args[0];
}
fbt::inet_hash_connect:return, fbt::inet6_hash_connect:return /self->binds != NULL && changes[self->binds]/
{
	state__change(NULL, self->binds, _conn_to[self->binds, TCP_STATE_SYN_SENT], TCP_STATE_CLOSED);
	changes[self->binds] = 0;
}
fbt::inet_hash_connect:return, fbt::inet6_hash_connect:return { self->binds = NULL; }
fbt::tcp_v4_syn_recv_sock:return, fbt::tcp_v6_syn_recv_sock:return /args[1] != NULL && changes[args[1]]/
{
	state__change(NULL, args[1], _conn_to[args[1], TCP_STATE_SYN_RECEIVED], TCP_STATE_LISTEN);
	changes[args[1]] = 0;
}
rawtp:net::net_dev_queue
/!defined(fbt::inet_hash_connect:return) && args[0]->sk != NULL && changes[args[0]->sk]/
{
	state__change(NULL, args[0]->sk, _conn_to[args[0]->sk, TCP_STATE_SYN_SENT], TCP_STATE_CLOSED);
	changes[args[0]->sk] = 0;
}

/* IP has the whole of a segment here. What is forwarded has no socket, and what a tunnel sends has that of the tunnel. */
fbt::ip_output:entry, fbt::ip6_output:entry /_tcp_sends[args[1]]/
{
	send((struct _tcp_segment *)args[2], _sender[args[2]->sk], _conn_or_sent[args[2]->sk, args[2]],
	    _tcp_header[args[2]]);
}
fbt::ip_output:entry, fbt::ip6_output:entry
/_tcp_sends[args[1]] && _requests[args[2]->sk, _tcp_header[args[2]]]/
{
	connect__request((struct _tcp_segment *)args[2], args[2]->sk, _conn[args[2]->sk], _tcp_header[args[2]]);
}
fbt::ip_output:entry, fbt::ip6_output:entry /_tcp_sends[args[1]] && _refuses[_tcp_header[args[2]]]/
{
	accept__refused((struct _tcp_segment *)args[2], _sender[args[2]->sk], _conn_or_sent[args[2]->sk, args[2]],
	    _tcp_header[args[2]]);
}

/*
 * A port of a bridge and a part of a bond only pass packets on. What TCP sends for no connection by IPv6 has no socket, and
 * it did not come in by an interface.
 */
inline struct _tcp_header *_header_of[struct sk_buff *P] = (struct _tcp_header *)_skb_tcp[P];
inline int _is_sent[struct sk_buff *P] =
    (P->sk == NULL ? P->skb_iif == 0 : _tcp_sends[P->sk]) && _skb_tcp[P] != NULL &&
    (P->dev->flags & IFF_SLAVE) == 0 && (P->dev->priv_flags & IFF_BRIDGE_PORT) == 0;

rawtp:net::net_dev_queue /!defined(fbt::ip_output:entry) && _is_sent[args[0]]/
{
	send((struct _tcp_segment *)args[0], _sender[args[0]->sk], _conn_or_sent[args[0]->sk, args[0]],
	    _header_of[args[0]]);
}
rawtp:net::net_dev_queue
/!defined(fbt::ip_output:entry) && _is_sent[args[0]] && _requests[args[0]->sk, _header_of[args[0]]]/
{
	connect__request((struct _tcp_segment *)args[0], args[0]->sk, _conn[args[0]->sk], _header_of[args[0]]);
}
rawtp:net::net_dev_queue /!defined(fbt::ip_output:entry) && _is_sent[args[0]] && _refuses[_header_of[args[0]]]/
{
	accept__refused((struct _tcp_segment *)args[0], _sender[args[0]->sk], _conn_or_sent[args[0]->sk, args[0]],
	    _header_of[args[0]]);
}

/*
 * A segment comes to its socket, or waits for it while a thread has the socket. (It has it too when it takes what has
 * waited; but a listener never waits.) A socket that is half open or in TIME_WAIT is no full one.
 */
fbt::tcp_v?_do_rcv:entry /!args[0]->sk_lock.owned || _sock_state[args[0]] == TCP_STATE_LISTEN/
{
	receive((struct _tcp_segment *)args[1], args[0], _conn[args[0]], _tcp_header[args[1]]);
}
fbt::tcp_add_backlog:entry
{
	receive((struct _tcp_segment *)args[1], args[0], _conn[args[0]], _tcp_header[args[1]]);
}
/*
 * What comes to a half-open connection makes it a socket. Not handled there is a segment that acknowledges something else
 * (it comes to the listener then) and one that another CPU was faster than (it comes to that CPU's new socket then).
 */
fbt::tcp_check_req:entry /!args[3]/
{
	self->listener = args[0];
	self->arrived = args[1];
	self->half_open = (struct sock *)args[2];
	self->was_late = args[4];
}
fbt::tcp_check_req:return /self->arrived != NULL && args[1] == NULL && !*self->was_late/
{
	receive((struct _tcp_segment *)self->arrived, self->half_open, _conn[self->half_open], _tcp_header[self->arrived]);
}
fbt::tcp_check_req:return /self->arrived != NULL && args[1] != NULL && args[1] != self->listener/
{
	receive((struct _tcp_segment *)self->arrived, args[1], _conn[args[1]], _tcp_header[self->arrived]);
}
fbt::tcp_check_req:return
{
	self->listener = NULL;
	self->arrived = NULL;
	self->half_open = NULL;
	self->was_late = NULL;
}
fbt::tcp_v?_send_reset:entry /args[0] == NULL/
{
	receive((struct _tcp_segment *)args[1], (struct sock *)NULL, _no_conn[args[1]], _tcp_header[args[1]]);
}

/* What is a new connection's SYN comes to the listener then. */
fbt::tcp_timewait_state_process:entry { self->late = args[1]; self->waits = (struct sock *)args[0]; }
fbt::tcp_timewait_state_process:return /self->late != NULL && args[1] != TCP_TW_SYN/
{
	receive((struct _tcp_segment *)self->late, self->waits, _conn[self->waits], _tcp_header[self->late]);
}
fbt::tcp_timewait_state_process:return { self->late = NULL; self->waits = NULL; }

/* PACKET_OTHERHOST is 3. */
rawtp:net::netif_receive_skb
/!defined(fbt::tcp_v4_do_rcv:entry) && _skb_tcp[args[0]] != NULL && args[0]->pkt_type != 3 &&
    (args[0]->dev->priv_flags & IFF_BRIDGE_PORT) == 0/
{
	receive((struct _tcp_segment *)args[0], (struct sock *)NULL, _no_conn[args[0]], _header_of[args[0]]);
}

/* Its operations 4 and 5: a connection that this end opened, and one that it accepts. */
fbt::tcp_init_transfer:entry /args[1] == 4 && args[2] != NULL/
{
	connect__established((struct _tcp_segment *)args[2], args[0], _conn[args[0]], _tcp_header[args[2]]);
}
fbt::tcp_init_transfer:entry /args[1] == 5 && args[2] != NULL/
{
	accept__established((struct _tcp_segment *)args[2], args[0], _conn_to[args[0], TCP_STATE_ESTABLISHED],
	    _tcp_header[args[2]]);
}
fbt::tcp_reset:entry /_sock_state[args[0]] == TCP_STATE_SYN_SENT && args[1] != NULL/
{
	connect__refused((struct _tcp_segment *)args[1], args[0], _conn[args[0]], _tcp_header[args[1]]);
}

inline struct _tcp_segment *_segment_for[struct sock *S] = (struct _tcp_segment *)_with_tag[(uintptr_t)S, _other];
inline struct _tcp_header *_header_for[struct sock *S] = (struct _tcp_header *)_with_tag[(uintptr_t)S, _other];

rawtp:sock::inet_sock_set_state
/!defined(fbt::tcp_init_transfer:entry) && args[0]->sk_protocol == IPPROTO_TCP &&
    args[1] == TCP_STATE_SYN_SENT && args[2] == TCP_STATE_ESTABLISHED/
{
	connect__established(_segment_for[args[0]], args[0], _conn_to[args[0], args[2]], _header_for[args[0]]);
}
rawtp:sock::inet_sock_set_state
/!defined(fbt::tcp_init_transfer:entry) && args[0]->sk_protocol == IPPROTO_TCP &&
    args[1] == TCP_STATE_SYN_RECEIVED && args[2] == TCP_STATE_ESTABLISHED/
{
	accept__established(_segment_for[args[0]], args[0], _conn_to[args[0], args[2]], _header_for[args[0]]);
}
rawtp:tcp::tcp_receive_reset
/!defined(fbt::tcp_init_transfer:entry) && _sock_state[args[0]] == TCP_STATE_SYN_SENT/
{
	connect__refused(_segment_for[args[0]], args[0], _conn[args[0]], _header_for[args[0]]);
}

/*
 * A struct of its own takes the place of a socket that only waits, for its peer's FIN or in TIME_WAIT. The socket is
 * closed with it, the connection later. The socket still has its last state here.
 */
self struct sock *ends;

fbt::tcp_time_wait:entry { self->ends = args[0]; self->to = args[1]; }
fbt::inet_twsk_alloc:return /self->ends != NULL && args[1] == NULL/ { self->ends = NULL; }
fbt::inet_twsk_alloc:return /self->ends != NULL && self->to == TCP_STATE_TIME_WAIT/
{
	state__change(NULL, self->ends, _conn_to[self->ends, TCP_STATE_TIME_WAIT], _sock_state[self->ends]);
}
fbt::tcp_time_wait:return { self->ends = NULL; self->to = 0; }

rawtp:sock::inet_sock_set_state
/args[0]->sk_protocol == IPPROTO_TCP && !_lacks_an_end[args[0], args[1], args[2]] &&
    (args[2] != TCP_STATE_CLOSED || (defined(fbt::tcp_time_wait:entry) ? self->ends != args[0] : 1))/
{
	state__change(NULL, args[0], _conn_to[args[0], args[2]], args[1]);
}

fbt::tcp_timewait_state_process:entry /args[0]->tw_substate == TCP_STATE_FIN_WAIT_2/ { self->half = args[0]; }
fbt::tcp_timewait_state_process:return /self->half != NULL && self->half->tw_substate == TCP_STATE_TIME_WAIT/
{
	state__change(NULL, (struct sock *)self->half, _conn_to[(struct sock *)self->half, TCP_STATE_TIME_WAIT],
	    TCP_STATE_FIN_WAIT_2);
}
fbt::tcp_timewait_state_process:return { self->half = NULL; }

fbt::inet_twsk_kill:entry
{
	state__change(NULL, (struct sock *)args[0], _conn_to[(struct sock *)args[0], TCP_STATE_CLOSED],
	    args[0]->tw_substate);
}
