//! Options: their table, and what each takes.

use std::time::Duration;

use super::value::{rate, size};
use super::*;

#[test]
fn the_table_is_sorted_and_its_defaults_parse() {
    for row in TABLE {
        // Of a list and of a text each default would do.
        let mut options = Options::default();
        assert!(row.default.is_empty() || options.set(row.name, Some(row.default)).is_ok(), "{}", row.name);
        assert!(!row.help.is_empty());
    }
    for pair in TABLE.windows(2) {
        assert!(pair[0].name < pair[1].name, "{} and {}", pair[0].name, pair[1].name);
    }
}

#[test]
fn options_that_do_not_exist_say_why() {
    for pair in ABSENT.windows(2) {
        assert!(pair[0].name < pair[1].name, "{} and {}", pair[0].name, pair[1].name);
    }
    for absent in ABSENT {
        let error = Options::default().set(absent.name, Some("1")).err();
        assert_eq!(error, Some(OptionError::Name), "{}", absent.name);
        assert_eq!(advice(absent.name, OptionError::Name).as_deref(), Some(absent.reason));
    }
}

#[test]
fn sizes_and_rates_are_parsed_with_their_units() {
    assert_eq!(size("4m"), Some(4 << 20));
    assert_eq!(size("10"), Some(10));
    assert_eq!(size("1K"), Some(1024));
    assert_eq!(size("m"), None);
    assert_eq!(size("99999999999g"), None);
    assert_eq!(size("0x10k"), Some(16 << 10));
    assert_eq!(size("010"), Some(8));
    for wrong in ["-1", "+1", "", "k", "4mk", "\u{e9}", "4 m", "0x", "08"] {
        assert_eq!(size(wrong), None, "{wrong:?}");
    }
    assert_eq!(rate("10hz"), Some(100_000_000));
    assert_eq!(rate("0hz"), None);
    assert_eq!(rate("5ms"), Some(5_000_000));
    assert_eq!(rate("5parsec"), None);
}

#[test]
fn each_type_of_option_accepts_its_values_only() {
    let mut o = Options::default();
    assert!(o.set("quiet", None).is_ok_and(|r| r.name == "quiet"));
    assert!(o.quiet);
    assert!(o.set("quiet", Some("no")).is_ok());
    assert!(!o.quiet);
    assert_eq!(o.set("nosuch", None).err(), Some(OptionError::Name));
    assert_eq!(o.set("bufpolicy", Some("funny")).err(), Some(OptionError::Value));
    assert_eq!(o.set("bufsize", None).err(), Some(OptionError::Value));
    assert!(o.set("define", Some("A=1")).is_ok());
    assert!(o.set("define", Some("B")).is_ok());
    assert_eq!(o.define, ["A=1", "B"]);
    assert_eq!(o.bufsize, Bytes::mib(4));
    assert_eq!((o.bufpolicy, o.text("bufpolicy").as_str()), (Policy::Switch, "switch"));
    assert_eq!((o.cpu, o.text("cpu").as_str()), (None, ""));
    for (name, right, wrong) in [
        ("setenv", "A=", "A"),
        ("setenv", "A=b=c", "=b"),
        ("unsetenv", "A", "A=b"),
        ("unsetenv", "B", ""),
        ("slices", "a(1)..b(arg0)", "a..b"),
        ("temporal", "yes", "no"),
        ("evaltime", "main", "start"),
    ] {
        assert!(o.set(name, Some(right)).is_ok(), "{name}={right}");
        assert_eq!(o.set(name, Some(wrong)).err(), Some(OptionError::Value), "{name}={wrong}");
    }
}

#[test]
fn values_out_of_range_are_rejected_with_a_hint() {
    let mut o = Options::default();
    for (name, value) in [
        ("pcapsize", "0"),
        ("pcapsize", "64k"),
        ("strsize", "0"),
        ("scratchsize", "1m"),
        ("strsize", "1g"),
        ("stackframes", "0"),
        ("nspec", "-1"),
        ("nspec", "1025"),
        ("maxframes", "0"),
        ("amin", "Best/Stable/ISA"),
    ] {
        assert_eq!(o.set(name, Some(value)).err(), Some(OptionError::Value), "{name}={value}");
    }
    assert!(o.set("strsize", Some("1")).is_ok() && o.set("strsize", Some("4k")).is_ok());
    assert!(o.set("ustackframes", Some("0x200")).is_ok());
    assert!(o.set("amin", Some("evolving/stable/isa")).is_ok());
    assert!(o.set("quiet", Some("OFF")).is_ok() && !o.quiet);
    let say = |name, e| advice(name, e).unwrap();
    assert_eq!(say("bufsiz", OptionError::Name), "did you mean bufsize?");
    assert_eq!(say("bufpolicy", OptionError::Value), "it takes switch or fill or ring");
    assert_eq!(say("strsize", OptionError::Value), "it takes a size from 1 to 32k");
    assert_eq!(say("symmem", OptionError::Value), "it takes a size from 16m to 64g");
    assert_eq!(say("stackframes", OptionError::Value), "it takes a number of at least 1");
    assert_eq!(say("nspec", OptionError::Value), "it takes a number from 0 to 1024");
}

