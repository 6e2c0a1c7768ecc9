//! Two ends of a wire in network namespaces of their own, what passes between them, and what a
//! packet socket at each end sees of it.
//!
//! A wire is the loopback, which is both ends, or a pair of `veth` devices. The workload writes
//! what it captured into a file, because its output would be mixed with that of dtrace.

use std::fmt::Write as _;
use std::io::{Error, Read, Result, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use testing::eventually;

use crate::Verdict::{self, Skip};
use crate::tool::{LIMIT, Output, dtrace, suppressed, workload};

/// A packet at an interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Packet {
    pub(crate) sent: bool,
    pub(crate) interface: String,
    /// From the header of IP on.
    pub(crate) length: usize,
    /// The first of its bytes.
    pub(crate) bytes: Vec<u8>,
}

impl Packet {
    pub(crate) fn u16(&self, at: usize) -> u32 {
        u32::from(self.bytes[at]) << 8 | u32::from(self.bytes[at + 1])
    }

    pub(crate) fn u32(&self, at: usize) -> u32 {
        self.u16(at) << 16 | self.u16(at + 2)
    }

    pub(crate) fn version(&self) -> u32 {
        u32::from(self.bytes[0] >> 4)
    }

    pub(crate) fn addresses(&self) -> [IpAddr; 2] {
        let of = |at: usize| match self.version() {
            4 => <[u8; 4]>::try_from(&self.bytes[at..at + 4]).unwrap().into(),
            _ => <[u8; 16]>::try_from(&self.bytes[at..at + 16]).unwrap().into(),
        };
        if self.version() == 4 { [of(12), of(16)] } else { [of(8), of(24)] }
    }

    /// Of the protocol behind the first header.
    pub(crate) fn protocol(&self) -> u32 {
        u32::from(self.bytes[if self.version() == 4 { 9 } else { 6 }])
    }

    /// Where what is behind the first header begins.
    pub(crate) fn payload(&self) -> usize {
        if self.version() == 4 { usize::from(self.bytes[0] & 15) * 4 } else { 40 }
    }
}

/// Runs a workload over a wire (`lo` or `veth`) by IPv4 or IPv6. What dtrace printed, and what
/// passed. The kernel may suppress a firing: then it runs again.
pub(crate) fn traced(
    name: &str,
    wire: &str,
    version: u32,
    script: &str,
) -> std::result::Result<(Output, Vec<Packet>), Verdict> {
    let id = std::process::id();
    let path = std::env::temp_dir().join(format!("e2e-{name}-{wire}-{version}-{id}"));
    let mut tries = 0;
    loop {
        let command = format!("{} {wire} {} {id}", workload(name, version), path.display());
        let o = dtrace(&["-q", "-c", &command, "-n", script]);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let _ = std::fs::remove_file(&path);
        let o = o.code(0);
        if let Some(why) = text.lines().find(|l| l.starts_with("no ")) {
            return Err(Skip(why.to_string()));
        }
        tries += 1;
        if suppressed(&o) == 0 || tries == 5 {
            assert!(!o.err.contains("drop") && !text.is_empty(), "{o:?}");
            return Ok((o, text.lines().map(packet).collect()));
        }
    }
}

fn packet(line: &str) -> Packet {
    let words: Vec<&str> = line.split(' ').collect();
    let hex = |at: usize| u8::from_str_radix(&words[3][at..at + 2], 16).unwrap();
    Packet {
        sent: words[0] == "sent",
        interface: words[1].to_string(),
        length: words[2].parse().unwrap(),
        bytes: (0..words[3].len()).step_by(2).map(hex).collect(),
    }
}

