//! Chooses among instructions of a function so that every call passes exactly one of them.

use std::collections::{BTreeMap, BTreeSet};

use super::code::{Graph, before};

/// What is to be known of a way from one instruction to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It can be seen at the first one.
    Seen,
    /// It cannot be seen there.
    Unseen,
    /// It need not be seen.
    Exempt,
}

/// Instructions of which each way from the entry to a return passes one at which it is seen, once
/// and as late as possible, unless part of it is exempt. `None` if there is no such choice.
///
/// The graph is cut in two: what comes behind the chosen ones, which only exempt ways leave, and
/// the rest. Whatever leads from the rest to behind is chosen and seen there, so what else can be
/// seen there must lie behind, too; and what cannot, must not.
pub(super) fn cut(
    graph: &Graph,
    entry: u64,
    way: impl Fn(u64, u64) -> Way,
    fails: impl Fn(u64) -> bool,
) -> Option<BTreeSet<u64>> {
    let before = before(graph);
    let followers = |from: u64| {
        let all = graph.get(&from).map(|node| &node.followers);
        let ways = all.into_iter().flatten().map(|to| (*to, way(from, *to)));
        let ways = ways.filter(|(_, way)| *way != Way::Exempt);
        ways.collect::<Vec<_>>().into_iter()
    };
    let returns = graph
        .iter()
        .filter(|(address, node)| node.returns.is_some() && !fails(**address));
    let mut waiting: Vec<u64> = returns.map(|(address, _)| *address).collect();
    let mut behind = BTreeSet::new();
    while let Some(address) = waiting.pop() {
        if !behind.insert(address) {
            continue;
        }
        waiting.extend(followers(address).map(|(to, _)| to));
        for leading in before.get(&address).into_iter().flatten() {
            match way(*leading, address) {
                Way::Exempt => {}
                Way::Unseen => waiting.push(*leading),
                Way::Seen => {
                    let others = followers(*leading).filter(|(_, way)| *way == Way::Seen);
                    waiting.extend(others.map(|(to, _)| to));
                }
            }
        }
    }
    if behind.contains(&entry) {
        return None;
    }
    let leads_behind = |address: &u64| {
        !behind.contains(address) && followers(*address).any(|(to, _)| behind.contains(&to))
    };
    Some(graph.keys().copied().filter(leads_behind).collect())
}

/// Instructions of which each way from the entry to one of `ends` passes at least one, as late as
/// possible. `None` if there is no such choice among what `is_candidate`.
pub(super) fn guard(
    graph: &Graph,
    entry: u64,
    ends: &BTreeSet<u64>,
    is_candidate: impl Fn(u64) -> bool,
) -> Option<BTreeSet<u64>> {
    let before: BTreeMap<u64, Vec<u64>> = before(graph);
    let mut chosen = BTreeSet::new();
    let mut passed = BTreeSet::new();
    let mut waiting: Vec<u64> = ends.iter().copied().collect();
    while let Some(address) = waiting.pop() {
        if address == entry {
            return None;
        }
        for leading in before.get(&address).into_iter().flatten() {
            if is_candidate(*leading) {
                chosen.insert(*leading);
            } else if passed.insert(*leading) {
                waiting.push(*leading);
            }
        }
    }
    Some(chosen)
}

#[cfg(test)]
mod tests {
    use iced_x86::Instruction;
    use proptest::prelude::*;

    use super::super::{code::Node, effects::RESULT};
    use super::*;

    /// Instructions 0 to n, each with up to two followers; those without any return.
    fn graph(followers: &[Vec<u64>]) -> Graph {
        let node = |(address, followers): (usize, &Vec<u64>)| {
            let node = Node {
                instruction: Instruction::default(),
                followers: followers.clone(),
                calls: false,
                returns: followers.is_empty().then_some(RESULT),
            };
            (address as u64, node)
        };
        followers.iter().enumerate().map(node).collect()
    }

    /// Instructions at which all ways on are seen, those at which only the first one is, and those
    /// that are exempt.
    #[derive(Clone, Debug)]
    struct Kinds {
        seen: BTreeSet<u64>,
        half: BTreeSet<u64>,
        exempt: BTreeSet<u64>,
    }

    impl Kinds {
        fn way(&self, graph: &Graph, from: u64, to: u64) -> Way {
            let is_first = graph[&from].followers.first() == Some(&to);
            if self.exempt.contains(&from) || self.exempt.contains(&to) {
                Way::Exempt
            } else if self.seen.contains(&from) || (is_first && self.half.contains(&from)) {
                Way::Seen
            } else {
                Way::Unseen
            }
        }
    }

    /// At how many chosen instructions a way to a return is seen: least and most, over all ways
    /// that repeat no instruction more than once and have no exempt part.
    fn passed(
        graph: &Graph,
        kinds: &Kinds,
        chosen: &BTreeSet<u64>,
        at: u64,
        way: &mut Vec<u64>,
    ) -> (usize, usize) {
        let node = &graph[&at];
        if way.iter().filter(|address| **address == at).count() > 1 {
            return (usize::MAX, 0);
        }
        if node.returns.is_some() {
            return (0, 0);
        }
        way.push(at);
        let mut range = (usize::MAX, 0);
        for next in &node.followers {
            let seen = match kinds.way(graph, at, *next) {
                Way::Exempt => continue,
                Way::Seen => usize::from(chosen.contains(&at)),
                Way::Unseen => 0,
            };
            let (least, most) = passed(graph, kinds, chosen, *next, way);
            if least != usize::MAX {
                range = (range.0.min(least + seen), range.1.max(most + seen));
            }
        }
        way.pop();
        range
    }

