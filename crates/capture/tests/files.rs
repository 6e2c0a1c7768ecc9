//! What was written is read.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

use capture::{Content, Firing, Head, Item, Loss, Place, Reader, Region, Symbol, Word, Writer};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// A capture of two probes on a machine of these bytes.
pub(crate) fn head() -> Head {
    let probes = vec![(7, "syscall::read:entry".to_owned()), (8, "syscall::read:return".to_owned())];
    let (tracer, host) = ("1".to_owned(), "there".to_owned());
    Head { tracer, host, cpus: 4, clock: (5, 6), target: 9, probes, ..Head::default() }
}

pub(crate) fn firing() -> impl Strategy<Value = Firing> {
    let word = any::<u8>().prop_filter_map("unknown", Word::of_code);
    let text = |most| {
        let bytes = (any::<bool>(), vec(any::<u8>(), 0..most));
        bytes.prop_map(|(is_cut, bytes)| if is_cut { Content::Start(bytes) } else { Content::Bytes(bytes) })
    };
    let content = prop_oneof![text(40), Just(Content::Unreadable)];
    let place = (0..Place::ALL.len()).prop_map(|n| Place::ALL[n]);
    let region = (place, any::<u64>(), content).prop_map(|(place, address, content)| Region {
        place,
        address,
        content,
    });
    let words = vec((word, any::<u64>()), 0..6);
    let stack = || option::of(vec(symbol(), 0..4));
    let stacks = (stack(), stack(), vec((option::of(0..u32::MAX), symbol()), 0..3));
    let parts = (0..2u32, any::<u64>(), any::<u32>(), words, option::of(text(16)), vec(region, 0..4), stacks);
    parts.prop_map(|(probe, time, cpu, words, execname, memory, (stack, ustack, symbols))| Firing {
        probe,
        time,
        cpu,
        words,
        execname,
        memory,
        stack,
        ustack,
        symbols,
    })
}

fn symbol() -> impl Strategy<Value = Symbol> {
    let name = || option::of(vec(any::<u8>(), 0..8));
    let parts = (any::<u64>(), name(), name(), name(), any::<u64>(), option::of(any::<u64>()));
    parts.prop_map(|(address, module, symbol, path, offset, in_file)| Symbol {
        address,
        module,
        symbol,
        path,
        offset,
        in_file,
    })
}

pub(crate) fn written(firings: &[Firing], machine: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &head(), machine).unwrap();
    firings.iter().for_each(|firing| writer.firing(firing).unwrap());
    writer.loss("drops", 3);
    writer.finish(-2).unwrap()
}

pub(crate) fn read(file: &[u8]) -> Result<Vec<Item>, capture::Error> {
    let mut reader = Reader::open(file, 1 << 20)?;
    let mut all = Vec::new();
    while let Some(item) = reader.next_item()? {
        all.push(item);
    }
    Ok(all)
}

proptest! {
    #[test]
    fn firings_are_read_as_they_were_written(firings in vec(firing(), 0..50)) {
        let mut all: Vec<Item> = firings.iter().cloned().map(Item::Firing).collect();
        all.extend([Item::Loss(Loss { what: "drops".into(), count: 3 }), Item::End(-2)]);
        prop_assert_eq!(read(&written(&firings, b"machine")).unwrap(), all);
    }
}

#[test]
fn a_machine_of_several_blocks_is_read_whole_and_not_beyond_the_limit() {
    let mut state = 1u64;
    let machine: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(1_500_000)
    .collect();
    let file = written(&[], &machine);
    let reader = Reader::open(&file[..], 2 << 20).unwrap();
    assert_eq!((reader.machine(), reader.head()), (&machine[..], &head()));
    let wrong = Reader::open(&file[..], 1 << 20).err().unwrap();
    assert_eq!(wrong.to_string(), "the capture is damaged: the machine cannot be read");
}

#[test]
fn what_is_no_capture_and_what_is_a_later_one_are_told_apart() {
    let mut file = written(&[], b"machine");
    file[8] = 3;
    let why = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    assert_eq!(why(&file), "a capture of version 3, and this dtrace reads version 2");
    assert_eq!(why(b""), "this is no capture: --capture writes one");
    assert_eq!(why(b"\x7fELF............"), "this is no capture: --capture writes one");
}

#[test]
fn what_repeats_is_in_a_block_once() {
    let text = vec![b'x'; 1000];
    let region = Region { place: Place::User, address: 1 << 40, content: Content::Bytes(text) };
    let firing = Firing {
        words: vec![(Word::Pid, 1000), (Word::Arg(0), 3)],
        execname: Some(Content::Bytes(b"cat".to_vec())),
        memory: vec![region],
        ..Firing::default()
    };
    let firings: Vec<Firing> = (0..1000).map(|time| Firing { time, ..firing.clone() }).collect();
    assert!(written(&firings, b"").len() < 1000 + 40 * 1000);
}

/// A file that is looked at while it is written.
#[derive(Clone, Default)]
struct Seen(Rc<RefCell<Vec<u8>>>);

impl Write for Seen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_is_missing_is_in_the_file_before_its_end() {
    let seen = Seen::default();
    let mut writer = Writer::new(seen.clone(), &head(), b"m").unwrap();
    let firing = |time| Firing { time, ..Firing::default() };
    let loss = |what: &str, count| Item::Loss(Loss { what: what.into(), count });
    writer.firing(&firing(1)).unwrap();
    writer.loss("drops", 3);
    writer.loss("drops", 4);
    writer.flush().unwrap();
    let first = vec![Item::Firing(firing(1)), loss("drops", 7)];
    assert_eq!(read(&seen.0.borrow()).unwrap(), first);
    // What comes later is added to it.
    writer.loss("drops", 1);
    writer.flush().unwrap();
    writer.flush().unwrap();
    assert_eq!(read(&seen.0.borrow()).unwrap(), [first, vec![loss("drops", 1)]].concat());
}

#[test]
fn losses_are_written_with_a_full_block_and_a_firing_that_is_too_long_is_one() {
    let seen = Seen::default();
    let mut writer = Writer::new(seen.clone(), &head(), b"m").unwrap();
    let region = |length| Region { place: Place::User, address: 0, content: Content::Bytes(vec![7; length]) };
    let firing = |length| Firing { memory: vec![region(length)], ..Firing::default() };
    writer.firing(&firing(1 << 20)).unwrap();
    writer.firing(&firing(300 << 10)).unwrap();
    writer.firing(&firing(1)).unwrap();
    let what = "firings with more memory than a capture keeps".to_owned();
    assert_eq!(
        read(&seen.0.borrow()).unwrap(),
        [Item::Firing(firing(300 << 10)), Item::Loss(Loss { what, count: 1 })]
    );
}
