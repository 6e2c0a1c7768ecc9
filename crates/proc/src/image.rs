//! Addresses at which a new process can be stopped, found in its memory and in the file that it
//! runs.
//!
//! ```text
//!  /proc/PID/auxv ── AT_BASE ──► dynamic section of the dynamic linker ──► _dl_debug_state, _r_debug
//!         │
//!         └──────── AT_ENTRY ──► _start, which passes main to __libc_start_main in %rdi
//!                      └ less the entry of /proc/PID/exe: where the program was loaded ──► its symbol main
//! ```
//!
//! Why no ELF library reads this: what the dynamic linker has is read from the memory of a process,
//! in which no section headers are and whose dynamic section may be relocated already. And of a
//! program's file only two tables are read, in chunks: libraries take a file as a slice, or
//! allocate what its headers ask for, which a sparse file of terabytes makes the end of the tracer.
//!
//! Everything read here is under the control of the process: each read is bounded, and a wrong
//! value makes the process stop at a wrong place or not at all, and nothing else. A file, and
//! memory that is a file's, may be on a server that does not answer: they are read by another
//! thread, for a limited time ([`limited`]). Only `auxv` and words that the process has written are
//! read by the thread that traces.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::Caller;
use crate::arch::{Main, start_passes};

const AT_BASE: u64 = 7;
const AT_ENTRY: u64 = 9;
const PT_DYNAMIC: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const SHT_SYMTAB: u64 = 2;
const SHT_DYNSYM: u64 = 11;

/// The state in `struct r_debug` in which the list of libraries is complete.
const RT_CONSISTENT: u64 = 0;

/// Bytes of `auxv`, program headers or the dynamic section that are read at most.
const MOST_HEADERS: usize = 16 << 10;
/// Bytes of each of the dynamic linker's tables of symbols and names that are read at most. (In
/// musl the dynamic linker is the C library.)
const MOST_DYNAMIC: u64 = 1 << 20;
/// Bytes of each of a program's tables of symbols and names that are read at most.
const MOST_TABLE: u64 = 512 << 20;
/// Bytes of the headers of a program's sections that are read at most: those of 65,535 sections.
const MOST_SECTIONS: usize = 4 << 20;
/// Bytes that are read of a file at once.
const CHUNK: usize = 1 << 20;
/// How long a program's file and its memory may take to be read.
const READING: Duration = Duration::from_secs(5);

/// Reads by another thread, which is abandoned if that takes too long.
pub(crate) fn limited<T: Send + 'static>(read: impl FnOnce() -> Option<T> + Send + 'static) -> Option<T> {
    caller().call(READING, read)?
}

/// What makes these reads.
fn caller() -> MutexGuard<'static, Caller> {
    static CALLER: OnceLock<Mutex<Caller>> = OnceLock::new();
    CALLER.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether addresses have four or eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Elf32,
    Elf64,
}
use Class::{Elf32, Elf64};

impl Class {
    /// Of the first bytes of an ELF file.
    fn of(header: &[u8]) -> Option<Class> {
        match header.get(..6)? {
            [0x7f, b'E', b'L', b'F', 1, 1] => Some(Elf32),
            [0x7f, b'E', b'L', b'F', 2, 1] => Some(Elf64),
            _ => None,
        }
    }

    /// Of what the kernel tells a program: pairs of a small number and a value. Of two words of
    /// four bytes that are taken for one of eight, the second is the value of the first.
    fn of_auxv(auxv: &[u8]) -> Option<Class> {
        const MOST: u64 = 1 << 16;
        let mut numbers = auxv.chunks_exact(16).map(|pair| number(pair, 0, 8));
        match numbers.clone().next()? {
            _ if numbers.all(|tag| tag.is_some_and(|tag| tag < MOST)) => Some(Elf64),
            _ => Some(Elf32),
        }
    }

    /// Bytes of an address.
    fn word(self) -> usize {
        match self {
            Elf32 => 4,
            Elf64 => 8,
        }
    }

    /// An address in `bytes`.
    fn address(self, bytes: &[u8], at: usize) -> Option<u64> {
        number(bytes, at, self.word())
    }

