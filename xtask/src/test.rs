//! `cargo xtask test`: all tests on this machine's kernel, and a choice of them on the stock
//! kernels of the matrix.
//!
//! ```text
//!  preflight ─▶ build, list ─▶ alone ─▶ beside, two or three at a time ─────────▶ what failed, again, alone ─▶ sweep ─▶ judge
//!                                        guest 6.1 ─▶ guest 6.12 ─▶ guest 7.2 …      │
//!                                                                                   └─▶ in guests: on the parent commit
//! ```
//!
//! Each test is a process of its own with a deadline ([`process`]); quick ones share one
//! ([`unit`]). Which tests run in a guest is a rotation ([`rotation`]) over the table of
//! [`places`], with the memory of [`record`]. Tests that own the machine run first, alone; the
//! others beside each other and beside the guests, because they mostly wait, and because two
//! tracers that disturb each other are a defect. What fails is run again once, alone: a pass then
//! is evidence ([`flaky`]).
//!
//! The run fails when a test fails, when a skip is not expected ([`skips`]), when a guest's kernel
//! log has a fault, and when something that was planned has no outcome. Without root, guests are
//! skipped, with the reason; as root, kernels that cannot be fetched fail the run. Its last line
//! has the numbers.

pub(crate) mod agent;
mod board;
mod flaky;
mod guests;
pub(crate) mod options;
mod parent;
mod places;
mod plan;
mod preflight;
mod process;
mod programs;
mod record;
mod report;
mod result;
mod rotation;
mod skips;
mod summary;
mod sweep;
mod unit;

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use self::board::{Board, Of};
use self::options::Options;
use self::places::Places;
use self::plan::{Here, Known, Published};
use self::record::{HERE, Record};
use self::result::{Name, Result};
use self::summary::{Machine, Run};

/// A fallible result of this module: `Result` is that of a test.
type Fallible<T> = std::result::Result<T, String>;

pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0)
}

pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from)
}

/// The end-to-end tests that run in no guest, for `cargo xtask tidy`.
pub(crate) struct NeverInGuests(Places);

impl NeverInGuests {
    pub(crate) fn load(root: &Path) -> Fallible<NeverInGuests> {
        Places::load(root).map(NeverInGuests)
    }

    /// Of a test without `e2e::`.
    pub(crate) fn has(&self, test: &str) -> bool {
        let name = Name { program: places::END_TO_END.into(), test: format!("e2e::{test}") };
        !crate::kernels::NAMES.iter().any(|kernel| self.0.may_run_in(kernel, &name))
    }
}

/// The lines of `testing/flaky` that have expired, for `cargo xtask tidy`.
pub(crate) fn expired_flakes(root: &Path) -> Fallible<Vec<String>> {
    Ok(flaky::Flaky::load(root)?.expired(Record::load(root)?.round))
}

