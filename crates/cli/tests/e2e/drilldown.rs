//! A machine is busy in its kernel: from the busiest module down to the file, each question asked of what the one before
//! answered, as in the user guide.

use std::time::Duration;

use crate::Verdict::{self, Pass, Skip};
use crate::fbt::{all_at_once, cannot, root_is_of_a_module, suppressed};
use crate::tool::{Output, finish, start, workload};

tests! { from_the_busiest_module_to_the_file }

/// The workload opens a file and reads it so many times. Others do what they do.
const TIMES: u32 = 50;

/// An answer: keys and counts, least first.
struct Answer {
    output: Output,
    rows: Vec<(Vec<String>, i64)>,
}

impl Answer {
    /// Asks while the workload runs.
    #[track_caller]
    fn to(program: &str) -> Answer {
        let child = start(&["-q", "-c", &workload("openread", TIMES), "-n", program]);
        let output = finish(child, Duration::from_secs(240)).code(0);
        let mut rows = Vec::new();
        let mut key: Vec<String> = Vec::new();
        // A stack is a key of many lines.
        for line in output.out.lines().filter(|l| !l.trim().is_empty()) {
            key.extend(line.split_whitespace().map(String::from));
            if let Some(count) = key.last().and_then(|w| w.parse().ok()) {
                key.pop();
                rows.push((std::mem::take(&mut key), count));
            }
        }
        let sorted = rows.windows(2).all(|w| w[0].1 <= w[1].1);
        assert!(sorted && !rows.is_empty(), "{program}: {output:?}");
        Answer { output, rows }
    }

    fn count(&self, key: &str) -> i64 {
        self.rows.iter().find(|(k, _)| k[..] == [key]).map_or(0, |(_, count)| *count)
    }

    /// It happened at least as often as the workload did it, less what the kernel is said to have kept from the programs.
    #[track_caller]
    fn has(&self, key: &str) {
        let lost = suppressed(&self.output);
        assert!(self.count(key) + lost >= i64::from(TIMES), "{key}: {:?}", self.output);
    }

    /// Only the workload does it.
    #[track_caller]
    fn is_all_of(&self, key: &str) {
        self.has(key);
        assert!(self.count(key) <= i64::from(TIMES), "{key}: {:?}", self.output);
    }
}

fn from_the_busiest_module_to_the_file() -> Verdict {
    if let Some(skip) = cannot() {
        return skip;
    }
    if !root_is_of_a_module() {
        return Skip("the root is not of a module (overlay)".into());
    }
    let me = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let me = me.trim();
    // One by one, a few must do.
    let (everything, module) = match all_at_once() {
        true => ("fbt:::entry", "fbt:overlay::entry"),
        false => (
            "fbt:overlay:ovl_o*:entry,fbt::do_filp_open:entry,fbt::path_openat:entry",
            "fbt:overlay:ovl_o*:entry",
        ),
    };
    // Which module is busiest?
    let modules = Answer::to(&format!("{everything} {{ @[probemod] = count(); }}"));
    modules.has("vmlinux");
    modules.has("overlay");
    // Which of its functions?
    let functions = Answer::to(&format!("{module} {{ @[probefunc] = count(); }}"));
    functions.has("ovl_open");
    // Where is that called from?
    let stacks = Answer::to("fbt:overlay:ovl_open:entry { @[stack()] = count(); }");
    let open = |(frames, _): &&(Vec<String>, i64)| {
        let at = |name: &str| frames.iter().position(|f| f.starts_with(&format!("vmlinux`{name}+")));
        let steps = [at("do_dentry_open"), at("path_openat"), at("do_sys_openat2")];
        frames[0].starts_with("overlay`ovl_open") && steps[0].is_some() && steps.is_sorted()
    };
    let count: i64 = stacks.rows.iter().filter(open).map(|(_, count)| count).sum();
    assert!(count + suppressed(&stacks.output) >= i64::from(TIMES), "{:?}", stacks.output);
    // By which system call?
    let calls = Answer::to(
        "syscall:::entry { self->sys = probefunc; } \
         fbt:overlay:ovl_open:entry /self->sys != NULL/ { @[self->sys] = count(); } \
         syscall:::return { self->sys = 0; }",
    );
    calls.has("openat");
    // Who does it?
    Answer::to("fbt:overlay:ovl_open:entry { @[execname] = count(); }").has(me);
    // On which files? A member of what the function is given, or of what the call is.
    let name = "stringof(args[1]->f_path.dentry->d_name.name)";
    let files =
        Answer::to(&format!("fbt:overlay:ovl_open:entry /pid == $target/ {{ @[{name}] = count(); }}"));
    files.is_all_of("passwd");
    let reads = "syscall::read:entry /pid == $target/ { @[fds[arg0].fi_pathname] = count(); }";
    Answer::to(reads).is_all_of("/etc/passwd");
    Pass
}
