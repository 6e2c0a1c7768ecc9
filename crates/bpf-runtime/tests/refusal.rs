//! A program that the verifier rejects names the D text of the instruction, for every kind of
//! script and whichever function contains the instruction.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::fd::AsRawFd;

use bpf_codegen::Division;
use bpf_codegen::mir::MapRef;
use bpf_sys::insn::{Insn, Reg, Size};
use bpf_sys::load::LoadError;
use diagnostics::{SourceKind, SourceMap, Span};

use crate::session::{Run, Setup, privileged};

const CLAUSES: &str = r#"
module strsize 16
string s0 = ""
var var0 = global "x" int
var var1 = global "y" int
clause "one" {
b0:
    v0:int = builtin arg0
    storevar var0, v0
    return
}
clause "two" {
b0:
    v0:int = builtin arg1
    storevar var1, v0
    return
}
"#;

/// Replaces the second clause's store to its variable by an invalid load, and tries to load the
/// program.
fn load_rejected(kind: SourceKind, name: &str, division: Division) -> Box<LoadError> {
    let mut sources = SourceMap::default();
    let text = "BEGIN { x = arg0; }\nBEGIN { y = arg1; }\n";
    let file = sources.add(kind, name, text);
    let mut module = dif::text::parse(CLAUSES).unwrap();
    for (clause, at) in module.clauses.iter_mut().zip([8, 28]) {
        for inst in clause.func.blocks.iter_mut().flat_map(|b| &mut b.insts) {
            inst.span = Some(Span::new(file, at, at + 8));
        }
    }
    let mut setup = Setup::new(module);
    setup.division = division;
    let run = Run::new(setup);
    let mut image =
        run.compiled.image(|m: MapRef| run.maps.get(m).map(AsRawFd::as_raw_fd), Some(&sources)).unwrap();
    let store = Insn::stx(Size::B8, Reg::R0, 0, Reg::R0);
    let is_store = |i: &Insn| i.code == store.code && i.off == 0 && i.dst() != 10;
    let last = image.insns.iter().rposition(is_store).unwrap();
    image.insns[last] = Insn::ldx(Size::B8, Reg::R1, Reg::R10, 8);
    image.load(0).expect_err("the verifier must refuse this")
}

#[test]
fn a_rejected_program_names_the_script_the_line_and_the_column() {
    if !privileged("refusal") {
        return;
    }
    let e = load_rejected(SourceKind::Script, "x.d", Division::default()).to_string();
    assert!(e.contains("\n  --> x.d:2:9\n   | BEGIN { y = arg1; }\n"), "{e}");
}

#[test]
fn a_rejected_program_of_the_command_line_is_named_so() {
    if !privileged("refusal") {
        return;
    }
    let e = load_rejected(SourceKind::Specifier, "", Division::default()).to_string();
    assert!(e.contains("\n  --> command line:2:9\n   | BEGIN { y = arg1; }\n"), "{e}");
}

#[test]
fn the_line_is_named_for_a_clause_in_a_function() {
    if !privileged("refusal") {
        return;
    }
    let e = load_rejected(SourceKind::Specifier, "", Division { whole: 0, part: 0 }).to_string();
    assert!(e.contains("\n  --> command line:2:9\n   | BEGIN { y = arg1; }\n"), "{e}");
}
