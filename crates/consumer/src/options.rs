//! The run-time options that affect output. All of them are dynamic: they may change between two
//! records.

/// `-xencoding`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// Bars are `@`.
    #[default]
    Ascii,
    /// Bars are block elements, with eight steps per column.
    Utf8,
}

/// Options of the consumer, by their names in `-x`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Only what the program prints (`-q`).
    pub quiet: bool,
    /// Indent by entry and return (`-F`).
    pub flowindent: bool,
    /// Print strings and memory always as a dump.
    pub rawbytes: bool,
    /// Columns before a frame.
    pub stackindent: usize,
    /// Sort by key, then value.
    pub aggsortkey: bool,
    /// The reverse order.
    pub aggsortrev: bool,
    /// The key column that is compared first.
    pub aggsortkeypos: usize,
    /// In a `printa()` of several aggregations, the one that is compared first.
    pub aggsortpos: usize,
    /// Bars relative to the tallest.
    pub aggzoom: bool,
    /// Counts and sums as bars.
    pub agghist: bool,
    /// Histograms on one line per key.
    pub aggpack: bool,
    /// Values of each CPU in addition to those of all. Set before anything is aggregated.
    pub aggpercpu: bool,
    /// Characters of bars.
    pub encoding: Encoding,
    /// Tags on drop messages.
    pub droptags: bool,
    /// `$target`: the process of `%A` on a plain address.
    pub target: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            quiet: false,
            flowindent: false,
            rawbytes: false,
            stackindent: 14,
            aggsortkey: false,
            aggsortrev: false,
            aggsortkeypos: 0,
            aggsortpos: 0,
            aggzoom: false,
            agghist: false,
            aggpack: false,
            aggpercpu: false,
            encoding: Encoding::Ascii,
            droptags: false,
            target: None,
        }
    }
}
