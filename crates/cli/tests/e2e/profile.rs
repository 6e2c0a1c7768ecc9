//! profile and tick: rates, arguments, symbols.

use std::collections::BTreeMap;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::{is_guest, no_clock};
use crate::tool::{dtrace, workload};

tests! {
    a_tick_clause_can_end_the_session ticks_keep_their_rate slow_ticks_fire_once_a_period
    profile_samples_a_busy_process profile_sees_kernel_stacks_and_functions profile_sees_user_stacks
    exactly_one_of_arg0_and_arg1_is_set_in_a_sample arg2_of_a_tick_is_its_lateness
    firings_are_due_at_exact_times missing_firings_of_a_profile_clock_are_reported_per_cpu
    missing_firings_of_a_tick_are_reported
}

fn a_tick_clause_can_end_the_session() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    let o =
        dtrace(&["-qn", "tick-50ms { n++; } tick-50ms /n == 5/ { printf(\"%d\\n\", n); exit(0); }"]).code(0);
    assert_eq!(o.out, "5\n\n", "{o:?}");
    Pass
}

/// A slow tick has several chances in a period. None occurs twice, and one that is missing is
/// reported. The last one is due with the end.
fn slow_ticks_fire_once_a_period() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    let o = dtrace(&["-qn", "tick-1s { n++; } tick-3s { printf(\"%d\\n\", n); exit(0); }"]).code(0);
    let n: i64 = o.out.trim().parse().unwrap();
    let missing: i64 = reported(&o.err, "tick-1s").values().sum();
    assert!(n <= 3 && n + missing >= 2, "{n} ticks of 1 s in 3 s, {missing} missing");
    Pass
}

// row description.made-on-demand
fn ticks_keep_their_rate() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    if is_guest() {
        return Skip("an emulated clock keeps no rate".into());
    }
    // So many ticks take at least so long. Where the machine does not pause, the next tick is due
    // after one period.
    let script = "tick-100hz { this->due = timestamp - arg2; n++; } tick-100hz /n == 1/ { first = this->due; } \
                  tick-100hz /n > 1/ { @ = min(this->due - last); } tick-100hz { last = this->due; } \
                  tick-100hz /n == 100/ { exit(0); } \
                  END { printf(\"all %d\\n\", last - first); printa(\"next %@d\\n\", @); }";
    let o = dtrace(&["-qn", &format!("uint64_t first; uint64_t last; {script}")]).code(0);
    let (all, next) = (o.value_of("all"), o.value_of("next"));
    assert!(all >= 990_000_000 - 5_000_000, "100 ticks of 100 hz in {all} ns");
    assert!((5_000_000..=10_500_000).contains(&next), "the next tick of 100 hz is due after {next} ns");
    Pass
}

fn profile_samples_a_busy_process() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    // A second of CPU time, however long that takes. Each stay on a CPU, from one switch to the
    // next, has the firings that are due in it, which are at most one more or less than its time
    // says.
    let script = "
        syscall::getpgrp:entry /pid == $target && !begun/ { begun = 1; on = timestamp; stays = 1; }
        sched:::off-cpu /tid == $target && on/ { time += timestamp - on; on = 0; off = 1; }
        sched:::on-cpu /tid == $target && off/ { off = 0; on = timestamp; stays++; }
        profile-997hz /tid == $target && on/ { @ = count(); }
        syscall::getpgrp:entry /pid == $target && begun++ == 2/ { time += timestamp - on; on = 0; }
        END { printf(\"time %d\\nstays %d\\n\", time, stays); printa(\"samples %@d\\n\", @); }";
    let script = format!("uint64_t time; uint64_t on; {script}");
    let o = dtrace(&["-q", "-c", &workload("cputime", 1000), "-n", &script]).code(0);
    let missing: i64 = reported(&o.err, "profile-997hz").values().sum();
    let (due, stays) = (o.value_of("time") * 997 / 1_000_000_000, o.value_of("stays"));
    let samples = o.value_of("samples");
    assert!(
        samples <= due + stays && samples + missing >= due - stays,
        "{due} due, {missing} missing: {o:?}"
    );
    Pass
}

fn firings_are_due_at_exact_times() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    // The due times of two firings differ by a whole number of periods, whenever the firings
    // happen. The host may take the CPU away between the two clock readings, but not always.
    let program = "BEGIN { last = (int64_t)0; } tick-10ms { this->due = timestamp - arg2; } \
                   tick-10ms /last/ { this->off = (this->due - last + 100000) % 10000000; \
                                      all++; good += this->off < 200000 ? 1 : 0; } \
                   tick-10ms { last = this->due; } tick-10ms /all == 50/ { exit(0); } \
                   END { printf(\"good %d\\n\", good); }";
    let o = dtrace(&["-qn", program]).code(0);
    // By chance it would be one in fifty.
    assert!((10..=50).contains(&o.value_of("good")), "{o:?}");
    Pass
}

