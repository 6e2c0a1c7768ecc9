//! Maps: creation, elements, shared memory, and grace periods.

use crate::error::SysError;
use crate::fork::KernelFd;
use crate::mmap::Mmap;
use crate::syscall::{Cmd, addr, addr_mut, bpf, bpf_fd, name_text, object_name, raw};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::OnceLock;

/// Kinds of maps that we use, by the kernel's number.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum MapKind {
    Hash = 1,
    Array = 2,
    ProgArray = 3,
    PerfEventArray = 4,
    PercpuHash = 5,
    PercpuArray = 6,
    StackTrace = 7,
    LruHash = 9,
    ArrayOfMaps = 12,
    HashOfMaps = 13,
    Ringbuf = 27,
    TaskStorage = 29,
}

/// Creation flags.
pub mod flags {
    /// Elements are allocated when inserted.
    pub const NO_PREALLOC: u32 = 1 << 0;
    /// Programs cannot write.
    pub const RDONLY_PROG: u32 = 1 << 7;
    /// User space can mmap the values.
    pub const MMAPABLE: u32 = 1 << 10;
    /// The size of an inner map may differ from the outer map's template.
    pub const INNER_MAP: u32 = 1 << 12;
}

/// The types of a map's key and value, in a BTF object of ours.
#[derive(Clone, Copy, Debug)]
pub struct MapBtf<'a> {
    /// The loaded BTF.
    pub btf: BorrowedFd<'a>,
    /// Type id of the key.
    pub key: u32,
    /// Type id of the value.
    pub value: u32,
}

/// The parameters of a new map.
#[derive(Clone, Copy, Debug)]
pub struct MapSpec<'a> {
    /// The map's kind.
    pub kind: MapKind,
    /// The map's name, of which the kernel keeps 15 bytes.
    pub name: &'a str,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Number of elements. For a ring buffer, its bytes.
    pub max_entries: u32,
    /// See [`flags`].
    pub flags: u32,
    /// The template of the inner maps, for a map of maps.
    pub inner: Option<BorrowedFd<'a>>,
    /// Required for task storage.
    pub btf: Option<MapBtf<'a>>,
}