/// `cargo xtask test …`
pub(crate) fn command(args: &[String]) -> Fallible<u8> {
    let options = Options::parse(args)?;
    let (root, target) = (crate::root(), target_dir());
    let begun = Instant::now();
    if let Some(status) = sweep::supervise()? {
        return Ok(status);
    }
    if !options.list {
        preflight::check(&root, &target, !options.kernels.is_empty())?;
        sweep::prune(&target);
    }
    crate::sys::note_interrupts();
    crate::compilers::link()?;
    // What is wrong in the files is told before anything is built.
    let (places, flaky) = (Places::load(&root)?, flaky::Flaky::load(&root)?);
    let mut record = Record::load(&root)?;
    skips::check()?;
    // Kernels are fetched while cargo builds.
    let (built, fetched) = std::thread::scope(|scope| {
        let fetched = scope.spawn(|| match options.kernels.as_slice() {
            kernels if kernels.is_empty() || options.list => Ok(()),
            kernels => crate::kernels::fetch(kernels),
        });
        let built = programs::build(&root, &targets(&options, &target));
        (built, fetched.join().unwrap_or_else(|_| Err("the thread that fetches kernels has panicked".into())))
    });
    let programs = built?;
    let commit = Commit::of(&root);
    let seed = options::number("DTRACE_SEED").unwrap_or(commit.seed);
    let (binary, kernel) = published(&options, seed, &root)?;
    let took = begun.elapsed();
    let failed = options.failed.then(|| load_failed(&target));
    let known = Known {
        programs: &programs,
        places: &places,
        record: &record,
        failed: failed.as_ref(),
        published: binary.as_deref().map(|path| Published { path, kernel }),
        seed,
    };
    if options.close {
        return close(&known, commit.number, &root);
    }
    let (here, mut plans) = (known.here(&options), known.guests(&options));
    println!(
        "commit {} ({}); DTRACE_SEED={seed} repeats the choice of tests for guests and of generated cases",
        commit.number, commit.hash
    );
    if options.list {
        list(&here, &plans);
        return Ok(0);
    }
    let mut run = Run::new(options.update_skips, options.is_whole());
    run.parts.push(("building".into(), took));
    if options.is_whole() {
        let begun = Instant::now();
        run.documentation(programs::documentation(&root));
        run.parts.push(("examples in the documentation".into(), begun.elapsed()));
        let begun = Instant::now();
        match crate::fuzz::moment(&target, seed) {
            Ok(said) => println!("fuzz targets: {said}"),
            Err(why) => run.broken.push(why),
        }
        run.parts.push(("fuzz targets".into(), begun.elapsed()));
        run.broken.extend(places.idle(&known.names()));
        store_listed(&target, &programs);
    }
    if let Err(why) = fetched {
        run.without_guests(&why, is_root(), plans.len());
        plans.clear();
    } else if !is_root() && !plans.is_empty() {
        run.without_guests("guests trace as root, and share this machine's files", false, plans.len());
        plans.clear();
    }
    let ran = Instant::now();
    let everywhere = binary.clone().filter(|_| kernel.is_none());
    let dtrace = everywhere.unwrap_or_else(|| target.join("debug/dtrace"));
    let machines = run_all(&here, &plans, &dtrace);
    run.parts.push(("all tests".into(), ran.elapsed()));
    if options.of_static {
        println!("testing/ran is not written: it tells of the program of the workspace");
    } else if commit.is_clean {
        remember(&mut record, &machines, &known_names(&programs), &places, commit.number, options.is_whole());
        run.broken.extend(record.store(&root).err());
    } else {
        println!("testing/ran is not written: the tree differs from its commit");
    }
    let blamed =
        if crate::sys::interrupted() || options.of_static { Vec::new() } else { blamed(&machines, &plans) };
    let known_before = parent::fail_before(&root, &blamed, &Board::new()).unwrap_or_else(|e| {
        println!("the parent commit was not asked: {e}");
        Vec::new()
    });
    let is_new = |machine: &str, name: &Name| !known_before.iter().any(|(m, n)| m == machine && n == name);
    for machine in &machines {
        if let Err(e) = run.add(machine, &is_new, &flaky, record.round) {
            run.broken.push(e);
        }
    }
    if machines.is_empty() && !(options.failed || options.uncovered) {
        run.broken.push("no test has such a name there".into());
    }
    if crate::sys::interrupted() {
        run.broken.push("it was interrupted".into());
    }
    run.broken.extend(store_failed(&target, &machines).err());
    run.parts.push(("everything".into(), begun.elapsed()));
    run.print();
    Ok(u8::from(!run.broken.is_empty()))
}

/// The static program if a part of the run is about it, and the only kernel in whose guest it is
/// tested.
fn published(options: &Options, seed: u64, root: &Path) -> Fallible<(Option<PathBuf>, Option<&'static str>)> {
    if options.of_static {
        return Ok((Some(crate::dist::program::of(root)?), None));
    }
    let turn = plan::turn_of_published(seed, &options.kernels);
    let Some(kernel) = turn.filter(|_| options.is_whole() && !options.list && is_root()) else {
        return Ok((None, None));
    };
    if let Err(why) = crate::dist::program::can_be_built() {
        println!("the static program is not tested: {why}");
        return Ok((None, None));
    }
    println!("{kernel}: end-to-end tests run the static program");
    Ok((Some(crate::dist::program::of(root)?), Some(kernel)))
}

/// The targets that have to be built: those that had a test with the filters in its name when all
/// were listed last.
fn targets(options: &Options, target: &Path) -> Vec<String> {
    if options.filters.is_empty() {
        return Vec::new();
    }
    let text = std::fs::read_to_string(target.join("tests/listed")).unwrap_or_default();
    let with = text.lines().filter(|line| options.takes(line)).filter_map(|line| line.split_once(' '));
    let all: BTreeSet<String> = with.map(|(program, _)| program.to_owned()).collect();
    // Test programs start what the package's own binaries are: they are built with them.
    if all.iter().any(|program| program.contains(":bin-")) { Vec::new() } else { all.into_iter().collect() }
}

