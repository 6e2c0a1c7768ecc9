//! Thread-local state: separate in each thread, and freed at the thread's end.

use crate::Verdict::{self, Pass, Skip};
use crate::machine::{is_guest, no_clock};
use crate::tool::{LIMIT, dtrace, finish_within, start, workload};

tests! {
    self_variables_of_a_million_threads_are_freed elements_are_reused_after_their_thread_ends
    deleted_elements_and_ended_threads_leave_no_element
    probes_at_the_end_of_a_thread_see_its_variables
    self_variables_of_interrupts_are_freed_with_the_thread
    idle_threads_of_each_cpu_have_their_own_variables vtimestamp_advances_with_cpu_time
    vtimestamp_excludes_the_time_of_probes vtimestamp_never_goes_back
    vtimestamp_of_busy_threads_never_exceeds_elapsed_time
}

/// Fills an array of 16 elements, the minimum size, completely.
fn fill(array: &str) -> String {
    let all: Vec<u32> = (0..16).collect();
    let set: String = all.iter().map(|i| format!("{array}[{i}] = {i} + 1; ")).collect();
    let sum: Vec<String> = all.iter().map(|i| format!("{array}[{i}]")).collect();
    format!("END {{ {set} }} END {{ printf(\"sum %d\\n\", {}); }}", sum.join(" + "))
}

/// The sum of the values that [`fill`] stores.
const SUM: &str = "sum 136\n";

// row variable.self-freed-at-exit, variable.self-not-reused
fn self_variables_of_a_million_threads_are_freed() -> Verdict {
    // row variable.self-freed-at-exit, variable.self-not-reused
    // With the default size, which is for some thousands of elements.
    let count = if is_guest() { 4000 } else { 1_000_000 };
    let words = [
        "-q",
        "-c",
        &workload("brief", count),
        "-n",
        "syscall::getppid:entry /pid == $target/ { self->x += tid; self->a[tid]++; n++; used += self->x != tid || self->a[tid] != 1; } \
         END { printf(\"%d %d\\n\", n, used); }",
    ];
    let o = finish_within(start(&words), 4 * LIMIT).code(0);
    // Thread ids repeat many times, and no thread sees the value of another.
    assert_eq!(o.out, format!("{count} 0\n\n"), "{o:?}");
    assert!(!o.err.contains("drop"), "{o:?}");
    Pass
}

fn elements_are_reused_after_their_thread_ends() -> Verdict {
    // Sixteen elements in total. They are freed at once, and at the end all of them are free.
    let count = if is_guest() { 500 } else { 20_000 };
    let o = dtrace(&[
        "-q",
        "-x",
        "dynvarsize=1k",
        "-c",
        &workload("brief", count),
        "-n",
        &format!(
            "int n; syscall::getppid:entry /pid == $target/ {{ self->a[0] = n; self->a[tid] = 1; self->x = n; n += self->a[tid]; }} \
             END {{ printf(\"%d\\n\", n); }} {}",
            fill("self->a")
        ),
    ])
    .code(0);
    assert_eq!(o.out, format!("{count}\n{SUM}\n"), "{o:?}");
    assert!(!o.err.contains("drop"), "{o:?}");
    Pass
}

fn deleted_elements_and_ended_threads_leave_no_element() -> Verdict {
    // Elements are deleted at the start, at the end and in the middle of a thread's list. Some are
    // stored again.
    let count = if is_guest() { 500 } else { 10_000 };
    let clause =
        |n: u32, body: &str| format!("syscall::getppid:entry /pid == $target && i % 4 == {n}/ {{ {body} }} ");
    let script = [
        "syscall::getppid:entry /pid == $target/ { self->a[1] = 1; self->a[2] = 2; self->a[3] = 3; self->s[\"k\"] = \"v\"; i++; } ",
        &clause(0, "self->a[1] = 0;"),
        &clause(1, "self->a[2] = 0; self->a[2] = 4;"),
        &clause(2, "self->a[3] = 0; self->s[\"k\"] = 0;"),
        &clause(3, "self->a[2] = 0; self->a[1] = 0; self->a[3] = 0; self->a[1] = 9;"),
        "syscall::getppid:entry /pid == $target/ { @ = sum(self->a[1] + self->a[2] + self->a[3]); } ",
        "END { printa(\"%@d\\n\", @); } ",
        &fill("self->a"),
    ]
    .concat();
    let o = dtrace(&["-q", "-x", "dynvarsize=1k", "-c", &workload("brief", count), "-n", &script]).code(0);
    assert_eq!(o.out, format!("{}\n{SUM}\n", count / 4 * (5 + 8 + 3 + 9)), "{o:?}");
    assert!(!o.err.contains("drop"), "{o:?}");
    Pass
}

