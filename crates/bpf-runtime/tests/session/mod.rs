//! A minimal session: maps, one raw-tracepoint program that the test runs, and readers of the maps.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod oracle;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering::SeqCst;

use bpf_codegen::context::{Context, Index, Probe, ProbeSet};
use bpf_codegen::mir::Label;
use bpf_codegen::mir::{Builder, MapRef, Size, V};
use bpf_codegen::plan::{Needs, Options, Plan, VarPlan};
use bpf_codegen::target::PreemptCount;
use bpf_codegen::target::{
    DirectLoad, GenerationOffsets, MappingOffsets, Target, TaskOffsets, UnwindOffsets,
};
use bpf_codegen::{Division, Layout, Session};
use bpf_runtime::maps::Maps;
use bpf_runtime::program::{ClauseUse, Compiled, ErrorProbe, ProgramSpec, compile};
use bpf_sys::{AttachType, Map, MapBtf, MapSpec, Prog, ProgKind};
use dif::ir::{Module, VarId};
use plane::control::{ACTIVITY, Activity, DropKind, PERCPU_STRIDE, RESERVE};
use plane::ring;
use plane::table::{self, TABLE_HEADER};

/// Arguments for `BPF_PROG_TEST_RUN`. With several probes, the last argument is the probe's index.
pub struct Args {
    pub probes: u32,
}

impl Context for Args {
    fn index(&self, b: &mut Builder, ctx: V, _: Label) -> Index {
        if self.probes == 1 { Index::Const(0) } else { Index::V(b.load(Size::B8, ctx, 9 * 8)) }
    }

    fn arg(&self, b: &mut Builder, ctx: V, _: Index, n: u8) -> V {
        b.load(Size::B8, ctx, i16::from(n) * 8)
    }

    fn cookie(&self, b: &mut Builder, ctx: V) -> V {
        b.load(Size::B8, ctx, 9 * 8)
    }
}

/// The names of a probe.
pub fn names(probe: u32) -> [String; 4] {
    ["test".into(), String::new(), format!("func{probe}"), ["entry", "return"][probe as usize % 2].into()]
}

/// The process id that follows the provider's name. Some probes are of no family.
pub fn provider_pid(probe: u32) -> u32 {
    [0, 1, 42, u32::MAX][probe as usize % 4]
}

/// The names of ERROR.
pub const ERROR: [&str; 4] = ["dtrace", "", "", "ERROR"];

/// Ids of probes: those of the program, and ERROR's.
pub const FIRST_ID: u32 = 77;
pub const ERROR_ID: u32 = 3;

/// The enabled-probe ids of clause `n` start at `n` times this.
pub const EPIDS: u32 = 1000;

/// The enabled-probe ids of the first probe in the probe table start here.
pub const FIRST_EPID: u32 = 1_000_000;

/// A committed record of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub epid: u32,
    pub flags: u16,
    pub data: Vec<u8>,
}

/// A loaded session.
pub struct Run {
    pub setup: Setup,
    pub maps: Maps,
    pub prog: Prog,
    pub compiled: Compiled,
    pub log: String,
    pub layout: Layout,
    consumed: u64,
}

pub struct Setup {
    pub module: Module,
    /// Clauses of the probes, in order, with the probes for which they run.
    pub clauses: Vec<(usize, ProbeSet)>,
    /// Clauses of ERROR.
    pub error: Vec<usize>,
    pub activity: Activity,
    pub target: Target,
    pub cpus: u32,
    pub probes: u32,
    pub options: Options,
    /// Number of context levels of `self->`, and the level at which the program fires.
    pub levels: u32,
    pub level: u32,
    pub preempt_count: Option<PreemptCount>,
    pub division: Division,
    /// The probes are in the probe table, each in the row of its index.
    pub growing: bool,
    /// What the program is: its kind, attach type, and BTF id of what it is attached to.
    pub kind: (ProgKind, AttachType, u32),
}

impl Setup {
    pub fn new(module: Module) -> Setup {
        let clauses = (0..module.clauses.len()).map(|c| (c, ProbeSet::All)).collect();
        Setup {
            module,
            clauses,
            error: Vec::new(),
            activity: Activity::Active,
            target: Target::default(),
            cpus: 2,
            probes: 1,
            options: Options {
                bufsize: 1 << 16,
                aggsize: 1 << 20,
                dynvarsize: 1 << 16,
                ..Options::default()
            },
            levels: 1,
            level: 0,
            preempt_count: None,
            division: Division::default(),
            growing: false,
            kind: (ProgKind::RawTracepoint, AttachType::None, 0),
        }
    }
}

