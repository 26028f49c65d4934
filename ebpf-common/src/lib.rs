//! What the BPF programs and the recorder say to each other: the records of the ring buffer
//! ([`wire`]), the counters of lost and odd events ([`counters`]), the settings that the recorder
//! gives the programs ([`control`]), which function a probe is on ([`function`]) and where in it
//! ([`point`]), where the kernel
//! keeps what is read of it ([`layout`]), and unwind tables as they lie in maps ([`tables`], with
//! rows as in [`encoding`]).
//!
//! This crate knows neither BPF nor processes. It has no dependencies and no `unsafe`, so that
//! the same source is compiled by the BPF compiler and by the host's.

#![no_std]
#![forbid(unsafe_code)]

pub mod call_pattern;
pub mod control;
pub mod counters;
pub mod encoding;
pub mod function;
pub mod layout;
pub mod point;
pub mod tables;
pub mod wire;
