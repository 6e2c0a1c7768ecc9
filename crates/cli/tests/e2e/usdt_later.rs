//! USDT in processes that start, fork, load and execute files after dtrace has begun.

use std::io::Read;
use std::process::{Child, Command};

use bpf_sys::features::Facility;
use testing::eventually;

use crate::Verdict::{self, Pass};
use crate::machine::lacks;
use crate::tool::{LIMIT, dtrace, finish, printed, signal, start, unread};
use crate::usdt::{Programs, compiled, line, next, wait};
use crate::usdt_dynamic;

tests! {
    a_library_has_its_probes_before_its_constructors_run
    a_library_that_is_opened_again_has_its_probes
    processes_that_start_later_have_the_probes_of_a_glob
    a_child_has_the_probes_of_its_parent
    a_program_that_a_process_executes_has_its_probes
    what_a_process_had_goes_with_it
    all_processes_of_a_glob_share_the_links_of_a_file
    a_thousand_processes_have_one_provider
    a_file_that_is_written_anew_is_traced_as_it_is
    a_provider_of_one_name_is_traced_each_time_that_it_is_made
    files_of_processes_that_have_ended_are_closed
    a_glob_and_a_description_of_processes_see_each_firing_once
    a_later_program_becomes_no_other_provider
    of_many_processes_those_with_the_provider_are_listed
    a_string_in_a_page_that_is_not_there_yet_is_read
}

const LIBRARY: &str = "PLAIN void in_library(long a) { __asm__ volatile(\"990: nop\\n\" \
                       NOTE(\"tstlib\", \"called\", \"0\", \"-8@%0\") :: \"r\"(a)); }\n\
                       __attribute__((constructor)) static void begin(void) { in_library(100); }";

/// Opens the library three times.
const OPENER: &str = r#"
#include <dlfcn.h>
int main(int c, char **v)
{
    for (int i = 0; i < 3; i++) {
        void *l = dlopen(v[1], RTLD_NOW);
        if (!l)
            return 9;
        ((void (*)(long))dlsym(l, "in_library"))(1);
        dlclose(l);
    }
    return 0;
}
"#;

/// The sums of a description by provider, as `tst123 45`. Who fires with 0 is told that it is seen,
/// as `seen tst123`.
fn sums_of(description: &str) -> String {
    format!(
        "{description} {{ @[probeprov] = sum(arg0); }} {description} /!arg0/ {{ printf(\"seen %s\\n\", probeprov); }} \
         BEGIN {{ printf(\"begun\\n\"); }} END {{ printa(\"%s %@d\\n\", @); }}"
    )
}

fn opened(name: &str, processes: &str) -> Verdict {
    let programs = compiled!(Programs::new(name));
    let library = compiled!(programs.compile(
        "libtst.so.1",
        &LIBRARY.replace("tstlib", &own("tstlib")),
        &["-shared", "-fPIC"]
    ));
    let opener = compiled!(programs.compile("opener", OPENER, &["-ldl"]));
    let script = format!(
        "{}{processes}:::called {{ @[arg0] = count(); }} END {{ printa(\"%d:%@d \", @); }}",
        own("tstlib")
    );
    let o = dtrace(&["-qZc", &format!("{opener} {library}"), "-n", &script]).code(0);
    let mut found: Vec<&str> = o.out.split_whitespace().collect();
    found.sort_unstable();
    assert_eq!(found, ["100:3", "1:3"], "{o:?}");
    Pass
}

fn a_library_has_its_probes_before_its_constructors_run() -> Verdict {
    opened("opened", "$target")
}

fn a_library_that_is_opened_again_has_its_probes() -> Verdict {
    opened("again", "*")
}

/// A session that looks for a description which nothing matches yet.
fn session(description: &str) -> Child {
    let mut child = start(&["-Zq", "-x", "switchrate=50hz", "-n", &sums_of(description)]);
    printed(&mut child);
    child
}

/// Ends a session, and gives its sums in order.
fn sums(child: Child) -> Vec<String> {
    signal(&child, 15);
    let o = finish(child).code(0);
    let mut all: Vec<String> = o.out.lines().filter(|l| l.starts_with("tst")).map(Into::into).collect();
    all.sort();
    all
}

