//! The state of a checking run: symbol tables, the current clause, and common error messages.
//!
//! All programs of a session share one table of variables and aggregations, filled in text order. A
//! variable has the type of its first assignment, and a use before that is an error, as in the
//! original. If the first assignment of a variable is itself an error, the variable is *poisoned*:
//! later uses fail silently, so that one error causes one message.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use diagnostics::{Diagnostic, Sink, SourceMap, Span, Tag, nearest};
use plane::desc::{AggFunc, AggId, LayoutBuilder};
use probes::{Attributes, Catalog, Pattern, ProbeInfo, Version};
use syntax::Libraries;
use types::{Kind, TagKind, TypeId, Types};

use crate::args::ArgsContext;
use crate::attributes::PragmaAttributes;
use crate::columns::Column;
use crate::deferred::DeferralState;
use crate::defined::{Defined, Definition};
use crate::derivations::Derivations;
use crate::derive::{DerivedProbe, ProgramDerivations};
use crate::inline::{Expansions, InlineInfo};
use crate::library::UnusedItems;
use crate::program::{Clause, ClausePattern, Derived, Expr, Repr, Scope, VarId};
use crate::record::{Record, Visibility};
use crate::recovery::Recovery;
use crate::symbols::Symbols;
use crate::tables;
use crate::translate::{StoredTranslation, Translator};

/// The inputs of checking.
pub struct Context<'a> {
    /// Types of D, of the programs, and of the kernel.
    pub types: &'a Types,
    /// Probes.
    pub catalog: &'a dyn Catalog,
    /// The kernel's symbols.
    pub symbols: &'a dyn Symbols,
    /// The source texts, for line numbers in messages.
    pub map: &'a SourceMap,
    /// The D libraries.
    pub libraries: &'a Libraries,
    /// The definitions that the files of processes have of their probes.
    pub definitions: &'a [Definition],
    /// Options.
    pub options: Options,
}

/// Options that affect the meaning of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of a string; rounded up to a multiple of 8.
    pub strsize: u32,
    /// `-Z`: a description may match no probe.
    pub zdefs: bool,
    /// A program without clauses is not an error.
    pub empty: bool,
    /// Frames of `stack()`.
    pub stackframes: u32,
    /// Frames of `ustack()`.
    pub ustackframes: u32,
    /// Default number of frames of `jstack()`.
    pub jstackframes: u32,
    /// Default size of the strings that `jstack()` may record.
    pub jstackstrsize: u32,
    /// Bytes that `pcap()` records of a packet.
    pub pcapsize: u32,
    /// Operands of the command (`$1` first), to detect those that no program references.
    pub operands: Vec<String>,
    /// True if there is a `$target`, for whose addresses `%A` prints names.
    pub target: bool,
    /// The process id of `$target`; 0 if there is none.
    pub target_pid: u32,
    /// Unreferenced operands are not an error.
    pub argref: bool,
    /// Facts about the machine for D libraries. Determined when a program uses them.
    pub facts: FactsReader,
    /// Restricts clauses to this CPU.
    pub cpu: Option<u64>,
    /// Records have the ids of the process and the thread.
    pub process_ids: bool,
    /// Using an identifier with lower attributes is an error.
    pub amin: Option<Attributes>,
    /// Identifiers that are newer are undefined.
    pub version: Option<Version>,
}

/// Facts about the machine when the session begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Nanoseconds from 1970 to the boot.
    pub boottime: i64,
    /// Bytes of a page.
    pub pagesize: u64,
    /// Nanoseconds between two ticks of the kernel.
    pub tick: u64,
    /// Inode of the tracer's pid namespace; 0 for the initial one.
    pub pid_namespace: u32,
    /// Package and NUMA node of each CPU, by CPU number; -1 if there is none.
    pub cpus: Vec<(i32, i32)>,
    /// The machine name, as of `uname -m`.
    pub processor_type: String,
    /// The type of the floating-point unit.
    pub fputypes: String,
    /// MHz of each CPU.
    pub clocks: ClocksReader,
}

/// A function that is called when a program uses what it returns.
#[derive(Clone)]
pub struct Reader<T>(Arc<dyn Fn() -> T + Send + Sync>);

/// Returns the clock of each CPU. It takes long on a machine with many CPUs.
pub type ClocksReader = Reader<Vec<i32>>;

/// Returns [`Facts`].
pub type FactsReader = Reader<Facts>;

