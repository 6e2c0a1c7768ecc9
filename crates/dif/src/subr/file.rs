//! Names of files.

use super::{Call, Fault};
use crate::interp::Val;
use crate::ir::FaultKind;

/// The path of a `struct path`, from the root of its mount namespace.
pub(super) fn d_path(call: &mut Call<'_>) -> Result<Val, Fault> {
    path(call, false)
}

/// The path of what a `struct path` is mounted on.
pub(super) fn mountpoint(call: &mut Call<'_>) -> Result<Val, Fault> {
    path(call, true)
}

fn path(call: &mut Call<'_>, mount: bool) -> Result<Val, Fault> {
    let addr = call.int(0) as u64;
    match call.world.path(addr, mount) {
        Some(mut path) => {
            path.truncate(call.strsize.saturating_sub(1));
            Ok(Val::Str(path))
        }
        None => Err((FaultKind::BadAddr, addr)),
    }
}
