//! Rows of records: headers, default formats, quiet mode, flow indentation, faults, output errors.

use std::io::{self, Write};
use std::sync::Arc;

use consumer::{Consumer, NoSymbols, Options, RawRecord, Text};
use events::{Calls, Probe};
use plane::desc::{Action, AddrForm, AggFunc, Datum};
use plane::stacks::Stack;

use crate::common::*;

fn quiet() -> Options {
    Options { quiet: true, ..Options::default() }
}

#[test]
fn values_have_their_columns() {
    let mut s = Session::new(Options::default());
    let read = probe(351, "syscall:vmlinux:read:entry");
    let begin = probe(1, "dtrace:::BEGIN");
    let ints = s.traces(&read, &[I64, I32, I16, U8]);
    let string = s.traces(&read, &[STR]);
    let bytes = s.traces(&read, &[Datum::Bytes { size: 20 }]);
    let empty = s.clause(&begin, &[], |_| vec![Action::None]);
    s.record(0, ints, &[V::N(-1), V::N(42), V::N(7), V::N(255)]);
    s.record(1, ints, &[V::N(i64::MAX), V::N(-42), V::N(-7), V::N(0)]);
    s.record(0, string, &[V::S("/etc/passwd")]);
    s.record(0, string, &[V::S("")]);
    s.record(13, empty, &[]);
    s.record(0, bytes, &[V::B(b"text\0\0")]);
    s.record(0, bytes, &[V::B(b"\x7fELF\x02\x01 0123456789abc")]);
    s.drain();
    golden("values", &s.output());
}

#[test]
fn quiet_rows_are_bare() {
    let mut s = Session::new(quiet());
    let p = probe(1, "dtrace:::BEGIN");
    let epid = s.traces(&p, &[I64, STR, I32]);
    s.record(0, epid, &[V::N(1), V::S("a"), V::N(-2)]);
    s.record(0, epid, &[V::N(3), V::S("b"), V::N(-4)]);
    s.drain();
    assert_eq!(s.output(), "1a-23b-4");
}

#[test]
fn the_heading_is_printed_once_over_all_batches() {
    let mut s = Session::new(Options::default());
    let p = probe(1, "dtrace:::BEGIN");
    let epid = s.clause(&p, &[], |_| vec![Action::None]);
    for _ in 0..2 {
        s.record(0, epid, &[]);
        s.drain();
    }
    let row = "  0      1                           :BEGIN \n";
    assert_eq!(s.output(), format!("CPU     ID                    FUNCTION:NAME\n{row}{row}"));
}

// row format.stack, format.symbol
#[test]
fn stacks_and_symbols() {
    let mut s = Session::new(Options::default());
    let p = probe(99, "profile:::profile-997");
    let user = s.traces(&p, &[Datum::UserStack { frames: 20, strsize: 0 }]);
    let kernel = s.traces(&p, &[Datum::KernelStack { frames: 20 }]);
    let symbols = s.traces(
        &p,
        &[
            Datum::KernelAddr(AddrForm::Symbol),
            Datum::KernelAddr(AddrForm::Module),
            Datum::UserAddr(AddrForm::Address),
        ],
    );
    s.kernel
        .stacks
        .insert(5, Stack { tgid: 0, time: 0, pcs: vec![0x1_0010, 0x1_0200, 0, 9], ..Stack::default() });
    s.kernel.stacks.insert(6, Stack { tgid: 77, time: 0, pcs: vec![0x1_0010], ..Stack::default() });
    s.record(0, kernel, &[V::N(5)]);
    s.record(0, user, &[V::N(6)]);
    // A stack that could not be stored.
    s.record(0, user, &[V::N(0)]);
    s.record(0, symbols, &[V::N(0x1_0010), V::N(0x1_0010), V::U(0x2_0020, 77)]);
    s.consumer.set_options(Options { stackindent: 2, ..Options::default() });
    s.drain();
    golden("stacks", &s.output());
}

