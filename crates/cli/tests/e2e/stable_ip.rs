//! The provider ip: each packet and fragment, against what packet sockets see of the same
//! datagrams.

use crate::Verdict::{self, Pass};
use crate::machine::no_types;
use crate::wires::{DATAGRAMS, Packet, traced};

tests! {
    each_packet_over_the_loopback_is_sent_and_received_once_with_its_headers
    each_packet_and_fragment_over_a_veth_pair_is_sent_and_received_once_with_its_headers
}

/// Protocol numbers of the traffic.
const UDP: u32 = 17;
const FRAGMENT: u32 = 44;

/// Addresses are compared in the test.
const SCRIPT: &str = "ip:genunix::send, ip:::receive \
    /args[4]->ipv4_protocol == IPPROTO_UDP || args[5]->ipv6_nexthdr == IPPROTO_UDP || args[5]->ipv6_nexthdr == IPPROTO_FRAGMENT/ \
    { printf(\"%s %s %d %s %s %d %d %d %d %d %d %d %d %d %d %s %d %d %d %d %d\\n\", probename, args[3]->if_name, \
    args[2]->ip_ver, args[2]->ip_saddr, args[2]->ip_daddr, args[2]->ip_plength, args[4]->ipv4_ver, args[4]->ipv4_ihl, \
    args[4]->ipv4_tos, args[4]->ipv4_length, args[4]->ipv4_ident, args[4]->ipv4_flags, args[4]->ipv4_offset, \
    args[4]->ipv4_ttl, args[4]->ipv4_protocol, args[4]->ipv4_saddr, args[5]->ipv6_ver, args[5]->ipv6_plen, \
    args[5]->ipv6_nexthdr, args[5]->ipv6_hlim, args[3]->if_local); }";

/// A captured packet, as the script prints it.
fn header(p: &Packet) -> String {
    let probe = if p.sent { "send" } else { "receive" };
    let [from, to] = p.addresses();
    let version = p.version();
    let byte = |at: usize| u32::from(p.bytes[at]);
    let fields: Vec<String> = if version == 4 {
        let fragment = p.u16(6);
        let numbers =
            [4, (byte(0) & 15) * 4, byte(1), p.u16(2), p.u16(4), fragment >> 12 & 14, fragment & 0x1fff];
        let all = numbers.into_iter().chain([byte(8), byte(9)]).map(|n| n.to_string());
        all.chain([from.to_string()]).chain(["0"; 4].map(String::from)).collect()
    } else {
        let none = ["0"; 9].into_iter().chain(["<unknown>"]).map(String::from);
        none.chain([6, p.u16(4), byte(6), byte(7)].map(|n| n.to_string())).collect()
    };
    let (length, local) = (p.length - p.payload(), u8::from(p.interface == "lo"));
    format!("{probe} {} {version} {from} {to} {length} {} {local}", p.interface, fields.join(" "))
}

fn packets(wire: &str, least: usize) -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    for version in [4, 6] {
        let (o, passed) = match traced("wire-datagrams", wire, version, SCRIPT) {
            Ok(found) => found,
            Err(skip) => return skip,
        };
        let ours = passed.iter().filter(|p| [UDP, FRAGMENT].contains(&p.protocol()));
        let addresses: Vec<String> = ours.clone().map(|p| p.addresses()[0].to_string()).collect();
        let mut expected: Vec<String> = ours.map(header).collect();
        let is_ours =
            |line: &&str| line.split(' ').nth(3).is_some_and(|from| addresses.iter().any(|a| a == from));
        let mut found: Vec<String> = o.out.lines().filter(is_ours).map(str::to_string).collect();
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(expected.len(), 2 * least, "{expected:#?}");
        assert_eq!(found, expected, "{wire} {version}: {}", o.err);
    }
    Pass
}

fn each_packet_over_the_loopback_is_sent_and_received_once_with_its_headers() -> Verdict {
    packets("lo", DATAGRAMS.len() + 1)
}

fn each_packet_and_fragment_over_a_veth_pair_is_sent_and_received_once_with_its_headers() -> Verdict {
    packets("veth", DATAGRAMS.len() + 1 + 2)
}
