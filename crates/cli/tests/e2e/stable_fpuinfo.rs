//! The provider fpuinfo: exceptions of known number, and threads that take turns on a processor.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use crate::Verdict::{self, Pass};
use crate::machine::no_types;
use crate::tool::{cpus, dtrace, pin, workload};

tests! {
    each_exception_of_floating_point_is_told_once_with_its_kind
    registers_are_copied_saved_loaded_and_dropped_as_threads_come_and_go
}

fn each_exception_of_floating_point_is_told_once_with_its_kind() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let script = "fpuinfo:::fpu_exception /pid == $target/ { @[args[0], args[1], args[2] != 0] = count(); }
        END { printa(\"%d %d %d %@d\\n\", @); }";
    let o = dtrace(&["-q", "-c", &workload("fpu-exceptions", 7), "-n", script]).code(0);
    let mut rows: Vec<&str> = o.out.lines().filter(|l| !l.is_empty()).collect();
    rows.sort_unstable();
    // FPE_FLTDIV, FPE_FLTOVF, FPE_FLTINV of the x87 and of SSE.
    let expected = ["3 16 1 7", "3 19 1 8", "4 19 1 9", "7 16 1 7", "7 19 1 10"];
    assert_eq!(rows, expected, "{o:?}");
    Pass
}

fn registers_are_copied_saved_loaded_and_dropped_as_threads_come_and_go() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    const TURNS: i64 = 200;
    let script = "fpuinfo::: /progenyof($target)/ { @[probename] = count(); }
        sched:::off-cpu /progenyof($target)/ { @[\"off\"] = count(); }
        END { printa(\"%s %@d\\n\", @); }";
    let turns = u32::try_from(TURNS).unwrap();
    let o = dtrace(&["-q", "-c", &workload("fpu-turns", turns), "-n", script]).code(0);
    let count = |name: &str| {
        let row = o.out.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        row.map_or(0, |n| n.parse::<i64>().unwrap())
    };
    // The workload makes ten threads and a process, and is a thread itself.
    assert_eq!((count("fpu_copy"), count("fpu_drop")), (11, 12), "{o:?}");
    // Each turn of the two is a wait, before which their registers are saved, unless they were not
    // loaded since the last. What was not saved need not be loaded.
    let (saves, loads) = (count("fpu_save"), count("fpu_restore"));
    assert!((2 * TURNS..=count("off")).contains(&saves), "{o:?}");
    assert!((2 * TURNS..=saves + 12).contains(&loads), "{o:?}");
    Pass
}

extern "C" fn fix(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a context with registers, which are loaded after this.
    unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        let registers = &mut *context.uc_mcontext.fpregs;
        // All exceptions are masked, and none is there.
        registers.mxcsr = 0x1f80;
        registers.cwd = 0x37f;
        registers.swd &= !0x80ff;
    }
}

/// Divides and multiplies what gives an exception: with SSE, and with the x87, which tells it at the
/// next operation.
#[cfg(target_arch = "x86_64")]
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

/// Has exceptions: so many of the x87 of two kinds, and one more, two more, three more of SSE. Then a
/// division of integers and a signal that is sent, which are none.
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
}

/// A process and its child take turns on one processor. Then it starts ten threads.
pub(crate) fn takes_turns(count: u32) -> io::Result<()> {
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
