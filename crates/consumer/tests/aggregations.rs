//! Aggregations: default printing, printa, sorting, clear, trunc, normalize, distributions.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use consumer::{Encoding, Options, Process, Symbolizer};
use events::SymbolName;
use plane::calls::Call;
use plane::desc::{Action, AddrForm, AggFunc, AggId, Datum};
use plane::stacks::Stack;

use crate::common::*;

const LQUANTIZE: AggFunc = AggFunc::Lquantize { base: 0, limit: 100, step: 10 };

fn quiet() -> Options {
    Options { quiet: true, ..Options::default() }
}

/// A session whose clause 1 does the actions, and nothing else.
fn acting(s: &mut Session, actions: Vec<Action>) -> u32 {
    let tick = probe(2, "profile:::tick-1s");
    s.clause(&tick, &[], |_| actions)
}

fn printa(format: Option<&str>, aggs: &[AggId]) -> Action {
    Action::Printa { format: format.map(str::to_owned), aggs: aggs.to_vec() }
}

#[test]
fn the_end_prints_aggregations_that_no_printa_printed() {
    let mut s = Session::new(Options::default());
    let plain = s.aggregation("_", AggFunc::Count, &[]);
    let shown = s.aggregation("shown", AggFunc::Count, &[STR]);
    let empty = s.aggregation("empty", AggFunc::Count, &[STR]);
    let keyed = s.aggregation("keyed", AggFunc::Sum, &[STR, I32, I64, I16, U8]);
    s.add(plain, &[], &[3]);
    s.add(plain, &[], &[4]);
    s.add(shown, &[V::S("cat")], &[1]);
    s.add(keyed, &[V::S("cat"), V::N(1), V::N(-1), V::N(2), V::N(3)], &[-5]);
    s.add(keyed, &[V::S("awk"), V::N(1), V::N(-1), V::N(2), V::N(3)], &[-4]);
    let tick = acting(&mut s, vec![printa(None, &[shown]), printa(None, &[empty])]);
    s.record(0, tick, &[]);
    s.drain();
    // The key came after a printa() that had nothing to show: it was not shown.
    s.add(empty, &[V::S("late")], &[1]);
    s.finish();
    golden("end", &s.output());
}

#[test]
fn values_of_every_function() {
    let mut s = Session::new(quiet());
    for (i, (func, words)) in [
        (AggFunc::Count, vec![7]),
        (AggFunc::Sum, vec![-7]),
        (AggFunc::Min, vec![-3]),
        (AggFunc::Max, vec![9]),
        (AggFunc::Avg, vec![2, 11]),
        (AggFunc::Stddev, vec![8, 40, 232, 0]),
    ]
    .into_iter()
    .enumerate()
    {
        let agg = s.aggregation(&i.to_string(), func, &[STR]);
        s.add(agg, &[V::S(func.name())], &words);
    }
    s.finish();
    golden("functions", &s.output());
}

#[test]
fn slots_of_all_cpus_are_merged_by_key() {
    let mut s = Session::new(quiet());
    let min = s.aggregation("min", AggFunc::Min, &[I64]);
    let max = s.aggregation("max", AggFunc::Max, &[I64]);
    for value in [5, -2, 9] {
        s.add(min, &[V::N(1)], &[value]);
        s.add(max, &[V::N(1)], &[value]);
        s.consumer.snapshot(&mut s.kernel).unwrap();
    }
    s.finish();
    assert_eq!(s.output(), format!("\n {0:>16} {1:>16}\n {0:>16} {2:>16}\n", 1, -2, 9));
}