fn profile_sees_kernel_stacks_and_functions() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    let calls = if is_guest() { 300_000 } else { 3_000_000 };
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", calls),
        "-n",
        "profile-997hz /arg0/ { @f[func(arg0)] = count(); @s[stack()] = count(); @m[mod(arg0)] = count(); }",
    ])
    .code(0);
    assert!(o.out.contains("vmlinux`"), "{o:?}");
    Pass
}

fn profile_sees_user_stacks() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("cputime", 300),
        "-n",
        "profile-997hz /arg1 && pid == $target/ { @[ustack(3)] = count(); @u[ufunc(arg1)] = count(); @m[umod(arg1)] = count(); }",
    ])
    .code(0);
    assert!(o.out.contains("`"), "{o:?}");
    assert!(o.out.contains("e2e"), "{o:?}");
    Pass
}

fn exactly_one_of_arg0_and_arg1_is_set_in_a_sample() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("cputime", 300),
        "-n",
        "profile-997hz /(arg0 == 0) == (arg1 == 0)/ { @bad = count(); } profile-997hz { @all = count(); } \
         END { printa(\"bad %@d\\n\", @bad); printa(\"all %@d\\n\", @all); }",
    ])
    .code(0);
    assert!(!o.out.contains("bad ") && o.value_of("all") > 0, "exactly one of the two is set: {o:?}");
    Pass
}

fn arg2_of_a_tick_is_its_lateness() -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    // No firing is on time to the nanosecond, and none is as late as if it had been due at boot.
    let program = "tick-10ms /arg2 < 0 || arg2 > timestamp - 1000000000/ { @bad = count(); } \
                   tick-10ms { @ = max(arg2); n++; } tick-10ms /n == 20/ { exit(0); } \
                   END { printa(\"bad %@d\\n\", @bad); printa(\"late %@d\\n\", @); }";
    let o = dtrace(&["-qn", program]).code(0);
    assert!(!o.out.contains("bad "), "{o:?}");
    assert!(o.value_of("late") > 0, "{o:?}");
    Pass
}

/// Firings of a probe that were reported as suppressed, by CPU.
pub(crate) fn reported(err: &str, probe: &str) -> BTreeMap<u32, i64> {
    testing::suppressed::counted();
    let mut all = BTreeMap::new();
    for line in err.lines() {
        // `dtrace: 12 firings of profile-997 on CPU 0 suppressed by the kernel`
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["dtrace:", count, _, "of", name, "on", "CPU", cpu, "suppressed", ..] = words[..]
            && name == probe
        {
            *all.entry(cpu.parse().unwrap()).or_default() += count.parse::<i64>().unwrap();
        }
    }
    all
}

/// Holds a CPU six times, for 50 ms with interrupts disabled, beside a clock; what the clock served
/// and what was reported are all that was due: on each CPU at least what is due from its first
/// firing to its last, and at most what is due from BEGIN to END.
fn served_and_reported_are_all_that_was_due(probe: &str) -> Verdict {
    if let Some(skip) = no_clock() {
        return skip;
    }
    let script = format!(
        "BEGIN {{ begun = timestamp; }} {probe}hz {{ this->due = timestamp - arg2; }} \
         {probe}hz {{ @first[cpu] = min(this->due); @last[cpu] = max(this->due); @[cpu] = count(); }} \
         tick-100ms {{ n++; }} tick-100ms /n <= 6/ {{ chill(50000000); }} tick-100ms /n >= 12/ {{ exit(0); }} \
         END {{ printf(\"window %d\\n\", timestamp - begun); \
         printa(\"cpu %d %@d %@d %@d\\n\", @, @first, @last); }}"
    );
    let o = dtrace(&["-qwn", &script]).code(0);
    let missing = reported(&o.err, &format!("{probe}hz"));
    // 997 a second are 49 in 50 ms, of which one is served late, six times.
    assert!(missing.values().any(|n| *n >= 6 * 48), "{o:?}");
    let rate: i64 = probe.split_once('-').unwrap().1.parse().unwrap();
    let most = o.value_of("window") * rate / 1_000_000_000 + 1;
    let mut rows = o.out.lines().filter_map(|l| l.strip_prefix("cpu ")).peekable();
    assert!(rows.peek().is_some(), "{o:?}");
    for row in rows {
        let words: Vec<i64> = row.split(' ').map(|word| word.parse().unwrap()).collect();
        let [cpu, served, first, last] = words[..] else { panic!("{o:?}") };
        // A firing's time is read a moment later than its lateness. What is due is counted from the
        // times at which the clock of the CPU was begun and ended, so that it may be less by one at
        // each end.
        let least = (last - first + 500_000_000 / rate) * rate / 1_000_000_000 - 1;
        let all = served + missing.get(&(cpu as u32)).unwrap_or(&0);
        assert!((least..=most).contains(&all), "{least} to {most}, not {all} on CPU {cpu}: {o:?}");
    }
    Pass
}

fn missing_firings_of_a_profile_clock_are_reported_per_cpu() -> Verdict {
    served_and_reported_are_all_that_was_due("profile-997")
}

fn missing_firings_of_a_tick_are_reported() -> Verdict {
    served_and_reported_are_all_that_was_due("tick-997")
}