/// What a program says of its probe.
fn asked_once(process: &mut Child) -> String {
    next(process);
    line(process)
}

/// Waits until a session has seen a firing of a program's probe.
fn until_traced(session: &mut Child, process: &mut Child) {
    let pid = process.id().to_string();
    let is_its = |line: &str| {
        line.strip_suffix(&pid)
            .is_some_and(|provider| provider.ends_with(['x', '_']) && line.starts_with("seen "))
    };
    let mut said = Vec::new();
    eventually("the tracing of the probe", LIMIT, || {
        asked_once(process);
        let mut part = vec![0; unread(session).max(0) as usize];
        session.stdout.as_mut().unwrap().read_exact(&mut part).unwrap();
        said.append(&mut part);
        String::from_utf8_lossy(&said).lines().any(is_its)
    });
}

/// For each line fires with a number that adds nothing, and says whether the probe is traced. Fires
/// at the end of its input. The kernel counts a semaphore up a moment before it changes the code,
/// and changes that a moment before the tracer's program runs.
const ASKED: &str = r#"
#include <stdlib.h>
#include <unistd.h>
#include <sys/wait.h>
__attribute__((section(".probes"), used)) volatile unsigned short tst_done_semaphore;
PLAIN void done(long a)
{
    __asm__ volatile("990: nop\n" NOTE(PROVIDER, "done", "tst_done_semaphore", "-8@%0") :: "r"(a));
}
int main(int c, char **v)
{
    while (getchar() != EOF) {
        done(0);
        printf("%d\n", tst_done_semaphore != 0);
        fflush(stdout);
    }
    if (c > 1) {
        int pid = fork();
        if (!pid) {
            done(10);
            return 0;
        }
        waitpid(pid, 0, 0);
    }
    done(5);
    return 0;
}
"#;

/// A provider that no other run of these tests on this machine has.
pub(crate) fn own(provider: &str) -> String {
    format!("{provider}{}x", std::process::id())
}

fn asked(programs: &Programs, name: &str, provider: &str) -> Result<String, Verdict> {
    programs.compile(name, ASKED, &[&format!("-DPROVIDER=\"{provider}\"")])
}

fn end(mut process: Child) {
    drop(process.stdin.take());
    process.wait().unwrap();
}

fn processes_that_start_later_have_the_probes_of_a_glob() -> Verdict {
    let programs = compiled!(Programs::new("later"));
    let program = compiled!(asked(&programs, "asked", &own("tst")));
    let other = compiled!(asked(&programs, "other", &own("tst")));
    let mut child = session(&format!("{}*:::done", own("tst")));
    let mut expected = Vec::new();
    for program in [&program, &program, &other, &program] {
        let mut process = wait(program);
        until_traced(&mut child, &mut process);
        let most = links(&child);
        expected.push(format!("{}{} 5", own("tst"), process.id()));
        end(process);
        // What starts while they are closed sees its probe traced by a link that goes.
        until_closed(&child, most);
    }
    expected.sort();
    assert_eq!(sums(child), expected);
    Pass
}

fn a_child_has_the_probes_of_its_parent() -> Verdict {
    let programs = compiled!(Programs::new("forked"));
    let program = compiled!(asked(&programs, "asked", &own("tst")));
    let mut child = session(&format!("{}*:::done", own("tst")));
    let mut process = std::process::Command::new(&program)
        .arg("fork")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    until_traced(&mut child, &mut process);
    let parent = format!("{}{} 5", own("tst"), process.id());
    end(process);
    let sums = sums(child);
    assert!(sums.len() == 2 && sums.contains(&parent), "{sums:?}");
    assert!(sums.iter().any(|sum| sum.ends_with(" 10")), "{sums:?}");
    Pass
}

