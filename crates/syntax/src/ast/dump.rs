//! Prints the tree as text, for golden tests and for debugging.
//!
//! The dump has one line for each item, statement and member. Expressions are in prefix notation
//! with all parentheses. Types are in words, outward from the name (`a: array [5] of pointer to
//! int`).

use std::fmt::Write as _;

use diagnostics::Span;

use super::*;

impl Program {
    /// The tree as text.
    pub fn dump(&self) -> String {
        self.dump_with(false)
    }

    /// The tree as text, with the byte range of every line and expression.
    pub fn dump_spans(&self) -> String {
        self.dump_with(true)
    }

    fn dump_with(&self, spans: bool) -> String {
        let mut d = Dump { out: String::new(), indent: 0, spans };
        for item in &self.items {
            d.item(item);
        }
        d.out
    }
}

impl Expr {
    /// The expression as text, in prefix notation.
    pub fn dump(&self) -> String {
        Dump { out: String::new(), indent: 0, spans: false }.expr(self)
    }
}

impl TypeName {
    /// The type in words, from the outermost step inward.
    pub fn dump(&self) -> String {
        Dump { out: String::new(), indent: 0, spans: false }.ty(&self.specs, &self.declarator)
    }
}

struct Dump {
    out: String,
    indent: usize,
    spans: bool,
}

