//! The terminal.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::crossterm::{cursor, execute, terminal};
use ratatui::layout::Rect;

use crate::view::Live;

/// A terminal is ours.
static OPEN: AtomicBool = AtomicBool::new(false);

/// A terminal that is ours: its alternate screen, and each key as it is pressed. It is left as it
/// was when this is dropped.
#[derive(Debug)]
pub struct Screen<W: Write> {
    terminal: CrosstermBackend<W>,
    /// What it shows. `ratatui`'s own terminal would ask where the cursor is, and wait for an
    /// answer that not every terminal gives.
    shown: Buffer,
}

impl<W: Write> Screen<W> {
    /// Enters the terminal of standard input; `out` is the same one.
    pub fn enter(out: W) -> io::Result<Screen<W>> {
        let mut screen = Screen { terminal: CrosstermBackend::new(out), shown: Buffer::default() };
        screen.resume()?;
        Ok(screen)
    }

    /// Enters it again after [`Screen::pause`].
    pub fn resume(&mut self) -> io::Result<()> {
        keep_settings();
        OPEN.store(true, Ordering::SeqCst);
        terminal::enable_raw_mode()?;
        keep_interrupts();
        execute!(self.terminal, terminal::EnterAlternateScreen, cursor::Hide)?;
        self.clear()
    }

    /// Leaves it for a while, as it was.
    pub fn pause(&mut self) -> io::Result<()> {
        OPEN.store(false, Ordering::SeqCst);
        let shown = execute!(self.terminal, terminal::LeaveAlternateScreen, cursor::Show);
        terminal::disable_raw_mode().and(shown)
    }

    /// Whether the terminal has another size than what was drawn.
    pub fn is_resized(&self) -> bool {
        let size = self.terminal.size();
        size.is_ok_and(|size| size.width > 0 && size.height > 0 && size != self.shown.area.as_size())
    }

    /// Forgets what is on the screen, so that everything is drawn.
    pub fn clear(&mut self) -> io::Result<()> {
        self.shown = Buffer::default();
        self.terminal.clear()
    }

    /// Draws what has changed, in the size that the terminal has now.
    pub fn draw(&mut self, live: &mut Live) -> io::Result<()> {
        let mut size = self.terminal.size()?;
        if size.width == 0 || size.height == 0 {
            // A terminal that does not know its size, as that of a serial line.
            size = (80, 24).into();
        }
        let area = Rect::from(((0, 0).into(), size));
        if self.shown.area != area {
            self.terminal.clear()?;
            self.shown = Buffer::empty(area);
        }
        let mut new = Buffer::empty(area);
        live.draw(area, &mut new);
        let changed = self.shown.diff(&new);
        if !changed.is_empty() {
            self.terminal.draw(changed.into_iter())?;
            Backend::flush(&mut self.terminal)?;
        }
        self.shown = new;
        Ok(())
    }
}

impl<W: Write> Drop for Screen<W> {
    fn drop(&mut self) {
        let _ = self.pause();
    }
}

/// Leaves the terminal of a [`Screen`], if there is one, from wherever the process ends: at a
/// panic, whose message must be readable, and in a handler of a signal. It makes only calls that
/// are async-signal-safe, and waits for nobody: a terminal that is not read gets its settings.
pub fn leave() {
    if !OPEN.swap(false, Ordering::SeqCst) {
        return;
    }
    // SAFETY: the settings were stored before `OPEN` was set, and live for ever; plain calls.
    unsafe {
        if let Some(before) = BEFORE.load(Ordering::SeqCst).as_ref() {
            libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, before);
        }
        let mut polled = libc::pollfd { fd: libc::STDOUT_FILENO, events: libc::POLLOUT, revents: 0 };
        if libc::poll(&raw mut polled, 1, 0) == 1 && polled.revents & libc::POLLOUT != 0 {
            libc::write(libc::STDOUT_FILENO, LEAVE.as_ptr().cast(), LEAVE.len());
        }
    }
}

/// The main screen, with a cursor.
const LEAVE: &[u8] = b"\x1b[?1049l\x1b[?25h";

/// The settings of the terminal before it was ours. They are never freed: a handler may read them.
static BEFORE: AtomicPtr<libc::termios> = AtomicPtr::new(std::ptr::null_mut());

/// Stores the settings.
fn keep_settings() {
    // SAFETY: the C library fills the struct.
    unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        if libc::tcgetattr(libc::STDIN_FILENO, &raw mut settings) == 0 {
            BEFORE.store(Box::into_raw(Box::new(settings)), Ordering::SeqCst);
        }
    }
}

/// `^C` stays a signal: the session may be waiting, where nobody reads keys.
fn keep_interrupts() {
    // SAFETY: the C library fills the struct, and reads it.
    unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        if libc::tcgetattr(libc::STDIN_FILENO, &raw mut settings) == 0 {
            settings.c_lflag |= libc::ISIG;
            for key in [libc::VQUIT, libc::VSUSP] {
                if let Some(key) = settings.c_cc.get_mut(key) {
                    *key = libc::_POSIX_VDISABLE;
                }
            }
            libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &raw const settings);
        }
    }
}
