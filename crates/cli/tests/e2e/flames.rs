//! `--flame`: flame graphs and other files of stacks, of sessions on the running kernel.

use testing::eventually;

use crate::Verdict::{self, Pass, Skip};
use crate::stacks::BY_POINTERS;
use crate::tool::{LIMIT, dtrace, finish, signal, start, workload};

tests! {
    known_stacks_are_in_every_file_with_their_counts a_picture_has_keys_process_and_kernel_and_nothing_is_printed
    a_printa_draws_and_one_with_a_format_prints_too files_are_written_while_printa_prints lost_stacks_are_in_the_picture
    a_difference_is_to_a_file_or_to_another_aggregation a_file_of_folded_stacks_is_drawn_without_tracing
    what_cannot_be_drawn_is_a_message_and_status_1 files_are_tried_before_tracing_and_replaced_as_a_whole
}

/// A directory that is removed at the end.
struct Directory(testing::dir::Dir);

impl Directory {
    fn new(test: &str) -> Directory {
        Directory(testing::dir::Dir::new(&format!("flame-{test}")))
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).into_os_string().into_string().unwrap()
    }

    fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.0.join(name)).unwrap()).into_owned()
    }
}

/// The sum of the values of folded stacks that have a frame.
fn sum(folded: &str, frame: &str) -> u64 {
    let lines = folded.lines().filter(|line| line.contains(frame));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

fn known_stacks_are_in_every_file_with_their_counts() -> Verdict {
    const COUNT: u32 = 60;
    let dir = Directory::new("known");
    let names = ["x.folded", "x.svg", "x.html", "x.pb.gz", "x.speedscope.json"];
    let files: Vec<String> = names.iter().map(|name| dir.file(name)).collect();
    let words = workload("stacks-slowly", COUNT);
    let script = "syscall::getppid:entry /pid == $target/ { @[ustack()] = count(); }";
    let mut all: Vec<&str> = files.iter().flat_map(|file| ["--flame", file]).collect();
    all.extend(["-q", "-xnoresolve", BY_POINTERS, "-c", &words, "-n", script]);
    let o = dtrace(&all).code(0);
    assert_eq!((o.out.trim(), o.err.as_str()), ("", ""));
    // Stack `n` has its frames at 0x1000000000 + 256 n, behind the innermost, and occurs twice.
    let folded = dir.text("x.folded");
    for n in 1..=u64::from(COUNT) {
        let mut frames: Vec<String> =
            (0..n % 19 + 1).map(|i| format!("{:#x}", 0x10_0000_0000 + (n << 8) + i)).collect();
        frames.reverse();
        let begin = format!("{};", frames.join(";"));
        let found: Vec<&str> = folded.lines().filter(|line| line.starts_with(&begin)).collect();
        assert!(found.len() == 1 && found[0].ends_with(" 2"), "{n}: {found:?} in {folded}");
    }
    let total = sum(&folded, "");
    for picture in ["x.svg", "x.html"] {
        let text = dir.text(picture);
        assert!(text.contains(&format!("@[ustack()] = count(): {total} in ")), "{picture}");
        assert!(text.contains("<title>0x1000000100 (process): 2, "), "{picture}");
    }
    let scope: testing::json::Value = dir.text("x.speedscope.json").parse().unwrap();
    assert_eq!(scope.pointer("/profiles/0/endValue").and_then(|n| n.as_u64()), Some(total));
    assert!(std::fs::read(dir.0.join("x.pb.gz")).unwrap().starts_with(&[0x1f, 0x8b, 8]));
    Pass
}

fn a_picture_has_keys_process_and_kernel_and_nothing_is_printed() -> Verdict {
    let dir = Directory::new("keys");
    let (svg, folded) = (dir.file("x.svg"), dir.file("x.folded"));
    let words = workload("getppid", 300);
    let script = "syscall::getppid:entry /pid == $target/ { @[execname, stack(), ustack()] = count(); @n[execname] = count(); }";
    let o = dtrace(&["-q", "--flame", &svg, "--flame", &folded, "-c", &words, "-n", script]).code(0);
    let lines: Vec<&str> = o.out.lines().filter(|line| !line.trim().is_empty()).collect();
    assert_eq!(lines.len(), 1, "only the aggregation without stacks: {o:?}");
    let printed: u64 = lines[0].rsplit_once(' ').unwrap().1.parse().unwrap();
    let folded = dir.text("x.folded");
    assert_eq!((sum(&folded, ""), printed >= 300), (printed, true), "{folded}");
    if !folded.contains("vmlinux`") {
        return Skip("no kernel symbols".into());
    }
    let comm = lines[0].split_whitespace().next().unwrap();
    for line in folded.lines() {
        let frames: Vec<&str> = line.rsplit_once(' ').unwrap().0.split(';').collect();
        assert_eq!(frames[0], comm, "{line}");
        // The process, then the kernel.
        let kernel = frames.iter().position(|f| f.ends_with("_[k]")).unwrap_or_else(|| panic!("{line}"));
        assert!(frames[kernel..].iter().all(|f| f.ends_with("_[k]")), "{line}");
    }
    let svg = dir.text("x.svg");
    assert!(
        svg.contains(" (kernel): ")
            && svg.contains(" (process): ")
            && svg.contains(&format!("<title>{comm} (key): "))
    );
    Pass
}

fn a_printa_draws_and_one_with_a_format_prints_too() -> Verdict {
    let dir = Directory::new("printa");
    let file = dir.file("x.folded");
    let words = workload("getppid", 100);
    let script = "syscall::getppid:entry /pid == $target && n < 40/ { n++; @a[execname, stack(1)] = count(); } \
                  END { printa(@a); printa(\"rows %@d\\n\", @a); }";
    let o = dtrace(&["-q", "--flame", &file, "-c", &words, "-n", script]).code(0);
    let printed: Vec<&str> = o.out.lines().filter(|line| !line.trim().is_empty()).collect();
    assert_eq!(printed, ["rows 40"], "{o:?}");
    assert_eq!(sum(&dir.text("x.folded"), ""), 40);
    Pass
}

fn files_are_written_while_printa_prints() -> Verdict {
    let dir = Directory::new("while");
    let file = dir.file("x.folded");
    let script = "tick-20ms { @[stack(1)] = count(); } tick-100ms { printa(@); }";
    let mut child = start(&["-q", "--flame", &file, "-n", script]);
    let mut written = |than: u64| {
        eventually("a file with more samples", LIMIT, || {
            assert!(child.try_wait().unwrap().is_none(), "it ended");
            // A file is written as a whole.
            let folded = std::fs::read_to_string(dir.0.join("x.folded")).ok()?;
            Some(sum(&folded, "")).filter(|samples| *samples > than)
        })
    };
    let first = written(0);
    let second = written(first);
    signal(&child, libc::SIGTERM);
    finish(child).code(0);
    assert!(sum(&dir.text("x.folded"), "") >= second);
    Pass
}

fn lost_stacks_are_in_the_picture() -> Verdict {
    let dir = Directory::new("lost");
    let (svg, folded) = (dir.file("x.svg"), dir.file("x.folded"));
    let words = workload("stacks-at-once", 5000);
    let script = "syscall::getppid:entry /pid == $target/ { @[ustack()] = count(); }";
    let o = dtrace(&[
        "-q",
        "-xnoresolve",
        BY_POINTERS,
        "-xstacksize=32k",
        "--flame",
        &svg,
        "--flame",
        &folded,
        "-c",
        &words,
        "-n",
        script,
    ])
    .code(0);
    let dropped =
        |line: &str| line.strip_prefix("dtrace: ")?.split_once(" stack drop")?.0.parse::<u64>().ok();
    let lost: u64 = o.err.lines().filter_map(dropped).sum();
    assert!(lost > 0, "{}", o.err);
    let folded = dir.text("x.folded");
    assert_eq!(sum(&folded, "[no stack]"), lost, "{}", o.err);
    assert!(sum(&folded, "") >= 10_000);
    let digits = lost.to_string();
    let shown = match digits.len() {
        0..=3 => digits,
        n => format!("{},{}", &digits[..n - 3], &digits[n - 3..]),
    };
    let svg = dir.text("x.svg");
    assert!(svg.contains(&format!(">Lost: {shown} stack drop")), "{shown}");
    assert!(svg.contains("has stacks that are incomplete or were not recorded"));
    Pass
}

fn a_difference_is_to_a_file_or_to_another_aggregation() -> Verdict {
    let dir = Directory::new("difference");
    let (before, svg) = (dir.file("before.folded"), dir.file("x.svg"));
    let script = "syscall::getppid:entry /pid == $target/ { @[ustack(1)] = count(); }";
    let words = workload("getppid", 100);
    dtrace(&["-q", "--flame", &before, "-c", &words, "-n", script]).code(0);
    let words = workload("getppid", 300);
    dtrace(&["-q", "--flame", &svg, "--flame-diff", &before, "-c", &words, "-n", script]).code(0);
    let total = sum(&dir.text("before.folded"), "");
    let picture = dir.text("x.svg");
    assert!(picture.contains(&format!(", before: {total}</text>")), "{total}");
    // The same one frame has the same share.
    assert!(picture.contains("100.00 % (before: 100.00 %)"), "{picture}");

    let script = "syscall::getppid:entry /pid == $target && n < 200/ { n++; @was[ustack(1)] = count(); } \
                  syscall::getppid:entry /pid == $target && n == 200/ { @is[ustack(1)] = count(); }";
    dtrace(&["-q", "--flame", &svg, "--flame-diff", "@was", "-c", &words, "-n", script]).code(0);
    let picture = dir.text("x.svg");
    assert!(
        picture.contains("@is[ustack(1)] = count(): 10") && picture.contains(", before: 200</text>"),
        "{picture}"
    );
    assert!(!picture.contains(">@was"), "the baseline is not drawn itself");
    Pass
}

fn a_file_of_folded_stacks_is_drawn_without_tracing() -> Verdict {
    let dir = Directory::new("from");
    std::fs::write(dir.0.join("in.folded"), "main;f;g_[k] 3\nmain;h 1\n").unwrap();
    std::fs::write(dir.0.join("before.folded"), "main;f;g_[k] 1\n").unwrap();
    std::fs::write(dir.0.join("bad.folded"), "main;f 3\nmain\n").unwrap();
    let (svg, read, before) = (dir.file("x.svg"), dir.file("in.folded"), dir.file("before.folded"));
    let o = dtrace(&["--flame", &svg, "--flame-from", &read, "--flame-diff", &before]).code(0);
    assert_eq!((o.out.as_str(), o.err.as_str()), ("", ""));
    assert!(dir.text("x.svg").contains("in.folded: 4 in 2 stacks, before: 1</text>"));
    let bad = dir.file("bad.folded");
    let o = dtrace(&["--flame", &svg, "--flame-from", &bad]).code(1);
    let expected = format!(
        "dtrace: failed to read '{bad}': line 2: not of the form `outer;inner 12`: frames, a space and a whole number\n"
    );
    assert_eq!(o.err, expected);
    Pass
}

fn what_cannot_be_drawn_is_a_message_and_status_1() -> Verdict {
    let dir = Directory::new("refused");
    let svg = dir.file("x.svg");
    let run = |more: &[&str], script: &str| {
        let words = workload("getppid", 10);
        let all = [&["-q", "--flame", &svg, "-c", &words, "-n", script], more].concat();
        dtrace(&all).code(1).err
    };
    let negative = "syscall::getppid:entry /pid == $target && !n++/ { @[stack(1)] = sum(-5); }";
    assert_eq!(
        run(&[], negative),
        "dtrace: cannot draw @: the value of a stack is -5, and the widths of frames are sums of values that are not negative\n"
    );
    let without = "syscall::getppid:entry /pid == $target/ { @[execname] = count(); }";
    assert_eq!(
        run(&[], without),
        format!(
            "dtrace: --flame {svg}: no aggregation with a stack in its key has a value, as in @[ustack()] = count()\n"
        )
    );
    let with = "syscall::getppid:entry /pid == $target/ { @[stack(1)] = count(); }";
    assert_eq!(
        run(&["--flame-diff", "@nosuch"], with),
        "dtrace: --flame-diff @nosuch: no such aggregation with stacks\n"
    );
    for (words, message) in [
        (
            &["--flame", "x.png", "-n", "BEGIN"][..],
            "the name must end with .svg, .html, .folded, .pb.gz (pprof) or .speedscope.json",
        ),
        (&["--flame-from", "x", "-n", "BEGIN"], "--flame-diff and --flame-from need --flame FILE"),
        (&["--flame", "x.folded", "--flame-diff", "y", "-n", "BEGIN"], "one --flame must be .svg or .html"),
        (&["--flame", "x.svg", "--flame-from", "y", "-n", "BEGIN"], "leave out the programs and targets"),
        (
            &["--flame", "x.svg", "--flame-from", "y", "--flame-diff", "@z"],
            "must be a file and not an aggregation",
        ),
    ] {
        let o = dtrace(words).code(1);
        assert!(o.err.contains(message), "{words:?}: {o:?}");
    }
    Pass
}

fn files_are_tried_before_tracing_and_replaced_as_a_whole() -> Verdict {
    let dir = Directory::new("files");
    let nowhere = dir.file("no/x.svg");
    // The session would not end by itself.
    let o = dtrace(&["-q", "--flame", &nowhere, "-n", "tick-1h { @[stack()] = count(); }"]).code(1);
    assert_eq!(o.err, format!("dtrace: failed to write '{nowhere}': No such file or directory\n"));
    // A link is replaced, not followed.
    std::fs::write(dir.0.join("other"), "kept").unwrap();
    std::os::unix::fs::symlink(dir.0.join("other"), dir.0.join("x.svg")).unwrap();
    let (svg, words) = (dir.file("x.svg"), workload("getppid", 10));
    let script = "syscall::getppid:entry /pid == $target/ { @[stack(1)] = count(); }";
    dtrace(&["-q", "--flame", &svg, "-c", &words, "-n", script]).code(0);
    assert_eq!(dir.text("other"), "kept");
    assert!(dir.text("x.svg").starts_with("<?xml"));
    let mut names: Vec<_> = std::fs::read_dir(&dir.0).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["other", "x.svg"]);
    Pass
}
