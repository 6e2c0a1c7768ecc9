//! Parses declarations, types and declarators.

use diagnostics::{Span, Tag};

use super::{ErrorReported, Parsed, Parser, split_scope};
use crate::ast::{
    ArithKind, DeclPart, DeclPartKind, DeclSpecs, Declaration, Declarator, EnumSpec, Enumerator, Member,
    Name, Param, Params, Quals, RecordSpec, Storage, StorageClass, TypeName, TypeSpec, TypeSpecKind,
};
use crate::token::{Kw, Punct, Tok};

/// The context of specifiers. It determines whether storage classes are allowed, and how unknown
/// names are parsed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DeclContext {
    /// A declaration at file scope.
    File,
    /// A parameter, a key type or the input of a translator.
    Param,
    /// A struct or union member.
    Member,
    /// A type without a name.
    TypeName,
}

/// Whether a declarator has a name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    Required,
    Optional,
    Forbidden,
}

/// The maximum number of `*`, `[]` and `()` of a declarator. Building the type needs a recursion of
/// this depth.
const MAX_PARTS: usize = 64;

/// The specifiers parsed so far.
#[derive(Default)]
struct Specifiers {
    base: Option<(TypeSpecKind, Span)>,
    signed: Option<(bool, Span)>,
    shorts: u8,
    longs: u8,
    storage: Option<Storage>,
    quals: Quals,
}

impl Specifiers {
    /// True if the specifiers name a type; `long` alone does.
    fn has_type(&self) -> bool {
        self.base.is_some() || self.signed.is_some() || self.shorts > 0 || self.longs > 0
    }

    /// Combines the specifiers to the base type, or returns the error.
    fn combine(&mut self) -> Result<TypeSpecKind, (Tag, &'static str)> {
        use ArithKind::*;
        let signed = self.signed.map(|(s, _)| s);
        let (shorts, longs) = (self.shorts, self.longs);
        let sized = shorts > 0 || longs > 0;
        if shorts > 0 && longs > 0 || shorts > 1 || longs > 2 {
            return Err((Tag::D_DECL_COMBO, "invalid type combination"));
        }
        let kind = match self.base.take().map(|(k, _)| k) {
            None | Some(TypeSpecKind::Arith { kind: Int, .. }) => match (shorts, longs) {
                (1, _) => Short,
                (_, 1) => Long,
                (_, 2) => LongLong,
                _ => Int,
            },
            Some(TypeSpecKind::Void) if sized || signed.is_some() => {
                return Err((
                    Tag::D_DECL_VOIDATTR,
                    "invalid type declaration: attributes may not be used with void type",
                ));
            }
            Some(TypeSpecKind::Arith { kind: Char, .. }) if sized => {
                return Err((
                    Tag::D_DECL_CHARATTR,
                    "invalid type declaration: short and long may not be used with char type",
                ));
            }
            Some(TypeSpecKind::Arith { kind: Char, .. }) => Char,
            Some(_) if signed.is_some() => {
                return Err((
                    Tag::D_DECL_SIGNINT,
                    "invalid type declaration: signed and unsigned may only be used with integer type",
                ));
            }
            Some(TypeSpecKind::Arith { kind: Double, .. }) if longs == 1 => LongDouble,
            Some(_) if longs > 0 => {
                return Err((
                    Tag::D_DECL_LONGINT,
                    "invalid type declaration: long and long long may only be used with integer or floating-point type",
                ));
            }
            Some(_) if shorts > 0 => {
                return Err((
                    Tag::D_DECL_COMBO,
                    "invalid type declaration: short may only be used with integer type",
                ));
            }
            Some(other) => return Ok(other),
        };
        Ok(TypeSpecKind::Arith { kind, signed })
    }
}

/// The name of a struct or union with this tag.
pub(super) fn record_name(is_union: bool, tag: &str) -> String {
    format!("{} {tag}", if is_union { "union" } else { "struct" })
}