    /// One of two constants.
    fn of_two<T>(self, elf32: T, elf64: T) -> T {
        match self {
            Elf32 => elf32,
            Elf64 => elf64,
        }
    }
}

/// A little-endian number of `size` bytes, at most eight.
fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// Reads up to `size` bytes of a process's memory; fewer where a page is missing.
fn memory(pid: i32, address: u64, size: usize) -> Vec<u8> {
    let mut bytes = vec![0u8; size];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: size };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: size };
    // SAFETY: one vector each; the local one is `bytes`. The remote address is not accessed here.
    let read = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    bytes.truncate(usize::try_from(read).unwrap_or(0));
    bytes
}

/// What the kernel told a new program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pid: i32,
    class: Class,
    /// Where the dynamic linker was loaded; 0 for a static program.
    base: u64,
    /// The entry point of the program.
    pub(crate) entry: u64,
}

/// Where the dynamic linker of a process tells debuggers about libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hook {
    image: Image,
    /// The function that it calls after each change.
    pub(crate) function: u64,
    debug: Debug,
}

/// Where `struct r_debug` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Debug {
    /// glibc: the address.
    At(u64),
    /// musl: the address of a pointer.
    Behind(u64),
}

impl Image {
    /// Of a process that is stopped after its exec.
    pub(crate) fn of(pid: i32) -> Option<Image> {
        let mut auxv = Vec::new();
        let file = File::open(format!("/proc/{pid}/auxv")).ok()?;
        file.take(MOST_HEADERS as u64).read_to_end(&mut auxv).ok()?;
        Image::parse(pid, Class::of_auxv(&auxv)?, &auxv)
    }

    fn parse(pid: i32, class: Class, auxv: &[u8]) -> Option<Image> {
        let (mut base, mut entry) = (0, 0);
        for pair in auxv.chunks_exact(2 * class.word()) {
            let value = class.address(pair, class.word())?;
            match class.address(pair, 0)? {
                AT_BASE => base = value,
                AT_ENTRY => entry = value,
                _ => {}
            }
        }
        (entry != 0).then_some(Image { pid, class, base, entry })
    }

    /// True for a program that runs without a dynamic linker.
    pub(crate) fn is_static(&self) -> bool {
        self.base == 0
    }

    /// The dynamic linker's hook for debuggers, by its symbols, which are there before it runs.
    pub(crate) fn hook(&self) -> Option<Hook> {
        let (class, base) = (self.class, self.base);
        let header = memory(self.pid, base, 64);
        (Class::of(&header)? == class).then_some(())?;
        let offset = class.address(&header, class.of_two(28, 32))?;
        let size = number(&header, class.of_two(42, 54), 2)? as usize;
        let count = number(&header, class.of_two(44, 56), 2)? as usize;
        let bytes = size.checked_mul(count).filter(|b| *b <= MOST_HEADERS && size >= class.of_two(32, 56))?;
        let headers = memory(self.pid, base.wrapping_add(offset), bytes);
        let dynamic = headers.chunks_exact(size).find(|h| number(h, 0, 4) == Some(PT_DYNAMIC))?;
        let start = class.address(dynamic, class.of_two(8, 16))?;
        let length = class.address(dynamic, class.of_two(20, 40))?.min(MOST_HEADERS as u64);
        let dynamic = memory(self.pid, base.wrapping_add(start), length as usize);
        let tag = |wanted| {
            let mut tags = dynamic.chunks_exact(2 * class.word());
            let pair = tags.find(|pair| class.address(pair, 0) == Some(wanted))?;
            class.address(pair, class.word())
        };
        let (symbols, names) = (tag(DT_SYMTAB)?, tag(DT_STRTAB)?);
        // The names follow the symbols; nothing else says how many there are.
        let bytes = names.checked_sub(symbols)?.min(MOST_DYNAMIC) as usize;
        // A dynamic linker that has run may have relocated its addresses.
        let place = |address: u64| if address < base { base.wrapping_add(address) } else { address };
        let symbols = memory(self.pid, place(symbols), bytes);
        let names = memory(self.pid, place(names), tag(DT_STRSZ)?.min(MOST_DYNAMIC) as usize);
        let find = |wanted: &[u8]| {
            symbols.chunks_exact(symbol_size(class)).find_map(|symbol| {
                let name = names.get(number(symbol, 0, 4)? as usize..)?;
                let is_it = name.starts_with(wanted) && name.get(wanted.len()) == Some(&0);
                let value = symbol_value(class, symbol).filter(|value| is_it && *value != 0)?;
                Some(base.wrapping_add(value))
            })
        };
        let debug =
            find(b"_r_debug").map(Debug::At).or_else(|| find(b"_dl_debug_addr").map(Debug::Behind))?;
        Some(Hook { image: *self, function: find(b"_dl_debug_state")?, debug })
    }

