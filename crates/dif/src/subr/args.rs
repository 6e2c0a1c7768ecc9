//! The command-line arguments of a process.

use super::call::{Call, Fault};
use crate::interp::Val;
use crate::ir::FaultKind;

/// Reads the argument strings between two addresses of the process, and replaces each NUL between
/// them by a space.
pub(super) fn args(call: &mut Call<'_>) -> Result<Val, Fault> {
    let (start, end) = (call.int(0) as u64, call.int(1) as u64);
    // The last NUL ends the whole string.
    let length = end.wrapping_sub(start).wrapping_sub(1).min(call.strsize as u64 - 1);
    let mut text = vec![0; if end > start { length as usize } else { 0 }];
    if !text.is_empty() && !call.world.arguments(start, &mut text) {
        return Err((FaultKind::BadAddr, start));
    }
    text.iter_mut().filter(|b| **b == 0).for_each(|b| *b = b' ');
    Ok(Val::Str(text))
}
