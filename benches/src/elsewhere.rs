//! What all functions of the C library in one process cost the other programs of the machine: the
//! time of an execution, beside that of an empty program at the same places.
//!
//! The kernel looks at every probe of a file when a program maps it, also where the links are those
//! of one process. That is the floor. A link without a process is measured too: it sets the
//! breakpoints in every program.

use std::process::{Command, Stdio};
use std::time::Instant;

use bpf_sys::Link;
use symbols::{FunctionQuery, Processes, Select};
use text::{Kernel, Uses};

use crate::run::{Running, Tools, figure};
use crate::user::{Called, empty, mark};

/// At most so many times as long as with an empty program: with the 2,150 functions of a C library
/// without local symbols the kernel alone takes 2.5 times as long as without probes, and dtrace is
/// to take 2.7.
const OF_THE_FLOOR: f64 = 2.7 / 2.5;

/// Microseconds that a program takes which does nothing, from its creation to its end: the least of
/// some.
fn executed() -> f64 {
    const TIMES: usize = 60;
    let once = || {
        let begun = Instant::now();
        let mut command = Command::new("/bin/true");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let done = child.and_then(|mut child| child.wait()).is_ok_and(|status| status.success());
        if done { begun.elapsed().as_secs_f64() * 1e6 } else { f64::NAN }
    };
    (0..TIMES).map(|_| once()).fold(f64::NAN, f64::min)
}

/// The places of the entry probes that only count, in the file that has the called function.
pub(crate) fn places(called: &Called) -> Result<Vec<u64>, String> {
    let mut symbols = Processes::new(&symbols::Readers::new());
    let mapped = symbols.mapped(called.pid())?;
    let text =
        mapped.iter().find(|m| m.is_code && called.file().ends_with(&*m.name)).ok_or("no C library")?;
    let query = FunctionQuery {
        kernel: Kernel::UNKNOWN,
        entries: vec![Uses::NOTHING],
        ..FunctionQuery::names(Select::All)
    };
    let list = symbols.functions_in(called.pid(), text, &query)?;
    let known = list.functions.iter().filter(|function| function.unresolved.is_none());
    let mut all: Vec<u64> =
        known.filter_map(|f| Some(f.offset + f.entries.first()?.as_ref().ok()?.offset)).collect();
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// Measures them in turns.
pub(crate) fn elsewhere(tools: &Tools, called: &Called) {
    const ROUNDS: usize = 7;
    println!("\nexecution of another program while all functions of the C library are probed in one process");
    let places = match places(called) {
        Ok(places) => places,
        Err(e) => return println!("  not measured: {e}"),
    };
    let pid = called.pid();
    let ours =
        format!("BEGIN {{ printf(\"ready\\n\"); }} pid{pid}:libc::entry {{ @[probefunc] = count(); }}");
    let floor = |pid: Option<u32>| -> Option<Link> { empty(called.file(), &places, pid, false) };
    // `f64::min` prefers any number to NaN, and NaN is printed as not measured.
    let [mut bare, mut least, mut mine, mut wide] = [f64::NAN; 4];
    for _ in 0..ROUNDS {
        bare = bare.min(executed());
        if let Some(_link) = floor(Some(pid)) {
            least = least.min(executed());
        }
        if let Some(_tracer) = Running::start(tools.dtrace(&["-x", "switchrate=10ms"], &ours)) {
            mine = mine.min(executed());
        }
        if let Some(_link) = floor(None) {
            wide = wide.min(executed());
        }
    }
    println!("  {} places, least of {ROUNDS} interleaved rounds", places.len());
    for (what, us) in [
        ("without probes", bare),
        ("an empty program in one process", least),
        ("dtrace", mine),
        ("an empty program in the file", wide),
    ] {
        println!("  {what:<32} {:>8} us {:>6} times", figure(us, 0), figure(us / bare, 2));
    }
    let above = mine / least;
    let (each, reached) = (1e3 * (least - bare) / places.len() as f64, mark(above <= OF_THE_FLOOR));
    println!("  the kernel takes {} ns for each place", figure(each, 0));
    println!("  dtrace at most {OF_THE_FLOOR:.2} of the empty program ({}): {reached}", figure(above, 2));
}
