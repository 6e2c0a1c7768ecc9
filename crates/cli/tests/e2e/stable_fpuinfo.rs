//! The provider fpuinfo: exceptions of known number, and threads that take turns on a processor.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Verdict::{self, Pass};
use crate::machine::{is_guest, no_types};
use crate::tool::{cpus, dtrace, pin, workload};

tests! {
    each_exception_of_floating_point_is_told_once_with_its_kind
    registers_are_copied_saved_loaded_and_dropped_as_threads_come_and_go
    operations_that_others_simulate_have_their_reason
}

fn each_exception_of_floating_point_is_told_once_with_its_kind() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let script = "fpuinfo:::fpu_exception /pid == $target/ { @[args[0], args[1], args[2] != 0] = count(); }
        END { printa(\"told %d %d %d %@d\\n\", @); }";
    let o = dtrace(&["-q", "-c", &workload("fpu-exceptions", 7), "-n", script]).code(0);
    let rows = |word: &str| {
        let mut rows: Vec<&str> = o.out.lines().filter_map(|l| l.strip_prefix(word)).collect();
        rows.sort_unstable();
        rows
    };
    assert_eq!(rows("told "), rows("had "), "{o:?}");
    // FPE_FLTDIV, FPE_FLTOVF, FPE_FLTINV of the x87 and of SSE. The emulated processors of guests have
    // no exceptions of SSE.
    let expected = ["3 16 1 7", "3 19 1 8", "4 19 1 9", "7 16 1 7", "7 19 1 10"];
    let expected = expected.iter().copied().filter(|row| !is_guest() || row.contains(" 16 "));
    assert_eq!(rows("told "), expected.collect::<Vec<_>>(), "{o:?}");
    Pass
}

fn registers_are_copied_saved_loaded_and_dropped_as_threads_come_and_go() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    const TURNS: i64 = 200;
    let script = "fpuinfo::: /progenyof($target) && pid != $target/ { @[probename] = count(); }
        sched:::off-cpu /progenyof($target) && pid != $target/ { @[\"off\"] = count(); }
        END { printa(\"%s %@d\\n\", @); }";
    let turns = u32::try_from(TURNS).unwrap();
    let o = dtrace(&["-q", "-c", &workload("fpu-turns", turns), "-n", script]).code(0);
    let count = |name: &str| {
        let row = o.out.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        row.map_or(0, |n| n.parse::<i64>().unwrap())
    };
    // A process makes ten threads and another process, and all end before the workload does. Newer
    // kernels drop only what the processor has.
    assert_eq!(count("fpu_copy"), 11, "{o:?}");
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let always = ["6.1.", "6.12."].iter().any(|version| release.starts_with(version));
    assert!((if always { 12 } else { 1 }..=12).contains(&count("fpu_drop")), "{o:?}");
    // Each turn of the two is a wait, before which their registers are saved, unless they were not
    // loaded since the last. What was not saved need not be loaded.
    let (saves, loads) = (count("fpu_save"), count("fpu_restore"));
    assert!((2 * TURNS..=count("off")).contains(&saves), "{o:?}");
    assert!((2 * TURNS..=saves + 12).contains(&loads), "{o:?}");
    Pass
}

fn operations_that_others_simulate_have_their_reason() -> Verdict {
    for name in ["fpu_sim_fitoq", "fpu_sim_fsqrtd", "fpu_sim_fmuls"] {
        let o = dtrace(&["-ln", &format!("fpuinfo:::{name}")]).code(1);
        assert!(o.err.contains("processors that run Linux compute this themselves"), "{o:?}");
    }
    let o = dtrace(&["-ln", "fpuinfo:::fpu_sin"]).code(1);
    assert!(!o.err.contains("compute this themselves"), "{o:?}");
    Pass
}

/// How many exceptions a thread had, by code and trap.
static HAD: [[AtomicU32; 32]; 16] = [const { [const { AtomicU32::new(0) }; 32] }; 16];

extern "C" fn fix(_: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a context with registers, which are loaded after this.
    unsafe {
        let code = usize::try_from((*info).si_code);
        let context = &mut *context.cast::<libc::ucontext_t>();
        let registers = &mut *context.uc_mcontext.fpregs;
        // All exceptions are masked, and none is there.
        registers.mxcsr = 0x1f80;
        registers.cwd = 0x37f;
        registers.swd &= !0x80ff;
        let trap = usize::try_from(context.uc_mcontext.gregs[libc::REG_TRAPNO as usize]);
        if let (Ok(code), Ok(trap)) = (code, trap) {
            HAD[code & 15][trap & 31].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Divides and multiplies what gives an exception: with SSE, and with the x87, which tells it at the
/// next operation.
fn computes(is_sse: bool, a: f64, b: f64, is_product: bool) {
    let unmasked: (u32, u16) = (0x1f80 & !0x680, 0x37f & !0xd);
    let mut result = 0.0;
    // SAFETY: the handler masks the exceptions again.
    unsafe {
        match (is_sse, is_product) {
            (true, false) => std::arch::asm!("ldmxcsr [{m}]", "divsd {a}, {b}", m = in(reg) &unmasked.0,
                a = inout(xmm_reg) a => result, b = in(xmm_reg) b),
            (true, true) => std::arch::asm!("ldmxcsr [{m}]", "mulsd {a}, {b}", m = in(reg) &unmasked.0,
                a = inout(xmm_reg) a => result, b = in(xmm_reg) b),
            (false, _) => std::arch::asm!("fninit", "fldcw [{m}]", "fld qword ptr [{a}]",
                "fdiv qword ptr [{b}]", "fwait", "fninit", m = in(reg) &unmasked.1, a = in(reg) &a,
                b = in(reg) &b, out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _),
        }
    }
    std::hint::black_box(result);
}

/// Has exceptions: so many of the x87 of two kinds, and one more, two more, three more of SSE. Then
/// the signal is sent, which is none. Prints what the handler was told.
pub(crate) fn has_exceptions(count: u32) {
    // SAFETY: an action whose handler has this type.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = fix as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGFPE, &action, std::ptr::null_mut());
    }
    for (is_sse, a, b, is_product, more) in [
        (false, 1.0, 0.0, false, 0),
        (false, 0.0, 0.0, false, 0),
        (true, 1.0, 0.0, false, 1),
        (true, f64::MAX, 2.0, true, 2),
        (true, 0.0, 0.0, false, 3),
    ] {
        (0..count + more).for_each(|_| computes(is_sse, a, b, is_product));
    }
    // SAFETY: the handler returns.
    unsafe { libc::raise(libc::SIGFPE) };
    for (code, traps) in HAD.iter().enumerate() {
        for (trap, had) in traps.iter().enumerate().filter(|(_, had)| had.load(Ordering::Relaxed) > 0) {
            println!("had {code} {trap} 1 {}", had.load(Ordering::Relaxed));
        }
    }
}

/// A process whose parent waits for it, and its child, take turns on one processor. Then it starts
/// ten threads.
pub(crate) fn takes_turns(count: u32) -> io::Result<()> {
    // SAFETY: this process has one thread.
    let parted = unsafe { libc::fork() };
    if parted != 0 {
        // SAFETY: waits for the child.
        unsafe { libc::waitpid(parted, std::ptr::null_mut(), 0) };
        return Ok(());
    }
    pin(0, cpus()[0]);
    let (mut mine, mut childs) = UnixStream::pair()?;
    // SAFETY: the child only reads, writes and ends.
    let child = unsafe { libc::fork() };
    let end = if child == 0 { &mut childs } else { &mut mine };
    for _ in 0..count {
        if child != 0 {
            end.write_all(&[1])?;
        }
        end.read_exact(&mut [0])?;
        if child == 0 {
            end.write_all(&[1])?;
        }
    }
    if child == 0 {
        // SAFETY: ends.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    for _ in 0..10 {
        std::thread::spawn(|| ()).join().unwrap();
    }
    Ok(())
}
