/*
 * The counters of the network that RFC 1213 defines, and those of TCP. A probe fires when the kernel adds to a counter:
 * argument 0 is how much, argument 1 the network namespace whose counter it is, NULL where the kernel does not say that.
 *
 * The kernel's own functions for that are inlined, so only counters are here that follow from what can be seen, exactly.
 * The others have no clause, and their reason is in crates/dtrace/src/absent.txt.
 */
provider mib {
	probe tcpActiveOpens(uint64_t N, struct net *NET);
	probe tcpPassiveOpens(uint64_t N, struct net *NET);
	probe tcpEstabResets(uint64_t N, struct net *NET);
	probe tcpInSegs(uint64_t N, struct net *NET);
	probe tcpOutSegs(uint64_t N, struct net *NET);
	probe tcpRetransSegs(uint64_t N, struct net *NET);
	probe tcpOutRsts(uint64_t N, struct net *NET);
	probe udpInDatagrams(uint64_t N, struct net *NET);
	probe udpOutDatagrams(uint64_t N, struct net *NET);
	probe udpNoPorts(uint64_t N, struct net *NET);
	probe udpInOverflows(uint64_t N, struct net *NET);
	probe ipInReceives(uint64_t N, struct net *NET);
	probe ipOutRequests(uint64_t N, struct net *NET);
	probe ipReasmReqds(uint64_t N, struct net *NET);
	probe ipFragOKs(uint64_t N, struct net *NET);
	probe ipv6InReceives(uint64_t N, struct net *NET);
	probe icmpInMsgs(uint64_t N, struct net *NET);
	probe icmpOutMsgs(uint64_t N, struct net *NET);
	probe icmpInDestUnreachs(uint64_t N, struct net *NET);
	probe icmpInTimeExcds(uint64_t N, struct net *NET);
	probe icmpInParmProbs(uint64_t N, struct net *NET);
	probe icmpInSrcQuenchs(uint64_t N, struct net *NET);
	probe icmpInRedirects(uint64_t N, struct net *NET);
	probe icmpInEchos(uint64_t N, struct net *NET);
	probe icmpInEchoReps(uint64_t N, struct net *NET);
	probe icmpInTimestamps(uint64_t N, struct net *NET);
	probe icmpInTimestampReps(uint64_t N, struct net *NET);
	probe icmpInAddrMasks(uint64_t N, struct net *NET);
	probe icmpInAddrMaskReps(uint64_t N, struct net *NET);
	probe icmpOutDestUnreachs(uint64_t N, struct net *NET);
	probe icmpOutTimeExcds(uint64_t N, struct net *NET);
	probe icmpOutParmProbs(uint64_t N, struct net *NET);
	probe icmpOutSrcQuenchs(uint64_t N, struct net *NET);
	probe icmpOutRedirects(uint64_t N, struct net *NET);
	probe icmpOutEchos(uint64_t N, struct net *NET);
	probe icmpOutEchoReps(uint64_t N, struct net *NET);
	probe icmpOutTimestamps(uint64_t N, struct net *NET);
	probe icmpOutTimestampReps(uint64_t N, struct net *NET);
	probe icmpOutAddrMasks(uint64_t N, struct net *NET);
	probe icmpOutAddrMaskReps(uint64_t N, struct net *NET);

	probe tcpAttemptFails(uint64_t N, struct net *NET);
	probe tcpOutDataSegs(uint64_t N, struct net *NET);
	probe tcpOutDataBytes(uint64_t N, struct net *NET);
	probe tcpRetransBytes(uint64_t N, struct net *NET);
	probe tcpOutAck(uint64_t N, struct net *NET);
	probe tcpOutAckDelayed(uint64_t N, struct net *NET);
	probe tcpOutUrg(uint64_t N, struct net *NET);
	probe tcpOutWinUpdate(uint64_t N, struct net *NET);
	probe tcpOutWinProbe(uint64_t N, struct net *NET);
	probe tcpOutControl(uint64_t N, struct net *NET);
	probe tcpOutFastRetrans(uint64_t N, struct net *NET);
	probe tcpInAckSegs(uint64_t N, struct net *NET);
	probe tcpInAckBytes(uint64_t N, struct net *NET);
	probe tcpInDupAck(uint64_t N, struct net *NET);
	probe tcpInAckUnsent(uint64_t N, struct net *NET);
	probe tcpInDataInorderSegs(uint64_t N, struct net *NET);
	probe tcpInDataInorderBytes(uint64_t N, struct net *NET);
	probe tcpInDataUnorderSegs(uint64_t N, struct net *NET);
	probe tcpInDataUnorderBytes(uint64_t N, struct net *NET);
	probe tcpInDataDupSegs(uint64_t N, struct net *NET);
	probe tcpInDataDupBytes(uint64_t N, struct net *NET);
	probe tcpInDataPartDupSegs(uint64_t N, struct net *NET);
	probe tcpInDataPartDupBytes(uint64_t N, struct net *NET);
	probe tcpInDataPastWinSegs(uint64_t N, struct net *NET);
	probe tcpInDataPastWinBytes(uint64_t N, struct net *NET);
	probe tcpInWinProbe(uint64_t N, struct net *NET);
	probe tcpInWinUpdate(uint64_t N, struct net *NET);
	probe tcpInClosed(uint64_t N, struct net *NET);
	probe tcpRttNoUpdate(uint64_t N, struct net *NET);
	probe tcpRttUpdate(uint64_t N, struct net *NET);
	probe tcpTimRetrans(uint64_t N, struct net *NET);
	probe tcpTimRetransDrop(uint64_t N, struct net *NET);
	probe tcpTimKeepalive(uint64_t N, struct net *NET);
	probe tcpTimKeepaliveProbe(uint64_t N, struct net *NET);
	probe tcpTimKeepaliveDrop(uint64_t N, struct net *NET);
	probe tcpListenDrop(uint64_t N, struct net *NET);
	probe tcpListenDropQ0(uint64_t N, struct net *NET);
	probe tcpHalfOpenDrop(uint64_t N, struct net *NET);
	probe tcpOutSackRetransSegs(uint64_t N, struct net *NET);
	probe tcpInErrs(uint64_t N, struct net *NET);
	probe udpInErrors(uint64_t N, struct net *NET);
	probe udpInCksumErrs(uint64_t N, struct net *NET);
	probe udpOutErrors(uint64_t N, struct net *NET);
	probe ipInHdrErrors(uint64_t N, struct net *NET);
	probe ipInAddrErrors(uint64_t N, struct net *NET);
	probe ipInCksumErrs(uint64_t N, struct net *NET);
	probe ipInUnknownProtos(uint64_t N, struct net *NET);
	probe ipInDiscards(uint64_t N, struct net *NET);
	probe ipInDelivers(uint64_t N, struct net *NET);
	probe ipForwDatagrams(uint64_t N, struct net *NET);
	probe ipForwProhibits(uint64_t N, struct net *NET);
	probe ipOutDiscards(uint64_t N, struct net *NET);
	probe ipOutNoRoutes(uint64_t N, struct net *NET);
	probe ipReasmOKs(uint64_t N, struct net *NET);
	probe ipReasmFails(uint64_t N, struct net *NET);
	probe ipFragFails(uint64_t N, struct net *NET);
	probe ipFragCreates(uint64_t N, struct net *NET);
	probe ipRoutingDiscards(uint64_t N, struct net *NET);
	probe icmpInErrors(uint64_t N, struct net *NET);
	probe icmpInCksumErrs(uint64_t N, struct net *NET);
	probe icmpOutErrors(uint64_t N, struct net *NET);
	probe icmpOutDrops(uint64_t N, struct net *NET);
};

