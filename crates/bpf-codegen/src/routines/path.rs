//! The path of a file: from its name upwards, through directories and mounts, to the root of the
//! current process. A file outside of that root gets its path from the root of the mount namespace,
//! and so does a file that is known by its dentry and a mount.
//!
//! ```text
//!  dentry ──d_parent──► dentry ──d_parent──► dentry = mnt_root of its mount
//!  "passwd"             "etc"                   │ mnt_mountpoint, in the mount mnt_parent
//!                                               ▼
//!                                            dentry ... = mnt_root of a mount that is its own parent
//! ```
//!
//! A path is written from its end, whose position depends on the length. So the walk is done twice,
//! once to measure and once to write. The alternative, to remember each step, needs more stack than
//! a program has. If a directory is renamed in between, the second walk does not end at the first
//! byte, and the path is unknown.
//!
//! Nothing is locked, every step is a checked read, and a walk has at most [`STEPS`] steps.

use dif::subr::PathOf;
use plane::desc::string_storage;

use crate::mir::{Arg, Builder, Helper, Jmp, Label, Size, StackSlot, V};
use crate::routines::words::{words_of, zero};
use crate::target::PathOffsets;

/// Maximum number of directories and mounts on a path.
const STEPS: i64 = 256;

/// The longest name of one directory. Up to this many bytes are written beyond the buffer's end
/// when a path is too long.
pub(crate) const NAME: u32 = 256;

/// Words of the walk's state, on the stack.
const DENTRY: i16 = 0;
const MOUNT: i16 = 8;
const ROOT: i16 = 16;
/// Bytes of the path: counted up by the first walk, counted down by the second.
const LENGTH: i16 = 24;
const BUFFER: i16 = 32;
/// Not 0 when a read failed or the path has too many steps.
const FAILED: i16 = 40;
const SCRATCH: i16 = 48;
/// Where the walk stops: a dentry and its mount.
const TOP: i16 = 56;
const TOP_MOUNT: i16 = 64;
const STATE: u32 = 72;

/// Writes the path of the `struct path` at `path` to `buffer`, which has the storage of a
/// string of `strsize` bytes and [`NAME`] bytes more: the string, zero behind the path. With
/// `mount`, the address of a `struct vfsmount`, `path` is the address of a dentry in this mount.
/// Returns 0, or another value when an address cannot be read.
pub(crate) fn path(
    b: &mut Builder,
    o: &PathOffsets,
    buffer: V,
    strsize: u32,
    path: V,
    mount: Option<V>,
    of: PathOf,
) -> V {
    let storage = string_storage(strsize);
    let bytes = storage + NAME;
    let name = match of {
        PathOf::File => "dt_path",
        PathOf::Mount => "dt_mount_path",
        PathOf::Full => "dt_full_path",
        PathOf::Dentry => "dt_dentry_path",
    };
    let mut args = vec![Arg::Memory(buffer, bytes), Arg::Word(path)];
    args.extend(mount.map(Arg::Word));
    b.call_global(name, &args, |b| {
        let (buffer, path) = (b.param(0), b.param(1));
        let mount = mount.map(|_| b.param(2));
        let state = b.stack(STATE);
        let (bad, lost) = (b.label(), b.label());
        zero(b, buffer, 0, bytes);
        // Counted from a number that the verifier does not know. It would follow a known number
        // through every step, and a copy of another word of the state too.
        let origin = match mount {
            Some(mount) => b.add(path, mount),
            None => path,
        };
        b.slot_store(Size::B8, state, LENGTH, origin);
        b.slot_store(Size::B8, state, FAILED, 0);
        b.slot_store(Size::B8, state, SCRATCH, 0);
        b.slot_store(Size::B8, state, BUFFER, buffer);
        top(b, o, state, of);
        start(b, o, state, path, mount, of, bad);
        walk(b, o, state, None);
        let wrong = b.slot_load(Size::B8, state, FAILED);
        b.br(Jmp::Ne, wrong, 0, lost);
        let length = b.slot_load(Size::B8, state, LENGTH);
        let length = b.sub(length, origin);
        b.slot_store(Size::B8, state, LENGTH, length);
        b.if_(Jmp::Eq, length, 0, |b| {
            b.store(Size::B1, buffer, 0, b'/');
            end(b, buffer, strsize);
            b.exit(0);
        });
        start(b, o, state, path, mount, of, bad);
        walk(b, o, state, Some(storage));
        let wrong = b.slot_load(Size::B8, state, FAILED);
        b.br(Jmp::Ne, wrong, 0, lost);
        let length = b.slot_load(Size::B8, state, LENGTH);
        b.br(Jmp::Ne, length, 0, lost);
        end(b, buffer, strsize);
        b.exit(0);
        b.bind(lost);
        zero(b, buffer, 0, bytes);
        for (at, word) in (0i32..).step_by(8).zip(words_of(b"<unknown>")) {
            if at + 8 <= storage as i32 {
                b.store(Size::B8, buffer, at as i16, word as i64);
            }
        }
        end(b, buffer, strsize);
        b.exit(0);
        b.bind(bad);
        b.exit(1);
    })
}