// row sort.key, sort.aggsortkey, sort.aggsortrev, sort.aggsortkeypos
#[test]
fn rows_are_sorted_by_value_then_key_and_as_options_say() {
    let mut out = String::new();
    let key = |sort| Options { quiet: true, aggsortkey: sort, ..Options::default() };
    for (what, options) in [
        ("default", key(false)),
        ("aggsortkey", key(true)),
        ("aggsortrev", Options { aggsortrev: true, ..key(false) }),
        ("aggsortkey aggsortrev", Options { aggsortrev: true, ..key(true) }),
        ("aggsortkey aggsortkeypos=1", Options { aggsortkeypos: 1, ..key(true) }),
        ("aggsortkey aggsortkeypos=9", Options { aggsortkeypos: 9, ..key(true) }),
    ] {
        let mut s = Session::new(options);
        let a = s.aggregation("a", AggFunc::Count, &[STR, I64]);
        let b = s.aggregation("b", AggFunc::Count, &[STR]);
        s.add(b, &[V::S("zzz")], &[1]);
        s.add(a, &[V::S("b"), V::N(3)], &[10]);
        s.add(a, &[V::S("a"), V::N(4)], &[20]);
        // A negative key is a large one.
        s.add(a, &[V::S("c"), V::N(-1)], &[10]);
        s.add(a, &[V::S("a"), V::N(1)], &[9]);
        s.finish();
        out += &format!("== {what}\n{}", s.output());
    }
    golden("sorting", &out);
}

// row sort.aggsortpos
#[test]
fn several_aggregations_are_joined_by_key() {
    let mut s = Session::new(quiet());
    let count = s.aggregation("count", AggFunc::Count, &[STR, I32]);
    let avg = s.aggregation("avg", AggFunc::Avg, &[STR, I32]);
    let sum = s.aggregation("sum", AggFunc::Sum, &[STR, I32]);
    s.add(count, &[V::S("x"), V::N(1)], &[5]);
    s.add(count, &[V::S("y"), V::N(1)], &[2]);
    s.add(avg, &[V::S("x"), V::N(1)], &[2, 10]);
    s.add(sum, &[V::S("z"), V::N(-1)], &[7]);
    s.add(sum, &[V::S("x"), V::N(1)], &[-7]);
    let all = [count, avg, sum];
    let default = acting(&mut s, vec![printa(None, &all)]);
    let format = Some("%@d %-5s|%d %@5d %@x %@d\n");
    let formatted = acting(&mut s, vec![printa(format, &all)]);
    s.record(0, default, &[]);
    s.record(0, formatted, &[]);
    s.drain();
    let options = s.consumer.options().clone();
    s.consumer.set_options(Options { aggsortpos: 2, ..options });
    s.record(0, formatted, &[]);
    s.finish();
    golden("joined", &s.output());
}

// row sort.aggtop, sort.aggnozero
#[test]
fn rows_are_limited_to_the_greatest_and_to_those_that_are_not_zero() {
    let rows = |options: Options| {
        let mut s = Session::new(Options { quiet: true, ..options });
        let count = s.aggregation("count", AggFunc::Count, &[STR]);
        let sum = s.aggregation("sum", AggFunc::Sum, &[STR]);
        for (name, number) in [("a", 3), ("b", 1), ("c", 2), ("zero", 0)] {
            s.add(count, &[V::S(name)], &[number]);
        }
        // What no other aggregation has, and what is zero in both.
        s.add(sum, &[V::S("d")], &[-1]);
        s.add(sum, &[V::S("zero")], &[0]);
        let act = acting(&mut s, vec![printa(Some("%s %@d %@d;"), &[count, sum])]);
        s.record(0, act, &[]);
        s.finish();
        s.output().split_once("\n").map_or(s.output(), |(first, _)| first.to_string())
    };
    let all = Options::default();
    assert_eq!(rows(all.clone()), "d 0 -1;zero 0 0;b 1 0;c 2 0;a 3 0;");
    assert_eq!(rows(Options { aggtop: 2, ..all.clone() }), "c 2 0;a 3 0;");
    assert_eq!(rows(Options { aggtop: 9, ..all.clone() }), rows(all.clone()));
    assert_eq!(rows(Options { aggtop: 2, aggsortrev: true, ..all.clone() }), "a 3 0;c 2 0;");
    assert_eq!(rows(Options { aggnozero: true, ..all.clone() }), "d 0 -1;b 1 0;c 2 0;a 3 0;");
    assert_eq!(rows(Options { aggnozero: true, aggtop: 4, ..all }), "d 0 -1;b 1 0;c 2 0;a 3 0;");
}