fn store_listed(target: &Path, programs: &[programs::Program]) {
    let text: String = known_names(programs).iter().map(|name| format!("{name}\n")).collect();
    let _ = std::fs::create_dir_all(target.join("tests"));
    let _ = std::fs::write(target.join("tests/listed"), text);
}

fn known_names(programs: &[programs::Program]) -> BTreeSet<Name> {
    programs.iter().flat_map(programs::Program::names).collect()
}

/// What failed in the last run, by machine.
fn load_failed(target: &Path) -> BTreeSet<(String, Name)> {
    let text = std::fs::read_to_string(target.join("tests/failed")).unwrap_or_default();
    let of = |line: &str| {
        let (machine, rest) = line.split_once('\t')?;
        let (program, test) = rest.split_once('\t')?;
        Some((machine.to_owned(), Name { program: program.into(), test: test.into() }))
    };
    text.lines().filter_map(of).collect()
}

fn store_failed(target: &Path, machines: &[Machine]) -> Fallible<()> {
    let mut text = String::new();
    for machine in machines {
        for Result { name, .. } in machine.results.iter().filter(|r| r.has_failed()) {
            text.push_str(&format!("{}\t{}\t{}\n", machine.name, name.program, name.test));
        }
    }
    let path = target.join("tests/failed");
    let written = std::fs::create_dir_all(target.join("tests")).and_then(|()| std::fs::write(&path, text));
    written.map_err(|e| format!("{}: {e}", path.display()))
}

fn list(here: &Here, plans: &[guests::Plan]) {
    let print = |machine: &str, units: &[unit::Unit]| {
        for unit in units {
            unit.tests.iter().for_each(|test| println!("{machine}  {} {test}", unit.program));
        }
    };
    print("here, alone", &here.alone);
    print("here", &here.beside);
    plans.iter().for_each(|plan| print(&plan.machine, &plan.units));
    let of = |units: &[unit::Unit]| {
        let seconds: f64 = units.iter().map(|u| u.expected).sum();
        format!("{} tests, about {seconds:.0} s", units.iter().map(|u| u.tests.len()).sum::<usize>())
    };
    println!("here, alone: {}", of(&here.alone));
    println!("here: {}", of(&here.beside));
    plans.iter().for_each(|plan| println!("{}: {}", plan.machine, of(&plan.units)));
}

/// How many tests run beside each other here: one more than CPUs, since they mostly wait.
fn jobs() -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    options::number("DTRACE_JOBS").map_or(cpus + 1, |n| n.max(1) as usize)
}

/// Runs everything: the results of each machine.
fn run_all(here: &Here, plans: &[guests::Plan], dtrace: &Path) -> Vec<Machine> {
    let board = Board::new();
    board.plan(HERE, &here.alone, 1);
    board.plan(HERE, &here.beside, jobs());
    plans.iter().for_each(|plan| board.plan(&plan.machine, &plan.units, 1));
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also when a test's thread panics.
        let _end = Raised(&ends);
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                std::thread::park_timeout(Duration::from_millis(200));
                board.tick();
            }
        });
        on_all(here, plans, dtrace, &board)
    })
}

/// Raises a flag when it is dropped.
struct Raised<'a>(&'a AtomicBool);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn on_all(here: &Here, plans: &[guests::Plan], dtrace: &Path, board: &Board) -> Vec<Machine> {
    let watcher = Of { board, machine: HERE };
    let begun = Instant::now();
    let mut results = unit::run_all(here.alone.clone(), 1, &watcher);
    let alone = begun.elapsed();
    let (next, guests) = (Mutex::new(plans.iter()), Mutex::new(Vec::new()));
    let next_plan =
        || next.lock().ok().and_then(|mut plans| plans.next()).filter(|_| !crate::sys::interrupted());
    let in_guests = || {
        while let Some(plan) = next_plan() {
            let begun = Instant::now();
            let machine = Machine::of_guest(plan, guests::run(plan, dtrace, board), begun.elapsed());
            board.say(&machine.line());
            if let Ok(mut all) = guests.lock() {
                all.push(machine);
            }
        }
    };
    std::thread::scope(|scope| {
        // An emulated machine keeps a CPU busy: one beside the tests here, then as many as there
        // are CPUs.
        scope.spawn(in_guests);
        results.extend(unit::run_all(here.beside.clone(), jobs(), &watcher));
        for _ in 1..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(in_guests);
        }
    });
    let units: Vec<unit::Unit> = here.alone.iter().chain(&here.beside).cloned().collect();
    if unit::retries() {
        unit::retry(&units, &mut results, &watcher);
    }
    let mut machines = guests.into_inner().unwrap_or_default();
    if !units.is_empty() {
        let table = Command::new(dtrace).arg("-vV").output();
        let lacks = table.ok().and_then(|o| report::missing_facilities(&String::from_utf8_lossy(&o.stdout)));
        let mut machine = Machine::new(HERE, &units, begun.elapsed());
        machine.parts.push(("here, alone".into(), alone));
        (machine.results, machine.lacks) = (results, lacks);
        machines.push(machine);
    }
    machines
}