inline struct net *_sock_net[struct sock *K] = K->__sk_common.skc_net.net;
inline struct net *_device_net[struct net_device *D] = D == NULL ? (struct net *)NULL : D->nd_net.net;

/*
 * TCP. Segments with an error count too, those for others do not.
 */
fbt::tcp_v4_rcv:entry, fbt::tcp_v6_rcv:entry /args[0]->pkt_type == 0/ { tcpInSegs(1, _device_net[args[0]->dev]); }

/*
 * What is sent again counts there alone. Answers to a handshake, and of no full socket, are sent by other functions.
 * The latter belong to a raw socket of the kernel.
 */
inline struct tcp_skb_cb *_tcp_cb[struct sk_buff *S] = (struct tcp_skb_cb *)&S->cb;

fbt::__tcp_transmit_skb:entry
/_tcp_cb[args[1]]->seq == _tcp_cb[args[1]]->end_seq ||
    (int32_t)(((struct tcp_sock *)args[0])->snd_nxt - _tcp_cb[args[1]]->end_seq) < 0/
{
	tcpOutSegs(_tcp_cb[args[1]]->tcp_gso_segs, _sock_net[args[0]]);
}
fbt::tcp_make_synack:entry { tcpOutSegs(1, _sock_net[(struct sock *)args[0]]); }
fbt::ip_send_unicast_reply:entry { tcpOutSegs(1, _sock_net[args[0]]); }
fbt::ip6_xmit:entry /args[0]->sk_type == SOCK_RAW && args[0]->sk_protocol == IPPROTO_TCP/
{
	tcpOutSegs(1, _sock_net[(struct sock *)args[0]]);
}

rawtp:tcp::tcp_retransmit_skb
{
	tcpRetransSegs(_tcp_cb[(struct sk_buff *)args[1]]->tcp_gso_segs, _sock_net[(struct sock *)args[0]]);
}
rawtp:tcp::tcp_retransmit_synack { tcpRetransSegs(1, _sock_net[(struct sock *)args[0]]); }

/* A kernel that tells no reason for a reset does not tell those without a socket. */
rawtp:tcp::tcp_send_reset /defined(rawtp:tcp::tcp_send_reset, args[2])/
{
	tcpOutRsts(1, args[0] != NULL ? _sock_net[(struct sock *)args[0]] : _device_net[args[1]->dev]);
}
inline int _is_reset[struct sk_buff *S] = ((struct tcphdr *)(S->head + S->transport_header))->rst;

fbt::ip_send_unicast_reply:entry
/!defined(rawtp:tcp::tcp_send_reset, args[2]) && ((struct tcphdr *)args[5]->iov[0].iov_base)->rst/
{
	tcpOutRsts(1, _sock_net[args[0]]);
}
fbt::__ip_queue_xmit:entry
/!defined(rawtp:tcp::tcp_send_reset, args[2]) && args[0]->sk_protocol == IPPROTO_TCP && _is_reset[args[1]]/
{
	tcpOutRsts(1, _sock_net[args[0]]);
}
fbt::ip6_xmit:entry
/!defined(rawtp:tcp::tcp_send_reset, args[2]) && args[0]->sk_protocol == IPPROTO_TCP && _is_reset[args[1]]/
{
	tcpOutRsts(1, _sock_net[(struct sock *)args[0]]);
}

