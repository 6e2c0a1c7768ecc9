//! Subroutines as scripts see them. Edge cases are tested in `dif::subr`. The differential tests of
//! `bpf-runtime` check that the kernel computes the same.

use crate::Verdict::{self, Pass};
use crate::machine::no_types;
use crate::tool::{dtrace, workload};

tests! {
    string_subroutines_split_and_join_strings lltostr_and_strtoll_convert_numbers
    paths_and_json_documents_are_parsed network_addresses_are_printed_as_text
    network_addresses_in_keys_and_records_have_the_texts_of_their_strings
    an_ipv4_address_in_an_ipv6_one_is_bare_or_strict
    network_addresses_are_keys_of_arrays_and_have_the_order_of_their_texts
    strtok_state_is_shared_by_the_clauses_of_a_firing subroutines_work_with_every_string_size
    subroutines_fault_on_invalid_arguments lock_subroutines_read_the_state_of_locks
    getf_finds_the_file_of_a_descriptor progenyof_finds_the_ancestors_of_a_process
    arguments_beyond_32_bits_are_not_truncated a_string_has_one_character_less_than_strsize
}

/// The output of BEGIN with this body.
#[track_caller]
fn begin(body: &str) -> String {
    let o = dtrace(&["-qn", &format!("BEGIN {{ {body} exit(0); }}")]).code(0);
    assert_eq!(o.err, "");
    o.out.trim_end_matches('\n').to_string()
}

fn string_subroutines_split_and_join_strings() -> Verdict {
    let out = begin(
        r#"s = "hello"; printf("%s|%s|%s|%s|%s|%s", substr(s, -3), substr(s, -3, 2), substr(s, 1, -1), substr(s, 9),
        substr(s, -9, 6), substr(s, 2, 0));"#,
    );
    assert_eq!(out, "llo|ll|ell||he|");
    let out = begin(
        r#"s = "hello world"; printf("%d %d %d %d %d %d", index(s, "o"), index(s, "o", 5), rindex(s, "o"), rindex(s, "o", 6),
        index(s, "xyz"), rindex(s, ""));"#,
    );
    assert_eq!(out, "4 7 7 4 -1 11");
    let out = begin(
        r#"s = "a=b=c"; printf("%s|%s|%s|%d", strchr(s, '='), strrchr(s, '='), strstr(s, "b="), strstr(s, "x") == NULL);"#,
    );
    assert_eq!(out, "=b=c|=c|b=c|1");
    let out = begin(
        r#"printf("%s %s", strjoin(toupper("Abc"), tolower("DeF")), strjoin(probename, strjoin("", "!")));"#,
    );
    assert_eq!(out, "ABCdef BEGIN!");
    // Strings of the traced program.
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 3),
        "-n",
        "syscall::getppid:entry /pid == $target/ { @[strjoin(substr(probefunc, 3), strjoin(\":\", execname))] = count(); }",
    ])
    .code(0);
    assert!(o.out.contains("ppid:"), "{o:?}");
    assert_eq!(o.out.split_whitespace().last(), Some("3"), "{o:?}");
    Pass
}

fn lltostr_and_strtoll_convert_numbers() -> Verdict {
    let out = begin(
        r#"n = -12; m = 255; printf("%s %s %s %s %s %s", lltostr(n), lltostr(m, 16), lltostr(m, 8), lltostr(m, 2), lltostr(0, 16),
        lltostr(m, 36));"#,
    );
    assert_eq!(out, "-12 0xff 0377 11111111 0x0 73");
    let out = begin(
        r#"printf("%d %d %d %d", strtoll(strjoin(" -4", "2x")), strtoll("0xff", 16), strtoll("777", 8), strtoll("zz", 36));"#,
    );
    assert_eq!(out, "-42 255 511 1295");
    let out = begin(
        r#"d = 8 << 20 | 17; printf("%x %x %x %x %d %d %d", htons(0x1234), ntohl(0x11223344), htonll(0x11), ntohll(0x2200), getmajor(d), getminor(d),
        rand() >= 0);"#,
    );
    assert_eq!(out, "3412 44332211 1100000000000000 22000000000000 8 17 1");
    let out =
        begin(r#"a = rand(); b = rand(); c = rand(); d = rand(); printf("%d", a != b || b != c || c != d);"#);
    assert_eq!(out, "1");
    Pass
}

