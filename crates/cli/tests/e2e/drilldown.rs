//! A machine is busy in its kernel: from the busiest module down to the file, each question asked of what the one before
//! answered, as in the user guide.

use crate::Verdict::{self, Pass, Skip};
use crate::fbt::{all_at_once, cannot, root_is_of_a_module, suppressed};
use crate::tool::{Output, finish, start, workload};

tests! {
    the_busiest_module_is_traced_down_to_the_file
}

/// The workload opens a file and reads it so many times. Others do what they do.
const TIMES: u32 = 50;

/// Answers: keys and counts.
struct Answers {
    output: Output,
    rows: Vec<(Vec<String>, i64)>,
}

impl Answers {
    /// Asks while the workload runs.
    #[track_caller]
    fn to(program: &str) -> Answers {
        let child = start(&["-q", "-c", &workload("openread", TIMES), "-n", program]);
        let output = finish(child).code(0);
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
        Answers { output, rows }
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

    /// A stack from the function that the module is asked to open a file by.
    #[track_caller]
    fn has_the_stack(&self) {
        let open = |(frames, _): &&(Vec<String>, i64)| {
            let at = |name: &str| frames.iter().position(|f| f.starts_with(&format!("vmlinux`{name}+")));
            let steps = [at("do_dentry_open"), at("path_openat"), at("do_sys_openat2")];
            frames[0].starts_with("overlay`ovl_open") && steps[0].is_some() && steps.is_sorted()
        };
        let count: i64 = self.rows.iter().filter(open).map(|(_, count)| count).sum();
        assert!(count + suppressed(&self.output) >= i64::from(TIMES), "{:?}", self.output);
    }
}

fn the_busiest_module_is_traced_down_to_the_file() -> Verdict {
    if let Some(skip) = cannot() {
        return skip;
    }
    if !root_is_of_a_module() {
        return Skip("the root is not of a module (overlay)".into());
    }
    // One by one, a few must do.
    let (all, module) = match all_at_once() {
        true => ("fbt:::entry", "fbt:overlay::entry"),
        false => ("fbt:overlay:ovl_o*:entry,fbt::do_filp_open:entry", "fbt:overlay:ovl_o*:entry"),
    };
    // Which module is busiest, and which of its functions?
    let busiest = Answers::to(&format!(
        "{all} {{ @modules[probemod] = count(); }} {module} {{ @functions[probefunc] = count(); }}"
    ));
    busiest.has("vmlinux");
    busiest.has("overlay");
    busiest.has("ovl_open");
    // Where is that called from, by which system call, by whom, on which files? Of a file, the name in what the function is
    // given, and the path of what a call is given.
    let answers = Answers::to(
        "fbt:overlay:ovl_open:entry { @[stack()] = count(); } \
         syscall:::entry { self->sys = probefunc; } \
         fbt:overlay:ovl_open:entry /self->sys != NULL/ { @calls[self->sys] = count(); } \
         syscall:::return { self->sys = 0; } \
         fbt:overlay:ovl_open:entry { @who[execname] = count(); } \
         fbt:overlay:ovl_open:entry /pid == $target/ \
             { @files[stringof(args[1]->f_path.dentry->d_name.name)] = count(); } \
         syscall::read:entry /pid == $target/ { @reads[fds[arg0].fi_pathname] = count(); }",
    );
    answers.has_the_stack();
    answers.has("openat");
    let me = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    answers.has(me.trim());
    answers.is_all_of("passwd");
    answers.is_all_of("/etc/passwd");
    Pass
}
