//! Function boundary tracing: functions of the kernel.

use bpf_sys::features::Facility;
use testing::eventually;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::{has, lacks, no_functions, no_types};
use crate::tool::{LIMIT, Output, dtrace, suppressed, suppressed_of, workload};

tests! {
    entry_and_return_of_a_function_are_counted each_function_of_a_glob_fires_under_its_own_name
    a_function_of_a_module_is_traced only_traceable_functions_are_listed
    a_kernel_without_function_tracing_is_reported every_attach_method_counts_the_same_calls
    arguments_of_functions_have_their_types return_replaces_the_result_of_a_function
    return_is_rejected_where_the_result_cannot_be_replaced
    self_variables_are_separate_in_threads_and_interrupts
}

/// Whether the root file system is the module `overlay`, as in the guests of the matrix.
pub(crate) fn root_is_of_a_module() -> bool {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let root = mounts.lines().rfind(|l| l.split(' ').nth(1) == Some("/")).and_then(|l| l.split(' ').nth(2));
    root == Some("overlay") && std::path::Path::new("/sys/module/overlay").exists()
}

/// Whether a count is 1000. If it is less, `dtrace` must have reported the difference as
/// suppressed. The kernel may lack memory for a return when writers block, and the program of a
/// trampoline suppresses others while it is preempted.
#[track_caller]
fn is_thousand(o: &Output, name: &str, program: &str) -> bool {
    let count = o.value_of(name);
    let lost = suppressed_of(o, program);
    assert!(count <= 1000 && count + lost >= 1000, "{name}: {o:?}");
    count == 1000
}

/// A thousand writes of 1, 2, 4 … 128 bytes.
const BYTES: i64 = 125 * 255;

fn entry_and_return_of_a_function_are_counted() -> Verdict {
    if let Some(skip) = no_functions() {
        return skip;
    }
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("write", 1000),
        "-n",
        "fbt::vfs_write:entry /pid == $target/ { calls++; asked += arg2; self->in = 1; }
         fbt::vfs_write:return /self->in && pid == $target/ \
             { returns++; given += arg1; offset += arg0; self->in = 0; }
         fbt::vfs_write:entry,fbt::vfs_write:return /pid == $target/ \
             { @[probeprov, probemod, probefunc, probename] = count(); }
         END { printf(\"calls %d\\nasked %d\\nreturns %d\\ngiven %d\\noffset %d\\n\", \
             calls, asked, returns, given, offset); }",
    ])
    .code(0);
    assert_eq!(o.value_of("offset"), 0, "{o:?}");
    if is_thousand(&o, "calls", "fbt_entry") && is_thousand(&o, "returns", "fbt_return") {
        assert_eq!((o.value_of("asked"), o.value_of("given")), (BYTES, BYTES), "{o:?}");
    }
    let keys: Vec<Vec<&str>> = o.out.lines().map(|l| l.split_whitespace().collect()).collect();
    for end in ["entry", "return"] {
        let key = ["fbt", "vmlinux", "vfs_write", end];
        assert!(keys.iter().any(|k| k.len() == 5 && k[..4] == key), "{o:?}");
    }
    Pass
}

/// The probe of each firing is determined from the function's address, with which the stack begins
/// too.
fn each_function_of_a_glob_fires_under_its_own_name() -> Verdict {
    if let Some(skip) = no_functions() {
        return skip;
    }
    const FUNCTIONS: [&str; 4] = ["vfs_read", "vfs_write", "ksys_write", "path_openat"];
    let probes = FUNCTIONS.map(|f| format!("fbt::{f}:entry")).join(",");
    let clause = format!("{probes} /pid == $target/ {{ @[probefunc, stack(1)] = count(); }}");
    let o = dtrace(&["-q", "-c", &workload("write", 1000), "-n", &clause]).code(0);
    let lines: Vec<&str> = o.out.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let records = lines.as_chunks::<3>();
    assert!(records.1.is_empty(), "{o:?}");
    for [function, frame, _] in records.0 {
        let name = frame.split_once('`').map(|(_, symbol)| symbol.split('+').next().unwrap_or_default());
        assert_eq!(name, Some(*function), "{o:?}");
    }
    for function in FUNCTIONS {
        assert!(records.0.iter().any(|r| r[0] == function), "{function}: {o:?}");
    }
    Pass
}

