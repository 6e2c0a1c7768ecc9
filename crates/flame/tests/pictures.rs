//! Pictures: the files of a small profile, byte by byte, and what holds for all of them.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use events::{AggFunc, Value};
use flame::{Flame, Format, Loss, Profile, Unnamed, read_folded};
use testing::rng::Rng;

use crate::common::{self, boxes, deliver, name, read, stack};

fn directory() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pictures")
}

/// What differs from one picture to the next: without the style and the script.
fn variable_part(picture: &str) -> String {
    let mut out = picture.to_string();
    for (from, to) in [("<style><![CDATA[", "]]></style>"), ("<script><![CDATA[", "]]></script>")] {
        let (begin, end) = (out.find(from).unwrap() + from.len(), out.rfind(to).unwrap());
        out.replace_range(begin..end, "...");
    }
    out
}

fn small() -> Profile {
    read_folded(&std::fs::read(directory().join("small.folded")).unwrap(), "small.folded").unwrap()
}

fn written(profile: &Profile, format: Format) -> String {
    String::from_utf8(format.write_profiles(&[profile], &Loss::default(), "vm, Linux 6.12 (x86_64)")).unwrap()
}

#[test]
fn a_small_profile_is_drawn_as_it_was() {
    testing::golden::compare(&directory(), "folded", "svg", |_, _| {
        variable_part(&written(&small(), Format::Svg))
    });
    testing::golden::compare(&directory(), "folded", "html", |_, _| {
        variable_part(&written(&small(), Format::Html))
    });
    testing::golden::compare(&directory(), "before", "diff.svg", |_, text| {
        let mut profile = small();
        profile.compare(&read_folded(text.as_bytes(), "before").unwrap());
        variable_part(&written(&profile, Format::Svg))
    });
}

#[test]
fn widths_are_shares_of_the_whole() {
    let all = boxes(&written(&small(), Format::Svg));
    let width = |about: &str| all.iter().find(|b| b.about.starts_with(about)).unwrap().width;
    assert_eq!(width("all: 1,048"), 1180.0);
    assert!((width("spin`mix (process): 652, 62.21 %") - 1180.0 * 652.0 / 1048.0).abs() < 0.01);
    assert!((width("vmlinux`vfs_read (kernel): 230") - 1180.0 * 230.0 / 1048.0).abs() < 0.01);
    assert_eq!(all.iter().find(|b| b.about.starts_with("[incomplete]")).unwrap().class, "x");
}

#[test]
fn a_page_loads_nothing_from_elsewhere() {
    let page = written(&small(), Format::Html);
    assert!(page.contains("default-src 'none'"), "{page}");
    let rest = page.replace("http://www.w3.org/2000/svg", "").replace("http://www.w3.org/1999/xhtml", "");
    for word in [
        "http:",
        "https:",
        "src=",
        "href",
        "@import",
        "url(",
        "fetch(",
        "XMLHttpRequest",
        "innerHTML",
        "eval(",
    ] {
        assert!(!rest.contains(word), "{word}");
    }
}

/// A name that would end an element, a script, a string or a line, if it were not escaped.
fn hostile(rng: &mut Rng) -> String {
    const PARTS: [&str; 16] = [
        "</text>",
        "<script>alert(1)</script>",
        "]]>",
        "<![CDATA[",
        "&amp;",
        "&",
        "\"",
        "'",
        "`",
        ";",
        "\n",
        "\x1b[31m",
        "\u{202e}",
        "\u{ffff}",
        "é漢",
        "operator<< <int, char>",
    ];
    (0..1 + rng.below(3)).map(|_| rng.pick(&PARTS).unwrap()).collect()
}

/// An aggregation of random stacks.
fn random(rng: &mut Rng) -> (Flame, u64) {
    let mut flame = Flame::new(Unnamed::Unknown, None);
    let (mut rows, mut sum) = (Vec::new(), 0);
    let names: Vec<String> = (0..12).map(|_| format!("lib`{}", hostile(rng))).collect();
    for _ in 0..rng.below(60) {
        let mut frames = |most: usize| -> Vec<&str> {
            (0..rng.below(most)).map(|_| names[rng.below(names.len())].as_str()).collect()
        };
        let (user, kernel) = (frames(12), frames(6));
        let n = (rng.below(1000) * rng.below(2000)) as i64;
        sum += n as u64;
        let key: Vec<Value<'_>> = vec![stack(None, &kernel), name(&hostile(rng)), stack(Some(7), &user)];
        rows.push((key, n));
    }
    deliver(&mut flame, "a", AggFunc::Sum, rows);
    (flame, sum)
}

