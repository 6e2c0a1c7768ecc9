//! The places that are chosen for the probes of known functions.

use probes::ProbeId;
use symbols::Calling;
use text::returns::Departure;
use text::{Condition, EntryProbe, ReturnSite, Step};

use super::known::Returns as Returned;
use super::known::{At, Entries, Matches, Place, Target};
use super::sides::*;
use super::*;
use crate::contract::method::{HeldFile, HeldProcess};

fn probe(args: u64, user_stack: bool, user_registers: bool) -> EnabledProbe {
    let desc = Arc::new(ProbeDesc::new("pid7", "m", "f", "entry"));
    EnabledProbe { id: ProbeId(1), desc, args, sets_result: false, user_stack, user_registers }
}

fn known(desc: &Arc<ProbeDesc>, at: At, unwinds: Option<&str>) -> Matches {
    let mut known = Matches::default();
    let pid = std::process::id();
    let processes = [Arc::new(HeldProcess::open(pid).unwrap())].into();
    let file = HeldFile::at("/x".into(), "x".into()).into();
    let place = Place { processes, file, calling: Calling::C }.into();
    known.targets.insert(desc.clone(), vec![Target { place, offset: 0x1000, at }]);
    known.unwinds.insert(pid, unwinds.map(String::from));
    known
}

fn site(offset: i64, departure: Departure) -> ReturnSite {
    ReturnSite { offset, departure, step: Step::Single }
}

fn returning(entry: Result<EntryProbe, Arc<str>>, sites: Result<Vec<ReturnSite>, Arc<str>>) -> At {
    At::Return(Returned { entry, sites, by_the_stack: true, calls_itself: false }.into())
}

fn entering(entries: Entries) -> At {
    At::Entry(entries.into())
}

/// The places of all targets, which share none.
fn places_of(known: &mut Matches) -> impl Iterator<Item = &mut Place> {
    known.targets.values_mut().flatten().filter_map(|target| Arc::get_mut(&mut target.place))
}

fn places(side: &Side) -> Vec<(u64, u32)> {
    side.files.values().flat_map(|f| &f.sites).map(|s| (s.offset, s.place)).collect()
}

#[test]
fn the_place_of_an_entry_depends_on_what_clauses_use() {
    let at = |offset| Ok(EntryProbe::at(offset, Step::Emulated));
    for (args, stack, registers, place) in [
        (0, false, false, 9),
        (1, false, false, 5),
        (0x20, false, false, 5),
        (0x40, false, false, 4),
        (1, true, false, 4),
        (0, false, true, 0),
    ] {
        let probe = probe(args, stack, registers);
        let known = known(&probe.desc, entering([at(9), at(5), at(4), at(0)]), None);
        let sides = Sides::of(&Group::default(), &[probe], &known, Returns::Auto);
        assert_eq!(places(&sides.entries), [(0x1000 + u64::from(place), place)]);
        assert_eq!(sides.entries.moved, place != 0);
    }
}

#[test]
fn a_return_may_be_in_a_part_before_the_function() {
    let probe = probe(0, false, false);
    let sites = vec![site(-0x20, Departure::Return), site(1 << 23, Departure::Return)];
    let at = returning(Err("why".into()), Ok(sites));
    let known = known(&probe.desc, at, None);
    let sides = Sides::of(&Group::default(), &[probe], &known, Returns::Instructions);
    // An offset that the cookie cannot hold is not known.
    assert_eq!(places(&sides.leaving), [(0xfe0, 0xff_ffe0), (0x80_1000, 0)]);
}

#[test]
fn an_entry_that_no_probe_can_be_at_is_left_out() {
    let probe = probe(0, true, false);
    let at = Ok(EntryProbe::at(0, Step::Emulated));
    let why: Arc<str> = "why".into();
    let known = known(&probe.desc, entering([at.clone(), at.clone(), Err(why.clone()), at]), None);
    let sides = Sides::of(&Group::default(), std::slice::from_ref(&probe), &known, Returns::Auto);
    assert!(sides.entries.probes.is_empty());
    assert_eq!(left_out(&sides.refused), ["left out: 1 (m`f:entry): why"]);
}

