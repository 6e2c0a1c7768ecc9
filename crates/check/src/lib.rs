//! Checks syntax trees against types and probes: names, scopes, prototypes, formats, record
//! layouts. The result is a checked program. This crate knows neither DIF nor BPF.
//!
//! ```text
//!  tables      the identifiers of D: built-in variables, functions, unsupported ones
//!  context     what checking gets
//!  state       what it knows: scopes, the clause that is checked, what descriptions match, …
//!  session     the checker, which has both, and its messages
//!  clause      descriptions (matched by the probe catalog), predicate, statements
//!  branch      if and else
//!  decl        types, variables;  inline: inlines and prototypes
//!  symbols     symbols of the kernel;  userland: types and variables of processes
//!  expr ops    expressions;  convert: values and widths
//!  places      variables and elements as assignment targets;  objects: memory as a target
//!  args        args[]: typed arguments of the probe
//!  derive      clauses for probes that libraries fire;  bases: what their descriptions match;  parameters: their types
//!  answers     what else of the system a program asks;  record: all that it was told, for when it is checked again
//!  defined     definitions that programs have of their providers;  defined/read_only: what these may say
//!  deferred    clauses that are deferred until they have probes
//!  attributes  stability and versions of identifiers, and their pragmas
//!  library     items of D libraries, at their first use
//!  call        prototypes and subroutines
//!  actions     actions that record;  printf: formats and types
//!  memory      trace(), print(), tracemem(): raw memory
//!  translate   translators, defined();  cpus: properties of CPUs;  runs: what a number is, by comparisons
//!  aggregates  @a[k] = f(x);  quantize: its parameters;  columns: key columns, joined over all uses
//!  names       expressions as the program writes them
//!  uses        what clauses use of which the meaning depends on their probes
//!  recovery    suppresses errors that only follow from other errors;  hints: names of other tracing languages;  foreign: words of other systems
//!  program     the result
//! ```
//!
//! The main design decision: one pass in text order over all programs of the session. D gives a
//! variable the type of its first assignment *in the text*, so the order has a meaning, and a
//! second pass could only invent types. (Within a clause, the actions are checked before the
//! predicate, as in the original; see `clause`.) The representation of key columns depends on all
//! uses. It is collected during the pass and determined at the end.
//!
//! Every statement is checked on its own: an error causes one message, and checking continues with
//! the next statement. A program with errors must not be lowered.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! context derivations foreign hints names state state/libraries uses
//! record
//! program state/matching
//! columns dump runs state/clause state/expansion state/recovery tables/rows
//! state/derived state/scopes tables/functions tables/variables
//! state/defined tables
//! defined/read_only session
//! answers args attributes bases deferred defined derive inline library parameters recovery symbols translate userland
//! call clause convert cpus decl enumerators objects printf quantize speculation
//! actions branch expr ops places
//! aggregates memory
//! ```

mod actions;
mod aggregates;
mod answers;
mod args;
mod attributes;
mod bases;
mod branch;
mod call;
mod clause;
mod columns;
mod context;
mod convert;
mod cpus;
mod decl;
mod deferred;
mod defined;
mod derivations;
mod derive;
pub mod dump;
mod enumerators;
mod expr;
mod foreign;
mod hints;
mod inline;
mod library;
mod memory;
mod names;
mod objects;
mod ops;
mod parameters;
mod places;
mod printf;
pub mod program;
mod quantize;
mod record;
mod recovery;
mod runs;
mod session;
mod speculation;
mod state;
mod symbols;
pub mod tables;
mod translate;
mod userland;
mod uses;

use diagnostics::{Diagnostic, Sink, Tag};
use plane::desc::AggDesc;
use syntax::ast::{Item, Program};

pub use context::{
    ClocksReader, Context, Definition, Facts, FactsReader, NoSymbol, Options, Reader, Symbols,
};
pub use defined::{declared, defined_types, definition_faults, not_used};
pub use derivations::pattern_of;
pub use program::Checked;
pub use record::{LaterBases, Record, Visibility};
pub use symbols::WELL_KNOWN;
pub use uses::{ClauseUses, uses};

use program::{Repr, Var};
use session::Checker;
use state::scopes::VarType;

/// Maximum number of keys of an array or aggregation. All keys are in registers and on the stack at
/// the same time.
const KEYS_MAX: usize = 48;
/// Maximum size of a key in bytes.
const KEY_BYTES_MAX: u32 = 256 << 10;

/// Checks the programs of one session, in the order of the command line. The result may be lowered
/// only if `sink` is empty and the check was not stopped.
pub fn check(programs: &[Program], cx: &Context<'_>, sink: &mut Sink) -> Checked {
    check_more(programs, 0, &|_, _| true, cx, sink)
}

/// Like [`check`], when the programs before `first` already run. They are checked again for their
/// declarations, and keep the numbers of their clauses, variables and aggregations. The operands
/// are those of the new programs.
pub fn check_more(
    programs: &[Program],
    first: usize,
    visibility: &dyn Visibility,
    cx: &Context<'_>,
    sink: &mut Sink,
) -> Checked {
    let mut checker = Checker::new(cx, visibility, sink);
    for library in cx.libraries.parsed() {
        checker.library_pragmas(&library.program);
    }
    checker.user_libraries();
    if first == 0 {
        checker.libraries_of_user();
    }
    checker.announce(programs.get(first..).unwrap_or_default());
    for (i, program) in programs.iter().enumerate() {
        checker.program(program, i);
    }
    checker.check_operands(programs.get(first..).unwrap_or_default());
    checker.check_key_sizes();
    Checked { uses: uses(programs), ..checker.finish() }
}