#[test]
fn printa_takes_keys_in_order_and_values_by_at() {
    let mut s = Session::new(quiet());
    let writes = s.aggregation("writes", AggFunc::Count, &[STR]);
    s.add(writes, &[V::S("sshd")], &[12]);
    s.add(writes, &[V::S("bash")], &[3]);
    let act = vec![printa(Some("dtrace.%s.write %@u"), &[writes]), Action::Clear(writes)];
    let tick = acting(&mut s, act);
    s.record(0, tick, &[]);
    s.drain();
    assert_eq!(s.output(), "dtrace.bash.write 3dtrace.sshd.write 12");
    s.record(0, tick, &[]);
    s.drain();
    assert_eq!(s.output(), "dtrace.bash.write 0dtrace.sshd.write 0");
}

#[test]
fn a_batch_takes_one_snapshot_if_an_action_needs_it() {
    let mut s = Session::new(quiet());
    let a = s.aggregation("a", AggFunc::Count, &[]);
    let nothing = acting(&mut s, vec![Action::None]);
    let tick = acting(&mut s, vec![printa(Some("%@d "), &[a]), Action::Clear(a)]);
    s.record(0, nothing, &[]);
    s.drain();
    assert_eq!(s.kernel.snapshots, 0);
    s.add(a, &[], &[2]);
    for _ in 0..3 {
        s.record(0, tick, &[]);
    }
    s.drain();
    assert_eq!(s.kernel.snapshots, 1);
    assert_eq!(s.output(), "2 0 0 ");
}

#[test]
fn a_cleared_min_is_zero_and_restarts() {
    let mut s = Session::new(quiet());
    let min = s.aggregation("min", AggFunc::Min, &[]);
    s.add(min, &[], &[5]);
    let clear = acting(&mut s, vec![Action::Clear(min), printa(Some("%@d "), &[min])]);
    let print = acting(&mut s, vec![printa(Some("%@d "), &[min])]);
    s.record(0, clear, &[]);
    s.drain();
    s.add(min, &[], &[8]);
    s.record(0, print, &[]);
    s.drain();
    assert_eq!(s.output(), "0 8 ");
}

#[test]
fn trunc_keeps_the_top_or_the_bottom() {
    for (count, left) in
        [(Some(2), "3 4 "), (Some(-1), "1 "), (Some(99), "1 2 3 4 "), (Some(0), ""), (None, "")]
    {
        let mut s = Session::new(quiet());
        let a = s.aggregation("a", AggFunc::Count, &[I64]);
        for n in 1..=4 {
            s.add(a, &[V::N(10 - n)], &[n]);
        }
        let tick = probe(2, "profile:::tick-1s");
        let epid = s.clause(&tick, &[I64], |f| {
            vec![Action::Trunc(a, count.map(|_| f[0])), printa(Some("%@d "), &[a])]
        });
        s.record(0, epid, &[V::N(count.unwrap_or(0))]);
        s.drain();
        assert_eq!(s.output(), left, "trunc {count:?}");
    }
}

#[test]
fn normalize_divides_what_is_shown_until_denormalized() {
    let mut s = Session::new(quiet());
    let a = s.aggregation("a", AggFunc::Sum, &[STR]);
    s.add(a, &[V::S("x")], &[1000]);
    let tick = probe(2, "profile:::tick-1s");
    let print = printa(Some("%s %@d "), &[a]);
    let by = s.clause(&tick, &[I64], |f| vec![Action::Normalize(a, f[0]), print.clone()]);
    let back = acting(&mut s, vec![Action::Denormalize(a), print.clone()]);
    let plain = acting(&mut s, vec![print]);
    s.record(0, by, &[V::N(300)]);
    s.drain();
    // A key created later is not normalized until normalize() is called again.
    s.add(a, &[V::S("y")], &[600]);
    s.record(0, plain, &[]);
    s.record(0, back, &[]);
    s.record(0, by, &[V::N(0)]);
    s.record(0, plain, &[]);
    // What came before is shown, and nothing after it.
    assert_eq!(s.try_drain().unwrap_err().to_string(), "Invalid normalization");
    assert_eq!(s.output(), "x 3 y 600 x 3 y 600 x 1000 ");
}