fn a_function_of_a_module_is_traced() -> Verdict {
    if let Some(skip) = no_functions() {
        return skip;
    }
    if !root_is_of_a_module() {
        return Skip("the root is not of a module (overlay)".into());
    }
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("open", 1),
        "-n",
        "fbt:overlay:ovl_lookup:entry,fbt:overlay:ovl_permission:entry,fbt:overlay:ovl_path_*:entry /pid == $target/ { @[probemod] = count(); }",
    ])
    .code(0);
    let lines: Vec<&str> = o.out.lines().filter(|l| !l.trim().is_empty()).collect();
    assert_eq!(lines.len(), 1, "{o:?}");
    assert!(o.value_of("overlay") >= 1, "{o:?}");
    Pass
}

fn only_traceable_functions_are_listed() -> Verdict {
    if let Some(skip) = no_functions() {
        return skip;
    }
    // In one session: each reads the list of functions. Clones are listed under rawfbt alone.
    let none = "fbt::*.*:entry";
    let some = ["fbt::vfs_write:", "rawfbt:vmlinux:vfs_write:entry", "fbt::do_exit:", "rawfbt::*.*:entry"];
    let words = [none].into_iter().chain(some).flat_map(|pattern| ["-n", pattern]);
    let o = dtrace(&["-l"].into_iter().chain(words).collect::<Vec<_>>()).code(1);
    let said = format!("dtrace: failed to match {none}: No probe matches description");
    assert_eq!(o.err.trim(), said);
    let rows: Vec<Vec<&str>> =
        o.out.lines().skip(1).map(|l| l.split_whitespace().skip(1).collect()).collect();
    let count = |is: &dyn Fn(&[&str]) -> bool| rows.iter().filter(|row| is(row)).count();
    assert_eq!(count(&|row| row[0] == "fbt" && row.contains(&"vfs_write")), 2);
    assert_eq!(count(&|row| row == ["rawfbt", "vmlinux", "vfs_write", "entry"]), 1);
    // A function that does not return has no return probe.
    assert_eq!(count(&|row| row[0] == "fbt" && row.contains(&"do_exit")), 1);
    let is_clone = |row: &[&str]| row[row.len() - 2].contains('.') && row.ends_with(&["entry"]);
    assert_eq!(count(&|row| row[0] == "fbt" && is_clone(row)), 0);
    assert!(count(&|row| row[0] == "rawfbt" && is_clone(row)) > 100);
    // Functions that every firing calls cannot be traced.
    let o = dtrace(&["-l", "-n", "rawfbt::migrate_disable:entry"]).code(1);
    assert_eq!(o.out.lines().skip(1).count(), 0, "{o:?}");
    Pass
}

fn a_kernel_without_function_tracing_is_reported() -> Verdict {
    if no_functions().is_none() {
        return Skip("this kernel's functions can be traced".into());
    }
    let o = dtrace(&["-n", "fbt::vfs_write:entry"]).code(1);
    let said = ["which functions can be traced: ", "lets no program attach to its functions"];
    assert!(said.iter().any(|s| o.err.contains(s)), "{o:?}");
    Pass
}

/// A function that threads call while interrupts fire. Each keeps its own self-> variable.
fn self_variables_are_separate_in_threads_and_interrupts() -> Verdict {
    if let Some(skip) = no_functions() {
        return skip;
    }
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("write", 1000),
        "-n",
        "fbt::vfs_write:entry /pid == $target/ { self->n = arg2; } \
         fbt::hrtimer_interrupt:entry,fbt::__hrtimer_run_queues:entry { self->n = -1; } \
         fbt::vfs_write:return /pid == $target/ { same += self->n == arg1; self->n = 0; } \
         END { printf(\"same %d\\n\", same); }",
    ])
    .code(0);
    let same = o.value_of("same");
    assert!(same <= 1000 && same + suppressed(&o) >= 1000, "{o:?}");
    Pass
}

/// Counts the same calls with each attach method that this kernel has.
fn every_attach_method_counts_the_same_calls() -> Verdict {
    if let Some(skip) = no_functions() {
        return skip;
    }
    let mut known = 0;
    let ways =
        [("multi", Facility::KprobeMulti), ("fentry", Facility::Fentry), ("kprobe", Facility::KprobePerf)];
    for (means, facility) in ways {
        let o = dtrace(&[
            "-q",
            "-v",
            "-x",
            &format!("fbtmeans={means}"),
            "-c",
            &workload("write", 1000),
            "-n",
            "fbt::vfs_write:entry /pid == $target/ { @calls = count(); @asked = sum(arg2); } \
             fbt::vfs_write:return /pid == $target/ { @returns = count(); @given = sum(arg1); } \
             END { printa(\"calls %@d\\n\", @calls); printa(\"asked %@d\\n\", @asked); \
                 printa(\"returns %@d\\n\", @returns); printa(\"given %@d\\n\", @given); }",
        ]);
        if !has(facility) {
            assert!(o.code(1).err.contains("lets no program attach to its functions by"));
            continue;
        }
        let o = o.code(0);
        known += 1;
        assert!(o.err.contains(": 1 function by "), "{o:?}");
        if is_thousand(&o, "calls", "fbt_entry") && is_thousand(&o, "returns", "fbt_return") {
            assert_eq!((o.value_of("asked"), o.value_of("given")), (BYTES, BYTES), "{means}: {o:?}");
        }
    }
    assert!(known > 0);
    Pass
}