/// The address of an end, 1 or 2, of the wire of a test. dtrace sees the networks of other
/// processes too, so the addresses are those of this one alone.
pub(crate) fn address(wire: &str, version: u32, process: u32, end: u8) -> IpAddr {
    let id = (process % 0x8000) as u16;
    let [high, low] = id.to_be_bytes();
    match (version, wire) {
        (4, "lo") => Ipv4Addr::new(127, 128 + high, low, 1).into(),
        (4, _) => Ipv4Addr::new(10, 128 + high, low, end).into(),
        (_, "lo") => Ipv6Addr::new(0xfd84, 0x8000 + id, 0, 0, 0, 0, 0, 1).into(),
        _ => Ipv6Addr::new(0xfd84, 0x8000 + id, 0, 0, 0, 0, 0, end.into()).into(),
    }
}

/// The workloads. `args`: the version, the wire, the file, the process of the test.
pub(crate) fn run(name: &str, args: &[String]) {
    let [version, wire, path, process] = args else { return };
    let (version, process) = (version.parse().unwrap_or(4), process.parse().unwrap_or(0));
    let traffic = match name {
        "conversation" => conversation,
        _ => datagrams,
    };
    let captured = passed(wire, [1, 2].map(|end| address(wire, version, process, end)), traffic);
    let _ = std::fs::write(PathBuf::from(path), captured.unwrap_or_else(|e| format!("no network: {e}\n")));
}

/// One end of the traffic.
struct End {
    /// Its address, and that of the other end.
    here: SocketAddr,
    there: SocketAddr,
    is_server: bool,
    /// Each tells the other how far it is.
    tell: Sender<()>,
    told: Receiver<()>,
}

impl End {
    fn wait(&self) -> Result<()> {
        self.told.recv_timeout(Duration::from_secs(100)).map_err(Error::other)
    }

    /// Waits until both ends are here.
    fn meet(&self) -> Result<()> {
        self.tell.send(()).map_err(Error::other)?;
        self.wait()
    }
}

/// Lets both ends run. The lines of the captured packets.
fn passed(wire: &str, [one, two]: [IpAddr; 2], traffic: fn(&End) -> Result<()>) -> Result<String> {
    let (from, to) = (SocketAddr::new(one, 0), SocketAddr::new(two, 0));
    let ((tell, hears), (answers, told)) = (channel(), channel());
    let client = End { here: from, there: to, is_server: false, tell, told };
    let server = End { here: to, there: from, is_server: true, tell: answers, told: hears };
    own_network()?;
    if wire == "lo" {
        ip("link set lo up")?;
        if one.is_ipv6() {
            ip(&format!("addr add {one}/128 dev lo nodad"))?;
        }
        let capture = Capture::new("lo")?;
        let other = std::thread::spawn(move || traffic(&server));
        traffic(&client)?;
        other.join().map_err(|_| Error::other("the other end failed"))??;
        return capture.lines();
    }
    let (send_id, id) = channel();
    let (made, is_made) = channel::<()>();
    let other = std::thread::spawn(move || -> Result<String> {
        own_network()?;
        // SAFETY: no pointers.
        let me = unsafe { libc::syscall(libc::SYS_gettid) };
        send_id.send(me).map_err(Error::other)?;
        is_made.recv_timeout(Duration::from_secs(100)).map_err(Error::other)?;
        end("dt-b", two)?;
        let capture = Capture::new("dt-b")?;
        server.meet()?;
        traffic(&server)?;
        capture.lines()
    });
    let id = id.recv_timeout(Duration::from_secs(100)).map_err(Error::other)?;
    ip(&format!("link add dt-a type veth peer name dt-b netns {id}"))?;
    made.send(()).map_err(Error::other)?;
    end("dt-a", one)?;
    let capture = Capture::new("dt-a")?;
    client.meet()?;
    traffic(&client)?;
    // The wire is gone with its other end.
    let mine = capture.lines()?;
    Ok(mine + &other.join().map_err(|_| Error::other("the other end failed"))??)
}

/// Enters a network namespace of the thread's own.
fn own_network() -> Result<()> {
    // SAFETY: no pointers.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    Ok(())
}

fn end(device: &str, address: IpAddr) -> Result<()> {
    match address {
        IpAddr::V4(address) => ip(&format!("addr add {address}/24 dev {device}"))?,
        IpAddr::V6(address) => ip(&format!("addr add {address}/64 dev {device} nodad"))?,
    }
    ip(&format!("link set {device} up"))
}

