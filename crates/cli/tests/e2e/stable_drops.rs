//! The packet drops of the provider ip, by count and by argument, with packets of known number in a
//! network namespace of their own.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Command;

use testing::eventually;

use crate::Verdict::{self, Pass};
use crate::machine::no_types;
use crate::network::{checked, lines, loopback, namespace, traced};
use crate::tool::LIMIT;

tests! {
    packets_that_no_socket_takes_are_dropped_once_with_the_reason
    packets_to_a_neighbor_that_does_not_answer_are_dropped_once_on_their_way_out
}

/// Counts of the datagrams by all arguments. The first word of the clause's probe is `drop-in` or
/// `drop-out`.
const COUNT: &str = "ip:genunix::drop-in, ip:::drop-out \
    /args[3]->if_ipstack == ns && (args[4]->ipv4_protocol == IPPROTO_UDP || args[5]->ipv6_nexthdr == IPPROTO_UDP)/ \
    { @[probename, args[6], args[3]->if_name, args[3]->if_local, args[2]->ip_ver, args[2]->ip_saddr, args[2]->ip_daddr, \
    args[2]->ip_plength, args[4]->ipv4_ver + args[5]->ipv6_ver, args[4]->ipv4_ttl + args[5]->ipv6_hlim, \
    args[0]->pkt_addr == arg0 && args[1]->cs_addr == arg1 && args[3]->if_addr == arg2] = count(); } \
    END { printa(\"%s %s %s %d %d %s %s %d %d %d %d %@d\\n\", @); }";

/// Lines of the workload begin with this.
const OWN: &str = "own ";

fn packets_that_no_socket_takes_are_dropped_once_with_the_reason() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    for version in [4, 6] {
        let o = match traced("unwanted", version, COUNT) {
            Ok(o) => o,
            Err(skip) => return skip,
        };
        let all = lines(&o);
        let full: Vec<u32> =
            all.iter().filter_map(|l| l.strip_prefix(OWN)).map(|n| n.parse().unwrap()).collect();
        assert!(full[0] > 0 && full[0] < FLOOD, "{o:?}");
        let a = loopback(version);
        let drop = |reason: &str, length: usize, count: u32| {
            format!("drop-in {reason} lo 1 {version} {a} {a} {} {version} 64 1 {count}", length + 8)
        };
        let found: Vec<&str> = all.into_iter().filter(|l| !l.starts_with(OWN)).collect();
        assert_eq!(found, [drop("NO_SOCKET", 100, 7), drop("SOCKET_RCVBUFF", 500, full[0])], "{o:?}");
    }
    Pass
}

fn packets_to_a_neighbor_that_does_not_answer_are_dropped_once_on_their_way_out() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let o = match traced("unanswered", 5, COUNT) {
        Ok(o) => o,
        Err(skip) => return skip,
    };
    let expected = "drop-out NEIGH_FAILED dt0 0 4 10.99.1.1 10.99.1.2 108 4 64 1 5";
    assert_eq!(lines(&o), [expected], "{o:?}");
    Pass
}

/// Number of datagrams to a socket that does not read.
const FLOOD: u32 = 200;

/// Sends datagrams to a port without a socket, and more than a socket takes. Prints how many it
/// dropped.
pub(crate) fn unwanted(version: u32) -> io::Result<()> {
    namespace(65536)?;
    let a = loopback(version);
    let (sender, receiver) = (UdpSocket::bind((a, 1001))?, UdpSocket::bind((a, 2002))?);
    let send = |port: u16, payload: usize| sender.send_to(&vec![b'x'; payload], (a, port));
    (0..7).try_for_each(|_| send(2999, 100).map(drop))?;
    println!("{OWN}{}", count_of_drops(&sender, &receiver)?);
    Ok(())
}

/// Sends more datagrams than a socket takes. Returns how many it dropped.
pub(crate) fn count_of_drops(sender: &UdpSocket, receiver: &UdpSocket) -> io::Result<u32> {
    let bytes: i32 = 4096;
    let option = (libc::SOL_SOCKET, libc::SO_RCVBUF, (&raw const bytes).cast());
    // SAFETY: an int that lives across the call.
    checked(unsafe { libc::setsockopt(receiver.as_raw_fd(), option.0, option.1, option.2, 4) })?;
    let to = receiver.local_addr()?;
    (0..FLOOD).try_for_each(|_| sender.send_to(&[b'x'; 500], to).map(drop))?;
    // Each is in the socket, or has been counted by it.
    receiver.set_nonblocking(true)?;
    let mut received = 0;
    eventually("the last datagram", LIMIT, || {
        let (mut info, mut size) = ([0u32; 9], 36);
        let option = (libc::SOL_SOCKET, 55 /* SO_MEMINFO */, info.as_mut_ptr().cast());
        // SAFETY: the kernel fills the array.
        let asked = checked(unsafe {
            libc::getsockopt(receiver.as_raw_fd(), option.0, option.1, option.2, &raw mut size)
        });
        while receiver.recv(&mut [0; 600]).is_ok() {
            received += 1;
        }
        let dropped = info[8];
        asked.map_or_else(|e| Some(Err(e)), |_| (received + dropped >= FLOOD).then_some(Ok(dropped)))
    })
}

/// Sends datagrams to an address on a link where nobody has it, and waits until they are dropped.
pub(crate) fn unanswered(count: u32) -> io::Result<()> {
    namespace(65536)?;
    let ip = |words: &str| {
        let done = Command::new("ip").args(words.split(' ')).output()?;
        if done.status.success() { Ok(()) } else { Err(io::Error::other(format!("ip {words} failed"))) }
    };
    ip("link add dt0 type veth peer name dt1")?;
    ip("address add 10.99.1.1/24 dev dt0")?;
    ip("link set dt0 up")?;
    ip("link set dt1 up")?;
    let sender = UdpSocket::bind("10.99.1.1:1001")?;
    let to = SocketAddr::from(([10, 99, 1, 2], 2002));
    for _ in 0..count {
        sender.send_to(&[b'x'; 100], to)?;
    }
    // The kernel asks for the address three times, a second each.
    eventually("the last drop", LIMIT, || {
        let mut bytes = 0;
        // SAFETY: the kernel fills the int: the bytes that the socket has in packets.
        let asked = checked(unsafe { libc::ioctl(sender.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) });
        asked.map_or_else(|e| Some(Err(e)), |_| (bytes == 0).then_some(Ok(())))
    })
}
