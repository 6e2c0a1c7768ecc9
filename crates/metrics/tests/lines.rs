//! Graphite, StatsD and InfluxDB.

use metrics::{Lines, Protocol};

use super::*;

/// A writer that can be looked into.
#[derive(Clone, Default)]
pub(crate) struct Shared(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl Shared {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.bytes()).unwrap()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn written(protocol: Protocol, feed: impl FnOnce(&mut Fed<Lines<Shared>>)) -> String {
    let out = Shared::default();
    feed(&mut start(Lines::new(protocol, out.clone())));
    out.text()
}

#[test]
fn a_line_has_the_total_of_a_key_that_has_grown() {
    let feed = |fed: &mut Fed<Lines<Shared>>| {
        fed.named(0, AggFunc::Count, &[(b"cat", vec![7]), (b"a.out", vec![1])]);
        fed.named(1, AggFunc::Count, &[(b"cat", vec![5])]);
        fed.named(2, AggFunc::Count, &[]);
    };
    let graphite = "dtrace.my-host_example.lat.a_out 1 1767323046\n\
                    dtrace.my-host_example.lat.cat 7 1767323046\n\
                    dtrace.my-host_example.lat.cat 12 1767323047\n";
    assert_eq!(written(Protocol::Graphite, feed), graphite);
    let influx = "dtrace_lat,host=my-host.example,execname=a.out value=1i 1767323046000000000\n\
                  dtrace_lat,host=my-host.example,execname=cat value=7i 1767323046000000000\n\
                  dtrace_lat,host=my-host.example,execname=cat value=12i 1767323047000000000\n";
    assert_eq!(written(Protocol::Influx, feed), influx);
    let statsd = "dtrace.my-host_example.lat.a_out:1|c\n\
                  dtrace.my-host_example.lat.cat:7|c\n\
                  dtrace.my-host_example.lat.cat:5|c\n";
    assert_eq!(written(Protocol::StatsD, feed), statsd);
}

#[test]
fn gauges_have_the_intervals_own_value_and_sums_that_may_fall_the_whole() {
    let feed = |function, all: [i64; 2]| {
        move |fed: &mut Fed<_>| {
            (fed.keys, fed.unsigned) = (&[], false);
            (0..).zip(all).for_each(|(n, value)| fed.second(n, function, &[(vec![], vec![value as u64])]));
        }
    };
    let values = |text: String| -> Vec<String> {
        text.lines().map(|line| line.trim_start_matches("dtrace.my-host_example.").into()).collect()
    };
    let graphite = |function, all| values(written(Protocol::Graphite, feed(function, all)));
    assert_eq!(graphite(AggFunc::Max, [9, -4]), ["lat 9 1767323046", "lat -4 1767323047"]);
    assert_eq!(graphite(AggFunc::Sum, [9, -4]), ["lat 9 1767323046", "lat 5 1767323047"]);
    let statsd = values(written(Protocol::StatsD, feed(AggFunc::Max, [9, -4])));
    assert_eq!(statsd, ["lat:9|g", "lat:0|g", "lat:-4|g"]);
}

#[test]
fn intervals_that_end_in_one_second_are_that_second_for_graphite() {
    let feed = |function, all: &'static [(u64, i64)]| {
        move |fed: &mut Fed<Lines<Shared>>| {
            (fed.keys, fed.unsigned) = (&[], false);
            for (millis, value) in all {
                fed.wall = (1_767_323_046_000 + millis) * 1_000_000;
                fed.second(0, function, &[(vec![], vec![*value as u64])]);
            }
        }
    };
    let values = |protocol, function, all| -> Vec<String> {
        let text = written(protocol, feed(function, all));
        text.lines().map(|line| line.split_once("lat").unwrap().1.trim().into()).collect()
    };
    let all = &[(250, 9), (500, 4), (750, 7), (1000, 5), (1250, 6)];
    // The last line of each second is the one that is kept.
    let graphite = values(Protocol::Graphite, AggFunc::Max, all);
    assert_eq!(graphite, ["9 1767323046", "9 1767323046", "9 1767323046", "5 1767323047", "6 1767323047"]);
    let graphite = values(Protocol::Graphite, AggFunc::Sum, all);
    assert_eq!(
        graphite,
        ["9 1767323046", "13 1767323046", "20 1767323046", "25 1767323047", "31 1767323047"]
    );
    // The others have each interval.
    assert_eq!(values(Protocol::StatsD, AggFunc::Max, all), [":9|g", ":4|g", ":7|g", ":5|g", ":6|g"]);
}

