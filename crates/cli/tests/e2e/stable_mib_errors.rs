//! The provider mib: what is wrong, late or refused, against the kernel's own counters of a network
//! namespace, and against what the workload knows where the kernel has no counter.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use testing::eventually;

use crate::Verdict::{self, Pass};
use crate::machine::{no_functions, no_types};
use crate::network::{checked, namespace, traced};
use crate::stable_mib::{Counters, counters, numbers, print_grown};
use crate::tool::LIMIT;

tests! { each_counter_of_errors_is_added_to_as_the_kernel_does }

const SUMS: &str =
    "mib::: /arg1 == ns/ { @[probename] = sum(args[0]); } END { printa(\"probe %s %@d\\n\", @); }";

/// The probes, and the kernel's counters that are their sum. A probe without a counter has what the
/// workload knows. A kernel without kprobes has those of the first part.
const PROBES: &[(&str, &[&str])] = &[
    ("tcpInErrs", &["TcpInErrs"]),
    ("udpInErrors", &["UdpInErrors", "Udp6InErrors"]),
    ("udpInCksumErrs", &["UdpInCsumErrors", "Udp6InCsumErrors"]),
    ("ipInHdrErrors", &["IpInHdrErrors"]),
    ("ipInCksumErrs", &["IpExtInCsumErrors"]),
    ("ipInUnknownProtos", &["IpInUnknownProtos"]),
    ("icmpInCksumErrs", &["IcmpInCsumErrors"]),
    ("tcpInDataPastWinSegs", &[]),
    ("tcpInDataPastWinBytes", &[]),
    ("tcpAttemptFails", &["TcpAttemptFails"]),
    ("tcpOutAckDelayed", &["TcpExtDelayedACKs"]),
    ("tcpOutWinProbe", &["TcpExtTCPWinProbe"]),
    ("tcpTimKeepaliveProbe", &["TcpExtTCPKeepAlive"]),
    ("tcpTimRetrans", &["TcpExtTCPTimeouts"]),
    ("tcpTimRetransDrop", &["TcpExtTCPAbortOnTimeout"]),
    ("tcpListenDrop", &["TcpExtListenOverflows"]),
    ("tcpInDataUnorderSegs", &["TcpExtTCPOFOQueue"]),
    ("tcpInDataUnorderBytes", &[]),
    ("udpOutErrors", &["UdpSndbufErrors", "Udp6SndbufErrors"]),
    ("ipInDelivers", &["IpInDelivers"]),
    ("ipOutDiscards", &["IpOutDiscards"]),
    ("ipOutNoRoutes", &["IpOutNoRoutes"]),
    ("ipReasmOKs", &["IpReasmOKs"]),
    ("ipReasmFails", &["IpReasmFails"]),
    ("ipFragCreates", &["IpFragCreates"]),
    ("icmpInErrors", &["IcmpInErrors"]),
    ("tcpOutDataBytes", &[]),
    ("tcpInDataInorderBytes", &[]),
];
const OF_TRACEPOINTS: usize = 9;

