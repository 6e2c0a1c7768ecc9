//! The system call layer on the running kernel.
//!
//! Every test writes its programs as instructions, so a failure here is a failure of this layer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bpf_sys::btf::Builder;
use bpf_sys::features::{Facility, Features};
use bpf_sys::insn::{Alu, Atomic, Helper, Insn, Jmp, Reg, Size};
use bpf_sys::*;
use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use types::btf::{BtfKind, KernelBtf};

/// Ends the test with a message when the kernel lacks a facility.
macro_rules! need {
    ($facility:ident) => {
        if let Some(reason) = Features::running().why_not(Facility::$facility) {
            testing::skipped!("{reason}");
            return;
        }
    };
}

/// Adds 1 to word `at` of the map when the current process is `tgid`, then returns 0.
fn count_if_mine(map: &Map, at: u32) -> Vec<Insn> {
    let mut p = vec![
        Insn::call(Helper::GET_CURRENT_PID_TGID),
        Insn::alu64_imm(Alu::Rsh, Reg::R0, 32),
        Insn::jmp_imm(Jmp::Ne, Reg::R0, std::process::id() as i32, 4),
    ];
    p.extend(Insn::ld_map_value(Reg::R1, map.as_raw_fd(), at * 8));
    p.extend([
        Insn::mov64_imm(Reg::R2, 1),
        Insn::atomic64(Atomic::Add, Reg::R1, 0, Reg::R2),
        Insn::mov64_imm(Reg::R0, 0),
        Insn::exit(),
    ]);
    p
}

/// Adds the attach cookie to word 0 and 1 to word 1.
fn add_cookie(map: &Map) -> Vec<Insn> {
    let mut p = vec![Insn::call(Helper::GET_ATTACH_COOKIE)];
    p.extend(Insn::ld_map_value(Reg::R1, map.as_raw_fd(), 0));
    p.extend([
        Insn::atomic64(Atomic::Add, Reg::R1, 0, Reg::R0),
        Insn::mov64_imm(Reg::R2, 1),
        Insn::atomic64(Atomic::Add, Reg::R1, 8, Reg::R2),
        Insn::mov64_imm(Reg::R0, 0),
        Insn::exit(),
    ]);
    p
}

fn shared(words: u32) -> (Map, Mmap) {
    let map = Map::create(&MapSpec::mmapable("shared", words * 8, 1)).unwrap();
    let memory = map.mmap(true).unwrap();
    (map, memory)
}

fn get(memory: &Mmap, word: usize) -> u64 {
    memory.words()[word].load(Ordering::SeqCst)
}

