//! As many probes as a kernel has functions, in one program: the probes of each clause, ids, names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dtrace::options::Options;
use dtrace::provider::context::{Context, Index};
use dtrace::provider::mir::{Builder, Label, Size, V};
use dtrace::provider::{
    Attributes, EnabledProbe, Env, Family, ProbeDesc, ProbeList, ProbeSource, ProviderFacts,
    ProviderStability, Unit,
};
use dtrace::{Field, Macros, Provider, Session, Source};

use crate::tool::{Losses, Output, collect_reports, on_the_workload, run_to_end, sink, workload};
use crate::{Test, Verdict};

pub(crate) const TESTS: &[Test] = &[
    ("wide::firings_are_counted_by_module", by_module),
    ("wide::firings_are_counted_by_function", by_function),
    ("wide::probe_names_are_recorded_as_text", as_texts),
    ("wide::default_output_names_the_probe", by_default),
    ("wide::many_clauses_run_for_all_probes", of_all),
    ("wide::clauses_run_for_their_subset_of_probes", of_parts),
];

/// Rounds of the workload. Each round fires the next probe.
const CALLS: u64 = 700;

/// Number of probes. An emulated CPU needs seconds for as many as on real hardware.
fn all() -> u64 {
    if std::env::var_os("DTRACE_IN_VM").is_some() { 20_000 } else { 100_000 }
}

/// A provider of many probes that fire in turn: a uprobe whose second argument is the index of the
/// probe.
struct Wide(ProbeList);

fn function(n: u64) -> String {
    format!("function_with_a_name_as_long_as_usual_{n}")
}

/// The modules alternate.
fn module(n: u64) -> u64 {
    n % 150
}

fn probes() -> Vec<ProbeDesc> {
    let (provider, name): (Arc<str>, Arc<str>) = ("wide".into(), "entry".into());
    let modules: Vec<Arc<str>> = (0..150).map(|m| format!("module{m}").into()).collect();
    let probe =
        |n| ProbeDesc::new(provider.clone(), modules[module(n) as usize].clone(), function(n), name.clone());
    (0..all()).map(probe).collect()
}

impl Provider for Wide {
    fn facts(&self) -> ProviderFacts {
        let stability = ProviderStability::uniform(Attributes::EVOLVING);
        ProviderFacts { family: Family::one("wide"), has_errno: false, stability }
    }

    fn probes(&self) -> &dyn ProbeSource {
        &self.0
    }

    fn plan(&self, probes: &[EnabledProbe], _env: &Env<'_>) -> Result<Vec<Unit>, String> {
        let number = |p: &EnabledProbe| {
            let digits = p.desc.function.rsplit('_').next().unwrap_or_default();
            digits.parse().unwrap_or(u32::MAX)
        };
        let probes = probes.iter().map(|p| (number(p), p.clone())).collect();
        Ok(vec![on_the_workload("wide", probes, all() as u32, Arc::new(Second))])
    }
}

struct Second;

impl Context for Second {
    fn index(&self, b: &mut Builder, ctx: V, _: Label) -> Index {
        Index::V(b.load(Size::B8, ctx, b.machine().args[1]))
    }
}

/// Resident memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// The output of a script over the workload. A run in which the kernel suppressed firings returns
/// nothing.
fn run(script: &str) -> Output {
    let whole = (0..5).map(|_| once(script)).find(|(_, losses)| losses.suppressed == 0);
    let (output, losses) = whole.expect("the kernel suppressed firings five times");
    assert!(losses.records == 0 && losses.others.is_empty(), "{losses:?}");
    output
}

fn once(script: &str) -> (Output, Losses) {
    let target = workload(1, CALLS);
    let mut options = Options::default();
    options.set("bufsize", Some("16m")).unwrap();
    options.set("aggsize", Some("16m")).unwrap();
    let macros = Macros { target: target.pid() as u64, ..Macros::default() };
    let source = Source::Specifier(Field::Name, script.into());
    let wide = vec![Box::new(Wide(ProbeList::new(probes))) as Box<dyn Provider>];
    let (start, before) = (Instant::now(), resident());
    let program = dtrace::compile_with(&dtrace::System::live(), &[source], &macros, &mut options, wide)
        .unwrap_or_else(|e| panic!("{e}"));
    let (compiled, memory) = (start.elapsed(), resident().saturating_sub(before));
    let output = Output::default();
    let mut session = Session::start(&program, options, vec![target], sink(&output)).unwrap();
    println!(
        "{script}: compiled in {compiled:?}, {memory} KiB; started after {:?}, {} KiB",
        start.elapsed(),
        resident().saturating_sub(before)
    );
    let mut losses = run_to_end(&mut session, Duration::from_secs(120));
    session.finish().unwrap();
    collect_reports(&mut session, &mut losses);
    testing::suppressed::counted();
    (output, losses)
}

