//! `jstack()`: the functions of Python in the stack of a process. The interpreter itself says what
//! they are.

use std::path::Path;

use crate::Verdict::{self, Pass, Skip};
use bpf_sys::features::Facility;

use crate::machine::{lacks, no_types};
use crate::pid::Programs;
use crate::targets::in_namespace;
use crate::tool::{Output, dtrace};
use crate::usdt::compiled;
use testing::dir::Dir;

tests! {
    functions_of_python_are_those_that_the_interpreter_says
    each_thread_of_python_has_its_own_functions
    a_thread_has_the_functions_of_an_interpreter_that_another_one_made
    what_takes_the_place_of_a_function_has_its_own_name
    processes_that_run_one_file_share_the_memory_of_its_names
    stacks_with_functions_of_python_are_keys
    functions_of_python_are_limited_by_the_number_of_frames
    functions_of_python_are_found_in_a_child_and_in_a_pid_namespace
    a_probe_of_the_interpreter_has_the_functions_of_python
    what_has_no_space_for_names_is_counted
    a_process_with_many_names_hides_those_of_no_other_user
    a_process_that_pretends_to_be_an_interpreter_does_no_harm
    functions_of_python_are_frames_of_a_flame_graph
}

/// Tells its functions and then makes a system call, by which they are compared.
const POINT: &str = "
import os, signal, sys, time
def point():
    frame, told = sys._getframe(1), []
    while frame:
        code = frame.f_code
        told.append(f'{code.co_filename}:{frame.f_lineno} ({code.co_qualname})')
        frame = frame.f_back
    os.write(1, ('|'.join(told) + '\\n').encode())
    os.getpgid(0)
def known():
    # The first stacks ask for the tables of libc and of the interpreter. The session answers when they are there.
    told = []; signal.signal(signal.SIGUSR1, lambda *_: told.append(1))
    while not told: os.getpgid(1); time.sleep(0.001)
";

const EVERYTHING: &str = "
import functools, threading

def plain(n):
    return plain(n - 1) if n else point()

class Outer:
    class Inner:
        def method(self, *words):
            point()
            return len(words)
        @classmethod
        def of(cls):
            return cls().method(1, 2)
        @property
        def value(self):
            return [point() for _ in
                    range(1)]
        def __lt__(self, other):
            point()
            return False
    point()

def generator():
    yield point()
    yield from (point() for _ in range(1))

async def inner():
    point()
async def outer():
    await inner()

def decorated(f):
    @functools.wraps(f)
    def wrapper(*a):
        return f(*a)
    return wrapper
@decorated
def größe():
    point()

def raises():
    try:
        raise ValueError
    except ValueError:
        point()
    finally:
        point()

def long(
):

    x = 1


    x += 1; y = lambda: (
        point())
    # A line above the next one is a negative difference of lines.
    return [
        y(),
        x][
        0]

known()
for round in range(2):
    plain(0)
    plain(30)
    Outer.Inner.of()
    Outer.Inner().value
    sorted([Outer.Inner(), Outer.Inner()])
    sorted([2, 1], key=lambda x: point() or x)
    list(generator())
    try:
        outer().send(None)
    except StopIteration:
        pass
    größe()
    raises()
    long()
    list(map(lambda _: point(), [1]))
    functools.reduce(lambda a, b: point(), [1, 2, 3])
    exec(compile('def 名前():\\n  point()\\n名前()', 'фaйл.py', 'exec'))
    exec(compile('def x\u{10400}():\\n\\n  point()\\nx\u{10400}()', '\u{1f40d}', 'exec'))
    exec(compile('\\n' * 70000 + 'point()', 'far', 'exec'))
    eval('point()')
threading.Thread(target=plain, args=(2,)).start()
";

/// Debian's interpreter of the version whose frames are known. `Err`: the test is skipped.
fn python() -> Result<&'static str, Verdict> {
    const PYTHON: &str = "/usr/bin/python3.11";
    match no_types() {
        Some(skip) => Err(skip),
        None if !Path::new(PYTHON).exists() => Err(Skip("no package python3.11".into())),
        None => Ok(PYTHON),
    }
}

