//! Names of addresses in processes that nobody traces and that end at once.
//!
//! The programs are generated, as in `symbols`: `dtsym_NAME` reads a byte from its standard input,
//! makes one call, and ends.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};

use testing::elf::{AFTER_CALL, Elf, GLOBAL_FUNCTION};
use testing::eventually;
use testing::fuse::Fuse;

use bpf_sys::features::Facility;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::{is_guest, lacks};
use crate::symbols::{TestDir, one_call, waiting};
use crate::tool::{LIMIT, Output, finish, printed, signal, start, under, workload};

tests! {
    stacks_of_hundreds_of_processes_are_named_after_their_end
    the_same_addresses_before_and_after_exec_have_the_names_of_each_program
    a_program_that_is_removed_after_it_ran_is_named
    a_program_of_another_mount_namespace_is_named_after_its_end
    stacks_of_children_are_named_in_a_pid_namespace
    targets_that_are_not_held_at_their_exit_are_named
    every_form_of_an_address_has_the_name_of_a_process_that_has_ended
    capabilities_for_bpf_and_perf_are_enough_to_name_processes_that_have_ended
    programs_without_user_addresses_do_not_watch_processes
    a_process_that_blocks_its_address_map_does_not_block_the_session
}

/// Other tests have such programs at the same time.
const CALLS: &str = "syscall::getppid:entry /progenyof($ppid) && substr(execname, 0, 6) == \"dtsym_\"/ { @[execname, ustack()] = count(); }";

fn named(name: &str, build_id: Option<Vec<u8>>) -> Elf {
    let symbols = vec![(format!("in_{name}"), 0, 200, GLOBAL_FUNCTION)];
    Elf { symbols, build_id, ..one_call() }
}

/// A tracer of the whole system, whose probes are enabled.
fn tracer(more: &[&str]) -> Child {
    let mut words = vec!["-qn", "BEGIN { printf(\"begun\\n\"); }"];
    words.extend(more);
    let mut tracer = start(&words);
    printed(&mut tracer);
    tracer
}

/// Interrupts the tracer and returns its output.
#[track_caller]
fn stop(tracer: Child) -> Output {
    signal(&tracer, libc::SIGINT);
    finish(tracer).code(0)
}

/// A directory in memory.
fn in_memory(test: &str) -> Option<TestDir> {
    testing::dir::Dir::below("/dev/shm".as_ref(), test).ok().map(TestDir)
}

fn run(path: &str) {
    let mut child = waiting(path);
    child.stdin.take().unwrap().write_all(b"x").unwrap();
    child.wait().unwrap();
}

fn stacks_of_hundreds_of_processes_are_named_after_their_end() -> Verdict {
    if let Some(skip) = lacks(Facility::SideBand) {
        return skip;
    }
    let place = TestDir::new("hundreds");
    let programs = ["plain", "built"].map(|name| {
        let build_id = (name == "built").then(|| vec![7; 20]);
        (name, place.program(name, &named(name, build_id)))
    });
    let each = if is_guest() { 30 } else { 150 };
    let tracer = tracer(&["-n", CALLS]);
    for _ in 0..each {
        programs.iter().for_each(|(_, path)| run(path));
    }
    let o = stop(tracer);
    for (name, _) in &programs {
        let frame = format!("dtsym_{name}`in_{name}+{AFTER_CALL:#x}");
        assert_eq!(o.out.matches(&frame).count(), each, "{o:?}");
    }
    assert_eq!(o.err, "", "{o:?}");
    Pass
}

fn the_same_addresses_before_and_after_exec_have_the_names_of_each_program() -> Verdict {
    if let Some(skip) = lacks(Facility::SideBand) {
        return skip;
    }
    let place = TestDir::new("executes");
    let code = testing::elf::calls_and_executes(1);
    let programs = ["first", "second"].map(|name| {
        let elf = Elf { code: code.clone(), ..named(name, None) };
        (name, place.program(name, &elf))
    });
    let last = place.program("last", &named("last", None));
    let mut paths: Vec<&str> = programs.iter().map(|(_, path)| &path[..]).collect();
    paths.push(&last);
    let records =
        "syscall::getppid:entry /progenyof($ppid) && substr(execname, 0, 6) == \"dtsym_\"/ { ustack(); }";
    let tracer = tracer(&["-n", CALLS, "-n", records]);
    for _ in 0..10 {
        let mut child = Command::new(paths[0]).args(&paths[1..]).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"xxx").unwrap();
        assert!(child.wait().unwrap().success());
    }
    let o = stop(tracer);
    for name in ["first", "second", "last"] {
        let frame = format!("dtsym_{name}`in_{name}+{AFTER_CALL:#x}");
        // In the records and in the keys.
        assert_eq!(o.out.matches(&frame).count(), 2 * 10, "{name}: {o:?}");
    }
    assert_eq!(o.err, "", "{o:?}");
    Pass
}