/// The running kernel, with its types.
pub fn target() -> Target {
    let features = bpf_sys::features::Features::running();
    let task = task_offsets().filter(|_| features.has(bpf_sys::features::Facility::TaskBtf));
    Target {
        task,
        task_btf: task.is_some(),
        generation: task.and(generation_offsets()),
        direct_load: direct_load(),
        ..Target::default()
    }
}

/// Offsets by which stacks of processes are walked.
pub fn unwind_offsets() -> Option<UnwindOffsets> {
    let kernel = types::btf::KernelBtf::running();
    let btf = kernel.vmlinux().ok()?;
    let offset = |member: &str| btf.field(member).map(|f| f.offset() as i16);
    Some(UnwindOffsets {
        fs_base: offset("task_struct.thread.fsbase"),
        mm: offset("task_struct.mm")?,
        start_code: offset("mm_struct.start_code")?,
        start_stack: offset("mm_struct.start_stack")?,
        arg_start: offset("mm_struct.arg_start")?,
        returns: None,
        mappings: mapping_offsets(btf),
    })
}

fn mapping_offsets(btf: &types::btf::Btf) -> Option<MappingOffsets> {
    MappingOffsets::by(|member| btf.field(member).map(|f| f.offset() as i16))
}

fn direct_load() -> Option<DirectLoad> {
    use bpf_sys::features::{Facility, Features, direct_load};
    let kernel = types::btf::KernelBtf::running();
    let btf = kernel.vmlinux().ok().filter(|_| Features::running().has(Facility::Kfuncs))?;
    let (cast, number) = direct_load(btf)?;
    Some(DirectLoad { cast: bpf_codegen::mir::KsymId(cast), number })
}

fn task_offsets() -> Option<TaskOffsets> {
    let kernel = types::btf::KernelBtf::running();
    let btf = kernel.vmlinux().ok()?;
    let offset = |member: &str| btf.field(&format!("task_struct.{member}")).map(|f| f.offset() as i16);
    Some(TaskOffsets {
        comm: offset("comm")?,
        real_parent: offset("real_parent")?,
        tgid: offset("tgid")?,
        flags: offset("flags")?,
    })
}

fn generation_offsets() -> Option<GenerationOffsets> {
    let kernel = types::btf::KernelBtf::running();
    let btf = kernel.vmlinux().ok()?;
    let offset = |member: &str| btf.field(&format!("task_struct.{member}")).map(|f| f.offset() as i16);
    Some(GenerationOffsets {
        leader: offset("group_leader")?,
        start: offset("start_boottime")?,
        execs: offset("self_exec_id")?,
    })
}

/// Keeps the test on CPU 0.
pub fn pin() {
    // SAFETY: the set is a plain bit array that outlives the call.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        libc::sched_setaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &set);
    }
}

/// False, with a message, without the privilege to load programs.
pub fn privileged(test: &str) -> bool {
    // SAFETY: reads the user id only.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        testing::report_skip(test, format_args!("not root"));
    }
    root
}

/// Interned strings: the module's, then the probes' names.
pub fn interned(module: &Module, probes: u32) -> Vec<Vec<u8>> {
    let mut out = module.strings.clone();
    let of_error = ERROR.iter().map(|n| (*n).to_owned());
    for n in (0..probes).flat_map(names).chain(of_error) {
        let mut n = n.into_bytes();
        n.truncate(module.strsize as usize - 1);
        if !out.contains(&n) {
            out.push(n);
        }
    }
    out
}

pub fn compile_setup(
    setup: &Setup,
    plan: &Plan,
    layout: &Layout,
) -> Result<Compiled, bpf_codegen::CodegenError> {
    let strings = interned(&setup.module, setup.probes);
    let id = |n: &str| strings.iter().position(|s| s == n.as_bytes()).unwrap() as u32;
    let probe = |i| Probe { id: FIRST_ID + i, names: names(i).map(|n| id(&n)), pid: provider_pid(i) };
    let probes: Vec<_> = (0..setup.probes).map(probe).collect();
    let session = Session {
        module: &setup.module,
        plan,
        layout,
        target: &setup.target,
        interned: strings.len() as u32,
    };
    let clause = |clause: usize, probes| ClauseUse { clause, probes, epid_base: EPIDS * clause as u32 };
    let mut clauses: Vec<_> = setup.clauses.iter().map(|(c, set)| clause(*c, set.clone())).collect();
    for (n, clause) in (0..).zip(&mut clauses).filter(|_| setup.growing) {
        clause.epid_base = n;
    }
    let error: Vec<_> = setup.error.iter().map(|c| clause(*c, ProbeSet::All)).collect();
    compile(
        &session,
        &ProgramSpec {
            name: "test",
            kind: setup.kind.0,
            attach: setup.kind.1,
            attach_btf_id: setup.kind.2,
            activity: setup.activity,
            context: &Args { probes: setup.probes },
            probes: &probes,
            clauses: &clauses,
            growing: setup.growing,
            error: ErrorProbe {
                probe: Probe { id: ERROR_ID, names: ERROR.map(id), pid: 0 },
                clauses: &error,
            },
            table: 0,
        },
    )
}

