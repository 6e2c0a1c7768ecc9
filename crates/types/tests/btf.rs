//! Tests of the readers with the miniature kernel, the running kernel, and corrupted blobs.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::Instant;

use testing::rng::Rng;

use types::btf::{Btf, BtfError, BtfKind, Def, KernelBtf, synth};
use types::{Kind, TagKind, TypeId, Types};

fn miniature() -> Btf {
    Btf::parse(synth::kernel(), None).unwrap()
}

fn running(test: &str) -> Option<Arc<KernelBtf>> {
    let kernel = KernelBtf::running();
    match kernel.vmlinux() {
        Ok(_) => Some(kernel),
        Err(error) => {
            testing::report_skip(test, format_args!("{error}"));
            None
        }
    }
}

#[test]
fn members_are_found_by_dotted_path() {
    let b = miniature();
    for (path, offset, size) in [
        ("task_struct.comm", 120, 16),
        ("task_struct.__state", 24, 4),
        ("task_struct.thread_info.status", 16, 4),
        ("task_struct.real_parent", 72, 8),
        ("cred.uid.val", 8, 4),
        ("pt_regs.orig_ax", 120, 8),
        ("pid.numbers", 16, 0),
    ] {
        let f = b.field(path).unwrap_or_else(|| panic!("{path}"));
        assert_eq!((f.offset(), f.size), (offset, size), "{path}");
    }
    let bit = b.field("task_struct.in_execve").unwrap();
    assert_eq!((bit.bit_offset, bit.bits), (60 * 8 + 1, Some(1)));
    for path in
        ["task_struct", "task_struct.", "task_struct.nothing", "nothing.comm", "task_struct.pid.x", ".", ""]
    {
        assert_eq!(b.field(path), None, "{path}");
    }
}

#[test]
fn functions_and_variables_are_found() {
    let b = miniature();
    let f = b.func("__x64_sys_openat").unwrap();
    assert_eq!(f.params.len(), 1);
    assert_eq!(f.params[0].name, "regs");
    assert_eq!(b.name_of(f.id), "__x64_sys_openat");
    let names: Vec<_> = b
        .with_prefix(BtfKind::Func, "__x64_sys_")
        .map(|(n, _)| n["__x64_sys_".len()..].to_string())
        .collect();
    assert_eq!(names, synth::SYSCALLS);
    let v = b.var("__preempt_count").unwrap();
    assert_eq!((v.section, v.offset, v.size), (".data..percpu", 8, 4));
    assert_eq!(b.var("nothing"), None);
    assert_eq!(b.enumerator("PIDTYPE_SID").map(|e| e.1), Some(3));
    assert_eq!(b.enumerator("WIDE_TOP").map(|e| e.1), Some(i64::MIN));
}

#[test]
fn the_name_index_and_the_linear_search_return_the_same_ids() {
    let (searched, indexed) = (miniature(), miniature());
    for i in 0..20 {
        let _ = indexed.func(&format!("warm{i}"));
    }
    for name in ["task_struct", "cred", "pt_regs", "nothing"] {
        assert_eq!(searched.find_sou(false, name), indexed.find_sou(false, name));
    }
    assert_eq!(searched.func("vfs_read"), indexed.func("vfs_read"));
}

#[test]
fn a_split_blob_extends_the_ids_and_strings_of_its_base() {
    let base = Arc::new(miniature());
    let task = base.find_sou(false, "task_struct").unwrap();
    let mut b = synth::Builder::default();
    let ptr = b.pointer(task);
    assert_eq!(ptr, 1);
    // In the split blob this pointer has the id `end_id`, and its strings follow the base's.
    let mut blob = synth::Builder::default();
    let _ = blob.pointer(task);
    blob.sou(false, "mine", 8, &[("task", base.end_id(), 0)]);
    let mut bytes = blob.finish();
    shift_strings(&mut bytes, strings_len(&synth::kernel()));
    let split = Arc::new(Btf::parse(bytes, Some(base.clone())).unwrap());
    assert_eq!(split.first_id(), base.end_id());
    assert_eq!(split.field("mine.task").map(|f| (f.offset(), f.size)), Some((0, 8)));
    assert_eq!(split.field("task_struct.comm").map(|f| f.offset()), Some(120));
    let t = Types::new();
    let mine = t.import(&split, split.find_sou(false, "mine").unwrap());
    assert_eq!(t.name(t.member(mine, "task").unwrap().ty), "struct task_struct *");
    assert_eq!(t.pointee(t.member(mine, "task").unwrap().ty).unwrap().0, t.import(&base, task));
}

