//! What is in a file.

use events::{AggFunc, Drop, DropKind, Event, Sink};
use heat::Format;

use crate::read::read;
use crate::{Fed, SECOND};

fn text(fed: &Fed, format: Format) -> String {
    String::from_utf8(format.write(&fed.0)).unwrap()
}

#[test]
fn a_file_has_each_count_of_each_interval_key_and_bucket() {
    let mut fed = Fed::new();
    let function = AggFunc::Lquantize { base: 0, limit: 100, step: 10 };
    fed.second(0, function, &[("cat", 3, 7), ("dog", 0, 1), ("dog", 11, 300)]);
    fed.second(1, function, &[]);
    fed.second(2, function, &[("cat", 3, i64::MAX), ("cat", 4, -2)]);
    for format in [Format::Svg, Format::Html] {
        let [map] = &read(&text(&fed, format))[..] else { panic!() };
        assert_eq!((&*map.name, &*map.title), ("@lat", "@lat[execname] = lquantize()"));
        assert_eq!(map.keys, [["cat"], ["dog"]]);
        assert_eq!(map.times, [(0, 1_000_000), (1_000_000, 2_000_000), (2_000_000, 3_000_000)]);
        let cell = |column, key, label: &str, count| (column, key, label.to_string(), count);
        let expected = [
            cell(0, 0, "20", 7),
            cell(0, 1, "< 0", 1),
            cell(0, 1, ">= 100", 300),
            cell(2, 0, "20", i64::MAX),
            cell(2, 0, "30", -2),
        ];
        assert_eq!(map.cells, expected);
    }
    assert!(text(&fed, Format::Html).contains("Numbers of 2^53 and more are rounded"));
}

#[test]
fn numbers_that_are_no_distribution_are_not_drawn() {
    let mut fed = Fed::new();
    fed.second(0, AggFunc::Count, &[("cat", 0, 7)]);
    assert!(fed.0.is_empty());
    assert!(text(&fed, Format::Svg).contains("No distribution has a value."));
}

#[test]
fn an_hour_of_seconds_and_twenty_keys_is_at_most_a_megabyte() {
    let mut fed = Fed::new();
    hour(&mut fed);
    let page = Format::Html.write(&fed.0);
    assert!(page.len() <= 1 << 20, "{}", page.len());
    let [map] = &read(std::str::from_utf8(&page).unwrap())[..] else { panic!() };
    assert_eq!((map.times.len(), map.cells.len(), map.merged), (3600, 3600 * 20 * 5, 1));
}

/// An hour of seconds, twenty keys and five buckets that are not empty for each.
pub(crate) fn hour(fed: &mut Fed) {
    let names: Vec<String> = (0..20).map(|n| format!("process-{n}")).collect();
    let mut state = 1u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for second in 0..3600 {
        let mut all = Vec::new();
        for (n, name) in names.iter().enumerate() {
            // Around a bucket of the key, few far from it.
            let center = 70 + n + random(3) as usize;
            for (bucket, most) in (center..center + 5).zip([9, 90, 400, 60, 5]) {
                all.push((name.as_str(), bucket, 1 + random(most) as i64));
            }
        }
        fed.second(second, AggFunc::Quantize, &all);
    }
}

#[test]
fn a_file_that_would_be_too_large_has_longer_intervals_and_says_so() {
    let mut fed = Fed::new();
    hour(&mut fed);
    let whole = read(&text(&fed, Format::Svg)).remove(0);
    let page = Format::Svg.write_below(&fed.0, 300_000);
    assert!(page.len() <= 300_000, "{}", page.len());
    let page = String::from_utf8(page).unwrap();
    let map = read(&page).remove(0);
    assert!(map.merged > 1 && map.times.len() as u64 == 3600u64.div_ceil(map.merged));
    assert!(page.contains(&format!("@lat: a column is {} intervals", map.merged)));
    for label in &map.labels {
        for key in 0..20 {
            assert_eq!(map.sum(key, label), whole.sum(key, label));
        }
    }
}

#[test]
fn what_a_process_is_called_is_data_and_what_was_lost_is_said() {
    let mut fed = Fed::new();
    let hostile = "</script>]]><img src=x onerror=alert(1)>\u{202e}\n";
    fed.second(0, AggFunc::Quantize, &[(hostile, 70, 1)]);
    fed.0.event(&Event::Drop(Drop::new(DropKind::Aggregation, 0, 12))).unwrap();
    let page = text(&fed, Format::Html);
    assert!(!page.contains("<img") && page.matches("</script>").count() == 2);
    assert!(page.contains("Lost: 12 aggregation"), "{page}");
    let key = &read(&page)[0].keys[0][0];
    assert!(key.starts_with("</script>]]><img") && !key.contains(['\n', '\u{202e}']), "{key}");
    let nothing = page.replace("http://www.w3.org/2000/svg", "").replace("http://www.w3.org/1999/xhtml", "");
    assert!(!nothing.contains("http:") && !nothing.contains("https:"), "nothing is loaded");
}

#[test]
fn memory_is_bounded_by_longer_intervals() {
    let mut fed = Fed::new();
    let function = AggFunc::Lquantize { base: 0, limit: 100_000, step: 1 };
    let all: Vec<(&str, usize, i64)> = (1..100_001).map(|bucket| ("x", bucket, 1)).collect();
    (0..40).for_each(|second| fed.second(second, function, &all));
    let map = read(&text(&fed, Format::Svg)).remove(0);
    assert!(map.merged > 1 && map.times.last().unwrap().1 == 40 * SECOND / 1000);
    let lengths: Vec<u64> = map.times.iter().map(|(begin, end)| end - begin).collect();
    let (_, whole) = lengths.split_last().unwrap();
    assert!(whole.iter().all(|length| *length == map.merged * SECOND / 1000), "{lengths:?}");
    assert_eq!(map.sum(0, "777"), 40);
}