/// The seeds of a test: `SEED=n` is one seed, `ROUNDS=n` their number, from `START=n`. A run of
/// `cargo xtask test` takes others for each commit (`DTRACE_SEED`).
pub fn rounds(default: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|s: String| s.parse::<u64>().ok());
    if let Some(seed) = number("SEED") {
        return seed..seed + 1;
    }
    let count = number("ROUNDS").unwrap_or(default);
    let of_commit = || Some(number("DTRACE_SEED")?.wrapping_mul(count) & u64::from(u32::MAX));
    let start = number("START").or_else(of_commit).unwrap_or(0);
    start..start + count
}

/// The limit of the back end that the module exceeds.
pub fn limit(setup: &Setup) -> Option<String> {
    let layout = Layout::divided(&setup.module, &setup.error, setup.division);
    let plan = plan(setup, &layout);
    compile_setup(setup, &plan, &layout).err().map(|e| e.to_string())
}

pub fn plan(setup: &Setup, layout: &Layout) -> Plan {
    let needs = Needs {
        cpus: setup.cpus,
        slot_bytes: layout.slot_bytes,
        levels: setup.levels,
        preempt_count: setup.preempt_count,
        unwind: setup.target.unwind.is_some(),
        runtimes: setup.target.unwind.is_some_and(|unwind| unwind.fs_base.is_some()),
        ..Needs::default()
    };
    Plan::new(&setup.module, &setup.options, &needs)
}

/// Shown by a failing test.
pub fn show(module: &Module, compiled: &Compiled) -> String {
    format!("{}\n{}", dif::text::print(module, None), bpf_sys::disasm::listing(&compiled.code.insns))
}

fn load(setup: &Setup, maps: &mut Maps, layout: &Layout) -> (Prog, Compiled, String) {
    let mut plan = maps.plan.clone();
    plan.level = setup.level;
    let compiled = match compile_setup(setup, &plan, layout) {
        Ok(c) => c,
        Err(e) => panic!("{e}\n{}", dif::text::print(&setup.module, None)),
    };
    if let Some(table) = &compiled.table {
        let map = Map::create(&MapSpec::mmapable("table", table.len() as u32, 1)).unwrap();
        map.update(&0u32.to_ne_bytes(), table, bpf_sys::Update::Any).unwrap();
        maps.insert(MapRef::Table(0), map);
    }
    if setup.growing {
        maps.insert(MapRef::Probes, probe_table(setup));
        maps.insert(MapRef::Names, name_table(setup));
    }
    if setup.kind.0 == ProgKind::Kprobe {
        maps.insert(MapRef::EmptyProgArray, Map::create(&MapSpec::prog_array("none")).unwrap());
    }
    let image = compiled.image(|m| maps.get(m).map(AsRawFd::as_raw_fd), None).unwrap();
    // With statistics. A rejection is explained better without them.
    match image.load(4).or_else(|_| image.load(0)) {
        Ok(loaded) => (loaded.prog, compiled, loaded.log),
        Err(e) => panic!("{e}\n{}", show(&setup.module, &compiled)),
    }
}

/// The generation of the row of a probe.
pub fn generation(probe: u32) -> u32 {
    probe + 1
}

/// The attach cookie of a probe.
pub fn cookie(probe: u32) -> u64 {
    plane::probe_table::cookie(probe, generation(probe))
}

