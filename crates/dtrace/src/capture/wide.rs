//! The program that reads all of its probes' firings that a program may ask later.
//!
//! ```text
//!  probes of the user's programs ──► for each what it has ──► clauses that read it
//!    syscall::openat:entry              ids, clocks, arguments    one for all that have as many
//!                                       a path                    one for all with a path there
//! ```
//!
//! It is D text, compiled and instrumented as any script that is captured, so a capture of
//! everything is one of [this script](program). Its clauses have no predicates of the user's: what
//! he prints and asks of a capture is known later. Each thing that may be unreadable has a clause
//! of its own, because a clause ends where it faults; the recorder makes one firing of them.
//!
//! A path is read when its call begins and when it returns: it may not be in memory before the
//! kernel itself has read it, and scripts therefore keep its address and read it at the return.

use std::collections::BTreeMap;
use std::fmt::Write;

use probes::{ArgType, Calls, Catalog, ProbeDesc, TypeRef};

use crate::compile::Program;
use crate::options::Captures;

/// What every firing has.
const COMMON: &str = "trace(pid); trace(tid); trace(ppid); trace(uid); trace(gid); trace(execname); \
                      trace(walltimestamp); trace(vtimestamp); trace(ipl); trace(curthread); trace(errno);";

/// The members of the structs that translators of libraries make: a type and its members in a
/// line. Left out are those that are the same for every process, and the arguments of a process.
const MEMBERS: &str = include_str!("members.txt");

/// Arguments of a probe whose arguments are not known.
const UNKNOWN_ARGS: u8 = 6;

/// The most arguments that have names.
const ARGS_MAX: u8 = 10;

/// Arguments of system calls of the type of a text that are data.
const DATA: [(&str, u8); 3] = [("write", 1), ("pwrite64", 1), ("mq_timedsend", 1)];

/// Arguments of system calls that are texts, whose type is that of a buffer.
const TEXTS: [(&str, u8); 4] = [("mount", 0), ("mount", 1), ("mount", 2), ("umount2", 0)];

/// Clauses: what each does, and its probes.
#[derive(Default)]
struct Clauses(BTreeMap<(u8, String), Vec<String>>);

impl Clauses {
    /// A clause of a probe. Those of a lower `rank` come first.
    fn add(&mut self, rank: u8, body: String, probe: &ProbeDesc) {
        self.0.entry((rank, body)).or_default().push(probe.to_string());
    }
}

/// The text of the program that captures all of a program's probes. `Err`: there is nothing to
/// capture.
pub(super) fn program(asked: &Program, captures: Captures, target: u64) -> Result<String, String> {
    let mut clauses = Clauses::default();
    let mut seen = std::collections::HashSet::new();
    let described = asked.checked.clauses.iter().flat_map(|clause| clause.described());
    for probe in described.filter(|probe| seen.insert(probe.id.0)) {
        add(&mut clauses, asked, &probe.desc, captures, target);
    }
    if clauses.0.is_empty() {
        return Err("no probe matches".into());
    }
    // The process of the tracer, and the times.
    let mut text = String::new();
    for n in 0..ARGS_MAX {
        let _ = writeln!(text, "self uint64_t __text{n};");
    }
    let _ = writeln!(text, "BEGIN, END {{ {COMMON} }}");
    for ((_, body), probes) in clauses.0 {
        let _ = writeln!(text, "{}\n{body}", probes.join(",\n"));
    }
    Ok(text)
}

