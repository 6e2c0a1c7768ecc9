//! Stack frame layout: offsets for a function's stack objects, spilled registers among them, within
//! the kernel's 512 bytes.
//!
//! Objects that are never live at the same time share bytes. An object is live where its content
//! may have been written and may later be read on some path. The stretch between its first and last
//! use in layout order would be too large: slow paths are placed behind the function and jump back,
//! so nearly every object would be live everywhere.
//!
//! A spilled register is always read and written as a whole, so a write ends its previous live
//! range. The address of other objects may be in a register. The only certainty is that nothing
//! reads such an object after the last use of anything that can hold its address.

use std::collections::BTreeMap;

use diagnostics::Span;

use crate::error::CodegenError;
use crate::liveness::{Node, Ranges, Set, blocks, has, put};
use crate::mir::{Func, Inst, Size, StackSlot, V};

/// The kernel's limit on the stack of a call chain, in bytes.
pub(crate) const STACK_LIMIT: u32 = 512;

/// The stack objects that an instruction uses.
#[derive(Default)]
struct ObjectUse {
    /// Objects that the instruction may read or write, or whose address it handles.
    touched: Vec<StackSlot>,
    /// The object whose content the instruction replaces as a whole.
    replaced: Option<StackSlot>,
}

/// Returns the offset of each stack object from the frame pointer, and the frame's size.
pub(crate) fn lay_out(f: &Func) -> Result<(Vec<i16>, u32), CodegenError> {
    let n = f.slots.len();
    if n == 0 {
        return Ok((Vec::new(), 0));
    }
    let object_uses = object_uses(f);
    let mut first: Vec<Option<Span>> = vec![None; n];
    for (m, (_, span)) in object_uses.iter().zip(&f.insts) {
        for s in m.touched.iter().chain(&m.replaced) {
            first[s.0 as usize] = first[s.0 as usize].or(*span);
        }
    }
    let alive = alive(f, &object_uses);
    let mut order: Vec<usize> = (0..n).filter(|i| !alive[*i].0.is_empty()).collect();
    order.sort_unstable_by_key(|i| (std::cmp::Reverse(f.slots[*i]), alive[*i].start(), *i));
    let mut frame = vec![0i16; n];
    let mut depth = 0;
    let mut placed: Vec<(usize, u32)> = Vec::new();
    for i in order {
        let size = f.slots[i].max(8);
        // The places taken by objects that live at the same time, lowest first. This object gets
        // the first gap.
        let mut taken: Vec<(u32, u32)> = placed
            .iter()
            .filter(|(o, _)| alive[*o].intersects(&alive[i]))
            .map(|(o, end)| (end - f.slots[*o].max(8), *end))
            .collect();
        taken.sort_unstable();
        let mut end = size;
        for (from, to) in taken {
            if from < end && end - size < to {
                end = to + size;
            }
        }
        if end > STACK_LIMIT {
            return Err(CodegenError {
                span: first[i].or_else(|| f.insts.iter().find_map(|(_, s)| *s)),
                message: format!("needs {end} bytes of stack; the kernel allows {STACK_LIMIT}"),
            });
        }
        frame[i] = -(end as i16);
        placed.push((i, end));
        depth = depth.max(end);
    }
    Ok((frame, depth))
}

