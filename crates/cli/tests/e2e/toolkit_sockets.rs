//! More tools for the network, with sockets of this process and with packets of a namespace.

use std::net::{Ipv4Addr, TcpListener, TcpStream};

use crate::Verdict::{self, Pass};
use crate::machine::no_types;
use crate::tool::Output;
use crate::toolkit::{Program, distribution, rows_with, start};
use crate::toolkit_net::{exchange, me};

tests! {
    tcpretrans_prints_segments_that_are_sent_again
    tcpstates_prints_each_change_of_a_connection
    tcpconnlat_tcprtt_and_tcpwdist_measure_a_connection
    tcpconnlat_forgets_sockets_that_are_closed
    tcpsynbl_shows_the_connections_that_wait
    counters_of_protocols_are_summed_in_intervals
    nettop_counts_the_packets_of_an_interface
}

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// More sockets than a tool has memory for.
const CLOSED: usize = 10_000;

fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port.to_string())
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

/// How many connections of a socket that listens nobody has accepted.
fn waiting(listener: &TcpListener) -> u32 {
    // SAFETY: an all-zero `tcp_info` is valid, and the kernel writes as much as fits.
    let info = unsafe {
        let mut info: libc::tcp_info = std::mem::zeroed();
        let mut size = size_of::<libc::tcp_info>() as libc::socklen_t;
        let fd = std::os::fd::AsRawFd::as_raw_fd(listener);
        let result =
            libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut size);
        assert_eq!(result, 0);
        info
    };
    info.tcpi_unacked
}

fn tcpconnlat_forgets_sockets_that_are_closed() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let (listener, port) = listener();
    // SAFETY: no pointers. The queue has room for one, which fills it.
    assert_eq!(unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&listener), 0) }, 0);
    let address = listener.local_addr().unwrap();
    let _first = TcpStream::connect(address).unwrap();
    while waiting(&listener) < 1 {
        std::thread::yield_now();
    }
    let tracing = start("tcpconnlat", &["-p", &std::process::id().to_string()]);
    let (to, size) = (sockaddr(&port), size_of::<libc::sockaddr_in>() as libc::socklen_t);
    // Nobody answers, and nobody waits for an answer. There is memory for fewer sockets than these.
    // Those that are open together have addresses of their own.
    for _ in 0..CLOSED / 500 {
        // SAFETY: an address that lives, and descriptors of our own.
        unsafe {
            let fds: Vec<i32> = (0..500)
                .map(|_| {
                    let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0);
                    libc::connect(fd, (&raw const to).cast(), size);
                    fd
                })
                .collect();
            fds.into_iter().for_each(|fd| _ = libc::close(fd));
        }
    }
    let o = tracing.end().code(0);
    assert_eq!((o.err.as_str(), rows_with(&o, &port)), ("", vec![]), "{o:?}");
    Pass
}

/// The address of a port of this machine.
fn sockaddr(port: &str) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.parse::<u16>().unwrap().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(HERE).to_be() },
        sin_zero: [0; 8],
    }
}

fn tcpsynbl_shows_the_connections_that_wait() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let (listener, port) = listener();
    // SAFETY: no pointers. A new length of the queue.
    assert_eq!(unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&listener), 23) }, 0);
    let other = self::listener();
    let tracing = start("tcpsynbl", &["-P", &port]);
    let connect = |to: &TcpListener| TcpStream::connect(to.local_addr().unwrap()).unwrap();
    let _clients = [&listener, &other.0, &listener, &listener].map(connect);
    // Nobody accepts them.
    while waiting(&listener) < 3 {
        std::thread::yield_now();
    }
    let o = tracing.end().code(0);
    let rows = distribution(&o, &format!("port {port}, at most 23 in the queue"));
    assert_eq!(rows, [("0", 1), ("1", 1), ("2", 1)].map(|(v, n)| (v.to_string(), n)), "{o:?}");
    assert_eq!(o.out.matches("port ").count(), 1, "{o:?}");
    Pass
}

fn counters_of_protocols_are_summed_in_intervals() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let program = Program::workload("tk");
    let tracing = ["tcpstat", "udpstat", "icmpstat"].map(|tool| start(tool, &["3600"]));
    // Connections, datagrams and messages in a namespace, and how much the kernel's counters of it
    // grew.
    let done =
        program.command(&["--workload", "counters", "1"]).stdout(std::process::Stdio::piped()).output();
    let done = done.unwrap();
    let o = tracing.map(|t| t.end().code(0));
    if !done.status.success() {
        return Verdict::Skip("no network namespace can be made here".into());
    }
    let said = Output { code: Some(0), out: String::from_utf8(done.stdout).unwrap(), err: String::new() };
    let kernel = crate::stable_mib::numbers(&said, "counter ");
    for (o, protocol) in o.iter().zip(["tcp", "udp", "icmp"]) {
        assert_eq!(rows_with(o, "STATISTIC COUNT").len(), 1, "{o:?}");
        let listed = crate::tool::dtrace(&["-ln", &format!("mib:::{protocol}*")]);
        let names = listed
            .out
            .lines()
            .filter_map(|l| l.split_whitespace().last())
            .filter(|n| n.starts_with(protocol));
        let mut counted = 0;
        for name in names {
            let counters = crate::stable_mib::counters_of(name);
            let least: i64 = counters.iter().filter_map(|c| kernel.get(&**c)).sum();
            let start = format!("{name} ");
            let rows = rows_with(o, &start);
            let shown = rows.iter().find_map(|l| l.strip_prefix(&start)?.parse::<i64>().ok()).unwrap_or(0);
            // Other namespaces have some too.
            assert!(shown >= least, "{name}: {shown} {least} {o:?} {said:?}");
            counted += least;
        }
        // Without functions of the kernel some counters are not probes.
        assert!(counted > 0 || crate::machine::no_functions().is_some(), "{protocol}: {said:?}");
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
