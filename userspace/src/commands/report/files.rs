//! The files of the offline commands: the file system, and the symbols of modules found in it.

use std::collections::HashMap;
use std::io::{self, IsTerminal as _, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use htrace_analysis::files::{FileSystem, Files, MakeResolver};
use htrace_trace_format::raw::{ResolvedFrame, Resolver};

use crate::modules::{FileRoot, Module, ModuleId};
use crate::symbolize::symbolizer::Symbolizer;

/// The file system; modules are looked for under `sysroot`.
#[derive(Clone, Debug)]
pub struct SystemFiles {
    /// The root directory of the machine that the trace was recorded on, `/` for this one.
    pub sysroot: PathBuf,
}

impl Default for SystemFiles {
    fn default() -> Self {
        Self {
            sysroot: "/".into(),
        }
    }
}

impl Files for SystemFiles {
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        let bytes = std::fs::metadata(path)
            .ok()
            .filter(|metadata| metadata.is_file());
        let source = FileSystem.open(path)?;
        Ok(match bytes {
            Some(metadata) if io::stderr().is_terminal() => {
                Box::new(Progress::new(source, metadata.len()))
            }
            _ => source,
        })
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Write>> {
        FileSystem.create(path)
    }

    fn is_ordinary(&self, path: &Path) -> bool {
        FileSystem.is_ordinary(path)
    }

    fn symbols(&self) -> MakeResolver {
        let sysroot = self.sysroot.clone();
        Box::new(move || Box::new(ModuleResolver::new(sysroot)))
    }
}

/// Names addresses by the modules' own symbols and debug information.
pub struct ModuleResolver {
    sysroot: PathBuf,
    symbolizer: Symbolizer,
    /// `None` for modules that cannot be opened.
    modules: HashMap<String, Option<Module>>,
}

impl ModuleResolver {
    /// A resolver for modules under `sysroot`.
    #[must_use]
    pub fn new(sysroot: PathBuf) -> Self {
        let root = FileRoot::open_directory(&sysroot).map(Arc::new).ok();
        Self {
            symbolizer: Symbolizer::new(root),
            sysroot,
            modules: HashMap::new(),
        }
    }

    fn open(&self, path: &str) -> Option<Module> {
        let id = ModuleId(u32::try_from(self.modules.len()).ok()?);
        // The vdso has a name and no file.
        let inside = path.strip_prefix('/')?;
        match Module::of_path(id, &self.sysroot.join(inside)) {
            Ok(module) => Some(module),
            Err(error) => {
                tracing::warn!("no names for {path}: {error}");
                None
            }
        }
    }
}

impl Resolver for ModuleResolver {
    fn resolve(&mut self, path: &str, address: u64) -> Vec<ResolvedFrame> {
        if !self.modules.contains_key(path) {
            let module = self.open(path);
            self.modules.insert(path.to_owned(), module);
        }
        let Some(Some(module)) = self.modules.get(path) else {
            return Vec::new();
        };
        let frames = self.symbolizer.symbolize(module, address);
        frames
            .into_iter()
            .map(|frame| ResolvedFrame {
                function: frame.function.unwrap_or_default(),
                file: frame.file.unwrap_or_default(),
                line: frame.line.unwrap_or(0),
            })
            .collect()
    }
}

/// Shows on the terminal how much of a file has been read, once that takes longer than a second.
struct Progress<R> {
    source: R,
    done: u64,
    whole: u64,
    started: Instant,
    shown: Option<Instant>,
}

impl<R> Progress<R> {
    const PATIENCE: Duration = Duration::from_secs(1);
    const INTERVAL: Duration = Duration::from_millis(100);
    const WIDTH: usize = 40;

    fn new(source: R, whole: u64) -> Self {
        Self {
            source,
            done: 0,
            whole,
            started: Instant::now(),
            shown: None,
        }
    }

    /// Whether the bar is to be drawn (again).
    fn is_due(&self, now: Instant) -> bool {
        match self.shown {
            Some(shown) => now - shown >= Self::INTERVAL,
            None => now - self.started >= Self::PATIENCE,
        }
    }

    fn show(&mut self) {
        let now = Instant::now();
        if self.is_due(now) {
            self.shown = Some(now);
            // A terminal that is gone is no reason to stop reading.
            let _ = write!(
                io::stderr(),
                "\r{}",
                bar(self.done, self.whole, Self::WIDTH)
            );
        }
    }
}

/// A bar with a percentage behind it.
fn bar(done: u64, whole: u64, width: usize) -> String {
    let share = if whole == 0 {
        1.0
    } else {
        (done as f64 / whole as f64).min(1.0)
    };
    let filled = (share * width as f64) as usize;
    format!("[{:width$}] {:3.0} %", "#".repeat(filled), share * 100.0)
}

impl<R: Read> Read for Progress<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.done += count as u64;
        self.show();
        Ok(count)
    }
}

impl<R> Drop for Progress<R> {
    fn drop(&mut self) {
        if self.shown.is_some() {
            // Clears the line for what is printed next.
            let _ = write!(io::stderr(), "\r{:1$}\r", "", Self::WIDTH + 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_up_and_never_overflows() {
        assert_eq!(bar(0, 100, 4), "[    ]   0 %");
        assert_eq!(bar(50, 100, 4), "[##  ]  50 %");
        assert_eq!(bar(300, 100, 4), "[####] 100 %");
        assert_eq!(bar(0, 0, 4), "[####] 100 %");
    }

    #[test]
    fn the_bar_waits_for_a_second_and_then_moves_ten_times_a_second() {
        let mut progress = Progress::new(io::empty(), 100);
        let after = |milliseconds| progress.started + Duration::from_millis(milliseconds);
        let [early, first, soon, next] = [after(999), after(1000), after(1099), after(1100)];
        assert!(!progress.is_due(early) && progress.is_due(first));
        progress.shown = Some(first);
        assert!(!progress.is_due(soon) && progress.is_due(next));
        // Nothing was drawn, so that there is no line to clear.
        progress.shown = None;
    }

    #[inline(never)]
    fn some_function() -> u32 {
        std::hint::black_box(7)
    }

    #[test]
    fn names_are_found_in_modules_under_a_root() {
        let own = std::env::current_exe().unwrap();
        let mut resolver = ModuleResolver::new("/".into());
        assert!(resolver.resolve("linux-vdso.so.1", 0x100).is_empty());
        assert!(resolver.resolve("/nonexistent/module", 0x100).is_empty());
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let own = own.to_str().unwrap();
        let first = maps.lines().find(|line| line.ends_with(own)).unwrap();
        let base = u64::from_str_radix(first.split('-').next().unwrap(), 16).unwrap();
        let address = some_function as *const () as u64 - base;
        let frames = resolver.resolve(own, address);
        let name = &frames.first().unwrap().function;
        assert!(name.contains("some_function"), "{frames:?}");
        assert_eq!(resolver.modules.len(), 3);
        assert!(resolver.modules[own].is_some());
    }
}
