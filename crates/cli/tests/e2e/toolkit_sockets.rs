//! More tools for the network, with sockets of this process and with packets of a namespace.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use crate::Verdict::{self, Pass};
use crate::machine::no_types;
use crate::tool::Output;
use crate::toolkit::{Program, distribution, rows_with, start};
use crate::toolkit_net::me;

tests! {
    tcpretrans_prints_segments_that_are_sent_again
    tcpstates_prints_each_change_of_a_connection
    tcpconnlat_tcprtt_and_tcpwdist_measure_a_connection
    tcpsynbl_shows_the_connections_that_wait
    counters_of_protocols_are_summed_in_intervals
    nettop_counts_the_packets_of_an_interface
}

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port.to_string())
}

/// A thousand bytes there, ten back; then both ends are closed, the client's first.
fn exchange(listener: &TcpListener) -> u16 {
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(&[b'x'; 1000]).unwrap();
    server.read_exact(&mut [0; 1000]).unwrap();
    server.write_all(&[b'y'; 10]).unwrap();
    client.read_exact(&mut [0; 10]).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
    drop(server);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    client.local_addr().unwrap().port()
}

fn tcpretrans_prints_segments_that_are_sent_again() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let program = Program::workload("tk");
    let tracing = start("tcpretrans", &["-P", "2003"]);
    // In a namespace of its own a connection is refused silently, as a queue is full.
    let output = program.command(&["--workload", "counters", "1"]).status().unwrap();
    let o = tracing.end().code(0);
    if !output.success() {
        return Verdict::Skip("no network namespace can be made here".into());
    }
    let rows = rows_with(&o, " 127.0.0.1 2003 ");
    assert!(!rows.is_empty() && rows.iter().all(|l| l.ends_with(" state-syn-sent")), "{o:?}");
    Pass
}

fn tcpstates_prints_each_change_of_a_connection() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let (listener, port) = listener();
    let tracing = start("tcpstates", &["-P", &port]);
    let client = exchange(&listener);
    drop(listener);
    let o = tracing.end().code(0);
    // The client's end: between the time of day, four words, and the time in the state.
    let start = format!("{HERE} {client} {HERE} {port} ");
    let states: Vec<String> = rows_with(&o, &start)
        .iter()
        .filter_map(|l| Some(l.split_once(&start)?.1.rsplit_once(' ')?.0.replace("state-", "")))
        .collect();
    let expected = [
        "syn-sent -> established",
        "established -> fin-wait-1",
        "fin-wait-1 -> fin-wait-2",
        "fin-wait-2 -> closed",
    ];
    // The address of the client's end is chosen behind the first change.
    let from = states.len().saturating_sub(expected.len());
    assert_eq!(states[from..], expected, "{o:?}");
    let server = format!("{HERE} {port} {HERE} {client} ");
    for change in
        ["established -> state-close-wait", "close-wait -> state-last-ack", "last-ack -> state-closed"]
    {
        let of = rows_with(&o, &server);
        assert_eq!(of.iter().filter(|l| l.contains(change)).count(), 1, "{change}: {o:?}");
    }
    Pass
}

fn tcpconnlat_tcprtt_and_tcpwdist_measure_a_connection() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let (listener, port) = listener();
    let own = std::process::id().to_string();
    let all = start("tcpconnlat", &["-p", &own]);
    let slow = start("tcpconnlat", &["-p", &own, "600000"]);
    let rtt = start("tcprtt", &["-a", "-P", &port]);
    let sizes = start("tcpwdist", &[]);
    let client = exchange(&listener);
    let [all, slow, rtt, sizes] = [all, slow, rtt, sizes].map(|t| t.end().code(0));
    let start = format!("{} {HERE} {client} {HERE} {port} ", me());
    let rows = rows_with(&all, &start);
    let [row] = &rows[..] else { panic!("{all:?}") };
    assert!(row.strip_prefix(&start).is_some_and(|w| w.parse::<u64>().is_ok()), "{all:?}");
    assert_eq!(rows_with(&slow, &port), [""; 0], "{slow:?}");
    let trips: i64 = distribution(&rtt, "127.0.0.1").iter().map(|(_, n)| n).sum();
    assert!(trips >= 2, "{rtt:?}");
    let rows = distribution(&sizes, &me());
    let count = |value: &str| rows.iter().find(|(v, _)| v == value).map_or(0, |(_, n)| *n);
    // 1,000 bytes, and 10.
    assert_eq!((count("512"), count("8")), (1, 1), "{sizes:?}");
    Pass
}

fn tcpsynbl_shows_the_connections_that_wait() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let (listener, port) = listener();
    // SAFETY: no pointers. A new length of the queue.
    assert_eq!(unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&listener), 23) }, 0);
    let tracing = start("tcpsynbl", &["-p", &std::process::id().to_string()]);
    let _clients = [0; 3].map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
    let _servers = [0; 3].map(|_| listener.accept().unwrap());
    let o = tracing.end().code(0);
    let rows = distribution(&o, &format!("port {port}, at most 23 in the queue"));
    assert_eq!(rows, [("1", 1), ("2", 1), ("3", 1)].map(|(v, n)| (v.to_string(), n)), "{o:?}");
    Pass
}

fn counters_of_protocols_are_summed_in_intervals() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let (listener, _) = listener();
    let tracing = ["tcpstat", "udpstat", "icmpstat"].map(|tool| start(tool, &["3600"]));
    for _ in 0..3 {
        exchange(&listener);
    }
    // What is sent to a port where nobody is is answered by a message.
    let socket = std::net::UdpSocket::bind((HERE, 0)).unwrap();
    let nobody = {
        let other = std::net::UdpSocket::bind((HERE, 0)).unwrap();
        other.local_addr().unwrap()
    };
    for _ in 0..4 {
        socket.send_to(b"x", nobody).unwrap();
    }
    let [tcp, udp, icmp] = tracing.map(|t| t.end().code(0));
    let number = |o: &Output, name: &str| -> i64 {
        rows_with(o, name).iter().find_map(|l| l.strip_prefix(name)?.trim().parse().ok()).unwrap_or(-1)
    };
    // Without functions of the kernel some counters are not probes.
    for (o, name, least) in
        [(&tcp, "tcpActiveOpens ", 3), (&tcp, "tcpPassiveOpens ", 3), (&udp, "udpOutDatagrams ", 4)]
    {
        let listed = crate::tool::dtrace(&["-ln", &format!("mib:::{}", name.trim())]).code == Some(0);
        assert!(!listed || number(o, name) >= least, "{name}: {o:?}");
    }
    for o in [&tcp, &udp, &icmp] {
        assert_eq!(rows_with(o, "STATISTIC COUNT").len(), 1, "{o:?}");
    }
    Pass
}

fn nettop_counts_the_packets_of_an_interface() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let (one, two) =
        (std::net::UdpSocket::bind((HERE, 0)).unwrap(), std::net::UdpSocket::bind((HERE, 0)).unwrap());
    let tracing = start("nettop", &["-C", "3600"]);
    for _ in 0..50 {
        one.send_to(&[b'x'; 1000], two.local_addr().unwrap()).unwrap();
        two.recv(&mut [0; 1000]).unwrap();
    }
    let o = tracing.end().code(0);
    for direction in ["in", "out"] {
        let start = format!("lo {direction} ");
        let rows = rows_with(&o, &start);
        let words: Vec<u64> = rows[0][start.len()..].split(' ').map(|w| w.parse().unwrap()).collect();
        // 28 bytes of headers and 1,000 each; others use the interface too.
        assert!(words[0] >= 50 * 1028 && words[1] >= 50, "{o:?}");
    }
    Pass
}
