//! Programs that the session runs itself, and those that a user of the library attaches by a
//! function.

use std::fmt;
use std::sync::Arc;

use bpf_sys::{AttachType, Link, Prog, ProgKind, SysError};

use super::{AttachError, Attaching, Method, ProgramType, Rejected, SiteLink};

/// A program that is not attached: the session runs it.
#[derive(Clone, Copy, Debug)]
pub struct Run;

impl Method for Run {
    fn program(&self) -> ProgramType {
        ProgramType::new(ProgKind::RawTracepoint, AttachType::None)
    }

    fn attach(&self, _: &mut Attaching<'_>) -> Result<Rejected, AttachError> {
        Ok(Rejected::new())
    }
}

/// A function that attaches a program.
pub type AttachFn = dyn Fn(&Prog) -> Result<Vec<Link>, SysError> + Send + Sync;

/// A method that is one function, for providers of a user of the library
/// ([`crate::Registry::with`]). A provider that needs more implements [`Method`].
#[derive(Clone)]
pub struct CustomAttach {
    /// The kernel's kind of program.
    pub kind: ProgKind,
    /// How the program is loaded.
    pub attach_type: AttachType,
    /// Attaches a loaded program, until the links are dropped.
    pub attach: Arc<AttachFn>,
}

impl fmt::Debug for CustomAttach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomAttach")
            .field("kind", &self.kind)
            .field("attach_type", &self.attach_type)
            .finish_non_exhaustive()
    }
}

impl Method for CustomAttach {
    fn program(&self) -> ProgramType {
        ProgramType::new(self.kind, self.attach_type)
    }

    fn attach(&self, to: &mut Attaching<'_>) -> Result<Rejected, AttachError> {
        let links = (self.attach)(&to.loaded.prog)?;
        to.loaded.links.extend(links.into_iter().map(SiteLink::from));
        Ok(Rejected::new())
    }
}