impl<'a> MapSpec<'a> {
    /// An array of `max_entries` values.
    pub fn array(name: &'a str, value_size: u32, max_entries: u32) -> MapSpec<'a> {
        MapSpec {
            kind: MapKind::Array,
            name,
            key_size: 4,
            value_size,
            max_entries,
            flags: 0,
            inner: None,
            btf: None,
        }
    }

    /// One value for each CPU.
    pub fn percpu(name: &'a str, value_size: u32) -> MapSpec<'a> {
        MapSpec { kind: MapKind::PercpuArray, ..MapSpec::array(name, value_size, 1) }
    }

    /// An array whose values user space can mmap.
    pub fn mmapable(name: &'a str, value_size: u32, max_entries: u32) -> MapSpec<'a> {
        MapSpec { flags: flags::MMAPABLE, ..MapSpec::array(name, value_size, max_entries) }
    }

    /// A preallocated hash.
    pub fn hash(name: &'a str, key_size: u32, value_size: u32, max_entries: u32) -> MapSpec<'a> {
        MapSpec { kind: MapKind::Hash, key_size, ..MapSpec::array(name, value_size, max_entries) }
    }

    /// A BPF ring buffer of `bytes` (a power of two, whole pages).
    pub fn ringbuf(name: &'a str, bytes: u32) -> MapSpec<'a> {
        MapSpec { kind: MapKind::Ringbuf, key_size: 0, ..MapSpec::array(name, 0, bytes) }
    }

    /// A program array for tail calls, with one element.
    pub fn prog_array(name: &'a str) -> MapSpec<'a> {
        MapSpec { kind: MapKind::ProgArray, ..MapSpec::array(name, 4, 1) }
    }

    /// Task storage: one value for each task.
    pub fn task_storage(name: &'a str, value_size: u32, btf: MapBtf<'a>) -> MapSpec<'a> {
        MapSpec {
            kind: MapKind::TaskStorage,
            flags: flags::NO_PREALLOC,
            btf: Some(btf),
            ..MapSpec::array(name, value_size, 0)
        }
    }

    /// An array of maps like `inner`.
    pub fn array_of_maps(name: &'a str, inner: BorrowedFd<'a>, max_entries: u32) -> MapSpec<'a> {
        MapSpec { kind: MapKind::ArrayOfMaps, inner: Some(inner), ..MapSpec::array(name, 4, max_entries) }
    }
}

#[repr(C)]
#[derive(Default)]
struct CreateAttr {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    name: [u8; 16],
    ifindex: u32,
    btf_fd: u32,
    btf_key_type_id: u32,
    btf_value_type_id: u32,
    btf_vmlinux_value_type_id: u32,
    map_extra: u64,
}

#[repr(C)]
struct ElemAttr {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct BatchAttr {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

#[repr(C)]
pub(super) struct InfoAttr {
    pub(super) fd: u32,
    pub(super) len: u32,
    pub(super) info: u64,
}

/// The condition of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Update {
    /// Unconditional.
    Any = 0,
    /// Only if the element does not exist (else EEXIST).
    NoExist = 1,
    /// Only if the element exists (else ENOENT).
    Exist = 2,
}

/// The kernel's description of a map (`struct bpf_map_info`).
#[allow(missing_docs)]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MapInfo {
    pub kind: u32,
    pub id: u32,
    pub key_size: u32,
    pub value_size: u32,
    pub max_entries: u32,
    pub flags: u32,
    name: [u8; 16],
}

impl MapInfo {
    /// The map's name.
    pub fn name(&self) -> String {
        name_text(&self.name)
    }
}

/// A key and its value.
pub type Element = (Vec<u8>, Vec<u8>);

/// A map, closed on drop. The kernel keeps the map while a program or a mapping uses it.
#[derive(Debug)]
pub struct Map {
    fd: KernelFd,
    name: String,
    kind: MapKind,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

impl Map {
    /// Creates a map.
    pub fn create(spec: &MapSpec<'_>) -> Result<Map, SysError> {
        let mut attr = CreateAttr {
            map_type: spec.kind as u32,
            key_size: spec.key_size,
            value_size: spec.value_size,
            max_entries: spec.max_entries,
            map_flags: spec.flags,
            inner_map_fd: spec.inner.map_or(0, |fd| raw(&fd)),
            name: object_name(spec.name),
            ..CreateAttr::default()
        };
        if let Some(btf) = spec.btf {
            attr.btf_fd = raw(&btf.btf);
            attr.btf_key_type_id = btf.key;
            attr.btf_value_type_id = btf.value;
        }
        // SAFETY: `CreateAttr` is the attribute of this command and holds no addresses.
        let fd = unsafe { bpf_fd(Cmd::MapCreate, &mut attr) }.map_err(|errno| {
            let what = format!(
                "create the {:?} map \"{}\" of {} × {} bytes",
                spec.kind, spec.name, spec.max_entries, spec.value_size
            );
            SysError::new(what, errno).or_hint(|| {
                (errno == libc::E2BIG).then(|| "larger than this kernel allows for one map".into())
            })
        })?;
        Ok(Map {
            fd,
            name: spec.name.to_owned(),
            kind: spec.kind,
            key_size: spec.key_size,
            value_size: spec.value_size,
            max_entries: spec.max_entries,
        })
    }

    /// The map's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The map's kind.
    pub fn kind(&self) -> MapKind {
        self.kind
    }

    /// Bytes of a key.
    pub fn key_size(&self) -> usize {
        self.key_size as usize
    }

    /// Bytes of a value as user space passes it. For per-CPU maps, the copies of all CPUs.
    pub fn value_size(&self) -> usize {
        match self.kind {
            MapKind::PercpuHash | MapKind::PercpuArray => {
                (self.value_size as usize).div_ceil(8) * 8 * possible_cpus()
            }
            _ => self.value_size as usize,
        }
    }

    /// Maximum number of elements.
    pub fn max_entries(&self) -> u32 {
        self.max_entries
    }

    fn fail(&self, verb: &str, errno: i32) -> SysError {
        SysError::new(format!("{verb} map \"{}\"", self.name), errno)
    }

    /// The attribute of an element command. Checks the buffers' lengths, so that the kernel stays
    /// inside them.
    fn elem(&self, verb: &str, key: &[u8], value: Option<usize>) -> Result<ElemAttr, SysError> {
        if key.len() != self.key_size() || value.is_some_and(|len| len != self.value_size()) {
            return Err(self.fail(verb, libc::EINVAL));
        }
        Ok(ElemAttr { map_fd: raw(&self.fd), pad: 0, key: addr(key), value: 0, flags: 0 })
    }

    /// Copies the element of `key` to `value`, false when there is none. The lengths must be those
    /// of the map.
    pub fn lookup(&self, key: &[u8], value: &mut [u8]) -> Result<bool, SysError> {
        let mut attr = self.elem("read", key, Some(value.len()))?;
        attr.value = addr_mut(value);
        // SAFETY: `elem` checked both lengths, and both buffers live across the call.
        match unsafe { bpf(Cmd::MapLookup, &mut attr) } {
            Ok(_) => Ok(true),
            Err(libc::ENOENT) => Ok(false),
            Err(errno) => Err(self.fail("read", errno)),
        }
    }

    /// Sets the element of `key`.
    pub fn update(&self, key: &[u8], value: &[u8], when: Update) -> Result<(), SysError> {
        let mut attr = self.elem("write", key, Some(value.len()))?;
        attr.value = addr(value);
        attr.flags = when as u64;
        // SAFETY: as in `lookup`. The kernel only reads.
        unsafe { bpf(Cmd::MapUpdate, &mut attr) }.map(drop).map_err(|errno| self.fail("write", errno))
    }

    /// Sets element `index` of an array of programs, maps or perf events. For an array of maps,
    /// waits for a grace period.
    pub fn set_fd(&self, index: u32, fd: BorrowedFd<'_>) -> Result<(), SysError> {
        self.update(&index.to_ne_bytes(), &fd.as_raw_fd().to_ne_bytes(), Update::Any)
    }

    /// Sets the elements from `first` on, as [`Map::set_fd`] does. Waits for one grace period, on
    /// kernels before 6.8 for one after each element.
    pub fn set_fds(&self, first: u32, fds: &[BorrowedFd<'_>]) -> Result<(), SysError> {
        if self.key_size() != 4 || self.value_size() != 4 {
            return Err(self.fail("write", libc::EINVAL));
        }
        let numbers = (0..).zip(fds).map(|(n, _)| first.saturating_add(n));
        let mut keys: Vec<u8> = numbers.flat_map(u32::to_ne_bytes).collect();
        let mut values: Vec<u8> = fds.iter().flat_map(|fd| fd.as_raw_fd().to_ne_bytes()).collect();
        let mut attr = BatchAttr {
            keys: addr_mut(&mut keys),
            values: addr_mut(&mut values),
            count: fds.len() as u32,
            map_fd: raw(&self.fd),
            ..BatchAttr::default()
        };
        // SAFETY: `count` elements of the map's sizes, which were checked, live across the call.
        match unsafe { bpf(Cmd::MapUpdateBatch, &mut attr) } {
            Ok(_) => Ok(()),
            Err(libc::EINVAL | crate::errno::ENOTSUPP | libc::EOPNOTSUPP) => {
                (first..).zip(fds).try_for_each(|(at, fd)| self.set_fd(at, *fd))
            }
            Err(errno) => Err(self.fail("write", errno)),
        }
    }

    /// Deletes the element of `key`, false when there is none.
    pub fn delete(&self, key: &[u8]) -> Result<bool, SysError> {
        let mut attr = self.elem("delete from", key, None)?;
        // SAFETY: as in `lookup`.
        match unsafe { bpf(Cmd::MapDelete, &mut attr) } {
            Ok(_) => Ok(true),
            Err(libc::ENOENT) => Ok(false),
            Err(errno) => Err(self.fail("delete from", errno)),
        }
    }

    /// Writes the key after `key` (the first when `None`) to `next`, false at the end.
    pub fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<bool, SysError> {
        let mut attr = self.elem("walk", next, None)?;
        if key.is_some_and(|k| k.len() != self.key_size()) {
            return Err(self.fail("walk", libc::EINVAL));
        }
        attr.key = key.map_or(0, addr);
        attr.value = addr_mut(next);
        // SAFETY: both keys have the map's key size.
        match unsafe { bpf(Cmd::MapNextKey, &mut attr) } {
            Ok(_) => Ok(true),
            Err(libc::ENOENT) => Ok(false),
            Err(errno) => Err(self.fail("walk", errno)),
        }
    }

    /// All elements of a hash, in the kernel's order. Uses batched look-ups where the kernel
    /// supports them. Elements that are inserted or deleted meanwhile may be missed, all others are
    /// returned.
    pub fn entries(&self) -> Result<Vec<Element>, SysError> {
        match self.entries_batched() {
            Err(e) if matches!(e.errno, libc::EINVAL | crate::errno::ENOTSUPP | libc::EOPNOTSUPP) => {
                self.entries_one_by_one()
            }
            other => other,
        }
    }

    fn entries_batched(&self) -> Result<Vec<Element>, SysError> {
        let (ks, vs) = (self.key_size(), self.value_size());
        // The kernel returns ENOSPC when a whole bucket does not fit. Start small, and double.
        let mut capacity = (self.max_entries as usize).clamp(1, 256);
        let mut out = Vec::new();
        // The cursor has 4 bytes for hashes, and the size of a key for arrays.
        let (mut cursor, mut next) = (vec![0; ks.max(4)], vec![0u8; ks.max(4)]);
        let mut first = true;
        loop {
            let (mut keys, mut values) = (vec![0u8; ks * capacity], vec![0u8; vs * capacity]);
            let mut attr = BatchAttr {
                in_batch: if first { 0 } else { addr_mut(&mut cursor) },
                out_batch: addr_mut(&mut next),
                keys: addr_mut(&mut keys),
                values: addr_mut(&mut values),
                count: capacity as u32,
                map_fd: raw(&self.fd),
                ..BatchAttr::default()
            };
            // SAFETY: `count` elements fit the buffers; the cursors hold a key or four bytes.
            let r = unsafe { bpf(Cmd::MapLookupBatch, &mut attr) };
            let done = match r {
                Ok(_) => false,
                Err(libc::ENOENT) => true,
                Err(libc::ENOSPC) if capacity < self.max_entries as usize => {
                    capacity = (capacity * 2).min(self.max_entries as usize);
                    continue;
                }
                Err(errno) => return Err(self.fail("read", errno)),
            };
            let count = (attr.count as usize).min(capacity);
            let part = |all: &[u8], size: usize, i: usize| {
                all.get(i * size..).and_then(|rest| rest.get(..size)).unwrap_or_default().to_vec()
            };
            out.extend((0..count).map(|i| (part(&keys, ks, i), part(&values, vs, i))));
            if done {
                return Ok(out);
            }
            std::mem::swap(&mut cursor, &mut next);
            first = false;
        }
    }

    fn entries_one_by_one(&self) -> Result<Vec<Element>, SysError> {
        let mut out = Vec::new();
        let mut next = vec![0; self.key_size()];
        let mut at: Option<Vec<u8>> = None;
        // If the key is deleted meanwhile, the iteration starts over. The bound guarantees that it
        // ends.
        for _ in 0..u64::from(self.max_entries) * 2 + 1 {
            if !self.next_key(at.as_deref(), &mut next)? {
                break;
            }
            let mut value = vec![0; self.value_size()];
            if self.lookup(&next, &mut value)? {
                out.push((next.clone(), value));
            }
            at = Some(next.clone());
        }
        Ok(out)
    }

    /// Makes the map read-only for user space.
    pub fn freeze(&self) -> Result<(), SysError> {
        let mut attr = ElemAttr { map_fd: raw(&self.fd), pad: 0, key: 0, value: 0, flags: 0 };
        // SAFETY: the command reads only the descriptor.
        unsafe { bpf(Cmd::MapFreeze, &mut attr) }.map(drop).map_err(|errno| self.fail("freeze", errno))
    }

    /// The kernel's description of the map.
    pub fn info(&self) -> Result<MapInfo, SysError> {
        info_by_fd(&self.fd).map_err(|errno| self.fail("query", errno))
    }

    /// Bytes of all values in a mapping. Values are padded to 8 bytes, the whole to pages.
    pub fn mapped_len(&self) -> usize {
        let bytes = (self.value_size as usize).div_ceil(8) * 8 * self.max_entries as usize;
        bytes.div_ceil(page_size()) * page_size()
    }

    /// Distance between two values in the mapping.
    pub fn stride(&self) -> usize {
        (self.value_size as usize).div_ceil(8) * 8
    }

    /// Maps the values of an array created with [`flags::MMAPABLE`].
    pub fn mmap(&self, writable: bool) -> Result<Mmap, SysError> {
        Mmap::new(&self.fd, 0, self.mapped_len(), writable)
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Map {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Reads any of the kernel's info structures. The kernel appends fields to them over time.
pub(super) fn info_by_fd<T: Copy + Default>(fd: &impl AsRawFd) -> Result<T, i32> {
    let mut info = T::default();
    let mut attr = InfoAttr {
        fd: raw(fd),
        len: std::mem::size_of::<T>() as u32,
        info: std::ptr::from_mut(&mut info) as u64,
    };
    // SAFETY: the kernel writes at most `len` bytes to `info`, which is plain integers for every
    // `T` of this layer.
    unsafe { bpf(Cmd::InfoByFd, &mut attr) }.map(|_| info)
}

/// Waits until every running program has ended.
///
/// An update of a map of maps from user space returns only after an RCU grace period. The kernel
/// guarantees that, so that the old inner map is no longer used. membarrier(2) would need no map,
/// but does nothing on a machine with one CPU, where a preempted program may not have ended.
#[derive(Debug)]
pub struct GracePeriod {
    outer: Map,
    inner: Map,
}

impl GracePeriod {
    /// Creates the two small maps.
    pub fn new() -> Result<GracePeriod, SysError> {
        let inner = Map::create(&MapSpec::array("grace_inner", 8, 1))?;
        let outer = Map::create(&MapSpec::array_of_maps("grace", inner.as_fd(), 1))?;
        Ok(GracePeriod { outer, inner })
    }

    /// Waits for a grace period (4–24 ms).
    pub fn wait(&self) -> Result<(), SysError> {
        self.outer.set_fd(0, self.inner.as_fd())
    }
}

/// CPUs that can ever be online: the number of copies in per-CPU maps.
pub fn possible_cpus() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        std::fs::read_to_string("/sys/devices/system/cpu/possible")
            .map_or(1, |list| cpu_list(&list).len())
            .max(1)
    })
}

/// Every CPU's number is below this.
pub fn cpu_numbers_end() -> u32 {
    static END: OnceLock<u32> = OnceLock::new();
    *END.get_or_init(|| {
        let list = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
        cpu_list(&list).last().map_or(1, |last| last + 1)
    })
}

/// CPUs that are online, ascending.
pub fn online_cpus() -> Vec<u32> {
    std::fs::read_to_string("/sys/devices/system/cpu/online").map_or_else(|_| vec![0], |list| cpu_list(&list))
}

/// Parses the kernel's list format, `0-3,8`.
fn cpu_list(text: &str) -> Vec<u32> {
    const CPUS_AT_MOST: u32 = 8192;
    let range = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse::<u32>().ok()?.min(CPUS_AT_MOST))
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// The page size in bytes.
pub fn page_size() -> usize {
    // SAFETY: no memory is involved.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_of_the_kernel_are_parsed() {
        assert_eq!(cpu_list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(cpu_list("0\n"), [0]);
        assert_eq!(cpu_list(""), [0u32; 0]);
    }
}
