//! Constant expressions and expressions over variables must give the same results: every operator,
//! for every pair of types, over edge values of each, exhaustively. The oracle is the interpreter,
//! before and after optimizing.
//!
//! A program has pairs of statements. The first statement of a pair computes with constants and is
//! folded. The second computes with variables that have the same values. `+ 0LL` makes all 64 bits
//! of a value visible, so that a premature truncation in folding is detected. The value alone shows
//! its type, by the size and sign of the recorded field.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt::Write;

use dif::interp::{Interpreter, State, World};
use dif::ir::{Field, Module};
use events::Int;
use exercise::stages::{Compiled, lowered};
use plane::desc::{Action, Datum};

/// An integer type: name, bits, sign.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Type(&'static str, u32, bool);

const TYPES: [Type; 8] = [
    Type("char", 8, true),
    Type("unsigned char", 8, false),
    Type("short", 16, true),
    Type("unsigned short", 16, false),
    Type("int", 32, true),
    Type("unsigned int", 32, false),
    Type("long", 64, true),
    Type("unsigned long", 64, false),
];

const ARITHMETIC: [&str; 10] = ["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"];
const OTHER: [&str; 9] = ["==", "!=", "<", "<=", ">", ">=", "&&", "||", "^^"];

/// Bit patterns at which results change: the smallest value, the largest, their neighbours, shift
/// counts.
fn edges(ty: Type) -> Vec<u64> {
    let ones = u64::MAX >> (64 - ty.1);
    let top = 1u64 << (ty.1 - 1);
    vec![0, 1, 63, ones, ones - 1, top, top - 1]
}

/// A constant of the type: the bits with a cast.
fn constant(ty: Type, bits: u64) -> String {
    format!("({}){bits:#x}", ty.0)
}

struct EmptyWorld;

impl World for EmptyWorld {}

/// The values of the only record, as they are shown.
fn values(module: &Module) -> Vec<Int> {
    let mut state = State::new(module);
    Interpreter::new(module).fire(&[0], &mut state, &mut EmptyWorld);
    assert!(state.faults.is_empty(), "{:?}", state.faults);
    let record = module.clauses[0].record.as_ref().unwrap();
    let data = &state.records[0].data;
    let traced = |a: &Action| {
        let Action::Trace(Field { offset, datum }) = a else { panic!("{a:?}") };
        let bytes = &data[*offset as usize..][..datum.size() as usize];
        let bits = bytes.iter().rev().fold(0, |bits, b| bits << 8 | u64::from(*b));
        match *datum {
            Datum::Int { size, signed } => Int::new(bits, size, signed),
            Datum::Whole { size, signed } => Int::whole(bits, size, signed),
            other => panic!("{other:?}"),
        }
    };
    record.actions.iter().map(traced).collect()
}

/// Pairs of expressions that must be equal. Pairs of a group share the assignments before them.
#[derive(Default)]
struct Pairs {
    declarations: String,
    groups: Vec<(String, Vec<(String, String)>)>,
}

impl Pairs {
    /// Starts a group: the assignments before the next pairs.
    fn start_group(&mut self, before: String) {
        self.groups.push((before, Vec::new()));
    }

    fn add(&mut self, folded: String, computed: String) {
        if let Some((_, pairs)) = self.groups.last_mut() {
            pairs.push((folded, computed));
        }
    }

    /// Adds a pair that compares all bits of the values.
    fn add_bits(&mut self, folded: &str, computed: &str) {
        self.add(format!("{folded} + 0LL"), format!("{computed} + 0LL"));
    }

    fn check(self) {
        for groups in self.groups.chunks(40) {
            let mut text = format!("{}BEGIN {{\n", self.declarations);
            for (before, pairs) in groups {
                let _ = writeln!(text, "{before}");
                for (folded, computed) in pairs {
                    let _ = writeln!(text, "trace({folded});trace({computed});");
                }
            }
            text.push_str("}\n");
            let mut module = match lowered(&text, 64, None).unwrap() {
                Compiled::Module(module, _) => module,
                Compiled::Rejected(why) => panic!("{why}\n{text}"),
            };
            for optimized in [false, true] {
                if optimized {
                    dif::opt::optimize(&mut module);
                }
                let values = values(&module);
                let pairs =
                    || groups.iter().flat_map(|(before, pairs)| pairs.iter().map(move |p| (before, p)));
                assert_eq!(values.len(), 2 * pairs().count());
                for (pair, (before, (folded, computed))) in values.chunks(2).zip(pairs()) {
                    assert_eq!(pair[0], pair[1], "{before} {folded} {computed}");
                }
            }
        }
    }
}