#[test]
fn returns_are_probed_by_uretprobe_only_where_nothing_unwinds() {
    let sites = vec![site(8, Departure::Return), site(3, Departure::Branch(Condition::from_bits(5)))];
    let probe = probe(0, false, false);
    let entry = Ok(EntryProbe::at(1, Step::Emulated));
    let at = returning(entry.clone(), Ok(sites.clone()));
    let by_of = |at: &At, unwinds, returns| {
        let sides = Sides::of(
            &Group::default(),
            std::slice::from_ref(&probe),
            &known(&probe.desc, at.clone(), unwinds),
            returns,
        );
        (places(&sides.returned), places(&sides.leaving), sides.leaving.conditional)
    };
    let by = |unwinds, returns| by_of(&at, unwinds, returns);
    let uretprobe = (vec![(0x1001, 1)], vec![], false);
    let instructions = (vec![], vec![(0x1008, 8), (0x1003, 3 | 5 << 24 | 1 << 28)], true);
    assert_eq!(by(None, Returns::Auto), uretprobe);
    assert_eq!(by(Some("libgcc_s"), Returns::Auto), instructions);
    assert_eq!(by(Some("libgcc_s"), Returns::Uretprobe), uretprobe);
    assert_eq!(by(None, Returns::Instructions), instructions);
    // A function that calls itself may be in more calls than the kernel probes returns of.
    let (calls_itself, by_the_stack) = (true, true);
    let deep = Returned { entry: entry.clone(), sites: Ok(sites), by_the_stack, calls_itself };
    let deep = At::Return(deep.into());
    assert_eq!(by_of(&deep, None, Returns::Auto), instructions);
    assert_eq!(by_of(&deep, None, Returns::Uretprobe), uretprobe);
    // A uretprobe needs no instructions.
    let uncertain = returning(entry, Err("why".into()));
    assert_eq!(by_of(&uncertain, None, Returns::Auto), uretprobe);
    let known = known(&probe.desc, uncertain, Some("libgcc_s"));
    let sides = Sides::of(&Group::default(), std::slice::from_ref(&probe), &known, Returns::Auto);
    assert_eq!(left_out(&sides.unprobed), ["left out: 1 (m`f:entry): why"]);
}

/// The same target, of a function of Go or of one whose arguments are not known.
fn called(calling: Calling, probe: &EnabledProbe, at: At) -> Sides {
    let mut known = known(&probe.desc, at, None);
    places_of(&mut known).for_each(|place| place.calling = calling.clone());
    Sides::of(&Group::default(), std::slice::from_ref(probe), &known, Returns::Auto)
}

#[test]
fn a_function_of_go_is_entered_where_its_stack_is_large_enough_and_returns_at_its_instructions() {
    let probe = probe(1, false, false);
    let at = Ok(EntryProbe { condition: Some(Condition::from_bits(7)), ..EntryProbe::at(4, Step::Emulated) });
    let entered = called(Calling::Go, &probe, entering([at.clone(), at.clone(), at.clone(), at.clone()]));
    assert_eq!(places(&entered.entries), [(0x1004, 4 | 7 << 24 | 1 << 28 | 1 << 29)]);
    assert!(entered.entries.conditional);
    let returned = || returning(at.clone(), Ok(vec![site(8, Departure::Return)]));
    let sides = called(Calling::Go, &probe, returned());
    assert_eq!((places(&sides.returned), places(&sides.leaving)), (vec![], vec![(0x1008, 8 | 1 << 29)]));
    assert_eq!(places(&called(Calling::C, &probe, returned()).leaving), []);
}

#[test]
fn arguments_that_are_not_known_have_no_probe_and_entries_without_them_have() {
    let at = Ok(EntryProbe::at(0, Step::Emulated));
    let entry = || entering([at.clone(), at.clone(), at.clone(), at.clone()]);
    let calling = Calling::Unknown("why".into());
    let reads = probe(1, false, false);
    let sides = called(calling.clone(), &reads, entry());
    assert!(places(&sides.entries).is_empty());
    assert_eq!(left_out(&sides.unknown), ["left out: 1 (m`f:entry): why"]);
    assert_eq!(places(&called(calling, &probe(0, false, false), entry()).entries), [(0x1000, 0)]);
}

#[test]
fn a_function_that_is_not_called_has_no_uretprobe() {
    let by_uretprobe = |function: &'static str, by_the_stack| {
        let probe = EnabledProbe {
            desc: Arc::new(ProbeDesc::new("pid7", "m", function, "return")),
            ..probe(0, false, false)
        };
        let entry = Ok(EntryProbe::at(0, Step::Emulated));
        let (sites, calls_itself) = (Ok(vec![site(8, Departure::Return)]), false);
        let at = At::Return(Returned { entry, sites, by_the_stack, calls_itself }.into());
        let known = known(&probe.desc, at, None);
        let sides = Sides::of(&Group::default(), &[probe], &known, Returns::Auto);
        assert_eq!(places(&sides.returned).len() + places(&sides.leaving).len(), 1);
        !places(&sides.returned).is_empty()
    };
    assert!(by_uretprobe("f", true));
    assert!(!by_uretprobe("f", false) && !by_uretprobe("swapcontext", true));
}

