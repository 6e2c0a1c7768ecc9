//! Translators of packets and sockets, against traffic of known content over the loopback.

use crate::Verdict::{self, Pass, Skip};
use crate::machine::no_types;
use crate::tool::{Output, dtrace, workload};

tests! {
    datagrams_are_described_by_their_headers_and_sockets segments_are_described_by_their_headers
    connections_have_their_addresses_states_and_numbers sockets_of_no_connection_are_empty
}

/// Runs a workload of the loopback. Its ports, in decimal, and its other numbers.
fn traced(name: &str, version: u32, script: &str) -> Result<(Output, Vec<u64>), Verdict> {
    let o = dtrace(&["-q", "-c", &workload(name, version), "-n", script]).code(0);
    if let Some(why) = o.out.lines().find(|l| l.starts_with("no network")) {
        return Err(Skip(why.to_string()));
    }
    let line = o.out.lines().find_map(|l| l.strip_prefix("ports ")).unwrap();
    let numbers = line.split(' ').map(|n| n.parse().unwrap()).collect();
    assert_eq!(o.err, "", "{o:?}");
    Ok((o, numbers))
}

/// The lines that begin with a word, without it.
fn lines<'a>(o: &'a Output, word: &'a str) -> impl Iterator<Item = &'a str> {
    o.out.lines().filter_map(move |l| l.strip_prefix(word)?.strip_prefix(' '))
}

const ADDRESSES: [(u32, &str, &str); 2] = [(4, "127.0.0.1", "0.0.0.0"), (6, "::1", "::")];

/// The checksum of a header of IPv4, from its words.
fn checksum(words: &[u32]) -> u32 {
    let sum = words.iter().sum::<u32>();
    !((sum & 0xffff) + (sum >> 16)) & 0xffff
}

// row translator.pktinfo, translator.csinfo, translator.conninfo, translator.ipinfo
// row translator.ifinfo, translator.ipv4info, translator.ipv6info, translator.udpinfo
// row translator.udpsinfo
fn datagrams_are_described_by_their_headers_and_sockets() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    for (version, address, any) in ADDRESSES {
        let clause = |probe: &str, last: &str| {
            format!(
                "rawtp:net::{probe} /xlate <udpinfo_t *> (args[0])->udp_length == 108/ {{ \
                 this->i = xlate <ipinfo_t *> (args[0]); this->f = xlate <ifinfo_t *> (args[0]); \
                 this->u = xlate <udpinfo_t *> (args[0]); this->p = xlate <pktinfo_t *> (args[0]); \
                 this->x = xlate <ipv4info_t *> (args[0]); this->y = xlate <ipv6info_t *> (args[0]); \
                 printf(\"{probe} %d %d %d %s %s %d %s %d %d %d\\n\", this->u->udp_sport, this->u->udp_dport, \
                 this->i->ip_ver, this->i->ip_saddr, this->i->ip_daddr, this->i->ip_plength, this->f->if_name, \
                 this->f->if_local, this->f->if_addr == (uintptr_t)args[0]->dev && this->f->if_ipstack != 0, \
                 this->p->pkt_addr == arg0 && this->u->udp_checksum == ntohs(this->u->udp_hdr->check)); \
                 printf(\"v4 %d %d %d %x %d %d %d %d %d %d %s %x %x %s %s %d\\n\", this->u->udp_sport, this->x->ipv4_ver, \
                 this->x->ipv4_ihl, this->x->ipv4_tos, this->x->ipv4_length, this->x->ipv4_ident, this->x->ipv4_flags, \
                 this->x->ipv4_offset, this->x->ipv4_ttl, this->x->ipv4_protocol, this->x->ipv4_protostr, \
                 this->x->ipv4_checksum, ntohl(this->x->ipv4_src), this->x->ipv4_saddr, this->x->ipv4_daddr, \
                 this->x->ipv4_dst == this->x->ipv4_src); \
                 printf(\"v6 %d %d %x %d %d %s %d %s %s %s\\n\", this->u->udp_sport, this->y->ipv6_ver, this->y->ipv6_tclass, \
                 this->y->ipv6_plen, this->y->ipv6_nexthdr, this->y->ipv6_nextstr, this->y->ipv6_hlim, this->y->ipv6_saddr, \
                 this->y->ipv6_daddr, this->y->ipv6_src == NULL ? \"\" : inet_ntoa6(this->y->ipv6_src)); {last} }} "
            )
        };
        let socket = "this->s = xlate <udpsinfo_t *> (args[0]->sk); this->c = xlate <csinfo_t *> (args[0]->sk); \
                      this->o = xlate <conninfo_t *> (args[0]->sk); \
                      printf(\"socket %d %d %s %s %d %d %d %d %s %s %s\\n\", this->s->udps_lport, this->s->udps_rport, \
                      this->s->udps_laddr, this->s->udps_raddr, this->s->udps_addr == this->c->cs_addr && \
                      this->c->cs_addr == (uintptr_t)args[0]->sk, this->c->cs_cid == this->c->cs_addr, this->c->cs_pid, this->c->cs_zoneid, \
                      this->o->ci_local, this->o->ci_remote, this->o->ci_protocol);";
        let script = clause("net_dev_queue", socket) + &clause("netif_receive_skb", "");
        let (o, numbers) = match traced("datagram", version, &script) {
            Ok(found) => found,
            Err(skip) => return skip,
        };
        let [from, to] = numbers[..] else { panic!("{o:?}") };
        for probe in ["net_dev_queue", "netif_receive_skb"] {
            let found: Vec<&str> = lines(&o, probe).filter(|l| l.starts_with(&format!("{from} "))).collect();
            assert_eq!(found, [format!("{from} {to} {version} {address} {address} 108 lo 1 1 1")], "{o:?}");
        }
        let of = |word| -> Vec<&str> {
            lines(&o, word).filter_map(|l| l.strip_prefix(&format!("{from} "))).collect()
        };
        let (v4, v6) = (of("v4"), of("v6"));
        if version == 4 {
            let words: Vec<&str> = v4[0].split(' ').collect();
            let ident = words[4].parse().unwrap();
            let flags: u32 = words[5].parse().unwrap();
            let sum = checksum(&[0x4548, 128, ident, flags << 12, 33 << 8 | 17, 0x7f00, 1, 0x7f00, 1]);
            let wanted =
                format!("4 20 48 128 {ident} {flags} 0 33 17 UDP {sum:x} 7f000001 127.0.0.1 127.0.0.1 1");
            assert_eq!(v4, [&*wanted, &*wanted], "{o:?}");
            assert_eq!(v6, ["0 0 0 0 <null> 0 <unknown> <unknown> "; 2], "{o:?}");
        } else {
            assert_eq!(v4, ["0 0 0 0 0 0 0 0 0 <null> 0 0 <unknown> <unknown> 1"; 2], "{o:?}");
            assert_eq!(v6, ["6 48 108 17 UDP 33 ::1 ::1 ::1"; 2], "{o:?}");
        }
        let wanted = format!("0 {address} {any} 1 1 0 0 {address} {any} ipv{version}");
        assert_eq!(of("socket"), [wanted], "{o:?}");
    }
    Pass
}