fn paths_and_json_documents_are_parsed() -> Verdict {
    let out = begin(
        r#"p = "/usr/lib/x.so/"; printf("%s %s %s %s %s", basename(p), dirname(p), dirname("a"), basename("/"),
        cleanpath("/a/./b/../c//d"));"#,
    );
    assert_eq!(out, "x.so /usr/lib . / /a/c/d");
    let out = begin(
        r#"doc = "{\"a\": {\"b\": [1, 2, {\"c\": \"x y\"}]}, \"n\": -1.5e3, \"t\": true}";
        printf("%s|%s|%s|%s|%s|%d", json(doc, "a.b[2].c"), json(doc, "n"), json(doc, "t"), json(doc, "a.b"),
        json(json(doc, "a"), "b[1]"), json(doc, "x.y") == NULL);"#,
    );
    assert_eq!(out, r#"x y|-1.5e3|true|[1, 2, {"c": "x y"}]|2|1"#);
    Pass
}

fn network_addresses_are_printed_as_text() -> Verdict {
    // The workload's data, taken for addresses: so many times 'x'.
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("write", 8),
        "-n",
        r#"syscall::write:entry /pid == $target && arg2 == 64/ { printf("%s ", inet_ntoa((userland ipaddr_t *)arg1));
           printf("%s ", inet_ntop(10, (userland void *)arg1)); printf("%s", link_ntop(1, (userland void *)arg1)); }"#,
    ])
    .code(0);
    let v6 = ["7878"; 8].join(":");
    assert_eq!(o.out, format!("120.120.120.120 {v6} 78:78:78:78:78:78\n"), "{o:?}");
    // In scratch memory.
    let out = begin(
        r#"a = (uint8_t *)alloca(16); a[0] = 0xfe; a[1] = 0x80; a[15] = 1; b = (ipaddr_t *)alloca(4); *b = htonl(0x7f000001);
        printf("%s %s %s", inet_ntoa6(a), inet_ntop(10, a), inet_ntoa(b));"#,
    );
    assert_eq!(out, "fe80::1 fe80::1 127.0.0.1");
    let out = begin(
        r#"a = (uint8_t *)alloca(16); a[10] = 0xff; a[11] = 0xff; a[12] = 10; a[15] = 9;
        printf("%s %s %s", inet_ntoa6(a), inet_ntop(10, a), link_ntop(1, a + 10));"#,
    );
    assert_eq!(out, "10.0.0.9 ::ffff:10.0.0.9 ff:ff:0a:00:00:09");
    let out = begin(
        r#"a = (char *)alloca(16); bcopy("ls", a, 3); bcopy("-l", a + 3, 3); n = 7; printf("%s|%s|%s|%s", memstr(a, ' ', 6),
        memstr(a, ',', n), memstr(a, 0, n), memstr(a, '.', 0));"#,
    );
    assert_eq!(out, "ls -l|ls,-l,|ls|");
    let o =
        dtrace(&["-qn", "BEGIN { trace(inet_ntoa((ipaddr_t *)1)); }", "-n", "BEGIN { exit(0); }"]).code(0);
    assert!(o.err.contains("invalid address (0x1)"), "{o:?}");
    Pass
}

