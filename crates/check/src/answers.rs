//! What a program asks of the system besides what its descriptions match: the arguments and
//! definitions of probes, the files of processes, types and symbols of the kernel.
//!
//! All of it may go or be another one while the program runs: a module is unloaded, a process ends
//! or executes another program. So each answer is in the [`Record`], and a program that is checked
//! again means what it meant.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use probes::{Args, Definition, Pattern, ProbeDesc, ProbeId, ProbeInfo, UserObject, UserVariable};
use types::TagKind;
use types::btf::Btf;

use crate::context::Context;
use crate::record::{Answers, ObjectFound, Record, SymbolFound};
use crate::session::Checker;
use crate::state::matching::NO_PROGRAM;

impl Checker<'_> {
    /// The answer to a question of the current program: the recorded one, if there is one.
    fn answer<K: Eq + Hash, V: Clone>(
        &mut self,
        answers: fn(&mut Record) -> &mut Answers<K, V>,
        key: K,
        ask: impl FnOnce(&Context<'_>, &K) -> V,
    ) -> V {
        let key = (self.matching.number, key);
        if let Some(known) = answers(&mut self.matching.record).get(&key) {
            return known.clone();
        }
        let found = ask(self.cx, &key.1);
        if key.0 != NO_PROGRAM {
            answers(&mut self.matching.record).insert(key, found.clone());
        }
        found
    }

    /// The types of the arguments of a probe, as its provider gives them.
    pub(crate) fn provided_args(&mut self, probe: &Arc<ProbeDesc>) -> Args {
        self.answer(|record| &mut record.args, probe.clone(), |cx, probe| cx.catalog.args(probe))
    }

    /// What the file that has a probe says of its provider. Most probes have none, so only those
    /// that have one are recorded.
    pub(crate) fn definition_of(&mut self, probe: &Arc<ProbeDesc>) -> Option<Arc<Definition>> {
        let key = (self.matching.number, probe.clone());
        if self.matching.is_checked_again() {
            return self.matching.record.definitions.get(&key).cloned();
        }
        let found = self.cx.catalog.definition(probe)?;
        if key.0 != NO_PROGRAM {
            self.matching.record.definitions.insert(key, found.clone());
        }
        Some(found)
    }

    /// Whether the definition of this number was parsed for the program.
    pub(crate) fn is_parsed(&mut self, number: u32) -> bool {
        self.answer(
            |record| &mut record.parsed,
            number,
            |cx, number| cx.definitions.iter().any(|definition| definition.number == *number),
        )
    }

    /// The probe with an id.
    pub(crate) fn probe_of_id(&mut self, id: u32) -> Option<ProbeInfo> {
        self.answer(|record| &mut record.ids, ProbeId(id), |cx, id| cx.catalog.by_id(*id))
    }

    /// The probes that libraries declare, that a pattern matches, and that have no base.
    pub(crate) fn without_base(&mut self, pattern: &Pattern) -> Vec<ProbeInfo> {
        self.answer(|record| &mut record.absent, pattern.clone(), |cx, pattern| cx.catalog.absent(pattern))
    }

    /// A file that the processes of a provider run. `None` if they are not processes.
    pub(crate) fn file_of(&mut self, provider: &str, object: &str) -> ObjectFound {
        let key = (provider.to_owned(), object.to_owned());
        self.answer(
            |record| &mut record.objects,
            key,
            |cx, (provider, object)| {
                let found = cx.catalog.object(provider, object)?;
                Some(found.map(|object| Arc::new(Asked::of(object)) as Arc<dyn UserObject>))
            },
        )
    }

    /// Looks types of the kernel up as the current program saw them when it was first checked.
    pub(crate) fn use_kernel_as_seen(&mut self) {
        let Some(now) = &self.kernel else { return };
        let seen = self.matching.record.kernels.entry(self.matching.number);
        self.types.use_kernel(seen.or_insert_with(|| now.clone()));
    }

    /// The address of a symbol of the kernel, and its module.
    pub(crate) fn symbol_at(&mut self, module: Option<&str>, name: &str) -> SymbolFound {
        let key = (module.map(str::to_owned), name.to_owned());
        self.answer(
            |record| &mut record.symbols,
            key,
            |cx, (module, name)| cx.symbols.address(module.as_deref(), name),
        )
    }
}

/// Answers of a file, by what was asked.
type Found<K, V> = Mutex<HashMap<K, Result<Option<V>, String>>>;

/// A file that a process runs. It says the same when it is asked again: the process may have ended.
#[derive(Debug)]
struct Asked {
    object: Arc<dyn UserObject>,
    types: Found<(Option<TagKind>, String), (Arc<Btf>, u32)>,
    variables: Found<String, UserVariable>,
}

impl Asked {
    fn of(object: Arc<dyn UserObject>) -> Asked {
        Asked { object, types: Mutex::default(), variables: Mutex::default() }
    }
}

fn once<K: Eq + Hash, V: Clone>(
    known: &Found<K, V>,
    key: K,
    ask: impl FnOnce() -> Result<Option<V>, String>,
) -> Result<Option<V>, String> {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(key).or_insert_with(ask).clone()
}

impl UserObject for Asked {
    fn file(&self) -> u64 {
        self.object.file()
    }

    fn find(&self, kind: Option<TagKind>, name: &str) -> Result<Option<(Arc<Btf>, u32)>, String> {
        once(&self.types, (kind, name.to_owned()), || self.object.find(kind, name))
    }

    fn variable(&self, name: &str) -> Result<Option<UserVariable>, String> {
        once(&self.variables, name.to_owned(), || self.object.variable(name))
    }

    fn like(&self, kind: Option<TagKind>, wrong: &str) -> Vec<String> {
        self.object.like(kind, wrong)
    }
}