/// A program in a directory, and its file.
fn program(name: &str, text: &str) -> (Dir, String) {
    let dir = Dir::new(name);
    let file = dir.join("program.py");
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap().to_owned();
    (dir, file)
}

/// The functions of Python in each stack of the output, the innermost first.
fn functions(o: &Output) -> Vec<String> {
    let of = |stack: &str| {
        let names = stack.lines().filter_map(|l| l.trim().strip_prefix("[ ")?.strip_suffix(" ]"));
        names.collect::<Vec<_>>().join("|")
    };
    let stacks = o.out.split("\n\n").filter(|stack| stack.contains('`'));
    stacks.map(of).collect()
}

/// What the program tells of its functions.
fn told(o: &Output) -> Vec<String> {
    o.out
        .lines()
        .filter(|l| l.contains('|') || l.contains("(<module>)") && !l.contains("[ "))
        .map(Into::into)
        .collect()
}

/// Traces a program that tells its functions.
fn traced(python: &str, file: &str, script: &str) -> Output {
    let program = format!("{python} -S {file}");
    dtrace(&["-qw", "-c", &program, "-n", script, "-n", KNOWN]).code(0)
}

const CLAUSE: &str = "syscall::getpgid:entry /progenyof($target) && execname == \"python3.11\" && arg0 == 0/ { jstack(127); } ";

/// Asks for the tables of a program that waits for them (`known()`), and tells it when they are
/// there.
const KNOWN: &str = "syscall::getpgid:entry /progenyof($target) && arg0 == 1/ { @asked[jstack(2)] = count(); } \
    syscall::getpgid:entry /progenyof($target) && arg0 == 1 && ustackdepth > 5/ { raise(10); } END { trunc(@asked); }";

/// Fails unless the stacks have the functions that the program tells. Their order may be another.
#[track_caller]
fn agrees(o: &Output, least: usize) {
    assert!(!o.out.contains("[ ? ]") && !o.out.contains("[incomplete]"), "{o:?}");
    // The function that makes the system call is in the stack, too.
    let inner = |stack: String| stack.split_once('|').map(|(_, outer)| outer.to_owned()).unwrap_or_default();
    let (mut found, mut told): (Vec<String>, _) = (functions(o).into_iter().map(inner).collect(), told(o));
    found.sort();
    told.sort();
    assert!(told.len() >= least, "{o:?}");
    for (ours, theirs) in found.iter().zip(&told) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(found.len(), told.len());
}

fn functions_of_python_are_those_that_the_interpreter_says() -> Verdict {
    let python = compiled!(python());
    let (_dir, file) = program("jstack-all", &format!("{POINT}{EVERYTHING}"));
    let o = traced(python, &file, CLAUSE);
    agrees(&o, 40);
    // They are beneath the function that runs them, two columns further.
    let lines: Vec<&str> = o.out.lines().collect();
    let is_name = |line: &str| line.starts_with("                [ ");
    let firsts = lines.windows(2).filter(|two| is_name(two[1]) && !is_name(two[0]));
    let firsts: Vec<&str> = firsts.map(|two| two[0]).collect();
    assert!(
        firsts.iter().all(|line| line.starts_with("              python3.11`_PyEval_EvalFrameDefault")),
        "{firsts:?}"
    );
    // `ustack()` has no such names unless it is given space for them.
    let plain = traced(python, &file, &CLAUSE.replace("jstack(127)", "ustack(127)"));
    assert!(!plain.out.contains("[ "), "{plain:?}");
    agrees(&traced(python, &file, &CLAUSE.replace("jstack(127)", "ustack(127, 512)")), 40);
    Pass
}

