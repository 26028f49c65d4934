//! What each command does, from what was typed.

pub mod record;
pub mod report;
