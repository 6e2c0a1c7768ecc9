//! The dominator tree of a function.
//!
//! Blocks are in topological order and D has no loops. So one forward pass finds every immediate
//! dominator: all predecessors of a block are processed before the block. A walk over the dominator
//! tree numbers entries and exits. With these numbers, the query "does a dominate b" is two
//! comparisons.

use crate::ir::Function;

/// The dominator tree of a function whose edges all go forward.
#[derive(Debug)]
pub(crate) struct DomTree {
    reached: Vec<bool>,
    enter: Vec<u32>,
    exit: Vec<u32>,
}

impl DomTree {
    /// Edges that do not go forward are ignored. The verifier has already rejected them.
    pub(crate) fn new(function: &Function) -> DomTree {
        let n = function.blocks.len();
        let mut idom: Vec<usize> = (0..n).collect();
        let mut depth = vec![0u32; n];
        let mut reached = vec![false; n];
        if n > 0 {
            reached[0] = true;
        }
        for (from, block) in function.blocks.iter().enumerate() {
            if !reached[from] {
                continue;
            }
            // The dominator of this block is final: all predecessors come before the block.
            depth[from] = if from == 0 { 0 } else { depth[idom[from]] + 1 };
            block.term.for_each_edge(|to, _| {
                let to = to.0 as usize;
                if to <= from || to >= n {
                    return;
                }
                idom[to] = if reached[to] { common(&idom, &depth, idom[to], from) } else { from };
                reached[to] = true;
            });
        }
        let (enter, exit) = number(&idom, &reached);
        DomTree { reached, enter, exit }
    }

    /// True when every path to `b` passes through `a`.
    pub(crate) fn dominates(&self, a: usize, b: usize) -> bool {
        self.enter[a] <= self.enter[b] && self.exit[b] <= self.exit[a]
    }

    /// True when the block is reachable.
    pub(crate) fn is_reached(&self, block: usize) -> bool {
        self.reached[block]
    }
}

fn common(idom: &[usize], depth: &[u32], mut a: usize, mut b: usize) -> usize {
    while a != b {
        if depth[a] >= depth[b] {
            a = idom[a];
        } else {
            b = idom[b];
        }
    }
    a
}

fn number(idom: &[usize], reached: &[bool]) -> (Vec<u32>, Vec<u32>) {
    let n = idom.len();
    let mut children = vec![Vec::new(); n];
    for b in 1..n {
        if reached[b] {
            children[idom[b]].push(b);
        }
    }
    let (mut enter, mut exit) = (vec![0; n], vec![0; n]);
    let mut clock = 0;
    let mut stack = if n > 0 { vec![(0, false)] } else { vec![] };
    while let Some((b, exiting)) = stack.pop() {
        clock += 1;
        if exiting {
            exit[b] = clock;
            continue;
        }
        enter[b] = clock;
        stack.push((b, true));
        stack.extend(children[b].iter().map(|c| (*c, false)));
    }
    (enter, exit)
}
