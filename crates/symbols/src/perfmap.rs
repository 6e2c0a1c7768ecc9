//! Symbols of code made at run time, as runtimes write them to `/tmp/perf-PID.map`: a line each of start, size (hex) and
//! name. A later line about the same place is the newer one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, Default)]
pub(crate) struct PerfMap {
    /// Sorted by start.
    symbols: Vec<(u64, u64, Arc<str>)>,
    /// Base name of the file, the module of its symbols.
    pub(crate) file: Option<Arc<str>>,
    size: u64,
}

/// More is not read: such a file grows for ever.
const MAX_SIZE: u64 = 256 << 20;

impl PerfMap {
    /// Reads what the process has written, unless it has the size it had before.
    pub(crate) fn refresh(&mut self, pid: u32) {
        let Some((path, name)) = locate(pid) else { return };
        let size = std::fs::metadata(&path).map_or(0, |m| m.len());
        if size == self.size || size > MAX_SIZE {
            return;
        }
        let Ok(text) = std::fs::read(&path) else { return };
        self.size = size;
        self.symbols = parse(&String::from_utf8_lossy(&text));
        self.file = Some(name.into());
    }

    pub(crate) fn find(&self, addr: u64) -> Option<(u64, Arc<str>)> {
        let after = self.symbols.partition_point(|(start, ..)| *start <= addr);
        let (start, size, name) = self.symbols.get(after.checked_sub(1)?)?;
        (addr - start < *size).then(|| (*start, name.clone()))
    }
}

/// The process may be in other namespaces: the file bears the pid it has there and lies in its root.
fn locate(pid: u32) -> Option<(PathBuf, String)> {
    let own = std::fs::read_to_string(format!("/proc/{pid}/status")).ok().and_then(|s| {
        let line = s.lines().find_map(|l| l.strip_prefix("NSpid:"))?;
        line.split_ascii_whitespace().next_back()?.parse::<u32>().ok()
    });
    let name = format!("perf-{}.map", own.unwrap_or(pid));
    let inside = Path::new("/proc").join(pid.to_string()).join("root/tmp").join(&name);
    let outside = Path::new("/tmp").join(&name);
    [inside, outside].into_iter().find(|p| p.is_file()).map(|p| (p, name))
}

fn parse(text: &str) -> Vec<(u64, u64, Arc<str>)> {
    let mut symbols: Vec<(u64, u64, Arc<str>)> = text.lines().filter_map(line).collect();
    // Stable: of one start the last line wins.
    symbols.sort_by_key(|s| s.0);
    symbols.reverse();
    symbols.dedup_by_key(|s| s.0);
    symbols.reverse();
    symbols
}

fn line(line: &str) -> Option<(u64, u64, Arc<str>)> {
    let (start, rest) = line.split_once(' ')?;
    let (size, name) = rest.split_once(' ')?;
    let hex = |s: &str| u64::from_str_radix(s.trim_start_matches("0x"), 16).ok();
    Some((hex(start)?, hex(size)?, name.trim().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_line_about_a_place_wins() {
        let symbols = parse("7f00 10 old\n7f20 0x8 b with blanks\njunk\n7f00 10 new\n");
        let map = PerfMap { symbols, ..PerfMap::default() };
        assert_eq!(map.find(0x7f0f), Some((0x7f00, "new".into())));
        assert_eq!(map.find(0x7f10), None);
        assert_eq!(map.find(0x7f21), Some((0x7f20, "b with blanks".into())));
        assert_eq!(map.find(0), None);
    }
}
