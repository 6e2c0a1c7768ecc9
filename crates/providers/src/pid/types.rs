//! The types of the files that a process runs: of the arguments of its functions, and of names that
//! a program scopes to a file.
//!
//! ```text
//!  args[] of a probe ──► the function's symbol ──► its address ──► the reader: prototype, and places of the parameters
//!  a.out`conn        ──► the file of the process ───────────────► the reader: the type, and those near it
//!                                                       │
//!            Blob (origin of the types) ◄───────────────┘ what is only named is asked for when a program needs its members
//! ```
//!
//! A reader of symbols reads them, because a traced process's files can be hostile. Nothing is
//! read, and no process is started, before a program asks for a type.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use files::FileId;
use probes::{
    ArgPart, ArgType, Args, FIELD_LIMITS, ProbeDesc, UserObject, UserVariable, VariablePlace, is_glob,
};
use symbols::{
    Calling, FunctionQuery, MappedText, NameKind, ParameterPlace, Processes, Readers, Select, TypesAnswer,
    TypesQuery,
};
use types::TagKind;
use types::btf::{Btf, Def, Origin};

use crate::lock;
use crate::process::object::{Object, cut, in_root, objects};

/// How long the reader may take for one request, before tracing begins.
const READING: Duration = Duration::from_secs(20);

/// The memory of the reader.
const MEMORY: u64 = 1 << 30;

/// The most processes whose files are compared.
const MOST_PROCESSES: usize = 1024;

/// What `arg0` of a return is: the offset of the instruction.
const OFFSET: &str = "uint64_t";

/// What reads, and the files that were asked for.
#[derive(Default)]
struct Reading {
    readers: Readers,
    symbols: Option<Processes>,
    files: HashMap<FileId, u64>,
    /// Types by what was asked for, with the number of the file.
    known: HashMap<(u64, TypesQuery), Result<Arc<FileTypes>, String>>,
    /// The functions of files.
    functions: HashMap<u64, Functions>,
    /// The arguments of probes.
    args: HashMap<ProbeDesc, Args>,
}

impl Reading {
    fn symbols(&mut self) -> &mut Processes {
        self.symbols.get_or_insert_with(|| {
            let mut symbols = Processes::new(&self.readers);
            symbols.set_limits(READING, MEMORY);
            symbols
        })
    }
}

/// So many functions of a file are asked for one by one. For more, all are listed.
const FEW_FUNCTIONS: u32 = 4;

/// The functions of a file.
#[derive(Default)]
struct Functions {
    asked: u32,
    /// Address and name in the table of symbols, by the name of the probe.
    all: Option<HashMap<String, Vec<Symbol>>>,
}

/// A function in the table of symbols.
#[derive(Clone)]
struct Symbol {
    address: u64,
    name: String,
    calling: Calling,
}

/// An answer, as types.
struct FileTypes {
    btf: Arc<Btf>,
    answer: TypesAnswer,
}

/// The types of the files of processes.
#[derive(Clone, Default)]
pub(super) struct UserTypes {
    reading: Arc<Mutex<Reading>>,
}

impl std::fmt::Debug for UserTypes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UserTypes")
    }
}

/// A file that a process runs.
#[derive(Clone, Debug)]
struct Run {
    types: UserTypes,
    number: u64,
    text: MappedText,
    /// Other processes run it, too, and a name means it in all of them.
    several: Option<Several>,
}

/// A file that several processes run.
#[derive(Clone, Debug)]
enum Several {
    /// It is their program. The address at which the code of the one begins that is read.
    Program(u64),
    /// It is a library, which each of them has somewhere else.
    Library,
}

/// Where the types of a blob are from.
#[derive(Debug)]
struct Blob {
    run: Run,
    /// Types that are only named, and the numbers of their entries.
    cuts: HashMap<u32, u64>,
}

impl UserTypes {
    /// Reads files by these.
    pub(super) fn use_readers(&self, readers: &Readers) {
        lock(&self.reading).readers = readers.clone();
    }

    /// The types of the arguments of a probe of a process.
    pub(super) fn args(&self, pid: u32, probe: &ProbeDesc) -> Args {
        if let Some(known) = lock(&self.reading).args.get(probe) {
            return known.clone();
        }
        let args = self.read_args(pid, probe);
        lock(&self.reading).args.insert(probe.clone(), args.clone());
        args
    }

