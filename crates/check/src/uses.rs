//! What a clause uses of which the meaning depends on its probes.
//!
//! It is known of every clause, also of one that cannot be checked yet because its probes come
//! later: so it comes from the words of the clause. What a clause names through inlines is not
//! among them, since no inline may name `args[]`, an action or a symbol function; `argN` is the
//! exception.

use syntax::ast::{Clause, Item, Program};
use syntax::uses::Uses;

/// The variables that are in the order of a definition.
const ARGUMENTS: [&str; 10] =
    ["arg0", "arg1", "arg2", "arg3", "arg4", "arg5", "arg6", "arg7", "arg8", "arg9"];

/// What a clause uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClauseUses {
    /// `args[]`, also in `defined()`.
    pub typed_args: bool,
    /// `argN`, which a definition of a probe may give another order.
    pub raw_args: bool,
    /// `return()`, which not every probe allows.
    pub returns: bool,
    /// A function or a format that shows an address of a process by name.
    pub user_addresses: bool,
    /// `ustack()` or `jstack()`.
    pub user_stacks: bool,
}

impl ClauseUses {
    fn of(clause: &Clause) -> ClauseUses {
        let words = Uses::of(clause);
        ClauseUses {
            typed_args: words.any_name(&["args"]),
            raw_args: words.any_name(&ARGUMENTS),
            returns: words.any_name(&["return"]),
            user_addresses: words.any_name(&["usym", "ufunc", "umod", "uaddr"]) || words.string_with(b"%A"),
            user_stacks: words.any_name(&["ustack", "jstack"]),
        }
    }
}

/// What the clauses of programs use: for each program, an entry for each of its items. Only items
/// that are clauses use anything. If an inline or a translator names an `argN`, any clause may use
/// it.
pub fn uses(programs: &[Program]) -> Vec<Vec<ClauseUses>> {
    let may_name_one = |item: &Item| {
        let values = match item {
            Item::Inline(inline) => vec![&inline.value],
            Item::Translator(translator) => translator.members.iter().map(|m| &m.value).collect(),
            _ => return false,
        };
        Uses::of_expressions(values).any_name(&ARGUMENTS)
    };
    let anywhere = programs.iter().flat_map(|program| &program.items).any(may_name_one);
    let of_item = |item: &Item| match item {
        Item::Clause(clause) => {
            let uses = ClauseUses::of(clause);
            ClauseUses { raw_args: uses.raw_args || anywhere, ..uses }
        }
        _ => ClauseUses::default(),
    };
    programs.iter().map(|program| program.items.iter().map(of_item).collect()).collect()
}

#[cfg(test)]
mod tests {
    use diagnostics::{Sink, SourceKind, SourceMap};
    use syntax::{MacroEnv, ParseMode};

    use super::*;

    fn used(texts: &[&str]) -> Vec<Vec<ClauseUses>> {
        let (mut map, mut sink) = (SourceMap::default(), Sink::default());
        let mut program = |text: &&str| {
            let file = map.add(SourceKind::Script, "x.d", *text);
            syntax::parse(&mut map, file, ParseMode::Script, &MacroEnv::default(), &(), &mut sink)
        };
        let programs: Vec<Program> = texts.iter().map(&mut program).collect();
        assert!(sink.is_empty());
        uses(&programs)
    }

    #[test]
    fn a_clause_uses_what_its_expressions_name() {
        let none = ClauseUses::default();
        let cases = [
            ("/args[1]/ { }", ClauseUses { typed_args: true, ..none }),
            ("/defined(x1:::y, args[1])/ { }", ClauseUses { typed_args: true, ..none }),
            ("{ trace(arg9); }", ClauseUses { raw_args: true, ..none }),
            ("{ if (pid) { return(3); } }", ClauseUses { returns: true, ..none }),
            ("{ @[ufunc(1)] = count(); }", ClauseUses { user_addresses: true, ..none }),
            ("{ printf(\"%A\", 1); }", ClauseUses { user_addresses: true, ..none }),
            ("{ @[jstack()] = count(); }", ClauseUses { user_stacks: true, ..none }),
            ("{ trace(curpsinfo->pr_psargs); /* args arg0 */ printf(\"return args arg0\"); }", none),
        ];
        for (text, wanted) in cases {
            assert_eq!(used(&[&format!("pid1::ustack:return {text}")]), [[wanted]], "{text}");
        }
    }

    #[test]
    fn an_inline_or_a_translator_of_any_program_may_name_an_argument_for_all_clauses() {
        let raw = |texts: &[&str]| {
            let all: Vec<bool> = used(texts).iter().flatten().map(|uses| uses.raw_args).collect();
            all
        };
        assert_eq!(raw(&["BEGIN { }", "inline int first = arg0; END { }"]), [true, false, true]);
        let translator = "struct s { int a; }; translator struct s < int i > { a = i + arg3; };";
        assert_eq!(raw(&[&format!("{translator} BEGIN {{ }}")]), [false, false, true]);
        assert_eq!(raw(&["inline int myarg0 = 3; BEGIN { }"]), [false, false]);
    }
}