#[test]
fn symbols_and_modules_are_aggregated_before_printing() {
    let mut s = Session::new(quiet());
    let func = s.aggregation("func", AggFunc::Count, &[Datum::KernelAddr(AddrForm::Function)]);
    let module = s.aggregation("mod", AggFunc::Count, &[Datum::KernelAddr(AddrForm::Module)]);
    let user = s.aggregation("usym", AggFunc::Count, &[Datum::UserAddr(AddrForm::Symbol)]);
    let uaddr = s.aggregation("uaddr", AggFunc::Count, &[Datum::UserAddr(AddrForm::Address)]);
    for addr in [0x1_0010, 0x1_0020, 0x1_0100] {
        s.add(func, &[V::N(addr)], &[1]);
        s.add(module, &[V::N(addr)], &[1]);
        s.add(user, &[V::U(addr as u64, 7)], &[1]);
        s.add(uaddr, &[V::U(addr as u64, 7)], &[1]);
    }
    s.add(user, &[V::U(0x1_0010, 8)], &[5]);
    s.finish();
    golden("symbols", &s.output());
}

/// Notes what is to be named together, and has something to say.
struct Together(Arc<Mutex<Wanted>>);

/// What was to be named, call by call.
type Wanted = Vec<Vec<(Process, u64)>>;

impl Symbolizer for Together {
    fn prepare(&mut self, wanted: &[(Process, u64)]) {
        self.0.lock().unwrap().push(wanted.to_vec());
    }
    fn take_messages(&mut self) -> Vec<String> {
        vec!["too late".into()]
    }
    fn kernel(&mut self, _addr: u64) -> SymbolName {
        SymbolName::default()
    }
    fn user(&mut self, _process: Process, _addr: u64) -> SymbolName {
        SymbolName::default()
    }
}

#[test]
fn addresses_of_all_rows_are_named_together() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let mut s = Session::with(Vec::new(), Box::new(Together(log.clone())), quiet());
    let stack = [Datum::UserStack { frames: 20, strsize: 0 }, Datum::UserAddr(AddrForm::Address)];
    let a = s.aggregation("a", AggFunc::Count, &stack);
    for pid in [7, 8] {
        let pcs = vec![0x1_0010, 0x1_0020, 0];
        s.kernel.stacks.insert(pid.into(), Stack { tgid: pid, time: 0, pcs, ..Stack::default() });
        s.add(a, &[V::N(pid.into()), V::U(0x99, pid)], &[1]);
    }
    s.finish();
    let mut first = log.lock().unwrap()[0].clone();
    first.sort_by_key(|(process, addr)| (process.pid, *addr));
    let all = [7, 8].map(|pid| [0x99, 0x1_0010, 0x1_0020].map(|addr| (Process::now(pid), addr)));
    assert_eq!(first, all.concat());
    assert!(s.output().contains("10010"));
    assert_eq!(s.messages(), ["too late"]);
}

#[test]
fn stacks_are_keys() {
    let mut s = Session::new(quiet());
    let stacks = [Datum::KernelStack { frames: 20 }, STR, Datum::UserStack { frames: 20, strsize: 0 }];
    let a = s.aggregation("a", AggFunc::Count, &stacks);
    s.kernel.stacks.insert(5, Stack { tgid: 0, time: 0, pcs: vec![0x1_0010, 0x1_0200], ..Stack::default() });
    s.kernel.stacks.insert(6, Stack { tgid: 77, time: 0, pcs: vec![0x1_0010], ..Stack::default() });
    s.add(a, &[V::N(5), V::S("cat"), V::N(6)], &[2]);
    s.consumer.snapshot(&mut s.kernel).unwrap();
    // The store forgets; the entry does not.
    s.kernel.stacks.clear();
    s.add(a, &[V::N(5), V::S("cat"), V::N(6)], &[1]);
    s.finish();
    golden("stack-keys", &s.output());
}

