//! Provider blocks, checked.

use diagnostics::{Diagnostic, Sink, SourceMap, Span, Tag};
use probes::Attributes;
use syntax::ast::{
    AttributeSubject, DeclPartKind, DeclSpecs, Declaration, Declarator, Item, Param, PragmaKind, Program,
    ProviderDef, ProviderProbe, StorageClass, TypeSpecKind,
};

use crate::ctype::{Passing, Typedefs};
use crate::description;

/// The arguments that a probe of D may have.
const ARGS_OF_D: usize = 32;

/// The arguments that a note can describe for the readers that exist.
const ARGS_OF_NOTE: usize = 12;

/// The longest name of a provider, in bytes: with the id of a process behind it, it fits the field.
const LONGEST_PROVIDER: usize = 53;

/// The longest name of a probe, in bytes.
const LONGEST_PROBE: usize = 63;

/// What a definition may use without declaring it, the types of the D libraries, and what it may
/// not declare.
pub trait TypesOfSystem {
    /// True if a D library defines the type.
    fn has(&self, name: &str) -> bool;

    /// True if a provider of the system has the name. A description without the id of a process
    /// means that one.
    fn has_provider(&self, _name: &str) -> bool {
        false
    }
}

/// The providers that some files define.
#[derive(Debug, Default)]
pub struct Definitions {
    pub(crate) providers: Vec<Provider>,
}

/// A provider.
#[derive(Debug)]
pub(crate) struct Provider {
    pub(crate) name: String,
    pub(crate) probes: Vec<Probe>,
    /// D text: see [`description`].
    pub(crate) text: String,
}

/// A probe.
#[derive(Debug)]
pub(crate) struct Probe {
    /// The name in the definition, with `__` for `-`.
    pub(crate) name: String,
    /// The name of the macro, without the provider's.
    pub(crate) upper: String,
    /// The declaration of the parameters, for a comment.
    pub(crate) declared: String,
    pub(crate) args: Vec<Passing>,
}

/// `__` and `-` are one underscore in a macro's name.
fn upper(name: &str) -> String {
    name.replace("__", "_").replace('-', "_").to_uppercase()
}

impl Probe {
    pub(crate) fn semaphore(&self, provider: &str) -> String {
        format!("{provider}_{}_semaphore", self.name)
    }
}

impl Provider {
    pub(crate) fn macro_name(&self, probe: &Probe) -> String {
        format!("{}_{}", upper(&self.name), probe.upper)
    }

    /// The symbol and the group of the note that describes it.
    pub(crate) fn symbol(&self) -> String {
        format!("_.dtrace.{}.{:016x}", self.name, description::hash(&self.text))
    }
}

/// Checks the provider blocks of a file, and adds its providers to `all`. Errors go to the sink.
pub fn define(
    program: &Program,
    map: &SourceMap,
    system: &dyn TypesOfSystem,
    all: &mut Definitions,
    sink: &mut Sink,
) {
    let typedefs = Typedefs::of(program);
    let mut file = File { program, map, system, typedefs, sink };
    file.pragmas();
    for item in &program.items {
        if let Item::Provider(block) = item {
            file.provider(block, all);
        }
    }
}

struct File<'a> {
    program: &'a Program,
    map: &'a SourceMap,
    system: &'a dyn TypesOfSystem,
    typedefs: Typedefs<'a>,
    sink: &'a mut Sink,
}

