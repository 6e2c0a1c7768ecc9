//! A provider with a name for each process, brought along by the user of the library: descriptions,
//! keys, records, comparisons and string functions of its name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dtrace::options::Options;
use dtrace::provider::context::{Context, Index};
use dtrace::provider::mir::{Builder, Label, Size, V};
use dtrace::provider::{
    Attributes, EnabledProbe, Env, Family, ProbeDesc, ProbeList, ProbeSource, ProviderFacts,
    ProviderStability, Unit,
};
use dtrace::{Error, Field, Macros, Program, Provider, Session, Source};

use crate::tool::{Hits, Losses, Output, on_the_workload, own_program, run_to_end, sink, workload};
use crate::{Test, Verdict};

pub(crate) const TESTS: &[Test] = &[
    ("family::firings_are_counted_by_provider", keys),
    ("family::probeprov_is_recorded_as_text", records),
    ("family::probeprov_is_compared_and_passed_to_string_functions", texts),
    ("family::short_strings_truncate_probeprov", short_strings),
    ("family::probeprov_is_a_key_of_associative_arrays", arrays),
    ("family::a_column_does_not_change_when_probes_come_later", later),
    ("family::descriptions_list_and_select_names_of_a_family", descriptions),
    ("family::two_providers_for_one_name_are_an_error", overlap),
];

/// Calls of each thread of the workload.
const CALLS: u64 = 400;

/// The process ids of the family, by the number of the thread, from 1 on.
const PIDS: [u32; 3] = [100, 200, 4_194_303];

/// A provider `tst*`. A call of [`dt_library_hit`] fires `x` of the process that its thread stands
/// for, and `y` exists in one process only.
struct Processes(ProbeList);

impl Processes {
    fn new() -> Processes {
        let probe = |name: &'static str| move |pid: &u32| ProbeDesc::new(format!("tst{pid}"), "m", "f", name);
        Processes(ProbeList::new(move || PIDS.iter().map(probe("x")).chain([probe("y")(&PIDS[1])]).collect()))
    }
}

impl Provider for Processes {
    fn facts(&self) -> ProviderFacts {
        let stability = ProviderStability::uniform(Attributes::EVOLVING);
        ProviderFacts { family: Family::of_processes("tst"), has_errno: false, stability }
    }

    fn probes(&self) -> &dyn ProbeSource {
        &self.0
    }

    fn plan(&self, probes: &[EnabledProbe], _env: &Env<'_>) -> Result<Vec<Unit>, String> {
        let thread = |p: &EnabledProbe| PIDS.iter().position(|pid| *p.desc.provider == format!("tst{pid}"));
        let fires = probes.iter().filter(|p| &*p.desc.name == "x");
        let fires = fires.filter_map(|p| Some((thread(p)? as u32 + 1, p.clone()))).collect();
        Ok(vec![on_the_workload("tst", fires, PIDS.len() as u32 + 1, Arc::new(First))])
    }
}

/// The first argument is the index of the probe.
struct First;

impl Context for First {
    fn index(&self, b: &mut Builder, ctx: V, _: Label) -> Index {
        Index::V(b.load(Size::B8, ctx, b.machine().args[0]))
    }
}

fn try_compile(script: &str, options: &mut Options, target: u64) -> Result<Program, String> {
    let macros = Macros { target, ..Macros::default() };
    let source = Source::Specifier(Field::Name, script.into());
    let providers: Vec<Box<dyn Provider>> = vec![Box::new(Processes::new()), Box::new(Hits::new())];
    dtrace::compile_with(&dtrace::System::live(), &[source], &macros, options, providers)
        .map_err(|e| e.to_string())
}

/// The output of a script over a workload of three threads.
#[track_caller]
fn run(script: &str, set: &[(&str, &str)]) -> String {
    for _ in 0..20 {
        let target = workload(PIDS.len() as u64, CALLS);
        let mut options = Options::default();
        options.set("quiet", None).unwrap();
        for (name, value) in set {
            options.set(name, (!value.is_empty()).then_some(*value)).unwrap();
        }
        let program = try_compile(script, &mut options, 0).unwrap_or_else(|why| panic!("{why}"));
        let output = Output::default();
        let mut session = Session::start(&program, options, vec![target], sink(&output)).unwrap();
        let Losses { records, others, suppressed } = run_to_end(&mut session, Duration::from_secs(120));
        session.finish().unwrap();
        assert!(records == 0 && others.is_empty(), "{records} {others:?}");
        testing::suppressed::counted();
        if suppressed == 0 {
            return output.text();
        }
    }
    panic!("the kernel suppressed firings twenty times");
}

