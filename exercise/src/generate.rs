//! Generates programs by D's grammar. Nearly all are valid.
//!
//! The wanted type of an expression, an integer or a string, determines how it is generated. Each
//! variable has one type, set by a declaration or by its first assignment, which precedes every
//! use. Programs access only arguments, their own variables, and memory at the addresses of
//! [`Shape::memory`]. So both the interpreter and a kernel can run every program, and must agree.
//!
//! The grammar may contain features that the compiler does not support. The compiler rejects such a
//! program, and the tests continue with the next one.

mod expr;
mod stmt;

use std::fmt::Write;

use crate::choices::Choices;

/// The features and limits of generated programs.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Maximum number of clauses.
    pub clauses: usize,
    /// Maximum number of statements in a clause.
    pub statements: usize,
    /// Maximum depth of expressions.
    pub depth: usize,
    /// Strings and string operations.
    pub strings: bool,
    /// Subroutine calls.
    pub subroutines: bool,
    /// Structs, arrays and pointers to them.
    pub objects: bool,
    /// Readable user memory: address and length. It must contain a NUL.
    pub memory: Option<(u64, u64)>,
    /// `exit()`.
    pub exit: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            clauses: 3,
            statements: 6,
            depth: 4,
            strings: true,
            subroutines: true,
            objects: true,
            memory: None,
            exit: true,
        }
    }
}

/// A variable of the program.
#[derive(Clone, Debug)]
struct Var {
    /// The variable as written: `self->x1`.
    text: String,
    string: bool,
    /// Types of the keys of an associative array: true for a string.
    keys: Vec<bool>,
    /// Number of elements of a scalar array.
    len: usize,
    /// False when `text` must not be assigned to, otherwise true. (`text` may also be an access to
    /// a struct member.)
    writable: bool,
}

/// The generator, with the program so far.
struct Generator<'a, 'c> {
    c: &'a mut Choices<'c>,
    shape: Shape,
    out: String,
    vars: Vec<Var>,
    aggs: Vec<(String, &'static str, Vec<bool>)>,
    /// Depth of the current expression.
    depth: usize,
    /// True when the program contains [`TRANSLATORS`].
    translators: bool,
}

/// A translated type and an inline with parameters, to test values that are bound to names.
const TRANSLATORS: &str = "\
    struct seen { int a; unsigned char b; string s; long l; };\n\
    translator struct seen < long N > {\n\
    \ta = N; b = N * arg1 + N; s = N > 3 ? execname : \"few\"; l = N && arg2 ? N << 2 : -N; };\n\
    inline long twice[long n, int m] = n + m > 7 ? n + n * m : xlate <struct seen> (n - m).l;\n";

const INTS: [&str; 20] = [
    "char",
    "unsigned char",
    "signed char",
    "short",
    "unsigned short",
    "int",
    "unsigned int",
    "long",
    "unsigned long",
    "long long",
    "unsigned long long",
    "int8_t",
    "uint8_t",
    "int16_t",
    "uint16_t",
    "int32_t",
    "uint32_t",
    "int64_t",
    "uint64_t",
    "size_t",
];

/// Generates a program.
pub fn program(choices: &mut Choices<'_>, shape: &Shape) -> String {
    let mut m = Generator {
        c: choices,
        shape: *shape,
        out: String::new(),
        vars: Vec::new(),
        aggs: Vec::new(),
        depth: 0,
        translators: false,
    };
    m.declarations();
    for _ in 0..=m.c.below(shape.clauses) {
        m.clause();
    }
    m.out
}

impl Generator<'_, '_> {
    fn declarations(&mut self) {
        if self.shape.objects && self.c.one_in(2) {
            self.structure();
        }
        self.translators = self.c.one_in(3);
        if self.translators {
            self.out.push_str(TRANSLATORS);
        }
        for i in 0..self.c.below(4) {
            let scope = self.c.pick(&["", "self ", "this "]);
            let string = self.shape.strings && self.c.one_in(3);
            let ty = if string { "string" } else { self.c.pick(&INTS) };
            let name = format!("d{i}");
            let keys = if scope != "this " && self.c.one_in(3) { self.keys() } else { Vec::new() };
            let len = if keys.is_empty() && !string && self.shape.objects && self.c.one_in(4) {
                1 + self.c.below(9)
            } else {
                0
            };
            let _ = write!(self.out, "{scope}{ty} {name}");
            if !keys.is_empty() {
                let list: Vec<&str> = keys.iter().map(|s| if *s { "string" } else { "int" }).collect();
                let _ = write!(self.out, "[{}]", list.join(", "));
            }
            if len > 0 {
                let _ = write!(self.out, "[{len}]");
            }
            self.out.push_str(";\n");
            let text = match scope {
                "self " => format!("self->{name}"),
                "this " => format!("this->{name}"),
                _ => name,
            };
            self.vars.push(Var { text, string, keys, len, writable: true });
        }
    }