fn a_program_that_is_removed_after_it_ran_is_named() -> Verdict {
    if let Some(skip) = lacks(Facility::SideBand) {
        return skip;
    }
    if is_guest() {
        return Skip("every path below a guest's root asks a file server, so files are not held".into());
    }
    let Some(place) = in_memory("removed") else { return Skip("no file system in memory".into()) };
    let path = place.program("removed", &named("removed", None));
    // The other name of the program shows that the tracer has seen the first.
    let second = place.program("second", &named("second", None));
    let mut tracer = tracer(&[
        "-n",
        CALLS,
        "-n",
        "syscall::getppid:entry /progenyof($ppid) && execname == \"dtsym_second\"/ { usym(ucaller); printf(\"\\n\"); }",
    ]);
    run(&path);
    run(&second);
    crate::tool::printed_more(&mut tracer, "begun\n".len() as i32);
    std::fs::remove_file(&path).unwrap();
    let o = stop(tracer);
    assert!(o.out.contains(&format!("dtsym_removed`in_removed+{AFTER_CALL:#x}")), "{o:?}");
    Pass
}

fn a_program_of_another_mount_namespace_is_named_after_its_end() -> Verdict {
    if let Some(skip) = lacks(Facility::SideBand) {
        return skip;
    }
    let place = TestDir::new("mounted");
    place.program("mounted", &named("mounted", Some(vec![9; 20])));
    let inside = place.0.join("inside");
    std::fs::create_dir_all(&inside).unwrap();
    // The program has another path there. The shell lives until its input ends.
    let script =
        "mount --bind \"$0\" \"$1\" || exit 1; echo x; read x; echo x | \"$1/dtsym_mounted\"; echo x; read x";
    let mut shell = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .args([&*place.0, &inside])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = shell.stdin.take().unwrap();
    let mut ready = [0; 2];
    if std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut ready).is_err() {
        shell.wait().unwrap();
        return Skip("no mount namespace can be made here".into());
    }
    let tracer = tracer(&["-n", CALLS]);
    input.write_all(b"\n").unwrap();
    // The program has ended.
    std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let o = stop(tracer);
    drop(input);
    shell.wait().unwrap();
    assert!(o.out.contains(&format!("dtsym_mounted`in_mounted+{AFTER_CALL:#x}")), "{o:?}");
    Pass
}

fn stacks_of_children_are_named_in_a_pid_namespace() -> Verdict {
    let script = "syscall::getppid:entry /ppid == $target/ { @[usym(uregs[R_RIP])] = count(); @s[ustack(1)] = count(); }";
    let target = workload("processes", 1);
    match under(&["unshare", "--pid", "--fork", "--mount-proc"], &["-q", "-c", &target, "-n", script]) {
        None => Skip("no unshare".into()),
        Some(o) if o.err.contains("unshare:") => Skip(o.err.trim().to_string()),
        Some(o) => {
            let o = o.code(0);
            assert!(o.out.contains("libc.so.6`syscall+0x") || !o.out.contains("libc"), "{o:?}");
            assert!(o.out.contains('`') && !o.out.contains(" 0x"), "{o:?}");
            Pass
        }
    }
}

fn targets_that_are_not_held_at_their_exit_are_named() -> Verdict {
    if let Some(skip) = lacks(Facility::SideBand) {
        return skip;
    }
    let place = TestDir::new("free");
    let path = place.program("free", &Elf { code: testing::elf::calls(1), ..named("free", None) });
    let count = 20;
    let mut children: Vec<Child> = (0..count).map(|_| waiting(&path)).collect();
    let pids: Vec<String> = children.iter().map(|c| c.id().to_string()).collect();
    let mut words = vec!["-x", "exithold=no", "-n", CALLS];
    words.extend(pids.iter().flat_map(|pid| ["-p", pid]));
    let tracer = tracer(&words);
    children.iter_mut().for_each(|c| c.stdin.take().unwrap().write_all(b"x").unwrap());
    let o = finish(tracer).code(0);
    children.iter_mut().for_each(|c| drop(c.wait()));
    assert_eq!(o.out.matches(&format!("dtsym_free`in_free+{AFTER_CALL:#x}")).count(), count, "{o:?}");
    Pass
}

fn every_form_of_an_address_has_the_name_of_a_process_that_has_ended() -> Verdict {
    if let Some(skip) = lacks(Facility::SideBand) {
        return skip;
    }
    let place = TestDir::new("forms");
    let path = place.program("forms", &named("forms", None));
    let mut child = waiting(&path);
    let pid = child.id().to_string();
    // What is recorded is read a second later, when the process has ended.
    let script = "syscall::getppid:entry /pid == $target/ { this->pc = uregs[R_RIP]; printf(\"%A\\n\", this->pc); usym(this->pc); \
                  @[usym(this->pc), ufunc(this->pc), umod(this->pc), uaddr(this->pc)] = count(); @s[ustack(1)] = count(); }";
    let folded = place.0.join("forms.folded").into_os_string().into_string().unwrap();
    let words = ["-x", "exithold=no", "-x", "switchrate=1s", "-p", &pid, "--flame", &folded, "-n", script];
    let tracer = tracer(&words);
    child.stdin.take().unwrap().write_all(b"x").unwrap();
    let o = finish(tracer).code(0);
    let _ = child.wait();
    let (function, place) = ("dtsym_forms`in_forms", format!("dtsym_forms`in_forms+{AFTER_CALL:#x}"));
    let row = o.out.lines().find(|line| line.trim().ends_with(" 1")).unwrap_or_else(|| panic!("{o:?}"));
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), [function, function, "dtsym_forms", &place, "1"]);
    assert!(o.out.starts_with(&format!("begun\n{place}\n")), "{o:?}");
    assert_eq!(o.out.matches(function).count(), 5, "%A, usym and three columns: {o:?}");
    assert_eq!(std::fs::read_to_string(&folded).unwrap(), format!("{function} 1\n"));
    Pass
}

