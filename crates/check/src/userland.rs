//! Names scoped to a file that a process runs: `` struct a.out`conn ``, `` libc`environ ``,
//! `` pid123`a.out`counter ``.
//!
//! The process is the clause's: the one whose probes its description names. So the same clause has
//! the types of each process that it describes; where their files differ, it is checked once for
//! each (see [`crate::args`]). Elsewhere a name says which process it means:
//! `` pid123`a.out`conn ``. `` pid`a.out`conn `` means the process of the clause too, and outside
//! of such clauses the target.
//!
//! A name of the kernel or of one of its modules before the backquote is the kernel's.

use std::sync::Arc;

use diagnostics::{Span, Tag, nearest};
use probes::{Family, UserObject, VariablePlace};
use syntax::ast;
use types::{TagKind, TypeId};

use crate::program::{Arith, Expr, ExprKind};
use crate::session::{Checker, did_you_mean};
use crate::state::recovery::CheckResult;

/// The provider of a scope that names none.
const PROVIDER: &str = "pid";

impl Checker<'_> {
    /// The provider of the processes that the clause describes.
    fn process_of_clause(&self) -> Option<Arc<str>> {
        let probe = self.args.described.as_ref()?.probes.first()?;
        let provider = probe.desc.provider.clone();
        let is_of_processes =
            |family: &Family| family.pid(&provider).is_some() || family.is_of_several(&provider);
        self.cx.catalog.families().iter().any(is_of_processes).then_some(provider)
    }

    /// The file that a scope means. `None` if it is one of the kernel; the error says what is not
    /// there.
    pub(crate) fn user_object(
        &mut self,
        scope: &str,
        is_variable: bool,
    ) -> Option<Result<Arc<dyn UserObject>, String>> {
        let (provider, object) = match scope.split_once('`') {
            Some((provider, object)) => (Some(provider), object),
            None if scope == "D" || scope == "C" => return None,
            None if self.types.kernel().is_some_and(|kernel| kernel.module(scope).is_some()) => return None,
            None => (None, scope),
        };
        let of_clause = || self.process_of_clause();
        let of_target = || {
            (self.cx.options.target_pid != 0)
                .then(|| format!("{PROVIDER}{}", self.cx.options.target_pid).into())
        };
        let (meant, is_of_clause): (Arc<str>, bool) = match provider {
            Some(PROVIDER) => match of_clause() {
                Some(provider) => (provider, true),
                None => match of_target() {
                    Some(target) => (target, false),
                    None => return Some(Err("there is no target process (-c, -p)".into())),
                },
            },
            // Where it is the clause's, another description of the clause may have another.
            Some(provider) => (provider.into(), of_clause().is_some_and(|own| *own == *provider)),
            None => (of_clause()?, true),
        };
        if is_variable && !is_of_clause {
            let why = "a variable of a process is read in clauses of its own probes, where its memory is that of the probe";
            return Some(Err(why.into()));
        }
        if is_of_clause && !self.args.objects.iter().any(|known| known.0 == object && known.1 >= is_variable)
        {
            self.args.objects.push((object.to_owned(), is_variable));
        }
        let unknown = || Err(format!("\"{meant}\" does not name a process, as pid123 does"));
        Some(self.file_of(&meant, object).unwrap_or_else(unknown))
    }

    /// True if a name scoped to a file means the same in the processes of two providers.
    pub(crate) fn same_object(&mut self, a: &str, b: &str, (object, is_variable): &(String, bool)) -> bool {
        if a == b {
            return true;
        }
        // A variable has an address in each process.
        if *is_variable {
            return false;
        }
        let mut file = |provider| Some(self.file_of(provider, object)?.ok()?.file());
        file(a).is_some_and(|a| Some(a) == file(b))
    }

    /// A type of a file that a process runs. `None` if the scope is one of the kernel.
    pub(crate) fn user_type(
        &mut self,
        module: &ast::Name,
        kind: Option<TagKind>,
        name: &str,
        span: Span,
    ) -> Option<CheckResult<TypeId>> {
        let object = self.user_object(&module.text, false)?;
        let found = object.and_then(|object| Ok((object.find(kind, name)?, object)));
        let keyword = kind.map_or(String::new(), |k| format!("{} ", k.keyword()));
        let failed = format!("failed to resolve type {keyword}{}`{name}", module.text);
        Some(match found {
            Ok((Some((btf, id)), _)) => Ok(self.types.import(&btf, id)),
            Ok((None, object)) => {
                let names = if self.sink.may_suggest() { object.like(kind, name) } else { Vec::new() };
                let near = nearest(name, names.iter().map(String::as_str));
                let help = near.map(|near| did_you_mean(&format!("{keyword}{}`{near}", module.text)));
                self.fail_with(Tag::D_TYPE_ERR, span, format!("{failed}: Unknown type name"), help)
            }
            Err(why) => self.fail(Tag::D_TYPE_ERR, span, format!("{failed}: {why}")),
        })
    }

    /// A typedef of a file that a process runs, where the parser took its name for that of a
    /// variable.
    pub(crate) fn user_typedef(&mut self, module: &ast::Name, name: &str) -> Option<TypeId> {
        let object = self.user_object(&module.text, false)?.ok()?;
        if !matches!(object.variable(name), Ok(None)) {
            return None;
        }
        let (btf, id) = object.find(None, name).ok()??;
        Some(self.types.import(&btf, id))
    }

    /// The address of a variable of a process. `None` if the scope is one of the kernel.
    pub(crate) fn user_variable(
        &mut self,
        module: Option<&ast::Name>,
        name: &ast::Name,
        span: Span,
    ) -> Option<CheckResult<(Expr, TypeId)>> {
        let module = module?;
        let object = self.user_object(&module.text, true)?;
        let found = object.and_then(|object| Ok((object.variable(&name.text)?, object)));
        let failed = format!("failed to resolve {}`{}", module.text, name.text);
        Some(match found {
            Ok((Some(variable), _)) => {
                let (btf, id) = variable.ty;
                let ty = self.types.import(&btf, id);
                let ty_of_address = self.types.user_pointer(ty);
                self.user_address(variable.place, span)
                    .map(|kind| (Expr { kind, ty: ty_of_address, span }, ty))
            }
            Ok((None, _)) => self.fail(
                Tag::D_IDENT_UNDEF,
                span,
                format!("{failed}: Unknown symbol name, or it has no fixed address"),
            ),
            Err(why) => self.fail(Tag::D_SYM_NOTYPES, span, format!("{failed}: {why}")),
        })
    }

    /// The address of a variable. The kernel says where it has put the program of the process that
    /// fires, so that the process need not be known when the clause is compiled.
    fn user_address(&mut self, place: VariablePlace, span: Span) -> CheckResult<ExprKind> {
        let behind = match place {
            VariablePlace::Address(address) => return Ok(ExprKind::Int(address as i64)),
            VariablePlace::BehindCode(behind) => behind,
        };
        let name = |text: &str| ast::Name { text: text.into(), span };
        let thread = ast::Expr { kind: ast::ExprKind::Ident(name("curthread")), span };
        let code = ["mm", "start_code"].into_iter().fold(thread, |base, member| {
            let kind = ast::ExprKind::Member { base: Box::new(base), arrow: true, name: name(member) };
            ast::Expr { kind, span }
        });
        // What the script says of the kernel is its own, and this is not in the script.
        let attributes = self.clause.attributes;
        let code = self.value(&code);
        self.clause.attributes = attributes;
        let behind = self.int(behind as i64, TypeId::LONG, span);
        Ok(ExprKind::Arith(Arith::Add, Box::new(code?), Box::new(behind)))
    }
}