impl File<'_> {
    fn error(&mut self, tag: Tag, span: Span, message: String, help: &str) {
        let d = Diagnostic::new(tag, span, message);
        self.sink.push(if help.is_empty() { d } else { d.with_help(help) });
    }

    /// The attributes in `#pragma D attributes`, and the providers that they are of.
    fn pragmas(&mut self) {
        for item in &self.program.items {
            let Item::Pragma(pragma) = item else { continue };
            let PragmaKind::Attributes { triple, subject } = &pragma.kind else { continue };
            if Attributes::parse(&triple.text).is_none() {
                let message = format!("invalid attributes specified by #pragma attributes: {}", triple.text);
                let help = "it takes a triple, as in Evolving/Evolving/Common";
                self.error(Tag::D_PRAGMA_MALFORM, pragma.span, message, help);
            }
            let AttributeSubject::Provider { provider, .. } = subject else { continue };
            let own = |i: &Item| matches!(i, Item::Provider(p) if p.name.text == provider.text);
            if !self.program.items.iter().any(own) {
                let what = &provider.text;
                let message =
                    format!("#pragma attributes cannot modify provider {what} defined outside program scope");
                self.error(Tag::D_PRAGMA_SCOPE, provider.span, message, "");
            }
        }
    }

    fn provider(&mut self, block: &ProviderDef, all: &mut Definitions) {
        let name = &block.name.text;
        if name.ends_with(|c: char| c.is_ascii_digit()) {
            let message = format!("provider name {name} may not end with a digit");
            let help = "the id of the process follows the name: NAME1234";
            self.error(Tag::D_PROV_BADNAME, block.name.span, message, help);
        }
        let is_of_system = self.system.has_provider(name);
        if is_of_system || name == "pid" || name.contains('`') {
            let message = match name.as_str() {
                "pid" => "provider name pid is that of the probes of functions in processes".to_string(),
                _ if is_of_system => format!("provider name {name} is that of a provider of the system"),
                _ => format!("provider name {name} may not have a scope"),
            };
            self.error(Tag::D_PROV_BADNAME, block.name.span, message, "choose the name of the program");
        }
        if name.len() > LONGEST_PROVIDER {
            let message = format!("provider name {name} is longer than {LONGEST_PROVIDER} characters");
            self.error(Tag::D_PROV_BADNAME, block.name.span, message, "");
        }
        if all.providers.iter().any(|p| p.name == *name) {
            let message = format!("provider {name} has been declared already");
            let help = "declare all probes of a provider in one block";
            self.error(Tag::D_PROV_INCOMPAT, block.name.span, message, help);
        }
        let mut probes: Vec<Probe> = Vec::new();
        for probe in &block.probes {
            let args = self.probe(probe);
            let source = &probe.name.text;
            let macro_name = upper(source);
            if let Some(other) = probes.iter().find(|p| p.upper == macro_name) {
                let message = match other.name == *source {
                    true => format!("probe {source} has been declared already"),
                    false => format!("probes {} and {source} have the same macro", other.name),
                };
                self.error(Tag::D_PROV_PRDUP, probe.name.span, message, "");
            }
            let declared = description::compact(self.map.snippet(probe.native.span));
            let declared = declared.trim_start_matches('(').trim_end_matches([')', ':']).trim();
            probes.push(Probe {
                name: source.clone(),
                upper: macro_name,
                declared: format!("({declared})"),
                args,
            });
        }
        let text = self.text(block);
        if description::texts(name, &text).len() + 4 > description::LONGEST {
            let message = format!(
                "the description of provider {name} is longer than {} KiB",
                description::LONGEST >> 10
            );
            let help = "its types and translators are part of the program that has the probes";
            self.error(Tag::D_PROV_INCOMPAT, block.name.span, message, help);
        }
        all.providers.push(Provider { name: name.clone(), probes, text });
    }

    /// Checks a probe; how its arguments are passed.
    fn probe(&mut self, probe: &ProviderProbe) -> Vec<Passing> {
        let name = &probe.name.text;
        if name.len() > LONGEST_PROBE {
            let message = format!("probe name {name} is longer than {LONGEST_PROBE} characters");
            self.error(Tag::D_PROV_BADNAME, probe.name.span, message, "");
        }
        let lists = [Some(&probe.native), probe.translated.as_ref()];
        for span in lists.into_iter().flatten().filter_map(|l| l.varargs) {
            let message = format!("probe {name} may not have a varying number of arguments");
            self.error(Tag::D_DECL_PROTO_VARARGS, span, message, "declare each argument");
        }
        let natives: &[Param] = match probe.native.list.as_slice() {
            // `(void)`
            [only] if is_void(only) && only.declarator.name.is_none() => &[],
            list => list,
        };
        if natives.len() > ARGS_OF_NOTE {
            let most = if natives.len() > ARGS_OF_D { ARGS_OF_D } else { ARGS_OF_NOTE };
            let message = format!("probe {name} has more than {most} arguments");
            let help = "pass the address of a struct, and declare a translator for it";
            self.error(Tag::D_PROV_PRARGLEN, probe.native.span, message, help);
        }
        let args = natives.iter().enumerate().map(|(n, param)| self.argument(name, n, param)).collect();
        let outputs = probe.translated.iter().flat_map(|t| &t.list).enumerate();
        for (n, output) in outputs {
            if is_void(output) && output.declarator.name.is_none() {
                continue;
            }
            let input = match &output.declarator.name {
                Some(name) => {
                    let is = |p: &&Param| p.declarator.name.as_ref().is_some_and(|n| n.text == name.text);
                    let unnamed = natives.iter().all(|p| p.declarator.name.is_none());
                    natives.iter().find(is).or_else(|| natives.get(n).filter(|_| unnamed))
                }
                None => natives.get(n),
            };
            match input {
                Some(input) => self.translation(name, n, input, output),
                None => {
                    let message = format!("argument {n} of probe {name} is none of its parameters");
                    let help = "give it the name of the parameter from which it is translated";
                    self.error(Tag::D_DECL_PROTO_FORM, output.span, message, help);
                }
            }
        }
        args
    }

    fn argument(&mut self, probe: &str, n: usize, param: &Param) -> Passing {
        match self.typedefs.passing(&param.specs, &param.declarator) {
            Ok(passing) => passing,
            Err("void") => {
                let message = format!("parameter {n} of probe {probe} is void");
                self.error(Tag::D_DECL_PROTO_VOID, param.span, message, "a probe without arguments has ()");
                Passing::Unknown
            }
            Err(what) => {
                let message = format!("parameter {n} of probe {probe} is {what}, which a probe cannot pass");
                let help = "integers, floating-point numbers up to double and pointers can be passed";
                self.error(Tag::D_DECL_PROTO_TYPE, param.span, message, help);
                Passing::Unknown
            }
        }
    }

    /// Checks that D can make an argument from the parameter.
    fn translation(&mut self, probe: &str, n: usize, input: &Param, output: &Param) {
        let native = type_text(&input.specs, &input.declarator);
        let wanted = type_text(&output.specs, &output.declarator);
        // Numbers, strings and addresses of them are converted.
        let named = match &output.specs.ty.kind {
            TypeSpecKind::Named { name, .. } => Some(name.text.clone()),
            TypeSpecKind::Record(r) => r.tag.as_ref().map(|t| t.text.clone()),
            _ => None,
        };
        let is_number = self
            .typedefs
            .passing(&output.specs, &output.declarator)
            .is_ok_and(|p| matches!(p, Passing::Integer(..) | Passing::Bool | Passing::Float(_)));
        let Some(named) = named.filter(|_| native != wanted && !is_number) else { return };
        let target = wanted.trim_end_matches([' ', '*']);
        let is_translator = |item: &Item| {
            let Item::Translator(t) = item else { return false };
            let output = type_text(&t.output.specs, &t.output.declarator);
            let from = type_text(&t.input.specs, &t.input.declarator);
            output == target && (from == native || from == native.trim_end_matches([' ', '*']))
        };
        if !self.program.items.iter().any(is_translator) && !self.is_of_system(&named) {
            let message =
                format!("translator for {target} from {native} required by argument {n} of probe {probe}");
            let help = format!("declare one: translator {target} < {native} x > {{ … }};");
            self.error(Tag::D_PROV_PRXLATOR, output.span, message, &help);
        }
    }

    fn is_of_system(&self, name: &str) -> bool {
        !self.typedefs.has(name) && self.system.has(name)
    }

    /// The provider as D text.
    fn text(&self, block: &ProviderDef) -> String {
        let mut lines: Vec<String> = Vec::new();
        for item in &self.program.items {
            let slice = |span: Span| format!("{};", description::compact(self.map.snippet(span)));
            match item {
                Item::Pragma(pragma) => match &pragma.kind {
                    PragmaKind::Attributes {
                        triple,
                        subject: AttributeSubject::Provider { provider, field },
                    } if provider.text == block.name.text => {
                        let (triple, provider, field) = (&triple.text, &provider.text, &field.text);
                        lines.push(format!("#pragma D attributes {triple} provider {provider} {field}"));
                    }
                    _ => {}
                },
                Item::Declaration(d) if declares_types(d) => lines.push(slice(d.span)),
                Item::Inline(x) => lines.push(slice(x.span)),
                Item::Translator(x) => lines.push(slice(x.span)),
                _ => {}
            }
        }
        lines.push(format!("{};", description::compact(self.map.snippet(block.span))));
        lines.push(String::new());
        lines.join("\n")
    }
}

