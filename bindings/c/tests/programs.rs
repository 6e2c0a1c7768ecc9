//! Programs that are compiled with the header, linked with the library, and run.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testing::dir::Dir;

use crate::{Test, Verdict};

pub(crate) const TESTS: &[Test] = &[
    ("programs::calls_in_any_order_are_results_or_errors", calls),
    ("programs::a_sanitizer_finds_nothing", sanitized),
    ("programs::the_example_counts_exactly", counts),
    ("programs::the_example_streams_every_record", streams),
    ("programs::the_example_streams_texts_and_rows", streams_texts_and_rows),
    ("programs::a_program_with_the_library_never_becomes_a_reader", inherits),
    ("programs::ruby_counts_exactly", ruby),
    ("programs::node_counts_exactly", node),
    ("programs::go_counts_exactly", go),
];

/// How often the traced program makes its call.
const CALLS: usize = 1234;

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// A directory with the library by both of its names, and the traced program.
struct Built {
    dir: Dir,
}

impl Built {
    /// `Err`: why nothing can be built here.
    fn new(name: &str) -> Result<Built, Verdict> {
        if Command::new("cc").arg("--version").output().is_err() {
            return Err(Verdict::Skip("no cc".into()));
        }
        let dir = Dir::new(name);
        let library = std::env::current_exe().unwrap().with_file_name("libdtrace_rs.so");
        assert!(library.exists(), "{}", library.display());
        for name in ["libdtrace_rs.so", "libdtrace_rs.so.0"] {
            symlink(&library, dir.join(name)).unwrap();
        }
        // The readers are those of this program: `dtrace` in its PATH.
        symlink(std::env::current_exe().unwrap(), dir.join("dtrace")).unwrap();
        let built = Built { dir };
        built.compile(&["tests/testee.c"], "testee", &["-O1"]);
        Ok(built)
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    fn compile(&self, sources: &[&str], to: &str, options: &[&str]) {
        let mut command = Command::new("cc");
        command.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"]);
        command.args(sources.iter().map(|name| source(name)));
        command.arg("-I").arg(source("")).args(options).arg("-o").arg(self.path(to));
        if to != "testee" {
            command.arg("-L").arg(self.path("")).arg("-ldtrace_rs");
        }
        let done = command.output().unwrap();
        assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// A command in whose environment the library is found.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("LD_LIBRARY_PATH", self.path("")).env("PATH", format!("{}:{path}", self.path("")));
        command
    }

    /// The command that is traced.
    fn testee(&self) -> String {
        format!("{} {CALLS}", self.path("testee"))
    }

    fn calls(&self, command: &mut Command) -> Verdict {
        let done = command.arg(std::env::current_exe().unwrap()).arg(self.path("testee")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&done.stdout), "done\n", "{}", said(&done));
        assert!(done.status.success(), "{}", said(&done));
        Verdict::Pass
    }

    /// The number of calls of the traced program that a command has printed.
    fn has_counted(&self, command: &mut Command) -> Verdict {
        let done = command.output().unwrap();
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        let row = text.lines().find(|line| line.split_whitespace().next() == Some("getppid"));
        let count = row.and_then(|row| row.split_whitespace().nth(1));
        assert_eq!(count, Some(&*CALLS.to_string()), "{text}\n{}", said(&done));
        assert!(done.status.success(), "{}", said(&done));
        Verdict::Pass
    }
}

fn said(done: &Output) -> String {
    format!("{}: {}", done.status, String::from_utf8_lossy(&done.stderr))
}

fn with(name: &str, body: impl FnOnce(&Built) -> Verdict) -> Verdict {
    match Built::new(name) {
        Ok(built) => body(&built),
        Err(skip) => skip,
    }
}

fn there(program: &str, argument: &str) -> bool {
    Command::new(program).arg(argument).output().is_ok_and(|done| done.status.success())
}

fn calls() -> Verdict {
    with("c-calls", |built| {
        built.compile(&["tests/calls.c"], "calls", &["-O1", "-g"]);
        built.calls(&mut built.command(&built.path("calls")))
    })
}

