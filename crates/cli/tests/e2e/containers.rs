//! Processes of a container, traced from outside: its files, names and numbers are its own.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::Verdict::{self, Pass, Skip};
use crate::pid::Programs;
use crate::tool::{finish, printed, start};

tests! {
    a_process_of_a_container_is_traced_by_its_own_files_and_names
}

/// The program outside, at whose path the container has another one.
const OUTSIDE: &str = r#"
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline, noclone)) long shown(long n) { __asm__ volatile(""); return n + 1; }
int main(void)
{
    puts("ready");
    fflush(stdout);
    getchar();
    for (int i = 0; i < 1000; i++)
        getppid() + shown(i);
    return 0;
}
"#;

/// The program in the container: `hidden` is named in a file of debug information only, and is
/// called by code that only a perf map names.
const INSIDE: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static char more[4096];
static __attribute__((noinline, noclone)) long hidden(long n) { __asm__ volatile(""); return n * 2; }
int main(void)
{
    /* push %rbp; mov %rsp,%rbp; mov %rdi,%rax; mov %rsi,%rdi; call *%rax; pop %rbp; ret */
    static const unsigned char code[] = { 0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3 };
    char path[64];
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long (*jitted)(long (*)(long), long) = memcpy(page, code, sizeof code);
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(path, "w");
    fprintf(map, "%lx %zx jitted_in_box\n", (unsigned long)page, sizeof code);
    fclose(map);
    printf("ready %d\n", getpid());
    fflush(stdout);
    getchar();
    for (int i = 0; i < 30; i++) {
        more[i] = getppid();
        jitted(hidden, i);
    }
    return 6;
}
"#;

/// `outer DIRECTORY`: makes a control group, and runs `inner` in namespaces.
const OUTER: &str = r#"
mount --make-rprivate / || exit 77
box=$1/cg/dt-box.scope
mount -t cgroup2 none $1/cg && mkdir $box && echo $$ >$box/cgroup.procs
unshare --pid --fork --mount --cgroup sh $1/inner $1
status=$?
echo $$ >$1/cg/cgroup.procs
rmdir $box
exit $status
"#;

/// Makes a root of its own, of an overlay on this one, and executes the program.
const INNER: &str = r#"
mount -t tmpfs none $1/box && cd $1/box && mkdir upper work root &&
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root || exit 77
cd root && mkdir -p old tmp proc usr/lib/debug/.build-id/d7 .$1 && cp $1/inside .$1/program &&
cp $1/debug usr/lib/debug/.build-id/d7/aceb0c0000000000000000000000000000beef.debug &&
mount -t proc proc proc && pivot_root . old && umount -l /old || exit 77
exec $1/program
"#;

/// Its only child.
fn child_of(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Runs a command, and waits for the line that says that it is ready.
fn ready(command: &mut Command) -> Result<(Child, String), String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    if line.starts_with("ready") {
        return Ok((child, line.trim().into()));
    }
    let o = child.wait_with_output().unwrap();
    Err(String::from_utf8_lossy(&o.stderr).trim().to_string())
}

/// Compiles the program of the container and takes its names away from it.
fn inside(dir: &Path) -> Result<(), String> {
    std::fs::write(dir.join("inside.c"), INSIDE).unwrap();
    for name in ["cg", "box"] {
        std::fs::create_dir(dir.join(name)).unwrap();
    }
    for (name, text) in [("outer", OUTER), ("inner", INNER)] {
        std::fs::write(dir.join(name), text).unwrap();
    }
    let id = "-Wl,--build-id=0xd7aceb0c0000000000000000000000000000beef";
    for words in [
        &["cc", "-O2", "-fno-omit-frame-pointer", id, "-o", "inside", "inside.c"][..],
        &["objcopy", "--only-keep-debug", "inside", "debug"],
        &["strip", "inside"],
    ] {
        let o = Command::new(words[0]).args(&words[1..]).current_dir(dir).output();
        let o = o.map_err(|e| format!("no {}: {e}", words[0]))?;
        assert!(o.status.success(), "{o:?}");
    }
    Ok(())
}

fn a_process_of_a_container_is_traced_by_its_own_files_and_names() -> Verdict {
    let (dir, program) = match Programs::new("box", ("cc", OUTSIDE), &["-O2"]) {
        Ok(program) => program,
        Err(verdict) => return verdict,
    };
    if let Err(why) = inside(dir.path()) {
        return Skip(why);
    }
    let place = dir.path().display().to_string();
    let script = format!("{place}/outer");
    let boxed = ready(Command::new("unshare").args(["--mount", "sh", &script, &place]));
    let (mut boxed, line) = match boxed {
        Ok(boxed) => boxed,
        Err(why) => return Skip(format!("no container: {why}")),
    };
    let (mut outside, _) = ready(&mut Command::new(&program)).unwrap();
    // The numbers of the process: here, and in the container.
    let pid = child_of(boxed.id()).and_then(child_of).unwrap();
    assert_eq!(line, "ready 1");
    let group = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let zone = if group.contains("dt-box") { "dt-box.scope" } else { "global" };
    let script = "BEGIN { printf(\"on\\n\"); }
        pid$target:a.out:hidden:entry { @[probemod, zonename] = count(); @stacks[ustack(3)] = count(); }
        pid$target:program:hidden:return { @sum = sum(arg1); }
        pid$target:libc:getppid:entry { @calls[pid == $target] = count(); }
        END
        {
            printa(\"entered %s %s %@d\\n\", @);
            printa(\"sum %@d\\n\", @sum);
            printa(\"calls %d %@d\\n\", @calls);
            printa(@stacks);
        }";
    // Selected by its control group, which is no part of its own view.
    let by_group = format!("processes=cgroup={}", group.trim().rsplit("::").next().unwrap_or_default());
    let o = crate::tool::dtrace(&["-lx", &by_group, "-n", "pid*:program:hidden:entry"]);
    assert!(zone == "global" || o.code == Some(0), "{by_group}: {o:?}");
    let mut tracing = start(&["-qp", &pid.to_string(), "-n", script]);
    printed(&mut tracing);
    for process in [&mut outside, &mut boxed] {
        drop(process.stdin.take());
        process.wait().unwrap();
    }
    let o = finish(tracing).code(0);
    for line in [&format!("entered program {zone} 30"), "sum 870", "calls 1 30"] {
        assert!(o.out.lines().any(|l| l == line), "{line}: {o:?}");
    }
    let frames: Vec<&str> = o.out.lines().map(str::trim).skip_while(|l| !l.contains("`hidden")).collect();
    assert!(frames.first().is_some_and(|frame| frame.starts_with("program`hidden")), "{o:?}");
    assert!(frames.get(1).is_some_and(|frame| frame.contains("jitted_in_box")), "{o:?}");
    // The file here that has its path has no such function.
    let o = crate::tool::dtrace(&["-ln", "pid$target:a.out:hidden:entry", "-c", &program]).code(1);
    assert!(o.err.contains("no function \"hidden\" in program"), "{o:?}");
    Pass
}
