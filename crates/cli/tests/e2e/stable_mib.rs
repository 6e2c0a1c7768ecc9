//! The provider mib, against the kernel's own counters of a network namespace.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd};

use testing::eventually;

use crate::Verdict::{self, Pass};
use crate::machine::{no_functions, no_types};
use crate::network::{checked, loopback, namespace, traced};
use crate::stable_drops::count_of_drops;
use crate::tool::{LIMIT, Output};

tests! { each_counter_is_added_to_as_the_kernel_does }

const SUMS: &str = "mib:genunix:: /arg1 == ns/ { @[probename] = sum(args[0]); } \
    END { printa(\"probe %s %@d\\n\", @); }";

/// What must have been counted. A kernel without kprobes has the first of them.
const SEEN: [&str; 28] = [
    "tcpActiveOpens",
    "tcpPassiveOpens",
    "tcpEstabResets",
    "tcpRetransSegs",
    "tcpOutRsts",
    "udpNoPorts",
    "udpInOverflows",
    "udpInDatagrams",
    "udpOutDatagrams",
    "tcpInSegs",
    "tcpOutSegs",
    "ipInReceives",
    "ipOutRequests",
    "ipReasmReqds",
    "ipFragOKs",
    "ipv6InReceives",
    "icmpInMsgs",
    "icmpOutMsgs",
    "icmpInDestUnreachs",
    "icmpInEchos",
    "icmpInEchoReps",
    "icmpInTimestamps",
    "icmpInTimestampReps",
    "icmpOutDestUnreachs",
    "icmpOutEchos",
    "icmpOutEchoReps",
    "icmpOutTimestampReps",
    "icmpInAddrMasks",
];

/// The kernel's counters that a probe adds to.
pub(crate) fn counters_of(probe: &str) -> Vec<String> {
    let (protocol, name) = probe.split_at(probe.find(char::is_uppercase).unwrap());
    match (protocol, name) {
        ("ipv6", name) => vec![format!("Ip6{name}")],
        ("udp", "InOverflows") => vec!["UdpRcvbufErrors".into(), "Udp6RcvbufErrors".into()],
        ("udp", name) => vec![format!("Udp{name}"), format!("Udp6{name}")],
        (protocol, name) => vec![format!("{}{}{name}", protocol[..1].to_uppercase(), &protocol[1..])],
    }
}

fn each_counter_is_added_to_as_the_kernel_does() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let o = match traced("counters", 1, SUMS) {
        Ok(o) => o,
        Err(skip) => return skip,
    };
    let (probes, counters) = (numbers(&o, "probe "), numbers(&o, "counter "));
    let seen = if no_functions().is_some() { &SEEN[..8] } else { &SEEN[..] };
    for name in seen {
        assert!(probes.get(name).is_some_and(|n| *n > 0), "{name}: {o:?}");
    }
    // The others are those of stable_mib_errors.
    for (probe, added) in probes.iter().filter(|(probe, _)| SEEN.contains(probe)) {
        let kernel: i64 = counters_of(probe).iter().map(|name| counters[&**name]).sum();
        assert_eq!(*added, kernel, "{probe}: {o:?}");
    }
    Pass
}

/// The lines of the output that begin with a word: names and numbers.
pub(crate) fn numbers<'a>(o: &'a Output, word: &str) -> BTreeMap<&'a str, i64> {
    let all = o.out.lines().filter_map(|l| l.strip_prefix(word));
    all.filter_map(|l| l.split_once(' ')).map(|(name, n)| (name, n.parse().unwrap())).collect()
}

/// The kernel's counters, by protocol and name.
pub(crate) type Counters = BTreeMap<String, i64>;

/// The counters of this namespace.
pub(crate) fn counters() -> io::Result<Counters> {
    let mut all = BTreeMap::new();
    let text =
        std::fs::read_to_string("/proc/self/net/snmp")? + &std::fs::read_to_string("/proc/self/net/netstat")?;
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.chunks(2) {
        let [names, values] = pair else { continue };
        let (protocol, names) = names.split_once(':').unwrap_or_default();
        let values = values.split_whitespace().skip(1);
        for (name, value) in names.split_whitespace().zip(values) {
            all.insert(format!("{protocol}{name}"), value.parse().unwrap_or(0));
        }
    }
    for line in std::fs::read_to_string("/proc/self/net/snmp6")?.lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(value)) = (words.next(), words.next()) {
            all.insert(name.to_string(), value.parse().unwrap_or(0));
        }
    }
    Ok(all)
}

