//! Prints types in C syntax.
//!
//! C declarators grow from the name outwards. A pointer is added on the left, an array or a
//! parameter list on the right. Parentheses bind a pointer to the name before an array or a
//! parameter list. [`Types::declare`] builds declarators in that order, with or without a name in
//! the middle.

use std::fmt::Write;

use crate::model::{Inner, Kind, Quals, TypeId, Types};

impl Types {
    /// A type in C syntax: `int`, `struct task_struct *`, `char [16]`, `int (*)(char *)`.
    pub fn name(&self, id: TypeId) -> String {
        self.declare(id, "")
    }

    /// A declaration of `name` in C syntax: `char comm[16]`.
    pub fn declare(&self, id: TypeId, name: &str) -> String {
        self.read().declare(id, name.to_string(), 32)
    }
}

impl Inner {
    fn declare(&self, id: TypeId, inner: String, depth: u32) -> String {
        if depth == 0 {
            return format!("...{inner}");
        }
        let Some(entry) = self.entries.get(id.0 as usize) else { return format!("?{inner}") };
        match &entry.kind {
            Kind::Pointer { target, userland } => {
                let around = matches!(
                    self.entries.get(target.0 as usize).map(|e| &e.kind),
                    Some(Kind::Array { .. } | Kind::Function { .. })
                );
                let inner = if around { format!("(*{inner})") } else { format!("*{inner}") };
                let text = self.declare(*target, inner, depth - 1);
                if *userland { format!("userland {text}") } else { text }
            }
            Kind::Array { elem, len } => {
                // An array without a name has a blank before the bracket: `char [16]`, but `char
                // comm[16]` and `int (*)[3]`.
                let inner = match len {
                    0 => format!("{inner}[]"),
                    n => format!("{inner}[{n}]"),
                };
                self.declare(*elem, inner, depth - 1)
            }
            Kind::Function { ret, params, variadic } => {
                let mut list: Vec<String> =
                    params.iter().map(|p| self.declare(*p, String::new(), depth - 1)).collect();
                if *variadic {
                    list.push("...".into());
                } else if list.is_empty() {
                    list.push("void".into());
                }
                self.declare(*ret, format!("{inner}({})", list.join(", ")), depth - 1)
            }
            Kind::Qualified { quals, target } => {
                let words = quals_text(*quals);
                match self.entries.get(target.0 as usize).map(|e| &e.kind) {
                    // The qualifiers of a qualified pointer are after the star.
                    Some(Kind::Pointer { .. }) => {
                        let inner = if inner.is_empty() { words } else { format!("{words} {inner}") };
                        self.declare(*target, inner, depth - 1)
                    }
                    _ => format!("{words} {}", self.declare(*target, inner, depth - 1)),
                }
            }
            Kind::Sou { union, tag, .. } => {
                let keyword = if *union { "union" } else { "struct" };
                join(&format!("{keyword} {}", tag.as_deref().unwrap_or("<anonymous>")), &inner)
            }
            Kind::Enum { tag, .. } => {
                join(&format!("enum {}", tag.as_deref().unwrap_or("<anonymous>")), &inner)
            }
            Kind::Typedef { name, .. } => join(name, &inner),
            _ => join(&entry.name, &inner),
        }
    }
}

fn join(base: &str, inner: &str) -> String {
    if inner.is_empty() { base.to_string() } else { format!("{base} {inner}") }
}

fn quals_text(quals: Quals) -> String {
    let mut text = String::new();
    for (bit, word) in [(Quals::CONST, "const"), (Quals::VOLATILE, "volatile"), (Quals::RESTRICT, "restrict")]
    {
        if quals.contains(bit) {
            let _ = write!(text, "{}{word}", if text.is_empty() { "" } else { " " });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TagKind;

    #[test]
    fn types_are_printed_in_c_syntax() {
        let t = Types::new();
        let task = t.declare_tag(TagKind::Struct, Some("task_struct"));
        let comm = t.array(TypeId::CHAR, 16);
        let func = t.function(TypeId::INT, &[TypeId::CHAR_PTR, TypeId::LONG], false);
        let consts = t.qualified(TypeId::CHAR, Quals::CONST);
        for (id, text) in [
            (TypeId::INT, "int"),
            (TypeId::ULLONG, "unsigned long long"),
            (t.pointer(task), "struct task_struct *"),
            (t.pointer(t.pointer(task)), "struct task_struct **"),
            (comm, "char [16]"),
            (t.array(comm, 2), "char [2][16]"),
            (t.array(TypeId::CHAR_PTR, 3), "char *[3]"),
            (t.pointer(comm), "char (*)[16]"),
            (t.pointer(func), "int (*)(char *, long)"),
            (t.pointer(t.function(TypeId::VOID, &[], false)), "void (*)(void)"),
            (t.pointer(consts), "const char *"),
            (t.qualified(t.pointer(consts), Quals::CONST), "const char *const"),
            (t.user_pointer(TypeId::CHAR), "userland char *"),
            (t.find("pid_t").unwrap(), "pid_t"),
            (TypeId::STRING, "string"),
            (t.declare_tag(TagKind::Union, None), "union <anonymous>"),
            (TypeId::DYN, "<DYN>"),
        ] {
            assert_eq!(t.name(id), text);
        }
        assert_eq!(t.declare(comm, "comm"), "char comm[16]");
        assert_eq!(t.declare(t.pointer(func), "f"), "int (*f)(char *, long)");
    }
}
