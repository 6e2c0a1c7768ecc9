//! The terminal of `--live`: what is shown while a session runs, and what its keys ask.
//!
//! While the screen is ours, nothing else writes to the terminal: printed text and messages are
//! kept and shown there. They are written when it has been left, before what the session prints at
//! its end.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::mem::take;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dtrace::diagnostics::system_text;
use dtrace::events::{Event, Sink, SinkError};
use dtrace::live::{Action, Key, Keyboard, Live, Screen};
use dtrace::{Message, Printer};

use crate::interrupt::{self, Interrupts, Writer};
use crate::output::{Output, to_stderr};

/// The most bytes of printed text that wait for the end of the screen.
const MOST_TEXT: usize = 1 << 20;
/// The most messages that do.
const MOST_MESSAGES: usize = 1000;

/// Why `--live` cannot work here.
pub(crate) fn obstacle() -> Option<String> {
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    (!terminal).then(|| "--live needs a terminal as standard input and output; --to writes files".into())
}

/// Whether the terminal shows only characters of ASCII: what the locale says, as programs in C read
/// it.
fn is_ascii() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(std::env::var_os);
    let locale = locale.map(|text| text.to_string_lossy().to_lowercase()).find(|text| !text.is_empty());
    !locale.is_some_and(|text| text.contains("utf-8") || text.contains("utf8"))
}

/// What is printed while the screen is ours.
#[derive(Default)]
pub(crate) struct Kept {
    /// The screen is ours.
    screen: bool,
    /// What the session prints is not wanted: another one follows.
    discard: bool,
    text: Vec<u8>,
    /// Bytes of text that were dropped from its beginning.
    dropped: u64,
    messages: Vec<String>,
    /// Messages that were left out.
    more_messages: u64,
    /// What the screen has not shown yet.
    new_text: Vec<u8>,
    new_message: Option<String>,
}

/// The output of the text beside the screen.
struct Beside {
    out: Output,
    /// The output is no terminal but the file of `-o`.
    is_file: bool,
    kept: Arc<Mutex<Kept>>,
}

/// The sink of a session that is shown live.
pub(crate) struct LiveResults {
    live: Live,
    screen: Option<Screen<Writer>>,
    keyboard: Keyboard,
    /// Something else has written to the terminal.
    is_covered: bool,
    text: Box<dyn Sink>,
    kept: Arc<Mutex<Kept>>,
}

impl LiveResults {
    /// Prepares the sink; `program` is what it shows as the program, `depth` narrowings below the
    /// first one, and `before` what the sessions before have printed.
    pub(crate) fn new(
        out: Output,
        is_file: bool,
        (program, depth): (&str, usize),
        before: Kept,
    ) -> LiveResults {
        let mut live = Live::new(is_ascii());
        live.begin(program, depth);
        let kept = Arc::new(Mutex::new(before));
        let text = Printer::Text.sink(Box::new(Beside { out, is_file, kept: Arc::clone(&kept) }));
        LiveResults { live, screen: None, keyboard: Keyboard::default(), is_covered: false, text, kept }
    }

    /// Takes the terminal.
    pub(crate) fn open(&mut self) -> io::Result<()> {
        let out = Writer(File::from(io::stdout().as_fd().try_clone_to_owned()?));
        interrupt::leave_terminal();
        let mut screen = Screen::enter(out)?;
        lock(&self.kept).screen = true;
        screen.draw(&mut self.live)?;
        self.screen = Some(screen);
        Ok(())
    }

    /// Shows a message in the last line.
    pub(crate) fn message(&mut self, text: &str) {
        self.live.message(text);
    }

    /// Gives the terminal back, for another session that follows: what was printed is for its end.
    pub(crate) fn hand_over(&mut self) -> Kept {
        self.screen = None;
        let mut kept = lock(&self.kept);
        let all = take(&mut *kept);
        kept.discard = true;
        Kept { screen: false, ..all }
    }

    /// Gives the terminal back, and prints what was kept: also what sessions before this one have
    /// printed, if it did not begin.
    pub(crate) fn close(&mut self) {
        self.screen = None;
        let kept = {
            let mut kept = lock(&self.kept);
            let discard = kept.discard;
            std::mem::replace(&mut *kept, Kept { discard, ..Kept::default() })
        };
        if kept.dropped > 0 {
            let dropped = kept.dropped;
            to_stderr(format!(
                "dtrace: {dropped} earlier bytes were on the screen only (-o FILE keeps them)\n"
            ));
        }
        if kept.more_messages > 0 {
            to_stderr(format!("dtrace: {} earlier messages were on the screen only\n", kept.more_messages));
        }
        kept.messages.into_iter().for_each(to_stderr);
        let _ = io::stdout().write_all(&kept.text).and_then(|()| io::stdout().flush());
    }

