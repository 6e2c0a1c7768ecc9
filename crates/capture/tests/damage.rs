//! Damaged and hostile files.

use capture::{Firing, Item};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::files::{firing, read, written};

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

#[test]
fn heads_that_claim_the_same_bytes_again_and_again_are_not_all_followed() {
    // Each claims a mebibyte that does not have its sum.
    let mut claims = capture::unchecked_block(3, &[7; 1 << 20]);
    claims.truncate(48);
    claims[12..16].copy_from_slice(&(1u32 << 20).to_le_bytes());
    let sum = crc32(&claims[..44]);
    claims[44..].copy_from_slice(&sum.to_le_bytes());
    let mut file = written(&[], b"machine");
    file.extend(claims.repeat(40_000));
    assert!(matches!(read(&file).unwrap().last(), Some(Item::Damage(_))));
}

/// The check sum of zip and PNG.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(!0u32, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}
