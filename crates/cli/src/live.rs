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

use dtrace::diagnostics::system_text;
use dtrace::events::{Event, Sink, SinkError};
use dtrace::live::{Action, Live, Screen};
use dtrace::{Message, Text};

use crate::interrupt::{Interrupts, Writer};
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
struct Kept {
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
pub(crate) struct Printer {
    out: Output,
    /// The output is no terminal but the file of `-o`.
    is_file: bool,
    kept: Arc<Mutex<Kept>>,
}

/// The sink of a session that is shown live.
pub(crate) struct LiveResults {
    live: Live,
    screen: Option<Screen<Writer>>,
    text: Text<Printer>,
    kept: Arc<Mutex<Kept>>,
}

impl LiveResults {
    /// Prepares the sink; `program` is what it shows as the program, `depth` narrowings below the
    /// first one.
    pub(crate) fn new(out: Output, is_file: bool, program: &str, depth: usize) -> LiveResults {
        let mut live = Live::new(is_ascii());
        live.begin(program, depth);
        let kept = Arc::new(Mutex::new(Kept::default()));
        let text = Text::new(Printer { out, is_file, kept: Arc::clone(&kept) });
        LiveResults { live, screen: None, text, kept }
    }

    /// Takes the terminal.
    pub(crate) fn open(&mut self) -> io::Result<()> {
        let out = Writer(File::from(io::stdout().as_fd().try_clone_to_owned()?));
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

    /// Gives the terminal back, and prints what was kept, unless another session follows.
    pub(crate) fn close(&mut self, another_follows: bool) {
        if self.screen.take().is_none() {
            return;
        }
        let kept = {
            let mut kept = lock(&self.kept);
            (kept.screen, kept.discard) = (false, another_follows);
            take_kept(&mut kept)
        };
        if another_follows {
            return;
        }
        if kept.dropped > 0 {
            to_stderr(format!(
                "dtrace: {} earlier bytes were on the screen only (-o FILE keeps them)\n",
                kept.dropped
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
        while let Some(key) = screen.key()? {
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
        {
            let mut kept = lock(&self.kept);
            let (text, message) = (take(&mut kept.new_text), kept.new_message.take());
            drop(kept);
            if !text.is_empty() {
                self.live.printed(&text);
            }
            if let Some(message) = message {
                self.live.message(&message);
            }
        }
        if self.live.take_changed() {
            screen.draw(&mut self.live)?;
        }
        Ok(Action::Nothing)
    }
}

impl Sink for LiveResults {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        self.live.event(event)?;
        self.text.event(event)
    }

    fn batch_end(&mut self) -> io::Result<()> {
        self.text.batch_end()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.text.flush()
    }

    fn aborted(&mut self) {
        self.close(false);
        self.text.aborted();
    }
}

impl Drop for LiveResults {
    fn drop(&mut self) {
        self.close(false);
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take_kept(kept: &mut Kept) -> Kept {
    let (screen, discard) = (kept.screen, kept.discard);
    let all = take(kept);
    (kept.screen, kept.discard) = (screen, discard);
    all
}

impl Write for Printer {
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

impl dtrace::Output for Printer {
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
