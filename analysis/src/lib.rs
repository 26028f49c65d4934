//! Profiles of heap traces, and everything that is printed of them.
//!
//! The crate turns records ([`htrace_trace_format`]) into a [`Profile`] and a profile into text:
//! rankings, folded stacks, histograms, Massif files. It is pure: it reads from `Read`, writes to
//! `Write`, and opens nothing itself.
//!
//! Invariants:
//! * Whatever a file contains, nothing here panics, and memory stays in proportion to the file's
//!   tables, which are bounded.
//! * Output depends on the input alone: no hash order, no time, no locale.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod ages;
pub mod builder;
pub mod check;
pub mod comparison;
pub mod cost;
pub mod diff;
pub mod drop_in;
pub mod files;
pub mod filter;
pub mod flamegraph;
pub mod folded;
pub mod folder;
pub mod histogram;
pub mod json;
pub mod left_out;
pub mod load;
pub mod massif;
pub mod merge;
pub mod notes;
pub mod number_format;
pub mod observer;
pub mod problem;
pub mod profile;
pub mod report;
pub mod request;
pub mod same_places;
pub mod source;
pub mod std_sort;
pub mod suppression;
pub mod tables;
mod tally;
pub mod template;
pub mod tree;
pub mod warnings;
pub mod window;

pub use cost::{CostKind, Costs};
pub use load::{Loaded, load};
pub use profile::Profile;
