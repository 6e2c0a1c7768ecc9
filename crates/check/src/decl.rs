//! Declarations: types, variables, inlines.

use diagnostics::{SourceKind, Span, Tag};
use syntax::ast::{self, ArithKind, DeclPartKind, StorageClass, TypeSpecKind};
use types::{Kind, LayoutError, MemberDecl, Quals, TagKind, TypeId};

use crate::columns::{Column, StrUses};
use crate::foreign;
use crate::inline::PrototypeRules;
use crate::program::{LARGEST, Repr, Scope, StrSource};
use crate::session::Checker;
use crate::state::recovery::{CheckResult, ErrorReported};
use crate::state::scopes::{NameSpace, VarType};
use crate::tables;

/// The result of applying a declarator to its base type.
enum Declared {
    Object(TypeId),
    /// An associative array: element type and key types.
    Tuple(TypeId, Vec<(TypeId, Span)>),
}

/// The meaning of `[]` in a declarator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unsized {
    Refused,
    /// In a parameter: an array is passed as a pointer.
    Pointer,
    /// In the last member of a struct: the memory that follows the struct.
    Flexible,
}

/// `` D`name `` and `` C`name `` are types of the program, of D and of C, whatever types of that
/// name the kernel has. (In the original these are two scopes: types that a program declares, and
/// C's types with those of headers. Each finds the other's types too.)
fn is_own_scope(module: &ast::Name) -> bool {
    matches!(module.text.as_str(), "D" | "C")
}

