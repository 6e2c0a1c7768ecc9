//! Which file a mapping really has: device and inode below overlays.
//!
//! A container's file is often a file of a lower directory, seen through an overlay. What happens
//! to the lower file happens to all of its overlays, so it is known by its own device and inode.
//! User space sees only the overlay's: in `/proc/PID/maps`, by `stat`, in records of mappings.
//!
//! ```text
//!  iterator    a program reads them from the mappings of a process    where the kernel has task_vma iterators
//!  layers      the overlay's directories are searched for the path    where they can be reached
//!  neither     Identity::Seen: two such files may be one
//! ```
//!
//! *A process must not choose its file's identity.* The text of an overlay's directories is that of
//! whoever mounted it. It is believed only in a mount namespace of this process's user namespace:
//! in one of its own a container mounts overlays as it likes, and a file server of its own shows
//! any inode, size and time.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use bpf_sys::insn::{Alu, Helper, Insn, Jmp, Reg, Size};
use bpf_sys::{AttachType, Prog, ProgKind, ProgSpec, iterate_process};
use proc::Caller;
use proc::watcher::PATIENCE;
use types::btf::{BtfKind, KernelBtf};

use crate::open::{Handle, ProcessDir, Root, RootKey};
use crate::sys;

/// A file by device (major, minor) and inode of the file system that has its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RealInode {
    /// Major and minor number of the device.
    pub dev: (u32, u32),
    /// The inode.
    pub inode: u64,
}

/// What is known about a file's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// The file itself.
    Real(RealInode),
    /// Only what processes see. Another file that is seen may be the same file.
    Seen(RealInode),
}

/// A mapping of a file, as the iterator reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealMapping {
    /// First address.
    pub start: u64,
    /// Address after the last one.
    pub end: u64,
    /// The file.
    pub file: RealInode,
}

/// What the program writes for a mapping: start, end, inode, device.
const RECORD: usize = 32;

/// Bytes that are read about one process: as many mappings as a process may have.
const MOST: u64 = (RECORD << 17) as u64;

/// Maximum size of a list of mounts, in bytes.
const MAX_MOUNTS: u64 = 16 << 20;

/// Reads the real files of processes. The program is loaded at the first use.
///
/// A process can keep the lock of its address space, and the iterator waits for it. So another
/// thread runs the iterator ([`Caller`]), and a process that takes too long has no real files.
#[derive(Debug, Default)]
pub struct RealFiles {
    program: Option<Result<Arc<Prog>, String>>,
    caller: Caller,
}

impl RealFiles {
    /// The mappings of files of a running process, sorted by address. An error says why this
    /// kernel, or the privileges of this process, do not allow it.
    pub fn of_process(&mut self, pid: u32) -> Result<Vec<RealMapping>, String> {
        let program = self.program.get_or_insert_with(|| load().map(Arc::new)).clone()?;
        let bytes = self.caller.call(PATIENCE, move || iterate_process(&program, pid, MOST));
        let bytes = bytes.ok_or("its mappings cannot be read in time")?.map_err(|e| e.to_string())?;
        Ok(bytes.chunks_exact(RECORD).filter_map(mapping).collect())
    }

    /// The identity of a file that a process has mapped at an address. `seen` is what user space
    /// sees.
    pub fn identify(&mut self, pid: u32, addr: u64, seen: RealInode) -> Identity {
        let found = self
            .of_process(pid)
            .ok()
            .and_then(|all| all.into_iter().find(|m| (m.start..m.end).contains(&addr)).map(|m| m.file));
        found.map_or(Identity::Seen(seen), Identity::Real)
    }
}

fn mapping(record: &[u8]) -> Option<RealMapping> {
    let word = |at: usize| Some(u64::from_ne_bytes(record.get(at..at + 8)?.try_into().ok()?));
    // The kernel's own encoding of a device: 12 bits, 20 bits.
    let dev = word(24)? as u32;
    let file = RealInode { dev: (dev >> 20, dev & 0xf_ffff), inode: word(16)? };
    Some(RealMapping { start: word(0)?, end: word(8)?, file })
}