fn getppid(times: u32) {
    for _ in 0..times {
        // SAFETY: no arguments.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
}

fn load(kind: ProgKind, attach: AttachType, insns: &[Insn]) -> Prog {
    match Prog::load(&ProgSpec { attach, ..ProgSpec::new(kind, "test", insns) }) {
        Ok(p) => p,
        Err(e) => panic!("{}\n{}", e.error, e.log),
    }
}

#[test]
fn a_hash_stores_and_lists_its_elements() {
    need!(MmapArray);
    let m = Map::create(&MapSpec::hash("h", 8, 16, 1000)).unwrap();
    for i in 0..700u64 {
        let value: Vec<u8> = [i, i * i].iter().flat_map(|w| w.to_ne_bytes()).collect();
        m.update(&i.to_ne_bytes(), &value, Update::NoExist).unwrap();
    }
    assert_eq!(m.update(&0u64.to_ne_bytes(), &[0; 16], Update::NoExist).unwrap_err().errno, libc::EEXIST);
    assert!(m.delete(&3u64.to_ne_bytes()).unwrap());
    assert!(!m.delete(&3u64.to_ne_bytes()).unwrap());
    let mut value = [0; 16];
    assert!(m.lookup(&26u64.to_ne_bytes(), &mut value).unwrap());
    assert_eq!(value[8..], 676u64.to_ne_bytes());
    assert!(!m.lookup(&3u64.to_ne_bytes(), &mut value).unwrap());
    assert_eq!(m.lookup(&[1], &mut value).unwrap_err().errno, libc::EINVAL);
    let mut all: Vec<u64> =
        m.entries().unwrap().iter().map(|(k, _)| u64::from_ne_bytes(k[..].try_into().unwrap())).collect();
    all.sort_unstable();
    assert_eq!(all, (0..700).filter(|i| *i != 3).collect::<Vec<_>>());
    assert_eq!((m.info().unwrap().name().as_str(), m.info().unwrap().max_entries), ("h", 1000));
}

#[test]
fn an_empty_hash_has_no_elements_and_per_cpu_values_cover_every_cpu() {
    need!(MmapArray);
    assert!(Map::create(&MapSpec::hash("e", 4, 4, 10)).unwrap().entries().unwrap().is_empty());
    let spec = MapSpec { kind: MapKind::PercpuHash, ..MapSpec::hash("p", 4, 4, 10) };
    let m = Map::create(&spec).unwrap();
    assert_eq!(m.value_size(), 8 * possible_cpus());
    m.update(&[1, 0, 0, 0], &vec![7; m.value_size()], Update::Any).unwrap();
    assert_eq!(m.entries().unwrap().len(), 1);
}

#[test]
fn counts_of_a_raw_tracepoint_are_visible_in_the_mapping() {
    need!(RawTp);
    let (map, memory) = shared(1);
    let prog = load(ProgKind::RawTracepoint, AttachType::None, &count_if_mine(&map, 0));
    let link = Link::raw_tracepoint(&prog, "sys_enter", 0).unwrap();
    getppid(1000);
    drop(link);
    let seen = get(&memory, 0);
    getppid(10);
    assert!(seen >= 1000, "{seen}");
    let info = prog.info().unwrap();
    assert_eq!(info.name(), "test");
    println!("verified {} instructions, {} missed", info.verified_insns, info.recursion_misses);
}

#[test]
fn a_typed_tracepoint_reads_its_arguments_directly() {
    need!(TpBtf);
    let id =
        KernelBtf::running().vmlinux().ok().and_then(|b| b.find(&[BtfKind::Typedef], "btf_trace_sys_enter"));
    let id = id.expect("sys_enter in BTF");
    let (map, memory) = shared(1);
    // if (ctx[1] == getppid) count
    let mut p = vec![
        Insn::ldx(Size::B8, Reg::R6, Reg::R1, 8),
        Insn::jmp_imm(Jmp::Ne, Reg::R6, libc::SYS_getppid as i32, 7),
    ];
    p.extend(count_if_mine(&map, 0));
    let at = p.len() as i16;
    p[1].off = at - 2 - 2;
    let spec = ProgSpec {
        attach: AttachType::TraceRawTp,
        attach_btf_id: id,
        ..ProgSpec::new(ProgKind::Tracing, "typed", &p)
    };
    let prog = Prog::load(&spec).unwrap_or_else(|e| panic!("{}\n{}", e.error, e.log));
    let _link = Link::tracing(&prog, 0).unwrap();
    getppid(500);
    assert!((500..510).contains(&get(&memory, 0)), "{}", get(&memory, 0));
}

#[test]
fn a_test_run_passes_arguments_and_returns_the_result() {
    need!(TestRun);
    let p = [
        Insn::ldx(Size::B8, Reg::R0, Reg::R1, 0),
        Insn::ldx(Size::B8, Reg::R2, Reg::R1, 8),
        Insn::alu64(Alu::Add, Reg::R0, Reg::R2),
        Insn::exit(),
    ];
    let prog = load(ProgKind::RawTracepoint, AttachType::None, &p);
    assert_eq!(prog.test_run(&[40, 2], None).unwrap(), 42);
    assert_eq!(prog.test_run(&[40, 3], Some(online_cpus()[0])).unwrap(), 43);
    assert_eq!(prog.test_run(&[40], None).unwrap_err().errno, libc::EINVAL);
}

#[test]
fn a_clock_fires_at_its_period_with_its_cookie() {
    need!(CpuClock);
    let (map, memory) = shared(2);
    let prog = load(ProgKind::PerfEvent, AttachType::None, &add_cookie(&map));
    // A host may not run an idle CPU's clock, so this thread keeps the CPU busy.
    let cpu = online_cpus()[0];
    // SAFETY: the set is a plain bit array that outlives the call.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu as usize, &mut set);
        libc::sched_setaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &set);
    }
    let begun = Instant::now();
    let clock = PerfEvent::cpu_clock(cpu, Rate::Period(1_000_000)).unwrap();
    let link = Link::perf_event(&prog, clock, 5).unwrap();
    while get(&memory, 1) < 20 && begun.elapsed() < testing::HANG_LIMIT {
        std::hint::spin_loop();
    }
    link.event().unwrap().disable().unwrap();
    let (sum, fired, ms) = (get(&memory, 0), get(&memory, 1), begun.elapsed().as_millis() as u64);
    assert_eq!(sum, fired * 5);
    assert!((20..=ms + 2).contains(&fired), "{fired} in {ms} ms at 1 kHz");
    println!("fired {fired}, the event counts {} ns", link.event().unwrap().count().unwrap());
}

