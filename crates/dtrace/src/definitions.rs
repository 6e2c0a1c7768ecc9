//! Provider definitions: what `dtrace -h` and `dtrace -G` write. It needs no privilege and no kernel facility.

use diagnostics::{Sink, SourceKind, SourceMap};
use syntax::{Libraries, ParseMode, TypeNames};
use usdt_writer::{Definitions, TypesOfSystem};

pub use usdt_writer::{Processor, processor_of, processor_of_compiler};

use crate::compile::{Macros, Source, macro_env};
use crate::error::{CompileError, Error};
use crate::options::Options;

struct System(Libraries);

impl TypesOfSystem for System {
    fn has(&self, name: &str) -> bool {
        self.0.is_type(name)
    }
}

/// The providers that some scripts define.
pub struct ProviderDefinitions(Definitions);

impl ProviderDefinitions {
    /// Reads the definitions in scripts. Clauses in them are parsed, and mean nothing here.
    pub fn read(sources: &[Source], macros: &Macros, options: &Options) -> Result<Self, CompileError> {
        let (mut map, mut sink, mut all) = (SourceMap::default(), Sink::default(), Definitions::default());
        let system = System(Libraries::embedded());
        for source in sources {
            let Source::Script(name, text) = source else { continue };
            let text = match options.flag("cpp") {
                true => match crate::cpp::preprocess(name, text, options) {
                    Ok(text) => text,
                    Err(e) => return Err((map, Error::Setting(e)).into()),
                },
                false => text.clone(),
            };
            let env = macro_env(macros, options, name, true);
            let file = map.add(SourceKind::Script, name.as_str(), text);
            let tree = syntax::parse(&mut map, file, ParseMode::Script, &env, &system.0, &mut sink);
            usdt_writer::define(&tree, &map, &system, &mut all, &mut sink);
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
