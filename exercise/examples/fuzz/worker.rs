//! The process that runs a target: it makes inputs, and judges what they do.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use exercise::choices::Choices;
use exercise::fuzz::Target;
use exercise::fuzz::case::Case;
use exercise::fuzz::change::change;
use exercise::mutate::mutate;

use crate::shared::SharedMemory;
use crate::{limits, seeds, store, target_named};

/// CPU time that an input of 64 KB may take, in a program that is hardly optimized.
const SLOW: Duration = Duration::from_millis(2000);
/// The kind of a failure by that.
const SLOW_KIND: &str = "slow";
/// Memory that an input may take.
const LARGE: usize = 384 << 20;
/// How long an input is made smaller.
const SHRINKING: Duration = Duration::from_secs(20);
/// The most inputs that are kept because they reached new code.
const KEPT: usize = 4096;

/// The message and the place of the last panic.
static PANIC: Mutex<(String, String)> = Mutex::new((String::new(), String::new()));

fn note_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        if let Ok(mut last) = PANIC.lock() {
            *last = (panic.to_string(), place);
        }
    }));
}

/// What is wrong with an input: a word for its kind and place, and what a person reads.
struct Failure {
    kind: String,
    text: String,
}

fn failure_of(case: &Case, target: Target) -> Option<Failure> {
    let (memory, time) = (limits::begin(), limits::cpu_time());
    let passed = catch_unwind(AssertUnwindSafe(|| case.run(target)));
    let (took, most) = (limits::cpu_time().saturating_sub(time), limits::most(memory));
    if passed.is_err() {
        let (text, place) = PANIC.lock().map(|last| last.clone()).unwrap_or_default();
        return Some(Failure { kind: place, text });
    }
    if took > SLOW {
        return Some(Failure { kind: SLOW_KIND.into(), text: format!("it takes {took:.1?} of CPU time") });
    }
    (most > LARGE).then(|| Failure { kind: "large".into(), text: format!("it takes {} MB", most >> 20) })
}

/// What is wrong with a stored input.
pub(crate) fn judge(case: &Case, target: Target) -> Option<String> {
    note_panics();
    limits::bound_memory();
    failure_of(case, target).map(|failure| failure.text)
}

/// Makes an input that fails in the same way smaller.
fn smallest(mut case: Case, kind: &str, target: Target) -> Case {
    let end = Instant::now() + SHRINKING;
    let fails = |case: &Case| failure_of(case, target).is_some_and(|failure| failure.kind == kind);
    loop {
        let smaller = case.smaller().take_while(|_| Instant::now() < end).find(fails);
        match smaller {
            Some(smaller) => case = smaller,
            None => return case,
        }
    }
}

/// An input, of one that is there already.
fn input(all: &[Case], random: &mut Choices<'_>) -> Case {
    let Some(base) = all.get(random.below(all.len())) else { return Case::default() };
    let other = all.get(random.below(all.len())).unwrap_or(base);
    let mut pool = base.pool.clone();
    let is_one = pool.len() == 1;
    for (n, bytes) in pool.iter_mut().enumerate() {
        let from = if other.pool.len() == base.pool.len() { n } else { random.below(other.pool.len()) };
        let from = other.pool.get(from).map_or(&[][..], Vec::as_slice);
        // Of several files most stay as they are.
        if !is_one && random.one_in(2) {
            continue;
        }
        match (std::str::from_utf8(bytes), std::str::from_utf8(from)) {
            (Ok(text), Ok(from)) if is_one && random.one_in(2) => {
                *bytes = mutate(text, from, random).into_bytes()
            }
            _ => change(bytes, from, random),
        }
    }
    if random.one_in(32) {
        let (a, b) = (random.below(pool.len()), random.below(pool.len()));
        pool.swap(a, b);
    }
    let mut choices = if random.one_in(8) { Vec::new() } else { base.choices.clone() };
    // A source that is exhausted decides 0.
    let more = if random.one_in(4) { 4 } else { 48 };
    choices.extend((choices.len()..more).map(|_| random.bits() as u8));
    if base.choices.len() > 8 && random.one_in(2) {
        change(&mut choices, &other.choices, random);
    }
    choices.truncate(256);
    Case { choices, pool }
}

pub(crate) fn run(name: &str, seed: &str, seconds: &str, dir: &Path) -> Result<ExitCode, String> {
    let number = |e: &dyn std::fmt::Display| e.to_string();
    let seed: u64 = seed.parse().map_err(|e| number(&e))?;
    let seconds: f64 = seconds.parse().map_err(|e| number(&e))?;
    let target = target_named(name)?;
    let shared = SharedMemory::create(&dir.join(name))?;
    note_panics();
    let mut all = seeds::of(name, &crate::root(), &seeds::Programs::compiled(&dir.join("programs")));
    limits::bound_memory();
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut known = HashSet::new();
    let given = all.len();
    #[cfg(feature = "guided")]
    let mut coverage = crate::coverage::Coverage::new();
    for round in 0u64.. {
        if Instant::now() >= end {
            break;
        }
        // The first ones are as they are.
        let mut random = Choices::seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(round));
        let case = match all.get(round as usize).filter(|_| round < given as u64) {
            Some(case) => case.clone(),
            None => input(&all, &mut random),
        };
        shared.note(&case);
        #[cfg(feature = "guided")]
        crate::coverage::Coverage::begin();
        let failure = failure_of(&case, target);
        // What was slow once may have been the machine.
        let again = || failure_of(&case, target).is_some_and(|failure| failure.kind == SLOW_KIND);
        let failure = failure.filter(|failure| failure.kind != SLOW_KIND || again());
        if round.is_multiple_of(64) {
            shared.set_cpu(limits::cpu_time());
        }
        #[cfg(feature = "guided")]
        if coverage.is_new() && all.len() < KEPT {
            all.push(case.clone());
        }
        if let Some(failure) = failure
            && known.insert(failure.kind.clone())
        {
            let path = store(name, &smallest(case, &failure.kind, target))?;
            let text = failure.text.replace('\n', " ");
            println!("{name}: {}: {}", text.get(..400).unwrap_or(&text), path.display());
        }
    }
    shared.set_cpu(limits::cpu_time());
    all.truncate(KEPT);
    Ok(ExitCode::SUCCESS)
}