/// Runs `ip` in the namespace of this thread.
fn ip(words: &str) -> Result<()> {
    let o = Command::new("ip").args(words.split(' ')).output()?;
    if o.status.success() { Ok(()) } else { Err(Error::other(String::from_utf8_lossy(&o.stderr).trim())) }
}

fn checked(result: i32) -> Result<i32> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}

/// A packet socket at an interface.
struct Capture(OwnedFd, String);

impl Capture {
    fn new(device: &str) -> Result<Capture> {
        let all = (libc::ETH_P_ALL as u16).to_be();
        let name = std::ffi::CString::new(device)?;
        // SAFETY: a new descriptor, which is ours alone; structs that live across the calls.
        unsafe {
            let fd = checked(libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM, i32::from(all)))?;
            let socket = OwnedFd::from_raw_fd(fd);
            let size: i32 = 64 << 20;
            checked(libc::setsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_RCVBUFFORCE,
                (&raw const size).cast(),
                4,
            ))?;
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = all;
            address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
            let length = std::mem::size_of_val(&address) as u32;
            checked(libc::bind(fd, (&raw const address).cast(), length))?;
            Ok(Capture(socket, device.to_string()))
        }
    }

    /// What it has seen of IP.
    fn lines(&self) -> Result<String> {
        let mut lines = String::new();
        loop {
            let mut bytes = [0u8; 128];
            // SAFETY: structs and memory that live across the call.
            let (length, from) = unsafe {
                let mut from: libc::sockaddr_ll = std::mem::zeroed();
                let mut size = std::mem::size_of_val(&from) as u32;
                let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
                let at = (&raw mut from).cast();
                let to = bytes.as_mut_ptr().cast();
                (libc::recvfrom(self.0.as_raw_fd(), to, bytes.len(), flags, at, &raw mut size), from)
            };
            let Ok(length) = usize::try_from(length) else { break };
            let is_ip =
                [libc::ETH_P_IP, libc::ETH_P_IPV6].contains(&i32::from(u16::from_be(from.sll_protocol)));
            if is_ip {
                let way = if from.sll_pkttype == libc::PACKET_OUTGOING { "sent" } else { "received" };
                let _ = write!(lines, "{way} {} {length} ", self.1);
                bytes.iter().take(length).for_each(|b| _ = write!(lines, "{b:02x}"));
                lines.push('\n');
            }
        }
        Ok(lines)
    }
}

/// The ports of the conversation: of its server, of its client, of a client that is refused, and of
/// nobody.
pub(crate) const PORTS: [u16; 4] = [48_367, 48_368, 48_369, 48_370];

/// Waits until this namespace has only sockets that listen or are in TIME_WAIT. Then all segments
/// have been received.
pub(crate) fn quiet() -> Result<()> {
    eventually("the end of all connections", LIMIT, || {
        let mut text = match std::fs::read_to_string("/proc/thread-self/net/tcp") {
            Ok(text) => text,
            Err(e) => return Some(Err(e)),
        };
        text += &std::fs::read_to_string("/proc/thread-self/net/tcp6").unwrap_or_default();
        let mut states = text.lines().filter_map(|l| l.split_whitespace().nth(3));
        states.all(|state| ["st", "06", "0A"].contains(&state)).then_some(Ok(()))
    })
}

