//! Which allocations are recorded, when not all are: large ones, those of some threads, or a sample.
//!
//! A sample is one of bytes, as a Poisson process puts marks on them: an allocation is recorded if a
//! mark falls on one of its bytes, which has the probability 1 - exp(-size / mean distance). The
//! recorder divides by that, so that sums of bytes are estimated without bias.
//!
//! What is left out is counted, which costs what is recorded nothing.

use htrace_ebpf_common::{control::Control, counters::Counter};

use crate::{kernel::Kernel, thread::Thread};

/// True if an allocation of `size` bytes is to be recorded.
#[inline(always)]
pub fn is_chosen<K: Kernel>(kernel: &K, control: &Control, thread: &mut Thread, size: u64) -> bool {
    if control.phase == Control::PAUSED {
        kernel.count(Counter::LeftOutByPause);
        return false;
    }
    if size < control.min_size {
        kernel.count(Counter::LeftOutBySize);
        return false;
    }
    if control.only_threads != 0 && !kernel.thread_is_chosen() {
        kernel.count(Counter::LeftOutByThread);
        return false;
    }
    let mean = control.sample_bytes;
    if mean == 0 {
        return true;
    }
    if thread.until_mark == 0 {
        thread.until_mark = kernel.draw_distance(mean);
    }
    if size < thread.until_mark {
        thread.until_mark -= size;
        return false;
    }
    // The process has no memory: what is left of the block says nothing of the next mark.
    thread.until_mark = kernel.draw_distance(mean);
    true
}

/// Fractions in the following have so many bits.
const FRACTION: u32 = 16;
/// The natural logarithm of 2.
const LN_2: u64 = 45_426;

/// Bytes to the next mark, at least 1: exponentially distributed with a mean of `mean`, as the
/// negated logarithm of a number from 0 to 1 is.
#[must_use]
pub const fn distance(random: u32, mean: u64) -> u64 {
    let below_one = (32 << FRACTION) - log2(random as u64 + 1);
    let nats = (below_one * LN_2) >> FRACTION;
    ((nats * mean) >> FRACTION) + 1
}

/// The logarithm to the base 2 of a number from 1 to 2^32, by squaring: each gives a bit.
const fn log2(number: u64) -> u64 {
    let whole = 63 - number.leading_zeros();
    let mut rest = (number << (32 - whole)) >> 1;
    let mut log = whole as u64;
    let mut bits = 0;
    while bits < FRACTION {
        bits += 1;
        rest = (rest * rest) >> 31;
        let bit = rest >> 32;
        rest >>= bit;
        log = log << 1 | bit;
    }
    log
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::fake::{FakeKernel, new_thread};

    #[test]
    fn logarithms_are_right() {
        for (number, expected) in [(1, 0.0), (2, 1.0), (3, 1.584_96), (1 << 32, 32.0)] {
            let found = log2(number) as f64 / 65_536.0;
            assert!((found - expected).abs() < 1e-4, "{number}: {found}");
        }
    }

    #[test]
    fn distances_have_the_mean_that_was_asked_for() {
        const MEAN: u64 = 4096;
        const DRAWS: u64 = 100_000;
        let kernel = FakeKernel::recording();
        let sum: u64 = (0..DRAWS).map(|_| distance(kernel.random(), MEAN)).sum();
        let mean = sum as f64 / DRAWS as f64;
        // The standard deviation of the mean is 13.
        assert!((mean - 4096.5).abs() < 65.0, "{mean}");
        assert_eq!(distance(u32::MAX, MEAN), 1);
    }

    #[test]
    fn blocks_are_chosen_with_the_probability_of_their_size() {
        const MEAN: u64 = 1000;
        const CALLS: u32 = 40_000;
        let kernel = FakeKernel::recording();
        for size in [16, 500, 3000] {
            let control = Control {
                phase: Control::RECORDING,
                sample_bytes: MEAN,
                ..Control::default()
            };
            let mut thread = new_thread();
            let chosen = (0..CALLS)
                .filter(|_| is_chosen(&kernel, &control, &mut thread, size))
                .count();
            let expected = 1.0 - (-(size as f64) / MEAN as f64).exp();
            let found = chosen as f64 / f64::from(CALLS);
            // Five standard deviations.
            let tolerance = 5.0 * (expected * (1.0 - expected) / f64::from(CALLS)).sqrt();
            assert!(
                (found - expected).abs() < tolerance,
                "{size}: {found}, {expected}"
            );
        }
    }

    #[test]
    fn other_threads_are_left_out_where_some_are_chosen() {
        let kernel = FakeKernel::recording();
        let mut control = kernel.control();
        let mut thread = new_thread();
        kernel.set_other_thread(true);
        assert!(is_chosen(&kernel, &control, &mut thread, 16));
        control.only_threads = 1;
        assert!(!is_chosen(&kernel, &control, &mut thread, 16));
        kernel.set_other_thread(false);
        assert!(is_chosen(&kernel, &control, &mut thread, 16));
        assert_eq!(kernel.counted(Counter::LeftOutByThread), 1);
    }

    #[test]
    fn small_blocks_and_pauses_are_left_out() {
        let kernel = FakeKernel::recording();
        let mut control = Control {
            phase: Control::RECORDING,
            min_size: 100,
            ..Control::default()
        };
        let mut thread = new_thread();
        assert!(!is_chosen(&kernel, &control, &mut thread, 99));
        assert!(is_chosen(&kernel, &control, &mut thread, 100));
        control.phase = Control::PAUSED;
        assert!(!is_chosen(&kernel, &control, &mut thread, 100));
        let counted = [Counter::LeftOutBySize, Counter::LeftOutByPause].map(|c| kernel.counted(c));
        assert_eq!(counted, [1, 1]);
    }
}