fn a_program_that_a_process_executes_has_its_probes() -> Verdict {
    let programs = compiled!(Programs::new("executed"));
    let program = compiled!(asked(&programs, "asked", &own("tst")));
    let script = format!("{program}.sh");
    std::fs::write(&script, format!("exec {program} </dev/null\n")).unwrap();
    let clause = own("tst") + "$target:::done { @ = sum(arg0); } END { printa(\"%@d\", @); }";
    let o = dtrace(&["-qZc", &format!("sh {script}"), "-n", &clause]);
    let o = o.code(0);
    assert_eq!(o.out.trim(), "5", "{o:?}");
    Pass
}

/// How many links a session has.
fn links(session: &Child) -> usize {
    let all = std::fs::read_dir(format!("/proc/{}/fd", session.id())).unwrap().flatten();
    let of = |fd: &std::fs::DirEntry| std::fs::read_link(fd.path()).unwrap_or_default();
    let is_link = |fd: &std::fs::DirEntry| {
        let name = of(fd).to_string_lossy().into_owned();
        ["bpf_link", "bpf-link", "perf_event"].iter().any(|kind| name.contains(kind))
    };
    all.filter(is_link).count()
}

/// Waits until a session has at most so many links.
fn until_links(session: &Child, most: usize) {
    eventually(format_args!("the end of all but {most} links"), LIMIT, || match links(session) {
        count if count <= most => Ok(()),
        count => Err(format!("{count} links")),
    });
}

/// Waits until a session has fewer links than it had.
fn until_closed(session: &Child, most: usize) {
    until_links(session, most - 1);
}

fn what_a_process_had_goes_with_it() -> Verdict {
    let programs = compiled!(Programs::new("gone"));
    let program = compiled!(asked(&programs, "asked", &own("tst")));
    // It does not match every number, so each process has probes of its own.
    let mut child = session(&format!("{}[0-9]*:::done", own("tst")));
    let before = links(&child);
    let mut all: Vec<Child> = (0..4).map(|_| wait(&program)).collect();
    all.iter_mut().for_each(|process| until_traced(&mut child, process));
    let most = links(&child);
    assert!(most >= before + 4, "{before} {most}");
    all.into_iter().for_each(end);
    until_links(&child, most - 4);
    assert_eq!(sums(child).len(), 4);
    Pass
}

fn all_processes_of_a_glob_share_the_links_of_a_file() -> Verdict {
    let programs = compiled!(Programs::new("shared"));
    let program = compiled!(asked(&programs, "asked", &own("tst")));
    let description = format!("{}*:::done", own("tst"));
    let mut first = wait(&program);
    let mut child = session(&description);
    until_traced(&mut child, &mut first);
    let before = links(&child);
    // The kernel changes what starts later: its first instructions are traced too.
    const RUNS: usize = 50;
    for _ in 0..RUNS {
        let done = Command::new(&program).stdin(std::process::Stdio::null()).output().unwrap();
        assert!(done.status.success());
    }
    let mut second = wait(&program);
    until_traced(&mut child, &mut second);
    assert_eq!(links(&child), before);
    // A list names each process.
    let listed = dtrace(&["-ln", &description]).code(0);
    assert_eq!(listed.out.lines().filter(|l| l.contains(&own("tst"))).count(), 2, "{listed:?}");
    let mut expected = [&first, &second].map(|process| format!("{}{} 5", own("tst"), process.id()));
    expected.sort();
    [first, second].into_iter().for_each(end);
    let sums = sums(child);
    assert_eq!(sums.len(), RUNS + 2, "{sums:?}");
    assert!(expected.iter().all(|sum| sums.contains(sum)), "{sums:?}");
    Pass
}