// Tests run in parallel in one process, so each traces its own functions.

#[inline(never)]
extern "C" fn traced_alone(x: u64) -> u64 {
    std::hint::black_box(x) + 1
}

#[inline(never)]
extern "C" fn traced_a(x: u64) -> u64 {
    std::hint::black_box(x) + 3
}

#[inline(never)]
extern "C" fn traced_b(x: u64) -> u64 {
    std::hint::black_box(x) + 2
}

/// The function's offset in this executable.
fn place(function: extern "C" fn(u64) -> u64) -> (OsString, u64) {
    let at = testing::offset_in_file(function as *const () as u64).unwrap();
    (OsString::from("/proc/self/exe"), at)
}

#[test]
fn a_user_function_fires_with_its_cookie() {
    need!(UprobePerf);
    let (map, memory) = shared(2);
    let (path, offset) = place(traced_alone);
    let prog = load(ProgKind::Kprobe, AttachType::None, &add_cookie(&map));
    for (is_return, pid) in [(false, Some(std::process::id())), (true, None)] {
        let before = get(&memory, 1);
        let event = PerfEvent::uprobe(&path, offset, 0, is_return, pid).unwrap();
        let link = Link::perf_event(&prog, event, 7).unwrap();
        for i in 0..100 {
            assert_eq!(traced_alone(i), i + 1);
        }
        drop(link);
        assert_eq!(get(&memory, 1) - before, 100, "return {is_return}, pid {pid:?}");
    }
    traced_alone(1);
    assert_eq!(get(&memory, 0), 1400);
}

#[test]
fn two_user_functions_on_one_link_keep_their_cookies() {
    need!(UprobeMulti);
    let (map, memory) = shared(2);
    let (path, a) = place(traced_a);
    let (_, b) = place(traced_b);
    let prog = load(ProgKind::Kprobe, AttachType::UprobeMulti, &add_cookie(&map));
    for is_return in [false, true] {
        let target = UprobeTarget {
            path: &path,
            offsets: &[a, b],
            cookies: &[1, 1000],
            semaphores: &[],
            pid: Some(std::process::id()),
            is_return,
        };
        let link = Link::uprobe_multi(&prog, &target).unwrap();
        (0..10).for_each(|i| {
            traced_b(i);
        });
        traced_b(traced_b(0));
        drop(link);
    }
    assert_eq!((get(&memory, 0), get(&memory, 1)), (2 * 12_000, 2 * 12));
    let wrong = UprobeTarget {
        path: &path,
        offsets: &[a, b],
        cookies: &[1],
        semaphores: &[],
        pid: None,
        is_return: false,
    };
    assert_eq!(Link::uprobe_multi(&prog, &wrong).unwrap_err().errno, libc::EINVAL);
}

#[test]
fn a_system_call_function_is_traced_by_name() {
    need!(KprobeMulti);
    let (map, memory) = shared(2);
    let prog = load(ProgKind::Kprobe, AttachType::KprobeMulti, &add_cookie(&map));
    let names = [c"__x64_sys_getppid".to_owned(), c"__x64_sys_getpgid".to_owned()];
    let start = Instant::now();
    let link = Link::kprobe_multi(&prog, ProbeSite::Names(&names), &[3, 1 << 40], false, &|| false).unwrap();
    let attach = start.elapsed();
    getppid(100);
    println!("attach {attach:?}, missed {}", link.info().unwrap().missed());
    let start = Instant::now();
    drop(link);
    println!("close {:?}", start.elapsed());
    assert_eq!(get(&memory, 0) & 0xffff_ffff, 300);
    let unknown = [CString::new("no_such_function").unwrap()];
    assert!(Link::kprobe_multi(&prog, ProbeSite::Names(&unknown), &[], false, &|| false).is_err());
}

