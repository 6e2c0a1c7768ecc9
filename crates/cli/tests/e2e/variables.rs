//! Global, thread-local, clause-local variables and associative arrays.

use crate::Verdict::{self, Pass};
use crate::hours::drops;
use crate::tool::{dtrace, workload};

tests! {
    strings_are_indexed_like_pointers characters_of_a_string_can_be_assigned
    null_strings_are_assigned_compared_and_passed_on a_string_that_was_never_assigned_is_null_where_it_has_no_memory floating_point_variables_keep_what_is_assigned global_variables_of_each_type_keep_their_values
    associative_arrays_keep_their_elements
    what_several_cpus_add_to_an_element_at_once_is_all_counted assigning_zero_frees_an_element
    a_unary_operator_creates_its_operand a_variable_holds_64_bits_whatever_its_type
    keys_of_variables_are_whole
    what_is_no_variable_is_cut_to_its_type string_variables_keep_their_values a_self_timestamp_measures_a_call
    self_variables_are_separate_in_each_thread self_arrays_are_separate_in_each_thread
    this_variables_are_separate_in_each_firing the_memory_that_is_used_is_reported_when_dynvarsize_exceeds_the_limit
    dynamic_drops_are_reported_when_memory_runs_out
}

fn a_unary_operator_creates_its_operand() -> Verdict {
    let script = "BEGIN { y = !self->b; z = -this->c; w = ~a[\"k\"]; v = !self->d[1, \"x\"]; \
                  printf(\"%d %d %d %d %d %d\", y, z, w, v, sizeof(self->b), sizeof(a[\"k\"])); } \
                  BEGIN /!self->e && !self->b/ { self->b = -7; self->e = \"text\"; printf(\" %d %s\\n\", self->b, self->e); exit(0); }";
    let o = dtrace(&["-qn", script]).code(1);
    // The type is the one that the actions give.
    assert!(o.err.contains("operator ! requires an operand of scalar type"), "{o:?}");
    let o = dtrace(&["-qn", &script.replace("!self->e && ", "")]).code(0);
    assert_eq!(o.out, "1 0 -1 1 8 8 -7 text\n\n");
    let o = dtrace(&["-qn", "BEGIN /!plain/ { exit(0); }"]).code(1);
    assert!(o.err.contains("plain"), "{o:?}");
    Pass
}

