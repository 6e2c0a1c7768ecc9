//! Raw tracepoints.

use std::sync::Arc;

use bpf_sys::errno;
use bpf_sys::{AttachType, Link, ProgKind, SysError};

use super::{AttachError, Attaching, Copies, Method, ProgramType, Rejected};

const RAW: ProgramType = ProgramType::new(ProgKind::RawTracepoint, AttachType::None);

/// Microseconds to detach from one of many tracepoints.
const RELEASE_US: u64 = 200;

/// A raw tracepoint with the kernel's types (`tp_btf`).
#[derive(Clone, Copy, Debug)]
pub struct TpBtf {
    /// Id of `btf_trace_NAME`.
    pub btf: u32,
}

impl Method for TpBtf {
    fn is_reported_by_probes(&self) -> bool {
        true
    }

    fn program(&self) -> ProgramType {
        ProgramType { kind: ProgKind::Tracing, attach: AttachType::TraceRawTp, btf: self.btf }
    }

    fn attach(&self, to: &mut Attaching<'_>) -> Result<Rejected, AttachError> {
        to.loaded.links.push(Link::tracing(&to.loaded.prog, (to.cookie)(0))?.into());
        Ok(Rejected::new())
    }

    fn links_count_missed(&self) -> bool {
        false
    }
}

/// A raw tracepoint, without a cookie.
#[derive(Clone, Copy, Debug)]
pub struct RawTp {
    /// `sys_enter`
    pub name: &'static str,
}

impl Method for RawTp {
    fn is_reported_by_probes(&self) -> bool {
        true
    }

    fn program(&self) -> ProgramType {
        RAW
    }

    fn attach(&self, to: &mut Attaching<'_>) -> Result<Rejected, AttachError> {
        to.loaded.links.push(Link::raw_tracepoint(&to.loaded.prog, self.name, 0)?.into());
        Ok(Rejected::new())
    }

    fn links_count_missed(&self) -> bool {
        false
    }
}

/// Raw tracepoints by name. The position of a name is the index of its probe.
#[derive(Clone, Debug)]
pub struct Tracepoints {
    /// The tracepoints.
    pub names: Vec<Arc<str>>,
    /// Raw tracepoints have cookies on this kernel. Else each of several has a copy of the program.
    pub cookies: bool,
}

impl Tracepoints {
    fn copied(&self) -> bool {
        !self.cookies && self.names.len() > 1
    }
}

impl Method for Tracepoints {
    fn is_reported_by_probes(&self) -> bool {
        true
    }

    fn program(&self) -> ProgramType {
        RAW
    }

    fn copies(&self) -> Copies {
        if self.copied() { Copies::Numbered(self.names.len() as u32) } else { Copies::None }
    }

    fn attach(&self, to: &mut Attaching<'_>) -> Result<Rejected, AttachError> {
        for (index, name) in (0..).zip(&self.names) {
            to.check()?;
            let prog = match (self.copied(), index) {
                (true, 1..) => to.loaded.copies.get(index as usize - 1),
                _ => Some(&to.loaded.prog),
            };
            let Some(prog) = prog else { break };
            // A kernel without cookies accepts only 0.
            let cookie = if self.cookies { (to.cookie)(index) } else { 0 };
            match Link::raw_tracepoint(prog, name, cookie) {
                Ok(link) => to.loaded.links.push(link.into()),
                // Its module was unloaded since the tracepoints were listed.
                Err(SysError { errno: errno::ENOENT, .. }) if self.names.len() > 1 => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(Rejected::new())
    }

    fn has_cookies(&self) -> bool {
        self.cookies
    }

    fn descriptors(&self) -> usize {
        self.names.len()
    }

    fn release_us(&self) -> u64 {
        RELEASE_US * self.names.len() as u64
    }

    /// There can be thousands of links.
    fn links_count_missed(&self) -> bool {
        false
    }
}