/* A socket gets into the state SYN_SENT also for a connection that is then refused for its address. */
tcp:::connect-request { tcpActiveOpens(1, _sock_net[(struct sock *)args[1]->cs_addr]); }
rawtp:sock::inet_sock_set_state
/args[0]->sk_protocol == IPPROTO_TCP && args[1] == TCP_STATE_LISTEN && args[2] == TCP_STATE_SYN_RECEIVED/
{
	tcpPassiveOpens(1, _sock_net[(struct sock *)args[0]]);
}
rawtp:sock::inet_sock_set_state
/args[0]->sk_protocol == IPPROTO_TCP && args[2] == TCP_STATE_CLOSED &&
    (args[1] == TCP_STATE_ESTABLISHED || args[1] == TCP_STATE_CLOSE_WAIT)/
{
	tcpEstabResets(1, _sock_net[(struct sock *)args[0]]);
}

/*
 * UDP, over IPv4 and IPv6. A datagram is in when a program has it. (2 is MSG_PEEK, 0x2000 MSG_ERRQUEUE.)
 * A socket that is shut down (1 is RCV_SHUTDOWN) gives no bytes, and no datagram.
 */
rawtp:sock::sock_recv_length
/_is_udp[args[0]] && args[1] >= 0 && !(args[2] & 0x2002) && !(args[1] == 0 && (args[0]->sk_shutdown & 1))/
{
	udpInDatagrams(1, _sock_net[args[0]]);
}
fbt::udp_recvmsg:entry, fbt::udpv6_recvmsg:entry /!defined(rawtp:sock::sock_recv_length)/
{
	self->reads = args[3] & 0x2002 ? (struct sock *)NULL : args[0];
}
fbt::udp_recvmsg:return, fbt::udpv6_recvmsg:return
/!defined(rawtp:sock::sock_recv_length) && self->reads != NULL && args[1] >= 0/
{
	udpInDatagrams(1, _sock_net[self->reads]);
}
fbt::udp_recvmsg:return, fbt::udpv6_recvmsg:return /!defined(rawtp:sock::sock_recv_length)/ { self->reads = NULL; }

fbt::udp_send_skb:entry, fbt::udp_v6_send_skb:entry { self->sends = args[0]->sk; }
fbt::udp_send_skb:return, fbt::udp_v6_send_skb:return /self->sends != NULL && args[1] == 0/
{
	udpOutDatagrams(1, _sock_net[self->sends]);
}
fbt::udp_send_skb:return, fbt::udp_v6_send_skb:return { self->sends = NULL; }

rawtp:skb::kfree_skb /args[2] == SKB_DROP_REASON_NO_SOCKET && _skb_version[args[0]] != 0 && _skb_udp[args[0]] != NULL/
{
	udpNoPorts(1, _device_net[_drop_device[args[0]]]);
}
rawtp:skb::kfree_skb
/args[2] == SKB_DROP_REASON_SOCKET_RCVBUFF && _skb_version[args[0]] != 0 && _skb_udp[args[0]] != NULL/
{
	udpInOverflows(1, _device_net[_drop_device[args[0]]]);
}

/*
 * IP. (3 means a packet for another.)
 */
fbt::ip_rcv_core:entry /args[0]->pkt_type != 3/ { ipInReceives(1, args[1]); }
fbt::ip6_rcv_core:entry /args[0]->pkt_type != 3/ { ipv6InReceives(1, args[2]); }
fbt::__ip_local_out:entry { ipOutRequests(1, args[0]); }
fbt::ip_defrag:entry { ipReasmReqds(1, args[0]); }
fbt::ip_do_fragment:entry { self->fragments = args[0]; }
fbt::ip_do_fragment:return /self->fragments != NULL && args[1] == 0/ { ipFragOKs(1, self->fragments); }
fbt::ip_do_fragment:return { self->fragments = NULL; }

/*
 * ICMP. What comes in counts with a wrong checksum too.
 */
fbt::icmp_rcv:entry { icmpInMsgs(1, _device_net[args[0]->dev]); }
fbt::icmp_out_count:entry { icmpOutMsgs(1, args[0]); }
fbt::icmp_rcv:entry /args[0]->data[0] == 3/ { icmpInDestUnreachs(1, _device_net[args[0]->dev]); }
fbt::icmp_rcv:entry /args[0]->data[0] == 11/ { icmpInTimeExcds(1, _device_net[args[0]->dev]); }
fbt::icmp_rcv:entry /args[0]->data[0] == 12/ { icmpInParmProbs(1, _device_net[args[0]->dev]); }
fbt::icmp_rcv:entry /args[0]->data[0] == 4/ { icmpInSrcQuenchs(1, _device_net[args[0]->dev]); }
fbt::icmp_rcv:entry /args[0]->data[0] == 5/ { icmpInRedirects(1, _device_net[args[0]->dev]); }
fbt::icmp_rcv:entry /args[0]->data[0] == 8/ { icmpInEchos(1, _device_net[args[0]->dev]); }
fbt::icmp_rcv:entry /args[0]->data[0] == 0/ { icmpInEchoReps(1, _device_net[args[0]->dev]); }
fbt::icmp_rcv:entry /args[0]->data[0] == 13/ { icmpInTimestamps(1, _device_net[args[0]->dev]); }
fbt::icmp_rcv:entry /args[0]->data[0] == 14/ { icmpInTimestampReps(1, _device_net[args[0]->dev]); }
fbt::icmp_rcv:entry /args[0]->data[0] == 17/ { icmpInAddrMasks(1, _device_net[args[0]->dev]); }
fbt::icmp_rcv:entry /args[0]->data[0] == 18/ { icmpInAddrMaskReps(1, _device_net[args[0]->dev]); }
fbt::icmp_out_count:entry /args[1] == 3/ { icmpOutDestUnreachs(1, args[0]); }
fbt::icmp_out_count:entry /args[1] == 11/ { icmpOutTimeExcds(1, args[0]); }
fbt::icmp_out_count:entry /args[1] == 12/ { icmpOutParmProbs(1, args[0]); }
fbt::icmp_out_count:entry /args[1] == 4/ { icmpOutSrcQuenchs(1, args[0]); }
fbt::icmp_out_count:entry /args[1] == 5/ { icmpOutRedirects(1, args[0]); }
fbt::icmp_out_count:entry /args[1] == 8/ { icmpOutEchos(1, args[0]); }
fbt::icmp_out_count:entry /args[1] == 0/ { icmpOutEchoReps(1, args[0]); }
fbt::icmp_out_count:entry /args[1] == 13/ { icmpOutTimestamps(1, args[0]); }
fbt::icmp_out_count:entry /args[1] == 14/ { icmpOutTimestampReps(1, args[0]); }
fbt::icmp_out_count:entry /args[1] == 17/ { icmpOutAddrMasks(1, args[0]); }
fbt::icmp_out_count:entry /args[1] == 18/ { icmpOutAddrMaskReps(1, args[0]); }