/// Ends the string at `buffer` where it is longer than a string: clears its storage from the last
/// byte that a string has on.
fn end(b: &mut Builder, buffer: V, strsize: u32) {
    let longest = strsize.saturating_sub(1);
    let at = longest / 8 * 8;
    let word = b.add(buffer, at as i32);
    let text = b.load(Size::B8, word, 0);
    let kept = b.and(text, (1i64 << (8 * (longest % 8))) - 1);
    b.store(Size::B8, word, 0, kept);
}

/// Reads a word from `addr + off` to the state's word `to`.
fn read(b: &mut Builder, state: StackSlot, to: i16, addr: V, off: i16, bad: Label) {
    let dst = b.slot_addr(state, to);
    read_to(b, dst, addr, off, bad);
}

fn read_to(b: &mut Builder, dst: V, addr: V, off: i16, bad: Label) {
    let size = b.imm(8);
    let addr = b.add(addr, i32::from(off));
    let wrong = b.call(Helper::PROBE_READ_KERNEL, &[dst, size, addr]);
    b.br(Jmp::Ne, wrong, 0, bad);
}

/// Reads where to stop. An exiting process has no root any more.
fn top(b: &mut Builder, o: &PathOffsets, state: StackSlot, of: PathOf) {
    b.slot_store(Size::B8, state, TOP, 0);
    b.slot_store(Size::B8, state, TOP_MOUNT, 0);
    if matches!(of, PathOf::Full | PathOf::Dentry) {
        return;
    }
    let none = b.label();
    let task = b.call(Helper::GET_CURRENT_TASK, &[]);
    read(b, state, SCRATCH, task, o.fs, none);
    let fs = b.slot_load(Size::B8, state, SCRATCH);
    b.br(Jmp::Eq, fs, 0, none);
    read(b, state, TOP, fs, o.root + o.dentry, none);
    read(b, state, TOP_MOUNT, fs, o.root + o.mnt, none);
    let vfsmount = b.slot_load(Size::B8, state, TOP_MOUNT);
    let mount = b.sub(vfsmount, i32::from(o.vfsmount));
    b.slot_store(Size::B8, state, TOP_MOUNT, mount);
    b.bind(none);
}

/// Starts the walk at the file, or at the root of its mount.
fn start(
    b: &mut Builder,
    o: &PathOffsets,
    state: StackSlot,
    path: V,
    mount: Option<V>,
    of: PathOf,
    bad: Label,
) {
    match mount {
        Some(mount) => {
            b.slot_store(Size::B8, state, DENTRY, path);
            b.slot_store(Size::B8, state, MOUNT, mount);
        }
        None => {
            read(b, state, DENTRY, path, o.dentry, bad);
            read(b, state, MOUNT, path, o.mnt, bad);
        }
    }
    let vfsmount = b.slot_load(Size::B8, state, MOUNT);
    read(b, state, ROOT, vfsmount, o.mnt_root, bad);
    let mount = b.sub(vfsmount, i32::from(o.vfsmount));
    b.slot_store(Size::B8, state, MOUNT, mount);
    if of == PathOf::Mount {
        let dentry = b.slot_load(Size::B8, state, ROOT);
        b.slot_store(Size::B8, state, DENTRY, dentry);
    }
}

/// Does the whole walk. With `write`, names are written to a buffer of so many bytes.
fn walk(b: &mut Builder, o: &PathOffsets, state: StackSlot, write: Option<u32>) {
    let name = if write.is_some() { "dt_path_write" } else { "dt_path_measure" };
    let step = b.sub_addr(name, 2, |b| step(b, o, write));
    let (steps, state, flags) = (b.imm(STEPS), b.slot_addr(state, 0), b.imm(0));
    b.call(Helper::LOOP, &[steps, step, state, flags]);
}