/// The stack objects that each instruction uses. The registers and spilled words that may hold an
/// address are found without regard to instruction order. That is precise enough, since addresses
/// are few and are only copied or added to.
fn object_uses(f: &Func) -> Vec<ObjectUse> {
    let mut in_reg: BTreeMap<V, Vec<StackSlot>> = BTreeMap::new();
    let mut in_slot: BTreeMap<StackSlot, Vec<StackSlot>> = BTreeMap::new();
    loop {
        let mut grew = false;
        let mut add = |to: &mut Vec<StackSlot>, from: &[StackSlot]| {
            for s in from {
                if !to.contains(s) {
                    to.push(*s);
                    grew = true;
                }
            }
        };
        for (inst, _) in &f.insts {
            match inst {
                Inst::SlotAddr { dst, slot, .. } => add(in_reg.entry(*dst).or_default(), &[*slot]),
                Inst::SlotLoad { dst, slot, .. } => {
                    if let Some(held) = in_slot.get(slot) {
                        add(in_reg.entry(*dst).or_default(), held);
                    }
                }
                Inst::SlotStore { slot, src: crate::mir::Operand::V(v), .. } => {
                    if let Some(held) = in_reg.get(v) {
                        add(in_slot.entry(*slot).or_default(), held);
                    }
                }
                Inst::Mov { dst, .. } | Inst::Alu { dst, .. } if !in_reg.is_empty() => {
                    let mut held = Vec::new();
                    inst.clone().uses_mut(|v| held.extend(in_reg.get(v).into_iter().flatten()));
                    if !held.is_empty() {
                        add(in_reg.entry(*dst).or_default(), &held);
                    }
                }
                _ => {}
            }
        }
        if !grew {
            break;
        }
    }
    let mut out: Vec<ObjectUse> = Vec::with_capacity(f.insts.len());
    for (inst, _) in &f.insts {
        let mut m = ObjectUse::default();
        match inst {
            Inst::SlotAddr { slot, .. } | Inst::SlotLoad { slot, .. } => m.touched.push(*slot),
            Inst::SlotStore { slot, off: 0, w: Size::B8, .. } if f.slots[slot.0 as usize] <= 8 => {
                m.replaced = Some(*slot);
            }
            Inst::SlotStore { slot, .. } => m.touched.push(*slot),
            _ => {}
        }
        if !in_reg.is_empty() {
            inst.clone().uses_mut(|v| m.touched.extend(in_reg.get(v).into_iter().flatten()));
        }
        out.push(m);
    }
    out
}

/// The live ranges of each object, in the positions of [`crate::liveness`].
fn alive(f: &Func, object_uses: &[ObjectUse]) -> Vec<Ranges> {
    let n = f.slots.len();
    let nodes = blocks(f);
    let written = written_before(&nodes, object_uses, n);
    let wanted = wanted_from(&nodes, object_uses, n);
    let mut out = vec![Ranges::default(); n];
    for (b, node) in nodes.iter().enumerate() {
        let (start, last) = (4 * node.start as u32, 4 * node.end as u32);
        // The first use in this block of each object that enters the block unwritten.
        let mut first: BTreeMap<u32, u32> = BTreeMap::new();
        for (at, m) in (start..).step_by(4).zip(&object_uses[node.start..node.end]) {
            for s in m.touched.iter().chain(&m.replaced) {
                first.entry(s.0).or_insert(at);
            }
        }
        let from = |s: u32| if has(&written[b], V(s)) { Some(start) } else { first.get(&s).copied() };
        let mut until: BTreeMap<u32, u32> = BTreeMap::new();
        for next in &node.next {
            for s in members(&wanted[*next], n) {
                until.insert(s, last);
            }
        }
        for i in (node.start..node.end).rev() {
            let at = 4 * i as u32;
            if let Some(s) = object_uses[i].replaced {
                let end = until.remove(&s.0).unwrap_or(at + 3);
                out[s.0 as usize].0.push((at + 2, end));
            }
            for s in &object_uses[i].touched {
                until.entry(s.0).or_insert(at + 3);
            }
        }
        for (s, end) in until {
            if let Some(begin) = from(s)
                && begin < end
            {
                out[s as usize].0.push((begin, end));
            }
        }
    }
    for r in &mut out {
        r.merge(&Ranges::default());
    }
    out
}

fn members(set: &Set, n: usize) -> impl Iterator<Item = u32> + '_ {
    (0..n as u32).filter(|s| has(set, V(*s)))
}

