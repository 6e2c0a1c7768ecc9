//! Definitions that the files of programs have of their providers: types, inlines and translators
//! as D text.
//!
//! ```text
//!  args[n] of a probe ──► Catalog::definition ──► the names of this definition, made at its first use
//!                                                   │ types, inlines and translators of it
//!                                                   └──► the types of args[]
//! ```
//!
//! The main design decision: **each definition has names of its own.** It is checked as a program
//! is, while the names of types, inlines and variables are exchanged for those of the definition
//! ([`Checker::in_definition`]). So two versions of a program may each have a `struct request`, no
//! name of a definition means anything in a script or in another definition, and a definition sees
//! nothing of the kernel, of a script and of other programs; of the D libraries it sees typedefs.
//! Definitions with the same text are one.
//!
//! The text is a traced process's. What it may say is checked before anything of it is
//! ([`read_only`]): it reads. All pointers in it are addresses of the process. What is wrong with a
//! definition is a message, and the probes have the types that their sites give.

mod read_only;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use diagnostics::{Diagnostic, SourceMap, Span};
use probes::{ArgType, Args, ProbeDesc, TypeRef};
use syntax::TypeNames;
use syntax::ast::{Item, Param, Program, ProviderProbe, TypeSpecKind};
use syntax::library::probe_name;
use types::TypeId;

use crate::context::{Context, Definition};
use crate::program::{Builtin, Expr, ExprKind, IntBuiltin};
use crate::session::Checker;
use crate::state::defined::Space;
use crate::state::expansion::Expansions;

/// The most orders of arguments that one definition can have in a clause that uses `argN`.
const ORDERS_MOST: usize = 64;

