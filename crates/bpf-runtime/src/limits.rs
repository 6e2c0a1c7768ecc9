//! Limits on the size of records, keys, scratch slots and thread variables.
//!
//! A program that exceeds a limit is rejected with the clause at fault, before any map or program
//! is created. The limits are below those of the kernel, so the kernel never rejects a program that
//! passes. The limit on a program's length is in [`crate::program`], which knows how the clauses of
//! a probe share a program.

use bpf_codegen::plan::{Plan, VarPlan};
use bpf_codegen::{CodegenError, Layout};
use diagnostics::Span;
use dif::ir::{Module, Op, Scope};
use plane::desc::RECORD_MAX;

/// Bytes of the key of an aggregation or an array.
pub const KEY_MAX: u32 = 256 << 10;
/// Bytes of a scratch slot, of which each CPU has eight.
pub const SLOT_MAX: u32 = 1 << 20;
/// Bytes of a thread's variables at all context levels together. Some kernels allow a task storage
/// value of 64 KiB, newer ones less. The limit of the running kernel is found by trying.
pub const THREAD_MAX: u32 = 60 << 10;
/// Bytes that every kernel allows.
const THREAD_ALWAYS: u32 = 7 << 10;

fn refuse(span: Option<Span>, message: String) -> Result<(), CodegenError> {
    Err(CodegenError { span, message })
}

/// Checks the limits that depend on the clauses alone.
pub fn check(module: &Module) -> Result<(), CodegenError> {
    for clause in &module.clauses {
        if let Some(record) = clause.record.as_ref().filter(|r| r.size > RECORD_MAX) {
            let size = record.size;
            return refuse(
                clause.span,
                format!("the clause records {size} bytes; a record has {RECORD_MAX} at most"),
            );
        }
        for (_, inst) in clause.func.instructions() {
            let size = match &inst.op {
                Op::Aggregate { agg, .. } => module.aggs[agg.0 as usize].key_size,
                Op::LoadElem(v, _) | Op::StoreElem(v, ..) | Op::AddElem(v, ..) | Op::DeleteElem(v, _) => {
                    module.vars[v.0 as usize].key_size
                }
                _ => 0,
            };
            if size > KEY_MAX {
                return refuse(
                    inst.span.or(clause.span),
                    format!("the key has {size} bytes; {KEY_MAX} at most"),
                );
            }
        }
    }
    let bytes = Layout::new(module, &[]).slot_bytes;
    if bytes <= SLOT_MAX {
        return Ok(());
    }
    // The clause that needs most when it is alone.
    let alone = |clause: &dif::ir::Clause| {
        let clauses = vec![clause.clone()];
        Layout::new(&Module { clauses, ..module.clone() }, &[]).slot_bytes
    };
    let most = module.clauses.iter().max_by_key(|c| alone(c)).and_then(|c| c.span);
    let strsize = module.strsize;
    refuse(
        most,
        format!("a firing needs {bytes} bytes of memory with strsize={strsize}; it has {SLOT_MAX} at most"),
    )
}

/// What precedes the values in a record of the original: the id of the enabling, aligned. What
/// precedes ours is longer, but no part of what `bufsize` asks for.
const ORIGINAL_HEADER: u64 = 8;

/// Checks that buffers of these sizes, as they were asked for, have space for the longest record,
/// in the words of the original, which asks it of the buffer of aggregations too (0: it has none).
/// (A ring has more: see [`plane::ring::ring_size`].)
pub fn check_buffers(module: &Module, bufsize: u64, aggsize: u64) -> Result<(), CodegenError> {
    let smallest = if aggsize == 0 { bufsize } else { bufsize.min(aggsize) };
    let size =
        |clause: &dif::ir::Clause| clause.record.as_ref().map_or(0, |r| u64::from(r.size) + ORIGINAL_HEADER);
    match module.clauses.iter().any(|clause| size(clause) > smallest) {
        true => refuse(None, "Enabling exceeds size of buffer".into()),
        false => Ok(()),
    }
}

