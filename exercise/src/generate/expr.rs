//! Generates expressions.

use super::{Generator, INTS, Var};

impl Generator<'_, '_> {
    /// An integer expression.
    pub(super) fn int(&mut self) -> String {
        self.depth += 1;
        let text = if self.depth > self.shape.depth { self.int_leaf() } else { self.int_tree() };
        self.depth -= 1;
        text
    }

    fn int_leaf(&mut self) -> String {
        match self.c.below(6) {
            0 => format!("arg{}", self.c.below(4)),
            1 => self.read(false).unwrap_or_else(|| "pid".into()),
            2 => self.c.pick(&["'a'", "'\\n'", "'ab'", "NULL", "sizeof (long)", "sizeof (short)"]).into(),
            _ => self.literal(),
        }
    }

    fn literal(&mut self) -> String {
        let suffix = self.c.pick(&["", "", "u", "L", "ul", "LL", "ull"]);
        let number = match self.c.below(5) {
            0 => self.c.below(4) as u64,
            1 => self.c.below(300) as u64,
            2 => 1 << self.c.below(63),
            3 => (1u64 << self.c.below(63)).wrapping_sub(1),
            _ => self.c.bits() >> self.c.below(64),
        };
        match self.c.below(3) {
            0 => format!("0x{number:x}{suffix}"),
            _ => format!("{}{suffix}", number & (i64::MAX as u64)),
        }
    }

    fn int_tree(&mut self) -> String {
        match self.c.below(15) {
            0..=4 => {
                let (a, b) = (self.int(), self.int());
                let op = self.c.pick(&["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"]);
                match op {
                    // Shift counts of 64 and more are undefined.
                    "<<" | ">>" => format!("({a} {op} ({b} & 63))"),
                    // A constant zero divisor is a compile error; a zero divisor at run time is a
                    // fault.
                    "/" | "%" => format!("({a} {op} ({b} ^ arg1))"),
                    _ => format!("({a} {op} {b})"),
                }
            }
            5 => {
                let (a, b) = (self.int(), self.int());
                let op = self.c.pick(&["==", "!=", "<", "<=", ">", ">=", "&&", "||", "^^"]);
                format!("({a} {op} {b})")
            }
            6 => {
                let a = self.int();
                format!("({}{a})", self.c.pick(&["-", "~", "!", "+"]))
            }
            7 => {
                let a = self.int();
                format!("(({}){a})", self.c.pick(&INTS))
            }
            8 => {
                let (c, a, b) = (self.int(), self.int(), self.int());
                format!("({c} ? {a} : {b})")
            }
            9 if self.shape.strings => {
                let (a, b) = (self.string(), self.string());
                format!("({a} {} {b})", self.c.pick(&["==", "!=", "<", "<=", ">", ">="]))
            }
            10 if self.shape.strings => {
                let a = self.string();
                match self.c.below(6) {
                    0 if self.shape.subroutines => format!("(*({a}))"),
                    1 if self.shape.subroutines => format!("(({a})[{}])", self.c.below(80)),
                    2 if self.shape.subroutines => {
                        let at = self.int();
                        format!("(({a})[{at} & 0x7f])")
                    }
                    _ => format!("strlen({a})"),
                }
            }
            11 if self.shape.subroutines => self.int_call(),
            12 => match self.step() {
                Some(step) => step,
                None => self.int_leaf(),
            },
            13 => match self.assignment(false) {
                Some(assignment) => format!("({assignment})"),
                None => self.int_leaf(),
            },
            14 if self.translators => self.translated(),
            _ => self.int_leaf(),
        }
    }

    fn translated(&mut self) -> String {
        let a = self.int();
        match self.c.below(5) {
            0 => {
                let b = self.int();
                format!("twice[{a}, {b}]")
            }
            1 if self.shape.strings => format!("strlen(xlate <struct seen> ({a}).s)"),
            2 => format!("xlate <struct seen *> ({a})->b"),
            3 => format!("xlate <struct seen> ({a}).a"),
            _ => format!("xlate <struct seen> ({a}).l"),
        }
    }

    fn int_call(&mut self) -> String {
        let name = self.c.pick(&[
            "index", "rindex", "strtoll", "htons", "htonl", "htonll", "ntohs", "getmajor", "getminor",
        ]);
        match name {
            "index" | "rindex" => {
                let (a, b) = (self.string(), self.string());
                if self.c.one_in(2) {
                    return format!("{name}({a}, {b})");
                }
                let at = self.int();
                format!("{name}({a}, {b}, (int)({at}))")
            }
            "strtoll" => {
                let a = self.string();
                format!("strtoll({a})")
            }
            _ => {
                let a = self.int();
                format!("{name}({a})")
            }
        }
    }

    /// A string expression.
    pub(super) fn string(&mut self) -> String {
        self.depth += 1;
        let text = if self.depth > self.shape.depth { self.string_leaf() } else { self.string_tree() };
        self.depth -= 1;
        text
    }