fn a_file_that_is_written_anew_is_traced_as_it_is() -> Verdict {
    let programs = compiled!(Programs::new("anew"));
    let first = compiled!(asked(&programs, "first", &own("tst")));
    let provider = format!("-DPROVIDER=\"{}\"", own("tst"));
    let second = compiled!(programs.compile("second", ASKED, &[&provider, "-O0"]));
    let program = programs.path("program");
    // The file stays the same, its contents do not. A link that remained would set a place amid
    // instructions.
    let begun = |file: &str| {
        std::fs::copy(file, &program).unwrap();
        wait(&program)
    };
    let mut running = Some(begun(&second));
    let mut child = session(&format!("{}*:::done", own("tst")));
    let mut expected = Vec::new();
    for file in [&second, &first, &second, &first] {
        // The first one was there before.
        let mut process = running.take().unwrap_or_else(|| begun(file));
        until_traced(&mut child, &mut process);
        let most = links(&child);
        expected.push(format!("{}{} 5", own("tst"), process.id()));
        drop(process.stdin.take());
        assert!(process.wait().unwrap().success());
        until_closed(&child, most);
    }
    expected.sort();
    assert_eq!(sums(child), expected);
    Pass
}

/// Makes its provider six times, one after the other. Fires each five times when it is traced: it
/// is told, by a signal.
const REMADE: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
#include "dtrace_usdt.h"
static volatile sig_atomic_t seen;
static void told(int number) { seen = number; }
int main(void)
{
    signal(SIGUSR1, told);
    alarm(240);
    for (int number = 0; number < 6; number++) {
        dtusdt_provider *provider = dtusdt_provider_new("tstremade");
        dtusdt_probe *probe = dtusdt_probe_add(provider, "made", "int");
        if (dtusdt_provider_enable(provider, NULL) != 0)
            return 1;
        if (number == 0)
            puts("ready");
        fflush(stdout);
        for (seen = 0; !seen; usleep(1000))
            DTUSDT_PROBE(probe, 99);
        for (int i = 0; i < 5; i++)
            DTUSDT_PROBE(probe, number);
        dtusdt_provider_free(provider);
    }
    return 0;
}
"#;

/// Traces [`REMADE`]. `is_there`: it has made its provider once before dtrace begins.
fn remade(program: &str, description: &str, is_there: bool) {
    let script = format!(
        "{description}:::made /arg0 == 99/ {{ raise(SIGUSR1); }} {description}:::made /arg0 < 99/ {{ @[arg0] = count(); }} \
         BEGIN {{ printf(\"begun\\n\"); }} END {{ printa(\"%d:%@d\\n\", @); }}"
    );
    let o = if is_there {
        let mut process = wait(program);
        assert_eq!(line(&mut process), "ready");
        let mut child = start(&["-wqn", &script]);
        printed(&mut child);
        process.wait().unwrap();
        signal(&child, 15);
        finish(child).code(0)
    } else {
        dtrace(&["-wqZn", &script, "-c", program]).code(0)
    };
    let mut found: Vec<&str> = o.out.lines().filter(|line| line.contains(':')).collect();
    found.sort_unstable();
    assert_eq!(found, ["0:5", "1:5", "2:5", "3:5", "4:5", "5:5"], "{description} {is_there}: {o:?}");
}

fn a_provider_of_one_name_is_traced_each_time_that_it_is_made() -> Verdict {
    let programs = compiled!(usdt_dynamic::Programs::new("remade"));
    let name = own("tstremade");
    let program = compiled!(programs.compile(&REMADE.replace("tstremade", &name), false));
    for (processes, is_there) in [("*", false), ("*", true), ("[0-9]*", false), ("$target", false)] {
        remade(&program, &format!("{name}{processes}"), is_there);
    }
    Pass
}

/// How many files of a directory a process has open.
fn open_in(process: &Child, dir: &str) -> usize {
    let all = std::fs::read_dir(format!("/proc/{}/fd", process.id())).unwrap().flatten();
    all.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|file| file.starts_with(dir))).count()
}

