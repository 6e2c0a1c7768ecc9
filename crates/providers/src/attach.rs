//! Attaching a loaded program as its unit says.

use std::ffi::CString;

use bpf::sys::{Counter, Link, PerfEvent, ProbeSite, Prog, SysError};

use crate::sites::AttachMethod;
use crate::unit::Attach;

/// Attaches a program; the links that are made, which hold it until they are dropped, are added to `links`, also where an error
/// follows. `interrupted` is asked where it takes long: when it says yes, the error is EINTR.
pub fn attach(
    how: &Attach,
    prog: &Prog,
    links: &mut Vec<Link>,
    interrupted: &dyn Fn() -> bool,
) -> Result<(), SysError> {
    match how {
        Attach::Run => {}
        Attach::TpBtf { .. } => links.push(Link::tracing(prog, 0)?),
        Attach::RawTp { name } => links.push(Link::raw_tracepoint(prog, name, 0)?),
        Attach::Clock { event, period, cpus, .. } => {
            for cpu in cpus {
                links.push(clock(prog, event, *period, *cpu)?);
            }
        }
        Attach::Functions { functions, on_return } => {
            let bad = || SysError::new("attach to a function with a NUL in its name", 22);
            let names: Vec<CString> = functions
                .iter()
                .map(|(f, _)| CString::new(f.as_str()))
                .collect::<Result<_, _>>()
                .map_err(|_| bad())?;
            let cookies: Vec<u64> = functions.iter().map(|(_, cookie)| *cookie).collect();
            let names = ProbeSite::Names(&names);
            links.push(Link::kprobe_multi(prog, names, &cookies, *on_return, interrupted)?);
        }
        Attach::Tracepoints(names) | Attach::EachTracepoint(names) => {
            for (cookie, name) in (0..).zip(names) {
                if interrupted() {
                    return Err(SysError::new("attach to tracepoints", EINTR));
                }
                match Link::raw_tracepoint(prog, name, cookie) {
                    Ok(link) => links.push(link),
                    // Its module was unloaded since the tracepoints were listed.
                    Err(e) if e.errno == NO_SUCH_TRACEPOINT && names.len() > 1 => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Attach::Event { id, .. } => links.push(Link::perf_event(prog, PerfEvent::tracepoint(*id)?, 0)?),
        Attach::Sites(sites) => {
            crate::sites::attach(sites, prog, links, interrupted)?;
        }
        Attach::Custom(custom) => links.extend((custom.attach)(prog)?),
    }
    Ok(())
}

/// About how many microseconds the kernel takes to detach. Measured; decides only whether detaching is reported as slow.
pub fn detach_us(how: &Attach) -> u64 {
    match how {
        Attach::Sites(s) if s.method == AttachMethod::Multi => 60 * s.sites.len() as u64,
        Attach::Sites(s) => 1000 * s.method.cost_ms().1 * s.sites.len() as u64,
        Attach::Event { .. } => 75_000,
        Attach::Tracepoints(names) | Attach::EachTracepoint(names) => 200 * names.len() as u64,
        _ => 0,
    }
}

/// How many file descriptors it takes to attach a program.
pub fn descriptors(how: &Attach) -> usize {
    match how {
        Attach::Tracepoints(names) | Attach::EachTracepoint(names) => names.len(),
        Attach::Clock { cpus, .. } => 2 * cpus.len(),
        Attach::Event { .. } => 2,
        Attach::Sites(s) if s.method != AttachMethod::Multi => 2 * s.sites.len(),
        _ => 1,
    }
}

/// True if other programs may be attached to the same tracepoints.
pub fn shares_tracepoints(how: &Attach) -> bool {
    matches!(
        how,
        Attach::Tracepoints(_) | Attach::EachTracepoint(_) | Attach::TpBtf { .. } | Attach::RawTp { .. }
    )
}

/// The user wants no more.
const EINTR: i32 = 4;

/// ENOENT.
const NO_SUCH_TRACEPOINT: i32 = 2;

/// Attaches a clock or counter to one CPU. Also for CPUs that come online while a session runs.
pub fn clock(prog: &Prog, event: &Counter, period: u64, cpu: u32) -> Result<Link, SysError> {
    Link::perf_event(prog, PerfEvent::counter(event, cpu, period)?, 0)
}
