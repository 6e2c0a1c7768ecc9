//! Random modules, well formed by construction, for differential tests. The tests compare the
//! optimizer (here) and the back end (in `bpf-runtime`) with the interpreter on these modules.
//!
//! The shape of a module is random: tables, statements, branches with parameters, early ends. Its
//! accesses are restricted: it loads only from the addresses that the [`Config`] names, so that
//! both executors can be given the same memory, and reads only the built-ins named there. The
//! generator keeps the values in scope on a stack and truncates that stack at the end of a branch.
//! So every use is dominated by its definition.
//!
//! A property-testing crate is not used: smaller [`Config`]s replace its shrinking of test cases,
//! and the back end's tests run many thousand modules.

mod body;
mod memory;

use plane::desc::{Action, AggDesc, AggFunc, Datum, Field, LayoutBuilder, RecordDesc};

use self::memory::KEPT;
use crate::ir::{Clause, IntBuiltin, Module, Scope, Space, StrBuiltin, VarDesc, VarTy};
pub use testing::rng::Rng;

/// What generated modules may contain.
#[derive(Clone, Debug)]
pub struct Config {
    /// Maximum number of clauses.
    pub clauses: usize,
    /// Maximum number of consecutive statements.
    pub statements: usize,
    /// Maximum depth of branches and of expressions.
    pub depth: usize,
    /// Bytes of a string.
    pub strsize: u32,
    /// Integer built-ins that may be read.
    pub int_builtins: Vec<IntBuiltin>,
    /// String built-ins that may be read.
    pub str_builtins: Vec<StrBuiltin>,
    /// Readable memory: address and length. Strings are read from its start, so it should contain a
    /// NUL.
    pub readable: Vec<(Space, u64, u64)>,
    /// Unreadable addresses.
    pub unreadable: Vec<(Space, u64)>,
    /// Scopes of variables.
    pub scopes: Vec<Scope>,
    /// Associative arrays.
    pub arrays: bool,
    /// Objects, pointers to them, scratch memory.
    pub objects: bool,
    /// Aggregating functions. When empty, there are no aggregations.
    pub aggregations: Vec<AggFunc>,
    /// String operations.
    pub strings: bool,
    /// Mostly subroutine calls, on constants chosen for them.
    pub subroutines: bool,
    /// Records.
    pub records: bool,
    /// Divisions by values that may be 0, and checks that may fail. Loads fault according to the
    /// addresses.
    pub faults: bool,
    /// `exit()`.
    pub exit: bool,
    /// Stacks.
    pub stacks: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            clauses: 3,
            statements: 6,
            depth: 3,
            strsize: 32,
            int_builtins: (0..10).map(IntBuiltin::Arg).chain([IntBuiltin::Pid, IntBuiltin::Epid]).collect(),
            str_builtins: vec![StrBuiltin::Execname, StrBuiltin::ProbeFunc, StrBuiltin::ProbeName],
            readable: Vec::new(),
            unreadable: Vec::new(),
            scopes: vec![Scope::Global, Scope::Thread, Scope::Clause],
            arrays: true,
            objects: false,
            aggregations: vec![
                AggFunc::Count,
                AggFunc::Sum,
                AggFunc::Min,
                AggFunc::Max,
                AggFunc::Avg,
                AggFunc::Quantize,
            ],
            strings: true,
            subroutines: false,
            records: true,
            faults: true,
            exit: true,
            stacks: false,
        }
    }
}

impl Config {
    /// Only integer expressions and records: the smallest subset that a new back end can run.
    pub fn integers() -> Self {
        Config {
            clauses: 1,
            scopes: Vec::new(),
            arrays: false,
            aggregations: Vec::new(),
            strings: false,
            exit: false,
            ..Config::default()
        }
    }
}

/// Generates the module of a seed. It passes the verifier.
pub fn module(seed: u64, config: &Config) -> Module {
    let mut rng = Rng::new(seed);
    let mut module = Module::new(config.strsize);
    if config.strings {
        for text in ["a", "ab", "read", "write", "a rather longer string than that"] {
            module.intern(text.as_bytes());
        }
        let random: Vec<u8> = (0..rng.below(20)).map(|_| 1 + rng.below(255) as u8).collect();
        module.intern(&random);
    }
    if config.subroutines {
        for _ in 0..8 {
            let text = subject_string(&mut rng, config.strsize as usize);
            module.intern(&text);
        }
    }
    variables(&mut rng, config, &mut module);
    aggregations(&mut rng, config, &mut module);
    for i in 0..=rng.below(config.clauses) {
        let record = (config.records && !rng.one_in(4)).then(|| record(&mut rng, config));
        let fields: Vec<Field> = record.iter().flat_map(|r| &r.actions).filter_map(traced).collect();
        let func =
            body::function(&mut rng, config, &module, format!("clause_{i}"), record.is_some(), &fields);
        module.clauses.push(Clause { func, record, span: None });
    }
    module
}

