//! The files of results beside what is printed (`--to`, `--format NAME=FILE`, `--heat`), and where
//! metrics are served and sent (`-x listen`, `-x graphite`, `-x otlp`), profiles
//! (`-x otlpprofiles`) and events (`-x events`).
//!
//! A file is replaced as a whole, as those of `--flame` are. One that is known at any time is
//! written from time to time; one that is a stream grows under another name beside it until the
//! session ends. A pipe or a device gets a stream as it comes. A file that can no longer be written
//! (the disk is full) is given up: the session goes on, and its end says so.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use dtrace::Program;
use dtrace::diagnostics::control;
use dtrace::events::{Event, Sink, SinkError, Socket, ThreadName};
use dtrace::formats::{self, Format, Kind, Snapshot};
use dtrace::metrics::delivery::{self, Delivery};
use dtrace::metrics::scrape::Server;
use dtrace::metrics::{Lines, Otlp, Prometheus, Protocol};
use dtrace::options::Options;

use crate::command::{Command, file_of};
use crate::interrupt::Writer;
use crate::replacement::{Replacement, failed, is_of_system, replace, try_file};

/// How often a file is written before the end.
const WRITTEN_EVERY: Duration = Duration::from_millis(900);
/// Writing takes this part of the time at most.
const SHARE: u32 = 50;
/// How long servers have at the end until it is known whether they take what was lost once more.
const REPEATED: Duration = Duration::from_secs(5);

/// What is written beside the output.
pub(crate) struct Exports {
    all: Vec<Export>,
    /// What files lack is not said.
    quiet: bool,
}

struct Export {
    /// The words that ask for it: `--format prometheus`, `-x listen=127.0.0.1:9464`.
    asked: String,
    file: String,
    /// It is of an option: others read it while the session runs.
    is_of_option: bool,
    content: Content,
    /// The session has begun, so there is something to be written.
    begun: bool,
    /// It is written no more.
    failed: bool,
    /// The message of the first trouble, until it is said.
    unsaid: Option<String>,
    /// There was trouble.
    troubled: bool,
}

enum Content {
    Snapshot {
        sink: Box<dyn Snapshot>,
        place: Place,
        changed: bool,
        next: Instant,
    },
    Stream {
        sink: Box<dyn Sink>,
        end: Option<Replacement>,
    },
    /// To a server.
    Sent {
        sink: Box<dyn Sink>,
        delivery: Delivery,
    },
}

/// Where a state is written.
enum Place {
    File,
    /// Prometheus has it there.
    Server(Server),
}

impl Place {
    fn write(&self, file: &str, bytes: Vec<u8>) -> io::Result<()> {
        match self {
            Place::File => replace(&file_of(file), &bytes),
            Place::Server(server) => {
                server.publish(bytes);
                Ok(())
            }
        }
    }
}

/// An option that names a server, or where one is.
pub(crate) struct ServerOption {
    pub(crate) name: &'static str,
    /// Whether a program has something for it. An error is what would be.
    pub(crate) check: fn(&Program) -> Result<(), String>,
    /// It gets what intervals add.
    pub(crate) intervals: bool,
    pub(crate) place: fn(&Options) -> Option<&String>,
    make: fn(&str, &Options) -> io::Result<Content>,
}

/// All of them.
pub(crate) const SERVERS: [ServerOption; 5] = [
    ServerOption {
        name: "listen",
        check: formats::check_metrics,
        intervals: true,
        place: |options| options.listen.as_ref(),
        make: Content::served,
    },
    ServerOption {
        name: "graphite",
        check: formats::check_metrics,
        intervals: true,
        place: |options| options.graphite.as_ref(),
        make: Content::sent_lines,
    },
    ServerOption {
        name: "otlp",
        check: formats::check_metrics,
        intervals: true,
        place: |options| options.otlp.as_ref(),
        make: Content::sent_requests,
    },
    ServerOption {
        name: "otlpprofiles",
        check: formats::check_profiles,
        intervals: true,
        place: |options| options.otlpprofiles.as_ref(),
        make: Content::sent_profiles,
    },
    ServerOption {
        name: "events",
        check: |_| Ok(()),
        intervals: false,
        place: |options| options.events.as_ref(),
        make: Content::events,
    },
];

