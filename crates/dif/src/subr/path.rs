//! Paths, as text: nothing asks the file system.

use super::{Call, Fault};
use crate::interp::Val;

/// The last component: where it starts and ends, and where the one before it ends.
fn last(path: &[u8]) -> Option<(usize, usize, Option<usize>)> {
    let end = path.iter().rposition(|b| *b != b'/')? + 1;
    let start = path[..end].iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    Some((start, end, path[..start].iter().rposition(|b| *b != b'/').map(|at| at + 1)))
}

/// What a path without components is.
fn bare(path: &[u8]) -> &'static [u8] {
    if path.is_empty() { b"." } else { b"/" }
}

pub(super) fn basename(call: &mut Call<'_>) -> Result<Val, Fault> {
    let path = call.text(0);
    Ok(Val::Str(last(path).map_or(bare(path), |(start, end, _)| &path[start..end]).to_vec()))
}

pub(super) fn dirname(call: &mut Call<'_>) -> Result<Val, Fault> {
    let path = call.text(0);
    let found = match last(path) {
        None => bare(path),
        Some((_, _, Some(end))) => &path[..end],
        Some((0, ..)) => b".",
        Some(_) => b"/",
    };
    Ok(Val::Str(found.to_vec()))
}

/// Takes out `//`, `/./` and `/x/../`. A path that ends in `/..` ends in the slash of the directory; one that comes
/// within five bytes of a string's size ends there.
pub(super) fn cleanpath(call: &mut Call<'_>) -> Result<Val, Fault> {
    let mut out: Vec<u8> = Vec::new();
    // What was read of a component that may be `.` or `..`: nothing, "/", "/.", "/..".
    let mut held = 0;
    for c in call.text(0).iter().copied().chain([0]) {
        if held == 3 && matches!(c, b'/' | 0) {
            // Back to the slash before the last component, which goes too.
            let slash = out.iter().rposition(|b| *b == b'/').unwrap_or(0);
            out.truncate(slash);
            if c == 0 {
                out.push(b'/');
                break;
            }
            held = 0;
        }
        match (held, c) {
            (0, _) | (1 | 2, b'/') => {
                if out.len() + 5 >= call.strsize {
                    break;
                }
                held = u8::from(c == b'/');
                if c == 0 {
                    break;
                }
                if c != b'/' {
                    out.push(c);
                }
            }
            (1 | 2, b'.') => held += 1,
            _ => {
                out.extend_from_slice(&b"/.."[..usize::from(held)]);
                held = 0;
                if c == 0 {
                    break;
                }
                out.push(c);
            }
        }
    }
    Ok(Val::Str(out))
}
