//! Turns a panic of a library that reads a target's file into an error, without its message on
//! the terminal.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether this thread is inside of [`guarded`].
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `action`; its panic is an error. What it may leave inconsistent belongs to the library,
/// so whoever gets the error has to let go of that.
pub(super) fn guarded<T>(action: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    quieten();
    let outside = GUARDED.replace(true);
    let answer = catch_unwind(AssertUnwindSafe(action));
    GUARDED.set(outside);
    answer.unwrap_or_else(|_| Err("its debug information is malformed".to_owned()))
}

/// Has the panic hook keep silent about guarded panics. Everything else goes to the hook that was
/// there at the first call.
fn quieten() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = take_hook();
        set_hook(Box::new(move |info| {
            if GUARDED.get() {
                tracing::debug!("reading debug information: {info}");
            } else {
                previous(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_and_the_guard_ends_with_it() {
        let answer = guarded(|| -> Result<(), String> { panic!("as a library might") });
        assert!(answer.unwrap_err().contains("malformed"));
        assert!(!GUARDED.get());
        assert_eq!(guarded(|| Ok(3)), Ok(3));
    }

    #[test]
    fn guards_nest() {
        let answer = guarded(|| {
            let inner = guarded(|| -> Result<(), String> { panic!("inside") });
            assert!(GUARDED.get());
            inner
        });
        assert!(answer.is_err());
    }
}
