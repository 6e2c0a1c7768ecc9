//! Provider definitions: what `dtrace -h` and `dtrace -G` write. It needs no privilege and no
//! kernel facility.

use std::sync::Arc;

use diagnostics::{Diagnostic, Sink, SourceKind, SourceMap};
use probes::{Catalog, Family, ListCatalog};
use syntax::ast::{Item, Program, StorageClass};
use syntax::{Libraries, ParseMode, TypeNames};
use types::Types;
use usdt_writer::{Definitions, TypesOfSystem, declares_types};

pub use usdt_writer::{Processor, processor_of, processor_of_compiler};

use crate::compile::{Macros, Source, macro_env};
use crate::error::{CompileError, Error};
use crate::options::Options;

/// Who answers for which names is the same on every machine.
fn families_of_every_machine() -> Vec<Family> {
    crate::list::providers_of(&system::System::synthetic(system::Record::default())).families()
}

struct System {
    libraries: Libraries,
    providers: Vec<Family>,
}

impl TypesOfSystem for System {
    fn has(&self, name: &str) -> bool {
        self.libraries.is_type(name)
    }

    fn has_provider(&self, name: &str) -> bool {
        self.providers.iter().any(|family| !family.is_of_processes() && family.prefix() == name)
    }
}

/// The providers that some scripts define.
pub struct ProviderDefinitions(Definitions);

impl ProviderDefinitions {
    /// Reads the definitions in scripts. They are checked by the rules of those who trace the
    /// programs: a definition that breaks one would be in the programs for nothing.
    pub fn read(sources: &[Source], macros: &Macros, options: &Options) -> Result<Self, CompileError> {
        let (mut map, mut sink, mut all) = (SourceMap::default(), Sink::default(), Definitions::default());
        let (libraries, providers) = (Libraries::embedded(), families_of_every_machine());
        let mut system = System { libraries, providers };
        for source in sources {
            let Source::Script(name, text) = source else { continue };
            let text = match options.cpp {
                true => match crate::compile::cpp::preprocess(name, text, options) {
                    Ok(text) => text,
                    Err(e) => return Err((map, Error::Setting(e)).into()),
                },
                false => text.clone(),
            };
            let env = macro_env(macros, options, name, true);
            // A definition sees their typedefs.
            system.libraries.load(&[&text], &mut map, &env, &mut sink);
            let file = map.add(SourceKind::Script, name.as_str(), text);
            let tree = syntax::parse(&mut map, file, ParseMode::Script, &env, &system.libraries, &mut sink);
            usdt_writer::define(&tree, &map, &system, &mut all, &mut sink);
            // What does not parse is no definition to check, and a script without a provider (build
            // systems try `-G` with `BEGIN{}`) is in no program.
            let has_provider = tree.items.iter().any(|item| matches!(item, Item::Provider(_)));
            if sink.is_empty() && has_provider {
                faults(tree, &map, &system.libraries).into_iter().for_each(|fault| sink.push(fault));
            }
        }
        match sink.is_empty() {
            true => Ok(Self(all)),
            false => Err((map, Error::Program(sink.into_sorted())).into()),
        }
    }

    /// The header for C and C++; `file` is its name.
    pub fn header(&self, file: &str) -> String {
        usdt_writer::header(&self.0, file)
    }

    /// The object file for a machine.
    pub fn object(&self, machine: Processor) -> Result<Vec<u8>, String> {
        usdt_writer::object(&self.0, machine)
    }
}

/// What a tracer would find wrong with a script's definition. Variables and functions of headers
/// are not part of it.
fn faults(mut tree: Program, map: &SourceMap, libraries: &Libraries) -> Vec<Diagnostic> {
    let is_of_header = |item: &Item| match item {
        Item::Declaration(d) if !declares_types(d) => {
            map.is_included(d.span) || d.specs.storage.is_some_and(|s| s.class == StorageClass::Extern)
        }
        _ => false,
    };
    tree.items.retain(|item| !is_of_header(item));
    let cx = check::Context {
        types: &Types::new(),
        catalog: &ListCatalog::default(),
        symbols: &(),
        map,
        libraries,
        definitions: &[],
        options: check::Options::default(),
        stop: &|| false,
    };
    let definition = check::Definition { number: 0, program: Arc::new(tree), faults: Vec::new() };
    check::definition_faults(&cx, &definition)
}
