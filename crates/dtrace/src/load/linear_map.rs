//! Where the kernel's linear map of the memory has the bytes of a page.
//!
//! ```text
//!  struct page of frame n:   vmemmap + n * sizeof(struct page)
//!  bytes of frame n:         start of the linear map + n * page size
//! ```
//!
//! Both starts are random, and many kernels hide them. But the address of the bytes is that of the
//! `struct page` times a constant, plus another constant. So one page whose two addresses are known
//! is enough. The slab allocator has such pages: a partial slab is a `struct page` in a list of its
//! cache, and it has the address of a free object in its bytes.
//!
//! The address of the object is not that of the slab. But both starts are multiples of a gibibyte,
//! which is more than a slab has. Nothing is locked, so a slab may change while it is read. A slab
//! counts if it names its cache, and several slabs must agree.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use bpf_codegen::target::LinearMap;
use bpf_sys::kernel_read::KernelReader;
use types::btf::Btf;

/// The alignment of the starts of both areas.
const ALIGNMENT: u64 = 1 << 30;

/// How many slabs must agree.
const AGREE: usize = 3;

/// Caches that are looked at.
const CACHES: usize = 256;

/// Attempts, if slabs disagree.
const ATTEMPTS: usize = 3;

/// Finds the linear map. `None` where kernel memory or its types cannot be read, and where the size
/// of a `struct page` is no power of two.
pub(crate) fn find(btf: &Btf) -> Option<LinearMap> {
    let page = u64::from(btf.size(btf.find_sou(false, "page")?)?);
    let ratio = bpf_sys::page_size() as u64 / page.max(1);
    let shift = (page.is_power_of_two() && ratio > 0).then(|| ratio.ilog2() as u8)?;
    let offset = |member: &str| Some(u64::from(btf.field(member)?.offset()));
    // Newer kernels have more than the list of each node.
    let per_node = || Some(offset("kmem_cache.per_node")? + offset("kmem_cache_per_node_ptrs.node")?);
    let offsets = Offsets {
        list: offset("kmem_cache.list")?,
        node: offset("kmem_cache.node").or_else(per_node)?,
        partial: offset("kmem_cache_node.partial")?,
        slab_list: offset("slab.slab_list")?,
        slab_cache: offset("slab.slab_cache")?,
        freelist: offset("slab.freelist")?,
    };
    let reader = KernelReader::open().ok()?;
    let read = |address: u64| reader.word(address).ok();
    // The cache of the ids of processes: one that a task leads to.
    let pid = read(reader.current_task().ok()? + offset("task_struct.thread_pid")?)?;
    let namespace = read(pid + offset("pid.numbers")? + offset("upid.ns")?)?;
    let cache = read(namespace + offset("pid_namespace.pid_cachep")?)?;
    let base = (0..ATTEMPTS).find_map(|_| base(&offsets, cache, shift, read))?;
    Some(LinearMap { shift, base })
}

/// Offsets in the structs of the slab allocator.
struct Offsets {
    list: u64,
    node: u64,
    partial: u64,
    slab_list: u64,
    slab_cache: u64,
    freelist: u64,
}

/// The base that all slabs give which were found, from this cache on.
fn base(o: &Offsets, first: u64, shift: u8, read: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    let mut found: Vec<u64> = Vec::new();
    let mut cache = first;
    for _ in 0..CACHES {
        let list = read(cache.wrapping_add(o.node))?.wrapping_add(o.partial);
        let slab = read(list)?.wrapping_sub(o.slab_list);
        let object = read(slab.wrapping_add(o.freelist))?;
        if object != 0 && read(slab.wrapping_add(o.slab_cache))? == cache {
            found.push(object.wrapping_sub(slab << shift) & !(ALIGNMENT - 1));
        }
        if found.len() == AGREE {
            break;
        }
        cache = read(cache.wrapping_add(o.list))?.wrapping_sub(o.list);
        if cache == first {
            break;
        }
    }
    let base = *found.first()?;
    (found.len() == AGREE && found.iter().all(|b| *b == base)).then_some(base)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const OFFSETS: Offsets =
        Offsets { list: 8, node: 16, partial: 24, slab_list: 32, slab_cache: 40, freelist: 48 };

    /// The starts of the two areas.
    const PAGES: u64 = 0xffff_ea00_4000_0000;
    const BYTES: u64 = 0xffff_8881_0000_0000;

    /// Memory with caches in a circle. Each has a slab with this number of a frame, and the offset
    /// of its free object; 0: a full slab.
    fn memory(slabs: &[(u64, u64)]) -> BTreeMap<u64, u64> {
        let cache = |n: usize| 0xffff_9000_0000_0000 + 0x1000 * n as u64;
        let mut memory = BTreeMap::new();
        for (n, (frame, object)) in slabs.iter().enumerate() {
            let (node, slab) = (cache(n) + 0x800, PAGES + 64 * frame);
            memory.insert(cache(n) + 8, cache((n + 1) % slabs.len()) + 8);
            memory.insert(cache(n) + 16, node);
            memory.insert(node + 24, slab + 32);
            memory.insert(slab + 40, cache(n));
            memory.insert(slab + 48, if *object == 0 { 0 } else { BYTES + 4096 * frame + object });
        }
        memory
    }

    fn found(memory: &BTreeMap<u64, u64>) -> Option<u64> {
        base(&OFFSETS, 0xffff_9000_0000_0000, 6, |at| Some(memory.get(&at).copied().unwrap_or(0)))
    }

    #[test]
    fn the_base_is_that_of_slabs_which_agree() {
        let memory = memory(&[(7, 0x7ff8), (8, 0), (1 << 20, 64), (99, 8)]);
        let base = found(&memory).unwrap();
        let page = PAGES + 64 * 12345;
        assert_eq!((page << 6).wrapping_add(base), BYTES + 4096 * 12345);
    }

    #[test]
    fn slabs_of_another_cache_and_slabs_that_disagree_give_no_base() {
        let good = memory(&[(7, 8), (8, 8), (9, 8)]);
        assert!(found(&good).is_some());
        let mut other = good.clone();
        other.insert(PAGES + 64 * 8 + 40, 1);
        assert_eq!(found(&other), None);
        let mut moved = good;
        moved.insert(PAGES + 64 * 8 + 48, BYTES + (5 << 30));
        assert_eq!(found(&moved), None);
    }

    #[test]
    fn the_linear_map_of_this_kernel_is_found() {
        let kernel = types::btf::KernelBtf::running();
        let Ok(btf) = kernel.vmlinux() else { return testing::skipped!("this kernel gives no types") };
        if let Err(e) = KernelReader::open() {
            return testing::skipped!("{e}");
        }
        let map = find(btf).expect("a linear map");
        assert_eq!((map.shift, map.base % ALIGNMENT), (6, 0));
    }
}
