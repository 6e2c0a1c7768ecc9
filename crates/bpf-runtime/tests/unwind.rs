//! Stacks of this process, walked by tables in programs of every kind, are those that the unwinder
//! of the C++ runtime gives. The frames go through functions of libc, which keep no frame pointers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use bpf_codegen::mir::MapRef;
use bpf_sys::{AttachType, Link, Map, Mmap, PerfEvent, ProbeSite, ProgKind, Rate, Update};
use plane::stacks::{Side, Stack};
use plane::unwind::{
    AMBIGUOUS, CHUNK_WORDS, Directory, FIRST_RANGE, FileRecord, INCOMPLETE, Load, NO_TABLE, PENDING, Range,
    UnknownFile, contents, file_key, key,
};
use unwind::{Place, Sections, Table};

use crate::session::{self, Run, Setup, pin, privileged};

/// It looks for an interpreter, too, and finds none.
const CLAUSE: &str = r#"
module strsize 16
string s0 = ""
clause "c" record 16 {
    does trace 0:ustack(127, 0)
    does trace 8:u64
b0:
    v0:int = jstack 127
    reserve
    record 0:ustack(127, 0), v0
    v1:int = builtin ustackdepth
    record 8:u64, v1
    commit
    return
}
"#;

/// The sections of a file that tables are made from.
fn table(file: Vec<u8>) -> Option<(Table, Vec<u8>)> {
    let number = |at: usize, size: usize| {
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(&file[at..at + size]);
        u64::from_le_bytes(bytes) as usize
    };
    let header = |n: usize| number(40, 8) + 64 * n;
    let names = number(header(number(62, 2)) + 24, 8);
    let is = |n: &usize| file[names + number(header(*n), 4)..].starts_with(b".eh_frame\0");
    let frame = header((0..number(60, 2)).find(is)?);
    let bytes = &file[number(frame + 24, 8)..][..number(frame + 32, 8)];
    let sections = Sections { eh_frame: Some((number(frame + 16, 8) as u64, bytes)), ..Sections::default() };
    let table = unwind::read(&sections)?;
    Some((table, file))
}

/// The address of an offset of a file's code, where a mapping begins.
fn address(file: &[u8], offset: u64) -> u64 {
    let number = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let (table, count) = (number(32) as usize, u16::from_le_bytes(file[56..58].try_into().unwrap()));
    let headers = (0..usize::from(count)).map(|n| table + 56 * n);
    // Loaded and executable. A mapping begins at a page.
    let load = headers
        .filter(|at| file[*at] == 1 && file[at + 4] & 1 != 0)
        .find(|at| (number(at + 8) & !4095..number(at + 8) + number(at + 32)).contains(&offset));
    offset.wrapping_add(number(load.unwrap() + 16)).wrapping_sub(number(load.unwrap() + 8))
}

/// The key of a file, and what tells its contents from others.
fn inode(path: &str) -> Option<([u8; 16], u64)> {
    use std::os::unix::fs::MetadataExt;
    let of = std::fs::metadata(path).ok()?;
    let dev = of.dev();
    Some((
        file_key((libc::major(dev), libc::minor(dev)), of.ino()),
        contents(of.size(), (of.ctime(), of.ctime_nsec() as u32)),
    ))
}

fn own_key() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 2..].split(' ').collect();
    let field = |n: usize| fields[n - 3].parse().unwrap();
    key(field(26), field(28), field(48))
}

/// What the consumer has written.
struct Tables {
    memory: Mmap,
    _chunks: Vec<Map>,
}