/// Lines of two words: a key and its count.
fn counts(output: &Output) -> BTreeMap<String, u64> {
    let text = output.text();
    let words = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
    let pairs = words.filter_map(|w| match w[..] {
        [key, count] => Some((key.to_owned(), count.parse().ok()?)),
        _ => None,
    });
    pairs.collect()
}

fn by_module() -> Verdict {
    let counts = counts(&run("wide:::entry /pid == $target/ { @[probemod] = count(); }"));
    let mut expected = BTreeMap::new();
    for n in 0..CALLS {
        *expected.entry(format!("module{}", module(n))).or_default() += 1;
    }
    assert_eq!(counts, expected);
    Verdict::Pass
}

fn by_function() -> Verdict {
    let counts = counts(&run("wide:::entry /pid == $target/ { @[probefunc] = count(); }"));
    assert_eq!(counts, (0..CALLS).map(|n| (function(n), 1)).collect());
    Verdict::Pass
}

fn as_texts() -> Verdict {
    let other = function(7);
    let output = run(&format!(
        "wide:::entry /pid == $target && probefunc != \"{other}\"/ {{ s = probefunc; @[s] = count(); \
         @l[probename, strlen(strjoin(probemod, \"x\"))] = count(); @p[strjoin(probeprov, \":\")] = count(); }}"
    ));
    let mut expected: BTreeMap<String, u64> =
        (0..CALLS).filter(|n| *n != 7).map(|n| (function(n), 1)).collect();
    expected.insert("wide:".into(), CALLS - 1);
    assert_eq!(counts(&output), expected);
    let of_length = |length: &str| {
        let text = output.text();
        let line = text.lines().find(|l| l.split_whitespace().take(2).eq(["entry", length])).unwrap_or("");
        line.split_whitespace().nth(2).unwrap_or("0").parse::<usize>().unwrap()
    };
    for digits in 1..=3 {
        let such = (0..CALLS).filter(|n| *n != 7 && module(*n).to_string().len() == digits).count();
        assert_eq!(of_length(&("module".len() + digits + 1).to_string()), such);
    }
    Verdict::Pass
}

fn by_default() -> Verdict {
    let output = run("wide:::entry /pid == $target/ {}");
    let text = output.text();
    let mut fired: Vec<&str> = text.lines().filter_map(|l| l.split_whitespace().nth(2)).collect();
    assert_eq!(fired.remove(0), "FUNCTION:NAME");
    assert_eq!(fired, (0..CALLS).map(|n| format!("{}:entry", function(n))).collect::<Vec<_>>());
    Verdict::Pass
}

fn of_all() -> Verdict {
    let clause = |i| format!("wide:::entry /pid == $target/ {{ @[\"c{i}\"] = count(); }} ");
    let script: String = (0..30).map(clause).collect();
    let counts = counts(&run(&format!("{script} wide::*_5: /pid == $target/ {{ @[\"five\"] = count(); }}")));
    let mut expected: BTreeMap<String, u64> = (0..30).map(|i| (format!("c{i}"), CALLS)).collect();
    expected.insert("five".into(), 1);
    assert_eq!(counts, expected);
    Verdict::Pass
}

fn of_parts() -> Verdict {
    let output = run("wide::function_*_1?: /pid == $target/ { @[\"tens\"] = count(); } \
                      wide:module7:: /pid == $target/ { @[probefunc] = count(); } \
                      wide::*_3:, wide::*_19999: /pid == $target/ { @[probename] = count(); @i[id, epid] = count(); }");
    let counts = counts(&output);
    assert_eq!(counts["tens"], 10);
    assert_eq!(counts["entry"], (0..CALLS).filter(|n| function(*n).ends_with("_3")).count() as u64);
    let sevens = (0..CALLS).filter(|n| module(*n) == 7);
    assert!(sevens.clone().all(|n| counts[&function(n)] == 1));
    assert_eq!(counts.len(), 2 + sevens.count());
    Verdict::Pass
}
