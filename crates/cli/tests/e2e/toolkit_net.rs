//! Tools for the network, with sockets of this process, which they know by their ports.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};

use crate::Verdict::{self, Pass};
use crate::machine::no_types;
use crate::tool::Output;
use crate::toolkit::{lines_with, start};

tests! {
    udpsnoop_prints_each_datagram_with_its_sender
    tcpaccept_prints_each_connection_that_is_accepted
    tcplife_prints_each_connection_with_its_bytes
    tcpdrop_prints_each_packet_with_the_reason
    tcpconnect_prints_each_connection_that_begins
    tcpsnoop_and_tcptop_show_the_segments_of_a_connection
}

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Number and name of this process as `pid` and `execname` give them.
pub(crate) fn me() -> String {
    let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
    format!("{} {}", std::process::id(), name.trim())
}

/// The lines that contain the port as a word.
fn of_port(o: &Output, port: u16) -> Vec<String> {
    lines_with(o, "127.0.0.1").into_iter().filter(|l| l.split(' ').any(|w| w == port.to_string())).collect()
}

fn udpsnoop_prints_each_datagram_with_its_sender() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let (one, two) = (UdpSocket::bind((HERE, 0)).unwrap(), UdpSocket::bind((HERE, 0)).unwrap());
    let (from, to) = (one.local_addr().unwrap().port(), two.local_addr().unwrap().port());
    let tracing = start("udpsnoop", &["-P", &to.to_string()]);
    // Each is taken before the next one is sent.
    for length in [5, 100] {
        one.send_to(&vec![b'x'; length], (HERE, to)).unwrap();
        two.recv(&mut [0; 200]).unwrap();
    }
    two.send_to(b"y", (HERE, from)).unwrap();
    one.recv(&mut [0; 200]).unwrap();
    let o = tracing.end().code(0);
    let (me, a) = (me(), HERE);
    let expected = [
        format!("{me} {a} {from} -> {a} {to} 5"),
        format!("0 - {a} {to} <- {a} {from} 5"),
        format!("{me} {a} {from} -> {a} {to} 100"),
        format!("0 - {a} {to} <- {a} {from} 100"),
        format!("{me} {a} {to} -> {a} {from} 1"),
        format!("{me} {a} {from} <- {a} {to} 1"),
    ];
    assert_eq!(of_port(&o, to), expected, "{o:?}");
    Pass
}

/// A connection to a listener: both ends, that which connected first.
fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// A thousand bytes there, ten back; then both ends are closed, the client's first. Returns the
/// client's port.
pub(crate) fn exchange(listener: &TcpListener) -> u16 {
    let (mut client, mut server) = connection(listener);
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

/// A script that prints a row for each connection.
fn prints_each_connection(script: &str) -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let tracing = start(script, &["-P", &port.to_string()]);
    let clients: Vec<u16> = (0..3).map(|_| connection(&listener).0.local_addr().unwrap().port()).collect();
    let o = tracing.end().code(0);
    let row = |client: &u16| format!("{} {HERE} {client} {HERE} {port}", me());
    assert_eq!(of_port(&o, port), clients.iter().map(row).collect::<Vec<_>>(), "{o:?}");
    Pass
}

fn tcpaccept_prints_each_connection_that_is_accepted() -> Verdict {
    prints_each_connection("tcpaccept")
}

fn tcplife_prints_each_connection_with_its_bytes() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let tracing = start("tcplife", &["-P", &port.to_string()]);
    let of_client = exchange(&listener);
    let o = tracing.end().code(0);
    let mut lines = of_port(&o, port);
    // The last column is a time.
    lines.iter_mut().for_each(|l| l.truncate(l.rfind(' ').unwrap()));
    lines.sort();
    let row = |here: u16, there: u16, sent: u32, received: u32| {
        format!("{} {HERE} {here} {HERE} {there} {sent} {received}", me())
    };
    let mut expected = [row(of_client, port, 1000, 10), row(port, of_client, 10, 1000)];
    expected.sort();
    assert_eq!(lines, expected, "{o:?}");
    Pass
}

fn tcpdrop_prints_each_packet_with_the_reason() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    // A port on which nobody listens any more.
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let tracing = start("tcpdrop", &["-P", &port.to_string()]);
    for _ in 0..3 {
        TcpStream::connect((HERE, port)).unwrap_err();
    }
    let o = tracing.end().code(0);
    let lines = of_port(&o, port);
    assert_eq!(lines.len(), 3, "{o:?}");
    for line in lines {
        // The time is four words; the source port is that of the connection.
        let words: Vec<&str> = line.split(' ').skip(4).collect();
        let [direction, from, _, to, dport, flags, reason] = words[..] else { panic!("{o:?}") };
        let expected = ["<-", "127.0.0.1", "127.0.0.1", &port.to_string(), "S", "NO_SOCKET"];
        assert_eq!([direction, from, to, dport, flags, reason], expected, "{o:?}");
    }
    Pass
}

fn tcpconnect_prints_each_connection_that_begins() -> Verdict {
    prints_each_connection("tcpconnect")
}

fn tcpsnoop_and_tcptop_show_the_segments_of_a_connection() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let snoop = start("tcpsnoop", &["-P", &port.to_string()]);
    let top = start("tcptop", &["-C", "-P", &port.to_string(), "3600"]);
    let (mut client, mut server) = connection(&listener);
    let of_client = client.local_addr().unwrap().port();
    client.write_all(&[b'x'; 1000]).unwrap();
    server.read_exact(&mut [0; 1000]).unwrap();
    server.write_all(&[b'y'; 10]).unwrap();
    client.read_exact(&mut [0; 10]).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
    drop(server);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    let (snoop, top) = (snoop.end().code(0), top.end().code(0));
    drop(client);
    // How often a segment is acknowledged is a matter of time.
    let mut lines = of_port(&snoop, port);
    lines.retain(|l| !l.ends_with(" 0 A"));
    let sent = |here: u16, there: u16, rest: &str| format!("{HERE} {here} -> {HERE} {there} {rest}");
    let received = |here: u16, there: u16, rest: &str| format!("{HERE} {here} <- {HERE} {there} {rest}");
    let mut expected = Vec::new();
    for (from, to, rest) in [
        (of_client, port, "0 S"),
        (port, of_client, "0 SA"),
        (of_client, port, "1000 PA"),
        (port, of_client, "10 PA"),
        (of_client, port, "0 FA"),
        (port, of_client, "0 FA"),
    ] {
        expected.push(sent(from, to, rest));
        expected.push(received(to, from, rest));
    }
    expected.sort();
    let mut shown: Vec<&str> = lines.iter().filter_map(|l| l.splitn(3, ' ').last()).collect();
    shown.sort_unstable();
    assert_eq!(shown, expected, "{snoop:?}");
    // Both ends belong to this process when there is data.
    let data = lines.iter().filter(|l| l.ends_with(" PA"));
    assert!(data.clone().count() == 4 && data.clone().all(|l| l.starts_with(&me())), "{snoop:?}");
    let mut rows = of_port(&top, port);
    rows.sort();
    let row =
        |here: u16, there: u16, tx: u32, rx: u32| format!("{} {HERE} {here} {HERE} {there} {tx} {rx}", me());
    let mut expected = [row(of_client, port, 1000, 10), row(port, of_client, 10, 1000)];
    expected.sort();
    assert_eq!(rows, expected, "{top:?}");
    Pass
}
