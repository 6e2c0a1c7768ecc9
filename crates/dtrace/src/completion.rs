//! Completions: what can follow at a prompt, for the descriptions of probes, the options of `-x`,
//! and processes.
//!
//! ```text
//!  sys            syscall:                                    a provider; a name of those without one (BEGIN)
//!  syscall:       syscall::read: syscall::write: …            its module is the same for all, so the functions follow at once
//!  syscall::re    syscall::read: syscall::readv: …
//!  syscall::read: syscall::read:entry syscall::read:return
//! ```
//!
//! A user waits, so nothing is asked for that takes long ([`providers::ProbeSource::names`]): the
//! kernel's hundred thousand functions come from its types. Nothing is attached, and nothing loaded
//! into the kernel. There are at most `MOST` candidates: of more, the beginnings that they have in
//! common are candidates, so that what is inserted is always right. Where one candidate leads on,
//! those after it are given: a shell closes a quotation mark after a single one.
//!
//! A name with a character that a shell or a description takes for another thing (a blank, a
//! bracket) is left out.

use std::sync::Arc;

use probes::{Family, FieldKind, Pattern, glob_escape};
use providers::Registry;
use system::System;

use crate::compile::Field;
use crate::options::{self, Shape};

/// The greatest number of names that are candidates at a time.
const MOST: usize = 500;

/// A text that can stand where a word begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The whole word.
    pub text: String,
    /// What it is, in a few words; may be empty.
    pub help: String,
    /// More has to follow: no blank comes after it.
    pub continues: bool,
}

impl Candidate {
    fn new(text: impl Into<String>, help: impl Into<String>, continues: bool) -> Candidate {
        Candidate { text: text.into(), help: help.into(), continues }
    }
}

/// What `$target` is on a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// There is none.
    None,
    /// A process that does not run yet (`-c`).
    Later,
    /// A process that runs (`-p`).
    Process(u32),
}

/// The options of `-x` that begin with a text; after `=` their values.
pub fn settings(text: &str) -> Vec<Candidate> {
    if let Some((name, value)) = text.split_once('=') {
        let all = values(name, value).into_iter();
        return all.map(|c| Candidate { text: format!("{name}={}", c.text), ..c }).collect();
    }
    let rows = options::TABLE.iter().filter(|row| row.name.starts_with(text));
    rows.map(|row| match (row.shape, row.default) {
        (Shape::Flag, "") => Candidate::new(row.name, row.help, false),
        _ => Candidate::new(format!("{}=", row.name), row.help, true),
    })
    .collect()
}

/// The values of an option that begin with a text, as far as they can be listed. Of one that takes
/// any number it is the default.
pub fn values(option: &str, text: &str) -> Vec<Candidate> {
    let Some(row) = options::find(option) else { return Vec::new() };
    let all: &[&str] = match row.shape {
        Shape::Flag => &["yes", "no"],
        Shape::Word(words) => words,
        _ => &[row.default],
    };
    let fits = all.iter().filter(|value| !value.is_empty() && value.starts_with(text));
    fits.map(|value| Candidate::new(*value, if *value == row.default { "the default" } else { "" }, false))
        .collect()
}

/// The processes that run a program and whose ids begin with a text.
pub fn processes(text: &str) -> Vec<Candidate> {
    running_processes(text)
        .into_iter()
        .map(|(pid, name)| Candidate::new(pid.to_string(), name, false))
        .collect()
}

/// The probes that the last description of a text can mean, part by part. The text may have other
/// descriptions and clauses before it. There are none without the privilege to trace.
pub fn probes(machine: &System, last: Field, text: &str, target: Target) -> Vec<Candidate> {
    if bpf_sys::missing_privilege().is_some() {
        return Vec::new();
    }
    let last = match last {
        Field::Provider => FieldKind::Provider,
        Field::Module => FieldKind::Module,
        Field::Function => FieldKind::Function,
        Field::Name => FieldKind::Name,
    };
    let registry = crate::list::providers_of(machine);
    registry.at_prompt();
    complete(&Running(registry), last, text, target)
}

/// Names that were found, one behind the other in one text: a tree of a hundred thousand strings
/// takes longer than a user waits.
#[derive(Default)]
struct Names {
    text: String,
    ends: Vec<usize>,
}

impl Names {
    fn push(&mut self, name: &str) {
        // The probes of a function follow each other.
        if self.iter().next_back() != Some(name) {
            self.text.push_str(name);
            self.ends.push(self.text.len());
        }
    }

    /// As they were found.
    fn iter(&self) -> impl DoubleEndedIterator<Item = &str> {
        let start = |n: usize| n.checked_sub(1).and_then(|n| self.ends.get(n)).copied().unwrap_or(0);
        (0..self.ends.len()).filter_map(move |n| self.text.get(start(n)..start(n + 1)))
    }