// row variable.whole
fn a_variable_holds_64_bits_whatever_its_type() -> Verdict {
    // The first assignment makes an `int`, the later ones store times: what many published scripts
    // do.
    let o = dtrace(&[
        "-qn",
        "BEGIN { self->s = 0; n[\"k\"] = 1; } \
         BEGIN { self->s = timestamp; this->whole = self->s; n[\"k\"] = timestamp; printf(\"%d %d %d %d\\n\", \
           timestamp - self->s, self->s == timestamp, n[\"k\"] - timestamp, sizeof(self->s)); exit(0); }",
    ])
    .code(0);
    assert_eq!(o.out, "0 1 0 4\n\n", "{o:?}");
    // Each scope, declared or not, as an element, and what is computed with it.
    let o = dtrace(&[
        "-qn",
        "int g; self int t; this uint8_t c; int a[int]; int k; enum few { one = 1 } e; \
         BEGIN { g = 4294967297; self->t = 4294967298; this->c = 300; k = 4294967299; a[k] = 4294967300; a[3] = 1; \
           a[k]++; a[k] += 4294967296; g <<= 1; e = 4294967295 + 6; \
           printf(\"%d %d %d %d %d %d %d\\n\", g, self->t, this->c, k, a[k], a[3], e); \
           printf(\"%x %u %d %d\\n\", g, g, g + 1, pid ? self->t : 0); \
           printf(\"%d %d %d\\n\", (long)g, (unsigned long)g, (g += 2) / 2); exit(0); }",
    ])
    .code(0);
    let lines = "8589934594 4294967298 300 4294967299 8589934597 1 4294967301\n\
                 200000002 8589934594 8589934595 4294967298\n8589934594 8589934594 4294967298\n";
    assert_eq!(o.out, format!("{lines}\n"), "{o:?}");
    // So does what a translator or an inline takes.
    let o = dtrace(&[
        "-qn",
        "int g; int n[string]; struct o { long a; int b; }; translator struct o < int i > { a = i; b = i == 4294967297; }; \
         inline int same[int i] = i; inline int twice = n[\"k\"] + n[\"k\"]; \
         BEGIN { n[\"k\"] = 4294967297; g = n[\"k\"]; \
           printf(\"%d %d %d\\n\", xlate<struct o>(n[\"k\"]).a, xlate<struct o>(n[\"k\"]).b, xlate<struct o>(g + 1).a); \
           printf(\"%d %d %d %d\\n\", same[n[\"k\"]], same[n[\"k\"] + 1], same[g], twice); exit(0); }",
    ])
    .code(0);
    assert_eq!(o.out, "4294967297 1 4294967298\n4294967297 4294967298 4294967297 8589934594\n\n", "{o:?}");
    // A value that fits the type, be it read as signed or as unsigned, prints as one of the type;
    // the others whole.
    let o = dtrace(&[
        "-qn",
        "enum two { A, B } e; int s; unsigned u; char c; BEGIN { s = 4294967295; u = -1; c = 200; printf(\"%d %u %x %d %u %x %d\\n\", \
           s, s, s, u, u, u, c); s = -2147483649; printf(\"%d %x\\n\", s, s); print(s); s = 7; print(s); e = B; print(e); exit(0); }",
    ])
    .code(0);
    assert_eq!(
        o.out,
        "-1 4294967295 ffffffff 4294967295 4294967295 ffffffff -56\n-2147483649 ffffffff7fffffff\n\
                int 0xffffffff7fffffff\nint 0x7\nenum two B\n\n",
        "{o:?}"
    );
    // The columns are those of the type.
    let o = dtrace(&["-n", "int s; BEGIN { s = 7; trace(s); s = 4294967297; trace(s); exit(0); }"]).code(0);
    assert!(o.out.contains(":BEGIN         7 4294967297\n"), "{o:?}");
    Pass
}

// row variable.whole-key
fn keys_of_variables_are_whole() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "int x; BEGIN { x = 4294967297; @n[x] = count(); @s = sum(x); x = 1; @n[x] = count(); @n[1] = count(); @s = sum(x); \
           @q = quantize(x); x = 4294967297; @q = quantize(x); exit(0); } \
         END { printa(\"%d %@d\\n\", @n); printa(\"%@d\\n\", @s); printa(@q); }",
    ])
    .code(0);
    assert!(o.out.starts_with("4294967297 1\n1 2\n4294967298\n"), "{o:?}");
    assert!(o.out.contains("4294967296 |@@@@@@@@@@@@@@@@@@@@                     1 "), "{o:?}");
    // Values that print alike are one row, in several aggregations too.
    let script = "int x; BEGIN { x = -1; @a[x] = sum(1); @b[x] = sum(1); x = 4294967295; @a[x] = sum(10); @b[x] = sum(10); exit(0); } \
                  END { printa(\"%d %@d %@d\\n\", @a, @b); printa(\"%d %@d\\n\", @a); }";
    assert_eq!(dtrace(&["-qn", script]).code(0).out.trim(), "-1 11 11\n-1 11");
    let o = dtrace(&[
        "--format",
        "json",
        "-qn",
        "int x; BEGIN { x = 4294967297; trace(x); @[x] = count(); exit(0); }",
    ])
    .code(0);
    assert!(
        o.out.contains("\"name\":\"x\",\"value\":4294967297}") && o.out.contains("\"key\":[4294967297]"),
        "{o:?}"
    );
    Pass
}

fn what_is_no_variable_is_cut_to_its_type() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "struct one { short m; char c; }; struct one v; int x; int a[3]; \
         BEGIN { x = 4294967297; v.m = x; v.c = 300; a[1] = x; a[2] = x + 1; a[2]++; \
           printf(\"%d %d %d %d %d %d %d\\n\", v.m, v.c, a[1], a[2], (int)x, (char)(x + 299), (short)(int)x); exit(0); }",
    ])
    .code(0);
    assert_eq!(o.out, "1 44 1 3 1 44 1\n\n", "{o:?}");
    Pass
}

