//! Looks up types by name.
//!
//! The order is D's: types of D and of the program, then the kernel, then its modules. Lookups in
//! the kernel are cached, also negative results, because a checker repeats the lookup for every use
//! of a name.

use std::sync::Arc;

use crate::btf::{Btf, BtfKind};
use crate::model::{Body, Kind, Quals, TagKind, TypeId, Types};

/// The type of C specifiers in any order: `long unsigned int`, `_Bool`, `void`, `string`. `None`
/// when a word is not a specifier or the combination is invalid.
pub fn base_type(words: &str) -> Option<TypeId> {
    let (mut sign, mut long, mut short, mut base) = (None, 0, 0, None);
    for word in words.split_ascii_whitespace() {
        match word {
            "signed" | "unsigned" if sign.is_none() => sign = Some(word == "signed"),
            "long" => long += 1,
            "short" => short += 1,
            _ if base.is_none() => base = Some(word),
            _ => return None,
        }
    }
    let unsigned = sign == Some(false);
    let pick = |s, u| Some(if unsigned { u } else { s });
    match (base, long, short, sign) {
        (Some("char"), 0, 0, None) => Some(TypeId::CHAR),
        (Some("char"), 0, 0, Some(_)) => pick(TypeId::SCHAR, TypeId::UCHAR),
        (Some("int") | None, 0, 1, _) => pick(TypeId::SHORT, TypeId::USHORT),
        (Some("int"), 0, 0, _) | (None, 0, 0, Some(_)) => pick(TypeId::INT, TypeId::UINT),
        (Some("int") | None, 1, 0, _) => pick(TypeId::LONG, TypeId::ULONG),
        (Some("int") | None, 2, 0, _) => pick(TypeId::LLONG, TypeId::ULLONG),
        (Some("double"), 1, 0, None) => Some(TypeId::LDOUBLE),
        (Some(word), 0, 0, None) => match word {
            "void" => Some(TypeId::VOID),
            "_Bool" | "bool" => Some(TypeId::BOOL),
            "float" => Some(TypeId::FLOAT),
            "double" => Some(TypeId::DOUBLE),
            "string" => Some(TypeId::STRING),
            "stack" => Some(TypeId::STACK),
            "_symaddr" => Some(TypeId::SYMADDR),
            "_usymaddr" => Some(TypeId::USYMADDR),
            "<DYN>" => Some(TypeId::DYN),
            _ => None,
        },
        _ => None,
    }
}

fn btf_kinds(kind: TagKind) -> &'static [BtfKind] {
    match kind {
        TagKind::Struct => &[BtfKind::Struct],
        TagKind::Union => &[BtfKind::Union],
        TagKind::Enum => &[BtfKind::Enum, BtfKind::Enum64],
    }
}

impl Types {
    /// A typedef by name.
    pub fn find_typedef(&self, name: &str) -> Option<TypeId> {
        if let Some(&id) = self.read().typedefs.get(name) {
            return Some(id);
        }
        self.find_in_kernel(format!("typedef {name}"), &[BtfKind::Typedef], name)
    }

    /// A typedef of D or of the program. Does not look in the kernel.
    pub fn declared_typedef(&self, name: &str) -> Option<TypeId> {
        self.read().typedefs.get(name).copied()
    }

    /// A type without a tag that D or the program declares, or a basic C type: `int`, `long`,
    /// `_Bool`.
    pub fn declared_type(&self, name: &str) -> Option<TypeId> {
        self.declared_typedef(name).or_else(|| base_type(name))
    }

    /// A struct, union or enum of the program by tag. Does not look in the kernel.
    pub fn declared_tag(&self, kind: TagKind, tag: &str) -> Option<TypeId> {
        self.read().tags.get(&(kind, Arc::from(tag))).copied()
    }

    /// Names of types that D or the program declares.
    pub fn declared_names(&self) -> Vec<Arc<str>> {
        let inner = self.read();
        inner.typedefs.keys().cloned().chain(inner.tags.keys().map(|(_, tag)| tag.clone())).collect()
    }

    /// A struct, union or enum by tag: the program's, even if only forward-declared, otherwise the
    /// kernel's. A forward declaration is completed on the first use of its members or size; see
    /// [`Types::complete`].
    pub fn find_tag(&self, kind: TagKind, tag: &str) -> Option<TypeId> {
        self.declared_tag(kind, tag)
            .or_else(|| self.find_in_kernel(format!("{} {tag}", kind.keyword()), btf_kinds(kind), tag))
    }