/// The program: `bpf_seq_write(meta->seq, {vm_start, vm_end, i_ino, s_dev}, 32)` for each mapping
/// of a file. The file of a mapping through an overlay is that of the layer.
fn load() -> Result<Prog, String> {
    let kernel = KernelBtf::running();
    let btf = kernel.vmlinux().map_err(ToString::to_string)?;
    let offset = |path: &str| {
        let field = btf.field(path).and_then(|field| i16::try_from(field.offset()).ok());
        field.ok_or_else(|| format!("the kernel's types have no {path}"))
    };
    let target = btf.find(&[BtfKind::Func], "bpf_iter_task_vma");
    let target = target.ok_or("the kernel has no task_vma iterators")?;
    let (ctx, vma, file, value) = (Reg::R6, Reg::R7, Reg::R8, Reg::R1);
    let (frame, at) = (Reg::R10, |n: i16| n * 8 - RECORD as i16);
    let mut code = vec![
        Insn::mov64(ctx, Reg::R1),
        Insn::ldx(Size::B8, vma, ctx, offset("bpf_iter__task_vma.vma")?),
        Insn::jmp_imm(Jmp::Ne, vma, 0, 2),
        Insn::mov64_imm(Reg::R0, 0),
        Insn::exit(),
        Insn::ldx(Size::B8, file, vma, offset("vm_area_struct.vm_file")?),
        Insn::jmp_imm(Jmp::Ne, file, 0, 2),
        Insn::mov64_imm(Reg::R0, 0),
        Insn::exit(),
    ];
    for (n, path) in (0..).zip(["vm_area_struct.vm_start", "vm_area_struct.vm_end"]) {
        code.extend([
            Insn::ldx(Size::B8, value, vma, offset(path)?),
            Insn::stx(Size::B8, frame, at(n), value),
        ]);
    }
    code.extend([
        Insn::ldx(Size::B8, file, file, offset("file.f_inode")?),
        Insn::ldx(Size::B8, value, file, offset("inode.i_ino")?),
        Insn::stx(Size::B8, frame, at(2), value),
        Insn::ldx(Size::B8, value, file, offset("inode.i_sb")?),
        Insn::ldx(Size::B4, value, value, offset("super_block.s_dev")?),
        Insn::stx(Size::B8, frame, at(3), value),
        Insn::ldx(Size::B8, Reg::R1, ctx, offset("bpf_iter__task_vma.meta")?),
        Insn::ldx(Size::B8, Reg::R1, Reg::R1, offset("bpf_iter_meta.seq")?),
        Insn::mov64(Reg::R2, frame),
        Insn::alu64_imm(Alu::Add, Reg::R2, -(RECORD as i32)),
        Insn::mov64_imm(Reg::R3, RECORD as i32),
        Insn::call(Helper::SEQ_WRITE),
        Insn::mov64_imm(Reg::R0, 0),
        Insn::exit(),
    ]);
    let spec = ProgSpec {
        attach: AttachType::TraceIter,
        attach_btf_id: target,
        ..ProgSpec::new(ProgKind::Tracing, "files", &code)
    };
    Prog::load(&spec).map_err(|failure| failure.error.to_string())
}

/// An overlay that is mounted in a process's mount namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Overlay {
    /// The id of the mount.
    mount: u64,
    /// Where it is mounted, from the root of the process.
    mount_point: Vec<u8>,
    /// Its directories, the uppermost first.
    layers: Vec<Vec<u8>>,
}

/// The overlays among the lines of `/proc/PID/mountinfo`, in their order.
fn overlays(mountinfo: &[u8]) -> Vec<Overlay> {
    mountinfo.split(|b| *b == b'\n').filter_map(overlay).collect()
}

