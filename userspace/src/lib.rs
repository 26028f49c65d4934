//! The recorder of htrace-bpf: finds or starts a target, attaches the BPF programs, turns their
//! records into a heaptrack file, and reports on such files.
//!
//! Layers, each using only those to its right: `commands → session → {drain, modules, unwind,
//! target} → loader → sys`. `symbolize` stands apart, and `parallel` knows none of them.

pub mod cli;
pub mod commands;
pub mod drain;
pub mod loader;
pub mod modules;
mod parallel;
pub mod session;
pub mod symbolize;
pub mod sys;
pub mod target;
pub mod unwind;
