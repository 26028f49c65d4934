//! What each function costs with all that it calls, in two recordings of the same program.
//!
//! Both recordings have their names from the same symbolizer, so what is compared is which calls
//! were seen, and their stacks.

use std::collections::BTreeMap;
use std::path::Path;

use crate::trace_file::{Ip, Trace};

/// Allocations, and bytes that they asked for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Allocations.
    pub calls: i64,
    /// Bytes.
    pub bytes: i64,
}

/// A file's name and a function's, which is empty where no name is known.
pub type Function = (String, String);

/// Which stacks are compared, and how much of them: what both recorders can see.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// Of deeper stacks only so many of the innermost frames.
    pub frames: usize,
    /// Leaves out stacks through these functions.
    pub without: &'a [&'a str],
}

/// Functions whose inclusive costs are at least a thousandth of all, and differ: ours, theirs.
///
/// # Panics
/// When there are hardly any functions to be compared.
pub fn differences(ours: &Trace, theirs: &Trace, view: View<'_>) -> Vec<(Function, Cost, Cost)> {
    let ((ours, total), (theirs, _)) = (costs(ours, view), costs(theirs, view));
    let of = |costs: &BTreeMap<Function, Cost>, function| {
        costs.get(function).copied().unwrap_or_default()
    };
    let mut compared = 0;
    let mut differing = Vec::new();
    let functions: std::collections::BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    for function in functions {
        let (own, other) = (of(&ours, function), of(&theirs, function));
        let is_large =
            |cost: Cost| cost.calls > total.calls / 1000 || cost.bytes > total.bytes / 1000;
        if is_large(own) || is_large(other) {
            compared += 1;
            if own != other {
                differing.push((function.clone(), own, other));
            }
        }
    }
    assert!(compared >= 5, "only {compared} functions: {ours:?}");
    differing
}

/// Inclusive costs by function, and the sum of all stacks.
fn costs(trace: &Trace, view: View<'_>) -> (BTreeMap<Function, Cost>, Cost) {
    let (mut functions, mut total) = (BTreeMap::<Function, Cost>::new(), Cost::default());
    for (cost, stack) in trace.costs() {
        if !is_in_view(&stack, view) {
            continue;
        }
        add(&mut total, cost);
        let kept = &stack[..stack.len().min(view.frames)];
        let mut names: Vec<Function> = kept.iter().flat_map(|ip| functions_of(ip)).collect();
        names.sort();
        names.dedup();
        for name in names {
            add(functions.entry(name).or_default(), cost);
        }
    }
    (functions, total)
}

fn add(sum: &mut Cost, cost: Cost) {
    sum.calls += cost.calls;
    sum.bytes += cost.bytes;
}

/// Leaves out what depends on the libraries that a recorder brings into the target: allocations of
/// the dynamic linker itself, those of libraries' constructors, and blocks of 32 places for functions
/// to be called at exit, of which a recorder takes some.
fn is_in_view(stack: &[&Ip], view: View<'_>) -> bool {
    let is_linker =
        |ip: Option<&&Ip>| ip.is_some_and(|ip| file_name(&ip.module).starts_with("ld-linux"));
    let is_recorder = |ip: &&Ip| ip.module.contains("libheaptrack");
    let is_left_out =
        |ip: &&Ip| ip.function == "__new_exitfn" || view.without.contains(&ip.function.as_str());
    !is_linker(stack.first())
        && !is_linker(stack.last())
        && !stack.iter().any(is_recorder)
        && !stack.iter().any(is_left_out)
}

fn functions_of(ip: &Ip) -> impl Iterator<Item = Function> {
    let module = file_name(&ip.module);
    std::iter::once(&ip.function)
        .chain(&ip.inlined_into)
        .map(move |function| (module.clone(), function.clone()))
}

/// The last part of a module's path. Which of a file's names a recorder knows it by is up to it.
fn file_name(module: &str) -> String {
    let path = Path::new(module);
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}