/// Groups of IPv6 addresses: zeros at each place, IPv4 addresses in them, and those that only look
/// so.
const IPV6: [&str; 16] = [
    "0:0:0:0:0:0:0:0",
    "0:0:0:0:0:0:0:1",
    "0:0:0:0:0:0:0:2",
    "0:0:0:0:0:0:0:100",
    "0:0:0:0:0:0:100:0",
    "0:0:0:0:0:0:100:1",
    "0:0:0:0:0:0:102:304",
    "0:0:0:0:0:ffff:102:304",
    "0:0:0:0:0:ffff:0:0",
    "0:0:0:0:0:1:0:0",
    "0:0:0:0:ffff:0:102:304",
    "1:0:0:0:0:ffff:102:304",
    "1:0:0:2:0:0:0:3",
    "1:0:2:3:4:5:6:7",
    "fe80:0:0:0:211:22ff:fe33:4455",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
];

/// Stores the groups in the address at `p`, and its text in `s`.
fn store(groups: &str) -> String {
    let groups: Vec<u16> = groups.split(':').map(|g| u16::from_str_radix(g, 16).unwrap()).collect();
    let bytes: Vec<u8> = groups.iter().flat_map(|g| g.to_be_bytes()).collect();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    format!("p[0] = {:#x}; p[1] = {:#x}; s = inet_ntoa6(p);", word(0), word(8))
}

/// Without a second argument, and with a constant 0, it is bare.
fn an_ipv4_address_in_an_ipv6_one_is_bare_or_strict() -> Verdict {
    let text = |strict: &str| {
        begin(&format!(
            r#"p = (uint32_t *)alloca(16); p[3] = htonl(0x7f000001); printf("%s ", inet_ntoa6(p{strict}));
            p[2] = htonl(0xffff); s = inet_ntoa6(p{strict}); printf("%s ", s); p[2] = 0; p[0] = htonl(0xfe800000);
            p[3] = htonl(1); printf("%s", inet_ntoa6(p{strict}));"#
        ))
    };
    for strict in ["", ", 0"] {
        assert_eq!(text(strict), "127.0.0.1 127.0.0.1 fe80::1", "{strict}");
    }
    for strict in [", 1", ", 42", ", sizeof (int)"] {
        assert_eq!(text(strict), "::127.0.0.1 ::ffff:127.0.0.1 fe80::1", "{strict}");
    }
    for (strict, tag) in [("n", "D_PROTO_ARG"), ("\"\"", "D_PROTO_ARG"), ("1, 1", "D_PROTO_LEN")] {
        let script = format!("BEGIN {{ n = 1; trace(inet_ntoa6((void *)0, {strict})); }}");
        let o = dtrace(&["-xerrtags", "-en", &script]).code(1);
        assert!(o.err.contains(&format!("[{tag}]")), "{o:?}");
    }
    Pass
}

