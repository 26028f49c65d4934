//! Black-box cases of heaptrack_print: all that 1.4, 1.5 and 1.6 print and write must come out byte
//! for byte.
//!
//! Each folder of `tests/vectors` is a case: inputs, the command line with its exit status
//! (`cmd.json`), and what the program wrote. Where a later version writes something else, that
//! stands in `FILE@VERSION`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use htrace_analysis::drop_in::{self, Version};
use htrace_analysis::files::Files;

/// Files of one case, and what the program writes.
struct CaseFiles {
    folder: PathBuf,
    written: RefCell<BTreeMap<String, Rc<RefCell<Vec<u8>>>>>,
}

struct Written(Rc<RefCell<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Files for CaseFiles {
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(std::fs::File::open(self.folder.join(path))?))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Write>> {
        let name = path.to_str().unwrap().to_owned();
        let data = Rc::new(RefCell::new(Vec::new()));
        self.written.borrow_mut().insert(name, Rc::clone(&data));
        Ok(Box::new(Written(data)))
    }

    fn is_ordinary(&self, path: &Path) -> bool {
        self.folder.join(path).is_file()
    }
}

struct Case {
    folder: PathBuf,
    words: Vec<OsString>,
    command: serde_json::Value,
}

impl Case {
    fn read(folder: PathBuf) -> Option<Self> {
        let command = std::fs::read_to_string(folder.join("cmd.json")).ok()?;
        let command: serde_json::Value = serde_json::from_str(&command).unwrap();
        let words = command["args"].as_array().unwrap();
        let words = words
            .iter()
            .map(|word| word.as_str().unwrap().into())
            .collect();
        Some(Self {
            folder,
            words,
            command,
        })
    }

    fn wanted(&self, file: &str, version: &str) -> Option<Vec<u8>> {
        let special = self.folder.join(format!("{file}@{version}"));
        std::fs::read(special)
            .or_else(|_| std::fs::read(self.folder.join(file)))
            .ok()
    }

    fn wanted_status(&self, version: &str) -> u64 {
        let special = &self.command["rc-by-version"][version];
        special
            .as_u64()
            .unwrap_or_else(|| self.command["rc"].as_u64().unwrap())
    }

    /// What differs between the wanted and the real output.
    fn differences(&self, version: &str) -> Vec<String> {
        let files = CaseFiles {
            folder: self.folder.clone(),
            written: RefCell::new(BTreeMap::new()),
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let number = Version::from_name(version).unwrap();
        let status = drop_in::run(&self.words, number, &files, &mut out, &mut err).unwrap();
        let mut got: BTreeMap<String, Vec<u8>> =
            BTreeMap::from([("stdout".into(), out), ("stderr".into(), err)]);
        for (name, data) in files.written.borrow().iter() {
            got.insert(name.clone(), data.borrow().clone());
        }
        let mut differences = Vec::new();
        for file in ["stdout", "stderr", "massif.out", "hist.out", "flame.out"] {
            let (wanted, got) = (self.wanted(file, version), got.remove(file));
            if wanted != got {
                differences.push(describe(file, wanted, got));
            }
        }
        if u64::from(status) != self.wanted_status(version) {
            differences.push(format!("status {status}"));
        }
        differences
    }
}

/// The first line that differs.
fn describe(file: &str, wanted: Option<Vec<u8>>, got: Option<Vec<u8>>) -> String {
    let text = |data: Option<Vec<u8>>| {
        data.map_or("(no file)".into(), |data| {
            String::from_utf8_lossy(&data).into_owned()
        })
    };
    let (wanted, got) = (text(wanted), text(got));
    let mut pairs = wanted.lines().zip(got.lines()).enumerate();
    match pairs.find(|(_, (wanted, got))| wanted != got) {
        Some((line, (wanted, got))) => {
            format!("{file}:{}: wanted {wanted:?}, got {got:?}", line + 1)
        }
        None => format!(
            "{file}: wanted {} lines, got {}",
            wanted.lines().count(),
            got.lines().count()
        ),
    }
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut folders: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    folders.sort();
    folders.into_iter().filter_map(Case::read).collect()
}

fn check(version: &str) {
    let cases = cases();
    assert_eq!(cases.len(), 140);
    let failures: Vec<String> = cases
        .iter()
        .flat_map(|case| {
            let name = case
                .folder
                .file_name()
                .unwrap()
                .to_string_lossy()
                .into_owned();
            case.differences(version)
                .into_iter()
                .map(move |text| format!("{name}: {text}"))
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{} differences\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn heaptrack_print_1_4() {
    check("1.4");
}

#[test]
fn heaptrack_print_1_5() {
    check("1.5");
}

#[test]
fn heaptrack_print_1_6() {
    check("1.6");
}
