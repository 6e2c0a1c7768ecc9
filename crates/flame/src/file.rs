//! The formats, by the ending of a file's name.

use crate::collect::Flame;
use crate::loss::Loss;
use crate::profile::Profile;
use crate::{folded, html, pprof, speedscope, svg};

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A picture with a script, for browsers; without it for other viewers.
    Svg,
    /// A page with that picture.
    Html,
    /// A line for each stack.
    Folded,
    /// pprof's, within gzip.
    Pprof,
    /// speedscope's.
    Speedscope,
}

/// The endings, the longest first where one is the end of another.
const ENDINGS: [(&str, Format); 5] = [
    (".svg", Format::Svg),
    (".html", Format::Html),
    (".folded", Format::Folded),
    (".pb.gz", Format::Pprof),
    (".speedscope.json", Format::Speedscope),
];

impl Format {
    /// The endings of names, as a message lists them.
    pub const ENDINGS: &str = ".svg, .html, .folded, .pb.gz (pprof) or .speedscope.json";

    /// The longest file of folded stacks that should be read, in bytes.
    pub const LONGEST_FOLDED: u64 = folded::LONGEST_FILE;

    /// The format of a file with this name.
    pub fn of_name(name: &str) -> Option<Format> {
        ENDINGS.iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, format)| *format)
    }

    /// Whether it shows the difference of two profiles.
    pub fn is_picture(self) -> bool {
        matches!(self, Format::Svg | Format::Html)
    }

    /// The profiles of a session as the bytes of a file.
    pub fn write(self, flame: &Flame) -> Vec<u8> {
        self.write_profiles(&flame.profiles(), flame.loss(), flame.host())
    }

    /// Profiles as the bytes of a file; `host` says in words where they were made, if that is
    /// known.
    pub fn write_profiles(self, profiles: &[&Profile], loss: &Loss, host: &str) -> Vec<u8> {
        match self {
            Format::Svg => svg::write(profiles, loss, host),
            Format::Html => html::write(profiles, loss, host),
            Format::Folded => folded::write(profiles),
            Format::Pprof => pprof::write(profiles, loss),
            Format::Speedscope => speedscope::write(profiles, loss, host),
        }
    }
}
