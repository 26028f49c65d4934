//! What the BPF programs and the recorder say to each other: the records of the ring buffer
//! ([`wire`]), the counters of lost and odd events ([`counters`]) and the settings that the
//! recorder gives the programs ([`control`]).
//!
//! This crate knows neither BPF nor processes. It has no dependencies and no `unsafe`, so that
//! the same source is compiled by the BPF compiler and by the host's.

#![no_std]
#![forbid(unsafe_code)]

pub mod call_pattern;
pub mod control;
pub mod counters;
pub mod encoding;
pub mod wire;