impl Tables {
    fn directory(&self) -> Directory<'_> {
        Directory::new(self.memory.words()).unwrap()
    }

    /// Gives the programs of a session the tables of this process. `table_of` may replace the word
    /// of a file's table.
    fn write(run: &Run, table_of: impl Fn(&str, u64) -> u64) -> Tables {
        let (tables, ranges, _) = Tables::make(run, table_of);
        tables.directory().write(FIRST_RANGE, &ranges);
        assert!(tables.directory().publish(own_key(), FIRST_RANGE, ranges.len() as u32));
        tables
    }

    /// Gives the programs the tables of the files of this process, and not where it has mapped
    /// them.
    fn write_files(run: &Run, table_of: impl Fn(&str, u64) -> u64) -> Tables {
        let (tables, _, files) = Tables::make(run, table_of);
        let map = run.maps.get(MapRef::UnwindFiles).unwrap();
        for (path, mut record) in files {
            let key = match inode(&path) {
                Some((key, contents)) => {
                    record.contents = contents;
                    key
                }
                None => file_key((0, 0), 0),
            };
            map.update(&key, &record.bytes(), Update::Any).unwrap();
        }
        tables
    }

    /// The tables of this process's files: by where they are mapped, and by their paths.
    fn make(
        run: &Run,
        table_of: impl Fn(&str, u64) -> u64,
    ) -> (Tables, Vec<Range>, BTreeMap<String, FileRecord>) {
        let mut files: BTreeMap<String, FileRecord> = BTreeMap::new();
        let memory = run.maps.get(MapRef::UnwindDirectory).unwrap().mmap(true).unwrap();
        let outer = run.maps.get(MapRef::UnwindChunks).unwrap();
        let mut tables = Tables { memory, _chunks: Vec::new() };
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let (mut ranges, mut known, mut next) = (Vec::new(), BTreeMap::new(), 1);
        for line in maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|p| p.contains('x'))) {
            let Some(path) = line.find('/').or_else(|| line.find("[vdso]")).map(|at| &line[at..]) else {
                continue;
            };
            let mut fields = line.split(' ');
            let (start, end) = fields.next().unwrap().split_once('-').unwrap();
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            let (start, end, offset) = (number(start), number(end), number(fields.nth(1).unwrap()));
            let (word, base, file) = known.entry(path.to_owned()).or_insert_with(|| {
                let contents = match path {
                    "[vdso]" => {
                        use std::os::unix::fs::FileExt;
                        let mut image = vec![0; (end - start) as usize];
                        let memory = std::fs::File::open("/proc/self/mem").unwrap();
                        memory.read_exact_at(&mut image, start).unwrap();
                        image
                    }
                    path => std::fs::read(path).unwrap(),
                };
                let (table, file) = table(contents).unwrap();
                let parts = table.parts();
                let places: Vec<Place> = (next..)
                    .zip(&parts)
                    .map(|(chunk, words)| Place { word: chunk * CHUNK_WORDS, words: *words })
                    .collect();
                for (place, words) in places.iter().zip(table.words(&places)) {
                    let chunk = bpf_runtime::maps::unwind_chunk().unwrap();
                    let memory = chunk.mmap(true).unwrap();
                    for (to, from) in memory.words().iter().zip(&words) {
                        to.store(*from, std::sync::atomic::Ordering::Relaxed);
                    }
                    outer.set_fd(place.word / CHUNK_WORDS, chunk.as_fd()).unwrap();
                    tables._chunks.push(chunk);
                }
                next += parts.len() as u32;
                (u64::from(places[0].word) | u64::from(table.pages()) << 32, table.base(), file)
            });
            let delta = address(file, offset).wrapping_sub(start).wrapping_sub(*base);
            let table = table_of(path, *word);
            ranges.push(Range { start, end, table, delta });
            let offset = if path == "[vdso]" { 0 } else { offset };
            let moved = address(file, offset).wrapping_sub(offset);
            let record = files.entry(path.to_owned()).or_default();
            (record.table, record.base) = (table, *base);
            record.loads.push(Load { offset, bytes: end - start, moved });
        }
        (tables, ranges, files)
    }
}

unsafe extern "C" {
    fn _Unwind_Backtrace(each: extern "C" fn(*mut c_void, *mut c_void) -> i32, data: *mut c_void) -> i32;
    fn _Unwind_GetIP(context: *mut c_void) -> u64;
}

extern "C" fn add_frame(context: *mut c_void, list: *mut c_void) -> i32 {
    // SAFETY: the list is that of `frames`, and the context the unwinder's.
    unsafe {
        (*list.cast::<Vec<u64>>()).push(_Unwind_GetIP(context));
    }
    0
}

/// The frames of this thread, by the runtime's unwinder. The first is this function.
#[inline(never)]
fn frames() -> Vec<u64> {
    let mut list: Vec<u64> = Vec::new();
    // SAFETY: the list outlives the call.
    unsafe { _Unwind_Backtrace(add_frame, (&raw mut list).cast()) };
    // Beyond the thread's first function.
    list.retain(|pc| *pc != 0);
    list
}

