//! Which code an input reached, by the counters that `-C instrument-coverage` puts into a program.

/// Finds inputs that reach new code.
pub(crate) struct Coverage {
    seen: Vec<bool>,
    /// Counters that were ever reached.
    pub(crate) reached: usize,
}

unsafe extern "C" {
    fn __llvm_profile_begin_counters() -> *mut u64;
    fn __llvm_profile_end_counters() -> *mut u64;
}

fn counters() -> &'static mut [u64] {
    // SAFETY: the runtime's section of counters, which only running code adds to; one thread looks
    // at it.
    unsafe {
        let (begin, end) = (__llvm_profile_begin_counters(), __llvm_profile_end_counters());
        std::slice::from_raw_parts_mut(begin, end.offset_from(begin).max(0) as usize)
    }
}

impl Coverage {
    pub(crate) fn new() -> Coverage {
        Coverage { seen: vec![false; counters().len()], reached: 0 }
    }

    /// Forgets what was reached.
    pub(crate) fn begin() {
        counters().fill(0);
    }

    /// True if code was reached that no earlier input has reached.
    pub(crate) fn is_new(&mut self) -> bool {
        let before = self.reached;
        for (counter, seen) in counters().iter().zip(&mut self.seen) {
            if *counter != 0 && !*seen {
                *seen = true;
                self.reached += 1;
            }
        }
        self.reached > before
    }
}
