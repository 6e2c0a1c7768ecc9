//! Register allocation: linear scan over live ranges with holes.
//!
//! The machine has ten registers. A call destroys r0–r5 and takes its arguments in r1–r5. A value
//! that is live across a call therefore prefers r6–r9, and an argument or result prefers the
//! register in which it is needed.
//!
//! Registers are assigned in the order in which ranges start. Moves whose ends do not overlap are
//! coalesced first. Other moves become preferences. When no register is free, the cheapest
//! conflicting value is *spilled everywhere*: a store behind each assignment and a load before each
//! use, each with a tiny range of its own (constants are repeated instead). Then the scan starts
//! anew. It terminates because tiny ranges are never spilled. Splitting ranges would save some
//! loads, but clauses have few values alive at once.

use std::collections::{BTreeMap, BTreeSet};

use diagnostics::Span;

use crate::error::CodegenError;
use crate::frame;
use crate::liveness::{Liveness, Range, Ranges, analyze};
use crate::mir::{Const, Func, Inst, Label, Operand, Size, StackSlot, V};
use crate::simplify::{fold, prune, thread_jumps};

/// A function after register allocation: its registers [`V`] are machine registers, and its stack
/// objects have offsets.
#[derive(Clone, Debug)]
pub(crate) struct Allocated {
    pub(crate) func: Func,
    /// Offset of each stack object from the frame pointer (negative).
    pub(crate) frame: Vec<i16>,
    /// Bytes of stack used.
    pub(crate) depth: u32,
    /// The register of each parameter, `None` when the parameter is never read.
    pub(crate) params: Vec<Option<u8>>,
}

/// Assigns a machine register to every virtual register.
pub(crate) fn allocate(mut f: Func) -> Result<Allocated, CodegenError> {
    prune(&mut f);
    fold(&mut f);
    thread_jumps(&mut f);
    // Registers created by spilling. Spilling them again would not help.
    let mut tiny: BTreeSet<V> = BTreeSet::new();
    for _ in 0..64 {
        let live = analyze(&mut f);
        let mut scan = Scan::new(&f, &live, &tiny);
        let spilled = scan.run();
        if spilled.is_empty() {
            return scan.done(f);
        }
        // Spilling a tiny range again is useless: one instruction needs more registers than there
        // are.
        if tiny.iter().any(|v| spilled.contains(&scan.groups.of(*v))) {
            break;
        }
        let groups = scan.groups;
        spill(&mut f, &groups, &spilled, &mut tiny);
    }
    Err(CodegenError { span: first_span(&f), message: "too many values alive at once".into() })
}

fn first_span(f: &Func) -> Option<Span> {
    f.insts.iter().find_map(|(_, s)| *s)
}

/// Index of a group of coalesced registers.
type Group = usize;

#[derive(Debug)]
struct Groups {
    parent: Vec<u32>,
}

impl Groups {
    fn of(&self, v: V) -> Group {
        let mut i = v.0 as usize;
        while self.parent[i] as usize != i {
            i = self.parent[i] as usize;
        }
        i
    }
}

struct Scan {
    groups: Groups,
    ranges: Vec<Ranges>,
    /// The cost of spilling a group, infinite when it must not be spilled.
    cost: Vec<f32>,
    /// The weight with which a group prefers each machine register.
    preferences: Vec<[f32; 10]>,
    /// Groups that prefer the same register, with the weight.
    partners: Vec<Vec<(Group, f32)>>,
    /// Ranges in which a machine register is taken for all groups but one.
    fixed: [Vec<(Range, Option<Group>)>; 10],
    assigned: Vec<Option<u8>>,
}

impl Scan {
    fn new(func: &Func, live: &Liveness, tiny: &BTreeSet<V>) -> Self {
        let n = func.regs as usize;
        let mut s = Scan {
            groups: Groups { parent: (0..n as u32).collect() },
            ranges: live.ranges.clone(),
            cost: vec![0.0; n],
            preferences: vec![[0.0; 10]; n],
            partners: vec![Vec::new(); n],
            fixed: Default::default(),
            assigned: vec![None; n],
        };
        s.coalesce(func, tiny);
        s.preferences(func, live);
        for v in tiny {
            let g = s.groups.of(*v);
            s.cost[g] = f32::INFINITY;
        }
        s
    }

