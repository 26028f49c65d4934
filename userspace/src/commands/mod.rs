//! What each command does, from what was typed.

pub mod check;
pub mod diff;
pub mod flamegraph;
pub mod interpret;
pub mod record;
pub mod report;
