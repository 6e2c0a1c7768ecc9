//! Known-answer tests of the interpreter's functions. Most answers were observed in DTrace.

use super::*;
use crate::ir::{FaultKind, Space};

fn text(s: &str) -> Val {
    Val::Str(s.as_bytes().to_vec())
}

#[track_caller]
fn check(subr: Subr, args: &[Val], want: &str) {
    check_with_strsize(256, subr, args, want);
}

#[track_caller]
fn check_with_strsize(strsize: u32, subr: Subr, args: &[Val], want: &str) {
    let mut args = args.to_vec();
    let row = subr.row();
    let missing = row.params.len() - args.len();
    args.extend(row.defaults[row.defaults.len() - missing..].iter().map(|d| Val::Int(*d)));
    let got = subr.fold(&args, strsize);
    let want = match row.result {
        Ty::Str => text(want),
        _ => Val::Int(want.parse().unwrap()),
    };
    assert_eq!(got, Some(want), "{}{args:?}", row.name);
}

#[track_caller]
fn check_null(subr: Subr, args: &[Val]) {
    assert_eq!(subr.fold(args, 256), Some(Val::Null), "{}{args:?}", subr.row().name);
}

#[track_caller]
fn check_fault(subr: Subr, args: &[Val], strsize: usize, want: Fault) {
    let mut call = Call { args, spaces: &[], strsize, world: &mut EmptyWorld, rest: &mut None };
    assert_eq!((subr.row().run)(&mut call), Err(want));
}

#[test]
fn each_subroutine_has_one_row_that_its_name_finds() {
    for row in TABLE {
        assert_eq!(row.subr.row().name, row.name);
        assert_eq!(Subr::by_name(row.name), Some(row.subr));
        assert!(row.defaults.len() <= row.params.len());
    }
    assert!(TABLE.is_sorted_by_key(|r| r.name));
}

#[test]
fn htons_htonl_and_htonll_swap_the_low_bytes() {
    check(Subr::Htons, &[Val::Int(0x1_1234)], "13330");
    check(Subr::Htonl, &[Val::Int(0x1122_3344)], "1144201745");
    check(Subr::Htonll, &[Val::Int(0x11)], "1224979098644774912");
    assert_eq!(Subr::Rand.fold(&[], 256), None);
}

#[test]
fn a_device_number_has_20_bits_of_minor_number() {
    check(Subr::Getmajor, &[Val::Int((8 << 20) | 17)], "8");
    check(Subr::Getminor, &[Val::Int((8 << 20) | 17)], "17");
    check(Subr::Getmajor, &[Val::Int(-1)], "4095");
}

#[test]
fn first_and_tail_read_a_string_as_a_pointer_to_characters() {
    check(Subr::First, &[text("abc")], "97");
    check(Subr::First, &[Val::Str(vec![0xff])], "-1");
    check(Subr::First, &[text("")], "0");
    check(Subr::Tail, &[text("abc"), Val::Int(1)], "bc");
    check(Subr::Tail, &[text("abc"), Val::Int(3)], "");
    check(Subr::Tail, &[text("abc"), Val::Int(255)], "");
    check_fault(Subr::Tail, &[text("abc"), Val::Int(256)], 256, (FaultKind::BadIndex, 256));
    check_fault(Subr::Tail, &[text("abc"), Val::Int(-1)], 256, (FaultKind::BadIndex, u64::MAX));
}

#[test]
fn set_char_changes_one_character_of_a_string() {
    let with =
        |s, at, c, want| check_with_strsize(8, Subr::SetChar, &[text(s), Val::Int(at), Val::Int(c)], want);
    with("abc", 1, 65, "aAc");
    with("abc", 0, 65 + 256, "Abc");
    with("abc", 3, 100, "abcd");
    with("abc", 4, 100, "abc");
    with("abc", 1, 0, "a");
    with("abc", 3, 0, "abc");
    with("", 0, 120, "x");
    with("abcdefg", 7, 104, "abcdefg");
    with("abcdefg", 6, 71, "abcdefG");
    check_fault(Subr::SetChar, &[text("abc"), Val::Int(8), Val::Int(1)], 8, (FaultKind::BadIndex, 8));
    check_fault(Subr::SetChar, &[text("abc"), Val::Int(-1), Val::Int(1)], 8, (FaultKind::BadIndex, u64::MAX));
}

