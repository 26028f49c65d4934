//! Where the size that was asked for and the caller's rbp are, and what is null, at each instruction
//! of a function: from the entry on, as what holds on every way there.
//!
//! Calls are taken to keep what the ABI lets them keep, and stack slots to be written only by the
//! function itself unless it tells their address: so do compilers.

use std::collections::BTreeMap;

use iced_x86::InstructionInfoFactory;

use super::{
    branches,
    code::{Graph, before},
    effects::{self, Effect, Location, RAX, RBP, RDI, RDX, RESULT, RSI},
    stack::{self, Base, Stack},
};

/// How a function is told the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// By its first argument, as `malloc`.
    Size,
    /// By the product of its first two, as `calloc`.
    Factors,
}

/// A value of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// The size that is asked for. (Of a product that is too large the lower half: then the call
    /// fails.)
    Size,
    /// The first of two factors of the size.
    First,
    /// The second of them.
    Second,
    /// The rbp of the caller.
    Rbp,
    /// Null.
    Null,
    /// What the call at an address has returned last.
    Made(u64),
}

/// So many places are followed: compilers' functions keep what counts here in a dozen at most, and
/// each instruction has a state of its own.
const MOST_PLACES: usize = 32;

/// The states of a function.
#[derive(Debug)]
pub(super) struct States {
    /// Before each instruction.
    pub(super) before: BTreeMap<u64, State>,
    /// From each instruction on to each that can follow.
    pub(super) along: BTreeMap<(u64, u64), State>,
}

/// What is where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// Where the stack is.
    pub(super) stack: Stack,
    held: BTreeMap<Location, Value>,
}

impl State {
    fn at_entry(arguments: Arguments) -> Self {
        let own = (Location::Register(RBP), Value::Rbp);
        let [first, second] = [RDI, RSI].map(Location::Register);
        let held = match arguments {
            Arguments::Size => BTreeMap::from([own, (first, Value::Size)]),
            Arguments::Factors => {
                BTreeMap::from([own, (first, Value::First), (second, Value::Second)])
            }
        };
        Self {
            stack: Stack {
                sp: 0,
                rbp: Base::Value,
            },
            held,
        }
    }

    /// The register that holds the size.
    pub(super) fn size(&self) -> Option<u8> {
        self.held.iter().find_map(|held| match held {
            (Location::Register(number), Value::Size) => Some(*number),
            _ => None,
        })
    }

    /// True if null is what is there.
    pub(super) fn is_null(&self, place: Location) -> bool {
        self.held.get(&place) == Some(&Value::Null)
    }

    /// The state where a register is found to be null, and with it all copies of what it holds.
    fn with_null(mut self, register: Location) -> Self {
        let made = self.held.get(&register).copied();
        if matches!(made, None | Some(Value::Made(_))) {
            for value in self.held.values_mut().filter(|value| Some(**value) == made) {
                *value = Value::Null;
            }
            self.held.insert(register, Value::Null);
        }
        self
    }

    /// Where the caller's rbp is.
    pub(super) fn rbp(&self) -> Option<Location> {
        let own = Location::Register(RBP);
        if self.held.get(&own) == Some(&Value::Rbp) {
            return Some(own);
        }
        self.held.iter().find_map(|held| match held {
            (Location::Slot(at), Value::Rbp) => Some(Location::Slot(*at)),
            _ => None,
        })
    }

    /// What holds here and there; `None` if the stack pointers differ.
    fn common(&self, other: &Self) -> Option<Self> {
        let agreed = |(location, value): (&Location, &Value)| {
            (other.held.get(location) == Some(value)).then_some((*location, *value))
        };
        (self.stack.sp == other.stack.sp).then(|| Self {
            stack: Stack {
                sp: self.stack.sp,
                rbp: self.stack.rbp.common(other.stack.rbp),
            },
            held: self.held.iter().filter_map(agreed).collect(),
        })
    }

