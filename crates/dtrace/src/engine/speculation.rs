//! The consumer's side of speculations in the kernel. [`plane::speculation`] describes the
//! protocol.

use bpf_codegen::mir::MapRef;
use bpf_runtime::maps::Maps;
use bpf_sys::Mmap;
use plane::control::DropDelta;
use plane::read::Batch;
use plane::speculation::{SpeculationReader, SpeculationShape, Speculations};

use crate::error::Error;

/// The speculative buffers of a session.
pub(crate) struct SpeculativeBuffers {
    shape: SpeculationShape,
    control: Mmap,
    rings: Mmap,
    reader: SpeculationReader,
    oldest: u64,
    /// Records that were lost because the record of their commit was overwritten.
    lost: Vec<DropDelta>,
}

impl SpeculativeBuffers {
    /// Those that these maps have, if any.
    pub(crate) fn of(maps: &Maps) -> Result<Option<SpeculativeBuffers>, Error> {
        let (Some(shape), Some(control), Some(rings)) =
            (maps.plan.speculation, maps.get(MapRef::SpeculationControl), maps.get(MapRef::SpeculationRings))
        else {
            return Ok(None);
        };
        let (control, rings) = (control.mmap(true)?, rings.mmap(true)?);
        Ok(Some(SpeculativeBuffers {
            shape,
            control,
            rings,
            reader: SpeculationReader::default(),
            oldest: 0,
            lost: Vec::new(),
        }))
    }

    fn all(&self) -> Option<Speculations<'_>> {
        Speculations::new(self.shape, self.control.words(), self.rings.words())
    }

    /// Puts the records of committed speculations in the places of their commits, and frees
    /// speculations that ended. `now`: the clock before the batch was drained. `newest`: the batch
    /// is what is left of overwritten rings, and no program is running.
    pub(crate) fn complete(
        buffers: &mut Option<SpeculativeBuffers>,
        batch: Batch,
        now: u64,
        newest: bool,
    ) -> Batch {
        let Some(SpeculativeBuffers { shape, control, rings, reader, oldest, lost }) = buffers else {
            return batch;
        };
        let Some(all) = Speculations::new(*shape, control.words(), rings.words()) else { return batch };
        let mut batch = reader.splice(batch, &all);
        if newest {
            lost.append(&mut reader.lose_overwritten(&all));
        }
        reader.clean(&mut batch, &all);
        *oldest = reader.oldest(now, &all);
        batch
    }

    /// The drops since the last call.
    pub(crate) fn take_lost(&mut self) -> Vec<DropDelta> {
        std::mem::take(&mut self.lost)
    }

    /// True if a speculation has ended that is not free yet.
    pub(crate) fn is_busy(&self) -> bool {
        self.all().is_some_and(|all| all.is_busy())
    }

    /// No record of a speculation that is still to come has a time before this one.
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest
    }
}