thread_local! {
    /// What happens in the innermost call, and its frames.
    static INNERMOST: RefCell<(fn(), Vec<u64>)> = const { RefCell::new((|| (), Vec::new())) };
}

extern "C" fn compare(_: *const c_void, depth: *const c_void) -> i32 {
    // SAFETY: `search` gives the address of its number.
    let depth = unsafe { *depth.cast::<u32>() };
    match depth {
        0 => INNERMOST.with_borrow_mut(|(act, list)| {
            *list = frames();
            act();
        }),
        n => search(n - 1),
    }
    0
}

/// Calls `compare` through a function of libc, which calls this one.
#[inline(never)]
fn search(depth: u32) {
    // SAFETY: one element; both are numbers.
    unsafe {
        libc::bsearch((&raw const depth).cast(), (&raw const depth).cast(), 1, 4, Some(compare));
    }
}

/// Acts at a depth. Returns the frames from `compare` on.
fn at_depth(depth: u32, act: fn()) -> Vec<u64> {
    INNERMOST.with_borrow_mut(|innermost| innermost.0 = act);
    search(depth);
    from_libc()
}

/// The frames from the first one in libc on: what is before it is this file's.
fn from_libc() -> Vec<u64> {
    let list = INNERMOST.with_borrow(|(_, list)| list.clone());
    let libc = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = libc.lines().filter(|line| line.contains("/libc.so") && line.contains("r-xp"));
    let libc = libc.map(|line| line.split(' ').next().unwrap().split_once('-').unwrap());
    let number = |text| u64::from_str_radix(text, 16).unwrap();
    let (start, end) = libc.map(|(a, b)| (number(a), number(b))).next().unwrap();
    let first = list.iter().position(|pc| (start..end).contains(pc)).unwrap();
    list[first..].to_vec()
}

fn call() {
    // SAFETY: a number.
    unsafe { libc::syscall(libc::SYS_getpgid, 0) };
}