/// One step: `step(number, state)`, which returns 1 to stop.
fn step(b: &mut Builder, o: &PathOffsets, write: Option<u32>) {
    let state = b.param(1);
    let (wrong, stop) = (b.label(), b.label());
    // Reaching the last step means that the path has too many.
    let number = b.param(0);
    b.br(Jmp::Ge, number, STEPS - 1, wrong);
    let field = |b: &mut Builder, to: i16, addr: V, off: i16, wrong: Label| {
        let dst = b.add(state, i32::from(to));
        read_to(b, dst, addr, off, wrong);
        b.load(Size::B8, state, to)
    };
    let dentry = b.load(Size::B8, state, DENTRY);
    let top = b.load(Size::B8, state, TOP);
    b.if_(Jmp::Eq, dentry, top, |b| {
        let mount = b.load(Size::B8, state, MOUNT);
        let top = b.load(Size::B8, state, TOP_MOUNT);
        b.br(Jmp::Eq, mount, top, stop);
    });
    let root = b.load(Size::B8, state, ROOT);
    b.if_else(
        Jmp::Ne,
        dentry,
        root,
        |b| {
            // The two words of the name: hash and length, and the name's address.
            let length = field(b, SCRATCH, dentry, o.name_len, wrong);
            let length = b.and(length, 0xff);
            let whole = b.load(Size::B8, state, LENGTH);
            if let Some(storage) = write {
                let name = field(b, SCRATCH, dentry, o.name, wrong);
                let left = b.sub(whole, length);
                let left = b.sub(left, 1);
                b.store(Size::B8, state, LENGTH, left);
                // Computed again. The verifier would transfer its knowledge of a copy to the stored
                // value, and the loop would not converge.
                let at = b.add(length, 1);
                let at = b.sub(whole, at);
                // A name that does not fit is left out. So is one whose offset became negative
                // because of a rename.
                b.if_(Jmp::Lt, at, storage, |b| {
                    let buffer = b.load(Size::B8, state, BUFFER);
                    let dst = b.add(buffer, at);
                    b.store(Size::B1, dst, 0, b'/');
                    let dst = b.add(dst, 1);
                    let failed = b.call(Helper::PROBE_READ_KERNEL, &[dst, length, name]);
                    b.br(Jmp::Ne, failed, 0, wrong);
                });
            } else {
                let sum = b.add(whole, length);
                let sum = b.add(sum, 1);
                b.store(Size::B8, state, LENGTH, sum);
            }
            let parent = field(b, SCRATCH, dentry, o.parent, wrong);
            // The root of a file system that is not mounted.
            b.br(Jmp::Eq, parent, dentry, stop);
            b.store(Size::B8, state, DENTRY, parent);
        },
        |b| {
            let mount = b.load(Size::B8, state, MOUNT);
            let above = field(b, SCRATCH, mount, o.mnt_parent, wrong);
            b.br(Jmp::Eq, above, mount, stop);
            field(b, DENTRY, mount, o.mountpoint, wrong);
            b.store(Size::B8, state, MOUNT, above);
            field(b, ROOT, above, o.vfsmount + o.mnt_root, wrong);
        },
    );
    b.exit(0);
    b.bind(wrong);
    b.store(Size::B8, state, FAILED, 1);
    b.bind(stop);
    b.exit(1);
}

impl PathOffsets {
    /// Finds the offsets by the members' paths, such as `dentry.d_name.len`. `None` when the kernel
    /// lacks one of them.
    pub fn find(offset: impl Fn(&str) -> Option<i16>) -> Option<PathOffsets> {
        Some(PathOffsets {
            fs: offset("task_struct.fs")?,
            root: offset("fs_struct.root")?,
            mnt: offset("path.mnt")?,
            dentry: offset("path.dentry")?,
            parent: offset("dentry.d_parent")?,
            name_len: offset("dentry.d_name.len")?,
            name: offset("dentry.d_name.name")?,
            vfsmount: offset("mount.mnt")?,
            mnt_parent: offset("mount.mnt_parent")?,
            mountpoint: offset("mount.mnt_mountpoint")?,
            mnt_root: offset("vfsmount.mnt_root")?,
        })
    }
}
