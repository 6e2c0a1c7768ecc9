//! Whether a boot is traced: not if the kernel's command line says no, and not after two boots that
//! did not reach their target.
//!
//! ```text
//!  /etc/dtrace/anonymous.d/boots      boots that began to be traced since the last that came up, and the id of the last
//!  /etc/dtrace/anonymous.d/disabled   there were two: until the next -A no boot is traced
//! ```
//!
//! The count is kept by what traces, as soon as the root can be written: in an initramfs nothing
//! could be. A unit that comes after `multi-user.target` removes it ([`UNIT`]).

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use super::place::{self, Places};

/// The word on the kernel's command line.
const WORD: &str = "dtrace.anonymous=0";

/// Boots that may fail.
const MOST: u32 = 2;

/// The text of the unit that ends the count.
pub(crate) const UNIT: &str = include_str!("dtrace-anonymous-reached.service");

/// Why this boot is not traced, if it is not.
pub(crate) fn refusal(places: &Places) -> Option<String> {
    refused(&fs::read_to_string("/proc/cmdline").unwrap_or_default(), &places.stored())
}

fn refused(command_line: &str, state: &Path) -> Option<String> {
    if command_line.split_whitespace().any(|word| word == WORD) {
        return Some(format!("{WORD} is on the kernel's command line"));
    }
    let told = state.join("disabled").exists();
    told.then(|| format!("the last {MOST} boots did not reach multi-user.target; dtrace -A begins anew"))
}

/// Counts this boot, once. `Ok(false)`: those before it have failed, so anonymous tracing is
/// disabled now. An error: the root cannot be written (yet).
pub(crate) fn count(places: &Places) -> io::Result<bool> {
    if !places.is_real {
        return Ok(true);
    }
    count_in(&places.stored(), fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim())
}

fn count_in(state: &Path, boot: &str) -> io::Result<bool> {
    let file = state.join("boots");
    if state.join("disabled").exists() {
        return Ok(false);
    }
    let text = match fs::read_to_string(&file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
        text => text?,
    };
    let (before, last) = text.trim().split_once(' ').unwrap_or_default();
    if last == boot {
        return Ok(true);
    }
    let before: u32 = before.parse().unwrap_or(0);
    if before >= MOST {
        return fs::rename(file, state.join("disabled")).map(|()| false);
    }
    // It must be there after a crash that comes at once.
    place::replace(&file, 0o600, |new| new.write_all(format!("{} {boot}\n", before + 1).as_bytes()))?;
    fs::File::open(state)?.sync_all()?;
    Ok(true)
}

/// Begins the count anew, for a new enabling or for none.
pub(crate) fn forget(places: &Places) {
    for name in ["boots", "disabled"] {
        let _ = fs::remove_file(places.stored().join(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_boots_that_fail_disable_the_third_and_one_that_comes_up_begins_anew() {
        let dir = testing::dir::Dir::new("anonymous-boots");
        let places = Places::under(&dir);
        let stored = places.stored();
        place::private_dir(&stored).unwrap();
        // As the unit does it.
        let reached = || fs::remove_file(stored.join("boots")).unwrap();
        assert!(count_in(&stored, "a").unwrap());
        reached();
        // A service that begins again is no other boot.
        for boot in ["b", "b", "b", "c"] {
            assert!(count_in(&stored, boot).unwrap(), "{boot}");
        }
        reached();
        assert!(count_in(&stored, "d").unwrap() && count_in(&stored, "e").unwrap());
        assert_eq!(refused("quiet", &stored), None);
        assert!(!count_in(&stored, "f").unwrap());
        assert!(refused("quiet", &stored).unwrap().contains("the last 2 boots did not reach"));
        assert!(!count_in(&stored, "g").unwrap(), "until -A");
        forget(&places);
        assert!(count_in(&stored, "h").unwrap());
    }

    #[test]
    fn the_kernels_command_line_disables() {
        let state = Path::new("/nowhere");
        assert!(refused("ro dtrace.anonymous=0 quiet\n", state).is_some());
        for other in ["ro quiet", "dtrace.anonymous=01", "xdtrace.anonymous=0", ""] {
            assert_eq!(refused(other, state), None, "{other}");
        }
    }

    #[test]
    fn the_unit_removes_the_count() {
        assert!(UNIT.contains("rm -f /etc/dtrace/anonymous.d/boots\n"), "{UNIT}");
    }
}
