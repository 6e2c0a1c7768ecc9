//! `-x every`: what each interval adds to aggregations, compared with what fired in it.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dtrace::events::{Event, Interval, SinkError};
use dtrace::interpreter::{Firing, GivenProbes, Interpreter};
use dtrace::options::Options;
use dtrace::provider::Provider;
use dtrace::{Field, Macros, Session, Sink, Source, Status};

const SCRIPT: &str = "
t:::hit
{
	@n[arg1] = count(); @sum[arg1] = sum(arg0); @least[arg1] = min(arg0); @most[arg1] = max(arg0);
	@mean[arg1] = avg(arg0); @deviation[arg1] = stddev(arg0); @spread[arg1] = quantize(arg0);
}
t:::clear { clear(@n); clear(@least); clear(@spread); trunc(@sum); trunc(@mean, 1); normalize(@most, 10); }";

#[derive(Clone, Default)]
struct Collected(Arc<Mutex<Vec<Interval<'static>>>>);

impl Sink for Collected {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        if let Event::Interval(interval) = event {
            self.0.lock().unwrap().push(interval.clone().into_owned());
        }
        Ok(())
    }
}

fn run(firings: &[Firing], every: Option<&str>) -> Vec<Interval<'static>> {
    run_script(SCRIPT, firings, every)
}

fn run_script(script: &str, firings: &[Firing], every: Option<&str>) -> Vec<Interval<'static>> {
    let probes: [Box<dyn Provider>; 1] =
        [Box::new(GivenProbes::new("t").probe("", "", "hit", &[]).probe("", "", "clear", &[]))];
    let mut options = Options::default();
    if let Some(every) = every {
        options.set("every", Some(every)).unwrap();
    }
    let source = Source::Specifier(Field::Name, script.into());
    let system = dtrace::System::live();
    let program =
        dtrace::compile_with(&system, &[source], &Macros::default(), &mut options, probes.into()).unwrap();
    let collected = Collected::default();
    let interpreter = Interpreter::new(firings.to_vec());
    let mut session = Session::interpret(&program, options, interpreter, collected.clone()).unwrap();
    while session.work(None, Duration::ZERO).unwrap() == Status::Working {}
    session.finish().unwrap();
    std::mem::take(&mut *collected.0.lock().unwrap())
}

/// Hits at irregular times, over 10 intervals of a second, with clears between them.
fn firings() -> Vec<Firing> {
    let mut state = 12345u64;
    let mut time = 5_000_000_000;
    let mut all = Vec::new();
    for n in 0..400 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        time += (state >> 33) % 50_000_000;
        let name = if n % 37 == 36 { "t:::clear" } else { "t:::hit" };
        let args = vec![(state >> 40) % 1000, state >> 50 & 3];
        all.push(Firing { time, args, ..Firing::of(name) });
    }
    all
}

/// What is printed of values: the numbers by the name of the aggregation.
fn expected(values: &[i64]) -> BTreeMap<&'static str, i64> {
    let count = values.len() as i64;
    let sum: i64 = values.iter().sum();
    let squares: i64 = values.iter().map(|v| v * v).sum();
    let (least, most) = (*values.iter().min().unwrap(), *values.iter().max().unwrap());
    let mean = sum / count;
    let deviation = ((squares / count - mean * mean) as u64).isqrt() as i64;
    [("n", count), ("sum", sum), ("least", least), ("most", most), ("mean", mean), ("deviation", deviation)]
        .into()
}