    /// These probes may be of other files now.
    pub(super) fn forget<'a>(&self, probes: impl Iterator<Item = &'a Arc<ProbeDesc>>) {
        let mut reading = lock(&self.reading);
        for probe in probes {
            reading.args.remove(&**probe);
        }
    }

    fn read_args(&self, pid: u32, probe: &ProbeDesc) -> Args {
        let is_entry = match &*probe.name {
            "entry" => true,
            "return" => false,
            _ => return Err("at an instruction inside of a function, its parameters may be anywhere".into()),
        };
        let run = self.run(pid, &probe.module)?;
        let mut prototypes: Vec<Arc<[ArgType]>> = Vec::new();
        for Symbol { address, name, calling } in self.functions(&run, &probe.function)? {
            if let Calling::Unknown(why) = calling {
                return Err(why.to_string());
            }
            // Copies of a function that the compiler has made for some of its callers.
            let is_copy = [".isra.", ".constprop.", ".part."].iter().any(|mark| name.contains(mark));
            if is_copy {
                return Err(format!("the compiler has changed the parameters of {name}"));
            }
            let query = TypesQuery::Function { address, name };
            let found = run.find(query)?.ok_or("the debug information has no such function")?;
            let args = if is_entry { entry(&found) } else { result(&found) };
            prototypes.push(args);
        }
        match &prototypes[..] {
            [] => Err("there is no such function any more".into()),
            [one] => Ok(one.clone()),
            _ => {
                Err("several functions have this name: give the address, as in pid123:a.out:-:4011a0".into())
            }
        }
    }

    /// The functions of a file that have the name of a probe.
    fn functions(&self, run: &Run, name: &str) -> Result<Vec<Symbol>, String> {
        let mut reading = lock(&self.reading);
        let known = reading.functions.entry(run.number).or_default();
        known.asked += 1;
        if let Some(all) = &known.all {
            return Ok(all.get(name).cloned().unwrap_or_default());
        }
        // A name of C++ may be a glob, which does not match itself.
        let is_one = known.asked <= FEW_FUNCTIONS && !is_glob(name);
        let select = if is_one { Select::Matching(vec![name.to_owned()]) } else { Select::All };
        let listed = reading.symbols().functions(run.text.file, &FunctionQuery::names(select))?;
        let mut all: HashMap<String, Vec<Symbol>> = HashMap::new();
        for function in &listed.functions {
            let raw = function.names.first().map(|name| name.raw.clone()).unwrap_or_default();
            let names = function.names.iter().flat_map(|name| [name.shown(), &name.raw]);
            let mut names: Vec<&str> = names.map(|name| cut(name, FIELD_LIMITS[2])).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                let (address, calling) = (function.address, function.calling.clone());
                // Nearly all names are those of one function.
                let named = all.entry(name.to_owned()).or_insert_with(|| Vec::with_capacity(1));
                named.push(Symbol { address, name: raw.clone(), calling });
            }
        }
        let found = all.get(name).cloned().unwrap_or_default();
        if !is_one && let Some(known) = reading.functions.get_mut(&run.number) {
            known.all = Some(all);
        }
        Ok(found)
    }

    /// A file that a process runs, as descriptions name it.
    fn run(&self, pid: u32, module: &str) -> Result<Run, String> {
        self.run_and_role(pid, module).map(|(run, _)| run)
    }

    /// The same, and whether it is the program of the process.
    fn run_and_role(&self, pid: u32, module: &str) -> Result<(Run, bool), String> {
        let mut reading = lock(&self.reading);
        let symbols = reading.symbols();
        let mapped = symbols.mapped(pid)?;
        let thread = proc::thread_with_memory(pid);
        let link = |name: &str| std::fs::read_link(format!("/proc/{thread}/{name}")).unwrap_or_default();
        let (exe, root) = (link("exe"), link("root"));
        let exe = in_root(exe.as_os_str().as_encoded_bytes(), root.as_os_str().as_encoded_bytes());
        let all =
            objects(pid, &mapped, |file| symbols.mapped_file(file).map(|file| file.path.as_slice()), exe);
        let called: Vec<&Object> = all.iter().filter(|object| object.is_called(module)).collect();
        let (text, is_main) = match &called[..] {
            [] => return Err(format!("process {pid} runs no file \"{module}\"")),
            [one, ..] => (one.text.clone(), one.is_main),
        };
        let next = reading.files.len() as u64;
        let number = *reading.files.entry(text.file).or_insert(next);
        Ok((Run { types: self.clone(), number, text, several: None }, is_main))
    }

    /// The types of a file that a process runs.
    pub(super) fn object(&self, pid: u32, module: &str) -> Result<Arc<dyn UserObject>, String> {
        Ok(Arc::new(self.run(pid, module)?))
    }

    /// The types of a file that several processes run.
    pub(super) fn object_of_several(
        &self,
        pids: &BTreeSet<u32>,
        module: &str,
    ) -> Result<Arc<dyn UserObject>, String> {
        if pids.len() > MOST_PROCESSES {
            return Err(format!("{} processes have these probes: name one, or select fewer", pids.len()));
        }
        let (mut found, mut refused): (Option<Run>, _) = (None, None);
        for pid in pids {
            match (self.run_and_role(*pid, module), &found) {
                // It may have ended, or not run this file.
                (Err(why), _) => refused = Some(why),
                (Ok((run, is_main)), None) => {
                    let several = match code_of(*pid).filter(|_| is_main) {
                        Some(code) => Several::Program(code),
                        None => Several::Library,
                    };
                    found = Some(Run { several: Some(several), ..run });
                }
                (Ok((run, _)), Some(known)) if run.number != known.number => {
                    return Err(format!(
                        "the processes run several files \"{module}\": name a process, or select those of one file"
                    ));
                }
                (Ok(_), Some(_)) => {}
            }
        }
        match found {
            Some(run) => Ok(Arc::new(run)),
            None => Err(refused.unwrap_or_else(|| "no process that has these probes is known".into())),
        }
    }
}