    fn coalesce(&mut self, func: &Func, tiny: &BTreeSet<V>) {
        for (inst, _) in &func.insts {
            let Inst::Mov { dst, src, w32: false } = inst else { continue };
            if tiny.contains(dst) || tiny.contains(src) {
                continue;
            }
            let (a, b) = (self.groups.of(*dst), self.groups.of(*src));
            if a != b && !self.ranges[a].intersects(&self.ranges[b]) {
                let more = std::mem::take(&mut self.ranges[b]);
                self.ranges[a].merge(&more);
                self.groups.parent[b] = a as u32;
            }
        }
    }

    fn preferences(&mut self, func: &Func, live: &Liveness) {
        for (i, p) in func.params.iter().enumerate() {
            let g = self.groups.of(*p);
            self.preferences[g][i + 1] += 1.0;
            self.fixed[i + 1].push(((0, 2), Some(g)));
        }
        // The moves at entry may use r0 as their temporary.
        self.fixed[0].push(((0, 2), None));
        for (i, (inst, _)) in func.insts.iter().enumerate() {
            let (at, w) = (4 * i as u32, live.weight[i]);
            let mut uses = Vec::new();
            inst.clone().uses_mut(|v| uses.push(*v));
            for v in uses.iter().copied().chain(inst.def()) {
                let g = self.groups.of(v);
                self.cost[g] += w;
            }
            match inst {
                Inst::Call { args, dst, .. }
                | Inst::Kfunc { args, dst, .. }
                | Inst::CallSub { args, dst, .. } => {
                    for (n, v) in args.iter().enumerate().take(5) {
                        let g = self.groups.of(*v);
                        self.preferences[g][n + 1] += w;
                    }
                    if let Some(d) = dst {
                        let g = self.groups.of(*d);
                        self.preferences[g][0] += w;
                    }
                    for r in &mut self.fixed[..6] {
                        r.push(((at + 1, at + 2), None));
                    }
                }
                Inst::CmpXchg { dst, expected, base, new, .. } => {
                    let e = self.groups.of(*expected);
                    let d = self.groups.of(*dst);
                    self.preferences[e][0] += w;
                    self.preferences[d][0] += w;
                    let alone = e != self.groups.of(*base) && e != self.groups.of(*new);
                    self.fixed[0].push(((at, at + 1), alone.then_some(e)));
                    self.fixed[0].push(((at + 1, at + 2), None));
                }
                Inst::Exit { value: Operand::V(v) } => {
                    let g = self.groups.of(*v);
                    self.preferences[g][0] += w;
                }
                Inst::Mov { dst, src, .. } => self.befriend(*dst, *src, w),
                Inst::Alu { dst, a, .. } | Inst::Neg { dst, a } | Inst::ToBe { dst, a, .. } => {
                    self.befriend(*dst, *a, w);
                }
                Inst::Atomic { dst: Some(d), src, .. } => self.befriend(*d, *src, w),
                _ => {}
            }
        }
        for fixed in &mut self.fixed {
            fixed.sort_unstable_by_key(|(r, _)| *r);
        }
        let rematerialized = constants(func, &self.groups);
        for (g, cost) in self.cost.iter_mut().enumerate() {
            *cost /= self.ranges[g].len().max(1) as f32;
            if rematerialized.contains_key(&g) {
                *cost *= 0.3;
            }
        }
    }

    fn befriend(&mut self, a: V, b: V, w: f32) {
        let (a, b) = (self.groups.of(a), self.groups.of(b));
        if a != b {
            self.partners[a].push((b, w));
            self.partners[b].push((a, w));
        }
    }

    fn blocked(&self, reg: usize, g: Group) -> bool {
        let fixed = &self.fixed[reg];
        self.ranges[g].0.iter().any(|&(start, end)| {
            let from = fixed.partition_point(|((_, e), _)| *e <= start);
            fixed[from..].iter().take_while(|((s, _), _)| *s < end).any(|(_, but)| *but != Some(g))
        })
    }