/// For each block, the objects that some path to the block has used.
fn written_before(nodes: &[Node], object_uses: &[ObjectUse], n: usize) -> Vec<Set> {
    let mut before: Vec<Set> = vec![vec![0; n.div_ceil(64)]; nodes.len()];
    loop {
        let mut changed = false;
        for (b, node) in nodes.iter().enumerate() {
            let mut set = before[b].clone();
            for m in &object_uses[node.start..node.end] {
                m.touched.iter().chain(&m.replaced).for_each(|s| put(&mut set, V(s.0), true));
            }
            for next in &node.next {
                for (to, from) in before[*next].iter_mut().zip(&set) {
                    changed |= *to | from != *to;
                    *to |= from;
                }
            }
        }
        if !changed {
            return before;
        }
    }
}

/// For each block, the objects whose content some path from its start may read.
fn wanted_from(nodes: &[Node], object_uses: &[ObjectUse], n: usize) -> Vec<Set> {
    let mut wanted: Vec<Set> = vec![vec![0; n.div_ceil(64)]; nodes.len()];
    loop {
        let mut changed = false;
        for (b, node) in nodes.iter().enumerate().rev() {
            let mut set: Set = vec![0; n.div_ceil(64)];
            for next in &node.next {
                set.iter_mut().zip(&wanted[*next]).for_each(|(a, w)| *a |= w);
            }
            for m in object_uses[node.start..node.end].iter().rev() {
                if let Some(s) = m.replaced {
                    put(&mut set, V(s.0), false);
                }
                m.touched.iter().for_each(|s| put(&mut set, V(s.0), true));
            }
            if wanted[b] != set {
                wanted[b] = set;
                changed = true;
            }
        }
        if !changed {
            return wanted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mir::{Builder, Helper, Jmp};

    fn depth(b: Builder) -> u32 {
        let (f, _) = b.finish();
        lay_out(&f).unwrap().1
    }

    #[test]
    fn objects_that_are_never_live_together_share_bytes() {
        let mut b = Builder::new("main", 0);
        for _ in 0..100 {
            let s = b.stack(16);
            let at = b.slot_addr(s, 0);
            b.call(Helper::GET_CURRENT_COMM, &[at]);
        }
        b.exit(0);
        assert_eq!(depth(b), 16);
    }

    #[test]
    fn a_slow_path_does_not_extend_the_life_of_other_objects() {
        let mut b = Builder::new("main", 1);
        let x = b.param(0);
        for _ in 0..100 {
            let (slow, back) = (b.label(), b.label());
            let s = b.stack(8);
            b.slot_store(Size::B8, s, 0, x);
            b.br(Jmp::Eq, x, 0, slow);
            b.bind(back);
            b.out_of_line(|b| {
                b.bind(slow);
                let own = b.stack(8);
                b.slot_store(Size::B8, own, 0, x);
                b.slot_load(Size::B8, own, 0);
                b.jmp(back);
            });
            b.slot_load(Size::B8, s, 0);
        }
        b.exit(0);
        // The object that lives across the slow path, and the one inside it.
        assert_eq!(depth(b), 16);
    }

    #[test]
    fn an_object_read_in_a_loop_keeps_its_bytes_throughout_the_loop() {
        let mut b = Builder::new("main", 1);
        let x = b.param(0);
        let (s, t) = (b.stack(8), b.stack(8));
        b.slot_store(Size::B8, s, 0, x);
        let again = b.label();
        b.bind(again);
        b.slot_load(Size::B8, s, 0);
        b.slot_store(Size::B8, t, 0, 1);
        b.slot_load(Size::B8, t, 0);
        b.br(Jmp::Ne, x, 0, again);
        b.exit(0);
        assert_eq!(depth(b), 16);
    }

    #[test]
    fn an_object_stays_alive_while_its_address_is_spilled() {
        let mut b = Builder::new("main", 0);
        let (s, word, t) = (b.stack(8), b.stack(8), b.stack(8));
        b.slot_store(Size::B8, s, 0, 1);
        let at = b.slot_addr(s, 0);
        b.slot_store(Size::B8, word, 0, at);
        b.slot_store(Size::B8, t, 0, 2);
        b.slot_load(Size::B8, t, 0);
        let again = b.slot_load(Size::B8, word, 0);
        let value = b.load(Size::B8, again, 0);
        b.exit(value);
        assert_eq!(depth(b), 24);
    }
}
