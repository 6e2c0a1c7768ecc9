//! Liveness: the control flow of a MIR function, and the live ranges of its registers.
//!
//! Positions: instruction `i` reads at `4i`, destroys the caller-saved registers (when it calls) at
//! `4i + 1` and writes at `4i + 2`. A live range is half open. The range of a register whose last
//! use is an operand ends at `4i + 1`. Such a register may share a machine register with the
//! result, and the arguments of a call may be in registers that the call destroys.

use crate::mir::{Func, Inst, Operand, V};

/// A half-open range of positions.
pub(crate) type Range = (u32, u32);

/// Sorted, disjoint ranges.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges(pub(crate) Vec<Range>);

impl Ranges {
    /// True when both contain some position.
    pub(crate) fn intersects(&self, other: &Ranges) -> bool {
        let (mut i, mut j) = (0, 0);
        while let (Some(a), Some(b)) = (self.0.get(i), other.0.get(j)) {
            if a.0 < b.1 && b.0 < a.1 {
                return true;
            }
            if a.1 <= b.1 { i += 1 } else { j += 1 }
        }
        false
    }

    /// Adds ranges in any order.
    pub(crate) fn merge(&mut self, more: &Ranges) {
        self.0.extend_from_slice(&more.0);
        self.0.sort_unstable();
        let mut out: Vec<Range> = Vec::with_capacity(self.0.len());
        for r in self.0.drain(..) {
            match out.last_mut() {
                Some(last) if last.1 >= r.0 => last.1 = last.1.max(r.1),
                _ => out.push(r),
            }
        }
        self.0 = out;
    }

    pub(crate) fn start(&self) -> u32 {
        self.0.first().map_or(0, |r| r.0)
    }

    pub(crate) fn end(&self) -> u32 {
        self.0.last().map_or(0, |r| r.1)
    }

    pub(crate) fn len(&self) -> u32 {
        self.0.iter().map(|r| r.1 - r.0).sum()
    }
}

/// A basic block: instructions `start..end`.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Blocks that may follow this one.
    pub(crate) next: Vec<usize>,
}

/// The blocks of a function in layout order.
pub(crate) fn blocks(f: &Func) -> Vec<Node> {
    let n = f.insts.len();
    let mut leader = vec![false; n + 1];
    leader[0] = true;
    let mut at_label = vec![usize::MAX; f.labels as usize];
    for (i, (inst, _)) in f.insts.iter().enumerate() {
        match inst {
            Inst::Bind { label } => {
                leader[i] = true;
                at_label[label.0 as usize] = i;
            }
            Inst::Br { .. } | Inst::Jmp { .. } | Inst::Exit { .. } => leader[i + 1] = true,
            _ => {}
        }
    }
    let mut block_of = vec![0; n + 1];
    let mut nodes: Vec<Node> = Vec::new();
    for i in 0..n {
        if leader[i] {
            nodes.push(Node { start: i, end: i, next: Vec::new() });
        }
        block_of[i] = nodes.len() - 1;
        if let Some(node) = nodes.last_mut() {
            node.end = i + 1;
        }
    }
    let target = |l: &crate::mir::Label| at_label.get(l.0 as usize).filter(|i| **i < n).map(|i| block_of[*i]);
    for b in 0..nodes.len() {
        let (last, through) = match &f.insts[nodes[b].end - 1].0 {
            Inst::Br { to, .. } => (target(to), true),
            Inst::Jmp { to } => (target(to), false),
            Inst::Exit { .. } => (None, false),
            _ => (None, true),
        };
        nodes[b].next.extend(last);
        if through && b + 1 < nodes.len() {
            nodes[b].next.push(b + 1);
        }
    }
    nodes
}

/// The live ranges of every register, indexed by [`V`].
pub(crate) struct Liveness {
    pub(crate) ranges: Vec<Ranges>,
    /// Estimated number of executions of each instruction: at least 1, and 8 inside a loop.
    pub(crate) weight: Vec<f32>,
}

