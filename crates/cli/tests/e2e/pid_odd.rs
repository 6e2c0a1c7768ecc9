//! Probes of processes that are found in unusual circumstances: without a first thread, in
//! namespaces, on file systems that do not answer.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use bpf_sys::features::Facility;
use testing::eventually;
use testing::fuse::Fuse;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::lacks;
use crate::pid::{Programs, compiled};
use crate::targets::{in_namespace, wait_for_state};
use crate::tool::{LIMIT, Output, dtrace, finish, printed, signal, start, under};

tests! {
    a_process_whose_first_thread_has_ended_is_traced
    a_first_thread_that_ends_takes_no_probes_with_it
    sets_of_processes_are_found_in_a_pid_namespace
    a_user_is_found_where_names_are_served
    a_file_that_is_never_read_does_not_block_its_probes
    variables_that_begin_as_zeros_have_their_names
    a_library_behind_twenty_megabytes_of_map_is_found
    what_has_no_names_or_does_not_run_is_said
}

/// The first thread ends. Another one calls `add` when a byte comes, and then waits for the end of
/// its input; or after its argument's milliseconds.
const WITHOUT_FIRST: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline, noclone)) long add(long a, long b) { __asm__ volatile(""); return a + b; }
static void *calls(void *wait)
{
    char c;
    if (wait)
        usleep(1000 * atoi(wait));
    else
        read(0, &c, 1);
    for (int i = 0; i < 1000; i++)
        add(i, 1);
    if (!wait) {
        write(1, "done\n", 5);
        read(0, &c, 1);
    }
    return NULL;
}
int main(int argc, char **argv)
{
    pthread_t thread;
    pthread_create(&thread, NULL, calls, argc > 1 ? argv[1] : NULL);
    pthread_exit(NULL);
}
"#;

/// Waits for a byte, or for the file of its third argument, and then calls `add` so often as its
/// argument says, in itself and in as many children as its second argument says.
pub(crate) const CHILDREN: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline, noclone)) long add(long a, long b) { __asm__ volatile(""); return a + b; }
int main(int argc, char **argv)
{
    int calls = atoi(argv[1]), children = argc > 2 ? atoi(argv[2]) : 0;
    puts("ready");
    fflush(stdout);
    if (argc > 3)
        while (access(argv[3], F_OK))
            usleep(1000);
    else
        getchar();
    for (int n = 0; n < children; n++)
        if (!fork()) {
            for (int i = 0; i < calls; i++)
                add(i, 1);
            _exit(0);
        }
    while (wait(NULL) > 0)
        ;
    for (int i = 0; i < calls; i++)
        add(i, 1);
    return 0;
}
"#;

/// Maps the file of its argument as code, and waits; or shows addresses: of variables with and
/// without a value at the start, and of memory that is no variable.
const VARIABLES: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
char large[1 << 20];
static char small[64];
static int seven = 7;
static __thread int own;
__attribute__((noinline, noclone)) void shown(void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }
int main(int argc, char **argv)
{
    if (argc > 1) {
        mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, open(argv[1], O_RDONLY), 0);
        puts("ready");
        fflush(stdout);
        getchar();
    }
    shown(large);
    shown(&large[(1 << 20) - 1]);
    shown(&small[5]);
    shown(&seven);
    shown(malloc(10));
    shown(&own);
    return 0;
}
"#;

/// A process that waits for its byte.
fn waiting(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Traces a process that waits, lets it go when the script prints, and ends when it says that it is
/// done.
fn traced(child: &mut Child, words: &[&str]) -> Output {
    let mut tracer = start(words);
    printed(&mut tracer);
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"x").unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    signal(&tracer, libc::SIGINT);
    let o = finish(tracer).code(0);
    drop(input);
    child.wait().unwrap();
    assert_eq!(line, "done\n", "{o:?}");
    o
}

