//! Events to profiles: which rows are drawn, what their frames are, what cannot be drawn.
#![allow(clippy::unwrap_used, clippy::panic)]

use events::{
    AddrForm, AggFunc, Aggregation, Column, DropKind, Event, Fault, FaultKind, Int, Occasion, Row, Sink,
    Stack, Suppressed, Symbol, SymbolName, Value,
};
use flame::{Baseline, Flame, Format, Unnamed, read_folded};

use crate::common::{boxes, deliver, name, stack, value};

fn folded(flame: &Flame) -> String {
    String::from_utf8(Format::Folded.write(flame)).unwrap()
}

#[test]
fn columns_are_the_outermost_frames_then_the_process_then_the_kernel() {
    let mut flame = Flame::new(Unnamed::Unknown, None);
    let key = vec![
        stack(None, &["vmlinux`vfs_read", "vmlinux`do_syscall_64"]),
        name("sh"),
        stack(Some(3), &["libc.so.6`read", "sh`main"]),
        Value::Int(Int::new(12, 4, true)),
    ];
    deliver(&mut flame, "_", AggFunc::Count, vec![(key, 4)]);
    let expected = "sh;key=12;sh`main;libc.so.6`read;vmlinux`do_syscall_64_[k];vmlinux`vfs_read_[k] 4\n";
    assert_eq!(folded(&flame), expected);
}

#[test]
fn addresses_of_one_function_are_one_frame_and_those_without_a_symbol_are_unknown() {
    let mut flame = Flame::new(Unnamed::Unknown, None);
    let rows = vec![
        (vec![stack(Some(3), &["a.out`f", "a.out`"])], 1),
        (vec![stack(Some(4), &["a.out`f", "a.out`"])], 2),
        (vec![stack(Some(4), &[""])], 5),
        (vec![stack(Some(4), &[])], 7),
    ];
    deliver(&mut flame, "_", AggFunc::Count, rows.clone());
    assert_eq!(folded(&flame), "[no stack] 7\n[unknown] 5\na.out`[unknown];a.out`f 3\n");
    let svg = String::from_utf8(Format::Svg.write(&flame)).unwrap();
    assert!(svg.contains("46.67 % has stacks that are incomplete or were not recorded"), "{svg}");
    let mut flame = Flame::new(Unnamed::Address, None);
    deliver(&mut flame, "_", AggFunc::Count, rows);
    assert_eq!(folded(&flame), "0x1234 5\n[no stack] 7\na.out`0x1234;a.out`f 3\n");
}

#[test]
fn places_of_a_file_without_a_symbol_are_frames() {
    let mut flame = Flame::new(Unnamed::Unknown, None);
    let at = |in_file| {
        let mut name = SymbolName::new(Some("a.out".into()), None, 0);
        name.in_file = Some(in_file);
        Symbol::new(0x7f00_0000 + in_file, Some(3), AddrForm::Address, name)
    };
    let rows = [(vec![at(0x40), at(0x80)], 1), (vec![at(0x44), at(0x80)], 2)];
    let rows = rows.map(|(frames, n)| (vec![Value::Stack(Stack { process: Some(3), frames })], n));
    deliver(&mut flame, "_", AggFunc::Count, rows.into());
    assert_eq!(folded(&flame), "a.out+0x80;a.out+0x40 1\na.out+0x80;a.out+0x44 2\n");
}

/// Functions of an interpreter, on two lines of one of them.
fn interpreted() -> Flame {
    let mut flame = Flame::new(Unnamed::Unknown, None);
    let stack = |line: &str| {
        let handle = format!("/srv/my app.py:{line}:Server.handle");
        stack(Some(3), &["libc.so.6`read", "python3`eval", &handle, "/srv/my app.py:40:main", "python3`run"])
    };
    deliver(&mut flame, "_", AggFunc::Count, vec![(vec![stack("12")], 3), (vec![stack("13")], 4)]);
    flame
}

#[test]
fn functions_of_an_interpreter_are_one_frame_for_all_lines_around_the_function_that_runs_them() {
    let path = "python3`run;main (my app.py);Server.handle (my app.py);python3`eval;libc.so.6`read";
    assert_eq!(folded(&interpreted()), format!("{path} 7\n"));
    // Of one nothing is known, of others not the file. A process may choose any name.
    let mut flame = Flame::new(Unnamed::Address, None);
    let all = ["a`f", "::", "::[incomplete]", "x/y z.py:1:<module>", "a\x1b.py::g"];
    deliver(&mut flame, "_", AggFunc::Count, vec![(vec![stack(Some(3), &all)], 1)]);
    assert_eq!(folded(&flame), "g (a\\033.py);<module> (y z.py);[incomplete] (?);[unknown];a`f 1\n");
    let svg = String::from_utf8(Format::Svg.write(&flame)).unwrap();
    assert!(!svg.contains("stacks that are incomplete"), "{svg}");
}