    fn string_leaf(&mut self) -> String {
        match self.c.below(5) {
            0 => self.read(true).unwrap_or_else(|| "execname".into()),
            1 => self.c.pick(&["execname", "probename", "probefunc", "probeprov", "probemod"]).into(),
            _ => self
                .c
                .pick(&[
                    "\"\"",
                    "\"a\"",
                    "\"ab\"",
                    "\"read\"",
                    "\"/usr//bin/./x/../dtrace/\"",
                    "\"-0x7fZ\"",
                    "\"a,b,,c\"",
                    "\"a rather longer string than that, and one that does not end within sixty-four\"",
                    "\"{\\\"a\\\":[1,{\\\"b\\\":\\\"c\\\"}]}\"",
                    "\"Upper LOWER \\377\\001\"",
                ])
                .into(),
        }
    }

    fn string_tree(&mut self) -> String {
        match self.c.below(6) {
            0 => {
                let (c, a, b) = (self.int(), self.string(), self.string());
                format!("({c} ? {a} : {b})")
            }
            1 | 2 if self.shape.subroutines => self.string_call(),
            3 => match self.assignment(true) {
                Some(assignment) => format!("({assignment})"),
                None => self.string_leaf(),
            },
            4 if let Some((base, size)) = self.shape.memory => {
                let at = base + self.c.below(size as usize) as u64;
                format!("copyinstr({at:#x})")
            }
            _ => self.string_leaf(),
        }
    }

    fn string_call(&mut self) -> String {
        let name = self.c.pick(&[
            "substr",
            "strjoin",
            "strchr",
            "strrchr",
            "strstr",
            "toupper",
            "tolower",
            "lltostr",
            "basename",
            "dirname",
            "cleanpath",
            "strtok",
            "json",
        ]);
        let a = self.string();
        match name {
            "substr" if self.c.one_in(4) => {
                let at = self.int();
                format!("({a} + ({at} & 0x7f))")
            }
            "substr" => {
                let at = self.int();
                if self.c.one_in(2) {
                    return format!("substr({a}, (int)({at}))");
                }
                let len = self.int();
                format!("substr({a}, (int)({at} % 70), (int)({len} % 70))")
            }
            "strjoin" | "strstr" | "strtok" => {
                let b = self.string();
                format!("{name}({a}, {b})")
            }
            "strchr" | "strrchr" => format!("{name}({a}, 'a')"),
            "lltostr" => {
                let v = self.int();
                match self.c.below(3) {
                    0 => format!("lltostr({v})"),
                    _ => format!("lltostr({v}, {})", self.c.pick(&[2, 8, 10, 16, 36])),
                }
            }
            "json" => format!("json({a}, {})", self.c.pick(&["\"a\"", "\"a[0]\"", "\"a[1].b\"", "\"\""])),
            _ => format!("{name}({a})"),
        }
    }

    /// An existing variable, to read or write.
    pub(super) fn place(&mut self, string: bool) -> Option<String> {
        let characters = !string && self.shape.subroutines && self.c.one_in(8);
        let fits = |v: &&Var| v.writable && (v.string == string || v.string && characters);
        let of: Vec<Var> = self.vars.iter().filter(fits).cloned().collect();
        if of.is_empty() {
            return None;
        }
        let var = of[self.c.below(of.len())].clone();
        // A character of a string.
        if !string && var.string {
            let text = self.element(var);
            let at = self.int();
            return Some(match self.c.below(3) {
                0 => format!("{text}[{}]", self.c.below(16)),
                1 => format!("*({text})"),
                _ => format!("{text}[({at}) & 0x1f]"),
            });
        }
        if var.len > 0 {
            // Sometimes one beyond the end.
            let at = if self.c.one_in(3) { self.int() } else { self.c.below(var.len).to_string() };
            let at = if at.parse::<usize>().is_ok() { at } else { format!("({at}) % {}", var.len + 1) };
            return Some(format!("{}[{at}]", var.text));
        }
        Some(self.element(var))
    }

    /// A variable, or an element if it is an array.
    fn element(&mut self, var: Var) -> String {
        if var.keys.is_empty() {
            return var.text;
        }
        let keys: Vec<String> =
            var.keys.iter().map(|s| if *s { self.string() } else { self.int() }).collect();
        format!("{}[{}]", var.text, keys.join(", "))
    }

    fn read(&mut self, string: bool) -> Option<String> {
        // Keys of elements are such places too: bytes that always decide for them would have no
        // end.
        const DEEPER: usize = 6;
        if self.depth > self.shape.depth + DEEPER { None } else { self.place(string) }
    }

    fn step(&mut self) -> Option<String> {
        let place = self.place(false)?;
        Some(match self.c.below(4) {
            0 => format!("{place}++"),
            1 => format!("++{place}"),
            2 => format!("{place}--"),
            _ => format!("--{place}"),
        })
    }

    pub(super) fn assignment(&mut self, string: bool) -> Option<String> {
        let place = self.place(string)?;
        if string {
            let value = self.string();
            return Some(format!("{place} = {value}"));
        }
        let value = self.int();
        let op = self.c.pick(&["=", "=", "=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="]);
        Some(match op {
            "<<=" | ">>=" => format!("{place} {op} ({value}) & 63"),
            "/=" | "%=" => format!("{place} {op} ({value}) ^ arg2"),
            _ => format!("{place} {op} {value}"),
        })
    }
}
