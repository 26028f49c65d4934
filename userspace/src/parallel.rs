//! The same work on many things at once, on as many threads as there are CPUs.
//!
//! It must not know what the work is. Invariant: results come in the order of the things.

use std::{
    num::NonZero,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// What `work` makes of each of `things`; each thread takes the next one that nobody has taken.
pub(crate) fn map<T: Sync, R: Send>(things: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(things.len()));
    let take_turns = || {
        while let Some((at, thing)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            things.get(at).map(|thing| (at, thing))
        } {
            let result = work(thing);
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.push((at, result));
        }
    };
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 1..cpus.min(things.len()) {
            // Without a thread the others do its part.
            let _started = thread::Builder::new().spawn_scoped(scope, take_turns);
        }
        take_turns();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_is_worked_on_once_and_order_is_kept() {
        let things: Vec<u32> = (0..1000).collect();
        let turns = AtomicUsize::new(0);
        let doubled = map(&things, |thing| {
            turns.fetch_add(1, Ordering::Relaxed);
            2 * thing
        });
        assert!(doubled.into_iter().eq((0..1000).map(|thing| 2 * thing)));
        assert_eq!(turns.into_inner(), 1000);
        assert!(map(&[], |thing: &u32| *thing).is_empty());
    }
}