/// A segment as the script prints it.
struct Segment {
    from: u64,
    seq: u32,
    ack: u32,
    offset: u32,
    flags: u32,
    window: u32,
    payload: u32,
    state: u32,
    iss: u32,
}

const SEGMENTS: &str = "rawtp:net::net_dev_queue /xlate <ifinfo_t *> (args[0])->if_name == \"lo\" && \
                        xlate <tcpinfo_t *> (args[0])->tcp_hdr != NULL/ { this->t = xlate <tcpinfo_t *> (args[0]); \
                        this->s = xlate <tcpsinfo_t *> (args[0]->sk); \
                        printf(\"segment %d %d %u %u %d %d %d %d %d %u %d %d %d\\n\", this->t->tcp_sport, this->t->tcp_dport, \
                        this->t->tcp_seq, this->t->tcp_ack, this->t->tcp_offset, this->t->tcp_flags, this->t->tcp_window, \
                        xlate <ipinfo_t *> (args[0])->ip_plength, this->s->tcps_state, this->s->tcps_iss, \
                        this->s->tcps_lport, this->s->tcps_rport, this->t->tcp_urgent == 0 && \
                        this->t->tcp_checksum == ntohs(this->t->tcp_hdr->check)); } ";

/// The segments of a connection between two ports.
fn segments(o: &Output, client: u64, server: u64) -> Vec<Segment> {
    let mut out = Vec::new();
    for line in lines(o, "segment") {
        let n: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
        let (from, to) = (n[0], n[1]);
        if [from, to] != [client, server] && [from, to] != [server, client] {
            continue;
        }
        // The socket has the ports of the segment.
        assert_eq!([from, to, 1], n[10..], "{o:?}");
        let n32: Vec<u32> = n.iter().map(|n| *n as u32).collect();
        out.push(Segment {
            from,
            seq: n32[2],
            ack: n32[3],
            offset: n32[4],
            flags: n32[5],
            window: n32[6],
            payload: n32[7] - n32[4],
            state: n32[8],
            iss: n32[9],
        });
    }
    out
}

const FIN: u32 = 0x01;
const SYN: u32 = 0x02;
const PUSH: u32 = 0x08;
const ACK: u32 = 0x10;

