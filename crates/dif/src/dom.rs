//! Which block dominates which.
//!
//! Blocks stand in topological order and D has no loops, so one forward pass finds every immediate dominator: all
//! predecessors of a block are known when it is reached. Entry and leave numbers of a walk over the dominator tree make
//! the question "does a dominate b" two comparisons.

use crate::ir::Function;

/// The dominator tree of a function whose edges all go forward.
#[derive(Debug)]
pub(crate) struct DomTree {
    reached: Vec<bool>,
    enter: Vec<u32>,
    leave: Vec<u32>,
}

impl DomTree {
    /// Edges that do not go forward are left out: the verifier has refused them before.
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
            // A block's dominator is final when it is reached: all its predecessors stand before it.
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
        let (enter, leave) = number(&idom, &reached);
        DomTree { reached, enter, leave }
    }

    /// True when every way to `b` passes `a`.
    pub(crate) fn dominates(&self, a: usize, b: usize) -> bool {
        self.enter[a] <= self.enter[b] && self.leave[b] <= self.leave[a]
    }

    /// True when the block can be reached at all.
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
    let (mut enter, mut leave) = (vec![0; n], vec![0; n]);
    let mut clock = 0;
    let mut stack = if n > 0 { vec![(0, false)] } else { vec![] };
    while let Some((b, leaving)) = stack.pop() {
        clock += 1;
        if leaving {
            leave[b] = clock;
            continue;
        }
        enter[b] = clock;
        stack.push((b, true));
        stack.extend(children[b].iter().map(|c| (*c, false)));
    }
    (enter, leave)
}