#[test]
fn pictures_of_any_names_are_well_formed_and_frames_lie_on_what_called_them() {
    let mut rng = Rng::new(20);
    for _ in 0..40 {
        let (mut flame, sum) = random(&mut rng);
        if rng.one_in(2) {
            let (before, _) = random(&mut rng);
            let mut now = flame.profiles().first().map(|p| (*p).clone());
            if let (Some(now), Some(before)) = (&mut now, before.profiles().first()) {
                now.compare(before);
                read(&written(now, Format::Svg));
            }
        }
        let svg = String::from_utf8(Format::Svg.write(&flame)).unwrap();
        // Scripts: that of the data and that of the picture.
        assert_eq!(
            read(&svg).iter().filter(|x| matches!(x, common::Xml::Start(n, _) if n == "script")).count(),
            2
        );
        let all = boxes(&svg);
        let end = |b: &common::Box| b.x + b.width;
        for frame in all.iter().filter(|b| !b.about.starts_with("all")) {
            let under = all.iter().filter(|b| b.y == frame.y + 17.0);
            let mut under = under.filter(|b| b.x <= frame.x + 0.02 && end(b) >= end(frame) - 0.02);
            assert!(under.next().is_some(), "{frame:?} on {all:?}");
            let beside = all.iter().filter(|b| b.y == frame.y && b.x > frame.x);
            assert!(beside.clone().all(|b| b.x >= end(frame) - 0.02), "{frame:?} over another");
        }
        flame.compare();
        let total = flame.profiles().first().map_or(0, |p| p.total());
        assert_eq!(total, sum);
        let folded = String::from_utf8(Format::Folded.write(&flame)).unwrap();
        let values = folded.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
        assert_eq!(values.sum::<u64>(), sum);
        let scope = String::from_utf8(Format::Speedscope.write(&flame)).unwrap();
        let scope: testing::json::Value = scope.parse().unwrap();
        let weights = scope.pointer("/profiles/0/weights").and_then(|w| w.as_array());
        assert_eq!(weights.map_or(0, |w| w.iter().map(|n| n.as_u64().unwrap()).sum()), sum);
    }
}

#[test]
fn frames_that_are_too_narrow_are_one_box_and_their_names_are_in_the_data() {
    let mut text = String::from("wide 1000000\n");
    (0..5000).for_each(|n| text.push_str(&format!("narrow_{n} 1\n")));
    let many = read_folded(text.as_bytes(), "many").unwrap();
    let svg = written(&many, Format::Svg);
    let narrow: Vec<_> = boxes(&svg).into_iter().filter(|b| b.class == "o").collect();
    assert_eq!(narrow.len(), 1, "{narrow:?}");
    assert_eq!(narrow[0].about, "5,000 frames too narrow to draw");
    assert!((narrow[0].width - 1180.0 * 5000.0 / 1_005_000.0).abs() < 0.02);
    assert!(svg.contains("\"u") && svg.contains("narrow_4999\""));
}

#[test]
fn a_large_profile_has_a_bounded_picture() {
    let mut text = String::new();
    for n in 0..310_000u32 {
        text.push_str(&format!("main;f{};leaf{n} 1\n", n % 500));
    }
    text.push_str("main;greatest 190000\n");
    let profile = read_folded(text.as_bytes(), "large").unwrap();
    let svg = written(&profile, Format::Svg);
    assert!(svg.len() < 24 << 20, "{} bytes", svg.len());
    assert!(svg.contains("smallest frames are folded"), "the heading says so");
    assert_eq!(boxes(&svg)[0].about, "all: 500,000, 100.00 %");
    let folded = Format::Folded.write_profiles(&[&profile], &Loss::default(), "");
    assert_eq!(folded.iter().filter(|b| **b == b'\n').count(), 310_001);
}

/// The part of a colour's light that is seen, by the rules of WCAG.
fn luminance(colour: &str) -> f64 {
    let part = |at: usize| {
        let c = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
        if c <= 0.03928 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
}

fn contrast(a: &str, b: &str) -> f64 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn every_text_has_the_contrast_that_wcag_asks_for_in_light_and_dark() {
    let style = std::fs::read_to_string(directory().join("../../src/picture.css")).unwrap();
    let (light, dark) = style.split_once("@media").unwrap();
    for part in [light, dark] {
        let colour = |name: &str| {
            let (_, after) = part.split_once(&format!("--{name}: ")).unwrap_or_else(|| panic!("{name}"));
            after[..7].to_string()
        };
        let frames = [
            "all", "key", "folded", "u0", "u1", "u2", "k0", "k1", "k2", "x", "m1", "m2", "m3", "m4", "l1",
            "l2", "l3", "l4", "same",
        ];
        let mut pairs: Vec<(&str, &str)> = frames.iter().map(|f| ("frame-fg", *f)).collect();
        pairs.extend([("fg", "bg"), ("dim", "bg"), ("warn-fg", "warn-bg"), ("hit-fg", "hit")]);
        for (text, ground) in pairs {
            let found = contrast(&colour(text), &colour(ground));
            assert!(found >= 4.5, "{text} on {ground}: {found:.2}");
        }
    }
}