/// Where the code of the program of a process begins (`mm_struct.start_code`), if the kernel tells
/// it.
fn code_of(pid: u32) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{}/stat", proc::thread_with_memory(pid))).ok()?;
    let code = proc::parse_stat(&stat)?.code;
    // What may not be known is 1.
    (code > 1).then_some(code)
}

/// The arguments of an entry: the parameters.
fn entry(found: &FileTypes) -> Arc<[ArgType]> {
    let Some(Def::FuncProto { params, .. }) = found.answer.found.and_then(|id| found.btf.def(id)) else {
        return Arc::new([]);
    };
    let results = found.answer.results as usize;
    let places = &found.answer.places;
    let count = places.len().saturating_sub(results);
    params.zip(places).take(count).map(|(param, place)| argument(found, param.ty, place)).collect()
}

/// An argument of a type, at a place.
fn argument(found: &FileTypes, ty: u32, place: &ParameterPlace) -> ArgType {
    let of = |n| ArgType::btf(n, &found.btf, ty);
    match place {
        ParameterPlace::Argument(n) => of(*n),
        ParameterPlace::Object(n) => of(*n).in_process(),
        ParameterPlace::Parts(parts) => {
            let part = |p: &symbols::ObjectPart| ArgPart { offset: p.offset, size: p.size, from: p.argument };
            of(0).in_parts(parts.iter().map(part).collect::<Vec<_>>())
        }
        ParameterPlace::Unreadable(why) => of(0).unreadable(why.as_str()),
    }
}

/// The arguments of a return: the offset, and what the function returns.
fn result(found: &FileTypes) -> Arc<[ArgType]> {
    let offset = ArgType::text(0, OFFSET);
    let Some(Def::FuncProto { ret, params, .. }) = found.answer.found.and_then(|id| found.btf.def(id)) else {
        return Arc::new([offset]);
    };
    let results = found.answer.results as usize;
    if results > 0 {
        let places = &found.answer.places;
        let before = places.len().saturating_sub(results);
        let results = params.zip(places).skip(before);
        let results = results.map(|(param, place)| argument(found, param.ty, place));
        return std::iter::once(offset).chain(results).collect();
    }
    if ret == 0 {
        return Arc::new([offset]);
    }
    let value = ArgType::btf(1, &found.btf, ret);
    let value = match scalar(&found.btf, ret) {
        Ok(()) => value,
        Err(why) => value.unreadable(why),
    };
    Arc::new([offset, value])
}

/// The error says why a result is not in the register of integers.
fn scalar(btf: &Btf, mut ty: u32) -> Result<(), &'static str> {
    const DEEPEST: usize = 32;
    for _ in 0..DEEPEST {
        ty = match btf.def(ty) {
            Some(
                Def::Typedef { target, .. }
                | Def::Const(target)
                | Def::Volatile(target)
                | Def::Restrict(target),
            ) => target,
            Some(Def::Sou { .. } | Def::Fwd { .. }) => {
                return Err("an object is returned in several registers or in memory");
            }
            Some(Def::Float { .. }) => {
                return Err(
                    "a floating-point number is returned in a register that programs in the kernel do not see",
                );
            }
            Some(Def::Int { size, .. }) if size > 8 => return Err("it is returned in two registers"),
            _ => return Ok(()),
        };
    }
    Err("its type is malformed")
}

