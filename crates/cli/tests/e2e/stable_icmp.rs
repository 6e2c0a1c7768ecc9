//! The provider icmp: each probe by count and by argument, with messages of known content in a
//! network namespace of their own.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{FromRawFd, OwnedFd};

use crate::Verdict::{self, Pass};
use crate::machine::{no_functions, no_types};
use crate::network::{checked, lines, loopback, namespace, traced};

tests! { each_message_is_sent_and_received_once_with_what_its_type_has }

/// A line for each message. Of a reply with a time, only that it has one.
const LINES: &str = "icmp:genunix::send, icmp:::receive \
    /(uintptr_t)((struct sk_buff *)args[0]->pkt_addr)->dev->nd_net.net == ns/ \
    { this->i = args[4]; printf(\"%s %d %d %d %d %s %s %d|%d %d %u %u %u %d %d %s %u %d %d %s %d %s %s %u %u %d %d %d %d %d %d %d\\n\", \
    probename, this->i->icmp_version, this->i->icmp_type, this->i->icmp_code, args[2]->ip_plength, args[2]->ip_saddr, \
    args[2]->ip_daddr, args[0]->pkt_addr == arg0 && args[1]->cs_addr == arg1 && \
    (arg1 != 0) == (probename == \"send\") && args[3] == NULL && this->i->icmp_checksum != 0 && \
    (args[2]->ip_ver == 4 ? this->i->icmp_hdr->type : this->i->icmp6_hdr->icmp6_type) == this->i->icmp_type, \
    this->i->icmp_echo_id, this->i->icmp_echo_seq, this->i->icmp_address_mask, this->i->icmp_param_problem_ptr, \
    this->i->icmp_pmtu_update, this->i->icmp_radv_num_addrs, this->i->icmp_radv_lifetime, \
    this->i->icmp_redirect_gateway, this->i->icmp_timestamp_otime, \
    this->i->icmp_timestamp_rtime == 888 ? 888 : this->i->icmp_timestamp_rtime != 0, \
    this->i->icmp_timestamp_ttime == 999 ? 999 : this->i->icmp_timestamp_ttime != 0, this->i->icmp6_mld_addr, \
    this->i->icmp6_mld_v2_num_mars, this->i->icmp6_nd_target, this->i->icmp6_nd_redirect_destination, \
    this->i->icmp6_nd_radv_reachable, this->i->icmp6_nd_radv_retransmit, this->i->icmp6_rr_segnum, \
    this->i->icmp6_rr_flags, this->i->icmp6_rr_maxdelay, this->i->icmp_error_ip_hdr != NULL, \
    this->i->icmp_error_ip6_hdr != NULL, this->i->icmp_error_sport, this->i->icmp_error_dport); }";

/// The members that only some types have, in the order of the line.
const MEMBERS: [&str; 24] = [
    "id",
    "seq",
    "mask",
    "ptr",
    "mtu",
    "num",
    "lifetime",
    "gateway",
    "otime",
    "rtime",
    "ttime",
    "mld",
    "mars",
    "target",
    "destination",
    "reachable",
    "retransmit",
    "segnum",
    "flags",
    "maxdelay",
    "error4",
    "error6",
    "sport",
    "dport",
];

