//! The kernel side of the data plane in its edge cases: full, wrapped, busy, and interrupted, on
//! the running kernel. The normal cases are covered by the differential test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use bpf_codegen::mir::{KsymId, MapRef};
use bpf_codegen::plan::Options;
use bpf_codegen::target::PreemptCount;
use bpf_sys::{Prog, Update};
use dif::ir::{FaultKind, VarId};
use plane::control::{Activity, DropKind, EPOCH, RESERVE, SLOTS_TAKEN, activity_word};
use plane::ring;
use plane::stacks::{self, Side, Stack};

use crate::session::{self, Run, Setup, pin, privileged};

/// Parses and verifies the module, so that a mistake in a test is not blamed on the back end.
fn setup(text: &str) -> Setup {
    let module = dif::text::parse(text).unwrap();
    dif::verify::verify(&module).unwrap();
    Setup::new(module)
}

fn args(first: u64) -> [u64; 10] {
    [first, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Records `arg0`, and in odd firings the 24 bytes of `s1`.
const RECORDS: &str = r#"
module strsize 24
string s0 = ""
string s1 = "a string of some length"
agg agg0 = "" count [] size 0
clause "short" record 8 {
    does trace 0:u64
b0:
    v0:int = builtin arg0
    v1:int = const 1
    v2:int = and v0, v1
    branch v2, b2, b1
b1:
    reserve
    record 0:u64, v0
    commit
    aggregate agg0[]()
    return
b2:
    predfalse
}
clause "long" record 32 {
    does trace 0:u64
    does trace 8:str(24)
b0:
    v0:int = builtin arg0
    v1:int = const 1
    v2:int = and v0, v1
    branch v2, b1, b2
b1:
    reserve
    record 0:u64, v0
    v3:str = str s1
    record 8:str(24), v3
    commit
    aggregate agg0[]()
    return
b2:
    predfalse
}
"#;

fn small_ring() -> Setup {
    let mut setup = setup(RECORDS);
    setup.options.bufsize = 4096;
    setup
}

#[test]
fn records_wrap_around_the_ring_and_are_read_whole() {
    if !privileged("wrap") {
        return;
    }
    pin();
    let mut run = Run::new(small_ring());
    let mut next = 0;
    for batch in 1..300u64 {
        for i in 0..batch % 17 {
            run.fire(&args(next + i));
        }
        for r in run.records() {
            assert_eq!(word(&r.data, 0), next);
            if next % 2 == 1 {
                assert_eq!(&r.data[8..], b"a string of some length\0");
            }
            next += 1;
        }
    }
    assert!(run.percpu(RESERVE) > 20 * 4096, "{}", run.percpu(RESERVE));
    assert_eq!(run.drops(DropKind::Principal), 0);
}

#[test]
fn a_record_that_finds_a_full_ring_is_counted_and_ends_its_clause() {
    if !privileged("full ring") {
        return;
    }
    pin();
    let mut run = Run::new(small_ring());
    let mut recorded = 0;
    for round in 1..=3u64 {
        for i in 0..200 {
            run.fire(&args(i));
        }
        let got = run.records().len() as u64;
        assert!((50..200).contains(&got), "{got} records in 4 KiB");
        recorded += got;
        assert_eq!(run.drops(DropKind::Principal), round * 200 - recorded);
        assert_eq!(run.aggregation(0)[&vec![]], [recorded]);
    }
}

/// Records `arg0`, and exits with a status when it is not 0: with 5, or with `arg0`.
fn exits(status: &str) -> Setup {
    setup(&format!(
        r#"
module strsize 16
string s0 = ""
clause "records" record 8 {{
    does trace 0:u64
b0:
    v0:int = builtin arg0
    reserve
    record 0:u64, v0
    commit
    return
}}
clause "exits" record 8 {{
    does exit 0:i32
b0:
    v0:int = builtin arg0
    branch v0, b1, b2
b1:
    reserve
    v1:int = const 5
    record 0:i32, {status}
    exit {status}
    commit
    return
b2:
    predfalse
}}
"#
    ))
}

#[test]
fn exit_keeps_its_status_where_a_buffer_that_fills_is_full() {
    if !privileged("exit of a full buffer") {
        return;
    }
    pin();
    // With a constant and with another status, before, when and after the ring is full.
    for (value, status) in [("v1", 5), ("v0", 3)] {
        let mut full = 0;
        for calls in 120..130 {
            let mut setup = exits(value);
            (setup.options.bufsize, setup.options.bufpolicy) = (4096, ring::Policy::Fill);
            let mut run = Run::new(setup);
            (0..calls).for_each(|_| run.fire(&args(0)));
            let closed = run.drops(DropKind::Principal) > 0;
            assert_eq!(closed, Activity::of(run.activity()) == Activity::Draining, "{calls}");
            if closed {
                continue;
            }
            run.fire(&args(3));
            assert_eq!(Activity::of(run.activity()), Activity::Draining, "{calls}");
            full += u32::from(run.drops(DropKind::Principal) > 0);
            let last = run.records().pop().unwrap();
            assert_eq!(word(&last.data, 0), status, "{calls}");
        }
        assert!(full > 0, "no exit( ) came when the ring was full");
    }
}

#[test]
fn exit_ends_tracing_where_its_record_would_enter_a_segment_that_a_writer_holds() {
    if !privileged("exit of a held segment") {
        return;
    }
    pin();
    for (value, status) in [("v1", 5), ("v0", 0)] {
        let mut setup = exits(value);
        (setup.options.bufsize, setup.options.bufpolicy) = (4096, ring::Policy::Ring);
        let run = Run::new(setup);
        // Of each segment one writer has not committed, and the position is at the start of one.
        let held: u64 = (0..plane::overwrite::SEGMENTS).map(plane::overwrite::unit).sum();
        run.set_percpu(RESERVE, (4096 / 8) << plane::overwrite::POSITION | held);
        run.fire(&args(3));
        // Both records were refused.
        assert_eq!(run.drops(DropKind::Principal), 2);
        assert_eq!(run.activity(), activity_word(Activity::Draining, status));
    }
}

#[test]
fn a_flood_of_faults_leaves_space_for_records() {
    if !privileged("flood") {
        return;
    }
    pin();
    let test = "v0:int = builtin arg0\n    v1:int = const 1\n    v2:int = and v0, v1\n    branch v2";
    let mut setup = setup(&format!(
        "module strsize 16\nstring s0 = \"\"\nclause \"faults\" {{\nb0:\n    {test}, b2, b1\nb1:\n    v3:int = const 0\n    \
         faultunless badaddr v3, v0\n    return\nb2:\n    predfalse\n}}\nclause \"records\" record 8 {{\n    does trace 0:u64\n\
         b0:\n    {test}, b1, b2\nb1:\n    reserve\n    record 0:u64, v0\n    commit\n    return\nb2:\n    predfalse\n}}\n"
    ));
    setup.options.bufsize = 4096;
    let mut run = Run::new(setup);
    for _ in 0..500 {
        run.fire(&args(2));
    }
    let dropped = run.drops(DropKind::Principal);
    assert!(dropped > 0);
    run.fire(&args(7));
    assert_eq!(run.drops(DropKind::Principal), dropped);
    let records = run.records();
    assert_eq!(records.len() as u64, 500 - dropped + 1);
    assert_eq!(word(&records.last().unwrap().data, 0), 7);
}

#[test]
fn the_doorbell_rings_once_when_the_ring_is_full() {
    if !privileged("doorbell") {
        return;
    }
    pin();
    let mut run = Run::new(small_ring());
    for i in 0..500 {
        run.fire(&args(i));
    }
    assert_eq!(run.percpu(plane::control::RUNG), 1);
    let doorbell = run.maps.take(MapRef::Doorbell).unwrap();
    let doorbell = bpf_sys::Doorbell::over(doorbell).unwrap();
    assert!(doorbell.is_rung());
    // The doorbell rings again only after the consumer has silenced it.
    doorbell.silence();
    run.fire(&args(0));
    assert!(!doorbell.is_rung());
}

const KEYS: &str = r#"
module strsize 16
string s0 = ""
agg agg0 = "" count [0:u64] size 8
clause "c" {
b0:
    v0:int = builtin arg0
    aggregate agg0[v0]()
    return
}
"#;

#[test]
fn aggregation_drops_are_counted_when_the_table_is_full() {
    if !privileged("full table") {
        return;
    }
    pin();
    let mut setup = setup(KEYS);
    setup.options.aggsize = 4096;
    let run = Run::new(setup);
    for i in 0..1000 {
        run.fire(&args(i));
    }
    let kept = run.aggregation(0);
    let slots = run.maps.plan.aggs[0].shape.slots() as usize;
    assert!(kept.len() <= slots && kept.len() > slots / 2, "{} keys in {slots} slots", kept.len());
    assert!(kept.values().all(|v| *v == [1]));
    assert_eq!(kept.len() as u64 + run.drops(DropKind::Aggregation), 1000);
    // Existing keys are still counted.
    let dropped = run.drops(DropKind::Aggregation);
    for key in kept.keys() {
        run.fire(&args(word(key, 0)));
    }
    assert!(run.aggregation(0).values().all(|v| *v == [2]));
    assert_eq!(run.drops(DropKind::Aggregation), dropped);
}

#[test]
fn the_epoch_selects_the_side_of_the_tables() {
    if !privileged("epoch") {
        return;
    }
    pin();
    let run = Run::new(setup(KEYS));
    run.fire(&args(1));
    run.set_control(EPOCH, 1);
    run.fire(&args(1));
    run.fire(&args(2));
    run.set_control(EPOCH, 2);
    run.fire(&args(3));
    let keys = |side| run.aggregation_of(0, side).keys().map(|k| word(k, 0)).collect::<Vec<_>>();
    assert_eq!((keys(0), keys(1)), (vec![1, 3], vec![1, 2]));
}

const ARRAY: &str = r#"
module strsize 16
string s0 = ""
var var0 = global "a" int [0:u64] size 8
clause "set" {
b0:
    v0:int = builtin arg0
    v1:int = builtin arg1
    storeelem var0[v0], v1
    return
}
clause "get" record 8 {
    does trace 0:u64
b0:
    v0:int = builtin arg0
    reserve
    v1:int = loadelem var0[v0]
    record 0:u64, v1
    commit
    return
}
clause "delete" {
b0:
    v0:int = builtin arg0
    deleteelem var0[v0]
    return
}
"#;

fn call(prog: &Prog, a: u64, b: u64) {
    prog.test_run(&[a, b, 0, 0, 0, 0, 0, 0, 0, 0], None).unwrap();
}

#[test]
fn dynamic_drops_are_counted_when_the_array_is_full() {
    if !privileged("full array") {
        return;
    }
    pin();
    let mut setup = setup(ARRAY);
    setup.options = Options { dynvarsize: 2048, ..setup.options };
    let mut run = Run::new(setup);
    let (set, delete) = (run.also(&[0], 0), run.also(&[2], 0));
    for i in 0..100 {
        call(&set, i, i + 1000);
    }
    let there = run.elements(VarId(0));
    assert!((16..100).contains(&there.len()), "{} elements", there.len());
    assert_eq!(there.len() as u64 + run.drops(DropKind::Dynamic), 100);
    assert!(there.iter().all(|(k, v)| word(k, 0) + 1000 == word(v, 0)));
    // Existing elements can be changed. A deleted element makes space for another.
    let dropped = run.drops(DropKind::Dynamic);
    let key = word(there.keys().next().unwrap(), 0);
    call(&set, key, 5);
    call(&delete, key, 0);
    call(&set, 4711, 6);
    let now = run.elements(VarId(0));
    assert_eq!(run.drops(DropKind::Dynamic), dropped);
    assert_eq!((now.len(), word(&now[&4711u64.to_le_bytes().to_vec()], 0)), (there.len(), 6));
}

#[test]
fn a_number_in_a_locked_element_is_read_and_a_write_to_it_is_a_counted_dynamic_drop() {
    if !privileged("busy element") {
        return;
    }
    pin();
    let mut run = Run::new(setup(ARRAY));
    let (set, get, delete) = (run.also(&[0], 0), run.also(&[1], 0), run.also(&[2], 0));
    call(&set, 1, 42);
    let map = run.maps.get(MapRef::Var(0)).unwrap();
    let (key, mut value) = map.entries().unwrap().remove(0);
    value[0] |= plane::assoc::LOCKED as u8;
    map.update(&key, &value, Update::Any).unwrap();
    call(&set, 1, 43);
    call(&delete, 1, 0);
    call(&get, 1, 0);
    assert_eq!(run.drops(DropKind::Dynamic), 2);
    assert_eq!(word(&run.records()[0].data, 0), 42, "as before the write or after it");
    assert_eq!(word(&run.elements(VarId(0))[&key], 0), 42, "and stays as it was");
    // Deleted, but not freed yet. A load finds no element.
    value[0] |= plane::assoc::GONE as u8;
    run.maps.get(MapRef::Var(0)).unwrap().update(&key, &value, Update::Any).unwrap();
    call(&get, 1, 0);
    assert_eq!((run.drops(DropKind::Dynamic), word(&run.records()[0].data, 0)), (2, 0));
}

const COUNTED: &str = r#"
module strsize 16
string s0 = ""
var var0 = global "a" int [0:u64] size 8
clause "add" record 8 {
    does trace 0:i64
b0:
    v0:int = builtin arg0
    v1:int = builtin arg1
    reserve
    v2:int = addelem var0[v0], v1
    record 0:i64, v2
    commit
    return
}
"#;

#[test]
fn an_addition_is_the_sum_where_the_element_has_space_and_is_not_locked() {
    if !privileged("addition") {
        return;
    }
    pin();
    let mut setup = setup(COUNTED);
    setup.options = Options { dynvarsize: 2048, ..setup.options };
    let mut run = Run::new(setup);
    let add = run.also(&[0], 0);
    let sum = |run: &mut Run, key: u64, by: i64| {
        call(&add, key, by as u64);
        word(&run.records().pop().unwrap().data, 0) as i64
    };
    // The element is created with the first addition, and stays when it is 0.
    assert_eq!(sum(&mut run, 7, 5), 5);
    assert_eq!(sum(&mut run, 7, -5), 0);
    assert_eq!(sum(&mut run, 7, -1), -1);
    assert_eq!(sum(&mut run, 7, i64::MIN), i64::MAX);
    assert_eq!(sum(&mut run, 7, 1), i64::MIN);
    assert_eq!((run.elements(VarId(0)).len(), run.drops(DropKind::Dynamic)), (1, 0));
    // Locked by another CPU all the time: nothing is added.
    let map = run.maps.get(MapRef::Var(0)).unwrap();
    let (key, mut value) = map.entries().unwrap().remove(0);
    value[0] |= plane::assoc::LOCKED as u8;
    map.update(&key, &value, Update::Any).unwrap();
    assert_eq!(sum(&mut run, 7, 1), 0);
    assert_eq!(run.drops(DropKind::Dynamic), 1);
    value[0] &= !(plane::assoc::LOCKED as u8);
    run.maps.get(MapRef::Var(0)).unwrap().update(&key, &value, Update::Any).unwrap();
    assert_eq!(sum(&mut run, 7, 1), i64::MIN + 1);
    // Elements for which there is no space are not created.
    let sums: Vec<i64> = (100..200).map(|key| sum(&mut run, key, 3)).collect();
    let created = run.elements(VarId(0)).len() as u64 - 1;
    assert!((16..100).contains(&created), "{created} elements");
    assert_eq!(sums.iter().filter(|s| **s == 3).count() as u64, created);
    assert_eq!(sums.iter().filter(|s| **s == 0).count() as u64, 100 - created);
    assert_eq!(run.drops(DropKind::Dynamic), 1 + 100 - created);
}

const SELF: &str = r#"
module strsize 16
string s0 = ""
var var0 = self "x" int
var var1 = self "a" int [0:u64] size 8
clause "set" {
b0:
    v0:int = builtin arg0
    v1:int = const 1
    storevar var0, v0
    storeelem var1[v1], v0
    return
}
clause "get" record 16 {
    does trace 0:u64
    does trace 8:u64
b0:
    reserve
    v0:int = loadvar var0
    v1:int = const 1
    v2:int = loadelem var1[v1]
    record 0:u64, v0
    record 8:u64, v2
    commit
    return
}
"#;

/// `self->x` and `self->a[1]` as the program sees them.
fn got(run: &mut Run, get: &Prog) -> (u64, u64) {
    call(get, 0, 0);
    let r = run.records().pop().unwrap();
    (word(&r.data, 0), word(&r.data, 8))
}

#[test]
fn self_variables_are_separate_at_each_context_level() {
    if !privileged("self") {
        return;
    }
    pin();
    let mut setup = setup(SELF);
    setup.levels = 3;
    let mut run = Run::new(setup);
    let (set, get) = (run.also(&[0], 0), run.also(&[1], 0));
    let (set_hard, get_hard) = (run.also(&[0], 2), run.also(&[1], 2));
    assert_eq!(got(&mut run, &get), (0, 0), "a thread that has none reads 0");
    call(&set, 5, 0);
    call(&set_hard, 7, 0);
    assert_eq!(got(&mut run, &get), (5, 5));
    assert_eq!(got(&mut run, &get_hard), (7, 7));
    std::thread::scope(|s| {
        s.spawn(|| {
            pin();
            assert_eq!(got(&mut run, &get), (0, 0));
            call(&set, 9, 0);
            assert_eq!(got(&mut run, &get), (9, 9));
            assert_eq!(got(&mut run, &get_hard), (0, 0));
        });
    });
    assert_eq!(got(&mut run, &get), (5, 5));
    assert_eq!(run.elements(VarId(1)).len(), 3);
    assert_eq!(run.drops(DropKind::Dynamic), 0);
}

#[test]
fn the_context_level_is_read_from_the_preempt_count() {
    if !privileged("level") {
        return;
    }
    pin();
    let Some(at) = preempt_count() else {
        testing::skipped!("the preempt count has no type or no address");
        return;
    };
    let mut setup = setup(SELF);
    setup.levels = 4;
    setup.preempt_count = Some(at);
    let mut run = Run::new(setup);
    let (set, get) = (run.also(&[0], 0), run.also(&[1], 0));
    call(&set, 5, 0);
    assert_eq!(got(&mut run, &get), (5, 5));
    let keys: Vec<_> = run.elements(VarId(1)).into_keys().collect();
    assert_eq!(word(&keys[0], 0) & 3, 0, "a system call runs at the thread's level");
}

/// The per-CPU preempt count, alone or in `pcpu_hot`.
fn preempt_count() -> Option<PreemptCount> {
    let kernel = types::btf::KernelBtf::running();
    let btf = kernel.vmlinux().ok()?;
    // Kernels without CONFIG_KALLSYMS_ALL do not know where their variables are.
    let symbols = std::fs::read_to_string("/proc/kallsyms").ok()?;
    let name =
        |l: &str| l.split_whitespace().nth(2).is_some_and(|n| matches!(n, "__preempt_count" | "pcpu_hot"));
    symbols.lines().find(|l| name(l))?;
    if let Some(var) = btf.var("__preempt_count") {
        return Some(PreemptCount { ksym: KsymId(var.id), offset: 0 });
    }
    let offset = btf.field("pcpu_hot.preempt_count")?.offset() as i16;
    Some(PreemptCount { ksym: KsymId(btf.var("pcpu_hot")?.id), offset })
}

/// One frame of the process: optimized tests have no frame pointers, so the frames behind it vary.
const STACKS: &str = r#"
module strsize 16
string s0 = ""
clause "c" record 16 {
    does trace 0:kstack(20)
    does trace 8:ustack(1, 0)
b0:
    reserve
    v0:int = kstack 20
    record 0:kstack(20), v0
    v1:int = ustack 1
    record 8:ustack(1, 0), v1
    commit
    return
}
"#;

const STACK_KEY: [u64; 2] = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];

fn boot_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the timespec is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[test]
fn equal_stacks_are_stored_once() {
    if !privileged("stacks") {
        return;
    }
    pin();
    let begun = boot_time();
    let mut setup = setup(STACKS);
    setup.options.stack_key = STACK_KEY;
    setup.target = session::target();
    let mut run = Run::new(setup);
    let mut kernel = BTreeSet::new();
    let mut user = BTreeSet::new();
    for _ in 0..5 {
        run.fire(&args(0));
        let r = run.records().pop().unwrap();
        kernel.insert(word(&r.data, 0));
        user.insert(word(&r.data, 8));
    }
    assert_eq!((kernel.len(), user.len()), (1, 1), "one place, one stack");
    // The same addresses in another process are another stack.
    // SAFETY: the child only makes system calls.
    let child = unsafe { libc::fork() };
    if child == 0 {
        run.fire(&args(0));
        // SAFETY: ends the child without running what the parent has to run.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: waits for that child.
    assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    let r = run.records().pop().unwrap();
    kernel.insert(word(&r.data, 0));
    user.insert(word(&r.data, 8));
    assert_eq!((kernel.len(), user.len()), (1, 2));
    let memory = run.maps.get(MapRef::StackSide).unwrap().mmap(true).unwrap();
    let side = Side::new(memory.words(), run.maps.plan.stack_block);
    let kept: Vec<(u64, Stack)> = side.stacks().collect();
    let ids: BTreeSet<u64> = kept.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, &kernel | &user);
    assert_eq!(kept.len(), 3);
    for (id, stack) in kept {
        assert_eq!(side.find(id).as_ref(), Some(&stack));
        assert!(!stack.pcs.is_empty() && stack.pcs.iter().all(|pc| *pc != 0), "{stack:x?}");
        let in_kernel = kernel.contains(&id);
        // Only the program knows the generation of a process, to the nanosecond.
        assert_eq!(
            plane::stacks::id(STACK_KEY, stack.tgid, 0, &stack.pcs, &stack.calls) == id,
            in_kernel,
            "{stack:x?}"
        );
        let times = if in_kernel { 0..=0 } else { begun..=boot_time() };
        assert!(times.contains(&stack.time), "{stack:x?}");
        let of = if in_kernel { vec![0] } else { vec![std::process::id(), child as u32] };
        assert!(of.contains(&stack.tgid), "{stack:x?} {of:?}");
        assert!(stack.pcs.iter().all(|pc| (*pc as i64) < 0) == in_kernel, "{stack:x?}");
    }
    assert_eq!(run.drops(DropKind::Stack), 0);
}

/// Other programs hold every slot, and have not written their ids yet.
#[test]
fn a_stack_that_makes_a_block_half_full_rings_the_doorbell_though_it_finds_no_slot() {
    if !privileged("stacks") {
        return;
    }
    pin();
    let mut run = Run::new(setup(STACKS));
    let memory = run.maps.get(MapRef::StackSide).unwrap().mmap(true).unwrap();
    let shape = run.maps.plan.stack_block;
    let at = |offset: u32| &memory.words()[offset as usize / 8];
    at(stacks::CLAIMED).store(u64::from(shape.words() / 2 - 1), Ordering::Relaxed);
    for slot in 0..shape.slots {
        at(stacks::SLOTS + stacks::SLOT * slot + stacks::PLACE).store(1, Ordering::Relaxed);
    }
    run.fire(&args(0));
    assert_eq!(run.drops(DropKind::Stack), 2);
    let doorbell = bpf_sys::Doorbell::over(run.maps.take(MapRef::Doorbell).unwrap()).unwrap();
    assert!(doorbell.is_rung());
}

const EPID: &str = r#"
module strsize 16
string s0 = ""
clause "c" record 8 {
    does trace 0:u32
    does trace 4:interned
b0:
    v0:int = builtin epid
    v1:int = const 60
    v2:int = cmp.sgt v0, v1
    branch v2, b1, b2
b1:
    reserve
    record 0:u32, v0
    v3:str = builtin probefunc
    record 4:interned, v3
    commit
    return
b2:
    predfalse
}
"#;

#[test]
fn the_probe_index_keeps_its_bound_when_a_clause_compares_the_epid() {
    if !privileged("epid") {
        return;
    }
    pin();
    let mut setup = setup(EPID);
    setup.probes = 70;
    let names = session::interned(&setup.module, 70);
    let mut run = Run::new(setup);
    for probe in [60u32, 61, 69] {
        let mut args = args(0);
        args[9] = u64::from(probe);
        run.fire(&args);
        let got = run.records();
        assert_eq!(got.len(), usize::from(probe > 60));
        for r in got {
            assert_eq!(word(&r.data, 0) as u32, probe);
            assert_eq!(names[(word(&r.data, 0) >> 32) as usize], format!("func{probe}").into_bytes());
        }
    }
}

const LONG_STRING: &str = r#"
module strsize 16
string s0 = ""
string s1 = "fifteen letters"
var var0 = global "x" str
agg agg0 = "" count [0:str(16)] size 16
clause "c" record 40 {
    does trace 0:str(16)
    does trace 16:u64
    does trace 24:u64
    does trace 32:str(8)
b0:
    reserve
    v0:int = builtin arg0
    v1:ptr.user = asptr v0
    v2:str = loadstr v1
    record 0:str(16), v2
    v3:int = strlen v2
    record 16:u64, v3
    v4:str = str s1
    v5:int = strcmp.eq v2, v4
    record 24:u64, v5
    storevar var0, v2
    aggregate agg0[v2]()
    commit
    return
}
"#;

#[test]
fn a_string_longer_than_strsize_is_truncated() {
    if !privileged("strings") {
        return;
    }
    pin();
    let text = LONG_STRING.replace("    does trace 32:str(8)\n", "").replace("record 40", "record 32");
    let mut run = Run::new(setup(&text));
    let long = b"fifteen letters and then some\0";
    run.fire(&args(long.as_ptr() as u64));
    let r = run.records().pop().unwrap();
    assert_eq!(&r.data[..16], b"fifteen letters\0");
    assert_eq!((word(&r.data, 16), word(&r.data, 24)), (15, 1));
    assert_eq!(run.global(VarId(0), 16), b"fifteen letters\0");
    assert_eq!(run.aggregation(0).into_keys().collect::<Vec<_>>(), [b"fifteen letters\0"]);
}

#[test]
fn each_kind_of_fault_is_recorded_and_fires_error() {
    if !privileged("faults") {
        return;
    }
    pin();
    let names = [
        "unknown",
        "badaddr",
        "badalign",
        "illop",
        "divzero",
        "noscratch",
        "kpriv",
        "upriv",
        "tupoflow",
        "badstack",
        "badsize",
        "badindex",
        "library",
    ];
    let mut text = "module strsize 16\nstring s0 = \"\"\n".to_owned();
    for name in names {
        text += &format!(
            "clause \"{name}\" record 8 {{\n    does trace 0:u64\nb0:\n  action 3\n    reserve\n    \
             v0:int = builtin arg0\n    v1:int = const 0\n    record 0:u64, v0\n    \
             faultunless {name} v1, v0\n    commit\n    return\n}}\n"
        );
    }
    text += "clause \"ERROR\" record 40 {\nb0:\n    reserve\n";
    for n in 1..=5 {
        text += &format!("    v{n}:int = builtin arg{n}\n    record {}:u64, v{n}\n", 8 * (n - 1));
    }
    text += "    commit\n    return\n}\n";
    let mut setup = setup(&text);
    setup.error = vec![names.len()];
    setup.clauses.pop();
    let mut run = Run::new(setup);
    run.fire(&args(4711));
    let records = run.records();
    assert_eq!(records.len(), 3 * FaultKind::ALL.len(), "discarded, the fault, ERROR's");
    for (i, (kind, r)) in FaultKind::ALL.into_iter().zip(records.chunks(3)).enumerate() {
        let epid = session::EPIDS * i as u32;
        assert_eq!(r[0].flags, ring::flags::DISCARD);
        assert_eq!((r[1].flags, r[1].epid), (ring::flags::FAULT, epid));
        let fault = ring::Fault::read(&r[1].data).unwrap();
        assert_eq!((fault.kind, fault.action, fault.value), (kind as u16, 3, 4711));
        let said: Vec<u64> = (0..5).map(|n| word(&r[2].data, 8 * n)).collect();
        assert_eq!(said, [u64::from(epid), 3, u64::from(fault.offset), kind as u64, 4711]);
    }
}

#[test]
fn a_drop_is_counted_when_no_scratch_slot_is_free() {
    if !privileged("scratch") {
        return;
    }
    pin();
    let text = LONG_STRING.replace("    does trace 32:str(8)\n", "").replace("record 40", "record 32");
    let mut run = Run::new(setup(&text));
    let s = c"text".as_ptr() as u64;
    run.set_percpu(SLOTS_TAKEN, (1 << plane::scratch::SLOTS) - 1);
    run.fire(&args(s));
    assert_eq!((run.drops(DropKind::Scratch), run.records().len()), (1, 0));
    // One free slot is enough, and it is released.
    let one = (1 << plane::scratch::SLOTS) - 1 - 4;
    run.set_percpu(SLOTS_TAKEN, one);
    run.fire(&args(s));
    assert_eq!((run.drops(DropKind::Scratch), run.records().len()), (1, 1));
    assert_eq!(run.percpu(SLOTS_TAKEN), one);
}

/// Two clauses that record. The first uses the clock.
const TWO_RECORDS: &str = r#"
module strsize 16
string s0 = ""
clause "a" record 8 {
b0:
    reserve
    v0:int = builtin timestamp
    record 0:u64, v0
    commit
    return
}
clause "b" record 8 {
b0:
    v0:int = builtin walltimestamp
    reserve
    v1:int = builtin timestamp
    record 0:u64, v1
    commit
    return
}
"#;

#[test]
fn clauses_of_a_firing_share_a_clock_that_the_slot_forgets() {
    if !privileged("clock") {
        return;
    }
    pin();
    let mut run = Run::new(setup(TWO_RECORDS));
    run.fire(&args(0));
    run.fire(&args(0));
    let times: Vec<u64> = run.records().iter().map(|r| word(&r.data, 0)).collect();
    assert!(times.len() == 4 && times[0] > 0 && times[0] == times[1], "{times:?}");
    assert!(times[2] > times[1] && times[2] == times[3], "{times:?}");
    assert_eq!(run.percpu(SLOTS_TAKEN), 0);
    let slots = 0..plane::scratch::SLOTS;
    assert!(slots.map(|slot| run.percpu(plane::control::CLOCKS + 8 * slot)).all(|clock| clock == 0));
}

#[test]
fn a_program_runs_only_in_its_activity() {
    if !privileged("activity") {
        return;
    }
    pin();
    let run = Run::new(setup(KEYS));
    for state in [Activity::Warmup, Activity::Draining, Activity::Stopped, Activity::Killed] {
        run.set_control(plane::control::ACTIVITY, state as u64);
        run.fire(&args(1));
        assert!(run.aggregation(0).is_empty(), "{state:?}");
    }
    run.set_control(plane::control::ACTIVITY, Activity::Active as u64);
    run.fire(&args(1));
    assert_eq!(run.aggregation(0).len(), 1);
}
