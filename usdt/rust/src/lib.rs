//! Probes that a program makes while it runs (dynamic USDT), for dtrace, bpftrace and gdb.
//!
//! ```
//! use dtrace_usdt::{Provider, probe};
//!
//! let mut provider = Provider::new("myapp")?;
//! let request = provider.probe("request-start", "int id, char *path")?;
//! provider.enable()?;
//!
//! probe!(request, 42, "/index.html"); // a load and a test while nobody traces it: the arguments are not evaluated
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! `dtrace -n 'myapp*:::request-start { printf("%d %s", arg0, copyinstr(arg1)); }'` traces it.
//!
//! A crate of probes that are known when it is compiled is better off with static ones, which need
//! no provider at run time. This one is for probes that come from what a program loads: scripts,
//! plug-ins, rules.
//!
//! The decision that shapes it: the C library is compiled in (`build.rs`), so the file that tracers
//! read has one implementation for all languages. This crate is the types around it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The most arguments of a probe.
pub const MAX_ARGUMENTS: usize = 12;

/// `dtusdt_probe`. The library changes both words atomically when a provider is enabled.
#[repr(C)]
struct RawProbe {
    semaphore: AtomicPtr<u16>,
    site: AtomicPtr<c_void>,
}

/// `dtusdt_provider`.
#[repr(C)]
struct RawProvider {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn dtusdt_provider_new(name: *const c_char) -> *mut RawProvider;
    fn dtusdt_probe_add(
        provider: *mut RawProvider,
        name: *const c_char,
        types: *const c_char,
    ) -> *mut RawProbe;
    fn dtusdt_provider_enable(provider: *mut RawProvider, directory: *const c_char) -> c_int;
    fn dtusdt_provider_free(provider: *mut RawProvider);
    fn dtusdt_probe_fire(probe: *const RawProbe, words: *const u64);
}

/// A provider of the library, which is removed with the last of what refers to it.
struct Handle(*mut RawProvider);

// SAFETY: the library has no thread-local state. What changes a provider takes `&mut Provider`, of
// which there is one; its probes read only what is set atomically or does not change.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the pointer is the library's, and no probe is left that could be in use.
        unsafe { dtusdt_provider_free(self.0) }
    }
}

/// A provider: a name, and the probes under it. They are there until the provider and all its
/// probes are dropped.
pub struct Provider(Arc<Handle>);

fn text(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::ErrorKind::InvalidInput.into())
}

impl Provider {
    /// A provider without probes. The name is an identifier of C of at most 53 characters that does
    /// not end with a digit, because the process id follows it.
    pub fn new(name: &str) -> io::Result<Provider> {
        let name = text(name)?;
        // SAFETY: the text lives for the call, and is copied.
        let made = unsafe { dtusdt_provider_new(name.as_ptr()) };
        if made.is_null() { Err(io::Error::last_os_error()) } else { Ok(Provider(Arc::new(Handle(made)))) }
    }

    /// Adds a probe. Hyphens of the name are two underscores in the file. The types are those of C,
    /// with or without names (`int id, char *path`): integers, `bool` and pointers. Errors:
    /// `EINVAL` (the name), `EILSEQ` (the types), `E2BIG` (more than [`MAX_ARGUMENTS`]), `EEXIST`,
    /// `ENOSPC` (too many probes), `EBUSY` (the provider is enabled).
    pub fn probe(&mut self, name: &str, types: &str) -> io::Result<Probe> {
        let (name, types) = (text(name)?, text(types)?);
        // SAFETY: the texts live for the call, and are copied. Nothing else changes the provider.
        let made = unsafe { dtusdt_probe_add(self.0.0, name.as_ptr(), types.as_ptr()) };
        if made.is_null() {
            return Err(io::Error::last_os_error());
        }
        Ok(Probe { raw: made, _provider: self.0.clone() })
    }

    /// Makes the probes visible to tracers. A program goes on without them if that fails.
    pub fn enable(&mut self) -> io::Result<()> {
        self.enable_by(None)
    }

    /// As [`Provider::enable`], by an unlinked file of a directory, where files in memory cannot be
    /// used.
    pub fn enable_in(&mut self, directory: &Path) -> io::Result<()> {
        self.enable_by(Some(CString::new(directory.as_os_str().as_encoded_bytes())?))
    }

