//! What of the probes that came later could not be attached, and programs for such probes.

use crate::error::Error;
use crate::load::attach::{AttachObserver, AttachedProgram, Said, attach};

/// What an arrival left out.
#[derive(Default)]
pub(crate) struct LeftOut {
    /// The first enabled-probe ids of probes of which no site is attached.
    pub(crate) rejected: Vec<u32>,
    /// Units that failed: their probes, and why.
    pub(crate) failed: Vec<(String, Error)>,
    /// A unit was attached.
    pub(crate) attached: bool,
}

impl LeftOut {
    /// The first failure, where nothing was attached.
    pub(crate) fn or_error(mut self) -> Result<LeftOut, Error> {
        if self.attached || self.failed.is_empty() { Ok(self) } else { Err(self.failed.swap_remove(0).1) }
    }
}

/// Attaches programs for probes that came later. One that fails is left out; the programs that
/// account for others are needed.
pub(crate) fn attach_each(
    all: &mut Vec<AttachedProgram>,
    left: &mut LeftOut,
    said: &mut Said,
    observer: &mut AttachObserver<'_>,
) -> Result<(), Error> {
    let mut attached = Vec::new();
    let mut done = Ok(());
    for mut a in all.drain(..) {
        let one = done.is_ok().then(|| attach(std::slice::from_mut(&mut a), said, observer));
        match (one, &a.later) {
            (Some(Err(e)), Some(later)) if !matches!(e, Error::Interrupted) => {
                left.rejected.extend(&later.epids);
                left.failed.push((later.text.clone(), e));
                continue;
            }
            (Some(Err(e)), _) => done = Err(e),
            (Some(Ok(())), Some(_)) => left.attached = true,
            (Some(Ok(())), None) | (None, _) => {}
        }
        attached.push(a);
    }
    *all = attached;
    done
}
