//! Generates statements.

use super::{Generator, Var};

const FUNCTIONS: [&str; 9] =
    ["count", "sum", "min", "max", "avg", "stddev", "quantize", "lquantize", "llquantize"];

impl Generator<'_, '_> {
    pub(super) fn statement(&mut self) -> String {
        self.depth = 0;
        match self.c.below(13) {
            0 | 1 => {
                let value = self.int();
                format!("trace({value});")
            }
            2 if self.shape.strings => {
                let value = self.string();
                format!("trace({value});")
            }
            3 => self.printf(),
            4 | 5 => self.first_assignment(),
            6 => self.aggregate(),
            7 => match self.place(false) {
                // Deletes an element or clears a scalar.
                Some(place) => format!("{place} = 0;"),
                None => ";".into(),
            },
            8 if self.shape.exit && self.c.one_in(6) => "exit(3);".into(),
            12 => self.record_statement(),
            9 => {
                let (c, a) = (self.int(), self.statement_inner());
                format!("if ({c}) {{ {a} }}")
            }
            _ => {
                let string = self.shape.strings && self.c.one_in(3);
                match self.assignment(string) {
                    Some(assignment) => format!("{assignment};"),
                    None => self.first_assignment(),
                }
            }
        }
    }

    /// Records a value by its type, or raw memory.
    fn record_statement(&mut self) -> String {
        let mut objects: Vec<(String, usize)> =
            self.vars.iter().filter(|v| v.len > 0).map(|v| (v.text.clone(), v.len)).collect();
        let structs = self.vars.iter().filter_map(|v| v.text.strip_suffix(".in.a"));
        objects.extend(structs.map(|name| (name.to_string(), 0)));
        if !objects.is_empty() && self.c.one_in(2) {
            let at = self.c.below(objects.len());
            let (object, len) = objects[at].clone();
            let dynamic = self.int();
            if len == 0 {
                return format!("{}({object});", if self.c.one_in(2) { "trace" } else { "print" });
            }
            return match self.c.below(4) {
                0 => format!("trace({object});"),
                1 => format!("print({object});"),
                2 => format!("tracemem(&{object}[0], {len});"),
                _ => format!("tracemem(&{object}[0], {len}, {dynamic});"),
            };
        }
        match self.shape.strings && self.c.one_in(3) {
            true => format!("print({});", self.string()),
            false => format!("print({});", self.int()),
        }
    }

    fn statement_inner(&mut self) -> String {
        let value = self.int();
        let a = format!("trace({value});");
        if !self.c.one_in(2) {
            return a;
        }
        let value = self.int();
        format!("{a} }} else {{ trace({value});")
    }

    /// Assigns scratch memory with a struct, or the address of a struct, to a pointer. From then on
    /// its members are variables. In other clauses the pointer is invalid, which is a fault.
    fn pointer(&mut self) -> Option<String> {
        let structs = self.structs();
        let at = self.c.below(structs.len().max(1));
        let from = structs.get(at).filter(|name| !name.contains(['[', '(']))?;
        let scope = self.c.pick(&["this->", "self->", ""]);
        let name = format!("{scope}x{}", self.vars.len());
        for member in ["c", "u", "l", "in.b[2]", "m[1][2]"] {
            let text = format!("{name}->{member}");
            self.vars.push(Var { text, string: false, keys: Vec::new(), len: 0, writable: true });
        }
        Some(match self.c.below(3) {
            0 => format!("{name} = &{from};"),
            1 => format!("{name} = (struct s *)alloca(sizeof (struct s)); *{name} = {from};"),
            _ => format!(
                "{name} = (struct s *)alloca(2 * sizeof (struct s)); bcopy(&{from}, {name}, sizeof (struct s));"
            ),
        })
    }

    /// A first assignment, which declares the variable.
    fn first_assignment(&mut self) -> String {
        if self.shape.objects
            && self.c.one_in(4)
            && let Some(pointer) = self.pointer()
        {
            return pointer;
        }
        let number = self.vars.len();
        let scope = self.c.pick(&["", "self->", "this->"]);
        let string = self.shape.strings && self.c.one_in(3);
        let keys = if scope != "this->" && self.c.one_in(3) { self.keys() } else { Vec::new() };
        let text = format!("{scope}x{number}");
        let value = if string { self.string() } else { self.int() };
        let mut place = text.clone();
        if !keys.is_empty() {
            let list: Vec<String> =
                keys.iter().map(|s| if *s { self.string() } else { self.int() }).collect();
            place = format!("{text}[{}]", list.join(", "));
        }
        // Only later statements may use it.
        self.vars.push(Var { text, string, keys, len: 0, writable: true });
        format!("{place} = {value};")
    }

    fn printf(&mut self) -> String {
        let mut format = String::new();
        let mut args = String::new();
        for _ in 0..self.c.below(4) {
            if self.shape.strings && self.c.one_in(3) {
                format.push_str(self.c.pick(&["%s ", "%-9s|", "%S "]));
                let s = self.string();
                args.push_str(&format!(", {s}"));
            } else {
                format.push_str(self.c.pick(&["%d ", "%x ", "%5u ", "%i|", "%o "]));
                let v = self.int();
                args.push_str(&format!(", {v}"));
            }
        }
        format!("printf(\"p {format}\"{args});")
    }

    fn aggregate(&mut self) -> String {
        let structs = self.structs();
        if !structs.is_empty() && self.c.one_in(3) {
            let name = &structs[self.c.below(structs.len())];
            return format!("@structs[{name}] = count();");
        }
        if self.aggs.is_empty() || self.c.one_in(2) {
            let name = format!("@g{}", self.aggs.len());
            let func = self.c.pick(&FUNCTIONS);
            let keys = if self.c.one_in(3) { Vec::new() } else { self.keys() };
            self.aggs.push((name, func, keys));
        }
        let at = self.c.below(self.aggs.len());
        let (name, func, keys) = self.aggs[at].clone();
        let list: Vec<String> = keys.iter().map(|s| if *s { self.string() } else { self.int() }).collect();
        let key = if list.is_empty() { String::new() } else { format!("[{}]", list.join(", ")) };
        let value = self.int();
        let call = match func {
            "count" => "count()".into(),
            "lquantize" => format!("lquantize({value}, -100, 100, 10)"),
            "llquantize" => format!("llquantize({value}, 10, 0, 6, 20)"),
            _ => format!("{func}({value})"),
        };
        format!("{name}{key} = {call};")
    }
}