impl<T> Reader<T> {
    /// Calls this function.
    pub fn new(read: impl Fn() -> T + Send + Sync + 'static) -> Reader<T> {
        Reader(Arc::new(read))
    }

    /// What the function returns.
    pub fn read(&self) -> T {
        (self.0)()
    }
}

impl<T: Default + 'static> Default for Reader<T> {
    fn default() -> Self {
        Reader::new(T::default)
    }
}

impl<T> std::fmt::Debug for Reader<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reader")
    }
}

impl<T> PartialEq for Reader<T> {
    /// What is read belongs to the machine, of which a program has one: all values are equal.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Reader<T> {}

impl Default for Options {
    fn default() -> Self {
        Self {
            strsize: 256,
            zdefs: false,
            empty: false,
            stackframes: 20,
            ustackframes: 100,
            jstackframes: 50,
            jstackstrsize: 512,
            pcapsize: 1514,
            operands: Vec::new(),
            target: false,
            target_pid: 0,
            argref: false,
            facts: FactsReader::default(),
            cpu: None,
            process_ids: false,
            amin: None,
            version: None,
        }
    }
}

/// An error has been reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorReported;

pub(crate) type CheckResult<T> = Result<T, ErrorReported>;

/// What is known about a variable's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VarType {
    /// Its first assignment is being checked.
    Pending,
    /// Its first assignment was an error.
    Poisoned,
    /// Known.
    Known(TypeId, Repr),
}

/// A variable.
#[derive(Clone, Debug)]
pub(crate) struct VarInfo {
    pub(crate) name: String,
    pub(crate) scope: Scope,
    pub(crate) ty: VarType,
    /// Type (for messages and conversions) and column of each key.
    pub(crate) key: Option<Vec<(TypeId, Column)>>,
    /// Set if it holds a translated pointer; then `ty` is `<DYN>`.
    pub(crate) translated: Option<StoredTranslation>,
}

impl VarInfo {
    pub(crate) fn full_name(&self) -> String {
        let name = self.name.rsplit_once('%').map_or(self.name.as_str(), |(_, name)| name);
        format!("{}{name}", self.scope.prefix())
    }

    pub(crate) fn kind_word(&self) -> &'static str {
        if self.key.is_some() { "associative array" } else { "scalar" }
    }
}

/// An aggregation.
#[derive(Clone, Debug)]
pub(crate) struct AggInfo {
    pub(crate) name: String,
    pub(crate) func: AggFunc,
    pub(crate) key: Vec<(TypeId, Column)>,
    /// The expressions of the key; empty where the statements of the aggregation differ.
    pub(crate) key_names: Vec<Arc<str>>,
    pub(crate) span: Span,
}

/// What of speculations the statements of a clause have done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpeculationState {
    pub(crate) speculates: bool,
    pub(crate) commits: bool,
    /// A data-recording action or an aggregation.
    pub(crate) records: bool,
    /// A destructive action that records. The original does not count it as data-recording.
    pub(crate) records_effect: bool,
}

/// Where names of variables are not those of the program. The prefix distinguishes them.
#[derive(Clone, Debug)]
pub(crate) enum NameSpace {
    /// In a clause of a library: all variables are the library's.
    Library(String),
    /// In a clause of a derived probe: it has its own clause-local variables.
    Locals(String),
}

/// What the parts of a clause have in common.
pub(crate) struct ClauseContext {
    pub(crate) span: Span,
    pub(crate) program: usize,
    pub(crate) patterns: Vec<ClausePattern>,
    pub(crate) probes: Arc<[ProbeInfo]>,
    pub(crate) derived: Option<Derived>,
    /// It is checked again, for another base of a derived probe.
    pub(crate) again: bool,
}

/// The current clause.
#[derive(Debug)]
pub(crate) struct ClauseState {
    pub(crate) layout: LayoutBuilder,
    pub(crate) actions: Vec<plane::desc::Action>,
    /// For each action, the expressions of its values.
    pub(crate) names: Vec<Vec<Arc<str>>>,
    pub(crate) attributes: Attributes,
    /// True if something in it needs `-w`.
    pub(crate) destructive: bool,
    /// What of speculations it has done so far.
    pub(crate) speculation: SpeculationState,
}

