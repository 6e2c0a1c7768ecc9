/*
 * The counters of the network that RFC 1213 defines. A probe fires when the kernel adds to a counter: argument 0 is how
 * much, argument 1 the network namespace whose counter it is.
 *
 * The kernel's own functions for that are inlined, so only counters are here that follow from what can be seen, exactly.
 * The others have no clause.
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
 * What is sent again counts there alone. Answers to a handshake, and of no full socket, are sent by other functions. The
 * latter belong to a raw socket of the kernel.
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
