//! Where a command of -c waits until tracing is on.
//!
//! A library and a program that the test compiles mark the moments of a start by system calls: the
//! constructor of the library makes `getpgid`, the one of the program `getsid`, and `main`
//! `getppid`. What is traced of them says where the process waited.

use std::path::Path;
use std::process::Command;

use testing::eventually;

use crate::Verdict::{self, Pass, Skip};
use crate::tool::{LIMIT, Output, dtrace, finish, printed, signal, start, workload};

tests! {
    a_command_waits_before_constructors_after_them_or_at_main
    main_is_found_without_symbols_and_without_pie
    a_static_program_waits_at_its_entry_point
    a_program_of_32_bits_waits_at_its_entry_point
    a_script_and_a_shell_wait_as_their_interpreter
    a_command_that_ends_before_its_moment_is_an_error
    a_constructor_may_execute_another_program_or_stop_itself
    a_command_that_has_not_reached_its_moment_dies_with_the_tracer
    a_set_id_program_is_refused_where_tracing_would_take_its_privileges
    a_program_may_say_where_its_command_waits
}

const LIBRARY: &str = "
#include <unistd.h>
#include <sys/syscall.h>
__attribute__((constructor)) static void constructor(void) { syscall(SYS_getpgid, 0); }
void of_library(void) { }
";

