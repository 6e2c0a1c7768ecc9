//! Probes that programs make while they run (dynamic USDT) in other languages than C: the packages
//! of Rust, Python and Node.js.

use std::path::Path;
use std::process::{Command, ExitCode};

use bpf_sys::features::Facility;
use dtrace_usdt::{Provider, probe};

use crate::Verdict::{self, Pass, Skip};
use crate::machine::lacks;
use crate::usdt::{line, next};
use crate::usdt_dynamic::{Programs, made, ready, sources, trace, wait, wait_until_not_traced};

tests! {
    a_program_in_rust_makes_probes_while_it_runs
    a_script_in_python_makes_probes_while_it_runs
    a_script_in_node_makes_probes_while_it_runs
    requests_and_collections_of_node_are_probes
    packages_are_built_by_the_tools_of_their_languages
}

impl Programs {
    /// Compiles a shared object as a package does; `Err` says what is missing.
    fn extension(&self, to: &Path, from: &Path, include: &str, flags: &[&str]) -> Result<(), Verdict> {
        let c = sources("c");
        let mut command = Command::new("cc");
        command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]).arg(to);
        command.arg(from).arg(c.join("dtrace_usdt.c")).arg("-I").arg(&c).args(["-I", include]).args(flags);
        match command.output() {
            Ok(o) if o.status.success() => Ok(()),
            Ok(o) => panic!("{o:?}"),
            Err(e) => Err(Skip(format!("no C compiler: {e}"))),
        }
    }
}

/// Copies a directory of the sources without what builds have left in it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() {
            if name != "build" && name != "node_modules" {
                copy(&path, &to.join(name));
            }
        } else {
            std::fs::copy(path, to.join(name)).unwrap();
        }
    }
}

fn packages_are_built_by_the_tools_of_their_languages() -> Verdict {
    let programs = made!(Programs::new("packages"));
    let (root, home) = (programs.0.join("usdt"), programs.0.join("home"));
    copy(&sources("."), &root);
    let run = |command: &mut Command| {
        let o = command.env("HOME", &home).output();
        o.map(|o| (o.status.success(), format!("{o:?}"))).unwrap_or_else(|e| (false, e.to_string()))
    };
    let (built, why) = run(Command::new("make")
        .args(["-C", &root.join("c").display().to_string(), "install"])
        .arg(format!("DESTDIR={}", home.display())));
    if !built && why.contains("No such file or directory") {
        return Skip("no make".into());
    }
    assert!(built && home.join("usr/local/lib/libdtrace_usdt.a").exists(), "{why}");

    let import = "import setuptools, sysconfig; print(sysconfig.get_paths()['include'])";
    let include = said(Command::new("python3").args(["-c", import])).unwrap_or_default();
    if !Path::new(&include).join("Python.h").exists() {
        return Skip("no package python3-dev, or no python3-setuptools".into());
    }
    let (library, python) = (programs.0.join("library"), root.join("python"));
    let words = ["setup.py", "-q", "build", "--build-temp", "build", "--build-platlib"];
    let (built, why) = run(Command::new("python3").current_dir(&python).args(words).arg(&library));
    assert!(built, "{why}");
    script_fires(Command::new("python3").env("PYTHONPATH", &library).args(["-c", PYTHON]));

    let Some((prefix, _)) = headers_of_node() else {
        return Skip("no package nodejs, or not its headers".into());
    };
    let (app, node) = (programs.0.join("app"), root.join("node"));
    std::fs::create_dir(&app).unwrap();
    let (packed, why) = run(Command::new("npm")
        .current_dir(&node)
        .args(["pack", "--offline", "--pack-destination"])
        .arg(&app));
    if !packed && why.contains("No such file or directory (os error 2)") {
        return Skip("no package npm".into());
    }
    assert!(packed, "{why}");
    let archive = app.join("dtrace-usdt-0.1.0.tgz");
    let mut command = Command::new("npm");
    command.current_dir(&app).env("npm_config_nodedir", prefix);
    let (built, why) = run(command.args(["install", "--offline", "--no-audit", "--no-fund"]).arg(&archive));
    assert!(built, "{why}");
    std::fs::write(app.join("script.js"), JAVASCRIPT).unwrap();
    script_fires(Command::new("node").current_dir(&app).args(["script.js", "dtrace-usdt"]));
    Pass
}

