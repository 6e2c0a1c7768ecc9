//! Folded stacks: a line for each stack, the outermost frame first, frames separated by semicolons,
//! then a space and the value. Frames of the kernel end with `_[k]`, and those of functions that
//! were put inline with `_[i]`, as many tools write them.
//!
//! What reads a file gives back the profile that was written, except that a column of the key and a
//! function of an interpreter are frames as any other, and that a semicolon within a name is a
//! colon.

use std::fmt;

use crate::escape;
use crate::profile::{Frame, Kind, Profile};

/// The end of the names of frames of the kernel.
const KERNEL: &str = "_[k]";
/// The end of the names of functions that were put inline.
const INLINED: &str = "_[i]";
/// The greatest length of a line.
const LONGEST: usize = 1 << 20;
/// The longest file that is read.
pub(crate) const LONGEST_FILE: u64 = 1 << 30;

/// The lines of all profiles. Where there are several, the name of each is its outermost frame.
pub(crate) fn write(profiles: &[&Profile]) -> Vec<u8> {
    let mut out = String::new();
    for profile in profiles {
        let names: Vec<String> = profile.frames().iter().map(written).collect();
        let mut lines: Vec<String> = Vec::new();
        for (path, value) in profile.each() {
            let mut line = String::new();
            let first = (profiles.len() > 1).then_some(&profile.name);
            let frames = path.iter().filter_map(|n| names.get(*n as usize));
            for (at, name) in first.into_iter().chain(frames).enumerate() {
                if at > 0 {
                    line.push(';');
                }
                line.push_str(name);
            }
            line.push_str(&format!(" {value}\n"));
            lines.push(line);
        }
        lines.sort_unstable();
        out.extend(lines);
    }
    out.into_bytes()
}

fn written(frame: &Frame) -> String {
    let name = frame.name.replace(';', ":");
    match frame.kind {
        Kind::Kernel => name + KERNEL,
        Kind::Inlined => name + INLINED,
        _ => name,
    }
}

/// Why a file of folded stacks cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldedError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: &'static str,
}

impl fmt::Display for FoldedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for FoldedError {}

/// Reads folded stacks, whoever wrote them. The title is that of the picture.
pub fn read(bytes: &[u8], title: &str) -> Result<Profile, FoldedError> {
    let mut profile = Profile::new(title, title, "value");
    for (at, line) in bytes.split(|b| *b == b'\n').enumerate() {
        let wrong = |what| FoldedError { line: at + 1, what };
        let line = line.trim_ascii_end();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        if line.len() > LONGEST {
            return Err(wrong("longer than 1 MiB"));
        }
        const FORM: &str = "not of the form `outer;inner 12`: frames, a space and a whole number";
        let space = line.iter().rposition(|b| *b == b' ').ok_or(wrong(FORM))?;
        let (frames, value) = line.split_at_checked(space).ok_or(wrong(FORM))?;
        let value = std::str::from_utf8(value).ok().and_then(|v| v.trim().parse::<u64>().ok());
        let value = value.ok_or(wrong(FORM))?;
        if value == 0 {
            continue;
        }
        let path: Vec<Frame> = frames.split(|b| *b == b';').map(frame).collect();
        if path.iter().any(|f| f.kind == Kind::Missing) {
            profile.incomplete = profile.incomplete.saturating_add(value);
        }
        profile.add(&path, value);
    }
    Ok(profile)
}

fn frame(bytes: &[u8]) -> Frame {
    let name = escape::name(bytes.trim_ascii());
    if let Some(name) = name.strip_suffix(KERNEL) {
        return Frame { kind: Kind::Kernel, name: name.into() };
    }
    if let Some(name) = name.strip_suffix(INLINED) {
        return Frame { kind: Kind::Inlined, name: name.into() };
    }
    let is_missing = crate::profile::MISSING.contains(&name.as_str());
    Frame { kind: if is_missing { Kind::Missing } else { Kind::User }, name: name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Profile, FoldedError> {
        read(text.as_bytes(), "t")
    }

    #[test]
    fn what_is_written_is_read() {
        let text = "a;b`c d;e_[k] 3\na;f 12\n";
        let profile = read_text(text).unwrap();
        assert_eq!(profile.frames().iter().filter(|f| f.kind == Kind::Kernel).count(), 1);
        assert_eq!(String::from_utf8(write(&[&profile])).unwrap(), text);
    }

    #[test]
    fn several_profiles_have_their_names_as_outermost_frames() {
        let (a, b) = (read_text("x 1").unwrap(), read_text("x 2").unwrap());
        assert_eq!(String::from_utf8(write(&[&a, &b])).unwrap(), "t;x 1\nt;x 2\n");
    }

    #[test]
    fn a_semicolon_in_a_name_separates_nothing() {
        let mut p = Profile::new("@", "@", "count");
        p.add(&[Frame { kind: Kind::User, name: "f;g".into() }], 1);
        assert_eq!(write(&[&p]), b"f:g 1\n");
    }

    #[test]
    fn lines_of_another_form_are_errors_with_their_number() {
        for text in ["a 1\nb", "a 1\nb x", "a 1\nb -3", "a 1\nb 1.5", "a 1\nb "] {
            assert_eq!(read_text(text).unwrap_err().line, 2, "{text}");
        }
        assert!(read_text(&format!("{} 1", "x".repeat(LONGEST))).is_err());
        assert_eq!(read_text("# a comment\n\n a b ; c 7 \r\n").unwrap().total(), 7);
    }

    #[test]
    fn any_bytes_are_a_profile_or_an_error() {
        let mut state = 1u64;
        for _ in 0..2000 {
            let bytes: Vec<u8> = (0..40)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    b"ab; 19\n\xff_[k]\x1b"[(state >> 33) as usize % 13]
                })
                .collect();
            if let Ok(profile) = read(&bytes, "t") {
                // What was read can be written and read again.
                let written = write(&[&profile]);
                assert_eq!(write(&[&read(&written, "t").unwrap()]), written);
            }
        }
    }
}