/// ```text
/// 36 35 0:31 / /merged rw,relatime shared:1 - overlay overlay rw,lowerdir=/a:/b,upperdir=/c,workdir=/d
/// ```
fn overlay(line: &[u8]) -> Option<Overlay> {
    let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    if *fields.get(dash + 1)? != b"overlay" || *fields.get(3)? != b"/" {
        return None;
    }
    let mount = std::str::from_utf8(fields.first()?).ok()?.parse().ok()?;
    let mount_point = unescape(fields.get(4)?);
    let options = unescape(fields.get(dash + 3)?);
    let (mut upper, mut lower) = (Vec::new(), Vec::new());
    for option in split(&options, b',') {
        if let Some(dir) = option.strip_prefix(b"upperdir=") {
            upper.push(plain(dir));
        } else if let Some(dirs) = option.strip_prefix(b"lowerdir=") {
            lower.extend(split(dirs, b':').into_iter().filter(|d| !d.is_empty()).map(plain));
        } else if let Some(dir) = option.strip_prefix(b"lowerdir+=") {
            lower.push(plain(dir));
        }
    }
    upper.extend(lower);
    Some(Overlay { mount, mount_point, layers: upper })
}

/// Splits at a separator that no backslash precedes.
fn split(text: &[u8], separator: u8) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let (mut begin, mut escaped) = (0, false);
    for (at, byte) in text.iter().enumerate() {
        if *byte == separator && !escaped {
            parts.extend(text.get(begin..at));
            begin = at + 1;
        }
        escaped = *byte == b'\\' && !escaped;
    }
    parts.extend(text.get(begin..));
    parts
}

/// Without the backslashes of overlay's options.
fn plain(dir: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = dir.iter();
    while let Some(byte) = bytes.next() {
        out.extend(if *byte == b'\\' { bytes.next() } else { Some(byte) });
    }
    out
}