fn each_thread_of_python_has_its_own_functions() -> Verdict {
    let python = compiled!(python());
    let threads: String = (0..40).map(|n| format!("def f{n}():\n    gate.wait()\n    point()\n")).collect();
    let text = format!(
        "{POINT}import threading\ngate = threading.Barrier(40)\n{threads}\
         known()\nall = [threading.Thread(target=globals()[f'f{{n}}']) for n in range(40)]\n\
         for t in all: t.start()\nfor t in all: t.join()\n\
         import _xxsubinterpreters as s\n\
         s.run_string(s.create(), {:?})\ndef last():\n    point()\nlast()\n",
        format!("{POINT}def other():\n    point()\nother()\n")
    );
    let (_dir, file) = program("jstack-threads", &text);
    // Other threads run while one writes.
    let o = traced(
        python,
        &file,
        &CLAUSE.replace("getpgid", "write").replace("arg0 == 0", "arg0 == 1 && arg2 > 1"),
    );
    // What an interpreter within another runs ends at its first function.
    let (mut found, told) = (functions(&o), told(&o));
    assert_eq!((found.len(), told.len()), (42, 42), "{o:?}");
    let outer = told.iter().find(|line| line.contains("(other)")).unwrap();
    assert_eq!(outer, "<string>:16 (other)|<string>:17 (<module>)");
    let at = found.iter().position(|stack| stack.contains("(other)")).unwrap();
    let inner = found.remove(at);
    assert_eq!(inner, format!("<string>:9 (point)|{outer}"));
    for n in 0..40 {
        let is_its = |stack: &&String| stack.contains(&format!("(f{n})"));
        assert_eq!((found.iter().filter(is_its).count(), told.iter().filter(is_its).count()), (1, 1), "{n}");
    }
    let ours: Vec<&str> = found.iter().filter_map(|stack| Some(stack.split_once('|')?.1)).collect();
    assert!(told.iter().filter(|line| *line != outer).all(|line| ours.contains(&&**line)), "{o:?}");
    Pass
}

fn a_thread_has_the_functions_of_an_interpreter_that_another_one_made() -> Verdict {
    let python = compiled!(python());
    let text = "
import os, threading, time, _xxsubinterpreters as s
other = s.create()
def runs():
    s.run_string(other, 'import os\\ndef inside():\\n    for n in range(100000): os.umask(n)\\ninside()')
thread = threading.Thread(target=runs)
thread.start()
def waits():
    while thread.is_alive():
        time.sleep(0.0005)
waits()
";
    let (_dir, file) = program("jstack-inside", text);
    let script = "syscall::umask:entry /pid == $target && tid != pid/ { @thread[jstack()] = count(); } \
                  syscall::clock_nanosleep:entry, syscall::clock_nanosleep:return /pid == $target && tid == pid/ { @first[jstack()] = count(); } \
                  END { printa(@thread); printf(\"===\"); printa(@first); }";
    let o = traced(python, &file, script);
    let (thread, first) = o.out.split_once("===").unwrap();
    assert!(first.contains("(waits) ]") && !first.contains("(inside)"), "{o:?}");
    let stacks = thread.split("\n\n").filter(|stack| stack.contains('`'));
    let (with, without): (Vec<&str>, Vec<&str>) =
        stacks.partition(|stack| stack.contains("[ <string>:3 (inside) ]"));
    // The first of them may ask for tables.
    assert!(!with.is_empty() && without.iter().all(|stack| stack.contains("[incomplete]")), "{o:?}");
    Pass
}

/// Functions of which one is at the address of another, in processes of one address space and in
/// one process. Each tells its number.
const REPLACED: &str = "
import gc, os
def run(name, n):
    here = {}
    exec(compile(f'import os\\ndef {name}{n}():\\n    os.umask({n})\\n', f'{name}{n}.py', 'exec'), here)
    here[f'{name}{n}']()
os.umask(7)
import time
time.sleep(1)
for n in range(100, 120):
    if os.fork() == 0:
        run('forked', n)
        os._exit(0)
    os.wait()
for n in range(200, 300):
    run('made', n)
    gc.collect()
def old(n):
    os.umask(n)
for n in range(300, 400):
    old.__code__ = old.__code__.replace(co_name=f'named{n}', co_qualname=f'named{n}')
    old(n)
";

