//! Interprets the arguments of the command line together.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use dtrace::diagnostics::{control, raw};
use dtrace::options::{Options, OutputFormat};
use dtrace::{Field, Source};

use crate::flags::{self, NOT_YET, Word};
use crate::formats::Formats;

/// The longest script that is read, in bytes. A device that never ends (`-s /dev/zero`) must not
/// take all memory.
const LONGEST_SCRIPT: u64 = 16 << 20;

/// Frames of a stack without a number in a session that draws stacks: as many as there can be.
const WHOLE_STACK: &str = "127";

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Trace.
    Trace,
    /// `-l`
    List,
    /// `-h`
    Header,
    /// `-G`
    Object,
    /// `-V`
    Version,
    /// `--help`
    Help,
    /// `--version`
    About,
    /// `--check`
    Check,
    /// `--completions`
    Completions,
    /// `-A`
    Store,
    /// `--anonymous`
    Boot,
}

/// A program that the command line names, not read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// `-s file`
    File(String),
    /// A file whose text was stored (`-A`): its name, and the text.
    Stored(String, String),
    /// `-n`, `-f`, `-m`, `-P`, `-i`: the description is in the argument.
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

/// A parsed command line.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) mode: Mode,
    pub(crate) programs: Vec<Named>,
    pub(crate) targets: Vec<Wanted>,
    pub(crate) options: Options,
    pub(crate) operands: Vec<String>,
    pub(crate) output: Option<String>,
    /// The formats of results, and their files.
    pub(crate) formats: Formats,
    /// `--live`
    live: bool,
    /// `--flame-diff`
    pub(crate) flame_diff: Option<String>,
    /// `--flame-from`
    pub(crate) flame_from: Option<String>,
    /// `--postmortem`: a core file.
    pub(crate) postmortem: Option<String>,
    /// `--events`: a file or a socket with the events of a session.
    pub(crate) events: Option<String>,
    /// `--system`: the record of a machine.
    pub(crate) system: Option<String>,
    /// `--record-system`: the file to be written.
    pub(crate) record_system: Option<String>,
    /// `--capture`: the file to be written.
    pub(crate) capture: Option<String>,
    /// `--capture-for`: the last program is the script that is captured.
    pub(crate) capture_for: bool,
    /// `--replay`: a capture.
    pub(crate) replay: Option<String>,
    /// `--capture-info`: a capture.
    pub(crate) capture_info: Option<String>,
    /// `--completions`: a shell.
    pub(crate) shell: Option<&'static str>,
    /// `-A`: the words without it.
    pub(crate) stored: Vec<String>,
    /// `-a`
    pub(crate) claims: bool,
    /// What `-A` has stored is traced.
    pub(crate) at_boot: bool,
    /// `-e`
    pub(crate) compile_only: bool,
    /// `-v`
    pub(crate) verbose: bool,
    /// `-h` or `-G` is among the options.
    builds: bool,
}

/// An error in the command line.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// The usage text is printed. Exit status 2.
    Usage(Option<String>),
    /// Options exclude each other: only the message is printed. Exit status 2.
    Words(String),
    /// The value of an option is wrong. Exit status 1, as for other failures.
    Value(String),
}