/// The probe table with the probes of a setup. The enabled-probe ids of a probe follow each other.
fn probe_table(setup: &Setup) -> Map {
    use plane::probe_table::{CHUNK_ROWS, CHUNKS, Chunk, ROW, Site};
    let strings = interned(&setup.module, setup.probes);
    let id = |n: &str| strings.iter().position(|s| s == n.as_bytes()).unwrap() as u32;
    let chunk = Map::create(&MapSpec::mmapable("chunk", ROW, CHUNK_ROWS)).unwrap();
    let table = Map::create(&MapSpec::array_of_maps("probes", chunk.as_fd(), CHUNKS)).unwrap();
    let memory = chunk.mmap(true).unwrap();
    for probe in 0..setup.probes {
        let mut clauses = [0u64; 3];
        for (n, (_, set)) in setup.clauses.iter().enumerate() {
            clauses[n / 64] |= u64::from(set.contains(probe)) << (n % 64);
        }
        let names = names(probe).map(|n| id(&n));
        let site = Site {
            id: FIRST_ID + probe,
            names,
            epid: FIRST_EPID + EPIDS * probe,
            pid: provider_pid(probe),
            clauses,
            ..Site::default()
        };
        let chunk = Chunk::new(memory.words()).unwrap();
        chunk.write(probe, &site);
        chunk.publish(probe, generation(probe));
    }
    table.set_fd(0, chunk.as_fd()).unwrap();
    table
}

/// The table of names with the strings of a setup.
fn name_table(setup: &Setup) -> Map {
    use plane::names::{CHUNKS, chunk_strings, write};
    let strsize = setup.module.string_storage();
    let chunk = || Map::create(&MapSpec::mmapable("names", strsize, chunk_strings(strsize))).unwrap();
    let table = Map::create(&MapSpec::array_of_maps("names", chunk().as_fd(), CHUNKS)).unwrap();
    let strings = interned(&setup.module, setup.probes);
    for (at, strings) in (0..).zip(strings.chunks(chunk_strings(strsize) as usize)) {
        let chunk = chunk();
        let memory = chunk.mmap(true).unwrap();
        for (number, text) in (0..).zip(strings) {
            write(memory.words(), strsize, number, text);
        }
        table.set_fd(at, chunk.as_fd()).unwrap();
    }
    table
}

impl Run {
    pub fn new(setup: Setup) -> Run {
        let layout = Layout::divided(&setup.module, &setup.error, setup.division);
        let plan = plan(&setup, &layout);
        let mut btf = bpf_sys::btf::Builder::new();
        let key = btf.i32();
        let words = plan.thread.map_or(1, |t| t.value_size() / 8);
        let value = btf.words("self", words);
        let btf = btf.load().unwrap();
        let thread = MapBtf { btf: btf.as_fd(), key: key.0, value: value.0 };
        let mut maps = Maps::create(plan, (false, &[][..]), Some(thread)).unwrap();
        let strings = interned(&setup.module, setup.probes);
        let strsize = setup.module.string_storage() as usize;
        let map = Map::create(&MapSpec::mmapable("strings", (strings.len() * strsize) as u32, 1)).unwrap();
        let mut bytes = vec![0; strings.len() * strsize];
        for (i, s) in strings.iter().enumerate() {
            bytes[i * strsize..][..s.len()].copy_from_slice(s);
        }
        bytes.resize(map.value_size(), 0);
        map.update(&0u32.to_ne_bytes(), &bytes, bpf_sys::Update::Any).unwrap();
        maps.insert(MapRef::Strings, map);
        let (prog, compiled, log) = load(&setup, &mut maps, &layout);
        let run = Run { setup, maps, prog, compiled, log, layout, consumed: 0 };
        run.set_control(ACTIVITY, run.setup.activity as u64);
        run
    }

    /// Another program of this session, with these clauses at this context level.
    pub fn also(&mut self, clauses: &[usize], level: u32) -> Prog {
        let all = std::mem::take(&mut self.setup.clauses);
        self.setup.clauses = clauses.iter().map(|c| (*c, ProbeSet::All)).collect();
        self.setup.level = level;
        let (prog, _, _) = load(&self.setup, &mut self.maps, &self.layout);
        self.setup.clauses = all;
        prog
    }

    fn memory(&self, map: MapRef) -> bpf_sys::Mmap {
        self.maps.get(map).unwrap().mmap(true).unwrap()
    }

    /// The activity word.
    pub fn activity(&self) -> u64 {
        self.memory(MapRef::Control).words()[ACTIVITY as usize / 8].load(SeqCst)
    }

    /// Sets a word of the control page.
    pub fn set_control(&self, offset: u32, value: u64) {
        self.memory(MapRef::Control).words()[offset as usize / 8].store(value, SeqCst);
    }

    /// Fires the program once with these arguments.
    pub fn fire(&self, args: &[u64; 10]) {
        self.prog.test_run(args, None).unwrap();
    }

