//! Follows the code of an operator through the module that defines it.

use std::collections::HashMap;

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};
use object::ReadRef;

use super::{
    Lead,
    flow::{Effect, Flow, Reached, Step},
    image::{Image, Slot},
    names::Role,
};

/// Calls inside each other that are followed.
const MAX_DEPTH: usize = 12;
/// Instructions that are looked at for one operator.
const MAX_INSTRUCTIONS: usize = 20_000;

/// What an operator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It allocates.
    New,
    /// It frees.
    Delete,
}

/// Where an instruction leads.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// To an address.
    Code(u64),
    /// To where a pointer at an address says.
    Slot(u64),
    /// It cannot be told.
    Unknown,
}

/// The way through a module from one operator on.
pub(in crate::loader) struct Survey<'image, 'data, R: ReadRef<'data>> {
    image: &'image Image<'data, R>,
    kind: Kind,
    operator: u64,
    instructions_left: usize,
    functions: HashMap<u64, Reached>,
}

impl<'image, 'data, R: ReadRef<'data>> Survey<'image, 'data, R> {
    /// Follows the operator at an address.
    pub(in crate::loader) fn operator(
        image: &'image Image<'data, R>,
        kind: Kind,
        operator: u64,
    ) -> Flow {
        let mut survey = Self {
            image,
            kind,
            operator,
            instructions_left: MAX_INSTRUCTIONS,
            functions: HashMap::new(),
        };
        survey.flow(operator, MAX_DEPTH)
    }

    /// Follows a function, and what it calls at most `depth` calls deep.
    fn flow(&mut self, start: u64, depth: usize) -> Flow {
        let mut flow = Flow::default();
        let mut waiting = vec![start];
        while let Some(address) = waiting.pop() {
            if flow.steps.contains_key(&address) {
                continue;
            }
            let step = self.step(&mut flow, start, address, depth);
            waiting.extend(step.followers());
            flow.steps.insert(address, step);
        }
        flow
    }

    /// What a call of the function at an address reaches.
    fn function(&mut self, address: u64, depth: usize) -> Reached {
        if let Some(known) = self.functions.get(&address) {
            return known.clone();
        }
        let Some(depth) = depth.checked_sub(1) else {
            return Reached::leading(Lead::TooLong);
        };
        // For calls of itself, until more is known.
        self.functions.insert(address, Reached::RETURNS);
        let reached = self.flow(address, depth).reached();
        self.functions.insert(address, reached.clone());
        reached
    }

    fn step(&mut self, flow: &mut Flow, start: u64, address: u64, depth: usize) -> Step {
        let unseen = |lead| Step::last(Effect::Tail(Reached::leading(lead)));
        let Some(left) = self.instructions_left.checked_sub(1) else {
            return unseen(Lead::TooLong);
        };
        self.instructions_left = left;
        let Some(instruction) = self.image.instruction(address) else {
            return unseen(Lead::NoCode);
        };
        let next = instruction.next_ip();
        match instruction.flow_control() {
            FlowControl::Next if instruction.mnemonic() != Mnemonic::Hlt => Step::plain(next),
            FlowControl::Call if instruction.mnemonic() == Mnemonic::Syscall => Step::plain(next),
            FlowControl::Call | FlowControl::IndirectCall => {
                self.call(flow, address, &instruction, depth)
            }
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => {
                self.jump(start, target(&instruction))
            }
            FlowControl::ConditionalBranch => Step {
                next: Some(next),
                ..self.jump(start, target(&instruction))
            },
            FlowControl::Return => Step::last(Effect::Ret),
            FlowControl::XbeginXabortXend => unseen(Lead::NoCode),
            // Traps.
            FlowControl::Next | FlowControl::Interrupt | FlowControl::Exception => {
                Step::last(Effect::Call(Reached::ENDS))
            }
        }
    }

    fn call(
        &mut self,
        flow: &mut Flow,
        address: u64,
        instruction: &Instruction,
        depth: usize,
    ) -> Step {
        let next = instruction.next_ip();
        let reached = match self.resolve(target(instruction)) {
            Ok(Slot::Code(to)) if to == self.operator => Reached::leading(Lead::Itself),
            Ok(Slot::Code(to)) => self.function(to, depth),
            Ok(Slot::Role(role)) => {
                flow.asks_for_handler |= role == Role::AsksForHandler;
                self.of_role(role)
            }
            Ok(Slot::Unknown(name)) => Reached::leading(Lead::Unknown(name)),
            Err(lead) => Reached::leading(lead),
        };
        // Compilers leave out what follows a call that never returns; so no function goes on
        // behind its end.
        let goes_on = reached.returns && !self.image.is_end(address, next);
        Step {
            effect: Effect::Call(reached),
            next: goes_on.then_some(next),
            jump: None,
        }
    }

    /// A jump is part of the function, wherever in the module it leads, unless it leads to a
    /// function that is known by name.
    fn jump(&self, start: u64, to: Target) -> Step {
        let reached = match self.resolve(to) {
            Ok(Slot::Code(to)) => return Self::inside(to),
            Ok(Slot::Role(_)) if matches!(to, Target::Code(to) if to == start) => {
                return Self::inside(start);
            }
            Ok(Slot::Role(role)) => self.of_role(role),
            Ok(Slot::Unknown(name)) => Reached::leading(Lead::Unknown(name)),
            Err(lead) => Reached::leading(lead),
        };
        Step::last(Effect::Tail(reached))
    }

    const fn inside(to: u64) -> Step {
        Step {
            effect: Effect::None,
            next: None,
            jump: Some(to),
        }
    }

    fn resolve(&self, target: Target) -> Result<Slot, Lead> {
        match target {
            Target::Code(to) if to == self.operator => Ok(Slot::Code(to)),
            Target::Code(to) => match (self.image.role(to), self.linkage(to)) {
                (Some(role), _) => Ok(Slot::Role(role)),
                (None, Some(slot)) => Ok(slot),
                (None, None) => Ok(Slot::Code(to)),
            },
            Target::Slot(at) => match self.image.slot(at).ok_or(Lead::Pointer)? {
                Slot::Code(to) if to == self.operator => Ok(Slot::Code(to)),
                Slot::Code(to) => Ok(self.image.role(to).map_or(Slot::Code(to), Slot::Role)),
                known => Ok(known),
            },
            Target::Unknown => Err(Lead::Pointer),
        }
    }

    fn linkage(&self, address: u64) -> Option<Slot> {
        self.image.slot(linkage(self.image, address)?)
    }

    fn of_role(&self, role: Role) -> Reached {
        let lead = match (self.kind, role) {
            (_, Role::Ends) => return Reached::ENDS,
            (Kind::New, Role::Allocates(name) | Role::Reallocates(name) | Role::New(name))
            | (Kind::Delete, Role::Frees(name) | Role::Reallocates(name) | Role::Delete(name)) => {
                Some(Lead::Function(name))
            }
            _ => None,
        };
        Reached {
            lead,
            returns: true,
        }
    }
}

