//! Actions that change what they look at. Their value is 0 and nobody uses it.

use super::{Call, Fault};
use crate::interp::Val;
use crate::ir::FaultKind;

/// A signal to the current process; one that does not exist is an illegal operation.
pub(super) fn raise(call: &mut Call<'_>) -> Result<Val, Fault> {
    let signal = call.int(0);
    if (0..=64).contains(&signal) && call.world.raise(signal) {
        Ok(Val::Int(0))
    } else {
        Err((FaultKind::IllegalOp, signal as u64))
    }
}

/// The result of the function that fired the probe.
pub(super) fn give(call: &mut Call<'_>) -> Result<Val, Fault> {
    let result = call.int(0);
    call.world.give(result);
    Ok(Val::Int(0))
}

/// Holds the CPU for so many nanoseconds; more than the CPU may be held is an illegal operation.
pub(super) fn chill(call: &mut Call<'_>) -> Result<Val, Fault> {
    let nanoseconds = call.int(0) as u64;
    if nanoseconds <= plane::control::CHILL_MOST && call.world.chill(nanoseconds) {
        Ok(Val::Int(0))
    } else {
        Err((FaultKind::IllegalOp, nanoseconds))
    }
}