#[test]
fn stacks_that_differ_in_functions_of_an_interpreter_are_different_keys_in_their_order() {
    let mut s = Session::new(Options { aggsortkey: true, ..quiet() });
    let key = [Datum::UserStack { frames: 20, strsize: 64 }];
    let (a, b) = (s.aggregation("a", AggFunc::Count, &key), s.aggregation("b", AggFunc::Count, &key));
    let word = |place| Call { frame: 0, line: None, place }.word();
    for (id, calls) in [(5, vec![word(1), word(2)]), (6, vec![]), (7, vec![word(1)])] {
        s.kernel.stacks.insert(id, Stack { tgid: 7, time: 0, pcs: vec![0x1_0010], calls });
    }
    for (id, count) in [(5, 1), (6, 2), (7, 3)] {
        s.add(a, &[V::N(id)], &[count]);
        s.add(b, &[V::N(id)], &[10 * count]);
    }
    let tick = acting(&mut s, vec![printa(Some("%k%@d %@d\n"), &[a, b])]);
    s.record(0, tick, &[]);
    s.drain();
    let (frame, call) = ("\nobj7.1`f10000+0x10\n", "  [ ? ]\n");
    let expected = format!("{frame}2 20\n{frame}{call}3 30\n{frame}{call}{call}1 10\n");
    assert_eq!(s.output(), expected);
}

#[test]
fn only_stacks_that_are_compared_or_printed_are_fetched() {
    let mut s = Session::new(quiet());
    let a = s.aggregation("a", AggFunc::Count, &[Datum::KernelStack { frames: 20 }]);
    for id in 1..=6u64 {
        s.kernel.stacks.insert(
            id,
            Stack { tgid: 0, time: 0, pcs: vec![0x1_0000 + 0x100 * (9 - id)], ..Stack::default() },
        );
    }
    for (id, count) in [(1, 9), (2, 5), (3, 5), (4, 5), (5, 1), (6, 1)] {
        s.add(a, &[V::N(id)], &[count]);
    }
    s.consumer.snapshot(&mut s.kernel).unwrap();
    assert!(s.kernel.asked.is_empty());
    // Two of the three of value 5 stay: their stacks say which.
    let p = probe(1, "a:b:c:d");
    let top = s.clause(&p, &[I64], |f| vec![Action::Trunc(a, Some(f[0]))]);
    s.record(0, top, &[V::N(3)]);
    s.drain();
    s.kernel.asked.sort_unstable();
    assert_eq!(std::mem::take(&mut s.kernel.asked), [2, 3, 4]);
    s.finish();
    assert_eq!(s.kernel.asked, [1]);
    golden("stacks-fetched", &s.output());
}

#[test]
fn interned_keys_join_with_strings() {
    let mut s = Session::new(quiet());
    s.consumer.intern(0, b"read".as_slice());
    let a = s.aggregation("a", AggFunc::Count, &[Datum::Interned]);
    let b = s.aggregation("b", AggFunc::Count, &[STR]);
    s.add(a, &[V::N(0)], &[1]);
    s.add(b, &[V::S("read")], &[2]);
    let tick = acting(&mut s, vec![printa(Some("%s %@d %@d\n"), &[a, b])]);
    s.record(0, tick, &[]);
    s.drain();
    assert_eq!(s.output(), "read 1 2\n");
}

