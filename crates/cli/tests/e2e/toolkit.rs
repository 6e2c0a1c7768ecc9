//! The tools of `scripts/`: how a test runs one, and what all of them have in common.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::Verdict::{self, Pass, Skip};
use crate::tool::{Output, binary, dtrace, finish, printed, signal};

tests! {
    every_tool_prints_its_usage_and_refuses_other_options
    process_ids_that_are_no_numbers_are_refused_by_tools
    names_with_characters_of_the_shell_are_plain_text_to_tools
    errors_of_a_tool_name_its_file_and_line
    every_option_of_every_tool_compiles
    a_tool_without_its_probe_says_so_and_ends_with_status_1
    a_tool_ends_quietly_when_its_reader_does
    every_tool_is_in_the_manual_page_and_the_guide
    an_installed_dtrace_uses_the_libraries_and_the_tools_of_its_prefix
}

pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The tools, by name.
pub(crate) fn tools() -> Vec<String> {
    let entries = std::fs::read_dir(Path::new(ROOT).join("scripts")).unwrap();
    let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|n| !n.contains('.')).collect();
    names.sort();
    names
}

fn text_of(tool: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join("scripts").join(tool)).unwrap()
}

/// A tool that takes options of its own.
fn has_options(tool: &str) -> bool {
    text_of(tool).starts_with("#!/bin/sh\n")
}

