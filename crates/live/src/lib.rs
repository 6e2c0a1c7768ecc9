//! Aggregations as tables that a terminal redraws.
//!
//! [`Live`] is a sink of [events](events), beside the one for text. It keeps what intervals
//! (`-x every`) have added to each key of each aggregation, and draws it: a table of keys with
//! their totals, what the last interval has added, and a line of the last minute; below it the
//! distribution or the stack of the row that is selected. The decision that shapes the crate: *it
//! does no input and no output*. It gets events and keys, and draws into a buffer; so a test needs
//! no terminal, and [`Screen`] alone knows one.
//!
//! ```text
//!  Event::Interval ──model──► panels, rows, histories ──┐
//!  keys ────────────view────► what is shown of them ────┴─draw──► Buffer ──screen──► terminal
//!                     └─► Action: the end, a narrower question, the one before
//!
//!  model    rows by key, with what each of the last intervals has added
//!  cells    texts of values: keys, numbers, literals of D
//!  narrow   the conditions that a row's key sets
//!  keyboard  keys from what a terminal sends
//!  view     what of them is shown: sorted, filtered, selected; what keys do
//!  draw     the picture
//!  screen   the terminal: entered, drawn to, left as it was
//! ```
//!
//! What is shown is bounded: an aggregation has at most 65,536 rows here, and the last thousand
//! lines of what was printed are kept. Names that processes have chosen are data: their control
//! characters are escaped.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! cells keyboard
//! model
//! narrow
//! view
//! draw
//! screen
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod cells;
mod draw;
mod keyboard;
mod model;
mod narrow;
mod screen;
mod view;

pub use keyboard::{Key, Keyboard};
pub use narrow::Narrowing;
pub use screen::{Screen, leave};
pub use view::{Action, Live};