#[test]
fn substr_takes_negative_offsets_and_lengths_as_in_perl() {
    let hello =
        |from, count, want| check(Subr::Substr, &[text("hello"), Val::Int(from), Val::Int(count)], want);
    check(Subr::Substr, &[text("hello"), Val::Int(-3)], "llo");
    check(Subr::Substr, &[text("hello"), Val::Int(9)], "");
    check(Subr::Substr, &[text("hello"), Val::Int(-9)], "hello");
    hello(-3, 2, "ll");
    hello(1, -1, "ell");
    hello(-9, 6, "he");
    hello(2, 0, "");
    hello(-9, 3, "");
    hello(-9, -1, "");
    hello(2, -4, "");
    hello(5, 1, "");
    hello(4, 9, "o");
}

#[test]
fn positions_beyond_32_bits_are_not_truncated() {
    const FAR: i64 = 1 << 32;
    let substr =
        |from, count, want| check(Subr::Substr, &[text("hello"), Val::Int(from), Val::Int(count)], want);
    substr(FAR + 1, 2, "");
    substr(1, FAR + 2, "ello");
    substr(-FAR - 3, 2, "");
    substr(-FAR - 3, FAR, "he");
    substr(1, -FAR - 1, "");
    substr(i64::MIN, i64::MIN, "");
    substr(i64::MIN, i64::MAX, "hell");
    substr(0, i64::MAX, "hello");
    check(Subr::Index, &[text("aXbX"), text("X"), Val::Int(FAR)], "-1");
    check(Subr::Index, &[text("aXbX"), text("X"), Val::Int(-FAR + 2)], "1");
    check(Subr::Rindex, &[text("aXbX"), text("X"), Val::Int(FAR + 2)], "3");
    check(Subr::Rindex, &[text("aXbX"), text("X"), Val::Int(-FAR + 2)], "-1");
    check_fault(Subr::Lltostr, &[Val::Int(1), Val::Int(FAR + 10)], 256, (FaultKind::IllegalOp, 0));
    check_fault(Subr::Strtoll, &[text("1"), Val::Int(FAR + 10)], 256, (FaultKind::IllegalOp, 0));
    check_fault(Subr::InetNtop, &[Val::Int(FAR + 2), Val::Int(0)], 256, (FaultKind::IllegalOp, 0));
    check_fault(Subr::Raise, &[Val::Int(FAR)], 256, (FaultKind::IllegalOp, FAR as u64));
    check_fault(Subr::Chill, &[Val::Int(FAR)], 256, (FaultKind::IllegalOp, FAR as u64));
}

#[test]
fn index_and_rindex_clamp_positions_as_in_perl() {
    let index = |s, sub, pos, want| check(Subr::Index, &[text(s), text(sub), Val::Int(pos)], want);
    check(Subr::Index, &[text("hello world"), text("world")], "6");
    check(Subr::Index, &[text("hello"), text("x")], "-1");
    check(Subr::Index, &[text(""), text("")], "0");
    index("aXbX", "X", 2, "3");
    index("aXbX", "X", -5, "1");
    index("aXbX", "X", 4, "-1");
    index("abc", "", 2, "2");
    index("abc", "", 9, "3");
    index("abc", "", -9, "0");
    index("", "", 5, "0");
    index("aab", "ab", 0, "1");
    let rindex = |s, sub, pos, want| check(Subr::Rindex, &[text(s), text(sub), Val::Int(pos)], want);
    check(Subr::Rindex, &[text("hello"), text("l")], "3");
    check(Subr::Rindex, &[text("hello"), text("")], "5");
    check(Subr::Rindex, &[text("hello"), text("x")], "-1");
    rindex("aXbX", "X", 2, "1");
    rindex("aXbX", "X", -1, "-1");
    rindex("aXbX", "a", 0, "0");
    rindex("abc", "", -1, "0");
    rindex("abc", "", 2, "2");
    rindex("abc", "", 9, "3");
}

