//! The files of the offline commands: the file system, and the symbols of modules found in it.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
        FileSystem.open(path)
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
