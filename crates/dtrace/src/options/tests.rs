//! Options: their table, and what each takes.

use super::*;

#[test]
fn the_table_is_sorted_and_its_defaults_parse() {
    for row in TABLE {
        assert!(row.default.is_empty() || parse(row.shape, Some(row.default)).is_some(), "{}", row.name);
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
    assert!(o.flag("quiet"));
    assert!(o.set("quiet", Some("no")).is_ok());
    assert!(!o.flag("quiet"));
    assert_eq!(o.set("nosuch", None).err(), Some(OptionError::Name));
    assert_eq!(o.set("bufpolicy", Some("funny")).err(), Some(OptionError::Value));
    assert_eq!(o.set("bufsize", None).err(), Some(OptionError::Value));
    assert!(o.set("define", Some("A=1")).is_ok());
    assert!(o.set("define", Some("B")).is_ok());
    assert_eq!(o.texts("define"), ["A=1", "B"]);
    assert_eq!(o.number("bufsize"), 4 << 20);
    assert_eq!(o.text("bufpolicy"), "switch");
    assert_eq!(o.maybe_number("cpu"), None);
    for (name, right, wrong) in [
        ("setenv", "A=", "A"),
        ("setenv", "A=b=c", "=b"),
        ("unsetenv", "A", "A=b"),
        ("unsetenv", "B", ""),
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
    assert!(o.set("quiet", Some("OFF")).is_ok() && !o.flag("quiet"));
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
    let names = ["stackframes", "ustackframes", "jstackframes"];
    let mut o = Options::default();
    o.set("maxframes", Some("7")).unwrap();
    assert_eq!(names.map(|name| o.number(name)), [7, 7, 50]);
    o.set("ustackframes", Some("3")).unwrap();
    assert_eq!(names.map(|name| o.number(name)), [7, 3, 50]);
}