/// Runs copies of a program one after the other while a description is looked for, and one more at
/// last: nothing of them remains open.
fn closed_after(description: &str, copies: usize) -> Verdict {
    let programs = compiled!(Programs::new("closed"));
    let program = compiled!(asked(&programs, "asked", &own("tst")));
    let (dir, mut child) = (programs.path(""), session(description));
    let mut expected = Vec::new();
    let run = |number: usize, session: &mut Child, expected: &mut Vec<String>| {
        let copy = programs.path(&format!("copy{number}"));
        if !std::path::Path::new(&copy).exists() {
            std::fs::copy(&program, &copy).unwrap();
        }
        let mut process = wait(&copy);
        until_traced(session, &mut process);
        expected.push(format!("{}{} 5", own("tst"), process.id()));
        end(process);
        // Every second one has no path any more.
        if number.is_multiple_of(2) {
            std::fs::remove_file(copy).unwrap();
        }
    };
    (0..copies).for_each(|number| run(number, &mut child, &mut expected));
    eventually("the closing of all files", LIMIT, || match open_in(&child, &dir) {
        0 => Ok(()),
        count => Err(format!("{count} files are open")),
    });
    // A file that was closed is traced again, and so is another one that has its name.
    run(1, &mut child, &mut expected);
    run(0, &mut child, &mut expected);
    expected.sort();
    assert_eq!(sums(child), expected);
    Pass
}

fn files_of_processes_that_have_ended_are_closed() -> Verdict {
    match closed_after(&format!("{}*:::done", own("tst")), 24) {
        // Each process has probes of its own.
        Pass => closed_after(&format!("{}[0-9]*:::done", own("tst")), 24),
        verdict => verdict,
    }
}

fn a_glob_and_a_description_of_processes_see_each_firing_once() -> Verdict {
    let programs = compiled!(Programs::new("both"));
    let program = compiled!(asked(&programs, "asked", &own("tst")));
    let clause = |description: &str, name: &str| {
        format!(
            "{description}:::done {{ @{name} = sum(arg0); }} {description}:::done /!{name}/ {{ {name} = 1; printf(\"{name}\\n\"); }} "
        )
    };
    let script =
        clause(&format!("{}*", own("tst")), "all") + &clause(&format!("{}[0-9]*", own("tst")), "each");
    let script = "int all; int each; ".to_owned()
        + &script
        + "BEGIN { printf(\"begun\\n\"); } END { printa(\"%@d %@d\\n\", @all, @each); }";
    let mut child = start(&["-Zqn", &script]);
    printed(&mut child);
    let mut process = wait(&program);
    // Each says when it has seen a firing.
    let all = "begun\nall\neach\n".len() as i32;
    eventually("a firing of both", LIMIT, || asked_once(&mut process) == "1" && unread(&child) >= all);
    end(process);
    signal(&child, 15);
    let o = finish(child).code(0);
    assert!(o.out.lines().any(|line| line == "5 5"), "{o:?}");
    Pass
}

