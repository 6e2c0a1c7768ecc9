//! Probes that D libraries derive from others, on the running kernel.

use std::process::{Command, Stdio};

use crate::Verdict::{self, Pass};
use crate::pid::Programs;
use crate::tool::{dtrace, finish, printed, start, workload};

tests! {
    probes_of_a_library_fire_with_its_values_and_its_state
    probes_of_one_base_count_what_the_base_counts
    a_clause_that_only_assigns_members_of_a_variable_is_used_where_others_read_it
    a_family_of_a_library_has_a_provider_for_each_process
}

/// A directory with one library.
pub(crate) struct Library(testing::dir::Dir);

impl Library {
    pub(crate) fn new(name: &str, text: &str) -> Library {
        let path = testing::dir::Dir::new(&format!("library-{name}"));
        std::fs::write(path.join("mine.d"), text).unwrap();
        Library(path)
    }

    pub(crate) fn path(&self) -> String {
        self.0.display().to_string()
    }
}

/// The example of the book.
const FILES: &str = r"
provider files {
	probe read__done(struct file *F, long N : fileinfo_t *F, long N);
};
syscall::read:entry { self->fd = args[0]; self->reads = 1; }
syscall::read:return /self->reads && args[0] >= 0/
{
	read__done(curthread->files->fdt->fd[self->fd], args[0]);
}
syscall::read:return { self->reads = 0; }
";

fn probes_of_a_library_fire_with_its_values_and_its_state() -> Verdict {
    if let Some(skip) = crate::machine::no_types() {
        return skip;
    }
    let library = Library::new("files", FILES);
    let file = library.0.join("data");
    std::fs::write(&file, vec![7; 300 * 1000]).unwrap();
    let target = format!("dd if={} of=/dev/null bs=1000", file.display());
    let script = "self int reads; \
         files:::read-done /pid == $target && args[0]->fi_name == \"data\"/ { @[args[0]->fi_name] = sum(args[1]); \
         @n[probename, probeprov] = count(); self->reads = 9; } \
         END { printa(\"%s %@d\\n\", @); printa(\"%s %s %@d\\n\", @n); }";
    let o = dtrace(&["-q", "-L", &library.path(), "-c", &target, "-n", script]).code(0);
    let lines: Vec<&str> = o.out.lines().filter(|l| !l.is_empty()).collect();
    // The last read finds the end.
    assert_eq!(lines, ["data 300000", "read-done files 301"], "{o:?}");
    Pass
}

fn probes_of_one_base_count_what_the_base_counts() -> Verdict {
    let library = Library::new(
        "calls",
        "provider calls { probe call(long n); probe even(); };\n\
         syscall::getppid:entry { self->n++; call(self->n); }\n\
         syscall::getppid:entry /self->n % 2 == 0/ { even(); }\n",
    );
    let script = "syscall::getppid:entry /pid == $target/ { @[\"base\"] = count(); } \
         calls:::even /pid == $target/ { @[probename] = count(); } \
         calls:::call /pid == $target/ { @[probename] = count(); @max[\"most\"] = max(args[0]); } \
         END { printa(\"%s %@d\\n\", @); printa(\"%s %@d\\n\", @max); }";
    let o = dtrace(&["-q", "-L", &library.path(), "-c", &workload("getppid", 20_001), "-n", script]).code(0);
    let mut lines: Vec<&str> = o.out.lines().filter(|l| !l.is_empty()).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["base 20001", "call 20001", "even 10000", "most 20001"], "{o:?}");
    Pass
}

fn a_clause_that_only_assigns_members_of_a_variable_is_used_where_others_read_it() -> Verdict {
    let text = "struct pair { int a; int b; };\nthis struct pair pair;\n\
        provider members { probe sum(int N); };\n\
        syscall::getppid:entry { this->pair.a = 3; }\n\
        syscall::getppid:entry { this->pair.b = 4; }\n\
        syscall::getppid:entry { sum(this->pair.a + this->pair.b); }\n";
    let library = Library::new("members", text);
    let script = "members:::sum /pid == $target/ { printf(\"%d\\n\", args[0]); }";
    let o = dtrace(&["-q", "-L", &library.path(), "-c", &workload("getppid", 2), "-n", script]).code(0);
    assert_eq!(o.out, "7\n7\n\n", "{o:?}");
    Pass
}

/// A provider for each process that calls `add`.
const ADDS: &str = r"
inline int LEAST = 3;
provider adds[pid] {
	probe added(int n, long sum);
};
#pragma D attributes Stable/Stable/Common provider adds provider
self int n;
pid$target:a.out:add:entry { self->n = arg0; }
pid$target:a.out:add:return /self->n >= LEAST/ { added(self->n, arg1); }
";

const CALLS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline, noclone)) long add(int a, long b) { __asm__ volatile(""); return a + b; }
int main(int argc, char **argv)
{
    int least = atoi(argv[1]);
    getchar();
    for (int i = 0; i < 10; i++)
        add(i, least);
    return 0;
}
"#;

fn a_family_of_a_library_has_a_provider_for_each_process() -> Verdict {
    let (_dir, program) = match Programs::new("family", ("cc", CALLS), &["-O2"]) {
        Ok(program) => program,
        Err(verdict) => return verdict,
    };
    let library = Library::new("family", ADDS);
    let mut processes: Vec<_> = ["100", "2000"]
        .map(|least| Command::new(&program).arg(least).stdin(Stdio::piped()).spawn().unwrap())
        .into_iter()
        .collect();
    let [one, two] = [processes[0].id(), processes[1].id()];
    let script = format!(
        "BEGIN {{ printf(\"on\\n\"); }}
        adds{one}:::added {{ @[probeprov, pid] = sum(args[1]); @n = count(); }}
        adds{two}:::added /args[0] > 7/ {{ @[probeprov, pid] = sum(args[1]); @n = count(); }}
        END {{ printa(\"%s %d %@d\\n\", @); printa(\"%@d\\n\", @n); }}"
    );
    let mut tracing =
        start(&["-qL", &library.path(), "-p", &one.to_string(), "-p", &two.to_string(), "-n", &script]);
    printed(&mut tracing);
    for process in &mut processes {
        drop(process.stdin.take());
        process.wait().unwrap();
    }
    let o = finish(tracing).code(0);
    // Arguments from 3 to 9 with 100, and 8 and 9 with 2000.
    for row in [format!("adds{one} {one} {}", 42 + 7 * 100), format!("adds{two} {two} {}", 17 + 2 * 2000)] {
        assert!(o.out.lines().any(|line| line == row), "{row}: {o:?}");
    }
    assert_eq!(o.last_number(), 9, "{o:?}");
    // A process without such a function has no such provider.
    let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
    let o = dtrace(&["-L", &library.path(), "-n", &format!("adds{}:::added", other.id())]);
    other.kill().unwrap();
    other.wait().unwrap();
    let o = o.code(1);
    assert!(o.err.contains("no function \"add\""), "{o:?}");
    Pass
}
