//! The aggregations of a session that cannot go on.
//!
//! What was merged of them is printed by whoever notices, a panic hook as a rule: on another
//! thread, while the one that has the consumer is stopped anywhere. So nothing here waits: a lock
//! that is not free at once is tried again by the caller, or not. The consumer holds it for writing
//! only while it merges, and for reading where it decodes, names and prints, which is where most
//! can go wrong.

use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::{Arc, RwLock, RwLockReadGuard, TryLockError};

use events::Occasion;
use plane::desc::AggId;

use crate::agg::store::Store;
use crate::names::Names;
use crate::options::Options;
use crate::outlet::Outlet;
use crate::printer::AnyOutput;
use crate::record::Tables;
use crate::state::{Delivered, deliver_rows};
use crate::symbolizer::NoSymbols;
use crate::text::Text;

/// See the [module](self).
#[derive(Clone)]
pub struct Merged {
    store: Arc<RwLock<Store>>,
    tables: Arc<RwLock<Tables>>,
    options: Options,
}

impl fmt::Debug for Merged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Merged")
    }
}

fn try_read<T>(lock: &RwLock<T>) -> io::Result<RwLockReadGuard<'_, T>> {
    match lock.try_read() {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(guard)) => Ok(guard.into_inner()),
        Err(TryLockError::WouldBlock) => Err(ErrorKind::WouldBlock.into()),
    }
}

impl Merged {
    pub(crate) fn new(store: Arc<RwLock<Store>>, tables: Arc<RwLock<Tables>>, options: Options) -> Merged {
        Merged { store, tables, options }
    }

    /// Prints all aggregations as of the last snapshot, in their default form. Addresses have no
    /// names, and stacks that were not printed before are empty. Waits for nothing: where an
    /// aggregation is being changed, the error is [`WouldBlock`](ErrorKind::WouldBlock), and
    /// nothing is printed. False if there is nothing to print.
    pub fn print(&self, out: AnyOutput) -> io::Result<bool> {
        let (store, tables) = (try_read(&self.store)?, try_read(&self.tables)?);
        let mut out = Outlet::new(Text::of_stored_events(out), &self.options);
        let mut symbols = NoSymbols;
        let mut names = Names { symbols: &mut symbols, target: None, time: None, of_stacks: true };
        let mut shown = false;
        for id in (0..store.aggs.len() as u32).map(AggId) {
            let rows = Delivered { aggs: &[id], format: None, occasion: Occasion::Demand, time: None };
            shown |= deliver_rows(&store, &tables, &mut names, &self.options, &rows, &mut out)?;
        }
        out.batch_end()?;
        out.flush()?;
        Ok(shown)
    }
}
