//! The recorder of htrace-bpf: finds or starts a target, attaches the BPF programs, turns their
//! records into a heaptrack file, and reports on such files.

pub mod modules;
pub mod symbolize;