    /// True if each instruction can lead to a return, as those of real graphs can.
    fn all_return(graph: &Graph) -> bool {
        let before = before(graph);
        let mut waiting: Vec<u64> = graph
            .iter()
            .filter(|(_, node)| node.returns.is_some())
            .map(|(address, _)| *address)
            .collect();
        let mut seen = BTreeSet::new();
        while let Some(address) = waiting.pop() {
            if seen.insert(address) {
                waiting.extend(before.get(&address).into_iter().flatten());
            }
        }
        seen.len() == graph.len()
    }

    fn graphs() -> impl Strategy<Value = (Graph, Kinds)> {
        (3_usize..9).prop_flat_map(|size| {
            let last = size as u64;
            let followers = prop::collection::vec(prop::collection::btree_set(0..last, 0..3), size);
            let some = |most| prop::collection::btree_set(1..last, 0..most);
            let kinds = (some(size), some(size), some(3)).prop_map(|(seen, half, exempt)| Kinds {
                seen,
                half,
                exempt,
            });
            (followers, kinds).prop_map(|(followers, kinds)| {
                let followers: Vec<Vec<u64>> = followers
                    .into_iter()
                    .map(|all| all.into_iter().collect())
                    .collect();
                (graph(&followers), kinds)
            })
        })
    }

    proptest! {
        #[test]
        fn each_way_is_seen_at_one_chosen_instruction((graph, kinds) in graphs()) {
            prop_assume!(all_return(&graph) && graph[&0].returns.is_none());
            let way = |from, to| kinds.way(&graph, from, to);
            let chosen = cut(&graph, 0, way, |address| kinds.exempt.contains(&address));
            if let Some(chosen) = chosen {
                prop_assert!(chosen.iter().all(|at| kinds.seen.contains(at) || kinds.half.contains(at)));
                let (least, most) = passed(&graph, &kinds, &chosen, 0, &mut Vec::new());
                // Neither where all ways are exempt.
                prop_assert!((least, most) == (1, 1) || (least, most) == (usize::MAX, 0));
            }
        }

        #[test]
        fn what_is_guarded_is_reached_only_past_a_guard((graph, kinds) in graphs()) {
            let candidates = kinds.seen;
            let ends = BTreeSet::from([graph.len() as u64 - 1]);
            let Some(chosen) = guard(&graph, 0, &ends, |address| candidates.contains(&address)) else {
                return Ok(());
            };
            // Without the guards, the end is out of reach.
            let mut waiting = vec![0];
            let mut seen = BTreeSet::new();
            while let Some(address) = waiting.pop() {
                if seen.insert(address) && !chosen.contains(&address) {
                    waiting.extend(&graph[&address].followers);
                }
            }
            prop_assert!(!ends.is_subset(&seen) || chosen.is_superset(&ends));
        }
    }

    /// What is chosen in a graph from 0 on.
    fn chosen(followers: &[Vec<u64>], [seen, half, exempt]: [&[u64]; 3]) -> Option<Vec<u64>> {
        let set = |all: &[u64]| all.iter().copied().collect();
        let graph = graph(followers);
        let kinds = Kinds {
            seen: set(seen),
            half: set(half),
            exempt: set(exempt),
        };
        let way = |from, to| kinds.way(&graph, from, to);
        let chosen = cut(&graph, 0, way, |address| kinds.exempt.contains(&address))?;
        Some(chosen.into_iter().collect())
    }

    #[test]
    fn exempt_ways_need_nothing_and_no_choice_is_none() {
        let graph = [vec![1, 2], vec![3], vec![3], vec![]];
        assert_eq!(chosen(&graph, [&[1], &[], &[]]), None);
        assert_eq!(chosen(&graph, [&[1], &[], &[2]]), Some(vec![1]));
    }

    #[test]
    fn a_failing_way_may_leave_a_chosen_instruction() {
        // 0 and 1 both lead on to 3, which fails.
        let graph = [vec![1, 3], vec![2, 3], vec![], vec![4], vec![]];
        assert_eq!(chosen(&graph, [&[1], &[], &[3, 4]]), Some(vec![1]));
    }

    #[test]
    fn an_instruction_may_see_one_of_its_ways_alone() {
        // The other one goes on to 3, and is seen there.
        let graph = [vec![1], vec![2, 3], vec![], vec![4], vec![]];
        assert_eq!(chosen(&graph, [&[3], &[1], &[]]), Some(vec![1, 3]));
        // What it does not see must not come behind it.
        let graph = [vec![1], vec![2, 3], vec![4], vec![2], vec![]];
        assert_eq!(chosen(&graph, [&[], &[1], &[]]), None);
        assert_eq!(chosen(&graph, [&[2], &[1], &[]]), Some(vec![2]));
    }
}