/// Parses the arguments.
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
        formats: Formats::default(),
        live: false,
        flame_diff: None,
        flame_from: None,
        postmortem: None,
        events: None,
        system: None,
        record_system: None,
        capture: None,
        capture_for: false,
        replay: None,
        capture_info: None,
        shell: None,
        stored: Vec::new(),
        claims: false,
        at_boot: false,
        compile_only: false,
        verbose: false,
        builds: false,
    };
    let words = flags::parse(words).map_err(|e| Wrong::Usage(Some(e)))?;
    c.formats = Formats::of(&words).map_err(Wrong::Value)?;
    if !c.formats.flames.is_empty() {
        // A stack without its outermost frames would be drawn at a wrong place. The user's options
        // follow.
        for name in ["maxframes", "jstackframes"] {
            c.set(name, Some(WHOLE_STACK), name)?;
        }
    }
    c.live = words.iter().any(|word| matches!(word, Word::Long("live", _)));
    if c.formats.needs_intervals() || c.live {
        c.set("every", Some("1s"), "every")?;
    }
    c.options.processids |= c.formats.needs_process_ids();
    if let Some(word) = c.formats.oformat.clone() {
        c.set("oformat", Some(&word), &format!("--format {word}"))?;
    }
    if words.iter().any(|w| matches!(w, Word::Flag('A', _))) {
        c.stored = flags::without(&words, 'A');
    }
    c.builds = words.iter().any(|w| matches!(w, Word::Flag('h' | 'G', _)));
    for word in words {
        match word {
            Word::Operand(text) => c.operands.push(text),
            Word::Help => c.mode = Mode::Help,
            Word::Flag(letter, value) => c.flag(letter, &value)?,
            Word::Long("flame-diff", before) => c.flame_diff = Some(before),
            Word::Long("flame-from", file) => c.flame_from = Some(file),
            Word::Long("postmortem", file) => c.postmortem = Some(file),
            Word::Long("events", file) => c.events = Some(file),
            Word::Long("system", file) => c.system = Some(file),
            Word::Long("record-system", file) => c.record_system = Some(file),
            Word::Long("capture", file) => c.capture = Some(file),
            Word::Long("capture-for", file) => {
                c.programs.push(Named::File(file));
                c.capture_for = true;
            }
            Word::Long("replay", file) => c.replay = Some(file),
            Word::Long("capture-info", file) => c.capture_info = Some(file),
            Word::Long("anonymous", _) => c.only(Mode::Boot)?,
            Word::Long("version", _) => c.only(Mode::About)?,
            Word::Long("check", _) => c.only(Mode::Check)?,
            Word::Long("completions", shell) => {
                let known = flags::SHELLS.into_iter().find(|known| *known == shell);
                let wrong = || {
                    let (shell, known) = (control::name_text(&shell), flags::SHELLS.join(", "));
                    Wrong::Value(format!("--completions {shell}: there are completions for {known}"))
                };
                c.shell = Some(known.ok_or_else(wrong)?);
                c.only(Mode::Completions)?;
            }
            Word::Long(..) => {}
        }
    }
    c.check_flames()?;
    c.check_files()?;
    c.check_live()?;
    c.check_system()?;
    c.check_events()?;
    c.check_captures()?;
    if c.postmortem.is_some()
        && !(c.programs.is_empty() && c.targets.is_empty() && c.formats.flames.is_empty())
    {
        let text =
            "--postmortem prints a core file and traces nothing: leave out the programs, targets and flames";
        return Err(Wrong::Value(text.into()));
    }
    Ok(c)
}

impl Command {
    fn flag(&mut self, letter: char, value: &str) -> Result<(), Wrong> {
        if NOT_YET.contains(letter) {
            let name = if letter == '3' { "-32".to_string() } else { format!("-{letter}") };
            return Err(Wrong::Value(format!("{name} is not supported yet")));
        }
        let text = |field| Named::Text(field, value.to_string());
        match letter {
            'P' => self.programs.push(text(Field::Provider)),
            'm' => self.programs.push(text(Field::Module)),
            'f' => self.programs.push(text(Field::Function)),
            // What is no number is a name, as in the original.
            'n' | 'i' => self.programs.push(text(Field::Name)),
            's' => self.programs.push(Named::File(value.into())),
            'c' => self.targets.push(Wanted::Run(value.into())),
            // As strtol() does, blanks before the number are permitted. The output of a program may
            // also have blanks after it.
            'p' => match value.trim().parse() {
                // A process may be named twice.
                Ok(pid) if self.targets.contains(&Wanted::Pid(pid)) => {}
                Ok(pid) => self.targets.push(Wanted::Pid(pid)),
                Err(_) => return Err(Wrong::Value(format!("invalid pid: {value}"))),
            },
            'a' => self.claims = true,
            'A' => self.only(Mode::Store)?,
            'o' => self.output = Some(value.into()),
            'd' => self.set("tree", Some("8"), "-d")?,
            'e' => self.compile_only = true,
            'v' => self.verbose = true,
            'l' => self.only(Mode::List)?,
            'V' => self.only(Mode::Version)?,
            'h' => self.only(Mode::Header)?,
            'G' => self.only(Mode::Object)?,
            'x' => {
                let (name, setting) = match value.split_once('=') {
                    Some((name, setting)) => (name, Some(setting)),
                    None => (value, None),
                };
                let set = self.set(name, setting, &format!("-x {value}"));
                // Build systems pass options of other systems, for a linker that does not run here.
                if !self.builds {
                    set?;
                }
            }
            '6' if value == "4" => {}
            '6' => return Err(Wrong::Usage(Some("invalid option -- '6'".into()))),
            _ => {
                let Some(flag) = flags::TABLE.iter().find(|f| f.letter == letter) else { return Ok(()) };
                let (setting, word) = match flag.arg {
                    "" => (None, format!("-{letter}")),
                    _ => (Some(value), format!("-{letter} {value}")),
                };
                self.set(flag.option, setting, &word)?;
            }
        }
        Ok(())
    }