#[test]
fn distributions() {
    let mut s = Session::new(Options::default());
    let plain = s.aggregation("plain", AggFunc::Quantize, &[]);
    let keyed = s.aggregation("keyed", AggFunc::Quantize, &[STR]);
    let signs = s.aggregation("signs", AggFunc::Quantize, &[STR]);
    let linear = s.aggregation("linear", LQUANTIZE, &[STR]);
    s.sample(plain, &[], &[(1, 1), (3, 2), (1000, 7)]);
    s.sample(keyed, &[V::S("values of both signs")], &[(-5, 3), (0, 1), (5, 4)]);
    s.sample(keyed, &[V::S("one")], &[(i64::MIN, 1), (i64::MAX, 1)]);
    s.sample(signs, &[V::S("both")], &[(1, 5), (2, -5), (4, 10)]);
    s.sample(signs, &[V::S("negative")], &[(1, -5), (4, -10)]);
    s.sample(signs, &[V::S("none")], &[]);
    s.sample(linear, &[V::S("inside")], &[(35, 1), (55, 3)]);
    s.sample(linear, &[V::S("outside")], &[(-1, 1), (100, 3)]);
    s.sample(linear, &[V::S("none")], &[]);
    s.finish();
    golden("distributions", &s.output());
}

#[test]
fn llquantize_rows() {
    let mut s = Session::new(quiet());
    let func = AggFunc::Llquantize { factor: 10, low: 1, high: 2, nsteps: 10 };
    let a = s.aggregation("a", func, &[STR]);
    // Words: < 10, then 10, 20 … 90, 100 … 900, >= 1000.
    let words = |at: &[(usize, i64)]| {
        let mut words = vec![0; func.value_size() as usize / 8];
        at.iter().for_each(|(i, n)| words[*i] = *n);
        words
    };
    s.add(a, &[V::S("middle")], &words(&[(9, 1), (11, 3)]));
    s.add(a, &[V::S("ends")], &words(&[(0, 1), (19, 4)]));
    s.add(a, &[V::S("none")], &words(&[]));
    s.finish();
    golden("llquantize", &s.output());
}

#[test]
fn distributions_in_a_printa_format_and_normalized() {
    let mut s = Session::new(quiet());
    let a = s.aggregation("a", AggFunc::Quantize, &[STR]);
    s.sample(a, &[V::S("ns")], &[(1, 10), (3, 30)]);
    let tick = probe(2, "profile:::tick-1s");
    let epid = s.clause(&tick, &[I64], |f| vec![Action::Normalize(a, f[0]), printa(Some("%s:%@d.\n"), &[a])]);
    s.record(0, epid, &[V::N(10)]);
    s.finish();
    golden("normalized-distribution", &s.output());
}

// row format.aggzoom, format.encoding
#[test]
fn bars_can_be_zoomed_and_drawn_in_blocks() {
    let mut out = String::new();
    for options in [
        Options { aggzoom: true, ..quiet() },
        Options { encoding: Encoding::Utf8, ..quiet() },
        Options { encoding: Encoding::Utf8, aggzoom: true, ..quiet() },
    ] {
        let mut s = Session::new(options);
        let a = s.aggregation("a", LQUANTIZE, &[]);
        s.sample(a, &[], &[(5, 1), (15, 10), (25, 33), (45, 56)]);
        s.finish();
        out += &s.output();
    }
    golden("bars", &out);
}