    /// Assigns registers. Returns the groups to spill.
    fn run(&mut self) -> BTreeSet<Group> {
        let mut order: Vec<Group> =
            (0..self.ranges.len()).filter(|g| !self.ranges[*g].0.is_empty()).collect();
        order.sort_unstable_by_key(|g| (self.ranges[*g].start(), *g));
        let mut holders: [Vec<Group>; 10] = Default::default();
        let mut spilled = BTreeSet::new();
        for g in order {
            let start = self.ranges[g].start();
            for h in &mut holders {
                h.retain(|o| self.ranges[*o].end() > start);
            }
            let mut best: Option<(f32, u8)> = None;
            let mut eviction: Option<(f32, u8)> = None;
            for reg in 0..10u8 {
                if self.blocked(reg as usize, g) {
                    continue;
                }
                let rivals =
                    holders[reg as usize].iter().filter(|o| self.ranges[**o].intersects(&self.ranges[g]));
                let mut price = 0.0;
                let mut free = true;
                for o in rivals {
                    free = false;
                    price += self.cost[*o];
                }
                if !free {
                    if eviction.is_none_or(|(p, _)| price < p) {
                        eviction = Some((price, reg));
                    }
                    continue;
                }
                // Saved registers cost nothing to save, but are kept for values that live across
                // calls.
                let mut score = self.preferences[g][reg as usize] - f32::from(reg >= 6) * 0.01;
                for (o, w) in &self.partners[g] {
                    if self.assigned[*o] == Some(reg) {
                        score += w;
                    } else if self.assigned[*o].is_none() {
                        score += self.preferences[*o][reg as usize].min(*w) * 0.5;
                    }
                }
                if best.is_none_or(|(s, _)| score > s) {
                    best = Some((score, reg));
                }
            }
            if let Some((_, reg)) = best {
                self.assigned[g] = Some(reg);
                holders[reg as usize].push(g);
            } else if let Some((_, reg)) =
                eviction.filter(|(price, _)| *price < self.cost[g] && price.is_finite())
            {
                let (out, stay): (Vec<Group>, Vec<Group>) = std::mem::take(&mut holders[reg as usize])
                    .into_iter()
                    .partition(|o| self.ranges[*o].intersects(&self.ranges[g]));
                for o in out {
                    self.assigned[o] = None;
                    spilled.insert(o);
                }
                holders[reg as usize] = stay;
                holders[reg as usize].push(g);
                self.assigned[g] = Some(reg);
            } else {
                spilled.insert(g);
            }
        }
        spilled
    }

    fn done(self, mut f: Func) -> Result<Allocated, CodegenError> {
        let reg = |v: V| self.assigned[self.groups.of(v)];
        let params = f.params.iter().map(|p| reg(*p)).collect();
        let (frame, depth) = frame::lay_out(&f)?;
        for (inst, _) in &mut f.insts {
            // A result that is never read still has a range, so every register is assigned by now.
            inst.uses_mut(|v| *v = V(u32::from(reg(*v).unwrap_or(0))));
            if let Some(d) = inst.def_mut() {
                *d = V(u32::from(reg(*d).unwrap_or(0)));
            }
        }
        Ok(Allocated { func: f, frame, depth, params })
    }
}

/// Groups that hold one constant at every assignment.
fn constants(f: &Func, groups: &Groups) -> BTreeMap<Group, Inst> {
    let mut out: BTreeMap<Group, Option<Inst>> = BTreeMap::new();
    for p in &f.params {
        out.insert(groups.of(*p), None);
    }
    for (inst, _) in &f.insts {
        let Some(d) = inst.def() else { continue };
        let mut template = inst.clone();
        if let Some(t) = template.def_mut() {
            *t = V(0);
        }
        let constant = matches!(inst, Inst::Const { .. } | Inst::SlotAddr { .. } | Inst::FuncAddr { .. });
        let group = groups.of(d);
        match out.get(&group) {
            None => {
                out.insert(group, constant.then_some(template));
            }
            Some(Some(known)) if *known == template => {}
            // A move within the group has no effect.
            Some(_) if matches!(inst, Inst::Mov { src, w32: false, .. } if groups.of(*src) == group) => {}
            Some(_) => {
                out.insert(group, None);
            }
        }
    }
    out.into_iter().filter_map(|(g, i)| Some((g, i?))).collect()
}