/// Is on a CPU for a while, where the clock finds it.
fn spin() {
    let on_cpu = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call writes to this.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let end = on_cpu() + Duration::from_millis(300);
    while on_cpu() < end {
        (0..1000).for_each(|_| std::hint::spin_loop());
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn dtrace_test_place() {
    std::hint::black_box(());
}

/// This process's stacks.
fn stacks(run: &Run) -> Vec<Stack> {
    let memory = run.maps.get(MapRef::StackSide).unwrap().mmap(true).unwrap();
    let side = Side::new(memory.words(), run.maps.plan.stack_block);
    side.stacks().map(|(_, stack)| stack).filter(|stack| stack.tgid == std::process::id()).collect()
}

/// A session whose program is of this kind; `None`, reported, where the kernel has not what it
/// needs.
fn session(test: &str, kind: (ProgKind, AttachType, u32)) -> Option<Run> {
    if !privileged(test) {
        return None;
    }
    let module = dif::text::parse(CLAUSE).unwrap();
    dif::verify::verify(&module).unwrap();
    let mut setup = Setup::new(module);
    setup.target = session::target();
    setup.target.unwind = session::unwind_offsets();
    if !setup.target.task_btf || setup.target.unwind.is_none() {
        testing::report_skip(test, format_args!("no types of the kernel"));
        return None;
    }
    setup.kind = kind;
    setup.options.stack_key = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];
    pin();
    Some(Run::new(setup))
}

fn btf_id(kinds: &[types::btf::BtfKind], name: &str) -> u32 {
    let kernel = types::btf::KernelBtf::running();
    kernel.vmlinux().unwrap().find(kinds, name).unwrap()
}

/// True if the code at an address is that of an entry of a linkage table: a jump through memory.
fn in_linkage_table(pc: u64) -> bool {
    use std::os::unix::fs::FileExt;
    let mut code = [0; 2];
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    memory.read_exact_at(&mut code, pc & !15).is_ok() && code == [0xff, 0x25]
}

/// Attaches, acts at some depths and checks the stacks.
fn check(run: &mut Run, act: fn(), attach: impl FnOnce(&Run) -> Link) {
    let tables = Tables::write(run, |_, table| table);
    let link = attach(run);
    for depth in [0, 1, 7, 30] {
        let before = stacks(run).len();
        let tail = at_depth(depth, act);
        assert!(tail.len() as u32 > 2 * depth + 3, "{tail:x?}");
        let all = stacks(run);
        assert!(all.len() > before);
        let whole: Vec<&Stack> = all.iter().filter(|stack| stack.pcs.ends_with(&tail)).collect();
        assert!(!whole.is_empty(), "depth {depth}: {tail:x?} not in {all:x?}");
        // What is above it is this file's: no frame is missing or too many.
        assert!(whole.iter().all(|stack| stack.pcs.len() <= tail.len() + 12), "{whole:x?}");
    }
    // Deeper than a stack has frames.
    let tail = at_depth(200, act);
    let full: Vec<_> = stacks(run).into_iter().filter(|stack| stack.pcs.len() == 127).collect();
    assert!(full.iter().any(|s| tail.windows(100).next() == s.pcs.windows(100).find(|w| w[0] == tail[0])));
    drop(link);
    let all = stacks(run);
    // A clock may find an entry of the linkage table, which not every linker describes, or the
    // first instructions of a thread, which the library does not describe: those before the call at
    // which all stacks end.
    let begins = |pc: u64| tail.last().is_some_and(|outer| (1..64).contains(&outer.wrapping_sub(pc)));
    let may_be = |s: &Stack| matches!(s.pcs[..], [pc, INCOMPLETE] if in_linkage_table(pc) || begins(pc));
    assert!(all.iter().all(|s| s.pcs.last() != Some(&INCOMPLETE) || may_be(s)), "{all:x?}");
    assert!(tables.directory().wanted().all(|(key, _)| key != own_key()));
}

#[test]
fn in_a_raw_tracepoint() {
    let Some(mut run) = session("unwind raw_tp", (ProgKind::RawTracepoint, AttachType::None, 0)) else {
        return;
    };
    check(&mut run, call, |run| Link::raw_tracepoint(&run.prog, "sys_enter", 0).unwrap());
}

#[test]
fn in_a_typed_tracepoint() {
    let id = btf_id(&[types::btf::BtfKind::Typedef], "btf_trace_sys_enter");
    let kind = (ProgKind::Tracing, AttachType::TraceRawTp, id);
    let Some(mut run) = session("unwind tp_btf", kind) else { return };
    check(&mut run, call, |run| Link::tracing(&run.prog, 0).unwrap());
}

#[test]
fn at_the_entry_of_a_function_of_the_kernel() {
    if !bpf_sys::features::Features::running().has(bpf_sys::features::Facility::Fentry) {
        return testing::report_skip("unwind::in_fentry", format_args!("this kernel has no fentry"));
    }
    let functions = &[types::btf::BtfKind::Func];
    let Some(id) =
        types::btf::KernelBtf::running().vmlinux().ok().and_then(|b| b.find(functions, "__x64_sys_getpgid"))
    else {
        return testing::report_skip("unwind fentry", format_args!("no types of functions of system calls"));
    };
    let Some(mut run) = session("unwind fentry", (ProgKind::Tracing, AttachType::TraceFentry, id)) else {
        return;
    };
    check(&mut run, call, |run| Link::tracing(&run.prog, 0).unwrap());
}

#[test]
fn in_kprobes() {
    if PerfEvent::kprobe("__x64_sys_getpgid", 0, false).is_err() {
        return testing::report_skip("unwind::in_kprobes", format_args!("this kernel has no kprobe_perf"));
    }
    let Some(mut run) = session("unwind kprobe", (ProgKind::Kprobe, AttachType::None, 0)) else { return };
    check(&mut run, call, |run| {
        let event = PerfEvent::kprobe("__x64_sys_getpgid", 0, false).unwrap();
        Link::perf_event(&run.prog, event, 0).unwrap()
    });
}

#[test]
fn in_kprobes_by_the_list() {
    let kind = (ProgKind::Kprobe, AttachType::KprobeMulti, 0);
    if !bpf_sys::features::Features::running().has(bpf_sys::features::Facility::KprobeMulti) {
        return testing::report_skip(
            "unwind::in_kprobes_by_the_list",
            format_args!("this kernel has no kprobe_multi"),
        );
    }
    let Some(mut run) = session("unwind kprobe_multi", kind) else { return };
    check(&mut run, call, |run| {
        let name = [c"__x64_sys_getpgid".to_owned()];
        Link::kprobe_multi(&run.prog, ProbeSite::Names(&name), &[], false, &|| false).unwrap()
    });
}

#[test]
fn in_the_event_of_a_clock() {
    let Some(mut run) = session("unwind clock", (ProgKind::PerfEvent, AttachType::None, 0)) else { return };
    check(&mut run, spin, |run| {
        let event = PerfEvent::cpu_clock(0, Rate::Period(1_000_000)).unwrap();
        Link::perf_event(&run.prog, event, 0).unwrap()
    });
}

#[test]
fn in_uprobes() {
    let Some(mut run) = session("unwind uprobe", (ProgKind::Kprobe, AttachType::None, 0)) else { return };
    check(
        &mut run,
        || dtrace_test_place(),
        |run| {
            let address = dtrace_test_place as *const () as u64;
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            let offset = maps.lines().find_map(|line| {
                let mut fields = line.split(' ');
                let (start, end) = fields.next()?.split_once('-')?;
                let inside = (number(start)..number(end)).contains(&address);
                inside.then(|| address - number(start) + number(fields.nth(1).unwrap()))
            });
            let path = std::fs::read_link("/proc/self/exe").unwrap();
            let path: &Path = &path;
            assert!(!path.as_os_str().as_bytes().is_empty());
            let event = PerfEvent::uprobe(path.as_os_str(), offset.unwrap(), 0, false, None).unwrap();
            Link::perf_event(&run.prog, event, 0).unwrap()
        },
    );
}

extern "C" fn handler(_: i32) {
    INNERMOST.with_borrow_mut(|(act, list)| {
        *list = frames();
        act();
    });
}

#[test]
fn through_the_frame_of_a_signal_handler() {
    let Some(run) = session("unwind signal", (ProgKind::RawTracepoint, AttachType::None, 0)) else { return };
    let _tables = Tables::write(&run, |_, table| table);
    let _link = Link::raw_tracepoint(&run.prog, "sys_enter", 0).unwrap();
    INNERMOST.with_borrow_mut(|innermost| innermost.0 = call);
    // SAFETY: the handler only makes a system call and allocates, outside of any allocation.
    unsafe {
        libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t);
        libc::raise(libc::SIGUSR1);
    }
    // From the function of libc that restores the registers on.
    let tail = from_libc();
    assert!(tail.len() > 5);
    let all = stacks(&run);
    assert!(all.iter().any(|stack| stack.pcs.ends_with(&tail)), "{tail:x?} not in {all:x?}");
}