fn a_thousand_processes_have_one_provider() -> Verdict {
    const PROCESSES: usize = 1000;
    let programs = compiled!(Programs::new("thousand"));
    let program = compiled!(asked(&programs, "asked", &own("tst")));
    // They wait for the end of one input.
    let script = format!(
        "exec 3<&0; for n in $(seq {PROCESSES}); do {program} <&3 >/dev/null & done; echo begun; wait"
    );
    let mut all = Command::new("sh")
        .args(["-c", &script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(line(&mut all), "begun");
    let description = format!("{}*:::done", own("tst"));
    let script = format!(
        "{description} {{ @[probeprov] = sum(arg0); @all = count(); }} BEGIN {{ printf(\"begun\\n\"); }} \
         END {{ printa(\"%s %@d\\n\", @); printa(\"all %@d\\n\", @all); }}"
    );
    let mut child = start(&["-qn", &script]);
    printed(&mut child);
    end(all);
    signal(&child, 15);
    let o = finish(child).code(0);
    let each = o.out.lines().filter(|line| line.starts_with("tst") && line.ends_with(" 5")).count();
    assert_eq!(each, PROCESSES, "{}", o.err);
    assert!(o.out.contains(&format!("all {PROCESSES}\n")) && o.err.is_empty(), "{}", o.err);
    Pass
}

fn a_later_program_becomes_no_other_provider() -> Verdict {
    let programs = compiled!(Programs::new("pretends"));
    let pid = compiled!(asked(&programs, "pid", "pid"));
    let digits = compiled!(asked(&programs, "digits", &(own("tst") + "1")));
    let honest = compiled!(asked(&programs, "honest", &own("tst")));
    let mut child = session(&format!("p*:::done, {}*:::done", own("tst")));
    let (mut pretender, mut named, mut process) = (wait(&pid), wait(&digits), wait(&honest));
    until_traced(&mut child, &mut process);
    until_traced(&mut child, &mut named);
    let mut expected =
        [format!("{}{} 5", own("tst"), process.id()), format!("{}1_{} 5", own("tst"), named.id())];
    expected.sort();
    next(&mut pretender);
    assert_eq!(line(&mut pretender), "0");
    [pretender, process, named].into_iter().for_each(end);
    assert_eq!(sums(child), expected);
    Pass
}

fn of_many_processes_those_with_the_provider_are_listed() -> Verdict {
    let programs = compiled!(Programs::new("many"));
    let program = compiled!(asked(&programs, "asked", &own("tst")));
    let other = compiled!(asked(&programs, "other", &own("tother")));
    let sleep = || Command::new("sleep").arg("60").spawn().unwrap();
    let mut others: Vec<Child> = (0..40).map(|_| sleep()).collect();
    others.push(wait(&other));
    let mut all: Vec<Child> = (0..3).map(|_| wait(&program)).collect();
    for process in all.iter_mut().chain(others.last_mut()) {
        next(process);
        assert_eq!(line(process), "0");
    }
    let mut expected: Vec<String> =
        all.iter().map(|process| format!("{}{}", own("tst"), process.id())).collect();
    expected.sort();
    // The list of everything has them too.
    let described = format!("{}*:asked:done:done", own("tst"));
    let lists = [dtrace(&["-ln", &described]).code(0), dtrace(&["-l"]).code(0)];
    let found = lists.each_ref().map(|o| {
        let rows = o.out.lines().skip(1).map(|l| l.split_whitespace().collect::<Vec<_>>());
        let rows =
            rows.filter(|row| row[1].starts_with(&own("tst")) && row[2..] == ["asked", "done", "done"]);
        let mut found: Vec<String> = rows.map(|row| row[1].to_owned()).collect();
        found.sort_unstable();
        found
    });
    let by_provider = dtrace(&["-l", "-P", "syscall"]).code(0);
    assert!(!by_provider.out.contains(&own("tst")), "{by_provider:?}");
    for mut process in others {
        let _ = process.kill();
        let _ = process.wait();
    }
    all.into_iter().for_each(end);
    assert_eq!(found, [expected.clone(), expected]);
    Pass
}

/// Passes strings of a file that it has mapped and not touched, one in a register and one in
/// memory.
const UNTOUCHED: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
PLAIN void passed(char *a, char *volatile *b)
{
    __asm__ volatile("990: nop\n" NOTE("tst", "passed", "0", "8@%0 8@(%1)") :: "r"(a), "r"(b));
}
PLAIN void once(char *a) { __asm__ volatile("990: nop\n" NOTE("tst", "passed", "0", "8@%0 8@%0") :: "r"(a)); }
int main(int c, char **v)
{
    int fd = open(v[1], O_RDWR | O_CREAT, 0600);
    ftruncate(fd, 3 * 4096);
    for (int i = 0; i < 3; i++)
        pwrite(fd, &"first\0\0second\0third\0"[7 * i], 7, 4096 * i);
    char *m = mmap(0, 3 * 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    madvise(m, 3 * 4096, MADV_RANDOM);
    char *volatile second = m + 4096;
    passed(m, &second);
    once(m + 2 * 4096);
    return 0;
}
"#;

fn a_string_in_a_page_that_is_not_there_yet_is_read() -> Verdict {
    if let Some(skip) = lacks(Facility::UprobeMulti) {
        return skip;
    }
    let programs = compiled!(Programs::new("untouched"));
    let program = compiled!(programs.compile("untouched", UNTOUCHED, &[]));
    let script = "tst$target:::passed { printf(\"%s %s \", copyinstr(arg0), copyinstr(arg1)); }";
    let o = dtrace(&["-qc", &format!("{program} {program}.data"), "-n", script]).code(0);
    assert_eq!(o.out.trim(), "first second third third", "{o:?}");
    Pass
}
