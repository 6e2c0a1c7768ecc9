//! USDT of the packages of the distribution: interpreters, a virtual machine and a database, as
//! they are installed.
//!
//! Each test runs a program of known size in the language of the package. A package that is not
//! installed, or was built without probes, is a skip with its name.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use bpf_sys::features::Facility;
use testing::Verdict::{self, Pass, Skip};
use testing::dir::Dir;
use testing::eventually;

use crate::machine::lacks;
use crate::tool::{LIMIT, Output, dtrace, finish, printed, signal, start};

tests! {
    functions_of_python_have_their_file_and_line lines_and_collections_of_python_are_probes functions_of_php_have_their_class_and_line
    methods_of_ruby_have_their_class_and_line methods_of_java_have_their_signature queries_of_postgresql_have_their_text
    a_source_package_is_built_with_this_dtrace_and_its_probes_fire
}

const PYTHON: &str = "
def add(a, b):
    return a + b

class C:
    def m(self, x):
        return x

c = C()
for i in range(100):
    add(i, 1)
    c.m(i)
";

const PHP: &str = "<?php
function add($a, $b) { return $a + $b; }
class C { function m($x) { return $x; } static function s() { return 1; } }
$c = new C;
for ($i = 0; $i < 100; $i++) { add($i, 1); $c->m($i); C::s(); }
";

// Ruby calls the probes of methods only while somebody in the program traces calls.
const RUBY: &str = "
class C
  def m(x) = x
  def self.s = 1
end
def add(a, b) = a + b
c = C.new
TracePoint.new(:call) {}.enable do
  100.times { |i| add(i, 1); c.m(i); C.s }
end
";