/// A string on which subroutines have an effect: a path, a document, a number, tokens. Its length
/// is between 0 and the maximum.
fn subject_string(rng: &mut Rng, strsize: usize) -> Vec<u8> {
    const PARTS: [&[&str]; 5] = [
        &["/", "//", ".", "..", "a", "bc", "usr", "/./", "/../"],
        &[
            "{",
            "}",
            "[",
            "]",
            "\"a\"",
            ":",
            ",",
            "1",
            "-2.5e3",
            "true",
            "null",
            "\"b\":[",
            "{\"a\":",
            " ",
            "\"\\u00e9\"",
        ],
        &["a", ".", "[", "]", "0", "1", "b", "-1", "2"],
        &[" ", "-", "0x", "12", "7fff", "zz", "99999999999", "+"],
        &["a", "ab", "b", ",", ";", "aab", "\u{1}", "Z"],
    ];
    let whole = [
        "{\"a\": {\"b\": [1, \"x\", null]}, \"c\": 2}",
        "a.b[1]",
        "c",
        "[[1, 2], {\"a\": 3}]",
        "[1].a",
        "a.b",
    ];
    if rng.one_in(6) {
        return rng.pick(&whole).unwrap_or_default().into();
    }
    let parts = PARTS[rng.below(PARTS.len())];
    let length = match rng.below(4) {
        0 => strsize - 1,
        1 => rng.below(4),
        _ => rng.below(strsize),
    };
    let mut text = Vec::new();
    while text.len() < length {
        text.extend_from_slice(rng.pick(parts).unwrap_or_default().as_bytes());
    }
    text.truncate(strsize - 1);
    text
}

fn traced(action: &Action) -> Option<Field> {
    match action {
        Action::Trace(field) => Some(*field),
        _ => None,
    }
}

fn int_type(rng: &mut Rng) -> (u8, bool) {
    ([1, 2, 4, 8][rng.below(4)], rng.one_in(2))
}

fn variables(rng: &mut Rng, config: &Config, module: &mut Module) {
    for scope in &config.scopes {
        for i in 0..3 {
            let ty = if config.strings && rng.one_in(3) { VarTy::Str } else { VarTy::Int };
            let array = config.arrays && *scope != Scope::Clause && i == 0;
            let (key, key_size) = if array {
                let (key, size) = key(rng, config);
                (Some(key), size)
            } else {
                (None, 0)
            };
            module.vars.push(VarDesc { name: format!("x{i}"), scope: *scope, ty, key, key_size });
        }
        if config.objects {
            objects(rng, config, module, *scope);
        }
    }
}

fn objects(rng: &mut Rng, config: &Config, module: &mut Module, scope: Scope) {
    let mut add = |rng: &mut Rng, name: &str, array: bool| {
        let ty = VarTy::Bytes { size: [1, 6, 8, 12, 24, 61, 200][rng.below(7)] };
        let (key, key_size) = if array {
            let (key, size) = key(rng, config);
            (Some(key), size)
        } else {
            (None, 0)
        };
        module.vars.push(VarDesc { name: name.into(), scope, ty, key, key_size });
    };
    add(rng, "o0", false);
    add(rng, "o1", false);
    if config.arrays && scope != Scope::Clause {
        add(rng, "oa", true);
    }
    module.vars.push(VarDesc { name: KEPT.into(), scope, ty: VarTy::Int, key: None, key_size: 0 });
}

fn aggregations(rng: &mut Rng, config: &Config, module: &mut Module) {
    for (i, func) in config.aggregations.iter().enumerate() {
        let (key, key_size) = if rng.one_in(3) { (Vec::new(), 0) } else { key(rng, config) };
        module.aggs.push(AggDesc { name: format!("a{i}"), func: *func, key, key_size });
    }
}

fn key(rng: &mut Rng, config: &Config) -> (Vec<Field>, u32) {
    let mut layout = LayoutBuilder::default();
    let object = |rng: &mut Rng| config.objects && rng.one_in(4);
    let columns = (0..=rng.below(2)).map(|_| {
        let column = match object(rng) {
            true => Datum::Bytes { size: [1, 3, 8, 12, 24, 61][rng.below(6)] },
            false => column(rng, config),
        };
        layout.push_key(column)
    });
    let columns = columns.collect();
    (columns, layout.size())
}

fn column(rng: &mut Rng, config: &Config) -> Datum {
    match rng.below(4) {
        0 if config.strings && rng.one_in(2) => Datum::Interned,
        0 if config.strings => Datum::Provider,
        1 if config.strings && rng.one_in(4) => Datum::Address { strsize: config.strsize },
        1 if config.strings => Datum::Str { size: plane::desc::string_storage(config.strsize) },
        _ => match int_type(rng) {
            (size @ ..8, signed) if rng.one_in(3) => Datum::Whole { size, signed },
            (size, signed) => Datum::Int { size, signed },
        },
    }
}

/// A record of some fields, with the actions that `trace()` would have.
fn record(rng: &mut Rng, config: &Config) -> RecordDesc {
    let mut layout = LayoutBuilder::default();
    let mut actions: Vec<Action> = (0..1 + rng.below(4))
        .map(|_| {
            let datum = match rng.below(8) {
                0 => Datum::UserAddr(plane::desc::AddrForm::Symbol),
                1 => Datum::KernelAddr(plane::desc::AddrForm::Function),
                2 if config.objects => Datum::Bytes { size: 1 + rng.below(40) as u32 },
                _ => column(rng, config),
            };
            Action::Trace(layout.push(datum))
        })
        .collect();
    if rng.one_in(8) {
        actions.push(Action::None);
    }
    RecordDesc { size: layout.size(), actions, process: None }
}