// row translator.tcpinfo
fn segments_are_described_by_their_headers() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    for (version, ..) in ADDRESSES {
        let (o, ports) = match traced("connection", version, SEGMENTS) {
            Ok(found) => found,
            Err(skip) => return skip,
        };
        let [client, server] = ports[..] else { panic!("{o:?}") };
        let all = segments(&o, client, server);
        let one = |from: u64, flags: u32| {
            let mut found = all.iter().filter(|s| s.from == from && s.flags & !(PUSH | 0xc0) == flags);
            found.next().unwrap_or_else(|| panic!("no {flags:x}: {o:?}"))
        };
        let (syn, reply) = (one(client, SYN), one(server, SYN | ACK));
        assert_eq!((syn.ack, syn.payload, syn.offset >= 20), (0, 0, true), "{o:?}");
        assert_eq!((reply.ack, reply.payload), (syn.seq.wrapping_add(1), 0), "{o:?}");
        // The connection is not a full socket yet when it answers, and has no numbers.
        assert_eq!((reply.state, reply.iss), (12, 0), "{o:?}");
        let data = all.iter().find(|s| s.payload == 1000).unwrap();
        assert_eq!((data.from, data.seq, data.ack), (client, reply.ack, reply.seq.wrapping_add(1)), "{o:?}");
        assert_eq!((data.flags, data.state), (PUSH | ACK, 1), "{o:?}");
        assert!(data.window > 0 && data.offset % 4 == 0 && data.iss == syn.seq, "{o:?}");
        let end = one(client, FIN | ACK);
        assert_eq!(end.seq, data.seq.wrapping_add(1000), "{o:?}");
    }
    Pass
}

// row translator.tcpsinfo, translator.tcplsinfo
fn connections_have_their_addresses_states_and_numbers() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    for (version, address, _) in ADDRESSES {
        // At this tracepoint the socket still has its previous state.
        let script = "rawtp:sock::inet_sock_set_state { this->c = xlate <tcpsinfo_t *> (args[0]); \
                      this->l = xlate <tcplsinfo_t *> (args[1]); \
                      printf(\"state %d %d %s %s %s %s %d %d %u %u %u %u %u %u %d %d %d %d\\n\", this->c->tcps_lport, \
                      this->c->tcps_rport, tcp_state_string[this->l->tcps_state], tcp_state_string[args[2]], \
                      this->c->tcps_laddr, this->c->tcps_raddr, this->c->tcps_active, this->c->tcps_local, \
                      this->c->tcps_iss, this->c->tcps_irs, this->c->tcps_suna, this->c->tcps_snxt, this->c->tcps_rnxt, \
                      this->c->tcps_rack, this->c->tcps_state == this->l->tcps_state && \
                      xlate <tcplsinfo_t *> (args[0])->tcps_state == args[1], \
                      this->c->tcps_cwnd == ((struct tcp_sock *)args[0])->snd_cwnd * this->c->tcps_mss && \
                      this->c->tcps_mss > 500 && this->c->tcps_cwnd_ssthresh == 0x7fffffff && \
                      this->c->tcps_addr == arg0 && this->c->tcps_sack_fack == this->c->tcps_suna && \
                      this->c->tcps_sack_snxt == this->c->tcps_suna, \
                      this->c->tcps_rto, this->c->tcps_retransmit); } "
            .to_string()
            + SEGMENTS;
        let (o, ports) = match traced("connection", version, &script) {
            Ok(found) => found,
            Err(skip) => return skip,
        };
        let [client, server] = ports[..] else { panic!("{o:?}") };
        let all = segments(&o, client, server);
        let first = |from| all.iter().find(|s| s.from == from).unwrap().seq;
        let (c, s) = (first(client), first(server));
        let of = |from: u64, to: u64| -> Vec<Vec<&str>> {
            let found = lines(&o, "state").map(|l| l.split(' ').collect::<Vec<_>>());
            found.filter(|w| w[0] == from.to_string() && w[1] == to.to_string()).collect()
        };
        let next = |n: u32, by: u32| n.wrapping_add(by).to_string();
        let find = |from: u64, to: u64, state: [&str; 2]| {
            let found = of(from, to).into_iter().find(|w| w[2..4] == state);
            found.unwrap_or_else(|| panic!("no {state:?}: {o:?}"))
        };
        let established = find(client, server, ["state-syn-sent", "state-established"]);
        let numbers =
            [c.to_string(), s.to_string(), next(c, 1), next(c, 1), next(s, 1)].map(|n| n.to_string());
        assert_eq!(established[4..8], [address, address, "1", "1"], "{o:?}");
        assert_eq!(established[8..13], numbers, "{o:?}");
        assert_eq!(established[14..16], ["1", "1"], "{o:?}");
        // The smallest timeout is 200 ms, the first is a second.
        let rto: u32 = established[16].parse().unwrap();
        assert!((190..=3000).contains(&rto) && established[17] == "0", "{o:?}");
        let accepted = find(server, client, ["state-syn-received", "state-established"]);
        assert_eq!(accepted[4..10], [address, address, "0", "1", &s.to_string(), &c.to_string()], "{o:?}");
        assert_eq!((accepted[12], accepted[14]), (&*next(c, 1), "1"), "{o:?}");
        let closing = find(client, server, ["state-established", "state-fin-wait-1"]);
        assert_eq!(
            closing[8..13],
            [&*c.to_string(), &s.to_string(), closing[10], &next(c, 1001), &next(s, 1)]
        );
        let end = find(server, client, ["state-close-wait", "state-last-ack"]);
        assert_eq!((end[9], end[12]), (&*c.to_string(), &*next(c, 1002)), "{o:?}");
        let listening = of(server, 0);
        let found = listening.iter().find(|w| w[2..4] == ["state-closed", "state-listen"]);
        assert_eq!(found.unwrap()[6..10], ["0", "0", "0", "0"], "{o:?}");
    }
    Pass
}

