//! Modules and symbols of real programs, compiled here and looked at while they run, after they
//! have exited, and with their files gone.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

mod debug_files;
mod fixture;
mod hostile;
mod limits;
mod live;
mod opening;
mod suppressions;
