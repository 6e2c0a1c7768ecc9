//! Tests of the registry.

use std::collections::HashMap;

use std::sync::atomic::{AtomicU32, Ordering};

use probes::{Attributes, FieldKind, ProviderStability};

use super::*;
use crate::contract::{
    IdRange, LoadedModules, ProbeList, ProbeSource, ProbeStore, ProbesChanged, UnloadedModules,
};
use crate::registry::ids::ON_DEMAND_IDS;

fn find(r: &Registry, text: &str) -> Vec<(u32, String)> {
    let pattern = Pattern::parse(text, FieldKind::Name).unwrap();
    // A kernel without functions says so.
    r.matches(&pattern).unwrap_or_default().iter().map(|p| (p.id.0, p.desc.to_string())).collect()
}

#[test]
fn begin_end_and_error_are_the_first_three() {
    let r = Registry::new(&System::live());
    assert_eq!(find(&r, "BEGIN"), [(1, "dtrace:::BEGIN".into())]);
    assert_eq!(find(&r, "dtrace:::").len(), 3);
    assert_eq!(find(&r, "dtrace:::NOSUCH"), []);
}

#[test]
fn ids_grow_and_are_found_again() {
    let r = Registry::new(&System::live());
    let mut all: Vec<(u32, String)> = Vec::new();
    r.each(|id, desc| all.push((id.0, desc.to_string())));
    assert!(all.is_sorted_by(|a, b| a.0 < b.0));
    for (id, name) in &all {
        assert_eq!(&r.by_id(ProbeId(*id)).unwrap().desc.to_string(), name);
    }
    assert_eq!(r.by_id(ProbeId(0)), None);
    assert_eq!(r.by_id(ProbeId(all.last().unwrap().0 + 2)), None);
}

#[test]
fn an_id_does_not_depend_on_what_was_asked_before() {
    let mut listed: HashMap<String, u32> = HashMap::new();
    Registry::new(&System::live()).each(|id, desc| {
        listed.insert(desc.to_string(), id.0);
    });
    for text in ["fbt::vfs_read:", "rawfbt::vfs_read:", "rawtp:sched::", "sdt:sched::", "syscall:::"] {
        for (id, name) in find(&Registry::new(&System::live()), text) {
            assert_eq!(listed.get(&name), Some(&id), "{name}");
            let found = Registry::new(&System::live()).by_id(ProbeId(id)).unwrap();
            assert_eq!(found.desc.to_string(), name);
        }
    }
}

#[test]
fn lists_keep_to_the_ids_that_are_reserved_for_them() {
    for entry in &Registry::new(&System::live()).entries {
        let source = entry.provider.probes();
        if let IdRange::Reserved(reserved) = source.ids() {
            assert!(source.positions() <= reserved, "{}", entry.family);
        }
    }
}

#[test]
fn probes_made_on_demand_have_ids_of_their_session() {
    let r = Registry::new(&System::live());
    let base = r.on_demand_base();
    let made = find(&r, "profile:::profile-123");
    assert_eq!(made[0].0, base);
    assert_eq!(find(&r, "profile-123hz")[0].0, base + 1);
    assert_eq!(find(&r, "profile:::profile-123"), made);
    assert_eq!(r.by_id(ProbeId(base)).unwrap().desc.name.as_ref(), "profile-123");
    assert_eq!(r.by_id(ProbeId(base + 2)), None);
    assert_eq!(Registry::new(&System::live()).by_id(ProbeId(base)), None);
    for n in 0..=ON_DEMAND_IDS {
        let last = find(&r, &format!("tick-{}s", 2 + n))[0].clone();
        assert_eq!(r.by_id(ProbeId(last.0)).unwrap().desc.to_string(), last.1);
        assert_eq!(last.0 >= OVERFLOW, 2 + n >= ON_DEMAND_IDS, "{last:?}");
    }
}

