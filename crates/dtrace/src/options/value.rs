//! What a text is as the value of an option, and a value as a text.

use std::time::Duration;

use consumer::Encoding;
use plane::ring::Policy;
use probes::{Attributes, Version};
use proc::Moment;
use providers::{Follow, Returns};
use symbols::Guests;

use super::kinds::{
    BufResize, Bytes, Captures, Conformance, FaultLines, FbtMeans, KernelWalk, OutputFormat, Shape,
    UserAddresses,
};

/// A type of values.
pub(crate) trait Setting: Sized {
    /// What a user may write.
    const SHAPE: Shape;
    /// Whether "unset" is a value of its own, even if the row has a default.
    const KEEPS_UNSET: bool = false;

    /// The value of a text; `None` is an option without one.
    fn parse(text: Option<&str>) -> Option<Self>;

    /// Sets it to another value. A list gets more.
    fn add(&mut self, new: Self) {
        *self = new;
    }

    /// The number that limits are for: bytes, nanoseconds, or as it is.
    fn number(&self) -> Option<u64> {
        None
    }

    /// False for a value that no text has.
    fn has_text(&self) -> bool {
        true
    }

    /// What a user would write for it, each time that he sets it; nothing for "unset".
    fn texts(&self) -> Vec<String>;
}

/// The value of an option before it is set, by the default of its row.
pub(crate) fn initial<T: Setting + Default>(default: &str) -> T {
    let text = Some(default).filter(|text| !text.is_empty() && !T::KEEPS_UNSET);
    text.and_then(|text| T::parse(Some(text))).unwrap_or_default()
}

impl Setting for bool {
    const SHAPE: Shape = Shape::Flag;

    fn parse(text: Option<&str>) -> Option<bool> {
        let Some(text) = text else { return Some(true) };
        match text.to_ascii_lowercase().as_str() {
            "yes" | "enable" | "enabled" | "true" | "on" | "set" | "1" => Some(true),
            "" | "no" | "disable" | "disabled" | "false" | "off" | "unset" | "0" => Some(false),
            _ => None,
        }
    }

    fn number(&self) -> Option<u64> {
        Some(u64::from(*self))
    }

    fn texts(&self) -> Vec<String> {
        vec![if *self { "yes" } else { "no" }.into()]
    }
}

impl Setting for Bytes {
    const SHAPE: Shape = Shape::Size;

    fn parse(text: Option<&str>) -> Option<Bytes> {
        size(text?).map(Bytes)
    }

    fn number(&self) -> Option<u64> {
        Some(self.0)
    }

    fn texts(&self) -> Vec<String> {
        vec![self.to_string()]
    }
}

/// Nanoseconds, as far as 64 bits go: 584 years.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap_or(u64::MAX)
}

impl Setting for Duration {
    const SHAPE: Shape = Shape::Rate;

    fn parse(text: Option<&str>) -> Option<Duration> {
        rate(text?).map(Duration::from_nanos)
    }

    fn number(&self) -> Option<u64> {
        Some(nanoseconds(*self))
    }

    /// Beyond them there is no time of a clock to come.
    fn has_text(&self) -> bool {
        u64::try_from(self.as_nanos()).is_ok()
    }

    fn texts(&self) -> Vec<String> {
        vec![format!("{}ns", nanoseconds(*self))]
    }
}

impl Setting for u64 {
    const SHAPE: Shape = Shape::Int;

    fn parse(text: Option<&str>) -> Option<u64> {
        integer(text?)
    }

    fn number(&self) -> Option<u64> {
        Some(*self)
    }

    fn texts(&self) -> Vec<String> {
        vec![self.to_string()]
    }
}

impl Setting for String {
    const SHAPE: Shape = Shape::Text;

    fn parse(text: Option<&str>) -> Option<String> {
        text.map(String::from)
    }

    fn texts(&self) -> Vec<String> {
        vec![self.clone()]
    }
}

impl Setting for Vec<String> {
    const SHAPE: Shape = Shape::List;

    fn parse(text: Option<&str>) -> Option<Vec<String>> {
        text.map(|text| vec![text.to_string()])
    }

    fn add(&mut self, new: Vec<String>) {
        self.extend(new);
    }

    fn texts(&self) -> Vec<String> {
        self.clone()
    }
}

/// `None` is what nobody has set, even if the row says what that means.
impl<T: Setting> Setting for Option<T> {
    const SHAPE: Shape = T::SHAPE;
    const KEEPS_UNSET: bool = true;

    fn parse(text: Option<&str>) -> Option<Option<T>> {
        T::parse(text).map(Some)
    }

    fn number(&self) -> Option<u64> {
        self.as_ref().and_then(T::number)
    }

    fn has_text(&self) -> bool {
        self.as_ref().is_none_or(T::has_text)
    }

    fn texts(&self) -> Vec<String> {
        self.as_ref().map_or_else(Vec::new, T::texts)
    }
}