impl Checker<'_> {
    pub(crate) fn type_name(&mut self, name: &ast::TypeName) -> CheckResult<TypeId> {
        let base = self.specs(&name.specs)?;
        match self.declarator(base, &name.declarator, name.specs.quals.is_userland, Unsized::Refused)? {
            Declared::Object(ty) => Ok(ty),
            Declared::Tuple(..) => {
                self.fail(Tag::D_DECL_ARRSUB, name.span, "an associative array is not a type here")
            }
        }
    }

    pub(crate) fn specs(&mut self, specs: &ast::DeclSpecs) -> CheckResult<TypeId> {
        let base = self.base(&specs.ty)?;
        let mut quals = Quals::NONE;
        for (set, q) in [
            (specs.quals.is_const, Quals::CONST),
            (specs.quals.is_volatile, Quals::VOLATILE),
            (specs.quals.is_restrict, Quals::RESTRICT),
        ] {
            if set {
                quals = quals.with(q);
            }
        }
        Ok(if quals.is_empty() { base } else { self.types.qualified(base, quals) })
    }

    fn base(&mut self, spec: &ast::TypeSpec) -> CheckResult<TypeId> {
        match &spec.kind {
            TypeSpecKind::Error => Err(ErrorReported),
            TypeSpecKind::Void => Ok(TypeId::VOID),
            TypeSpecKind::String => Ok(TypeId::STRING),
            TypeSpecKind::Arith { kind, signed } => Ok(arith(*kind, *signed)),
            TypeSpecKind::Named { module, name } => {
                let own = module.as_ref().is_some_and(is_own_scope);
                if let Some(module) = module
                    && let Some(found) = self.user_type(module, None, &name.text, spec.span)
                {
                    return found;
                }
                if own || module.is_none() {
                    self.define_type_from_libraries(&name.text);
                }
                let found = match module {
                    Some(_) if own => self.types.declared_type(&name.text),
                    Some(module) => self.types.find_typedef_in(&module.text, &name.text),
                    None if name.text == "_Bool" => Some(TypeId::BOOL),
                    None => self.types.find_typedef(&name.text).or_else(|| self.library_typedef(&name.text)),
                };
                self.known_type(found, (None, module.as_ref(), &name.text), spec.span)
            }
            TypeSpecKind::Record(record) => self.record_type(record, spec.span),
            TypeSpecKind::Enum(e) => self.enum_type(e, spec.span),
        }
    }

    /// The type found, or an error with kind (`None`: a typedef), module and name.
    fn known_type(
        &mut self,
        found: Option<TypeId>,
        (kind, module, name): (Option<TagKind>, Option<&ast::Name>, &str),
        span: Span,
    ) -> CheckResult<TypeId> {
        if let Some(ty) = found {
            self.uses_type(ty, span);
            return Ok(ty);
        }
        self.require_not_doubtful(name)?;
        let keyword = kind.map_or(String::new(), |k| format!("{} ", k.keyword()));
        let prefix = module.map_or(String::new(), |m| format!("{}`", m.text));
        let message = format!("failed to resolve type {keyword}{prefix}{name}: Unknown type name");
        let help = match module {
            Some(module) if is_own_scope(module) => self.near_own_type(name),
            Some(module) => self.near_module(&module.text).or_else(|| self.near_type(kind, name)),
            None => foreign::word(foreign::Kind::Type, name).or_else(|| self.near_type(kind, name)),
        };
        self.fail_with(Tag::D_TYPE_ERR, span, message, help)
    }

    /// A struct, union or enum in a scope.
    fn scoped_tag(&mut self, module: &ast::Name, kind: TagKind, tag: &str) -> Option<TypeId> {
        if !is_own_scope(module) {
            return self.types.find_tag_in(&module.text, kind, tag);
        }
        self.define_type_from_libraries(tag);
        self.types.declared_tag(kind, tag)
    }

    /// Reports a module before the name of a definition.
    fn unscoped(&mut self, module: Option<&ast::Name>, tag: Option<&str>, span: Span) -> CheckResult<()> {
        let Some(module) = module else { return Ok(()) };
        let name = format!("{}`{}", module.text, tag.unwrap_or_default());
        let message = format!("D scoping operator may not be used in a declaration name ({name})");
        self.fail(Tag::D_DECL_SCOPE, span, message)
    }

    fn record_type(&mut self, record: &ast::RecordSpec, span: Span) -> CheckResult<TypeId> {
        let kind = if record.is_union { TagKind::Union } else { TagKind::Struct };
        let tag = record.tag.as_ref().map(|t| t.text.as_str());
        if record.members.is_some() {
            self.unscoped(record.module.as_ref(), tag, span)?;
        }
        if let (Some(module), Some(tag)) = (&record.module, tag) {
            if let Some(found) = self.user_type(module, Some(kind), tag, span) {
                return found;
            }
            let found = self.scoped_tag(module, kind, tag);
            return self.known_type(found, (Some(kind), Some(module), tag), span);
        }
        let Some(members) = &record.members else {
            let tag = tag.unwrap_or_default();
            self.define_type_from_libraries(tag);
            return Ok(match self.types.find_tag(kind, tag) {
                Some(ty) => {
                    self.uses_type(ty, span);
                    ty
                }
                None => self.types.declare_tag(kind, Some(tag)),
            });
        };
        let id = self.types.begin_definition(kind, tag);
        if self.types.is_complete(id) {
            if self.cx.map.is_included(span) {
                return Ok(id);
            }
            let message = format!("type redeclared: {} {}", kind.keyword(), tag.unwrap_or_default());
            return self.fail(Tag::D_DECL_TYPERED, span, message);
        }
        let (mut decls, mut spans) = (Vec::new(), Vec::new());
        for member in members {
            let base = self.specs(&member.specs)?;
            if member.declarators.is_empty() {
                if !self.types.is_sou(base) {
                    return self.fail(Tag::D_DECL_MNAME, member.span, "member declaration is missing a name");
                }
                decls.push(MemberDecl { name: String::new(), ty: base, bits: None });
                spans.push(member.span);
            }
            for d in &member.declarators {
                let ty = match self.declarator(base, d, member.specs.quals.is_userland, Unsized::Flexible)? {
                    Declared::Object(ty) => ty,
                    Declared::Tuple(..) => {
                        let message = "cannot have dynamic member";
                        return self.fail(Tag::D_DECL_DYNOBJ, d.span, message);
                    }
                };
                let bits = match &d.bits {
                    None => None,
                    Some(e) => match self.known_value(e)?.map(u64::try_from) {
                        Some(Ok(bits)) if bits > 0 => Some(bits),
                        _ => {
                            let message = "positive integral constant expression expected as bit-field size";
                            return self.fail(Tag::D_DECL_BFCONST, e.span, message);
                        }
                    },
                };
                decls.push(MemberDecl { name: member_name(d), ty, bits });
                spans.push(d.span);
            }
        }
        match self.types.define_sou(id, &decls) {
            Ok(()) => Ok(id),
            Err(error) => self.layout_error(error, &decls, &spans, span),
        }
    }

    fn layout_error<T>(
        &mut self,
        error: LayoutError,
        decls: &[MemberDecl],
        spans: &[Span],
        span: Span,
    ) -> CheckResult<T> {
        let (tag, i, what) = match error {
            LayoutError::BitFieldSize(i) => (Tag::D_DECL_BFSIZE, i, "bit-field too big for type"),
            LayoutError::BitFieldType(i) => (Tag::D_DECL_BFTYPE, i, "invalid type for bit-field"),
            LayoutError::Incomplete(i) if self.types.is_void(decls[i].ty) => {
                (Tag::D_DECL_VOIDOBJ, i, "cannot have void member")
            }
            LayoutError::Incomplete(i) => (Tag::D_DECL_INCOMPLETE, i, "incomplete struct/union/enum member"),
            LayoutError::Duplicate(i) => {
                let name = decls.get(i).map_or("", |d| d.name.as_str());
                return self.duplicate("member", name, spans.get(i).copied().unwrap_or(span));
            }
            LayoutError::TooBig(i) => (Tag::D_DECL_ARRBIG, i, "member too big"),
            LayoutError::NotSou => (Tag::D_UNKNOWN, 0, "not a struct or union"),
        };
        if let (LayoutError::Incomplete(_), Some(decl)) = (error, decls.get(i)) {
            self.require_type_not_doubtful(decl.ty)?;
        }
        let at = spans.get(i).copied().unwrap_or(span);
        let name = decls.get(i).map_or("", |d| d.name.as_str());
        match (error, decls.get(i)) {
            (LayoutError::Incomplete(_), Some(decl)) if tag == Tag::D_DECL_INCOMPLETE => {
                let message = format!("incomplete struct/union/enum {}: {name}", self.name(decl.ty));
                self.fail(tag, at, message)
            }
            _ => {
                let name = if name.is_empty() { "(anon)" } else { name };
                self.fail(tag, at, format!("{what}: {name}"))
            }
        }
    }

    /// Two members of a struct, or two enumerators of an enum, of one name: the tag is that of the
    /// original, in which the library of types refuses them.
    fn duplicate<T>(&mut self, what: &str, name: &str, span: Span) -> CheckResult<T> {
        let message = format!("failed to define {what} '{name}': Duplicate member or variable name");
        self.fail(Tag::D_UNKNOWN, span, message)
    }

    fn enum_type(&mut self, spec: &ast::EnumSpec, span: Span) -> CheckResult<TypeId> {
        let tag = spec.tag.as_ref().map(|t| t.text.as_str());
        if spec.enumerators.is_some() {
            self.unscoped(spec.module.as_ref(), tag, span)?;
        }
        if let (Some(module), Some(tag)) = (&spec.module, tag) {
            if let Some(found) = self.user_type(module, Some(TagKind::Enum), tag, span) {
                return found;
            }
            let found = self.scoped_tag(module, TagKind::Enum, tag);
            return self.known_type(found, (Some(TagKind::Enum), Some(module), tag), span);
        }
        let Some(enumerators) = &spec.enumerators else {
            let tag = tag.unwrap_or_default();
            self.define_type_from_libraries(tag);
            let found = self.types.find_tag(TagKind::Enum, tag);
            return self.known_type(found, (Some(TagKind::Enum), None, tag), span);
        };
        let id = self.types.declare_tag(TagKind::Enum, tag);
        if self.types.is_complete(id) {
            if self.cx.map.is_included(span) {
                return Ok(id);
            }
            let message = format!("type redeclared: enum {}", tag.unwrap_or_default());
            return self.fail(Tag::D_DECL_TYPERED, span, message);
        }
        let outside = self.expansion.bound.last().cloned().unwrap_or_default();
        let list = self.with_bound(outside, |c| c.enumerator_values(id, enumerators))?;
        self.types.define_enum(id, &list);
        Ok(id)
    }

    /// The values of the enumerators of `id`. Each enumerator is bound to its value for the rest of
    /// the list.
    fn enumerator_values<'e>(
        &mut self,
        id: TypeId,
        enumerators: &'e [ast::Enumerator],
    ) -> CheckResult<Vec<(&'e str, i64)>> {
        let mut list: Vec<(&str, i64)> = Vec::new();
        let mut names = std::collections::HashSet::new();
        let mut next = 0i64;
        for e in enumerators {
            if let Some(value) = &e.value {
                let Some(v) = self.known_value(value)? else {
                    let message = format!(
                        "enumerator '{}' must be assigned to an integral constant expression",
                        e.name.text
                    );
                    return self.fail(Tag::D_DECL_ENCONST, value.span, message);
                };
                next = v;
            }
            if i32::try_from(next).is_err() && !self.cx.map.is_included(e.span) {
                let message = format!("enumerator '{}' value overflows INT_MAX ({})", e.name.text, i32::MAX);
                return self.fail(Tag::D_DECL_ENOFLOW, e.span, message);
            }
            if !names.insert(e.name.text.as_str()) {
                return self.duplicate("enumerator", &e.name.text, e.name.span);
            }
            let is_ours =
                self.cx.map.kind(e.span.file) != SourceKind::Library && !self.cx.map.is_included(e.span);
            if is_ours && !self.scopes.names.enumerators.insert(e.name.text.clone()) {
                let message = format!("identifier redeclared: {}", e.name.text);
                return self.fail(Tag::D_DECL_IDRED, e.name.span, message);
            }
            list.push((&e.name.text, next));
            // Those after it in the list may name it.
            let known = self.int(next, id, e.span);
            if let Some(names) = self.expansion.bound.last_mut() {
                names.entry(e.name.text.clone()).or_insert(known);
            }
            next += 1;
        }
        Ok(list)
    }

    /// The value of an expression that must be constant. `None` if it is not constant, or names
    /// something that does not exist.
    fn known_value(&mut self, e: &ast::Expr) -> CheckResult<Option<i64>> {
        let outside = self.sink.divert();
        let value = self.value(e);
        let inside = self.sink.restore(outside);
        match value {
            Err(ErrorReported)
                if !inside.is_empty() && inside.iter().all(|d| d.tag == Tag::D_IDENT_UNDEF) =>
            {
                Ok(None)
            }
            value => {
                inside.iter().for_each(|d| self.sink.push(d.clone()));
                Ok(value?.as_const())
            }
        }
    }

    fn declarator(
        &mut self,
        base: TypeId,
        d: &ast::Declarator,
        userland: bool,
        open: Unsized,
    ) -> CheckResult<Declared> {
        let mut ty = base;
        // What points to a type of a process is in the process, and so is all that a definition of
        // a program names.
        let userland =
            userland || self.defined.current.is_some() || self.types.file_of_process(base).is_some();
        for (i, part) in d.parts.iter().enumerate().rev() {
            ty = match &part.kind {
                DeclPartKind::Pointer(_) if userland => self.types.user_pointer(ty),
                DeclPartKind::Pointer(_) => self.types.pointer(ty),
                DeclPartKind::Array(None) if i == 0 && open == Unsized::Pointer => self.types.pointer(ty),
                DeclPartKind::Array(None)
                    if i == 0 && open == Unsized::Flexible && !self.types.is_void(ty) =>
                {
                    self.types.array(ty, 0)
                }
                DeclPartKind::Array(None) => {
                    let name = member_name(d);
                    let message =
                        format!("array declaration requires array dimension or tuple signature: {name}");
                    return self.fail(Tag::D_DECL_ARRNULL, part.span, message);
                }
                DeclPartKind::Array(Some(_)) if self.types.is_void(ty) => {
                    let message = format!("cannot have array of void: {}", member_name(d));
                    return self.fail(Tag::D_DECL_VOIDOBJ, part.span, message);
                }
                DeclPartKind::Array(Some(size)) => match self.value(size)?.as_const().map(u64::try_from) {
                    Some(Ok(n)) if n > 0 => self.types.array(ty, n),
                    // GNU C's older form of `[]`.
                    Some(Ok(0)) if i == 0 && open == Unsized::Flexible && self.cx.map.is_included(d.span) => {
                        self.types.array(ty, 0)
                    }
                    _ => {
                        let message = "positive integral constant expression or tuple signature expected as array declaration subscript";
                        return self.fail(Tag::D_DECL_ARRSUB, size.span, message);
                    }
                },
                DeclPartKind::Tuple(params) if i == 0 => {
                    let keys = self.prototype(params, PrototypeRules::ARRAY)?;
                    return Ok(Declared::Tuple(ty, keys.into_iter().map(|(_, ty, at)| (ty, at)).collect()));
                }
                DeclPartKind::Tuple(_) => {
                    return self.fail(
                        Tag::D_DECL_DYNOBJ,
                        part.span,
                        "cannot have array of associative arrays",
                    );
                }
                DeclPartKind::Function(params) => {
                    let list = self.prototype(params, PrototypeRules::FUNCTION)?;
                    let list: Vec<TypeId> = list.into_iter().map(|(_, ty, _)| ty).collect();
                    self.types.function(ty, &list, params.varargs.is_some())
                }
            };
        }
        Ok(Declared::Object(ty))
    }

    /// The type of a declarator that must not be an associative array.
    pub(crate) fn object(
        &mut self,
        base: TypeId,
        d: &ast::Declarator,
        userland: bool,
    ) -> CheckResult<TypeId> {
        match self.declarator(base, d, userland, Unsized::Refused)? {
            Declared::Object(ty) => Ok(ty),
            Declared::Tuple(..) => self.fail(Tag::D_DECL_DYNOBJ, d.span, "cannot have dynamic object here"),
        }
    }

    pub(crate) fn param(&mut self, p: &ast::Param) -> CheckResult<TypeId> {
        match self.param_unless_dynamic(p)? {
            Some(ty) => Ok(ty),
            None => self.fail(Tag::D_DECL_DYNOBJ, p.span, "cannot have dynamic parameter"),
        }
    }

    /// The type of a parameter. `None`: it would be an associative array.
    pub(crate) fn param_unless_dynamic(&mut self, p: &ast::Param) -> CheckResult<Option<TypeId>> {
        let base = self.specs(&p.specs)?;
        match self.declarator(base, &p.declarator, p.specs.quals.is_userland, Unsized::Pointer)? {
            Declared::Object(ty) => Ok(Some(ty)),
            Declared::Tuple(..) => Ok(None),
        }
    }

    pub(crate) fn declaration(&mut self, d: &ast::Declaration) {
        let scope = match d.specs.storage.map(|s| s.class) {
            Some(StorageClass::SelfLocal) => Scope::Thread,
            Some(StorageClass::ThisLocal) => Scope::Clause,
            _ => Scope::Global,
        };
        let poison = |checker: &mut Self, declarator: &ast::Declarator| {
            if let Some(name) = &declarator.name {
                checker.poison_name(scope, &name.text);
            }
        };
        let Ok(base) = self.specs(&d.specs) else {
            d.declarators.iter().for_each(|declarator| poison(self, declarator));
            return;
        };
        if d.declarators.is_empty()
            && !matches!(d.specs.ty.kind, TypeSpecKind::Record(_) | TypeSpecKind::Enum(_))
        {
            self.sink.error(Tag::D_DECL_USELESS, d.span, "useless declaration");
        }
        for declarator in &d.declarators {
            if self.declare(d, base, declarator).is_err() {
                poison(self, declarator);
            }
        }
    }

    fn declare(
        &mut self,
        d: &ast::Declaration,
        base: TypeId,
        declarator: &ast::Declarator,
    ) -> CheckResult<()> {
        let included = self.cx.map.is_included(declarator.span);
        let class = d.specs.storage.map(|s| s.class);
        if included && class == Some(StorageClass::Extern) {
            // Functions and variables of a header belong to a process. D has its own.
            return Ok(());
        }
        let elsewhere = class == Some(StorageClass::Extern);
        let unsized_array = if elsewhere { Unsized::Flexible } else { Unsized::Refused };
        let declared = self.declarator(base, declarator, d.specs.quals.is_userland, unsized_array)?;
        let Some(name) = &declarator.name else {
            return self.fail(Tag::D_DECL_USELESS, declarator.span, "useless declaration");
        };
        let (word, span) = (name.text.as_str(), name.span);
        if word.contains('`') {
            let message = format!("D scoping operator may not be used in a declaration name ({word})");
            return self.fail(Tag::D_DECL_SCOPE, span, message);
        }
        let scope = match class {
            Some(StorageClass::Typedef) => return self.declare_typedef(word, declared, span, included),
            Some(StorageClass::SelfLocal) => Scope::Thread,
            Some(StorageClass::ThisLocal) => Scope::Clause,
            Some(StorageClass::Extern | StorageClass::Static) | None => Scope::Global,
        };
        if included && matches!(&declared, Declared::Object(ty) if self.types.is_function(*ty)) {
            return Ok(());
        }
        if scope == Scope::Global && (tables::variable(word).is_some() || tables::function(word).is_some()) {
            return self.fail(Tag::D_DECL_IDRED, span, format!("built-in identifier redeclared: {word}"));
        }
        let is_private = matches!(self.scopes.space, Some(NameSpace::Library(_)));
        if scope == Scope::Global && !is_private && self.scopes.names.inlines.contains_key(word) {
            return self.fail(Tag::D_DECL_IDRED, span, format!("identifier redeclared: {word}"));
        }
        let (ty, keys) = match declared {
            Declared::Object(ty) => (ty, None),
            Declared::Tuple(ty, keys) => (ty, Some(keys)),
        };
        if keys.is_some() && scope == Scope::Clause {
            let message = format!("associative arrays may not be declared as local variables: {word}");
            return self.fail(Tag::D_DECL_LOCASSC, span, message);
        }
        if self.types.is_function(ty) {
            if d.specs
                .storage
                .is_some_and(|s| matches!(s.class, StorageClass::SelfLocal | StorageClass::ThisLocal))
            {
                let message = format!("functions may not be declared as local variables: {word}");
                return self.fail(Tag::D_DECL_BADCLASS, span, message);
            }
            // The declaration states the type of a function, which D cannot call.
            return Ok(());
        }
        if self.types.is_void(ty) {
            return self.fail(Tag::D_DECL_VOIDOBJ, span, format!("cannot have void object: {word}"));
        }
        let mut object = ty;
        while let Kind::Array { elem, .. } = self.types.base_kind(object) {
            object = elem;
        }
        if self.types.is_sou(object) && self.types.size(object).is_none() {
            let message = format!("incomplete struct/union/enum {}: {word}", self.name(ty));
            self.require_type_not_doubtful(object)?;
            let help = self.near_tag(object);
            return self.fail_with(Tag::D_DECL_INCOMPLETE, span, message, help);
        }
        let size = self.types.size(ty).unwrap_or(0);
        if elsewhere && self.types.is_array(ty) && !(1..=LARGEST).contains(&size) {
            // The declaration states the type of what D could not hold.
            return Ok(());
        }
        if let Some(id) = self.scopes.var(scope, word) {
            return self.redeclare(id, ty, keys, span);
        }
        let repr = match self.storable(ty, span) {
            Ok(repr) => repr,
            Err(wrong) => {
                let key = keys.map(|_| Vec::new());
                self.scopes.add_var(scope, word, VarType::Poisoned, key);
                return Err(wrong);
            }
        };
        let key = match keys {
            None => None,
            Some(keys) => {
                let mut columns = Vec::with_capacity(keys.len());
                for (i, (ty, span)) in keys.iter().enumerate() {
                    columns.push((*ty, self.declared_column(*ty, i, *span)?));
                }
                Some(columns)
            }
        };
        self.scopes.add_var(scope, word, VarType::Known(ty, repr), key);
        Ok(())
    }

    /// A declared key column. A string column starts with the cheapest representation, because a
    /// declaration is not a use.
    fn declared_column(&mut self, ty: TypeId, i: usize, span: Span) -> CheckResult<Column> {
        match self.repr(self.types.decay(ty)) {
            Some(Repr::Int { size, signed }) => Ok(Column::Int { size, signed, whole: false }),
            Some(Repr::Str) => {
                Ok(Column::Str(StrUses::of(StrSource::Const { length: 0, digits: false, address: true })))
            }
            _ if let Some(size) = self.key_size(ty) => Ok(Column::Bytes { size }),
            Some(Repr::Bytes { .. }) | None => {
                let message = format!(
                    "{} expression may not be used as associative array index: key #{}",
                    self.name(ty),
                    i + 1
                );
                self.fail(Tag::D_KEY_TYPE, span, message)
            }
        }
    }

    fn declare_typedef(
        &mut self,
        word: &str,
        declared: Declared,
        span: Span,
        included: bool,
    ) -> CheckResult<()> {
        let Declared::Object(ty) = declared else {
            return self.fail(
                Tag::D_DECL_DYNOBJ,
                span,
                format!("cannot have typedef of dynamic object: {word}"),
            );
        };
        if self.scopes.var(Scope::Global, word).is_some() || tables::variable(word).is_some() {
            if included {
                return Ok(());
            }
            let message = format!("global variable identifier redeclared: {word}");
            return self.fail(Tag::D_DECL_IDRED, span, message);
        }
        if let Some(old) = self.types.declared_typedef(word) {
            // Declaring the same typedef again is harmless: several programs may include the same
            // header. A header does not replace D's own names (`id_t`, `pid_t`).
            if included || self.types.compatible(old, ty) {
                return Ok(());
            }
            return self.fail(Tag::D_DECL_IDRED, span, format!("typedef redeclared: {word}"));
        }
        self.types.add_typedef(word, ty);
        Ok(())
    }

    fn redeclare(
        &mut self,
        id: crate::program::VarId,
        ty: TypeId,
        keys: Option<Vec<(TypeId, Span)>>,
        span: Span,
    ) -> CheckResult<()> {
        let info = self.scopes.var_info(id).clone();
        let VarType::Known(old, _) = info.ty else { return Ok(()) };
        let same_keys = match (&info.key, &keys) {
            (None, None) => true,
            (Some(a), Some(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|((x, _), (y, _))| self.types.compatible(*x, *y))
            }
            _ => false,
        };
        if same_keys && self.types.compatible(old, ty) {
            return Ok(());
        }
        let kind = if keys.is_some() { "associative array" } else { "scalar" };
        let message = format!(
            "identifier redeclared: {}\n\t current: {kind} {}\n\tprevious: {} {}",
            info.name,
            self.name(ty),
            info.kind_word(),
            self.name(old)
        );
        self.fail(Tag::D_DECL_IDRED, span, message)
    }
}

fn member_name(d: &ast::Declarator) -> String {
    d.name.as_ref().map_or(String::new(), |n| n.text.clone())
}

fn arith(kind: ArithKind, signed: Option<bool>) -> TypeId {
    let pick = |s, u| if signed == Some(false) { u } else { s };
    match kind {
        ArithKind::Char if signed == Some(true) => TypeId::SCHAR,
        ArithKind::Char => pick(TypeId::CHAR, TypeId::UCHAR),
        ArithKind::Short => pick(TypeId::SHORT, TypeId::USHORT),
        ArithKind::Int => pick(TypeId::INT, TypeId::UINT),
        ArithKind::Long => pick(TypeId::LONG, TypeId::ULONG),
        ArithKind::LongLong => pick(TypeId::LLONG, TypeId::ULLONG),
        ArithKind::Float => TypeId::FLOAT,
        ArithKind::Double => TypeId::DOUBLE,
        ArithKind::LongDouble => TypeId::LDOUBLE,
    }
}