/// True if a declaration is one of types, and so part of the definition that a program has.
pub fn declares_types(d: &Declaration) -> bool {
    d.declarators.is_empty() || d.specs.storage.is_some_and(|s| s.class == StorageClass::Typedef)
}

fn is_void(param: &Param) -> bool {
    param.specs.ty.kind == TypeSpecKind::Void && param.declarator.parts.is_empty()
}

/// A type in one form, without qualifiers and without the declared name: for comparisons.
fn type_text(specs: &DeclSpecs, declarator: &Declarator) -> String {
    let mut out = match &specs.ty.kind {
        TypeSpecKind::Error => "?".to_string(),
        TypeSpecKind::Void => "void".into(),
        TypeSpecKind::String => "string".into(),
        TypeSpecKind::Arith { kind, signed } => {
            format!("{}{}", if *signed == Some(false) { "unsigned " } else { "" }, kind.text())
        }
        TypeSpecKind::Named { name, .. } => name.text.clone(),
        TypeSpecKind::Record(r) => {
            let tag = r.tag.as_ref().map_or("", |t| &t.text);
            format!("{} {tag}", if r.is_union { "union" } else { "struct" })
        }
        TypeSpecKind::Enum(e) => format!("enum {}", e.tag.as_ref().map_or("", |t| &t.text)),
    };
    let mut stars = String::new();
    for part in declarator.parts.iter().rev() {
        match part.kind {
            DeclPartKind::Pointer(_) | DeclPartKind::Array(_) => stars.push('*'),
            DeclPartKind::Function(_) => stars.push_str("()"),
            DeclPartKind::Tuple(_) => stars.push_str("[]"),
        }
    }
    if !stars.is_empty() {
        out.push(' ');
        out.push_str(&stars);
    }
    out
}
