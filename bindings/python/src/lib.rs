//! The package `dtrace` of Python: what of it is in Rust, the module `dtrace._dtrace`. It knows
//! the library `dtrace` and nothing below it. The classes that users see, results and pictures
//! are Python (`python/dtrace`).
//!
//! ```text
//!  Python: dtrace.run, dtrace.session ──> Session (class of this module)
//!                                           │  next: pop an event, else work without the GIL
//!  dtrace::Session<Receiver> <──────────────┘
//!     └──> Receiver: events in a queue; text; what pictures are drawn of
//!            └──convert──> objects of the classes in python/dtrace/_types.py
//!
//!  types     the classes of Python, and texts and numbers as its objects
//!  receiver  the sink
//!  convert   events as objects
//!  errors    errors as exceptions with their diagnostics
//!  signals   ^C during what takes long
//!  session   the class
//! ```
//!
//! **Nobody waits with the GIL held.** A call of [`session::Session`] lets go of it before it takes
//! the session's lock, and waits for a tenth of a second at most before it asks Python for signals.
//! So ^C ends it, and other threads run.
//!
//! **No panic gets to Python.** It ends the session and is an error of this package as others.
//!
//! **A child of `fork` has no session.** It has a copy of the parent's, which it may not touch:
//! every call is an error there, and dropping the copy does nothing. Another thread of the parent
//! may have held its lock, so the child does not even ask for that. What the session has in the
//! kernel is closed in the child when it begins (`dtrace::close_in_forked_children`).
//!
//! **Symbols of processes are read by another program**: the executable here is Python. The package
//! brings the command `dtrace` along, of the same build.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! types
//! errors receiver signals
//! convert
//! session
//! ```

mod convert;
mod errors;
mod receiver;
mod session;
mod signals;
mod types;

use pyo3::prelude::*;

/// The module `dtrace._dtrace`.
#[pymodule]
fn _dtrace(module: &Bound<'_, PyModule>) -> PyResult<()> {
    dtrace::close_in_forked_children();
    module.add("version", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<session::Session>()
}
