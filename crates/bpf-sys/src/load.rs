//! Loading: from code to a loaded program, and from a verifier error back to the D text.
//!
//! A program is loaded with the types of its functions (so that global functions are verified once)
//! and its source lines, in a BTF object of its own. The kernel's log numbers instructions as we
//! do. The last instruction that the log names leads through our own line table to the D text that
//! caused it. A [`LoadError`] shows that text and the end of the log. The `;` comments that the
//! kernel prints from the same lines are for human readers only, because their format changed
//! twice.

use crate::btf::{Builder, Linkage, TypeId};
use crate::disasm;
use crate::insn::INSTRUCTIONS_MAX;
use crate::insn::Insn;
use crate::system::Lockdown;
use crate::{
    AttachType, BtfObject, FuncInfo, LineInfo, LoadFailure, Prog, ProgKind, ProgSpec, SLEEPABLE, SysError,
};
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::AsFd;

/// The type of a subprogram's parameter, as the verifier knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Param {
    /// A number. In a subprogram that is verified at each call, any value.
    Word,
    /// The address of so many bytes that may be read and written.
    Memory(u32),
}

impl std::fmt::Display for Param {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Param::Word => f.write_str("word"),
            Param::Memory(bytes) => write!(f, "memory {bytes}"),
        }
    }
}

/// A function of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subprogram {
    /// Its name.
    pub name: String,
    /// Its first slot.
    pub start: u32,
    /// Parameters, at most five. The parameter of the first function is the context.
    pub params: Vec<Param>,
    /// The function is verified on its own, once.
    pub global: bool,
}

/// The source of the code from a slot on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceLine {
    /// Name of the script.
    pub file: String,
    /// Line number from 1, as shown to the user.
    pub line: u64,
    /// Column from 1.
    pub column: u32,
    /// The whole line.
    pub text: String,
}

/// A program ready to load.
#[derive(Clone, Debug)]
pub struct ProgramImage {
    /// The name in the kernel's lists and in our messages.
    pub name: String,
    /// The program's kind.
    pub kind: ProgKind,
    /// The attach type.
    pub attach: AttachType,
    /// BTF id of the attach target, for tracing programs, else 0.
    pub attach_btf_id: u32,
    /// The program may sleep.
    pub sleepable: bool,
    /// The code, with map references already replaced by descriptors.
    pub insns: Vec<Insn>,
    /// Slots whose immediate is the number of the copy.
    pub copies: Vec<u32>,
    /// The functions in order, the first at slot 0. Empty when there is only one.
    pub funcs: Vec<Subprogram>,
    /// The source lines in order of slots.
    pub lines: Vec<(u32, SourceLine)>,
}

