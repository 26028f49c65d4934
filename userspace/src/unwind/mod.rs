//! Makes the unwind tables of a target's modules and hands them to the BPF programs, and lets the
//! target go on that waits for them.
//!
//! [`build`] turns modules into tables, or takes them from the [`cache`] on disk; [`tables`] keeps
//! what the programs have; [`worker`] are the threads that serve a running target. It knows modules
//! and maps of tables, not stacks or what they are taken for.
//!
//! Invariants: a table is in its map before a file is said to have it; a file without a table is
//! said to have none, so that nobody waits for it twice.

mod build;
mod cache;
mod snapshots;
mod tables;
mod worker;

pub use self::{
    build::{Built, build_all},
    cache::Cache,
    snapshots::Snapshots,
    tables::Tables,
    worker::{TableWork, Work, Worker},
};