/// Whether something is made of what intervals add: what is printed, a file, or what a server gets.
pub(crate) fn need_intervals(options: &Options) -> bool {
    let is_asked = |server: &ServerOption| server.intervals && (server.place)(options).is_some();
    options.every.is_some() || SERVERS.iter().any(is_asked)
}

impl Exports {
    /// Prepares the files of a command.
    pub(crate) fn of(command: &Command, options: &Options) -> Result<Exports, String> {
        let make = |(file, format): &(String, &'static Format)| {
            let content = Content::of(file, format, options).map_err(|e| failed(file, &e))?;
            Ok(Export::new(format!("--format {}", format.name), file, false, content))
        };
        let mut all: Vec<Export> = command.formats.files.iter().map(make).collect::<Result<_, String>>()?;
        for option in &SERVERS {
            let Some(place) = (option.place)(options) else { continue };
            let content = (option.make)(place, options).map_err(|e| failed(place, &e))?;
            all.push(Export::new(format!("-x {}={place}", option.name), place, true, content));
        }
        Ok(Exports { all, quiet: options.quiet })
    }

    /// None.
    pub(crate) fn none() -> Exports {
        Exports { all: Vec::new(), quiet: true }
    }

    /// Whether only what is traced is said (`-q`).
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Those that did not fail.
    fn written(&mut self) -> impl Iterator<Item = &mut Export> {
        self.all.iter_mut().filter(|export| !export.failed)
    }

    /// Whom the formats can ask for the names of threads.
    pub(crate) fn set_thread_name(&mut self, ask: ThreadName) {
        for export in self.written() {
            export.content.sink().set_thread_name(ask);
        }
    }

    /// Receives an event. No effect is performed here: one that fails is something that a format
    /// does not have, and a message. The sink goes on.
    pub(crate) fn event(&mut self, event: &Event<'_>) -> Vec<String> {
        // What failed is said when it fails: a session may run for days.
        let mut said: Vec<String> = self.all.iter_mut().filter_map(|export| export.unsaid.take()).collect();
        for export in self.written() {
            export.begun |= matches!(event, Event::Start(_));
            let done = match &mut export.content {
                Content::Snapshot { sink, place, changed, .. } => {
                    *changed |= matches!(
                        event,
                        Event::Interval(_) | Event::Drop(_) | Event::Suppressed(_) | Event::Fault(_)
                    );
                    if let Place::Server(server) = place {
                        said.extend(server.said().map(|text| format!("{}: {text}", export.asked)));
                    }
                    sink.event(event)
                }
                Content::Stream { sink, .. } => sink.event(event),
                Content::Sent { sink, delivery } => {
                    said.extend(delivery.said());
                    sink.event(event)
                }
            };
            match done {
                Ok(()) => {}
                Err(SinkError::Output(e)) => export.note(Err(e)),
                Err(SinkError::Effect(e)) => said.push(format!("{}: {e}", export.asked)),
            }
        }
        said
    }

    /// The events of a batch are complete.
    pub(crate) fn batch_end(&mut self) {
        for export in self.written() {
            let mut trouble = None;
            let done = match &mut export.content {
                Content::Snapshot { sink, place, changed, next } => {
                    if !*changed || Instant::now() < *next {
                        continue;
                    }
                    *changed = false;
                    let begun = Instant::now();
                    // What is empty may have something at the end.
                    let bytes = sink.bytes().ok();
                    let done = bytes.map_or(Ok(()), |bytes| place.write(&export.file, bytes));
                    *next = begun + WRITTEN_EVERY.max(begun.elapsed() * SHARE);
                    match (done, place) {
                        // It is written as a whole the next time.
                        (Err(e), Place::File) => {
                            trouble = Some(format!("{}: it is tried again", failed(&export.file, &e)));
                            Ok(())
                        }
                        (done, _) => done,
                    }
                }
                Content::Stream { sink, .. } => sink.batch_end(),
                Content::Sent { sink, .. } => sink.batch_end(),
            };
            trouble.into_iter().for_each(|text| export.say(text));
            export.note(done);
        }
    }