impl Checker<'_> {
    /// Tells the catalog which descriptions programs have, before it is asked for the first.
    fn announce(&self, programs: &[Program]) {
        let mut patterns = Vec::new();
        for item in programs.iter().flat_map(|program| &program.items) {
            if let Item::Clause(clause) = item {
                patterns.extend(clause.probes.iter().filter_map(pattern_of));
            }
        }
        if patterns.len() > 1 {
            self.cx.catalog.announce(&patterns);
        }
    }

    fn program(&mut self, program: &Program, index: usize) {
        let mut anything = false;
        self.doubt_unparsed(program);
        let from = self.clauses.len();
        self.matching.number = index;
        self.use_kernel_as_seen();
        self.derive_for(program);
        for item in &program.items {
            if self.stops() {
                return;
            }
            anything |= !matches!(item, Item::Pragma(_));
            self.recovering(item, |checker| match item {
                Item::Clause(clause) => checker.clause(clause, index),
                Item::Declaration(d) => checker.declaration(d),
                Item::Inline(inline) => checker.inline(inline),
                Item::Translator(t) => checker.translator(t),
                Item::Provider(p) => {
                    let message = format!("a program does not define providers: {}", p.name.text);
                    let help = "put the provider and the clauses that fire its probes into a file \
                        `NAME.d`, and give the directory with -L";
                    checker
                        .sink
                        .push(Diagnostic::new(Tag::D_UNSUPPORTED, p.name.span, message).with_help(help));
                }
                Item::Pragma(p) => checker.pragma(p, program),
            });
        }
        self.end_of_derived(from, index);
        self.unused_pragmas();
        if !anything && !self.cx.options.empty && self.sink.is_empty() {
            self.sink.error(Tag::D_EMPTY, program.span, "empty D program translation unit");
        }
    }

    /// Reports operands that no program references.
    fn check_operands(&mut self, programs: &[Program]) {
        if self.cx.options.argref || !self.sink.is_empty() {
            return;
        }
        for (i, text) in self.cx.options.operands.iter().enumerate() {
            let n = i + 1;
            let used = programs.iter().any(|p| p.operands_used.get(n).copied().unwrap_or(false));
            if !used {
                let message = format!("extraneous argument '{text}' (${n} is not referenced)");
                self.sink.push(Diagnostic::bare(Tag::D_MACRO_UNUSED, message));
            }
        }
    }

    /// Reports keys that are too large.
    fn check_key_sizes(&mut self) {
        let arrays = self.scopes.vars.iter().filter_map(|v| Some((v.full_name(), v.key.as_ref()?)));
        let aggs = self.scopes.aggs.iter().map(|a| (format!("@{}", a.name), &a.key));
        for (name, key) in arrays.chain(aggs) {
            let columns: Vec<_> = key.iter().map(|(_, c)| *c).collect();
            let (_, size) = columns::key_layout(&columns, self.cx.options.string_size());
            if columns.len() > KEYS_MAX || size > KEY_BYTES_MAX {
                let message = format!(
                    "Insufficient tuple registers to generate code: {name}[ ] has {} keys of {size} bytes, at most \
                     {KEYS_MAX} keys and {KEY_BYTES_MAX} bytes are allowed",
                    columns.len()
                );
                self.sink.push(Diagnostic::bare(Tag::D_NOREG, message));
            }
        }
    }

    fn finish(self) -> Checked {
        let strsize = self.cx.options.string_size();
        let vars = self
            .scopes
            .vars
            .iter()
            .map(|v| {
                let (ty, repr) = match v.ty {
                    VarType::Known(ty, repr) => (ty, repr),
                    _ => (types::TypeId::LONG, Repr::Int { size: 8, signed: true }),
                };
                let (key, key_size) = match &v.key {
                    None => (None, 0),
                    Some(columns) => {
                        let columns: Vec<_> = columns.iter().map(|(_, c)| *c).collect();
                        let (fields, size) = columns::key_layout(&columns, strsize);
                        (Some(fields), size)
                    }
                };
                Var {
                    name: v.name.clone(),
                    scope: v.scope,
                    ty,
                    type_name: self.types.name(v.translated.as_ref().map_or(ty, |t| self.stored_type(t))),
                    repr,
                    key,
                    key_size,
                }
            })
            .collect();
        let aggs = self
            .scopes
            .aggs
            .iter()
            .map(|a| {
                let columns: Vec<_> = a.key.iter().map(|(_, c)| *c).collect();
                let (key, key_size) = columns::key_layout(&columns, strsize);
                AggDesc { name: a.name.clone(), func: a.func, key, key_size }
            })
            .collect();
        let agg_unsigned = self.scopes.aggs.iter().map(|a| a.unsigned).collect();
        let agg_keys = self.scopes.aggs.into_iter().map(|a| a.key_names).collect();
        let left_out = self.defined.messages;
        Checked {
            clauses: self.clauses,
            vars,
            aggs,
            agg_keys,
            agg_unsigned,
            strsize,
            record: self.matching.record,
            left_out,
            is_stopped: self.is_stopped,
            uses: Vec::new(),
        }
    }
}