#[test]
fn a_table_that_is_missing_is_asked_for_and_the_stack_marked() {
    let Some(run) = session("unwind pending", (ProgKind::RawTracepoint, AttachType::None, 0)) else { return };
    let link = Link::raw_tracepoint(&run.prog, "sys_enter", 0).unwrap();
    at_depth(3, call);
    assert!(stacks(&run).iter().all(is_marked));
    let tables = Tables::write(&run, |path, table| if path.contains("/libc.so") { PENDING } else { table });
    let wanted: Vec<_> = tables.directory().wanted().collect();
    assert!(wanted.contains(&(own_key(), std::process::id())), "{wanted:x?}");
    tables.directory().answered(own_key());
    // Another process may have the same place.
    let asks = || {
        at_depth(3, call);
        tables.directory().wanted().any(|(key, _)| key == own_key())
    };
    let asked = (0..10).any(|_| asks());
    assert!(
        asked,
        "{:x} {:x?} {:x?}",
        own_key(),
        tables.directory().wanted().collect::<Vec<_>>(),
        stacks(&run)
    );
    assert!(stacks(&run).iter().all(is_marked));
    drop(tables);
    let tables = Tables::write(&run, |_, table| table);
    // Walks of other threads that began before may still ask.
    let asks_no_more = || {
        tables.directory().answered(own_key());
        let tail = at_depth(3, call);
        assert!(stacks(&run).iter().any(|stack| stack.pcs.ends_with(&tail)));
        tables.directory().wanted().all(|(key, _)| key != own_key())
    };
    assert!((0..10).any(|_| asks_no_more()));
    // Without its table the frame pointer of libc leads nowhere, or to a caller's caller.
    drop(tables);
    let _tables = Tables::write(&run, |path, table| if path.contains("/libc.so") { NO_TABLE } else { table });
    at_depth(3, call);
    drop(link);
}

