//! Actions with an effect on the traced process. Their value is 0 and unused.

use super::call::{Call, Fault};
use crate::interp::Val;
use crate::ir::FaultKind;

/// `raise()`: sends a signal to the current process. An invalid signal is an illegal operation.
pub(super) fn raise(call: &mut Call<'_>) -> Result<Val, Fault> {
    let signal = call.int(0);
    if (0..=64).contains(&signal) && call.world.raise(signal) {
        Ok(Val::Int(0))
    } else {
        Err((FaultKind::IllegalOp, signal as u64))
    }
}

/// `return()`: sets the result of the function that fired the probe.
pub(super) fn override_return(call: &mut Call<'_>) -> Result<Val, Fault> {
    let result = call.int(0);
    call.world.override_return(result);
    Ok(Val::Int(0))
}

/// `chill()`: delays the CPU for this number of nanoseconds. Exceeding the limit of the CPU is an
/// illegal operation.
pub(super) fn chill(call: &mut Call<'_>) -> Result<Val, Fault> {
    let nanoseconds = call.int(0) as u64;
    if nanoseconds <= plane::control::CHILL_MOST && call.world.chill(nanoseconds) {
        Ok(Val::Int(0))
    } else {
        Err((FaultKind::IllegalOp, nanoseconds))
    }
}

/// `speculation()`: the id of a new speculation; 0 if none is free.
pub(super) fn speculation(call: &mut Call<'_>) -> Result<Val, Fault> {
    Ok(Val::Int(call.world.speculation()))
}

/// `commit()`: prints the records of a speculation. An id that does not exist is an illegal
/// operation.
pub(super) fn commit(call: &mut Call<'_>) -> Result<Val, Fault> {
    end_speculation(call, true)
}

/// `discard()`: forgets the records of a speculation.
pub(super) fn discard(call: &mut Call<'_>) -> Result<Val, Fault> {
    end_speculation(call, false)
}

fn end_speculation(call: &mut Call<'_>, commit: bool) -> Result<Val, Fault> {
    let id = call.int(0);
    match call.world.end_speculation(id, commit) {
        true => Ok(Val::Int(0)),
        false => Err((FaultKind::IllegalOp, id as u64)),
    }
}
