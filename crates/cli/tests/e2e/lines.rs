//! Functions that were put inline, and source lines: of the test's own program, so every line is
//! known.

use std::path::PathBuf;
use std::process::Command;

use crate::Verdict::{self, Pass, Skip};
use crate::tool::Output;

tests! {
    inlined_functions_are_frames_of_the_stacks_they_are_in
    addresses_have_their_source_lines
    lines_of_separate_shared_and_compressed_debug_information_are_shown
    flame_graphs_show_inlined_functions_as_such
}

const PROGRAM: &str = "#include <unistd.h>
#define INLINE static inline __attribute__((always_inline))
volatile int x;
INLINE void inner(int n)
{
    x += n;
    getppid();
    x++;
}
INLINE void middle(int n)
{
    inner(n);
    x++;
}
__attribute__((noinline)) void outer(int n)
{
    middle(n);
    x--;
}
int main(void)
{
    for (volatile int i = 0; i < 3; i++)
        outer(i);
    return 0;
}
";

/// An unoptimized reader may need seconds.
fn dtrace(words: &[&str]) -> Output {
    crate::tool::dtrace(&[&["-xsymtimeout=60s"], words].concat())
}

/// A directory with the program, which is removed at the end.
struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Dir {
    /// `Err`: the test is skipped.
    fn new(name: &str, words: &[&str]) -> Result<Dir, Verdict> {
        let dir = std::env::temp_dir().join(format!("dt-lines-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("p.c"), PROGRAM).unwrap();
        let dir = Dir(dir);
        // Static: the debug information of a library, where it is installed, would take an
        // unoptimized reader seconds. The option changes nothing, but it names the directory: what
        // was compiled in another one is no use here (`xtask` keeps what tests compile).
        let here = format!("-fdebug-prefix-map={0}={0}", dir.0.display());
        dir.run(&[&["cc", "-O2", "-static", "-o", "program", "p.c", &here], words].concat())?;
        Ok(dir)
    }

    fn run(&self, words: &[&str]) -> Result<(), Verdict> {
        match Command::new(words[0]).args(&words[1..]).current_dir(&self.0).output() {
            Ok(o) if o.status.success() => Ok(()),
            Ok(o) => panic!("{words:?}: {o:?}"),
            Err(e) => Err(Skip(format!("no {}: {e}", words[0]))),
        }
    }

    fn path(&self, file: &str) -> String {
        self.0.join(file).display().to_string()
    }

    /// The frames of the program, without its directory.
    fn frames(&self, options: &[&str]) -> Vec<String> {
        let script = "syscall::getppid:entry /pid == $target/ { ustack(); exit(0); }";
        let o = dtrace(&[options, &["-qc", &self.path("program"), "-n", script]].concat()).code(0);
        self.of(&o)
    }

    fn of(&self, o: &Output) -> Vec<String> {
        let dir = format!("{}/", self.0.display());
        let is_libc = |line: &str| ["_start", "getppid"].iter().any(|name| line.contains(name));
        let own = |line: &&str| line.starts_with("program`") && !is_libc(line);
        o.out.lines().map(str::trim).filter(own).map(|line| without_offset(&line.replace(&dir, ""))).collect()
    }
}

/// Compilers choose the offsets.
fn without_offset(frame: &str) -> String {
    let Some((name, rest)) = frame.split_once("+0x") else { return frame.into() };
    format!("{name}{}", rest.trim_start_matches(|c: char| c.is_ascii_hexdigit()))
}

/// What was built, or the end of a test that is skipped.
macro_rules! built {
    ($built:expr) => {
        match $built {
            Ok(program) => program,
            Err(verdict) => return verdict,
        }
    };
}

const INLINES: [&str; 4] =
    ["program`inner [inlined]", "program`middle [inlined]", "program`outer", "program`main"];

const BOTH: [&str; 4] = [
    "program`inner [inlined] (p.c:7)",
    "program`middle [inlined] (p.c:12)",
    "program`outer (p.c:17)",
    "program`main (p.c:23)",
];

fn inlined_functions_are_frames_of_the_stacks_they_are_in() -> Verdict {
    let dir = built!(Dir::new("inlines", &["-g"]));
    assert_eq!(dir.frames(&[]), ["program`outer", "program`main"]);
    assert_eq!(dir.frames(&["-xinlines"]), INLINES);
    assert_eq!(dir.frames(&["-xinlines", "-xsrclines"]), BOTH);
    // Keys of aggregations, whose frames are looked up together.
    let script = "syscall::getppid:entry /pid == $target/ { @[ustack()] = count(); }";
    let program = dir.path("program");
    let o = dtrace(&["-xinlines", "-xsrclines", "-qc", &program, "-n", script]).code(0);
    assert_eq!(dir.of(&o), BOTH, "{o:?}");
    let o = dtrace(&["-xinlines", "-xsrclines", "--format=json", "-qc", &program, "-n", script]).code(0);
    let frame = |name: &str, line: u32| {
        format!(
            "\"symbol\":\"{name}\",\"offset\":0,\"file\":\"{}\",\"line\":{line},\"inlined\":true",
            dir.path("p.c")
        )
    };
    assert!(o.out.contains(&frame("inner", 7)) && o.out.contains(&frame("middle", 12)), "{o:?}");
    // Addresses as numbers have neither.
    let o = dtrace(&["-xinlines", "-xsrclines", "-xnoresolve", "-qc", &program, "-n", script]).code(0);
    assert!(!o.out.contains("inner") && !o.out.contains("p.c"), "{o:?}");
    Pass
}

fn addresses_have_their_source_lines() -> Verdict {
    let dir = built!(Dir::new("lines", &["-g"]));
    // Without the inlined ones, the line is that of the code.
    assert_eq!(dir.frames(&["-xsrclines"]), ["program`outer (p.c:7)", "program`main (p.c:23)"]);
    // The address of an instruction is looked up as it is: this one is behind the call.
    let script =
        "syscall::getppid:entry /pid == $target/ { printf(\"%A\\n\", ucaller); uaddr(ucaller); exit(0); }";
    let program = dir.path("program");
    let o = dtrace(&["-xsrclines", "-qc", &program, "-n", script]).code(0);
    assert_eq!(dir.of(&o), ["program`outer (p.c:8)"; 2], "{o:?}");
    let script = "syscall::getppid:entry /pid == $target/ { usym(ucaller); exit(0); }";
    let o = dtrace(&["-xsrclines", "-qc", &program, "-n", script]).code(0);
    assert_eq!(o.out.trim(), "program`outer", "{o:?}");
    Pass
}

fn lines_of_separate_shared_and_compressed_debug_information_are_shown() -> Verdict {
    let dir = built!(Dir::new("places", &["-g", "-Wl,--build-id"]));
    let check = |what: &str| assert_eq!(dir.frames(&["-xinlines", "-xsrclines"]), BOTH, "{what}");
    built!(dir.run(&["cc", "-O1", "-g", "-o", "other", "p.c"]));
    std::fs::copy(dir.path("program"), dir.path("whole")).unwrap();
    if dir.run(&["dwz", "-m", "shared.debug", "program", "other"]).is_ok() {
        check("dwz");
    }
    for kind in ["zlib", "zstd"] {
        std::fs::copy(dir.path("whole"), dir.path("program")).unwrap();
        let option = format!("--compress-debug-sections={kind}");
        let o = Command::new("objcopy").args([&option, "program"]).current_dir(&dir.0).output();
        if o.is_ok_and(|o| o.status.success()) {
            check(kind);
        }
    }
    built!(dir.run(&["objcopy", "--only-keep-debug", "whole", "program.debug"]));
    std::fs::copy(dir.path("whole"), dir.path("program")).unwrap();
    built!(dir.run(&["strip", "program"]));
    built!(dir.run(&["objcopy", "--add-gnu-debuglink=program.debug", "program"]));
    check("a debug file");
    // Without debug information there are neither, and no complaint.
    std::fs::remove_file(dir.path("program.debug")).unwrap();
    let script = "syscall::getppid:entry /pid == $target/ { ustack(); exit(0); }";
    let o = dtrace(&["-xinlines", "-xsrclines", "-qc", &dir.path("program"), "-n", script]).code(0);
    assert!(!o.out.contains("p.c") && !o.out.contains("inlined") && o.err.is_empty(), "{o:?}");
    Pass
}

fn flame_graphs_show_inlined_functions_as_such() -> Verdict {
    let dir = built!(Dir::new("flame", &["-g"]));
    let script = "syscall::getppid:entry /pid == $target/ { @[ustack()] = count(); }";
    let (folded, picture) = (dir.path("x.folded"), dir.path("x.svg"));
    for file in [&folded, &picture] {
        dtrace(&["-xinlines", "--flame", file, "-qc", &dir.path("program"), "-n", script]).code(0);
    }
    let text = std::fs::read_to_string(folded).unwrap();
    let stack = "program`main;program`outer;program`middle_[i];program`inner_[i];";
    assert!(text.contains(stack) && text.trim_end().ends_with(" 3"), "{text}");
    let text = std::fs::read_to_string(picture).unwrap();
    assert!(text.contains("program`inner (process, inlined): 3, 100") && text.contains("put inline"));
    Pass
}
