//! Paths of files.

use super::{Call, Fault};
use crate::interp::Val;
use crate::ir::FaultKind;

/// Selects a path of a `struct path`, or of a dentry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathOf {
    /// The file's path, as the process sees it.
    File,
    /// The path of the root of its mount.
    Mount,
    /// The file's path from the root of the mount namespace.
    Full,
    /// The path of a dentry in a mount, from the root of the mount namespace.
    Dentry,
}

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
