//! Programs that run, which are checked again with others.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use check::{Checked, Context, Options, Record, Visibility};
use diagnostics::{Sink, SourceKind, SourceMap};
use probes::{
    Args, Calls, Catalog, Family, FieldKind, ListCatalog, Matches, Pattern, ProbeDesc, ProbeId, ProbeInfo,
    ProviderFacts, UserObject,
};
use syntax::ast::Program;
use syntax::{Libraries, MacroEnv, ParseMode};
use types::Types;
use types::btf::KernelBtf;

use crate::golden;

/// Probes, and which descriptions were looked for among all of them.
struct Asked(ListCatalog, RefCell<Vec<String>>);

impl Catalog for Asked {
    fn matches(&self, pattern: &Pattern) -> Matches {
        self.1.borrow_mut().push(pattern.to_string());
        self.0.matches(pattern)
    }

    fn by_id(&self, id: ProbeId) -> Option<ProbeInfo> {
        self.0.by_id(id)
    }

    fn families(&self) -> Vec<Family> {
        self.0.families()
    }

    fn provider(&self, name: &str) -> Option<ProviderFacts> {
        self.0.provider(name)
    }

    fn known(&self, provider: &Family, field: FieldKind) -> Vec<String> {
        self.0.known(provider, field)
    }
}

/// One program runs, and one is for the probes that came.
pub(crate) struct Running<'a> {
    pub(crate) record: &'a Record,
    pub(crate) came: &'a [ProbeInfo],
}

impl Visibility for Running<'_> {
    fn is_visible(&self, program: usize, probe: ProbeId) -> bool {
        (program == 1) == self.came.iter().any(|came| came.id == probe)
    }

    fn came(&self, program: usize, _: &Pattern) -> Option<Arc<[ProbeInfo]>> {
        (program == 1).then(|| self.came.into())
    }

    fn is_for_later(&self, program: usize) -> bool {
        program == 1
    }

    fn is_running(&self, program: usize) -> bool {
        program == 0
    }

    fn record(&self) -> Option<&Record> {
        Some(self.record)
    }
}

/// The probes of each clause.
fn probes(checked: &Checked) -> Vec<Vec<String>> {
    let names = |probes: &[ProbeInfo]| probes.iter().map(|p| p.desc.function.to_string()).collect();
    checked.clauses.iter().map(|clause| names(&clause.probes)).collect()
}

#[test]
fn a_running_program_and_one_for_probes_that_came_are_checked_without_a_search_of_all_probes() {
    let (mut map, libraries, env) = (SourceMap::default(), Libraries::embedded(), MacroEnv::default());
    let mut parse = |text: &str| -> Program {
        let (mut sink, file) = (Sink::default(), map.add(SourceKind::Script, "test.d", text));
        let tree = syntax::parse(&mut map, file, ParseMode::Script, &env, &libraries, &mut sink);
        assert!(sink.is_empty());
        tree
    };
    let text = "app:::sent { self->x = 1; } app:::sent, app::g: /self->x/ { @ = count(); }";
    let trees = [parse(text), parse(text)];
    let mut catalog = ListCatalog::default();
    for function in ["f", "g"] {
        catalog.add_with(ProbeDesc::new("app", "m", function, "sent"), Vec::new());
    }
    let check = |trees: &[Program], first: usize, catalog: &Asked, seen: &dyn Visibility| {
        let cx = Context {
            types: &Types::new(),
            catalog,
            symbols: &(),
            map: &map,
            libraries: &libraries,
            definitions: &[],
            options: Options::default(),
            stop: &|| false,
        };
        let mut sink = Sink::default();
        let checked = check::check_more(trees, first, seen, &cx, &mut sink);
        let errors: Vec<_> = sink.into_sorted().iter().map(|d| d.render(&map, true)).collect();
        assert_eq!(errors, [""; 0]);
        checked
    };
    let mut catalog = Asked(catalog, RefCell::default());
    let first = check(&trees[..1], 0, &catalog, &|_: usize, _: ProbeId| true);
    assert_eq!(catalog.1.take(), ["app:::sent", "app::g:"]);
    assert_eq!(probes(&first), [["f", "g"], ["f", "g"]]);

    catalog.0.add_with(ProbeDesc::new("app", "m", "h", "sent"), Vec::new());
    let came = catalog.0.probes.get(2..).unwrap().to_vec();
    let seen = Running { record: &first.record, came: &came };
    let both = check(&trees, 1, &catalog, &seen);
    assert_eq!(catalog.1.take(), [""; 0]);
    assert_eq!(probes(&both), [&["f", "g"][..], &["f", "g"], &["h"], &["h"]]);
    // Once more, both run.
    let again = Running { record: &both.record, ..seen };
    let once_more = check(&trees, 1, &catalog, &again);
    assert_eq!((catalog.1.take(), probes(&once_more)), (vec![], probes(&both)));
}

/// A system of which all that can go has gone: probes, processes, symbols, types.
pub(crate) struct Gone(pub(crate) ListCatalog);

impl Catalog for Gone {
    fn matches(&self, _: &Pattern) -> Matches {
        Ok(Vec::new())
    }

    fn by_id(&self, _: ProbeId) -> Option<ProbeInfo> {
        None
    }

    fn families(&self) -> Vec<Family> {
        self.0.families()
    }

    fn provider(&self, name: &str) -> Option<ProviderFacts> {
        self.0.provider(name)
    }

    fn calls(&self, name: &str) -> Calls {
        self.0.calls(name)
    }

    fn known(&self, _: &Family, _: FieldKind) -> Vec<String> {
        Vec::new()
    }

    fn object(&self, _: &str, _: &str) -> Option<Result<Arc<dyn UserObject>, String>> {
        Some(Err("the process has ended".into()))
    }

    fn args(&self, _: &ProbeDesc) -> Args {
        Err("the probe is gone".into())
    }
}

#[test]
fn a_program_that_runs_is_checked_for_what_it_was_compiled_for_also_where_that_is_gone() {
    let (catalog, gone) = (golden::catalog(), Gone(golden::catalog()));
    let (mut programs, mut differ) = (0, Vec::new());
    for input in golden::inputs() {
        let text = fs::read_to_string(&input).unwrap();
        for zdefs in [false, true] {
            let mut options = Options { zdefs, ..Options::default() };
            golden::settings(&text, &mut options);
            let mut sink = Sink::default();
            golden::with_programs(&[&text], options, &catalog, &mut sink, |trees, cx, sink| {
                let first = check::check(trees, cx, sink);
                if !std::mem::take(sink).is_empty() {
                    return;
                }
                programs += 1;
                let nothing = KernelBtf::at(Path::new("/nonexistent"));
                let (types, seen) = (Types::with_kernel(Arc::new(nothing)), &first.record);
                let cx = Context {
                    types: &types,
                    catalog: &gone,
                    symbols: &(),
                    options: cx.options.clone(),
                    ..*cx
                };
                let again = check::check_more(trees, 1, &Running { record: seen, came: &[] }, &cx, sink);
                let errors: Vec<_> = sink.iter().map(|d| d.render(cx.map, true)).collect();
                if check::dump::dump(&again, &types) != check::dump::dump(&first, &types)
                    || !errors.is_empty()
                {
                    differ.push((input.clone(), errors));
                }
            });
        }
    }
    assert!(programs > 0 && differ.is_empty(), "{differ:?}");
}