/// Moves all counters in a namespace, and prints by how much.
pub(crate) fn move_counters() -> io::Result<()> {
    namespace(1500)?;
    let before = counters()?;
    for version in [4, 6] {
        connections(loopback(version))?;
        datagrams(loopback(version))?;
    }
    crate::stable_icmp::exchange_messages(4)?;
    retransmission(before.get("TcpRetransSegs").copied().unwrap_or(0))?;
    // All connections have ended, and what was sent to nobody was answered.
    crate::wires::quiet()?;
    let grown = |now: &BTreeMap<String, i64>, name: &str| now[name] - before.get(name).copied().unwrap_or(0);
    let is_last = |now: &BTreeMap<String, i64>| {
        let answered =
            |family: &str| ["In", "Out"].map(|way| grown(now, &format!("{family}{way}DestUnreachs")));
        grown(now, "UdpNoPorts") >= 6
            && grown(now, "Udp6NoPorts") >= 3
            && ["Icmp", "Icmp6"].iter().all(|family| answered(family)[0] == answered(family)[1])
    };
    let after = eventually("the last messages", LIMIT, || match counters() {
        Ok(now) => is_last(&now).then_some(Ok(now)),
        Err(e) => Some(Err(e)),
    })?;
    print_grown(&before, &after);
    Ok(())
}

/// Prints by how much each counter has grown.
pub(crate) fn print_grown(before: &Counters, after: &Counters) {
    for (name, value) in after {
        println!("counter {name} {}", value - before.get(name).copied().unwrap_or(0));
    }
}

/// A connection that ends in order, one that is reset, one that is refused.
fn connections(a: IpAddr) -> io::Result<()> {
    let listener = TcpListener::bind((a, 0))?;
    let connect = || -> io::Result<(TcpStream, TcpStream)> {
        let client = TcpStream::connect(listener.local_addr()?)?;
        Ok((client, listener.accept()?.0))
    };
    let (mut client, mut server) = connect()?;
    client.write_all(&[b'x'; 10_000])?;
    server.read_exact(&mut [0; 10_000])?;
    drop(client);
    let _ = server.read(&mut [0])?;
    drop(server);
    let (client, mut server) = connect()?;
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = std::mem::size_of::<libc::linger>() as u32;
    let option = (libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast());
    // SAFETY: a struct that lives across the call.
    checked(unsafe { libc::setsockopt(client.as_raw_fd(), option.0, option.1, option.2, size) })?;
    drop(client);
    let _ = server.read(&mut [0]);
    let closed = SocketAddr::new(a, 2998);
    assert!(TcpStream::connect(closed).is_err());
    Ok(())
}

/// Datagrams that are read, one of them twice, in fragments, for nobody, and too many.
fn datagrams(a: IpAddr) -> io::Result<()> {
    let (sender, receiver) = (UdpSocket::bind((a, 1001))?, UdpSocket::bind((a, 2002))?);
    for payload in [100, 0, 50, 10_000, 10_000] {
        sender.send_to(&vec![b'x'; payload], (a, 2002))?;
        if payload == 50 {
            receiver.peek(&mut [0; 100])?;
        }
        receiver.recv(&mut [0; 20_000])?;
    }
    (0..3).try_for_each(|_| sender.send_to(&[b'x'; 30], (a, 2999)).map(drop))?;
    count_of_drops(&sender, &receiver)?;
    Ok(())
}

/// A segment that is sent again: a listener whose queue is full takes no more.
fn retransmission(before: i64) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:2003")?;
    // SAFETY: no pointers. A new length of the queue.
    checked(unsafe { libc::listen(listener.as_raw_fd(), 0) })?;
    let _first = TcpStream::connect("127.0.0.1:2003")?;
    // SAFETY: a new descriptor, which is ours alone.
    let second = unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK;
        TcpStream::from_raw_fd(checked(libc::socket(libc::AF_INET, kind, 0))?)
    };
    // SAFETY: the struct is plain data, for which zero bytes are valid, and lives across the call.
    unsafe {
        let mut to: libc::sockaddr_in = std::mem::zeroed();
        to.sin_family = libc::AF_INET as u16;
        to.sin_port = 2003u16.to_be();
        to.sin_addr.s_addr = u32::from_be_bytes([127, 0, 0, 1]).to_be();
        let size = std::mem::size_of::<libc::sockaddr_in>() as u32;
        libc::connect(second.as_raw_fd(), (&raw const to).cast(), size);
    }
    eventually("a segment that is sent again", LIMIT, || match counters() {
        Ok(now) => (now.get("TcpRetransSegs").copied().unwrap_or(0) != before).then_some(Ok(())),
        Err(e) => Some(Err(e)),
    })
}