/// The pointer of a global offset table through which the code at an address jumps at once, as all
/// code of a procedure linkage table does.
pub(in crate::loader) fn linkage<'data, R: ReadRef<'data>>(
    image: &Image<'data, R>,
    address: u64,
) -> Option<u64> {
    let mut jump = image.instruction(address)?;
    if jump.mnemonic() == Mnemonic::Endbr64 {
        jump = image.instruction(jump.next_ip())?;
    }
    match (jump.flow_control(), target(&jump)) {
        (FlowControl::IndirectBranch, Target::Slot(at)) => Some(at),
        _ => None,
    }
}

/// Where a call or jump leads.
fn target(instruction: &Instruction) -> Target {
    match instruction.op0_kind() {
        OpKind::NearBranch64 => Target::Code(instruction.near_branch_target()),
        OpKind::Memory if is_fixed(instruction) => {
            Target::Slot(instruction.memory_displacement64())
        }
        _ => Target::Unknown,
    }
}

/// True if a memory operand is at an address that depends on no register.
fn is_fixed(instruction: &Instruction) -> bool {
    let relative = instruction.is_ip_rel_memory_operand();
    let absolute = instruction.memory_base() == Register::None;
    let thread_local = matches!(instruction.segment_prefix(), Register::FS | Register::GS);
    (relative || absolute) && instruction.memory_index() == Register::None && !thread_local
}
