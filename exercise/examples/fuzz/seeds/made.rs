//! Inputs of formats for which this machine has no file: small ones, written here.

use std::borrow::Cow;
use std::sync::Arc;

use events::{
    Action, Calls, Clock, Encoder, Event, Field, Firing, Host, Part, Probe, Record, Sink, Start, Value,
};
use exercise::choices::Choices;
use plane::control::{PERCPU_STRIDE, RESERVE};
use plane::ring::{HEADER_SIZE, origin, stamp};
use postmortem::{Head, Log};
use testing::elf::{Elf, GLOBAL_FUNCTION};

pub(super) fn noise(seed: u64) -> Vec<u8> {
    let mut random = Choices::seed(seed);
    (0..300).map(|_| random.bits() as u8).collect()
}

fn words(all: &[u32]) -> Vec<u8> {
    all.iter().copied().flat_map(u32::to_ne_bytes).collect()
}

fn some_events() -> Vec<Event<'static>> {
    let probe = Arc::new(Probe::new(1, ["p", "m", "f", "n"].map(Arc::from), Calls::None));
    let record = |n: u64| {
        let value = Value::Str { text: b"text".to_vec().into(), size: 5 };
        let fields = vec![Field { name: "trace".into(), action: Action::Trace(value) }];
        let firing = Firing::new(n, 0, 1, Cow::Owned(probe.clone()));
        Event::Record(Record { firing, part: Part::WHOLE, fields })
    };
    let start = Start::new("v", Clock { time: 0, wall: 0 }, Host::new("h", "r", "m", 1));
    std::iter::once(Event::Start(start)).chain((0..8).map(record)).collect()
}

/// Encoded events, without what a stream begins with.
pub(super) fn events() -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new());
    for event in some_events() {
        let _ = encoder.event(&event);
    }
    let _ = encoder.flush();
    encoder.get_ref().get(events::MAGIC.len() + 4..).unwrap_or_default().to_vec()
}

/// A capture without the magic and the version, which the target adds.
pub(super) fn capture() -> Vec<u8> {
    use capture::{Content, Firing, Head, Place, Region, Word, Writer};
    let head = Head { probes: vec![(1, "a:b:c:d".into())], ..Head::default() };
    let Ok(mut writer) = Writer::new(Vec::new(), &head, b"machine") else { return Vec::new() };
    let region = |content| Region { place: Place::User, address: 4096, content };
    let firing = Firing {
        time: 5,
        words: vec![(Word::Pid, 7), (Word::Arg(1), 4096)],
        execname: Some(Content::Bytes(b"cat".to_vec())),
        memory: vec![region(Content::Bytes(b"/etc/passwd".to_vec())), region(Content::Unreadable)],
        ..Firing::default()
    };
    for time in 5..9 {
        let _ = writer.firing(&Firing { time, ..firing.clone() });
    }
    let file = writer.finish(0).unwrap_or_default();
    file.get(capture::MAGIC.len() + 4..).unwrap_or_default().to_vec()
}

/// A core file with the last events of a session in its only segment.
pub(super) fn core_file() -> Vec<u8> {
    let mut log = Log::new(4096);
    some_events().iter().for_each(|event| log.add(event));
    let mut memory = log.image(log.totals(), Head { pid: 7, tid: 8, signal: 11, wall: 9, ..Head::default() });
    memory.resize(4096, 0);
    let mut file = vec![0; 4096];
    let mut put = |at: usize, bytes: &[u8]| {
        file.iter_mut().skip(at).zip(bytes).for_each(|(to, from)| *to = *from);
    };
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &4u16.to_le_bytes());
    put(32, &64u64.to_le_bytes());
    put(54, &56u16.to_le_bytes());
    put(56, &1u16.to_le_bytes());
    put(64, &words(&[1, 6]));
    put(72, &4096u64.to_le_bytes());
    put(96, &4096u64.to_le_bytes());
    [file, memory].concat()
}

/// Records of perf's side-band: a process that begins, is named, maps a file and ends.
pub(super) fn side_band() -> Vec<u8> {
    let mut out = Vec::new();
    let mut add = |kind: u32, misc: u16, body: Vec<u8>| {
        let size = (8 + body.len() + 8) as u16;
        out.extend(kind.to_ne_bytes());
        out.extend([misc, size].into_iter().flat_map(u16::to_ne_bytes));
        out.extend(body);
        out.extend(7u64.to_ne_bytes());
    };
    let map = |inode: u64, path: &[u8]| {
        let places = [0x1000u64, 0x2000, 0].into_iter().flat_map(u64::to_ne_bytes).collect();
        let identity = [words(&[8, 1]), inode.to_ne_bytes().to_vec(), vec![0; 8]].concat();
        [words(&[42, 42]), places, identity, words(&[5, 2]), path.to_vec()].concat()
    };
    add(7, 0, words(&[42, 1, 42, 1, 0, 0]));
    add(3, 1 << 13, [words(&[42, 42]), b"program\0".to_vec()].concat());
    add(10, 2, map(99, b"/usr/bin/program\0\0\0\0\0\0\0\0"));
    add(10, 2 | 1 << 14, map(20, b"/lib/libc.so.6\0\0"));
    add(2, 0, vec![0; 16]);
    add(4, 0, words(&[42, 1, 42, 1, 0, 0]));
    out
}