#[test]
fn frames_that_are_not_known_are_incomplete_with_and_without_names() {
    for named in [true, false] {
        let mut s = Session::new(quiet());
        s.consumer.name_stacks(named);
        let epid = s.traces(&probe(1, "p:m:f:n"), &[Datum::UserStack { frames: 20, strsize: 0 }]);
        s.kernel.stacks.insert(5, Stack { tgid: 7, time: 0, pcs: vec![0x9_9999, 1], ..Stack::default() });
        s.record(0, epid, &[V::N(5)]);
        s.drain();
        let lines: Vec<String> =
            s.output().lines().map(|l| l.trim().to_string()).filter(|l| !l.is_empty()).collect();
        let first = if named { "obj7.9`f99900+0x99" } else { "0x99999" };
        assert_eq!(lines, [first, "[incomplete]"]);
    }
    // Of the kernel, the mark of a guest and that of two walks that differ, too; what follows them
    // is an address.
    let marks = [
        (vec![0x9_9999, 1], "[incomplete]"),
        (vec![2], "[guest]"),
        (vec![0x9_9999, 3], "[differs]"),
        (vec![4], "0x4"),
    ];
    for (pcs, last) in marks {
        let mut s = Session::new(quiet());
        s.consumer.name_stacks(false);
        let epid = s.traces(&probe(1, "p:m:f:n"), &[Datum::KernelStack { frames: 20 }]);
        s.kernel.stacks.insert(5, Stack { tgid: 0, time: 0, pcs, ..Stack::default() });
        s.record(0, epid, &[V::N(5)]);
        s.drain();
        assert_eq!(s.output().lines().map(str::trim).rfind(|l| !l.is_empty()), Some(last), "{}", s.output());
    }
}

#[test]
fn a_stack_that_the_source_does_not_have_is_a_drop() {
    let mut s = Session::new(quiet());
    let epid = s.traces(&probe(1, "p:m:f:n"), &[Datum::KernelStack { frames: 20 }]);
    let agg = s.aggregation("a", AggFunc::Count, &[Datum::UserStack { frames: 20, strsize: 0 }]);
    // Nothing is lost here: there was no stack, or the program has counted it.
    s.record(0, epid, &[V::N(0)]);
    s.record(0, epid, &[V::N(7)]);
    s.drain();
    s.add(agg, &[V::N(8)], &[1]);
    s.finish();
    s.consumer.dropped([], None);
    assert_eq!(s.messages(), ["2 stack drops"]);
    s.consumer.dropped([], None);
    assert_eq!(s.messages(), [""; 0]);
}

// row format.hexdump
#[test]
fn tracemem_dumps_the_given_length() {
    let mut s = Session::new(quiet());
    let p = probe(1, "dtrace:::BEGIN");
    let epid = s.clause(&p, &[Datum::Bytes { size: 32 }, I64], |f| {
        vec![Action::Tracemem { bytes: f[0], len: Some(f[1]) }]
    });
    for len in [0, 3, 16, 17, 33, -1] {
        s.record(0, epid, &[V::B(b"abcdefghijklmnopqrstuvwxyz\x00\x01\xff"), V::N(len)]);
    }
    s.drain();
    golden("tracemem", &s.output());
}

#[test]
fn rawbytes_dumps_strings_too() {
    let mut s = Session::new(Options { rawbytes: true, ..quiet() });
    let p = probe(1, "dtrace:::BEGIN");
    let epid = s.traces(&p, &[STR]);
    s.record(0, epid, &[V::S("abc")]);
    s.drain();
    golden("rawbytes", &s.output());
}

#[test]
fn interned_strings_are_strings() {
    let mut s = Session::new(quiet());
    s.consumer.intern(3, b"getppid".as_slice());
    let p = probe(1, "dtrace:::BEGIN");
    let epid = s.traces(&p, &[Datum::Interned]);
    s.record(0, epid, &[V::N(3)]);
    s.record(0, epid, &[V::N(4)]);
    s.drain();
    assert_eq!(s.output(), "getppid");
}

