//! The provider tcp: each segment, against what packet sockets see of the same connections; the
//! beginnings of connections, and their states.

use std::collections::{BTreeMap, BTreeSet};

use crate::Verdict::{self, Pass};
use crate::machine::{no_functions, no_types};
use crate::tool::Output;
use crate::wires::{PORTS, Packet, address, traced};

tests! {
    each_segment_over_the_loopback_is_sent_and_received_once_with_its_header_and_socket
    each_segment_over_a_veth_pair_is_sent_and_received_once_with_its_header_and_socket
    connections_are_requested_established_and_refused_once
    a_connection_has_its_states_in_order_and_the_last_in_time_wait
    each_probe_of_a_connection_has_its_number
}

const SERVER: u16 = PORTS[0];
const CLIENT: u16 = PORTS[1];
const REFUSED: u16 = PORTS[2];
const NOBODY: u16 = PORTS[3];

/// The words of the lines that begin with one.
fn rows<'a>(o: &'a Output, word: &str) -> Vec<Vec<&'a str>> {
    let all = o.out.lines().map(|l| l.split(' ').collect::<Vec<_>>());
    all.filter(|words| words[0] == word).map(|words| words[1..].to_vec()).collect()
}

/// Segments of these ports. Addresses are compared in the test.
fn segments_script() -> String {
    let is_ours = [SERVER, NOBODY].map(|p| format!("args[4]->tcp_sport == {p} || args[4]->tcp_dport == {p}"));
    format!(
        "tcp:ip:tcp_output:send, tcp:::receive /{}/ {{ printf(\"%s %d %s %s %d %d %d %d %d %d %u %u %d %s %s %d %d %d\\n\", \
         probename, args[2]->ip_ver, args[2]->ip_saddr, args[2]->ip_daddr, args[4]->tcp_sport, args[4]->tcp_dport, \
         args[2]->ip_plength, args[4]->tcp_offset, args[4]->tcp_flags, args[4]->tcp_window, args[4]->tcp_seq, \
         args[4]->tcp_ack, args[1]->cs_addr == args[3]->tcps_addr, args[3]->tcps_laddr, args[3]->tcps_raddr, \
         args[3]->tcps_lport, args[3]->tcps_rport, args[3]->tcps_addr == 0 ? 0 : args[3]->tcps_state); }}",
        is_ours.join(" || ")
    )
}

/// A captured segment, as the script prints the header.
fn header(p: &Packet) -> (bool, String) {
    let [from, to] = p.addresses();
    let at = p.payload();
    let text = format!(
        "{} {from} {to} {} {} {} {} {} {} {} {}",
        p.version(),
        p.u16(at),
        p.u16(at + 2),
        p.length - at,
        p.bytes[at + 12] >> 4 << 2,
        p.bytes[at + 13],
        p.u16(at + 14),
        p.u32(at + 4),
        p.u32(at + 8)
    );
    (p.sent, text)
}

const RST: u32 = 4;
const LISTEN: u32 = 10;

fn segments(wire: &str) -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let has_functions = no_functions().is_none();
    for version in [4, 6] {
        let (o, passed) = match traced("conversation", wire, version, &segments_script()) {
            Ok(found) => found,
            Err(skip) => return skip,
        };
        let tcp = passed.iter().filter(|p| p.protocol() == 6).map(header);
        let (mut expected, addresses): (Vec<_>, Vec<_>) = tcp
            .map(|(sent, text)| ((sent, text.clone()), text.split(' ').nth(1).unwrap().to_string()))
            .unzip();
        let mut found = Vec::new();
        for probe in ["send", "receive"] {
            for row in rows(&o, probe).into_iter().filter(|row| addresses.iter().any(|a| a == row[1])) {
                found.push((probe == "send", row[..11].join(" ")));
                socket(probe, &row, has_functions, &o);
            }
        }
        expected.sort_unstable();
        found.sort_unstable();
        // Two connections of several segments each, and what refuses the third.
        assert!(expected.len() >= 2 * (2 * 8 + 2), "{expected:#?}");
        let rows: BTreeSet<_> = expected.iter().chain(&found).collect();
        let count = |of: &[(bool, String)], row| of.iter().filter(|r| *r == row).count();
        let wrong: Vec<_> = rows
            .into_iter()
            .map(|row| (count(&expected, row), count(&found, row), row))
            .filter(|(passed, fired, _)| passed != fired)
            .collect();
        assert!(wrong.is_empty(), "{wire} {version}: (passed, fired, segment) {wrong:#?}\n{}", o.err);
    }
    Pass
}

