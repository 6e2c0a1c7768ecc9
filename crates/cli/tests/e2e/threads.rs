//! Thread-local state: separate in each thread, and freed at the thread's end.

use crate::Verdict::{self, Pass, Skip};
use crate::machine::{is_guest, no_clock};
use crate::tool::{LIMIT, cpus, dtrace, finish_within, start, workload};

tests! {
    self_variables_of_a_million_threads_are_freed elements_are_reused_after_their_thread_ends
    deleted_elements_and_ended_threads_leave_no_element
    probes_at_the_end_of_a_thread_see_its_variables
    self_variables_of_interrupts_are_freed_with_the_thread
    idle_threads_of_each_cpu_have_their_own_variables vtimestamp_advances_with_cpu_time
    vtimestamp_excludes_the_time_of_probes vtimestamp_never_goes_back
    vtimestamp_of_busy_threads_never_exceeds_elapsed_time
    vtimestamps_of_threads_of_one_cpu_add_up_to_elapsed_time
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
    let cpus = cpus();
    let [one, two, ..] = cpus[..] else { return Skip("there is one CPU only".into()) };
    // All idle threads have the id 0, but each has its own variables. It ends when the idle thread
    // of each of two CPUs has found what it stored: one variable of both would have had the other's
    // value before that. A CPU is idle for a moment even on a busy machine.
    let switch = "rawtp:sched::sched_switch";
    let script = format!(
        "self int cpu; self int b[int]; int bad; int again[int]; \
         {switch} /pid == 0 && self->cpu && self->cpu != cpu + 1/ {{ bad++; }} \
         {switch} /pid == 0 && self->b[0] && self->b[0] != cpu + 1/ {{ bad++; }} \
         {switch} /pid == 0 && self->cpu == cpu + 1 && self->b[0] == cpu + 1/ {{ again[cpu] = 1; }} \
         {switch} /pid == 0/ {{ self->cpu = cpu + 1; self->b[0] = cpu + 1; }} \
         {switch} /bad || (again[{one}] && again[{two}])/ {{ exit(0); }} END {{ printf(\"bad %d\", bad); }}"
    );
    let o = dtrace(&["-qn", &script]).code(0);
    assert_eq!(o.out.trim(), "bad 0", "{o:?}");
    Pass
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
    // The kernel's account has the session's programs, which run at each of the thread's many
    // calls. The other one has interrupts, and the time for which a host runs something else.
    assert!(vtime > cpu / 2, "cpu {cpu}, vtimestamp {vtime}, wall {wall}");
    assert!(wall - vtime > 90_000_000, "the sleep is not in it: vtimestamp {vtime}, wall {wall}");
    Pass
}

/// Threads that may run on one CPU only have no more CPU time together than passes.
fn vtimestamps_of_threads_of_one_cpu_add_up_to_elapsed_time() -> Verdict {
    // Each looks at its CPU time all the time.
    let look = "syscall::clock_gettime:entry /pid == $target && begun";
    let script = format!(
        "uint64_t first[int]; uint64_t last[int]; uint64_t begun; uint64_t ended; \
         syscall::getppid:entry /pid == $target && !begun/ {{ begun = timestamp; }} \
         {look}/ {{ this->v = vtimestamp; }} {look}/ {{ this->begins = !first[tid]; }} \
         {look} && this->begins/ {{ first[tid] = last[tid] = this->v; @threads = count(); }} \
         {look}/ {{ all += this->v - last[tid]; last[tid] = this->v; ended = timestamp; }} \
         END {{ printf(\"all %d\\nwall %d\\n\", all, ended - begun); printa(\"threads %@d\\n\", @threads); }}"
    );
    let script = format!("uint64_t all; {script}");
    let o = dtrace(&["-q", "-c", &workload("preempted", 300), "-n", &script]).code(0);
    let (all, wall) = (o.value_of("all"), o.value_of("wall"));
    assert_eq!(o.value_of("threads"), 2, "{o:?}");
    assert!(all > 0 && all <= wall, "{o:?}");
    Pass
}

fn vtimestamp_excludes_the_time_of_probes() -> Verdict {
    let calls = if is_guest() { 2000 } else { 20_000 };
    let call = "syscall::getppid:entry /pid == $target/";
    let heavy = format!(
        "{call} {{ @s[stack()] = count(); @u[ustack()] = count(); \
         @e[execname, probefunc, tid] = quantize(timestamp); @t[stack(), ustack(), tid] = avg(timestamp); }}"
    );
    // The least time from one call to the next, which no pause is in: that of the call and of the
    // kernel's path to our program.
    let least = |heavy: &str| {
        let script = format!(
            "self uint64_t v; self uint64_t t; {heavy} \
             {call} && self->t/ {{ @v = min(vtimestamp - self->v); @w = min(timestamp - self->t); }} \
             {call} {{ self->v = vtimestamp; self->t = timestamp; }} \
             END {{ printa(\"vtime %@d\\n\", @v); printa(\"wall %@d\\n\", @w); }}"
        );
        let script = script.replace("$target/ && self->t/", "$target && self->t/");
        // Beside the keys of the heavy clauses.
        let o = dtrace(&["-q", "-c", &workload("cpucalls", calls), "-n", &script]).code(0);
        (o.value_of("vtime"), o.value_of("wall"))
    };
    let ((plain, _), (vtime, wall)) = (least(""), least(&heavy));
    assert!(vtime < wall * 3 / 4 && vtime > plain / 4, "vtimestamp {vtime}, wall {wall}, plain {plain}");
    Pass
}

fn vtimestamp_never_goes_back() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    // Clocks interrupt the clauses of system calls, and both read one account. When the storage is
    // busy, which is a drop, it reads 0.
    let look =
        "{ bad += vtimestamp != 0 && vtimestamp < v[tid]; v[tid] = vtimestamp ? vtimestamp : v[tid]; }";
    let script = format!(
        "uint64_t v[int]; int bad; syscall::getppid: /pid == $target/ {look} \
         syscall::getppid: /pid == $target/ {{ @ = count(); }} \
         profile-1999hz /pid == $target/ {look} END {{ printf(\"%d \", bad); printa(\"%@d\", @); }}"
    );
    let o = dtrace(&["-q", "-c", &workload("threads", 1000), "-n", &script]);
    let o = o.code(0);
    assert_eq!(o.out.trim(), "0 8000", "{o:?}");
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
                  END { printf(\"%d %d %d %d\\n\", more, back, fast, n > 0); }";
    let o = dtrace(&["-q", "-c", &workload("spinners", 500), "-n", script]);
    let o = o.code(0);
    assert_eq!(o.out, "0 0 0 1\n\n", "{o:?}");
    Pass
}
