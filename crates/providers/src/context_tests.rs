//! The code of contexts for each machine, which golden files have: `golden/NAME.MACHINE`.
//! `UPDATE_GOLDEN=1` rewrites them.
#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::path::Path;

use bpf_codegen::arch::Machine;
use bpf_codegen::context::{Context, Index};
use bpf_codegen::emit::assemble;
use bpf_codegen::listing::symbolic;
use bpf_codegen::mir::{Builder, Label, V};

/// A function of the context of a firing, whose result `value` emits. It is 0 where that jumps to
/// the label.
fn code(machine: &'static Machine, value: impl FnOnce(&mut Builder, V, Label) -> V) -> String {
    let mut b = Builder::new("main", 1).for_machine(machine);
    let (ctx, none) = (b.param(0), b.label());
    let value = value(&mut b, ctx, none);
    b.exit(value);
    b.bind(none);
    b.exit(0);
    let (main, subs) = b.finish();
    symbolic(&assemble(std::iter::once(main).chain(subs).collect()).unwrap())
}

/// How a context finds its probe, these arguments and the error, on each machine.
pub(crate) fn compare(name: &str, context: &dyn Context, arguments: &[u8]) {
    let index = |b: &mut Builder, ctx, none| match context.index(b, ctx, none) {
        Index::V(index) => index,
        Index::Const(index) => b.imm(index.into()),
        Index::Row { row, .. } => row,
    };
    let of_each = |machine: &'static Machine| {
        let mut out = format!("index\n{}", code(machine, index));
        for n in arguments {
            let text = code(machine, |b, ctx, none| {
                let index = Index::V(index(b, ctx, none));
                if context.is_in_memory(*n) {
                    let at = b.var();
                    return context.operand(b, ctx, *n, at, none);
                }
                context.arg(b, ctx, index, *n)
            });
            let _ = write!(out, "\narg{n}\n{text}");
        }
        let errno = code(machine, |b, ctx, none| {
            let index = Index::V(index(b, ctx, none));
            context.errno(b, ctx, index)
        });
        let _ = write!(out, "\nerrno\n{errno}");
        out
    };
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    for machine in Machine::ALL {
        let (file, got) = (dir.join(format!("{name}.{}", machine.name)), of_each(machine));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&file, &got).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap_or_default(), got, "{}", file.display());
    }
}