    /// The function `main`: by its symbol, else by what `_start` passes on.
    pub(crate) fn main(&self) -> Option<Main> {
        let by_symbol = || {
            let file = File::open(format!("/proc/{}/exe", self.pid)).ok()?;
            let (main, entry) = main_of(&file).ok()??;
            Some(Main::At(self.entry.wrapping_sub(entry).wrapping_add(main)))
        };
        let by_start = || match (self.class, start_passes(&memory(self.pid, self.entry, 96), self.entry)) {
            (Elf32, _) => None,
            // A static program relocates itself after its entry.
            (Elf64, Some(Main::Behind(_))) if self.is_static() => None,
            (Elf64, main) => main,
        };
        by_symbol().or_else(by_start)
    }

    /// The word at an address, if it is there in a limited time: the process says what its memory
    /// is, and that of a file whose server does not answer blocks who reads it.
    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        let image = *self;
        limited(move || image.word_now(address))
    }

    fn word_now(&self, address: u64) -> Option<u64> {
        self.class.address(&memory(self.pid, address, self.class.word()), 0)
    }
}

/// Where `main` is in an ELF file, and the entry point: for fuzzing.
pub fn main_in(file: &File) -> Option<(u64, u64)> {
    main_of(file).ok()?
}

/// The hook of a dynamic linker and `main`, in a process whose memory and `auxv` may be anything:
/// for fuzzing.
pub fn places_of(pid: u32, auxv: &[u8]) -> Option<(Option<u64>, Option<u64>)> {
    let image = Image::parse(i32::try_from(pid).ok()?, Class::of_auxv(auxv)?, auxv)?;
    let main = match start_passes(&memory(image.pid, image.entry, 96), image.entry) {
        Some(Main::At(address) | Main::Behind(address)) => Some(address),
        None => None,
    };
    Some((image.hook().map(|hook| hook.function), main))
}

/// The address of the function that the dynamic linker of a process calls before and after each
/// change of its libraries.
pub fn linker_hook(pid: u32) -> Option<u64> {
    Some(Image::of(i32::try_from(pid).ok()?)?.hook()?.function)
}

/// What the dynamic linker is doing when it calls its hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linking {
    /// It has not begun, or is not done.
    Busy,
    /// The libraries are mapped.
    Done,
}

impl Hook {
    /// What the dynamic linker is doing. `begun` says whether it was busy before. It is busy where
    /// its memory does not come in a limited time.
    pub(crate) fn state(&self, begun: bool) -> Linking {
        let hook = *self;
        limited(move || Some(hook.state_now(begun))).unwrap_or(Linking::Busy)
    }

    fn state_now(&self, begun: bool) -> Linking {
        let class = self.image.class;
        let debug = match self.debug {
            Debug::At(address) => Some(address),
            Debug::Behind(address) => self.image.word_now(address),
        };
        let state = debug.and_then(|address| {
            let bytes = memory(self.image.pid, address, 5 * class.word());
            let list = class.address(&bytes, class.word())?;
            let state = number(&bytes, 3 * class.word(), 4)?;
            Some(list != 0 && state == RT_CONSISTENT)
        });
        // In glibc the state is also that of a complete list while only libraries for auditing are
        // loaded. musl calls the hook only once.
        let may_be = begun || matches!(self.debug, Debug::Behind(_));
        if state == Some(true) && may_be { Linking::Done } else { Linking::Busy }
    }
}