/// Bit set of registers.
pub(crate) type Set = Vec<u64>;

pub(crate) fn has(s: &Set, v: V) -> bool {
    s[v.0 as usize / 64] >> (v.0 % 64) & 1 != 0
}

pub(crate) fn put(s: &mut Set, v: V, on: bool) {
    let bit = 1u64 << (v.0 % 64);
    if on { s[v.0 as usize / 64] |= bit } else { s[v.0 as usize / 64] &= !bit }
}

/// Computes live ranges, and removes pure instructions whose result is never read.
pub(crate) fn analyze(f: &mut Func) -> Liveness {
    loop {
        let nodes = blocks(f);
        let live_in = flow(f, &nodes);
        let mut dead = vec![false; f.insts.len()];
        let mut ranges = vec![Ranges::default(); f.regs as usize];
        for node in nodes.iter().rev() {
            let mut live: Set = vec![0; (f.regs as usize).div_ceil(64)];
            for n in &node.next {
                live.iter_mut().zip(&live_in[*n]).for_each(|(a, b)| *a |= b);
            }
            // `until[v]`: the end of the range that is open in this backward scan.
            let mut until: std::collections::BTreeMap<u32, u32> = std::collections::BTreeMap::new();
            let (first, last) = (4 * node.start as u32, 4 * node.end as u32);
            for v in members(&live) {
                until.insert(v.0, last);
            }
            for i in (node.start..node.end).rev() {
                let inst = &mut f.insts[i].0;
                let at = 4 * i as u32;
                if let Some(d) = inst.def() {
                    match until.remove(&d.0) {
                        Some(end) => ranges[d.0 as usize].0.push((at + 2, end)),
                        None if inst.is_pure() => {
                            dead[i] = true;
                            continue;
                        }
                        None => ranges[d.0 as usize].0.push((at + 2, at + 3)),
                    }
                }
                let late = late_operand(inst);
                inst.uses_mut(|v| {
                    let end = if late == Some(*v) { at + 3 } else { at + 1 };
                    let e = until.entry(v.0).or_insert(end);
                    *e = (*e).max(end);
                });
            }
            for (v, end) in until {
                ranges[v as usize].0.push((first, end));
            }
        }
        for r in &mut ranges {
            r.merge(&Ranges::default());
        }
        // Parameters are assigned before the first instruction.
        for p in &f.params {
            if let Some(r) = ranges[p.0 as usize].0.first_mut() {
                r.0 = 0;
            }
        }
        if !dead.contains(&true) {
            let weight = loop_weights(f);
            return Liveness { ranges, weight };
        }
        let mut i = 0;
        f.insts.retain(|_| {
            i += 1;
            !dead[i - 1]
        });
    }
}

/// The operand that is read after the result is written: in `dst = a; dst op= b`, that is `b`.
fn late_operand(inst: &Inst) -> Option<V> {
    match inst {
        Inst::Alu { op, a, b: Operand::V(b), .. } if a != b && !crate::mir::commutes(*op) => Some(*b),
        Inst::Atomic { dst: Some(_), base, .. } => Some(*base),
        _ => None,
    }
}

fn members(s: &Set) -> impl Iterator<Item = V> + '_ {
    s.iter().enumerate().flat_map(|(i, word)| {
        let mut rest = *word;
        std::iter::from_fn(move || {
            (rest != 0).then(|| {
                let bit = rest.trailing_zeros();
                rest &= rest - 1;
                V(i as u32 * 64 + bit)
            })
        })
    })
}