/*
 * What TCP sends. Bytes and segments of data count when they are sent for the first time. An acknowledgment counts
 * where a segment has nothing else; a segment of control has SYN, FIN or RST.
 */
inline int _is_first[struct sock *K, struct sk_buff *S] =
    (int32_t)(((struct tcp_sock *)K)->snd_nxt - _tcp_cb[S]->end_seq) < 0;
inline int _is_urgent[struct tcp_sock *T, struct tcp_skb_cb *C] = T->snd_una != T->snd_up &&
    (int32_t)(C->seq - T->snd_up) < 0 && ((int32_t)(T->snd_up - (C->seq + 0x10000)) < 0 ||
    (int32_t)(T->snd_nxt - (C->seq + 0xffff)) < 0);

fbt::__tcp_transmit_skb:entry /args[1]->len != 0 && _is_first[args[0], args[1]]/
{
	tcpOutDataSegs(_tcp_cb[args[1]]->tcp_gso_segs, _sock_net[args[0]]);
	tcpOutDataBytes(args[1]->len, _sock_net[args[0]]);
}
fbt::__tcp_transmit_skb:entry
/args[1]->len == 0 && (_tcp_cb[args[1]]->tcp_flags & (TH_ACK | TH_SYN | TH_FIN | TH_RST)) == TH_ACK/
{
	tcpOutAck(1, _sock_net[args[0]]);
}
fbt::__tcp_transmit_skb:entry /_tcp_cb[args[1]]->tcp_flags & (TH_SYN | TH_FIN | TH_RST)/
{
	tcpOutControl(1, _sock_net[args[0]]);
}
fbt::tcp_make_synack:entry { tcpOutControl(1, _sock_net[(struct sock *)args[0]]); }
fbt::tcp_v4_send_reset:entry, fbt::tcp_v6_send_reset:entry { self->resets = 1; }
fbt::ip_send_unicast_reply:entry /self->resets/ { tcpOutControl(1, _sock_net[args[0]]); }
fbt::ip6_xmit:entry /self->resets/ { tcpOutControl(1, _sock_net[(struct sock *)args[0]]); }
fbt::tcp_v4_send_reset:return, fbt::tcp_v6_send_reset:return { self->resets = 0; }
fbt::__tcp_transmit_skb:entry /_is_urgent[(struct tcp_sock *)args[0], _tcp_cb[args[1]]]/
{
	tcpOutUrg(1, _sock_net[args[0]]);
}
rawtp:tcp::tcp_retransmit_skb { tcpRetransBytes(((struct sk_buff *)args[1])->len, _sock_net[(struct sock *)args[0]]); }

/* A timer sends an acknowledgment that was delayed. One that was held back to be merged with others is none of these. */
fbt::tcp_delack_timer_handler:entry { self->delayed = ((struct tcp_sock *)args[0])->compressed_ack == 0; }
fbt::tcp_send_ack:entry /self->delayed/ { tcpOutAckDelayed(1, _sock_net[args[0]]); }
fbt::tcp_delack_timer_handler:return { self->delayed = 0; }

fbt::tcp_xmit_probe_skb:entry /args[2] == LINUX_MIB_TCPWINPROBE/ { tcpOutWinProbe(1, _sock_net[args[0]]); }
fbt::tcp_xmit_probe_skb:entry /args[2] == LINUX_MIB_TCPKEEPALIVE/ { tcpTimKeepaliveProbe(1, _sock_net[args[0]]); }

/*
 * The timers. What is sent again, but not by a timer nor as the probe for a lost tail, recovers a loss. (TCP_CA_Loss,
 * 4, is the slow start after a timeout.) A socket whose time is over gets an error before it is closed. SOCK_DEAD is
 * bit 0.
 */
self struct sock *timer;

fbt::tcp_write_timer_handler:entry { self->timer = args[0]; }
fbt::tcp_write_timer_handler:return { self->timer = NULL; }
fbt::tcp_keepalive_timer:entry { self->keeps = 1; }
fbt::tcp_keepalive_timer:return { self->keeps = 0; }
fbt::tcp_done:entry /self->timer == args[0] && args[0]->sk_err != 0/ { tcpTimRetransDrop(1, _sock_net[args[0]]); }
fbt::tcp_done:entry /self->keeps && args[0]->sk_err != 0/ { tcpTimKeepaliveDrop(1, _sock_net[args[0]]); }

inline int _times_out[struct tcp_sock *T, struct sock *K] = T->fastopen_rsk == NULL && T->packets_out != 0 &&
    (T->snd_wnd != 0 || (K->__sk_common.skc_flags & 1) || _sock_state[K] == TCP_STATE_SYN_SENT ||
    _sock_state[K] == TCP_STATE_SYN_RECEIVED);