fn floating_point_variables_keep_what_is_assigned() -> Verdict {
    let script = "double d; float f; \
        BEGIN { p = (long *)alloca(16); *p = 0x400921fb54442d18; this->d = *(double *)p; x = this->d; self->d = x; \
                a[1] = self->d; *(double *)(p + 1) = a[1]; printf(\"%f %f %f \", x, self->d, *(double *)(p + 1)); \
                a[1] = 0; y = a[1]; d = x; printf(\"%f %.3f %g\", y, d, f); exit(0); }";
    let o = dtrace(&["-qn", script]).code(0);
    assert_eq!(o.out, "3.141593 3.141593 3.141593 0.000000 3.142 0\n", "{o:?}");
    for wrong in ["d + 1", "d ? 1 : 0", "(int)d", "d == d", "-d"] {
        let o = dtrace(&["-qn", &format!("double d; BEGIN {{ trace({wrong}); exit(0); }}")]).code(1);
        assert!(o.err.contains("D has no floating-point operations"), "{wrong}: {o:?}");
    }
    for wrong in ["d = 1", "d = f"] {
        let o = dtrace(&["-qn", &format!("double d; float f; BEGIN {{ {wrong}; exit(0); }}")]).code(1);
        assert!(o.err.contains("operands have incompatible types: \"double\""), "{wrong}: {o:?}");
    }
    Pass
}

// row expression.null-string
fn null_strings_are_assigned_compared_and_passed_on() -> Verdict {
    // NULL is passed, assigned and compared. An operation that needs a text faults.
    let o = dtrace(&[
        "-qn",
        r#"string s; BEGIN { s = strchr("abc", 'x'); this->t = strtok("a", ","); this->t = strtok(NULL, ",");
             a[1] = strstr("abc", "x"); self->s = json("{}", "k"); n = s == NULL ? s : "x"; done = 1; }
           BEGIN { trace(s); } BEGIN { trace(strlen(this->t)); } BEGIN { printf("%s", a[1]); } BEGIN { trace(n); }
           BEGIN { @[self->s] = count(); } BEGIN { b[s] = 1; } BEGIN { trace(strjoin("x", strrchr("abc", 'z'))); }
           BEGIN { s = NULL; trace(s); } BEGIN { trace(substr(pid ? NULL : "a", 1)); }
           ERROR { printf("%d/%d ", arg4, arg5); }
           BEGIN { printf("%d %d %d %d %d\n", done, s == NULL, s == "", "" < s, s != a[1]);
             printf("[%s][%s][%s]%d\n", strchr("abc", 0), strstr("", ""), substr("abc", 7), strtok("", ",") == NULL);
             self->s = NULL; a[1] = NULL; printf("%d%d", self->s == NULL, a[1] == ""); exit(0); }"#,
    ])
    .code(0);
    assert_eq!(o.out, format!("{}1 1 1 0 0\n[][][]1\n11\n", "1/0 ".repeat(9)), "{o:?}");
    assert_eq!(o.err.matches("invalid address (0x0)").count(), 9, "{o:?}");
    // A character of NULL is read, and written, behind address 0.
    let o = dtrace(&[
        "-qn",
        r#"string s; BEGIN { s = NULL; i = 4; } BEGIN { trace(s[1]); } BEGIN { trace(*(s + 2)); } BEGIN { trace(*s); }
           BEGIN { trace(s[i - 1]); } BEGIN { s[i] = 'a'; } BEGIN { trace(substr(s + 5, 0)); }
           BEGIN { this->t = strchr("a", 'x'); trace(this->t[6]); } ERROR { printf("%d/%d ", arg4, arg5); } BEGIN { exit(0); }"#,
    ])
    .code(0);
    assert_eq!(o.out, "1/1 1/2 1/0 1/3 1/4 1/5 1/6 \n", "{o:?}");
    // At run time too, NULL selects the previous string.
    let o = dtrace(&[
        "-qn",
        r#"BEGIN { this->s = "a,b,c"; this->none = strchr(this->s, 'x'); printf("%s", strtok(this->s, ","));
             printf("%s", strtok(this->none, ",")); printf("%s", strtok(this->none, ",")); exit(0); }"#,
    ])
    .code(0);
    assert_eq!(o.out, "abc\n", "{o:?}");
    // A NULL pointer compares like a NULL string, and is not read.
    let o = dtrace(&[
        "-qn",
        r#"BEGIN { p = (char *)0; printf("%d%d%d%d", stringof(p) == NULL, stringof(p) == "", (string)p != "a",
             stringof(curthread->comm) == NULL); }
           BEGIN { trace(stringof(p)); } BEGIN { p = (char *)1; trace(stringof(p) == NULL); } BEGIN { exit(0); }"#,
    ])
    .code(0);
    assert_eq!(o.out, "1110\n", "{o:?}");
    assert!(o.err.contains("(0x0)") && o.err.contains("(0x1)"), "{o:?}");
    Pass
}