#[test]
fn an_interval_has_what_was_aggregated_in_it_whatever_is_cleared() {
    let firings = firings();
    let all = run(&firings, Some("1s"));
    let hits = |from: u64, to: u64, key: i64| -> Vec<i64> {
        let of =
            |f: &&Firing| f.probe == "t:::hit" && (from..to).contains(&f.time) && f.args[1] as i64 == key;
        firings.iter().filter(of).map(|f| f.args[0] as i64).collect()
    };
    let start = firings[0].time;
    let ends: Vec<u64> = all.iter().filter(|i| i.column.name == "n").map(|i| i.end).collect();
    assert!(ends.len() >= 10, "{ends:?}");
    for (n, end) in ends[..ends.len() - 1].iter().enumerate() {
        assert_eq!(*end, start + (n as u64 + 1) * 1_000_000_000);
    }
    let mut compared = 0;
    for interval in &all {
        // The end of the session is after its last firing.
        let end = if Some(&interval.end) == ends.last() { u64::MAX } else { interval.end };
        for growth in &interval.rows {
            let [dtrace::events::Value::Int(key)] = &growth.key[..] else { panic!("{growth:?}") };
            let key = key.value() as i64;
            for (value, from) in [(&growth.increment, interval.begin), (&growth.total, 0)] {
                let values = hits(from, end, key);
                match value.number() {
                    Some(number) => assert_eq!(number, expected(&values)[&*interval.column.name]),
                    None => {
                        let counted: Vec<i64> = value
                            .ranges()
                            .iter()
                            .map(|(low, high)| {
                                let within =
                                    |v: &&i64| low.is_none_or(|l| l <= **v) && high.is_none_or(|h| **v <= h);
                                values.iter().filter(within).count() as i64
                            })
                            .collect();
                        assert_eq!(value.buckets().map(|(_, n)| n).collect::<Vec<_>>(), counted);
                    }
                }
                compared += 1;
            }
        }
        let keys = (0..4).filter(|key| !hits(interval.begin, end, *key).is_empty()).count();
        assert_eq!(interval.rows.len(), keys, "only keys that have grown");
    }
    assert!(compared > 400, "{compared}");
}

#[test]
fn without_the_option_there_are_no_intervals() {
    assert_eq!(run(&firings(), None), []);
}

#[test]
fn an_interval_without_firings_has_no_rows() {
    let at = |time| Firing { time, args: vec![1, 0], ..Firing::of("t:::hit") };
    let all = run(&[at(10), at(3_500)], Some("1us"));
    let of_n: Vec<_> =
        all.iter().filter(|i| i.column.name == "n").map(|i| (i.begin, i.end, i.rows.len())).collect();
    // A millisecond is the shortest interval.
    assert_eq!(of_n, [(10, 3_500, 1)]);
    let all = run(&[at(0), at(3_500_000)], Some("1ms"));
    let of_n: Vec<_> =
        all.iter().filter(|i| i.column.name == "n").map(|i| (i.begin, i.end, i.rows.len())).collect();
    let ms = |n: u64| n * 1_000_000;
    assert_eq!(of_n, [(0, ms(1), 1), (ms(1), ms(2), 0), (ms(2), ms(3), 0), (ms(3), 3_500_000, 1)]);
}

#[test]
fn an_interval_says_whether_a_value_can_be_negative() {
    let script = "t:::hit { @n = count(); @int64 = sum(arg0); @uint64 = sum(timestamp); @uint32 = sum((uint32_t)arg0); @one = sum(1);
                  @less = sum(-1); @both = sum(timestamp); @both = sum(arg0); @time = sum(timestamp - (uint64_t)arg0); }";
    let mut found: Vec<(String, bool)> = run_script(script, &firings(), Some("1s"))
        .iter()
        .map(|interval| (interval.column.name.to_string(), interval.unsigned))
        .collect();
    found.sort();
    found.dedup();
    let expected = [
        ("both", false),
        ("int64", false),
        ("less", false),
        ("n", true),
        ("one", true),
        ("time", true),
        ("uint32", true),
        ("uint64", true),
    ];
    assert_eq!(found, expected.map(|(name, unsigned)| (name.to_string(), unsigned)));
}

#[test]
fn an_interval_says_the_time_of_the_day_after_the_machine_has_slept() {
    const HOUR: u64 = 3_600_000_000_000;
    let at = |time, walltime| Firing { time, walltime, args: vec![1, 0], ..Firing::of("t:::hit") };
    let ms = |n: u64| n * 1_000_000;
    // It sleeps for an hour after the first firing, and its clock is set back after the third.
    let firings = [at(0, HOUR), at(ms(1), 2 * HOUR), at(ms(2), 2 * HOUR + ms(1)), at(ms(3) + 5, HOUR)];
    let all = run(&firings, Some("1ms"));
    let of_n: Vec<_> = all.iter().filter(|i| i.column.name == "n").map(|i| (i.end, i.wall)).collect();
    let expected =
        [(ms(1), HOUR + ms(1)), (ms(2), 2 * HOUR + ms(1)), (ms(3), 2 * HOUR + ms(2)), (ms(3) + 5, HOUR)];
    assert_eq!(of_n, expected);
}