fbt::tcp_retransmit_timer:entry /_times_out[(struct tcp_sock *)args[0], args[0]]/
{
	tcpTimRetrans(1, _sock_net[args[0]]);
}
fbt::tcp_syn_ack_timeout:entry { tcpTimRetrans(1, _sock_net[(struct sock *)args[0]]); }

fbt::tcp_retransmit_timer:entry, fbt::tcp_send_loss_probe:entry { self->resends = 1; }
fbt::tcp_retransmit_timer:return, fbt::tcp_send_loss_probe:return { self->resends = 0; }
inline int _recovers[struct sock *K] = ((struct inet_connection_sock *)K)->icsk_ca_state != 4;
rawtp:tcp::tcp_retransmit_skb
/defined(fbt::tcp_send_loss_probe:entry) && !self->resends && _recovers[(struct sock *)args[0]]/
{
	tcpOutFastRetrans(_tcp_cb[(struct sk_buff *)args[1]]->tcp_gso_segs, _sock_net[(struct sock *)args[0]]);
}
rawtp:tcp::tcp_retransmit_skb
/defined(fbt::tcp_send_loss_probe:entry) && !self->resends && _recovers[(struct sock *)args[0]] &&
    ((struct tcp_sock *)args[0])->rx_opt.sack_ok/
{
	tcpOutSackRetransSegs(_tcp_cb[(struct sk_buff *)args[1]]->tcp_gso_segs, _sock_net[(struct sock *)args[0]]);
}

/*
 * Connections that fail before they are there: the socket ends, or a listener gives a half-open one up because of a
 * reset or a new SYN.
 */
fbt::tcp_done:entry /_sock_state[args[0]] == TCP_STATE_SYN_SENT || _sock_state[args[0]] == TCP_STATE_SYN_RECEIVED/
{
	tcpAttemptFails(1, _sock_net[args[0]]);
}
inline int _header_flags[struct sk_buff *S] = *((uint8_t *)(S->head + S->transport_header) + 13);
fbt::tcp_check_req:entry { self->gives_up = _header_flags[args[1]] & (TH_SYN | TH_RST); }
fbt::inet_csk_reqsk_queue_drop:entry /self->gives_up/ { tcpAttemptFails(1, _sock_net[args[0]]); }
fbt::tcp_check_req:return { self->gives_up = 0; }

/* The queue of a listener is full: for a request, or for the end of a handshake. */
inline int _queue_is_full[struct sock *K] = K->sk_ack_backlog > K->sk_max_ack_backlog;

fbt::tcp_conn_request:entry { self->asked = args[2]; self->full = _queue_is_full[args[2]]; }
fbt::tcp_syn_flood_action:return /self->asked != NULL && !args[1]/
{
	tcpListenDropQ0(1, _sock_net[self->asked]);
	self->full = 0;
}
fbt::tcp_conn_request:return /self->full/ { tcpListenDrop(1, _sock_net[self->asked]); }
fbt::tcp_conn_request:return { self->asked = NULL; self->full = 0; }
fbt::tcp_v4_syn_recv_sock:entry /_queue_is_full[args[0]]/ { tcpListenDrop(1, _sock_net[(struct sock *)args[0]]); }
fbt::tcp_v6_syn_recv_sock:entry /_queue_is_full[args[0]] && args[1]->protocol == htons(_ethernet_ipv6)/
{
	tcpListenDrop(1, _sock_net[(struct sock *)args[0]]);
}

/*
 * What TCP receives. An acknowledgment counts if it acknowledges something new, SYN and FIN as a byte each.
 */
inline uint64_t _acked[struct sock *K] = ((struct tcp_sock *)K)->bytes_acked;
fbt::tcp_ack:entry { self->acks = args[0]; self->acked = _acked[args[0]]; }
fbt::tcp_ack:entry /(int32_t)(((struct tcp_sock *)args[0])->snd_nxt - _tcp_cb[args[1]]->ack_seq) < 0/
{
	tcpInAckUnsent(1, _sock_net[(struct sock *)args[0]]);
}
fbt::tcp_ack:return /self->acks != NULL && _acked[self->acks] != self->acked/
{
	tcpInAckSegs(1, _sock_net[self->acks]);
	tcpInAckBytes(_acked[self->acks] - self->acked, _sock_net[self->acks]);
}
fbt::tcp_ack:return { self->acks = NULL; }

fbt::tcp_ack_update_rtt:entry { self->measures = args[0]; }
fbt::tcp_ack_update_rtt:return /self->measures != NULL && args[1]/ { tcpRttUpdate(1, _sock_net[self->measures]); }
fbt::tcp_ack_update_rtt:return /self->measures != NULL && !args[1]/ { tcpRttNoUpdate(1, _sock_net[self->measures]); }
fbt::tcp_ack_update_rtt:return { self->measures = NULL; }

/*
 * Data that is the next, or that is the next in part; that leaves a gap; that was there before, as a whole; that is
 * beyond the window. Several segments may come as one. Before TCP has looked at the numbers, its header belongs to
 * the packet.
 */
inline uint32_t _in_segs[struct sk_buff *S] = ((struct skb_shared_info *)(S->head + S->end))->gso_segs == 0 ? 1 :
    ((struct skb_shared_info *)(S->head + S->end))->gso_segs;
inline uint32_t _in_bytes[struct tcp_skb_cb *C] = C->end_seq - C->seq - (C->tcp_flags & 1) - (C->tcp_flags >> 1 & 1);
inline int32_t _known_bytes[struct sock *K, struct sk_buff *S] =
    (int32_t)(((struct tcp_sock *)K)->rcv_nxt - _tcp_cb[S]->seq);

