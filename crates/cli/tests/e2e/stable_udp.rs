//! The provider udp: each probe by count and by argument, with datagrams of known number and length
//! in a network namespace of their own.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use crate::Verdict::{self, Pass};
use crate::machine::{no_functions, no_types};
use crate::network::{checked, lines, loopback, namespace, traced};

tests! { each_datagram_is_sent_and_received_once_with_its_lengths_ports_and_addresses }

/// Counts by all arguments.
const COUNT: &str = "udp:genunix::send, udp:::receive \
    /(uintptr_t)((struct sock *)args[1]->cs_addr)->__sk_common.skc_net.net == ns/ \
    { @[probename, args[4]->udp_sport, args[4]->udp_dport, args[4]->udp_length, args[2]->ip_plength, args[2]->ip_ver, \
    args[2]->ip_saddr, args[2]->ip_daddr, args[3]->udps_lport, args[3]->udps_rport, args[3]->udps_laddr, \
    args[3]->udps_raddr, args[0]->pkt_addr == arg0 && args[1]->cs_addr == arg1 && args[3]->udps_addr == arg1 && \
    args[1]->cs_cid == arg1] = count(); } \
    END { printa(\"%s %d %d %d %d %d %s %s %d %d %s %s %d %@d\\n\", @); }";

fn each_datagram_is_sent_and_received_once_with_its_lengths_ports_and_addresses() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    for (version, any) in [(4, "0.0.0.0"), (6, "::")] {
        let o = match traced("udp", version, COUNT) {
            Ok(o) => o,
            Err(skip) => return skip,
        };
        let a = loopback(version);
        // Where functions cannot be traced, the first fragment is what is sent.
        let first = match (no_functions().is_some(), version) {
            (false, _) => 10008,
            (true, 4) => 1480,
            (true, _) => 1456,
        };
        let mut expected = Vec::new();
        for (from, to, payload, count) in DATAGRAMS {
            let length = payload + 8;
            let plength = if payload == 10000 { first } else { length };
            let remote =
                if from == CONNECTED { format!("{CONNECTED_TO} {a} {a}") } else { format!("0 {a} {any}") };
            expected.push(format!(
                "send {from} {to} {length} {plength} {version} {a} {a} {from} {remote} 1 {count}"
            ));
            if to != CLOSED {
                let is = format!("{from} {to} {length} {length} {version} {a} {a}");
                expected.push(format!("receive {is} {to} 0 {a} {any} 1 {count}"));
            }
        }
        expected.sort_unstable();
        assert_eq!(lines(&o), expected, "{o:?}");
    }
    Pass
}

/// A port without a socket.
const CLOSED: u16 = 2999;
/// The port of a connected socket, and the one that it is connected to.
const CONNECTED: u16 = 1003;
const CONNECTED_TO: u16 = 2002;

/// The datagrams: from, to, bytes of payload, number. Those of 70 bytes are sent in two parts,
/// those of 10,000 in fragments.
const DATAGRAMS: [(u16, u16, usize, usize); 6] = [
    (1001, 2002, 100, 20),
    (1001, 2002, 0, 3),
    (1001, 2002, 10000, 4),
    (1001, 2002, 70, 2),
    (CONNECTED, CONNECTED_TO, 50, 5),
    (1001, CLOSED, 200, 6),
];

/// Sends the datagrams over a loopback with an MTU of 1500.
pub(crate) fn datagrams(version: u32) -> std::io::Result<()> {
    namespace(1500)?;
    let a = loopback(version);
    let (sender, receiver) = (UdpSocket::bind((a, 1001))?, UdpSocket::bind((a, CONNECTED_TO))?);
    let connected = UdpSocket::bind((a, CONNECTED))?;
    connected.connect((a, CONNECTED_TO))?;
    for (from, to, payload, count) in DATAGRAMS {
        for _ in 0..count {
            let bytes = vec![b'x'; payload];
            if from == CONNECTED {
                connected.send(&bytes)?;
            } else if payload == 70 {
                let on = 1;
                let cork = |on: &i32| {
                    let (level, option) = (libc::IPPROTO_UDP, 1 /* UDP_CORK */);
                    // SAFETY: an int that lives across the call.
                    checked(unsafe {
                        libc::setsockopt(sender.as_raw_fd(), level, option, std::ptr::from_ref(on).cast(), 4)
                    })
                };
                cork(&on)?;
                sender.send_to(&bytes[..30], (a, to))?;
                sender.send_to(&bytes[30..], (a, to))?;
                cork(&0)?;
            } else {
                sender.send_to(&bytes, (a, to))?;
            }
            if to != CLOSED {
                receiver.recv(&mut [0; 20000])?;
            }
        }
    }
    Ok(())
}
