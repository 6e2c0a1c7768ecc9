//! Paths of files, and what those of control groups name.

use super::call::{Call, Fault};
use super::name::PathOf;
use crate::interp::Val;
use crate::ir::FaultKind;

pub(super) fn d_path(call: &mut Call<'_>) -> Result<Val, Fault> {
    path(call, PathOf::File)
}

pub(super) fn mountpoint(call: &mut Call<'_>) -> Result<Val, Fault> {
    path(call, PathOf::Mount)
}

pub(super) fn full_path(call: &mut Call<'_>) -> Result<Val, Fault> {
    path(call, PathOf::Full)
}

pub(super) fn dentry_path(call: &mut Call<'_>) -> Result<Val, Fault> {
    path(call, PathOf::Dentry)
}

pub(super) fn container(call: &mut Call<'_>) -> Result<Val, Fault> {
    path(call, PathOf::Container)
}

pub(super) fn pod(call: &mut Call<'_>) -> Result<Val, Fault> {
    path(call, PathOf::Pod)
}

fn path(call: &mut Call<'_>, of: PathOf) -> Result<Val, Fault> {
    let addr = call.int(0) as u64;
    match call.world.path(addr, of) {
        Some(mut path) => {
            path.truncate(call.strsize.saturating_sub(1));
            Ok(Val::Str(path))
        }
        None => Err((FaultKind::BadAddr, addr)),
    }
}
