//! Members of events that a program on the raw tracepoint can compute from the tracepoint's
//! arguments.
//!
//! Such a member is an argument, or a member of a struct that an argument points to. The raw
//! tracepoint is cheaper than the perf event. A row of the table is used only if the kernel's types
//! confirm it: the argument has the type, and the member has the size.

use bpf_codegen::context::{Context, Index, StackStart};
use bpf_codegen::mir::{Builder, Helper, Label, Size, V};
use probes::{Args, TypeRef};
use types::btf::{Btf, Def};

use super::event::{by_address, extend};
use super::{Field, Format};

/// Event, member, argument, and the member of the struct that the argument points to
/// (`task_struct.comm`). If that is empty, the argument itself is the value.
type Row = (&'static str, &'static str, u8, &'static str);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("cpu_frequency", "cpu_id", 1, ""),
    ("cpu_frequency", "state", 0, ""),
    ("cpu_idle", "cpu_id", 1, ""),
    ("cpu_idle", "state", 0, ""),
    ("irq_handler_entry", "irq", 0, ""),
    ("irq_handler_exit", "irq", 0, ""),
    ("irq_handler_exit", "ret", 2, ""),
    ("page_fault_kernel", "address", 0, ""),
    ("page_fault_kernel", "error_code", 2, ""),
    ("page_fault_kernel", "ip", 1, "pt_regs.ip"),
    ("page_fault_user", "address", 0, ""),
    ("page_fault_user", "error_code", 2, ""),
    ("page_fault_user", "ip", 1, "pt_regs.ip"),
    ("sched_migrate_task", "comm", 0, "task_struct.comm"),
    ("sched_migrate_task", "dest_cpu", 1, ""),
    ("sched_migrate_task", "pid", 0, "task_struct.pid"),
    ("sched_migrate_task", "prio", 0, "task_struct.prio"),
    ("sched_process_exit", "comm", 0, "task_struct.comm"),
    ("sched_process_exit", "pid", 0, "task_struct.pid"),
    ("sched_process_exit", "prio", 0, "task_struct.prio"),
    ("sched_process_fork", "child_comm", 1, "task_struct.comm"),
    ("sched_process_fork", "child_pid", 1, "task_struct.pid"),
    ("sched_process_fork", "parent_comm", 0, "task_struct.comm"),
    ("sched_process_fork", "parent_pid", 0, "task_struct.pid"),
    ("sched_stat_runtime", "comm", 0, "task_struct.comm"),
    ("sched_stat_runtime", "pid", 0, "task_struct.pid"),
    ("sched_stat_runtime", "runtime", 1, ""),
    ("sched_switch", "next_comm", 2, "task_struct.comm"),
    ("sched_switch", "next_pid", 2, "task_struct.pid"),
    ("sched_switch", "next_prio", 2, "task_struct.prio"),
    ("sched_switch", "prev_comm", 1, "task_struct.comm"),
    ("sched_switch", "prev_pid", 1, "task_struct.pid"),
    ("sched_switch", "prev_prio", 1, "task_struct.prio"),
    ("sched_wakeup", "comm", 0, "task_struct.comm"),
    ("sched_wakeup", "pid", 0, "task_struct.pid"),
    ("sched_wakeup", "prio", 0, "task_struct.prio"),
    ("sched_wakeup_new", "comm", 0, "task_struct.comm"),
    ("sched_wakeup_new", "pid", 0, "task_struct.pid"),
    ("sched_wakeup_new", "prio", 0, "task_struct.prio"),
    ("sched_waking", "comm", 0, "task_struct.comm"),
    ("sched_waking", "pid", 0, "task_struct.pid"),
    ("sched_waking", "prio", 0, "task_struct.prio"),
    ("softirq_entry", "vec", 0, ""),
    ("softirq_exit", "vec", 0, ""),
    ("softirq_raise", "vec", 0, ""),
    ("sys_enter", "id", 1, ""),
    ("sys_exit", "ret", 1, ""),
    ("workqueue_execute_start", "function", 0, "work_struct.func"),
    ("workqueue_execute_start", "work", 0, ""),
];

/// Where a member of an event comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Source {
    /// The argument.
    arg: u8,
    /// The offset in the struct that it points to; `None` for the argument itself.
    offset: Option<i16>,
    /// Size in bytes; 0 if the value is the address.
    size: u16,
    signed: bool,
}