    /// The options of flame graphs belong together.
    fn check_flames(&self) -> Result<(), Wrong> {
        let wrong = |text: &str| Err(Wrong::Value(text.into()));
        if self.formats.flames.is_empty() && (self.flame_diff.is_some() || self.flame_from.is_some()) {
            return wrong("--flame-diff and --flame-from need --flame FILE: the file to be written");
        }
        if self.flame_diff.is_some() && !self.formats.flames.iter().any(|(_, format)| format.is_picture()) {
            return wrong("--flame-diff draws a difference, so one --flame must be .svg or .html");
        }
        let before = self.flame_diff.as_deref().unwrap_or_default();
        if self.flame_from.is_some() && before.starts_with('@') {
            return wrong(
                "--flame-from traces nothing, so --flame-diff must be a file and not an aggregation",
            );
        }
        if self.flame_from.is_some() && !(self.programs.is_empty() && self.targets.is_empty()) {
            return wrong("--flame-from draws a file and traces nothing: leave out the programs and targets");
        }
        Ok(())
    }

    /// Files are of what is traced, and a file has one content.
    fn check_files(&self) -> Result<(), Wrong> {
        let wrong = |text: String| Err(Wrong::Value(text));
        let Formats { flames, files, printed, .. } = &self.formats;
        if let Some((file, format)) = files.first()
            && (self.flame_from.is_some() || self.postmortem.is_some())
        {
            let (name, file) = (format.name, control::name_text(file));
            return wrong(format!(
                "{file}: a file of {name} is of what is traced: leave out --flame-from and --postmortem"
            ));
        }
        if let Some(format) = printed.filter(|_| self.postmortem.is_some()) {
            return wrong(format!("--format {} is of what is traced: leave out --postmortem", format.name));
        }
        let drawn = flames.iter().map(|(file, _)| file).chain(files.iter().map(|(file, _)| file));
        let mut all: Vec<(PathBuf, &String)> =
            drawn.chain(&self.output).map(|file| (whole(file), file)).collect();
        let of_socket = |address: &Option<String>| address.as_ref()?.strip_prefix("unix:").map(String::from);
        let sockets: Vec<String> =
            [&self.options.listen, &self.options.events].into_iter().filter_map(of_socket).collect();
        all.extend(sockets.iter().map(|path| (whole(path), path)));
        let printed = "standard output".to_string();
        all.extend(printed_file().filter(|_| self.output.is_none()).map(|file| (file, &printed)));
        all.sort_unstable();
        match all.iter().zip(all.iter().skip(1)).find(|((a, _), (b, _))| a == b) {
            Some(((_, file), _)) if !(files.is_empty() && sockets.is_empty()) => {
                wrong(format!("{}: a file can be written once: name another one", control::name_text(file)))
            }
            _ => Ok(()),
        }
    }

    /// Whether a terminal shows what happens.
    pub(crate) fn is_live(&self) -> bool {
        self.live && self.mode == Mode::Trace && !self.compile_only
    }