fn sanitized() -> Verdict {
    with("c-sanitized", |built| {
        let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
        let probe = built.path("probe.c");
        std::fs::write(&probe, "int main(void) { return 0; }\n").unwrap();
        let links = Command::new("cc").args(flags).arg(&probe).args(["-o", &built.path("probe")]).output();
        if !links.unwrap().status.success() {
            return Verdict::Skip("cc has no sanitizers".into());
        }
        if !there(&built.path("probe"), "") {
            return Verdict::Skip("the address space is limited".into());
        }
        built.compile(&["tests/calls.c"], "sanitized", &[&flags[..], &["-O1", "-g"]].concat());
        let mut command = built.command(&built.path("sanitized"));
        built.calls(&mut command)
    })
}

fn counts() -> Verdict {
    with("c-counts", |built| {
        built.compile(&["examples/count.c"], "count", &[]);
        built.has_counted(built.command(&built.path("count")).arg(built.testee()))
    })
}

/// It may have the variable of a reader from whoever has started it.
fn inherits() -> Verdict {
    with("c-inherits", |built| {
        built.compile(&["examples/count.c"], "count", &[]);
        let mut command = built.command(&built.path("count"));
        built.has_counted(command.env("DTRACE_SYMBOL_READER", "?").arg(built.testee()))
    })
}

fn streams() -> Verdict {
    with("c-streams", |built| {
        built.compile(&["examples/stream.c"], "stream", &[]);
        let program = "syscall::getppid:entry /pid == $target/ { trace(++n); trace(execname); }";
        let mut command = built.command(&built.path("stream"));
        let done =
            command.args([program, &built.testee()]).stdin(std::process::Stdio::null()).output().unwrap();
        assert!(done.status.success(), "{}", said(&done));
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        for (number, line) in text.lines().enumerate() {
            assert!(line.ends_with(&format!("getppid:entry ++n={} execname=testee", number + 1)), "{line}");
        }
        assert_eq!(text.lines().count(), CALLS);
        Verdict::Pass
    })
}

fn streams_texts_and_rows() -> Verdict {
    with("c-streams-rows", |built| {
        built.compile(&["examples/stream.c"], "stream", &[]);
        let program = "syscall::getppid:entry /pid == $target/ { @n[execname] = count(); @q = quantize(1); } \
            END { printf(\"over\"); }";
        let mut command = built.command(&built.path("stream"));
        let done =
            command.args([program, &built.testee()]).stdin(std::process::Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        for line in
            [format!("@n execname=testee: {CALLS}"), format!("@q: {CALLS}"), format!("    1 to 1: {CALLS}")]
        {
            assert!(text.lines().any(|found| found == line), "{line}: {text}{}", said(&done));
        }
        assert!(text.lines().any(|line| line.ends_with(":END: over")), "{text}");
        assert!(done.status.success(), "{}", said(&done));
        Verdict::Pass
    })
}

fn ruby() -> Verdict {
    if !there("ruby", "--version") {
        return Verdict::Skip("no ruby".into());
    }
    with("c-ruby", |built| {
        let mut command = built.command("ruby");
        built.has_counted(command.arg(source("examples/ruby/count.rb")).arg(built.testee()))
    })
}

fn node() -> Verdict {
    let headers = ["/usr/include/node", "/usr/include/nodejs/src", "/usr/local/include/node"];
    let headers = headers.into_iter().find(|dir| Path::new(dir).join("node_api.h").exists());
    let Some(headers) = headers.filter(|_| there("node", "--version")) else {
        return Verdict::Skip("no node with headers".into());
    };
    with("c-node", |built| {
        built.compile(&["examples/node/addon.c"], "addon.node", &["-shared", "-fPIC", "-isystem", headers]);
        let mut command = built.command("node");
        command.env("DTRACE_ADDON", built.path("addon.node"));
        built.has_counted(command.arg(source("examples/node/count.js")).arg(built.testee()))
    })
}

fn go() -> Verdict {
    if !there("go", "version") {
        return Verdict::Skip("no go".into());
    }
    with("c-go", |built| {
        let mut command = built.command("go");
        if std::env::var_os("HOME").is_none() {
            command.env("GOCACHE", built.path("cache"));
        }
        let done = command
            .current_dir(source("examples/go"))
            .env("CGO_CFLAGS", format!("-I{}", source("").display()))
            .env("CGO_LDFLAGS", format!("-L{}", built.path("")))
            .env("GOFLAGS", "-buildvcs=false")
            .args(["build", "-o", &built.path("count")])
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", said(&done));
        built.has_counted(built.command(&built.path("count")).arg(built.testee()))
    })
}