#[test]
fn strchr_strrchr_and_strstr_return_the_suffix_at_the_match_or_null() {
    check(Subr::Strchr, &[text("hello"), Val::Int(i64::from(b'l'))], "llo");
    check(Subr::Strrchr, &[text("hello"), Val::Int(i64::from(b'l'))], "lo");
    check_null(Subr::Strchr, &[text("hello"), Val::Int(i64::from(b'x'))]);
    check_null(Subr::Strrchr, &[text(""), Val::Int(i64::from(b'x'))]);
    check(Subr::Strchr, &[text("hello"), Val::Int(0)], "");
    check(Subr::Strrchr, &[text("hello"), Val::Int(0)], "");
    check(Subr::Strstr, &[text("hello"), text("el")], "ello");
    check(Subr::Strstr, &[text("hello"), text("")], "hello");
    check(Subr::Strstr, &[text(""), text("")], "");
    check_null(Subr::Strstr, &[text("hello"), text("lol")]);
}

#[test]
fn strjoin_faults_when_the_result_exceeds_strsize() {
    check_with_strsize(8, Subr::Strjoin, &[text("abc"), text("defg")], "abcdefg");
    check_fault(Subr::Strjoin, &[text("abcd"), text("efgh")], 8, (FaultKind::NoScratch, 0));
}

#[test]
fn toupper_and_tolower_change_only_ascii_letters() {
    check(Subr::Toupper, &[text("az{`AZ 09 é")], "AZ{`AZ 09 é");
    check(Subr::Tolower, &[text("AZ[@az 09 É")], "az[@az 09 É");
}

#[test]
fn strtok_returns_no_empty_tokens_and_null_after_the_last() {
    let mut rest = None;
    let mut next = |first: Option<&str>, delimiters: &str| {
        let (subr, args) = match first {
            Some(s) => (Subr::Strtok, vec![text(s), text(delimiters)]),
            None => (Subr::StrtokNext, vec![text(delimiters)]),
        };
        let mut call =
            Call { args: &args, spaces: &[], strsize: 64, world: &mut EmptyWorld, rest: &mut rest };
        (subr.row().run)(&mut call).unwrap()
    };
    assert_eq!(next(None, ","), Val::Null);
    assert_eq!(next(Some(",,a,,bc;d,"), ","), text("a"));
    assert_eq!(next(None, ","), text("bc;d"));
    assert_eq!(next(None, ","), Val::Null);
    assert_eq!(next(None, ","), Val::Null);
    assert_eq!(next(Some("a b"), ""), text("a b"));
    assert_eq!(next(Some("x=1;y"), "="), text("x"));
    assert_eq!(next(None, ";="), text("1"));
    assert_eq!(next(None, ";="), text("y"));
    assert_eq!(next(Some(""), ","), Val::Null);
    assert_eq!(next(None, ","), Val::Null);
}

#[test]
fn lltostr_and_strtoll_convert_in_every_base() {
    let text_of = |n: i64, base: i64, want| check(Subr::Lltostr, &[Val::Int(n), Val::Int(base)], want);
    check(Subr::Lltostr, &[Val::Int(-12)], "-12");
    check(Subr::Lltostr, &[Val::Int(0)], "0");
    text_of(i64::MIN, 10, "-9223372036854775808");
    text_of(-1, 16, "0xffffffffffffffff");
    text_of(0, 16, "0x0");
    text_of(8, 8, "010");
    text_of(0, 8, "0");
    text_of(35, 36, "z");
    text_of(-1, 2, &"1".repeat(64));
    check_with_strsize(8, Subr::Lltostr, &[Val::Int(1_234_567_890)], "1234567");
    check_fault(Subr::Lltostr, &[Val::Int(1), Val::Int(37)], 256, (FaultKind::IllegalOp, 0));
    check_fault(Subr::Strtoll, &[text("1"), Val::Int(1)], 256, (FaultKind::IllegalOp, 0));
    let number = |s, base: i64, want| check(Subr::Strtoll, &[text(s), Val::Int(base)], want);
    check(Subr::Strtoll, &[text(" \t-42x")], "-42");
    check(Subr::Strtoll, &[text("")], "0");
    check(Subr::Strtoll, &[text("- 1")], "0");
    number("0xfFg", 16, "255");
    number("0x", 16, "0");
    number("0x", 10, "0");
    number("zZ", 36, "1295");
    number("778", 8, "63");
    number("9223372036854775808", 10, "-9223372036854775808");
}