#[test]
fn a_row_that_was_found_is_not_used_after_the_tables_have_changed() {
    let Some(run) = session("unwind changed", (ProgKind::RawTracepoint, AttachType::None, 0)) else { return };
    let libc_is = |word: Option<u64>| {
        Tables::write(&run, move |path, table| match path.contains("/libc.so") {
            true => word.unwrap_or(table),
            false => table,
        })
    };
    let link = Link::raw_tracepoint(&run.prog, "sys_enter", 0).unwrap();
    // Each depth has a stack of its own.
    let whole = |depth| {
        let tail = at_depth(depth, call);
        stacks(&run).iter().any(|stack| stack.pcs.ends_with(&tail))
    };
    let tables = libc_is(None);
    assert!(whole(3) && whole(4));
    drop(tables);
    // The first frame in libc ends the walk, although the rows of all its addresses were found
    // before.
    let tables = libc_is(Some(AMBIGUOUS));
    assert!(!whole(5) && !whole(6));
    drop(tables);
    let _tables = libc_is(None);
    assert!(whole(7) && whole(8));
    drop(link);
}

/// A session that asks the kernel for mappings.
fn session_with_mappings(test: &str, kind: (ProgKind, AttachType, u32)) -> Option<Run> {
    let run = session(test, kind)?;
    if session::unwind_offsets().is_none_or(|offsets| offsets.mappings.is_none()) {
        testing::report_skip(test, format_args!("this kernel has no bpf_find_vma"));
        return None;
    }
    // The device of a file that stat(2) gives is that of the kernel, but not on an overlay and on
    // btrfs.
    let exe = std::fs::read_link("/proc/self/exe").unwrap();
    let (seen, _) = inode(exe.to_str().unwrap()).unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let device = maps.lines().find(|line| line.ends_with(exe.to_str().unwrap())).unwrap();
    let (major, minor) = device.split(' ').nth(3).unwrap().split_once(':').unwrap();
    let number = |text| u32::from_str_radix(text, 16).unwrap();
    if seen[..8] != file_key((number(major), number(minor)), 0)[..8] {
        testing::report_skip(test, format_args!("the file system has devices of its own"));
        return None;
    }
    Some(run)
}

/// The files that programs have asked for.
fn unknown_files(run: &Run) -> Vec<UnknownFile> {
    let all = run.maps.get(MapRef::UnwindUnknown).unwrap().entries().unwrap();
    all.iter().map(|(key, value)| UnknownFile::decode(key, value).unwrap()).collect()
}

#[test]
fn a_process_without_ranges_is_walked_by_the_inodes_of_its_files() {
    let kind = (ProgKind::RawTracepoint, AttachType::None, 0);
    let Some(run) =
        session_with_mappings("unwind::a_process_without_ranges_is_walked_by_the_inodes_of_its_files", kind)
    else {
        return;
    };
    let tables = Tables::write_files(&run, |_, table| table);
    let link = Link::raw_tracepoint(&run.prog, "sys_enter", 0).unwrap();
    for depth in [0, 1, 7, 30] {
        let tail = at_depth(depth, call);
        let all = stacks(&run);
        assert!(all.iter().any(|s| s.pcs.ends_with(&tail)), "depth {depth}: {tail:x?} not in {all:x?}");
    }
    drop(link);
    assert!(stacks(&run).iter().all(|stack| stack.pcs.last() != Some(&INCOMPLETE)), "{:x?}", stacks(&run));
    let own: Vec<_> = unknown_files(&run).into_iter().filter(|f| f.process == std::process::id()).collect();
    assert_eq!(own, []);
    // Its ranges are asked for all the same: they cost less.
    assert!(tables.directory().wanted().any(|wanted| wanted == (own_key(), std::process::id())));
}

fn is_marked(stack: &Stack) -> bool {
    stack.pcs.last() == Some(&INCOMPLETE)
}

/// The kernel looks for a place for the memory, and holds the lock of the mappings meanwhile.
fn map() {
    // SAFETY: new memory, which nobody uses.
    unsafe { libc::mmap(std::ptr::null_mut(), 1, 0, libc::MAP_PRIVATE | libc::MAP_ANON, -1, 0) };
}