impl Checker<'_> {
    /// Runs `f` while the names of a definition are in use; `None`: those of the programs and the
    /// libraries.
    pub(crate) fn in_definition<T>(&mut self, to: Option<u32>, f: impl FnOnce(&mut Self) -> T) -> T {
        let from = self.defined.current;
        self.use_names(to);
        let out = f(self);
        self.use_names(from);
        out
    }

    fn use_names(&mut self, to: Option<u32>) {
        let from = self.defined.current;
        if from == to {
            return;
        }
        let new = || Space {
            types: to.map(|n| self.types.names_of_definition(n)).unwrap_or_default(),
            ..Space::default()
        };
        let mut space = self.defined.spaces.remove(&to).unwrap_or_else(new);
        self.types.swap_names(&mut space.types);
        std::mem::swap(&mut self.scopes.names, &mut space.names);
        self.defined.spaces.insert(from, space);
        self.defined.current = to;
    }

    /// Runs `f` while the translators of a definition can be used.
    pub(crate) fn with_translators_of<T>(
        &mut self,
        definition: Option<u32>,
        f: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let before = std::mem::replace(&mut self.defined.wanted, definition);
        let out = f(self);
        self.defined.wanted = before;
        out
    }

    /// A typedef of a D library, in a definition.
    pub(crate) fn library_typedef(&mut self, name: &str) -> Option<TypeId> {
        self.defined.current?;
        if !self.cx.libraries.is_type(name) {
            return None;
        }
        self.in_definition(None, |c| {
            c.define_type_from_libraries(name);
            c.types.declared_typedef(name)
        })
    }

    /// The types of a probe's arguments by the definition that its file has.
    pub(crate) fn defined_args(&mut self, probe: &Arc<ProbeDesc>) -> Option<Args> {
        let found = self.definition_of(probe)?;
        if !self.is_parsed(found.number) {
            return None;
        }
        let key = (found.number, probe.name.clone());
        if let Some(known) = self.defined.args.get(&key) {
            return Some(Ok(known.clone()?));
        }
        let definition = self.cx.definitions.iter().find(|d| d.number == found.number)?;
        // There may be one for each file.
        if self.stops() {
            return None;
        }
        let is_usable = self.defined.usable.get(&found.number).copied();
        let is_usable = is_usable.unwrap_or_else(|| {
            let faults = self.load(definition);
            self.defined.messages.extend(not_used(&found.provider, &faults, self.cx.map));
            self.defined.usable.insert(found.number, faults.is_empty());
            faults.is_empty()
        });
        let args = match is_usable {
            true => self.args_by(definition, probe).map(Arc::from),
            false => None,
        };
        self.defined.args.insert(key, args.clone());
        args.map(Ok)
    }

    /// Checks the items of a definition; what is wrong with them.
    fn load(&mut self, definition: &Definition) -> Vec<Diagnostic> {
        let mut faults = definition.faults.clone();
        if faults.is_empty() {
            faults = read_only::check(&definition.program);
        }
        if !faults.is_empty() {
            return faults;
        }
        self.apart(definition.number, |c| {
            for item in &definition.program.items {
                if c.stops() {
                    break;
                }
                match item {
                    Item::Inline(inline) => c.inline(inline),
                    Item::Declaration(d) => c.declaration(d),
                    Item::Translator(t) => c.translator(t),
                    Item::Clause(_) | Item::Provider(_) | Item::Pragma(_) => {}
                }
            }
        })
        .1
    }

    /// Runs `f` with the names of a definition, as if it preceded the programs; with the errors.
    fn apart<T>(&mut self, number: u32, f: impl FnOnce(&mut Self) -> T) -> (T, Vec<Diagnostic>) {
        let outside = self.sink.divert();
        let region = self.sink.set_region(None);
        let depth = std::mem::take(&mut self.expansion.depth);
        let expansions = std::mem::replace(&mut self.expansion.uses, Expansions::of_definition());
        let (firing, space) = (self.args.firing.take(), self.scopes.space.take());
        let (out, _) =
            self.collect_attributes(|c| c.in_definition(Some(number), |c| c.with_bound(HashMap::new(), f)));
        self.expansion.depth = depth;
        self.expansion.uses = expansions;
        (self.args.firing, self.scopes.space) = (firing, space);
        self.sink.set_region(region);
        let inside = self.sink.restore(outside);
        (out, inside.into_sorted())
    }

    /// The arguments of a probe. `None` if the definition has no such probe, or something is wrong
    /// with its types.
    fn args_by(&mut self, definition: &Definition, probe: &Arc<ProbeDesc>) -> Option<Vec<ArgType>> {
        let declared = declared(&definition.program, probe)?;
        // What the sites have: a definition may name more.
        let sites = self.provided_args(probe).unwrap_or_else(|_| Arc::new([]));
        let number = definition.number;
        let (args, faults): (Option<Vec<ArgType>>, _) = self.apart(number, |c| {
            let natives: Vec<&Param> = match declared.native.list.as_slice() {
                [only] if is_void(only) => Vec::new(),
                list => list.iter().collect(),
            };
            let types: Option<Vec<TypeId>> = natives.iter().map(|p| c.param(p).ok()).collect();
            let types = types?;
            let native = |n: usize| {
                let ty = ArgType { native: TypeRef::Known(*types.get(n)?), ..ArgType::text(n as u8, "") };
                let why = "the site does not give it";
                Some(if n < sites.len() { ty } else { ty.unreadable(why) }.in_process())
            };
            let Some(outputs) = &declared.translated else { return (0..types.len()).map(native).collect() };
            let outputs = outputs.list.iter().enumerate().filter(|(_, output)| !is_void(output));
            let args = outputs.map(|(n, output)| {
                let from = output.declarator.name.as_ref().and_then(|name| {
                    let is = |p: &&Param| p.declarator.name.as_ref().is_some_and(|n| n.text == name.text);
                    natives.iter().position(is)
                });
                let arg = native(from.unwrap_or(n))?;
                let shown = c.param(output).ok()?;
                let is_other = arg.native != TypeRef::Known(shown);
                // What a translator makes is nowhere in memory.
                let shown = match c.types.pointee(shown) {
                    Some((target, _)) if is_other && c.types.is_sou(target) => c.types.pointer(target),
                    _ => shown,
                };
                let definition = Some(number);
                Some(match is_other {
                    true => ArgType { translated: Some(TypeRef::Known(shown)), definition, ..arg },
                    false => arg,
                })
            });
            args.collect()
        });
        if let Some(fault) = faults.first() {
            let why = fault.render(self.cx.map, true);
            let why = why.lines().next().unwrap_or_default();
            self.defined
                .messages
                .push(format!("the definition of probe {} is not used: {why}", declared.name.text));
        }
        let mut args: Vec<ArgType> = args.filter(|_| faults.is_empty())?;
        for arg in &mut args {
            // An operand that cannot be read has the reason in the place of its type.
            if let Some(site) = sites.get(usize::from(arg.from))
                && let TypeRef::Text(text) = &site.native
                && let Some(why) = text.strip_prefix("(unreadable: ")
            {
                arg.unreadable = Some(why.trim_end_matches(')').into());
            }
        }
        Some(args)
    }

    /// `argN` of probes whose definition passes the arguments of their sites on in another order:
    /// the N-th that it passes on.
    pub(crate) fn mapped_arg(&mut self, builtin: Builtin, ty: TypeId, span: Span) -> Option<Expr> {
        let Builtin::Int(IntBuiltin::Arg(n)) = builtin else { return None };
        if !self.is_any_reordered() {
            return None;
        }
        // The clause is checked for each order.
        if !self.args.raw.contains(&n) {
            self.args.raw.push(n);
        }
        let first = self.args.described.as_ref()?.probes.first()?.desc.clone();
        match self.site_arg(&first, n) {
            Some(from) if from == n => None,
            Some(from) => {
                Some(Expr { kind: ExprKind::Builtin(Builtin::Int(IntBuiltin::Arg(from))), ty, span })
            }
            None => Some(self.int(0, ty, span)),
        }
    }

    /// True if the definition of a probe of the clause passes arguments on in another order than
    /// that of the site.
    fn is_any_reordered(&mut self) -> bool {
        if let Some(known) = self.args.reordered {
            return known;
        }
        let mut is = false;
        if !self.cx.definitions.is_empty() {
            let all = self.args.probes.clone();
            // All of them are looked at, because what is wrong with a definition is said at its
            // first use.
            all.iter().for_each(|probe| is |= self.order(&probe.desc).is_some());
        }
        self.args.reordered = Some(is);
        is
    }

    /// Which argument of a probe's site is its `argN`. `None` if it has no such argument: then it
    /// is 0.
    pub(crate) fn site_arg(&mut self, probe: &Arc<ProbeDesc>, n: u8) -> Option<u8> {
        match self.order(probe) {
            Some(order) => order.get(usize::from(n)).copied().flatten(),
            None => Some(n),
        }
    }

    /// Which arguments of its site the definition of a probe passes on, if not all of them in their
    /// order. `None` within it is one that the site does not have.
    fn order(&mut self, probe: &Arc<ProbeDesc>) -> Option<Vec<Option<u8>>> {
        let args = self.defined_args(probe)?.ok()?;
        let sites = self.provided_args(probe).map_or(0, |args| args.len());
        let is_other = |(n, arg): (usize, &ArgType)| n != usize::from(arg.from);
        if args.len() >= sites && !args.iter().enumerate().any(is_other) {
            return None;
        }
        Some(args.iter().map(|arg| (usize::from(arg.from) < sites).then_some(arg.from)).collect())
    }

    /// Splits the probes of a definition into those whose arguments it passes on in the same order.
    pub(crate) fn by_order(&mut self, probes: &Arc<[probes::ProbeInfo]>) -> Vec<Arc<[probes::ProbeInfo]>> {
        if probes.len() < 2 {
            return vec![probes.clone()];
        }
        let (mut indexes, mut parts, mut left_out) =
            (HashMap::new(), Vec::<Vec<probes::ProbeInfo>>::new(), 0);
        for probe in &**probes {
            let order = self.order(&probe.desc);
            let next = indexes.len();
            let index = match indexes.get(&order) {
                Some(index) => *index,
                // A program may have any number of them, and each is a clause.
                None if next >= ORDERS_MOST => {
                    left_out += 1;
                    continue;
                }
                None => *indexes.entry(order).or_insert(next),
            };
            match parts.get_mut(index) {
                Some(part) => part.push(probe.clone()),
                None => parts.push(vec![probe.clone()]),
            }
        }
        if let Some(probe) = probes.first().filter(|_| left_out > 0) {
            self.defined.messages.push(format!(
                "{left_out} probes like {} are left out: their definition has more than {ORDERS_MOST} orders of arguments",
                probe.desc
            ));
        }
        parts.into_iter().map(Into::into).collect()
    }

    /// What is said of clauses that are not for the probes of a definition.
    pub(crate) fn left_out(&self, probe: &ProbeDesc, faults: &[Diagnostic]) -> Option<String> {
        let why = faults.first()?.render(self.cx.map, false);
        Some(format!("{probe} is left out: {}", why.lines().next().unwrap_or_default()))
    }

    /// Splits probes that programs describe into those of files whose arguments are alike.
    pub(crate) fn by_file(&mut self, probes: &Arc<[probes::ProbeInfo]>) -> Vec<Arc<[probes::ProbeInfo]>> {
        let families = self.cx.catalog.families();
        let is_described = |probe: &probes::ProbeInfo| {
            let mut of = families.iter().filter(|family| family.contains(&probe.desc.provider)).peekable();
            of.peek().is_some() && of.all(|family| family.is_of_any())
        };
        if probes.len() < 2 || !probes.iter().all(is_described) {
            return vec![probes.clone()];
        }
        let (mut numbers, mut files) = (HashMap::new(), HashMap::new());
        let file = |probe: &probes::ProbeInfo| (probe.desc.provider.clone(), probe.desc.module.clone());
        for probe in &**probes {
            let definition = self.definition_of(&probe.desc).map(|d| d.number);
            let (next, form) = (numbers.len(), (definition, self.args_of(&probe.desc)));
            let number = *numbers.entry(form).or_insert(next);
            files.entry(file(probe)).or_insert_with(BTreeSet::new).insert(number);
        }
        let (mut indexes, mut parts) = (HashMap::new(), Vec::<Vec<probes::ProbeInfo>>::new());
        for probe in &**probes {
            let Some(forms) = files.get(&file(probe)) else { continue };
            let index = *indexes.entry(forms).or_insert_with(|| {
                parts.push(Vec::new());
                parts.len() - 1
            });
            if let Some(part) = parts.get_mut(index) {
                part.push(probe.clone());
            }
        }
        parts.into_iter().map(Into::into).collect()
    }

    /// Splits the probes of a description into those of each definition.
    pub(crate) fn by_definition(
        &mut self,
        probes: &Arc<[probes::ProbeInfo]>,
    ) -> Vec<Arc<[probes::ProbeInfo]>> {
        if probes.len() < 2 || self.cx.definitions.is_empty() {
            return vec![probes.clone()];
        }
        let mut parts: Vec<(Option<u32>, Vec<probes::ProbeInfo>)> = Vec::new();
        for probe in &**probes {
            let number = self.definition_of(&probe.desc).map(|d| d.number);
            match parts.iter_mut().find(|(n, _)| *n == number) {
                Some((_, part)) => part.push(probe.clone()),
                None => parts.push((number, vec![probe.clone()])),
            }
        }
        match parts.len() {
            // Clauses for the same probes share their list.
            1 => vec![probes.clone()],
            _ => parts.into_iter().map(|(_, part)| part.into()).collect(),
        }
    }
}

