//! What the words of a command line mean together.

use dtrace::options::Options;
use dtrace::{Field, Source};

use crate::flags::{self, NOT_YET, Word};

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Trace.
    Trace,
    /// `-l`
    List,
    /// `-V`
    Version,
    /// `--help`
    Help,
}

/// A program that was named and is not read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// `-s file`
    File(String),
    /// The rest.
    Text(Field, String),
}

/// A target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// `-c`
    Run(String),
    /// `-p`
    Pid(i32),
}

/// A command line, understood.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) mode: Mode,
    pub(crate) programs: Vec<Named>,
    pub(crate) targets: Vec<Wanted>,
    pub(crate) options: Options,
    pub(crate) operands: Vec<String>,
    pub(crate) output: Option<String>,
    /// `-e`
    pub(crate) compile_only: bool,
    /// `-v`
    pub(crate) verbose: bool,
}

/// Why there is no command.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// The usage text is in order.
    Usage(Option<String>),
    /// A message is enough.
    Words(String),
}

/// Reads the words.
pub(crate) fn parse(words: &[String]) -> Result<Command, Wrong> {
    if words.is_empty() {
        return Err(Wrong::Usage(None));
    }
    let mut c = Command {
        mode: Mode::Trace,
        programs: Vec::new(),
        targets: Vec::new(),
        options: Options::default(),
        operands: Vec::new(),
        output: None,
        compile_only: false,
        verbose: false,
    };
    for word in flags::parse(words).map_err(|e| Wrong::Usage(Some(e)))? {
        match word {
            Word::Operand(text) => c.operands.push(text),
            Word::Help => c.mode = Mode::Help,
            Word::Flag(letter, value) => c.flag(letter, &value)?,
        }
    }
    Ok(c)
}

impl Command {
    fn flag(&mut self, letter: char, value: &str) -> Result<(), Wrong> {
        if NOT_YET.contains(letter) {
            let name = if letter == '3' { "-32".to_string() } else { format!("-{letter}") };
            return Err(Wrong::Words(format!("{name} is not supported yet")));
        }
        let text = |field| Named::Text(field, value.to_string());
        match letter {
            'P' => self.programs.push(text(Field::Provider)),
            'm' => self.programs.push(text(Field::Module)),
            'f' => self.programs.push(text(Field::Function)),
            'n' | 'i' => self.programs.push(text(Field::Name)),
            's' => self.programs.push(Named::File(value.into())),
            'c' => self.targets.push(Wanted::Run(value.into())),
            'p' => match value.parse() {
                Ok(pid) => self.targets.push(Wanted::Pid(pid)),
                Err(_) => return Err(Wrong::Words(format!("invalid process id '{value}'"))),
            },
            'o' => self.output = Some(value.into()),
            'e' => self.compile_only = true,
            'v' => self.verbose = true,
            'l' => self.only(Mode::List)?,
            'V' => self.only(Mode::Version)?,
            'x' => {
                let (name, value) = match value.split_once('=') {
                    Some((name, value)) => (name, Some(value)),
                    None => (value, None),
                };
                self.set(name, value)?;
            }
            '6' if value == "4" => {}
            '6' => return Err(Wrong::Usage(Some("invalid option -- '6'".into()))),
            _ => {
                let option = flags::TABLE.iter().find(|f| f.letter == letter).map_or("", |f| f.option);
                let value =
                    flags::TABLE.iter().any(|f| f.letter == letter && !f.arg.is_empty()).then_some(value);
                self.set(option, value).map_err(|e| match e {
                    Wrong::Words(text) => {
                        Wrong::Words(text.replace(&format!("option '{option}'"), &format!("-{letter}")))
                    }
                    other => other,
                })?;
            }
        }
        Ok(())
    }

    fn only(&mut self, mode: Mode) -> Result<(), Wrong> {
        if self.mode != Mode::Trace {
            return Err(Wrong::Words("only one of the [-AGhlV] options can be specified at a time".into()));
        }
        self.mode = mode;
        Ok(())
    }

    fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), Wrong> {
        self.options.set(name, value).map(|_| ()).map_err(|e| {
            let mut text = format!("failed to set option '{name}': {e}");
            let known = dtrace::options::TABLE.iter().map(|r| r.name);
            if e == dtrace::options::OptionError::Name
                && let Some(near) = dtrace::nearest(name, known)
            {
                text.push_str(&format!(" (did you mean {near}?)"));
            }
            Wrong::Words(text)
        })
    }
}

impl Named {
    /// The program's text; reads the file.
    pub(crate) fn read(&self) -> Result<Source, String> {
        match self {
            Named::Text(field, text) => Ok(Source::Specifier(*field, text.clone())),
            Named::File(path) => {
                let bytes = std::fs::read(path).map_err(|e| {
                    let text = e.to_string();
                    format!("failed to open {path}: {}", text.split(" (os error").next().unwrap_or_default())
                })?;
                let text = String::from_utf8(bytes)
                    .map_err(|_| format!("failed to read {path}: it is not UTF-8 text"))?;
                Ok(Source::Script(path.clone(), text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn programs_targets_and_operands() {
        let c = parse(&words("-q -n BEGIN -s x.d one -p 12 -c ls two -w -b 1m")).unwrap();
        assert_eq!(c.programs, [Named::Text(Field::Name, "BEGIN".into()), Named::File("x.d".into())]);
        assert_eq!(c.targets, [Wanted::Pid(12), Wanted::Run("ls".into())]);
        assert_eq!(c.operands, ["one", "two"]);
        assert!(c.options.flag("quiet") && c.options.flag("destructive"));
        assert_eq!(c.options.number("bufsize"), 1 << 20);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let e = |text: &str| match parse(&words(text)).unwrap_err() {
            Wrong::Usage(m) => m.unwrap_or_default(),
            Wrong::Words(m) => m,
        };
        assert!(e("-lV").contains("only one of"));
        assert!(e("-x bufsiz=1m -n BEGIN").contains("did you mean bufsize"));
        assert!(e("-b 1z").contains("failed to set -b: Invalid value for specified option"));
        assert!(e("-G").contains("-G is not supported yet"));
        assert!(e("-p x").contains("invalid process id"));
    }
}
