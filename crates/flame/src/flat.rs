//! The tree in the order of drawing: each node, then what is below it, siblings by name.
//!
//! A picture has a bounded number of nodes. If there are more, the smallest are folded: what is too
//! small below a node becomes one node, which has their sum and, for the search, their names. So no
//! value is lost, whatever the number of stacks.

use crate::profile::{NO_FRAME, Profile, ROOT, Side};

/// Nodes of a picture before its smallest are folded.
pub(crate) const MOST_NODES: usize = 300_000;
/// Names of folded nodes.
const MOST_NAMES: usize = 200_000;

/// A row of [`Flat`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Frames between it and the root.
    pub(crate) depth: u32,
    pub(crate) what: What,
    /// The sum of its stacks.
    pub(crate) value: u64,
    /// Their sum in the profile that this one is compared with.
    pub(crate) before: u64,
}

/// What a row stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Everything.
    All,
    /// A frame by its number.
    Frame(u32),
    /// Frames that are too small: how many, and their numbers, each once.
    Folded(u64, Vec<u32>),
}

/// The tree in the order of drawing.
#[derive(Clone, Debug)]
pub(crate) struct Flat {
    pub(crate) rows: Vec<Row>,
    /// Frames that were folded and whose names the rows do not have.
    pub(crate) unnamed: u64,
}

/// The children of all nodes, in the order of drawing.
struct Children {
    /// All nodes but the root, by parent and rank.
    sorted: Vec<u32>,
    /// Where the children of a node begin in `sorted`; one more at the end.
    begins: Vec<u32>,
}

impl Children {
    fn of(profile: &Profile) -> Children {
        let frames = profile.frames();
        let mut order: Vec<u32> = (0..frames.len() as u32).collect();
        let name = |n: &u32| frames.get(*n as usize).map(|f| (&f.name, f.kind));
        order.sort_unstable_by(|a, b| name(a).cmp(&name(b)));
        let mut ranks = vec![0u32; frames.len()];
        for (rank, frame) in (0..).zip(&order) {
            if let Some(of) = ranks.get_mut(*frame as usize) {
                *of = rank;
            }
        }
        let nodes = profile.nodes();
        let rank = |frame: u32| ranks.get(frame as usize).copied().unwrap_or(u32::MAX);
        let mut keyed: Vec<(u32, u32, u32)> =
            (1..).zip(nodes.iter().skip(1)).map(|(at, n)| (n.parent, rank(n.frame), at)).collect();
        keyed.sort_unstable();
        let mut begins = vec![0u32; nodes.len() + 1];
        for (parent, ..) in &keyed {
            if let Some(n) = begins.get_mut(*parent as usize + 1) {
                *n += 1;
            }
        }
        let mut sum = 0;
        for n in &mut begins {
            sum += *n;
            *n = sum;
        }
        Children { sorted: keyed.into_iter().map(|(_, _, at)| at).collect(), begins }
    }

    fn of_node(&self, node: u32) -> &[u32] {
        let begin = |n: usize| self.begins.get(n).map_or(0, |b| *b as usize);
        self.sorted.get(begin(node as usize)..begin(node as usize + 1)).unwrap_or_default()
    }
}

impl Flat {
    /// The rows of a profile.
    pub(crate) fn of(profile: &Profile) -> Flat {
        Flat::bounded(profile, MOST_NODES, MOST_NAMES)
    }

