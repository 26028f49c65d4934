//! Files in memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Cursor, Read, Write};
use std::path::Path;
use std::rc::Rc;

use htrace_analysis::files::Files;

type Shared = Rc<RefCell<Vec<u8>>>;

/// A folder in memory. Paths in a folder that starts with `/` cannot be written.
#[derive(Default)]
pub(crate) struct Memory {
    files: RefCell<BTreeMap<String, Shared>>,
}

impl Memory {
    pub(crate) fn with(files: &[(&str, &[u8])]) -> Self {
        let memory = Self::default();
        for (name, data) in files {
            let data = Rc::new(RefCell::new(data.to_vec()));
            memory.files.borrow_mut().insert((*name).to_owned(), data);
        }
        memory
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        let files = self.files.borrow();
        Some(String::from_utf8_lossy(&files.get(name)?.borrow()).into_owned())
    }
}

impl Files for Memory {
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        let files = self.files.borrow();
        let data = files
            .get(path.to_str().unwrap())
            .ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(Cursor::new(data.borrow().clone())))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Write>> {
        if path.is_absolute() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let data = Shared::default();
        let name = path.to_str().unwrap().to_owned();
        self.files.borrow_mut().insert(name, Rc::clone(&data));
        Ok(Box::new(SharedWriter(data)))
    }

    fn is_ordinary(&self, path: &Path) -> bool {
        self.files.borrow().contains_key(path.to_str().unwrap())
    }
}

struct SharedWriter(Shared);

impl Write for SharedWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