/// `all`, or the id of a process.
impl Setting for Guests {
    const SHAPE: Shape = Shape::Text;

    fn parse(text: Option<&str>) -> Option<Guests> {
        match text? {
            "all" => Some(Guests::All),
            pid => pid.parse().ok().filter(|pid| *pid > 0).map(Guests::Of),
        }
    }

    fn texts(&self) -> Vec<String> {
        match self {
            Guests::None => Vec::new(),
            Guests::All => vec!["all".into()],
            Guests::Of(pid) => vec![pid.to_string()],
        }
    }
}

/// Words with commas between; each use adds to the ones before.
impl Setting for Captures {
    const SHAPE: Shape = Shape::Text;

    fn parse(text: Option<&str>) -> Option<Captures> {
        let mut all = Captures::default();
        for word in text?.split(',') {
            match word {
                "stack" => all.stack = true,
                "ustack" => all.ustack = true,
                "psinfo" => all.psinfo = true,
                _ => return None,
            }
        }
        Some(all)
    }

    fn add(&mut self, new: Captures) {
        self.stack |= new.stack;
        self.ustack |= new.ustack;
        self.psinfo |= new.psinfo;
    }

    fn texts(&self) -> Vec<String> {
        let all = [("stack", self.stack), ("ustack", self.ustack), ("psinfo", self.psinfo)];
        let words: Vec<&str> = all.iter().filter(|(_, is_set)| *is_set).map(|(word, _)| *word).collect();
        if words.is_empty() { Vec::new() } else { vec![words.join(",")] }
    }
}

/// Types of other crates that are texts, in a few forms.
macro_rules! texts {
    ($($kind:ty)*) => {
        $(impl Setting for $kind {
            const SHAPE: Shape = Shape::Text;

            fn parse(text: Option<&str>) -> Option<$kind> {
                <$kind>::parse(text?)
            }

            fn texts(&self) -> Vec<String> {
                vec![self.to_string()]
            }
        })*
    };
}
texts! { Attributes Version }

/// The values of an option that is one of a few words.
macro_rules! words {
    ($($kind:ty { $($variant:ident = $word:literal),* })*) => {
        $(impl Setting for $kind {
            const SHAPE: Shape = Shape::Word(&[$($word),*]);

            fn parse(text: Option<&str>) -> Option<$kind> {
                match text? {
                    $($word => Some(<$kind>::$variant),)*
                    _ => None,
                }
            }

            fn texts(&self) -> Vec<String> {
                let word = match self {
                    $(<$kind>::$variant => $word,)*
                };
                vec![word.into()]
            }
        })*
    };
}
words! {
    Policy { Switch = "switch", Fill = "fill", Ring = "ring" }
    BufResize { Auto = "auto", Manual = "manual" }
    Encoding { Ascii = "ascii", Utf8 = "utf8" }
    Moment { Exec = "exec", Preinit = "preinit", Postinit = "postinit", Main = "main" }
    FaultLines { Few = "few", All = "all" }
    FbtMeans { Auto = "auto", Multi = "multi", Fentry = "fentry", Kprobe = "kprobe" }
    Follow { None = "none", Fork = "fork", Exec = "exec", All = "all" }
    KernelWalk { Auto = "auto", Helper = "helper", Orc = "orc", Check = "check" }
    OutputFormat { Text = "text", Json = "json", Csv = "csv" }
    Returns { Auto = "auto", Uretprobe = "uretprobe", Instructions = "ret" }
    Conformance { A = "a", C = "c", S = "s", T = "t" }
    UserAddresses { File = "file", Address = "address" }
}

/// An integer as C writes it: decimal, `0x` hexadecimal, `0` octal.
fn integer(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    // from_str_radix alone would accept a sign.
    let plain = digits.chars().all(|c| c.is_ascii_alphanumeric());
    if plain { u64::from_str_radix(digits, radix).ok() } else { None }
}

/// A size: an integer with `k m g t` of either case.
pub(crate) fn size(text: &str) -> Option<u64> {
    let shift = match text.chars().next_back()?.to_ascii_lowercase() {
        'k' => 10,
        'm' => 20,
        'g' => 30,
        't' => 40,
        _ => return integer(text),
    };
    integer(&text[..text.len() - 1])?.checked_mul(1 << shift)
}

/// An interval in nanoseconds: an integer with a unit (none: nanoseconds) or `hz`.
pub(crate) fn rate(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let n = integer(digits)?;
    let unit: u64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "ns" | "nsec" => 1,
        "us" | "usec" => 1_000,
        "ms" | "msec" => 1_000_000,
        "s" | "sec" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" | "hour" => 3_600_000_000_000,
        "d" | "day" => 86_400_000_000_000,
        "hz" => return 1_000_000_000u64.checked_div(n),
        _ => return None,
    };
    n.checked_mul(unit)
}
