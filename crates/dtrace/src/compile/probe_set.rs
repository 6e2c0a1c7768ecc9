//! The probes of a program for which a clause runs.

use bpf_codegen::context::ProbeSet;
use providers::EnabledProbe;

pub(crate) fn probe_set(mine: &[&(u32, EnabledProbe)], space: u32) -> ProbeSet {
    match mine {
        _ if mine.len() == space as usize => ProbeSet::All,
        [(index, _)] => ProbeSet::One(*index),
        _ => {
            let mut words = vec![0u64; space.div_ceil(64) as usize];
            for (index, _) in mine {
                words[*index as usize / 64] |= 1 << (index % 64);
            }
            ProbeSet::Bitmap(words)
        }
    }
}
