//! The processes that a description means, and the files that they run. A file is there once,
//! however many processes run it.

use std::sync::Arc;
use std::time::Duration;

use diagnostics::Tag;
use probes::MatchError;
use symbols::{FunctionQuery, Processes, Select};

use super::object::{Object, Objects, in_root, objects};
use crate::contract::method::{HeldFile, HeldProcess};

/// A file, and the processes that run it.
pub(crate) struct RunFile {
    /// The file in the first of them.
    pub(crate) object: Object,
    /// The file.
    pub(crate) file: Arc<HeldFile>,
    /// The processes.
    pub(crate) processes: Vec<Arc<HeldProcess>>,
}

/// The processes that a description means.
#[derive(Default)]
pub(crate) struct Group {
    /// Those that could be read.
    pub(crate) processes: Vec<Arc<HeldProcess>>,
    /// Their files that the description names.
    pub(crate) files: Vec<RunFile>,
    /// All files of each process.
    pub(crate) objects: Vec<Vec<Object>>,
}

impl Group {
    /// Reads several processes. What has ended and what cannot be read is left out, if not all is.
    pub(crate) fn of(
        pids: &[u32],
        module: &str,
        (symbols, held): (&mut Processes, &mut Objects),
    ) -> Result<Group, MatchError> {
        let mut group = Group::default();
        let mut refused = None;
        for pid in pids {
            refused = group.add(*pid, module, symbols, held).err().or(refused);
        }
        match refused {
            Some(e) if group.processes.is_empty() => Err(e),
            None if group.processes.is_empty() => Err(no_process("no process is selected".into())
                .with_help("-x processes= selects them by id, name=, user= and cgroup=")),
            _ => Ok(group),
        }
    }

    fn add(
        &mut self,
        pid: u32,
        module: &str,
        symbols: &mut Processes,
        held: &mut Objects,
    ) -> Result<(), MatchError> {
        let process = read_process(pid, held)?;
        let objects = read_objects(pid, symbols)?;
        for object in objects.iter().filter(|object| object.is_called(module)) {
            let file = held.file(object, symbols);
            match self.files.iter_mut().find(|known| Arc::ptr_eq(&known.file, &file)) {
                // Two of its mappings, through two overlays, can be of one file.
                Some(known) if known.processes.last().is_some_and(|last| Arc::ptr_eq(last, &process)) => {}
                Some(known) => known.processes.push(process.clone()),
                None => {
                    let processes = vec![process.clone()];
                    self.files.push(RunFile { object: object.clone(), file, processes });
                }
            }
        }
        self.processes.push(process);
        self.objects.push(objects);
        Ok(())
    }

    /// Why no file is named as in the description.
    pub(crate) fn no_object(&self, module: &str) -> MatchError {
        const NAMED: usize = 8;
        let mut names: Vec<&str> = self.objects.iter().flatten().map(|object| &*object.name).collect();
        names.sort_unstable();
        names.dedup();
        let more = if names.len() > NAMED { ", ..." } else { "" };
        names.truncate(NAMED);
        let message = format!("of {} processes none runs a file \"{module}\"", self.processes.len());
        let error = MatchError::new(message).tagged(Tag::D_PROC_LIB);
        MatchError { may_come: true, ..error.with_help(format!("they run {}{more}", names.join(", "))) }
    }
}

fn no_process(why: String) -> MatchError {
    MatchError::new(why).tagged(Tag::D_PROC_GRAB)
}

/// The process that has a number.
pub(crate) fn read_process(pid: u32, held: &mut Objects) -> Result<Arc<HeldProcess>, MatchError> {
    let process = held.process(pid).map_err(|_| no_process(format!("there is no process {pid}")))?;
    match process.thread_of() {
        None => Ok(process),
        Some(group) => {
            Err(no_process(format!("{pid} is a thread of process {group}, which is probed whole")))
        }
    }
}

/// How long the reader may take for one request of a user who waits at a prompt.
pub(crate) const PROMPT: Duration = Duration::from_millis(500);

/// The files that a process runs.
pub(crate) fn read_objects(pid: u32, symbols: &mut Processes) -> Result<Vec<Object>, MatchError> {
    let mapped = symbols.mapped(pid).map_err(|why| {
        let has_ended = HeldProcess::open(pid).is_ok_and(|process| process.has_ended());
        no_process(if has_ended {
            format!("process {pid} has ended, and nobody has waited for it")
        } else {
            why
        })
    })?;
    let thread = proc::thread_with_memory(pid);
    let link = |name: &str| std::fs::read_link(format!("/proc/{thread}/{name}")).unwrap_or_default();
    let (exe, root) = (link("exe"), link("root"));
    let exe = in_root(exe.as_os_str().as_encoded_bytes(), root.as_os_str().as_encoded_bytes());
    let path = |file| symbols.mapped_file(file).map(|file| file.path.as_slice());
    let found = objects(pid, &mapped, path, exe);
    if found.is_empty() {
        let why = format!("process {pid} runs no program: it is a thread of the kernel, or has ended");
        return Err(no_process(why));
    }
    Ok(found)
}

/// Libraries that unwind through the frames of their callers, by the beginning of their names.
const UNWINDERS: [&str; 4] = ["libgcc_s.", "libunwind", "libstdc++.", "libc++abi."];

/// Why code of a process may unwind through frames, if it may.
pub(crate) fn unwinds(objects: &[Object], symbols: &mut Processes, held: &mut Objects) -> Option<String> {
    let known = objects.iter().find(|o| UNWINDERS.iter().any(|name| o.name.starts_with(name)));
    if let Some(object) = known {
        return Some(format!("it runs {}", object.name));
    }
    objects.iter().find_map(|object| {
        let file = held.file(object, symbols);
        let why = held.unwinds(&file).unwrap_or_else(|| {
            let found = symbols.functions(object.text.file, &FunctionQuery::names(Select::Nothing));
            // What cannot be read may unwind.
            let why = found.map_or_else(Some, |file| file.unwinds);
            held.set_unwinds(&file, why.clone());
            why
        })?;
        Some(format!("{}: {why}", object.name))
    })
}
