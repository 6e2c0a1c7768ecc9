//! The run-time options that affect output. All of them are dynamic: they may change between two
//! records. They are part of the events, so that text can be rendered from events alone.

use events::{Setting, SettingValue};

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
    /// Only so many rows, those of the greatest values; 0 for all.
    pub aggtop: usize,
    /// No rows whose values are all zero.
    pub aggnozero: bool,
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
    /// Each fault is an event (`faultlines=all`). The events that a sink gets are what this says,
    /// so it is no setting of them.
    pub all_faults: bool,
    /// Records of clauses that faulted are delivered as others are: for a session that captures. As
    /// `all_faults`, no setting.
    pub discarded: bool,
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
            aggtop: 0,
            aggnozero: false,
            aggzoom: false,
            agghist: false,
            aggpack: false,
            aggpercpu: false,
            encoding: Encoding::Ascii,
            droptags: false,
            all_faults: false,
            discarded: false,
            target: None,
        }
    }
}

impl Options {
    /// The greatest `stackindent`.
    pub const STACKINDENT_MAX: usize = 256;

    /// The options with their names in `-x`.
    pub fn settings(&self) -> Vec<Setting<'static>> {
        let flag = |name: &'static str, value| (name, SettingValue::Flag(value));
        let number = |name: &'static str, value: usize| (name, SettingValue::Number(value as u64));
        let encoding = match self.encoding {
            Encoding::Ascii => "ascii",
            Encoding::Utf8 => "utf8",
        };
        let all = [
            flag("quiet", self.quiet),
            flag("flowindent", self.flowindent),
            flag("rawbytes", self.rawbytes),
            number("stackindent", self.stackindent),
            flag("aggsortkey", self.aggsortkey),
            flag("aggsortrev", self.aggsortrev),
            number("aggsortkeypos", self.aggsortkeypos),
            number("aggsortpos", self.aggsortpos),
            number("aggtop", self.aggtop),
            flag("aggnozero", self.aggnozero),
            flag("aggzoom", self.aggzoom),
            flag("agghist", self.agghist),
            flag("aggpack", self.aggpack),
            flag("aggpercpu", self.aggpercpu),
            ("encoding", SettingValue::Text(encoding.into())),
            flag("droptags", self.droptags),
        ];
        let target = self.target.map(|pid| ("target", SettingValue::Number(pid.into())));
        let setting = |(name, value): (&'static str, _)| Setting { name: name.into(), value };
        all.into_iter().chain(target).map(setting).collect()
    }

    /// Sets the options that the settings name. Unknown ones are ignored.
    pub fn apply(&mut self, settings: &[Setting<'_>]) {
        for Setting { name, value } in settings {
            match value {
                SettingValue::Flag(value) => {
                    let flag = match &**name {
                        "quiet" => &mut self.quiet,
                        "flowindent" => &mut self.flowindent,
                        "rawbytes" => &mut self.rawbytes,
                        "aggsortkey" => &mut self.aggsortkey,
                        "aggsortrev" => &mut self.aggsortrev,
                        "aggnozero" => &mut self.aggnozero,
                        "aggzoom" => &mut self.aggzoom,
                        "agghist" => &mut self.agghist,
                        "aggpack" => &mut self.aggpack,
                        "aggpercpu" => &mut self.aggpercpu,
                        "droptags" => &mut self.droptags,
                        _ => continue,
                    };
                    *flag = *value;
                }
                SettingValue::Number(value) => {
                    let number = match &**name {
                        // Written for each frame: the number may come from a damaged stream.
                        "stackindent" => {
                            self.stackindent =
                                usize::try_from(*value).unwrap_or(usize::MAX).min(Self::STACKINDENT_MAX);
                            continue;
                        }
                        "aggsortkeypos" => &mut self.aggsortkeypos,
                        "aggsortpos" => &mut self.aggsortpos,
                        "aggtop" => &mut self.aggtop,
                        "target" => {
                            self.target = u32::try_from(*value).ok();
                            continue;
                        }
                        _ => continue,
                    };
                    *number = usize::try_from(*value).unwrap_or(usize::MAX);
                }
                SettingValue::Text(value) if name == "encoding" => {
                    self.encoding = if value == "utf8" { Encoding::Utf8 } else { Encoding::Ascii };
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_from_the_settings_that_they_give() {
        let all = Options {
            quiet: true,
            flowindent: true,
            rawbytes: true,
            stackindent: 3,
            aggsortkey: true,
            aggsortrev: true,
            aggsortkeypos: 1,
            aggsortpos: 2,
            aggtop: 4,
            aggnozero: true,
            aggzoom: true,
            agghist: true,
            aggpack: true,
            aggpercpu: true,
            encoding: Encoding::Utf8,
            droptags: true,
            all_faults: false,
            discarded: false,
            target: Some(7),
        };
        for options in [all, Options::default()] {
            let mut found = Options::default();
            found.apply(&options.settings());
            assert_eq!(found, options);
        }
    }

    #[test]
    fn an_indentation_beyond_the_limit_is_lowered() {
        let mut found = Options::default();
        found.apply(&[Setting { name: "stackindent".into(), value: SettingValue::Number(u64::MAX) }]);
        assert_eq!(found.stackindent, Options::STACKINDENT_MAX);
    }
}