#[test]
fn raw_providers_match_only_where_they_are_named() {
    let r = Registry::new(&System::live());
    let providers = |text: &str| -> BTreeSet<String> {
        find(&r, text).iter().map(|(_, name)| name.split(':').next().unwrap().to_string()).collect()
    };
    for text in [":::", "*:::", "**:::", "::vfs_read:entry", ":sched::sched_switch", "?*:sched::"] {
        assert!(!providers(text).iter().any(|p| p.starts_with("raw")), "{text}");
    }
    // Where the kernel has tracepoints and functions at all.
    for (plain, raw) in [
        ("sdt:sched::", ["raw*:sched::", "rawtp:sched::"]),
        ("fbt::vfs_read:", ["*fbt::vfs_read:", "raw*::vfs_read:"]),
    ] {
        let there = !find(&r, plain).is_empty();
        for text in raw {
            assert_eq!(providers(text).iter().any(|p| p.starts_with("raw")), there, "{text}");
        }
    }
    let everything = Pattern::default();
    let raw = ProbeDesc::new("rawfbt", "vmlinux", "vfs_read", "entry");
    assert!(!r.selects(&everything)(&raw) && r.selects(&Pattern::exact(&raw))(&raw));
    assert!(!r.can_mean(&everything, &Family::one("rawfbt")) && r.can_mean(&everything, &Family::one("fbt")));
}

/// A provider of a test.
struct Fake {
    family: Family,
    source: Box<dyn ProbeSource>,
}

impl Provider for Fake {
    fn facts(&self) -> ProviderFacts {
        let stability = ProviderStability::uniform(Attributes::EVOLVING);
        ProviderFacts { family: self.family.clone(), has_errno: false, stability }
    }

    fn probes(&self) -> &dyn ProbeSource {
        self.source.as_ref()
    }

    fn plan(&self, probes: &[EnabledProbe], _: &Env<'_>) -> Result<Vec<Unit>, String> {
        Err(format!("{} has {}", self.family, probes.len()))
    }
}

fn fake(family: Family, probes: &'static [&'static str]) -> Box<dyn Provider> {
    let probe = |text: &&str| {
        let fields: Vec<&str> = text.split(':').collect();
        ProbeDesc::new(fields[0], fields[1], fields[2], fields[3])
    };
    let source = Box::new(ProbeList::new(move || probes.iter().map(probe).collect()));
    Box::new(Fake { family, source })
}

fn with(others: Vec<Box<dyn Provider>>) -> Result<Registry, String> {
    Registry::with(&System::live(), others)
}

#[test]
fn a_provider_answers_for_all_names_of_its_family() {
    let tst = fake(Family::of_processes("tst"), &["tst100:m:f:x", "tst200:m:f:x", "tst200:m:f:y"]);
    let r = with(vec![tst, fake(Family::one("tstgin"), &["tstgin:m:f:x"])]).unwrap();
    let names = |text| find(&r, text).into_iter().map(|(_, name)| name).collect::<Vec<_>>();
    assert_eq!(names("tst100:::"), ["tst100:m:f:x"]);
    assert_eq!(names("tst[0-9]*:::x"), ["tst100:m:f:x", "tst200:m:f:x"]);
    assert_eq!(names("tst*:::y"), ["tst200:m:f:y"]);
    assert_eq!(names("tstgin:::"), ["tstgin:m:f:x"]);
    assert_eq!(names("tst300:::"), [""; 0]);
    for (name, family) in [("tst100", "tst*"), ("tst7", "tst*"), ("tstgin", "tstgin")] {
        assert_eq!(r.provider(name).unwrap().family.to_string(), family);
    }
    assert!(r.provider("tst").is_none() && r.provider("tst01").is_none() && r.get("tstg").is_none());
    let ids: Vec<u32> = find(&r, "tst*:::").iter().map(|(id, _)| *id).collect();
    assert!(ids.is_sorted_by(|a, b| *b == a + 1));
    for id in ids {
        assert!(r.by_id(ProbeId(id)).is_some());
    }
}