/// The directory that node-gyp takes the headers of Node.js from, and that of the headers, if they
/// are installed: those of nodejs.org and of Debian.
fn headers_of_node() -> Option<(String, String)> {
    let place = "console.log(require('path').resolve(process.execPath, '../..'))";
    let prefix = said(Command::new("node").args(["-e", place]))?;
    let theirs = (prefix.clone(), format!("{prefix}/include/node"));
    let debian = (format!("{prefix}/include/nodejs"), format!("{prefix}/include/nodejs/src"));
    [theirs, debian].into_iter().find(|(_, headers)| Path::new(headers).join("node_api.h").exists())
}

/// The output of an interpreter, if it is there.
fn said(command: &mut Command) -> Option<String> {
    let o = command.output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8_lossy(&o.stdout).trim().to_owned())
}

const PYTHON: &str = r#"
import os, sys
from dtrace_usdt import Provider
provider = Provider("tstdyn")
start = provider.probe("request-start", "int id, char *path")
typed = provider.probe("typed", int, str, bool)
none = provider.probe("none")
for wrong in [("none",), ("a:b",), ("x", "double"), ("x", float)]:
    try:
        provider.probe(*wrong)
        sys.exit(2)
    except (ValueError, TypeError):
        pass
provider.enable()
print("ready", os.getpid(), flush=True)
sys.stdin.readline()
prepared = 0
for i in range(10):
    start(-i, "/index.html")
    typed(-1 << 40, b"bytes", True)
    none()
    if start.enabled:
        prepared += 1
if typed.enabled:
    for wrong in [(), (1, 2, True), ("a", "b", True)]:
        try:
            typed(*wrong)
            sys.exit(3)
        except TypeError:
            pass
print(prepared, flush=True)
sys.stdin.readline()
print(start.enabled)
del start, typed, none, provider
print("dtrace:" in open("/proc/self/maps").read())
"#;

const JAVASCRIPT: &str = r#"
const { Provider } = require(process.argv[2]);
const fs = require('fs');
const line = () => { const b = Buffer.alloc(1); while (fs.readSync(0, b) === 1 && b[0] !== 10); };
const provider = new Provider('tstdyn');
const start = provider.probe('request-start', 'int id, char *path');
const typed = provider.probe('typed', Number, String, Boolean);
const none = provider.probe('none');
for (const wrong of [['none'], ['a:b'], ['x', 'double'], ['x', Date]]) {
  let failed = false;
  try { provider.probe(...wrong); } catch (e) { failed = true; }
  if (!failed) process.exit(2);
}
provider.enable();
fs.writeSync(1, `ready ${process.pid}\n`);
line();
let prepared = 0;
for (let i = 0; i < 10; i++) {
  start.fire(-i, '/index.html');
  typed.fire(i % 2 ? -(2 ** 40) : -(2n ** 40n), 'bytes', true);
  none.fire();
  if (start.enabled) prepared++;
}
if (typed.enabled) {
  for (const wrong of [[], [1, 2, true], ['a', 'b', true], [1.5, 'b', true]]) {
    let failed = false;
    try { typed.fire(...wrong); } catch (e) { failed = e instanceof TypeError; }
    if (!failed) process.exit(3);
  }
}
fs.writeSync(1, `${prepared}\n`);
line();
fs.writeSync(1, `${start.enabled}\n`);
provider.close();
start.fire(1, 'x');
fs.writeSync(1, `${fs.readFileSync('/proc/self/maps', 'latin1').includes('dtrace:')}\n`);
"#;