/// Writes an address as the kernel has it. Its length.
fn raw_address(address: SocketAddr, raw: &mut libc::sockaddr_storage) -> u32 {
    let at = (raw as *mut libc::sockaddr_storage).cast::<u8>();
    // SAFETY: the storage is large enough for an address of each family, and aligned for it.
    unsafe {
        match address {
            SocketAddr::V4(a) => {
                let v4 = &mut *at.cast::<libc::sockaddr_in>();
                v4.sin_family = libc::AF_INET as u16;
                v4.sin_port = a.port().to_be();
                v4.sin_addr.s_addr = u32::from_ne_bytes(a.ip().octets());
                std::mem::size_of::<libc::sockaddr_in>() as u32
            }
            SocketAddr::V6(a) => {
                let v6 = &mut *at.cast::<libc::sockaddr_in6>();
                v6.sin6_family = libc::AF_INET6 as u16;
                v6.sin6_port = a.port().to_be();
                v6.sin6_addr.s6_addr = a.ip().octets();
                std::mem::size_of::<libc::sockaddr_in6>() as u32
            }
        }
    }
}

/// A connection from a port.
fn connected(from: SocketAddr, to: SocketAddr) -> Result<TcpStream> {
    let family = if from.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: plain data; a new descriptor, which is ours alone; addresses that live across the
    // calls.
    unsafe {
        let mut raw: libc::sockaddr_storage = std::mem::zeroed();
        let socket = OwnedFd::from_raw_fd(checked(libc::socket(family, libc::SOCK_STREAM, 0))?);
        let (fd, yes) = (socket.as_raw_fd(), 1i32);
        checked(libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, (&raw const yes).cast(), 4))?;
        let length = raw_address(from, &mut raw);
        checked(libc::bind(fd, (&raw const raw).cast(), length))?;
        let length = raw_address(to, &mut raw);
        checked(libc::connect(fd, (&raw const raw).cast(), length))?;
        Ok(TcpStream::from(socket))
    }
}

fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// A connection that the server closes first, one between the same ports that the client closes
/// first, and one that is refused.
fn conversation(end: &End) -> Result<()> {
    let [server, client, refused, nobody] = PORTS;
    let (mut bulk, mut some) = (vec![b'b'; 100_000], [b's'; 500]);
    if end.is_server {
        let listener = TcpListener::bind(with_port(end.here, server))?;
        end.meet()?;
        let (mut peer, _) = listener.accept()?;
        peer.read_exact(&mut bulk)?;
        peer.write_all(&some)?;
        drop(peer);
        quiet()?;
        end.meet()?;
        let (mut peer, _) = listener.accept()?;
        peer.read_to_end(&mut bulk)?;
        drop(peer);
        quiet()?;
        end.meet()?;
        return end.meet();
    }
    let (here, there) = (with_port(end.here, client), with_port(end.there, server));
    end.meet()?;
    let mut peer = connected(here, there)?;
    peer.write_all(&bulk)?;
    peer.read_exact(&mut some)?;
    // The server's end has closed.
    let _ = peer.read(&mut some)?;
    drop(peer);
    quiet()?;
    end.meet()?;
    let mut peer = connected(here, there)?;
    peer.write_all(b"again")?;
    drop(peer);
    quiet()?;
    end.meet()?;
    let refused = connected(with_port(here, refused), with_port(there, nobody));
    assert_eq!(refused.err().and_then(|e| e.raw_os_error()), Some(libc::ECONNREFUSED));
    end.meet()
}

/// The sizes of the datagrams. Over Ethernet, the last has three fragments.
pub(crate) const DATAGRAMS: [usize; 3] = [10, 1400, 4000];

/// Datagrams from the client to the server, and one back.
fn datagrams(end: &End) -> Result<()> {
    let [server, client, ..] = PORTS;
    let socket = UdpSocket::bind(with_port(end.here, if end.is_server { server } else { client }))?;
    socket.set_read_timeout(Some(Duration::from_secs(100)))?;
    end.meet()?;
    let other = with_port(end.there, if end.is_server { client } else { server });
    let mut buffer = [0; 5000];
    if end.is_server {
        for size in DATAGRAMS {
            assert_eq!(socket.recv(&mut buffer)?, size);
        }
        socket.send_to(&buffer[..100], other)?;
    } else {
        for size in DATAGRAMS {
            socket.send_to(&buffer[..size], other)?;
        }
        assert_eq!(socket.recv(&mut buffer)?, 100);
    }
    end.meet()
}