#[test]
fn printf_adds_nothing_but_the_rows_newline() {
    let mut s = Session::new(Options::default());
    let p = probe(1, "dtrace:::BEGIN");
    let printf = |f: &[plane::desc::Field]| {
        vec![Action::Printf { format: "Hello %s %d!\n".into(), args: f.to_vec() }, Action::Trace(f[1])]
    };
    let epid = s.clause(&p, &[STR, I32], printf);
    s.record(0, epid, &[V::S("World"), V::N(7)]);
    s.drain();
    let expected = "CPU     ID                    FUNCTION:NAME\n  0      1                           :BEGIN Hello World 7!\n        7\n";
    assert_eq!(s.output(), expected);
    s.consumer.set_options(quiet());
    s.record(0, epid, &[V::S("World"), V::N(7)]);
    s.drain();
    assert_eq!(s.output(), "Hello World 7!\n7");
}

// row format.flow
#[test]
fn flow_is_indented_by_cpu() {
    let mut s = Session::new(Options { flowindent: true, ..Options::default() });
    let enter = [probe(10, "fbt:vmlinux:outer:entry"), probe(11, "fbt:vmlinux:inner:entry")];
    let leave = [probe(20, "fbt:vmlinux:outer:return"), probe(21, "fbt:vmlinux:inner:return")];
    let other = probe(30, "sched:vmlinux::on-cpu");
    let calls = [probe(40, "syscall:vmlinux:read:entry"), probe(41, "syscall:vmlinux:read:return")];
    let carpentry = probe(50, "wood:::carpentry");
    let mut epids = Vec::new();
    for p in enter.iter().chain(&leave).chain([&other]).chain(&calls).chain([&carpentry]) {
        epids.push(s.clause(p, &[], |_| vec![Action::None]));
    }
    let outer_again = s.clause(&enter[0], &[I64], |f| vec![Action::Trace(f[0])]);
    let outer_left_again = s.clause(&leave[0], &[I64], |f| vec![Action::Trace(f[0])]);
    let [outer, inner, outer_left, inner_left, on_cpu, read, read_left, wood] = epids[..] else { panic!() };
    s.record(0, read, &[]);
    s.record(0, outer, &[]);
    s.record(0, outer_again, &[V::N(1)]);
    s.record(1, outer, &[]);
    s.record(0, inner, &[]);
    s.record(0, on_cpu, &[]);
    s.record(0, wood, &[]);
    s.record(1, outer_left, &[]);
    s.record(0, inner_left, &[]);
    s.record(0, outer_left, &[]);
    s.record(0, outer_left_again, &[V::N(2)]);
    s.record(0, read_left, &[]);
    s.record(0, read_left, &[]);
    s.drain();
    golden("flow", &s.output());
}

#[test]
fn indentation_recovers_where_returns_are_missing() {
    let mut s = Session::new(Options { flowindent: true, ..Options::default() });
    let names = ["syscall:vmlinux:open:entry", "fbt:vmlinux:f:entry", "fbt:vmlinux:g:entry"];
    let leave = ["syscall:vmlinux:open:return", "fbt:vmlinux:f:return", "fbt:vmlinux:trace:return"];
    let names: Vec<_> = names.iter().chain(&leave).collect();
    let probes = names.iter().enumerate().map(|(i, n)| probe(i as u32 + 1, n)).collect::<Vec<_>>();
    let epids: Vec<u32> = probes.iter().map(|p| s.clause(p, &[], |_| vec![Action::None])).collect();
    let [open, f, g, open_left, f_left, trace_left] = epids[..] else { panic!() };
    // The call began inside of trace(); g() is left by a tail call; what ends the call is not left
    // in it.
    for epid in [open, trace_left, f, g, f_left, f, g, open_left, open, open_left] {
        s.record(0, epid, &[]);
    }
    s.drain();
    let rows: Vec<String> = s.output().lines().skip(1).map(|l| l[4..].trim_end().to_string()).collect();
    let expected = [
        " => open",
        "   <- trace",
        "   -> f",
        "     -> g",
        "   <- f",
        "   -> f",
        "     -> g",
        " <= open",
        " => open",
        " <= open",
    ];
    assert_eq!(rows, expected);
}