fn what_takes_the_place_of_a_function_has_its_own_name() -> Verdict {
    let python = compiled!(python());
    let (_dir, file) = program("jstack-replaced", REPLACED);
    let script = "syscall::umask:entry /progenyof($target) && arg0 < 100/ { @asked[jstack(2)] = count(); } \
                  syscall::umask:entry /progenyof($target) && arg0 >= 100/ { printf(\"#%d\", arg0); jstack(); } END { trunc(@asked); }";
    let o = traced(python, &file, script);
    let mut seen = Vec::new();
    for stack in o.out.split('#').skip(1) {
        let number: u32 = stack.lines().next().unwrap().trim().parse().unwrap();
        let name = match number {
            ..200 => format!("[ forked{number}.py:3 (forked{number}) ]"),
            200..300 => format!("[ made{number}.py:3 (made{number}) ]"),
            _ => format!("(named{number}) ]"),
        };
        let first = stack.lines().find(|line| line.contains("[ ")).unwrap_or_default();
        assert!(first.ends_with(&name), "{name}: {stack}");
        seen.push(number);
    }
    seen.sort_unstable();
    assert_eq!(seen, (100..120).chain(200..400).collect::<Vec<u32>>());
    Pass
}

fn processes_that_run_one_file_share_the_memory_of_its_names() -> Verdict {
    let python = compiled!(python());
    // Half a megabyte of names, thirty times.
    let text = "import os, time\nos.umask(7)\ntime.sleep(0.05)\nfor n in range(130):\n    name = f'f{n}_'.ljust(1900, 'x')\n    here = {}\n\
                \x20   exec(compile(f'import os\\ndef {name}():\\n    os.umask({n} + 100)', 'y' * 1900, 'exec'), here)\n    here[name]()\n";
    let (_dir, file) = program("jstack-shared", text);
    let script = "syscall::umask:entry /progenyof($target) && arg0 >= 100/ { @[jstack(9)] = count(); @n = count(); } \
                  syscall::umask:entry /progenyof($target) && arg0 < 100/ { @asked[jstack(2)] = count(); } \
                  END { trunc(@asked); printa(@); printa(\"n %@d\\n\", @n); }";
    let run = format!("for n in `seq 30`; do {python} -S {file}; done");
    let dir = Dir::new("jstack-shared-run");
    std::fs::write(dir.join("run.sh"), run).unwrap();
    let program = format!("sh {}", dir.join("run.sh").display());
    let o = dtrace(&["-q", "-x", "aggsize=16m", "-x", "stacksize=64m", "-c", &program, "-n", script]).code(0);
    assert!(o.out.contains(&format!("\nn {}\n", 30 * 130)), "{}", o.err);
    assert!(!o.err.contains("overflow") && !o.out.contains("[ ? ]"), "{}", o.err);
    assert!(o.out.matches("(f").count() > 20 * 130, "{}", o.out.matches("(f").count());
    Pass
}

/// Calls of known number.
const COUNTED: &str = "
import os
def one():
    os.getpgid(0)
def two():
    os.getpgid(0)
    for _ in range(2):
        one()
for _ in range(100):
    one()
for _ in range(50):
    two()
";

fn stacks_with_functions_of_python_are_keys() -> Verdict {
    let python = compiled!(python());
    let (_dir, file) = program("jstack-keys", COUNTED);
    // The process has ended when they are printed.
    let script = "syscall::getpgid:entry /pid == $target/ { @[jstack(40)] = count(); @plain[ustack(40)] = count(); @n = count(); } \
                  END { printa(\"all %@d\\n\", @n); printa(@); printf(\"plain\\n\"); printa(@plain); }";
    let o = traced(python, &file, script);
    let (named, plain) = o.out.split_once("plain\n").unwrap();
    // The interpreter calls from other places when it knows a function better, so there are several
    // stacks of each.
    let counts = |text: &str, with: &str| {
        let stacks = text.split("\n\n").filter(|stack| stack.contains(with));
        stacks.filter_map(|stack| stack.lines().last()?.trim().parse::<u32>().ok()).sum::<u32>()
    };
    assert_eq!((counts(named, "`"), counts(plain, "`")), (250, 250), "{o:?}");
    assert!(o.out.contains("all 250") && !plain.contains("[ "), "{o:?}");
    for (count, [(inner, f), (outer, g)]) in [
        (100, [(4, "one"), (10, "<module>")]),
        (50, [(6, "two"), (12, "<module>")]),
        (100, [(4, "one"), (8, "two")]),
    ] {
        let names = format!("[ {file}:{inner} ({f}) ]\n                [ {file}:{outer} ({g}) ]\n");
        assert_eq!(counts(named, &names), count, "{names}{o:?}");
    }
    Pass
}