#[test]
fn basename_and_dirname_follow_posix() {
    for (path, base, dir) in [
        ("/a/b/", "b", "/a"),
        ("/", "/", "/"),
        ("//", "/", "/"),
        ("", ".", "."),
        ("/a", "a", "/"),
        ("//a", "a", "/"),
        ("a", "a", "."),
        ("a/", "a", "."),
        ("/a/b//", "b", "/a"),
        ("a//b", "b", "a"),
    ] {
        check(Subr::Basename, &[text(path)], base);
        check(Subr::Dirname, &[text(path)], dir);
    }
}

#[test]
fn cleanpath_removes_dot_components_and_double_slashes() {
    for (path, clean) in [
        ("/a/./b/../c", "/a/c"),
        ("/..", "/"),
        ("/a/..", "/"),
        ("/a/b/..", "/a/"),
        ("//a///b", "/a/b"),
        ("/a/.", "/a/."),
        ("/a/", "/a/"),
        ("/a/.b/..c/...", "/a/.b/..c/..."),
        ("/../../a", "/a"),
        ("a/../../b", "/b"),
        ("", ""),
    ] {
        check(Subr::Cleanpath, &[text(path)], clean);
    }
    check_with_strsize(16, Subr::Cleanpath, &[text("/abcdefghijklmn")], "/abcdefghij");
}