    /// In order, each once.
    fn sorted(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.iter().collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// What completions ask of a system.
trait World {
    /// The names of providers.
    fn families(&self) -> Vec<Family>;

    /// The providers without which users write the names of their probes.
    fn named_alone(&self) -> Vec<String>;

    /// What a field of the probes is that a pattern matches.
    fn names(&self, pattern: &Pattern, field: FieldKind) -> Names;

    /// The processes whose ids begin with a text, with their names.
    fn processes(&self, text: &str) -> Vec<(u32, String)>;
}

/// The running system.
struct Running(Arc<Registry>);

impl World for Running {
    fn families(&self) -> Vec<Family> {
        self.0.families_here().cloned().collect()
    }

    fn named_alone(&self) -> Vec<String> {
        let alone = |family: &&Family| self.0.of_family(family).is_some_and(|p| p.names().alone);
        self.0.families_here().filter(alone).map(|family| family.prefix().to_string()).collect()
    }

    fn names(&self, pattern: &Pattern, field: FieldKind) -> Names {
        let mut all = Names::default();
        self.0.names(pattern, field, &mut |name| all.push(name));
        all
    }

    fn processes(&self, text: &str) -> Vec<(u32, String)> {
        running_processes(text)
    }
}

fn running_processes(text: &str) -> Vec<(u32, String)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let pids = names.filter(|name| name.starts_with(text)).filter_map(|name| name.parse::<u32>().ok());
    let own = std::process::id();
    let mut all: Vec<(u32, String)> = pids
        .filter(|pid| *pid != own)
        .filter_map(|pid| {
            let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).ok();
            // Threads of the kernel have no arguments.
            let arguments = read("cmdline").filter(|arguments| !arguments.is_empty())?;
            let name = String::from_utf8_lossy(&read("comm").unwrap_or(arguments)).trim_end().to_string();
            Some((pid, diagnostics::control::name_text(&name).to_string()))
        })
        .collect();
    all.sort_unstable();
    all
}

fn complete(world: &dyn World, last: FieldKind, text: &str, target: Target) -> Vec<Candidate> {
    let Some((before, description)) = description(text).and_then(|start| text.split_at_checked(start)) else {
        return Vec::new();
    };
    let mut found = after(world, last, description, target);
    // What has to be typed in any case is not asked for.
    while let [only] = &found[..]
        && only.text.ends_with(':')
    {
        let further = after(world, last, &only.text, target);
        if further.is_empty() {
            break;
        }
        found = further;
    }
    found.iter_mut().for_each(|candidate| candidate.text.insert_str(0, before));
    found
}

/// Where the last description of a text begins. `None` if the text ends in a predicate or in
/// actions.
fn description(text: &str) -> Option<usize> {
    enum At {
        /// A description that began here.
        Description(usize),
        AfterDescription,
        Predicate,
        /// So many braces are open.
        Actions(u32),
        /// A string among actions.
        String(u32),
    }
    let mut at = At::Description(0);
    let mut escaped = false;
    for (place, c) in text.char_indices() {
        at = match at {
            At::Description(start) if c.is_whitespace() && start == place => {
                At::Description(place + c.len_utf8())
            }
            At::Description(_) | At::AfterDescription if c == ',' => At::Description(place + 1),
            At::Description(_) | At::AfterDescription if c == '/' => At::Predicate,
            At::Description(_) | At::AfterDescription | At::Predicate if c == '{' => At::Actions(1),
            At::Description(_) if c.is_whitespace() => At::AfterDescription,
            At::Predicate if c == '/' => At::AfterDescription,
            At::Actions(open) => match c {
                '{' => At::Actions(open + 1),
                '}' if open == 1 => At::Description(place + 1),
                '}' => At::Actions(open - 1),
                '"' => At::String(open),
                _ => At::Actions(open),
            },
            At::String(open) if c == '"' && !escaped => At::Actions(open),
            same => same,
        };
        escaped = c == '\\' && !escaped;
    }
    match at {
        At::Description(start) => Some(start),
        _ => None,
    }
}