/// The workload of the test of Rust: what the scripts do.
pub(crate) fn probes() -> ExitCode {
    fn run() -> std::io::Result<()> {
        let mut provider = Provider::new("tstdyn")?;
        let start = provider.probe("request-start", "int id, char *path")?;
        let typed = provider.probe("typed", "int64_t, char *, bool")?;
        let none = provider.probe("none", "")?;
        provider.enable()?;
        println!("ready {}", std::process::id());
        let mut text = String::new();
        std::io::stdin().read_line(&mut text)?;
        let mut prepared = 0;
        let mut prepare = |i: i32| {
            prepared += 1;
            -i
        };
        for i in 0..10 {
            probe!(start, prepare(i), "/index.html");
            probe!(typed, -1i64 << 40, c"bytes", true);
            probe!(none);
        }
        println!("{prepared}");
        std::io::stdin().read_line(&mut text)?;
        println!("{}", start.is_enabled());
        drop((provider, start, typed, none));
        println!("{}", std::fs::read_to_string("/proc/self/maps")?.contains("dtrace:"));
        Ok(())
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// A workload: makes a provider of this name, and fires its probe so many times at once.
pub(crate) fn made(name: &str, count: u64) -> ExitCode {
    let run = || {
        let mut provider = Provider::new(name)?;
        let hit = provider.probe("hit", "int")?;
        provider.enable()?;
        (0..count).for_each(|n| probe!(hit, n as i32));
        std::io::Result::Ok(())
    };
    run().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

/// What a script fires, before and after it is traced.
fn script_fires(command: &mut Command) {
    let mut process = wait(command);
    let pid = ready(&mut process);
    let script = "tstdyn*:::request-start { @r = sum(args[0]); @p[copyinstr(arg1)] = count(); } \
        tstdyn*:::typed { @t[args[0], copyinstr(arg1), args[2]] = count(); } tstdyn*:::none { @n = count(); } \
        END { printa(\"%@d \", @r); printa(\"%s %@d \", @p); printa(@t); printa(\"%@d\\n\", @n); }";
    let expected = "-45 /index.html 10 -1099511627776 bytes 1 10 10";
    assert_eq!(trace(&mut process, script, pid, "10"), expected);
    wait_until_not_traced(pid);
    next(&mut process);
    // Not traced any more, and the file is unmapped with the provider.
    assert_eq!([line(&mut process), line(&mut process)].map(|l| l.to_lowercase()), ["false", "false"]);
    assert!(process.wait().unwrap().success());
}

fn a_program_in_rust_makes_probes_while_it_runs() -> Verdict {
    if let Some(skip) = lacks(Facility::UprobePerf) {
        return skip;
    }
    script_fires(Command::new(std::env::current_exe().unwrap()).args(["--workload", "probes", "1"]));
    Pass
}

/// Makes the package of Python as its own tools do.
pub(crate) fn python_package(programs: &Programs) -> Result<(), Verdict> {
    let include = "import sysconfig; print(sysconfig.get_paths()['include'])";
    let Some(include) = said(Command::new("python3").args(["-c", include])) else {
        return Err(Skip("no package python3".into()));
    };
    if !Path::new(&include).join("Python.h").exists() {
        return Err(Skip("no package python3-dev".into()));
    }
    let (package, of) = (programs.0.join("dtrace_usdt"), sources("python/src/dtrace_usdt"));
    std::fs::create_dir(&package).unwrap();
    std::fs::copy(of.join("__init__.py"), package.join("__init__.py")).unwrap();
    programs.extension(&package.join("_native.so"), &of.join("_native.c"), &include, &[])
}

fn a_script_in_python_makes_probes_while_it_runs() -> Verdict {
    let programs = made!(Programs::new("python"));
    made!(python_package(&programs));
    script_fires(Command::new("python3").env("PYTHONPATH", &*programs.0).args(["-c", PYTHON]));
    Pass
}

/// Makes the package of Node.js as npm does.
pub(crate) fn node_package(programs: &Programs) -> Result<(), Verdict> {
    let Some((_, include)) = headers_of_node() else {
        return Err(Skip("no package nodejs, or not its headers".into()));
    };
    let build = programs.0.join("build/Release");
    std::fs::create_dir_all(&build).unwrap();
    std::fs::copy(sources("node/index.js"), programs.0.join("index.js")).unwrap();
    programs.extension(&build.join("dtrace_usdt.node"), &sources("node/addon.c"), &include, &[])
}

fn a_script_in_node_makes_probes_while_it_runs() -> Verdict {
    let programs = made!(Programs::new("node"));
    made!(node_package(&programs));
    std::fs::write(programs.0.join("script.js"), JAVASCRIPT).unwrap();
    script_fires(Command::new("node").arg(programs.0.join("script.js")).arg(programs.0.join("index.js")));
    Pass
}

/// Sends itself 20 requests, of which five are for what is not there, and collects garbage three
/// times, which it is told to begin.
const SERVER: &str = r#"
const http = require('http');
const ask = (port, path) => new Promise((done) => {
  http.get({ port, path, host: '127.0.0.1' }, (response) => response.resume().on('end', done));
});
process.stdout.write(`ready ${process.pid}\n`);
process.stdin.once('data', async () => {
  // The collections are observed a tenth of a second after their probe is enabled.
  await new Promise((done) => setTimeout(done, 1000));
  const server = http.createServer((request, response) => {
    response.statusCode = request.url === '/found' ? 200 : 404;
    setTimeout(() => response.end('x'), 2);
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const { port } = server.address();
  for (let i = 0; i < 20; i++) await ask(port, i % 4 ? '/found' : '/lost');
  server.close();
  for (let i = 0; i < 3; i++) gc();
  await new Promise((done) => setTimeout(done, 500));
  process.stdout.write('served\n');
  process.stdin.once('data', () => process.exit(0));
});
"#;

fn requests_and_collections_of_node_are_probes() -> Verdict {
    let programs = made!(Programs::new("runtime"));
    made!(node_package(&programs));
    let runtime = programs.0.join("runtime.js");
    std::fs::copy(sources("node/runtime.js"), &runtime).unwrap();
    std::fs::write(programs.0.join("server.js"), SERVER).unwrap();
    let mut command = Command::new("node");
    command.args(["--expose-gc", "-r"]).arg(&runtime).arg(programs.0.join("server.js"));
    let mut process = wait(&mut command);
    let pid = ready(&mut process);
    // The server waits for 2 ms; a timer of Node.js may fire a little early.
    let script = "nodePID:::http-server-request { @b[copyinstr(arg0), copyinstr(arg1)] = count(); } \
        nodePID:::http-server-response { @s[copyinstr(arg1), args[2], args[3] > 1000000 && args[3] < 1000000000000] = count(); } \
        nodePID:::http-client-request { @c = count(); } \
        nodePID:::http-client-response /strstr(copyinstr(arg1), \"http://127.0.0.1:\") == copyinstr(arg1)/ { @d[args[2]] = count(); } \
        nodePID:::gc-done /copyinstr(arg0) == \"mark-sweep-compact\" && args[1] > 0/ { @g = count(); } \
        END { printa(\"%s %s %@d \", @b); printa(\"%s %d %d %@d \", @s); printa(\"%@d \", @c); printa(\"%d %@d \", @d); printa(\"%@d\", @g); }";
    let found = trace(&mut process, &script.replace("PID", &pid.to_string()), pid, "served");
    next(&mut process);
    assert!(process.wait().unwrap().success());
    assert_eq!(found, "GET /lost 5 GET /found 15 /lost 404 1 5 /found 200 1 15 20 404 5 200 15 3");
    Pass
}