#[test]
fn the_probes_of_all_names_are_planned_together() {
    let tst = fake(Family::of_processes("tst"), &["tst100:m:f:x", "tst200:m:f:x"]);
    let r = with(vec![tst, fake(Family::one("abc"), &["abc:m:f:x"])]).unwrap();
    let matches = r.matches(&Pattern::parse("::f:x", FieldKind::Name).unwrap()).unwrap();
    let enabled = |p: &ProbeInfo| EnabledProbe {
        id: p.id,
        desc: p.desc.clone(),
        args: 0,
        sets_result: false,
        user_stack: false,
        user_registers: false,
    };
    let mine = matches.iter().filter(|p| &*p.desc.module == "m").map(enabled);
    let shares = r.by_provider(mine).unwrap();
    let names =
        |p: &ProviderProbes<'_>| p.probes.iter().map(|p| p.desc.provider.to_string()).collect::<Vec<_>>();
    assert_eq!(shares.iter().map(names).collect::<Vec<_>>(), [vec!["abc"], vec!["tst100", "tst200"]]);
    let desc = Arc::new(ProbeDesc::new("none", "", "", "x"));
    let stray = EnabledProbe {
        id: ProbeId(1),
        desc,
        args: 0,
        sets_result: false,
        user_stack: false,
        user_registers: false,
    };
    assert_eq!(r.by_provider([stray].into_iter()).err().as_deref(), Some("no provider none"));
}