const JAVA: &str = "
public class Main {
    static long add(int a, long b) { return a + b; }
    long m(String text) { return text.length(); }
    public static void main(String[] words) throws Exception {
        Main main = new Main();
        System.out.println(\"begun\");
        System.in.read();
        long sum = 0;
        for (int i = 0; i < 100; i++)
            sum += add(i, 1) + main.m(\"x\");
        System.gc();
        System.out.println(sum);
    }
}
";

/// The first of these files that exists and describes probes of a provider. `Err`: the test is
/// skipped.
fn with_probes(package: &str, files: &[&str], provider: &str) -> Result<PathBuf, Verdict> {
    if let Some(skip) = lacks(Facility::UprobePerf) {
        return Err(skip);
    }
    let there: Vec<&Path> = files.iter().map(Path::new).filter(|path| path.exists()).collect();
    if there.is_empty() {
        return Err(Skip(format!("no package {package}")));
    }
    let note = b"stapsdt\0".to_vec();
    let described = there.iter().find(|path| {
        let bytes = std::fs::read(path).unwrap_or_default();
        let has = |what: &[u8]| bytes.windows(what.len()).any(|part| part == what);
        has(&note) && has(format!("\0{provider}\0").as_bytes())
    });
    described
        .map(|path| path.to_path_buf())
        .ok_or_else(|| Skip(format!("no probes in the package {package}")))
}

macro_rules! has_probes {
    ($package:literal, $files:expr, $provider:literal) => {
        match with_probes($package, $files, $provider) {
            Ok(file) => file,
            Err(skip) => return skip,
        }
    };
}

/// Traces a program from its start.
fn traced(words: &[&str], script: &str) -> Output {
    dtrace(&["-q", "-c", &words.join(" "), "-n", script]).code(0)
}

/// The lines of the output without spaces at their ends and doubled ones, in order.
fn rows(o: &Output) -> Vec<String> {
    let mut rows: Vec<String> =
        o.out.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    rows.retain(|row| !row.is_empty());
    rows.sort();
    rows
}

/// Python 3.11 has lost `function-entry` for most functions (cpython issue 98894). All return
/// through one place.
fn functions_of_python_have_their_file_and_line() -> Verdict {
    let python = has_probes!("python3", &["/usr/bin/python3"], "python");
    let dir = Dir::new("python");
    let file = dir.join("program.py");
    std::fs::write(&file, PYTHON).unwrap();
    let (python, file) = (python.to_str().unwrap(), file.to_str().unwrap());
    let script = format!(
        "python$target:::function-return /copyinstr(arg0) == \"{file}\"/ {{ @[copyinstr(arg1), arg2] = count(); }} \
         END {{ printa(\"%s %d %@d\\n\", @); }}"
    );
    let o = traced(&[python, "-S", file], &script);
    assert_eq!(rows(&o), ["<module> 10 1", "C 6 1", "add 3 100", "m 7 100"], "{o:?}");
    Pass
}

fn lines_and_collections_of_python_are_probes() -> Verdict {
    let python = has_probes!("python3", &["/usr/bin/python3"], "python");
    let dir = Dir::new("python-lines");
    let file = dir.join("program.py");
    std::fs::write(&file, format!("{PYTHON}\nimport gc\nfor i in range(3):\n    gc.collect(1)\n")).unwrap();
    let (python, file) = (python.to_str().unwrap(), file.to_str().unwrap());
    let script = format!(
        "python$target:::line /copyinstr(arg0) == \"{file}\" && copyinstr(arg1) == \"m\"/ {{ @[arg2] = count(); }} \
         python$target:::gc-start /arg0 == 1/ {{ @gc = count(); }} END {{ printa(\"%d %@d\\n\", @); printa(\"gc %@d\\n\", @gc); }}"
    );
    let o = traced(&[python, "-S", file], &script);
    assert_eq!(rows(&o), ["7 100", "gc 3"], "{o:?}");
    Pass
}

fn functions_of_php_have_their_class_and_line() -> Verdict {
    let php = has_probes!("php-cli", &["/usr/bin/php", "/usr/bin/php8.2"], "php");
    let dir = Dir::new("php");
    let file = dir.join("program.php");
    std::fs::write(&file, PHP).unwrap();
    let script = "php$target:::function-entry /copyinstr(arg0) != \"main\"/ \
                  { @[copyinstr(arg3), copyinstr(arg4), copyinstr(arg0), arg2] = count(); } \
                  END { printa(\"%s%s%s %d %@d\\n\", @); }";
    // PHP has its hooks only with this variable of its environment.
    let program = format!("{} -n {}", php.to_str().unwrap(), file.to_str().unwrap());
    let o = dtrace(&["-q", "-x", "setenv=USE_ZEND_DTRACE=1", "-c", &program, "-n", script]).code(0);
    assert_eq!(rows(&o), ["C::m 3 100", "C::s 3 100", "add 2 100"], "{o:?}");
    Pass
}

fn methods_of_ruby_have_their_class_and_line() -> Verdict {
    let library = "/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1";
    has_probes!("ruby3.1", &[library], "ruby");
    let dir = Dir::new("ruby");
    let file = dir.join("program.rb");
    std::fs::write(&file, RUBY).unwrap();
    let script = "ruby$target:::method-entry { @[copyinstr(arg0), copyinstr(arg1), arg3] = count(); } \
                  END { printa(\"%s %s %d %@d\\n\", @); }";
    let o = traced(&["/usr/bin/ruby3.1", "--disable-gems", file.to_str().unwrap()], script);
    assert_eq!(rows(&o), ["C m 3 100", "C s 4 100", "Object add 6 100"], "{o:?}");
    Pass
}

/// Reads lines that a program prints, up to one that begins so.
fn until(out: &mut BufReader<ChildStdout>, begins: &str) -> String {
    let mut line = String::new();
    while !line.starts_with(begins) {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "no line begins with {begins}");
    }
    line
}

/// A program that is killed at the end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn new(command: &mut Command) -> (Running, BufReader<ChildStdout>) {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        (Running(child), out)
    }

    fn say(&mut self, text: &str) {
        self.0.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }
}