fn functions_of_python_are_limited_by_the_number_of_frames() -> Verdict {
    let python = compiled!(python());
    let text = "import os\ndef f(n):\n    return f(n - 1) if n else os.getpgid(0)\n\
                def g(n):\n    return sorted([n], key=g if n > 1 else f)\ng(1)\nf(300)\n";
    let (_dir, file) = program("jstack-limits", text);
    let clause =
        "syscall::getpgid:entry /pid == $target/ { printf(\"#\"); jstack(8); printf(\"#\"); jstack(127); }";
    let o = traced(python, &file, clause);
    let stacks: Vec<&str> = o.out.split('#').skip(1).collect();
    let lines = |stack: &str, of: &str| stack.lines().filter(|line| line.contains(of)).count();
    // Eight frames of C, of which some run functions of Python, and of those eight at most.
    let names: Vec<usize> = stacks.iter().map(|stack| lines(stack, "[ ")).collect();
    assert_eq!(names, [2, 4, 8, 127], "{o:?}");
    let of_c = |line: &&str| line.contains('`') || line.contains("+0x");
    let frames: Vec<usize> = stacks.iter().map(|stack| stack.lines().filter(of_c).count()).collect();
    assert!(frames[0] == 8 && frames[1] > 8 && frames[2] == 8 && frames[3] > 8, "{o:?}");
    Pass
}

fn functions_of_python_are_found_in_a_child_and_in_a_pid_namespace() -> Verdict {
    let python = compiled!(python());
    let text = format!(
        "{POINT}def parent():\n    point()\n    if os.fork() == 0:\n        child()\n        os._exit(0)\n    os.wait()\n\
         def child():\n    point()\nknown()\nparent()\n"
    );
    let (dir, file) = program("jstack-child", &text);
    agrees(&traced(python, &file, CLAUSE), 2);
    let unshared = format!("unshare --pid --fork {python} -S {file}");
    let o = dtrace(&["-qw", "-c", &unshared, "-n", CLAUSE, "-n", KNOWN]).code(0);
    if o.err.contains("unshare:") {
        return Skip("no pid namespaces".into());
    }
    agrees(&o, 2);
    let script = dir.join("clause.d");
    std::fs::write(&script, format!("{CLAUSE}{KNOWN}")).unwrap();
    let within = format!("\"$0\" -qws {} -c \"{python} -S {file}\"", script.display());
    let Some(o) = in_namespace(&within) else { return Skip("no pid namespaces".into()) };
    agrees(&o.code(0), 2);
    Pass
}

fn a_probe_of_the_interpreter_has_the_functions_of_python() -> Verdict {
    let python = compiled!(python());
    if let Some(skip) = lacks(Facility::UprobePerf) {
        return skip;
    }
    let text = "import os\ndef call():\n    os.getpgid(0)\nfor _ in range(20):\n    call()\n";
    let (_dir, file) = program("jstack-probe", text);
    let names = format!("[ {file}:3 (call) ]\n                [ {file}:5 (<module>) ]\n");
    for probe in ["entry", "return"] {
        let o = traced(python, &file, &format!("pid$target:libc.so.6:getpgid:{probe} {{ jstack(30); }}"));
        assert_eq!(o.out.matches(&names).count(), 20, "{o:?}");
    }
    Pass
}

