//! What all programs of a session share.

use dif::ir::Module;

use crate::mir::MapRef;
use crate::plan::{Area, Plan};
use crate::select::Layout;
use crate::target::Target;

/// What all programs of a session share.
#[derive(Clone, Copy, Debug)]
pub struct Session<'e> {
    /// The clauses.
    pub module: &'e Module,
    /// The maps.
    pub plan: &'e Plan,
    /// The layout of the scratch slots. The plan was made for its [`Layout::slot_bytes`].
    pub layout: &'e Layout,
    /// The target kernel.
    pub target: &'e Target,
    /// Number of interned strings in [`MapRef::Strings`]: those of the module, then names of
    /// probes. `strsize` bytes each, without duplicates.
    pub interned: u32,
}

impl Session<'_> {
    /// The interned strings. They are looked up by number where there are too many for one element.
    pub fn strings(&self) -> Area {
        Area {
            map: MapRef::Strings,
            at: 0,
            stride: self.module.string_storage(),
            count: self.interned.max(1),
        }
    }
}