fbt::tcp_queue_rcv:entry /args[1]->len != 0/
{
	tcpInDataInorderSegs(_in_segs[args[1]], _sock_net[args[0]]);
	tcpInDataInorderBytes(_known_bytes[args[0], args[1]] > 0 ? args[1]->len - _known_bytes[args[0], args[1]] :
	    args[1]->len, _sock_net[args[0]]);
}
fbt::tcp_queue_rcv:entry /args[1]->len != 0 && _known_bytes[args[0], args[1]] > 0/
{
	tcpInDataPartDupSegs(1, _sock_net[args[0]]);
	tcpInDataPartDupBytes(_known_bytes[args[0], args[1]], _sock_net[args[0]]);
}
fbt::tcp_data_queue:entry
{
	self->takes = args[0];
	self->gaps = ((struct tcp_sock *)args[0])->rcv_ooopack;
	self->bytes = _in_bytes[_tcp_cb[args[1]]];
}
fbt::tcp_data_queue:return /self->takes != NULL && ((struct tcp_sock *)self->takes)->rcv_ooopack != self->gaps/
{
	tcpInDataUnorderSegs(((struct tcp_sock *)self->takes)->rcv_ooopack - self->gaps, _sock_net[self->takes]);
	tcpInDataUnorderBytes(self->bytes, _sock_net[self->takes]);
}
fbt::tcp_data_queue:return { self->takes = NULL; }

/*
 * The sequence number is checked twice. The first time it is a packet of IP with a header of TCP, and 6.1 has one
 * reason for what is too old and too far. The name of a reason is compared where not all kernels have it.
 */
self struct sock *checks;
fbt::tcp_v4_do_rcv:entry, fbt::tcp_v6_do_rcv:entry { self->checks = args[0]; }
fbt::tcp_v4_do_rcv:return, fbt::tcp_v6_do_rcv:return { self->checks = NULL; }

inline string _drop_reason[enum skb_drop_reason R] = _enumerator[R, "SKB_DROP_REASON_"];
inline int _is_too_old[struct sock *K, struct sk_buff *S] =
    _is_tcp[K] && (int32_t)(_tcp_cb[S]->end_seq - ((struct tcp_sock *)K)->rcv_wup) < 0;
inline int _drop_is_old[struct sock *K, struct sk_buff *S, enum skb_drop_reason R] =
    R == SKB_DROP_REASON_TCP_OLD_DATA || _drop_reason[R] == "TCP_OLD_SEQUENCE" ||
    R == SKB_DROP_REASON_TCP_INVALID_SEQUENCE && _is_too_old[K, S];
inline int _drop_is_far[struct sock *K, struct sk_buff *S, enum skb_drop_reason R] =
    R == SKB_DROP_REASON_TCP_OVERWINDOW || R == SKB_DROP_REASON_TCP_ZEROWINDOW ||
    _drop_reason[R] == "TCP_INVALID_END_SEQUENCE" ||
    R == SKB_DROP_REASON_TCP_INVALID_SEQUENCE && !_is_too_old[K, S];
/* The header of IP was taken off: a truncated packet of IP has the same reason, and is no segment or datagram yet. */
inline int _is_past_ip[struct sk_buff *S] = S->transport_header != S->network_header &&
    (uintptr_t)S->data == (uintptr_t)S->head + S->transport_header;
inline struct net *_checked_net[struct sock *K, struct sk_buff *S] =
    _sock_is_full[K] ? _sock_net[K] : _device_net[_drop_device[S]];

/* Whose the segment is: its packet has no device any more. */
rawtp:skb::kfree_skb
{
	this->holder = self->checks != NULL ? self->checks :
	    defined(rawtp:skb::kfree_skb, args[3]) ? (struct sock *)args[3] : (struct sock *)NULL;
}
rawtp:skb::kfree_skb
/_skb_version[args[0]] != 0 && _drop_is_old[this->holder, args[0], args[2]] && _in_bytes[_tcp_cb[args[0]]] != 0/
{
	tcpInDataDupSegs(1, _checked_net[this->holder, args[0]]);
	tcpInDataDupBytes(_in_bytes[_tcp_cb[args[0]]], _checked_net[this->holder, args[0]]);
}
rawtp:skb::kfree_skb
/_skb_version[args[0]] != 0 && _drop_is_far[this->holder, args[0], args[2]] && _in_bytes[_tcp_cb[args[0]]] != 0/
{
	tcpInDataPastWinSegs(1, _checked_net[this->holder, args[0]]);
	tcpInDataPastWinBytes(_in_bytes[_tcp_cb[args[0]]], _checked_net[this->holder, args[0]]);
}
rawtp:tcp::tcp_bad_csum { tcpInErrs(1, _checked_net[self->checks, (struct sk_buff *)args[0]]); }
rawtp:skb::kfree_skb
/args[2] == SKB_DROP_REASON_PKT_TOO_SMALL && _skb_tcp[args[0]] != NULL && _is_past_ip[args[0]]/
{
	tcpInErrs(1, _checked_net[this->holder, args[0]]);
}

/* Data for a socket that nobody reads any more (1 is RCV_SHUTDOWN) closes it. */
fbt::tcp_rcv_state_process:entry
/(_sock_state[args[0]] == TCP_STATE_FIN_WAIT_1 || _sock_state[args[0]] == TCP_STATE_FIN_WAIT_2) &&
    (args[0]->sk_shutdown & 1) && _in_bytes[_tcp_cb[args[1]]] != 0 &&
    (int32_t)(_tcp_cb[args[1]]->seq + _in_bytes[_tcp_cb[args[1]]] - ((struct tcp_sock *)args[0])->rcv_nxt) > 0/
{
	self->closes = args[0];
}
fbt::tcp_rcv_state_process:return /self->closes != NULL && args[1] && _sock_state[self->closes] == TCP_STATE_CLOSED/
{
	tcpInClosed(1, _sock_net[self->closes]);
}
fbt::tcp_rcv_state_process:return { self->closes = NULL; }

