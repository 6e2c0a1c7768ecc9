//! Elements of `self->` arrays and their threads: the lists of [`crate::owned`], and the stack of
//! free nodes that they share.
//!
//! Party 0 is a thread, party 1 an interrupt of it, and party 2 another thread. Each inserts and
//! deletes its own elements. Party 0 ends with interrupts disabled. So when all its interrupts are
//! over, its program walks the lists of both levels. The map is atomic here (`assoc` models it) and
//! refuses inserts when it is full. The properties: a node has one owner at a time. At the end the
//! elements of the ended thread are gone, and every node is free or in the list of the thread that
//! still runs.

use super::explore::{Phase, Schedule, Step, World};

/// Number of nodes without node 0.
const NODES: usize = 3;
/// Elements of the map.
const ELEMENTS: usize = 2;
/// Tries to take or return a node; 64 in programs.
const TRIES: u8 = 3;
/// The party whose thread ends.
const ENDS: usize = 0;

/// Cases that can occur.
pub(super) mod seen {
    pub(in super::super) const LOST_RACE: u32 = 1;
    pub(in super::super) const REUSED: u32 = 2;
    pub(in super::super) const NO_NODE: u32 = 4;
    pub(in super::super) const NO_SPACE: u32 = 8;
    pub(in super::super) const MIDDLE: u32 = 16;
    pub(in super::super) const REAPED: u32 = 32;
}

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mutation {
    None,
    /// The head of the free nodes has no tag.
    NoTag,
    /// Both levels of a thread share a list.
    OneList,
    /// The thread's program runs before its last interrupt.
    EarlyEnd,
    /// A node is returned before it is unlinked.
    GivenEarly,
    /// Free nodes are taken by load and store.
    PlainTake,
}

/// An action of a party.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Act {
    Insert(u8),
    Delete(u8),
    End,
}

#[derive(Clone, Copy, Hash, Default)]
struct Node {
    next: u8,
    prev: u8,
    key: u8,
    /// Its owner; known to the explorer, not to programs.
    owner: Option<u8>,
    used: bool,
}

#[derive(Clone)]
pub(super) struct Lists {
    script: &'static [&'static [Act]],
    mutation: Mutation,
    state: State,
}

#[derive(Clone, Hash)]
struct State {
    free: (u8, u8),
    fresh: u8,
    nodes: [Node; NODES + 1],
    heads: [u8; 3],
    /// Key and node of each element.
    elements: Vec<(u8, u8)>,
    drops: u8,
    parties: [Party; 3],
}

#[derive(Clone, Hash, Default)]
struct Party {
    done: u8,
    at: At,
    word: (u8, u8),
    node: u8,
    next: u8,
    prev: u8,
    /// The list that is walked.
    list: u8,
    tries: u8,
}

#[derive(Clone, Copy, Hash, Default, PartialEq, Eq)]
enum At {
    #[default]
    Start,
    Free,
    Next,
    Take,
    Fresh,
    Key,
    Update,
    Head,
    LinkNext,
    LinkPrev,
    LinkAfter,
    LinkHead,
    Unlink,
    UnlinkNext,
    UnlinkPrev,
    GiveFree,
    GiveNext,
    Give,
    WalkHead,
    WalkDelete,
    WalkNext,
    WalkStore,
}

impl std::hash::Hash for Lists {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.state.hash(state);
    }
}

impl Lists {
    pub(super) fn new(script: &'static [&'static [Act]], mutation: Mutation) -> Lists {
        let state = State {
            free: (0, 0),
            fresh: 0,
            nodes: Default::default(),
            heads: [0; 3],
            elements: Vec::new(),
            drops: 0,
            parties: Default::default(),
        };
        Lists { script, mutation, state }
    }

    fn act(&self, party: usize) -> Option<Act> {
        self.script.get(party)?.get(usize::from(self.state.parties[party].done)).copied()
    }
}

impl State {
    fn taken(&mut self, party: usize, node: u8) -> Result<u32, String> {
        let n = &mut self.nodes[usize::from(node)];
        if let Some(other) = n.owner.replace(party as u8) {
            return Err(format!("{party} takes node {node}, which {other} has"));
        }
        let again = std::mem::replace(&mut n.used, true);
        self.parties[party].node = node;
        Ok(if again { seen::REUSED } else { 0 })
    }