#[test]
fn functions_of_an_interpreter_are_a_kind_of_their_own_in_pictures() {
    let svg = String::from_utf8(Format::Svg.write(&interpreted())).unwrap();
    let all = boxes(&svg);
    let handle = all.iter().find(|b| b.about.starts_with("Server.handle")).unwrap();
    assert_eq!(
        (&*handle.class, &*handle.about),
        ("p", "Server.handle (my app.py) (process, interpreted): 7, 100.00 %")
    );
    assert!(
        svg.contains(">of an interpreter</text>") && svg.contains("\"p Server.handle (my app.py)\""),
        "{svg}"
    );
    let mut plain = Flame::new(Unnamed::Unknown, None);
    deliver(&mut plain, "_", AggFunc::Count, vec![(vec![stack(Some(3), &["a`f"])], 1)]);
    assert!(!String::from_utf8(Format::Svg.write(&plain)).unwrap().contains("of an interpreter"));
}

#[test]
fn functions_of_an_interpreter_have_their_file_in_pprof_and_speedscope() {
    let flame = interpreted();
    let json = String::from_utf8(Format::Speedscope.write(&flame)).unwrap();
    assert!(json.contains(r#"{"name":"Server.handle","file":"my app.py"}"#), "{json}");
    let pprof = Format::Pprof.write(&flame);
    // Strings have the number 6 and a length before them. The file is no mapping: these are the
    // empty one, python3 and libc.
    let has = |text: &str| {
        let string = [&[6 << 3 | 2, text.len() as u8], text.as_bytes()].concat();
        pprof.windows(string.len()).any(|at| at == string)
    };
    for text in ["Server.handle", "main", "my app.py", "Server.handle (my app.py)", "python3", "libc.so.6"] {
        assert!(has(text), "{text}");
    }
}

#[test]
fn a_difference_knows_functions_of_an_interpreter_in_folded_stacks() {
    let before = folded(&interpreted());
    let before = read_folded(before.as_bytes(), "before").unwrap();
    let mut profile = interpreted().profiles()[0].clone();
    profile.compare(&before);
    let svg = Format::Svg.write_profiles(&[&profile], &flame::Loss::default(), "");
    let svg = String::from_utf8(svg).unwrap();
    assert!(
        svg.contains("Server.handle (my app.py) (process, interpreted): 7, 100.00 % (before: 100.00 %)"),
        "{svg}"
    );
}

#[test]
fn a_later_delivery_replaces_an_earlier_one() {
    let mut flame = Flame::new(Unnamed::Unknown, None);
    deliver(&mut flame, "a", AggFunc::Count, vec![(vec![stack(None, &["f"])], 1)]);
    deliver(&mut flame, "a", AggFunc::Count, vec![(vec![stack(None, &["g"])], 2)]);
    assert_eq!(folded(&flame), "g_[k] 2\n");
    // Nothing is left of it after trunc().
    deliver(&mut flame, "a", AggFunc::Count, Vec::new());
    assert_eq!(folded(&flame), "");
}

#[test]
fn aggregations_without_stacks_are_not_drawn() {
    let mut flame = Flame::new(Unnamed::Unknown, None);
    deliver(&mut flame, "a", AggFunc::Count, vec![(vec![name("sh")], 1)]);
    assert!(flame.profiles().is_empty());
    let svg = String::from_utf8(Format::Svg.write(&flame)).unwrap();
    assert!(svg.contains("No stacks were recorded."), "{svg}");
}

#[test]
fn negative_values_are_refused_and_other_aggregations_drawn() {
    let mut flame = Flame::new(Unnamed::Unknown, None);
    deliver(
        &mut flame,
        "bad",
        AggFunc::Sum,
        vec![(vec![stack(None, &["f"])], -5), (vec![stack(None, &["g"])], 5)],
    );
    deliver(&mut flame, "good", AggFunc::Sum, vec![(vec![stack(None, &["f"])], 5)]);
    let messages: Vec<String> = flame.refused().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        [
            "cannot draw @bad: the value of a stack is -5, and the widths of frames are sums of values that are not negative"
        ]
    );
    assert_eq!(folded(&flame), "f_[k] 5\n");
}

#[test]
fn each_aggregation_of_a_printa_is_a_profile_and_a_distribution_has_the_number_of_its_values() {
    let mut flame = Flame::new(Unnamed::Unknown, None);
    let mut buckets = vec![0; 127];
    (buckets[70], buckets[80]) = (3, 4);
    let columns = [("a", AggFunc::Avg), ("b", AggFunc::Quantize), ("c", AggFunc::Count)];
    let columns = columns.map(|(n, function)| Column { name: n.into(), function }).to_vec();
    let mut absent = value(AggFunc::Count, &[0]);
    absent.absent = true;
    let values = vec![value(AggFunc::Avg, &[2, 21]), value(AggFunc::Quantize, &buckets), absent];
    let rows = vec![Row { key: vec![stack(None, &["f"])], values }];
    flame.event(&Event::Aggregation(Aggregation::new(Occasion::Printa, columns, rows))).unwrap();
    assert_eq!(folded(&flame), "@a;f_[k] 10\n@b;f_[k] 7\n");
}

#[test]
fn the_picture_says_what_was_lost() {
    let mut flame = Flame::new(Unnamed::Unknown, None);
    deliver(&mut flame, "_", AggFunc::Count, vec![(vec![stack(Some(1), &["f", "[incomplete]"])], 1)]);
    for cpu in [0, 1] {
        flame.event(&Event::Drop(events::Drop::new(DropKind::Aggregation, cpu, 700))).unwrap();
    }
    flame.event(&Event::Drop(events::Drop::new(DropKind::Stack, 0, 1))).unwrap();
    flame.event(&Event::Suppressed(Suppressed::new("p", None, 5))).unwrap();
    flame.event(&Event::Fault(Fault::new(0, 0, 1, FaultKind::DivZero, 0))).unwrap();
    let svg = String::from_utf8(Format::Svg.write(&flame)).unwrap();
    for line in [
        "Lost: 1,400 aggregation drops",
        "Lost: 1 stack drop",
        "Lost: 5 firings suppressed by the kernel",
        "Lost: 1 error in a clause",
        "@: 100.00 % has stacks that are incomplete or were not recorded",
    ] {
        assert!(svg.contains(&format!(">{line}</text>")), "{line}: {svg}");
    }
}

#[test]
fn a_baseline_is_a_file_or_an_aggregation_that_is_not_drawn_itself() {
    let before = read_folded(b"@a;f_[k] 3\n@b;f_[k] 9\n", "before").unwrap();
    let mut flame = Flame::new(Unnamed::Unknown, Some(Baseline::Profile(Box::new(before))));
    deliver(&mut flame, "a", AggFunc::Count, vec![(vec![stack(None, &["f"])], 1)]);
    deliver(&mut flame, "b", AggFunc::Count, vec![(vec![stack(None, &["f"])], 1)]);
    assert!(flame.compare() && flame.compare());
    let svg = String::from_utf8(Format::Svg.write(&flame)).unwrap();
    assert!(svg.contains("1 in 1 stack, before: 3<") && svg.contains("before: 9<"), "{svg}");

    let mut flame = Flame::new(Unnamed::Unknown, Some(Baseline::Aggregation("@a".into())));
    deliver(&mut flame, "b", AggFunc::Count, vec![(vec![stack(None, &["f"])], 1)]);
    assert!(!flame.compare());
    deliver(&mut flame, "a", AggFunc::Count, vec![(vec![stack(None, &["f"])], 4)]);
    assert!(flame.compare());
    assert_eq!(folded(&flame), "f_[k] 1\n");
    assert!(String::from_utf8(Format::Svg.write(&flame)).unwrap().contains("before: 4<"));
}

#[test]
fn stacks_with_all_frames_that_were_asked_for_are_told_in_the_picture() {
    let notes = |key: &str, frames: &[&str]| {
        let mut flame = Flame::new(Unnamed::default(), None);
        flame.set_most_frames([0, 3, 0]);
        let column = Column { name: "@".into(), function: AggFunc::Count };
        let long = Row { key: vec![stack(Some(1), frames)], values: vec![value(AggFunc::Count, &[3])] };
        let short = Row { key: vec![stack(Some(1), &["a`x"])], values: vec![value(AggFunc::Count, &[1])] };
        let mut all = Aggregation::new(Occasion::End, vec![column], vec![long, short]);
        all.keys = vec![key.to_owned().into()];
        flame.event(&Event::Aggregation(all)).unwrap();
        let picture = String::from_utf8(Format::Svg.write(&flame)).unwrap();
        picture.lines().find(|line| line.contains("may be missing")).map(str::to_owned)
    };
    let told = notes("ustack(2)", &["a`f", "a`g"]).unwrap();
    assert!(
        told.contains("@: 75.00 % has stacks with all frames that were asked for, ustack(2): their outer"),
        "{told}"
    );
    assert!(notes("ustack()", &["a`f", "a`g", "a`h"]).is_some());
    assert!(notes("jstack(2)", &["a`f", "a.py:1:f", "a`g"]).is_some());
    // Those that are whole, incomplete for another reason, or of a number that is not known.
    assert_eq!(notes("jstack(3)", &["a`f", "a.py:1:f", "a`g"]), None);
    assert_eq!(notes("ustack()", &["a`f", "a`g"]), None);
    assert_eq!(notes("ustack(3)", &["a`f", "a`g", "[incomplete]"]), None);
    assert_eq!(notes("stack()", &["a`f", "a`g", "a`h"]), None);
    assert_eq!(notes("ustack(n)", &["a`f", "a`g", "a`h"]), None);
}