/*
 * UDP: errors of what is received. A checksum may be wrong when a program reads. The datagram is taken from the queue
 * then, and its reason may say so or not.
 */
self struct sk_buff *unread;

fbt::__sk_queue_drop_skb:entry /_is_udp[args[0]]/ { self->reader = args[0]; self->unread = args[2]; }
fbt::__sk_queue_drop_skb:return /self->reader != NULL && args[1] == 0/
{
	udpInErrors(1, _sock_net[self->reader]);
	udpInCksumErrs(1, _sock_net[self->reader]);
}
fbt::__sk_queue_drop_skb:return { self->reader = NULL; }
fbt::udp_recvmsg:return, fbt::udpv6_recvmsg:return { self->unread = NULL; }

inline int _is_udp_error[struct sk_buff *S, int R] = R == SKB_DROP_REASON_UDP_CSUM || R == SKB_DROP_REASON_SOCKET_RCVBUFF ||
    R == SKB_DROP_REASON_PROTO_MEM || R == SKB_DROP_REASON_SOCKET_FILTER || R == SKB_DROP_REASON_XFRM_POLICY ||
    _is_past_ip[S] && (R == SKB_DROP_REASON_PKT_TOO_SMALL ||
    R == SKB_DROP_REASON_NOT_SPECIFIED && S->len < sizeof(struct udphdr));
rawtp:skb::kfree_skb
/_skb_version[args[0]] != 0 && _skb_udp[args[0]] != NULL && self->unread != args[0] &&
    _is_udp_error[args[0], args[2]]/
{
	udpInErrors(1, _device_net[_drop_device[args[0]]]);
}
rawtp:skb::kfree_skb
/args[2] == SKB_DROP_REASON_UDP_CSUM && _skb_version[args[0]] != 0 && _skb_udp[args[0]] != NULL &&
    self->unread != args[0]/
{
	udpInCksumErrs(1, _device_net[_drop_device[args[0]]]);
}

/*
 * There is no memory for what is sent, because the socket has too much of it (ENOBUFS, EAGAIN), or a device is busy,
 * which is said only to those who want to hear it. A socket of IPv6 uses the function for IPv4 where it sends by
 * that.
 */
self struct sock *writer6;

fbt::udp_sendmsg:entry { self->writer = args[0]; self->writer6 = NULL; }
fbt::udpv6_sendmsg:entry { self->writer6 = args[0]; }
fbt::udp_sendmsg:return /self->writer != NULL && (args[1] == -ENOBUFS || args[1] == -EAGAIN)/
{
	udpOutErrors(1, _sock_net[self->writer]);
}
fbt::udpv6_sendmsg:return /self->writer6 != NULL && (args[1] == -ENOBUFS || args[1] == -EAGAIN)/
{
	udpOutErrors(1, _sock_net[self->writer6]);
}
fbt::udpv6_sendmsg:return { self->writer6 = NULL; }

fbt::ip_send_skb:return, fbt::ip6_send_skb:return { self->is_busy = args[1] == -ENOBUFS; }
fbt::udp_send_skb:entry, fbt::udp_v6_send_skb:entry { self->busy = args[0]->sk; self->is_busy = 0; }
fbt::udp_send_skb:return, fbt::udp_v6_send_skb:return /self->busy != NULL && self->is_busy && args[1] == 0/
{
	udpOutErrors(1, _sock_net[self->busy]);
}
fbt::udp_send_skb:return, fbt::udp_v6_send_skb:return { self->busy = NULL; }

/*
 * IP version 4. Options that are wrong have no reason of their own on all kernels.
 */
inline int _is_ipv4[struct sk_buff *S] = S->protocol == htons(_ethernet_ipv4);

self struct sk_buff *options;

fbt::ip_options_compile:entry { self->options = args[2]; self->of = args[0]; }
fbt::ip_options_compile:return /self->options != NULL && args[1] == 0/ { self->options = NULL; }
fbt::ip_options_compile:return /self->options != NULL && args[1] != 0/ { ipInHdrErrors(1, self->of); }
rawtp:skb::kfree_skb
/(args[2] == SKB_DROP_REASON_IP_INHDR || args[2] == SKB_DROP_REASON_IP_CSUM) && _is_ipv4[args[0]] &&
    self->options != args[0]/
{
	ipInHdrErrors(1, _device_net[_drop_device[args[0]]]);
}
rawtp:skb::kfree_skb /defined(fbt::ip_options_compile:entry) && self->options == args[0]/ { self->options = NULL; }

rawtp:skb::kfree_skb /args[2] == SKB_DROP_REASON_IP_CSUM && _is_ipv4[args[0]]/
{
	ipInCksumErrs(1, _device_net[_drop_device[args[0]]]);
}
rawtp:skb::kfree_skb /args[2] == SKB_DROP_REASON_IP_INADDRERRORS && _is_ipv4[args[0]]/
{
	ipInAddrErrors(1, _device_net[_drop_device[args[0]]]);
}
rawtp:skb::kfree_skb /args[2] == SKB_DROP_REASON_IP_NOPROTO && _is_ipv4[args[0]]/
{
	ipInUnknownProtos(1, _device_net[_drop_device[args[0]]]);
}

/* What is given to a protocol, but for that which has none. */
fbt::ip_protocol_deliver_rcu:entry { self->delivers = args[0]; self->delivered = args[1]; }
rawtp:skb::kfree_skb
/defined(fbt::ip_protocol_deliver_rcu:entry) && args[2] == SKB_DROP_REASON_IP_NOPROTO && self->delivered == args[0]/
{
	self->delivers = NULL;
}
fbt::ip_protocol_deliver_rcu:return /self->delivers != NULL/ { ipInDelivers(1, self->delivers); }
fbt::ip_protocol_deliver_rcu:return { self->delivers = NULL; self->delivered = NULL; }

