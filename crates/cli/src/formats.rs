//! The words that name formats: `--to FILE`, `--format NAME[=FILE]`, `--flame FILE`, `--heat FILE`.

use dtrace::diagnostics::control;
use dtrace::flame::Format as Profile;
use dtrace::formats::{Format, Kind};
use dtrace::options::Shape;

use crate::flags::Word;

/// What the words ask for.
#[derive(Debug, Default)]
pub(crate) struct Formats {
    /// Files of stacks, which are not printed then.
    pub(crate) flames: Vec<(String, Profile)>,
    /// Other files.
    pub(crate) files: Vec<(String, &'static Format)>,
    /// What is printed instead of text, where it is none of `oformat`.
    pub(crate) printed: Option<&'static Format>,
    /// `oformat`, as a word of `--format`.
    pub(crate) oformat: Option<String>,
}

impl Formats {
    /// Reads the words. An error is a message.
    pub(crate) fn of(words: &[Word]) -> Result<Formats, String> {
        let mut all = Formats::default();
        for word in words {
            let Word::Long(option, text) = word else { continue };
            match *option {
                "flame" => {
                    let wrong = || {
                        let (file, endings) = (control::name_text(text), Profile::ENDINGS);
                        format!("--flame {file}: the name must end with {endings}")
                    };
                    all.flames.push((text.clone(), Profile::of_name(text).ok_or_else(wrong)?));
                }
                "heat" => all.add("--heat", find("heat")?, text)?,
                "to" => all.add("--to", meant(text)?, text)?,
                "format" => match text.split_once('=') {
                    Some((name, file)) => all.add(&format!("--format {name}"), find(name)?, file)?,
                    None => all.print(text)?,
                },
                _ => {}
            }
        }
        Ok(all)
    }

    fn add(&mut self, words: &str, format: &'static Format, file: &str) -> Result<(), String> {
        let shown = control::name_text(file);
        if file.is_empty() {
            return Err(format!("{words}: the name of the file is missing"));
        }
        if !format.fits(file) {
            let endings = listed(format.endings, "or");
            return Err(format!("{words} {shown}: the name must end with {endings}"));
        }
        match format.kind {
            Kind::Flame(form) => {
                let form = form.or_else(|| Profile::of_name(file)).unwrap_or(Profile::Svg);
                self.flames.push((file.into(), form));
            }
            _ => self.files.push((file.into(), format)),
        }
        Ok(())
    }

    fn print(&mut self, name: &str) -> Result<(), String> {
        match Format::find(name) {
            Some(format) if !is_of_option(name) => {
                if !matches!(format.kind, Kind::Stream(_)) {
                    let example = format.endings.first().unwrap_or(&"");
                    return Err(format!(
                        "--format {name}: it is written to a file: --format {name}=FILE{example}"
                    ));
                }
                self.printed = Some(format);
                self.oformat = None;
            }
            _ => {
                self.printed = None;
                self.oformat = Some(name.into());
            }
        }
        Ok(())
    }

    /// Whether something is made of what intervals add.
    pub(crate) fn needs_intervals(&self) -> bool {
        self.all().any(|format| format.intervals)
    }

    /// Whether something needs the ids of processes and threads.
    pub(crate) fn needs_process_ids(&self) -> bool {
        self.all().any(|format| format.needs.process_ids)
    }

    /// The formats of everything that is not a flame graph.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static Format> {
        self.files.iter().map(|(_, format)| *format).chain(self.printed)
    }
}

/// Whether a format is printed by the option `oformat`.
fn is_of_option(name: &str) -> bool {
    let shape = dtrace::options::find("oformat").map(|row| row.shape);
    matches!(shape, Some(Shape::Word(words)) if words.contains(&name))
}

/// A row of the table by its name.
fn find(name: &str) -> Result<&'static Format, String> {
    Format::find(name).ok_or_else(|| {
        let names: Vec<&str> = dtrace::formats::TABLE.iter().map(|format| format.name).collect();
        let name = control::name_text(name);
        format!("--format {name}: there are {}", listed(&names, "and"))
    })
}

/// The format that the name of a file means.
fn meant(file: &str) -> Result<&'static Format, String> {
    let shown = control::name_text(file);
    match &Format::of_file(file)[..] {
        [] => {
            let endings = listed(&Format::endings(), "or");
            Err(format!("--to {shown}: the name must end with {endings}, or say --format NAME={shown}"))
        }
        [one] => Ok(one),
        several => {
            let ways: Vec<String> = several.iter().map(|f| format!("--format {}={shown}", f.name)).collect();
            let ways: Vec<&str> = ways.iter().map(String::as_str).collect();
            Err(format!("--to {shown}: the ending has several meanings: {}", listed(&ways, "or")))
        }
    }
}

/// `a, b or c`
fn listed(words: &[&str], last: &str) -> String {
    match words {
        [first @ .., end] if !first.is_empty() => format!("{} {last} {end}", first.join(", ")),
        _ => words.concat(),
    }
}