/// Rewrites `f` so that the spilled groups live in memory.
///
/// A register with a new bound is stored back on the branch where the bound holds. The verifier of
/// 6.1 does not transfer what it learns of a register to the memory from which the register was
/// loaded.
fn spill(f: &mut Func, groups: &Groups, spilled: &BTreeSet<Group>, tiny: &mut BTreeSet<V>) {
    let constants = constants(f, groups);
    let mut slots: BTreeMap<Group, StackSlot> = BTreeMap::new();
    for g in spilled {
        if !constants.contains_key(g) {
            f.slots.push(8);
            slots.insert(*g, StackSlot(f.slots.len() as u32 - 1));
        }
    }
    let old = std::mem::take(&mut f.insts);
    let mut out = Vec::with_capacity(old.len() + 16);
    let mut regs = f.regs;
    let mut fresh = |tiny: &mut BTreeSet<V>| {
        regs += 1;
        tiny.insert(V(regs - 1));
        V(regs - 1)
    };
    let w = Size::B8;
    let mut stubs = Vec::new();
    for p in &mut f.params {
        if let Some(slot) = slots.get(&groups.of(*p)) {
            let v = fresh(tiny);
            out.push((Inst::SlotStore { w, slot: *slot, off: 0, src: Operand::V(v) }, None));
            *p = v;
        }
    }
    for (mut inst, span) in old {
        let defined = inst.def().map(|d| groups.of(d)).filter(|g| spilled.contains(g));
        if let Some(g) = defined
            && constants.contains_key(&g)
        {
            continue;
        }
        if let Inst::Mov { dst, src, w32: false } = inst {
            let (d, s) = (slots.get(&groups.of(dst)), slots.get(&groups.of(src)));
            match (d, s) {
                (Some(d), Some(s)) if d == s => continue,
                (Some(slot), None) if !spilled.contains(&groups.of(src)) => {
                    out.push((Inst::SlotStore { w, slot: *slot, off: 0, src: Operand::V(src) }, span));
                    continue;
                }
                (None, Some(slot)) => {
                    out.push((Inst::SlotLoad { w, dst, slot: *slot, off: 0 }, span));
                    continue;
                }
                _ => {}
            }
        }
        let mut loaded: BTreeMap<Group, V> = BTreeMap::new();
        inst.uses_mut(|v| {
            let g = groups.of(*v);
            if spilled.contains(&g) {
                *v = *loaded.entry(g).or_insert_with(|| {
                    let new = fresh(tiny);
                    let load = match (constants.get(&g), slots.get(&g)) {
                        (Some(template), _) => {
                            let mut load = template.clone();
                            if let Some(d) = load.def_mut() {
                                *d = new;
                            }
                            load
                        }
                        (None, Some(slot)) => Inst::SlotLoad { w, dst: new, slot: *slot, off: 0 },
                        (None, None) => Inst::Const { dst: new, value: Const::Int(0) },
                    };
                    out.push((load, span));
                    new
                });
            }
        });
        let store = match (defined.and_then(|g| slots.get(&g)), inst.def_mut()) {
            (Some(slot), Some(d)) => {
                *d = fresh(tiny);
                Some(Inst::SlotStore { w, slot: *slot, off: 0, src: Operand::V(*d) })
            }
            _ => None,
        };
        let bounded = match &inst {
            Inst::Br { b: Operand::Imm(_), cond, .. } => cond.bounds(),
            _ => (false, false),
        };
        let known = loaded.iter().filter_map(|(g, v)| Some((*slots.get(g)?, *v)));
        let back = |(slot, v)| (Inst::SlotStore { w, slot, off: 0, src: Operand::V(v) }, span);
        let back: Vec<_> = known.map(back).filter(|_| bounded != (false, false)).collect();
        if let Inst::Br { to, .. } = &mut inst
            && bounded.0
            && !back.is_empty()
        {
            let label = Label(f.labels);
            f.labels += 1;
            stubs.push((Inst::Bind { label }, span));
            stubs.extend(back.iter().cloned());
            stubs.push((Inst::Jmp { to: std::mem::replace(to, label) }, span));
        }
        out.push((inst, span));
        out.extend(store.map(|s| (s, span)));
        if bounded.1 {
            out.extend(back);
        }
    }
    out.extend(stubs);
    f.regs = regs;
    f.insts = out;
}