#[test]
fn what_is_since_the_start_can_be_repeated_and_an_intervals_own_is_not() {
    let repeated = |protocol, function| {
        let out = Shared::default();
        let mut fed = start(Lines::new(protocol, out.clone()));
        fed.named(
            0,
            function,
            &[(b"cat", spread(function, &[(0, 7)])), (b"dog", spread(function, &[(0, 1)]))],
        );
        fed.named(1, function, &[(b"cat", spread(function, &[(0, 5)]))]);
        let before = out.text();
        fed.sink.repeat().unwrap();
        let after = out.text();
        let lines = after.strip_prefix(&before).unwrap().lines();
        lines.filter(|line| !line.contains("exporter_")).map(String::from).collect::<Vec<_>>()
    };
    let lines = |ends: [&str; 2]| ends.map(|end| format!("dtrace.my-host_example.lat.{end} 1767323047"));
    assert_eq!(repeated(Protocol::Graphite, AggFunc::Count), lines(["cat 12", "dog 1"]));
    let spread = AggFunc::Lquantize { base: 0, limit: 20, step: 10 };
    assert_eq!(repeated(Protocol::Graphite, spread), lines(["cat.lt_0 12", "dog.lt_0 1"]));
    assert_eq!(repeated(Protocol::Graphite, AggFunc::Max), [""; 0]);
    assert_eq!(repeated(Protocol::StatsD, AggFunc::Count), [""; 0]);
    assert_eq!(repeated(Protocol::Influx, AggFunc::Count).len(), 2);
}

#[test]
fn a_bucket_is_a_series() {
    let function = AggFunc::Lquantize { base: 0, limit: 20, step: 10 };
    let feed = |fed: &mut Fed<Lines<Shared>>| {
        fed.named(0, function, &[(b"cat", spread(function, &[(0, 2), (1, 3), (3, 1)]))]);
        fed.named(1, function, &[(b"cat", spread(function, &[(1, 4)]))]);
    };
    let graphite = "dtrace.my-host_example.lat.cat.lt_0 2 1767323046\n\
                    dtrace.my-host_example.lat.cat.0 3 1767323046\n\
                    dtrace.my-host_example.lat.cat.ge_20 1 1767323046\n\
                    dtrace.my-host_example.lat.cat.0 7 1767323047\n";
    assert_eq!(written(Protocol::Graphite, feed), graphite);
    let influx = written(Protocol::Influx, feed);
    let last = "dtrace_lat,host=my-host.example,execname=cat,bucket=0 value=7i 1767323047000000000\n";
    assert!(influx.ends_with(last), "{influx}");
    assert!(written(Protocol::StatsD, feed).ends_with("lat.cat.0:4|c\n"));
}

