//! The formats of results that are written to files, beside what a session prints: one table.
//!
//! ```text
//!  row        name, endings of files, what it needs of a session
//!    ├ stream     bytes come as events come: a pipe can have them
//!    ├ snapshot   the file is known as a whole at any time, and replaced from time to time
//!    └ flame      stacks of aggregations: the command prints those no more
//! ```
//!
//! A sink of this table performs nothing ([effects](events::Effect) are the text's) and says
//! nothing: what is lost is in the text's messages, and in the file where its format has a place
//! for it.

use std::io::{self, Write};

use consumer::{Message, Output, Printer};
use events::{Encoder, Event, Needs, Sink, SinkError};
use flame::Unnamed;
use heat::Heat;
use metrics::{Lines, Prometheus, Protocol};
use plane::desc::Datum;
use timeline::{Pair, Timeline};

use crate::compile::Program;
use crate::options::Options;

/// Where a stream writes.
pub type Writer = Box<dyn Write + Send>;

/// A sink whose file is known as a whole at any time.
pub trait Snapshot: Sink {
    /// The content of the file. An error is why there is none, and what would give one.
    fn bytes(&self) -> Result<Vec<u8>, String>;
}

/// How a format is made.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A flame graph or another profile; `None`: the ending of the file's name says which.
    Flame(Option<flame::Format>),
    /// A sink that writes as events come.
    Stream(fn(Writer, &Options) -> Box<dyn Sink>),
    /// A sink for the file of this name.
    Snapshot(fn(&str, &Options) -> Box<dyn Snapshot>),
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// `--format NAME=FILE`
    pub name: &'static str,
    /// The endings of names of files that mean it.
    pub endings: &'static [&'static str],
    /// What it is; for the manual page.
    pub about: &'static str,
    /// The endings are different forms of it, so a name has one of them.
    pub by_ending: bool,
    /// It is made of what intervals add, so there must be intervals (`every`).
    pub intervals: bool,
    /// It is no text, so no terminal gets it.
    pub binary: bool,
    /// What records must have.
    pub needs: Needs,
    /// How it is made.
    pub kind: Kind,
}

const NOTHING: Needs = Needs { process_ids: false, printed: false };

/// All formats, in the order of the manual page.
pub const TABLE: &[Format] = &[
    Format {
        name: "flame",
        endings: &[".svg", ".html"],
        about: "the stacks in keys of aggregations as a flame graph",
        by_ending: true,
        intervals: false,
        binary: false,
        needs: NOTHING,
        kind: Kind::Flame(None),
    },
    profile("folded", &[".folded"], "these stacks as folded lines", flame::Format::Folded),
    profile("pprof", &[".pb.gz"], "these stacks as a profile of pprof", flame::Format::Pprof),
    profile(
        "speedscope",
        &[".speedscope.json"],
        "these stacks as a profile of speedscope",
        flame::Format::Speedscope,
    ),
    Format {
        name: "heat",
        endings: &[".svg", ".html"],
        about: "distributions over time as a heat map",
        by_ending: true,
        intervals: true,
        binary: false,
        needs: NOTHING,
        kind: Kind::Snapshot(|file, options| {
            let format = heat::Format::of_name(file).unwrap_or(heat::Format::Svg);
            Box::new(HeatMap { heat: Heat::new(unnamed(options)), format })
        }),
    },
    Format {
        name: "perfetto",
        endings: &[".pftrace", ".perfetto-trace"],
        about: "records and aggregations over time as a timeline of Perfetto",
        by_ending: false,
        intervals: true,
        binary: true,
        needs: Timeline::<Vec<u8>>::NEEDS,
        kind: Kind::Stream(|out, options| {
            let pairs = options.slices.iter().filter_map(|text| Pair::parse(text).ok()).collect();
            Box::new(Timeline::with_pairs(out, pairs))
        }),
    },
    Format {
        name: "json",
        endings: &[".json", ".jsonl"],
        about: "every event as an object of JSON on a line of its own",
        by_ending: false,
        intervals: false,
        binary: false,
        needs: Printer::Json.needs(),
        kind: Kind::Stream(|out, _| Printer::Json.of_stored_events(Box::new(Silent(out)))),
    },
    Format {
        name: "csv",
        endings: &[".csv"],
        about: "records and aggregations as tables of comma-separated values",
        by_ending: false,
        intervals: false,
        binary: false,
        needs: Printer::Csv.needs(),
        kind: Kind::Stream(|out, _| Printer::Csv.of_stored_events(Box::new(Silent(out)))),
    },
    Format {
        name: "events",
        endings: &[".events"],
        about: "every event in the encoding of the library, which --events prints in any format",
        by_ending: false,
        intervals: false,
        binary: true,
        // Whatever is made of them later.
        needs: Needs { process_ids: true, printed: false },
        kind: Kind::Stream(|out, _| Box::new(Encoder::new(out))),
    },
    metrics(
        "prometheus",
        &[".prom"],
        "aggregations as metrics in the text that Prometheus reads, for the textfile collector of node_exporter",
        Kind::Snapshot(|_, _| Box::new(Prometheus::text())),
    ),
    metrics(
        "openmetrics",
        &[".openmetrics"],
        "the same in the text of OpenMetrics",
        Kind::Snapshot(|_, _| Box::new(Prometheus::open_metrics())),
    ),
    metrics(
        "graphite",
        &[".graphite"],
        "what intervals add to aggregations, as lines that carbon takes",
        Kind::Stream(|out, _| Box::new(Lines::new(Protocol::Graphite, out))),
    ),
    metrics(
        "statsd",
        &[".statsd"],
        "the same as counters and gauges of StatsD",
        Kind::Stream(|out, _| Box::new(Lines::new(Protocol::StatsD, out))),
    ),
    metrics(
        "influx",
        &[".influx"],
        "the same in the line protocol of InfluxDB",
        Kind::Stream(|out, _| Box::new(Lines::new(Protocol::Influx, out))),
    ),
];