fn quoted(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

fn scoped(module: Option<&Name>, name: &Name) -> String {
    module.map_or_else(|| name.text.clone(), |m| format!("{}`{}", m.text, name.text))
}

impl Dump {
    fn line(&mut self, span: Span, text: &str) {
        let indent = self.indent * 2;
        let _ = write!(self.out, "{:indent$}{text}", "");
        if self.spans {
            let _ = write!(self.out, "  @{span:?}");
        }
        self.out.push('\n');
    }

    fn item(&mut self, item: &Item) {
        match item {
            Item::Clause(c) => self.clause(c),
            Item::Declaration(d) => self.declaration(d),
            Item::Inline(i) => {
                let value = self.expr(&i.value);
                let ty = self.ty(&i.specs, &i.declarator);
                let params = i.params.as_ref().map(|p| format!("[{}]", self.params(p)));
                let name = i.declarator.name.as_ref().map_or("", |n| n.text.as_str());
                let params = params.unwrap_or_default();
                self.line(i.span, &format!("inline {name}{params}: {ty} = {value}"));
            }
            Item::Translator(t) => {
                let output = self.ty(&t.output.specs, &t.output.declarator);
                let input = self.param(&t.input);
                self.line(t.span, &format!("translator {output} < {input} >"));
                self.indent += 1;
                for m in &t.members {
                    let value = self.expr(&m.value);
                    self.line(m.span, &format!("{} = {value}", m.name.text));
                }
                self.indent -= 1;
            }
            Item::Provider(p) => {
                let family = if p.of_processes { "[pid]" } else { "" };
                self.line(p.span, &format!("provider {}{family}", p.name.text));
                self.indent += 1;
                for probe in &p.probes {
                    let mut text = format!("probe {} ({})", probe.name.text, self.params(&probe.native));
                    if let Some(translated) = &probe.translated {
                        let _ = write!(text, " : ({})", self.params(translated));
                    }
                    self.line(probe.span, &text);
                }
                self.indent -= 1;
            }
            Item::Pragma(p) => self.pragma(p),
        }
    }

    fn pragma(&mut self, p: &Pragma) {
        let text = match &p.kind {
            PragmaKind::Option { name, value: None } => format!("option {}", name.text),
            PragmaKind::Option { name, value: Some(v) } => format!("option {} = {}", name.text, v.text),
            PragmaKind::Attributes { triple, subject: AttributeSubject::Ident(name) } => {
                format!("attributes {} {}", triple.text, name.text)
            }
            PragmaKind::Attributes { triple, subject: AttributeSubject::Provider { provider, field } } => {
                format!("attributes {} provider {} {}", triple.text, provider.text, field.text)
            }
            PragmaKind::Binding { version, name } => format!("binding {} {}", version.text, name.text),
            PragmaKind::DependsOn { class, name } => format!("depends_on {class:?} {}", name.text),
        };
        self.line(p.span, &format!("pragma {text}"));
    }

    fn clause(&mut self, c: &Clause) {
        self.line(c.span, "clause");
        self.indent += 1;
        for p in &c.probes {
            let text = match &p.kind {
                ProbeDescKind::Id(id) => format!("id {id}"),
                ProbeDescKind::Fields { provider, module, function, name } => {
                    format!("description {}:{}:{}:{}", provider.text, module.text, function.text, name.text)
                }
            };
            self.line(p.span, &text);
        }
        if let Some(p) = &c.predicate {
            let text = self.expr(p);
            self.line(p.span, &format!("predicate {text}"));
        }
        match &c.body {
            None => self.line(Span::new(c.span.file, c.span.end, c.span.end), "no body"),
            Some(body) => {
                self.line(body.span, "body");
                self.block(body);
            }
        }
        self.indent -= 1;
    }

    fn block(&mut self, block: &Block) {
        self.indent += 1;
        for stmt in &block.stmts {
            match &stmt.kind {
                StmtKind::Empty => self.line(stmt.span, "empty"),
                StmtKind::Expr(e) => {
                    let text = self.expr(e);
                    self.line(stmt.span, &text);
                }
                StmtKind::If { cond, then, otherwise } => {
                    let cond = self.expr(cond);
                    self.line(stmt.span, &format!("if {cond}"));
                    self.block(then);
                    if let Some(otherwise) = otherwise {
                        self.line(otherwise.span, "else");
                        self.block(otherwise);
                    }
                }
            }
        }
        self.indent -= 1;
    }

    fn declaration(&mut self, d: &Declaration) {
        let storage = d.specs.storage.map_or(String::new(), |s| format!("{} ", s.class.text()));
        if d.declarators.is_empty() {
            let ty = self.base(&d.specs);
            self.line(d.span, &format!("declare {storage}{ty}"));
        }
        for declarator in &d.declarators {
            let text = self.declarator(&d.specs, declarator);
            self.line(declarator.span, &format!("declare {storage}{text}"));
        }
    }

    fn declarator(&self, specs: &DeclSpecs, d: &Declarator) -> String {
        let name = d.name.as_ref().map_or("_", |n| n.text.as_str());
        let bits = d.bits.as_ref().map_or(String::new(), |b| format!(" : {}", self.expr(b)));
        format!("{name}: {}{bits}", self.ty(specs, d))
    }

    fn param(&self, p: &Param) -> String {
        match p.declarator.name {
            Some(_) => self.declarator(&p.specs, &p.declarator),
            None => self.ty(&p.specs, &p.declarator),
        }
    }

    fn params(&self, params: &Params) -> String {
        let mut list: Vec<String> = params.list.iter().map(|p| self.param(p)).collect();
        if params.varargs.is_some() {
            list.push("...".to_owned());
        }
        list.join(", ")
    }

    fn ty(&self, specs: &DeclSpecs, d: &Declarator) -> String {
        let mut out = String::new();
        for part in &d.parts {
            let _ = match &part.kind {
                DeclPartKind::Pointer(quals) => write!(out, "{}pointer to ", quals_text(*quals)),
                DeclPartKind::Array(None) => write!(out, "array [] of "),
                DeclPartKind::Array(Some(size)) => write!(out, "array [{}] of ", self.expr(size)),
                DeclPartKind::Tuple(keys) => write!(out, "associative [{}] of ", self.params(keys)),
                DeclPartKind::Function(params) => write!(out, "function ({}) of ", self.params(params)),
            };
        }
        out + &self.base(specs)
    }

    fn base(&self, specs: &DeclSpecs) -> String {
        let base = match &specs.ty.kind {
            TypeSpecKind::Error => "<error>".to_owned(),
            TypeSpecKind::Void => "void".to_owned(),
            TypeSpecKind::String => "string".to_owned(),
            TypeSpecKind::Arith { kind, signed } => {
                let sign = match signed {
                    None => "",
                    Some(true) => "signed ",
                    Some(false) => "unsigned ",
                };
                format!("{sign}{}", kind.text())
            }
            TypeSpecKind::Named { module, name } => scoped(module.as_ref(), name),
            TypeSpecKind::Record(r) => {
                let mut text = if r.is_union { "union" } else { "struct" }.to_owned();
                if let Some(tag) = &r.tag {
                    let _ = write!(text, " {}", scoped(r.module.as_ref(), tag));
                }
                if let Some(members) = &r.members {
                    text.push_str(" {");
                    for m in members {
                        if m.declarators.is_empty() {
                            let _ = write!(text, " {};", self.base(&m.specs));
                        }
                        for d in &m.declarators {
                            let _ = write!(text, " {};", self.declarator(&m.specs, d));
                        }
                    }
                    text.push_str(" }");
                }
                text
            }
            TypeSpecKind::Enum(e) => {
                let mut text = "enum".to_owned();
                if let Some(tag) = &e.tag {
                    let _ = write!(text, " {}", scoped(e.module.as_ref(), tag));
                }
                if let Some(list) = &e.enumerators {
                    let list: Vec<String> = list
                        .iter()
                        .map(|e| {
                            let value = e.value.as_ref().map(|v| format!(" = {}", self.expr(v)));
                            e.name.text.clone() + &value.unwrap_or_default()
                        })
                        .collect();
                    let _ = write!(text, " {{ {} }}", list.join(", "));
                }
                text
            }
        };
        quals_text(specs.quals) + &base
    }

    fn list(&self, list: &[Expr]) -> String {
        list.iter().map(|e| self.expr(e)).collect::<Vec<_>>().join(", ")
    }

    fn expr(&self, e: &Expr) -> String {
        let text = match &e.kind {
            ExprKind::Error => "<error>".to_owned(),
            ExprKind::Int(lit) => {
                let value = if lit.negative { (lit.value as i64).to_string() } else { lit.value.to_string() };
                format!("{value}{}", int_type(lit))
            }
            ExprKind::Char(value) => format!("char {value:#x}"),
            ExprKind::Str(s) => quoted(&s.bytes),
            ExprKind::Ident(name) => name.text.clone(),
            ExprKind::Symbol { module, name } => {
                format!("{}`{}", module.as_ref().map_or("", |m| m.text.as_str()), name.text)
            }
            ExprKind::SelfVar(name) => format!("self->{}", name.text),
            ExprKind::ThisVar(name) => format!("this->{}", name.text),
            ExprKind::Agg(agg) => match &agg.keys {
                None => format!("@{}", agg.name.text),
                Some(keys) => format!("@{}[{}]", agg.name.text, self.list(keys)),
            },
            ExprKind::Index { base, keys } => format!("{}[{}]", self.expr(base), self.list(keys)),
            ExprKind::Member { base, arrow, name } => {
                format!("(member{} {} {})", if *arrow { "->" } else { "." }, self.expr(base), name.text)
            }
            ExprKind::Call { callee, args } => {
                format!("{}({})", self.expr(callee), self.list(args))
            }
            ExprKind::Unary { op, operand } => format!("({} {})", op.text(), self.expr(operand)),
            ExprKind::Postfix { decrement, operand } => {
                format!("(post{} {})", if *decrement { "--" } else { "++" }, self.expr(operand))
            }
            ExprKind::SizeofExpr(operand) => format!("(sizeof {})", self.expr(operand)),
            ExprKind::SizeofType(ty) => format!("(sizeof type {})", self.ty(&ty.specs, &ty.declarator)),
            ExprKind::Stringof(operand) => format!("(stringof {})", self.expr(operand)),
            ExprKind::Offsetof { ty, member } => {
                format!("(offsetof {} {})", self.ty(&ty.specs, &ty.declarator), member.text)
            }
            ExprKind::Defined { ty, path } => {
                let path: String = path.iter().map(|n| format!(" {}", n.text)).collect();
                format!("(defined <{}>{path})", self.ty(&ty.specs, &ty.declarator))
            }
            ExprKind::DefinedSymbol { module, name } => {
                format!("(defined {}`{})", module.as_ref().map_or("", |m| &m.text), name.text)
            }
            ExprKind::DefinedProbe { probe, arg: None } => format!("(defined probe {})", probe.text),
            ExprKind::DefinedProbe { probe, arg: Some(n) } => {
                format!("(defined probe {} args[{n}])", probe.text)
            }
            ExprKind::Xlate { ty, operand } => {
                format!("(xlate <{}> {})", self.ty(&ty.specs, &ty.declarator), self.expr(operand))
            }
            ExprKind::Cast { ty, operand } => {
                format!("(cast <{}> {})", self.ty(&ty.specs, &ty.declarator), self.expr(operand))
            }
            ExprKind::Binary { op, left, right, .. } => {
                format!("({} {} {})", op.text(), self.expr(left), self.expr(right))
            }
            ExprKind::Cond { cond, then, otherwise } => {
                format!("(?: {} {} {})", self.expr(cond), self.expr(then), self.expr(otherwise))
            }
            ExprKind::Assign { op, target, value } => {
                let op = op.map_or("", BinaryOp::text);
                format!("({op}= {} {})", self.expr(target), self.expr(value))
            }
            ExprKind::Comma { left, right } => {
                format!("(, {} {})", self.expr(left), self.expr(right))
            }
        };
        if self.spans { format!("{text}@{:?}", e.span) } else { text }
    }
}

/// The suffix of the constant's type; empty for `int`.
fn int_type(lit: &IntLit) -> &'static str {
    match lit.ty() {
        IntLitType::Int => "",
        IntLitType::UInt => "u",
        IntLitType::Long => "l",
        IntLitType::ULong => "ul",
        IntLitType::LongLong => "ll",
        IntLitType::ULongLong => "ull",
    }
}

fn quals_text(quals: Quals) -> String {
    [
        (quals.is_const, "const "),
        (quals.is_volatile, "volatile "),
        (quals.is_restrict, "restrict "),
        (quals.is_userland, "userland "),
    ]
    .into_iter()
    .filter_map(|(on, text)| on.then_some(text))
    .collect()
}