fn a_string_that_was_never_assigned_is_null_where_it_has_no_memory() -> Verdict {
    // As in the original, thread-local strings and elements of arrays are NULL before they are
    // assigned, and again after NULL was. The empty string is another value. Global and
    // clause-local strings are empty.
    let o = dtrace(&[
        "-qn",
        r#"self string s; string a[int]; self string b[int]; string g; this string c;
           BEGIN { trace(self->s); } BEGIN { trace(a[1]); } BEGIN { printf("%s", self->b[1]); } BEGIN { trace(strlen(self->s)); }
           BEGIN { @[a[2]] = count(); } BEGIN { g = self->s; trace(g); } BEGIN { trace(self->s[3]); }
           ERROR { printf("%d/%d ", arg4, arg5); }
           BEGIN { g = ""; printf("[%s][%s]%d%d%d\n", g, this->c, self->s == NULL, a[1] == NULL, self->b[1] == ""); }
           BEGIN { self->s = ""; a[1] = ""; self->b[1] = ""; }
           BEGIN { printf("[%s][%s][%s]%d\n", self->s, a[1], self->b[1], self->s == NULL); }
           BEGIN { self->s = execname; a[1] = "longer than a word"; self->b[1] = strjoin(probename, probename); }
           BEGIN { printf("[%s][%s][%s]\n", self->s, a[1], self->b[1]); }
           BEGIN { self->s = strchr("a", 'x'); a[1] = self->s; self->b[1] = NULL; }
           BEGIN { trace(self->s); } BEGIN { trace(a[1]); } BEGIN { trace(self->b[1]); }
           BEGIN { a[1] = "x"; a[1] = self->s != NULL ? self->s : ""; printf("[%s]", a[1]); exit(0); }"#,
    ])
    .code(0);
    let faults = ["1/0 ".repeat(6), "1/3 ".into()].concat();
    let says = "[][]111\n[][][]1\n[dtrace][longer than a word][BEGINBEGIN]\n";
    assert_eq!(o.out, format!("{faults}{says}{}[]\n", "1/0 ".repeat(3)), "{o:?}");
    Pass
}

// row variable.global
fn global_variables_of_each_type_keep_their_values() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "int8_t small; string text; BEGIN { small = 300; text = \"abc\"; x += 5; x++; y = x--; ++z; \
         printf(\"%d %s %d %d %d\\n\", small, text, x, y, z); exit(0); }",
    ])
    .code(0);
    assert_eq!(o.out, "300 abc 5 6 1\n\n");
    Pass
}

// row variable.associative
fn associative_arrays_keep_their_elements() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "BEGIN { a[1, \"x\"] = 10; a[2, \"x\"] = 20; a[1, \"y\"] = 30; b[\"k\"]++; b[\"k\"] += 4; \
         printf(\"%d %d %d %d %d\\n\", a[1, \"x\"], a[2, \"x\"], a[1, \"y\"], a[9, \"z\"], b[\"k\"]); exit(0); }",
    ])
    .code(0);
    assert_eq!(o.out, "10 20 30 0 5\n\n");
    Pass
}