pub(crate) struct Checker<'a> {
    pub(crate) cx: &'a Context<'a>,
    pub(crate) visibility: &'a dyn Visibility,
    /// What the descriptions of libraries meant, of all programs that are checked.
    pub(crate) record: Record,
    pub(crate) types: &'a Types,
    pub(crate) sink: &'a mut Sink,
    pub(crate) strsize: u32,
    pub(crate) vars: Vec<VarInfo>,
    pub(crate) var_names: HashMap<(Scope, String), VarId>,
    pub(crate) aggs: Vec<AggInfo>,
    /// Aggregations by name; `None` if the first use was an error.
    pub(crate) agg_names: HashMap<String, Option<AggId>>,
    /// Aggregations whose first use was an error, in order.
    pub(crate) bad_aggs: Vec<String>,
    /// Enumerators that the programs declare.
    pub(crate) enumerators: HashSet<String>,
    pub(crate) inlines: HashMap<String, InlineInfo>,
    pub(crate) expansions: Expansions,
    pub(crate) translators: Vec<Translator>,
    /// Indexes of translators, by the tag of the type that they produce.
    pub(crate) translators_by_tag: HashMap<Option<Arc<str>>, Vec<usize>>,
    /// Names bound to expressions while a stored tree is checked. Only the last set is visible.
    pub(crate) bound: Vec<HashMap<String, Expr>>,
    pub(crate) next_bound: u32,
    /// The bound values that have all 64 bits of a variable, whatever their type.
    pub(crate) whole_bound: HashSet<u32>,
    /// Items of libraries that have not been used yet.
    pub(crate) library_items: UnusedItems<'a>,
    /// Attributes and versions that pragmas set.
    pub(crate) pragmas: PragmaAttributes,
    /// Nonzero while uses do not count for the clause that contains them.
    pub(crate) suspended: u32,
    /// Nesting of inlines in inlines.
    pub(crate) depth: u32,
    /// Probes that descriptions match. Many clauses have the same description, which may match all
    /// functions of the kernel.
    pub(crate) matched: HashMap<Pattern, Arc<[ProbeInfo]>>,
    pub(crate) clauses: Vec<Clause>,
    pub(crate) clause: ClauseState,
    pub(crate) args: ArgsContext,
    /// The probes that the libraries declare, and what the current program uses of them.
    pub(crate) derivations: Derivations<'a>,
    pub(crate) derived: ProgramDerivations,
    /// The number of the current program.
    pub(crate) number: usize,
    /// In a clause of a derived probe: the probe, and the condition under which it fires.
    pub(crate) firing: Option<DerivedProbe>,
    pub(crate) guard: Option<Expr>,
    pub(crate) space: Option<NameSpace>,
    pub(crate) deferral: DeferralState,
    pub(crate) recovery: Recovery,
    pub(crate) defined: Defined,
}

impl<'a> Checker<'a> {
    pub(crate) fn new(cx: &'a Context<'a>, visibility: &'a dyn Visibility, sink: &'a mut Sink) -> Self {
        let strsize = cx.options.strsize.clamp(1, 1 << 20);
        cx.types.set_strsize(u64::from(strsize));
        let recovery = Recovery::new(sink);
        let derivations = Derivations::new(cx.libraries.parsed(), sink);
        Self {
            cx,
            visibility,
            record: visibility.record().cloned().unwrap_or_default(),
            types: cx.types,
            sink,
            strsize,
            vars: Vec::new(),
            var_names: HashMap::new(),
            aggs: Vec::new(),
            agg_names: HashMap::new(),
            bad_aggs: Vec::new(),
            enumerators: HashSet::new(),
            inlines: HashMap::new(),
            expansions: Expansions::default(),
            translators: Vec::new(),
            translators_by_tag: HashMap::new(),
            bound: Vec::new(),
            next_bound: 0,
            whole_bound: HashSet::new(),
            library_items: UnusedItems::new(cx.libraries.parsed()),
            pragmas: PragmaAttributes::default(),
            suspended: 0,
            depth: 0,
            clauses: Vec::new(),
            clause: ClauseState {
                layout: LayoutBuilder::default(),
                actions: Vec::new(),
                names: Vec::new(),
                attributes: Attributes::STABLE,
                destructive: false,
                speculation: SpeculationState::default(),
            },
            args: ArgsContext::default(),
            derivations,
            derived: ProgramDerivations::default(),
            number: 0,
            firing: None,
            guard: None,
            space: None,
            deferral: DeferralState::default(),
            recovery,
            defined: Defined::default(),
            matched: HashMap::new(),
        }
    }