#[test]
fn a_stack_is_incomplete_and_counted_while_mappings_are_locked() {
    let test = "unwind::a_stack_is_incomplete_and_counted_while_mappings_are_locked";
    let Some(run) = session_with_mappings(test, (ProgKind::RawTracepoint, AttachType::None, 0)) else {
        return;
    };
    let tables = Tables::write_files(&run, |_, table| table);
    assert_eq!(tables.directory().busy(), 0);
    let link = Link::raw_tracepoint(&run.prog, "vm_unmapped_area", 0).unwrap();
    at_depth(3, map);
    drop(link);
    assert!(stacks(&run).iter().any(is_marked), "{:x?}", stacks(&run));
    assert!(tables.directory().busy() > 0);
    let link = Link::raw_tracepoint(&run.prog, "sys_enter", 0).unwrap();
    let tail = at_depth(3, call);
    drop(link);
    assert!(stacks(&run).iter().any(|stack| stack.pcs.ends_with(&tail)));
}

/// A process that sleeps in a file of its own, as a user.
struct Sleeper(std::process::Child);

impl Sleeper {
    fn start(path: &Path, user: u32) -> Sleeper {
        use std::os::unix::process::CommandExt;
        std::fs::copy("/bin/sleep", path).unwrap();
        let mut command = std::process::Command::new(path);
        Sleeper(command.arg("600").uid(user).gid(user).spawn().unwrap())
    }

