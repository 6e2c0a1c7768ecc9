//! Processes that are created, grabbed, held and released.

use testing::{HANG_LIMIT, eventually};

use super::*;

fn state_of(pid: i32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|s| s.trim().chars().next()).unwrap_or('?')
}

fn tracer_of(pid: i32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("TracerPid:")).unwrap();
    line.trim().parse().unwrap()
}

#[track_caller]
fn wait_until(done: impl FnMut() -> bool) {
    eventually("the condition", HANG_LIMIT, done);
}

/// Returns when the tracer has dealt with what came before: one serves all targets, one event after
/// the other.
fn wait_for_the_tracer() {
    let child = sleeper();
    Target::grab(child.id() as i32).unwrap().release();
    end(child);
}

/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);

fn sleeper() -> std::process::Child {
    std::process::Command::new("sleep").arg("100").spawn().unwrap()
}

fn signal(pid: i32, signal: i32) {
    // SAFETY: a process that was not reaped yet.
    unsafe { libc::kill(pid, signal) };
}

#[track_caller]
fn wait_end(t: &mut Target) -> ExitStatus {
    eventually("the end of the target", HANG_LIMIT, || t.exit_status())
}

#[test]
fn a_created_target_stops_after_exec_until_it_is_released() {
    let mut t = Target::create("sh -c exit\t3").unwrap();
    assert_eq!(std::fs::read_to_string(format!("/proc/{}/comm", t.pid())).unwrap(), "sh\n");
    assert_eq!(state_of(t.pid()), 't');
    assert_eq!(t.exit_status(), None);
    t.release();
    assert!(matches!(wait_end(&mut t), ExitStatus::Exited(_)));
}

#[test]
fn the_exit_status_or_the_signal_of_a_created_target_is_reported() {
    let mut t = Target::create("false").unwrap();
    t.release();
    assert_eq!(wait_end(&mut t), ExitStatus::Exited(1));
    let mut t = Target::create("sleep 100").unwrap();
    t.release();
    // SAFETY: our own child.
    unsafe { libc::kill(t.pid(), libc::SIGTERM) };
    assert_eq!(wait_end(&mut t), ExitStatus::Signaled(libc::SIGTERM));
    let names = [libc::SIGTERM, libc::SIGSEGV, libc::SIGSYS, 40].map(signal_name);
    assert_eq!(names, ["SIGTERM", "SIGSEGV", "SIGSYS", "signal 40"]);
}

#[test]
fn a_command_that_does_not_exist_is_named_in_the_error() {
    let e = Target::create("/nonexistent/command x").unwrap_err();
    assert_eq!(e.to_string(), "failed to execute /nonexistent/command: No such file or directory");
    assert!(Target::create("   ").is_err());
    // A file without what its headers say is in it.
    let path = std::env::temp_dir().join(format!("proc-cut-{}", std::process::id()));
    let mut bytes = std::fs::read("/proc/self/exe").unwrap();
    bytes.truncate(0x2000);
    std::fs::write(&path, bytes).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let created =
        Target::create_at(path.as_os_str().as_encoded_bytes(), &Environment::default(), Moment::Preinit);
    std::fs::remove_file(&path).unwrap();
    let e = created.unwrap_err().to_string();
    // Kernel 6.1 runs it, for a moment.
    let ends =
        e.ends_with(" before it ran: the file may be damaged") || e.ends_with("process died from SIGBUS");
    assert!(ends, "{e}");
}

/// A debug register of a process that nobody traces.
fn debug_register(pid: i32, register: usize) -> libc::c_long {
    let place = std::mem::offset_of!(libc::user, u_debugreg) + 8 * register;
    // SAFETY: plain system calls; the kernel writes to the valid word. The process is a child.
    unsafe {
        assert_eq!(libc::ptrace(libc::PTRACE_SEIZE, pid, 0usize, 0usize), 0);
        assert_eq!(libc::ptrace(libc::PTRACE_INTERRUPT, pid, 0usize, 0usize), 0);
        // Not by waitpid(): the thread that created the process takes the stop as well, since a
        // process of its own that is traced by a thread beside it is one that it may wait for.
        wait_until(|| state_of(pid) == 't');
        let mut value = 0;
        let read = libc::PTRACE_PEEKUSER;
        assert_eq!(libc::syscall(libc::SYS_ptrace, read, pid, place, &raw mut value), 0);
        assert_eq!(libc::ptrace(libc::PTRACE_DETACH, pid, 0usize, 0usize), 0);
        value
    }
}