const PROGRAM: &str = "
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
void of_library(void);
__attribute__((constructor)) static void constructor(void)
{
    const char *what = getenv(\"OWN_WHAT\");
    syscall(SYS_getsid, 0);
    if (!what)
        return;
    unsetenv(\"OWN_WHAT\");
    if (!strcmp(what, \"abort\"))
        abort();
    if (!strcmp(what, \"exit\"))
        _exit(5);
    printf(\"%d\\n\", getpid());
    fflush(stdout);
    if (!strcmp(what, \"stop\"))
        raise(SIGSTOP);
    else if (!strcmp(what, \"wait\"))
        for (;;)
            pause();
    else
        execl(what, what, (char *)0);
}
int main(void) { of_library(); syscall(SYS_getppid); return 0; }
";

/// Ends after `getppid`, without any library.
const START_32: &str = "
void _start(void) { __asm__ volatile(\"mov $64, %eax; int $0x80; mov $1, %eax; xor %ebx, %ebx; int $0x80\"); }
";

/// A directory of programs, which is removed at the end.
struct Programs(testing::dir::Dir);

impl Programs {
    fn new(name: &str) -> Programs {
        let dir = testing::dir::Dir::new(&format!("evaltime-{name}"));
        std::fs::write(dir.join("library.c"), LIBRARY).unwrap();
        std::fs::write(dir.join("program.c"), PROGRAM).unwrap();
        std::fs::write(dir.join("start.c"), START_32).unwrap();
        Programs(dir)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Compiles a program. The error says why that is impossible.
    fn compile(&self, name: &str, words: &[&str]) -> Result<String, String> {
        let mut cc = Command::new("cc");
        let done = cc.current_dir(&self.0).args(["-o", name]).args(words).output();
        match done {
            Err(e) => Err(format!("no C compiler: {e}")),
            Ok(o) if o.status.success() => Ok(self.path(name)),
            Ok(o) => {
                let says = String::from_utf8_lossy(&o.stderr);
                Err(format!("no C compiler for this: {}", says.lines().last().unwrap_or_default()))
            }
        }
    }

    /// Compiles the program with its library, which has a constructor.
    fn dynamic(&self, name: &str, words: &[&str]) -> Result<String, String> {
        if !Path::new(&self.path("libown.so")).exists() {
            self.compile("libown.so", &["-shared", "-fPIC", "library.c"])?;
        }
        let run_path = format!("-Wl,-rpath,{}", self.0.display());
        self.compile(name, &[&["program.c", "-L.", "-lown", &run_path], words].concat())
    }
}

/// The value of a `Result`, or the end of a test that is skipped.
macro_rules! compiled {
    ($built:expr) => {
        match $built {
            Ok(path) => path,
            Err(why) => return Skip(why),
        }
    };
}

/// The calls by which a moment is recognized.
const MARKS: &str = "syscall::openat:entry, syscall::getpgid:entry, syscall::getsid:entry, syscall::getppid:entry \
                     /pid == $target/ { printf(\"%s \", probefunc); }";

/// Runs a command that waits at a moment; the calls that it makes from then on.
fn calls(moment: &str, command: &str, more: &[&str]) -> (String, Output) {
    let evaltime = format!("evaltime={moment}");
    let o = dtrace(&[more, &["-x", &evaltime, "-qc", command, "-n", MARKS]].concat()).code(0);
    // The program may have printed its process id.
    let calls: Vec<&str> = o.out.split_whitespace().filter(|w| w.parse::<u32>().is_err()).collect();
    (calls.join(" "), o)
}

fn a_command_waits_before_constructors_after_them_or_at_main() -> Verdict {
    let programs = Programs::new("moments");
    let program = compiled!(programs.dynamic("program", &[]));
    let (seen, o) = calls("exec", &program, &[]);
    // The dynamic linker opens the libraries.
    assert!(seen.starts_with("openat openat"), "{o:?}");
    assert!(seen.ends_with("openat getpgid getsid getppid"), "{o:?}");
    for (moment, want) in
        [("preinit", "getpgid getsid getppid"), ("postinit", "getsid getppid"), ("main", "getppid")]
    {
        let (seen, o) = calls(moment, &program, &[]);
        assert_eq!((&*seen, &*o.err), (want, ""), "{moment}: {o:?}");
    }
    // The default, and what BEGIN sees: the libraries are mapped when it fires.
    let script = "BEGIN { printf(\"first \"); }";
    let o = dtrace(&["-qc", &program, "-n", script, "-n", MARKS]).code(0);
    assert_eq!(o.out.trim(), "first getpgid getsid getppid", "{o:?}");
    Pass
}

fn main_is_found_without_symbols_and_without_pie() -> Verdict {
    let programs = Programs::new("main");
    for (name, words) in [
        ("stripped", &["-s"][..]),
        ("fixed", &["-no-pie"]),
        ("stripped-fixed", &["-s", "-no-pie"]),
        ("loaded", &["-s", "-Wl,--no-relax"]),
    ] {
        let program = compiled!(programs.dynamic(name, words));
        let (seen, o) = calls("main", &program, &[]);
        assert_eq!((&*seen, &*o.err), ("getppid", ""), "{name}: {o:?}");
    }
    Pass
}

fn a_static_program_waits_at_its_entry_point() -> Verdict {
    let programs = Programs::new("static");
    let words = ["program.c", "library.c", "-s", "-static"];
    let program = compiled!(programs.compile("program", &words));
    for moment in ["exec", "preinit", "postinit"] {
        let (seen, o) = calls(moment, &program, &[]);
        assert!(seen.ends_with("getppid") && seen.contains("getsid"), "{moment}: {o:?}");
    }
    let (seen, o) = calls("main", &program, &[]);
    assert_eq!((&*seen, &*o.err), ("getppid", ""), "{o:?}");
    Pass
}

fn a_program_of_32_bits_waits_at_its_entry_point() -> Verdict {
    let programs = Programs::new("narrow");
    let words = ["start.c", "-m32", "-nostdlib", "-static", "-fno-pic", "-no-pie"];
    let program = compiled!(programs.compile("program", &words));
    if let Err(e) = Command::new(&program).status() {
        return Skip(format!("no programs of 32 bits: {e}"));
    }
    for moment in ["exec", "preinit", "postinit"] {
        let (seen, o) = calls(moment, &program, &[]);
        assert_eq!((&*seen, &*o.err), ("getppid", ""), "{moment}: {o:?}");
    }
    let (seen, o) = calls("main", &program, &[]);
    assert_eq!(seen, "getppid", "{o:?}");
    assert!(o.err.ends_with(": its function main is not known, so it waits at its entry point\n"), "{o:?}");
    Pass
}

fn a_script_and_a_shell_wait_as_their_interpreter() -> Verdict {
    let programs = Programs::new("script");
    let script = programs.path("script");
    std::fs::write(&script, "#!/bin/sh\nexit 3\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, executable).unwrap();
    let shell = programs.path("shell");
    std::fs::write(&shell, format!("exec {script}\n")).unwrap();
    let ends = "syscall::exit_group:entry /pid == $target/ { printf(\"%s %d\", execname, arg0); }";
    for moment in ["exec", "preinit", "postinit", "main"] {
        let evaltime = format!("evaltime={moment}");
        let o = dtrace(&["-x", &evaltime, "-qc", &script, "-n", ends]).code(0);
        assert_eq!(o.out.trim(), "script 3", "{moment}: {o:?}");
        // A shell is the target, also when it executes another program.
        let o = dtrace(&["-x", &evaltime, "-qc", &format!("sh {shell}"), "-n", ends]).code(0);
        assert_eq!(o.out.trim(), "script 3", "{moment}: {o:?}");
    }
    Pass
}

fn a_command_that_ends_before_its_moment_is_an_error() -> Verdict {
    let programs = Programs::new("ends");
    let program = compiled!(programs.dynamic("program", &[]));
    for (what, says) in [("abort", "process died from SIGABRT"), ("exit", "process exited with status 5")] {
        let set = format!("setenv=OWN_WHAT={what}");
        let o = dtrace(&["-x", &set, "-x", "evaltime=main", "-c", &program, "-n", "BEGIN"]).code(1);
        assert!(o.err.starts_with("dtrace: failed to control pid "), "{o:?}");
        assert!(o.err.ends_with(&format!(": {says}\n")) && o.out.is_empty(), "{o:?}");
        // At an earlier moment it is traced to its end.
        dtrace(&["-x", &set, "-c", &program, "-n", "BEGIN"]).code(0);
    }
    // A library is missing.
    std::fs::remove_file(programs.path("libown.so")).unwrap();
    let o = dtrace(&["-c", &program, "-n", "BEGIN"]).code(1);
    assert!(o.err.contains("libown.so: cannot open shared object file"), "{o:?}");
    assert!(o.err.contains(": process exited with status 127\n"), "{o:?}");
    Pass
}

fn a_constructor_may_execute_another_program_or_stop_itself() -> Verdict {
    let programs = Programs::new("another");
    let program = compiled!(programs.dynamic("program", &[]));
    let another = compiled!(programs.dynamic("another", &["-s", "-no-pie"]));
    let set = format!("setenv=OWN_WHAT={another}");
    for (moment, want) in [("preinit", "getpgid getsid openat"), ("main", "getppid")] {
        let (seen, o) = calls(moment, &program, &["-x", &set]);
        assert!(seen.starts_with(want) && seen.ends_with("getppid"), "{moment}: {o:?}");
        assert!(moment != "main" || seen == want, "{o:?}");
    }
    let set = ["-x", "setenv=OWN_WHAT=stop", "-x", "evaltime=main"];
    let mut tracer = start(&[&set[..], &["-qc", &program, "-n", MARKS]].concat());
    let pid = first_line(&mut tracer);
    let stat = format!("/proc/{pid}/stat");
    eventually("the end of the command", LIMIT, || {
        std::fs::read_to_string(&stat).is_ok_and(|s| s.contains(") t ") || s.contains(") T "))
    });
    // SAFETY: the process is not reaped before its tracer has ended.
    unsafe { libc::kill(pid, libc::SIGCONT) };
    let o = finish(tracer).code(0);
    assert_eq!(o.out.trim(), "getppid", "{o:?}");
    Pass
}

/// The process id that the program prints.
fn first_line(tracer: &mut std::process::Child) -> i32 {
    printed(tracer);
    let mut line = Vec::new();
    let pipe = tracer.stdout.as_mut().unwrap();
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        assert_eq!(std::io::Read::read(pipe, &mut byte).unwrap(), 1, "{line:?}");
        line.extend(byte);
    }
    String::from_utf8(line).unwrap().trim().parse().unwrap()
}

fn a_command_that_has_not_reached_its_moment_dies_with_the_tracer() -> Verdict {
    let programs = Programs::new("dies");
    let program = compiled!(programs.dynamic("program", &[]));
    for end in [libc::SIGKILL, libc::SIGINT] {
        let set = ["-x", "setenv=OWN_WHAT=wait", "-x", "evaltime=main"];
        let mut tracer = start(&[&set[..], &["-qc", &program, "-n", "BEGIN"]].concat());
        let pid = first_line(&mut tracer);
        signal(&tracer, end);
        let o = finish(tracer);
        assert_eq!(o.code, None, "{o:?}");
        let state = format!("/proc/{pid}/stat");
        // Nobody may reap it in a guest.
        eventually("the end of the command", LIMIT, || {
            std::fs::read_to_string(&state).map_or(true, |s| s.contains(") Z "))
        });
    }
    Pass
}

/// True for a file system on which set-id programs are plain ones.
fn has_no_set_id(path: &Path) -> bool {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: a string that lives across the call; the kernel fills the struct.
    unsafe {
        let mut system: libc::statvfs = std::mem::zeroed();
        libc::statvfs(path.as_ptr(), &mut system) == 0 && system.f_flag & libc::ST_NOSUID != 0
    }
}

fn a_set_id_program_is_refused_where_tracing_would_take_its_privileges() -> Verdict {
    let programs = Programs::new("set-id");
    let program = programs.path("set-id");
    std::fs::copy("/bin/true", &program).unwrap();
    if has_no_set_id(&programs.0) {
        return Skip("set-id programs have no effect in the directory for temporary files".into());
    }
    let set = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
    std::os::unix::fs::chown(&program, Some(1), Some(1)).unwrap();
    std::fs::set_permissions(&program, set).unwrap();
    // With all capabilities it has its privileges.
    let script = "syscall::exit_group:entry /pid == $target/ { trace(uid); }";
    let o = dtrace(&["-qc", &program, "-n", script]).code(0);
    assert!(o.err.is_empty(), "{o:?}");
    let drop = "-sys_ptrace";
    let wrapper = ["setpriv", "--inh-caps", drop, "--bounding-set", drop, "--no-new-privs"];
    let plain = &wrapper[..wrapper.len() - 1];
    let words = ["-qc", program.as_str(), "-n", "BEGIN"];
    let Some(o) = crate::tool::under(plain, &words) else { return Skip("no command setpriv".into()) };
    let o = o.code(1);
    let says = format!(
        "dtrace: failed to execute {program}: it is a set-id program, and tracing it needs CAP_SYS_PTRACE\n"
    );
    assert_eq!(o.err, says);
    // Nobody gives the program privileges.
    let o = crate::tool::under(&wrapper, &words).unwrap().code(0);
    assert!(o.err.is_empty(), "{o:?}");
    Pass
}

fn a_program_may_say_where_its_command_waits() -> Verdict {
    let programs = Programs::new("pragma");
    let program = compiled!(programs.dynamic("program", &[]));
    for (option, words, want) in [
        ("evaltime=main", &[][..], "getppid"),
        ("evaltime=postinit", &["-x", "evaltime=main"], "getsid getppid"),
        ("quiet", &["-x", "evaltime=main"], "getppid"),
    ] {
        let script = format!("#pragma D option {option}\n{MARKS}");
        let o = dtrace(&[words, &["-qc", &program, "-n", &script]].concat()).code(0);
        assert_eq!((o.out.trim(), &*o.err), (want, ""), "{option} {words:?}");
    }
    // Where there is no command, nothing waits.
    dtrace(&["-qn", "#pragma D option evaltime=main\nBEGIN { exit(0); }"]).code(0);
    let o = dtrace(&["-qc", &program, "-n", "#pragma D option evaltime=start\nBEGIN { exit(0); }"]).code(1);
    let says = "failed to set option 'evaltime' to 'start': Invalid value for specified option";
    assert!(o.err.contains(says), "{o:?}");
    let o = dtrace(&["-x", "evaltime=start", "-qc", &workload("exit", 0), "-n", "BEGIN"]).code(1);
    assert!(o.err.contains("evaltime"), "{o:?}");
    // The process waits before the preprocessor has said which lines there are.
    let dir = testing::dir::Dir::below(&testing::memory_dir(), "late").unwrap();
    let script = dir.join("late.d").display().to_string();
    std::fs::write(&script, format!("#ifdef NEVER\n#pragma D option evaltime=main\n#endif\n{MARKS}"))
        .unwrap();
    let o = dtrace(&["-C", "-qc", &program, "-s", &script]).code(1);
    assert!(
        o.err.contains("only behind the preprocessor is too late for the process; use -x evaltime"),
        "{o:?}"
    );
    Pass
}