    fn enable_by(&mut self, directory: Option<CString>) -> io::Result<()> {
        let directory = directory.as_ref().map_or(std::ptr::null(), |directory| directory.as_ptr());
        // SAFETY: the text lives for the call. Nothing else changes the provider.
        match unsafe { dtusdt_provider_enable(self.0.0, directory) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// A probe. Threads may have one each: a clone is the same probe.
#[derive(Clone)]
pub struct Probe {
    raw: *const RawProbe,
    _provider: Arc<Handle>,
}

// SAFETY: the library's part of it is changed atomically, and lives as long as the provider, which
// this refers to.
unsafe impl Send for Probe {}
// SAFETY: as above.
unsafe impl Sync for Probe {}

impl Probe {
    /// True while somebody traces the probe.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        // SAFETY: the probe and the semaphore to which it points live as long as the provider. The
        // kernel writes the semaphore, so the load is volatile.
        unsafe { (*self.raw).semaphore.load(Ordering::Acquire).read_volatile() != 0 }
    }

    /// Fires the probe, whether somebody traces it or not: [`probe!`] asks first. What is missing
    /// of the arguments is 0.
    pub fn fire(&self, arguments: &[Value<'_>]) {
        let mut words = [0; MAX_ARGUMENTS];
        for (word, argument) in words.iter_mut().zip(arguments) {
            *word = argument.word();
        }
        // SAFETY: the probe lives, and the words are as many as the library reads. It passes them
        // on in registers, and looks at none of the addresses.
        unsafe { dtusdt_probe_fire(self.raw, words.as_ptr()) }
    }
}

/// An argument of a probe.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// An integer or an address.
    Word(u64),
    /// A text with a final NUL.
    Text(&'a CStr),
    /// A text that was copied to have a final NUL.
    Copied(CString),
}

impl Value<'_> {
    fn word(&self) -> u64 {
        match self {
            Value::Word(word) => *word,
            Value::Text(text) => text.as_ptr().addr() as u64,
            Value::Copied(text) => text.as_ptr().addr() as u64,
        }
    }
}

macro_rules! integers {
    ($($type:ty)*) => {
        $(impl From<$type> for Value<'_> {
            fn from(value: $type) -> Self {
                Value::Word(value as u64)
            }
        })*
    };
}

integers!(i8 u8 i16 u16 i32 u32 i64 u64 isize usize bool);

impl<'a> From<&'a CStr> for Value<'a> {
    fn from(text: &'a CStr) -> Self {
        Value::Text(text)
    }
}

impl From<&str> for Value<'_> {
    /// A text up to its first NUL.
    fn from(text: &str) -> Self {
        Value::Copied(CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default())
    }
}

impl From<&String> for Value<'_> {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl<T> From<*const T> for Value<'_> {
    fn from(address: *const T) -> Self {
        Value::Word(address.addr() as u64)
    }
}

/// Fires a [`Probe`] if somebody traces it: `probe!(request, id, path)`. Else the arguments are not
/// evaluated. They are integers, `bool`, `&str`, `&String`, `&CStr` (which is not copied) and
/// addresses (`*const T`).
#[macro_export]
macro_rules! probe {
    ($probe:expr $(, $argument:expr)* $(,)?) => {{
        let probe: &$crate::Probe = &$probe;
        if probe.is_enabled() {
            probe.fire(&[$($crate::Value::from($argument)),*]);
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_types_are_checked() {
        for name in ["", "v2", "a:b", "a b", "a\0", &"x".repeat(54)] {
            assert!(Provider::new(name).is_err(), "{name:?}");
        }
        let mut provider = Provider::new("tst").unwrap();
        for (name, types) in [
            ("", ""),
            ("a:b", ""),
            ("a", "double"),
            ("a", "int,"),
            ("a", "int); probe b("),
            ("a", "struct s s"),
        ] {
            assert!(provider.probe(name, types).is_err(), "{name:?} {types:?}");
        }
        let many = ["int"; MAX_ARGUMENTS].join(", ");
        assert!(provider.probe("many", &many).is_ok());
        assert!(provider.probe("more", &format!("{many}, int")).is_err());
        assert!(provider.probe("many", "").is_err());
    }

    #[test]
    fn arguments_are_not_evaluated_while_nobody_traces_the_probe() {
        let mut provider = Provider::new("tst").unwrap();
        let before = provider.probe("before", "int").unwrap();
        let mut evaluated = 0;
        let mut evaluate = || {
            evaluated += 1;
            evaluated
        };
        probe!(before, evaluate());
        provider.enable().unwrap();
        probe!(before, evaluate());
        assert_eq!(evaluated, 0);
        assert!(provider.enable().is_err() && provider.probe("late", "").is_err());
        assert!(!before.is_enabled());
        drop(provider);
        // The site is there as long as the probe.
        before.fire(&[1.into(), "text".into(), c"text".into(), true.into()]);
        drop(before);
        assert!(!std::fs::read_to_string("/proc/self/maps").unwrap().contains("memfd:dtrace:tst "));
    }
}