fn network_addresses_in_keys_and_records_have_the_texts_of_their_strings() -> Verdict {
    for options in [&["-qn"][..], &["-x", "strsize=39", "-qn"], &["-x", "strsize=8", "-qn"]] {
        let all: String = IPV6
            .iter()
            .map(|groups| {
                let set = store(groups);
                format!(
                    "BEGIN {{ p = (uint64_t *)alloca(16); {set}
                       printf(\"%s %s %20s|%20s\\n\", inet_ntoa6(p), s, inet_ntoa6(p), s);
                       @key[inet_ntoa6(p)] = count(); @text[s] = count();
                       @either[p[0] ? inet_ntoa6(p) : p[1] ? inet_ntoa((ipaddr_t *)&p[1]) : \"<unknown>\"] = count();
                       @same[p[0] ? inet_ntoa6(p) : p[1] ? inet_ntoa((ipaddr_t *)&p[1]) : \"<unknown>\", s] = count(); }} "
                )
            })
            .collect();
        let script = format!(
            "{all} BEGIN {{ printa(\"%s %@d\\n\", @key); exit(0); }}
            END {{ printf(\"texts\\n\"); printa(\"%s %@d\\n\", @text); trunc(@either); trunc(@same); }}"
        );
        let o = dtrace(&[options, &[&script]].concat()).code(0);
        assert_eq!(o.err, "");
        let (records, keys) = o.out.split_at(o.out.match_indices('\n').nth(IPV6.len() - 1).unwrap().0 + 1);
        for line in records.lines() {
            let (first, padded) = line.split_at(line.len() / 2);
            let words: Vec<&str> = first.split(' ').filter(|w| !w.is_empty()).collect();
            assert_eq!(words[0], words[1], "{line}");
            let (a, b) = line.split_once('|').unwrap();
            assert!(a.ends_with(b), "{line} {padded}");
        }
        let (keys, texts) = keys.split_once("texts\n").unwrap();
        assert_eq!(keys.trim(), texts.trim(), "{o:?}");
    }
    Pass
}

fn network_addresses_are_keys_of_arrays_and_have_the_order_of_their_texts() -> Verdict {
    let out = begin(
        r#"a = (uint8_t *)alloca(4); b = (uint8_t *)alloca(16); a[0] = 10; a[3] = 9; b[0] = 0xfe; b[15] = 255;
        n[inet_ntoa((ipaddr_t *)a)] = 1; n[inet_ntoa6(b)] = 2; n["<unknown>"] = 3; n[""] = 4;
        printf("%d %d %d %d %d\n", n["<unknown>"], n[""], n[inet_ntoa6(b)], n[a[0] ? inet_ntoa((ipaddr_t *)a) : ""],
            n[a[1] ? inet_ntoa6(b) : inet_ntoa((ipaddr_t *)b)]);
        @["<unknown>", 1] = count(); @[inet_ntoa((ipaddr_t *)a), 1] = count(); a[0] = 9; @[inet_ntoa((ipaddr_t *)a), 1] = count();
        @[inet_ntoa6(b), 1] = count(); @["", 1] = count(); setopt("aggsortkey", "yes"); printa("%s %d %@d\n", @);"#,
    );
    assert_eq!(out, "3 4 2 1 0\n 1 1\n10.0.0.9 1 1\n9.0.0.9 1 1\n<unknown> 1 1\nfe00::ff 1 1");
    // Constants that stand for no address make the column one of strings.
    let out = begin(
        r#"a = (uint8_t *)alloca(4); @[inet_ntoa((ipaddr_t *)a)] = count(); @["other"] = count(); printa("%s %@d\n", @);"#,
    );
    assert_eq!(out, "0.0.0.0 1\nother 1");
    // Two aggregations have a row for the same text, however it is stored.
    let out = begin(
        r#"a = (uint8_t *)alloca(4); @j[inet_ntoa((ipaddr_t *)a)] = sum(2); @k["0.0.0.0"] = sum(3);
        printa("%s %@d %@d\n", @j, @k);"#,
    );
    assert_eq!(out, "0.0.0.0 2 3");
    Pass
}

fn strtok_state_is_shared_by_the_clauses_of_a_firing() -> Verdict {
    // The clauses of a firing share the string. The next firing starts without one.
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 2),
        "-n",
        r#"syscall::getppid:entry /pid == $target/ { this->z = strtok(NULL, ",") == NULL; printf("%d", this->z); }
           syscall::getppid:entry /pid == $target/ { printf(" %s", strtok(",a,b;c,,d", ",")); }
           syscall::getppid:entry /pid == $target/ { printf(" %s", strtok(NULL, ",;")); printf(" %s", strtok(NULL, ";,")); }
           syscall::getppid:entry /pid == $target/ { printf(" %s", strtok(NULL, ",")); }
           syscall::getppid:entry /pid == $target/ { printf(" %d\n", strtok(NULL, ",") == NULL); }
           syscall::getppid:return /pid == $target/ { printf("%d\n", strtok(NULL, ",") == NULL); }"#,
    ])
    .code(0);
    assert_eq!(o.out, "1 a b c d 1\n1\n1 a b c d 1\n1\n\n", "{o:?}");
    Pass
}

fn subroutines_work_with_every_string_size() -> Verdict {
    let script = r#"BEGIN {
        a = "/a/b"; b = "b";
        printf("%s %s %s %s ", basename(a), dirname(a), cleanpath(a), substr(a, 1, 2));
        printf("%d %d %s %s %s ", index(a, b), rindex(a, b), strchr(a, 'b'), strrchr(a, '/'), strstr(a, b));
        printf("%s %s %s ", strjoin(a, b), toupper(b), tolower("B"));
        printf("%s %s ", strtok(a, "/"), strtok(NULL, "/"));
        printf("%s %d ", lltostr(255, 16), strtoll("12"));
        printf("%s %d\n", json("[1,2]", "1"), strlen(a));
        exit(0);
    }"#;
    for size in ["9", "100", "1001", "4096"] {
        let o = dtrace(&["-q", "-x", &format!("strsize={size}"), "-n", script]).code(0);
        assert_eq!(o.out, "b /a /a/b a/ 3 3 b /b b /a/bb B b a b 0xff 12 2 4\n\n", "strsize {size}: {o:?}");
        assert_eq!(o.err, "");
    }
    Pass
}

/// In variables, elements, keys and records, and what subroutines make.
fn a_string_has_one_character_less_than_strsize() -> Verdict {
    let alphabet = "abcdefghijklmnopqrstuvwxyz";
    for size in [2, 5, 7, 8, 9, 13, 16, 17, 24, 27] {
        let longest = &alphabet[..size - 1];
        let script = format!(
            r#"BEGIN {{
                s = "{alphabet}"; this->t = s; a[s] = s;
                printf("%d %d %d|%s|%s|%s|", sizeof (string), sizeof (s), strlen(s), s, this->t, a["{longest}"]);
                printf("%s|%s|%s|", toupper(s), basename(s), strtok(s, "Z"));
                printf("%d %d %d|", strlen(lltostr(123456789012345678)), strlen(execname), strlen(probename));
                printf("%d %d %d\n", strlen(stringof(curthread->comm)), strlen(cwd), strlen(d_path(&curthread->fs->pwd)));
                @[s] = count(); @[strjoin("", s)] = count(); printa("%s %@d\n", @);
            }}
            BEGIN {{ s[{last}] = '!'; printf("%d ", strlen(s)); s = ""; s[0] = '?'; printf("%d\n", strlen(s)); }}
            BEGIN {{ trace(strjoin("{longest}", "x")); }}
            ERROR {{ printf("fault %d\n", arg4); exit(0); }}"#,
            last = size - 1,
        );
        let o = dtrace(&["-q", "-x", &format!("strsize={size}"), "-n", &script]).code(0);
        let most = |n: usize| n.min(size - 1);
        let (here, name) = (std::env::current_dir().unwrap(), most("dtrace".len()));
        let here = most(here.as_os_str().len());
        let expected = format!(
            "{size} {size} {}|{longest}|{longest}|{longest}|{}|{}|{longest}|{} {name} {}|{name} {here} {here}\n\
             {longest} 2\n{} {}\nfault 5\n",
            size - 1,
            longest.to_uppercase(),
            longest,
            most(18),
            most("BEGIN".len()),
            size - 1,
            1,
        );
        assert_eq!(o.out.trim_end(), expected.trim_end(), "{size}: {o:?}");
    }
    let script = "BEGIN { s = \"ab\"; printf(\"[%s%s%s%s%s%s]%d\", s, basename(s), execname, lltostr(12), root, cwd, sizeof (s)); exit(0); }";
    let o = dtrace(&["-q", "-x", "strsize=1", "-n", script]).code(0);
    assert_eq!(o.out.trim_end(), "[]1", "{o:?}");
    Pass
}

