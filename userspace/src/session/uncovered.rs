//! Which modules of a process stacks cannot be walked through: those of whose code most has no
//! unwind data, as Debian's musl.

use std::{path::Path, sync::Arc};

use htrace_ebpf_common::wire::StackEnd;

use super::names;
use crate::{
    modules::{Module, ModuleKind, ProcOpener},
    unwind::{Built, Cache, build_all},
};

/// A line for each such module of a process.
#[must_use]
pub fn modules(pid: u32) -> Vec<String> {
    let opener = Arc::new(ProcOpener::new(Path::new("/proc"), pid));
    let table = names::current_modules(pid, opener);
    let of_files = table.modules().iter();
    let of_files = of_files.filter(|module| module.kind() == ModuleKind::File);
    let of_files: Vec<Arc<Module>> = of_files.cloned().collect();
    let built = build_all(&of_files, &Cache::of_user());
    built.iter().filter_map(line).collect()
}

fn line(built: &Built) -> Option<String> {
    let name = built.module.name();
    let Some(table) = &built.table else {
        let end = StackEnd::NoTable.name();
        return Some(format!(
            "{name}: no unwind data can be read: stacks end there, as {end}"
        ));
    };
    let code: u64 = table.segments().iter().map(|segment| segment.size).sum();
    let covered = table.covered_bytes();
    (covered < code / 2).then(|| {
        let end = StackEnd::Gap.name();
        format!(
            "{name}: unwind data for {covered} of {code} bytes of code: stacks end there, as {end}"
        )
    })
}