fn what_several_cpus_add_to_an_element_at_once_is_all_counted() -> Verdict {
    let dir = std::env::temp_dir().join(format!("dt-elements-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (file, calls) = (dir.join("commands"), workload("getppid", 200_000));
    std::fs::write(&file, format!("{calls} & {calls} & {calls} & wait\n")).unwrap();
    let o = dtrace(&[
        "-qc",
        &format!("sh {}", file.display()),
        "-n",
        "syscall::getppid:entry /ppid == $target/ { a[1]++; this->was = a[2]++; a[3] -= 2; @ = count(); } \
         END { printf(\"%d\\n%d\\n%d\\n\", a[1], a[2], a[3]); printa(\"%@d\\n\", @); }",
    ])
    .code(0);
    let _ = std::fs::remove_dir_all(&dir);
    let shown: Vec<i64> = o.out.lines().filter_map(|line| line.parse().ok()).collect();
    let [one, two, less, all] = shown[..] else { panic!("{o:?}") };
    assert_eq!(all, 600_000, "{o:?}");
    // An addition that finds the element held by another CPU for long is a drop.
    let lost = (all - one) + (all - two) + (2 * all + less) / 2;
    assert_eq!(lost, drops(&o, "dynamic variable drop") as i64, "{o:?}");
    assert!(one > 0 && two > 0 && less < 0, "{o:?}");
    Pass
}

// row variable.associative-delete
fn assigning_zero_frees_an_element() -> Verdict {
    // Without deletion, the keys would not fit.
    let o = dtrace(&[
        "-q",
        "-x",
        "dynvarsize=64k",
        "-c",
        &workload("getppid", 20000),
        "-n",
        "int i; int n; syscall::getppid:entry /pid == $target/ { a[i] = 1; n += a[i]; a[i] = 0; i++; } END { printf(\"%d %d\\n\", i, n); }",
    ])
    .code(0);
    assert_eq!(o.out, "20000 20000\n\n", "{o:?}");
    assert!(!o.err.contains("drop"), "{o:?}");
    Pass
}

fn string_variables_keep_their_values() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "BEGIN { n[\"a\"] = \"first\"; n[\"b\"] = \"second\"; self->s = \"mine\"; this->t = \"now\"; \
         printf(\"%s %s [%d] %s %s\\n\", n[\"a\"], n[\"b\"], n[\"c\"] == NULL, self->s, this->t); exit(0); }",
    ])
    .code(0);
    assert_eq!(o.out, "first second [1] mine now\n\n");
    Pass
}

fn a_self_timestamp_measures_a_call() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("write", 500),
        "-n",
        "syscall::write:entry /pid == $target/ { self->t = timestamp; } \
         syscall::write:return /self->t/ { @n = count(); @[\"ns\"] = quantize(timestamp - self->t); self->t = 0; } \
         END { printa(\"%@d\\n\", @n); }",
    ])
    .code(0);
    assert_eq!(o.out.lines().next(), Some("500"), "{o:?}");
    assert!(o.out.contains("value  ------------- Distribution ------------- count"), "{o:?}");
    Pass
}

// row variable.self
fn self_variables_are_separate_in_each_thread() -> Verdict {
    // Four threads count their own calls. The main thread makes none.
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("threads", 250),
        "-n",
        "syscall::getppid:entry /pid == $target/ { self->n++; } \
         syscall::getppid:entry /self->n == 250/ { @ = count(); }",
    ])
    .code(0);
    assert_eq!(o.last_number(), 4, "{o:?}");
    Pass
}

fn self_arrays_are_separate_in_each_thread() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("threads", 100),
        "-n",
        "syscall::getppid:entry /pid == $target/ { self->a[\"n\", 1]++; } \
         syscall::getppid:entry /self->a[\"n\", 1] == 100/ { @ = count(); }",
    ])
    .code(0);
    assert_eq!(o.last_number(), 4, "{o:?}");
    Pass
}

// row variable.this
fn this_variables_are_separate_in_each_firing() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 300),
        "-n",
        "syscall::getppid:entry /pid == $target/ { this->x = ++n; } \
         syscall::getppid:entry /pid == $target && this->x == n/ { @ = count(); }",
    ])
    .code(0);
    assert_eq!(o.last_number(), 300, "{o:?}");
    Pass
}

