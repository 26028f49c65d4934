//! What a recording leaves out because its user wanted so, in its summary.

use htrace_analysis::left_out::words;

use super::{Closing, line, size};
use crate::session::{
    chosen_functions::{CHOICE_OF_FUNCTIONS, LeftOut},
    converter::Totals,
};

/// What was left out by which choice, and when the recording paused.
pub(super) fn tell(text: &mut String, totals: &Totals, closing: &Closing) {
    for (choice, count) in closing.losses.left_out() {
        line(text, format_args!("{}: {count}", words(choice)));
    }
    below_no_chosen_function(text, totals);
    paused(text, &closing.pauses);
}

/// When only frees were recorded, and what that distorts.
fn paused(text: &mut String, pauses: &[(u64, u64)]) {
    if pauses.is_empty() {
        return;
    }
    let ticks: u64 = pauses.iter().map(|(from, to)| to - from).sum();
    line(
        text,
        format_args!(
            "times paused: {} ({:.2} s in all); what was allocated then is not known, peaks and leaks \
             may be too low",
            pauses.len(),
            ticks as f64 / 100.0
        ),
    );
}

/// What is below none of the chosen functions.
fn below_no_chosen_function(text: &mut String, totals: &Totals) {
    let LeftOut {
        allocations,
        bytes,
        in_doubt,
    } = totals.left_out;
    if allocations == 0 {
        return;
    }
    line(
        text,
        format_args!("{}: {allocations}", words(CHOICE_OF_FUNCTIONS)),
    );
    line(text, format_args!("\t{} in them", size(bytes)));
    if in_doubt > 0 {
        line(
            text,
            format_args!(
                "\t{in_doubt} of them have stacks that were cut or lost, and may be below one"
            ),
        );
    }
    if totals.counts.allocations == 0 {
        line(
            text,
            format_args!("\tno stack holds one of them: names are as reports show them"),
        );
    }
}