/// The tests that failed in guests, for the parent commit.
fn blamed(machines: &[Machine], plans: &[guests::Plan]) -> Vec<parent::Blamed> {
    let of = |plan: &guests::Plan| {
        let machine = machines.iter().find(|m| m.name == plan.machine)?;
        let failed: Vec<Name> =
            machine.results.iter().filter(|r| r.has_failed()).map(|r| r.name.clone()).collect();
        (!failed.is_empty()).then(|| parent::Blamed { plan: plan.clone(), failed })
    };
    plans.iter().filter_map(of).collect()
}

/// Notes in the record what ran.
fn remember(
    record: &mut Record,
    machines: &[Machine],
    names: &BTreeSet<Name>,
    places: &Places,
    commit: u64,
    is_whole: bool,
) {
    let may_run_in_a_guest = |name: &Name| crate::kernels::NAMES.iter().any(|k| places.may_run_in(k, name));
    for machine in
        machines.iter().filter(|m| m.name == HERE || crate::kernels::NAMES.contains(&m.name.as_str()))
    {
        for result in machine.results.iter().filter(|r| !r.has_failed()) {
            let is_slow = result.seconds >= 0.3;
            if names.contains(&result.name) && (is_slow || may_run_in_a_guest(&result.name)) {
                record.note(&result.name, &machine.name, result.seconds, commit);
            }
        }
    }
    if is_whole {
        record.keep_only(&|name| names.contains(name));
    }
}

/// Ends the round if nothing is uncovered.
fn close(known: &Known<'_>, commit: u64, root: &Path) -> Fallible<u8> {
    let open = plan::uncovered(known);
    if open > 0 {
        return Err(format!(
            "{open} tests have not run on a kernel in round {}: cargo xtask test --uncovered",
            known.record.round
        ));
    }
    let mut record = Record::load(root)?;
    (record.round, record.since) = (record.round + 1, commit);
    record.store(root)?;
    println!("round {} begins: commit testing/ran", record.round);
    Ok(0)
}

/// The commit of the tree.
struct Commit {
    /// How many commits lead to it; 0 where there is no repository.
    number: u64,
    hash: String,
    /// Which part of the tests runs in guests: the number, or where a shallow clone has a part of
    /// the commits, the hash.
    seed: u64,
    /// Whether the tree has no changes but those that a run makes itself.
    is_clean: bool,
}

impl Commit {
    fn of(root: &Path) -> Commit {
        let git = |words: &[&str]| {
            let out = Command::new("git").args(words).current_dir(root).output().ok()?;
            out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
        };
        let number = git(&["rev-list", "--count", "HEAD"]).and_then(|text| text.trim().parse().ok());
        let number = number.unwrap_or(0);
        let parsed = git(&["rev-parse", "--is-shallow-repository", "--short", "HEAD"]).unwrap_or_default();
        let (is_shallow, hash) = parsed.split_once('\n').unwrap_or_default();
        let (is_shallow, hash) = (is_shallow == "true", hash.trim().to_owned());
        let of_hash = hash.get(..7).and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let seed = of_hash.filter(|_| is_shallow).unwrap_or(number);
        let own = ["testing/ran", "testing/flaky"];
        let changes = git(&["status", "--porcelain"]);
        let is_clean =
            changes.is_some_and(|text| text.lines().all(|line| own.iter().any(|o| line.ends_with(o))));
        Commit { number, hash, seed, is_clean }
    }
}