/// Adds the clauses of a probe.
fn add(clauses: &mut Clauses, asked: &Program, probe: &ProbeDesc, captures: Captures, target: u64) {
    use providers::Role;
    if asked.registry.role(probe) != Role::Probe {
        return;
    }
    let args = asked.registry.args(probe);
    let known = args.as_deref().unwrap_or_default();
    let count = match &args {
        Ok(args) => args.iter().map(|arg| arg.from.saturating_add(1)).max().unwrap_or(0).min(ARGS_MAX),
        Err(_) => UNKNOWN_ARGS,
    };
    let mut body = format!("{{ {COMMON}");
    let is_string =
        |n: u8| known.iter().any(|arg| arg.from == n && arg.native == TypeRef::Text("string".into()));
    for n in (0..count).filter(|n| !is_string(*n)) {
        let _ = write!(body, " trace(arg{n});");
    }
    if target != 0 {
        body.push_str(" trace(progenyof($target));");
    }
    body.push_str(" }");
    clauses.add(0, body, probe);
    for (n, arg) in (0..ARGS_MAX).zip(known) {
        add_arg(clauses, probe, n, arg);
    }
    // Where processes and programs begin and end.
    let begins = &*probe.provider == "proc";
    if begins || captures.psinfo {
        for (what, name) in [("psinfo_t", "curpsinfo"), ("lwpsinfo_t", "curlwpsinfo")] {
            clauses.add(4, members(name, what), probe);
        }
    }
    if begins {
        clauses.add(4, "{ trace(curpsinfo->pr_psargs); }".into(), probe);
    }
    if captures.stack {
        clauses.add(5, "{ stack(); trace(caller); trace(stackdepth); }".into(), probe);
    }
    if captures.ustack {
        clauses.add(5, "{ ustack(); trace(ucaller); trace(ustackdepth); }".into(), probe);
    }
    if asked.registry.calls(&probe.provider) != Calls::System {
        return;
    }
    let call = &*probe.function;
    let is_entry = &*probe.name == "entry";
    let entry = ProbeDesc::new(probe.provider.clone(), probe.module.clone(), probe.function.clone(), "entry");
    let args = asked.registry.args(&entry);
    for (n, arg) in (0..ARGS_MAX).zip(args.as_deref().unwrap_or_default()) {
        if !is_text(call, n, arg) {
            continue;
        }
        let body = match is_entry {
            true => format!("{{ self->__text{n} = arg{n}; trace(copyinstr(arg{n})); }}"),
            false => format!(
                "/self->__text{n}/ {{ this->__text = self->__text{n}; self->__text{n} = 0; trace(copyinstr(this->__text)); }}"
            ),
        };
        clauses.add(if is_entry { 2 } else { 3 }, body, probe);
    }
}

/// True for an argument of a system call that is a text: a path, a name.
fn is_text(call: &str, n: u8, arg: &ArgType) -> bool {
    let at = (call, n);
    let TypeRef::Text(text) = &arg.native else { return TEXTS.contains(&at) };
    TEXTS.contains(&at) || text == "const char *" && !DATA.contains(&at)
}

/// Adds the clause of what `args[n]` is made of.
fn add_arg(clauses: &mut Clauses, probe: &ProbeDesc, n: u8, arg: &ArgType) {
    let shown = match (&arg.translated, &arg.native) {
        (Some(TypeRef::Text(text)), _) => text,
        (None, TypeRef::Text(text)) if text == "string" => text,
        _ => return,
    };
    match shown.strip_suffix('*') {
        None => clauses.add(1, format!("{{ trace(args[{n}]); }}"), probe),
        Some(what) if row(what.trim()).is_some() => {
            clauses.add(1, members(&format!("args[{n}]"), what.trim()), probe);
        }
        // Its address is an argument.
        Some(_) => {}
    }
}

/// The row of a type.
fn row(what: &str) -> Option<impl Iterator<Item = &'static str>> {
    let rows = MEMBERS.lines().map(str::split_whitespace);
    rows.into_iter().find_map(|mut row| (row.next() == Some(what)).then_some(row))
}

/// A clause that reads the members of a struct.
fn members(of: &str, what: &str) -> String {
    let mut body = "{".to_owned();
    for member in row(what).into_iter().flatten() {
        let _ = write!(body, " trace({of}->{member});");
    }
    body.push_str(" }");
    body
}