#[test]
fn a_target_stops_at_each_moment_and_runs_on_without_breakpoints() {
    for moment in [Moment::Exec, Moment::Preinit, Moment::Postinit, Moment::Main] {
        let mut t = Target::create_at("sleep 100", &Environment::default(), moment).unwrap();
        assert_eq!((t.note(), state_of(t.pid())), (None, 't'), "{moment:?}");
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", t.pid())).unwrap();
        assert_eq!(maps.contains("libc.so"), moment > Moment::Exec, "{moment:?}");
        t.release();
        wait_until(|| state_of(t.pid()) == 'S');
        for register in [0, 1, 2, 3, 7] {
            assert_eq!(debug_register(t.pid(), register), 0, "{moment:?} {register}");
        }
        signal(t.pid(), libc::SIGTERM);
        assert_eq!(wait_end(&mut t), ExitStatus::Signaled(libc::SIGTERM), "{moment:?}");
    }
}

#[test]
fn a_target_that_ends_before_its_moment_is_an_error_that_says_how() {
    let mut environment = Environment::default();
    environment.set.push(("LD_TRACE_LOADED_OBJECTS".into(), "1".into()));
    let e = Target::create_at("true", &environment, Moment::Main).unwrap_err().to_string();
    assert!(e.starts_with("failed to control pid "), "{e}");
    assert!(e.ends_with(": process exited with status 0"), "{e}");
}

#[test]
fn what_cannot_be_grabbed_is_named_in_the_error() {
    let says = |pid: i32| Target::grab(pid).unwrap_err().to_string();
    let me = std::process::id() as i32;
    assert_eq!(says(me), format!("failed to grab pid {me}: attempt to grab self"));
    let mut zombie = std::process::Command::new("true").spawn().unwrap();
    let pid = zombie.id() as i32;
    wait_until(|| state_of(pid) == 'Z');
    assert_eq!(says(pid), format!("failed to grab pid {pid}: zombie process"));
    zombie.wait().unwrap();
    // A thread of this process.
    let (send, receive) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        // SAFETY: no arguments.
        send.send(unsafe { libc::gettid() }).unwrap();
        _ = ended.recv();
    });
    let tid = receive.recv().unwrap();
    assert_eq!(says(tid), format!("failed to grab pid {tid}: it is a thread of pid {me}"));
    drop(end);
    thread.join().unwrap();
    // One that is a target already.
    let target = Target::create("sleep 100").unwrap();
    let text = says(target.pid());
    assert_eq!(text, format!("failed to grab pid {}: it is a target already", target.pid()));
}

#[test]
fn a_grabbed_process_stops_until_it_is_released() {
    let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
    let pid = child.id() as i32;
    let mut t = Target::grab(pid).unwrap();
    assert_eq!(state_of(pid), 't');
    t.release();
    // The process may not have reached its sleep yet.
    wait_until(|| state_of(pid) == 'S');
    assert_eq!(tracer_of(pid), 0);
    drop(t);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_process_that_does_not_exist_is_named_in_the_error() {
    let text = Target::grab(0x3fff_fff0).unwrap_err().to_string();
    assert!(text.starts_with("failed to grab pid 1073741808: "), "{text}");
    assert!(!text.contains("os error"), "{text}");
}

#[test]
fn a_target_is_held_at_its_exit_with_its_address_space() {
    let mut t = Target::create("true").unwrap();
    assert!(!t.is_exiting());
    t.release_until_exit(LONG);
    let ready = crate::poll_readable(&[t.poll_fd().as_raw_fd()], LONG).unwrap();
    assert!(ready[0] && t.is_exiting());
    assert_eq!(t.exit_status(), None);
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", t.pid())).unwrap();
    assert!(maps.contains("libc.so"), "{maps}");
    t.resume_exit();
    assert_eq!(wait_end(&mut t), ExitStatus::Exited(0));
}

#[test]
fn a_target_held_at_its_exit_exits_when_the_time_limit_has_passed() {
    let mut t = Target::create("false").unwrap();
    t.release_until_exit(Duration::from_millis(20));
    assert_eq!(wait_end(&mut t), ExitStatus::Exited(1));
}

#[test]
fn a_killed_target_is_held_at_its_exit_and_reports_the_signal() {
    let mut t = Target::create("sleep 100").unwrap();
    t.release_until_exit(LONG);
    signal(t.pid(), libc::SIGKILL);
    wait_until(|| t.is_exiting());
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", t.pid())).unwrap();
    assert!(!maps.is_empty());
    t.resume_exit();
    assert_eq!(wait_end(&mut t), ExitStatus::Signaled(libc::SIGKILL));
}

#[test]
fn signals_and_group_stops_work_while_a_target_is_traced() {
    // A script in a file, because commands have no shell quotes.
    let script = std::env::temp_dir().join(format!("proc-signals-{}", std::process::id()));
    let text = "trap 'exit 7' USR1\nkill -STOP $$\nwhile :; do sleep 0.01; done\n";
    std::fs::write(&script, text).unwrap();
    let mut t = Target::create(format!("sh {}", script.display())).unwrap();
    t.release_until_exit(LONG);
    // The script stops itself and stays stopped until SIGCONT.
    wait_until(|| matches!(state_of(t.pid()), 'T' | 't'));
    signal(t.pid(), libc::SIGUSR1);
    wait_for_the_tracer();
    assert!(matches!(state_of(t.pid()), 'T' | 't'));
    signal(t.pid(), libc::SIGCONT);
    wait_until(|| t.is_exiting());
    t.resume_exit();
    assert_eq!(wait_end(&mut t), ExitStatus::Exited(7));
    std::fs::remove_file(script).unwrap();
}

#[test]
fn a_grabbed_process_is_held_at_its_exit_and_its_parent_gets_its_status() {
    let mut child = sleeper();
    let pid = child.id() as i32;
    let mut t = Target::grab(pid).unwrap();
    t.release_until_exit(LONG);
    wait_until(|| state_of(pid) == 'S');
    assert_ne!(tracer_of(pid), 0);
    signal(pid, libc::SIGTERM);
    wait_until(|| t.is_exiting());
    assert_eq!(child.try_wait().unwrap(), None);
    t.resume_exit();
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGTERM));
    assert_eq!(wait_end(&mut t), ExitStatus::Unknown);
}

