//! The traced process: started by us or found running.
//!
//! Knows processes, their users and the files they load; must not know BPF or the trace file.

pub mod identity;
pub mod launch;
pub mod libraries;
pub mod process;

pub use identity::Identity;
pub use launch::{LaunchError, Stopped};
pub use process::{AttachError, Claim, Exit, Process};