#[test]
fn task_storage_keeps_one_value_for_each_task() {
    need!(TaskStorage);
    need!(TaskBtf);
    need!(TestRun);
    let mut b = Builder::new();
    let (key, value) = (b.i32(), b.words("store", 2));
    let btf = b.load().unwrap();
    let types = MapBtf { btf: btf.as_fd(), key: key.0, value: value.0 };
    let map = Map::create(&MapSpec::task_storage("store", 16, types)).unwrap();
    const CREATE: i32 = 1;
    let mut p = vec![Insn::call(Helper::GET_CURRENT_TASK_BTF), Insn::mov64(Reg::R2, Reg::R0)];
    p.extend(Insn::ld_map_fd(Reg::R1, map.as_raw_fd()));
    p.extend([
        Insn::mov64_imm(Reg::R3, 0),
        Insn::mov64_imm(Reg::R4, CREATE),
        Insn::call(Helper::TASK_STORAGE_GET),
        Insn::jmp_imm(Jmp::Eq, Reg::R0, 0, 3),
        Insn::mov64_imm(Reg::R1, 1),
        Insn::atomic64(Atomic::FetchAdd, Reg::R0, 8, Reg::R1),
        Insn::mov64(Reg::R0, Reg::R1),
        Insn::exit(),
    ]);
    let prog = load(ProgKind::RawTracepoint, AttachType::None, &p);
    assert_eq!((0..4).map(|_| prog.test_run(&[], None).unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn the_doorbell_wakes_and_can_be_silenced() {
    need!(Ringbuf);
    need!(TestRun);
    let bell = Doorbell::new().unwrap();
    const FORCE_WAKEUP: i32 = 2;
    let mut p = vec![Insn::st(Size::B8, Reg::R10, -8, 0)];
    p.extend(Insn::ld_map_fd(Reg::R1, bell.map().as_raw_fd()));
    p.extend([
        Insn::mov64(Reg::R2, Reg::R10),
        Insn::alu64_imm(Alu::Add, Reg::R2, -8),
        Insn::mov64_imm(Reg::R3, 8),
        Insn::mov64_imm(Reg::R4, FORCE_WAKEUP),
        Insn::call(Helper::RINGBUF_OUTPUT),
        Insn::exit(),
    ]);
    let prog = load(ProgKind::RawTracepoint, AttachType::None, &p);
    assert!(!bell.wait(Duration::ZERO).unwrap());
    // More rings than fit the page, so that the positions wrap.
    for _ in 0..1000 {
        assert_eq!(prog.test_run(&[], None).unwrap(), 0);
        assert!(bell.wait(testing::HANG_LIMIT).unwrap() && bell.is_rung());
        bell.silence();
        assert!(!bell.is_rung() && !bell.wait(Duration::ZERO).unwrap());
    }
}

/// A program that sets word 0, runs `rounds` × 2^20 empty calls, and sets word 1.
fn spin(map: &Map, rounds: i32) -> Prog {
    const BODY: u32 = 12;
    let mut p = Vec::from(Insn::ld_map_value(Reg::R6, map.as_raw_fd(), 0));
    p.extend([Insn::st(Size::B8, Reg::R6, 0, 1), Insn::mov64_imm(Reg::R1, rounds << 20)]);
    p.extend(Insn::ld_func(Reg::R2, BODY as i32 - 5)); // slot 4
    p.extend([
        Insn::mov64_imm(Reg::R3, 0),
        Insn::mov64_imm(Reg::R4, 0),
        Insn::call(Helper::LOOP),
        Insn::st(Size::B8, Reg::R6, 8, 1),
        Insn::mov64_imm(Reg::R0, 0),
        Insn::exit(),
    ]);
    assert_eq!(p.len(), BODY as usize);
    p.extend([Insn::mov64_imm(Reg::R0, 0), Insn::exit()]);
    let mut image = bpf_sys::load::ProgramImage::new("spin", ProgKind::RawTracepoint, p);
    let f = |name: &str, start, params, global| bpf_sys::load::Subprogram {
        name: name.into(),
        start,
        params: vec![bpf_sys::load::Param::Word; params],
        global,
    };
    image.funcs = vec![f("spin", 0, 1, true), f("body", BODY, 2, false)];
    image.load(0).unwrap_or_else(|e| panic!("{e}\n{}", e.log)).prog
}

#[test]
fn a_grace_period_ends_after_the_programs_that_ran_at_its_start() {
    need!(TestRun);
    need!(BpfLoop);
    let grace = GracePeriod::new().unwrap();
    let start = Instant::now();
    for _ in 0..5 {
        grace.wait().unwrap();
    }
    println!("a grace period takes {:?}", start.elapsed() / 5);
    let (map, memory) = shared(2);
    let prog = spin(&map, 8);
    for round in 0..10 {
        memory.words().iter().for_each(|w| w.store(0, Ordering::SeqCst));
        std::thread::scope(|s| {
            let run = s.spawn(|| prog.test_run(&[], None).unwrap());
            while get(&memory, 0) == 0 {
                std::thread::yield_now();
            }
            let early = get(&memory, 1) == 0;
            let start = Instant::now();
            grace.wait().unwrap();
            assert_eq!(get(&memory, 1), 1, "round {round}: the program outlived the grace period");
            if round == 0 {
                println!("with a program running (seen in its middle: {early}): {:?}", start.elapsed());
            }
            assert_eq!(run.join().unwrap(), 0);
        });
    }
}

#[test]
fn views_beyond_the_end_of_shared_memory_are_rejected() {
    need!(MmapArray);
    let (_, memory) = shared(600);
    assert_eq!(memory.len(), 8192);
    assert!(memory.slice(8, 8192).is_none() && memory.slice(4, 8).is_none() && memory.word(8192).is_none());
    memory.word(8184).unwrap().store(5, Ordering::Relaxed);
    let mut out = [0; 2];
    assert!(memory.copy_words(8176, &mut out) && out == [0, 5]);
    assert!(!memory.copy_words(8184, &mut out));
}

#[test]
fn read_only_shared_memory_can_be_loaded_and_gives_no_words_to_store_to() {
    need!(MmapArray);
    let map = Map::create(&MapSpec::mmapable("shared", 8, 600)).unwrap();
    let (memory, seen) = (map.mmap(true).unwrap(), map.mmap(false).unwrap());
    memory.word(8).unwrap().store(5, Ordering::Relaxed);
    let mut out = [0];
    assert!(seen.load(8, Ordering::Relaxed) == Some(5) && seen.copy_words(8, &mut out) && out == [5]);
    assert!(!seen.is_writable() && seen.words().is_empty() && seen.word(8).is_none());
    assert!(seen.slice(0, 8).is_none() && seen.load(4, Ordering::Relaxed).is_none());
}

#[test]
fn closing_leaves_nothing_in_the_kernel() {
    need!(RawTp);
    let before = [ObjectKind::Prog, ObjectKind::Map, ObjectKind::Link].map(|k| ids(k).unwrap());
    let (map, memory) = shared(1);
    let prog = load(ProgKind::RawTracepoint, AttachType::None, &count_if_mine(&map, 0));
    let link = Link::raw_tracepoint(&prog, "sched_process_exec", 0).unwrap();
    let ours = [prog.info().unwrap().id, map.info().unwrap().id, link.info().unwrap().id];
    let kinds = [ObjectKind::Prog, ObjectKind::Map, ObjectKind::Link];
    for (kind, (id, old)) in kinds.into_iter().zip(ours.into_iter().zip(before)) {
        assert!(ids(kind).unwrap().contains(&id) && !old.contains(&id));
        assert!(fd_by_id(kind, id).is_ok());
    }
    drop((link, prog, map, memory));
    // Objects are freed after grace periods.
    testing::eventually("the end of all objects", testing::HANG_LIMIT, || {
        kinds.into_iter().zip(ours).all(|(kind, id)| !ids(kind).unwrap().contains(&id))
    });
}

#[test]
fn the_error_names_the_missing_privilege() {
    need!(RawTp);
    let error = std::thread::spawn(|| {
        const NOBODY: libc::c_long = 65534;
        // The raw system call changes this thread only.
        // SAFETY: plain numbers.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) }, 0);
        let insns = [Insn::mov64_imm(Reg::R0, 0), Insn::exit()];
        Prog::load(&ProgSpec::new(ProgKind::RawTracepoint, "p", &insns)).map(drop).unwrap_err().error
    })
    .join()
    .unwrap();
    assert_eq!(
        error.to_string(),
        "cannot load program \"p\": Operation not permitted (needs CAP_BPF and CAP_PERFMON, or root)"
    );
}

#[test]
fn sixty_four_mebibyte_values_can_be_mapped() {
    need!(BigValues);
    let map = Map::create(&MapSpec::mmapable("big", 64 << 20, 1)).unwrap();
    let memory = map.mmap(true).unwrap();
    memory.word((64 << 20) - 8).unwrap().store(9, Ordering::Relaxed);
    // A program reaches the last word by its address.
    let mut p = Vec::from(Insn::ld_map_value(Reg::R1, map.as_raw_fd(), (64 << 20) - 8));
    p.extend([Insn::ldx(Size::B8, Reg::R0, Reg::R1, 0), Insn::exit()]);
    let prog = load(ProgKind::RawTracepoint, AttachType::None, &p);
    assert_eq!(prog.test_run(&[], None).unwrap(), 9);
}
