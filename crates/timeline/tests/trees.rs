//! Random trees of calls: each slice is where its call was.

use std::collections::BTreeMap;

use events::Calls;
use testing::rng::Rng;

use crate::read::Trace;
use crate::{Fed, probe};

/// A call: thread, function, depth, begin, end.
type Call = (u64, String, usize, u64, u64);

/// The slices of a trace as calls. Their times do not go back, and they lie in those around them.
fn calls(trace: &Trace) -> Vec<Call> {
    let mut around: BTreeMap<(u64, usize), (u64, u64)> = BTreeMap::new();
    let mut all = Vec::new();
    for slice in trace.slices() {
        let (begin, end) = (slice.begin, slice.end);
        assert!(begin <= end, "{slice:?}");
        if let Some(depth) = slice.depth.checked_sub(1) {
            let (first, last) = around[&(slice.track, depth)];
            assert!(first <= begin && end <= last, "{slice:?} is not within {first} and {last}");
        }
        // One behind another at this depth.
        let before = around.insert((slice.track, slice.depth), (begin, end));
        assert!(before.is_none_or(|(_, last)| last <= begin), "{slice:?}");
        let tid = trace.tracks[&slice.track].tid.unwrap();
        all.push((tid, slice.name, slice.depth, begin, end));
    }
    all.sort();
    all
}

#[test]
fn each_call_of_a_random_tree_is_a_slice_with_its_depth_and_its_times() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let function = |n: u64, name: &str| probe(&format!("pid7:a.out:f{n}:{name}"), Calls::None);
        let mut fed = Fed::new();
        let mut stacks: Vec<Vec<(u64, u64)>> = vec![Vec::new(); 4];
        let mut expected: Vec<Call> = Vec::new();
        let mut time = 0;
        let records = 400;
        for n in 0.. {
            let thread = rng.below(4);
            let tid = 7 + thread as u32;
            let stack = &mut stacks[thread];
            time += 1 + rng.below(50) as u64;
            if n < records && (stack.is_empty() || stack.len() < 12 && rng.below(2) == 0) {
                // Recursions are some of them.
                let of = rng.below(6) as u64;
                stack.push((of, time));
                fed.fire(time, (7, tid), &function(of, "entry"), vec![]);
            } else if let Some((of, begin)) = stack.pop() {
                fed.fire(time, (7, tid), &function(of, "return"), vec![]);
                expected.push((tid.into(), format!("a.out`f{of}"), stack.len(), begin, time));
            } else if stacks.iter().all(Vec::is_empty) {
                break;
            }
        }
        expected.sort();
        assert!(expected.len() > 100);
        assert_eq!(calls(&fed.end()), expected, "seed {seed}");
        assert_eq!(events::Sink::losses(&fed.0), Vec::<String>::new());
    }
}

#[test]
fn calls_that_do_not_return_end_with_the_call_around_them() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let function = |n: u64, name: &str| probe(&format!("pid7:a.out:f{n}:{name}"), Calls::None);
        let mut fed = Fed::new();
        let mut stack: Vec<(u64, u64)> = Vec::new();
        let mut expected: Vec<Call> = Vec::new();
        let (mut time, mut lost) = (0, 0);
        for n in 0..300u64 {
            time += 1 + rng.below(50) as u64;
            if stack.len() < 2 || stack.len() < 12 && rng.below(2) == 0 {
                // All are different.
                stack.push((n, time));
                fed.fire(time, (7, 7), &function(n, "entry"), vec![]);
                continue;
            }
            // It returns at once from some: longjmp(), or records that were dropped.
            let depth = stack.len() - 1 - rng.below(3).min(stack.len() - 1);
            fed.fire(time, (7, 7), &function(stack[depth].0, "return"), vec![]);
            lost += stack.len() - depth - 1;
            for (depth, (of, begin)) in stack.drain(depth..).enumerate().map(|(n, call)| (depth + n, call)) {
                expected.push((7, format!("a.out`f{of}"), depth, begin, time));
            }
        }
        lost += stack.len();
        let left = stack
            .drain(..)
            .enumerate()
            .map(|(depth, (of, begin))| (7, format!("a.out`f{of}"), depth, begin, time));
        expected.extend(left);
        expected.sort();
        assert_eq!(calls(&fed.end()), expected, "seed {seed}");
        assert_eq!(events::Sink::losses(&fed.0), [format!("{lost} calls without a return")]);
    }
}