    /// Reports an error.
    pub(crate) fn fail<T>(&mut self, tag: Tag, span: Span, message: impl Into<String>) -> CheckResult<T> {
        self.sink.error(tag, span, message);
        Err(ErrorReported)
    }

    /// Reports an error, with a hint if there is one.
    pub(crate) fn fail_with<T>(
        &mut self,
        tag: Tag,
        span: Span,
        message: impl Into<String>,
        help: Option<String>,
    ) -> CheckResult<T> {
        self.fail_by(Diagnostic::new(tag, span, message), help)
    }

    /// Reports this error, with a hint if there is one.
    pub(crate) fn fail_by<T>(&mut self, error: Diagnostic, help: Option<String>) -> CheckResult<T> {
        self.sink.push(match help {
            Some(help) => error.with_help(help),
            None => error,
        });
        Err(ErrorReported)
    }

    /// Reports valid D that this version does not support.
    pub(crate) fn unsupported<T>(&mut self, span: Span, what: impl std::fmt::Display) -> CheckResult<T> {
        self.fail(Tag::D_UNSUPPORTED, span, format!("{what} is not supported yet"))
    }

    pub(crate) fn name(&self, ty: TypeId) -> String {
        self.types.name(ty)
    }

    /// The representation of a value of this type in a variable, a record or a key; `None` if it
    /// has none.
    pub(crate) fn repr(&self, ty: TypeId) -> Option<Repr> {
        if self.types.is_string(ty) {
            return Some(Repr::Str);
        }
        if let Some(int) = self.types.as_int(ty) {
            return Some(Repr::Int { size: int.size, signed: int.signed });
        }
        matches!(self.types.base_kind(ty), Kind::Pointer { .. })
            .then_some(Repr::Int { size: 8, signed: false })
    }

    pub(crate) fn var(&self, scope: Scope, name: &str) -> Option<VarId> {
        self.var_names.get(&(scope, self.full_name(scope, name))).copied()
    }

    /// The name of a variable in the table: where names are not those of the program, it has a
    /// prefix.
    fn full_name(&self, scope: Scope, name: &str) -> String {
        match &self.space {
            Some(NameSpace::Library(prefix)) if !name.starts_with('%') => format!("{prefix}%{name}"),
            Some(NameSpace::Locals(prefix)) if scope == Scope::Clause && !name.starts_with('%') => {
                format!("{prefix}%{name}")
            }
            _ => name.to_string(),
        }
    }

    pub(crate) fn add_var(
        &mut self,
        scope: Scope,
        name: &str,
        ty: VarType,
        key: Option<Vec<(TypeId, Column)>>,
    ) -> VarId {
        let id = VarId(self.vars.len() as u32);
        let name = self.full_name(scope, name);
        self.vars.push(VarInfo { name: name.clone(), scope, ty, key, translated: None });
        self.var_names.insert((scope, name), id);
        id
    }

    pub(crate) fn var_info(&self, id: VarId) -> &VarInfo {
        &self.vars[id.0 as usize]
    }

    pub(crate) fn agg(&self, name: &str) -> Option<AggId> {
        self.agg_names.get(name).copied().flatten()
    }

    /// Marks an aggregation whose first use is an error.
    pub(crate) fn is_bad_agg(&self, name: &str) -> bool {
        matches!(self.agg_names.get(name), Some(None))
    }

    pub(crate) fn add_bad_agg(&mut self, name: String) {
        if !self.agg_names.contains_key(&name) {
            self.agg_names.insert(name.clone(), None);
            self.bad_aggs.push(name);
        }
    }

    pub(crate) fn add_agg(&mut self, info: AggInfo) -> AggId {
        let id = AggId(self.aggs.len() as u32);
        self.agg_names.insert(info.name.clone(), Some(id));
        self.aggs.push(info);
        id
    }

    /// A hint for an undefined global name.
    pub(crate) fn near_name(&self, wrong: &str) -> Option<String> {
        if !self.sink.may_suggest() {
            return None;
        }
        let known = |v: &&VarInfo| matches!(v.ty, VarType::Known(..));
        let own =
            self.vars.iter().filter(known).filter(|v| v.scope == Scope::Global).map(|v| v.name.as_str());
        let words = tables::VARIABLES
            .iter()
            .filter(|r| !matches!(r.kind, tables::VariableKind::NotOnLinux(_)) && !self.is_too_new(r.name))
            .map(|r| r.name)
            .chain(own)
            .chain(self.inlines.keys().map(String::as_str))
            // One of a library that is not used, because what it depends on is not there, has this name.
            .chain(self.cx.libraries.words().filter(|word| *word != wrong));
        nearest(wrong, words).map(did_you_mean)
    }