fn subroutines_fault_on_invalid_arguments() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-x",
        "strsize=8",
        "-n",
        r#"BEGIN { trace(strjoin("abcd", strjoin("ef", "gh"))); } BEGIN { trace(lltostr(1, strtoll("37"))); }
           BEGIN { trace(strtoll("1", 1)); } BEGIN { trace(strlen(NULL)); } BEGIN { exit(0); }
           ERROR { printf("%d %d\n", arg4, arg5); }"#,
    ])
    .code(0);
    assert_eq!(o.out, "5 0\n3 0\n3 0\n1 0\n\n", "{o:?}");
    for text in ["out of scratch space", "illegal operation", "invalid address (0x0)"] {
        assert!(o.err.contains(text), "{o:?}");
    }
    Pass
}

fn lock_subroutines_read_the_state_of_locks() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    // No thread is in exec. The file mask 0x12 looks like a lock for which a writer waits.
    let out = begin(
        r#"m = &curthread->signal->cred_guard_mutex; printf("%d %d %d %d ", mutex_owned(m), mutex_owner(m) == NULL,
        mutex_type_adaptive(m), mutex_type_spin(m)); w = &curthread->fs->umask;
        printf("%d %d %d", rw_read_held(w), rw_write_held(w), rw_iswriter(w) == (curthread->fs->umask != 0));"#,
    );
    assert_eq!(out, "0 1 1 0 0 0 1");
    // Locks in script memory: one held by this thread (bit 0 is a flag), then readers, a writer,
    // and a waiting writer.
    let out = begin(
        r#"m = (struct mutex *)alloca(sizeof (struct mutex)); m->owner.counter = (long)curthread | 1;
        printf("%d %d", mutex_owned(m), mutex_owner(m) == curthread);"#,
    );
    assert_eq!(out, "1 1");
    for (word, held) in [("0x400", "1 0 0"), ("0xff", "0 1 1"), ("0x500", "1 0 1"), ("0", "0 0 0")] {
        let out = begin(&format!(
            r#"l = (struct qrwlock *)alloca(sizeof (struct qrwlock)); l->cnts.counter = {word};
            printf("%d %d %d", rw_read_held(l), rw_write_held(l), rw_iswriter(l));"#
        ));
        assert_eq!(out, held, "{word}");
    }
    Pass
}