/// A process with returns that the kernel finds by the return address, of which it has left out
/// some.
fn nested(all: &[Result<Vec<ReturnSite>, Arc<str>>]) -> (Matches, Vec<EnabledProbe>, Arc<HeldProcess>) {
    let mut nested = Matches::default();
    let process = Arc::new(HeldProcess::open(std::process::id()).unwrap());
    let mut probes = Vec::new();
    for (n, sites) in (0..).zip(all) {
        let desc = Arc::new(ProbeDesc::new("pid7", "m", format!("f{n}"), "return"));
        let at = returning(Ok(EntryProbe::at(0, Step::Emulated)), sites.clone());
        nested.targets.extend(known(&desc, at, None).targets);
        probes.push(EnabledProbe { id: ProbeId(n), desc, ..probe(0, false, false) });
    }
    places_of(&mut nested).for_each(|place| place.processes = [process.clone()].into());
    nested.attaches_to_processes(probes.iter().map(|probe| (probe.id, probe.desc.clone())));
    nested.returned.insert(process.pid());
    nested.nested.insert(process.pid());
    attach(&mut nested, &probes);
    (nested, probes, process)
}

/// Chooses the places of returns: how many are probed by uretprobe, at instructions, and not at
/// all.
fn attach(known: &mut Matches, probes: &[EnabledProbe]) -> [usize; 3] {
    let sides = Sides::of(&Group::default(), probes, known, Returns::Auto);
    for (pid, id, desc) in sides.by_address {
        known.by_address.entry(pid).or_default().insert(id, desc);
    }
    [places(&sides.returned).len(), places(&sides.leaving).len(), sides.unprobed.len()]
}

fn came(changes: &[(u32, follow::FileChange)]) -> usize {
    changes.iter().map(|(_, change)| change.came.len()).sum()
}

#[test]
fn returns_of_uncertain_functions_keep_their_uretprobe_when_calls_are_nested_too_deep() {
    let (mut known, probes, process) =
        nested(&[Ok(vec![site(8, Departure::Return)]), Err("why".into()), Ok(vec![])]);
    assert_eq!(came(&known.too_deep()), 3);
    assert_eq!(attach(&mut known, &probes), [1, 1, 0]);
    // Code that unwinds is another matter: there a uretprobe is dangerous.
    known.unwinds.insert(process.pid(), Some("libgcc_s".into()));
    assert_eq!(attach(&mut known, &probes), [0, 1, 1]);
    // Nothing can be moved.
    let (mut known, probes, _) = nested(&[Err("why".into())]);
    assert_eq!((came(&known.too_deep()), known.warnings.len()), (0, 0));
    assert_eq!(attach(&mut known, &probes), [1, 0, 0]);
    let text = known.nested();
    assert!(text.len() == 1 && !text[0].contains("moved"), "{text:?}");
}

#[test]
fn returns_are_moved_once_whatever_a_process_loads_later() {
    let (mut known, probes, process) = nested(&[Ok(vec![site(8, Departure::Return)]), Err("why".into())]);
    let pid = process.pid();
    assert_eq!((came(&known.too_deep()), known.warnings.len()), (2, 1));
    assert!(known.nested.is_empty());
    // A library was loaded, and nothing unwinds.
    known.unwinds.insert(pid, None);
    assert_eq!(attach(&mut known, &probes), [1, 1, 0]);
    // The return that has kept its uretprobe is left out again.
    known.nested.insert(pid);
    assert_eq!((came(&known.too_deep()), known.warnings.len()), (0, 1));
    let text = known.nested();
    assert!(text.len() == 1 && text[0].contains("until those whose instructions are certain"), "{text:?}");
    assert!(known.nested().is_empty());
    // The number is another process's.
    assert!(known.is_deep(&process) && !known.is_deep(&Arc::new(HeldProcess::open(pid).unwrap())));
}

#[test]
fn reasons_name_a_few_functions() {
    let desc = |n: u32| Arc::new(ProbeDesc::new("pid7", "m", format!("f{n}"), "entry"));
    let all = (0..7).map(|n| (desc(n), "why".into())).collect();
    assert_eq!(
        left_out(&all),
        ["left out: 7 (m`f0:entry, m`f1:entry, m`f2:entry, m`f3:entry, m`f4:entry, ...): why"]
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named_without_a_function() {
    let desc = Arc::new(ProbeDesc::new("pid7", "m", "", ""));
    assert_eq!(left_out(&[(desc, "why".into())].into()), ["left out: 1 (m): why"]);
}

#[test]
fn a_probe_of_a_program_with_a_million_functions_takes_little() {
    assert!(size_of::<Target>() <= 32, "{}", size_of::<Target>());
    let mut shared = super::known::Pool::default();
    let at = |offset| -> Entries { std::array::from_fn(|_| Ok(EntryProbe::at(offset, Step::Single))) };
    let one = shared.get(at(0));
    assert!(Arc::ptr_eq(&one, &shared.get(at(0))) && *shared.get(at(4)) == at(4));
    // Only the last ones are looked at, so that each costs the same.
    (1..100).for_each(|offset| drop(shared.get(at(offset))));
    assert!(!Arc::ptr_eq(&one, &shared.get(at(0))));
}