fn strings_len(blob: &[u8]) -> u32 {
    u32::from_ne_bytes(blob[20..24].try_into().unwrap())
}

/// Moves every name of a blob with one pointer and one struct with one member.
fn shift_strings(blob: &mut [u8], by: u32) {
    for at in [24 + 12, 24 + 24] {
        let old = u32::from_ne_bytes(blob[at..at + 4].try_into().unwrap());
        blob[at..at + 4].copy_from_slice(&(old + by).to_ne_bytes());
    }
}

#[test]
fn types_of_a_module_remain_for_who_has_seen_them_when_it_is_unloaded() {
    let dir = std::env::temp_dir().join(format!("types-module-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("vmlinux"), synth::kernel()).unwrap();
    let load = |size: u32| {
        let mut b = synth::Builder::extending(&miniature());
        b.sou(false, "mine", size, &[]);
        std::fs::write(dir.join("m"), b.finish()).unwrap();
    };
    let kernel = Arc::new(KernelBtf::at(&dir));
    let size = |kernel: &Arc<KernelBtf>| {
        let types = Types::with_kernel(kernel.clone());
        let by_module = types.find_tag_in("m", TagKind::Struct, "mine").and_then(|id| types.size(id));
        let found = types.find_tag(TagKind::Struct, "mine").and_then(|id| types.size(id));
        assert_eq!(by_module, found);
        found
    };
    load(8);
    let (seen, unseen) = (kernel.as_seen_now(), kernel.as_seen_now());
    assert_eq!((size(&kernel), size(&seen)), (Some(8), Some(8)));
    std::fs::remove_file(dir.join("m")).unwrap();
    kernel.invalidate("m");
    assert_eq!((size(&kernel), size(&seen), size(&unseen)), (None, Some(8), None));
    load(16);
    kernel.invalidate("m");
    let all = [&kernel, &seen, &unseen, &kernel.as_seen_now()].map(size);
    assert_eq!(all, [Some(16), Some(8), None, Some(16)]);
    // One arena has the types of both.
    let types = Types::with_kernel(seen);
    let find = || types.find_tag(TagKind::Struct, "mine").and_then(|id| types.size(id));
    let before = find();
    types.use_kernel(&kernel);
    assert_eq!((before, find()), (Some(8), Some(16)));
    std::fs::remove_dir_all(&dir).unwrap();
}

// row type.kernel, type.module-scoped
#[test]
fn kernel_types_are_imported_into_the_model() {
    let t = Types::with_kernel(Arc::new(KernelBtf::from_btf(miniature())));
    let task = t.find("struct task_struct").unwrap();
    assert_eq!(task, t.find("struct vmlinux`task_struct").unwrap());
    assert_eq!(t.size(task), Some(256));
    assert_eq!(t.offset_of(task, "comm"), Some(120));
    let shown = |name: &str| t.name(t.member(task, name).unwrap().ty);
    assert_eq!(shown("comm"), "char [16]");
    assert_eq!(shown("real_parent"), "struct task_struct *");
    assert_eq!(shown("cred"), "const struct cred *");
    assert_eq!(shown("start_time"), "u64");
    assert_eq!(shown("mm"), "struct mm_struct *");
    assert_eq!(t.pointee(t.member(task, "real_parent").unwrap().ty), Some((task, false)));
    let mm = t.pointee(t.member(task, "mm").unwrap().ty).unwrap().0;
    assert_eq!(t.size(mm), None);
    // D's own typedef takes precedence over the kernel's.
    assert_eq!(t.resolve(t.find("pid_t").unwrap()), TypeId::INT);
    assert_eq!(
        t.find_enumerator("PIDTYPE_PGID").map(|(e, v)| (t.name(e), v)),
        Some(("enum pid_type".into(), 2))
    );
    let e = t.find("enum pid_type").unwrap();
    assert_eq!(t.enumerator_of(e, "PIDTYPE_SID"), Some(3));
    assert!(t.find("btf_trace_sys_enter").is_some_and(|f| t.is_pointer(f)));
    assert_eq!(t.find("struct nothing"), None);
}

// row type.userland
#[test]
fn imported_user_pointers_are_userland() {
    let b = Arc::new(miniature());
    let t = Types::new();
    let f = b.func("vfs_read").unwrap();
    let buf = t.import(&b, f.params[1].ty);
    assert_eq!(t.kind(buf), Kind::Pointer { target: TypeId::CHAR, userland: true });
    let printk = b.func("_printk").unwrap();
    assert_eq!(t.name(t.import(&b, printk.proto)), "int (char *, ...)");
}

#[test]
fn a_program_can_hide_and_forward_declare_kernel_types() {
    let t = Types::with_kernel(Arc::new(KernelBtf::from_btf(miniature())));
    let own = t.declare_tag(TagKind::Struct, Some("cred"));
    assert_eq!(t.find_tag(TagKind::Struct, "cred"), Some(own));
    assert!(!t.is_complete(own));
    // Only declared: the kernel's definition is used when the members are needed.
    assert_eq!(t.size(t.array(own, 2)), Some(64));
    assert!(t.is_complete(own));
    assert_eq!(t.offset_of(own, "uid"), Some(8));
    assert!(t.compatible(own, t.find("struct vmlinux`cred").unwrap()));
    // Being defined, or defined: the program's type.
    let mine = t.begin_definition(TagKind::Struct, Some("pid"));
    assert_eq!((t.size(mine), t.is_complete(mine)), (None, false));
    t.define_sou(mine, &[types::MemberDecl { name: "a".into(), ty: TypeId::INT, bits: None }]).unwrap();
    assert_eq!(t.find_tag(TagKind::Struct, "pid"), Some(mine));
    assert_eq!(t.size(mine), Some(4));
}

#[test]
fn looking_up_a_type_of_the_program_does_not_open_kernel_btf() {
    let t = Types::with_kernel(Arc::new(KernelBtf::at(std::path::Path::new("/nonexistent"))));
    let node = t.begin_definition(TagKind::Struct, Some("node"));
    let next = t.pointer(t.find_tag(TagKind::Struct, "node").unwrap());
    t.define_sou(node, &[types::MemberDecl { name: "next".into(), ty: next, bits: None }]).unwrap();
    assert_eq!((t.size(node), t.declared_typedef("size_t").is_some()), (Some(8), true));
    assert!(t.find("struct node *").is_some() && t.find("uint64_t").is_some());
    assert!(!t.kernel().unwrap().is_open());
    assert_eq!(t.find("struct task_struct"), None);
    assert!(t.kernel().unwrap().is_open());
    assert!(t.kernel_error().unwrap().contains("/nonexistent/vmlinux"));
}

#[test]
fn input_that_is_not_btf_is_rejected_with_a_reason() {
    let good = synth::kernel();
    for (at, byte) in [(0usize, 0u8), (2, 9), (4, 3), (12, 0xff)] {
        let mut bad = good.clone();
        bad[at] = byte;
        assert!(matches!(Btf::parse(bad, None), Err(BtfError::Malformed(..))), "{at}");
    }
    for len in 0..good.len() {
        assert!(Btf::parse(&good[..len], None).is_err(), "{len}");
    }
    assert!(matches!(Btf::open("/nonexistent".as_ref(), None), Err(BtfError::Io(_))));
}

fn corrupt(blob: &mut [u8], rng: &mut Rng) {
    for _ in 0..=rng.below(12) {
        let at = rng.below(blob.len());
        match rng.below(3) {
            0 => blob[at] = rng.bits() as u8,
            1 => blob[at] ^= 1 << rng.below(8),
            // A plausible type id or size.
            _ => {
                let at = at & !3;
                if let Some(word) = blob.get_mut(at..at + 4) {
                    word.copy_from_slice(&(rng.bits() as u32 >> rng.below(32)).to_ne_bytes());
                }
            }
        }
    }
}

/// Runs every query on some types of the blob.
fn run_all_queries(btf: Btf, step: usize) {
    let btf = Arc::new(btf);
    let t = Types::new();
    for id in (0..btf.end_id().saturating_add(2)).step_by(step) {
        match btf.def(id) {
            Some(Def::Sou { members, .. }) => {
                for m in members.take(100) {
                    let _ = (btf.size(m.ty), btf.member(id, m.name));
                }
            }
            Some(Def::Enum { values, .. }) => drop(values.count()),
            Some(Def::FuncProto { params, .. }) => drop(params.count()),
            Some(Def::Datasec { vars, .. }) => drop(vars.count()),
            _ => {}
        }
        let _ = (btf.resolve(id), btf.size(id), btf.name_of(id), btf.func_at(id));
        let ty = t.import(&btf, id);
        let _ = (t.size(ty), t.align(ty), t.name(ty), t.members(ty), t.enumerators(ty), t.member(ty, "comm"));
        let _ = (t.compatible(ty, TypeId::INT), t.decay(ty), t.member_names(ty));
    }
    for _ in 0..10 {
        let _ = (btf.field("task_struct.comm"), btf.var("__preempt_count"), btf.func("vfs_read"));
    }
    let _ = (btf.enumerator("PIDTYPE_SID"), btf.with_prefix(BtfKind::Func, "__x64_sys_").count());
    let _ = btf.find(&[BtfKind::Typedef], "pid_t");
}

#[test]
fn a_corrupted_blob_never_panics() {
    let good = synth::kernel();
    let mut rng = Rng::new(2);
    let mut read = 0;
    for _ in 0..4000 {
        let mut blob = good.clone();
        corrupt(&mut blob, &mut rng);
        if let Ok(btf) = Btf::parse(blob, None) {
            read += 1;
            run_all_queries(btf, 1);
        }
    }
    assert!(read > 400, "{read} blobs were readable");
}

#[test]
fn a_corrupted_kernel_blob_never_panics() {
    let Ok(good) = std::fs::read("/sys/kernel/btf/vmlinux") else {
        testing::skipped!("no /sys/kernel/btf/vmlinux");
        return;
    };
    let mut rng = Rng::new(1);
    for _ in 0..12 {
        let mut blob = good.clone();
        // The types alone can be corrupted in more interesting ways.
        let types = 24 + rng.below(3_000_000).min(blob.len() - 25);
        for _ in 0..2000 {
            let at = types + rng.below(blob.len() - types);
            if at < blob.len() - 1 {
                blob[at] ^= 1 << rng.below(8);
            }
        }
        if let Ok(btf) = Btf::parse(blob, None) {
            run_all_queries(btf, 97);
        }
    }
    for _ in 0..8 {
        let mut blob = good.clone();
        corrupt(&mut blob, &mut rng);
        if let Ok(btf) = Btf::parse(blob, None) {
            run_all_queries(btf, 211);
        }
    }
}

#[test]
fn the_btf_of_the_running_kernel_is_readable() {
    let Some(kernel) = running("the_btf_of_the_running_kernel_is_readable") else { return };
    let start = Instant::now();
    let b = Btf::open("/sys/kernel/btf/vmlinux".as_ref(), None).unwrap();
    let opened = start.elapsed();
    let start = Instant::now();
    let comm = b.field("task_struct.comm").unwrap();
    let first = start.elapsed();
    assert_eq!(comm.size, 16);
    let start = Instant::now();
    for path in
        ["task_struct.pid", "task_struct.tgid", "task_struct.real_parent", "task_struct.cred", "cred.uid.val"]
    {
        assert!(b.field(path).is_some(), "{path}");
    }
    let five = start.elapsed();
    let start = Instant::now();
    let calls = b.with_prefix(BtfKind::Func, "__x64_sys_").count();
    let prefix = start.elapsed();
    assert!(calls > 300, "{calls} system calls");
    let start = Instant::now();
    for i in 0..10 {
        let _ = b.func(&format!("no_such_function_{i}"));
    }
    let index = start.elapsed();
    let start = Instant::now();
    for _ in 0..100 {
        let _ = b.func("vfs_read");
    }
    let hundred = start.elapsed();
    println!(
        "{b:?}: open {opened:?}, first field {first:?}, five fields {five:?}, prefix {prefix:?}, \
         10 misses with index {index:?}, 100 hits {hundred:?}"
    );
    let f = b.func("vfs_read").unwrap();
    assert_eq!(f.params.len(), 4);
    assert_eq!(f.params[0].name, "file");
    println!("__preempt_count: {:?}", b.var("__preempt_count"));
    let t = Types::with_kernel(kernel);
    let task = t.find("struct task_struct").unwrap();
    let start = Instant::now();
    let members = t.members(task).len();
    println!("task_struct: {} bytes, {members} members in {:?}", t.size(task).unwrap(), start.elapsed());
    assert_eq!(t.offset_of(task, "comm"), Some(u64::from(comm.offset())));
    assert_eq!(t.name(t.member(task, "comm").unwrap().ty), "char [16]");
    assert_eq!(t.find_enumerator("PIDTYPE_PGID").map(|e| e.1), Some(2));
}

#[test]
fn every_struct_of_the_running_kernel_has_consistent_members() {
    let Some(kernel) = running("every_struct_of_the_running_kernel_has_consistent_members") else { return };
    let btf = kernel.vmlinux().unwrap();
    let t = Types::new();
    let mut structs = 0;
    for id in (1..btf.end_id()).step_by(7) {
        if !matches!(btf.def(id), Some(Def::Sou { .. })) {
            continue;
        }
        structs += 1;
        let ty = t.import(btf, id);
        let size = t.size(ty).unwrap();
        for m in t.members(ty).iter() {
            let bits = m.bits.map_or_else(|| t.size(m.ty).unwrap_or(0) * 8, u64::from);
            assert!(m.bit_offset + bits <= size * 8, "{}.{}", t.name(ty), m.name);
        }
    }
    assert!(structs > 500, "{structs}");
}