    /// True unless the type is a struct, union or enum without members. Does not look in the
    /// kernel.
    pub fn is_complete(&self, id: TypeId) -> bool {
        !matches!(self.base_kind(id), Kind::Sou { complete: false, .. } | Kind::Enum { complete: false, .. })
    }

    /// Completes a forward declaration with the kernel's definition, if there is one. This applies
    /// to forward declarations of the program, and to those of the kernel whose definition is in a
    /// module. It is called when a size or a member is needed, so that a pointer to a struct costs
    /// nothing.
    pub fn complete(&self, id: TypeId) {
        let id = self.resolve(id);
        if self.complete_of_process(id) || self.read().of_definition.contains_key(&id) {
            return;
        }
        let (kind, tag) = match self.kind(id) {
            Kind::Array { elem, .. } => return self.complete(elem),
            Kind::Sou { union, tag: Some(tag), complete: false } => {
                (if union { TagKind::Union } else { TagKind::Struct }, tag)
            }
            Kind::Enum { tag: Some(tag), complete: false, .. } => (TagKind::Enum, tag),
            _ => return,
        };
        if self.read().defining.contains(&id) {
            return;
        }
        let found = self.find_in_kernel(format!("{} {tag}", kind.keyword()), btf_kinds(kind), &tag);
        if let Some(found) = found.filter(|f| *f != id) {
            self.define_as(id, found);
        }
    }

    /// Gives a declaration the definition of another type.
    fn define_as(&self, id: TypeId, found: TypeId) {
        let mut inner = self.write();
        let Some(source) = inner.entries.get(found.0 as usize) else { return };
        let (kind, body) = (source.kind.clone(), source.body.clone());
        if let Some(entry) = inner.entries.get_mut(id.0 as usize) {
            (entry.kind, entry.body) = (kind, body);
        }
    }

    /// As [`Types::complete`], for a type of a process's file. True if it is one.
    fn complete_of_process(&self, id: TypeId) -> bool {
        let (btf, at) = {
            let inner = self.read();
            if !inner.of_process.contains_key(&id) {
                return false;
            }
            let Some(Body::Named { source, id: at }) = inner.entries.get(id.0 as usize).map(|e| &e.body)
            else {
                return true;
            };
            (inner.sources.get(*source as usize).cloned(), *at)
        };
        let Kind::Sou { union, tag, .. } = self.kind(id) else { return true };
        let found =
            btf.as_ref().and_then(|btf| btf.origin()?.complete(at, union, tag.as_deref().unwrap_or("")));
        // It is not asked for again.
        if let Some(entry) = self.write().entries.get_mut(id.0 as usize) {
            entry.body = Body::None;
        }
        if let Some(found) = found.map(|(btf, id)| self.import(&btf, id)).filter(|found| *found != id) {
            self.define_as(id, found);
        }
        true
    }

    /// The file of a process that a struct, union, enum or typedef comes from, or a number for the
    /// definition that declares it.
    pub fn file_of_process(&self, id: TypeId) -> Option<u64> {
        const DEFINITION: u64 = 1 << 63;
        let inner = self.read();
        if let Some(number) = inner.of_definition.get(&id) {
            return Some(DEFINITION | u64::from(*number));
        }
        let source = *inner.of_process.get(&id)?;
        Some(inner.sources.get(source as usize)?.origin()?.file())
    }

    /// Why the kernel's types are not available, if so. Opens the kernel's BTF.
    pub fn kernel_error(&self) -> Option<String> {
        self.kernel()?.vmlinux().err().map(ToString::to_string)
    }

    /// Names of the kernel's types of this kind (`None`: typedefs) that a misspelled name may have
    /// meant. They have a similar length and the same first letter.
    pub fn kernel_names_like(&self, kind: Option<TagKind>, wrong: &str) -> Vec<String> {
        let Some(kernel) = self.kernel() else { return Vec::new() };
        let Ok(btf) = kernel.vmlinux() else { return Vec::new() };
        let kinds = kind.map_or(&[BtfKind::Typedef][..], btf_kinds);
        let like = |n: &&str| n.len().abs_diff(wrong.len()) <= 2 && n.chars().next() == wrong.chars().next();
        btf.names(kinds).filter(like).map(str::to_owned).collect()
    }

