//! Measures compiling and loading long scripts, and how the cost grows with their length.
//!
//! The figure is CPU time of the process, not wall time, so that other work on the machine has less
//! effect. Each shape is one statement or clause repeated many times. "growth of 10" is the cost of
//! a thousand repetitions divided by the cost of a hundred.

use std::process::Command;

use crate::run::{Tools, median, whole};

/// A shape: its name, the text around the repetitions, and the repeated text.
struct Shape {
    what: &'static str,
    options: &'static [&'static str],
    before: &'static str,
    each: fn(usize) -> String,
    after: &'static str,
}

const CLAUSES: [usize; 4] = [10, 100, 300, 1000];

const SHAPES: [Shape; 11] = [
    clauses("clauses: @ = count()", |i| format!("@c{} = count();", i % 10)),
    clauses("clauses: @[execname, pid, n]", |i| format!("@k{}[execname, pid, {i}] = count();", i % 10)),
    clauses("clauses: @[copyinstr()]", |i| format!("@s{}[copyinstr(arg0)] = count();", i % 10)),
    clauses("clauses: printf", |i| format!("printf(\"%s %d %d\\n\", execname, pid, {i});")),
    clauses("clauses: self->", |i| format!("self->v{} = timestamp + {i};", i % 20)),
    Shape {
        what: "clauses: predicates",
        options: &[],
        before: "",
        each: |i| format!("syscall::getppid:entry /arg0 == {i} && pid > {i}/ {{ x{} += {i}; }}\n", i % 20),
        after: "",
    },
    Shape {
        what: "statements of all kinds",
        options: &[],
        before: "syscall::getppid:entry {\n",
        each: |i| match i % 5 {
            0 => format!("@a{}=count();\n", i % 10),
            1 => format!("x{} += arg0 + {i};\n", i % 10),
            2 => format!("s[copyinstr(arg0)] = {i};\n"),
            3 => "printf(\"%d %s\\n\", x1, execname);\n".into(),
            _ => "self->t = timestamp;\n".into(),
        },
        after: "}\n",
    },
    strings("strings, strsize=4k", &["-x", "strsize=4k"]),
    strings("strings, strsize=8k", &["-x", "strsize=8k"]),
    strings("strings, strsize=16k", &["-x", "strsize=16k"]),
    Shape {
        what: "keys of 8 strings, strsize=4k",
        options: &["-x", "strsize=4k"],
        before: "syscall::getppid:entry { s = copyinstr(arg0);\n",
        each: |i| format!("@[s, s, s, s, s, s, s, s] = sum({i});\n"),
        after: "}\n",
    },
];

const fn clauses(what: &'static str, each: fn(usize) -> String) -> Shape {
    Shape { what, options: &[], before: "", each, after: "" }
}

const fn strings(what: &'static str, options: &'static [&'static str]) -> Shape {
    Shape {
        what,
        options,
        before: "syscall::getppid:entry { t = copyinstr(arg0);\n",
        each: |i| format!("self->s = t; u[self->s] = t; n += {i};\n"),
        after: "}\n",
    }
}

impl Shape {
    fn script(&self, n: usize) -> String {
        let each = |i| match (self.each)(i) {
            whole if !self.before.is_empty() || whole.starts_with("syscall") => whole,
            action => format!("syscall::getppid:entry {{ {action} }}\n"),
        };
        let body: String = (0..n).map(each).collect();
        format!("BEGIN {{ exit(0); }}\n{}{body}{}", self.before, self.after)
    }
}

/// Measures compiling only, and compiling, loading and exiting.
pub(crate) fn long(tools: &Tools) {
    const ROUNDS: usize = 5;
    println!("\nlong scripts: CPU ms of -e, and of compile, load, exit (median of {ROUNDS})");
    println!("  {:<32} {:>24} {:>30}", "", "-e", "run");
    let path = std::env::temp_dir().join(format!("dtrace-bench-{}.d", std::process::id()));
    for shape in &SHAPES {
        let (mut compile, mut run) = (Vec::new(), Vec::new());
        for n in CLAUSES {
            if std::fs::write(&path, shape.script(n)).is_err() {
                return;
            }
            for (flag, out) in [("-e", &mut compile), ("-q", &mut run)] {
                let costs = (0..ROUNDS).filter_map(|_| {
                    let mut command = Command::new(&tools.dtrace);
                    command.args(shape.options).arg(flag).arg("-s").arg(&path);
                    whole(command)
                });
                out.push(median(costs.map(|c| c.cpu * 1e3).collect()));
            }
        }
        let list = |all: &[f64]| all.iter().map(|ms| format!("{ms:>7.1}")).collect::<String>();
        let growth = run.last().unwrap_or(&f64::NAN) / run.get(1).unwrap_or(&f64::NAN);
        println!("  {:<32} {} {}  growth of 10: {growth:.1}", shape.what, list(&compile), list(&run));
    }
    let _ = std::fs::remove_file(&path);
}