fn getf_finds_the_file_of_a_descriptor() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("write", 8),
        "-n",
        r#"syscall::write:entry /pid == $target && arg2 == 64/ {
           printf("%s %d %d\n", stringof(getf(arg0)->f_path.dentry->d_name.name), getf(-1) == NULL, getf(1 << 20) == NULL); }"#,
    ])
    .code(0);
    assert_eq!(o.out, "null 1 1\n\n", "{o:?}");
    Pass
}

fn progenyof_finds_the_ancestors_of_a_process() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 1),
        "-n",
        r#"BEGIN { me = pid; printf("%d %d %d\n", progenyof(pid), progenyof($target), progenyof(ppid)); }
           syscall::getppid:entry /progenyof($target)/ { printf("%d %d %d %d\n", progenyof(pid), progenyof(me), progenyof(0),
           progenyof(-1)); }"#,
    ])
    .code(0);
    assert_eq!(o.out, "1 0 1\n1 1 1 0\n\n", "{o:?}");
    Pass
}

fn arguments_beyond_32_bits_are_not_truncated() -> Verdict {
    let out = begin(
        r#"s = "hello"; n = 4294967297; m = -4294967295;
        printf("%s|%s|%s|%d|%d|%d", substr(s, n), substr(s, 1, n), substr(s, m, 3), index(s, "l", n), index(s, "h", m),
        rindex(s, "h", m)); p = alloca(16); bcopy("0123456789abcdef", p, 16); tracemem(p, 16, 4294967298);"#,
    );
    let (first, dump) = out.split_once('\n').unwrap_or((&out, ""));
    assert_eq!(first, "|ello||-1|0|-1");
    assert!(dump.contains("0123456789abcdef"), "{dump}");
    // An invalid signal, time and base.
    let o = dtrace(&[
        "-wqn",
        "BEGIN { raise(4294967296 + 9); } BEGIN { chill(4294967296); } BEGIN { trace(lltostr(1, 4294967306)); } \
         BEGIN { exit(0); }",
    ])
    .code(0);
    assert_eq!(o.err.matches("illegal operation in action #1").count(), 3, "{o:?}");
    Pass
}