    /// The state behind the instruction at an address.
    fn after(
        &self,
        address: u64,
        (effect, sp): (&Effect, i64),
        slots_are_own: bool,
    ) -> Option<Self> {
        let mut held = self.held.clone();
        match effect {
            Effect::Copy { from, to } => match held.get(from).copied() {
                Some(value) => drop(held.insert(*to, value)),
                None => drop(held.remove(to)),
            },
            Effect::Zero(to) => drop(held.insert(*to, Value::Null)),
            Effect::Multiply(by) => {
                let [low, high] = [RAX, RDX].map(Location::Register);
                let product = self.product(low, *by);
                held.remove(&high);
                match product {
                    Some(size) => drop(held.insert(low, size)),
                    None => drop(held.remove(&low)),
                }
            }
            Effect::Frame(_) => drop(held.remove(&Location::Register(RBP))),
            Effect::Call => {
                let made = Value::Made(address);
                held.retain(|location, value| match location {
                    Location::Register(number) if effects::is_lost_in_calls(*number) => false,
                    _ => *value != made,
                });
                held.insert(RESULT, made);
            }
            Effect::Overwrite(lost) => held.retain(|location, _| !lost.contains(location)),
            Effect::Lost => return None,
        }
        held.retain(|location, value| match location {
            // What lies below the stack pointer may be overwritten at any time.
            Location::Slot(at) if *at < sp => false,
            // Nobody writes to where the caller's registers are saved.
            Location::Slot(_) => slots_are_own || *value == Value::Rbp,
            Location::Register(_) => true,
        });
        if held.len() > MOST_PLACES {
            held.retain(|_, value| !matches!(value, Value::Null | Value::Made(_)));
        }
        let rbp = self.rbp_after(effect);
        let stack = Stack { sp, rbp };
        (held.len() <= MOST_PLACES).then_some(Self { stack, held })
    }

    /// What the product of two places is.
    fn product(&self, one: Location, other: Location) -> Option<Value> {
        let of = |place| self.held.get(place).copied();
        match (of(&one), of(&other)) {
            (Some(Value::First), Some(Value::Second))
            | (Some(Value::Second), Some(Value::First)) => Some(Value::Size),
            _ => None,
        }
    }

    fn rbp_after(&self, effect: &Effect) -> Base {
        const OWN: Location = Location::Register(RBP);
        match effect {
            Effect::Frame(at) => Base::Frame(*at),
            Effect::Copy { to: OWN, .. } | Effect::Zero(OWN) => Base::Value,
            // It may have been computed from a frame pointer.
            Effect::Overwrite(lost) if lost.contains(&OWN) && self.stack.rbp != Base::Value => {
                Base::Unknown
            }
            _ => self.stack.rbp,
        }
    }
}

/// The states of a function. `None` if the stack pointer cannot be followed.
pub(super) fn states(graph: &Graph, entry: u64, arguments: Arguments) -> Option<States> {
    let mut ways = Ways {
        graph,
        before: before(graph),
        slots_are_own: stack::slots_are_own(graph),
        factory: InstructionInfoFactory::new(),
    };
    let mut states = States {
        before: BTreeMap::from([(entry, State::at_entry(arguments))]),
        along: BTreeMap::new(),
    };
    let mut waiting = vec![entry];
    while let Some(address) = waiting.pop() {
        for (follower, state) in ways.from(address, states.before.get(&address)?)? {
            let merged = match states.before.get(&follower) {
                Some(known) => known.common(&state)?,
                None => state.clone(),
            };
            states.along.insert((address, follower), state);
            if states.before.get(&follower) != Some(&merged) {
                states.before.insert(follower, merged);
                waiting.push(follower);
            }
        }
    }
    Some(states)
}

/// The ways through a function.
struct Ways<'a> {
    graph: &'a Graph,
    before: BTreeMap<u64, Vec<u64>>,
    slots_are_own: bool,
    factory: InstructionInfoFactory,
}

impl Ways<'_> {
    /// The instructions that can follow one, each with the state on the way there.
    fn from(&mut self, address: u64, state: &State) -> Option<Vec<(u64, State)>> {
        let node = self.graph.get(&address)?;
        let (effect, sp) = effects::effect(node, state.stack, &mut self.factory);
        let after = state.after(address, (&effect, sp), self.slots_are_own)?;
        let null_if = branches::null_if(self.graph, &self.before, address, node);
        let way = |follower: &u64| match null_if {
            Some((register, when_null)) if when_null == *follower => {
                (*follower, after.clone().with_null(register))
            }
            _ => (*follower, after.clone()),
        };
        Some(node.followers.iter().map(way).collect())
    }
}