/// Checks the limits that depend on the session's plan. `holds` says whether the running kernel
/// allows a thread value of so many bytes. It is called for large values only.
pub fn check_plan(module: &Module, plan: &Plan, holds: impl Fn(u32) -> bool) -> Result<(), CodegenError> {
    let alone = (0..).zip(&plan.vars).filter_map(|(v, var)| match var {
        VarPlan::ThreadAlone(shape) => Some((Some(v), shape.value_size())),
        _ => None,
    });
    for (var, size) in plan.thread.map(|shape| (None, shape.value_size())).into_iter().chain(alone) {
        if size <= THREAD_ALWAYS || size <= THREAD_MAX && holds(size) || !holds(THREAD_ALWAYS) {
            continue;
        }
        let stores = |op: &Op| match op {
            Op::StoreVar(v, _) => {
                let desc = &module.vars[v.0 as usize];
                desc.scope == Scope::Thread && desc.key.is_none() && var.is_none_or(|alone| alone == v.0)
            }
            _ => false,
        };
        let clause = module.clauses.iter().find(|c| c.func.instructions().any(|(_, i)| stores(&i.op)));
        let most = most(THREAD_ALWAYS, size.min(THREAD_MAX + 1), &holds);
        return refuse(
            clause.and_then(|c| c.span),
            format!("the self-> variables of a thread have {size} bytes; {most} at most"),
        );
    }
    Ok(())
}

/// The greatest number for which `holds` is true. `good` is known to hold, `bad` not to.
fn most(mut good: u32, mut bad: u32, holds: &impl Fn(u32) -> bool) -> u32 {
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if holds(middle) { good = middle } else { bad = middle }
    }
    good
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(head: &str, body: &str) -> Module {
        let text = format!("module strsize 32768\nstring s0 = \"\"\n{head}\nclause \"c\" {body}\n");
        dif::text::parse(&text).unwrap()
    }

    #[test]
    fn a_record_that_is_too_long_is_rejected_with_its_size() {
        let m = module("", "record 300000 {\nb0:\n    reserve\n    commit\n    return\n}");
        let message = "the clause records 300000 bytes; a record has 262144 at most";
        assert_eq!(check(&m).unwrap_err().message, message);
    }

    #[test]
    fn a_key_that_is_too_long_is_rejected_with_its_size() {
        let columns: Vec<String> = (0..9).map(|i| format!("{}:str(32768)", i * 32768)).collect();
        let head = format!("agg agg0 = \"c\" count [{}] size {}", columns.join(", "), 9 * 32768);
        let key = ["v0"; 9].join(", ");
        let body = format!("{{\nb0:\n    v0:str = str s0\n    aggregate agg0[{key}]()\n    return\n}}");
        assert_eq!(
            check(&module(&head, &body)).unwrap_err().message,
            "the key has 294912 bytes; 262144 at most"
        );
    }

    #[test]
    fn a_firing_that_needs_too_much_memory_is_rejected_with_its_size() {
        let head: String = (0..40).map(|i| format!("var var{i} = this \"v{i}\" str\n")).collect();
        let body = "{\nb0:\n    v0:str = str s0\n    storevar var0, v0\n    return\n}";
        let message = check(&module(&head, body)).unwrap_err().message;
        assert!(message.ends_with("bytes of memory with strsize=32768; it has 1048576 at most"), "{message}");
    }

    #[test]
    fn thread_variables_that_are_too_long_are_rejected_with_the_limit() {
        let head = "var var0 = self \"a\" str\nvar var1 = self \"b\" str";
        let body = "{\nb0:\n    v0:str = str s0\n    storevar var0, v0\n    return\n}";
        let m = module(head, body);
        assert_eq!(check(&m), Ok(()));
        let plan =
            Plan::new(&m, &bpf_codegen::plan::Options::default(), &bpf_codegen::plan::Needs::default());
        let message = check_plan(&m, &plan, |_| true).unwrap_err().message;
        assert!(message.ends_with("bytes; 61440 at most"), "{message}");
        let message = check_plan(&m, &plan, |n| n <= 8000).unwrap_err().message;
        assert!(message.ends_with("bytes; 8000 at most"), "{message}");
        // No kernel rejects that size. The task storage itself is missing, and its creation reports
        // that.
        assert_eq!(check_plan(&m, &plan, |_| false), Ok(()));
    }

    #[test]
    fn the_kernel_limit_is_tried_for_large_thread_values_only() {
        let head = "var var0 = self \"a\" str\nvar var1 = self \"b\" int";
        let body = |var: &str| format!("{{\nb0:\n    v0:{var}\n    return\n}}");
        let plan = |m: &Module| {
            Plan::new(m, &bpf_codegen::plan::Options::default(), &bpf_codegen::plan::Needs::default())
        };
        let small = module("var var0 = self \"b\" int", &body("int = const 1"));
        let unasked = |_| panic!("asked");
        assert_eq!(check_plan(&small, &plan(&small), unasked), Ok(()));
        let large = module(head, &body("str = str s0"));
        assert_eq!(check_plan(&large, &plan(&large), |_| true), Ok(()));
        assert!(check_plan(&large, &plan(&large), |n| n <= 8000).is_err());
    }
}