    fn given(&mut self, party: usize) -> Result<(), String> {
        let node = self.parties[party].node;
        match self.nodes[usize::from(node)].owner.take() {
            Some(_) => Ok(()),
            None => Err(format!("{party} gives back node {node}, which is free")),
        }
    }
}

impl World for Lists {
    fn parties(&self) -> usize {
        self.script.len()
    }

    fn level(&self, party: usize) -> Option<u8> {
        // The other thread is on another CPU.
        [Some(0), Some(1), None][party]
    }

    fn phase(&self, party: usize) -> Phase {
        let Some(act) = self.act(party) else { return Phase::Finished };
        let interrupts_left = self.script.len() > 1 && self.act(1).is_some();
        match self.state.parties[party].at {
            At::Start if act == Act::End && interrupts_left && self.mutation != Mutation::EarlyEnd => {
                Phase::Waiting
            }
            At::Start => Phase::Idle,
            _ => Phase::Running,
        }
    }

    #[allow(clippy::too_many_lines)]
    fn step(&mut self, party: usize) -> Result<Step, String> {
        let Some(act) = self.act(party) else { return Err("nothing left to do".into()) };
        let mutation = self.mutation;
        let s = &mut self.state;
        let list = match (act, party) {
            (Act::End, _) => usize::from(s.parties[party].list),
            (_, 1) if mutation == Mutation::OneList => 0,
            (_, party) => party,
        };
        let n = usize::from(s.parties[party].node);
        let mut over = false;
        let step = match s.parties[party].at {
            At::Start => match act {
                Act::Insert(_) => {
                    s.parties[party].at = At::Free;
                    return self.step(party);
                }
                Act::Delete(key) => {
                    match s.elements.iter().position(|e| e.0 == key) {
                        Some(at) => {
                            let (_, node) = s.elements.remove(at);
                            let p = &mut s.parties[party];
                            (p.node, p.at) = (node, At::Unlink);
                            if mutation == Mutation::GivenEarly {
                                p.at = At::GiveFree;
                            }
                        }
                        None => over = true,
                    }
                    Step::of("delete the element")
                }
                Act::End => {
                    s.parties[party].at = At::WalkHead;
                    Step::of("leave the CPU for ever")
                }
            },
            At::Free => {
                let p = &mut s.parties[party];
                p.word = s.free;
                p.at = if p.word.1 == 0 { At::Fresh } else { At::Next };
                Step::of("load the free nodes")
            }
            At::Next => {
                let p = &mut s.parties[party];
                p.next = s.nodes[usize::from(p.word.1)].next;
                p.at = At::Take;
                Step::of("load the next free node")
            }
            At::Take => {
                let (word, next) = (s.parties[party].word, s.parties[party].next);
                if s.free != word && mutation != Mutation::PlainTake {
                    let p = &mut s.parties[party];
                    p.tries += 1;
                    p.at = if p.tries == TRIES { At::Fresh } else { At::Free };
                    return Ok(Step::seeing("lose the free nodes", seen::LOST_RACE));
                }
                s.free = (if mutation == Mutation::NoTag { 0 } else { word.0 + 1 }, next);
                let saw = s.taken(party, word.1)?;
                s.parties[party].at = At::Key;
                Step::seeing("take a node", saw)
            }
            At::Fresh => {
                if usize::from(s.fresh) == NODES {
                    s.drops += 1;
                    over = true;
                    Step::seeing("no node", seen::NO_NODE)
                } else {
                    s.fresh += 1;
                    let node = s.fresh;
                    s.taken(party, node)?;
                    s.parties[party].at = At::Key;
                    Step::of("take a fresh node")
                }
            }
            At::Key => {
                let Act::Insert(key) = act else { return Err("which key?".into()) };
                s.nodes[n].key = key;
                s.parties[party].at = At::Update;
                Step::of("write the key")
            }
            At::Update => {
                let Act::Insert(key) = act else { return Err("which key?".into()) };
                if s.elements.len() == ELEMENTS {
                    s.drops += 1;
                    s.parties[party].at = At::GiveFree;
                    Step::seeing("no space for the element", seen::NO_SPACE)
                } else {
                    s.elements.push((key, n as u8));
                    s.parties[party].at = At::Head;
                    Step::of("insert the element")
                }
            }
            At::Head => {
                let p = &mut s.parties[party];
                (p.next, p.at) = (s.heads[list], At::LinkNext);
                Step::of("load the head")
            }
            At::LinkNext => {
                s.nodes[n].next = s.parties[party].next;
                s.parties[party].at = At::LinkPrev;
                Step::of("link: store next")
            }
            At::LinkPrev => {
                s.nodes[n].prev = 0;
                let p = &mut s.parties[party];
                p.at = if p.next == 0 { At::LinkHead } else { At::LinkAfter };
                Step::of("link: store prev")
            }
            At::LinkAfter => {
                let after = usize::from(s.parties[party].next);
                s.nodes[after].prev = n as u8;
                s.parties[party].at = At::LinkHead;
                Step::of("link: store the next node's prev")
            }
            At::LinkHead => {
                s.heads[list] = n as u8;
                over = true;
                Step::of("link: store the head")
            }
            At::Unlink => {
                let p = &mut s.parties[party];
                (p.next, p.prev, p.at) = (s.nodes[n].next, s.nodes[n].prev, At::UnlinkNext);
                Step::of("load next and prev")
            }
            At::UnlinkNext => {
                let (prev, next) = (usize::from(s.parties[party].prev), s.parties[party].next);
                if prev == 0 {
                    s.heads[list] = next
                } else {
                    s.nodes[prev].next = next
                }
                let p = &mut s.parties[party];
                p.at = match next {
                    0 if mutation == Mutation::GivenEarly => {
                        over = true;
                        At::Start
                    }
                    0 => At::GiveFree,
                    _ => At::UnlinkPrev,
                };
                Step::seeing("unlink", if prev != 0 { seen::MIDDLE } else { 0 })
            }
            At::UnlinkPrev => {
                let after = usize::from(s.parties[party].next);
                s.nodes[after].prev = s.parties[party].prev;
                s.parties[party].at = At::GiveFree;
                over = mutation == Mutation::GivenEarly;
                Step::of("unlink: store the next node's prev")
            }
            At::GiveFree => {
                let p = &mut s.parties[party];
                (p.word, p.at) = (s.free, At::GiveNext);
                Step::of("load the free nodes")
            }
            At::GiveNext => {
                // Written before it is returned: no other party can access it yet.
                s.nodes[n].next = s.parties[party].word.1;
                s.parties[party].at = At::Give;
                Step::of("store the next free node")
            }
            At::Give => {
                let word = s.parties[party].word;
                if s.free != word {
                    let p = &mut s.parties[party];
                    p.tries += 1;
                    if p.tries > 4 * TRIES {
                        return Err("a node cannot be given back".into());
                    }
                    p.at = At::GiveFree;
                    return Ok(Step::seeing("lose the free nodes", seen::LOST_RACE));
                }
                s.given(party)?;
                s.free = (if mutation == Mutation::NoTag { 0 } else { word.0 + 1 }, n as u8);
                let p = &mut s.parties[party];
                (p.at, p.tries) = match act {
                    Act::End => (At::WalkHead, 0),
                    Act::Delete(_) if mutation == Mutation::GivenEarly => (At::Unlink, 0),
                    _ => {
                        over = true;
                        (At::Start, 0)
                    }
                };
                Step::of("give the node back")
            }
            At::WalkHead => {
                let p = &mut s.parties[party];
                p.node = s.heads[list];
                match (p.node, p.list) {
                    (0, 1) => over = true,
                    (0, _) => p.list += 1,
                    _ => p.at = At::WalkDelete,
                }
                Step::of("end: load the head")
            }
            At::WalkDelete => {
                let key = s.nodes[n].key;
                s.elements.retain(|e| e.0 != key);
                s.parties[party].at = At::WalkNext;
                Step::seeing("end: delete the element", seen::REAPED)
            }
            At::WalkNext => {
                let p = &mut s.parties[party];
                (p.next, p.at) = (s.nodes[n].next, At::WalkStore);
                Step::of("end: load next")
            }
            At::WalkStore => {
                s.heads[list] = s.parties[party].next;
                s.parties[party].at = At::GiveFree;
                Step::of("end: store the head")
            }
        };
        if over {
            let done = s.parties[party].done + 1;
            s.parties[party] = Party { done, ..Party::default() };
        }
        Ok(step)
    }