    /// `--live`
    pub(crate) fn has_live(&self) -> bool {
        self.live
    }

    /// Whether a session starts commands.
    pub(crate) fn runs_commands(&self) -> bool {
        self.targets.iter().any(|wanted| matches!(wanted, Wanted::Run(_)))
    }

    /// Whether a session writes files beside its output.
    pub(crate) fn writes_files(&self) -> bool {
        !self.formats.flames.is_empty() || !self.formats.files.is_empty()
    }

    /// The process of the first `-p`; 0 without one.
    pub(crate) fn first_pid(&self) -> u64 {
        let pid = |wanted: &Wanted| match wanted {
            Wanted::Pid(pid) => u64::try_from(*pid).ok(),
            Wanted::Run(_) => None,
        };
        self.targets.iter().find_map(pid).unwrap_or(0)
    }

    /// The terminal shows what is traced, and text comes at the end.
    fn check_live(&self) -> Result<(), Wrong> {
        let wrong = |text: &str| Err(Wrong::Value(text.into()));
        if !self.live {
            return Ok(());
        }
        if self.flame_from.is_some() || self.postmortem.is_some() {
            return wrong("--live shows what is traced: leave out --flame-from and --postmortem");
        }
        if self.formats.printed.is_some() || self.options.oformat != OutputFormat::Text {
            return wrong(
                "--live has the terminal: --to and --format NAME=FILE write other formats to files",
            );
        }
        Ok(())
    }

    /// Stored events are printed, and nothing is traced.
    fn check_events(&self) -> Result<(), Wrong> {
        let traces = !self.programs.is_empty() || !self.targets.is_empty() || self.live;
        let reads = self.postmortem.is_some() || self.flame_from.is_some() || self.system.is_some();
        if self.events.is_some() && (traces || reads || self.record_system.is_some()) {
            let text = "--events prints the events of a session and traces nothing: leave out the programs, the targets, \
                        and what else reads a file";
            return Err(Wrong::Value(text.into()));
        }
        Ok(())
    }

    /// A record of a machine is no machine to trace.
    fn check_system(&self) -> Result<(), Wrong> {
        let wrong = |text: &str| Err(Wrong::Value(text.into()));
        if self.record_system.is_some() && !self.targets.is_empty() {
            return wrong("--record-system writes a file and traces nothing: leave out -c and -p");
        }
        if self.system.is_none() {
            return Ok(());
        }
        if self.record_system.is_some() || self.postmortem.is_some() || self.flame_from.is_some() {
            return wrong("--system is for -e and -l: leave out what else reads or writes a file");
        }
        if self.mode == Mode::Trace && !self.compile_only {
            return wrong(
                "--system compiles for the machine of a record, which cannot be traced: add -e (what would match there) or -l",
            );
        }
        if !self.targets.is_empty() {
            return wrong("--system: the record of a machine has no processes: leave out -c and -p");
        }
        Ok(())
    }

    /// False if it captures everything, by a program of its own.
    pub(crate) fn captures_script(&self) -> bool {
        self.capture.is_none() || self.capture_for
    }