/// A provider of the original's with one probe.
pub(super) fn dof() -> Vec<u8> {
    let address = 0x4000u64.to_ne_bytes().to_vec();
    let probe = [address, words(&[5, 10, 13, 0, 0, 1]), vec![3, 0, 2, 0], words(&[0, 0, 0])].concat();
    let parts = [
        (8, 0, b"\0app\0main\0go\0char *\0int\0short\0".to_vec()),
        (16, 48, probe),
        (17, 1, vec![0]),
        (18, 4, words(&[99, 0x10, 0x20])),
        (15, 44, [words(&[0, 1, 2, 3, 1]), vec![0; 24]].concat()),
    ];
    let mut out = vec![0x7f, b'D', b'O', b'F', 2, 1, 1, 2, 8, 8, 0, 0, 0, 0, 0, 0];
    out.extend(words(&[0, 64, 32, parts.len() as u32]));
    out.extend([64u64, 0, 0, 0].into_iter().flat_map(u64::to_ne_bytes));
    let mut at = (64 + 32 * parts.len()) as u64;
    let mut bodies = Vec::new();
    for (kind, entry, body) in &parts {
        out.extend(words(&[*kind, 8, 1, *entry]));
        out.extend([at, body.len() as u64].into_iter().flat_map(u64::to_ne_bytes));
        at += body.len() as u64;
        bodies.extend_from_slice(body);
    }
    [out, bodies].concat()
}

/// Notes of the port: a site, and a definition.
pub(super) fn port_notes() -> Vec<u8> {
    let note = |owner: &[u8], kind: u32, contents: Vec<u8>| {
        let mut out = words(&[owner.len() as u32, contents.len() as u32, kind]);
        for part in [owner, &contents] {
            out.extend(part);
            out.resize(out.len().next_multiple_of(4), 0);
        }
        out
    };
    let site = [&[0u8; 16][..], b"app\0sent\0\x028@%rdi -4@%esi\0"].concat();
    let mut definition = b"app\0".to_vec();
    definition.extend(words(&[0x0505_0500, 0x0101_0000, 0x0101_0000, 0x0505_0500, 0x0505_0500, 1]));
    definition.extend(b"sent\0\x02int\0char *\0\x01string\0\x01");
    [note(b"prov\0", 1, definition), note(b"usdt\0", 1, site)].concat()
}

pub(super) fn perf_map() -> Vec<u8> {
    let line = |n: u32| format!("{:x} {:x} LazyCompile:*f{n} file.js:{n}\n", 0x7f00_0000 + 64 * n, 32 + n);
    (0..40).map(line).collect::<String>().into_bytes()
}

/// A stripped program with a debug link, and its debug file.
pub(super) fn linked(supplement: &[u8]) -> Option<Vec<Vec<u8>>> {
    let symbols = vec![("reach".to_string(), 0, 16, GLOBAL_FUNCTION)];
    let debug = Elf { code: vec![0x90; 16], symbols, ..Elf::default() }.bytes();
    let debug_link = Some((b"x.debug".to_vec(), testing::elf::checksum(&debug)));
    let own = Elf { code: vec![0x90; 16], debug_link, ..Elf::default() }.bytes();
    Some(vec![own, debug, supplement.to_vec(), Vec::new(), b"node".to_vec()])
}

/// The store of names with two code objects.
pub(super) fn calls() -> Vec<u8> {
    let mut out = 0u64.to_le_bytes().to_vec();
    for (file, name, width) in
        [(&b"/srv/app.py"[..], &b"Class.method"[..], 1u64), (b"a\0b\0", b"f\0g\0h\0", 2)]
    {
        let head = 7 | (file.len() as u64) << 32 | (name.len() as u64) << 48;
        out.extend([head, width | width << 8].into_iter().flat_map(u64::to_le_bytes));
        for part in [file, name] {
            out.extend(part);
            out.resize(out.len().next_multiple_of(8), 0);
        }
    }
    out
}

pub(super) fn kernel_symbols() -> Vec<u8> {
    let line = |n: u64| {
        let module = if n.is_multiple_of(3) { "\t[ext4]" } else { "" };
        format!(
            "{:016x} {} symbol_{n}{module}\n",
            0xffff_ffff_8100_0000 + 64 * n,
            ['T', 't', 'D'][n as usize % 3]
        )
    };
    (0..60).map(line).collect::<String>().into_bytes()
}

/// The formats of some events, and one as kernels write it.
pub(super) fn event_formats() -> Vec<Vec<u8>> {
    const SWITCH: &str = "name: sched_switch\nID: 316\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:const struct page * page;\toffset:32;\tsize:8;\tsigned:0;\n\
        \tfield:__data_loc char[] name;\toffset:40;\tsize:4;\tsigned:0;\n\
        \tfield:u8 addr[LONG_NAME];\toffset:48;\tsize:6;\tsigned:0;\n\nprint fmt: \"%s\", REC->name\n";
    vec![SWITCH.into()]
}

/// Records of a ring, from its beginning on.
pub(super) fn ring() -> Vec<u8> {
    let mut out = Vec::new();
    for n in 0..40u64 {
        let length = u64::from(HEADER_SIZE) + 8 * (1 + n % 4);
        let header = [stamp(out.len() as u64, length as u32), 1000 + n, origin(n as u32 % 3, 0, 0)];
        let words = header.into_iter().chain(0..(length - u64::from(HEADER_SIZE)) / 8);
        let start = out.len();
        out.extend(words.flat_map(u64::to_le_bytes));
        out.resize(start + length as usize, 0);
    }
    out
}

/// The control elements of two rings: some bytes are reserved, nothing is consumed.
pub(super) fn control() -> Vec<u8> {
    let mut out = vec![0; 2 * PERCPU_STRIDE as usize];
    for cpu in 0..2 {
        let at = (cpu * PERCPU_STRIDE + RESERVE) as usize;
        out.iter_mut().skip(at).zip(1024u64.to_le_bytes()).for_each(|(to, from)| *to = from);
    }
    out
}