const fn metrics(
    name: &'static str,
    endings: &'static [&'static str],
    about: &'static str,
    kind: Kind,
) -> Format {
    Format { name, endings, about, by_ending: false, intervals: true, binary: false, needs: NOTHING, kind }
}

const fn profile(
    name: &'static str,
    endings: &'static [&'static str],
    about: &'static str,
    format: flame::Format,
) -> Format {
    let kind = Kind::Flame(Some(format));
    Format { name, endings, about, by_ending: false, intervals: false, binary: false, needs: NOTHING, kind }
}

impl Format {
    /// The format of a name.
    pub fn find(name: &str) -> Option<&'static Format> {
        TABLE.iter().find(|format| format.name == name)
    }

    /// The formats that the name of a file may mean: of those whose endings it has, the ones with
    /// the longest.
    pub fn of_file(file: &str) -> Vec<&'static Format> {
        let length = |format: &Format| {
            let fitting = format.endings.iter().filter(|ending| file.ends_with(**ending));
            fitting.map(|ending| ending.len()).max()
        };
        let longest = TABLE.iter().filter_map(length).max();
        TABLE.iter().filter(|format| longest.is_some() && length(format) == longest).collect()
    }

    /// The endings of all formats.
    pub fn endings() -> Vec<&'static str> {
        let mut all: Vec<&str> = Vec::new();
        for ending in TABLE.iter().flat_map(|format| format.endings) {
            if !all.contains(ending) {
                all.push(ending);
            }
        }
        all
    }

    /// Whether a part of what the programs of a session deliver has this format. An error is what
    /// would have it.
    pub fn check(&self, program: &Program) -> Result<(), String> {
        let is_of_metrics =
            matches!(self.name, "prometheus" | "openmetrics" | "graphite" | "statsd" | "influx");
        match (self.name, self.kind) {
            _ if is_of_metrics => check_metrics(program),
            ("heat", _) => check_distributions(program),
            (_, Kind::Flame(_)) => check_profiles(program),
            _ => Ok(()),
        }
    }

    /// Whether a file of this name can have it.
    pub fn fits(&self, file: &str) -> bool {
        !self.by_ending || self.endings.iter().any(|ending| file.ends_with(ending))
    }
}

/// How frames without a name are shown.
pub fn unnamed(options: &Options) -> Unnamed {
    match options.stacksymbols && !options.noresolve {
        true => Unnamed::Unknown,
        false => Unnamed::Address,
    }
}