fbt::ip_forward_finish:entry { ipForwDatagrams(1, args[0]); }

/* EMSGSIZE is said before anything is made. */
fbt::ip_send_skb:entry { self->discards = args[0]; }
fbt::ip_send_skb:return /self->discards != NULL && args[1] != 0/ { ipOutDiscards(1, self->discards); }
fbt::ip_send_skb:return { self->discards = NULL; }
fbt::__ip_append_data:entry { self->appends = args[0]; }
fbt::__ip_append_data:return /self->appends != NULL && args[1] < 0 && args[1] != -EMSGSIZE/
{
	ipOutDiscards(1, _sock_net[self->appends]);
}
fbt::__ip_append_data:return { self->appends = NULL; }

fbt::tcp_v4_connect:entry, fbt::__ip4_datagram_connect:entry, fbt::ping_v4_sendmsg:entry { self->looks = args[0]; }
fbt::tcp_v4_connect:return, fbt::__ip4_datagram_connect:return, fbt::ping_v4_sendmsg:return
/self->looks != NULL && args[1] == -ENETUNREACH/
{
	ipOutNoRoutes(1, _sock_net[self->looks]);
}
fbt::tcp_v4_connect:return, fbt::__ip4_datagram_connect:return, fbt::ping_v4_sendmsg:return { self->looks = NULL; }
fbt::udp_sendmsg:return /self->writer != NULL && args[1] == -ENETUNREACH/
{
	ipOutNoRoutes(1, _sock_net[self->writer]);
}
fbt::udp_sendmsg:return { self->writer = NULL; }
fbt::inet_csk_route_req:entry { self->routes = (struct sock *)args[0]; }
fbt::inet_csk_route_req:return /self->routes != NULL && args[1] == NULL/ { ipOutNoRoutes(1, _sock_net[self->routes]); }
fbt::inet_csk_route_req:return { self->routes = NULL; }
rawtp:skb::kfree_skb
/defined(fbt::tcp_v4_connect:entry) && args[2] == SKB_DROP_REASON_IP_OUTNOROUTES && args[0]->sk != NULL/
{
	ipOutNoRoutes(1, _sock_net[args[0]->sk]);
}

/*
 * Fragments. A packet is joined when its last one is there. Those that came twice are no failure.
 */
fbt::ip_defrag:entry { self->joins = args[0]; self->is_twice = 0; }
rawtp:skb::kfree_skb /defined(fbt::ip_defrag:entry) && self->joins != NULL && _drop_reason[args[2]] == "DUP_FRAG"/
{
	self->is_twice = 1;
}
fbt::ip_defrag:return /self->joins != NULL && args[1] == 0/ { ipReasmOKs(1, self->joins); }
fbt::ip_defrag:return
/self->joins != NULL && (args[1] == -ENOMEM || args[1] == -EINVAL && !self->is_twice || args[1] == -E2BIG)/
{
	ipReasmFails(1, self->joins);
}
fbt::ip_defrag:return { self->joins = NULL; }

/* Of a queue that is complete (4), and of a namespace that ends, nothing fails. */
inline struct inet_frag_queue *_queue_of[uintptr_t T] =
    (struct inet_frag_queue *)(T - offsetof(struct inet_frag_queue, timer));
fbt::ip_expire:entry /!(_queue_of[(uintptr_t)args[0]]->flags & 4) && !_queue_of[(uintptr_t)args[0]]->fqdir->dead/
{
	ipReasmFails(1, _queue_of[(uintptr_t)args[0]]->fqdir->net);
}

fbt::ip_do_fragment:entry { self->splits = args[0]; self->depth = 0; }
fbt::ip_finish_output2:entry { self->depth++; }
fbt::ip_finish_output2:return /self->splits != NULL && self->depth == 1 && args[1] == 0/
{
	ipFragCreates(1, self->splits);
}
fbt::ip_finish_output2:return { self->depth--; }
fbt::ip_do_fragment:return /self->splits != NULL && args[1] != 0/ { ipFragFails(1, self->splits); }
fbt::ip_do_fragment:return { self->splits = NULL; }
/* A packet that may not be split is answered: "fragmentation needed" (4) is a kind of "destination unreachable" (3). */
fbt::__icmp_send:entry /args[1] == 3 && args[2] == 4/ { ipFragFails(1, _device_net[_skb_route[args[0]]->dev]); }

/* ICMP: what is wrong, and what is not answered, because too much was. */
fbt::icmp_rcv:entry { self->message = args[0]; }
rawtp:skb::kfree_skb
/defined(fbt::icmp_rcv:entry) && self->message == args[0] && args[2] != SKB_DROP_REASON_XFRM_POLICY &&
    args[2] != SKB_DROP_REASON_NOMEM/
{
	icmpInErrors(1, _device_net[args[0]->dev]);
}
fbt::icmp_rcv:return { self->message = NULL; }
rawtp:skb::kfree_skb /args[2] == SKB_DROP_REASON_ICMP_CSUM && _is_ipv4[args[0]]/
{
	icmpInCksumErrs(1, _device_net[_drop_device[args[0]]]);
}
fbt::icmp_reply:entry { self->replies = args[1]; }
fbt::__icmp_send:entry { self->replies = args[0]; }
fbt::inet_peer_xrlim_allow:return, fbt::icmp_global_allow:return /self->replies != NULL && !args[1]/
{
	icmpOutDrops(1, _device_net[_skb_route[self->replies]->dev]);
}
fbt::icmp_reply:return, fbt::__icmp_send:return { self->replies = NULL; }
