//! Records and keys that are not as their layouts say: no panic, and a message where data is lost.
#![allow(clippy::unwrap_used)]

use consumer::Options;
use plane::desc::{Action, AddrForm, AggFunc, Datum};

use crate::common::{I16, STR, Session, U8, U64, V, probe};

const KEY: [Datum; 7] = [
    STR,
    I16,
    Datum::UserAddr(AddrForm::Function),
    Datum::KernelAddr(AddrForm::Module),
    Datum::KernelStack { frames: 4 },
    Datum::Address { strsize: 256 },
    Datum::Bytes { size: 12 },
];

#[test]
fn records_that_are_cut_at_any_byte_are_reported_and_the_others_printed() {
    for flowindent in [false, true] {
        let mut s = Session::new(Options { quiet: true, flowindent, ..Options::default() });
        let p = probe(1, "fbt::f:entry");
        let epid = s.clause(&p, &[STR, U64, U8, Datum::Bytes { size: 5 }], |f| {
            let memory = Action::Tracemem { bytes: f[3], len: Some(f[2]) };
            vec![Action::Trace(f[0]), Action::Trace(f[1]), memory]
        });
        // A length beyond the object dumps all of it, and a string may fill its field.
        let full = |length| [V::S("0123456789abcdef0123456789abcdef"), V::N(7), V::N(length), V::B(b"abcde")];
        s.record(0, epid, &full(255));
        // Without the padding at the end of a record.
        let size = 32 + 8 + 1 + 5;
        for length in 0..size {
            s.record(0, epid, &full(3));
            s.last_data().truncate(length);
        }
        s.record(0, epid, &full(5));
        s.drain();
        assert_eq!(s.output().matches("0123456789abcdef0123456789abcdef").count(), 2);
        let messages = s.messages();
        assert_eq!(messages.len(), size, "{messages:?}");
        assert!(messages.iter().all(|m| m == "record of enabled probe ID 1 is too short"), "{messages:?}");
    }
}

#[test]
fn faults_that_are_cut_at_any_byte_are_reported() {
    let mut s = Session::new(Options::default());
    let p = probe(1, "fbt::f:entry");
    let epid = s.traces(&p, &[]);
    for length in 0..16 {
        s.fault(epid, 1, 1, 0, 0);
        s.last_data().truncate(length);
    }
    s.drain();
    let messages = s.messages();
    assert_eq!(messages.len(), 16, "{messages:?}");
    assert!(messages.iter().all(|m| m == "malformed fault record of enabled probe ID 1"), "{messages:?}");
}

/// Keys and values of every length, with every byte set: strings without an end, numbers beyond
/// their types.
#[test]
fn keys_and_values_of_any_length_are_merged_sorted_and_printed() {
    let functions = [
        AggFunc::Count,
        AggFunc::Avg,
        AggFunc::Quantize,
        AggFunc::Lquantize { base: 0, limit: 10, step: 1 },
        AggFunc::Llquantize { factor: 10, low: 0, high: 3, nsteps: 10 },
    ];
    for position in [0, 1, 5, usize::MAX] {
        let mut s = Session::new(Options {
            quiet: true,
            aggsortkey: position != 1,
            aggsortkeypos: position,
            aggsortpos: position,
            agghist: position == 5,
            aggpack: position == 0,
            ..Options::default()
        });
        for func in functions {
            let id = s.aggregation("a", func, &KEY);
            let size = s.key_size(id);
            let words = func.value_size() as usize / 8;
            for length in 0..size + 9 {
                let key = vec![0xff - length as u8; length];
                s.kernel.slots.push((id, key, vec![!0; length % (words + 3)]));
            }
        }
        s.finish();
        assert!(!s.output().is_empty());
    }
}