    /// Draws what is new, and answers the keys that were pressed. The last one that asks something
    /// of the session is the answer.
    pub(crate) fn turn(&mut self) -> io::Result<Action> {
        let Some(screen) = &mut self.screen else { return Ok(Action::Nothing) };
        for key in pressed(&mut self.keyboard)? {
            match self.live.key(key) {
                Action::Nothing => {}
                Action::Redraw => screen.clear()?,
                Action::Suspend => {
                    screen.pause()?;
                    // SAFETY: the process stops here until the shell continues it.
                    unsafe { libc::raise(libc::SIGTSTP) };
                    screen.resume()?;
                }
                asked => return Ok(asked),
            }
        }
        let (text, message) = {
            let mut kept = lock(&self.kept);
            (take(&mut kept.new_text), kept.new_message.take())
        };
        if !text.is_empty() {
            self.live.printed(&text);
        }
        if let Some(message) = message {
            self.live.message(&message);
        }
        if take(&mut self.is_covered) {
            screen.clear()?;
            self.live.change();
        }
        if self.live.take_changed() || screen.is_resized() {
            screen.draw(&mut self.live)?;
        }
        Ok(Action::Nothing)
    }
}

/// What remains of a key that comes in parts is there within this time.
const REST: Duration = Duration::from_millis(30);

/// The keys that were pressed. The end of the terminal is an error.
fn pressed(keyboard: &mut Keyboard) -> io::Result<Vec<Key>> {
    let mut keys = Vec::new();
    let is_readable = |wait: Duration| {
        let mut polled = libc::pollfd { fd: libc::STDIN_FILENO, events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&raw mut polled, 1, wait.as_millis() as libc::c_int) == 1 }
    };
    while is_readable(if keyboard.is_waiting() { REST } else { Duration::ZERO }) {
        let mut bytes = [0u8; 1024];
        // SAFETY: the kernel writes at most so many bytes. Without the standard library's buffer,
        // nothing is left where it is not seen.
        let read = unsafe { libc::read(libc::STDIN_FILENO, bytes.as_mut_ptr().cast(), bytes.len()) };
        match usize::try_from(read) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => keys.extend(keyboard.keys(bytes.get(..length).unwrap_or_default(), false)),
            Err(_) => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => break,
                e => return Err(e),
            },
        }
    }
    if keyboard.is_waiting() {
        keys.extend(keyboard.keys(&[], true));
    }
    Ok(keys)
}

impl Sink for LiveResults {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        self.live.event(event)?;
        // A command of `system()` has the terminal.
        self.is_covered |= matches!(event, Event::Effect(_));
        self.text.event(event)
    }

    fn batch_end(&mut self) -> io::Result<()> {
        self.text.batch_end()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.text.flush()
    }

    fn aborted(&mut self) {
        self.close();
        self.text.aborted();
    }
}

impl Drop for LiveResults {
    fn drop(&mut self) {
        self.close();
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Write for Beside {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = lock(&self.kept);
        if kept.screen {
            kept.new_text.extend_from_slice(bytes);
            let over = kept.new_text.len().saturating_sub(MOST_TEXT);
            kept.new_text.drain(..over);
        }
        if self.is_file {
            drop(kept);
            return self.out.write(bytes);
        }
        if kept.screen {
            kept.text.extend_from_slice(bytes);
            let over = kept.text.len().saturating_sub(MOST_TEXT);
            kept.text.drain(..over);
            kept.dropped += over as u64;
            return Ok(bytes.len());
        }
        if kept.discard {
            return Ok(bytes.len());
        }
        drop(kept);
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl dtrace::Output for Beside {
    fn truncate(&mut self) -> io::Result<()> {
        self.out.truncate()
    }

    fn messages(&mut self, messages: &[Message]) -> io::Result<()> {
        let mut kept = lock(&self.kept);
        if !kept.screen {
            drop(kept);
            return self.out.messages(messages);
        }
        for message in messages.iter().filter(|message| self.out.shown.has(message)) {
            kept.new_message = Some(message.to_string());
            if kept.messages.len() < MOST_MESSAGES {
                kept.messages.push(format!("dtrace: {message}\n"));
            } else {
                kept.more_messages += 1;
            }
        }
        Ok(())
    }
}

/// What a session waits for besides its own: an interrupt, or a key.
pub(crate) struct Requests(OwnedFd);

impl Requests {
    pub(crate) fn of(interrupts: &Interrupts) -> Result<Requests, String> {
        let failed = || format!("failed to wait for keys: {}", system_text(&io::Error::last_os_error()));
        // SAFETY: plain system calls; the descriptor is ours, and each event lives during its call.
        unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if fd < 0 {
                return Err(failed());
            }
            let all = OwnedFd::from_raw_fd(fd);
            for fd in [interrupts.fd().as_raw_fd(), libc::STDIN_FILENO] {
                let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
                if libc::epoll_ctl(all.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) < 0 {
                    return Err(failed());
                }
            }
            Ok(Requests(all))
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
