//! Properties of a function that follow from its name.

use crate::arch::{NORETURN, TRACER};

/// A function that can be traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Function<'l> {
    pub(super) name: &'l str,
    pub(super) module: &'l str,
    /// The address that the kernel patches, from its list; 0 before 6.5.
    pub(super) site: u64,
}

impl Function<'_> {
    /// True for a copy or part of a function that the compiler made. It may have other arguments
    /// than the function in the source.
    pub(super) fn is_clone(&self) -> bool {
        self.name.contains('.')
    }

    /// True for a function that every firing runs itself: see [`TRACER`].
    pub(super) fn is_tracer(&self) -> bool {
        TRACER_KEYS.may_have(self.name) && TRACER.binary_search(&self.name).is_ok()
    }

    /// False for a function that never returns.
    pub(super) fn returns(&self) -> bool {
        !NORETURN_KEYS.may_have(self.name) || NORETURN.binary_search(&self.name).is_err()
    }
}

/// A filter that most names which are not in a list do not pass. Fifty thousand names are looked
/// up, and nearly all are in no list.
struct Keys([u64; 4]);

impl Keys {
    const fn of(names: &[&str]) -> Keys {
        let mut keys = [0; 4];
        let mut i = 0;
        while i < names.len() {
            let key = Keys::key(names[i].as_bytes());
            keys[key / 64] |= 1 << (key % 64);
            i += 1;
        }
        Keys(keys)
    }

    /// A hash of the name's length and its first and last characters.
    const fn key(name: &[u8]) -> usize {
        let (first, last) = match name {
            [] => (0, 0),
            [first, .., last] => (*first as usize, *last as usize),
            [one] => (*one as usize, 0),
        };
        (name.len() * 37 + first * 11 + last * 5) % 256
    }

    fn may_have(&self, name: &str) -> bool {
        let key = Keys::key(name.as_bytes());
        self.0[key / 64] >> (key % 64) & 1 == 1
    }
}

static TRACER_KEYS: Keys = Keys::of(TRACER);
static NORETURN_KEYS: Keys = Keys::of(NORETURN);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_show_clones_tracer_functions_and_functions_that_do_not_return() {
        assert!(NORETURN.is_sorted() && TRACER.is_sorted());
        let f = |name| Function { name, module: "vmlinux", site: 0 };
        assert!(TRACER.iter().all(|name| f(name).is_tracer()));
        assert!(NORETURN.iter().all(|name| !f(name).returns()));
        assert!(f("ovl.isra.0").is_clone() && !f("vfs_read").is_clone());
        assert!(f("migrate_disable").is_tracer() && !f("vfs_read").is_tracer());
        assert!(!f("do_exit").returns() && f("do_exit_not").returns());
    }
}