/// A provider that stands for one of the system, and says itself of which calls if it has any.
struct Stand(&'static str, Calls, ProbeList);

impl Provider for Stand {
    fn facts(&self) -> ProviderFacts {
        let stability = ProviderStability::uniform(Attributes::EVOLVING);
        ProviderFacts { family: Family::one(self.0), has_errno: false, stability }
    }

    fn calls(&self) -> Calls {
        self.1
    }

    fn names(&self) -> Names {
        Names { replaces: true, ..Names::default() }
    }

    fn probes(&self) -> &dyn ProbeSource {
        &self.2
    }

    fn plan(&self, _: &[EnabledProbe], _: &Env<'_>) -> Result<Vec<Unit>, String> {
        Err("not attached".into())
    }
}

#[test]
fn a_provider_that_replaces_one_has_its_calls_unless_it_says_others() {
    let stand = |name, calls| Box::new(Stand(name, calls, ProbeList::new(Vec::new))) as Box<dyn Provider>;
    let all = ["syscall", "fbt", "rawfbt", "profile", "other"];
    let calls = |r: Registry| all.map(|name| r.calls(name));
    let (none, system, kernel) = (Calls::None, Calls::System, Calls::Kernel);
    assert_eq!(calls(with(vec![]).unwrap()), [system, kernel, kernel, none, none]);
    let stands = all.map(|name| stand(name, none)).into();
    assert_eq!(calls(with(stands).unwrap()), [system, kernel, kernel, none, none]);
    let stands = vec![stand("fbt", system), stand("other", kernel)];
    assert_eq!(calls(with(stands).unwrap()), [system, system, kernel, none, kernel]);
}

#[test]
fn two_providers_for_one_name_are_an_error() {
    let why = |others: Vec<Family>| with(others.into_iter().map(|f| fake(f, &[])).collect()).err();
    let (one, many) = (|name: &str| Family::one(name), |name: &str| Family::of_processes(name));
    assert_eq!(
        why(vec![many("tst"), one("tst7")]).unwrap(),
        "two providers answer for one name: tst* and tst7"
    );
    assert!(why(vec![many("tst"), many("tst")]).unwrap().contains("tst* and tst*"));
    assert!(why(vec![one("fbt")]).unwrap().contains("fbt and fbt"));
    assert!(why(vec![many("v2")]).unwrap().contains("ends with a digit"));
    assert_eq!(why(vec![many("tst"), one("tst"), one("tstgin"), many("tstgin")]), None);
    Registry::new(&System::live()).check_families().unwrap();
}

/// A source of one module's probes, `now:m:f:x`, and of those of modules that are loaded later.
struct Modules(ProbeList, AtomicU32);

impl ProbeSource for Modules {
    fn positions(&self) -> u32 {
        self.0.positions()
    }

    fn matches(&self, pattern: &Pattern, give: &mut dyn FnMut(FoundProbe<'_>)) -> Result<(), MatchError> {
        self.0.matches(pattern, give)
    }

    fn at(&self, position: u32) -> Option<Arc<ProbeDesc>> {
        self.0.at(position)
    }

    fn follows_modules(&self) -> bool {
        true
    }

    fn added(&self, modules: &LoadedModules<'_>) -> Vec<ProbeDesc> {
        self.1.store(modules.first_id, Ordering::Relaxed);
        let probe = |m: &String| ["x", "y"].map(|name| ProbeDesc::new("now", &**m, "f", name));
        modules.modules.iter().flat_map(probe).collect()
    }

    fn removed(&self, modules: &UnloadedModules<'_>) -> Vec<Pattern> {
        modules.modules.iter().map(|m| Pattern { module: m.clone(), ..Pattern::default() }).collect()
    }
}

#[test]
fn probes_come_and_go_with_their_modules() {
    let list = ProbeList::new(|| vec![ProbeDesc::new("now", "m", "f", "x")]);
    let source = Box::new(Modules(list, AtomicU32::new(0)));
    let r = with(vec![Box::new(Fake { family: Family::one("now"), source })]).unwrap();
    let names = |text| find(&r, text).into_iter().map(|(_, name)| name).collect::<Vec<_>>();
    let set = |names: &[&str]| names.iter().map(|n| n.to_string()).collect::<BTreeSet<String>>();
    let pattern = Pattern::parse("now:::x", FieldKind::Name).unwrap();
    let other = Pattern::parse("other:::x", FieldKind::Name).unwrap();
    assert!(r.may_match_later(&pattern) && !r.may_match_later(&other));
    assert_eq!(r.modules_changed(&set(&["a"]), &set(&[]), &[&other]), ProbesChanged::default());

    let came = r.modules_changed(&set(&["a", "b"]), &set(&[]), &[&other, &pattern]);
    let text = |p: &ProbeInfo| p.desc.to_string();
    assert_eq!(
        came.added.iter().map(text).collect::<Vec<_>>(),
        ["now:a:f:x", "now:a:f:y", "now:b:f:x", "now:b:f:y"]
    );
    assert!(came.removed.is_empty());
    for probe in &came.added {
        assert!(r.is_later(probe.id) && r.later_ids().contains(&probe.id.0));
        assert_eq!(r.by_id(probe.id).as_ref(), Some(probe));
    }
    assert_eq!(names("now:::x"), ["now:m:f:x", "now:a:f:x", "now:b:f:x"]);

    assert_eq!(lock(&r.changes).later.len(), 4);
    let listed = find(&r, "now:m::x")[0].0;
    let gone = r.modules_changed(&set(&[]), &set(&["a", "m", "unknown"]), &[&pattern]);
    assert!(gone.added.is_empty());
    let ids: Vec<u32> = gone.removed.iter().map(|id| id.0).collect();
    assert_eq!(ids, [came.added[0].id.0, came.added[1].id.0, listed]);
    assert_eq!(names("now:::x"), ["now:b:f:x"]);
    let mut each = Vec::new();
    r.each(|_, desc| each.extend((&*desc.provider == "now").then(|| desc.to_string())));
    assert_eq!(each, [""; 0]);

    // A program that is checked again has what it was told.
    assert_eq!(r.by_id(came.added[0].id), None);
    // A module that is loaded again has new probes: ids are never reused.
    let again = r.modules_changed(&set(&["a"]), &set(&[]), &[&pattern]);
    assert_eq!(again.added[0].id.0, came.added[3].id.0 + 1);
    assert_eq!(names("now:::x"), ["now:b:f:x", "now:a:f:x"]);
    assert_eq!(r.modules_changed(&set(&[]), &set(&["a"]), &[&pattern]).removed.len(), 2);
    assert_eq!(lock(&r.changes).later.len(), 2, "what is gone is forgotten");
    let desc = || ProbeDesc::new("now", "c", "f", "x");
    let one_by_one = [r.add(vec![desc()]), r.add(vec![desc(), desc()])].concat();
    assert!(one_by_one.is_sorted_by(|a, b| b.id.0 == a.id.0 + 1));
    r.remove(&one_by_one.iter().map(|p| p.id).collect::<Vec<_>>());
    assert!(r.by_id(one_by_one[0].id).is_none() && r.is_later(one_by_one[0].id));
    assert_eq!(lock(&r.changes).later.len(), 2);
    assert_eq!(r.modules_changed(&set(&[]), &set(&["m"]), &[&pattern]), ProbesChanged::default());
}

#[test]
fn probes_made_on_demand_have_ids_when_they_are_very_many() {
    let r = Registry::new(&System::live());
    let mut last = 0;
    for number in [0, 1, ON_DEMAND_IDS - 1, ON_DEMAND_IDS, (1 << 20) - 1, 1 << 20, 1 << 24, i32::MAX as u32] {
        let id = r.made_id(number);
        assert!(id > last && r.place(id) == Some(Place::Made(number)), "{number} {id}");
        last = id;
    }
    assert_eq!(r.place(OVERFLOW), None);
    assert_eq!(r.place((1 << 31) + 5), None);
}

/// A source that has more positions than it estimates.
struct MoreThanEstimated(ProbeList);

impl ProbeSource for MoreThanEstimated {
    fn ids(&self) -> IdRange {
        IdRange::Estimated
    }

    fn positions(&self) -> u32 {
        self.0.positions()
    }

    fn estimate(&self) -> u32 {
        3
    }

    fn matches(&self, pattern: &Pattern, give: &mut dyn FnMut(FoundProbe<'_>)) -> Result<(), MatchError> {
        self.0.matches(pattern, give)
    }

    fn at(&self, position: u32) -> Option<Arc<ProbeDesc>> {
        self.0.at(position)
    }
}

/// One that is in none would be between those of libraries, and move their ids.
#[test]
fn every_provider_of_this_system_has_its_place_among_the_ids() {
    let r = Registry::new(&System::live());
    let mut there: Vec<String> = r.families().iter().map(|f| f.to_string()).collect();
    let placed: Vec<&str> = ids::FIRST.iter().chain(&ids::LAST).copied().collect();
    assert_eq!(there, placed);
    there.dedup();
    assert_eq!(there.len(), placed.len());
}

#[test]
fn ids_do_not_depend_on_the_order_in_which_providers_are_given() {
    let make = |provider: &'static str| {
        let list = ProbeList::new(move || vec![ProbeDesc::new(provider, "m", "", "p")]);
        Box::new(Fake { family: Family::one(provider), source: Box::new(list) }) as Box<dyn Provider>
    };
    let ids = |names: [&'static str; 3]| {
        let r = with(names.map(make).into()).unwrap();
        ["one:::", "two:::", "three:::", "sdt:::"].map(|text| find(&r, text).first().map(|(id, _)| *id))
    };
    assert_eq!(ids(["one", "two", "three"]), ids(["three", "one", "two"]));
}

#[test]
fn an_estimate_gives_the_ids_after_it_and_positions_beyond_it_have_other_ids() {
    let make = |count: u32, provider: &'static str| {
        let list = ProbeList::new(move || {
            (0..count).map(|n| ProbeDesc::new(provider, "m", "", format!("p{n}"))).collect()
        });
        let source: Box<dyn ProbeSource> = Box::new(MoreThanEstimated(list));
        Box::new(Fake { family: Family::one(provider), source }) as Box<dyn Provider>
    };
    let r = with(vec![make(2, "a_few"), make(5, "b_many"), make(1, "c_last")]).unwrap();
    let ids = |text: &str| find(&r, text).into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    let first = ids("a_few:::")[0];
    assert_eq!(ids("a_few:::"), [first, first + 1]);
    let many = ids("b_many:::");
    assert_eq!(many[..3], [first + 3, first + 4, first + 5]);
    assert!(many[3] > OVERFLOW && many[4] == many[3] + 1);
    assert_eq!(ids("c_last:::"), [first + 6]);
    for id in many {
        assert_eq!(r.by_id(ProbeId(id)).map(|p| p.id.0), Some(id));
    }
    assert_eq!(r.by_id(ProbeId(first + 2)), None, "an id of no position");
}
