//! Chooses among instructions of a function so that every call passes exactly one of them.

use std::collections::{BTreeMap, BTreeSet};

use super::code::{Graph, before};

/// Instructions that each way from the entry to a return passes once, as late as possible. On
/// ways through an instruction that `is_exempt`, none need be passed. Only what `is_candidate` is
/// chosen; `None` if there is no such choice.
///
/// The graph is cut in two: what comes behind the chosen ones, which only exempt ways leave, and
/// the rest. Whatever leads from the rest to behind is chosen, so all that follows it must lie
/// behind, but for what is exempt.
pub(super) fn cut(
    graph: &Graph,
    entry: u64,
    is_candidate: impl Fn(u64) -> bool,
    is_exempt: impl Fn(u64) -> bool,
) -> Option<BTreeSet<u64>> {
    let before = before(graph);
    let returns = graph
        .iter()
        .filter(|(address, node)| node.returns.is_some() && !is_exempt(**address));
    let followers = |address: &u64| {
        let all = graph.get(address).map(|node| &node.followers);
        all.into_iter()
            .flatten()
            .copied()
            .filter(|next| !is_exempt(*next))
    };
    let mut waiting: Vec<u64> = returns.map(|(address, _)| *address).collect();
    let mut behind = BTreeSet::new();
    while let Some(address) = waiting.pop() {
        if !behind.insert(address) {
            continue;
        }
        waiting.extend(followers(&address));
        for leading in before.get(&address).into_iter().flatten() {
            if is_exempt(*leading) {
                continue;
            }
            if is_candidate(*leading) {
                waiting.extend(followers(leading));
            } else {
                waiting.push(*leading);
            }
        }
    }
    if behind.contains(&entry) {
        return None;
    }
    let leads_behind = |address: &u64| {
        !behind.contains(address)
            && !is_exempt(*address)
            && followers(address).any(|next| behind.contains(&next))
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

    /// How many chosen instructions a way to a return passes: least and most, over all ways that
    /// repeat no instruction more than once and pass no exempt one.
    fn passed(
        graph: &Graph,
        (chosen, exempt): (&BTreeSet<u64>, &BTreeSet<u64>),
        at: u64,
        way: &mut Vec<u64>,
    ) -> (usize, usize) {
        if exempt.contains(&at) || way.iter().filter(|address| **address == at).count() > 1 {
            return (usize::MAX, 0);
        }
        let own = usize::from(chosen.contains(&at));
        let node = &graph[&at];
        if node.returns.is_some() {
            return (own, own);
        }
        way.push(at);
        let ways = node
            .followers
            .iter()
            .map(|next| passed(graph, (chosen, exempt), *next, way));
        let (least, most) = ways
            .collect::<Vec<_>>()
            .into_iter()
            .fold((usize::MAX, 0), |(a, b), (c, d)| (a.min(c), b.max(d)));
        way.pop();
        (least.saturating_add(own), most + own)
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

    /// A graph and two sets of its instructions: candidates, and exempt ones.
    fn graphs() -> impl Strategy<Value = (Graph, BTreeSet<u64>, BTreeSet<u64>)> {
        (3_usize..9).prop_flat_map(|size| {
            let last = size as u64;
            let followers = prop::collection::vec(prop::collection::btree_set(0..last, 0..3), size);
            let candidates = prop::collection::btree_set(1..last, 0..size);
            let exempt = prop::collection::btree_set(1..last, 0..3);
            (followers, candidates, exempt).prop_map(|(followers, candidates, exempt)| {
                let followers: Vec<Vec<u64>> = followers
                    .into_iter()
                    .map(|all| all.into_iter().collect())
                    .collect();
                (graph(&followers), candidates, exempt)
            })
        })
    }

    proptest! {
        #[test]
        fn each_way_passes_one_chosen_instruction((graph, candidates, exempt) in graphs()) {
            prop_assume!(all_return(&graph) && graph[&0].returns.is_none());
            let is_candidate = |address| candidates.contains(&address);
            let chosen = cut(&graph, 0, is_candidate, |address| exempt.contains(&address));
            if let Some(chosen) = chosen {
                prop_assert!(chosen.is_subset(&candidates));
                let (least, most) = passed(&graph, (&chosen, &exempt), 0, &mut Vec::new());
                // Neither where all ways are exempt.
                prop_assert!((least, most) == (1, 1) || (least, most) == (usize::MAX, 0));
            }
        }

        #[test]
        fn what_is_guarded_is_reached_only_past_a_guard((graph, candidates, _) in graphs()) {
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

    #[test]
    fn exempt_ways_need_nothing_and_no_choice_is_none() {
        let graph = graph(&[vec![1, 2], vec![3], vec![3], vec![]]);
        let only_one = |address| address == 1;
        assert_eq!(cut(&graph, 0, only_one, |_| false), None);
        let failing = |address| address == 2;
        assert_eq!(cut(&graph, 0, only_one, failing), Some(BTreeSet::from([1])));
    }

    #[test]
    fn a_failing_way_may_leave_a_chosen_instruction() {
        // 0 and 1 both lead on to 3, which fails.
        let graph = graph(&[vec![1, 3], vec![2, 3], vec![], vec![4], vec![]]);
        let failing = |address| address == 3 || address == 4;
        let chosen = cut(&graph, 0, |address| address == 1, failing);
        assert_eq!(chosen, Some(BTreeSet::from([1])));
    }
}
