//! Leaves out what is allocated below no chosen function.
//!
//! It decides once for a stack, until modules change. Of an allocation that is left out nothing is
//! written or kept: its end is that of an unknown block, as of what the programs leave out.

use std::io::{self, Write};

use super::{Converter, call_before};
use crate::session::{chosen_functions::ChosenFunctions, names::Names};

impl<W: Write, N: Names> Converter<W, N> {
    /// Leaves out what is allocated below none of these functions.
    pub(in crate::session) fn choose(&mut self, functions: ChosenFunctions) {
        self.functions = functions;
    }

    /// Whether a stack holds a chosen function under the modules of now.
    pub(super) fn is_chosen(&mut self, id: u64) -> bool {
        if self.functions.are_all() {
            return true;
        }
        let Some(stack) = self.stacks.get_mut(&id) else {
            return false;
        };
        if stack.as_of != self.module_changes {
            let calls = stack.frames.iter().copied().map(call_before);
            stack.chosen = self.functions.are_in(calls, &mut self.names);
        }
        if !stack.chosen {
            // Otherwise its trace is still to be made.
            stack.as_of = self.module_changes;
        }
        stack.chosen
    }

    /// An allocation with a stack that is not chosen. A block that lived there was freed unseen.
    pub(super) fn leave_out(&mut self, pointer: u64, size: u64, stack: u64) -> io::Result<()> {
        self.left_out
            .count(size, self.stacks.get(&stack).map(|stack| stack.end));
        let unseen = self.blocks.leave_out(pointer);
        self.deallocated(unseen)
    }
}