#[test]
fn binary_operators_of_constants_and_of_variables_agree() {
    for left in TYPES {
        let mut pairs = Pairs::default();
        let _ = writeln!(pairs.declarations, "this {} a;", left.0);
        for (i, right) in TYPES.into_iter().enumerate() {
            let _ = writeln!(pairs.declarations, "this {} b{i};", right.0);
            for x in edges(left) {
                for y in edges(right) {
                    let (cx, cy) = (constant(left, x), constant(right, y));
                    pairs.start_group(format!("this->a = {cx}; this->b{i} = {cy};"));
                    for op in ARITHMETIC.iter().chain(&OTHER) {
                        if matches!(*op, "/" | "%") && y == 0 {
                            continue;
                        }
                        let (folded, computed) =
                            (format!("({cx} {op} {cy})"), format!("(this->a {op} this->b{i})"));
                        pairs.add_bits(&folded, &computed);
                        if x == 1 && y == 1 {
                            pairs.add(folded, computed);
                        }
                    }
                }
            }
        }
        pairs.check();
    }
}

#[test]
fn assignments_of_constants_and_of_variables_agree() {
    for left in TYPES {
        let mut pairs = Pairs::default();
        let _ = writeln!(pairs.declarations, "this {} a; this {} c;", left.0, left.0);
        for (i, right) in TYPES.into_iter().enumerate() {
            let _ = writeln!(pairs.declarations, "this {} b{i};", right.0);
            for x in edges(left) {
                for y in edges(right) {
                    let (cx, cy) = (constant(left, x), constant(right, y));
                    pairs.start_group(format!("this->b{i} = {cy}; this->a = this->c = {cx};"));
                    // One after the other. Each starts with the result of the one before.
                    for op in ["", "+", "-", "^", "*", "|", "<<", ">>", "/", "%", "&"] {
                        if matches!(op, "/" | "%") && y == 0 {
                            continue;
                        }
                        pairs.add_bits(
                            &format!("(this->a {op}= {cy})"),
                            &format!("(this->c {op}= this->b{i})"),
                        );
                    }
                }
            }
        }
        pairs.check();
    }
}

/// Expressions whose value may exceed their type, for constants and for variables.
fn exceeding_expressions(x: &str, y: &str) -> Vec<String> {
    let mut all: Vec<String> = ["", "-", "~", "!", "+"].iter().map(|op| format!("{op}({x})")).collect();
    all.extend(["+", "-", "*", "^", "<<", ">>"].iter().map(|op| format!("(({x}) {op} ({y}))")));
    all.push(format!("(({x}) < ({y}) ? ({x}) : ({y}))"));
    all
}

#[test]
fn unary_operators_and_casts_of_constants_and_of_variables_agree() {
    for ty in TYPES {
        let mut pairs = Pairs::default();
        let _ = writeln!(
            pairs.declarations,
            "this {} a; this {} b; this unsigned long z; this char n;",
            ty.0, ty.0
        );
        for x in edges(ty) {
            for y in [1, 3, 5].map(|i| edges(ty)[i]) {
                let (cx, cy) = (constant(ty, x), constant(ty, y));
                pairs.start_group(format!(
                    "this->a = {cx}; this->b = {cy}; this->z = 0xfffffff0; this->n = -5;"
                ));
                for (folded, computed) in
                    exceeding_expressions(&cx, &cy).iter().zip(exceeding_expressions("this->a", "this->b"))
                {
                    let mut pair = |f: &dyn Fn(&str) -> String| {
                        pairs.add_bits(&f(folded), &f(&computed));
                        if x == 1 {
                            pairs.add(f(folded), f(&computed));
                        }
                    };
                    for op in ["-", "~", "!", "+"] {
                        pair(&|e| format!("({op} {e})"));
                    }
                    for to in TYPES.iter().map(|t| t.0).chain(["_Bool"]) {
                        pair(&|e| format!("(({to}){e})"));
                    }
                    for after in [">> 1", "/ 3", "% 7", "< 100", "^^ 0", "&& 1"] {
                        pair(&|e| format!("({e} {after})"));
                    }
                    pair(&|e| format!("(this->z < {e})"));
                    pair(&|e| format!("({e} == this->n)"));
                    pair(&|e| format!("({e} ? 2 : 3)"));
                }
            }
        }
        pairs.check();
    }
}

#[test]
fn a_minus_before_a_cast_computes_in_64_bits_as_the_kernel_does() {
    let mut pairs = Pairs { declarations: "uint16_t v; uint64_t z;\n".into(), ..Pairs::default() };
    pairs.start_group("v = 1000; z = 65000;".into());
    pairs.add("z < -(uint16_t)1000".into(), "z < -v".into());
    pairs.add_bits("-(uint16_t)1000", "-1000");
    // A literal with a minus before it is a constant of its type, as in C.
    pairs.add_bits("-1U", "4294967295");
    pairs.check();
}