/// The socket of a segment has its addresses and ports.
fn socket(probe: &str, row: &[&str], has_functions: bool, o: &Output) {
    let (from, to) = ((row[1], row[3]), (row[2], row[4]));
    let (local, remote) = ((row[12], row[14]), (row[13], row[15]));
    let (flags, state): (u32, u32) = (row[7].parse().unwrap(), row[16].parse().unwrap());
    assert_eq!(row[11], "1", "{row:?}");
    match (probe, state) {
        // What is sent for no connection, on older kernels also for one in TIME_WAIT.
        ("send", 0) => {
            assert!(flags & RST != 0 || flags == 0x10, "{row:?} {o:?}");
            assert_eq!((local, remote), (from, to), "{row:?}");
        }
        ("send", _) => assert_eq!((local, remote), (from, to), "{row:?}"),
        (_, LISTEN) => assert_eq!(local.1, to.1, "{row:?}"),
        _ => assert_eq!((local, remote), (to, from), "{row:?}"),
    }
    // A SYN that is refused has no socket.
    let is_known = has_functions && row[4] != NOBODY.to_string();
    if probe == "receive" && (is_known || !has_functions) {
        assert_eq!(state != 0, is_known, "{row:?}");
    }
}

fn each_segment_over_the_loopback_is_sent_and_received_once_with_its_header_and_socket() -> Verdict {
    segments("lo")
}

fn each_segment_over_a_veth_pair_is_sent_and_received_once_with_its_header_and_socket() -> Verdict {
    segments("veth")
}

fn connections_are_requested_established_and_refused_once() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let has_functions = no_functions().is_none();
    let script = "tcp:::connect-*, tcp:::accept-* { printf(\"%s %d %s %s %d %d %d %d %d %s\\n\", probename, \
        args[2]->ip_ver, args[2]->ip_saddr, args[2]->ip_daddr, args[4]->tcp_sport, args[4]->tcp_dport, \
        args[4]->tcp_flags, args[3]->tcps_lport, args[3]->tcps_rport, tcp_state_string[args[3]->tcps_state]); }";
    for version in [4, 6] {
        let address = &*address("lo", version, std::process::id(), 1).to_string();
        let (o, _) = match traced("conversation", "lo", version, script) {
            Ok(found) => found,
            Err(skip) => return skip,
        };
        let [server, client, refused, nobody] = PORTS;
        let to_server = format!("{version} {address} {address} {client} {server}");
        let to_client = format!("{version} {address} {address} {server} {client}");
        let to_nobody = format!("{version} {address} {address} {refused} {nobody}");
        let to_refused = format!("{version} {address} {address} {nobody} {refused}");
        // Flags are only those of a packet.
        let flags = |flags: u32| if has_functions { flags } else { 0 };
        let expected = [
            (
                "connect-request",
                vec![
                    format!("{to_server} 2 {client} {server} state-syn-sent"),
                    format!("{to_server} 2 {client} {server} state-syn-sent"),
                    format!("{to_nobody} 2 {refused} {nobody} state-syn-sent"),
                ],
            ),
            (
                "connect-established",
                vec![format!("{to_client} {} {client} {server} state-established", flags(0x12)); 2],
            ),
            (
                "accept-established",
                vec![format!("{to_server} {} {server} {client} state-established", flags(0x10)); 2],
            ),
            (
                "connect-refused",
                vec![format!("{to_refused} {} {refused} {nobody} state-syn-sent", flags(0x14))],
            ),
            ("accept-refused", vec![format!("{to_refused} 20 {nobody} {refused} state-closed")]),
        ];
        for (probe, expected) in expected {
            let found = rows(&o, probe).into_iter().filter(|row| row[1] == address);
            let mut found: Vec<String> = found.map(|row| row.join(" ")).collect();
            if probe == "accept-established" {
                // On a slow machine the acknowledgement may come with the first data (PSH).
                found.iter_mut().for_each(|row| *row = row.replace(" 24 ", " 16 "));
            }
            assert_eq!(found, expected, "{probe}: {o:?}");
        }
    }
    Pass
}

