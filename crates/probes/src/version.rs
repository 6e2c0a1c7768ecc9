//! Versions of D. The option `version` restricts a program to the identifiers of an older version.

use std::fmt;

/// A version of D.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    major: u8,
    minor: u8,
    micro: u8,
}

/// All released versions.
const KNOWN: &[(u8, u8, u8)] = &[
    (1, 0, 0),
    (1, 1, 0),
    (1, 2, 0),
    (1, 2, 1),
    (1, 2, 2),
    (1, 3, 0),
    (1, 4, 0),
    (1, 4, 1),
    (1, 5, 0),
    (1, 6, 0),
    (1, 6, 1),
    (1, 6, 2),
    (1, 6, 3),
    (1, 6, 4),
    (1, 7, 0),
    (1, 7, 1),
    (1, 8, 0),
    (1, 8, 1),
    (1, 9, 0),
    (1, 9, 1),
    (1, 10, 0),
    (1, 11, 0),
    (1, 12, 0),
    (1, 12, 1),
    (1, 13, 0),
    (2, 0, 0),
];

impl Version {
    /// The first version.
    pub const FIRST: Version = Version::new(1, 0);

    /// `major.minor`
    pub const fn new(major: u8, minor: u8) -> Self {
        Self { major, minor, micro: 0 }
    }

    /// Parses `1.6` or `1.6.3`. The version need not exist.
    pub fn parse(text: &str) -> Option<Version> {
        let mut parts = text.split('.');
        let mut part = || {
            let text = parts.next()?;
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| text.parse::<u8>().ok()).flatten()
        };
        let (major, minor) = (part()?, part()?);
        let micro = match text.matches('.').count() {
            1 => 0,
            2 => part()?,
            _ => return None,
        };
        Some(Version { major, minor, micro })
    }

    /// True for a released version.
    pub fn is_known(self) -> bool {
        KNOWN.contains(&(self.major, self.minor, self.micro))
    }

    /// The version in the format of `__SUNW_D_VERSION`: 0xMMmmmuuu.
    pub fn number(self) -> u32 {
        u32::from(self.major) << 24 | u32::from(self.minor) << 12 | u32::from(self.micro)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.micro != 0 { write!(f, ".{}", self.micro) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_written_and_ordered() {
        for text in ["1.0", "1.6.3", "1.13", "2.0"] {
            assert_eq!(Version::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "1", "1.", ".1", "1.2.3.4", "1.x", "1.-2", "1.999"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
        assert!(Version::parse("1.13") > Version::parse("1.6.3") && Version::new(1, 13).is_known());
        assert!(!Version::new(1, 14).is_known());
        assert_eq!(Version::new(1, 13).number(), 0x0100_d000);
    }
}