impl ProgramImage {
    /// A program of one function without lines.
    pub fn new(name: &str, kind: ProgKind, insns: Vec<Insn>) -> ProgramImage {
        ProgramImage {
            name: name.to_owned(),
            kind,
            attach: AttachType::None,
            attach_btf_id: 0,
            sleepable: false,
            insns,
            copies: Vec::new(),
            funcs: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// Replaces the map reference at slot `at` by `fd`. False when there is none.
    #[must_use]
    pub fn relocate(&mut self, at: u32, fd: i32) -> bool {
        match self.insns.get_mut(at as usize) {
            Some(insn) if insn.is_wide() && matches!(insn.src(), 1 | 2) => {
                insn.imm = fd;
                true
            }
            _ => false,
        }
    }

    /// The source of the instruction at a slot.
    pub fn source_of(&self, slot: u32) -> Option<&SourceLine> {
        let after = self.lines.partition_point(|(at, _)| *at <= slot);
        let (at, line) = self.lines.get(after.checked_sub(1)?)?;
        // A line ends at the next function.
        let crossed = self.funcs.iter().any(|f| f.start > *at && f.start <= slot);
        (!crossed).then_some(line)
    }

    /// Loads the program. With a `log_level` above 0 the log is returned on success too.
    pub fn load(&self, log_level: u32) -> Result<Loaded, Box<LoadError>> {
        let info = self.debug_info().map_err(|error| Box::new(LoadError::early(&self.name, error)))?;
        self.load_with(info.as_ref(), log_level)
    }

    /// Loads several copies, each of which knows its number, until `each` returns false. Their
    /// debug information is created once.
    pub fn load_copies(
        &mut self,
        count: u32,
        log_level: u32,
        mut each: impl FnMut(Prog) -> bool,
    ) -> Result<(), Box<LoadError>> {
        let info = self.debug_info().map_err(|error| Box::new(LoadError::early(&self.name, error)))?;
        for number in 0..count {
            for at in &self.copies {
                if let Some(insn) = self.insns.get_mut(*at as usize) {
                    insn.imm = number as i32;
                }
            }
            if !each(self.load_with(info.as_ref(), log_level)?.prog) {
                break;
            }
        }
        Ok(())
    }

    /// Loads the program once for each of these targets (BTF ids) until `each` returns false. The
    /// debug information is created once.
    pub fn load_for(
        &mut self,
        targets: impl Iterator<Item = u32>,
        mut each: impl FnMut(Result<Prog, Box<LoadError>>) -> bool,
    ) -> Result<(), Box<LoadError>> {
        let info = self.debug_info().map_err(|error| Box::new(LoadError::early(&self.name, error)))?;
        for target in targets {
            self.attach_btf_id = target;
            if !each(self.load_with(info.as_ref(), 0).map(|l| l.prog)) {
                break;
            }
        }
        Ok(())
    }

    fn load_with(&self, info: Option<&DebugInfo>, log_level: u32) -> Result<Loaded, Box<LoadError>> {
        let mut spec = ProgSpec::new(self.kind, &self.name, &self.insns);
        spec.attach = self.attach;
        spec.attach_btf_id = self.attach_btf_id;
        spec.log_level = log_level;
        spec.flags = if self.sleepable { SLEEPABLE } else { 0 };
        if let Some(info) = info {
            spec.btf = Some(info.btf.as_fd());
            spec.funcs = &info.funcs;
            spec.lines = &info.lines;
        }
        match Prog::load_logged(&spec) {
            Ok((prog, log)) => Ok(Loaded { prog, log }),
            Err(refusal) => Err(Box::new(LoadError::explain(self, *refusal))),
        }
    }

    /// BTF, functions and lines in the kernel's format. `None` when there are none.
    fn debug_info(&self) -> Result<Option<DebugInfo>, SysError> {
        if self.funcs.is_empty() && self.lines.is_empty() {
            return Ok(None);
        }
        let mut b = Builder::new();
        let (int, word) = (b.i32(), b.u64());
        let context = b.ptr(word);
        let only =
            [Subprogram { name: self.name.clone(), start: 0, params: vec![Param::Word], global: true }];
        let declared: &[Subprogram] = if self.funcs.is_empty() { &only } else { &self.funcs };
        let mut funcs = Vec::with_capacity(declared.len());
        let mut memory: BTreeMap<u32, TypeId> = BTreeMap::new();
        for f in declared {
            const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
            let params: Vec<(&str, TypeId)> = if f.start == 0 {
                vec![("ctx", context)]
            } else {
                let kind = |p: &Param| match p {
                    Param::Word => word,
                    Param::Memory(bytes) => *memory.entry(*bytes).or_insert_with(|| {
                        let words = b.words(&format!("dt_bytes_{bytes}"), bytes.div_ceil(8));
                        b.ptr(words)
                    }),
                };
                NAMES.into_iter().zip(f.params.iter().map(kind)).collect()
            };
            let proto = b.func_proto(int, &params);
            let linkage = if f.global { Linkage::Global } else { Linkage::Static };
            funcs.push(FuncInfo { insn: f.start, type_id: b.func(&f.name, proto, linkage).0 });
        }
        let lines = self.line_table(&mut b, declared);
        Ok(Some(DebugInfo { btf: b.load()?, funcs, lines }))
    }

    /// The kernel requires ascending slots, none in the middle of a wide instruction, and one at
    /// each function's start.
    fn line_table(&self, b: &mut Builder, funcs: &[Subprogram]) -> Vec<LineInfo> {
        if self.lines.is_empty() {
            return Vec::new();
        }
        // The kernel stores the line in 22 bits and the column in 10.
        const LINE_MAX: u32 = (1 << 22) - 1;
        const COLUMN_MAX: u32 = (1 << 10) - 1;
        let mut table: Vec<LineInfo> = Vec::with_capacity(self.lines.len() + funcs.len());
        let mut given = self.lines.iter().peekable();
        let mut starts = funcs.iter().map(|f| f.start).peekable();
        let mut slot = 0u32;
        while let Some(insn) = self.insns.get(slot as usize) {
            let mut line = None;
            while let Some((_, l)) = given.next_if(|(at, _)| *at <= slot) {
                line = Some(l);
            }
            let starts_here = starts.next_if(|s| *s <= slot).is_some();
            if let Some(l) = line {
                let (file, text) = (b.string(&l.file).0, b.string(l.text.trim()).0);
                let line = u32::try_from(l.line).unwrap_or(LINE_MAX).min(LINE_MAX);
                let line_col = line << 10 | l.column.min(COLUMN_MAX);
                table.push(LineInfo { insn: slot, file, line: text, line_col });
            } else if starts_here {
                table.push(LineInfo { insn: slot, file: 0, line: 0, line_col: 0 });
            }
            slot += 1 + u32::from(insn.is_wide());
        }
        table
    }
}

struct DebugInfo {
    btf: BtfObject,
    funcs: Vec<FuncInfo>,
    lines: Vec<LineInfo>,
}

/// A loaded program.
#[derive(Debug)]
pub struct Loaded {
    /// The program.
    pub prog: Prog,
    /// The verifier's log, when one was requested.
    pub log: String,
}

/// A program that failed to load. The cause is a missing privilege or facility, or else a bug of
/// ours.
#[derive(Clone, Debug)]
pub struct LoadError {
    /// The program's name.
    pub program: String,
    /// The attempt and the errno.
    pub error: SysError,
    /// The D text of the instruction at which the verifier stopped.
    pub source: Option<SourceLine>,
    /// That instruction: its slot and text.
    pub insn: Option<(u32, String)>,
    /// The verifier's reason: the last line before the statistics.
    pub reason: Option<String>,
    /// The whole log.
    pub log: String,
}

/// Number of log lines that an error shows.
const TAIL: usize = 12;

impl LoadError {
    fn early(program: &str, error: SysError) -> LoadError {
        LoadError {
            program: program.to_owned(),
            error,
            source: None,
            insn: None,
            reason: None,
            log: String::new(),
        }
    }

    fn explain(image: &ProgramImage, refusal: LoadFailure) -> LoadError {
        let slot = last_slot(&refusal.log).filter(|s| (*s as usize) < image.insns.len());
        LoadError {
            program: image.name.clone(),
            error: refusal.error,
            source: slot.and_then(|s| image.source_of(s)).cloned(),
            insn: slot.map(|s| (s, disasm::one(&image.insns, s as usize).0)),
            reason: reason(&refusal.log),
            log: refusal.log,
        }
    }

    /// The last lines of the log.
    pub fn tail(&self) -> impl Iterator<Item = &str> {
        let count = self.log.lines().count();
        self.log.lines().skip(count.saturating_sub(TAIL))
    }

    /// True when the program exceeds the number of instructions that the verifier processes.
    pub fn is_too_complex(&self) -> bool {
        let limits = ["program is too large", "jumps is too complex", "too many states"];
        self.reason.as_deref().is_some_and(|r| limits.iter().any(|l| r.contains(l)))
    }

    /// True when the verifier checked the program and rejected it, because of a bug of ours or a
    /// limit of the kernel.
    pub fn is_rejection(&self) -> bool {
        !self.log.is_empty() && !self.is_locked_down()
    }

    /// True when the program reads kernel memory and the kernel is locked down (confidentiality).
    /// The verifier then does not know the helpers.
    pub fn is_locked_down(&self) -> bool {
        let unknown = |r: &String| r.contains("cannot use helper") || r.contains("unknown func");
        self.reason.as_ref().is_some_and(|r| unknown(r) && r.contains("bpf_probe_read_kernel"))
            && Lockdown::of_this_kernel() == Lockdown::Confidentiality
    }
}

impl LoadError {
    fn place(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(s) = &self.source else { return Ok(()) };
        write!(f, "\n  --> {}:{}:{}\n   | {}", s.file, s.line, s.column, s.text.trim_end())
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_locked_down() {
            write!(f, "this kernel is locked down (confidentiality): no program may read kernel memory")?;
            return self.place(f);
        }
        if !self.is_rejection() {
            return self.error.fmt(f);
        }
        write!(f, "the kernel refused program \"{}\"", self.program)?;
        match &self.reason {
            Some(reason) => write!(f, ": {reason}")?,
            None => write!(f, ": {}", self.error)?,
        }
        if self.is_too_complex() {
            write!(
                f,
                "\n   = it walks {INSTRUCTIONS_MAX} steps at most: let fewer, or smaller, clauses share a probe"
            )?;
        }
        self.place(f)?;
        if let Some((slot, text)) = &self.insn {
            write!(f, "\n   = instruction {slot}: {text}")?;
        }
        for line in self.tail() {
            write!(f, "\n   ! {line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadError {}

/// The slot of the last instruction that the log names, as in `12: (79) r1 = ...`.
fn last_slot(log: &str) -> Option<u32> {
    log.lines().rev().find_map(|line| {
        let (number, rest) = line.split_once(": (")?;
        let code = rest.get(..3)?;
        (code.ends_with(')') && code[..2].chars().all(|c| c.is_ascii_hexdigit()))
            .then(|| number.trim().parse().ok())
            .flatten()
    })
}

/// The last line that is neither statistics nor an instruction.
fn reason(log: &str) -> Option<String> {
    const STATISTICS: [&str; 5] =
        ["processed ", "insns processed ", "verification time", "stack depth", "max_states"];
    log.lines()
        .rev()
        .find(|line| !line.trim().is_empty() && !STATISTICS.iter().any(|s| line.starts_with(s)))
        .map(|line| line.trim().to_owned())
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