    /// A word of CPU 0's control element.
    pub fn percpu(&self, offset: u32) -> u64 {
        self.memory(MapRef::PerCpu).words()[offset as usize / 8].load(SeqCst)
    }

    /// Sets a word of CPU 0's control element.
    pub fn set_percpu(&self, offset: u32, value: u64) {
        self.memory(MapRef::PerCpu).words()[offset as usize / 8].store(value, SeqCst);
    }

    /// Drops of a kind on CPU 0.
    pub fn drops(&self, kind: DropKind) -> u64 {
        assert!(kind.offset() < PERCPU_STRIDE);
        self.percpu(kind.offset())
    }

    /// The records of CPU 0's ring since the last call.
    pub fn records(&mut self) -> Vec<Record> {
        if self.maps.get(MapRef::Rings).is_none() {
            return Vec::new();
        }
        let memory = self.memory(MapRef::Rings);
        let size = u64::from(self.maps.plan.ring_size);
        let end = self.percpu(RESERVE);
        let mut out = Vec::new();
        let word = |at: u64| memory.words()[(at & (size - 1)) as usize / 8].load(SeqCst);
        while self.consumed < end {
            let at = self.consumed;
            let (length, pad) = ring::read_stamp(word(at), at).expect("an uncommitted record");
            if !pad {
                let origin = word(at + 16);
                let data =
                    (24..u64::from(length)).step_by(8).flat_map(|o| word(at + o).to_le_bytes()).collect();
                out.push(Record { epid: origin as u32, flags: (origin >> 48) as u16, data });
            }
            self.consumed += u64::from(length);
        }
        // Zeroed when released, as by the consumer.
        for at in (0..size).step_by(8) {
            memory.words()[at as usize / 8].store(0, SeqCst);
        }
        self.set_percpu(plane::control::CONSUMED, self.consumed);
        out
    }

    /// Keys and values of an aggregation (even epoch, CPU 0).
    pub fn aggregation(&self, agg: u32) -> BTreeMap<Vec<u8>, Vec<u64>> {
        self.aggregation_of(agg, 0)
    }

    /// The same for one side.
    pub fn aggregation_of(&self, agg: u32, side: u32) -> BTreeMap<Vec<u8>, Vec<u64>> {
        let plan = &self.maps.plan.aggs[agg as usize];
        let location = plan.location;
        let table =
            table::TableShape::table_index(side, 0, self.maps.plan.cpus) * location.stride + location.at;
        let memory = self.memory(MapRef::Agg(location.map));
        let word = |at: u32| memory.words()[at as usize / 8].load(SeqCst);
        let mut out: BTreeMap<Vec<u8>, Vec<u64>> = BTreeMap::new();
        for slot in 0..plan.shape.slots() {
            let at = table + TABLE_HEADER + slot * plan.shape.stride;
            let words: Vec<u64> =
                (0..plan.shape.value_size / 8).map(|i| word(at + plan.shape.value() + 8 * i)).collect();
            if word(at) == table::EMPTY && (plan.shape.key_size > 0 || words.iter().all(|w| *w == 0)) {
                continue;
            }
            let key = (0..plan.shape.key_size / 8).flat_map(|i| word(at + 8 + 8 * i).to_le_bytes()).collect();
            let words: Vec<u64> = words.iter().map(|w| table::from_stored(plan.func, *w)).collect();
            match out.get_mut(&key) {
                Some(known) => table::merge(plan.func, known, &words),
                None => drop(out.insert(key, words)),
            }
        }
        out
    }

    /// Bytes of a global scalar.
    pub fn global(&self, var: VarId, size: u32) -> Vec<u8> {
        let VarPlan::Global(at) = self.maps.plan.vars[var.0 as usize] else { return Vec::new() };
        let memory = self.memory(MapRef::Globals);
        (at..at + size)
            .step_by(8)
            .flat_map(|o| memory.words()[o as usize / 8].load(SeqCst).to_le_bytes())
            .collect()
    }

    /// Keys and data of an array.
    pub fn elements(&self, var: VarId) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let entries = self.maps.get(MapRef::Var(var.0)).unwrap().entries().unwrap();
        // The number of its node is behind the data of an element of `self->`.
        let owned = self.setup.module.vars[var.0 as usize].scope == dif::ir::Scope::Thread;
        let end = if owned { plane::assoc::NODE as usize } else { 0 };
        let data = |value: &[u8]| value[plane::assoc::DATA as usize..value.len() - end].to_vec();
        entries.into_iter().map(|(key, value)| (key, data(&value))).collect()
    }
}