fn probes_at_the_end_of_a_thread_see_its_variables() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("brief", 200),
        "-n",
        "syscall::getppid:entry /pid == $target/ { self->x = 5; self->a[\"k\", 1] = 7; } \
         syscall::exit:entry /self->x == 5 && self->a[\"k\", 1] == 7/ { @threads = count(); } \
         syscall::write:entry /pid == $target/ { self->a[\"k\", 1] = 9; } \
         END { printa(\"%@d\\n\", @threads); }",
    ])
    .code(0);
    assert_eq!(o.out, "200\n\n", "{o:?}");
    // The end of the process.
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 3),
        "-n",
        "syscall::getppid:entry /pid == $target/ { self->a[1]++; } \
         syscall::exit_group:entry /pid == $target/ { printf(\"%d\\n\", self->a[1]); }",
    ])
    .code(0);
    assert_eq!(o.out, "3\n\n", "{o:?}");
    Pass
}

// row variable.self-interrupt
fn self_variables_of_interrupts_are_freed_with_the_thread() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    // row variable.self-interrupt
    // Clocks interrupt the threads and store elements at their own context level.
    let count = if is_guest() { 500 } else { 50_000 };
    let o = dtrace(&[
        "-q",
        "-x",
        "dynvarsize=1k",
        "-c",
        &workload("brief", count),
        "-n",
        &("profile-4999hz /pid == $target/ { self->a[0]++; self->a[1] = self->a[0]; ticks++; } \
         syscall::getppid:entry /pid == $target/ { self->a[0] = 1; self->a[2] = 3; } \
         END { printf(\"%d\\n\", ticks > 0); } "
            .to_string()
            + &fill("self->a")),
    ]);
    let o = o.code(0);
    // A tick during a thread's first store may find the storage busy, which is a drop. Nothing
    // stays.
    assert_eq!(o.out, format!("1\n{SUM}\n"), "{o:?}");
    Pass
}

fn idle_threads_of_each_cpu_have_their_own_variables() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    // All idle threads have the id 0, but each has its own variables.
    let o = dtrace(&[
        "-qn",
        "self int cpu; self int b[int]; int bad; profile-97hz /pid == 0 && self->cpu && self->cpu != cpu + 1/ { bad++; } \
         profile-97hz /pid == 0 && self->b[0] && self->b[0] != cpu + 1/ { bad++; } \
         profile-97hz /pid == 0/ { self->cpu = cpu + 1; self->b[0] = cpu + 1; @[cpu] = count(); } \
         tick-1s { printf(\"bad %d\\n\", bad); exit(0); }",
    ]);
    let o = o.code(0);
    assert!(o.out.starts_with("bad 0\n"), "{o:?}");
    match o.out.lines().filter(|l| !l.trim().is_empty()).count() {
        0..=2 => Skip("fewer than two CPUs were idle".into()),
        _ => Pass,
    }
}

/// CPU time, `vtimestamp` and wall time between the two marks of a workload.
fn times(work: &str, count: u32, script: &str) -> (i64, i64, i64) {
    let script = format!(
        "self uint64_t v; self uint64_t t; {script} \
         syscall::getpgrp:entry /pid == $target && self->t/ \
         {{ printf(\"vtime %d\\nwall %d\\n\", vtimestamp - self->v, timestamp - self->t); }} \
         syscall::getpgrp:entry /pid == $target/ {{ self->v = vtimestamp; self->t = timestamp; }}"
    );
    let o = dtrace(&["-q", "-c", &workload(work, count), "-n", &script]).code(0);
    let of = |word: &str| {
        let line = o.out.lines().find_map(|l| l.strip_prefix(word)).unwrap_or_else(|| panic!("{o:?}"));
        line.trim().parse().unwrap()
    };
    (of("cpu "), of("vtime "), of("wall "))
}

