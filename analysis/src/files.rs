//! The door to files: the analysis opens and creates them only through [`Files`], so that it stays
//! testable and knows no operating system.

use std::io::{self, Read, Write};
use std::path::Path;

use htrace_trace_format::raw::Resolver;

/// Makes a resolver of addresses.
pub type MakeResolver = Box<dyn FnOnce() -> Box<dyn Resolver> + Send>;

/// Opens inputs and creates outputs.
pub trait Files {
    /// Opens `path` for reading; `-` is standard input.
    ///
    /// # Errors
    /// Those of the operating system.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>>;

    /// Creates `path` for writing, or empties it.
    ///
    /// # Errors
    /// Those of the operating system.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Write>>;

    /// Whether `path` is an ordinary file, of which the size is known.
    fn is_ordinary(&self, path: &Path) -> bool;

    /// What makes the resolver that names the addresses of raw traces. It is called on the thread
    /// that uses the resolver. Without one, addresses stay addresses.
    fn symbols(&self) -> MakeResolver {
        Box::new(|| Box::new(()))
    }
}

/// The file system, with `-` for standard input.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileSystem;

impl Files for FileSystem {
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        if path == Path::new("-") {
            return Ok(Box::new(io::stdin()));
        }
        let file = std::fs::File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        Ok(Box::new(file))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Write>> {
        Ok(Box::new(std::fs::File::create(path)?))
    }

    fn is_ordinary(&self, path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
    }
}