    pub(crate) fn bounded(profile: &Profile, most: usize, names: usize) -> Flat {
        let (now, before) = (profile.totals(Side::Now), profile.totals(Side::Before));
        let children = Children::of(profile);
        let size = |node: u32| {
            let of = |totals: &[u64]| totals.get(node as usize).copied().unwrap_or(0);
            of(&now).max(of(&before))
        };
        // The size of the greatest node that is folded.
        let mut sizes: Vec<u64> = (1..profile.nodes().len() as u32).map(size).collect();
        let limit = match sizes.len() > most {
            true => *sizes.select_nth_unstable_by(most, |a, b| b.cmp(a)).1,
            false => 0,
        };
        let mut flat = Flat { rows: Vec::with_capacity(sizes.len().min(most) + 1), unnamed: 0 };
        let mut space = names;
        let mut waiting = vec![(ROOT, 0u32)];
        while let Some((node, depth)) = waiting.pop() {
            let value = |totals: &[u64]| totals.get(node as usize).copied().unwrap_or(0);
            let what = match profile.nodes().get(node as usize).map(|n| n.frame) {
                Some(frame) if frame != NO_FRAME => What::Frame(frame),
                _ => What::All,
            };
            flat.rows.push(Row { depth, what, value: value(&now), before: value(&before) });
            let all = children.of_node(node);
            let small: Vec<u32> = all.iter().copied().filter(|child| size(*child) <= limit).collect();
            if !small.is_empty() && limit > 0 {
                let sum = |totals: &[u64]| {
                    let each = small.iter().filter_map(|child| totals.get(*child as usize));
                    each.fold(0u64, |sum, value| sum.saturating_add(*value))
                };
                let row = Row { depth: depth + 1, what: What::All, value: sum(&now), before: sum(&before) };
                let what = flat.fold(profile, &children, small, &mut space);
                // What is folded comes first: the other children wait.
                flat.rows.push(Row { what, ..row });
            }
            let shown = all.iter().rev().filter(|child| size(**child) > limit);
            waiting.extend(shown.map(|child| (*child, depth + 1)));
        }
        flat
    }

    /// Nodes and what is below them: how many, and the names for which there is space.
    fn fold(&mut self, profile: &Profile, children: &Children, nodes: Vec<u32>, space: &mut usize) -> What {
        let (mut count, mut frames, mut waiting) = (0, Vec::new(), nodes);
        while let Some(node) = waiting.pop() {
            count += 1;
            frames.extend(profile.nodes().get(node as usize).map(|n| n.frame));
            waiting.extend_from_slice(children.of_node(node));
        }
        frames.sort_unstable();
        frames.dedup();
        let kept = frames.len().min(*space);
        self.unnamed += (frames.len() - kept) as u64;
        *space -= kept;
        frames.truncate(kept);
        What::Folded(count, frames)
    }

    /// The greatest depth.
    pub(crate) fn depth(&self) -> u32 {
        self.rows.iter().map(|row| row.depth).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Frame, Kind};

    fn profile(stacks: &[(&str, u64)]) -> Profile {
        let mut p = Profile::new("@", "@", "count");
        for (names, value) in stacks {
            let frames: Vec<Frame> =
                names.split(';').map(|n| Frame { kind: Kind::User, name: n.into() }).collect();
            p.add(&frames, *value);
        }
        p
    }

    fn shown(flat: &Flat, p: &Profile) -> Vec<String> {
        let name = |row: &Row| match &row.what {
            What::All => "all".into(),
            What::Frame(n) => p.frames()[*n as usize].name.to_string(),
            What::Folded(count, names) => format!("{count}:{}", names.len()),
        };
        flat.rows.iter().map(|row| format!("{} {} {}", row.depth, name(row), row.value)).collect()
    }

    #[test]
    fn siblings_are_in_the_order_of_their_names() {
        let p = profile(&[("b;z", 1), ("a", 2), ("b;c", 3)]);
        assert_eq!(shown(&Flat::of(&p), &p), ["0 all 6", "1 a 2", "1 b 4", "2 c 3", "2 z 1"]);
    }

    #[test]
    fn the_smallest_are_folded_and_their_values_and_names_kept() {
        let p = profile(&[("a;b", 50), ("a;c;d", 1), ("a;e", 2), ("f", 40)]);
        let flat = Flat::bounded(&p, 3, 100);
        assert_eq!(shown(&flat, &p), ["0 all 93", "1 a 53", "2 3:3 3", "2 b 50", "1 f 40"]);
        let flat = Flat::bounded(&p, 3, 1);
        assert_eq!((shown(&flat, &p)[2].as_str(), flat.unnamed), ("2 3:1 3", 2));
    }

    #[test]
    fn an_empty_profile_has_only_its_root() {
        let p = profile(&[]);
        assert_eq!(shown(&Flat::of(&p), &p), ["0 all 0"]);
    }
}