/// A message: its type, its code, what follows the checksum, its members that are not empty.
struct Message(u8, u8, Vec<u8>, &'static [(&'static str, &'static str)]);

impl Message {
    /// The line that a probe prints of it.
    fn line(&self, probe: &str, version: u32, length: usize) -> String {
        let a = loopback(version);
        let empty = |name: &str| match name {
            "gateway" | "mld" | "target" | "destination" => "<unknown>",
            _ => "0",
        };
        let value = |name: &&str| {
            let mine = self.3.iter().find(|(member, _)| member == name);
            mine.map_or_else(|| empty(name), |(_, value)| *value)
        };
        let members: Vec<&str> = MEMBERS.iter().map(value).collect();
        format!("{probe} {version} {} {} {length} {a} {a} 1|{}", self.0, self.1, members.join(" "))
    }
}

const ECHO: &[(&str, &str)] = &[("id", "4660"), ("seq", "7")];

fn echo(payload: usize) -> Vec<u8> {
    [vec![0x12, 0x34, 0, 7], vec![b'x'; payload]].concat()
}

/// What follows the checksum of an error about a packet of this protocol.
fn error(version: u32, word: [u8; 4], protocol: u8, ports: [u8; 4]) -> Vec<u8> {
    let header = if version == 4 {
        let ends = [127, 0, 0, 1, 127, 0, 0, 1];
        [&[0x45, 0, 0, 28, 0, 0, 0, 0, 64, protocol, 0, 0][..], &ends].concat()
    } else {
        let end = std::net::Ipv6Addr::LOCALHOST.octets();
        [&[0x60, 0, 0, 0, 0, 8, protocol, 64][..], &end, &end].concat()
    };
    [&word[..], &header, &ports, &[0, 8, 0, 0]].concat()
}

/// An address of IPv6: fe80::N.
fn link_local(n: u8) -> [u8; 16] {
    let mut octets = [0; 16];
    (octets[0], octets[1], octets[15]) = (0xfe, 0x80, n);
    octets
}

/// The messages that the workload sends itself.
fn messages(version: u32) -> Vec<Message> {
    let e = |word, protocol, ports| error(version, word, protocol, ports);
    let neighbor = || [&[0; 4][..], &link_local(9)].concat();
    let echo_type = if version == 4 { 8 } else { 128 };
    let mut all: Vec<Message> = (0..5).map(|_| Message(echo_type, 0, echo(40), ECHO)).collect();
    all.extend((0..2).map(|_| Message(echo_type, 0, echo(5000), ECHO)));
    all.extend(if version == 4 {
        vec![
            Message(13, 0, [&[0, 1, 0, 2, 0, 0, 3, 9][..], &[0; 8]].concat(), &[("otime", "777")]),
            Message(
                14,
                0,
                vec![0, 1, 0, 2, 0, 0, 3, 9, 0, 0, 3, 120, 0, 0, 3, 231],
                &[("otime", "777"), ("rtime", "888"), ("ttime", "999")],
            ),
            Message(17, 0, vec![0, 1, 0, 2, 255, 255, 255, 0], &[("mask", "4294967040")]),
            Message(9, 0, [&[2, 2, 7, 8][..], &[1; 16]].concat(), &[("num", "2"), ("lifetime", "1800")]),
            Message(
                12,
                0,
                e([20, 0, 0, 0], 6, [0, 80, 0, 81]),
                &[("ptr", "20"), ("error4", "1"), ("sport", "80"), ("dport", "81")],
            ),
            Message(
                5,
                1,
                e([10, 1, 2, 3], 17, [0, 80, 0, 81]),
                &[("gateway", "10.1.2.3"), ("error4", "1"), ("sport", "80"), ("dport", "81")],
            ),
            Message(11, 0, e([0; 4], 1, [8, 0, 0, 0]), &[("error4", "1")]),
            Message(
                3,
                4,
                e([0, 0, 5, 120], 17, [0, 80, 0, 81]),
                &[("mtu", "1400"), ("error4", "1"), ("sport", "80"), ("dport", "81")],
            ),
        ]
    } else {
        let group = [&[0; 4][..], &link_local(5)].concat();
        vec![
            Message(130, 0, group.clone(), &[("mld", "fe80::5")]),
            Message(131, 0, group.clone(), &[("mld", "fe80::5")]),
            Message(132, 0, group, &[("mld", "fe80::5")]),
            Message(
                134,
                0,
                vec![64, 0, 7, 8, 0, 0, 117, 48, 0, 0, 3, 232],
                &[("lifetime", "1800"), ("reachable", "30000"), ("retransmit", "1000")],
            ),
            Message(135, 0, neighbor(), &[("target", "fe80::9")]),
            Message(136, 0, neighbor(), &[("target", "fe80::9")]),
            Message(
                137,
                0,
                [neighbor(), link_local(8).to_vec()].concat(),
                &[("target", "fe80::9"), ("destination", "fe80::8")],
            ),
            Message(
                138,
                0,
                vec![0, 0, 0, 1, 3, 65, 1, 244, 0, 0, 0, 0],
                &[("segnum", "3"), ("flags", "65"), ("maxdelay", "500")],
            ),
            Message(143, 0, [&[0, 0, 0, 2][..], &[0; 40]].concat(), &[("mars", "2")]),
            Message(
                4,
                0,
                e([0, 0, 0, 40], 6, [0, 80, 0, 81]),
                &[("ptr", "40"), ("error6", "1"), ("sport", "80"), ("dport", "81")],
            ),
            Message(3, 0, e([0; 4], 58, [128, 0, 0, 0]), &[("error6", "1")]),
            Message(
                2,
                0,
                e([0, 0, 5, 120], 17, [0, 80, 0, 81]),
                &[("mtu", "1400"), ("error6", "1"), ("sport", "80"), ("dport", "81")],
            ),
        ]
    });
    all
}

/// The messages with which the kernel answers: to each echo, to the request for a time, and to
/// three datagrams for a port without a socket.
fn answers(version: u32) -> Vec<Message> {
    let echo_type = if version == 4 { 0 } else { 129 };
    let mut all: Vec<Message> = (0..5).map(|_| Message(echo_type, 0, echo(40), ECHO)).collect();
    all.extend((0..2).map(|_| Message(echo_type, 0, echo(5000), ECHO)));
    if version == 4 {
        let times = &[("otime", "777"), ("rtime", "1"), ("ttime", "1")];
        all.push(Message(14, 0, vec![0; 16], times));
    }
    // The packet that it is about has 30 bytes.
    let about = vec![0; 4 + if version == 4 { 28 + 30 } else { 48 + 30 }];
    all.extend((0..3).map(|_| {
        if version == 4 {
            Message(3, 3, about.clone(), &[("error4", "1"), ("sport", "1001"), ("dport", "2999")])
        } else {
            Message(1, 4, about.clone(), &[("error6", "1"), ("sport", "1001"), ("dport", "2999")])
        }
    }));
    all
}

fn each_message_is_sent_and_received_once_with_what_its_type_has() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    for version in [4, 6] {
        let o = match traced("messages", version, LINES) {
            Ok(o) => o,
            Err(skip) => return skip,
        };
        // Where functions cannot be traced, of fragments the first one counts.
        let first = match (no_functions().is_some(), version) {
            (false, _) => 5008,
            (true, 4) => 1480,
            (true, _) => 1456,
        };
        let mut expected = Vec::new();
        for message in messages(version).iter().chain(&answers(version)) {
            let length = message.2.len() + 4;
            let sent = if length == 5008 { first } else { length };
            expected.push(message.line("send", version, sent));
            expected.push(message.line("receive", version, sent));
        }
        expected.sort_unstable();
        assert_eq!(lines(&o), expected, "{o:?}");
    }
    Pass
}