fn a_process_whose_first_thread_has_ended_is_traced() -> Verdict {
    if let Some(skip) = lacks(Facility::TpBtf) {
        return skip;
    }
    let (_dir, program) = compiled!(Programs::new("first", ("cc", WITHOUT_FIRST), &["-O2", "-pthread"]));
    let without = || {
        let child = waiting(&mut Command::new(&program));
        wait_for_state(&child.id().to_string(), 'Z');
        child
    };
    let mut child = without();
    let id = child.id();
    let script = format!(
        "BEGIN {{ printf(\"on\\n\"); }} pid{id}:a.out:add:entry {{ @[\"entry\"] = count(); @stacks[ustack(1)] = count(); }}
         pid{id}:a.out:add:return {{ @[\"return\"] = count(); }} pid{id}:libc:read:return {{ @[\"read\"] = count(); }}
         END {{ printa(\"%s %@d\\n\", @); printa(@stacks); }}"
    );
    let o = traced(&mut child, &["-qn", &script]);
    for line in ["entry 1000", "return 1000", "read 1"] {
        assert!(o.out.lines().any(|l| l == line), "{line}: {o:?}");
    }
    assert!(o.out.contains("program`add\n"), "{o:?}");
    // As a target, and selected by its name.
    let mut child = without();
    let script = "BEGIN { printf(\"on\\n\"); } pid$target:a.out:add:entry { @ = count(); }";
    let id = child.id().to_string();
    let o = traced(&mut child, &["-qp", &id, "-n", script]);
    assert_eq!(o.out.split_whitespace().collect::<Vec<_>>(), ["on", "1000"], "{o:?}");
    let mut child = without();
    let id = child.id();
    let script = "BEGIN { printf(\"on\\n\"); } pid*:a.out:add:entry { @[probeprov] = count(); }";
    let o = traced(&mut child, &["-qx", &format!("processes={id},name=program"), "-n", script]);
    assert_eq!(o.out.split_whitespace().collect::<Vec<_>>(), ["on", &format!("pid{id}"), "1000"], "{o:?}");
    Pass
}

fn a_first_thread_that_ends_takes_no_probes_with_it() -> Verdict {
    if let Some(skip) = lacks(Facility::TpBtf) {
        return skip;
    }
    let (_dir, program) = compiled!(Programs::new("ends", ("cc", WITHOUT_FIRST), &["-O2", "-pthread"]));
    let script = "pid$target:a.out:add:entry, pid$target:a.out:add:return { @[probename] = count(); }";
    // `pthread_exit` loads an unwinder, for which returns move to instructions: where the process
    // is held before the thread ends, else when it perhaps has ended. A kernel that attaches to
    // places one by one detaches all of them then.
    for (option, value) in [("pidreturn", "ret"), ("pidreturn", "auto"), ("exithold", "no")] {
        let option = format!("{option}={value}");
        let o = dtrace(&["-x", &option, "-qc", &format!("{program} 1500"), "-n", script]).code(0);
        let words: Vec<&str> = o.out.split_whitespace().collect();
        assert_eq!(words, ["entry", "1000", "return", "1000"], "{option}: {o:?}");
    }
    Pass
}

fn sets_of_processes_are_found_in_a_pid_namespace() -> Verdict {
    if let Some(skip) = lacks(Facility::TpBtf) {
        return skip;
    }
    let (dir, program) = compiled!(Programs::new("space", ("cc", CHILDREN), &["-O2"]));
    // Children are followed from their first instruction, and have their numbers of the namespace.
    let traced = "pid$target:a.out:add:entry { @[pid > 0 && pid < 1000, probeprov == strjoin(\"pid\", lltostr(pid))] = count(); }";
    let command = format!("\"$0\" -qx follow=fork -c '{program} 10 20' -n '{traced}'");
    let Some(o) = in_namespace(&command) else { return Skip("no pid namespaces".into()) };
    let words = |o: &Output| o.out.split_whitespace().map(String::from).collect::<Vec<_>>();
    assert_eq!(words(&o.code(0)), ["ready", "1", "1", "210"]);
    // Many processes share a link, and one that is not meant does not fire.
    let place = dir.path().display();
    let release = format!(
        "touch {place}/go\nfor pid; do while grep -qs '^State:.[^ZX]' /proc/$pid/status; do sleep 0.01; done; done\n"
    );
    std::fs::write(dir.path().join("release"), release).unwrap();
    let script = format!(
        "for n in 1 2 3 4 5 6 7 8 9 10 11; do {program} $n 0 {place}/go >/dev/null & all=\"$all $!\"; done
         \"$0\" -qx processes=`echo ${{all% *}} | tr ' ' ,` -c \"sh {place}/release $all\" -n '
            pid*:a.out:add:entry {{ @ = count(); @each[probeprov] = count(); }}
            END {{ printa(\"all %@d\\n\", @); printa(\"%s %@d\\n\", @each); }}'"
    );
    let o = in_namespace(&script).unwrap().code(0);
    assert!(o.out.lines().any(|line| line == "all 55"), "{o:?}");
    assert_eq!(o.out.lines().filter(|line| line.starts_with("pid")).count(), 10, "{o:?}");
    Pass
}

fn a_user_is_found_where_names_are_served() -> Verdict {
    let (dir, program) = compiled!(Programs::new("user", ("cc", CHILDREN), &["-O2"]));
    let getent = dir.path().join("getent");
    let text =
        "#!/bin/sh\ntest \"$*\" = 'passwd -- dt-served' && echo 'dt-served:x:54321:54321::/:/bin/sh'\n";
    std::fs::write(&getent, text).unwrap();
    std::fs::set_permissions(&getent, PermissionsExt::from_mode(0o755)).unwrap();
    let mut child = {
        use std::os::unix::process::CommandExt;
        waiting(Command::new(&program).arg("1").uid(54321).current_dir("/"))
    };
    let path = format!("PATH={}:{}", dir.path().display(), std::env::var("PATH").unwrap_or_default());
    let list = |user: &str| {
        let option = format!("processes=user={user}");
        under(&["env", &path], &["-lx", &option, "-n", "pid*:a.out:add:entry"]).unwrap()
    };
    let (served, unknown) = (list("dt-served"), list("dt-nobody"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(served.code == Some(0) && served.out.contains("add entry"), "{served:?}");
    assert!(unknown.code == Some(1), "{unknown:?}");
    assert!(unknown.err.contains("option processes: there is no user \"dt-nobody\""), "{unknown:?}");
    Pass
}

fn a_file_that_is_never_read_does_not_block_its_probes() -> Verdict {
    let (dir, program) = compiled!(Programs::new("fuse", ("cc", CHILDREN), &["-O2"]));
    let bytes = std::fs::read(program).unwrap();
    let place = dir.path().join("served");
    let fuse = match Fuse::mount(&place, vec![("program", bytes)]) {
        Ok(fuse) => fuse,
        Err(why) => return Skip(why),
    };
    let mut child = waiting(Command::new(place.join("program")).arg("5"));
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    fuse.stop_answering();
    let text = format!("pid{}:libc:getchar:entry {{ }}", child.id());
    dtrace(&["-qn", &text, "-n", "BEGIN { exit(0); }"]).code(0);
    // What has to read the file waits for a limited time, and ends when it is told to.
    let text = format!("pid{}:a.out:add:entry {{ }}", child.id());
    let before = fuse.unanswered();
    let tracer = start(&["-qn", &text, "-n", "BEGIN { exit(0); }"]);
    eventually("a reader that waits", LIMIT, || fuse.unanswered() > before);
    signal(&tracer, libc::SIGINT);
    let o = finish(tracer);
    // By the signal, not by the end of its patience.
    assert_eq!(o.code, None, "{o:?}");
    drop(fuse);
    child.kill().unwrap();
    child.wait().unwrap();
    Pass
}

fn variables_that_begin_as_zeros_have_their_names() -> Verdict {
    let (_dir, program) = compiled!(Programs::new("zeros", ("cc", VARIABLES), &["-O1"]));
    let script =
        "pid$target:a.out:shown:entry { @[usym(arg0), umod(arg0)] = count(); @at[uaddr(arg0)] = count(); }
        END { printa(\"%A %A %@d\\n\", @); printa(\"%A\\n\", @at); }";
    let o = dtrace(&["-qc", &program, "-n", script]).code(0);
    let lines: Vec<&str> = o.out.lines().filter(|line| !line.is_empty()).collect();
    for line in [
        "program`large program 2",
        "program`small program 1",
        "program`seven program 1",
        "program`large+0xfffff",
    ] {
        assert!(lines.contains(&line), "{line}: {o:?}");
    }
    // What is on the heap and in the thread has an address and no module.
    assert_eq!(lines.iter().filter(|line| line.starts_with("0x")).count(), 4, "{o:?}");
    Pass
}

fn what_has_no_names_or_does_not_run_is_said() -> Verdict {
    let (dir, program) = compiled!(Programs::new("names", ("cc", VARIABLES), &["-O1"]));
    let made = |name: &str, words: &[&str]| {
        let path = dir.path().join(name).display().to_string();
        let o = Command::new("strip").args(words).args(["-o", &path, &program]).output();
        o.is_ok_and(|o| o.status.success()).then_some(path)
    };
    let Some(stripped) = made("stripped", &[]) else { return Skip("no strip".into()) };
    for (description, says) in [
        ("pid$target:a.out::entry", "does not match any probes: no functions in stripped\n"),
        ("pid$target:a.out:shown:entry", "no function \"shown\" in stripped\n"),
    ] {
        let o = dtrace(&["-c", &stripped, "-n", description]).code(1);
        let help = "help: stripped is stripped of all names: a debug file with its build id has them\n";
        assert!(o.err.contains(says) && o.err.contains(help), "{description}: {o:?}");
    }
    // Of a process that has mapped a file as code which is none.
    let text = dir.path().join("text");
    std::fs::write(&text, "#!/bin/sh\n".repeat(1000)).unwrap();
    let mut child = waiting(Command::new(&program).arg(&text));
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let o = dtrace(&["-n", &format!("pid{}:text::entry", child.id())]).code(1);
    let described = dtrace(&["-n", &format!("described{}:::", child.id())]).code(1);
    child.kill().unwrap();
    child.wait().unwrap();
    let says = format!(
        "does not match any probes: the functions of {} cannot be read: not a valid ELF file\n",
        text.display()
    );
    assert!(o.err.contains(&says), "{o:?}");
    let says = format!("the probes of {} cannot be read: not a valid ELF file", text.display());
    assert_eq!(described.err.matches(&says).count(), 1, "{described:?}");
    let cut = dir.path().join("cut").display().to_string();
    std::fs::copy(&program, &cut).unwrap();
    std::fs::File::options().write(true).open(&cut).unwrap().set_len(3000).unwrap();
    let o = dtrace(&["-c", &cut, "-n", "BEGIN"]).code(1);
    let says = format!("dtrace: failed to execute {cut}: the kernel ended it by SIG");
    let refused = o.err.starts_with(&says) && o.err.contains("before it ran: the file may be damaged");
    // Kernel 6.1 runs it, for a moment.
    assert!(refused || o.err.ends_with("process died from SIGBUS\n"), "{o:?}");
    let o = dtrace(&["-n", "plockstat*:::mutex-block"]).code(1);
    assert!(o.err.contains("help: it has a process: plockstat1234, or plockstat$target"), "{o:?}");
    Pass
}

/// Maps a file with a long path so often that the list of its mappings has 21 MB, and calls
/// `getppid` when a byte comes.
const LONG_MAP: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    char name[251];
    memset(name, 'd', 250);
    name[250] = 0;
    if (chdir(argv[1]))
        return 1;
    for (int i = 0; i < 14; i++)
        if (mkdir(name, 0755) || chdir(name))
            return 1;
    int fd = open("f", O_RDWR | O_CREAT, 0644);
    if (ftruncate(fd, 4096))
        return 1;
    for (int i = 0; i < 6000; i++)
        if (mmap(0, 4096, i & 1 ? PROT_READ : PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
            return 1;
    printf("mapped\n");
    fflush(stdout);
    getchar();
    for (int i = 0; i < 1000; i++)
        getppid();
    printf("done\n");
    fflush(stdout);
    getchar();
    return 0;
}
"#;

fn a_library_behind_twenty_megabytes_of_map_is_found() -> Verdict {
    let (dir, program) = compiled!(Programs::new("maps", ("cc", LONG_MAP), &["-O2"]));
    let mut child = waiting(Command::new(&program).arg(dir.path()));
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "mapped\n");
    let script = "BEGIN { printf(\"on\\n\"); } pid$target:libc:getppid:entry { @ = count(); }";
    let id = child.id().to_string();
    // The library describes probes of its own, where it was made so. A glob is asked of every
    // process.
    let described = |pid: u32| dtrace(&["-ln", &format!("libc{pid}*:::")]);
    let is_described = described(std::process::id()).code == Some(0);
    if is_described {
        let listed = described(child.id()).code(0);
        assert!(listed.out.contains(&format!(" libc{id} ")), "{listed:?}");
    }
    let o = traced(&mut child, &["-qp", &id, "-n", script]);
    assert_eq!(o.last_number(), 1000, "{o:?}");
    Pass
}