    /// The session is about to wait: who reads a pipe, or a file, sees what came.
    pub(crate) fn flush(&mut self) {
        // What intervals add without a record is in no batch.
        self.batch_end();
        for export in self.written() {
            if let Content::Stream { sink, .. } = &mut export.content {
                let done = sink.flush();
                export.note(done);
            }
        }
    }

    /// Tracing ended by an error.
    pub(crate) fn aborted(&mut self) {
        for export in self.written() {
            export.content.sink().aborted();
        }
    }

    /// What the files lack of what happened, as messages.
    pub(crate) fn losses(&mut self) -> Vec<String> {
        let quiet = self.quiet;
        let of = |export: &mut Export| {
            let file = control::name_text(&export.file).into_owned();
            let again = match &export.content {
                Content::Snapshot { place: Place::Server(server), .. } => server.again(),
                _ => 0,
            };
            let restarts = if again == 1 { "restart" } else { "restarts" };
            let again = (again > 0).then(|| format!("{again} {restarts} of the process that serves"));
            let unserved = match &export.content {
                Content::Snapshot { place: Place::Server(server), .. } => server.failed(),
                _ => None,
            };
            let unserved = unserved.map(|why| format!("nothing serves at the end: {why}"));
            let losses = export.content.sink().losses().into_iter().chain(again).chain(unserved);
            losses.map(move |lost| format!("{file}: {lost}"))
        };
        // What readers and servers did not get is a loss; a file lacks what did not happen.
        let is_said = |export: &&mut Export| !quiet || export.is_of_option;
        self.written().filter(is_said).flat_map(of).collect()
    }

    /// Writes the files at the end. The errors are messages.
    pub(crate) fn finish(&mut self) -> Result<(), Vec<String>> {
        // Servers are waited for together.
        let until = Instant::now() + REPEATED;
        self.all.iter_mut().for_each(|export| export.close(until));
        let ended: Vec<_> = self.all.drain(..).map(Export::finish).collect();
        let has_failed = ended.iter().any(Result::is_err);
        let wrong = ended.into_iter().filter_map(Result::err).filter(|text| !text.is_empty()).collect();
        if has_failed { Err(wrong) } else { Ok(()) }
    }
}

impl Drop for Exports {
    /// A session that was aborted leaves what there is.
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

impl Export {
    fn new(asked: String, file: &str, is_of_option: bool, content: Content) -> Export {
        let (file, begun, failed) = (file.to_owned(), false, false);
        Export { asked, file, is_of_option, content, begun, failed, unsaid: None, troubled: false }
    }

    /// Keeps the first error. A file that failed gets nothing more.
    fn note(&mut self, done: io::Result<()>) {
        if let Err(e) = done
            && !self.failed
        {
            self.failed = true;
            self.say(format!("{}: the session goes on without it", failed(&self.file, &e)));
        }
    }

    /// Says the first trouble, with the next event.
    fn say(&mut self, text: String) {
        if !std::mem::replace(&mut self.troubled, true) {
            self.unsaid = Some(text);
        }
    }

    /// Sends the last of what is for a server, and does not wait for its answers.
    fn close(&mut self, until: Instant) {
        if let Content::Sent { sink, delivery } = &mut self.content
            && self.begun
            && !self.failed
        {
            let sent =
                sink.flush().and_then(|()| if delivery.may_repeat(until) { sink.repeat() } else { Ok(()) });
            delivery.close();
            self.note(sent);
        }
    }

    /// An empty message: it was said.
    fn finish(self) -> Result<(), String> {
        let Export { asked, file, content, begun, failed: has_failed, unsaid, .. } = self;
        if has_failed {
            return Err(unsaid.unwrap_or_default());
        }
        if !begun {
            return Ok(());
        }
        let done = match content {
            Content::Snapshot { sink, place, .. } => match sink.bytes() {
                Ok(bytes) => place.write(&file, bytes),
                Err(why) => {
                    return Err(format!("{asked}={}: {why}", control::name_text(&file)));
                }
            },
            Content::Stream { mut sink, end } => {
                sink.flush().and_then(|()| end.map_or(Ok(()), Replacement::finish))
            }
            Content::Sent { delivery, .. } => delivery.finish(),
        };
        done.map_err(|e| failed(&file, &e))
    }
}

impl Content {
    fn sink(&mut self) -> &mut dyn Sink {
        match self {
            Content::Snapshot { sink, .. } => &mut **sink,
            Content::Stream { sink, .. } => &mut **sink,
            Content::Sent { sink, .. } => &mut **sink,
        }
    }