/// Replaces the octal escapes of mountinfo (`\040`).
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let code = digits.and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        match code {
            Some(code) => {
                out.push(code);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

/// The file of a layer that a path of an overlay is, where the kernel has no iterator. `root` is
/// where the layers' paths are resolved: the root of who mounted the overlay. `None` if a layer
/// cannot be reached, or if the file is another one than `seen`.
fn find_in_layers(all: &[Overlay], root: &Root, path: &[u8], seen: &Handle) -> Option<RealInode> {
    let seen = seen.stat_cached().ok()?;
    // Several mounts may be at one place, and others below it: the file says through which it is
    // seen.
    let overlay = all.iter().find(|o| o.mount == seen.mount && o.mount != 0)?;
    let rest = match &overlay.mount_point[..] {
        b"/" => path,
        point => path.strip_prefix(point).filter(|rest| rest.starts_with(b"/"))?,
    };
    for layer in &overlay.layers {
        // A relative path is one of a directory that is not known.
        if layer.first() != Some(&b'/') {
            return None;
        }
        match root.find(&[&layer[..], rest].concat()) {
            Ok(handle) => {
                let stat = handle.stat_cached().ok()?;
                let same = (stat.size, stat.modified) == (seen.size, seen.modified) && stat.regular;
                return same.then_some(RealInode { dev: stat.dev, inode: stat.inode });
            }
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
            Err(_) => return None,
        }
    }
    None
}

/// The identity of a mapped file: by the iterator, else by the overlay's layers. A layer may be on
/// a file server, so a call may block: it belongs in a process that can be abandoned.
pub fn identify(files: &mut RealFiles, process: &Mapped<'_>) -> Identity {
    match files.identify(process.pid, process.addr, process.seen) {
        Identity::Seen(seen) => in_layers(process).map_or(Identity::Seen(seen), Identity::Real),
        real => real,
    }
}

fn in_layers(process: &Mapped<'_>) -> Option<RealInode> {
    let dir = ProcessDir::open(process.pid).ok()?;
    let owner = sys::owner_of_namespace(dir.follow("ns/mnt").ok()?.fd()).ok()?;
    let own = ProcessDir::open(std::process::id()).ok()?.follow("ns/user").ok()?.stat_cached().ok()?;
    if owner != (own.dev, own.inode) {
        return None;
    }
    let all = overlays(&dir.read("mountinfo", MAX_MOUNTS).ok()?);
    find_in_layers(&all, process.layers_root, process.path, process.handle)
}

/// A file that was found by its path.
#[derive(Debug)]
pub struct Shown {
    /// The file.
    pub handle: Handle,
    /// What processes see.
    pub seen: RealInode,
    /// The root in which it was found.
    pub root: Root,
    /// What identifies that.
    pub key: RootKey,
}

/// How a path is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// In the kernel's caches alone, where a file is that was just mapped: no server is asked.
    Cached,
    /// A server may be asked. The kernel looks up nothing in its caches alone below a directory of
    /// some file systems (9P, NFS, FUSE, and an overlay of one), because each of their entries must
    /// be asked for.
    Any,
}

/// The first file at a path in the roots of processes that is accepted, if it is found until then.
/// Nothing is opened, so no FIFO blocks.
fn find_in_roots(
    processes: &[u32],
    (path, lookup): (&[u8], Lookup),
    until: Instant,
    but: Option<RootKey>,
    accept: impl Fn(u32, &Shown) -> bool,
) -> Option<Shown> {
    let mut known: HashSet<RootKey> = but.into_iter().collect();
    processes.iter().take_while(|_| Instant::now() < until).find_map(|pid| {
        let root = ProcessDir::open(*pid).ok()?.root().ok()?;
        let key = root.key().ok().filter(|key| known.insert(*key))?;
        let handle = match lookup {
            Lookup::Cached => root.find_cached(path),
            Lookup::Any => root.find(path),
        };
        let handle = handle.ok()?;
        let stat = handle.stat_cached().ok().filter(|stat| stat.regular)?;
        let shown = Shown { handle, seen: RealInode { dev: stat.dev, inode: stat.inode }, root, key };
        accept(*pid, &shown).then_some(shown)
    })
}

/// The file at a path that has the contents of a given one, in the roots of processes: the file
/// itself, or one of an overlay of it. Reading `/proc` may block, and so may a layer, so it belongs
/// in a thread that can be abandoned, and ends by itself then.
pub fn find_shown(
    processes: &[u32],
    (path, lookup): (&[u8], Lookup),
    real: RealInode,
    until: Instant,
) -> Option<Shown> {
    let layers_root = Root::own().ok()?;
    find_in_roots(processes, (path, lookup), until, None, |pid, shown| {
        let (seen, handle, layers_root) = (shown.seen, &shown.handle, &layers_root);
        seen == real || in_layers(&Mapped { pid, addr: 0, seen, path, handle, layers_root }) == Some(real)
    })
}

/// The file at a path in a root of processes that is another one than that of their mount namespace
/// (`chroot`). What it is must be looked at: several roots may have one. As for [`find_shown`], a
/// thread calls this that can be abandoned.
pub fn find_below(processes: &[u32], path: &[u8], root: RootKey, until: Instant) -> Option<Shown> {
    find_in_roots(processes, (path, Lookup::Cached), until, Some(root), |_, _| true)
}

/// A file that a process has mapped, for [`identify`].
#[derive(Clone, Copy, Debug)]
pub struct Mapped<'a> {
    /// The process.
    pub pid: u32,
    /// An address of the mapping.
    pub addr: u64,
    /// What processes see.
    pub seen: RealInode,
    /// The path from the process's root.
    pub path: &'a [u8],
    /// The file.
    pub handle: &'a Handle,
    /// Where the paths of layers are resolved.
    pub layers_root: &'a Root,
}

#[cfg(test)]
mod tests;