/// The declaration of a probe.
pub fn declared<'p>(program: &'p Program, probe: &ProbeDesc) -> Option<&'p ProviderProbe> {
    let blocks = program.items.iter().filter_map(|item| match item {
        Item::Provider(block) => Some(block),
        _ => None,
    });
    blocks.flat_map(|block| &block.probes).find(|p| probe_name(&p.name.text) == *probe.name)
}

fn is_void(param: &Param) -> bool {
    param.specs.ty.kind == TypeSpecKind::Void && param.declarator.parts.is_empty()
}

/// What is reported of a definition with these faults.
pub fn not_used(provider: &str, faults: &[Diagnostic], map: &SourceMap) -> Option<String> {
    let why = faults.first()?.render(map, true);
    let why = why.lines().next().unwrap_or_default();
    Some(format!("the definition of provider {provider} is not used: {why}"))
}

/// What is wrong with a definition, as who traces a program that has it would see it.
pub fn definition_faults(cx: &Context<'_>, definition: &Definition) -> Vec<Diagnostic> {
    let mut sink = diagnostics::Sink::default();
    let all = |_: usize, _: probes::ProbeId| true;
    Checker::new(cx, &all, &mut sink).load(definition)
}

/// The types of a probe's `args[]` by its definition, for a list; what is wrong.
pub fn defined_types(cx: &Context<'_>, probe: &ProbeDesc) -> (Option<Vec<String>>, Vec<String>) {
    let mut sink = diagnostics::Sink::default();
    let all = |_: usize, _: probes::ProbeId| true;
    let mut checker = Checker::new(cx, &all, &mut sink);
    let args = checker.defined_args(&Arc::new(probe.clone()));
    let names = args.and_then(Result::ok).map(|args| {
        let name = |arg: &ArgType| match &arg.unreadable {
            Some(why) => format!("{} (unreadable: {why})", arg.name(cx.types)),
            None => arg.name(cx.types),
        };
        args.iter().map(name).collect()
    });
    (names, checker.defined.messages)
}
