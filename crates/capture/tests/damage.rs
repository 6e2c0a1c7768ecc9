//! Damaged and hostile files.

use capture::{Content, Firing, Item, Symbol, Writer};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::files::{firing, head, read, written};

/// A capture of several blocks: the times of its firings count up.
fn long() -> (Vec<Firing>, Vec<u8>) {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state
    };
    let firings: Vec<Firing> = (0..60_000)
        .map(|time| Firing { time, words: vec![(capture::Word::Arg(0), next())], ..Firing::default() })
        .collect();
    let file = written(&firings, b"machine");
    (firings, file)
}

/// Checks that what was read is of the firings, in their order; returns how many there are.
fn some_of(items: &[Item], firings: &[Firing]) -> usize {
    let read = items.iter().filter_map(|item| match item {
        Item::Firing(firing) => Some(firing),
        _ => None,
    });
    let mut at = 0;
    let mut count = 0;
    for one in read {
        at = one.time as usize + 1;
        assert_eq!(Some(one), firings.get(at - 1));
        count += 1;
    }
    assert!(at <= firings.len());
    count
}

#[test]
fn a_damaged_block_is_skipped_and_what_is_before_and_behind_it_is_read() {
    let (firings, mut file) = long();
    let middle = file.len() / 2;
    file[middle] ^= 0x10;
    let items = read(&file).unwrap();
    let damage: Vec<&Item> = items.iter().filter(|item| matches!(item, Item::Damage(_))).collect();
    assert_eq!(damage.len(), 1, "{damage:?}");
    let count = some_of(&items, &firings);
    assert!((firings.len() / 2..firings.len()).contains(&count), "{count}");
    assert_eq!(items.last(), Some(&Item::End(-2)));
}

#[test]
fn bytes_that_were_lost_or_added_cost_one_block() {
    let (firings, file) = long();
    let middle = file.len() / 2;
    for changed in [
        [&file[..middle], &file[middle + 100..]].concat(),
        [&file[..middle], &[0xf5; 100], &file[middle..]].concat(),
    ] {
        let items = read(&changed).unwrap();
        assert!(some_of(&items, &firings) >= firings.len() / 2);
        assert_eq!(items.last(), Some(&Item::End(-2)));
    }
}

#[test]
fn a_file_that_was_cut_short_has_all_that_is_before_the_cut_and_no_end() {
    let (firings, file) = long();
    let items = read(&file[..file.len() * 3 / 4]).unwrap();
    assert!(some_of(&items, &firings) >= firings.len() / 2);
    assert!(matches!(items.last(), Some(Item::Damage(_))));
}

proptest! {
    #[test]
    fn files_with_any_changes_are_read_to_their_end(
        firings in vec(firing(), 0..20),
        changes in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..10),
    ) {
        let mut file = written(&firings, b"machine");
        for (at, to) in changes {
            let at = at.index(file.len());
            file[at] = to;
        }
        let items = read(&file).unwrap_or_default();
        let known = |item: &Item| !matches!(item, Item::Firing(firing) if !firings.contains(firing));
        prop_assert!(items.iter().all(known));
    }

    #[test]
    fn any_contents_of_a_block_are_read_or_refused(contents in vec(any::<u8>(), 0..300), kind in 0..7u8) {
        // With right sums, as a hostile writer makes them.
        let mut file = written(&[], b"machine");
        file.extend(capture::unchecked_block(kind, &contents));
        read(&file).unwrap();
    }
}

/// A head of a block of firings that claims a mebibyte, which does not have its sum.
fn claim() -> Vec<u8> {
    let mut claim = capture::unchecked_block(3, &[7; 1 << 20]);
    claim.truncate(48);
    claim[12..16].copy_from_slice(&(1u32 << 20).to_le_bytes());
    let sum = crc32(&claim[..44]);
    claim[44..].copy_from_slice(&sum.to_le_bytes());
    claim
}

#[test]
fn heads_that_claim_the_same_bytes_again_and_again_are_not_all_followed() {
    let mut file = written(&[], b"machine");
    file.extend(claim().repeat(40_000));
    assert!(matches!(read(&file).unwrap().last(), Some(Item::Damage(_))));
}

#[test]
fn beginnings_of_blocks_one_after_the_other_are_passed_over_one_by_one() {
    // Each was moved to the front once, with the mebibyte behind it: minutes.
    let sync = &claim()[..8];
    let mut file = written(&[], b"machine");
    let before = file.len();
    for _ in 0..4 {
        file.extend(claim());
        file.extend(sync.repeat((1 << 20) / 8));
    }
    let items = read(&file).unwrap();
    assert_eq!(items.last(), Some(&Item::Damage((file.len() - before) as u64)));
}

#[test]
fn a_block_that_says_nothing_is_damage_also_behind_other_damage() {
    let mut file = written(&[], b"machine");
    let whole = read(&file).unwrap();
    // A count of firings, and none of them.
    let malformed = capture::unchecked_block(3, &[5, 0]);
    file.extend(&malformed);
    let damage = |bytes: usize| vec![Item::Damage(bytes as u64)];
    assert_eq!(read(&file).unwrap(), [whole.clone(), damage(malformed.len())].concat());
    let last = file.len() - malformed.len();
    file.splice(last..last, [0; 100]);
    assert_eq!(read(&file).unwrap(), [whole, damage(100 + malformed.len())].concat());
}

#[test]
fn a_name_longer_than_those_of_threads_is_no_firing() {
    // It is in the file once, and would be in memory with each firing.
    let name = Content::Bytes(vec![b'x'; 10_000]);
    let mut writer = Writer::new(Vec::new(), &head(), b"m").unwrap();
    for time in 0..1000 {
        writer.firing(&Firing { time, execname: Some(name.clone()), ..Firing::default() }).unwrap();
    }
    let items = read(&writer.finish(0).unwrap()).unwrap();
    assert!(!items.is_empty() && items.iter().all(|item| !matches!(item, Item::Firing(_))), "{items:?}");
}

#[test]
fn names_of_stacks_are_cut_and_a_block_has_no_more_of_them_than_a_reader_takes() {
    // The file has it once, and memory with each frame.
    let long = Symbol { symbol: Some(vec![b's'; 20_000]), ..Symbol::default() };
    let firing = Firing { stack: Some(vec![long; 24]), ..Firing::default() };
    let mut writer = Writer::new(Vec::new(), &head(), b"m").unwrap();
    for time in 0..800 {
        writer.firing(&Firing { time, ..firing.clone() }).unwrap();
    }
    let items = read(&writer.finish(0).unwrap()).unwrap();
    let frames = items.iter().filter_map(|item| match item {
        Item::Firing(firing) => firing.stack.as_ref(),
        _ => None,
    });
    let lengths: Vec<usize> = frames.flatten().map(|frame| frame.symbol.as_ref().unwrap().len()).collect();
    assert_eq!(lengths, [5120].repeat(800 * 24));
}

#[test]
fn what_is_missing_is_told_in_few_words() {
    let mut writer = Writer::new(Vec::new(), &head(), b"m").unwrap();
    writer.loss(&"x".repeat(100_000), 1);
    writer.loss("drops", 2);
    let items = read(&writer.finish(0).unwrap()).unwrap();
    assert!(
        matches!(&items[..], [Item::Damage(_), Item::Loss(loss), Item::End(0)] if loss.count == 2),
        "{items:?}"
    );
}

/// The check sum of zip and PNG.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(!0u32, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}