impl Parser<'_> {
    /// `specifiers declarators ;`
    pub(super) fn declaration(&mut self) -> Parsed<Declaration> {
        let specs = self.specs(DeclContext::File)?;
        let mut declarators = Vec::new();
        let start = specs.span;
        if !self.at(Punct::Semi) {
            loop {
                declarators.push(self.declarator(Naming::Required)?);
                if !self.eat(Punct::Comma) {
                    break;
                }
            }
        }
        if self.at(Punct::Assign) {
            return Err(self.unexpected_with(Some(
                "a D variable cannot be initialized in its declaration; assign to it in BEGIN, or use `inline`",
            )));
        }
        let span = start.to(self.last);
        let is_function = declarators
            .last()
            .and_then(|d| d.parts.first())
            .is_some_and(|part| matches!(part.kind, DeclPartKind::Function(_)));
        if is_function && self.at(Punct::LBrace) && self.lex.is_included(start) {
            // An inline function of a C header. D programs cannot call it.
            self.skip_braces();
        } else {
            self.require(Punct::Semi)?;
        }
        let names = declarators.iter().filter_map(|d| d.name.as_ref()).map(|n| n.text.clone());
        match specs.storage.map(|s| s.class) {
            Some(StorageClass::Typedef) => self.typedefs.extend(names),
            Some(StorageClass::SelfLocal | StorageClass::ThisLocal) => {}
            _ => self.variables.extend(names),
        }
        Ok(Declaration { span, specs, declarators })
    }

    /// Skips a block of C code with its closing brace.
    fn skip_braces(&mut self) {
        let mut depth = 0usize;
        loop {
            match self.peek(0).tok {
                Tok::Eof => return,
                Tok::P(Punct::LBrace) => depth += 1,
                Tok::P(Punct::RBrace) => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.bump();
            if depth == 0 {
                return;
            }
        }
    }

    /// A type without a name.
    pub(super) fn type_name(&mut self) -> Parsed<TypeName> {
        let specs = self.specs(DeclContext::TypeName)?;
        let declarator = self.declarator(Naming::Forbidden)?;
        Ok(TypeName { span: specs.span.to(self.last), specs, declarator })
    }

    /// `(type)`.
    pub(super) fn type_in_parens(&mut self) -> Parsed<TypeName> {
        let open = self.require(Punct::LParen)?;
        self.open.push((Punct::LParen, open));
        let ty = self.type_name()?;
        self.require(Punct::RParen)?;
        self.open.pop();
        Ok(ty)
    }

    /// A parameter; the name is optional.
    pub(super) fn param(&mut self) -> Parsed<Param> {
        let specs = self.specs(DeclContext::Param)?;
        let declarator = self.declarator(Naming::Optional)?;
        Ok(Param { span: specs.span.to(self.last), specs, declarator })
    }

    /// Storage class, qualifiers and base type.
    pub(super) fn specs(&mut self, context: DeclContext) -> Parsed<DeclSpecs> {
        let start = self.peek(0).span;
        let mut words = Specifiers::default();
        let mut any = false;
        loop {
            let token = self.peek(0).clone();
            match token.tok {
                Tok::Kw(kw) if self.storage_word(kw, token.span, context, &mut words) => {}
                Tok::Kw(kw) if qualifier(kw, &mut words.quals) => {}
                // `static inline` of a function in a C header.
                Tok::Kw(Kw::Inline) if words.storage.is_some() && self.lex.is_included(token.span) => {}
                Tok::Kw(Kw::Struct | Kw::Union) => {
                    let record = self.nested(|p| p.record())?;
                    self.set_base(&mut words, TypeSpecKind::Record(record), token.span);
                    any = true;
                    continue;
                }
                Tok::Kw(Kw::Enum) => {
                    let spec = self.nested(|p| p.enumeration())?;
                    self.set_base(&mut words, TypeSpecKind::Enum(spec), token.span);
                    any = true;
                    continue;
                }
                Tok::Kw(kw) => match kw {
                    Kw::Short => words.shorts = words.shorts.saturating_add(1),
                    Kw::Long => words.longs = words.longs.saturating_add(1),
                    Kw::Signed | Kw::Unsigned => {
                        let signed = kw == Kw::Signed;
                        if words.signed.is_some_and(|(s, _)| s != signed) {
                            self.error(Tag::D_DECL_COMBO, token.span, "invalid type combination");
                        }
                        words.signed = Some((signed, token.span));
                    }
                    _ => match base_word(kw) {
                        Some(base) => self.set_base(&mut words, base, token.span),
                        None => break,
                    },
                },
                Tok::Ident(text) if !words.has_type() && self.is_type_here(&text, context) => {
                    let (module, name) = split_scope(&text, token.span);
                    if name.text.is_empty() {
                        return Err(self.unexpected());
                    }
                    self.set_base(&mut words, TypeSpecKind::Named { module, name }, token.span);
                }
                // This is a second type name if the declared name follows it.
                Tok::Ident(text) if words.has_type() && matches!(self.peek(1).tok, Tok::Ident(_)) => {
                    if self.is_type(&text) {
                        self.error(Tag::D_DECL_COMBO, token.span, "invalid type combination");
                    } else {
                        let message = format!("old-style declaration or incorrect type specified: {text}");
                        self.error(Tag::D_DECL_IDENT, token.span, message);
                    }
                }
                _ => break,
            }
            any = true;
            self.bump();
        }
        if !any {
            return Err(self.unexpected());
        }
        let span = start.to(self.last);
        let missing = !words.has_type();
        let storage = words.storage;
        let quals = words.quals;
        let base_span = words.base.as_ref().map(|(_, s)| *s);
        let kind = match words.combine() {
            _ if missing && !matches!(self.peek(0).tok, Tok::Ident(_) | Tok::P(Punct::Semi)) => {
                return Err(self.unexpected());
            }
            // A storage class alone declares an `int`, as in the original.
            Ok(kind) => kind,
            Err((tag, message)) => {
                // The original knows the words before it reads what is in the braces.
                let words = self.lex.snippet(span).split('{').next().unwrap_or("");
                let end = span.start + words.trim_end().len() as u32;
                self.error(tag, Span::new(span.file, span.start, end), message);
                TypeSpecKind::Error
            }
        };
        let type_span = match (&kind, base_span) {
            (TypeSpecKind::Arith { .. }, _) | (_, None) => span,
            (_, Some(base)) => base.to(self.last),
        };
        Ok(DeclSpecs { span, storage, quals, ty: TypeSpec { span: type_span, kind } })
    }

    fn set_base(&mut self, words: &mut Specifiers, kind: TypeSpecKind, span: Span) {
        if words.base.is_some() {
            self.error(Tag::D_DECL_COMBO, span, "invalid type combination");
        }
        words.base = Some((kind, span));
    }

    /// Records a storage class; false if `kw` is not one.
    fn storage_word(&mut self, kw: Kw, span: Span, context: DeclContext, words: &mut Specifiers) -> bool {
        let class = match kw {
            Kw::Extern => Some(StorageClass::Extern),
            Kw::Static => Some(StorageClass::Static),
            Kw::SelfScope => Some(StorageClass::SelfLocal),
            Kw::This => Some(StorageClass::ThisLocal),
            Kw::Typedef => Some(StorageClass::Typedef),
            Kw::Auto | Kw::Register => None,
            _ => return false,
        };
        if context == DeclContext::Param {
            let message = "inappropriate storage class for function or associative array parameter";
            self.error(Tag::D_DECL_PARMCLASS, span, message);
        } else if context != DeclContext::File {
            let message = "storage class may not be used here";
            self.error(Tag::D_DECL_BADCLASS, span, message);
        } else if class.is_none() {
            let message = "specified storage class not appropriate in D";
            self.error(Tag::D_DECL_BADCLASS, span, message);
        } else if words.storage.is_some() {
            let message = "only one storage class allowed in a declaration";
            self.error(Tag::D_DECL_CLASS, span, message);
        } else {
            words.storage = class.map(|class| Storage { span, class });
        }
        true
    }

    /// True if the name `text`, the next token, is the base type and not the declared name.
    fn is_type_here(&mut self, text: &str, context: DeclContext) -> bool {
        context == DeclContext::Param
            || context == DeclContext::TypeName
            || matches!(self.peek(1).tok, Tok::Ident(_) | Tok::P(Punct::Star))
            || self.is_type(text)
    }

    /// `struct tag { members }`.
    fn record(&mut self) -> Parsed<RecordSpec> {
        let is_union = self.bump().tok == Tok::Kw(Kw::Union);
        let (module, tag) = self.tag()?;
        let mut members = None;
        if self.eat(Punct::LBrace) {
            let open = self.last;
            let mut list = Vec::new();
            while !self.eat(Punct::RBrace) {
                if self.peek(0).tok == Tok::Eof {
                    let line = self.lex.line(open);
                    return Err(self.unexpected_with(Some(&format!("`{{` on line {line} is not closed"))));
                }
                match self.member() {
                    Ok(member) => list.push(member),
                    Err(ErrorReported) => self.skip_member(),
                }
                self.new_statement();
            }
            members = Some(list);
            self.records.extend(tag.as_ref().map(|tag| record_name(is_union, &tag.text)));
        } else if tag.is_none() {
            return Err(self.unexpected());
        }
        Ok(RecordSpec { is_union, module, tag, members })
    }

    /// The tag of a struct, union or enum.
    fn tag(&mut self) -> Parsed<(Option<Name>, Option<Name>)> {
        let Tok::Ident(text) = self.peek(0).tok.clone() else { return Ok((None, None)) };
        let (module, name) = split_scope(&text, self.peek(0).span);
        if name.text.is_empty() {
            return Err(self.unexpected());
        }
        self.bump();
        Ok((module, Some(name)))
    }

    fn member(&mut self) -> Parsed<Member> {
        let specs = self.specs(DeclContext::Member)?;
        let mut declarators = Vec::new();
        if !self.at(Punct::Semi) {
            loop {
                let unnamed = self.at(Punct::Colon);
                let mut declarator = if unnamed {
                    let span = self.peek(0).span;
                    Declarator { span, name: None, parts: Vec::new(), bits: None }
                } else {
                    self.declarator(Naming::Required)?
                };
                if self.eat(Punct::Colon) {
                    declarator.bits = Some(Box::new(self.constant()?));
                    declarator.span = declarator.span.to(self.last);
                }
                declarators.push(declarator);
                if !self.eat(Punct::Comma) {
                    break;
                }
            }
        }
        let span = specs.span.to(self.last);
        self.require(Punct::Semi)?;
        Ok(Member { span, specs, declarators })
    }

    /// Skips the rest of a member of a struct, translator or provider, with its semicolon.
    pub(super) fn skip_member(&mut self) {
        let mut depth = 0usize;
        loop {
            match self.peek(0).tok {
                Tok::Eof => return,
                Tok::P(Punct::RBrace) if depth == 0 => return,
                Tok::P(Punct::Semi) if depth == 0 => {
                    self.bump();
                    return;
                }
                Tok::P(Punct::LBrace) => depth += 1,
                Tok::P(Punct::RBrace) => depth -= 1,
                _ => {}
            }
            self.bump();
        }
    }

    /// `enum tag { A, B = 2 }`.
    fn enumeration(&mut self) -> Parsed<EnumSpec> {
        self.bump();
        let (module, tag) = self.tag()?;
        let mut enumerators = None;
        if self.eat(Punct::LBrace) {
            let mut list = Vec::new();
            loop {
                if !list.is_empty() && self.eat(Punct::RBrace) {
                    break;
                }
                let name = self.require_name()?;
                let value = if self.eat(Punct::Assign) { Some(self.constant()?) } else { None };
                list.push(Enumerator { span: name.span.to(self.last), name, value });
                if !self.eat(Punct::Comma) {
                    self.require(Punct::RBrace)?;
                    break;
                }
            }
            enumerators = Some(list);
        } else if tag.is_none() {
            return Err(self.unexpected());
        }
        Ok(EnumSpec { module, tag, enumerators })
    }

    /// A declarator: a name with its stars, brackets and parentheses.
    pub(super) fn declarator(&mut self, naming: Naming) -> Parsed<Declarator> {
        self.nested(|p| {
            let start = p.peek(0).span;
            let before = p.last;
            let mut stars = Vec::new();
            while p.at(Punct::Star) {
                let span = p.bump().span;
                let mut quals = Quals::default();
                while let Tok::Kw(kw) = p.peek(0).tok
                    && qualifier(kw, &mut quals)
                {
                    p.bump();
                }
                stars.push(DeclPart { span: span.to(p.last), kind: DeclPartKind::Pointer(quals) });
            }
            let (name, mut parts) = p.direct(naming)?;
            loop {
                let part = match p.peek(0).tok {
                    Tok::P(Punct::LBracket) => p.brackets()?,
                    Tok::P(Punct::LParen) => {
                        let params = p.params(Punct::RParen)?;
                        DeclPart { span: params.span, kind: DeclPartKind::Function(params) }
                    }
                    _ => break,
                };
                parts.push(part);
                if parts.len() > MAX_PARTS {
                    return Err(p.too_deep());
                }
            }
            parts.extend(stars.into_iter().rev());
            if parts.len() > MAX_PARTS {
                return Err(p.too_deep());
            }
            // The location of an empty declarator is the end of the previous token.
            let span = if p.last == before {
                Span::new(before.file, before.end, before.end)
            } else {
                start.to(p.last)
            };
            Ok(Declarator { span, name, parts, bits: None })
        })
    }

    /// The name, or a declarator in parentheses.
    fn direct(&mut self, naming: Naming) -> Parsed<(Option<Name>, Vec<DeclPart>)> {
        match self.peek(0).tok.clone() {
            Tok::Ident(text) if naming != Naming::Forbidden => {
                let span = self.bump().span;
                let (_, name) = split_scope(&text, span);
                if text.contains('`') {
                    let message =
                        format!("D scoping operator may not be used in a declaration name ({text})");
                    self.error(Tag::D_DECL_SCOPE, span, message);
                }
                Ok((Some(name), Vec::new()))
            }
            Tok::P(Punct::LParen) if self.is_grouping(naming) => {
                self.bump();
                let inner = self.declarator(naming)?;
                self.require(Punct::RParen)?;
                Ok((inner.name, inner.parts))
            }
            _ if naming == Naming::Required => Err(self.unexpected()),
            _ => Ok((None, Vec::new())),
        }
    }

    /// At `(` in a declarator: true if it groups, false if it begins the parameters of an unnamed
    /// function.
    fn is_grouping(&mut self, naming: Naming) -> bool {
        match self.peek(1).tok.clone() {
            _ if naming == Naming::Required => true,
            Tok::P(Punct::Star | Punct::LParen | Punct::LBracket) => true,
            Tok::Ident(name) => naming == Naming::Optional && !self.is_type(&name),
            _ => false,
        }
    }

    /// `[]`, `[size]`, `[type, type]`.
    fn brackets(&mut self) -> Parsed<DeclPart> {
        if self.is_tuple() {
            let params = self.params(Punct::RBracket)?;
            return Ok(DeclPart { span: params.span, kind: DeclPartKind::Tuple(params) });
        }
        let open = self.bump().span;
        let open_before = self.open.len();
        self.open.push((Punct::LBracket, open));
        let size = if self.at(Punct::RBracket) { None } else { Some(Box::new(self.constant()?)) };
        self.require(Punct::RBracket)?;
        self.open.truncate(open_before);
        Ok(DeclPart { span: open.to(self.last), kind: DeclPartKind::Array(size) })
    }

    /// At `[` in a declarator: true if key types follow, false if a size follows. An unknown name
    /// is parsed as a type if it cannot be a size.
    fn is_tuple(&mut self) -> bool {
        match self.peek(1).tok.clone() {
            Tok::Kw(kw) => kw.starts_type(),
            Tok::P(Punct::Ellipsis) => true,
            Tok::Ident(name) if self.is_type(&name) => true,
            Tok::Ident(_) => match self.peek(2).tok {
                Tok::P(Punct::Comma) | Tok::Ident(_) => true,
                Tok::P(Punct::Star) => {
                    matches!(self.peek(3).tok, Tok::P(Punct::Comma | Punct::RBracket | Punct::Star))
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// At an opening bracket: parameters up to `close`.
    pub(super) fn params(&mut self, close: Punct) -> Parsed<Params> {
        let open = self.bump();
        let open_before = self.open.len();
        if let Tok::P(p) = open.tok {
            self.open.push((p, open.span));
        }
        let (list, varargs) = self.param_list(close)?;
        self.require(close)?;
        self.open.truncate(open_before);
        Ok(Params { span: open.span.to(self.last), list, varargs })
    }

    /// Parameters up to `end`, which is not consumed.
    pub(super) fn param_list(&mut self, end: Punct) -> Parsed<(Vec<Param>, Option<Span>)> {
        let mut list = Vec::new();
        if !self.at(end) {
            loop {
                if self.at(Punct::Ellipsis) {
                    return Ok((list, Some(self.bump().span)));
                }
                list.push(self.nested(|p| p.param())?);
                if !self.eat(Punct::Comma) {
                    break;
                }
            }
        }
        Ok((list, None))
    }
}

/// Records a qualifier; false if `kw` is not one.
fn qualifier(kw: Kw, quals: &mut Quals) -> bool {
    match kw {
        Kw::Const => quals.is_const = true,
        Kw::Volatile => quals.is_volatile = true,
        Kw::Restrict => quals.is_restrict = true,
        Kw::Userland => quals.is_userland = true,
        _ => return false,
    }
    true
}

/// The type that a single keyword names.
fn base_word(kw: Kw) -> Option<TypeSpecKind> {
    let arith = |kind| Some(TypeSpecKind::Arith { kind, signed: None });
    match kw {
        Kw::Void => Some(TypeSpecKind::Void),
        Kw::String => Some(TypeSpecKind::String),
        Kw::Char => arith(ArithKind::Char),
        Kw::Int => arith(ArithKind::Int),
        Kw::Float => arith(ArithKind::Float),
        Kw::Double => arith(ArithKind::Double),
        _ => None,
    }
}