/// The numbers of an aggregation, or how often each line of a text occurs.
fn counts(text: &str) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.split_last() {
            Some((n, key)) if !key.is_empty() && n.parse::<u64>().is_ok() => {
                *all.entry(key.join(" ")).or_default() += n.parse::<u64>().unwrap();
            }
            _ => *all.entry(line.to_string()).or_default() += 1,
        }
    }
    all
}

fn expected(rows: &[(&str, u64)]) -> BTreeMap<String, u64> {
    rows.iter().map(|(key, n)| (key.to_string(), *n)).collect()
}

const EACH: [(&str, u64); 3] = [("tst100", CALLS), ("tst200", CALLS), ("tst4194303", CALLS)];

fn keys() -> Verdict {
    assert_eq!(counts(&run("tst*:::x { @[probeprov] = count(); }", &[])), expected(&EACH));
    assert_eq!(counts(&run("tst100:::x { @[probeprov] = count(); }", &[])), expected(&EACH[..1]));
    // Providers of one name, constants and other columns beside it; the order is that of the texts.
    let text = run(
        "tst*:::x, hits:::hit { @[probeprov, probename, 7] = count(); @all[probeprov] = count(); }
         tst200:::x { @all[\"some\"] = count(); } tst200:::x { @str[\"tst9\"] = count(); @str[probeprov] = count(); }
         END { printa(\"%s %s %d %@d\\n\", @); printa(\"%s %@d\\n\", @all); printa(\"str-%s %@d\\n\", @str); }",
        &[("aggsortkey", "")],
    );
    let want: Vec<String> = [("hits hit 7", 3), ("tst100 x 7", 1), ("tst200 x 7", 1), ("tst4194303 x 7", 1)]
        .into_iter()
        .chain([("hits", 3), ("some", 1), ("tst100", 1), ("tst200", 1), ("tst4194303", 1)])
        .chain([("str-tst200", 1), ("str-tst9", 1)])
        .map(|(key, n)| format!("{key} {}", n * CALLS))
        .collect();
    assert_eq!(text.lines().filter(|l| !l.is_empty()).take(want.len()).collect::<Vec<_>>(), want);
    Verdict::Pass
}

fn records() -> Verdict {
    let text = run("tst*:::x { printf(\"[%s] [%12s] %d\\n\", probeprov, probeprov, 1); }", &[]);
    for (name, calls) in EACH {
        let row = format!("[{name}] [{name:>12}] 1");
        assert_eq!(text.lines().filter(|line| *line == row).count() as u64, calls, "{row}");
    }
    assert_eq!(text.lines().filter(|line| line.starts_with('[')).count() as u64, 3 * CALLS);
    let traced = run("tst*:::x { trace(probeprov); } tst*:::x { printf(\"\\n\"); }", &[]);
    assert_eq!(counts(&traced.replace('\n', " \n")), expected(&EACH));
    Verdict::Pass
}

fn texts() -> Verdict {
    let conditions = [
        ("probeprov == \"tst100\"", [true, false, false]),
        ("\"tst100\" != probeprov", [false, true, true]),
        ("probeprov == \"tst1\" || probeprov == \"tst\" || probeprov == \"tst0100\"", [false; 3]),
        ("probeprov != \"tst4194303\"", [true, true, false]),
        ("probeprov < \"tst2\"", [true, false, false]),
        ("probeprov >= \"tst200\"", [false, true, true]),
        ("strlen(probeprov) == 6", [true, true, false]),
        ("strstr(probeprov, \"st4\") != NULL", [false, false, true]),
        ("substr(probeprov, 3) == \"200\"", [false, true, false]),
        ("strjoin(probeprov, \"!\") == \"tst100!\"", [true, false, false]),
        ("(this->p = probeprov) == \"tst200\"", [false, true, false]),
        ("strjoin(\"tst\", lltostr(arg0 == 0 ? 100 : 1)) == probeprov", [true, false, false]),
    ];
    for (condition, fires) in conditions {
        let text = run(&format!("tst*:::x /{condition}/ {{ @[probeprov] = count(); }}"), &[]);
        let want: Vec<(&str, u64)> =
            EACH.iter().zip(fires).filter(|(_, fires)| *fires).map(|(row, _)| *row).collect();
        assert_eq!(counts(&text), expected(&want), "{condition}");
    }
    let text =
        run("hits:::hit, tst*:::x { @[strlen(probeprov), strjoin(probeprov, \":\")] = count(); }", &[]);
    let rows =
        [("4 hits:", 3 * CALLS), ("6 tst100:", CALLS), ("6 tst200:", CALLS), ("10 tst4194303:", CALLS)];
    assert_eq!(counts(&text), expected(&rows));
    Verdict::Pass
}

fn short_strings() -> Verdict {
    let script = "tst*:::x { @[probeprov, strlen(probeprov)] = count(); }";
    let rows = [("tst100 6", CALLS), ("tst200 6", CALLS), ("tst4194 7", CALLS)];
    assert_eq!(counts(&run(script, &[("strsize", "8")])), expected(&rows));
    let equal = "tst*:::x /probeprov == \"tst4194\"/ { @[1] = count(); }";
    assert_eq!(counts(&run(equal, &[("strsize", "8")])), expected(&[("1", CALLS)]));
    assert_eq!(counts(&run(equal, &[])), BTreeMap::new());
    Verdict::Pass
}

fn arrays() -> Verdict {
    // The constant makes the column a text.
    for script in [
        "tst*:::x { n[probeprov]++; @[probeprov] = max(n[probeprov]); }",
        "BEGIN { n[\"tst200\"] = 0; } tst*:::x { n[probeprov]++; @[probeprov] = max(n[probeprov]); }",
        "tst*:::x { self->n[probeprov, 3]++; @[probeprov] = max(self->n[probeprov, 3]); }",
        "tst*:::x, hits:::hit { n[stringof(probeprov)]++; } tst*:::x { @[probeprov] = max(n[probeprov]); }",
    ] {
        // Each thread has a provider of its own, so no increment is lost.
        assert_eq!(counts(&run(script, &[])), expected(&EACH), "{script}");
    }
    let text = run(
        "tst*:::x { n[probeprov] = strlen(probeprov); }
         END { printf(\"%d %d %d %d\\n\", n[\"tst100\"], n[\"tst4194303\"], n[\"tst\"], n[\"tst1\"]); }",
        &[],
    );
    assert_eq!(text.trim(), "6 10 0 0");
    Verdict::Pass
}

fn later() -> Verdict {
    // Nothing matches the first description; its column is that of providers all the same.
    let first = "BEGIN { } tst7*:::x { @[probeprov] = count(); n[probeprov] = 1; }";
    let more =
        "tst*:::x { @[probeprov] = count(); n[probeprov] = 1; } hits:::hit { @[probeprov] = count(); }";
    let all = EACH.into_iter().chain([("hits", 3 * CALLS)]).collect::<Vec<_>>();
    let mut options = Options::default();
    options.set("quiet", None).unwrap();
    options.set("zdefs", None).unwrap();
    let program = try_compile(first, &mut options, 0).unwrap();
    let output = Output::default();
    let mut session = Session::start(&program, options, Vec::new(), sink(&output)).unwrap();
    let enabled = session.enable(&[Source::Specifier(Field::Name, more.into())], &Macros::default());
    enabled.unwrap_or_else(|e| panic!("{e}"));
    let me = own_program();
    let calls = [PIDS.len() as u64, CALLS].map(|n| n.to_string());
    let status = std::process::Command::new(me).arg("--workload").args(calls).status().unwrap();
    assert!(status.success());
    session.finish().unwrap();
    assert_eq!(counts(&output.text()), expected(&all));
    Verdict::Pass
}

fn descriptions() -> Verdict {
    let listed = |script: &str, target| -> Result<Vec<String>, String> {
        let program = try_compile(script, &mut Options::default(), target)?;
        let mut out = Vec::new();
        dtrace::list::described(&mut out, &program, false).unwrap();
        let text = String::from_utf8(out).unwrap();
        let row = |line: &str| line.split_whitespace().collect::<Vec<_>>()[1..].join(":");
        Ok(text.lines().skip(1).map(row).collect())
    };
    let all = ["tst100:m:f:x", "tst200:m:f:x", "tst4194303:m:f:x", "tst200:m:f:y"];
    assert_eq!(listed("tst*:::", 0).unwrap(), all);
    assert_eq!(listed("tst200:::", 0).unwrap(), ["tst200:m:f:x", "tst200:m:f:y"]);
    assert_eq!(listed("tst$target:::", 100).unwrap(), ["tst100:m:f:x"]);
    assert_eq!(listed("t*2*:m::x", 0).unwrap(), ["tst200:m:f:x"]);
    // By the number that the list shows.
    let program = try_compile("tst200:::y", &mut Options::default(), 0).unwrap();
    let id = program.probes()[0].id.0;
    assert_eq!(listed(&id.to_string(), 0).unwrap(), ["tst200:m:f:y"]);
    let source = Source::Specifier(Field::Provider, "tst[12]00".into());
    let providers: Vec<Box<dyn Provider>> = vec![Box::new(Processes::new())];
    let by_provider = dtrace::compile_with(
        &dtrace::System::live(),
        &[source],
        &Macros::default(),
        &mut Options::default(),
        providers,
    );
    assert_eq!(by_provider.unwrap_or_else(|_| panic!()).probes().len(), 3);
    let why = |script: &str| listed(script, 0).unwrap_err();
    assert!(why("tst300:::x").contains("tst300:::x does not match any probes"), "{}", why("tst300:::x"));
    let bare = why("tst:::x");
    assert!(bare.contains("it has a process: tst1234, or tst$target for the one of -c or -p"), "{bare}");
    assert!(why("tts200:::x").contains("did you mean `tst200`"), "{}", why("tts200:::x"));
    assert!(why("tst200:::z").contains("does not match any probes"));
    assert!(why("tstgin:::x").contains("does not match any probes"));
    // What describes a family has a column of providers; what does not has an interned string.
    let listing = |script: &str| try_compile(script, &mut Options::default(), 0).unwrap().listing();
    assert!(listing("tst100:::x { @[probeprov] = count(); }").contains(":provider"));
    assert!(listing("hits:::hit { @[probeprov] = count(); }").contains(":interned"));
    Verdict::Pass
}

/// Another provider of the same names.
struct Other(Family, ProbeList);

impl Provider for Other {
    fn facts(&self) -> ProviderFacts {
        let stability = ProviderStability::uniform(Attributes::EVOLVING);
        ProviderFacts { family: self.0.clone(), has_errno: false, stability }
    }

    fn probes(&self) -> &dyn ProbeSource {
        &self.1
    }

    fn plan(&self, _: &[EnabledProbe], _: &Env<'_>) -> Result<Vec<Unit>, String> {
        Ok(Vec::new())
    }
}

fn overlap() -> Verdict {
    let with = |other: Family| {
        let source = Source::Specifier(Field::Name, "BEGIN".into());
        let other = Other(other, ProbeList::new(Vec::new));
        let providers: Vec<Box<dyn Provider>> = vec![Box::new(Processes::new()), Box::new(other)];
        let done = dtrace::compile_with(
            &dtrace::System::live(),
            &[source],
            &Macros::default(),
            &mut Options::default(),
            providers,
        );
        done.map(|_| ()).map_err(|e| if let Error::Setting(why) = e.error { why } else { String::new() })
    };
    assert_eq!(with(Family::one("tst7")).unwrap_err(), "two providers answer for one name: tst* and tst7");
    assert!(with(Family::of_processes("tst")).is_err() && with(Family::one("syscall")).is_err());
    assert!(with(Family::one("tstgin")).is_ok() && with(Family::of_processes("tstgin")).is_ok());
    Verdict::Pass
}