// row variable.drops
fn the_memory_that_is_used_is_reported_when_dynvarsize_exceeds_the_limit() -> Verdict {
    let script = "BEGIN { a[1] = 2; trace(a[1]); exit(0); }";
    let with = |size| dtrace(&["-q", "-x", size, "-x", "bufresize=manual", "-n", script]).code(0);
    let o = with("dynvarsize=8g");
    let number = o.err.strip_prefix("dtrace: dynamic variable size lowered to ").unwrap_or_default();
    let megabytes: u64 = number.trim_end().strip_suffix('m').and_then(|n| n.parse().ok()).unwrap_or_default();
    assert!(o.out == "2\n" && (64..256).contains(&megabytes), "{o:?}");
    // What is said is used: nothing is said of that.
    let o = with("dynvarsize=64m");
    assert_eq!((o.out.as_str(), o.err.as_str()), ("2\n", ""));
    Pass
}

fn dynamic_drops_are_reported_when_memory_runs_out() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-x",
        "dynvarsize=4k",
        "-c",
        &workload("getppid", 5000),
        "-n",
        "syscall::getppid:entry /pid == $target/ { a[i++] = 1; } END { printf(\"%d\\n\", i); }",
    ])
    .code(0);
    assert_eq!(o.out, "5000\n\n");
    assert!(o.err.contains(" dynamic variable drops"), "{o:?}");
    Pass
}

// row type.string-as-pointer, expression.null-string
fn strings_are_indexed_like_pointers() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "string s; int x; BEGIN { s = \"hello\"; printf(\"%c%c%c|%s|%s|%d|%d|%s|%c\\n\", s[0], *(s + 1), (s + 1)[3], \
           s + 2, stringof(3 + s), strlen(s + 1), s[100], s + 77, \"abc\"[x + 1]); } \
         BEGIN { trace(s[256]); } BEGIN { x = -1; trace(s[x]); } BEGIN { exit(0); } \
         ERROR { printf(\"%d %d\\n\", arg4, (int)arg5); }",
    ])
    .code(0);
    assert_eq!(o.out, "heo|llo|lo|4|0||b\n11 256\n11 -1\n\n", "{o:?}");
    assert_eq!(o.err.matches("index out of bounds (").count(), 2, "{o:?}");
    // NULL is the empty string where a string is needed.
    let o = dtrace(&[
        "-qn",
        "string s, t; BEGIN { t = NULL; s = \"x\"; printf(\"%d %d %d %d %d\", \"\" == NULL, t == NULL, NULL != s, \
           t == \"\", s == NULL); exit(0); }",
    ])
    .code(0);
    assert_eq!(o.out, "1 1 1 1 0\n", "{o:?}");
    Pass
}

fn characters_of_a_string_can_be_assigned() -> Verdict {
    let script = r#"string g; self string t; string a[int]; struct named { int n; string name; }; struct named v;
        BEGIN {
            this->s = "abc"; this->s[1] = 65; *this->s += 1; i = 3; this->s[i] = 'd'; this->s[i + 2] = 'x';
            g[0] = 'g'; g[1] = 'h'; g[2] = 'i'; g[1] = 0; g[1]++;
            self->t = ""; self->t[0] = 'a'; a[7] = "key"; a[7][2] = 'Y'; v.name = "mmm"; v.name[i - 1] = 'n';
            printf("%s|%d|%s|%s|%s|%s|%s\n", this->s, strlen(this->s), g, self->t, a[7], v.name, this->s[1] == 65 ? "A" : "");
        }
        BEGIN { i = 256; this->s[i] = 65; }
        BEGIN { i = -1; v.name[i] = 65; }
        BEGIN { exit(0); }"#;
    let o = dtrace(&["-qn", script]).code(0);
    // Bytes behind a string's NUL are ignored. A character stored at the NUL makes the string
    // longer.
    assert_eq!(o.out, "bAcd|4|g\u{1}|a|keY|mmn|A\n\n", "{o:?}");
    assert!(o.err.contains("index out of bounds (256) in action #2"), "{o:?}");
    assert!(o.err.contains("index out of bounds (-1) in action #2"), "{o:?}");
    Pass
}