/// Live-in sets. One backward pass suffices unless there are loops.
fn flow(f: &mut Func, nodes: &[Node]) -> Vec<Set> {
    let words = (f.regs as usize).div_ceil(64);
    let mut live_in = vec![vec![0; words]; nodes.len()];
    loop {
        let mut changed = false;
        for (b, node) in nodes.iter().enumerate().rev() {
            let mut live: Set = vec![0; words];
            for n in &node.next {
                live.iter_mut().zip(&live_in[*n]).for_each(|(a, b)| *a |= b);
            }
            for (inst, _) in f.insts[node.start..node.end].iter_mut().rev() {
                if let Some(d) = inst.def() {
                    if inst.is_pure() && !has(&live, d) {
                        continue;
                    }
                    put(&mut live, d, false);
                }
                inst.uses_mut(|v| put(&mut live, *v, true));
            }
            if live_in[b] != live {
                live_in[b] = live;
                changed = true;
            }
        }
        if !changed || nodes.iter().enumerate().all(|(b, n)| n.next.iter().all(|t| *t > b)) {
            return live_in;
        }
    }
}

/// Execution weights: 8 for instructions that may run more than once. A backward jump alone is no
/// loop, since slow paths are placed behind the function and jump back. A loop is a strongly
/// connected component.
fn loop_weights(f: &Func) -> Vec<f32> {
    let nodes = blocks(f);
    let mut weight = vec![1.0; f.insts.len()];
    for part in components(&nodes) {
        if part.len() > 1 || part.iter().any(|b| nodes[*b].next.contains(b)) {
            for b in part {
                weight[nodes[b].start..nodes[b].end].fill(8.0);
            }
        }
    }
    weight
}

/// Strongly connected components (Tarjan's algorithm, without recursion).
fn components(nodes: &[Node]) -> Vec<Vec<usize>> {
    const NEW: usize = usize::MAX;
    let (mut index, mut low) = (vec![NEW; nodes.len()], vec![0; nodes.len()]);
    let mut open = vec![false; nodes.len()];
    let (mut path, mut out) = (Vec::new(), Vec::new());
    let mut count = 0;
    for root in 0..nodes.len() {
        if index[root] != NEW {
            continue;
        }
        let mut work = vec![(root, 0)];
        while let Some((b, edge)) = work.pop() {
            if edge == 0 {
                (index[b], low[b]) = (count, count);
                count += 1;
                path.push(b);
                open[b] = true;
            }
            match nodes[b].next.get(edge) {
                Some(next) => {
                    work.push((b, edge + 1));
                    if index[*next] == NEW {
                        work.push((*next, 0));
                    } else if open[*next] {
                        low[b] = low[b].min(index[*next]);
                    }
                }
                None => {
                    if let Some((parent, _)) = work.last() {
                        low[*parent] = low[*parent].min(low[b]);
                    }
                    if low[b] == index[b] {
                        let from = path.iter().rposition(|x| *x == b).unwrap_or(0);
                        let part = path.split_off(from);
                        part.iter().for_each(|x| open[*x] = false);
                        out.push(part);
                    }
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mir::{Builder, Jmp, Size};

    #[test]
    fn a_slow_path_that_jumps_back_does_not_count_as_a_loop() {
        let mut b = Builder::new("main", 1);
        let x = b.param(0);
        let (slow, back, again) = (b.label(), b.label(), b.label());
        b.br(Jmp::Eq, x, 0, slow);
        b.bind(back);
        b.store(Size::B8, x, 0, 1);
        b.out_of_line(|b| {
            b.bind(slow);
            b.store(Size::B8, x, 8, 1);
            b.jmp(back);
        });
        b.bind(again);
        b.store(Size::B8, x, 16, 1);
        b.br(Jmp::Ne, x, 0, again);
        b.exit(0);
        let (f, _) = b.finish();
        let weight = loop_weights(&f);
        let of = |wanted: i16| {
            f.insts
                .iter()
                .position(|(i, _)| matches!(i, Inst::Store { off, .. } if *off == wanted))
                .map(|i| weight[i])
        };
        assert_eq!((of(0), of(8), of(16)), (Some(1.0), Some(1.0), Some(8.0)));
    }
}
