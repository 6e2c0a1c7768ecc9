//! A program that uses the probes of a provider whose definition may be any text.

use std::sync::Arc;

use check::{Context, Definition, Options};
use diagnostics::{Sink, SourceKind, SourceMap};
use probes::{
    ArgType, Args, Catalog, Family, FieldKind, ListCatalog, Matches, Pattern, ProbeDesc, ProbeId, ProbeInfo,
    ProviderFacts,
};
use syntax::macros::MacroEnv;
use syntax::{Libraries, ParseMode};
use types::Types;

use crate::stages::{Compiled, finish, optimized};

/// A definition as a good program has it.
pub const GOOD: &str = "typedef struct file { char *name; int size; char flags[8]; } file_t;
typedef struct info { string name; int size; } info_t;
inline int twice[int n] = n * 2;
translator info_t < file_t *f > { name = stringof(f->name); size = twice[f->size]; };
provider app { probe sent(file_t *f, short n) : (info_t *f, short n, file_t *f); };
#pragma D attributes Stable/Stable/ISA provider app args
";

/// Programs that use arguments in all ways.
const PROGRAMS: [&str; 5] = [
    "app:::sent { trace(args[1]); @[args[2], args[1]] = quantize(args[1]); self->x = args[1]; trace(arg0); }",
    "app:::sent { print(*args[2]); tracemem(args[2], sizeof (*args[2])); trace(*args[2]); }",
    "app:::sent { trace(args[0]->size); trace(args[0]->name); printf(\"%s %d\", args[0]->name, args[1]); }",
    "app:::sent { this->f = args[2]; a[args[2], \"k\"] = args[2]; trace(this->f->size); trace(this->f->flags); }",
    "app:::sent { @x[*args[2]] = count(); self->all[args[1]] = *args[2]; print(self->all[args[1]]); }",
];

/// Probes that have a definition each, by the number in the name of their module.
pub struct Defined(pub ListCatalog);

impl Catalog for Defined {
    fn matches(&self, pattern: &Pattern) -> Matches {
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

    fn args(&self, probe: &ProbeDesc) -> Args {
        self.0.args(probe)
    }

    fn definition(&self, probe: &ProbeDesc) -> Option<Arc<probes::Definition>> {
        let number = probe.module.strip_prefix('v')?.parse().ok()?;
        let (provider, file, text) = ("app".into(), "/app".into(), "".into());
        Some(Arc::new(probes::Definition { number, provider, file, text }))
    }
}

/// Compiles one of [`PROGRAMS`] with a definition of this text, to optimized DIF. `Err` is a bug.
pub fn compile(program: usize, definition: &str, strsize: u32) -> Result<Compiled, String> {
    let (mut map, mut sink, env) = (SourceMap::default(), Sink::default(), MacroEnv::default());
    let mut libraries = Libraries::embedded();
    let mut faults = Sink::default();
    let file = map.add(SourceKind::Library, "app of /app", definition);
    libraries.load(&[definition], &mut map, &env, &mut Sink::default());
    let parsed = syntax::parse(&mut map, file, ParseMode::Script, &env, &libraries, &mut faults);
    let definitions = [Definition { number: 0, program: Arc::new(parsed), faults: faults.into_sorted() }];
    let mut catalog = ListCatalog::default();
    let arg = |n| ArgType::text(n, "uint64_t");
    catalog.add_with(ProbeDesc::new("app", "v0", "f", "sent"), vec![arg(0), arg(1)]);
    let catalog = Defined(catalog);
    let text = PROGRAMS.get(program % PROGRAMS.len()).copied().unwrap_or_default();
    let file = map.add(SourceKind::Script, "test.d", text);
    let program = syntax::parse(&mut map, file, ParseMode::Script, &env, &libraries, &mut sink);
    let types = Types::new();
    let cx = Context {
        types: &types,
        catalog: &catalog,
        symbols: &(),
        map: &map,
        libraries: &libraries,
        definitions: &definitions,
        options: Options { strsize, ..Options::default() },
        stop: &|| false,
    };
    for probe in &catalog.0.probes {
        check::defined_types(&cx, &probe.desc);
    }
    let checked = check::check(&[program], &cx, &mut sink);
    optimized(finish(&checked, map, sink, definition)?, definition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_use_a_good_definition_are_compiled() {
        let compiled = |program| match compile(program, GOOD, 64) {
            Ok(Compiled::Module(module, _)) => module.clauses.len(),
            Ok(Compiled::Rejected(why)) => panic!("{program}: {why}"),
            Err(bug) => panic!("{program}: {bug}"),
        };
        assert_eq!((0..PROGRAMS.len()).map(compiled).collect::<Vec<_>>(), [1; PROGRAMS.len()]);
    }
}