fn what_has_no_space_for_names_is_counted() -> Verdict {
    let python = compiled!(python());
    // Each has names of two thousand bytes. All are alive, so that each has an address of its own.
    let text = "import os\nnext, all = os.getpgid, []\n\
                for n in range(3000):\n    name = f'f{n}_'.ljust(1900, 'x')\n    here = {'next': next}\n\
                \x20   exec(compile(f'def {name}():\\n next(0)', 'y' * 1900, 'exec'), here)\n\
                \x20   all.append(here[name])\n    here[name]()\n";
    let (_dir, file) = program("jstack-full", text);
    let script = "syscall::getpgid:entry /pid == $target/ { @[jstack(9)] = count(); @n = count(); } END { printa(@); printa(\"n %@d\\n\", @n); }";
    let program = format!("{python} -S {file}");
    let o = dtrace(&["-q", "-x", "aggsize=16m", "-c", &program, "-n", script]).code(0);
    assert!(o.err.contains("jstack()/ustack() string table overflow"), "{}", o.err);
    assert!(o.out.contains("\nn 3000\n"), "{}", o.err);
    let (named, unnamed) = (o.out.matches("(f").count(), o.out.matches("[ ? ]").count());
    // 4 MiB are enough for a thousand of them.
    assert!((1000..1100).contains(&named), "{named}");
    assert!(unnamed >= 1, "{unnamed}");
    // What was stored before is still named.
    assert!(o.out.contains(&format!("{file}:8 (<module>)")), "{}", o.err);
    Pass
}

/// A process that makes names without end takes its share: those of root and of another user have
/// theirs.
fn a_process_with_many_names_hides_those_of_no_other_user() -> Verdict {
    let python = compiled!(python());
    // Each has names of nearly four thousand bytes, of which the store holds a thousand.
    let text = "import os, signal, sys, time\ntold = []; signal.signal(signal.SIGUSR1, lambda *_: told.append(1))\n\
                while not told: os.getpgid(1); time.sleep(0.001)\n\
                next, all, kind, count = os.getpgid, [], sys.argv[1], int(sys.argv[2])\n\
                for n in range(count):\n    name = f'{kind}{n}_'.ljust(1900, 'x')\n    here = {'next': next}\n\
                \x20   exec(compile(f'def {name}():\\n next(0)', kind.ljust(1900, 'y'), 'exec'), here)\n\
                \x20   all.append(here[name])\n    here[name]()\n";
    let (dir, file) = program("jstack-shares", text);
    let run = |user: u32, kind: &str, count: u32| {
        format!("setpriv --reuid={user} --clear-groups {python} -S {file} {kind} {count}\n")
    };
    // One in some hundred has a counter in common with who has its share. Of five nearly never
    // three.
    const OTHERS: u32 = 5;
    let hostile = [run(65534, "hostile", 1500), run(65534, "hostiles", 1500)];
    let others = (0..OTHERS).map(|n| run(65533 - n, &format!("other{n}"), 30));
    let all = hostile.into_iter().chain(others).chain([run(0, "root", 50)]);
    std::fs::write(dir.join("run.sh"), all.collect::<String>()).unwrap();
    let script = "syscall::getpgid:entry /progenyof($target) && execname == \"python3.11\" && arg0 == 0/ { @[jstack(9)] = count(); @n = count(); } \
                  END { printa(@); printa(\"n %@d\\n\", @n); }";
    let program = format!("sh {}", dir.join("run.sh").display());
    let o = dtrace(&[
        "-qw",
        "-x",
        "aggsize=16m",
        "-x",
        "stacksize=64m",
        "-c",
        &program,
        "-n",
        script,
        "-n",
        KNOWN,
    ])
    .code(0);
    if o.err.contains("setpriv: ") {
        return Skip("no setpriv".into());
    }
    assert!(o.out.contains("\nn 3200\n"), "{}", o.err);
    let named = |kind: &str| o.out.lines().filter(|l| l.contains(&format!("({kind}"))).count();
    let others: Vec<usize> = (0..OTHERS).map(|n| named(&format!("other{n}"))).collect();
    assert!(others.iter().filter(|named| **named > 25).count() >= 3, "{others:?} {}", o.err);
    assert!((40..=50).contains(&named("root")), "{} {}", named("root"), o.err);
    // A quarter of what root leaves to others, then half as many.
    assert!((190..330).contains(&named("hostile")), "{} {}", named("hostile"), o.err);
    assert!(o.err.contains("jstack()/ustack() string table overflow"), "{}", o.err);
    Pass
}

