//! Firings of a file as the interpreter executes them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use capture::{Content, Firing as Stored, Head, Place, Word};
use dif::ir::Space;
use dif::subr::{NameOf, PathOf};
use plane::builtin::{Builtin, IntBuiltin};

use crate::engine::interpreter::{Captured, Firing, Memory, Region, Text};

/// The arguments that a firing has at most.
const MOST_ARGS: usize = 10;

/// Makes firings as the interpreter executes them.
#[derive(Default)]
pub(super) struct Restored {
    /// The words of the last firing of a probe, and their built-in variables: those of the next one
    /// are the same nearly always.
    builtins: HashMap<u32, (Vec<Word>, Arc<[Builtin]>)>,
}

impl Restored {
    /// The built-in variables that a firing has.
    fn builtins(&mut self, stored: &Stored) -> Arc<[Builtin]> {
        let words = || stored.words.iter().map(|(word, _)| *word);
        match self.builtins.get(&stored.probe) {
            Some((known, builtins)) if words().eq(known.iter().copied()) => builtins.clone(),
            _ => {
                let all: BTreeSet<IntBuiltin> = words().map(builtin).collect();
                let all: Arc<[Builtin]> = all.into_iter().map(Builtin::Int).collect();
                self.builtins.insert(stored.probe, (words().collect(), all.clone()));
                all
            }
        }
    }

    /// A firing of a file whose head this is.
    pub(super) fn firing(&mut self, stored: Stored, head: &Head) -> Firing {
        let builtins = self.builtins(&stored);
        firing(stored, head, builtins)
    }
}

fn firing(stored: Stored, head: &Head, builtins: Arc<[Builtin]>) -> Firing {
    let probe = head.probes.get(stored.probe as usize).map(|(_, name)| name.clone()).unwrap_or_default();
    let mut firing = Firing { time: stored.time, cpu: stored.cpu, ..Firing::of(probe) };
    for (word, value) in &stored.words {
        set(&mut firing, *word, *value);
    }
    let mut known = Captured {
        builtins,
        execname: stored.execname.and_then(text),
        of_stacks: stored
            .words
            .iter()
            .map(|(word, value)| (builtin(*word), *value))
            .filter(is_of_stack)
            .collect(),
        stacks: (stored.stack.is_some(), stored.ustack.is_some()),
        ..Captured::default()
    };
    let (mut regions, mut behind): (Vec<Region>, Vec<Region>) = Default::default();
    for stored in stored.memory {
        let (at, text) = (stored.address, text(stored.content));
        let of = match stored.place {
            Place::Kernel | Place::User => {
                let space = if stored.place == Place::User { Space::User } else { Space::Kernel };
                match text {
                    Some(Text { bytes, is_cut }) => {
                        // Who reads the text as it was read looks at the byte behind it.
                        let end = at.wrapping_add(bytes.len() as u64);
                        behind.extend(is_cut.then(|| (space, end, vec![u8::MAX])));
                        regions.push((space, at, bytes));
                    }
                    None => known.unreadable.push((space, at)),
                }
                continue;
            }
            Place::Ancestor => {
                let descends = text.is_some_and(|text| text.bytes.first() == Some(&1));
                known.ancestors.entry(at as i32).or_insert(descends);
                continue;
            }
            Place::Arguments => {
                known.arguments.entry(at).or_insert(text);
                continue;
            }
            Place::Path => NameOf::Path(PathOf::File),
            Place::FullPath => NameOf::Path(PathOf::Full),
            Place::MountPath => NameOf::Path(PathOf::Mount),
            Place::DentryPath => NameOf::Path(PathOf::Dentry),
            Place::Container => NameOf::Container,
            Place::Pod => NameOf::Pod,
        };
        known.names.entry((of, at)).or_insert(text);
    }
    known.unreadable.sort_unstable();
    // What was read comes before what is made up.
    regions.append(&mut behind);
    let mut memory = Memory::of(regions);
    memory.captured = Some(known);
    firing.memory = Arc::new(memory);
    let addresses = |stack: &Option<Vec<capture::Symbol>>| -> Vec<u64> {
        stack.iter().flatten().map(|frame| frame.address).collect()
    };
    (firing.stack, firing.ustack) = (addresses(&stored.stack), addresses(&stored.ustack));
    firing
}

/// True of a word that follows from a stack.
fn is_of_stack((word, _): &(IntBuiltin, u64)) -> bool {
    use IntBuiltin::{Caller, StackDepth, Ucaller, UstackDepth};
    matches!(word, Caller | Ucaller | StackDepth | UstackDepth)
}

fn text(content: Content) -> Option<Text> {
    content.into_known().map(|(bytes, is_cut)| Text { bytes, is_cut })
}

/// The built-in variable of a captured word.
pub(super) fn builtin(word: Word) -> IntBuiltin {
    match word {
        Word::Pid => IntBuiltin::Pid,
        Word::Ppid => IntBuiltin::Ppid,
        Word::Tid => IntBuiltin::Tid,
        Word::Uid => IntBuiltin::Uid,
        Word::Gid => IntBuiltin::Gid,
        Word::Wall => IntBuiltin::Walltimestamp,
        Word::CpuTime => IntBuiltin::Vtimestamp,
        Word::Errno => IntBuiltin::Errno,
        Word::Level => IntBuiltin::Ipl,
        Word::UserThread => IntBuiltin::UserThread,
        Word::CurThread => IntBuiltin::CurThread,
        Word::Arg(n) => IntBuiltin::Arg(n),
        Word::Register(n) => IntBuiltin::Ureg(n),
        Word::Caller => IntBuiltin::Caller,
        Word::Ucaller => IntBuiltin::Ucaller,
        Word::StackDepth => IntBuiltin::StackDepth,
        Word::UstackDepth => IntBuiltin::UstackDepth,
    }
}

/// Gives a firing the value of a word.
fn set(firing: &mut Firing, word: Word, value: u64) {
    match word {
        Word::Pid => firing.pid = value as i32,
        Word::Ppid => firing.ancestors = vec![value as i32],
        Word::Tid => firing.tid = value as i32,
        Word::Uid => firing.uid = value as u32,
        Word::Gid => firing.gid = value as u32,
        Word::Wall => firing.walltime = value,
        Word::CpuTime => firing.cputime = value,
        Word::Errno => firing.errno = value as i32,
        Word::Level => firing.level = value as u8,
        Word::UserThread => firing.kernel_thread = value == 0,
        Word::CurThread => firing.curthread = value,
        Word::Arg(n) => put(&mut firing.args, n, value),
        Word::Register(n) => put(&mut firing.registers, n, value),
        // They are of stacks that may not be known.
        Word::Caller | Word::Ucaller | Word::StackDepth | Word::UstackDepth => {}
    }
}

/// Sets an element of a list.
fn put(all: &mut Vec<u64>, at: u8, value: u64) {
    let at = usize::from(at);
    if all.len() <= at {
        // They come one after the other.
        if all.is_empty() {
            all.reserve(MOST_ARGS);
        }
        all.resize(at + 1, 0);
    }
    if let Some(place) = all.get_mut(at) {
        *place = value;
    }
}
