/*
 * UDP: datagrams and sockets.
 */

typedef struct udpinfo {
	uint16_t udp_sport;		/* source port */
	uint16_t udp_dport;		/* destination port */
	uint16_t udp_length;		/* bytes of header and payload */
	uint16_t udp_checksum;		/* checksum */
	struct udphdr *udp_hdr;		/* the header */
} udpinfo_t;

typedef struct udpsinfo {
	uintptr_t udps_addr;		/* address of the socket */
	uint16_t udps_lport;		/* local port */
	uint16_t udps_rport;		/* remote port; 0 if it is not connected */
	string udps_laddr;		/* local address */
	string udps_raddr;		/* remote address */
} udpsinfo_t;

translator udpinfo_t < struct udphdr *U > {
	udp_sport = U == NULL ? 0 : ntohs(U->source);
	udp_dport = U == NULL ? 0 : ntohs(U->dest);
	udp_length = U == NULL ? 0 : ntohs(U->len);
	udp_checksum = U == NULL ? 0 : ntohs(U->check);
	udp_hdr = U;
};

inline struct udphdr *_skb_udp[struct sk_buff *S] = (struct udphdr *)_skb_header[S, IPPROTO_UDP];

translator udpinfo_t < struct sk_buff *S > {
	udp_sport = xlate <udpinfo_t> (_skb_udp[S]).udp_sport;
	udp_dport = xlate <udpinfo_t> (_skb_udp[S]).udp_dport;
	udp_length = xlate <udpinfo_t> (_skb_udp[S]).udp_length;
	udp_checksum = xlate <udpinfo_t> (_skb_udp[S]).udp_checksum;
	udp_hdr = _skb_udp[S];
};

translator udpsinfo_t < struct sock *S > {
	udps_addr = (uintptr_t)S;
	udps_lport = _sock_lport[S];
	udps_rport = _sock_rport[S];
	udps_laddr = _sock_laddr[S];
	udps_raddr = _sock_raddr[S];
};

translator udpsinfo_t < struct udp_sock *S > {
	udps_addr = (uintptr_t)S;
	udps_lport = _sock_lport[(struct sock *)S];
	udps_rport = _sock_rport[(struct sock *)S];
	udps_laddr = _sock_laddr[(struct sock *)S];
	udps_raddr = _sock_raddr[(struct sock *)S];
};

/*
 * The provider. A datagram is sent when UDP gives it to IP, and received when UDP gives it to a socket, or the kernel's
 * own receiver.
 */
provider udp {
	probe send(struct sk_buff *S, struct sock *K :
	    pktinfo_t *S, csinfo_t *K, ipinfo_t *S, udpsinfo_t *K, udpinfo_t *S);
	probe receive(struct sk_buff *S, struct sock *K :
	    pktinfo_t *S, csinfo_t *K, ipinfo_t *S, udpsinfo_t *K, udpinfo_t *S);
};

inline int _is_udp[struct sock *K] = _sock_is_full[K] && K->sk_protocol == IPPROTO_UDP && K->sk_type == SOCK_DGRAM &&
    (_sock_family[K] == AF_INET || _sock_family[K] == AF_INET6);

fbt::ip_send_skb:entry /_is_udp[args[1]->sk]/ { send(args[1], args[1]->sk); }
fbt::ip6_send_skb:entry /_is_udp[args[0]->sk]/ { send(args[0], args[0]->sk); }
fbt::udp_queue_rcv_one_skb:entry { receive(args[1], args[0]); }
fbt::udpv6_queue_rcv_one_skb:entry { receive(args[1], args[0]); }

/*
 * Where functions cannot be traced, a datagram is sent when it is queued at the first device. (A device that is made of
 * others passes it on. A tunnel puts it into another datagram.)
 */

rawtp:net::net_dev_queue
/!defined(fbt::ip_send_skb:entry) && _is_udp[args[0]->sk] && _is_first_device[args[0]] && _skb_udp[args[0]] != NULL &&
    ntohs(_skb_udp[args[0]]->source) == _sock_lport[args[0]->sk]/
{
	send(args[0], args[0]->sk);
}

/*
 * And it is received when it is in the queue of its socket: it is the last one there. A receiver takes all at once into
 * a queue of its own.
 */
inline struct sk_buff *_last_of[struct sk_buff_head *Q] =
    (uintptr_t)Q->prev == (uintptr_t)Q ? (struct sk_buff *)NULL : Q->prev;
inline struct sk_buff *_last_received[struct sock *K] = _last_of[&K->sk_receive_queue] != NULL ?
    _last_of[&K->sk_receive_queue] : _last_of[&((struct udp_sock *)K)->reader_queue];

rawtp:sock::sk_data_ready /!defined(fbt::udp_queue_rcv_one_skb:entry) && _is_udp[args[0]]/
{
	receive(_last_received[args[0]], args[0]);
}