/// The candidates for the last field of a description that is begun.
fn after(world: &dyn World, last: FieldKind, description: &str, target: Target) -> Vec<Candidate> {
    const FIELDS: [FieldKind; 4] =
        [FieldKind::Provider, FieldKind::Module, FieldKind::Function, FieldKind::Name];
    let mut fields: Vec<&str> = description.split(':').collect();
    let begun = fields.pop().unwrap_or_default();
    let Some(field) = FIELDS.get(fields.len()).copied().filter(|field| *field <= last) else {
        return Vec::new();
    };
    let end = if field == last { "" } else { ":" };
    let Some(provider) = fields.first() else { return providers(world, last, begun, end, target) };
    let provider = match (provider.strip_suffix("$target"), target) {
        (Some(name), Target::Process(pid)) => format!("{name}{pid}"),
        _ if provider.contains('$') => return Vec::new(),
        _ => provider.to_string(),
    };
    let text_of = |n: usize| fields.get(n).map(|text| text.to_string()).unwrap_or_default();
    let mut pattern = Pattern { provider, module: text_of(1), function: text_of(2), name: String::new() };
    let beginning = if begun.is_empty() { String::new() } else { format!("{}*", glob_escape(begun)) };
    match field {
        FieldKind::Provider => {}
        FieldKind::Module => pattern.module = beginning,
        FieldKind::Function => pattern.function = beginning,
        FieldKind::Name => pattern.name = beginning,
    }
    let all = world.names(&pattern, field);
    let all = all.sorted();
    let stem = format!("{}:", fields.join(":"));
    let mut out = Vec::new();
    if begun.is_empty() && field != last {
        // One that all probes have in common need not be named.
        let several = all.iter().filter(|name| !name.is_empty()).nth(1).is_some();
        if !all.is_empty() {
            out.push(Candidate::new(format!("{stem}:"), "any", true));
        }
        if !several {
            return out;
        }
    }
    let names: Vec<&str> = all.iter().copied().filter(|n| n.starts_with(begun) && is_plain(n)).collect();
    let names = shortened(&names, begun.len(), MOST).into_iter().map(|(name, is_whole)| match is_whole {
        true => Candidate::new(format!("{stem}{name}{end}"), "", !end.is_empty()),
        false => Candidate::new(format!("{stem}{name}"), "", true),
    });
    out.extend(names);
    out
}

/// The candidates for the provider, and for a name alone.
fn providers(world: &dyn World, last: FieldKind, begun: &str, end: &str, target: Target) -> Vec<Candidate> {
    let mut out = Vec::new();
    let names = |provider: &str, field| {
        let pattern = Pattern { provider: provider.to_string(), ..Pattern::default() };
        let found = world.names(&pattern, field);
        let all = found.sorted().into_iter().filter(|name| is_plain(name));
        all.map(str::to_string).collect::<Vec<String>>().into_iter()
    };
    let offer = |name: &str, help: &str| {
        let candidate = || Candidate::new(format!("{name}{end}"), help, !end.is_empty());
        name.starts_with(begun).then(candidate)
    };
    for family in world.families() {
        let prefix = family.prefix();
        if family.is_of_any() {
            // Those of one process: what the files of all processes describe takes long to read.
            let (name, pid) = begun.split_at(begun.trim_end_matches(|c: char| c.is_ascii_digit()).len());
            if let Target::Process(pid) = target {
                for name in names(&format!("*{pid}"), FieldKind::Provider) {
                    let name = name.strip_suffix(&pid.to_string()).unwrap_or(&name);
                    out.extend(offer(&format!("{name}$target"), ""));
                }
            } else if !name.is_empty() && !pid.is_empty() {
                out.extend(
                    names(&format!("*{pid}"), FieldKind::Provider).filter_map(|name| offer(&name, "")),
                );
            }
        } else if !family.is_of_processes() {
            out.extend(offer(prefix, ""));
        } else if target != Target::None {
            out.extend(offer(&format!("{prefix}$target"), "the process of -p or -c"));
        } else if let Some(number) = begun.strip_prefix(prefix) {
            let all = world.processes(number).into_iter();
            out.extend(all.filter_map(|(pid, name)| offer(&format!("{prefix}{pid}"), &name)));
        } else if prefix.starts_with(begun) {
            out.push(Candidate::new(prefix, "a process id follows", true));
        }
    }
    if last == FieldKind::Name {
        let alone = world.named_alone();
        let names = alone.iter().flat_map(|provider| names(provider, FieldKind::Name));
        out.extend(names.filter(|name| name.starts_with(begun)).map(|name| Candidate::new(name, "", false)));
    }
    out.sort_by(|a, b| a.text.cmp(&b.text));
    out.dedup_by(|a, b| a.text == b.text);
    out
}

/// True for a name that is itself in a description and in a shell.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.+@~".contains(c))
}

/// The names, which are in order and have `begun` bytes in common, if they are no more than `most`;
/// else the beginnings that several of them have, as long as these are no more. Each with whether
/// it is a whole name.
fn shortened<'a>(names: &[&'a str], begun: usize, most: usize) -> Vec<(&'a str, bool)> {
    if names.len() <= most {
        return names.iter().map(|name| (*name, true)).collect();
    }
    let mut out = beginnings(names, begun + 1);
    for length in begun + 2.. {
        let longer = beginnings(names, length);
        if longer.len() > most {
            break;
        }
        out = longer;
    }
    out
}

/// Of names that have so many bytes in common, these; of others, the name.
fn beginnings<'a>(names: &[&'a str], length: usize) -> Vec<(&'a str, bool)> {
    let alike =
        |a: &&str, b: &&str| a.get(..length).is_some_and(|beginning| b.get(..length) == Some(beginning));
    let groups = names.chunk_by(alike).filter_map(|group| {
        let first = group.first()?;
        Some(if group.len() == 1 { (*first, true) } else { (first.get(..length)?, false) })
    });
    groups.collect()
}

#[cfg(test)]
mod tests;