#[test]
fn a_process_that_was_stopped_before_it_was_grabbed_stays_stopped() {
    let mut child = sleeper();
    let pid = child.id() as i32;
    signal(pid, libc::SIGSTOP);
    wait_until(|| state_of(pid) == 'T');
    let mut t = Target::grab(pid).unwrap();
    t.release_until_exit(LONG);
    wait_for_the_tracer();
    assert!(matches!(state_of(pid), 'T' | 't'));
    drop(t);
    wait_until(|| state_of(pid) == 'T');
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_dropped_target_is_detached_and_the_others_stay_traced() {
    let (mut one, mut two) = (sleeper(), sleeper());
    let grab = |child: &std::process::Child| {
        let mut t = Target::grab(child.id() as i32).unwrap();
        t.release_until_exit(LONG);
        t
    };
    let (first, second) = (grab(&one), grab(&two));
    drop(first);
    wait_until(|| tracer_of(one.id() as i32) == 0);
    assert_ne!(tracer_of(two.id() as i32), 0);
    drop(second);
    wait_until(|| tracer_of(two.id() as i32) == 0);
    for child in [&mut one, &mut two] {
        wait_until(|| state_of(child.id() as i32) == 'S');
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_target_works_in_any_thread_and_other_children_are_not_reaped() {
    let mut other = std::process::Command::new("true").spawn().unwrap();
    let mut t = std::thread::spawn(|| Target::create("false").unwrap()).join().unwrap();
    t.release_until_exit(LONG);
    let mut t = std::thread::spawn(move || {
        wait_until(|| t.is_exiting());
        t.resume_exit();
        t
    })
    .join()
    .unwrap();
    assert_eq!(wait_end(&mut t), ExitStatus::Exited(1));
    assert!(other.wait().unwrap().success());
}

/// Runs before `main`, in the first thread, where [`run`] has executed this test program.
#[used]
// SAFETY: the C library calls the functions of this section, with arguments that this one ignores.
#[unsafe(link_section = ".init_array")]
static WORKLOAD: extern "C" fn() = {
    extern "C" fn begin() {
        if let Ok(what) = std::env::var("PROC_WORKLOAD") {
            // SAFETY: a plain system call: no workload outlives the thread that has begun it.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            workload(&what);
            std::process::exit(0);
        }
    }
    begin
};

fn workload(what: &str) {
    let pause = || std::thread::sleep(Duration::from_secs(1000));
    match what {
        // Threads that start threads all the time, of which each lives for a short time. An
        // emulated CPU needs longer to seize one.
        "churn" => {
            fn churn() {
                std::thread::spawn(|| {
                    let is_guest = std::env::var_os("DTRACE_IN_VM").is_some();
                    std::thread::sleep(Duration::from_micros(if is_guest { 20_000 } else { 50 }));
                    churn();
                });
            }
            (0..4).for_each(|_| churn());
            pause();
        }
        // The first thread exits before the others.
        "leader" => {
            std::thread::spawn(pause);
            // SAFETY: ends this thread, which owns nothing that the other one uses.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
        // Another thread than the first one executes programs, again and again.
        "exec" => {
            let again = || {
                let mut me = std::process::Command::new(std::env::current_exe().unwrap());
                panic!("{}", std::os::unix::process::CommandExt::exec(&mut me));
            };
            std::thread::spawn(pause);
            std::thread::spawn(again);
            pause();
        }
        // Its signals arrive while it is stopped. It ends when all have come, and prints a line.
        "signals" => {
            static COUNT: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(0);
            extern "C" fn count(_: libc::c_int) {
                COUNT.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
            // SAFETY: a handler that adds to a number.
            unsafe { libc::signal(libc::SIGRTMIN() + 5, count as extern "C" fn(libc::c_int) as usize) };
            println!("ready");
            wait_until(|| COUNT.load(std::sync::atomic::Ordering::SeqCst) == SIGNALS);
            println!("all");
        }
        // Waits in the kernel for a child that shares its memory.
        "vfork" => {
            // SAFETY: the child makes system calls only.
            unsafe {
                let flags = libc::CLONE_VFORK | libc::SIGCHLD;
                if libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) == 0 {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    loop {
                        libc::pause();
                    }
                }
            }
        }
        other => panic!("no workload {other}"),
    }
}

const SIGNALS: i32 = 300;

fn run(what: &str) -> std::process::Child {
    let mut me = std::process::Command::new(std::env::current_exe().unwrap());
    me.env("PROC_WORKLOAD", what).stdout(std::process::Stdio::piped()).spawn().unwrap()
}

/// The states of the threads of a process.
fn states(pid: i32) -> Vec<char> {
    let list = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let stat = |e: std::fs::DirEntry| std::fs::read_to_string(e.path().join("stat")).unwrap_or_default();
    list.map(|e| stat(e.unwrap()).rsplit(')').next().unwrap().trim().chars().next().unwrap_or('?')).collect()
}

fn end(mut child: std::process::Child) {
    child.kill().unwrap();
    // The tracing thread may have reaped it: it is a child of this process.
    _ = child.wait();
}

#[test]
fn all_threads_stop_also_those_that_start_meanwhile() {
    let child = run("churn");
    let pid = child.id() as i32;
    wait_until(|| states(pid).len() > 3);
    for turn in 0..100 {
        // Each thread is there for a moment only.
        let mut t = grab(pid, LONG).unwrap();
        assert_eq!(t.note(), None);
        let stopped = states(pid);
        assert!(stopped.iter().all(|state| *state == 't'), "{turn}: {stopped:?}");
        // Nothing starts or ends.
        assert_eq!(states(pid), stopped);
        match turn % 3 {
            0 => t.release(),
            1 => t.release_until_exit(LONG),
            _ => {}
        }
        drop(t);
        wait_until(|| tracer_of(pid) == 0);
    }
    wait_until(|| states(pid).contains(&'S') && !states(pid).contains(&'t'));
    end(child);
}

#[test]
fn a_process_whose_threads_execute_programs_is_grabbed() {
    let child = run("exec");
    let pid = child.id() as i32;
    for turn in 0..60 {
        // At another moment each time.
        std::thread::sleep(Duration::from_micros(turn * 100));
        let mut t = grab(pid, LONG).unwrap();
        assert_eq!(t.note(), None);
        let stopped = states(pid);
        assert!(stopped.iter().all(|state| *state == 't'), "{turn}: {stopped:?}");
        t.release();
        drop(t);
        wait_until(|| tracer_of(pid) == 0);
    }
    end(child);
}

#[test]
fn a_process_whose_first_thread_has_exited_is_grabbed_and_its_end_is_seen() {
    let child = run("leader");
    let pid = child.id() as i32;
    wait_until(|| {
        states(pid).iter().filter(|state| **state == 'S').count() == 1 && states(pid).contains(&'Z')
    });
    let mut t = Target::grab(pid).unwrap();
    let mut stopped = states(pid);
    stopped.sort_unstable();
    assert_eq!(stopped, ['Z', 't']);
    t.release_until_exit(LONG);
    wait_until(|| states(pid).contains(&'S'));
    assert_eq!(t.exit_status(), None);
    end(child);
    assert!(crate::poll_readable(&[t.poll_fd().as_raw_fd()], LONG).unwrap()[0]);
    assert_eq!(t.exit_status(), Some(ExitStatus::Unknown));
}

#[test]
fn no_signal_is_lost_that_arrives_while_a_process_is_grabbed() {
    let mut child = run("signals");
    let pid = child.id() as i32;
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while line.trim() != "ready" {
        line.clear();
        assert_ne!(std::io::BufRead::read_line(&mut out, &mut line).unwrap(), 0);
    }
    // Real-time signals queue: each is delivered once.
    let sender = std::thread::spawn(move || {
        for _ in 0..SIGNALS {
            signal(pid, libc::SIGRTMIN() + 5);
            std::thread::sleep(Duration::from_micros(300));
        }
    });
    while !sender.is_finished() {
        let Ok(mut t) = Target::grab(pid) else { break };
        t.release();
    }
    sender.join().unwrap();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut out, &mut rest).unwrap();
    assert_eq!(rest, "all\n");
    _ = child.wait();
}

#[test]
fn a_process_that_is_stopped_or_continued_while_it_is_held_is_so_afterwards() {
    let child = sleeper();
    let pid = child.id() as i32;
    for hold in [false, true] {
        let mut t = Target::grab(pid).unwrap();
        signal(pid, libc::SIGSTOP);
        assert_eq!(state_of(pid), 't');
        let release = |t: &mut Target| if hold { t.release_until_exit(LONG) } else { t.release() };
        release(&mut t);
        drop(t);
        wait_until(|| state_of(pid) == 'T');
        let mut t = Target::grab(pid).unwrap();
        signal(pid, libc::SIGCONT);
        assert_eq!(state_of(pid), 't');
        release(&mut t);
        drop(t);
        wait_until(|| state_of(pid) == 'S');
    }
    end(child);
}

#[test]
fn a_process_that_waits_in_the_kernel_is_a_target_that_runs() {
    let mut child = run("vfork");
    let pid = child.id() as i32;
    // It may wait for its own pages before.
    let children = format!("/proc/{pid}/task/{pid}/children");
    let child_of = || std::fs::read_to_string(&children).unwrap().trim().parse().ok();
    wait_until(|| child_of().is_some() && state_of(pid) == 'D');
    let mut t = Target::grab(pid).unwrap();
    let note = t.note().unwrap();
    assert!(note.starts_with("it waits in the kernel and does not stop"), "{note}");
    assert_eq!(state_of(pid), 'D');
    t.release_until_exit(LONG);
    signal(child_of().unwrap(), libc::SIGKILL);
    // It runs on, to its end, where it is held.
    wait_until(|| t.is_exiting());
    t.resume_exit();
    assert!(child.wait().unwrap().success());
    assert_eq!(wait_end(&mut t), ExitStatus::Unknown);
}

#[test]
fn a_process_that_dies_while_it_is_held_has_ended() {
    for what in ["leader", "churn"] {
        let child = run(what);
        let pid = child.id() as i32;
        wait_until(|| states(pid).len() > 1 && states(pid).contains(&'S'));
        let mut t = Target::grab(pid).unwrap();
        end(child);
        assert_eq!(wait_end(&mut t), ExitStatus::Unknown, "{what}");
        t.release();
        assert!(crate::poll_readable(&[t.poll_fd().as_raw_fd()], LONG).unwrap()[0]);
    }
}

#[test]
fn children_are_held_where_they_execute_for_a_limited_time() {
    let script = std::env::temp_dir().join(format!("dt-children-{}.sh", std::process::id()));
    std::fs::write(&script, "/bin/true; (/bin/true; /bin/true); exit 7\n").unwrap();
    let command = format!("/bin/sh {}", script.display());
    let run = |limit: Duration, resumes: bool| {
        let mut target = Target::create(&command).unwrap();
        target.release_with(Hold { exit: false, changes: false, forks: true, fatal: false, limit });
        let begun = Instant::now();
        let mut held = 0;
        let status = eventually("the end of the target", HANG_LIMIT, || {
            let children = target.held_children();
            for pid in children.into_iter().filter(|_| resumes) {
                let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
                assert_eq!(name, "true\n");
                held += 1;
                target.resume_child(pid);
            }
            target.exit_status()
        });
        (status, held, begun.elapsed())
    };
    let (status, held, _) = run(LONG, true);
    assert_eq!((status, held), (ExitStatus::Exited(7), 3));
    // Nobody resumes them.
    let limit = Duration::from_millis(50);
    let (status, _, took) = run(limit, false);
    assert!(status == ExitStatus::Exited(7) && took >= limit * 3, "{took:?}");
    std::fs::remove_file(&script).unwrap();
}

/// The blocked signals and the private memory of a size that a process has.
fn blocked_and_mapped(pid: i32, size: u64) -> (u64, usize) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let is_it = |line: &&str| {
        let (range, rest) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let at = |text| u64::from_str_radix(text, 16).unwrap();
        rest.starts_with("rw-p") && rest.trim_end().ends_with(" 0") && at(end) - at(start) == size
    };
    (u64::from_str_radix(blocked.trim(), 16).unwrap(), maps.lines().filter(is_it).count())
}

#[test]
fn a_created_target_has_its_memory_before_it_runs_and_loses_it_when_it_executes_another_program() {
    const SIZE: u64 = 3 << 20;
    for moment in [Moment::Exec, Moment::Preinit, Moment::Main] {
        let create = |memory| Target::create_with_memory("true", &Environment::default(), moment, memory);
        let (plain, mut t) = (create(None).unwrap(), create(Some(SIZE)).unwrap());
        assert_eq!((plain.memory(), t.memory(), t.lost_memory()), (None, Some(SIZE), None));
        assert_eq!(blocked_and_mapped(t.pid(), SIZE), (blocked_and_mapped(plain.pid(), SIZE).0, 1));
        t.write_memory(b"text").unwrap();
        t.release();
        assert_eq!(wait_end(&mut t), ExitStatus::Exited(0), "{moment:?}");
    }
    let mut t =
        Target::create_with_memory("env sleep 100", &Environment::default(), Moment::Preinit, Some(SIZE))
            .unwrap();
    let pid = t.pid();
    t.release_with(Hold { exit: false, changes: false, forks: false, fatal: true, limit: LONG });
    wait_until(|| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap() == "sleep\n");
    wait_for_the_tracer();
    assert_eq!(t.lost_memory().as_deref(), Some("it has executed another program"));
    assert_eq!((t.memory(), blocked_and_mapped(pid, SIZE).1), (None, 0));
    assert!(t.write_memory(b"text").is_err());
    // Nobody holds it at a signal that makes a core file.
    signal(pid, libc::SIGABRT);
    assert_eq!(wait_end(&mut t), ExitStatus::Signaled(libc::SIGABRT));
}

/// Its mmap fails: it runs on without the memory.
#[test]
fn a_created_target_that_cannot_map_the_memory_says_why() {
    let mut t =
        Target::create_with_memory("true", &Environment::default(), Moment::Exec, Some(1 << 50)).unwrap();
    assert_eq!((t.memory(), t.lost_memory().as_deref()), (None, Some("Cannot allocate memory")));
    t.release();
    assert_eq!(wait_end(&mut t), ExitStatus::Exited(0));
}

/// The threads of this process with a name.
fn threads_named(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let paths = tasks.map(|task| task.unwrap().path().join("comm"));
    paths.filter(|path| std::fs::read_to_string(path).is_ok_and(|comm| comm.trim() == name)).count()
}

#[test]
fn the_thread_of_a_time_limit_ends_with_what_it_limits() {
    let mut resumed = Target::create("true").unwrap();
    resumed.release_until_exit(LONG);
    wait_until(|| resumed.is_exiting());
    assert!(threads_named("hold") > 0);
    resumed.resume_exit();
    assert_eq!(wait_end(&mut resumed), ExitStatus::Exited(0));
    let mut dropped = Target::create("true").unwrap();
    dropped.release_until_exit(LONG);
    wait_until(|| dropped.is_exiting());
    drop(dropped);
    // Those of other tests end too.
    wait_until(|| threads_named("hold") == 0);
}

#[test]
fn a_target_for_which_another_thread_has_waited_has_ended() {
    /// Which of two threads the kernel lets have it is chance.
    const TRIES: usize = 200;
    let taken = (0..TRIES).find_map(|_| {
        let mut t = Target::create("true").unwrap();
        let (pid, mut status) = (t.pid(), 0);
        t.release();
        // SAFETY: the status is an int; a child that is reaped elsewhere is an error.
        let taken = unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid;
        let seen = wait_end(&mut t);
        taken.then_some(seen)
    });
    assert_eq!(taken, Some(ExitStatus::Taken));
    let text = Error::Control(1, ExitStatus::Taken).to_string();
    assert!(text.contains("waitpid(-1)"), "{text}");
}