#[test]
fn maxframes_is_what_stackframes_and_ustackframes_are_unless_they_are_set() {
    let frames = |o: &Options| [o.kernel_frames(), o.user_frames(), o.jstackframes];
    assert_eq!(frames(&Options::default()), [20, 20, 50]);
    let mut o = Options { maxframes: Some(7), ..Options::default() };
    assert_eq!(frames(&o), [7, 7, 50]);
    o.set("ustackframes", Some("3")).unwrap();
    assert_eq!(frames(&o), [7, 3, 50]);
}

#[test]
fn fields_and_texts_are_the_same_options() {
    let typed = Options {
        quiet: true,
        bufsize: Bytes::mib(16),
        switchrate: Duration::from_millis(100),
        bufpolicy: Policy::Ring,
        stackframes: Some(9),
        libdir: vec!["a".into(), "b".into()],
        cpppath: "gcc".into(),
        amin: Some(Attributes::EVOLVING),
        version: Some(Version::new(1, 6)),
        pidreturn: Returns::Instructions,
        ..Options::default()
    };
    let mut texts = Options::default();
    for (name, value) in [
        ("quiet", None),
        ("bufsize", Some("16m")),
        ("switchrate", Some("10hz")),
        ("bufpolicy", Some("ring")),
        ("stackframes", Some("9")),
        ("libdir", Some("a")),
        ("libdir", Some("b")),
        ("cpppath", Some("gcc")),
        ("amin", Some("Evolving/Evolving/Common")),
        ("version", Some("1.6")),
        ("pidreturn", Some("ret")),
    ] {
        texts.set(name, value).unwrap();
    }
    assert_eq!(typed, texts);
    // Each value as its text is the same value again.
    let mut again = Options::default();
    for row in TABLE {
        for text in (row.texts)(&typed) {
            again.set(row.name, Some(&text)).unwrap();
        }
    }
    assert_eq!(typed, again);
}

#[test]
fn each_word_is_a_value_and_each_value_its_word() {
    for row in TABLE {
        let Shape::Word(words) = row.shape else { continue };
        let mut seen = Vec::new();
        for word in words {
            let mut options = Options::default();
            options.set(row.name, Some(word)).unwrap();
            assert_eq!(options.text(row.name), *word);
            assert!(!seen.contains(&options), "{}={word}", row.name);
            seen.push(options);
        }
        assert_eq!(Options::default().text(row.name), row.default);
    }
}

#[test]
fn a_field_with_a_value_that_no_text_has_is_an_error_with_its_name() {
    assert_eq!(Options::default().check(), Ok(()));
    let wrong = [
        (
            Options { strsize: Bytes::mib(1024), ..Options::default() },
            "failed to set strsize=1g: Invalid value for specified option (it takes a size from 1 to 32k)",
        ),
        (
            Options { nspec: 4000, ..Options::default() },
            "failed to set nspec=4000: Invalid value for specified option (it takes a number from 0 to 1024)",
        ),
        (
            Options { aggrate: Duration::MAX, ..Options::default() },
            "failed to set aggrate=18446744073709551615ns: Invalid value for specified option (it takes a rate, as in 10hz or 100ms)",
        ),
        (
            Options { setenv: vec!["A=1".into(), "B".into()], ..Options::default() },
            "failed to set setenv=A=1 B: Invalid value for specified option (it takes a variable with its value, as in NAME=value)",
        ),
        (
            Options { temporal: false, ..Options::default() },
            "failed to set temporal=no: Invalid value for specified option (it takes yes: records are always in the order of time)",
        ),
    ];
    for (options, message) in wrong {
        assert_eq!(options.check().unwrap_err(), message);
    }
}

#[test]
fn what_only_the_command_obeys_is_refused_where_a_session_is_made() {
    let mut refused = Vec::new();
    for row in TABLE {
        let mut options = Options::default();
        let value = (row.shape != Shape::Flag).then_some(row.default).filter(|text| !text.is_empty());
        let set = options.set_for_session(row.name, value);
        assert_eq!(set.err() == Some(OptionError::Elsewhere), is_elsewhere(row.name), "{}", row.name);
        if let Some(what) = row.obeyed.elsewhere() {
            assert!(!what.is_empty() && options == Options::default());
            refused.push(row.name);
        }
    }
    assert_eq!(
        refused.join(" "),
        "anonroot anonsize bpflog capture errtags events from graphite initramfs listen oformat otlp otlpprofiles slices snapmax snaprate to tree verbose"
    );
    // Who makes a session in Rust may make a timeline, too, and serves nothing by a field.
    let slices = Options { slices: vec!["a(1)..b(1)".into()], ..Options::default() };
    assert_eq!(slices.check_obeyed(), Ok(()));
    let listen = Options { listen: Some("127.0.0.1:0".into()), ..Options::default() };
    assert_eq!(
        listen.check_obeyed().unwrap_err(),
        "failed to set listen=127.0.0.1:0: Operation of the command dtrace alone (every gives a program what is served, and dtrace -x listen serves it)"
    );
    assert_eq!(listen.check(), Ok(()));
}

#[test]
fn a_length_of_time_is_asked_for_with_its_unit() {
    let mut options = Options::default();
    for value in ["foo", "0s", "-1s"] {
        assert_eq!(options.set("every", Some(value)).err(), Some(OptionError::Value), "{value}");
    }
    assert_eq!(
        failure("every", Some("foo"), OptionError::Value),
        "failed to set every=foo: Invalid value for specified option (it takes a time with its unit, as in 100ms, 1s or 10hz, of at least 1ns)"
    );
}