/// Random distributions keep what every reader takes for granted.
// row format.bar-negative
#[test]
fn histogram_invariants() {
    let mut rng = testing::rng::Rng::new(1);
    let mut random = move || rng.bits();
    for round in 0..500 {
        let options = Options { aggzoom: round % 3 == 0, ..quiet() };
        let mut s = Session::new(options);
        let func = if round % 2 == 0 { AggFunc::Quantize } else { LQUANTIZE };
        let a = s.aggregation("a", func, &[]);
        let samples: Vec<(i64, i64)> = (0..random() % 20 + 1)
            .map(|_| {
                // Labels of at most 16 columns.
                let bits = 18 + random() % 46;
                let sign = if random() % 4 == 0 { -1 } else { 1 };
                (
                    sign * (random() >> bits) as i64,
                    (random() % 1000) as i64 - if round % 5 == 0 { 500 } else { 0 },
                )
            })
            .collect();
        s.sample(a, &[], &samples);
        s.finish();
        let text = s.output();
        let rows: Vec<&str> = text.lines().skip(3).filter(|l| !l.is_empty()).collect();
        assert!(rows.len() >= 2, "{text}");
        let counts: Vec<i64> = rows.iter().map(|r| r[58..].trim().parse().unwrap()).collect();
        let total: i64 = samples.iter().map(|(_, by)| by).sum();
        assert_eq!(counts.iter().sum::<i64>(), total, "{text}");
        for (row, count) in rows.iter().zip(&counts) {
            // Label 16, blank, bar of 40 and its axis, blank, count of at least 9: every row is as
            // wide.
            assert_eq!(row.len(), 16 + 1 + 41 + 1 + 9.max(count.to_string().len()), "{text}");
            let bar = &row[17..58];
            assert_eq!(bar.matches('|').count(), 1, "{text}");
            let axis = bar.find('|').unwrap();
            // Bars grow to their sign's side of the axis, without gaps from it.
            let (left, right) = (&bar[..axis], &bar[axis + 1..]);
            assert!(left.trim_start().bytes().all(|b| b == b'@') && left.ends_with(left.trim_start()));
            assert!(right.trim_end().bytes().all(|b| b == b'@') && right.starts_with(right.trim_end()));
            assert!(*count <= 0 || !left.contains('@'), "{text}");
            assert!(*count >= 0 || !right.contains('@'), "{text}");
        }
        // A longer bar is a greater count.
        let filled: Vec<usize> = rows.iter().map(|r| r.matches('@').count()).collect();
        for i in 0..rows.len() {
            for j in 0..rows.len() {
                if counts[i].abs() > counts[j].abs() {
                    assert!(filled[i] >= filled[j], "{text}");
                }
            }
        }
    }
}

// row format.aggpercpu
#[test]
fn values_of_each_cpu_are_printed_below_the_total() {
    let mut s = Session::new(Options { aggpercpu: true, ..quiet() });
    let sum = s.aggregation("s", AggFunc::Sum, &[STR]);
    let least = s.aggregation("m", AggFunc::Min, &[]);
    for (cpu, value) in [(0, 3), (1, 4), (1, 5)] {
        s.kernel.cpu = cpu;
        s.add(sum, &[V::S("k")], &[value]);
        s.add(least, &[], &[value]);
        s.consumer.snapshot(&mut s.kernel).unwrap();
    }
    let end = |s: &mut Session| {
        s.finish();
        s.output()
    };
    let key = format!("  {:<50}", "k");
    assert_eq!(
        end(&mut s),
        format!(
            "\n{key} {:>16}\n    [CPU 0] {:>16}\n    [CPU 1] {:>16}\n {:>16}\n    [CPU 0] {:>16}\n    [CPU 1] {:>16}\n",
            12, 3, 9, 3, 3, 4
        )
    );
}

/// More rows than one event has: the forms with one header for all rows wait for the last of them.
#[test]
fn printa_in_several_parts_is_the_same_text() {
    const KEYS: i64 = 1000;
    for agghist in [false, true] {
        let mut s = Session::new(Options { agghist, ..quiet() });
        let a = s.aggregation("a", AggFunc::Count, &[I64]);
        for key in 0..KEYS {
            s.add(a, &[V::N(key)], &[1 + key]);
        }
        let tick = acting(&mut s, vec![printa(None, &[a]), printa(Some("%d=%@d\n"), &[a])]);
        s.record(0, tick, &[]);
        s.drain();
        let text = s.output();
        let (drawn, formatted) = text.split_at(text.find("0=1\n").unwrap());
        assert_eq!(drawn.matches("Distribution").count(), usize::from(agghist));
        let first = |line: &str| line.split_whitespace().next().unwrap().parse::<i64>().ok();
        assert!(drawn.lines().filter(|l| !l.is_empty()).filter_map(first).eq(0..KEYS), "{drawn}");
        let expected: String = (0..KEYS).map(|key| format!("{key}={}\n", key + 1)).collect();
        assert_eq!(formatted, expected);
    }
}