fn capabilities_for_bpf_and_perf_are_enough_to_name_processes_that_have_ended() -> Verdict {
    let strict = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
        .is_ok_and(|t| t.trim().parse::<i32>().is_ok_and(|n| n > 2));
    let caps = |set: &str| format!("--{set}=-all,+bpf,+perfmon");
    let [inherited, ambient, bounding] = ["inh-caps", "ambient-caps", "bounding-set"].map(caps);
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let mut wrapper = vec!["setpriv"];
    wrapper.extend(user);
    wrapper.extend([&inherited[..], &ambient, &bounding]);
    // The shell's children end before their stacks are printed.
    let script = "syscall::getppid:entry /ppid == $target/ { @[ustack(1)] = count(); }";
    match under(&wrapper, &["-c", &workload("processes", 1), "-n", script]) {
        None => Skip("no setpriv".into()),
        Some(o) if o.err.contains("setpriv:") => Skip(o.err.trim().to_string()),
        Some(o) if o.err.contains("Permission denied") && !o.err.contains("dtrace:") => {
            Skip("the binary is not readable to others".into())
        }
        Some(o) if strict => {
            let o = o.code(0);
            assert!(o.err.contains("addresses of processes that have ended are shown as numbers"), "{o:?}");
            Pass
        }
        Some(o) => {
            let o = o.code(0);
            assert_eq!(o.out.matches('`').count(), 4, "{o:?}");
            Pass
        }
    }
}

fn programs_without_user_addresses_do_not_watch_processes() -> Verdict {
    // The watcher polls its rings by one descriptor of this kind.
    let rings = |tracer: &Child| {
        let dir = std::fs::read_dir(format!("/proc/{}/fd", tracer.id())).unwrap();
        let links = dir.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| link.to_string_lossy().contains("[eventpoll]")).count()
    };
    let plain = "syscall::getppid:entry { @[execname, arg0] = count(); }";
    for (script, more, watches) in [
        (plain, vec![], false),
        ("syscall::getppid:entry { @[stack()] = count(); }", vec![], false),
        ("syscall::getppid:entry { @[ustack()] = count(); }", vec!["-x", "noresolve"], false),
        ("syscall::getppid:entry { @[ustack()] = count(); }", vec![], true),
    ] {
        let mut words = more;
        words.extend(["-n", script]);
        let tracer = tracer(&words);
        assert_eq!(rings(&tracer) > 0, watches && lacks(Facility::SideBand).is_none(), "{script}");
        stop(tracer);
    }

    Pass
}

/// Number of bytes in a pipe.
fn bytes_in(pipe: &impl AsRawFd) -> i32 {
    let mut bytes = 0;
    // SAFETY: a plain system call on a descriptor of ours; it writes an int.
    unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
    bytes
}

fn a_process_that_blocks_its_address_map_does_not_block_the_session() -> Verdict {
    if let Some(skip) = lacks(Facility::SideBand) {
        return skip;
    }
    let place = TestDir::new("blocks");
    let path = place.program("blocks", &named("blocks", Some(vec![5; 20])));
    let fuse = match Fuse::mount(&place.0.join("mount"), vec![("file", vec![1; 8192])]) {
        Ok(fuse) => fuse,
        Err(why) => return Skip(why),
    };
    let blocked = match fuse.process_that_blocks_its_map("file") {
        Ok(blocked) => blocked,
        Err(why) => return Skip(why),
    };
    let ticks = "BEGIN, tick-1s { printf(\"goes on\\n\"); }";
    let mut tracer = start(&["-n", CALLS, "-n", ticks]);
    printed(&mut tracer);
    let errors = tracer.stderr.take().unwrap();
    let at_first = bytes_in(&errors);
    run(&path);
    // It says that the reading takes long, which remains so. The session goes on after that, and
    // ends.
    eventually("a message", LIMIT, || bytes_in(&errors) > at_first);
    let before = crate::tool::unread(&tracer);
    crate::tool::printed_more(&mut tracer, before);
    tracer.stderr = Some(errors);
    let o = stop(tracer);
    assert!(o.out.contains("dtsym_blocks`in_blocks"), "{o:?}");
    let says = format!("reading the address map of process {} takes longer than 2000 ms", blocked.pid);
    let told = o.err.matches(&says).count();
    drop(fuse);
    blocked.wait();
    assert_eq!(told, 1, "{o:?}");
    Pass
}
