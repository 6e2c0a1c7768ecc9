//! `pcap()`: packets in files and in the output.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Verdict::{self, Pass, Skip};
use crate::tool::{Output, dtrace, workload};
use crate::workload::{datagram, stream};

tests! {
    datagrams_are_captured_with_their_bytes_and_times a_packet_is_truncated_to_pcapsize_and_keeps_its_length
    packets_of_file_pages_are_captured_to_their_last_byte packets_go_to_the_file_of_their_clause
    packets_are_appended_to_a_capture_file text_goes_to_the_first_output_while_packets_go_to_a_file
    a_text_file_gets_dumps_of_packets packets_without_a_file_are_dumps
    a_capture_file_that_cannot_be_opened_is_reported a_socket_buffer_that_cannot_be_read_faults
    a_protocol_that_is_no_link_type_is_reported tcpdump_reads_a_capture_file
    packets_in_json_have_their_lengths_and_times committed_packets_are_captured
}

/// A packet of a capture file.
#[derive(Clone, Debug, PartialEq)]
struct Captured {
    link: u16,
    time: u64,
    length: usize,
    bytes: Vec<u8>,
}

impl Captured {
    /// The payload of UDP or TCP, of an Ethernet frame with IP without options.
    fn payload(&self) -> &[u8] {
        let (protocol, header) = match self.bytes.get(14).map(|b| b >> 4) {
            Some(4) => (self.bytes[14 + 9], 14 + 20),
            Some(6) => (self.bytes[14 + 6], 14 + 40),
            _ => return &[],
        };
        let header = match protocol {
            17 => header + 8,
            6 => header + usize::from(self.bytes[header + 12] >> 4) * 4,
            _ => return &[],
        };
        self.bytes.get(header..).unwrap_or_default()
    }

    fn is_ipv6(&self) -> bool {
        self.bytes[14] >> 4 == 6
    }
}

/// The packets of a file, and its number of sections.
fn read(path: &Path) -> (Vec<Captured>, usize) {
    let file = std::fs::read(path).unwrap_or_default();
    let mut rest = &file[..];
    let (mut packets, mut links, mut sections) = (Vec::new(), Vec::new(), 0);
    while !rest.is_empty() {
        let number = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
        let length = number(4) as usize;
        assert_eq!(number(length - 4) as usize, length, "{path:?}");
        match number(0) {
            0x0a0d_0d0a => {
                sections += 1;
                links.clear();
            }
            1 => links.push(number(8) as u16),
            6 => packets.push(Captured {
                link: links[number(8) as usize],
                time: u64::from(number(12)) << 32 | u64::from(number(16)),
                length: number(24) as usize,
                bytes: rest[28..28 + number(20) as usize].to_vec(),
            }),
            other => panic!("a block of type {other:#x}"),
        }
        rest = &rest[length..];
    }
    (packets, sections)
}

/// Those of the workload.
fn datagrams(path: &Path) -> Vec<Captured> {
    let (mut packets, _) = read(path);
    packets.retain(|p| p.payload().starts_with(b"datagram "));
    packets
}

