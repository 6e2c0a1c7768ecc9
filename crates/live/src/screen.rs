//! The terminal.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
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
        OPEN.store(true, Ordering::SeqCst);
        terminal::enable_raw_mode()?;
        execute!(self.terminal, terminal::EnterAlternateScreen, cursor::Hide)?;
        self.clear()
    }

    /// Leaves it for a while, as it was.
    pub fn pause(&mut self) -> io::Result<()> {
        OPEN.store(false, Ordering::SeqCst);
        let shown = execute!(self.terminal, terminal::LeaveAlternateScreen, cursor::Show);
        terminal::disable_raw_mode().and(shown)
    }

    /// Forgets what is on the screen, so that everything is drawn.
    pub fn clear(&mut self) -> io::Result<()> {
        self.shown = Buffer::default();
        self.terminal.clear()
    }

    /// Draws what has changed, in the size that the terminal has now.
    pub fn draw(&mut self, live: &mut Live) -> io::Result<()> {
        let area = Rect::from(((0, 0).into(), self.terminal.size()?));
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

    /// The next key that was pressed, without waiting. `Ok(None)`: none, or the size has changed.
    pub fn key(&mut self) -> io::Result<Option<KeyEvent>> {
        if !event::poll(Duration::ZERO)? {
            return Ok(None);
        }
        Ok(match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => Some(key),
            _ => None,
        })
    }
}

impl<W: Write> Drop for Screen<W> {
    fn drop(&mut self) {
        let _ = self.pause();
    }
}

/// Leaves the terminal of a [`Screen`], if there is one, from wherever the process ends: what a
/// panic prints must be readable.
pub fn leave() {
    if OPEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(io::stdout(), terminal::LeaveAlternateScreen, cursor::Show);
        let _ = terminal::disable_raw_mode();
    }
}
