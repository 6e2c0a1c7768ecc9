//! Probes that D libraries derive from others, on the running kernel.

use crate::Verdict::{self, Pass};
use crate::tool::{dtrace, workload};

tests! {
    probes_of_a_library_fire_with_its_values_and_its_state
    probes_of_one_base_count_what_the_base_counts
    a_clause_that_only_assigns_members_of_a_variable_is_used_where_others_read_it
}

/// A directory with one library.
pub(crate) struct Library(std::path::PathBuf);

impl Library {
    pub(crate) fn new(name: &str, text: &str) -> Library {
        let path = std::env::temp_dir().join(format!("dtrace-library-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("mine.d"), text).unwrap();
        Library(path)
    }

    pub(crate) fn path(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The example of the guide.
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