/// The command of a tool, for which `dtrace` is the binary under test.
pub(crate) fn command(tool: &str, words: &[&str]) -> Command {
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".into());
    let mut command = Command::new(Path::new(ROOT).join("scripts").join(tool));
    command.args(words).env("PATH", format!("{}:{path}", bin().display()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A directory in which the binary under test is called `dtrace`.
fn bin() -> PathBuf {
    binary().parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Runs a tool to its end.
#[track_caller]
pub(crate) fn run(tool: &str, words: &[&str]) -> Output {
    finish(command(tool, words).spawn().unwrap())
}

/// A tool that traces.
pub(crate) struct Tracing(Child);

/// Starts a tool and waits until it traces: each prints something at its beginning.
#[track_caller]
pub(crate) fn start(tool: &str, words: &[&str]) -> Tracing {
    let mut child = command(tool, words).spawn().unwrap();
    printed(&mut child);
    Tracing(child)
}

impl Tracing {
    /// Waits for a tool that ends by itself.
    #[track_caller]
    pub(crate) fn wait(self) -> Output {
        finish(self.0)
    }

    /// The process of its `dtrace`, which the tool becomes.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Ends the tool as ^C does.
    #[track_caller]
    pub(crate) fn end(self) -> Output {
        signal(&self.0, libc::SIGINT);
        finish(self.0)
    }
}

/// A program with a name of its own, by which a tool knows it.
pub(crate) struct Program {
    pub(crate) dir: PathBuf,
    pub(crate) name: String,
}

impl Program {
    /// Another name of a program of the system, or of this one.
    pub(crate) fn new(word: &str, of: Option<&str>) -> Program {
        let name = format!("{word}{}", std::process::id());
        let dir = std::env::temp_dir().join(format!("dt-toolkit-{name}"));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let dir = dir.canonicalize().unwrap();
        let file = of.map_or_else(|| std::env::current_exe().unwrap(), PathBuf::from);
        std::os::unix::fs::symlink(file, dir.join(&name)).unwrap();
        Program { dir, name }
    }

    /// A shell of this name.
    pub(crate) fn shell(word: &str) -> Program {
        Program::new(word, Some("/bin/sh"))
    }

    /// A workload of the tests under this name.
    pub(crate) fn workload(word: &str) -> Program {
        Program::new(word, None)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// Runs it to its end, whatever that is. Returns its process id.
    pub(crate) fn run(&self, words: &[&str]) -> u32 {
        let mut child = self.command(words).spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.path());
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A process that can be chosen by its number before it does anything.
pub(crate) struct Held(Child);

impl Held {
    /// A shell that waits.
    pub(crate) fn new(commands: &str) -> Held {
        let script = format!("read x; {commands}");
        Held(Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap())
    }

    pub(crate) fn id(&self) -> String {
        self.0.id().to_string()
    }

    /// Lets it go, and waits for its end.
    pub(crate) fn run(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

/// The lines that contain a text, with single blanks between their words.
pub(crate) fn lines_with(o: &Output, text: &str) -> Vec<String> {
    let of = o.out.lines().filter(|l| l.contains(text));
    of.map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// The lines, with single blanks between their words, that contain a text then.
pub(crate) fn rows_with(o: &Output, text: &str) -> Vec<String> {
    let mut rows = lines_with(o, "");
    rows.retain(|row| row.contains(text));
    rows
}

/// The rows of the distribution below the line that contains a text: value and count, where the
/// count is not 0.
pub(crate) fn distribution(o: &Output, text: &str) -> Vec<(String, i64)> {
    let rows = o.out.lines().skip_while(|l| !l.contains(text)).skip(1);
    let rows = rows.skip_while(|l| !l.contains("Distribution")).skip(1);
    let row = |l: &str| {
        let (value, rest) = l.split_once('|')?;
        let count = rest.split_whitespace().last()?.parse().ok()?;
        Some((value.trim().to_string(), count))
    };
    rows.map_while(row).filter(|(_, n)| *n != 0).collect()
}

fn every_tool_prints_its_usage_and_refuses_other_options() -> Verdict {
    let with_options: Vec<String> = tools().into_iter().filter(|t| has_options(t)).collect();
    assert!(!with_options.is_empty());
    for tool in with_options {
        let usage = run(&tool, &["-h"]).code(0);
        assert!(usage.out.starts_with(&format!("usage: {tool}")), "{usage:?}");
        assert_eq!(usage.err, "");
        let o = run(&tool, &["-y"]).code(2);
        assert_eq!(o.out, "");
        assert_eq!(o.err, format!("{tool}: unknown option -y\n{}", usage.out));
    }
    Pass
}

fn process_ids_that_are_no_numbers_are_refused_by_tools() -> Verdict {
    for tool in tools().iter().filter(|t| has_options(t) && text_of(t).contains("pid=$OPTARG")) {
        for word in ["x", "", "-1", "1x", "010", "99999999999", "1 2", "$(id)"] {
            let o = run(tool, &["-p", word]).code(2);
            assert!(
                o.err.starts_with(&format!("{tool}: the process id must be a number: {word}\n")),
                "{o:?}"
            );
        }
    }
    Pass
}

fn names_with_characters_of_the_shell_are_plain_text_to_tools() -> Verdict {
    let made = std::env::temp_dir().join(format!("dt-made-{}", std::process::id()));
    let evil = format!("a\"b'$(touch {})\\", made.display());
    let program = Program::shell("tk");
    // What the shell and the compiler make of a name is the same on each kernel. An emulated CPU
    // verifies the programs of a tool for seconds, so there only the last tool traces.
    let only_compiles = crate::machine::is_guest();
    if only_compiles {
        write_compiler(&program.dir);
    }
    for tool in tools().iter().filter(|t| has_options(t) && text_of(t).contains("named=1; name=$(printf")) {
        let option = if text_of(tool).contains("n) named=1") { "-n" } else { "-c" };
        if only_compiles {
            compiles(&program.dir, tool, &[option, &evil]);
        } else {
            let o = start(tool, &[option, &evil]).end().code(0);
            assert!(o.out.lines().count() >= 1, "{tool}: {o:?}");
        }
        assert!(!made.exists(), "{tool}");
    }
    // The file of a program with such a name.
    let name = "x\"$(y)'";
    let odd = program.dir.join(name);
    std::os::unix::fs::symlink("/bin/sh", &odd).unwrap();
    let tracing = start("execsnoop", &["-c", name]);
    Command::new(&odd).args(["-c", "exit 0"]).status().unwrap();
    let o = tracing.end().code(0);
    assert_eq!(lines_with(&o, "-c exit 0").len(), 1, "{o:?}");
    Pass
}

fn errors_of_a_tool_name_its_file_and_line() -> Verdict {
    let program = Program::shell("tk");
    let file = program.dir.join("broken");
    std::fs::write(&file, text_of("opensnoop") + "BEGIN { trace(no_such_name); }\n").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let line = text_of("opensnoop").lines().count() + 1;
    let mut command = command("opensnoop", &[]);
    let path =
        command.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, v)| v).unwrap().to_os_string();
    command = Command::new(&file);
    command.env("PATH", path).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let o = finish(command.spawn().unwrap()).code(1);
    assert!(o.err.contains(&format!("{}:{line}:15", file.display())), "{o:?}");
    Pass
}

/// Makes a `dtrace` that only compiles.
pub(crate) fn write_compiler(dir: &Path) {
    let wrapper = dir.join("dtrace");
    std::fs::write(&wrapper, format!("#!/bin/sh\nexec {} -e \"$@\"\n", binary().display())).unwrap();
    std::fs::set_permissions(&wrapper, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

/// Whether a tool compiles with these words, or lacks a probe that this kernel does not have.
fn compiles(bin: &Path, tool: &str, words: &[&str]) {
    let mut command = command(tool, words);
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    let o = finish(command.spawn().unwrap());
    let lacks_a_probe = o.err.contains("does not match any probes: this kernel");
    assert!(
        o.code == Some(0) && o.err.is_empty() || o.code == Some(1) && lacks_a_probe,
        "{tool} {words:?}: {o:?}"
    );
}

/// What tools need besides their options.
const OPERANDS: [(&str, &[&str]); 6] = [
    ("argdist", &["syscall::read:entry", "arg2"]),
    ("funccount", &["syscall::read:entry"]),
    ("funclatency", &["syscall::read:entry"]),
    ("lastwords", &["a\"b"]),
    ("stackcount", &["syscall::read:entry"]),
    ("trace", &["syscall::read:entry"]),
];

/// A tool that traces a process, which must be given.
fn has_target(text: &str) -> bool {
    let usage = text.lines().find(|l| l.starts_with("usage: ")).unwrap_or_default();
    text.contains("-p $pid") || usage.contains(" -p pid") && !usage.contains("[-p pid]")
}

fn every_option_of_every_tool_compiles() -> Verdict {
    if let Some(skip) = crate::machine::no_types() {
        return skip;
    }
    let program = Program::shell("tk");
    write_compiler(&program.dir);
    // All options of a tool at once. What is traced must be given to some.
    for tool in tools() {
        let text = text_of(&tool);
        let needed = has_target(&text);
        // These need a process that has what they probe: their own tests compile them.
        if ["bashreadline", "dbslower", "sslsniff"].contains(&&*tool) {
            continue;
        }
        let usage = text.lines().skip_while(|l| !l.starts_with("usage: ")).take_while(|l| *l != "END");
        let mut words = Vec::new();
        for line in usage.filter_map(|l| l.strip_prefix("  -")) {
            let value = match line[1..].strip_prefix(' ').and_then(|l| l.split(' ').next()) {
                None | Some("") => None,
                Some("name" | "call") => Some("a\"b"),
                Some("path") => Some("/x"),
                Some("command") => Some("/bin/true"),
                Some("file") => Some("libc"),
                Some("size") => Some("1m"),
                Some("option") => Some("switchrate=1s"),
                Some(_) => Some("5"),
            };
            if needed && value.is_some() && ["p", "n", "c"].contains(&&line[..1]) {
                continue;
            }
            words.push(format!("-{}", &line[..1]));
            words.extend(value.map(String::from));
        }
        if needed {
            words.extend(["-p".into(), std::process::id().to_string()]);
        }
        let operands = OPERANDS.iter().filter(|(name, _)| *name == tool).flat_map(|(_, o)| *o);
        let words: Vec<&str> = words.iter().map(String::as_str).chain(operands.copied()).collect();
        compiles(&program.dir, &tool, &words);
    }
    Pass
}

fn a_tool_without_its_probe_says_so_and_ends_with_status_1() -> Verdict {
    let program = Program::shell("tk");
    let file = program.dir.join("biotop");
    std::fs::write(&file, text_of("biotop").replace("io:::done", "io:::nothing")).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", bin().display());
    let mut command = Command::new(&file);
    command.env("PATH", path).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let o = finish(command.spawn().unwrap()).code(1);
    assert!(o.err.starts_with("dtrace: failed to compile script ") && o.out.is_empty(), "{o:?}");
    assert!(o.err.lines().next().unwrap().contains("io:::nothing does not match any probes"), "{o:?}");
    Pass
}

fn a_tool_ends_quietly_when_its_reader_does() -> Verdict {
    let program = Program::workload("tk");
    let mut tracing = start("opensnoop", &["-n", &program.name]);
    // The reader ends.
    drop(tracing.0.stdout.take());
    let mut workload = program.command(&["--workload", "opens", "100000000"]).spawn().unwrap();
    let o = finish(tracing.0);
    let _ = workload.kill();
    let _ = workload.wait();
    assert_eq!(o.err, "", "{o:?}");
    Pass
}

fn every_tool_is_in_the_manual_page_and_the_guide() -> Verdict {
    let read = |name: &str| std::fs::read_to_string(Path::new(ROOT).join(name)).unwrap();
    let (page, chapter) = (read("docs/dtrace-toolkit.1"), read("docs/book/src/which-tool.md"));
    for tool in tools() {
        let start = format!(".SS {tool}\n");
        let section = page.split_once(&start).map(|(_, rest)| rest.split("\n.S").next().unwrap_or(rest));
        let Some(section) = section else { panic!("{tool} has no section in the manual page") };
        assert!(chapter.contains(&format!("`{tool}`")), "{tool} answers no question in the book");
        if !has_options(&tool) {
            continue;
        }
        for line in run(&tool, &["-h"]).out.lines().filter_map(|l| l.strip_prefix("  -")) {
            let option = format!("\\fB\\-{}\\fR", &line[..1]);
            assert!(section.contains(&option), "{tool}: the manual page lacks -{line}");
        }
    }
    let mut ran = 0;
    for words in [&["mandoc", "-Tlint", "-Wwarning"][..], &["groff", "-man", "-ww", "-Tutf8"]] {
        let page = Path::new(ROOT).join("docs/dtrace-toolkit.1");
        let Ok(o) = Command::new(words[0]).args(&words[1..]).arg(page).output() else { continue };
        let warnings = if words[0] == "mandoc" { &o.stdout } else { &o.stderr };
        assert!(warnings.is_empty(), "{}: {}", words[0], String::from_utf8_lossy(warnings));
        ran += 1;
    }
    if ran == 0 { Skip("neither mandoc nor groff is installed".into()) } else { Pass }
}

fn an_installed_dtrace_uses_the_libraries_and_the_tools_of_its_prefix() -> Verdict {
    let program = Program::shell("tk");
    let at = |name: &str| program.dir.join(name);
    for dir in ["bin", "lib/dtrace", "share/dtrace/toolkit"] {
        std::fs::create_dir_all(at(dir)).unwrap();
    }
    let library = |name: &str| Path::new(ROOT).join("lib").join(name);
    std::fs::copy(library("signal.d"), at("lib/dtrace/signal.d")).unwrap();
    std::fs::copy(Path::new(ROOT).join("scripts/opensnoop"), at("share/dtrace/toolkit/opensnoop")).unwrap();
    std::os::unix::fs::symlink("../share/dtrace/toolkit/opensnoop", at("bin/opensnoop")).unwrap();
    std::fs::copy(binary(), at("bin/dtrace")).unwrap();
    let execute = |name: &str, words: &[&str]| {
        let path = format!("{}:/usr/bin:/bin", at("bin").display());
        let mut command = Command::new(at(name));
        command.args(words).env("PATH", path);
        finish(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    assert!(execute("bin/opensnoop", &["-h"]).code(0).out.starts_with("usage: opensnoop"));
    let value = |name: &str| ["-qn".to_string(), format!("BEGIN {{ printf(\"%d\\n\", {name}); exit(0); }}")];
    let print = |name: &str| {
        let words = value(name);
        execute("bin/dtrace", &[&words[0], &words[1]])
    };
    // A library of the site, beside those that are built in.
    std::fs::write(at("lib/dtrace/site.d"), "inline int OF_THE_SITE = 77;\n").unwrap();
    assert_eq!(print("OF_THE_SITE").code(0).out.trim(), "77");
    assert_eq!(print("SIGKILL").code(0).out.trim(), "9");
    // A library that is older than the binary is the built-in one. One that was changed later
    // replaces it.
    let changed = "inline int SIGKILL = 1009;\n";
    let file = at("lib/dtrace/signal.d");
    std::fs::write(&file, changed).unwrap();
    let built = std::fs::metadata(at("bin/dtrace")).unwrap().modified().unwrap();
    let set = |time| std::fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
    set(built - Duration::from_secs(60));
    assert_eq!(print("SIGKILL").code(0).out.trim(), "9");
    set(built + Duration::from_secs(60));
    assert_eq!(print("SIGKILL").code(0).out.trim(), "1009");
    // That of another place is not affected.
    let words = value("SIGKILL");
    assert_eq!(dtrace(&[&words[0], &words[1]]).code(0).out.trim(), "9");
    Pass
}