#[test]
fn json_returns_an_element_unmodified() {
    let doc = r#"{"name": "a\"b\u00e9", "n": -1.5e+3, "ok": true, "none": null,
        "list": [10, [20, 21], {"k": "v"}], "object": {"a.b": 1, "x": {"y": "z"}}}"#;
    for (path, want) in [
        ("name", r#"a\"b\u00e9"#),
        ("n", "-1.5e+3"),
        ("ok", "true"),
        ("none", "null"),
        ("list", r#"[10, [20, 21], {"k": "v"}]"#),
        ("list[0]", "10"),
        ("list[1]", "[20, 21]"),
        ("list[1][1]", "21"),
        ("list[2].k", "v"),
        ("list.2.k", "v"),
        ("object.x", r#"{"y": "z"}"#),
        ("object.x.y", "z"),
        ("missing", "NULL"),
        ("list[3]", "NULL"),
        ("name.x", "NULL"),
        ("object.x.y.z", "NULL"),
        ("object", r#"{"a.b": 1, "x": {"y": "z"}}"#),
    ] {
        match want {
            "NULL" => check_null(Subr::Json, &[text(doc), text(path)]),
            _ => check(Subr::Json, &[text(doc), text(path)], want),
        }
    }
    for (doc, path, want) in [
        ("[1, 2]", "[1]", "2"),
        ("[1, 2]", "1", "2"),
        ("[[1, 2], 3]", "[0][1]", "2"),
        ("{\"a\" 1}", "a", "NULL"),
        ("{\"a\": 1", "a", "NULL"),
        ("{\"a\": 0x1}", "a", "NULL"),
        ("{\"a\": yes}", "a", "NULL"),
        ("{\"a\": {]}", "a", "NULL"),
        ("12", "a", "NULL"),
        ("", "", "NULL"),
        ("{\"b\": {\"a\": 1}, \"a\": 2}", "a", "2"),
    ] {
        match want {
            "NULL" => check_null(Subr::Json, &[text(doc), text(path)]),
            _ => check(Subr::Json, &[text(doc), text(path)], want),
        }
    }
}

/// A world with an address in its memory.
struct AddressWorld(Vec<u8>);

impl World for AddressWorld {
    fn read(&mut self, _: Space, at: u64, buffer: &mut [u8]) -> bool {
        match self.0.get(at as usize..at as usize + buffer.len()) {
            Some(bytes) => {
                buffer.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }
}

#[test]
fn memstr_replaces_each_nul_by_the_separator() {
    let show = |separator: u8, size: i64, strsize: usize| {
        let args = [Val::Int(0), Val::Int(separator.into()), Val::Int(size)];
        let mut world = AddressWorld(b"ls\0-l\0/tmp\0".to_vec());
        let mut call =
            Call { args: &args, spaces: &[Space::Kernel; 3], strsize, world: &mut world, rest: &mut None };
        (Subr::Memstr.row().run)(&mut call)
    };
    assert_eq!(show(b' ', 11, 64), Ok(text("ls -l /tmp")));
    assert_eq!(show(b',', 7, 64), Ok(text("ls,-l,")));
    assert_eq!(show(b' ', 11, 8), Ok(text("ls -l /")));
    assert_eq!(show(0, 11, 64), Ok(text("ls")));
    assert_eq!(show(b' ', 0, 64), Ok(text("")));
    assert_eq!(show(b' ', 99, 64), Err((FaultKind::BadAddr, 0)));
}

#[test]
fn addresses_are_formatted_in_network_notation() {
    let show = |subr: Subr, kind: Option<i64>, bytes: &[u8]| {
        let args: Vec<Val> = kind.into_iter().chain([0]).map(Val::Int).collect();
        let mut world = AddressWorld(bytes.to_vec());
        let spaces = vec![Space::Kernel; args.len()];
        let mut call = Call { args: &args, spaces: &spaces, strsize: 64, world: &mut world, rest: &mut None };
        match (subr.row().run)(&mut call) {
            Ok(Val::Str(s)) => String::from_utf8(s).unwrap(),
            other => format!("{other:?}"),
        }
    };
    assert_eq!(show(Subr::InetNtoa, None, &[192, 168, 0, 1]), "192.168.0.1");
    assert_eq!(show(Subr::InetNtop, Some(2), &[10, 0, 255, 9]), "10.0.255.9");
    let v6 = |groups: [u16; 8]| groups.iter().flat_map(|g| g.to_be_bytes()).collect::<Vec<u8>>();
    for (groups, plain, full) in [
        ([0xfe80, 0, 0, 0, 0x211, 0x22ff, 0xfe33, 0x4455], "fe80::211:22ff:fe33:4455", None),
        ([0; 8], "::", None),
        ([0, 0, 0, 0, 0, 0, 0, 1], "::1", None),
        ([1, 0, 0, 2, 0, 0, 0, 3], "1:0:0:2::3", None),
        ([1, 0, 0, 2, 3, 0, 0, 4], "1::2:3:0:0:4", None),
        ([1, 0, 2, 3, 4, 5, 6, 7], "1:0:2:3:4:5:6:7", None),
        ([1, 2, 3, 4, 5, 6, 0, 0], "1:2:3:4:5:6::", None),
        ([0, 0, 0, 0, 0, 0xffff, 0x0102, 0x0304], "1.2.3.4", Some("::ffff:1.2.3.4")),
        ([0, 0, 0, 0, 0, 0, 0x0102, 0x0304], "1.2.3.4", Some("::1.2.3.4")),
    ] {
        assert_eq!(show(Subr::InetNtoa6, None, &v6(groups)), plain);
        assert_eq!(show(Subr::InetNtop, Some(10), &v6(groups)), full.unwrap_or(plain));
    }
    assert_eq!(show(Subr::InetNtop, Some(3), &[0; 16]), "Err((IllegalOp, 0))");
    assert_eq!(show(Subr::InetNtoa, None, &[0; 3]), "Err((BadAddr, 0))");
    assert_eq!(show(Subr::LinkNtop, Some(1), &[0, 0x1b, 0x21, 0xab, 0xcd, 0xef]), "00:1b:21:ab:cd:ef");
    let infiniband = show(Subr::LinkNtop, Some(32), &[0xa0; 20]);
    assert_eq!(infiniband, ["a0"; 20].join(":"));
    // What the consumer shows for the words of an address, compatible ones recorded as mapped.
    for bits in 0..1u32 << 16 {
        let mut address = [0; 16];
        for (i, byte) in (0u8..).zip(&mut address) {
            *byte = if bits >> i & 1 == 1 { [0xff, 1, 0x10][usize::from(i) % 3] } else { 0 };
        }
        let text = show(Subr::InetNtoa6, None, &address);
        if address[..10] == [0; 10] && text.contains('.') {
            address[10..12].fill(0xff);
        }
        let words = [0, 8].map(|i| u64::from_le_bytes(address[i..i + 8].try_into().unwrap()));
        assert_eq!(plane::address::Text::new(words).as_bytes(), text.as_bytes());
    }
}