fn arguments_of_functions_have_their_types() -> Verdict {
    if let Some(skip) = no_functions() {
        return skip;
    }
    if let Some(skip) = no_types() {
        return skip;
    }
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("write", 8),
        "-n",
        "fbt::vfs_write:entry /pid == $target/ \
             { @[stringof(args[0]->f_path.dentry->d_name.name), args[2] == arg2] = count(); } \
         fbt::vfs_write:return /pid == $target/ { @given = sum(args[1]); }",
    ])
    .code(0);
    let keys: Vec<Vec<&str>> = o.out.lines().map(|l| l.split_whitespace().collect()).collect();
    assert!(keys.iter().any(|k| k[..] == ["null", "1", "8"]), "{o:?}");
    assert!(keys.iter().any(|k| k[..] == ["255"]), "{o:?}");
    Pass
}

/// A function that checks a permission, and its result.
fn return_replaces_the_result_of_a_function() -> Verdict {
    if let Some(skip) = no_functions().or_else(|| lacks(Facility::ModifyReturn)) {
        return skip;
    }
    // On an overlay the function is called for the file system below it too.
    let place = testing::memory_dir().join(format!("dt-given-{}", std::process::id()));
    let make = |result: &str| {
        let script = format!(
            "fbt::security_inode_mkdir:entry /pid == $target/ {{ asked++; mode = arg2 & 0777; return({result}); }}
             fbt::security_inode_mkdir:entry /pid == $target/ {{ both += asked; }}
             syscall::mkdir:return /pid == $target/ {{ error = errno; value = arg1; }}
             END {{ printf(\"asked %d\\nboth %d\\nmode %d\\nerror %d\\nvalue %d\\n\", asked, both, mode, error, value); }}"
        );
        let o = dtrace(&["-wqv", "-c", &format!("mkdir -m 700 {}", place.display()), "-n", &script]);
        let made = std::fs::remove_dir(&place).is_ok();
        (o, made)
    };
    // The kernel keeps the program from a firing while another thread is in it, and counts that.
    let o = eventually("a firing that is not suppressed", LIMIT, || {
        let (o, made) = make("-77");
        let o = o.code(0);
        let asked = o.value_of("asked");
        assert!(asked + suppressed(&o) >= 1 && made == (asked == 0), "{o:?}");
        (asked > 0).then_some(o)
    });
    assert!(o.err.contains("fbt_entry: 1 function by fmod_ret"), "{o:?}");
    let values = ["asked", "both", "mode", "error", "value"].map(|n| o.value_of(n));
    assert_eq!(values, [1, 1, 0o700, 77, -1], "{o:?}");
    // A value known at run time only, which is 0, so the function runs.
    let o = eventually("a firing that is not suppressed", LIMIT, || {
        let (o, made) = make("asked - asked");
        let o = o.code(0);
        assert!(made && o.value_of("error") == 0 && o.value_of("asked") + suppressed(&o) >= 1, "{o:?}");
        (o.value_of("asked") > 0).then_some(o)
    });
    assert_eq!(o.value_of("asked"), 1, "{o:?}");
    Pass
}

fn return_is_rejected_where_the_result_cannot_be_replaced() -> Verdict {
    if let Some(skip) = no_functions() {
        return skip;
    }
    let refused =
        |description: &str| dtrace(&["-wqn", &format!("{description} {{ return(-1); }}")]).code(1).err;
    let err = refused("fbt::vfs_fsync_range:entry");
    assert!(
        err.contains("return( ) in fbt:vmlinux:vfs_fsync_range:entry: this kernel lets no program change"),
        "{err}"
    );
    // The function returns nothing.
    let err = refused("fbt::security_file_free:entry");
    assert!(
        err.contains("its result is no int") || err.contains("lets no program change the result of"),
        "{err}"
    );
    let err = dtrace(&["-qn", "fbt::security_inode_mkdir:entry { return(-1); }"]).code(1).err;
    assert!(err.contains("Destructive actions not allowed"), "{err}");
    Pass
}