fn vtimestamp_advances_with_cpu_time() -> Verdict {
    // row builtin.vtimestamp
    let (cpu, vtime, wall) = times("cputime", 300, "");
    // A machine's clock advances while its host runs something else. Interrupts are in one account
    // and not in the other.
    let off = (cpu - vtime).abs();
    assert!(off < cpu * 4 / 10 + 5_000_000, "cpu {cpu}, vtimestamp {vtime}, wall {wall}");
    assert!(wall - vtime > 90_000_000, "the sleep is not in it: vtimestamp {vtime}, wall {wall}");
    Pass
}

fn vtimestamp_excludes_the_time_of_probes() -> Verdict {
    let calls = if is_guest() { 2000 } else { 20_000 };
    let heavy = "syscall::getppid:entry /pid == $target/ { @s[stack()] = count(); @u[ustack()] = count(); \
                 @e[execname, probefunc, tid] = quantize(timestamp); @t[stack(), ustack(), tid] = avg(timestamp); }";
    // The remaining time of a call is the call and the kernel's path to our program. Where a host
    // pauses the machine, one of the measurements is useless.
    let mut seen = Vec::new();
    for _ in 0..5 {
        let (_, plain, _) = times("cpucalls", calls, "");
        let (cpu, vtime, _) = times("cpucalls", calls, heavy);
        if vtime < cpu * 3 / 4 && vtime > plain / 4 {
            return Pass;
        }
        seen.push((cpu, vtime, plain));
    }
    panic!("CPU time, vtimestamp, untraced: {seen:?}")
}

fn vtimestamp_never_goes_back() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    // Clocks interrupt the clauses of system calls, and both read one account. When the storage is
    // busy, which is a drop, it reads 0. Some of the 8,000 reads are not counted, because two CPUs
    // count in one variable.
    let look =
        "{ bad += vtimestamp != 0 && vtimestamp < v[tid]; v[tid] = vtimestamp ? vtimestamp : v[tid]; n++; }";
    let script = format!(
        "uint64_t v[int]; int bad; int n; syscall::getppid: /pid == $target/ {look} \
         profile-1999hz /pid == $target/ {look} END {{ printf(\"%d %d\\n\", bad, n >= 1000); }}"
    );
    let o = dtrace(&["-q", "-c", &workload("threads", 1000), "-n", &script]);
    let o = o.code(0);
    assert_eq!(o.out, "0 1\n\n", "{o:?}");
    Pass
}

fn vtimestamp_of_busy_threads_never_exceeds_elapsed_time() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    // More threads than processors, so that clocks fire between switches. When the storage is busy,
    // which is a drop, it reads 0.
    let script = "uint64_t v[int]; uint64_t first[int]; uint64_t since[int]; int more; int back; int fast; int n; \
                  profile-997hz /pid == $target/ { this->now = timestamp; this->v = vtimestamp; n++; more += this->v > this->now; } \
                  profile-997hz /pid == $target && this->v && !since[tid]/ { since[tid] = this->now; first[tid] = this->v; } \
                  profile-997hz /pid == $target && this->v/ { back += this->v < v[tid]; v[tid] = this->v; \
                  fast += (int64_t)(this->v - first[tid]) > (int64_t)(this->now - since[tid]) + 1000000; } \
                  END { printf(\"%d %d %d %d\\n\", more, back, fast, n >= 50); }";
    let o = dtrace(&["-q", "-c", &workload("spinners", 500), "-n", script]);
    let o = o.code(0);
    assert_eq!(o.out, "0 0 0 1\n\n", "{o:?}");
    Pass
}