    /// A hint for an undefined `self->` or `this->` name.
    pub(crate) fn near_var(&self, scope: Scope, wrong: &str) -> Option<String> {
        if !self.sink.may_suggest() {
            return None;
        }
        let known = |v: &&VarInfo| v.scope == scope && v.name != wrong && matches!(v.ty, VarType::Known(..));
        let known = |v: &&VarInfo| known(v) && !v.name.contains('%');
        let own = self.vars.iter().filter(known).map(|v| v.name.as_str());
        nearest(wrong, own).map(|n| did_you_mean(&format!("{}{n}", scope.prefix())))
    }

    /// A hint for an undefined struct, union, enum or (`None`) typedef.
    pub(crate) fn near_type(&self, kind: Option<TagKind>, wrong: &str) -> Option<String> {
        if let Some(error) = self.types.kernel_error() {
            return Some(format!("cannot read the kernel's types: {error}"));
        }
        if !self.sink.may_suggest() {
            return None;
        }
        let names = self.types.kernel_names_like(kind, wrong);
        let keyword = kind.map_or(String::new(), |k| format!("{} ", k.keyword()));
        nearest(wrong, names.iter().map(String::as_str)).map(|n| did_you_mean(&format!("{keyword}{n}")))
    }

    /// A hint for an unknown member of a struct or union.
    pub(crate) fn near_member(&self, ty: TypeId, wrong: &str) -> Option<String> {
        if !self.sink.may_suggest() {
            return None;
        }
        let names = self.types.member_names(ty);
        nearest(wrong, names.iter().map(|n| &**n)).map(did_you_mean)
    }

    /// A hint for a type that the program does not define.
    pub(crate) fn near_own_type(&self, wrong: &str) -> Option<String> {
        if !self.sink.may_suggest() {
            return None;
        }
        let names = self.types.declared_names();
        nearest(wrong, names.iter().map(|n| &**n)).map(did_you_mean)
    }

    /// A hint for a type that is declared but not defined.
    pub(crate) fn near_tag(&self, ty: TypeId) -> Option<String> {
        match self.types.base_kind(ty) {
            Kind::Sou { union, tag: Some(tag), .. } => {
                let foreign = crate::foreign::word(crate::foreign::Kind::Type, &tag);
                foreign.or_else(|| {
                    self.near_type(Some(if union { TagKind::Union } else { TagKind::Struct }), &tag)
                })
            }
            Kind::Enum { tag: Some(tag), .. } => self.near_type(Some(TagKind::Enum), &tag),
            _ => None,
        }
    }

    /// A hint for a module without types.
    pub(crate) fn near_module(&self, module: &str) -> Option<String> {
        let kernel = self.types.kernel()?;
        if kernel.vmlinux().is_err() || kernel.module(module).is_some() {
            return None;
        }
        if !self.sink.may_suggest() {
            return None;
        }
        let names = kernel.modules();
        let near = nearest(module, names.iter().map(String::as_str).chain(["vmlinux"])).map(did_you_mean);
        near.or_else(|| Some(format!("module {module} is not loaded, or has no types of its own")))
    }

    /// Marks a global name whose declaration was an error. Its uses report no further errors.
    pub(crate) fn poison_name(&mut self, scope: Scope, name: &str) {
        let taken = scope == Scope::Global
            && (tables::variable(name).is_some()
                || tables::function(name).is_some()
                || self.inlines.contains_key(name));
        if !taken && self.var(scope, name).is_none() {
            self.add_var(scope, name, VarType::Poisoned, None);
        }
    }

    /// A constant of this type.
    pub(crate) fn int(&self, value: i64, ty: TypeId, span: Span) -> Expr {
        Expr { kind: crate::program::ExprKind::Int(value), ty, span }
    }

    /// The type in a table row. `int` if the row names none that exists.
    pub(crate) fn row_type(&self, text: &str) -> TypeId {
        self.types.find(text).unwrap_or(TypeId::INT)
    }
}

pub(crate) fn did_you_mean(word: &str) -> String {
    format!("did you mean `{word}`?")
}
