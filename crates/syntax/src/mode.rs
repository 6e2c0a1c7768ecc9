//! What is parsed, and what the parser asks of others.

/// The field of a probe description that its last component belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecField {
    /// `-P`
    Provider,
    /// `-m`
    Module,
    /// `-f`
    Function,
    /// `-n`, `-i`, scripts and libraries
    Name,
}

/// The kind of source that is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseMode {
    /// A script or a library: a description needs a predicate or a body.
    Script,
    /// A command-line argument. A description alone enables the default action. The last component
    /// of a description is the given field.
    Specifier(SpecField),
}

/// The type names that a program may use without declaring them.
///
/// The parser knows the built-in typedefs and those of the program. It queries other names only
/// where the grammar is ambiguous (casts, `sizeof`, the start of a declaration).
pub trait TypeNames {
    /// True if `name` (`size_t`, `` mod`type `` with its backquote) names a type.
    fn is_type(&self, name: &str) -> bool;
}

/// Without types.
impl TypeNames for () {
    fn is_type(&self, _: &str) -> bool {
        false
    }
}

/// Where the D text of a script begins: behind the text of its `#!` line; 0 in a text without such
/// a line.
///
/// A script whose first line names another interpreter may begin with a part for that one. The D
/// text is then what follows the first later line that begins with `#!` and names `dtrace`.
pub fn script_start(text: &str) -> usize {
    if !text.starts_with("#!") {
        return 0;
    }
    let mut at = 0;
    let mut first = 0;
    for line in text.split_inclusive('\n') {
        let end = at + line.trim_end_matches('\n').len();
        if line.starts_with("#!") && line.contains("dtrace") {
            return end;
        }
        if at == 0 {
            first = end;
        }
        at += line.len();
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d_text_begins_after_the_line_that_names_dtrace() {
        let text = |script: &'static str| &script[script_start(script)..];
        assert_eq!(text("BEGIN { }"), "BEGIN { }");
        assert_eq!(text("#!/usr/sbin/dtrace -s\nBEGIN { }\n"), "\nBEGIN { }\n");
        assert_eq!(text("#!/bin/d\nBEGIN { }\n#pragma D"), "\nBEGIN { }\n#pragma D");
        assert_eq!(text("#!/bin/sh\nexec dtrace -s \"$0\"\n#!dtrace\nBEGIN { }\n"), "\nBEGIN { }\n");
        assert_eq!(text("#!"), "");
        assert_eq!(text("#!/bin/sh\n#!dtrace"), "");
    }
}