/// Has what an interpreter has, and lies in it.
const LIAR: &str = r#"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
__attribute__((section(".PyRuntime"), used)) uint64_t _PyRuntime[512] = {1};
const unsigned long Py_Version = 0x030b07f0;
static uint64_t interpreter[16], thread[64], other[64], frame[16], code[64], text[16], huge[16], lines[16];
__attribute__((noinline)) void call(void) { syscall(SYS_getpgid, 0); __asm__ volatile(""); }
int main(int argc, char **argv)
{
    uint64_t own;
    volatile uint64_t cframe[8] = {0}; // only on the stack it is that of a thread
    __asm__("mov %%fs:0, %0" : "=r"(own));
    _PyRuntime[5] = (uint64_t)interpreter;
    interpreter[0] = (uint64_t)interpreter; // its own next
    interpreter[2] = (uint64_t)other;
    other[1] = (uint64_t)other; // a list without an end
    call();
    other[1] = (uint64_t)thread;
    thread[19] = own;
    thread[7] = (uint64_t)cframe;
    call(); // no frame
    cframe[1] = (uint64_t)frame;
    cframe[2] = (uint64_t)cframe;
    call(); // no code object
    frame[4] = (uint64_t)code;
    frame[6] = (uint64_t)frame; // calls itself
    frame[7] = (uint64_t)code + 184;
    call(); // no strings
    code[14] = (uint64_t)text;
    code[16] = (uint64_t)huge;
    code[17] = (uint64_t)lines;
    text[2] = huge[2] = lines[2] = UINT64_MAX;
    text[4] = 0xe4; huge[4] = 0xfc; // widths of 1 and 7
    call();
    for (int n = 0; n < 16; n++) {
        text[4] = huge[4] = n << 2 | 0xe0;
        text[2] = n * 100; huge[2] = (uint64_t)n << 60 | n;
        lines[2] = (uint64_t)n << 58 | n;
        code[9] = n;
        frame[7] = (uint64_t)code + 184 + ((uint64_t)n << 24);
        call();
    }
    frame[8] = UINT64_MAX; // each is the first of its call
    call();
    cframe[1] = UINT64_MAX;
    call();
    thread[7] = 1;
    call();
    _PyRuntime[72] = 1;
    call();
    return 0;
}
"#;

fn a_process_that_pretends_to_be_an_interpreter_does_no_harm() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let (_programs, liar) = compiled!(Programs::new("liar", ("cc", LIAR), &["-g", "-rdynamic"]));
    let script = "syscall::getpgid:entry /pid == $target/ { jstack(127); @n = count(); } END { printa(\"n %@d\\n\", @n); }";
    let o = dtrace(&["-q", "-c", &liar, "-n", script]).code(0);
    assert!(o.out.contains("\nn 25\n"), "{o:?}");
    assert_eq!(o.out.matches("`call+").count(), 25, "{o:?}");
    // Those that lead somewhere are there, as often as there may be frames.
    assert!(o.out.matches("                [ ").count() > 10 * 127, "{o:?}");
    assert!(!o.err.contains("rejected") && !o.err.contains("bug"), "{o:?}");
    Pass
}

fn functions_of_python_are_frames_of_a_flame_graph() -> Verdict {
    let python = compiled!(python());
    let (dir, file) = program("jstack-flame", COUNTED);
    let to = dir.join("out.folded");
    let program = format!("{python} -S {file}");
    let script = "syscall::getpgid:entry /pid == $target/ { @[jstack()] = count(); }";
    dtrace(&["-q", "--flame", to.to_str().unwrap(), "-c", &program, "-n", script]).code(0);
    let folded = std::fs::read_to_string(&to).unwrap();
    let sum = |part: &str| {
        let of = folded.lines().filter(|line| line.contains(part));
        of.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum::<u64>()
    };
    assert_eq!(
        sum("<module> (program.py);one (program.py);python3.11`_PyEval_EvalFrameDefault;"),
        100,
        "{folded}"
    );
    assert_eq!(sum("<module> (program.py);two (program.py);"), 150, "{folded}");
    assert_eq!(sum("two (program.py);one (program.py);"), 100, "{folded}");
    Pass
}
