//! The language runtimes whose functions `jstack()` shows: a row for each runtime and version.
//!
//! An interpreter runs many functions of its language in one frame of the processor's stack, and
//! has a list of its own of them. What follows such a list, stores what functions are called, and
//! shows them knows *frames of a runtime*, never which one that is. Who has to know asks here. One
//! row is a module of this crate and a walker:
//!
//! ```text
//!  this crate     the variant of `Runtime`, and its module: how the runtime is found in a file, and the layout of its memory
//!  bpf-codegen    `routines/runtimes`: the walker, a part of a program in the kernel that follows the frames and copies the names
//! ```
//!
//! ```text
//!  file of a process ──► Instance: runtime, address of its state     find, asked by the reader of `symbols`
//!    ──► word behind the ranges of its address space                 dtrace::unwinder, `plane::unwind`
//!    ──► the walker of that runtime                                  bpf-codegen
//!    ──► words of frames in the stack, names in the store            `plane::calls`, which is the same for all
//!    ──► frames with a name, a file and a line                       consumer
//! ```
//!
//! The crate depends on no other and opens nothing: it asks an [`Image`], which a traced process
//! chose.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! image
//! cpython_3_11
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod cpython_3_11;
mod image;

pub use image::Image;

/// A runtime and its version, by the number that programs know it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Runtime {
    /// CPython 3.11.
    Cpython3_11 = 1,
}

impl Runtime {
    /// All of them.
    pub const ALL: [Runtime; 1] = [Runtime::Cpython3_11];

    /// The number by which programs and the reader's answers say which it is. Never 0.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The runtime of a number. `None`: there is none.
    pub fn of_number(number: u8) -> Option<Runtime> {
        Runtime::ALL.into_iter().find(|runtime| runtime.number() == number)
    }

    /// The address of its state, if the file is this runtime.
    fn state(self, image: &dyn Image) -> Option<u64> {
        match self {
            Runtime::Cpython3_11 => cpython_3_11::state(image),
        }
    }
}

/// A runtime in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instance {
    /// Which it is.
    pub runtime: Runtime,
    /// The address of its state, from which its walker goes: of the file, or of a process that has
    /// mapped it.
    pub state: u64,
}

impl Instance {
    /// The runtime that is in a file. `None`: none that is known.
    pub fn find(image: &dyn Image) -> Option<Instance> {
        Runtime::ALL.into_iter().find_map(|runtime| Some(Instance { runtime, state: runtime.state(image)? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_runtime_has_a_number_of_its_own_and_none_has_0() {
        for runtime in Runtime::ALL {
            assert_eq!(Runtime::of_number(runtime.number()), Some(runtime));
        }
        assert_eq!(Runtime::of_number(0), None);
        assert_eq!(Runtime::of_number(u8::MAX), None);
    }

    /// A file with a section, and a symbol with its value.
    struct Given {
        section: &'static str,
        symbol: (&'static str, u64),
    }

    impl Image for Given {
        fn section(&self, name: &str) -> Option<u64> {
            (name == self.section).then_some(0x5000)
        }

        fn word(&self, symbol: &str) -> Option<u64> {
            (symbol == self.symbol.0).then_some(self.symbol.1)
        }
    }

    #[test]
    fn cpython_is_found_by_its_section_and_its_version() {
        let find = |section, symbol| Instance::find(&Given { section, symbol });
        // 3.11.2 and 3.11.15, final releases.
        for version in [0x030b_02f0, 0x030b_0ff0] {
            let found = Instance { runtime: Runtime::Cpython3_11, state: 0x5000 };
            assert_eq!(find(".PyRuntime", ("Py_Version", version)), Some(found));
        }
        assert_eq!(find(".PyRuntime", ("Py_Version", 0x030c_02f0)), None);
        assert_eq!(find(".PyRuntime", ("Other", 0x030b_02f0)), None);
        assert_eq!(find(".data", ("Py_Version", 0x030b_02f0)), None);
    }
}
