//! Extending a running session under load. The running programs lose no record, count or variable.
//! The new programs are exact from the return of [`Session::enable`] on.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bpf_sys::monotonic_ns;
use dtrace::events::{Event, NoticeKind};
use dtrace::options::Options;
use dtrace::{Field, Macros, Session, Source, Status, Target};

use crate::tool::{Losses, Output, Traced, collect_reports, compile, own_program, sink, take_reports};
use crate::{Test, Verdict};

pub(crate) const TESTS: &[Test] = &[
    ("growing::clauses_are_added_under_load_without_loss", under_load),
    ("growing::clauses_are_added_to_a_session_of_begin_alone", from_begin),
    ("growing::a_rejected_program_changes_nothing", refusals),
    ("growing::added_clauses_use_conditions_and_libraries", divided),
    ("growing::added_clauses_have_faults_and_longer_stacks", faults),
    ("growing::added_clauses_have_objects_of_their_own", objects),
    ("growing::added_clauses_use_self_arrays_and_vtimestamp", threads),
];

const LIMIT: Duration = testing::HANG_LIMIT;

/// A workload that runs until it is stopped, and a session that traces the workload.
struct Running {
    session: Traced,
    output: Output,
    losses: Losses,
    macros: Macros,
    dir: PathBuf,
    /// Bytes of the output that were parsed, and their lines by first word.
    parsed: usize,
    lines: HashMap<String, usize>,
}

