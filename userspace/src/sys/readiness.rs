//! Waiting for descriptors on tokio.

use std::{io, os::fd::OwnedFd};

use tokio::io::{Interest, unix::AsyncFd};

/// A descriptor that can be waited for until it is readable.
///
/// # Errors
/// When it is of a kind that cannot be polled.
pub fn readable(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned by the result and closed when that is dropped; nothing
    // replaces it meanwhile.
    let registered = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    registered.map_err(io::Error::from)
}
