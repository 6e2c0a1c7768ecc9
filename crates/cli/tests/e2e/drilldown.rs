//! The drill-down of the book (`tutorial/module-to-file.md`): from the busiest kernel module to the
//! file. Each question uses the previous answer.

use crate::Verdict::{self, Pass, Skip};
use crate::fbt::root_is_of_a_module;
use crate::machine::{attaches_to_all_functions, no_functions};
use crate::tool::{Output, finish, start, suppressed, workload};

tests! {
    the_busiest_module_is_traced_down_to_the_file
}

/// Number of times that the workload opens and reads a file. Other processes may do the same.
const TIMES: u32 = 50;

/// Answers: keys and counts.
struct Answers {
    output: Output,
    rows: Vec<(Vec<String>, i64)>,
}

impl Answers {
    /// Runs a program while the workload runs.
    #[track_caller]
    fn to(program: &str) -> Answers {
        let child = start(&["-q", "-c", &workload("openread", TIMES), "-n", program]);
        let output = finish(child).code(0);
        let mut rows = Vec::new();
        let mut key: Vec<String> = Vec::new();
        // A stack is a key of several lines.
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

    /// Counted at least as often as the workload did it, minus the firings that the kernel
    /// suppressed.
    #[track_caller]
    fn has(&self, key: &str) {
        let lost = suppressed(&self.output);
        assert!(self.count(key) + lost >= i64::from(TIMES), "{key}: {:?}", self.output);
    }

    /// Only the workload has this key.
    #[track_caller]
    fn is_all_of(&self, key: &str) {
        self.has(key);
        assert!(self.count(key) <= i64::from(TIMES), "{key}: {:?}", self.output);
    }

    /// A stack that starts at the function by which the module opens a file.
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
    if let Some(skip) = no_functions() {
        return skip;
    }
    if !root_is_of_a_module() {
        return Skip("the root is not of a module (overlay)".into());
    }
    // Without one link for all functions, a few must suffice.
    let (all, module) = match attaches_to_all_functions("6.12") {
        true => ("fbt:::entry", "fbt:overlay::entry"),
        false => ("fbt:overlay:ovl_o*:entry,fbt::path_openat:entry", "fbt:overlay:ovl_o*:entry"),
    };
    // Which module is busiest, and which of its functions?
    let busiest = Answers::to(&format!(
        "{all} {{ @modules[probemod] = count(); }} {module} {{ @functions[probefunc] = count(); }}"
    ));
    busiest.has("vmlinux");
    busiest.has("overlay");
    busiest.has("ovl_open");
    // Where is the function called from, by which system call, by which process, for which files?
    // The name is an argument of the function. The path is an argument of the call.
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