    fn end(&self) -> Result<u32, String> {
        let s = &self.state;
        let ended = self.script[ENDS].contains(&Act::End);
        let mut places = [0; NODES + 1];
        let mut walk = |mut at: u8, what: &str| {
            for _ in 0..=NODES {
                if at == 0 {
                    return Ok(());
                }
                places[usize::from(at)] += 1;
                at = s.nodes[usize::from(at)].next;
            }
            Err(format!("{what} has no end"))
        };
        walk(s.free.1, "the stack of free nodes")?;
        for head in s.heads {
            walk(head, "a list")?;
        }
        if let Some(lost) = (1..=usize::from(s.fresh)).find(|n| places[*n] != 1) {
            return Err(format!("node {lost} stands in {} places", places[lost]));
        }
        let others = self.script.get(2).map_or(&[][..], |script| script);
        let not_its = |key: u8| !others.contains(&Act::Insert(key));
        match s.elements.iter().find(|e| ended && not_its(e.0)) {
            Some((key, _)) => Err(format!("element {key} of a thread that has ended is there")),
            None => Ok(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::explore::{caught, holds};
    use super::*;
    use Act::{Delete, End, Insert};

    type Script = &'static [&'static [Act]];

    /// A thread and its interrupt insert elements, some are deleted; another thread takes and
    /// returns nodes.
    const LIFE: Script =
        &[&[Insert(1), Insert(2), Delete(1), End], &[Insert(3), Delete(3)], &[Insert(4), Delete(4)]];
    /// Elements of an interrupt exist at the end, too.
    const LEFT: Script = &[&[Insert(1), End], &[Insert(3)], &[Insert(4), Delete(4), Insert(5)]];
    /// Nodes are reused.
    const ROUND: Script = &[
        &[Insert(1), Delete(1), Insert(2), Delete(2), End],
        &[Insert(3), Delete(3)],
        &[Insert(4), Delete(4), Insert(5), Delete(5)],
    ];
    const ALL: [Script; 3] = [LIFE, LEFT, ROUND];

    fn breaks(mutation: Mutation, words: &str) {
        let found = ALL.iter().any(|script| {
            let world = Lists::new(script, mutation);
            match super::super::explore::explore(world, Schedule::Nested) {
                Ok(_) => false,
                Err(violation) => {
                    let right = violation.what.contains(words) && !violation.what.contains(" states");
                    assert!(right, "found something else:\n{violation}");
                    true
                }
            }
        });
        assert!(found, "{mutation:?}: nothing found");
    }

    #[test]
    fn elements_of_a_thread_are_deleted_when_it_ends() {
        let mut seen = 0;
        // An interrupt of the thread runs to its end before the thread continues. The other thread
        // continues at any time.
        for script in ALL {
            seen |= holds(Lists::new(script, Mutation::None), Schedule::Nested).seen;
        }
        let all =
            seen::LOST_RACE | seen::REUSED | seen::NO_NODE | seen::NO_SPACE | seen::MIDDLE | seen::REAPED;
        assert_eq!(seen, all);
    }

    #[test]
    fn lists_are_exact_without_nesting() {
        for script in [&LIFE[..2], LEFT] {
            holds(Lists::new(script, Mutation::None), Schedule::Preempted);
        }
    }

    #[test]
    fn free_nodes_without_a_tag_are_caught() {
        breaks(Mutation::NoTag, "node");
    }

    #[test]
    fn a_list_for_both_levels_is_caught() {
        caught(Lists::new(LIFE, Mutation::OneList), Schedule::Nested, "node");
    }

    #[test]
    fn ending_a_thread_before_its_last_interrupt_is_caught() {
        caught(
            Lists::new(LEFT, Mutation::EarlyEnd),
            Schedule::Nested,
            "element 3 of a thread that has ended",
        );
    }

    #[test]
    fn releasing_a_node_before_unlinking_it_is_caught() {
        breaks(Mutation::GivenEarly, "node");
    }

    #[test]
    fn taking_a_node_by_load_and_store_is_caught() {
        breaks(Mutation::PlainTake, "node");
    }
}
