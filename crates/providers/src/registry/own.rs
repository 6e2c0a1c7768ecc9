//! The providers of this system: the only list of them. Their order here means nothing (see
//! [`super::ids`]).

use std::sync::Arc;

use probes::Calls;
use system::System;

use super::Entry;
use crate::contract::Provider;
use crate::trace::Tracepoints;
use crate::{bio, cpc, dtrace, elsewhere, fbt, pid, profile, rawtp, sdt, syscall, usdt};

/// The providers of this system, and those of a user of the library. One of these that
/// [replaces](crate::Names::replaces) others takes the place of those of this system that answer
/// for one of its names: its probes are the ends of the same calls, unless it says of which.
pub(super) fn providers(system: &System, others: Vec<Box<dyn Provider>>) -> Vec<Entry> {
    let tracepoints = Arc::new(Tracepoints::new(system));
    let mut own: Vec<Box<dyn Provider>> = vec![
        Box::new(bio::Bio::new(system.types().clone(), tracepoints.clone())),
        Box::new(cpc::Cpc::new(system)),
        Box::new(dtrace::Dtrace::new()),
        elsewhere::unless_live(system, Box::new(pid::Pid::new())),
        Box::new(profile::Profile::new(system)),
        Box::new(rawtp::Rawtp::new(tracepoints.clone())),
        Box::new(sdt::Sdt::new(tracepoints)),
        Box::new(syscall::Syscall::new(system)),
        elsewhere::unless_live(system, Box::new(usdt::Usdt::new())),
    ];
    own.extend(fbt::both(system).map(|p| Box::new(p) as Box<dyn Provider>));
    let mut all: Vec<Entry> = others.into_iter().map(|p| Entry::new(p, false)).collect();
    let replaced: Vec<_> = all.iter().filter(|e| e.names.replaces).map(|e| e.family.clone()).collect();
    let (gone, own): (Vec<Entry>, Vec<Entry>) = (own.into_iter().map(|p| Entry::new(p, true)))
        .partition(|entry| replaced.iter().any(|family| family.overlaps(&entry.family)));
    for entry in all.iter_mut().filter(|e| e.names.replaces && e.calls == Calls::None) {
        let before = gone.iter().find(|other| other.family.overlaps(&entry.family));
        entry.calls = before.map_or(Calls::None, |before| before.calls);
    }
    all.extend(own);
    all
}