impl Run {
    /// Asks for types.
    fn ask(&self, query: &TypesQuery) -> Result<TypesAnswer, String> {
        lock(&self.types.reading).symbols().types(&self.text, query)
    }

    /// The types of an answer. `None`: there is no such name.
    fn find(&self, query: TypesQuery) -> Result<Option<Arc<FileTypes>>, String> {
        // A variable has an address in each process.
        let is_of_file = !matches!(query, TypesQuery::Name(NameKind::Variable, _));
        let key = (self.number, query);
        let known = lock(&self.types.reading).known.get(&key).filter(|_| is_of_file).cloned();
        let found = known.unwrap_or_else(|| {
            let found = self.ask(&key.1).and_then(|answer| self.found(answer));
            lock(&self.types.reading).known.insert(key, found.clone());
            found
        })?;
        Ok(found.answer.found.is_some().then_some(found))
    }

    fn found(&self, answer: TypesAnswer) -> Result<Arc<FileTypes>, String> {
        let cuts = answer.cuts.iter().copied().collect();
        let bytes = if answer.btf.is_empty() { EMPTY.to_vec() } else { answer.btf.clone() };
        let btf = Btf::parse(bytes, None).map_err(|e| e.to_string())?;
        let btf = Arc::new(btf.of_process(Arc::new(Blob { run: self.clone(), cuts })));
        Ok(Arc::new(FileTypes { btf, answer }))
    }

    fn pair(&self, query: TypesQuery) -> Result<Option<(Arc<Btf>, u32)>, String> {
        let found = self.find(query)?;
        Ok(found.and_then(|found| Some((found.btf.clone(), found.answer.found?))))
    }
}

/// BTF without types.
const EMPTY: [u8; 24] = {
    let mut header = [0; 24];
    header[0] = 0x9f;
    header[1] = 0xeb;
    header[2] = 1;
    header[4] = 24;
    header
};

fn name_kind(kind: Option<TagKind>) -> NameKind {
    match kind {
        None => NameKind::Typedef,
        Some(TagKind::Struct) => NameKind::Struct,
        Some(TagKind::Union) => NameKind::Union,
        Some(TagKind::Enum) => NameKind::Enum,
    }
}

impl UserObject for Run {
    fn file(&self) -> u64 {
        self.number
    }

    fn find(&self, kind: Option<TagKind>, name: &str) -> Result<Option<(Arc<Btf>, u32)>, String> {
        self.pair(TypesQuery::Name(name_kind(kind), name.into()))
    }

    fn variable(&self, name: &str) -> Result<Option<UserVariable>, String> {
        let found = Run::find(self, TypesQuery::Name(NameKind::Variable, name.into()))?;
        let found = found.and_then(|found| {
            let (ty, address) = (found.answer.found?, found.answer.address?);
            Some(((found.btf.clone(), ty), address))
        });
        let Some((ty, address)) = found else { return Ok(None) };
        let place = match self.several {
            None => VariablePlace::Address(address),
            Some(Several::Program(code)) => VariablePlace::BehindCode(address.wrapping_sub(code)),
            Some(Several::Library) => {
                return Err(
                    "a variable of a library has an address in each process: name one, as pid123 does".into(),
                );
            }
        };
        Ok(Some(UserVariable { ty, place }))
    }

    fn like(&self, kind: Option<TagKind>, wrong: &str) -> Vec<String> {
        let beginning: String = wrong.chars().take(1).collect();
        self.ask(&TypesQuery::Like(name_kind(kind), beginning)).map_or(Vec::new(), |answer| answer.names)
    }
}

impl Origin for Blob {
    fn file(&self) -> u64 {
        self.run.number
    }

    fn complete(&self, id: u32, union: bool, name: &str) -> Option<(Arc<Btf>, u32)> {
        if let Some(key) = self.cuts.get(&id) {
            return self.run.pair(TypesQuery::Entry(*key)).ok()?;
        }
        let kind = if union { NameKind::Union } else { NameKind::Struct };
        self.run.pair(TypesQuery::Name(kind, name.into())).ok()?
    }
}