/// A socket for the messages of ICMP.
fn raw_socket(version: u32) -> io::Result<OwnedFd> {
    let (family, protocol) = match version {
        4 => (libc::AF_INET, libc::IPPROTO_ICMP),
        _ => (libc::AF_INET6, libc::IPPROTO_ICMPV6),
    };
    // SAFETY: a new descriptor, which is ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(checked(libc::socket(family, libc::SOCK_RAW, protocol))?) })
}

/// The sum of a message, as in its header.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks(2).map(|c| u32::from(c[0]) << 8 | u32::from(*c.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Sends the messages over a loopback with an MTU of 1500.
pub(crate) fn send_messages(version: u32) -> io::Result<()> {
    namespace(1500)?;
    exchange_messages(version)
}

/// Sends the messages, and waits for them and their answers.
pub(crate) fn exchange_messages(version: u32) -> io::Result<()> {
    let a = loopback(version);
    let socket = raw_socket(version)?;
    // A raw socket has the calls that one of UDP has.
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(std::time::Duration::from_secs(60)))?;
    let sender = UdpSocket::bind((a, 1001))?;
    for _ in 0..3 {
        sender.send_to(&[b'x'; 30], (a, 2999))?;
    }
    for Message(kind, code, body, _) in messages(version) {
        let mut bytes = [&[kind, code, 0, 0][..], &body].concat();
        if version == 4 {
            let sum = checksum(&bytes).to_be_bytes();
            bytes[2..4].copy_from_slice(&sum);
        }
        socket.send_to(&bytes, (a, 0))?;
    }
    for _ in 0..messages(version).len() + answers(version).len() {
        socket.recv(&mut [0; 6000])?;
    }
    Ok(())
}