    /// A capture is of one script, and what is in a file is not traced.
    fn check_captures(&self) -> Result<(), Wrong> {
        let wrong = |text: &str| Err(Wrong::Value(text.into()));
        if self.capture_for && self.capture.is_none() {
            return wrong("--capture-for SCRIPT says what is captured: add --capture FILE");
        }
        let all = [&self.capture, &self.replay, &self.capture_info, &self.system, &self.record_system];
        let others = [&self.flame_from, &self.postmortem];
        let named = all.iter().chain(&others).filter(|file| file.is_some()).count();
        if named > 1 && all.iter().take(3).any(|file| file.is_some()) {
            return wrong(
                "--capture, --replay and --capture-info go with no other option that reads or writes a file of a session",
            );
        }
        if self.capture.is_some() {
            if self.mode != Mode::Trace || self.compile_only {
                return wrong("--capture traces: leave out -l and -e");
            }
            if self.capture_for && self.programs.len() > 1 {
                return wrong(
                    "--capture-for is the program of the session: leave out -s, -n and other programs",
                );
            }
            if self.live || self.writes_files() || self.formats.printed.is_some() {
                return wrong("--capture prints nothing of what it captures: --replay writes every format");
            }
        }
        if self.replay.is_some() && !self.targets.is_empty() {
            return wrong("--replay traces nothing: leave out -c and -p");
        }
        if self.replay.is_some() && self.live {
            return wrong("--live shows what is traced: leave out --replay");
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

    /// Sets an option. Messages quote `words`, the user's spelling.
    fn set(&mut self, name: &str, value: Option<&str>, words: &str) -> Result<(), Wrong> {
        if raw::is_raw(words) {
            return Err(Wrong::Value(format!("failed to set {words}: it is not UTF-8")));
        }
        self.options.set(name, value).map(|_| ()).map_err(|e| {
            let advice = dtrace::options::advice(name, e).map(|a| format!(" ({a})")).unwrap_or_default();
            Wrong::Value(format!("failed to set {words}: {e}{advice}"))
        })
    }
}

/// The file that the standard output is, if it is one.
fn printed_file() -> Option<PathBuf> {
    let path = std::path::Path::new("/proc/self/fd/1").canonicalize().ok()?;
    path.is_file().then_some(path)
}

/// A name of a file from the root, by which two of them are compared. What it leads to is another
/// name of it.
fn whole(file: &str) -> PathBuf {
    let path = file_of(file);
    if let Some(whole) =
        path.canonicalize().ok().filter(|_| !path.starts_with("/dev") && !path.starts_with("/proc"))
    {
        return whole;
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.canonicalize(),
        _ => std::env::current_dir(),
    };
    match (folder, path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path,
    }
}

/// The name of a file, whatever its bytes.
pub(crate) fn file_of(word: &str) -> PathBuf {
    OsString::from_vec(raw::bytes(word)).into()
}

impl Named {
    /// The program's text; reads the file.
    pub(crate) fn read(&self) -> Result<Source, String> {
        match self {
            Named::Text(field, text) => Ok(Source::Specifier(*field, text.clone())),
            Named::Stored(name, text) => Ok(Source::Script(name.clone(), text.clone())),
            Named::File(path) => {
                let mut bytes = Vec::new();
                let read = File::open(file_of(path))
                    .and_then(|f| f.take(LONGEST_SCRIPT + 1).read_to_end(&mut bytes));
                read.map_err(|e| {
                    let path = control::name_text(path);
                    format!("failed to open {path}: {}", dtrace::diagnostics::system_text(&e))
                })?;
                if bytes.len() as u64 > LONGEST_SCRIPT {
                    let path = control::name_text(path);
                    return Err(format!("failed to read {path}: longer than {} MiB", LONGEST_SCRIPT >> 20));
                }
                let text = raw::text(bytes);
                // Some editors write a byte order mark.
                let text = text.strip_prefix('\u{feff}').map(String::from).unwrap_or(text);
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
        let c = parse(&words("-q -n BEGIN -s x.d one -p 12 -c ls -p 12 two -w -b 1m")).unwrap();
        assert_eq!(c.programs, [Named::Text(Field::Name, "BEGIN".into()), Named::File("x.d".into())]);
        assert_eq!(c.targets, [Wanted::Pid(12), Wanted::Run("ls".into())]);
        assert_eq!(c.operands, ["one", "two"]);
        assert!(c.options.quiet && c.options.destructive);
        assert_eq!(c.options.bufsize.0, 1 << 20);
    }

    #[test]
    fn drawn_stacks_are_whole_unless_the_user_limits_them() {
        let frames = |text: &str| {
            let options = parse(&words(text)).unwrap().options;
            [options.kernel_frames(), options.user_frames(), options.jstackframes]
        };
        assert_eq!(frames("-n BEGIN"), [20, 20, 50]);
        assert_eq!(frames("-x ustackframes=7 -n BEGIN --flame x.svg"), [127, 7, 127]);
        assert_eq!(frames("-x maxframes=7 -n BEGIN --flame x.svg"), [7, 7, 127]);
    }

    #[test]
    fn heat_maps_have_intervals_of_a_second_unless_the_user_says_another_length() {
        let every = |text: &str| parse(&words(text)).unwrap().options.text("every");
        assert_eq!(every("-n BEGIN"), "");
        assert_eq!(every("-n BEGIN --heat x.svg"), "1000000000ns");
        assert_eq!(every("-x every=10ms -n BEGIN --heat x.svg"), "10000000ns");
    }

    #[test]
    fn each_way_to_name_a_format_gives_its_file() {
        let files = |text: &str| {
            let formats = parse(&words(text)).unwrap().formats;
            let names = formats.files.iter().map(|(file, format)| format!("{}={file}", format.name));
            let flames = formats.flames.iter().map(|(file, form)| format!("{form:?}={file}"));
            names.chain(flames).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            files("--heat a.svg --to b.json --format csv=c -n BEGIN --to d.folded"),
            "heat=a.svg json=b.json csv=c Folded=d.folded"
        );
        assert_eq!(files("--format flame=a.html --format pprof=b -n BEGIN"), "Html=a.html Pprof=b");
        let c = parse(&words("--format json -n BEGIN --heat x.svg")).unwrap();
        assert_eq!(c.options.text("oformat"), "json");
        assert!(!c.options.processids && parse(&words("-n BEGIN --to x.json")).unwrap().options.processids);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let e = |text: &str| match parse(&words(text)).unwrap_err() {
            Wrong::Usage(m) => m.unwrap_or_default(),
            Wrong::Words(m) | Wrong::Value(m) => m,
        };
        assert!(e("-lV").contains("only one of"));
        assert_eq!(
            e("-x bufsiz=1m -n BEGIN"),
            "failed to set -x bufsiz=1m: Invalid option name (did you mean bufsize?)"
        );
        assert_eq!(
            e("-b 1z"),
            "failed to set -b 1z: Invalid value for specified option (it takes a size, as in 16k or 4m)"
        );
        assert!(e("--system x -n BEGIN").contains("add -e"));
        assert!(e("--system x -e -n BEGIN -p 1").contains("leave out -c and -p"));
        assert!(e("--record-system x -n BEGIN -p 1").contains("leave out -c and -p"));
        assert!(parse(&words("--record-system x -n BEGIN")).is_ok());
        assert!(parse(&words("--system x -e -n BEGIN")).is_ok() && parse(&words("--system x -l")).is_ok());
        assert!(e("--flame x.png -n BEGIN").contains("the name must end with .svg, "));
        assert!(e("--heat x.png -n BEGIN").contains("the name must end with .svg or .html"));
        assert!(e("--heat x.svg --flame x.svg -n BEGIN").contains("x.svg: a file can be written once"));
        assert!(e("--heat x.svg --postmortem core").contains("leave out"));
        assert!(e("--to x.png -n BEGIN").contains("the name must end with .svg, "));
        assert!(e("--to x.svg -n BEGIN").contains("--format flame=x.svg or --format heat=x.svg"));
        assert!(e("--format xml=x -n BEGIN").starts_with("--format xml: there are flame, "));
        assert!(e("--format xml -n BEGIN").contains("Invalid value"));
        assert!(e("--format heat -n BEGIN").contains("--format heat=FILE.svg"));
        assert!(e("--format json= -n BEGIN").contains("the name of the file is missing"));
        assert!(e("--to x.json -o x.json -n BEGIN").contains("x.json: a file can be written once"));
        assert!(e("--to x.json -o ./x.json -n BEGIN").contains("x.json: a file can be written once"));
        assert!(e("-32").contains("-32 is not supported yet") && e("-Al").contains("only one of"));
        assert!(e("-Gh").contains("only one of"));
        assert_eq!(e("--completions csh"), "--completions csh: there are completions for bash, zsh, fish");
        assert!(e("--check --version").contains("only one of"));
        assert_eq!(e("-p x"), "invalid pid: x");
        assert_eq!(e("-p 1x"), "invalid pid: 1x");
    }
}