    /// It makes its last system call.
    fn sleeps(&self) -> bool {
        let call = std::fs::read_to_string(format!("/proc/{}/syscall", self.0.id())).unwrap_or_default();
        let number = call.split(' ').next().and_then(|number| number.parse().ok());
        [libc::SYS_nanosleep, libc::SYS_clock_nanosleep].iter().any(|sleep| number == Some(*sleep))
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_user_with_many_new_files_leaves_some_to_others_and_root_asks_for_all() {
    use std::os::unix::fs::PermissionsExt;
    let kind = (ProgKind::RawTracepoint, AttachType::None, 0);
    let test = "unwind::a_user_with_many_new_files_leaves_some_to_others_and_root_asks_for_all";
    let Some(run) = session_with_mappings(test, kind) else { return };
    if !std::process::Command::new("/bin/sleep").arg("0").status().is_ok_and(|status| status.success()) {
        return testing::report_skip(test, format_args!("no /bin/sleep"));
    }
    let dir = std::env::temp_dir().join(format!("dtrace-unknown-files-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    // The library that calls is known, so the walks come to the files.
    let tables = Tables::write_files(&run, |_, table| table);
    let counters = tables.directory().counters().unwrap();
    counters.set_subordinate([(700_000, 65536, 54321)].into_iter());
    let link = Link::raw_tracepoint(&run.prog, "sys_enter", 0).unwrap();
    let start = |name: &str, count: u32, user: &dyn Fn(u32) -> u32| -> Vec<Sleeper> {
        let all = (0..count).map(|n| Sleeper::start(&dir.join(format!("{name}{n}")), user(n)));
        let all: Vec<Sleeper> = all.collect();
        testing::eventually("their sleep", Duration::from_secs(60), || all.iter().all(Sleeper::sleeps));
        all
    };
    // Most of them by ids that were given to the user.
    let hostile = start("hostile", 400, &|n| if n < 100 { 54321 } else { 700_000 + n });
    let (other, root) = (start("other", 8, &|n| 60_000 + n), start("root", 100, &|_| 0));
    drop(link);
    let all = unknown_files(&run);
    let asked = |of: &[Sleeper]| {
        of.iter().filter(|sleeper| all.iter().any(|asked| asked.process == sleeper.0.id())).count()
    };
    let found = [asked(&hostile), asked(&other), asked(&root)];
    // Who reads the mappings of a process meanwhile, another tracer, keeps its walks from them.
    // That is counted.
    let busy = tables.directory().busy() as usize;
    // A user has half of what is not root's; of eight others at most a few have a counter in common
    // with it.
    let half = plane::shares::of_others(plane::unwind::UNKNOWN_FILES) as usize / 2;
    assert!((150..=half + 4).contains(&found[0]), "{found:?}");
    assert!(found[1] >= 5 && found[2] >= 90 && found[2] + busy >= 100, "{found:?}, {busy} busy");
    // Other processes of the machine ask, too.
    let of_others = || all.iter().filter(|asked| asked.share != 0);
    assert_eq!(counters.others(), of_others().count() as u64);
    of_others().for_each(|asked| counters.give(asked.share, 1));
    assert_eq!(counters.others(), 0);
    drop((hostile, other, root));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_file_with_other_contents_is_not_walked_but_asked_for() {
    let kind = (ProgKind::RawTracepoint, AttachType::None, 0);
    let Some(run) =
        session_with_mappings("unwind::a_file_with_other_contents_is_not_walked_but_asked_for", kind)
    else {
        return;
    };
    let _tables = Tables::write_files(&run, |_, table| table);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let code = maps.lines().find(|line| line.contains("/libc.so") && line.contains("r-xp")).unwrap();
    let libc = &code[code.find('/').unwrap()..];
    let (key, now) = inode(libc).unwrap();
    let map = run.maps.get(MapRef::UnwindFiles).unwrap();
    let mut record = vec![0; map.value_size()];
    assert!(map.lookup(&key, &mut record).unwrap());
    record[16..24].copy_from_slice(&(now + 1).to_ne_bytes());
    map.update(&key, &record, Update::Any).unwrap();
    let link = Link::raw_tracepoint(&run.prog, "sys_enter", 0).unwrap();
    let tail = at_depth(3, call);
    drop(link);
    assert!(stacks(&run).iter().all(|stack| !stack.pcs.ends_with(&tail)));
    // Other processes make system calls, too, and one may have asked for it first.
    let all = unknown_files(&run);
    let is_asked = |asked: &&UnknownFile| file_key(asked.device, asked.inode) == key;
    let asked = all.iter().find(is_asked).unwrap_or_else(|| panic!("{all:x?}"));
    let start = u64::from_str_radix(code.split('-').next().unwrap(), 16).unwrap();
    assert!(asked.process != std::process::id() || asked.start == start, "{asked:x?} {start:x}");
}

#[test]
fn a_row_that_was_found_by_an_inode_is_not_used_after_a_table_was_removed() {
    let kind = (ProgKind::RawTracepoint, AttachType::None, 0);
    let Some(run) = session_with_mappings(
        "unwind::a_row_that_was_found_by_an_inode_is_not_used_after_a_table_was_removed",
        kind,
    ) else {
        return;
    };
    let link = Link::raw_tracepoint(&run.prog, "sys_enter", 0).unwrap();
    let whole = |depth| {
        let tail = at_depth(depth, call);
        stacks(&run).iter().any(|stack| stack.pcs.ends_with(&tail))
    };
    let tables = Tables::write_files(&run, |_, table| table);
    assert!(whole(3));
    drop(tables);
    let tables = Tables::write_files(&run, |path, table| match path.contains("/libc.so") {
        true => AMBIGUOUS,
        false => table,
    });
    tables.directory().removed();
    assert!(!whole(5));
    drop(link);
}

fn call_often() {
    for _ in 0..500 {
        call();
    }
}

#[test]
fn a_stack_that_many_firings_have_is_stored_once() {
    let Some(run) = session("unwind once", (ProgKind::RawTracepoint, AttachType::None, 0)) else { return };
    let _tables = Tables::write(&run, |_, table| table);
    let link = Link::raw_tracepoint(&run.prog, "sys_enter", 0).unwrap();
    let of_depth = |depth| {
        let tail = at_depth(depth, call_often);
        let own: Vec<Stack> = stacks(&run).into_iter().filter(|s| s.pcs.ends_with(&tail)).collect();
        (own.len(), tail.len())
    };
    // The same calls again, from the same place, add nothing.
    let counts: Vec<_> = [3, 3, 3].into_iter().map(of_depth).collect();
    assert!((1..20).contains(&counts[0].0), "{counts:?}");
    assert_eq!((counts[1], counts[2]), (counts[0], counts[0]));
    assert!(of_depth(4).0 > 0);
    drop(link);
    let mut all: Vec<Vec<u64>> = stacks(&run).into_iter().map(|stack| stack.pcs).collect();
    let stored = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), stored);
}