fn methods_of_java_have_their_signature() -> Verdict {
    const HOME: &str = "/usr/lib/jvm/java-17-openjdk-amd64";
    let library = format!("{HOME}/lib/server/libjvm.so");
    has_probes!("openjdk-17-jre-headless", &[&library], "hotspot");
    let dir = Dir::new("java");
    std::fs::write(dir.join("Main.java"), JAVA).unwrap();
    let compiler = Command::new(format!("{HOME}/bin/javac")).arg("Main.java").current_dir(&*dir).status();
    if !compiler.is_ok_and(|status| status.success()) {
        return Skip("no package openjdk-17-jdk-headless".into());
    }
    // The virtual machine calls the probes of methods only with this option.
    let mut java = Command::new(format!("{HOME}/bin/java"));
    let (mut running, mut out) =
        Running::new(java.args(["-XX:+DTraceMethodProbes", "Main"]).current_dir(&*dir));
    until(&mut out, "begun");
    let pid = running.0.id();
    let script = format!(
        "BEGIN {{ printf(\"on\\n\"); }} \
         hotspot{pid}:::method-entry /copyinstr(arg1, arg2) == \"Main\"/ \
         {{ @[copyinstr(arg3, arg4), copyinstr(arg5, arg6)] = count(); }} \
         hotspot{pid}:::gc-begin {{ @gc = count(); }} \
         END {{ printa(\"%s%s %@d\\n\", @); printa(\"gc %@d\\n\", @gc); }}"
    );
    let mut tracing = start(&["-q", "-p", &pid.to_string(), "-n", &script]);
    printed(&mut tracing);
    running.say("x");
    assert_eq!(until(&mut out, "5").trim(), "5150");
    let o = finish(tracing).code(0);
    assert_eq!(rows(&o), ["add(IJ)J 100", "gc 1", "m(Ljava/lang/String;)J 100", "on"], "{o:?}");
    Pass
}

fn queries_of_postgresql_have_their_text() -> Verdict {
    /// The database refuses to be root's.
    const NOBODY: u32 = 65534;
    let server = "/usr/lib/postgresql/15/bin/postgres";
    has_probes!("postgresql-15", &[server], "postgresql");
    let dir = Dir::new("postgresql");
    chown(&*dir, Some(NOBODY), Some(NOBODY)).unwrap();
    let by_nobody = |program: &str| {
        let mut command = Command::new(server.replace("bin/postgres", &format!("bin/{program}")));
        command.current_dir(&*dir).uid(NOBODY).gid(NOBODY).stderr(Stdio::null());
        command
    };
    let made = by_nobody("initdb").args(["-D", "data", "-A", "trust", "-U", "me", "--no-sync"]).output();
    assert!(made.as_ref().is_ok_and(|o| o.status.success()), "{made:?}");
    let mut postgres = by_nobody("postgres");
    let at = dir.to_str().unwrap();
    postgres.args(["-D", "data", "-k", at, "-c", "listen_addresses=", "-c", "autovacuum=off"]);
    let (_server, _) = Running::new(&mut postgres);
    // The server accepts no client before it has read its files.
    let (mut client, mut out) = eventually("a server", LIMIT, || {
        let mut psql = by_nobody("psql");
        let (mut client, mut out) = Running::new(psql.args(["-qAt", "-h", at, "-U", "me", "postgres"]));
        client.say("select 'backend';\n");
        (out.read_line(&mut String::new()).unwrap() > 0).then_some((client, out))
    });
    client.say("select 'pid ' || pg_backend_pid();\n");
    let backend: u32 = until(&mut out, "pid").trim().trim_start_matches("pid ").parse().unwrap();
    let script = format!(
        "BEGIN {{ printf(\"on\\n\"); }} \
         postgresql{backend}:::query-start {{ @q[copyinstr(arg0)] = count(); }} \
         postgresql{backend}:::transaction-commit {{ @[probename] = count(); }} \
         postgresql{backend}:::transaction-abort {{ @[probename] = count(); }} \
         postgresql{backend}:::query-done {{ @[probename] = count(); }} \
         END {{ printa(\"%s %@d\\n\", @q); printa(\"%s %@d\\n\", @); }}"
    );
    let mut tracing = start(&["-q", "-p", &backend.to_string(), "-n", &script]);
    printed(&mut tracing);
    client.say("select 1;\nselect 1;\nbegin;\nselect 2;\nrollback;\nselect 'end';\n\\q\n");
    until(&mut out, "end");
    let o = finish(tracing).code(0);
    let expected = [
        "begin; 1",
        "on",
        "query-done 6",
        "rollback; 1",
        "select 'end'; 1",
        "select 1; 2",
        "select 2; 1",
        "transaction-abort 1",
        "transaction-commit 3",
    ];
    assert_eq!(rows(&o), expected, "{o:?}");
    Pass
}