/// The context of a program on a raw tracepoint whose arguments are the members of the event's
/// record.
#[derive(Debug)]
pub(crate) struct Mapped(Vec<(u8, Source)>);

impl Mapped {
    /// For an event of whose members those in `wanted` (bit N) are used. `None` if one of them has
    /// no confirmed row.
    pub(crate) fn of(event: &str, format: &Format, wanted: u64, args: &Args) -> Option<Mapped> {
        let wanted = (0..64).filter(|n| wanted >> n & 1 != 0);
        let source = |n: u8| {
            let field = format.fields.get(usize::from(n))?;
            let row = ROWS.iter().find(|r| (r.0, r.1) == (event, &*field.name))?;
            Some((n, confirmed(row, field, args)?))
        };
        wanted.map(source).collect::<Option<_>>().map(Mapped)
    }

    /// True if it reads memory that arguments point to.
    pub(crate) fn reads_memory(&self) -> bool {
        self.0.iter().any(|(_, s)| s.offset.is_some() && s.size != 0)
    }
}

/// The source of a row, if the kernel's types confirm it.
fn confirmed(row: &Row, field: &Field, args: &Args) -> Option<Source> {
    let &(_, _, arg, path) = row;
    let TypeRef::Btf(btf, ty) = &args.as_ref().ok()?.get(usize::from(arg))?.native else { return None };
    let address = by_address(field);
    let size = if address { 0 } else { field.size };
    if path.is_empty() {
        let wide = btf.size(*ty).is_some_and(|bytes| bytes >= u32::from(field.size));
        return (wide && !address).then_some(Source { arg, offset: None, size, signed: field.signed });
    }
    let Some(Def::Pointer(target)) = btf.def(btf.resolve(*ty)) else { return None };
    let (tag, member) = path.split_once('.')?;
    let target = btf.resolve(target);
    let found = btf.member(target, member).filter(|f| btf.name_of(target) == tag && f.bits.is_none())?;
    let same = match address {
        true => is_text(btf, found.ty) && (field.ty == "string" || field.ty.starts_with("char [")),
        false => found.size == u32::from(field.size),
    };
    let offset = i16::try_from(found.offset()).ok()?;
    same.then_some(Source { arg, offset: Some(offset), size, signed: field.signed })
}

fn is_text(btf: &Btf, ty: u32) -> bool {
    matches!(btf.def(btf.resolve(ty)), Some(Def::Array { elem, .. }) if btf.size(elem) == Some(1))
}

impl Context for Mapped {
    fn index(&self, _b: &mut Builder, _ctx: V, _out: Label) -> Index {
        Index::Const(0)
    }

    fn arg(&self, b: &mut Builder, ctx: V, _index: Index, n: u8) -> V {
        let Some((_, s)) = self.0.iter().find(|(at, _)| *at == n) else { return b.imm(0) };
        let value = b.load(Size::B8, ctx, 8 * i16::from(s.arg));
        let Some(offset) = s.offset else {
            let unused = 64 - 8 * i64::from(s.size.min(8));
            let high = b.shl(value, unused);
            return if s.signed { b.sar(high, unused) } else { b.shr(high, unused) };
        };
        let from = b.add(value, i64::from(offset));
        if s.size == 0 {
            return from;
        }
        let to = b.stack(8);
        b.slot_store(Size::B8, to, 0, 0);
        let (dst, size) = (b.slot_addr(to, 0), b.imm(i64::from(s.size)));
        b.call(Helper::PROBE_READ_KERNEL, &[dst, size, from]);
        let value = b.slot_load(Size::B8, to, 0);
        extend(b, value, s.size, s.signed)
    }

    fn shape(&self) -> Option<String> {
        Some(format!("arguments of a raw tracepoint: {:?}", self.0))
    }

    /// The program and `bpf_trace_runN`. Some kernels differ: see [`Context::behind_tracepoint`].
    fn tracer_frames(&self) -> u8 {
        2
    }

    fn behind_tracepoint(&self) -> bool {
        true
    }

    fn stack_start(&self) -> Option<StackStart> {
        Some(StackStart::Caller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_unique() {
        assert!(ROWS.windows(2).all(|w| (w[0].0, w[0].1) < (w[1].0, w[1].1)));
    }
}
