//! The sinks that print, behind a pointer: each is compiled once, whatever its output is.

use events::{Needs, Sink};

use crate::json::Json;
use crate::output::Output;
use crate::text::Text;

/// An output of any kind.
pub type AnyOutput = Box<dyn Output + Send>;

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Printer {
    /// DTrace's text: [`Text`].
    Text,
    /// Records and aggregations as tables of comma-separated values: [`Text::csv`].
    Csv,
    /// Objects of JSON: [`Json`].
    Json,
}

impl Printer {
    /// What it needs of records.
    pub const fn needs(self) -> Needs {
        match self {
            Printer::Text => Needs { process_ids: false, printed: false },
            Printer::Csv => Text::<AnyOutput>::CSV_NEEDS,
            Printer::Json => Json::<AnyOutput>::NEEDS,
        }
    }

    /// The sink; it performs effects.
    pub fn sink(self, out: AnyOutput) -> Box<dyn Sink> {
        match self {
            Printer::Text => Box::new(Text::new(out)),
            Printer::Csv => Box::new(Text::csv(out)),
            Printer::Json => Box::new(Json::new(out)),
        }
    }

    /// The sink for events that were stored, or that another sink has too: nothing is performed.
    pub fn of_stored_events(self, out: AnyOutput) -> Box<dyn Sink> {
        match self {
            Printer::Text => Box::new(Text::of_stored_events(out)),
            Printer::Csv => Box::new(Text::csv_of_stored_events(out)),
            Printer::Json => Box::new(Json::of_stored_events(out)),
        }
    }
}
