//! The instructions of one function, as a graph: which follow which, where the function is left,
//! and what it calls on the way.

use std::collections::{BTreeMap, BTreeSet};

use super::Lead;

/// What is known of a call, or of a jump to another function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::loader) struct Reached {
    /// Into which function of interest it leads, if into any.
    pub(in crate::loader) lead: Option<Lead>,
    /// Whether it returns.
    pub(in crate::loader) returns: bool,
}

impl Reached {
    pub(in crate::loader) const RETURNS: Self = Self {
        lead: None,
        returns: true,
    };
    pub(in crate::loader) const ENDS: Self = Self {
        lead: None,
        returns: false,
    };

    pub(in crate::loader) const fn leading(lead: Lead) -> Self {
        Self {
            lead: Some(lead),
            returns: true,
        }
    }
}

/// What an instruction does besides going on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::loader) enum Effect {
    /// Nothing of interest.
    None,
    /// Returns.
    Ret,
    /// Calls.
    Call(Reached),
    /// Leaves the function by a jump.
    Tail(Reached),
}

/// An instruction.
#[derive(Clone, Debug)]
pub(in crate::loader) struct Step {
    /// What it does.
    pub(in crate::loader) effect: Effect,
    /// The instruction behind it, if that can be next.
    pub(in crate::loader) next: Option<u64>,
    /// Where it jumps to inside the function.
    pub(in crate::loader) jump: Option<u64>,
}

impl Step {
    pub(in crate::loader) const fn plain(next: u64) -> Self {
        Self {
            effect: Effect::None,
            next: Some(next),
            jump: None,
        }
    }

    pub(in crate::loader) const fn last(effect: Effect) -> Self {
        Self {
            effect,
            next: None,
            jump: None,
        }
    }

    /// The instructions that can follow.
    pub(in crate::loader) fn followers(&self) -> impl Iterator<Item = u64> {
        self.next.into_iter().chain(self.jump)
    }

    /// Where a call or a jump leads.
    pub(in crate::loader) fn lead(&self) -> Option<&Lead> {
        self.reached()?.lead.as_ref()
    }

    fn reached(&self) -> Option<&Reached> {
        match &self.effect {
            Effect::Call(reached) | Effect::Tail(reached) => Some(reached),
            Effect::None | Effect::Ret => None,
        }
    }

    /// True if the function returns to its caller here.
    fn is_exit(&self) -> bool {
        match &self.effect {
            Effect::Ret => true,
            Effect::Tail(reached) => reached.returns,
            Effect::None | Effect::Call(_) => false,
        }
    }
}

/// A function.
#[derive(Debug, Default)]
pub(in crate::loader) struct Flow {
    /// Its instructions by their addresses.
    pub(in crate::loader) steps: BTreeMap<u64, Step>,
    /// Whether it asks for the handler to be called when memory runs out: a call through a
    /// pointer is then a call of that.
    pub(in crate::loader) asks_for_handler: bool,
}

impl Flow {
    /// What a call of the function reaches. Calls after which it never returns, but throws or
    /// ends the program, are left out: what they allocate is not the result.
    pub(in crate::loader) fn reached(&self) -> Reached {
        let returning = self.returning();
        let leads = returning
            .iter()
            .filter_map(|address| self.steps.get(address)?.reached()?.lead.as_ref())
            .filter(|lead| !(self.asks_for_handler && **lead == Lead::Pointer));
        // What is known is better to tell than what is not.
        Reached {
            lead: leads.min().cloned(),
            returns: !returning.is_empty(),
        }
    }

    /// Addresses of the `ret` instructions.
    pub(in crate::loader) fn rets(&self) -> Vec<u64> {
        let rets = self
            .steps
            .iter()
            .filter(|(_, step)| step.effect == Effect::Ret);
        rets.map(|(address, _)| *address).collect()
    }

    /// True if the function returns by the `ret` of another one, too.
    pub(in crate::loader) fn returns_elsewhere(&self) -> bool {
        let tail = |step: &Step| matches!(&step.effect, Effect::Tail(reached) if reached.returns);
        self.steps.values().any(tail)
    }

    /// True if an instruction jumps back to one of the first `length` bytes behind `start`.
    pub(in crate::loader) fn repeats(&self, start: u64, length: u64) -> bool {
        let first = start..start.saturating_add(length);
        self.steps.iter().any(|(address, step)| {
            step.jump
                .is_some_and(|jump| jump <= *address && first.contains(&jump))
        })
    }

    /// Addresses of the instructions from which a return to the caller can be reached.
    fn returning(&self) -> BTreeSet<u64> {
        let mut before: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (address, step) in &self.steps {
            for follower in step.followers() {
                before.entry(follower).or_default().push(*address);
            }
        }
        let exits = self.steps.iter().filter(|(_, step)| step.is_exit());
        let mut waiting: Vec<u64> = exits.map(|(address, _)| *address).collect();
        let mut returning = BTreeSet::new();
        while let Some(address) = waiting.pop() {
            if returning.insert(address) {
                waiting.extend(before.get(&address).into_iter().flatten());
            }
        }
        returning
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(steps: impl IntoIterator<Item = (u64, Step)>) -> Flow {
        Flow {
            steps: steps.into_iter().collect(),
            asks_for_handler: false,
        }
    }

    fn call(lead: Lead, next: Option<u64>) -> Step {
        Step {
            effect: Effect::Call(Reached::leading(lead)),
            next,
            jump: None,
        }
    }

    fn branch(next: u64, jump: u64) -> Step {
        Step {
            effect: Effect::None,
            next: Some(next),
            jump: Some(jump),
        }
    }

    #[test]
    fn what_is_called_before_a_throw_is_not_the_result() {
        let throws = Step::last(Effect::Call(Reached::ENDS));
        let steps = [
            (1, branch(2, 3)),
            (2, Step::last(Effect::Ret)),
            (3, call(Lead::Function("malloc"), Some(4))),
            (4, throws),
        ];
        assert_eq!(flow(steps).reached(), Reached::RETURNS);
    }

    #[test]
    fn a_function_without_exit_does_not_return() {
        let steps = [(1, call(Lead::Pointer, Some(2))), (2, branch(1, 1))];
        assert_eq!(flow(steps).reached(), Reached::ENDS);
    }

    #[test]
    fn known_leads_come_first_and_handlers_are_none() {
        let steps = [
            (1, call(Lead::Pointer, Some(2))),
            (2, call(Lead::Function("malloc"), Some(3))),
            (3, Step::last(Effect::Ret)),
        ];
        assert_eq!(flow(steps).reached().lead, Some(Lead::Function("malloc")));
        let steps = [
            (1, call(Lead::Pointer, Some(2))),
            (2, Step::last(Effect::Ret)),
        ];
        let mut asking = flow(steps);
        assert_eq!(asking.reached().lead, Some(Lead::Pointer));
        asking.asks_for_handler = true;
        assert_eq!(asking.reached(), Reached::RETURNS);
    }

    #[test]
    fn only_jumps_back_repeat_the_start() {
        let steps = [
            (1, branch(3, 5)),
            (3, branch(5, 4)),
            (5, Step::last(Effect::Ret)),
        ];
        assert!(!flow(steps).repeats(1, 7));
        let steps = [
            (1, branch(3, 5)),
            (3, branch(5, 1)),
            (5, Step::last(Effect::Ret)),
        ];
        assert!(flow(steps).repeats(1, 7));
    }
}