impl Running {
    fn start(name: &str, threads: u64, script: &str) -> Running {
        let dir = std::env::temp_dir().join(format!("dt-library-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let me = own_program();
        let (stop, counts) = (dir.join("stop"), dir.join("counts"));
        let command =
            format!("{} --workload until {threads} {} {}", me.display(), stop.display(), counts.display());
        let target = Target::create(&command).unwrap();
        let pid = target.pid() as u64;
        let mut options = Options::default();
        options.set("quiet", None).unwrap();
        options.set("switchrate", Some("50hz")).unwrap();
        // Large enough for the time in which an emulated machine verifies a program.
        options.set("bufsize", Some("16m")).unwrap();
        let program = compile(script, &mut options, pid);
        let output = Output::default();
        let session = Session::start(&program, options, vec![target], sink(&output)).unwrap();
        let macros = Macros { target: pid, ..Macros::default() };
        Running { session, output, losses: Losses::default(), macros, dir, parsed: 0, lines: HashMap::new() }
    }

    fn enable(&mut self, script: &str) -> Result<Vec<usize>, String> {
        let source = Source::Specifier(Field::Name, script.into());
        self.session.enable(&[source], &self.macros).map_err(|e| e.messages(true).join("\n"))
    }

    /// Lines so far that begin with `word`.
    fn lines_of(&mut self, word: &str) -> usize {
        let new = self.output.after(self.parsed);
        let whole = new.rfind('\n').map_or(0, |at| at + 1);
        self.parsed += whole;
        for line in new[..whole].lines() {
            let first = line.split(' ').next().unwrap_or_default();
            *self.lines.entry(first.to_owned()).or_default() += 1;
        }
        self.lines.get(word).copied().unwrap_or(0)
    }

    /// Consumes output until `lines` lines begin with `word`.
    #[track_caller]
    fn until(&mut self, word: &str, lines: usize) {
        let start = Instant::now();
        while self.lines_of(word) < lines {
            assert!(start.elapsed() < LIMIT, "no {lines} lines of {word}");
            let status = self.session.work(None, Duration::from_millis(20)).unwrap();
            assert_eq!(status, Status::Working);
            collect_reports(&mut self.session, &mut self.losses);
        }
    }

    /// Stops the workload and the session. Returns the calls of each thread, and the output.
    #[track_caller]
    fn stop(&mut self) -> (Vec<u64>, Lines) {
        std::fs::write(self.dir.join("stop"), "").unwrap();
        let start = Instant::now();
        while self.session.work(None, Duration::from_millis(20)).unwrap() == Status::Working {
            assert!(start.elapsed() < LIMIT, "no end");
            collect_reports(&mut self.session, &mut self.losses);
        }
        self.session.finish().unwrap();
        collect_reports(&mut self.session, &mut self.losses);
        let counts = std::fs::read_to_string(self.dir.join("counts")).unwrap();
        assert_eq!((self.losses.records, self.losses.others.len()), (0, 0), "{:?}", self.losses);
        let words = |l: &str| l.split(' ').map(String::from).collect();
        let lines = self.output.text().lines().map(words).collect();
        (counts.lines().map(|c| c.parse().unwrap()).collect(), Lines(lines))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // When a test fails, its workload ends with its directory.
        self.session.abort();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Lines of the output by their words.
struct Lines(Vec<Vec<String>>);

impl Lines {
    fn of<'a>(&'a self, word: &'a str) -> impl Iterator<Item = Vec<u64>> + 'a {
        let lines = self.0.iter().filter(move |l| l[0] == word);
        lines.map(|l| l[1..].iter().map(|w| w.parse().unwrap_or(0)).collect())
    }

    /// The number at the end of the line that begins with these words.
    #[track_caller]
    fn number(&self, words: &str) -> u64 {
        let begins = |l: &&Vec<String>| l.join(" ").starts_with(&format!("{words} "));
        let line = self.0.iter().find(begins);
        line.and_then(|l| l.last()?.parse().ok()).unwrap_or_else(|| panic!("no number of {words}"))
    }
}

const FIRST: &str = r#"
syscall::getppid:entry /pid == $target/ { @calls[arg0] = count(); @numbers = sum(arg1); last = arg1; }
syscall::getppid:entry /pid == $target/ { printf("A %d %d %d\n", arg0, arg1, timestamp); }
syscall::getppid:entry /pid == $target/ { @names[probefunc] = count(); }
END
{
	printa("calls %d %@d\n", @calls); printa("numbers %@d\n", @numbers); printa("names %s %@d\n", @names);
}
"#;

/// New: an aggregation, a global, a `self->` scalar, an associative array, constants, a longer
/// record. Existing: @names, `last`.
const SECOND: &str = r#"
syscall::getppid:entry /pid == $target/ { @more[arg0] = count(); self->n = arg1 + 1; seen[arg0] = arg1 + 1; }
syscall::getppid:entry /pid == $target/ { printf("B %d %d %d %s\n", arg0, arg1, last, "constant"); }
syscall::getppid:return /pid == $target/ { @names[probefunc] = count(); @names["of a later program"] = count(); }
syscall::getppid:return /pid == $target && self->n/ { @returned[probename] = count(); self->n = 0; }
END { printa("more %d %@d\n", @more); printa("returned %s %@d\n", @returned); printf("end B\n"); }
"#;

/// A third program, which uses the variables of the second. The kernel may run either first. Some
/// kernels run the newest first.
const THIRD: &str = r#"
BEGIN { printf("begin C %d\n", seen[1] > 0 && seen[2] > 0); text = "a string"; }
syscall::getppid:entry /pid == $target && (seen[arg0] == arg1 + 1 || seen[arg0] == arg1)/ { @more[arg0] = count(); @third[arg0] = count(); }
syscall::getppid:entry /pid == $target/ { printf("C %d %d %d %s\n", arg0, arg1, 0, text); }
syscall::getppid:entry /pid == $target/ { self->m = arg1 + 1; }
syscall::getppid:return /pid == $target && self->m/ { @kept = sum(self->m - 1); @keeps = count(); self->m = 0; }
profile-97 { @clock = count(); }
END { printa("third %d %@d\n", @third); printa("kept %@d\n", @kept); printa("keeps %@d\n", @keeps); printf("end C\n"); }
"#;

/// The calls that certainly began after `time`. The first call of a thread may have been in
/// progress.
fn after(all: &HashMap<(u64, u64), u64>, time: u64) -> HashSet<(u64, u64)> {
    let mut late: Vec<(u64, u64)> = all.iter().filter(|(_, t)| **t > time).map(|(call, _)| *call).collect();
    late.sort_unstable();
    late.windows(2).filter(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1]).collect()
}

/// The calls that have a record with this word.
fn numbered(lines: &Lines, word: &str) -> HashSet<(u64, u64)> {
    let mut seen = HashSet::new();
    for l in lines.of(word) {
        assert!(seen.insert((l[0], l[1])), "twice: {word} {l:?}");
    }
    seen
}

fn under_load() -> Verdict {
    let mut run = Running::start("load", 2, FIRST);
    run.until("A", 200);
    let mut times = Vec::new();
    for (script, probes, word) in [(SECOND, 5, "B"), (THIRD, 7, "C")] {
        let before = monotonic_ns();
        assert_eq!(run.enable(script), Ok(vec![probes]));
        times.push((before, monotonic_ns()));
        run.until(word, 400);
    }
    let (counts, lines) = run.stop();

    // The first program recorded every call, as if nothing was added.
    let mut all: HashMap<(u64, u64), u64> = HashMap::new();
    for l in lines.of("A") {
        assert!(all.insert((l[0], l[1]), l[2]).is_none(), "twice: A {l:?}");
    }
    for (thread, made) in (1..).zip(&counts) {
        assert_eq!(lines.number(&format!("calls {thread}")), *made, "calls of thread {thread}");
        assert!(
            (0..*made).all(|seq| all.contains_key(&(thread, seq))),
            "A lacks a record of thread {thread}"
        );
    }
    assert_eq!(all.len() as u64, counts.iter().sum::<u64>(), "records of A");
    assert_eq!(lines.number("numbers"), counts.iter().map(|n| n * (n - 1) / 2).sum::<u64>(), "@numbers");

    // The second program recorded every call from then on, and none before.
    for ((before, enabled), word) in times.iter().zip(["B", "C"]) {
        let seen = numbered(&lines, word);
        let late = after(&all, *enabled);
        for (call, time) in &all {
            assert!(!late.contains(call) || seen.contains(call), "{word} lacks {call:?}");
            assert!(time >= before || !seen.contains(call), "{word} has {call:?}, which was before it");
        }
        let mut sum = 0;
        for (thread, _) in (1..).zip(&counts) {
            let count = seen.iter().filter(|(t, _)| *t == thread).count() as u64;
            sum += count;
            if word == "C" {
                assert_eq!(lines.number(&format!("third {thread}")), count, "@third of {thread}");
            }
        }
        if word == "B" {
            let third: u64 = numbered(&lines, "C").len() as u64;
            // Both programs add to @more.
            let more: u64 = (1..).zip(&counts).map(|(t, _)| lines.number(&format!("more {t}"))).sum();
            assert_eq!(more, sum + third, "@more");
            // The program of the returns is attached after that of the entries. Both are attached
            // when enable() returns.
            let returned = lines.number("returned return");
            let sure = late.len() as u64;
            assert!((sure..=sum).contains(&returned), "{returned} returns of {sure} to {sum}");
            assert_eq!(
                lines.number("names getppid"),
                all.len() as u64 + lines.number("names of a later program"),
                "@names"
            );
        }
    }
    // A `self->` variable of its own, beside the second program's.
    let third = numbered(&lines, "C");
    let (kept, keeps) = (lines.number("kept"), lines.number("keeps"));
    let sure = after(&all, times[1].1);
    assert!((sure.len() as u64..=third.len() as u64).contains(&keeps), "{keeps} of {}", sure.len());
    let of_all: u64 = third.iter().map(|(_, seq)| seq).sum();
    assert!(keeps < third.len() as u64 || kept == of_all, "{kept}, not {of_all}");
    // `last` is the first program's variable. Whichever call was in progress, its value is the
    // number of a call.
    assert!(lines.of("B").all(|l| counts.iter().any(|made| l[2] < *made)));
    assert!(lines.0.iter().any(|l| l.join(" ") == "begin C 1"), "BEGIN of the third program");
    let ends: Vec<String> = lines.0.iter().filter(|l| l[0] == "end").map(|l| l.join(" ")).collect();
    assert_eq!(ends, ["end B", "end C"]);
    assert!(lines.0.iter().filter(|l| l[0] == "C").all(|l| l[4..].join(" ") == "a string"));
    Verdict::Pass
}

/// A session with nothing but BEGIN has one small ring. Programs that are added get rings of their
/// own. The existing variables and aggregations stay.
fn from_begin() -> Verdict {
    let begin = r#"BEGIN { printf("begun 1\n"); @both = count(); @both = count(); limit = 7; }
        END { printa("both %@d\n", @both); printf("end A\n"); }"#;
    let mut run = Running::start("begin", 3, begin);
    let more = r#"syscall::getppid:entry /pid == $target && arg1 < limit/ { @both = count(); printf("B %d %d\n", arg0, arg1); }
        syscall::getppid:entry /pid == $target/ { @all[arg0] = sum(1); printf("D %d %d\n", arg0, arg1); }
        END { printa("all %d %@d\n", @all); printf("end B\n"); }"#;
    assert_eq!(run.enable(more), Ok(vec![3]));
    run.until("D", 300);
    let (counts, lines) = run.stop();
    let seen = numbered(&lines, "D");
    // The threads may have started before.
    for (thread, made) in (1..).zip(&counts) {
        let count = lines.number(&format!("all {thread}"));
        assert!(
            count > 0 && (made - count..*made).all(|seq| seen.contains(&(thread, seq))),
            "thread {thread}"
        );
    }
    let limited = numbered(&lines, "B");
    assert_eq!(limited.len(), seen.iter().filter(|(_, seq)| *seq < 7).count());
    assert_eq!(lines.number("both"), 2 + limited.len() as u64);
    let words: Vec<&str> =
        lines.0.iter().map(|l| l[0].as_str()).filter(|w| ["begun", "end"].contains(w)).collect();
    assert_eq!(words, ["begun", "end", "end"]);
    Verdict::Pass
}

/// Each of these is rejected with a reason. A correct program that follows continues the numbering.
fn refusals() -> Verdict {
    let mut run = Running::start("refusals", 1, FIRST);
    run.until("A", 50);
    for (script, why) in [
        ("syscall::getppid:entry { @calls[arg0] = ", "syntax error"),
        ("syscall::no_such_call:entry { x = 1; }", "D_PDESC_ZERO"),
        ("BEGIN { last = \"no number\"; }", "incompatible"),
        ("BEGIN { @calls[1] = sum(1); }", "redefin"),
        // The key of @names is an interned number in the running program.
        ("BEGIN { @names[execname] = count(); }", "@names is already enabled with a narrower key"),
        ("#pragma D option strsize=16\nBEGIN { x = 1; }", "strsize"),
        ("BEGIN { system(\"true\"); }", ""),
        ("", ""),
    ] {
        let answer = run.enable(script);
        assert!(answer.as_ref().is_err_and(|text| text.contains(why)), "{script}: {answer:?}");
    }
    let mut nothing = Losses::default();
    collect_reports(&mut run.session, &mut nothing);
    let right = r#"syscall::getppid:entry /pid == $target/ { printf("B %d %d\n", arg0, arg1); @numbers = sum(0); @new = count(); }
        END { printa("new %@d\n", @new); }"#;
    assert_eq!(run.enable(right), Ok(vec![2]));
    run.until("B", 50);
    let (counts, lines) = run.stop();
    assert_eq!(lines.number("calls 1"), counts[0]);
    assert_eq!(lines.of("A").count() as u64, counts[0]);
    assert_eq!(lines.number("numbers"), counts[0] * (counts[0] - 1) / 2);
    assert_eq!(lines.number("new"), lines.of("B").count() as u64);
    Verdict::Pass
}

/// Added clauses may use `if`, like existing ones, and other libraries.
fn divided() -> Verdict {
    let first = r#"inline int ODD[int n] = n & 1;
        syscall::getppid:entry /pid == $target/ { if (ODD[arg1]) { printf("A %d %d\n", SIGKILL, arg1); } else { @even = count(); } }
        END { printa("even %@d\n", @even); }"#;
    let mut run = Running::start("divided", 2, first);
    run.until("A", 20);
    let more = r#"syscall::getppid:entry /pid == $target/ {
            this->third = arg1 % 3;
            if (this->third == 0) { @third = count(); if (ODD[arg1]) printf("B %d %d\n", EINTR, arg1); } else { @other = count(); }
        }
        END { if (EINTR) { printa("third %@d\n", @third); printa("other %@d\n", @other); } }"#;
    assert_eq!(run.enable(more), Ok(vec![2]));
    run.until("B", 40);
    let (counts, lines) = run.stop();
    let all: u64 = counts.iter().sum();
    let odd = lines.of("A").count() as u64;
    assert!(lines.of("A").all(|l| l[0] == 9 && l[1] % 2 == 1));
    // The threads may have started before. Then both kinds lack the same calls, except for one.
    assert!(odd + lines.number("even") <= all && odd.abs_diff(lines.number("even")) <= counts.len() as u64);
    assert!(lines.of("B").all(|l| l[0] == 4 && l[1] % 6 == 3));
    let (third, other) = (lines.number("third"), lines.number("other"));
    assert!(third > 40 && (2 * third).abs_diff(other) <= 4 * counts.len() as u64, "{third} {other}");
    Verdict::Pass
}

/// Added `self->` arrays have their list heads in another map when the session's common storage
/// exists. CPU-time accounts start late.
fn threads() -> Verdict {
    let first = r#"syscall::getppid:entry /pid == $target/ { self->n = arg1; self->old[1] = arg1; printf("A %d %d\n", arg0, self->old[1]); }"#;
    let mut run = Running::start("threads", 2, first);
    run.until("A", 20);
    let more = r#"uint64_t went[int];
        syscall::getppid:entry /pid == $target/ {
            self->late[arg1 % 5] = arg1; self->text["k", 1] = probename; self->old[2] = arg1;
            self->sum = self->late[arg1 % 5] + self->old[2];
        }
        syscall::getppid:entry /pid == $target && self->text["k", 1] == "entry" && self->sum == 2 * arg1/ {
            printf("B %d %d %d %d %d\n", arg0, arg1, vtimestamp >= went[tid], vtimestamp, went[tid]); went[tid] = vtimestamp;
        }
        syscall::getppid:entry /pid == $target && arg1 % 2/ { self->late[arg1 % 5] = 0; self->old[2] = 0; }"#;
    assert_eq!(run.enable(more), Ok(vec![3]));
    run.until("B", 100);
    let (_, lines) = run.stop();
    let back: Vec<_> = lines.of("B").filter(|l| l[2] != 1).collect();
    assert!(back.is_empty(), "{} of {}: {:?}", back.len(), lines.of("B").count(), &back[..back.len().min(9)]);
    assert!(lines.of("B").count() >= 100);
    Verdict::Pass
}

/// Added clauses of ERROR see the faults of the added programs. Stacks longer than the existing
/// ones are stored.
fn faults() -> Verdict {
    let mut run = Running::start(
        "faults",
        1,
        "syscall::getppid:entry /pid == $target/ { printf(\"A %d %d\\n\", arg0, arg1); @short[stack(1)] = count(); }",
    );
    run.until("A", 20);
    let more = r#"
        ERROR { printf("E %d\n", arg1); @faults = count(); }
        syscall::getppid:entry /pid == $target/ { printf("F %s\n", copyinstr(1)); }
        syscall::getppid:entry /pid == $target/ { printf("B %d %d\n", arg0, arg1); @long[stack(9)] = count(); }
        END { printa("faults %@d\n", @faults); printa("long %k%@d\n", @long); printa("short %k%@d\n", @short); }"#;
    assert_eq!(run.enable(more), Ok(vec![4]));
    let start = Instant::now();
    let mut reports = 0;
    while run.lines_of("B") < 30 {
        assert!(start.elapsed() < LIMIT);
        run.session.work(None, Duration::from_millis(20)).unwrap();
        reports += take_fault_reports(&mut run);
    }
    std::fs::write(run.dir.join("stop"), "").unwrap();
    while run.session.work(None, Duration::from_millis(20)).unwrap() == Status::Working {
        reports += take_fault_reports(&mut run);
    }
    run.session.finish().unwrap();
    reports += take_fault_reports(&mut run);
    let text = run.output.text();
    let begins = |word: &str| text.lines().filter(|l| l.starts_with(word)).count() as u64;
    let faults = begins("B ");
    assert!(text.contains(&format!("faults {faults}\n")), "{faults} faults");
    assert_eq!((reports, begins("E "), begins("F ")), (faults, faults, 0));
    // A stack is printed only where its frames were stored.
    for word in ["long ", "short "] {
        let after = text.split(word).nth(1).unwrap_or_default();
        assert!(after.lines().nth(1).is_some_and(|l| l.contains('`')), "{word}{after}");
    }
    Verdict::Pass
}

/// Added objects have maps of their own, and pointers to existing objects are valid.
fn objects() -> Verdict {
    let first = r#"struct pair { long n; long last; }; struct pair g; self struct pair t;
        syscall::getppid:entry /pid == $target/ { g.last = 7; self->t.n++; printf("A %d %d\n", g.last, self->t.n); }"#;
    let mut run = Running::start("objects", 1, first);
    run.until("A", 20);
    let more = r#"struct pair h; self struct pair u; int m[2][3]; long *kept;
        syscall::getppid:entry /pid == $target/ {
            this->i = arg1 & 1; h.n++; self->u.n = h.n; m[1][this->i]++; kept = &h.last; *kept = m[1][0] + m[1][1];
            this->p = &g.last; this->q = (long *)alloca(8); *this->q = *this->p;
            printf("B %d %d %d %d\n", *kept, self->u.n, *this->q, m[0][2]);
        }"#;
    assert_eq!(run.enable(more), Ok(vec![1]));
    run.until("B", 40);
    let (_, lines) = run.stop();
    assert!(lines.of("A").all(|l| l[0] == 7));
    assert!(
        (1..).zip(lines.of("B")).all(|(n, l)| l[..] == [n, n, 7, 0]),
        "B {:?}",
        lines.of("B").take(5).collect::<Vec<_>>()
    );
    Verdict::Pass
}

#[track_caller]
fn take_fault_reports(run: &mut Running) -> u64 {
    let mut faults = 0;
    for report in take_reports(&mut run.session) {
        match report {
            Event::Fault(f) => {
                assert!(f.probe.is_some_and(|p| *p.function == *"getppid"));
                faults += f.count;
            }
            // How stacks are walked.
            Event::Notice(n) if [NoticeKind::Target, NoticeKind::Detail].contains(&n.kind) => {}
            Event::Suppressed(_) => {}
            other => panic!("unexpected report: {other:?}"),
        }
    }
    faults
}
