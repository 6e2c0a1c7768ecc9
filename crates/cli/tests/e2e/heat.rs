//! `--heat`: heat maps of sessions on the running kernel.

use std::collections::BTreeMap;

use crate::Verdict::{self, Pass};
use crate::read::read;
use crate::tool::{dtrace, workload};

tests! {
    a_heat_map_has_the_numbers_that_are_printed what_cannot_be_drawn_is_said
}

/// The counts of printed distributions that are not 0, by key and bucket.
pub(crate) fn printed(text: &str) -> BTreeMap<(String, String), i64> {
    let mut all = BTreeMap::new();
    let mut key = String::new();
    for line in text.lines() {
        match line.split_once('|') {
            Some((label, rest)) => {
                let count: i64 = rest.split_whitespace().last().unwrap().parse().unwrap();
                if count != 0 {
                    all.insert((key.clone(), label.trim().to_string()), count);
                }
            }
            None if line.contains("Distribution") => {}
            None if !line.trim().is_empty() => key = line.trim().to_string(),
            None => {}
        }
    }
    all
}

fn a_heat_map_has_the_numbers_that_are_printed() -> Verdict {
    let dir = testing::dir::Dir::new("heat-numbers");
    let file = |name: &str| dir.join(name).into_os_string().into_string().unwrap();
    let words = workload("stacks-slowly", 60);
    // What is printed is not cleared; what is drawn is not affected by an aggregation beside it
    // that is.
    let script = "syscall:::entry /pid == $target/ { @spread[probefunc] = quantize(arg1 % 1000); @other = lquantize(arg2 % 50, 0, 40, 5); } \
                  tick-20ms { clear(@other); } END { printa(@spread); trunc(@other); }";
    let (html, svg) = (file("x.html"), file("x.svg"));
    let o =
        dtrace(&["-q", "-xevery=50ms", "--heat", &html, "--heat", &svg, "-c", &words, "-n", script]).code(0);
    assert_eq!(o.err, "");
    let printed = printed(&o.out);
    for path in [&html, &svg] {
        let maps = read(&std::fs::read_to_string(path).unwrap());
        let map = maps.iter().find(|map| map.name == "@spread").unwrap();
        let other = maps.iter().find(|map| map.name == "@other").unwrap();
        let mut drawn: BTreeMap<(String, String), i64> = BTreeMap::new();
        for (_, key, label, count) in &map.cells {
            *drawn.entry((map.keys[*key].join(" "), label.clone())).or_default() += count;
        }
        let of_map = printed.iter().filter(|(cell, _)| map.keys.iter().any(|key| key[0] == cell.0));
        let of_map: BTreeMap<_, _> = of_map.map(|(cell, count)| (cell.clone(), *count)).collect();
        assert_eq!(drawn, of_map, "{}", o.out);
        let all = |cells: &[(usize, usize, String, i64)]| cells.iter().map(|(.., count)| count).sum::<i64>();
        assert!(drawn.len() > 2 && map.times.len() > 1, "{drawn:?}");
        assert_eq!(all(&map.cells), all(&other.cells), "what was cleared is there");
    }
    Pass
}

fn what_cannot_be_drawn_is_said() -> Verdict {
    let dir = testing::dir::Dir::new("heat-nothing");
    let file = dir.join("x.svg").into_os_string().into_string().unwrap();
    let o = dtrace(&["-q", "--heat", &file, "-n", "BEGIN { @ = count(); exit(0); }"]).code(1);
    assert!(o.err.contains("no aggregation is a distribution, as in @ = quantize(arg0)"), "{}", o.err);
    let o = dtrace(&["-q", "--heat", "/nowhere/x.svg", "-n", "BEGIN { @ = quantize(1); exit(0); }"]).code(1);
    assert!(o.err.contains("failed to write '/nowhere/x.svg'"), "{}", o.err);
    Pass
}