#[test]
fn any_name_is_a_part_of_its_line() {
    let feed = |fed: &mut Fed<Lines<Shared>>| {
        let all: Vec<(&[u8], Vec<u64>)> = NASTY.iter().map(|name| (*name, vec![1])).collect();
        fed.named(0, AggFunc::Count, &all);
    };
    let graphite = written(Protocol::Graphite, feed);
    // Two of them are written alike, and are one series.
    assert_eq!(graphite.lines().count(), NASTY.len() - 1, "{graphite}");
    let values = graphite.lines().filter_map(|line| line.split(' ').nth(1)?.parse::<usize>().ok());
    assert_eq!(values.sum::<usize>(), NASTY.len());
    for line in graphite.lines() {
        let [path, _, "1767323046"] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let parts: Vec<&str> = path.split('.').collect();
        assert_eq!(parts.len(), 4, "{line}");
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        assert!(parts.iter().all(|part| !part.is_empty() && part.len() < 256), "{line}");
        assert!(parts.iter().all(|part| part.chars().all(is_plain)), "{line}");
    }
    let influx = written(Protocol::Influx, feed);
    assert_eq!(influx.lines().count(), NASTY.len());
    for line in influx.lines() {
        assert!(!line.contains(|c: char| c.is_control() || c == '\u{202e}'), "{line}");
        let bare = line.replace("\\,", "").replace("\\=", "").replace("\\ ", "");
        let [tags, "value=1i", _] = bare.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert_eq!((tags.matches(',').count(), tags.matches('=').count()), (2, 2), "{line}");
        assert!(!bare.contains('\\') && !tags.ends_with('='), "{line}");
    }
}

#[test]
fn the_name_of_the_host_is_as_it_is_where_the_format_can_write_it() {
    let feed = |fed: &mut Fed<Lines<Shared>>| {
        let host = Host::new("a b,c=d\\.e", "7.0", "x86_64", 2);
        let clock = Clock { time: 5 * SECOND, wall: 1_767_323_045 * SECOND };
        fed.sink.event(&Event::Start(Start::new("1", clock, host))).unwrap();
        fed.named(0, AggFunc::Count, &[(b"cat", vec![7])]);
    };
    assert!(written(Protocol::Graphite, feed).starts_with("dtrace.a_b_c_d__e.lat.cat 7 "));
    let influx = written(Protocol::Influx, feed);
    assert!(influx.starts_with("dtrace_lat,host=a\\ b\\,c\\=d_.e,execname=cat value=7i "), "{influx}");
}

#[test]
fn what_was_lost_is_written_without_an_interval_and_once() {
    let out = Shared::default();
    let mut fed = start(Lines::new(Protocol::Graphite, out.clone()));
    let mut lost = Drop::new(DropKind::Principal, 0, 12);
    lost.time = Some(7 * SECOND);
    fed.sink.event(&Event::Drop(lost)).unwrap();
    fed.sink.flush().unwrap();
    let line = "dtrace.my-host_example.exporter_lost.principal 12 1767323047\n";
    assert_eq!(out.text(), line);
    // An aggregation that has nothing yet is no change either.
    fed.named(0, AggFunc::Count, &[]);
    fed.named(1, AggFunc::Count, &[]);
    fed.sink.flush().unwrap();
    assert_eq!(out.text(), line);
}

#[test]
fn an_increment_of_zero_is_a_line_of_a_key_that_was_there_in_the_interval() {
    let feed = |fed: &mut Fed<Lines<Shared>>| {
        fed.named(0, AggFunc::Sum, &[(b"cat", vec![3])]);
        fed.named(1, AggFunc::Sum, &[(b"cat", vec![0])]);
        fed.named(2, AggFunc::Sum, &[]);
    };
    let graphite = written(Protocol::Graphite, feed);
    let all: Vec<&str> = graphite.lines().map(|line| &line["dtrace.my-host_example.lat.".len()..]).collect();
    assert_eq!(all, ["cat 3 1767323046", "cat 3 1767323047"]);
}

#[test]
fn times_are_those_that_intervals_say_and_not_those_of_the_clock_of_the_start() {
    let feed = |fed: &mut Fed<Lines<Shared>>| {
        fed.named(0, AggFunc::Count, &[(b"cat", vec![1])]);
        // The machine has slept for an hour.
        fed.wall = 1_767_326_647 * SECOND;
        fed.named(1, AggFunc::Count, &[(b"cat", vec![1])]);
        let mut lost = Drop::new(DropKind::Principal, 0, 1);
        lost.time = Some(9 * SECOND);
        fed.sink.event(&Event::Drop(lost)).unwrap();
        fed.sink.flush().unwrap();
    };
    let graphite = written(Protocol::Graphite, feed);
    let times: Vec<&str> = graphite.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(times, ["1767323046", "1767326647", "1767326649"]);
}
