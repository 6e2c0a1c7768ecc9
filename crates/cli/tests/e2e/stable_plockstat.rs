//! The provider plockstat: locks of a process of the test, by lock, with every argument and count.

use std::collections::BTreeMap;
use std::process::Command;

use crate::Verdict::{self, Pass};
use crate::machine::no_types;
use crate::many::{Waiting, trace};
use crate::pid::Programs;
use crate::targets::wait_for_state;
use crate::tool::{Output, dtrace};
use crate::toolkit::run;

tests! {
    locks_of_a_process_are_acquired_waited_for_released_and_refused
    each_wait_for_a_lock_has_a_beginning_and_an_end
    each_process_has_its_provider_of_locks
    a_glob_means_the_providers_of_several_processes
    the_tool_plockstat_prints_waits_and_holds_by_lock_and_caller
}

/// Locks of every kind in a row. A thread that shall wait for one is seen in its system call before
/// the lock is released.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
static struct { pthread_mutex_t m[6]; pthread_rwlock_t rw; } all;
static volatile int thread;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
__attribute__((noinline, noclone)) void begins(void *locks) { __asm__ volatile("" : : "r"(locks) : "memory"); }
static void *waits(void *lock)
{
    thread = syscall(SYS_gettid);
    if (lock == &all.rw) {
        pthread_rwlock_rdlock(lock);
        pthread_rwlock_unlock(lock);
    } else {
        pthread_mutex_lock(lock);
        pthread_mutex_unlock(lock);
    }
    return NULL;
}
static void *dies(void *lock) { pthread_mutex_lock(lock); return NULL; }
/* Returns when a thread waits for the lock. */
static pthread_t waiter(void *lock, size_t size)
{
    pthread_t it;
    thread = 0;
    pthread_create(&it, NULL, waits, lock);
    for (;;) {
        char path[64], text[256] = "";
        unsigned long number = 0, address = 0;
        snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
        FILE *f = thread ? fopen(path, "r") : NULL;
        if (f) {
            fgets(text, sizeof text, f);
            fclose(f);
        }
        if (sscanf(text, "%lu %lx", &number, &address) == 2 && number == SYS_futex && address - (unsigned long)lock < size)
            return it;
        usleep(1000);
    }
}
static void contended(int n)
{
    pthread_mutex_lock(&all.m[n]);
    pthread_t it = waiter(&all.m[n], sizeof all.m[n]);
    pthread_mutex_unlock(&all.m[n]);
    pthread_join(it, NULL);
}
static struct timespec soon(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += 2000000;
    if (t.tv_nsec >= 1000000000)
        t.tv_sec++, t.tv_nsec -= 1000000000;
    return t;
}
static void kind(int n, int type, int robust, int protocol)
{
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_settype(&a, type);
    pthread_mutexattr_setrobust(&a, robust);
    pthread_mutexattr_setprotocol(&a, protocol);
    pthread_mutex_init(&all.m[n], &a);
}
int main(void)
{
    struct timespec t;
    pthread_t it;
    kind(0, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
    kind(1, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
    kind(2, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
    kind(3, PTHREAD_MUTEX_ADAPTIVE_NP, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
    kind(4, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE);
    kind(5, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_INHERIT);
    pthread_rwlock_init(&all.rw, NULL);
    begins(&all);
    for (int i = 0; i < 100; i++) {
        pthread_mutex_lock(&all.m[0]);
        pthread_mutex_unlock(&all.m[0]);
    }
    pthread_mutex_lock(&all.m[0]);
    pthread_mutex_trylock(&all.m[0]);
    t = soon();
    pthread_mutex_timedlock(&all.m[0], &t);
    t = soon();
    pthread_cond_timedwait(&never, &all.m[0], &t);
    pthread_mutex_unlock(&all.m[0]);
    for (int i = 0; i < 3; i++)
        contended(0);
    pthread_mutex_lock(&all.m[1]);
    pthread_mutex_lock(&all.m[1]);
    pthread_mutex_unlock(&all.m[1]);
    pthread_mutex_unlock(&all.m[1]);
    for (int i = 0; i < 3; i++)
        pthread_mutex_lock(&all.m[2]);
    for (int i = 0; i < 3; i++)
        pthread_mutex_unlock(&all.m[2]);
    contended(3);
    pthread_create(&it, NULL, dies, &all.m[4]);
    pthread_join(it, NULL);
    if (pthread_mutex_lock(&all.m[4]) == EOWNERDEAD)
        pthread_mutex_consistent(&all.m[4]);
    pthread_mutex_unlock(&all.m[4]);
    contended(5);
    pthread_rwlock_wrlock(&all.rw);
    it = waiter(&all.rw, sizeof all.rw);
    pthread_rwlock_unlock(&all.rw);
    pthread_join(it, NULL);
    pthread_rwlock_rdlock(&all.rw);
    pthread_rwlock_trywrlock(&all.rw);
    t = soon();
    pthread_rwlock_timedwrlock(&all.rw, &t);
    pthread_rwlock_unlock(&all.rw);
    return 5;
}
"#;

/// What happened to a lock: the probe, the number of the lock, the arguments; and how often.
const EXPECTED: &[(&str, u32, i32, i32, u64)] = &[
    // The mutex of a wait for a condition is released and acquired again.
    ("mutex-acquire", 0, 0, 0, 100 + 1 + 1 + 3 * 2),
    ("mutex-release", 0, 0, 0, 100 + 1 + 1 + 3 * 2),
    ("mutex-error", 0, libc::EBUSY, 0, 1),
    ("mutex-error", 0, libc::ETIMEDOUT, 0, 1),
    ("mutex-block", 0, 0, 0, 3 + 1),
    ("mutex-blocked", 0, 1, 0, 3),
    ("mutex-blocked", 0, 0, 0, 1),
    ("mutex-acquire", 1, 0, 0, 1),
    ("mutex-error", 1, libc::EDEADLK, 0, 1),
    ("mutex-release", 1, 0, 0, 1),
    ("mutex-error", 1, libc::EPERM, 0, 1),
    ("mutex-acquire", 2, 0, 0, 1),
    ("mutex-acquire", 2, 1, 0, 2),
    ("mutex-release", 2, 1, 0, 2),
    ("mutex-release", 2, 0, 0, 1),
    ("mutex-acquire", 3, 0, 0, 2),
    ("mutex-release", 3, 0, 0, 2),
    ("mutex-spin", 3, 0, 0, 1),
    ("mutex-spun", 3, 0, 0, 1),
    ("mutex-block", 3, 0, 0, 1),
    ("mutex-blocked", 3, 1, 0, 1),
    ("mutex-acquire", 4, 0, 0, 2),
    ("mutex-release", 4, 0, 0, 1),
    ("mutex-acquire", 5, 0, 0, 2),
    ("mutex-release", 5, 0, 0, 2),
    ("mutex-block", 5, 0, 0, 1),
    ("mutex-blocked", 5, 1, 0, 1),
    ("rw-acquire", 6, 1, 0, 1),
    ("rw-release", 6, 1, 0, 1),
    ("rw-acquire", 6, 0, 0, 2),
    ("rw-release", 6, 0, 0, 2),
    ("rw-block", 6, 0, 0, 1),
    ("rw-blocked", 6, 0, 1, 1),
    ("rw-error", 6, 1, libc::EBUSY, 1),
    ("rw-block", 6, 1, 0, 1),
    ("rw-blocked", 6, 1, 0, 1),
    ("rw-error", 6, 1, libc::ETIMEDOUT, 1),
];

type Row = (String, u32, i32, i32);

fn program(name: &str) -> Result<(Programs, String), Verdict> {
    if let Some(skip) = no_types() {
        return Err(skip);
    }
    Programs::new(name, ("cc", PROGRAM), &["-O1", "-pthread"])
}

fn rows(o: &Output) -> BTreeMap<Row, u64> {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [probe, lock, first, second, count] = words[..] else { return None };
        let number = |word: &str| word.parse().unwrap();
        Some(((probe.into(), lock.parse().unwrap(), number(first), number(second)), count.parse().unwrap()))
    };
    o.out.lines().filter_map(row).collect()
}

fn expected(keep: impl Fn(&(&str, u32, i32, i32, u64)) -> bool) -> BTreeMap<Row, u64> {
    let kept = EXPECTED.iter().filter(|row| keep(row));
    kept.map(|(probe, lock, first, second, n)| (((*probe).into(), *lock, *first, *second), *n)).collect()
}

/// Each lock has 40 bytes, and the last one more.
const SCRIPT: &str = "pid$target:a.out:begins:entry { base = arg0; }
plockstat$target::: /base && arg0 - base < 7 * 40/
{
	@[probename, (arg0 - base) / 40, (int)arg1, (int)arg2] = count();
}
END { printa(\"%s %d %d %d %@d\\n\", @); }";

fn locks_of_a_process_are_acquired_waited_for_released_and_refused() -> Verdict {
    let (_dir, program) = match program("locks") {
        Ok(program) => program,
        Err(verdict) => return verdict,
    };
    let o = dtrace(&["-qc", &program, "-n", SCRIPT]).code(0);
    assert_eq!(rows(&o), expected(|_| true), "{o:?}");
    // Where returns are probed at instructions, a function that jumps to another one has no result.
    let o = dtrace(&["-xpidreturn=ret", "-qc", &program, "-n", SCRIPT]).code(0);
    let seen = |row: &(&str, u32, i32, i32, u64)| match *row {
        ("mutex-release", ..) => true,
        ("mutex-error", 0, libc::ETIMEDOUT, ..) | ("mutex-blocked", 0, 0, ..) => false,
        (_, lock, ..) => lock != 4 && lock != 5,
    };
    let mut mine = expected(seen);
    mine.insert(("mutex-block".into(), 0, 0, 0), 3);
    assert_eq!(rows(&o), mine, "{o:?}");
    Pass
}

fn each_wait_for_a_lock_has_a_beginning_and_an_end() -> Verdict {
    let (_dir, program) = match program("waits") {
        Ok(program) => program,
        Err(verdict) => return verdict,
    };
    let script = "plockstat$target:::mutex-block { self->since = timestamp; } \
                  plockstat$target:::mutex-blocked /self->since/ \
                  { @[arg0, args[1]] = sum(timestamp - self->since > 0); self->since = 0; } \
                  END { printa(\"%p %d %@d\\n\", @); }";
    let o = dtrace(&["-qc", &program, "-n", script]).code(0);
    let mut lines: Vec<&str> = o.out.lines().filter(|l| !l.is_empty()).collect();
    lines.sort_unstable();
    let counts: Vec<&str> = lines.iter().filter_map(|l| l.split_once(' ')).map(|(_, rest)| rest).collect();
    assert_eq!(counts, ["0 1", "1 3", "1 1", "1 1"], "{o:?}");
    Pass
}

fn each_process_has_its_provider_of_locks() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let (_dir, program) = match program("names") {
        Ok(program) => program,
        Err(verdict) => return verdict,
    };
    let o = dtrace(&["-ln", "plockstat$target:::", "-c", &program]).code(0);
    let listed: Vec<Vec<&str>> = o.out.lines().skip(1).map(|l| l.split_whitespace().collect()).collect();
    let names: Vec<&str> = listed.iter().map(|words| words[words.len() - 1]).collect();
    let all = [
        "mutex-acquire",
        "mutex-release",
        "mutex-block",
        "mutex-blocked",
        "mutex-spin",
        "mutex-spun",
        "mutex-error",
        "rw-acquire",
        "rw-release",
        "rw-block",
        "rw-blocked",
        "rw-error",
    ];
    assert_eq!(names, all, "{o:?}");
    assert!(listed.iter().all(|words| words[1].starts_with("plockstat")), "{o:?}");
    let o = dtrace(&["-lvn", "plockstat$target:::mutex-acquire", "-c", &program]).code(0);
    for line in ["args[0]: void *", "args[1]: int", "args[2]: int"] {
        assert!(o.out.contains(line), "{o:?}");
    }
    // Its name is the process's, in a record and in a key.
    let script = "plockstat$target:::mutex-release { @[probeprov] = count(); this->mine = probeprov; } \
                  plockstat$target:::mutex-release /this->mine != strjoin(\"plockstat\", lltostr(pid))/ { exit(1); }";
    let o = dtrace(&["-qc", &program, "-n", script]).code(0);
    assert!(o.out.contains("plockstat"), "{o:?}");
    // Two processes in one program have locks of their own.
    let script = "plockstat$target:::mutex-release { @ = count(); } plockstat1:::mutex-release { }";
    let o = dtrace(&["-Zqc", &program, "-n", script]).code(0);
    assert!(o.last_number() > 100, "{o:?}");
    for (description, says) in [
        ("plockstat4194305:::mutex-block", "there is no process 4194305"),
        ("plockstat:::mutex-block", "= help: it has a process: plockstat1234, or plockstat$target"),
        ("plockstat*:::mutex-block", "does not match any probes"),
    ] {
        let o = dtrace(&["-n", description]).code(1);
        assert!(o.err.contains(says) && o.err.contains("command line:1:1"), "{description}: {o:?}");
    }
    Pass
}

/// Locks a mutex so often as its argument says, when its input ends.
const LOCKS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    getchar();
    for (int i = 0; i < atoi(argv[1]); i++) {
        pthread_mutex_lock(&m);
        pthread_mutex_unlock(&m);
    }
    _exit(0);
}
"#;

fn a_glob_means_the_providers_of_several_processes() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let (_dir, program) = match Programs::new("several", ("cc", LOCKS), &["-O2", "-pthread"]) {
        Ok(program) => program,
        Err(verdict) => return verdict,
    };
    let mut waiting = Waiting::default();
    // The last one is not meant.
    let pids = [100, 200, 300].map(|n| waiting.add(Command::new(&program).arg(n.to_string())).to_string());
    // It has mapped its libraries.
    pids.iter().for_each(|pid| wait_for_state(pid, 'S'));
    let script = "BEGIN { printf(\"on\\n\"); }
        plockstat*:::mutex-acquire { @[probeprov, probeprov == strjoin(\"plockstat\", lltostr(pid))] = count(); }";
    let o = trace(&mut waiting, &["-qp", &pids[0], "-p", &pids[1], "-n", script]);
    let counts: Vec<Vec<&str>> = o.out.lines().map(|line| line.split_whitespace().collect()).collect();
    for (pid, count) in [(&pids[0], "100"), (&pids[1], "200")] {
        let provider = format!("plockstat{pid}");
        assert!(counts.contains(&vec![&*provider, "1", count]), "{o:?}");
    }
    assert_eq!(o.out.matches("plockstat").count(), 2, "{o:?}");
    Pass
}

/// The rows of a section: the count and the function that calls.
fn section(o: &Output, title: &str) -> Vec<(u64, String)> {
    let from = o.out.lines().skip_while(|line| *line != title).skip(4);
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [count, time, _lock, caller] = words[..] else { return None };
        assert!(time.parse::<u64>().unwrap() > 0, "{line}");
        let caller = caller.split_once('`').map_or(caller, |(_, name)| name);
        Some((count.parse().ok()?, caller.split('+').next().unwrap().to_string()))
    };
    let mut rows: Vec<_> = from.map_while(row).collect();
    rows.sort();
    rows
}

fn the_tool_plockstat_prints_waits_and_holds_by_lock_and_caller() -> Verdict {
    let (_dir, program) = match program("tool") {
        Ok(program) => program,
        Err(verdict) => return verdict,
    };
    let rows = |all: &[(u64, &str)]| all.iter().map(|(n, name)| (*n, (*name).into())).collect::<Vec<_>>();
    let waits: [(&str, &[(u64, &str)]); 4] = [
        ("Mutex unsuccessful spin", &[(1, "waits")]),
        ("Mutex block", &[(1, "main"), (1, "waits"), (1, "waits"), (3, "waits")]),
        ("R/W reader block", &[(1, "waits")]),
        ("R/W writer block", &[(1, "main")]),
    ];
    let holds: [(&str, &[(u64, &str)]); 2] =
        [("R/W reader hold", &[(1, "main"), (1, "waits")]), ("R/W writer hold", &[(1, "main")])];
    let o = run("plockstat", &["-A", "-v", &program]).code(0);
    assert!(o.out.starts_with("plockstat: tracing enabled for pid "), "{o:?}");
    assert!(o.out.contains("\nCount     nsec Lock                         Caller\n-----"), "{o:?}");
    for (title, expected) in waits.iter().chain(&holds) {
        assert_eq!(section(&o, title), rows(expected), "{title}: {o:?}");
    }
    let held = section(&o, "Mutex hold");
    for row in rows(&[(100, "main"), (3, "waits")]) {
        assert!(held.contains(&row), "{o:?}");
    }
    // What is not chosen is not there.
    let o = run("plockstat", &[&program]).code(0);
    assert!(!o.out.contains(" hold\n") && o.out.contains("\nMutex block\n"), "{o:?}");
    let o = run("plockstat", &["-H", &program]).code(0);
    assert!(o.out.contains("\nMutex hold\n") && !o.out.contains("block\n"), "{o:?}");
    // With stacks each row has the distribution of its times.
    let o = run("plockstat", &["-C", "-s", "4", &program]).code(0);
    let count = |text: &str| o.out.matches(text).count();
    assert_eq!(count("- Distribution -"), 7, "{o:?}");
    assert!(count("program`waits+0x") >= 5 + 4, "{o:?}");
    Pass
}
