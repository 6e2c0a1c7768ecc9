//! `/proc/PID/stat`: what identifies the program that a process runs.

/// Fields of a process's `stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The process's name.
    pub name: Vec<u8>,
    /// Its parent.
    pub parent: u32,
    /// Its start in clock ticks since boot.
    pub start: u64,
    /// Start of the stack, which each exec randomizes; 0 if it may not be read.
    pub stack: u64,
    /// Start of the code; 0 or 1 if it may not be read.
    pub code: u64,
    /// Start of the arguments; 0 if it may not be read.
    pub arguments: u64,
}

/// Parses `1234 (name) S 1 ...`: the name can contain any character. Fields 4, 22, 26, 28 and 48
/// are the parent, the start in clock ticks, and the starts of the code, the stack and the
/// arguments.
pub fn parse_stat(text: &[u8]) -> Option<Stat> {
    let open = text.iter().position(|b| *b == b'(')?;
    let close = text.iter().rposition(|b| *b == b')')?;
    let name = text.get(open + 1..close)?.to_vec();
    let mut fields = std::str::from_utf8(text.get(close + 1..)?).ok()?.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let start = fields.nth(17)?.parse().ok()?;
    let code = fields.nth(3)?.parse().ok()?;
    let stack = fields.nth(1)?.parse().ok()?;
    let arguments = fields.nth(19).and_then(|field| field.parse().ok()).unwrap_or(0);
    Some(Stat { name, parent, start, stack, code, arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stat_of_a_process_whose_name_has_parentheses_is_read() {
        let text = b"7 (a) b (c)) S 3 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 250 1000 1 2 3 4 140000 0";
        let s = parse_stat(text).unwrap();
        assert_eq!((&s.name[..], s.parent, s.start, s.stack), (&b"a) b (c)"[..], 3, 250, 140_000));
        assert_eq!((s.code, s.arguments), (3, 0));
        let more = [&text[..], b" 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 77 88"].concat();
        assert_eq!(parse_stat(&more).unwrap().arguments, 77);
        for cut in 0..text.len() - 20 {
            assert!(parse_stat(&text[..cut]).is_none());
        }
    }
}
