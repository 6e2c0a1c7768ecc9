//! The formats, by the ending of a file's name.

use std::borrow::Cow;

use crate::collect::Heat;
use crate::{html, svg};

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A picture with a script, for browsers; without it for other viewers.
    Svg,
    /// A page with that picture.
    Html,
}

/// The greatest size of a file. Beyond, its intervals become longer, down to so many: names of keys
/// and stacks do not become fewer by that.
const MOST: usize = 4 << 20;
const LEAST_COLUMNS: usize = 64;

impl Format {
    /// The endings of names, as a message lists them.
    pub const ENDINGS: &str = ".svg or .html";

    /// The format of a file with this name.
    pub fn of_name(name: &str) -> Option<Format> {
        let all = [(".svg", Format::Svg), (".html", Format::Html)];
        all.into_iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, format)| format)
    }

    /// The heat maps of a session as the bytes of a file.
    pub fn write(self, heat: &Heat) -> Vec<u8> {
        self.write_below(heat, MOST)
    }

    /// The same, with another greatest size.
    pub fn write_below(self, heat: &Heat, most: usize) -> Vec<u8> {
        let mut heat = Cow::Borrowed(heat);
        loop {
            let bytes = match self {
                Format::Svg => svg::write(&heat),
                Format::Html => html::write(&heat),
            };
            let columns = heat.panels.iter().map(|panel| panel.cells.columns.len()).max().unwrap_or(0);
            if bytes.len() <= most || columns < LEAST_COLUMNS {
                return bytes;
            }
            heat.to_mut().panels.iter_mut().for_each(|panel| panel.cells.coarsen());
        }
    }
}