/// The source of a package of Debian as its authors have published it, unpacked in a directory.
/// `Err`: there is none.
fn source(package: &str, dir: &Path) -> Result<PathBuf, String> {
    let lists =
        std::fs::read_to_string("/etc/apt/sources.list.d/debian.sources").map_err(|e| e.to_string())?;
    std::fs::write(dir.join("own.sources"), lists.replace("Types: deb\n", "Types: deb-src\n")).unwrap();
    std::fs::create_dir_all(dir.join("lists/partial")).unwrap();
    let apt = |words: &[&str]| {
        let list = format!("Dir::Etc::SourceList={}", dir.join("own.sources").display());
        let state = format!("Dir::State::Lists={}", dir.join("lists").display());
        let common = ["-qq", "-o", &list, "-o", "Dir::Etc::SourceParts=-", "-o", &state];
        let o = Command::new("apt-get").current_dir(dir).args(common).args(words).output();
        let o = o.map_err(|e| e.to_string())?;
        let said = || String::from_utf8_lossy(&o.stderr).lines().next().unwrap_or_default().to_owned();
        if o.status.success() { Ok(()) } else { Err(said()) }
    };
    apt(&["update"])?;
    apt(&["source", "--download-only", package])?;
    let files: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    let is_original = |path: &&PathBuf| path.to_string_lossy().contains(".orig.tar.");
    let original = files.iter().find(is_original).ok_or("no original")?;
    let unpacked = dir.join("source");
    std::fs::create_dir(&unpacked).unwrap();
    let tar = Command::new("tar")
        .args(["--strip-components=1", "-xf"])
        .arg(original)
        .arg("-C")
        .arg(&unpacked)
        .status();
    if tar.is_ok_and(|status| status.success()) { Ok(unpacked) } else { Err("tar fails".into()) }
}

/// Its build calls SystemTap's `dtrace`, for the header and for the object that it links.
fn a_source_package_is_built_with_this_dtrace_and_its_probes_fire() -> Verdict {
    if let Some(skip) = lacks(Facility::UprobePerf) {
        return skip;
    }
    if !Path::new("/usr/include/event.h").exists() {
        return Skip("no package libevent-dev".into());
    }
    let dir = Dir::new("source");
    let source = match source("memcached", &dir) {
        Ok(source) => source,
        Err(why) => return Skip(format!("no package memcached in source: {why}")),
    };
    let commands = dir.join("commands");
    std::fs::create_dir(&commands).unwrap();
    std::os::unix::fs::symlink(crate::tool::binary(), commands.join("dtrace")).unwrap();
    let path = format!("{}:{}", commands.display(), std::env::var("PATH").unwrap_or_default());
    for words in [
        &["./configure", "--enable-dtrace"][..],
        &["make", "memcached_dtrace.h"],
        &["make", "-j2", "memcached"],
    ] {
        let o = Command::new(words[0]).args(&words[1..]).env("PATH", &path).current_dir(&source).output();
        let o = o.unwrap();
        assert!(o.status.success(), "{words:?}: {o:?}");
    }
    let socket = dir.join("socket");
    let mut server = Command::new(source.join("memcached"));
    let (server, _) = Running::new(server.args(["-u", "root", "-s"]).arg(&socket));
    let client = eventually("a server", LIMIT, || std::os::unix::net::UnixStream::connect(&socket));
    let pid = server.0.id();
    let script = format!(
        "BEGIN {{ printf(\"on\\n\"); }} \
         memcached{pid}:::command-set {{ @set[copyinstr((uintptr_t)args[1], args[2]), args[3]] = count(); }} \
         memcached*:::command-get {{ @get[copyinstr(arg1, arg2), args[3]] = count(); }} \
         END {{ printa(\"set %s %d %@d\\n\", @set); printa(\"get %s %d %@d\\n\", @get); }}"
    );
    let mut tracing = start(&["-q", "-p", &pid.to_string(), "-n", &script]);
    printed(&mut tracing);
    let mut lines = BufReader::new(client.try_clone().unwrap()).lines();
    let mut say = |text: &str, end: &str| {
        (&client).write_all(text.as_bytes()).unwrap();
        while lines.next().unwrap().unwrap() != end {}
    };
    for n in 0..3 {
        say(&format!("set key{n} 0 0 5\r\nhello\r\n"), "STORED");
    }
    for n in [0, 1, 1, 9] {
        say(&format!("get key{n}\r\n"), "END");
    }
    signal(&tracing, libc::SIGTERM);
    let o = finish(tracing).code(0);
    // The size of a value has the end of its line; what is not there has none.
    let expected = [
        "get key0 7 1",
        "get key1 7 2",
        "get key9 -1 1",
        "on",
        "set key0 7 1",
        "set key1 7 1",
        "set key2 7 1",
    ];
    assert_eq!(rows(&o), expected, "{o:?}");
    Pass
}