    /// Declares a struct type and variables of it. Their members are variables like others.
    fn structure(&mut self) {
        let _ = writeln!(
            self.out,
            "struct inner {{ short a; char b[4]; }};\n\
             struct s {{ char c; int i; unsigned u:5; int d:7; long l; struct inner in; int m[2][3]; }};"
        );
        for (scope, name, declared) in [
            ("", "g", "g"),
            ("self", "self->t", "t"),
            ("this", "this->l", "l"),
            ("", "e[1]", "e[int]"),
            ("self", "self->f[2, 3]", "f[int, int]"),
        ] {
            if !self.c.one_in(2) {
                continue;
            }
            let _ = writeln!(self.out, "{scope} struct s {declared};");
            for member in ["c", "i", "u", "d", "l", "in.a", "in.b[2]", "m[1][2]"] {
                let text = format!("{name}.{member}");
                self.vars.push(Var { text, string: false, keys: Vec::new(), len: 0, writable: true });
            }
        }
        self.keyed_by_structs();
    }

    /// Declares arrays whose keys are structs by value.
    fn keyed_by_structs(&mut self) {
        let names: Vec<String> = self.structs();
        if names.is_empty() || self.c.one_in(2) {
            return;
        }
        let _ = writeln!(self.out, "int ks[struct s];\nself string kt[struct s, int];");
        for name in names {
            let text = format!("ks[{name}]");
            self.vars.push(Var { text, string: false, keys: Vec::new(), len: 0, writable: true });
            if self.shape.strings {
                let text = format!("self->kt[{name}, 2]");
                self.vars.push(Var { text, string: true, keys: Vec::new(), len: 0, writable: true });
            }
        }
    }

    /// The variables of struct type.
    fn structs(&self) -> Vec<String> {
        self.vars.iter().filter_map(|v| v.text.strip_suffix(".in.a").map(str::to_string)).collect()
    }

    fn keys(&mut self) -> Vec<bool> {
        (0..=self.c.below(3)).map(|_| self.shape.strings && self.c.one_in(3)).collect()
    }

    fn clause(&mut self) {
        // The values of `this->` variables from an earlier firing are unspecified, so a clause may
        // only read those assigned in the same firing. The clauses of one firing run in order, so
        // earlier clauses have assigned them.
        self.out.push_str("BEGIN\n");
        match self.c.below(6) {
            0 => {
                let test = self.int();
                let _ = writeln!(self.out, "/{test}/");
                self.body();
            }
            // Variables that only the actions define.
            1 => {
                let before = std::mem::take(&mut self.out);
                self.body();
                let body = std::mem::replace(&mut self.out, before);
                let test = self.int();
                let _ = writeln!(self.out, "/{test}/");
                self.out.push_str(&body);
            }
            _ => self.body(),
        }
    }

    fn body(&mut self) {
        self.out.push_str("{\n");
        self.block(1);
        self.out.push_str("}\n");
    }

    /// Statements, some of them under an `if`.
    fn block(&mut self, depth: usize) {
        let indent = "\t".repeat(depth);
        for _ in 0..=self.c.below(self.shape.statements) {
            if depth > 3 || !self.c.one_in(8) {
                let statement = self.statement();
                let _ = writeln!(self.out, "{indent}{statement}");
                continue;
            }
            let test = self.int();
            let _ = writeln!(self.out, "{indent}if ({test}) {{");
            self.block(depth + 1);
            if self.c.one_in(2) {
                let _ = writeln!(self.out, "{indent}}} else {{");
                self.block(depth + 1);
            }
            let _ = writeln!(self.out, "{indent}}}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::{Compiled, compile};

    #[test]
    fn the_compiler_accepts_most_generated_programs() {
        let shape = Shape { subroutines: false, objects: false, ..Shape::default() };
        let mut accepted = 0;
        let mut refused = Vec::new();
        for seed in 0..200 {
            let text = program(&mut Choices::seed(seed), &shape);
            match compile(&text, 64, None) {
                Ok(Compiled::Module(..)) => accepted += 1,
                Ok(Compiled::Rejected(why)) => {
                    refused.extend(why.lines().filter(|l| l.contains(": [D_")).map(str::to_owned));
                }
                Err(e) => panic!("seed {seed}: {e}"),
            }
        }
        assert!(accepted > 100, "only {accepted}; refused:\n{}", refused.join("\n"));
    }

    #[test]
    fn the_compiler_accepts_generated_programs_with_translators() {
        let shape = Shape { subroutines: false, objects: false, ..Shape::default() };
        let texts = (0..200).map(|seed| program(&mut Choices::seed(seed), &shape));
        let accepted = texts
            .filter(|t| t.matches("xlate").count() > 1)
            .filter(|t| matches!(compile(t, 64, None), Ok(Compiled::Module(..))));
        assert!(accepted.count() > 15);
    }

    #[test]
    fn generation_ends_when_the_choices_are_exhausted() {
        assert!(program(&mut Choices::Bytes(&[]), &Shape::default()).len() < 1000);
    }
}