/// A file name that only this test uses.
fn file(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("e2e-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// Traces what the workload sends. The skip is for a machine without a network.
fn traced(words: &[&str], text: &str, count: u32) -> Result<Output, Verdict> {
    let mut all = words.to_vec();
    let command = workload("datagrams", count);
    all.extend(["-n", text, "-c", &command]);
    let o = dtrace(&all).code(0);
    match o.out.lines().find(|l| l.contains("no network")) {
        Some(reason) => Err(Skip(reason.to_string())),
        None => Ok(o),
    }
}

/// The result of a test, or why it is skipped.
macro_rules! run {
    ($traced:expr) => {
        match $traced {
            Ok(o) => o,
            Err(skip) => return skip,
        }
    };
}

const QUEUED: &str = "rawtp:::net_dev_queue /pid == $target/";

fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    now.as_nanos() as u64
}

fn datagrams_are_captured_with_their_bytes_and_times() -> Verdict {
    let path = file("pcap-datagrams");
    let name = path.display();
    let text = format!("BEGIN {{ freopen(\"{name}\"); }} {QUEUED} {{ pcap(args[0], PCAP_ETHER); }}");
    let begin = now();
    let o = run!(traced(&["-wq"], &text, 30));
    let end = now();
    assert_eq!((o.out.trim(), o.err.contains("drop")), ("", false), "{o:?}");
    let packets = datagrams(&path);
    let expected: Vec<(bool, Vec<u8>)> =
        [false, true].iter().flat_map(|v6| (0..30).map(|n| (*v6, datagram(n)))).collect();
    let found: Vec<(bool, Vec<u8>)> = packets.iter().map(|p| (p.is_ipv6(), p.payload().to_vec())).collect();
    assert_eq!(found, expected);
    assert!(packets.iter().all(|p| p.length == p.bytes.len() && p.link == 1), "{packets:?}");
    assert!(packets.iter().all(|p| (begin..=end).contains(&p.time)), "{begin} {end} {packets:?}");
    assert!(packets.is_sorted_by_key(|p| p.time));
    let _ = std::fs::remove_file(&path);
    Pass
}

fn a_packet_is_truncated_to_pcapsize_and_keeps_its_length() -> Verdict {
    for size in [1, 75, 100, 1514] {
        let path = file("pcap-truncated");
        let name = path.display();
        let text = format!(
            "BEGIN {{ freopen(\"{name}\"); }} {QUEUED} {{ pcap(args[0], PCAP_ETHER); @ = count(); }}"
        );
        let option = format!("pcapsize={size}");
        let o = run!(traced(&["-wq", "-x", &option], &text, 60));
        assert!(!o.err.contains("drop"), "{o:?}");
        let (packets, _) = read(&path);
        // Sixty by each version of IP.
        let seen = o.last_number();
        assert!(seen >= 120 && packets.len() as i64 == seen, "{} {o:?}", packets.len());
        assert!(packets.iter().all(|p| p.bytes.len() == p.length.min(size)), "{packets:?}");
        let longest = 14 + 20 + 8 + datagram(59).len();
        assert!(packets.iter().any(|p| p.length == longest) && longest > size);
        let _ = std::fs::remove_file(&path);
    }
    for size in ["0", "65536"] {
        let o = dtrace(&["-x", &format!("pcapsize={size}"), "-n", "BEGIN { exit(0); }"]).code(1);
        assert!(o.err.contains("it takes a size from 1 to 65535"), "{o:?}");
    }
    Pass
}

fn packets_of_file_pages_are_captured_to_their_last_byte() -> Verdict {
    let sent = stream(300);
    for size in [65535, 5001] {
        let path = file("pcap-pages");
        let text = format!(
            "BEGIN {{ freopen(\"{}\"); }} rawtp:::net_dev_queue /args[0]->data_len/ {{ pcap(args[0], PCAP_ETHER); }}",
            path.display()
        );
        let (option, command) = (format!("pcapsize={size}"), workload("sendfile", 300));
        let o = dtrace(&["-wq", "-b", "16m", "-x", &option, "-n", &text, "-c", &command]).code(0);
        let Some(port) = o.out.lines().find_map(|l| l.strip_prefix("port ")?.parse::<u16>().ok()) else {
            return Skip(o.out);
        };
        assert!(!o.err.contains("drop"), "{o:?}");
        let (mut packets, _) = read(&path);
        packets.retain(|p| p.bytes[14] == 0x45 && p.bytes[34..36] == port.to_be_bytes());
        let mut captured = vec![false; sent.len()];
        for packet in &packets {
            assert_eq!(packet.bytes.len(), packet.length.min(size));
            // Eight bytes say where the packet's data begins.
            let payload = packet.payload();
            let begin = sent.windows(8).position(|some| payload.starts_with(some)).expect("its place");
            assert!(sent[begin..].starts_with(payload), "at {begin}");
            captured[begin..begin + payload.len()].fill(true);
        }
        let lengths = || packets.iter().map(|packet| packet.length).collect::<Vec<_>>();
        let missing = captured.iter().position(|captured| !captured).filter(|_| size > 10_000);
        assert_eq!(missing, None, "{:?} {}", lengths(), o.err);
        assert!(packets.iter().any(|p| p.length > 5001), "{}", packets.len());
        let _ = std::fs::remove_file(&path);
    }
    Pass
}

fn packets_go_to_the_file_of_their_clause() -> Verdict {
    let paths = [0, 1, 2].map(|n| file(&format!("pcap-of-{n}")));
    let prefix = paths[0].display().to_string();
    let (before, after) = prefix.split_once("pcap-of-0").unwrap();
    let text = format!(
        "{QUEUED} {{ freopen(\"{before}pcap-of-%d{after}\", n++ % 3); pcap(args[0], PCAP_ETHER); freopen(\"\"); \
         printf(\"%d\\n\", args[0]->len); }}"
    );
    let o = run!(traced(&["-wq"], &text, 15));
    let files = paths.each_ref().map(|path| read(path));
    // One section a file, although it was opened for each packet.
    assert!(files.iter().all(|(_, sections)| *sections == 1), "{files:?}");
    let mut packets: Vec<Captured> = files.into_iter().flat_map(|(packets, _)| packets).collect();
    packets.sort_by_key(|p| p.time);
    let lengths: Vec<String> = packets.iter().map(|p| p.length.to_string()).collect();
    assert_eq!(o.out.split_whitespace().collect::<Vec<_>>(), lengths);
    packets.retain(|p| p.payload().starts_with(b"datagram "));
    assert_eq!(packets.len(), 30);
    paths.iter().for_each(|path| drop(std::fs::remove_file(path)));
    Pass
}

fn packets_are_appended_to_a_capture_file() -> Verdict {
    let path = file("pcap-appended");
    let name = path.display();
    let text = format!("BEGIN {{ freopen(\"{name}\"); }} {QUEUED} {{ pcap(args[0], PCAP_ETHER); }}");
    for session in 1..=2 {
        run!(traced(&["-wq"], &text, 3));
        assert_eq!((datagrams(&path).len(), read(&path).1), (6 * session, session));
    }
    // An emptied file is a new one.
    let text = format!(
        "BEGIN {{ freopen(\"{name}\"); }} {QUEUED} {{ pcap(args[0], PCAP_ETHER); ftruncate(); pcap(args[0], PCAP_ETHER); }}"
    );
    run!(traced(&["-wq"], &text, 3));
    let (packets, sections) = read(&path);
    assert_eq!((packets.len(), sections), (1, 1), "{packets:?}");
    let _ = std::fs::remove_file(&path);
    Pass
}

fn text_goes_to_the_first_output_while_packets_go_to_a_file() -> Verdict {
    let path = file("pcap-and-text");
    let text = format!(
        "BEGIN {{ freopen(\"{}\"); }} {QUEUED} {{ printf(\"sent \"); pcap(args[0], PCAP_ETHER); \
         system(\"echo command\"); }}",
        path.display()
    );
    let o = run!(traced(&["-w"], &text, 3));
    assert_eq!(datagrams(&path).len(), 6);
    let rows: Vec<&str> = o.out.lines().filter(|l| l.ends_with(":net_dev_queue sent command")).collect();
    assert!(rows.len() >= 6, "{o:?}");
    assert!(o.out.starts_with("CPU     ID                    FUNCTION:NAME\n"), "{o:?}");
    let _ = std::fs::remove_file(&path);
    Pass
}

fn a_text_file_gets_dumps_of_packets() -> Verdict {
    let path = file("pcap-text");
    let text = format!(
        "BEGIN {{ freopen(\"{}\"); printf(\"text\\n\"); }} {QUEUED} {{ pcap(args[0], PCAP_ETHER); }}",
        path.display()
    );
    run!(traced(&["-wq"], &text, 1));
    let all = std::fs::read_to_string(&path).unwrap();
    assert!(all.starts_with("text\n\n             0  1  2  3"), "{all}");
    assert!(all.contains("..datagr"), "{all}");
    // Text that was there before the session, too.
    std::fs::write(&path, "before").unwrap();
    let text =
        format!("BEGIN {{ freopen(\"{}\"); }} {QUEUED} {{ pcap(args[0], PCAP_ETHER); }}", path.display());
    run!(traced(&["-wq"], &text, 1));
    let all = std::fs::read_to_string(&path).unwrap();
    assert!(all.starts_with("before\n             0  1  2  3") && all.contains("..datagr"), "{all}");
    let _ = std::fs::remove_file(&path);
    Pass
}

fn packets_without_a_file_are_dumps() -> Verdict {
    let text = format!("{QUEUED} {{ pcap(args[0], PCAP_ETHER); }}");
    let o = run!(traced(&["-q", "-x", "pcapsize=64"], &text, 1));
    // The link layer of the loopback device, and an IPv4 header.
    let dump = "
             0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f  0123456789abcdef
         0: 00 00 00 00 00 00 00 00 00 00 00 00 08 00 45 00  ..............E.
";
    assert!(o.out.contains(&dump[1..]) && o.out.contains("..datagr"), "{o:?}");
    Pass
}

fn a_capture_file_that_cannot_be_opened_is_reported() -> Verdict {
    let text = format!("BEGIN {{ freopen(\"/nosuch/x.pcap\"); }} {QUEUED} {{ pcap(args[0], PCAP_ETHER); }}");
    let o = run!(traced(&["-wq"], &text, 1));
    assert!(o.err.contains("couldn't freopen() \"/nosuch/x.pcap\": No such file or directory\n"), "{o:?}");
    // Nothing is lost: the packets are in the output.
    assert!(o.out.contains("..datagr"), "{o:?}");
    Pass
}

fn a_socket_buffer_that_cannot_be_read_faults() -> Verdict {
    let text = "BEGIN { pcap((struct sk_buff *)0, PCAP_IP); } BEGIN { printf(\"next\"); exit(0); } ERROR { @[arg4, arg5] = count(); }";
    let o = dtrace(&["-qn", text]).code(0);
    assert!(o.out.starts_with("next"), "{o:?}");
    assert!(o.err.contains("invalid address (0x0) in action #1"), "{o:?}");
    let o = dtrace(&["-qn", "BEGIN { pcap(16, PCAP_IP); }"]).code(1);
    assert!(o.err.contains("prototype: struct sk_buff *"), "{o:?}");
    Pass
}

fn a_protocol_that_is_no_link_type_is_reported() -> Verdict {
    let text = format!("{QUEUED} {{ pcap(args[0], 65535 + pid); printf(\"on\\n\"); }}");
    let o = run!(traced(&["-q"], &text, 1));
    assert!(o.err.contains("couldn't pcap(): ") && o.err.contains(" is not a link type\n"), "{o:?}");
    assert!(o.out.starts_with("on\non\n"), "{o:?}");
    Pass
}

fn tcpdump_reads_a_capture_file() -> Verdict {
    let path = file("pcap-tcpdump");
    let name = path.display().to_string();
    let text = format!("BEGIN {{ freopen(\"{name}\"); }} {QUEUED} {{ pcap(args[0], PCAP_ETHER); }}");
    run!(traced(&["-wq"], &text, 5));
    let Ok(o) = Command::new("tcpdump").args(["-n", "-tt", "-r", &name, "udp"]).output() else {
        return Skip("there is no tcpdump".into());
    };
    let (out, err) = (String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
    assert!(o.status.success(), "{err}");
    let sent = |family: &str, number: u32| {
        let length = format!("UDP, length {}", datagram(number).len());
        out.lines().filter(|l| l.contains(family) && l.ends_with(&length)).count()
    };
    for number in 0..5 {
        let counts = [" IP 127.0.0.1.", " IP6 ::1."].map(|family| sent(family, number));
        assert_eq!(counts, [1, 1], "{number}: {out} {err}");
    }
    let _ = std::fs::remove_file(&path);
    Pass
}

fn packets_in_json_have_their_lengths_and_times() -> Verdict {
    let text = format!("{QUEUED} {{ pcap(args[0], PCAP_ETHER); }}");
    let begin = now();
    let o = run!(traced(&["--format", "json", "-x", "pcapsize=50"], &text, 1));
    let end = now();
    let schema = include_str!("../../../../docs/events.schema.json");
    let lines = testing::json::lines_by(schema, &o.out);
    let packets: Vec<_> = lines
        .iter()
        .filter_map(|l| l.get("fields")?.as_array())
        .flatten()
        .filter(|f| f.get("action").and_then(|a| a.as_str()) == Some("pcap"))
        .collect();
    assert!(packets.len() >= 2, "{o:?}");
    let number = |name: &str| packets[0].get(name).and_then(|n| n.as_u64()).unwrap();
    assert_eq!([number("protocol"), number("length")], [1, 14 + 20 + 8 + datagram(0).len() as u64]);
    assert!((begin..=end).contains(&number("walltime")), "{begin} {end} {}", packets[0]);
    assert!(packets[0].to_string().contains("\"name\":\"args[0]\""), "{}", packets[0]);
    Pass
}

fn committed_packets_are_captured() -> Verdict {
    let path = file("pcap-speculated");
    let text = format!(
        "BEGIN {{ freopen(\"{}\"); }} {QUEUED} {{ self->id = speculation(); }} \
         {QUEUED} {{ speculate(self->id); pcap(args[0], PCAP_ETHER); }} \
         rawtp:::net_dev_queue /pid == $target && self->n++ % 2/ {{ commit(self->id); }} \
         {QUEUED} {{ discard(self->id); self->id = 0; @ = count(); }}",
        path.display()
    );
    let o = run!(traced(&["-wq", "-x", "nspec=32", "-x", "cleanrate=1000hz"], &text, 4));
    let packets = datagrams(&path);
    // Every second of all packets, of which eight at least are datagrams.
    let seen = o.last_number();
    assert!(seen >= 8 && read(&path).0.len() as i64 == seen / 2, "{} {o:?}", packets.len());
    assert!(!packets.is_empty(), "{o:?}");
    assert!(packets.iter().all(|p| (0..4).any(|n| p.payload() == datagram(n))), "{packets:?}");
    let _ = std::fs::remove_file(&path);
    Pass
}