/// Arrows and indentation come from what the provider says of its probes.
#[test]
fn flow_depends_on_the_calls_of_a_provider_and_not_on_its_name() {
    let rows = |calls: Calls| {
        let mut s = Session::new(Options { flowindent: true, ..Options::default() });
        let named = |(id, text): (u32, &str)| {
            let mut given: Probe = (*probe(id, text)).clone();
            given.calls = calls;
            Arc::new(given)
        };
        let names = ["fbt::f:entry", "fbt::g:entry", "fbt::h:return", "fbt::f:return"];
        let probes: Vec<_> = (1..).zip(names).map(named).collect();
        let epids: Vec<u32> = probes.iter().map(|p| s.clause(p, &[], |_| vec![Action::None])).collect();
        epids.iter().for_each(|epid| s.record(0, *epid, &[]));
        s.drain();
        s.output().lines().skip(1).map(|l| l[3..].trim_end().to_string()).collect::<Vec<_>>()
    };
    // The return of h() has no entry: it closes nothing in the kernel, else the innermost call.
    assert_eq!(rows(Calls::Kernel), ["  -> f", "    -> g", "      <- h", "  <- f"]);
    assert_eq!(rows(Calls::System), ["  => f", "    => g", "    <= h", "  <= f"]);
    assert_eq!(rows(Calls::None), ["  -> f", "    -> g", "    <- h", "  <- f"]);
}

/// A thread that goes on elsewhere takes its calls along, and those of others stand by themselves.
#[test]
fn flow_follows_threads_from_cpu_to_cpu() {
    let mut s = Session::new(Options { flowindent: true, ..Options::default() });
    let names =
        ["fbt:vmlinux:f:entry", "fbt:vmlinux:g:entry", "fbt:vmlinux:g:return", "fbt:vmlinux:f:return"];
    let probes = names.iter().enumerate().map(|(i, n)| probe(i as u32 + 1, n)).collect::<Vec<_>>();
    let epids: Vec<u32> = probes.iter().map(|p| s.clause(p, &[], |_| vec![Action::None])).collect();
    let [f, g, g_left, f_left] = epids[..] else { panic!() };
    for (thread, cpu, epid) in [(7, 0, f), (7, 0, g), (8, 0, f), (7, 1, g_left)] {
        s.record_of(thread, cpu, epid);
    }
    s.drain();
    for (thread, cpu, epid) in [(8, 1, f_left), (7, 1, g), (7, 0, g_left), (7, 0, f_left)] {
        s.record_of(thread, cpu, epid);
    }
    s.drain();
    let rows: Vec<String> = s.output().lines().skip(1).map(|l| l.trim_end().to_string()).collect();
    let expected = [
        "  0  -> f",
        "  0    -> g",
        "  1    <- g",
        "  0  -> f",
        "  1  <- f",
        "  1    -> g",
        "  0    <- g",
        "  0  <- f",
    ];
    assert_eq!(rows, expected);
}

/// A thread that is interrupted sees of the interrupt its first and its last function, each half.
#[test]
fn flow_shows_an_interrupt_as_one_call() {
    let mut s = Session::new(Options { flowindent: true, ..Options::default() });
    let ends = |f: &str| [format!("fbt:vmlinux:{f}:entry"), format!("fbt:vmlinux:{f}:return")];
    let names = ["f", "irq_enter_rcu", "irq_exit_rcu", "g"].map(ends).concat();
    let probes = names.iter().enumerate().map(|(i, n)| probe(i as u32 + 1, n)).collect::<Vec<_>>();
    let epids: Vec<u32> = probes.iter().map(|p| s.clause(p, &[], |_| vec![Action::None])).collect();
    let [f, f_left, enter, enter_left, exit, exit_left, g, g_left] = epids[..] else { panic!() };
    // Of one of the interrupts all is seen: then these are functions as others are.
    for epid in [f, enter, g, g_left, exit_left, g, g_left, enter, enter_left, exit, exit_left, f_left] {
        s.record(0, epid, &[]);
    }
    s.drain();
    let rows: Vec<String> = s.output().lines().skip(1).map(|l| l[4..].trim_end().to_string()).collect();
    let expected = [
        " -> f",
        "   -> irq_enter_rcu",
        "     -> g",
        "     <- g",
        "   <- irq_exit_rcu",
        "   -> g",
        "   <- g",
        "   -> irq_enter_rcu",
        "   <- irq_enter_rcu",
        "   -> irq_exit_rcu",
        "   <- irq_exit_rcu",
        " <- f",
    ];
    assert_eq!(rows, expected);
}

