//! How long the long tests run: short in every test run, long in `cargo xtask soak`, which sets
//! the variables.

/// Seconds of the stress test at full speed.
pub fn stress_seconds() -> u64 {
    number("HTRACE_STRESS_SECONDS", 10)
}

/// Seconds of the random exerciser.
pub fn exercise_seconds() -> u64 {
    number("HTRACE_EXERCISE_SECONDS", 10)
}

/// Seconds over which the recorder's memory must not grow.
pub fn flat_seconds() -> u64 {
    number("HTRACE_FLAT_SECONDS", 8)
}

/// How often the tracer is killed at a random moment.
pub fn kill_rounds() -> usize {
    usize::try_from(number("HTRACE_KILL_ROUNDS", 10)).expect("a small number")
}

/// The longest that any of these lets a program run.
pub(crate) fn longest_seconds() -> u64 {
    stress_seconds().max(exercise_seconds()).max(flat_seconds())
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|e| panic!("{variable}={text}: {e}"))
    })
}