    /// A typedef of one kernel module (`vmlinux` is the kernel itself): `` module`name ``.
    pub fn find_typedef_in(&self, module: &str, name: &str) -> Option<TypeId> {
        self.find_in_module(module, &[BtfKind::Typedef], name)
    }

    /// A tagged type of one kernel module: `` struct module`tag ``.
    pub fn find_tag_in(&self, module: &str, kind: TagKind, tag: &str) -> Option<TypeId> {
        self.find_in_module(module, btf_kinds(kind), tag)
    }

    /// An enumeration constant: its type and value.
    pub fn find_enumerator(&self, name: &str) -> Option<(TypeId, i64)> {
        if let Some(&found) = self.read().constants.get(name) {
            return Some(found);
        }
        let kernel = self.kernel()?;
        let (btf, id, value) = kernel.enumerator(name)?;
        let found = (self.import(&btf, id), value);
        self.write().constants.insert(name.into(), found);
        Some(found)
    }

    /// An enumeration constant of one kernel module.
    pub fn find_enumerator_in(&self, module: &str, name: &str) -> Option<(TypeId, i64)> {
        let btf = self.kernel()?.module(module)?;
        let (id, value) = btf.enumerator(name)?;
        Some((self.import(&btf, id), value))
    }

    /// The type of a variable of one module (`vmlinux` is the kernel itself), and whether it is
    /// per-CPU. Most kernels' BTF has only per-CPU variables.
    pub fn find_variable(&self, module: &str, name: &str) -> Option<(TypeId, bool)> {
        let btf: Arc<Btf> = self.kernel()?.module(module)?;
        let var = btf.var(name)?;
        let (ty, percpu) = (var.ty, var.section == ".data..percpu");
        Some((self.import(&btf, ty), percpu))
    }

    /// The type of a function of one module (`vmlinux` is the kernel itself).
    pub fn find_function(&self, module: &str, name: &str) -> Option<TypeId> {
        let btf: Arc<Btf> = self.kernel()?.module(module)?;
        let proto = btf.func(name)?.proto;
        Some(self.import(&btf, proto))
    }

    /// An enumeration constant of the program.
    pub fn declared_enumerator(&self, name: &str) -> Option<(TypeId, i64)> {
        self.read().constants.get(name).copied()
    }

    /// True for a type name that D or the program declares. Names of the kernel do not count.
    pub fn is_declared(&self, name: &str) -> bool {
        let inner = self.read();
        let tag: Arc<str> = name.into();
        let tagged = |kind| inner.tags.contains_key(&(kind, tag.clone()));
        inner.typedefs.contains_key(name)
            || [TagKind::Struct, TagKind::Union, TagKind::Enum].into_iter().any(tagged)
    }

    /// True for a struct, union, enum or typedef that comes from the kernel.
    pub fn is_from_kernel(&self, id: TypeId) -> bool {
        let named = |kind: &Kind| matches!(kind, Kind::Sou { .. } | Kind::Enum { .. } | Kind::Typedef { .. });
        let inner = self.read();
        inner.entries.get(id.0 as usize).is_some_and(|e| named(&e.kind)) && inner.of_kernel.contains(&id)
    }

    /// The value of an enumerator of one enumeration. Used for comparisons whose left operand has
    /// that type.
    pub fn enumerator_of(&self, id: TypeId, name: &str) -> Option<i64> {
        self.enumerators(id).iter().find(|(n, _)| **n == *name).map(|(_, v)| *v)
    }

    fn find_in_kernel(&self, key: String, kinds: &[BtfKind], name: &str) -> Option<TypeId> {
        if let Some(&known) = self.read().kernel_lookups.get(&key) {
            return known;
        }
        let kernel = self.kernel()?;
        let found = kernel.find(kinds, name).map(|(btf, id)| self.import(&btf, id));
        self.write().kernel_lookups.insert(key, found);
        found
    }

    fn find_in_module(&self, module: &str, kinds: &[BtfKind], name: &str) -> Option<TypeId> {
        let btf: Arc<Btf> = self.kernel()?.module(module)?;
        let id = btf.find(kinds, name)?;
        Some(self.import(&btf, id))
    }