/// Bytes of a symbol.
fn symbol_size(class: Class) -> usize {
    class.of_two(16, 24)
}

fn symbol_value(class: Class, symbol: &[u8]) -> Option<u64> {
    class.address(symbol, class.of_two(4, 8))
}

/// Reads a part of a file in chunks, of which each repeats the last `overlap` bytes of the one
/// before, until `each` returns false. The offset is that in the part.
fn chunks(
    file: &File,
    (start, size): (u64, u64),
    overlap: usize,
    mut each: impl FnMut(u64, &[u8]) -> bool,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    let mut done = 0;
    while done < size {
        let wanted = (size - done).min(CHUNK as u64) as usize;
        let Some(place) = start.checked_add(done) else { return Ok(()) };
        let Some(part) = buffer.get_mut(..wanted) else { return Ok(()) };
        file.read_exact_at(part, place)?;
        if !each(done, part) || wanted <= overlap {
            return Ok(());
        }
        done += (wanted - overlap) as u64;
        if done + overlap as u64 >= size {
            return Ok(());
        }
    }
    Ok(())
}

/// The value of the global function `main` in the symbols of an ELF file, and the entry point.
fn main_of(file: &File) -> io::Result<Option<(u64, u64)>> {
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0)?;
    let layout = || {
        let class = Class::of(&header)?;
        let entry = class.address(&header, 24)?;
        let start = class.address(&header, class.of_two(32, 40))?;
        let size = number(&header, class.of_two(46, 58), 2)? as usize;
        let count = number(&header, class.of_two(48, 60), 2)? as usize;
        let bytes = size.checked_mul(count).filter(|bytes| *bytes <= MOST_SECTIONS)?;
        (size >= class.of_two(40, 64)).then_some((class, entry, start, size, bytes))
    };
    let Some((class, entry, start, size, bytes)) = layout() else { return Ok(None) };
    let mut headers = vec![0; bytes];
    file.read_exact_at(&mut headers, start)?;
    let field = |section: &[u8], elf32, elf64| class.address(section, class.of_two(elf32, elf64));
    for kind in [SHT_SYMTAB, SHT_DYNSYM] {
        let place = || {
            let section = headers.chunks_exact(size).find(|s| number(s, 4, 4) == Some(kind))?;
            let names = number(section, class.of_two(24, 40), 4)? as usize;
            let names = headers.chunks_exact(size).nth(names)?;
            let part = |s: &[u8]| Some((field(s, 16, 24)?, field(s, 20, 32)?.min(MOST_TABLE)));
            // Local symbols come first.
            let locals = number(section, class.of_two(28, 44), 4)?.checked_mul(symbol_size(class) as u64)?;
            let (start, bytes) = part(section)?;
            Some(((start.checked_add(locals)?, bytes.checked_sub(locals)?), part(names)?))
        };
        if let Some((symbols, names)) = place()
            && let Some(main) = function_named_main(file, class, symbols, names)?
        {
            return Ok(Some((main, entry)));
        }
    }
    Ok(None)
}

