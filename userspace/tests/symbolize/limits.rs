//! What the symbolizer keeps and says stays within bounds.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use htrace_bpf::modules::{Module, ModuleId};
use htrace_bpf::symbolize::Symbolizer;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

use crate::fixture::compile;

/// Keeps the warnings of one thread.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Message<'a>(&'a mut String);

impl Visit for Message<'_> {
    fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!("{value:?}"));
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = String::new();
        event.record(&mut Message(&mut message));
        self.0.lock().unwrap().push(message);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

fn warnings_of(action: impl FnOnce()) -> Vec<String> {
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), action);
    warnings.0.lock().unwrap().clone()
}

/// A program whose debug information is nonsense.
fn broken(directory: &Path) -> std::path::PathBuf {
    let program = compile(directory, "symbolize.cpp", "broken", &["-O2", "-g"]);
    let nonsense = directory.join("nonsense");
    std::fs::write(&nonsense, [0xff; 100]).unwrap();
    let option = format!("--update-section=.debug_info={}", nonsense.display());
    crate::fixture::run("objcopy", [option.as_ref(), program.as_os_str()]);
    program
}

#[test]
fn a_broken_module_is_warned_of_once_with_its_name_and_many_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let program = broken(directory.path());
    let warnings = warnings_of(|| {
        let module = Module::of_path(ModuleId(0), &program).unwrap();
        let mut symbolizer = Symbolizer::new(None);
        for address in 0x1000..0x1100 {
            symbolizer.symbolize(&module, address);
        }
    });
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].starts_with(program.to_str().unwrap()),
        "{warnings:?}"
    );

    let warnings = warnings_of(|| {
        let mut symbolizer = Symbolizer::new(None);
        for id in 0..100 {
            let module = Module::of_path(ModuleId(id), &program).unwrap();
            symbolizer.symbolize(&module, 0x1000);
        }
    });
    assert_eq!(warnings.len(), 21);
    assert!(warnings[20].contains("left out"), "{warnings:?}");
}

#[test]
fn descriptors_do_not_pile_up_with_modules() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "symbolize.cpp", "p", &["-O2", "-g"]);
    let open_files = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        links
            .filter(|link| std::fs::read_link(link.path()).is_ok_and(|p| p == program))
            .count()
    };
    let mut symbolizer = Symbolizer::new(None);
    let mut last = Vec::new();
    for id in 0..600 {
        let module = Module::of_path(ModuleId(id), &program).unwrap();
        let function = module.image().segments[1].virtual_address + 0x200;
        last = (0..64)
            .flat_map(|i| symbolizer.symbolize(&module, function + i * 8))
            .collect();
    }
    assert!(last.iter().any(|frame| frame.line.is_some()));
    let open = open_files();
    assert!((1..=256).contains(&open), "{open}");
}
