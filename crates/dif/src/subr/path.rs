//! Path manipulation as text, without access to the file system.

use super::call::{Call, Fault};
use crate::interp::Val;

/// The last component: its start, its end, and the end of the component before it.
fn last(path: &[u8]) -> Option<(usize, usize, Option<usize>)> {
    let end = path.iter().rposition(|b| *b != b'/')? + 1;
    let start = path[..end].iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    Some((start, end, path[..start].iter().rposition(|b| *b != b'/').map(|at| at + 1)))
}

/// The result for a path without components.
fn bare(path: &[u8]) -> &'static [u8] {
    if path.is_empty() { b"." } else { b"/" }
}

/// A component, or what stands for none, which even a string without characters gives.
fn string(call: &Call<'_>, text: &[u8]) -> Result<Val, Fault> {
    Ok(Val::Str(text.get(..call.strsize.saturating_sub(1)).unwrap_or(text).to_vec()))
}

pub(super) fn basename(call: &mut Call<'_>) -> Result<Val, Fault> {
    let path = call.text(0);
    string(call, last(path).map_or(bare(path), |(start, end, _)| &path[start..end]))
}

pub(super) fn dirname(call: &mut Call<'_>) -> Result<Val, Fault> {
    let path = call.text(0);
    let found = match last(path) {
        None => bare(path),
        Some((_, _, Some(end))) => &path[..end],
        Some((0, ..)) => b".",
        Some(_) => b"/",
    };
    string(call, found)
}

/// Removes `//`, `/./` and `/x/../`. A path that ends in `/..` becomes the parent directory with
/// its slash. The result is truncated five bytes before the maximum string size.
pub(super) fn cleanpath(call: &mut Call<'_>) -> Result<Val, Fault> {
    let mut out: Vec<u8> = Vec::new();
    // The part of a possible `.` or `..` component read so far: nothing, "/", "/.", "/..".
    let mut held = 0;
    for c in call.text(0).iter().copied().chain([0]) {
        if held == 3 && matches!(c, b'/' | 0) {
            // Truncates at the slash before the last component.
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