fn function_named_main(
    file: &File,
    class: Class,
    symbols: (u64, u64),
    names: (u64, u64),
) -> io::Result<Option<u64>> {
    const NAME: &[u8] = b"main\0";
    const FUNCTION: u64 = 2;
    // A name may be the end of another one.
    let mut places = std::collections::BTreeSet::new();
    chunks(file, names, NAME.len() - 1, |offset, bytes| {
        let found = bytes.windows(NAME.len()).enumerate().filter(|(_, window)| *window == NAME);
        places.extend(found.map(|(at, _)| offset + at as u64));
        places.len() < CHUNK
    })?;
    let size = symbol_size(class);
    let (start, bytes) = symbols;
    let mut buffer = vec![0; CHUNK / size * size];
    let mut done = 0;
    while done < bytes {
        let wanted = (bytes - done).min(buffer.len() as u64) as usize;
        let Some(part) = buffer.get_mut(..wanted) else { break };
        file.read_exact_at(part, start.saturating_add(done))?;
        let found = part.chunks_exact(size).find_map(|symbol| {
            let kind = number(symbol, class.of_two(12, 4), 1)? & 0xf;
            let is_it = kind == FUNCTION && places.contains(&number(symbol, 0, 4)?);
            symbol_value(class, symbol).filter(|value| is_it && *value != 0)
        });
        if found.is_some() {
            return Ok(found);
        }
        done += wanted as u64;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `_start` with an instruction that loads `%rdi`.
    fn start(load: &[u8]) -> Vec<u8> {
        let before = [
            0xf3, 0x0f, 0x1e, 0xfa, 0x31, 0xed, 0x49, 0x89, 0xd1, 0x5e, 0x48, 0x89, 0xe2, 0x48, 0x83, 0xe4,
            0xf0, 0x50, 0x54, 0x45, 0x31, 0xc0, 0x31, 0xc9,
        ];
        [&before[..], load, &[0xff, 0x15, 1, 2, 3, 4, 0xf4]].concat()
    }

    #[test]
    fn main_is_what_start_passes_in_each_form_of_the_linker() {
        let decode = |load: &[u8]| start_passes(&start(load), 0x1000);
        assert_eq!(decode(&[0x48, 0xc7, 0xc7, 0x36, 0x11, 0x40, 0]), Some(Main::At(0x40_1136)));
        assert_eq!(decode(&[0xbf, 0x36, 0x11, 0x40, 0]), Some(Main::At(0x40_1136)));
        // 24 bytes before, 7 of the instruction.
        assert_eq!(decode(&[0x48, 0x8d, 0x3d, 0x10, 0, 0, 0]), Some(Main::At(0x1000 + 31 + 16)));
        assert_eq!(decode(&[0x48, 0x8d, 0x3d, 0xf0, 0xff, 0xff, 0xff]), Some(Main::At(0x1000 + 31 - 16)));
        assert_eq!(decode(&[0x48, 0x8b, 0x3d, 0x10, 0, 0, 0]), Some(Main::Behind(0x1000 + 31 + 16)));
        // %rdi is not loaded; musl passes the stack; code that is cut off.
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&[0x48, 0x89, 0xe7]), None);
        let code = start(&[0x48, 0x8d, 0x3d, 0x10, 0, 0, 0]);
        for cut in 0..code.len() - 5 {
            assert_eq!(start_passes(&code[..cut], 0x1000), None);
        }
    }

    #[test]
    fn auxv_of_both_classes_gives_the_entry_and_the_dynamic_linker() {
        let wide: Vec<u8> =
            [6u64, 4096, 7, 0x7000, 9, 0x4000, 0, 0].iter().flat_map(|n| n.to_le_bytes()).collect();
        let image = Image::parse(1, Elf64, &wide).unwrap();
        assert_eq!((image.base, image.entry, image.is_static()), (0x7000, 0x4000, false));
        let narrow: Vec<u8> = [9u32, 0x4000, 7, 0, 0, 0].iter().flat_map(|n| n.to_le_bytes()).collect();
        let image = Image::parse(1, Elf32, &narrow).unwrap();
        assert_eq!((image.base, image.entry, image.is_static()), (0, 0x4000, true));
        assert_eq!((Class::of_auxv(&wide), Class::of_auxv(&narrow)), (Some(Elf64), Some(Elf32)));
        // Values that are zero look like wide ones, and not all are.
        let zeros: Vec<u8> =
            [23u32, 0, 33, 5, 9, 0x4000, 0, 0].iter().flat_map(|n| n.to_le_bytes()).collect();
        assert_eq!((Class::of_auxv(&zeros), Class::of_auxv(&zeros[..15])), (Some(Elf32), None));
        assert_eq!(Image::parse(1, Elf64, &[]), None);
        assert_eq!(Image::parse(1, Elf64, &wide[..47]), None);
    }

    /// Held by tests in which reads are abandoned: these are counted for all threads.
    static ABANDONS: Mutex<()> = Mutex::new(());

    /// Waits until no read of another test is blocked.
    fn alone() -> MutexGuard<'static, ()> {
        let alone = ABANDONS.lock().unwrap_or_else(PoisonError::into_inner);
        testing::eventually("the end of abandoned reads", 20 * READING, || caller().blocked() == 0);
        alone
    }

    #[test]
    fn a_file_that_never_answers_is_given_up() {
        let _alone = alone();
        let path = std::env::temp_dir().join(format!("dt-image-{}", std::process::id()));
        let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: a plain system call with a string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        // Nobody opens the other end.
        let file = path.clone();
        assert!(limited(move || File::open(file).ok()).is_none());
        assert_eq!(limited(|| Some(1)), Some(1));
        // The thread ends.
        drop(File::options().write(true).open(&path));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn the_hook_entry_and_main_of_this_process_are_found() {
        let image = Image::of(std::process::id() as i32).unwrap();
        let hook = image.hook().unwrap();
        // The libraries have long been mapped.
        assert_eq!(hook.state(true), Linking::Done);
        assert_eq!(hook.state(false), Linking::Busy);
        let by_symbol = image.main();
        let by_start = start_passes(&memory(image.pid, image.entry, 96), image.entry);
        let address = |main| match main {
            Some(Main::At(address)) => address,
            Some(Main::Behind(word)) => image.word(word).unwrap(),
            None => 0,
        };
        assert_ne!(address(by_symbol), 0);
        assert_eq!(address(by_symbol), address(by_start));
    }

    /// A page that nobody fills: whoever reads it waits, as for that of a file whose server does
    /// not answer.
    #[test]
    fn memory_that_does_not_come_is_not_waited_for() {
        // SAFETY: the structs are those of the kernel's userfaultfd.h, and the page is ours alone.
        // It is registered until the descriptor is closed, which ends the wait.
        let (uffd, page) = unsafe {
            let uffd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
            if uffd < 0 {
                return testing::skipped!("this kernel has no userfaultfd");
            }
            let (protection, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let page = libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0);
            let mut api = [0xaau64, 0, 0];
            assert_eq!(libc::ioctl(uffd as i32, 0xc018_aa3f, api.as_mut_ptr()), 0);
            let mut register = [page as u64, 4096, 1, 0];
            assert_eq!(libc::ioctl(uffd as i32, 0xc020_aa00, register.as_mut_ptr()), 0);
            (uffd as i32, page as u64)
        };
        let image = Image::of(std::process::id() as i32).unwrap();
        let hook = Hook { debug: Debug::At(page), ..image.hook().unwrap() };
        let _alone = alone();
        assert_eq!(hook.state(true), Linking::Busy);
        // One read, which still waits.
        assert_eq!(caller().blocked(), 1);
        // SAFETY: the descriptor is ours.
        unsafe { libc::close(uffd) };
    }

    #[test]
    fn section_headers_of_more_bytes_than_a_program_has_are_not_read() {
        let path = std::env::temp_dir().join(format!("proc-image-headers-{}", std::process::id()));
        let found = |size: u16, count: u16| {
            let mut bytes = vec![0; 64];
            bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
            bytes[58..60].copy_from_slice(&size.to_le_bytes());
            bytes[60..62].copy_from_slice(&count.to_le_bytes());
            std::fs::write(&path, &bytes).unwrap();
            main_of(&File::open(&path).unwrap())
        };
        // Four gigabytes, which the file does not have: they are not asked for.
        assert!(matches!(found(0xffff, 0xffff), Ok(None)));
        assert!(found(64, 0xffff).is_err());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn damaged_files_have_no_main_and_do_not_panic() {
        let path = std::env::temp_dir().join(format!("proc-image-{}", std::process::id()));
        let mut header = std::fs::read("/proc/self/exe").unwrap();
        header.truncate(4096);
        for at in 0..64 {
            let mut bytes = header.clone();
            bytes[at] = 0xff;
            std::fs::write(&path, &bytes).unwrap();
            assert!(!matches!(main_of(&File::open(&path).unwrap()), Ok(Some(_))));
        }
        std::fs::remove_file(path).unwrap();
    }
}