fn each_counter_of_errors_is_added_to_as_the_kernel_does() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let o = match traced("wrong-packets", 1, SUMS) {
        Ok(o) => o,
        Err(skip) => return skip,
    };
    let (probes, kernel, known) = (numbers(&o, "probe "), numbers(&o, "counter "), numbers(&o, "known "));
    let there = if no_functions().is_some() { &PROBES[..OF_TRACEPOINTS] } else { PROBES };
    let of = |probe: &str| probes.get(probe).copied().unwrap_or(0);
    let mut wrong = Vec::new();
    for (probe, counters) in there {
        let seen = of(probe);
        let counted = match counters {
            [] => known[probe],
            // The second datagram is wrong in the queue of a socket, which is seen where functions
            // can be traced.
            _ if probe.starts_with("udpIn") && no_functions().is_some() => 1,
            counters => counters.iter().map(|name| kernel[name]).sum(),
        };
        if seen != counted || counted == 0 {
            wrong.push(format!("{probe}: {seen} seen, {counted} counted"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?} {o:?}");
    // What is sent again was there before.
    assert_eq!(of("tcpInDataDupBytes"), 10 + of("tcpRetransBytes"), "{o:?}");
    if no_functions().is_none() {
        assert_eq!(of("tcpInDataInorderSegs"), of("tcpOutDataSegs"), "{o:?}");
        // SYN and FIN are acknowledged as a byte each.
        let acknowledged = of("tcpInAckBytes") - known["tcpOutDataBytes"];
        assert!((0..=of("tcpOutControl")).contains(&acknowledged), "{o:?}");
    }
    Pass
}

/// Moves the counters of errors, and prints by how much, in a namespace of its own.
pub(crate) fn move_counters_of_errors() -> io::Result<()> {
    namespace(1500)?;
    let before = counters()?;
    let grows = |name: &str| {
        eventually(name, LIMIT, || match counters() {
            Ok(now) => (of(&now, name) != of(&before, name)).then_some(Ok(())),
            Err(e) => Some(Err(e)),
        })
    };
    let raw = raw_socket()?;
    raw.wrong_segments()?;
    raw.wrong_datagrams()?;
    grows("UdpInCsumErrors")?;
    raw.send(&packet(253, &[0; 8]))?;
    raw.send(&packet(1, &[8, 0, 1, 1, 0, 0, 0, 0]))?;
    let mut unknown = vec![50, 0, 0, 0, 0, 0, 0, 0];
    fill_checksum(&mut unknown, 2, 0);
    raw.send(&packet(1, &unknown))?;
    wrong_headers()?;
    no_route()?;
    too_much()?;
    // The rest of this packet never comes.
    std::fs::write("/proc/sys/net/ipv4/ipfrag_time", "1")?;
    let mut first = packet(17, &[0; 16]);
    first[6] = 0x20;
    raw.send(&first)?;
    joined()?;
    assert!(TcpStream::connect("127.0.0.1:2998").is_err());
    let mut sent = raw.segments_out_of_order()?;
    sent += delayed(&grows)?;
    keepalive(&grows)?;
    sent += closed_window(&grows)?;
    refused_by_time()?;
    grows("IpReasmFails")?;
    crate::wires::quiet()?;
    let after = eventually("the last counters", LIMIT, || match (counters(), counters()) {
        (Ok(a), Ok(b)) => (a == b).then_some(Ok(a)),
        (Err(e), _) | (_, Err(e)) => Some(Err(e)),
    })?;
    print_grown(&before, &after);
    for (probe, value) in [
        ("tcpInDataPastWinSegs", 1),
        ("tcpInDataPastWinBytes", 10),
        ("tcpInDataUnorderBytes", 10),
        ("tcpOutDataBytes", sent),
        ("tcpInDataInorderBytes", sent),
    ] {
        println!("known {probe} {value}");
    }
    Ok(())
}

fn of(counters: &Counters, name: &str) -> i64 {
    counters.get(name).copied().unwrap_or(0)
}

/// A socket that sends packets as they are.
struct Raw(OwnedFd);

fn raw_socket() -> io::Result<Raw> {
    // SAFETY: no pointers; a new descriptor, which is ours alone.
    let fd = unsafe { checked(libc::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW))? };
    // SAFETY: as above.
    Ok(Raw(unsafe { OwnedFd::from_raw_fd(fd) }))
}

impl Raw {
    fn send(&self, packet: &[u8]) -> io::Result<()> {
        // SAFETY: the struct is plain data; it and the bytes live across the call.
        let sent = unsafe {
            let mut to: libc::sockaddr_in = std::mem::zeroed();
            to.sin_family = libc::AF_INET as u16;
            to.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
            let size = std::mem::size_of_val(&to) as u32;
            libc::sendto(
                self.0.as_raw_fd(),
                packet.as_ptr().cast(),
                packet.len(),
                0,
                (&raw const to).cast(),
                size,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// A checksum that is wrong, and a header that is too short for itself.
    fn wrong_segments(&self) -> io::Result<()> {
        let segment = |offset: u8| {
            let mut bytes = [0; 20];
            bytes[..4].copy_from_slice(&[7, 7, 11, 183]);
            bytes[12] = offset << 4;
            bytes[13] = 2;
            bytes
        };
        self.send(&packet(6, &segment(5)))?;
        self.send(&packet(6, &segment(2)))
    }

    /// To nobody, and to a socket that reads it.
    fn wrong_datagrams(&self) -> io::Result<()> {
        let receiver = UdpSocket::bind("127.0.0.1:2010")?;
        receiver.set_nonblocking(true)?;
        for port in [2011u16, 2010] {
            let mut bytes = vec![b'x'; 208];
            bytes[..2].copy_from_slice(&[7, 7]);
            bytes[2..4].copy_from_slice(&port.to_be_bytes());
            bytes[4..6].copy_from_slice(&208u16.to_be_bytes());
            bytes[6..8].copy_from_slice(&[1, 1]);
            self.send(&packet(17, &bytes))?;
        }
        assert!(receiver.recv(&mut [0; 300]).is_err());
        Ok(())
    }

    /// Segments with 10 bytes for a connection: behind a gap, from before, and beyond its window.
    /// The bytes that the connection itself sends.
    fn segments_out_of_order(&self) -> io::Result<i64> {
        let (mut client, mut server) = connection()?;
        client.write_all(&[b'x'; 100])?;
        server.read_exact(&mut [0; 100])?;
        let next = next_sequence(&client)?;
        let acknowledged = next_sequence(&server)?;
        let ports = [client.local_addr()?.port(), client.peer_addr()?.port()];
        for sequence in [next.wrapping_add(1000), next.wrapping_sub(50), next.wrapping_add(1 << 30)] {
            let mut bytes = Vec::new();
            bytes.extend(ports[0].to_be_bytes());
            bytes.extend(ports[1].to_be_bytes());
            bytes.extend(sequence.to_be_bytes());
            bytes.extend(acknowledged.to_be_bytes());
            bytes.extend([0x50, 0x18, 2, 0, 0, 0, 0, 0]);
            bytes.extend([b'y'; 10]);
            let sum = pseudo_header(6, bytes.len() as u16);
            fill_checksum(&mut bytes, 16, sum);
            self.send(&packet(6, &bytes))?;
        }
        // Both ends are closed at once, by a reset.
        for end in [&client, &server] {
            let linger = libc::linger { l_onoff: 1, l_linger: 0 };
            option(end.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &linger)?;
        }
        Ok(100)
    }
}

fn option<T>(fd: i32, level: i32, name: i32, value: &T) -> io::Result<()> {
    let size = std::mem::size_of::<T>() as u32;
    // SAFETY: a value that lives across the call.
    checked(unsafe { libc::setsockopt(fd, level, name, std::ptr::from_ref(value).cast(), size) }).map(drop)
}

/// The sequence number of the next byte that a connection sends.
fn next_sequence(stream: &TcpStream) -> io::Result<u32> {
    const REPAIR: i32 = 19;
    const QUEUE: i32 = 20;
    const SEQUENCE: i32 = 21;
    let fd = stream.as_raw_fd();
    option(fd, libc::IPPROTO_TCP, REPAIR, &1i32)?;
    option(fd, libc::IPPROTO_TCP, QUEUE, &2i32)?;
    let (mut value, mut size) = (0u32, 4u32);
    // SAFETY: the kernel fills the value.
    checked(unsafe {
        libc::getsockopt(fd, libc::IPPROTO_TCP, SEQUENCE, (&raw mut value).cast(), &raw mut size)
    })?;
    // No probe of the window when this ends.
    option(fd, libc::IPPROTO_TCP, REPAIR, &-1i32)?;
    Ok(value)
}

/// A packet of IP from this machine to itself. The kernel fills in the rest of a header.
fn packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len()) as u16;
    let mut bytes = vec![0x45, 0];
    bytes.extend(length.to_be_bytes());
    bytes.extend([0x12, 0x34, 0, 0, 64, protocol, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
    bytes.extend(payload);
    bytes
}

fn pseudo_header(protocol: u8, length: u16) -> u32 {
    2 * (0x7f00 + 1) + u32::from(protocol) + u32::from(length)
}

fn fill_checksum(bytes: &mut [u8], at: usize, start: u32) {
    let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    let mut sum = words.sum::<u32>() + start;
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    bytes[at..at + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// Headers of IP with a wrong checksum and a wrong length, as a device has them.
fn wrong_headers() -> io::Result<()> {
    // SAFETY: a new descriptor, which is ours alone; a struct and bytes that live across the calls.
    unsafe {
        let socket = checked(libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM, 0))?;
        let socket = OwnedFd::from_raw_fd(socket);
        let mut to: libc::sockaddr_ll = std::mem::zeroed();
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_protocol = (libc::ETH_P_IP as u16).to_be();
        to.sll_ifindex = 1;
        to.sll_halen = 6;
        let size = std::mem::size_of_val(&to) as u32;
        let mut short = packet(17, &[0; 16]);
        short[0] = 0x44;
        for bytes in [packet(17, &[0; 16]), short] {
            let at = bytes.as_ptr().cast();
            let sent = libc::sendto(socket.as_raw_fd(), at, bytes.len(), 0, (&raw const to).cast(), size);
            if sent < 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}

/// A datagram and a connection to where no route goes.
fn no_route() -> io::Result<()> {
    let to = SocketAddr::from((Ipv4Addr::new(203, 0, 113, 1), 9));
    assert!(UdpSocket::bind("0.0.0.0:0")?.send_to(&[1], to).is_err());
    assert!(TcpStream::connect(to).is_err());
    Ok(())
}

/// A datagram whose fragments are more than its socket may have.
fn too_much() -> io::Result<()> {
    let sender = UdpSocket::bind("127.0.0.1:0")?;
    option(sender.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, &1i32)?;
    assert!(sender.send_to(&[b'x'; 60_000], "127.0.0.1:2012").is_err());
    Ok(())
}

/// A datagram in fragments, which is read.
fn joined() -> io::Result<()> {
    let receiver = UdpSocket::bind("127.0.0.1:2013")?;
    UdpSocket::bind("127.0.0.1:0")?.send_to(&[b'x'; 10_000], receiver.local_addr()?)?;
    receiver.recv(&mut [0; 20_000]).map(drop)
}

fn connection() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    Ok((client, listener.accept()?.0))
}

/// Bytes that are not read, so that their acknowledgment is late. How many.
fn delayed(grows: &dyn Fn(&str) -> io::Result<()>) -> io::Result<i64> {
    let (mut client, mut server) = connection()?;
    option(server.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_QUICKACK, &0i32)?;
    client.write_all(&[b'x'; 10])?;
    grows("TcpExtDelayedACKs")?;
    server.read_exact(&mut [0; 10])?;
    Ok(10)
}

/// A connection that sends nothing, until it is asked whether it is there.
fn keepalive(grows: &dyn Fn(&str) -> io::Result<()>) -> io::Result<()> {
    let (client, _server) = connection()?;
    option(client.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, &1i32)?;
    option(client.as_raw_fd(), libc::SOL_SOCKET, libc::SO_KEEPALIVE, &1i32)?;
    grows("TcpExtTCPKeepAlive")
}

/// A receiver that reads late, so that the sender asks for its window. How many bytes are sent.
fn closed_window(grows: &dyn Fn(&str) -> io::Result<()>) -> io::Result<i64> {
    let (mut client, mut server) = connection()?;
    client.set_nonblocking(true)?;
    let mut sent = 0;
    eventually("a full window", LIMIT, || {
        match client.write(&[b'x'; 4096]) {
            Ok(n) => sent += n as i64,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Some(Err(e)),
        }
        match counters() {
            Ok(now) => (of(&now, "TcpExtTCPWinProbe") != 0).then_some(Ok(())),
            Err(e) => Some(Err(e)),
        }
    })?;
    grows("TcpExtTCPWinProbe")?;
    let mut left = sent;
    let mut buffer = vec![0; 1 << 16];
    while left > 0 {
        left -= server.read(&mut buffer)? as i64;
    }
    Ok(sent)
}

/// A connection to a listener whose queue is full ends by its time.
fn refused_by_time() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:2003")?;
    // SAFETY: no pointers. A new length of the queue.
    checked(unsafe { libc::listen(listener.as_raw_fd(), 0) })?;
    let _first = TcpStream::connect("127.0.0.1:2003")?;
    // SAFETY: a new descriptor, which is ours alone; the struct is plain data and lives across the
    // call.
    let result = unsafe {
        let second = OwnedFd::from_raw_fd(checked(libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0))?);
        option(second.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_SYNCNT, &1i32)?;
        let mut to: libc::sockaddr_in = std::mem::zeroed();
        to.sin_family = libc::AF_INET as u16;
        to.sin_port = 2003u16.to_be();
        to.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
        libc::connect(second.as_raw_fd(), (&raw const to).cast(), std::mem::size_of_val(&to) as u32)
    };
    assert_eq!(result, -1);
    Ok(())
}