#[test]
fn faults_produce_messages_and_no_rows() {
    let mut s = Session::new(Options::default());
    let p = probe(1, "dtrace:::BEGIN");
    let epid = s.traces(&p, &[I64]);
    s.fault(epid, 4, 2, 24, 0);
    s.fault(99, 1, 0, 0, 0x10);
    s.drain();
    assert_eq!(s.output(), "");
    let texts = s.messages();
    assert_eq!(
        texts,
        [
            "error on enabled probe ID 1 (ID 1: dtrace:::BEGIN): divide-by-zero in action #2 at DIF offset 24",
            "error on enabled probe ID 99: invalid address (0x10) in predicate at DIF offset 0",
        ]
    );
    assert!(s.messages().is_empty());
}

/// What is complete may stand still, while a speculation is open; and a session may end without its
/// regular end.
#[test]
fn counted_faults_are_reported_each_second_by_the_clock_and_where_tracing_is_aborted() {
    const SECOND: u64 = 1_000_000_000;
    let mut s = Session::new(Options::default());
    let epid = s.traces(&probe(1, "dtrace:::BEGIN"), &[I64]);
    let mut messages = |faults: usize, then: &dyn Fn(&mut Consumer<_>)| {
        (0..faults).for_each(|_| s.fault(epid, 4, 2, 24, 0));
        s.drain();
        then(&mut s.consumer);
        s.messages()
    };
    assert_eq!(messages(8, &|consumer| consumer.drained(0, SECOND - 1)).len(), 5);
    let counted = messages(0, &|consumer| consumer.drained(0, SECOND));
    assert!(matches!(&counted[..], [one] if one.starts_with("3 more errors")), "{counted:?}");
    let counted = messages(2, &|consumer| consumer.report_counted());
    assert!(matches!(&counted[..], [one] if one.starts_with("2 more errors")), "{counted:?}");
    let counted = messages(4, &|consumer| consumer.abort());
    assert!(matches!(&counted[..], [one] if one.starts_with("4 more errors")), "{counted:?}");
    assert!(messages(0, &|consumer| consumer.abort()).is_empty());
}

#[test]
fn damaged_records_are_reported_and_skipped() {
    let mut s = Session::new(quiet());
    let p = probe(1, "dtrace:::BEGIN");
    let epid = s.traces(&p, &[I64, STR]);
    let raw = |epid, flags, data| RawRecord { cpu: 0, time: 0, epid, flags, data };
    let batch = [
        raw(epid, 0, &[1, 2, 3]),
        raw(77, 0, &[]),
        raw(epid, plane::ring::flags::FAULT, &[0]),
        raw(epid, plane::ring::flags::DISCARD, &[]),
    ];
    s.consumer.consume(&batch, &mut s.kernel).unwrap();
    assert_eq!(s.output(), "");
    assert_eq!(s.messages().len(), 3);
}

/// A full disk, then space again.
struct Full {
    refuse: usize,
    got: Vec<u8>,
}

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.refuse > 0 {
            self.refuse -= 1;
            return Err(io::Error::from_raw_os_error(28));
        }
        self.got.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl consumer::Output for Full {}

#[test]
fn the_consumer_continues_after_a_write_error() {
    let out = Full { refuse: 1, got: Vec::new() };
    let mut consumer = Consumer::new(Text::new(out), Box::new(NoSymbols), quiet());
    assert_eq!(consumer.interrupt().unwrap_err().kind(), io::ErrorKind::StorageFull);
    consumer.interrupt().unwrap();
    assert_eq!(consumer.sink().output().got, b"\n");
}
