//! Notes of every kind, and mutations of their bytes.

use testing::rng::Rng;

use super::*;

/// A note of `.note.stapsdt`.
fn note(addresses: [u64; 3], texts: &[&str]) -> Vec<u8> {
    let mut contents: Vec<u8> = addresses.iter().flat_map(|a| a.to_ne_bytes()).collect();
    for text in texts {
        contents.extend(text.as_bytes());
        contents.push(0);
    }
    wrapped(OWNER, KIND, &contents)
}

pub(crate) fn wrapped(owner: &[u8], kind: u32, contents: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::new();
    for word in [owner.len() as u32, contents.len() as u32, kind] {
        out.extend(word.to_ne_bytes());
    }
    for part in [owner, contents] {
        out.extend(part);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    out
}

fn read_all(bytes: &[u8], base: Option<u64>) -> Vec<Note<'_>> {
    Notes::new(bytes, base).collect()
}

#[test]
fn a_note_has_names_and_addresses() {
    let bytes =
        [note([0x10, 0x100, 0x20], &["p", "a__b", "-4@%eax"]), note([0x11, 0x100, 0], &["p", "c", ""])]
            .concat();
    let all = read_all(&bytes, Some(0x100));
    assert_eq!(all.len(), 2);
    assert_eq!((all[0].provider, all[0].name, all[0].arguments), ("p", "a__b", "-4@%eax"));
    assert_eq!((all[0].address, all[0].semaphore), (0x10, 0x20));
    assert_eq!((all[1].address, all[1].semaphore, all[1].arguments), (0x11, 0, ""));
}

#[test]
fn a_file_that_was_moved_has_its_notes_moved() {
    let bytes = note([0x10, 0x100, 0x20], &["p", "n", ""]);
    for (base, address, semaphore) in
        [(Some(0x180), 0x90, 0xa0), (Some(0x80), u64::MAX - 0x6f, u64::MAX - 0x5f), (None, 0x10, 0x20)]
    {
        let all = read_all(&bytes, base);
        assert_eq!((all[0].address, all[0].semaphore), (address, semaphore), "{base:?}");
    }
    // No semaphore stays none.
    assert_eq!(read_all(&note([0x10, 0x100, 0], &["p", "n", ""]), Some(0x180))[0].semaphore, 0);
}

#[test]
fn other_notes_are_passed_over() {
    let ours = note([1, 0, 0], &["p", "n", ""]);
    for other in [
        wrapped(b"GNU\0", 3, &[1; 20]),
        wrapped(OWNER, 4, &[1; 40]),
        wrapped(OWNER, 3, &[1; 20]),
        wrapped(b"", 3, b""),
        note([1, 0, 0], &["only"]),
    ] {
        let found = read_all(&[other.clone(), ours.clone()].concat(), None).len();
        // A provider without a name behind it has an empty name, which no description has.
        assert!(found == 1 || other.windows(4).any(|w| w == b"only"), "{other:?}");
    }
    let mut not_text = note([1, 0, 0], &["pp", "n", ""]);
    not_text[12 + 8 + 24] = 0xff;
    assert_eq!(read_all(&[not_text, ours.clone()].concat(), None).len(), 1);
    assert_eq!(read_all(&ours[..ours.len() - 1], None).len(), 1);
}

#[test]
fn a_size_beyond_the_end_ends_the_list() {
    for at in [0, 4] {
        for size in [u32::MAX, u32::MAX - 3, 1 << 31, 4096] {
            let mut bytes = note([1, 0, 0], &["p", "n", ""]);
            bytes[at..at + 4].copy_from_slice(&size.to_ne_bytes());
            assert_eq!(read_all(&bytes, None), [], "{at} {size}");
        }
    }
}

#[test]
fn any_bytes_have_no_more_notes_than_fit() {
    let mut rng = Rng::new(1);
    for _ in 0..5000 {
        let bytes: Vec<u8> = (0..rng.below(400)).map(|_| rng.bits() as u8 >> (rng.below(2) * 6)).collect();
        assert!(read_all(&bytes, Some(rng.bits())).len() <= bytes.len() / 12);
    }
}

#[test]
fn a_mutation_of_a_list_loses_at_most_what_follows() {
    let one = note([0x10, 0x100, 0x20], &["prov", "name", "8@%rax -4@$1"]);
    let mut rng = Rng::new(2);
    for _ in 0..5000 {
        let mut bytes = one.repeat(5);
        let at = rng.below(bytes.len());
        bytes[at] = rng.bits() as u8;
        bytes.truncate(1 + rng.below(bytes.len()));
        let whole = at.min(bytes.len()) / one.len();
        let found = read_all(&bytes, None);
        assert!(found.len() >= whole && found.len() <= 6);
        assert!(found.iter().take(whole).all(|n| n.name == "name" && n.address == 0x10));
    }
}