    /// A type by its C text: `struct task_struct *`, `const char *`, `uint64_t`, `char [16]`, ``
    /// struct vmlinux`task_struct ``. Used for tables of signatures. Function types are not
    /// supported.
    pub fn find(&self, text: &str) -> Option<TypeId> {
        let tokens = tokens(text)?;
        let mut at = 0;
        let (mut quals, mut userland, mut words) = (Quals::NONE, false, Vec::new());
        while let Some(Token::Word(word)) = tokens.get(at) {
            at += 1;
            match *word {
                "userland" => userland = true,
                word => match qualifier(word) {
                    Some(q) => quals = quals.with(q),
                    None => words.push(word),
                },
            }
        }
        let mut id = self.qualified(self.find_base(&words)?, quals);
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                Token::Star => id = if userland { self.user_pointer(id) } else { self.pointer(id) },
                Token::Word(word) => id = self.qualified(id, qualifier(word)?),
                Token::Bracket(_) => {
                    // The first dimension is the outermost.
                    let mut dims = Vec::new();
                    at -= 1;
                    while let Some(Token::Bracket(n)) = tokens.get(at) {
                        dims.push(*n);
                        at += 1;
                    }
                    for n in dims.iter().rev() {
                        id = self.array(id, *n);
                    }
                    return (at == tokens.len()).then_some(id);
                }
            }
        }
        Some(id)
    }

    fn find_base(&self, words: &[&str]) -> Option<TypeId> {
        let scoped = |name: &'_ str| name.split_once('`').map(|(m, n)| (m.to_string(), n.to_string()));
        match words {
            [keyword @ ("struct" | "union" | "enum"), tag] => {
                let kind = match *keyword {
                    "struct" => TagKind::Struct,
                    "union" => TagKind::Union,
                    _ => TagKind::Enum,
                };
                match scoped(tag) {
                    Some((module, tag)) => self.find_tag_in(&module, kind, &tag),
                    None => self.find_tag(kind, tag),
                }
            }
            [name] => base_type(name).or_else(|| match scoped(name) {
                Some((module, name)) => self.find_typedef_in(&module, &name),
                None => self.find_typedef(name),
            }),
            words => base_type(&words.join(" ")),
        }
    }
}

fn qualifier(word: &str) -> Option<Quals> {
    match word {
        "const" => Some(Quals::CONST),
        "volatile" => Some(Quals::VOLATILE),
        "restrict" => Some(Quals::RESTRICT),
        _ => None,
    }
}

enum Token<'a> {
    Word(&'a str),
    Star,
    Bracket(u64),
}

fn tokens(text: &str) -> Option<Vec<Token<'_>>> {
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while let Some(c) = rest.chars().next() {
        let used = match c {
            '*' => {
                out.push(Token::Star);
                1
            }
            '[' => {
                let (n, _) = rest[1..].split_once(']')?;
                out.push(Token::Bracket(if n.trim().is_empty() { 0 } else { n.trim().parse().ok()? }));
                n.len() + 2
            }
            _ => {
                let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '`' | '<' | '>');
                let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
                if end == 0 {
                    return None;
                }
                out.push(Token::Word(&rest[..end]));
                end
            }
        };
        rest = rest[used..].trim_start();
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::BUILTIN_TYPEDEFS;

    // row type.integer, type.d-typedef
    #[test]
    fn specifiers_are_accepted_in_any_order() {
        for (text, id) in [
            ("long unsigned int", TypeId::ULONG),
            ("int long long", TypeId::LLONG),
            ("unsigned", TypeId::UINT),
            ("signed char", TypeId::SCHAR),
            ("short", TypeId::SHORT),
            ("long double", TypeId::LDOUBLE),
            ("_Bool", TypeId::BOOL),
        ] {
            assert_eq!(base_type(text), Some(id), "{text}");
        }
        for text in
            ["", "unsigned void", "short char", "long long long", "signed unsigned int", "int char", "foo"]
        {
            assert_eq!(base_type(text), None, "{text}");
        }
    }

    // row type.pointer, type.function-pointer, type.float
    #[test]
    fn types_are_found_by_their_c_text() {
        let t = Types::new();
        for text in [
            "int",
            "unsigned long *",
            "const char *",
            "char [16]",
            "pid_t",
            "string",
            "int [2][3]",
            "userland char *",
        ] {
            assert_eq!(t.find(text).map(|id| t.name(id)).as_deref(), Some(text));
        }
        for text in ["", "nothing_t", "int (*)(void)", "char [x]", "struct nothing *", "int 5 *", "char [1"] {
            assert_eq!(t.find(text), None, "{text}");
        }
        for (name, target) in BUILTIN_TYPEDEFS {
            assert_eq!(t.find(name).map(|id| t.resolve(id)), Some(*target));
        }
    }
}