    fn of(file: &str, format: &Format, options: &Options) -> io::Result<Content> {
        let path = file_of(file);
        match format.kind {
            Kind::Stream(make) => {
                let (end, out) = match is_special(&path) {
                    true => (None, open_special(&path)?),
                    false => Replacement::new(&path).map(|(end, out)| (Some(end), out))?,
                };
                Ok(Content::Stream { sink: make(Box::new(Writer(out)), options), end })
            }
            Kind::Snapshot(make) => {
                try_file(&path)?;
                let next = Instant::now() + WRITTEN_EVERY;
                Ok(Content::Snapshot { sink: make(file, options), place: Place::File, changed: false, next })
            }
            // The command draws these.
            Kind::Flame(_) => Err(io::Error::from(io::ErrorKind::Unsupported)),
        }
    }

    /// Metrics that are served at an address. Before the first interval there are those of the
    /// exporter.
    fn served(address: &str, _: &Options) -> io::Result<Content> {
        let sink = Prometheus::text();
        let server = Server::start(address, sink.bytes())?;
        let (place, next) = (Place::Server(server), Instant::now());
        Ok(Content::Snapshot { sink: Box::new(sink), place, changed: false, next })
    }

    /// Events for whoever connects to a socket.
    fn events(address: &str, _: &Options) -> io::Result<Content> {
        let path = address.strip_prefix("unix:").unwrap_or(address);
        Ok(Content::Stream { sink: Box::new(Socket::bind(file_of(path))?), end: None })
    }

    /// Lines that are sent to a server of Graphite.
    fn sent_lines(server: &str, _: &Options) -> io::Result<Content> {
        let (out, delivery) = delivery::start(delivery::Server::Graphite(server.into()))?;
        Ok(Content::Sent { sink: Box::new(Lines::new(Protocol::Graphite, out)), delivery })
    }

    /// Requests that are sent to a server of OpenTelemetry.
    fn sent_requests(server: &str, _: &Options) -> io::Result<Content> {
        let (out, delivery) = delivery::start(delivery::Server::Otlp(server.into()))?;
        Ok(Content::Sent { sink: Box::new(Otlp::new(out)), delivery })
    }

    /// Profiles that are sent there.
    fn sent_profiles(server: &str, options: &Options) -> io::Result<Content> {
        let (out, delivery) = delivery::start(delivery::Server::Profiles(server.into()))?;
        Ok(Content::Sent {
            sink: Box::new(dtrace::flame::Otlp::new(formats::unnamed(options), out)),
            delivery,
        })
    }
}

/// Whether a name is of a pipe or a device, which no file can replace.
fn is_special(path: &Path) -> bool {
    let kind = path.metadata().map(|m| m.file_type());
    descriptor(path).is_some()
        || is_of_system(path)
        || kind.is_ok_and(|kind| kind.is_fifo() || kind.is_char_device() || kind.is_socket())
}

/// The number of a descriptor of this process that a name means.
fn descriptor(path: &Path) -> Option<i32> {
    match path.to_str()? {
        "/dev/stdout" => Some(libc::STDOUT_FILENO),
        "/dev/stderr" => Some(libc::STDERR_FILENO),
        name => ["/dev/fd/", "/proc/self/fd/"].iter().find_map(|dir| name.strip_prefix(dir)?.parse().ok()),
    }
}

/// Opens a pipe or a device. A pipe without a reader is an error: one may never come. A descriptor
/// of this process is duplicated: who opens a file anew writes over what is in it.
fn open_special(path: &Path) -> io::Result<File> {
    if let Some(number) = descriptor(path) {
        // SAFETY: a plain system call on a number, whose result nothing else owns.
        return match unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) } {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: it is new.
            own => Ok(unsafe { File::from_raw_fd(own) }),
        };
    }
    let file = File::options().append(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    // SAFETY: a plain system call on an open descriptor: its writes wait again.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_APPEND) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}