/// No address is read of what is not there.
fn sockets_of_no_connection_are_empty() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let o = dtrace(&[
        "-qn",
        "inline struct sock *none = (struct sock *)NULL; inline struct sk_buff *nothing = (struct sk_buff *)NULL; \
         BEGIN { printf(\"%s %d %d %d\\n\", xlate <tcpsinfo_t> (none).tcps_laddr, xlate <tcpsinfo_t> (none).tcps_lport, \
         xlate <tcpsinfo_t> (none).tcps_snxt, xlate <tcpsinfo_t> (none).tcps_state == TCP_STATE_CLOSED); \
         printf(\"%s %d %d\\n\", xlate <udpsinfo_t> (none).udps_raddr, xlate <csinfo_t> (none).cs_cid, \
         xlate <tcpsinfo_t> (none).tcps_active); } \
         BEGIN { printf(\"%s %d %d %s\\n\", xlate <ipinfo_t> (nothing).ip_saddr, xlate <ipinfo_t> (nothing).ip_plength, \
         xlate <tcpinfo_t> (nothing).tcp_flags, xlate <ifinfo_t> (nothing).if_name); \
         printf(\"%d %s %d\\n\", xlate <udpinfo_t> (nothing).udp_dport, xlate <ipv4info_t> (nothing).ipv4_protostr, \
         xlate <ipv6info_t> (nothing).ipv6_hlim); exit(0); }",
    ])
    .code(0);
    assert_eq!(o.out.trim(), "<unknown> 0 0 1\n<unknown> 0 0\n<unknown> 0 0 <null>\n0 <null> 0", "{o:?}");
    assert_eq!(o.err, "", "{o:?}");
    Pass
}

/// Says that a workload has no network.
pub(crate) fn report(done: std::io::Result<()>) {
    if let Err(e) = done {
        println!("no network: {e}");
    }
}

/// The loopback's address of IPv4 or IPv6.
fn loopback(version: u32) -> std::net::IpAddr {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    if version == 4 { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { IpAddr::V6(Ipv6Addr::LOCALHOST) }
}

/// Sets an option of a socket.
fn set_option(socket: &impl std::os::fd::AsRawFd, level: i32, option: i32, value: i32) {
    // SAFETY: an int that lives across the call.
    unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), 4) };
}

/// Sends a datagram of 100 bytes over the loopback, with a class of 0x48 and 33 hops. Prints the
/// ports.
pub(crate) fn datagram(version: u32) -> std::io::Result<()> {
    let sender = std::net::UdpSocket::bind((loopback(version), 0))?;
    let receiver = std::net::UdpSocket::bind((loopback(version), 0))?;
    if version == 4 {
        set_option(&sender, libc::IPPROTO_IP, libc::IP_TOS, 0x48);
        set_option(&sender, libc::IPPROTO_IP, libc::IP_TTL, 33);
    } else {
        set_option(&sender, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, 0x48);
        set_option(&sender, libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, 33);
    }
    sender.send_to(&[b'x'; 100], receiver.local_addr()?)?;
    receiver.recv(&mut [0; 200])?;
    println!("ports {} {}", sender.local_addr()?.port(), receiver.local_addr()?.port());
    Ok(())
}

/// Connects over the loopback, sends 1000 bytes, and closes the connection. Prints the ports.
pub(crate) fn connection(version: u32) -> std::io::Result<()> {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind((loopback(version), 0))?;
    let mut client = std::net::TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    println!("ports {} {}", client.local_addr()?.port(), listener.local_addr()?.port());
    client.write_all(&[b'y'; 1000])?;
    server.read_exact(&mut [0; 1000])?;
    drop(client);
    // The end of the file.
    let _ = server.read(&mut [0])?;
    Ok(())
}