/// Completes `-x slices` for a program: `$target` in it is the id of a process, and each
/// description must match a probe, unless probes may come later (`-Z`). An error is a message.
pub fn fit_slices(options: &mut Options, program: &Program, target: u64) -> Result<(), String> {
    for text in &mut options.slices {
        *text = text.replace("$target", &target.to_string());
        let Ok(pair) = Pair::parse(text) else { continue };
        let probes = program.checked.clauses.iter().flat_map(|clause| clause.described());
        let missing = pair.missing(probes.map(|probe| &*probe.desc));
        if let Some(probe) = missing.filter(|_| !options.zdefs) {
            let why = "does not match any probes of the programs";
            return Err(format!("-x slices={text}: probe description {probe} {why}"));
        }
    }
    Ok(())
}

/// Whether each aggregation of a program has a stack in its key.
fn have_stacks(program: &Program) -> impl Iterator<Item = bool> + '_ {
    let is_stack = |datum| matches!(datum, Datum::KernelStack { .. } | Datum::UserStack { .. });
    program.checked.aggs.iter().map(move |all| all.key.iter().any(|field| is_stack(field.datum)))
}

/// Heat maps are of distributions. An error is what would be one.
fn check_distributions(program: &Program) -> Result<(), String> {
    match program.checked.aggs.iter().any(|all| events::is_histogram(all.func)) {
        true => Ok(()),
        false => Err(format!("no aggregation is a distribution{DISTRIBUTIONS}")),
    }
}

/// What a heat map shows.
const DISTRIBUTIONS: &str = ", as in @ = quantize(arg0); lquantize() and llquantize() are drawn too";

/// Profiles are aggregations with stacks. An error is what would have one.
pub fn check_profiles(program: &Program) -> Result<(), String> {
    match have_stacks(program).any(|has| has) {
        true => Ok(()),
        false => {
            Err("profiles are of stacks, and no key of an aggregation has one, as in @[ustack()] = count()"
                .into())
        }
    }
}

/// Metrics are aggregations whose keys can be labels. An error is what would be one.
pub fn check_metrics(program: &Program) -> Result<(), String> {
    if have_stacks(program).any(|has| !has) {
        return Ok(());
    }
    Err(match program.checked.aggs.first() {
        None => "metrics are of aggregations, and the programs have none, as in @[execname] = count()".into(),
        Some(_) => {
            "a stack in the key is no label: func(), mod() or execname is one; --flame draws stacks, and -x otlpprofiles sends them"
                .into()
        }
    })
}

impl Snapshot for Prometheus {
    fn bytes(&self) -> Result<Vec<u8>, String> {
        Ok(Prometheus::bytes(self))
    }
}

/// The file of a heat map.
struct HeatMap {
    heat: Heat,
    format: heat::Format,
}

impl Sink for HeatMap {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        self.heat.event(event)
    }
}

impl Snapshot for HeatMap {
    fn bytes(&self) -> Result<Vec<u8>, String> {
        if self.heat.is_empty() {
            return Err(format!("no distribution has a value{DISTRIBUTIONS}"));
        }
        Ok(self.format.write(&self.heat))
    }
}

/// An output beside the one that has the messages.
struct Silent(Writer);

impl Write for Silent {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Output for Silent {
    fn messages(&mut self, _: &[Message]) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(file: &str) -> Vec<&'static str> {
        Format::of_file(file).iter().map(|format| format.name).collect()
    }

    #[test]
    fn the_longest_ending_of_a_name_says_the_format() {
        assert_eq!(names("a.svg"), ["flame", "heat"]);
        assert_eq!(names("a.speedscope.json"), ["speedscope"]);
        assert_eq!(names("a.json"), ["json"]);
        assert_eq!(names("a.pb.gz"), ["pprof"]);
        assert_eq!(names("a.png"), [""; 0]);
        assert_eq!(names("json"), [""; 0]);
    }

    #[test]
    fn each_ending_of_a_format_that_goes_by_it_is_a_form() {
        for ending in Format::find("flame").unwrap().endings {
            assert!(flame::Format::of_name(&format!("a{ending}")).is_some(), "{ending}");
        }
        for ending in Format::find("heat").unwrap().endings {
            assert!(heat::Format::of_name(&format!("a{ending}")).is_some(), "{ending}");
        }
        assert!(!Format::find("heat").unwrap().fits("a.png") && Format::find("json").unwrap().fits("a"));
    }
}