fn a_connection_has_its_states_in_order_and_the_last_in_time_wait() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let has_functions = no_functions().is_none();
    let script = "tcp:::state-change { printf(\"state %s %d %d %s %s %d\\n\", args[3]->tcps_laddr, \
        args[3]->tcps_lport, args[3]->tcps_rport, tcp_state_string[args[5]->tcps_state], \
        tcp_state_string[args[3]->tcps_state], args[1]->cs_addr == args[3]->tcps_addr && args[0] == NULL); }";
    for version in [4, 6] {
        let address = &*address("lo", version, std::process::id(), 1).to_string();
        let (o, _) = match traced("conversation", "lo", version, script) {
            Ok(found) => found,
            Err(skip) => return skip,
        };
        let all = rows(&o, "state");
        let of = |port: u16| -> Vec<String> {
            let mine = all.iter().filter(|row| row[0] == address && row[1] == port.to_string());
            mine.map(|row| {
                assert_eq!(row[5], "1", "{row:?}");
                format!("{} {}", &row[3][6..], &row[4][6..])
            })
            .collect()
        };
        let mut expected: Vec<&str> = vec![
            "closed syn-sent",
            "syn-sent established",
            "established close-wait",
            "close-wait last-ack",
            "last-ack closed",
            "closed syn-sent",
            "syn-sent established",
            "established fin-wait-1",
            "fin-wait-1 fin-wait-2",
            if has_functions { "fin-wait-2 time-wait" } else { "fin-wait-2 closed" },
        ];
        let mut client = of(CLIENT);
        // It ends with its network.
        if client.last().is_some_and(|last| last == "time-wait closed") {
            client.pop();
        }
        assert_eq!(client, expected, "{o:?}");
        expected = vec![
            "closed listen",
            "listen syn-received",
            "syn-received established",
            "established fin-wait-1",
            "fin-wait-1 fin-wait-2",
        ];
        match has_functions {
            // The new connection ends the TIME_WAIT of the one before.
            true => expected.extend(["fin-wait-2 time-wait", "time-wait closed"]),
            false => expected.push("fin-wait-2 closed"),
        }
        expected.extend([
            "listen syn-received",
            "syn-received established",
            "established close-wait",
            "close-wait last-ack",
            "last-ack closed",
            "listen closed",
        ]);
        assert_eq!(of(SERVER), expected, "{o:?}");
        assert_eq!(of(REFUSED), ["closed syn-sent", "syn-sent closed"], "{o:?}");
    }
    Pass
}

fn each_probe_of_a_connection_has_its_number() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let has_functions = no_functions().is_none();
    let script = "tcp::: { printf(\"end %s %d %d %x %s\\n\", args[3]->tcps_laddr, args[3]->tcps_lport, \
        args[3]->tcps_rport, args[1]->cs_cid, probename); }";
    for version in [4, 6] {
        let address = &*address("lo", version, std::process::id(), 1).to_string();
        let (o, _) = match traced("conversation", "lo", version, script) {
            Ok(found) => found,
            Err(skip) => return skip,
        };
        // By local and remote port: the numbers, and the probes.
        let mut ends: BTreeMap<(u16, u16), [BTreeSet<&str>; 2]> = BTreeMap::new();
        for row in rows(&o, "end").into_iter().filter(|row| row[0] == address) {
            let [numbers, probes] =
                ends.entry((row[1].parse().unwrap(), row[2].parse().unwrap())).or_default();
            numbers.insert(row[3]);
            probes.insert(row[4]);
        }
        // A SYN comes to the listener, where the socket is known.
        let listener: &[&str] = if has_functions { &["receive", "state-change"] } else { &["state-change"] };
        let expected: [(_, &[&str]); 5] = [
            ((SERVER, 0), listener),
            ((SERVER, CLIENT), &["accept-established", "receive", "send", "state-change"]),
            (
                (CLIENT, SERVER),
                &["connect-established", "connect-request", "receive", "send", "state-change"],
            ),
            ((REFUSED, NOBODY), &["connect-refused", "connect-request", "receive", "send", "state-change"]),
            ((NOBODY, REFUSED), &["accept-refused", "receive", "send"]),
        ];
        assert_eq!(ends.len(), expected.len(), "{ends:?}");
        let mut all: BTreeSet<&str> = BTreeSet::new();
        for (ports, probes) in expected {
            let [numbers, found] = &ends[&ports];
            assert_eq!(found.iter().copied().collect::<Vec<_>>(), probes, "{ports:?}: {ends:?}");
            assert_eq!(numbers.len(), 1, "{version} {ports:?}: {ends:?}\n{}", o.out);
            all.extend(numbers);
        }
        assert!(all.len() == 5 && !all.contains("0"), "{ends:?}");
    }
    Pass
}
