//! Paths of files, and what those of control groups name.

use super::call::{Call, Fault};
use super::name::{NameOf, PathOf};
use crate::interp::Val;
use crate::ir::FaultKind;

pub(super) fn d_path(call: &mut Call<'_>) -> Result<Val, Fault> {
    name(call, NameOf::Path(PathOf::File))
}

pub(super) fn mountpoint(call: &mut Call<'_>) -> Result<Val, Fault> {
    name(call, NameOf::Path(PathOf::Mount))
}

pub(super) fn full_path(call: &mut Call<'_>) -> Result<Val, Fault> {
    name(call, NameOf::Path(PathOf::Full))
}

pub(super) fn dentry_path(call: &mut Call<'_>) -> Result<Val, Fault> {
    name(call, NameOf::Path(PathOf::Dentry))
}

pub(super) fn container(call: &mut Call<'_>) -> Result<Val, Fault> {
    name(call, NameOf::Container)
}

pub(super) fn pod(call: &mut Call<'_>) -> Result<Val, Fault> {
    name(call, NameOf::Pod)
}

fn name(call: &mut Call<'_>, of: NameOf) -> Result<Val, Fault> {
    let addr = call.int(0) as u64;
    match call.world.name(addr, of) {
        Some(mut name) => {
            name.truncate(call.strsize.saturating_sub(1));
            Ok(Val::Str(name))
        }
        None => Err((FaultKind::BadAddr, addr)),
    }
}
