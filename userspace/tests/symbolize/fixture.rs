//! Compiles the programs of `tests/fixtures`, runs them, and looks at them as the recorder does.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use htrace_bpf::modules::{FileRoot, ModuleTable, ProcOpener};
use htrace_bpf::symbolize::{Frame, Symbolizer};

pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

/// Runs a tool to its end; it has to succeed.
pub(crate) fn run<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program}: {}\n{errors}",
        output.status
    );
}

/// Compiles a fixture into `directory/name` with the given options.
pub(crate) fn compile(directory: &Path, fixture: &str, name: &str, options: &[&str]) -> PathBuf {
    let program = directory.join(name);
    let compiler = match Path::new(fixture).extension().and_then(OsStr::to_str) {
        Some("cpp") => "g++",
        Some("rs") => "rustc",
        _ => "gcc",
    };
    let paths = [source(fixture), PathBuf::from("-o"), program.clone()];
    let options = options.iter().map(PathBuf::from);
    run(
        compiler,
        paths.into_iter().chain(options).collect::<Vec<_>>(),
    );
    program
}

/// A fixture that runs until it is dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
    output: BufReader<ChildStdout>,
}

/// Where a fixture said that it was: the line and the address behind the call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) line: u32,
    pub(crate) address: u64,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("fixture starts");
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads what it prints up to the line `ready`.
    pub(crate) fn places(&mut self) -> HashMap<String, Place> {
        let mut places = HashMap::new();
        loop {
            let mut line = String::new();
            self.output.read_line(&mut line).unwrap();
            if line == "ready\n" {
                return places;
            }
            let [kind, number, address] = line.split_whitespace().collect::<Vec<_>>()[..] else {
                panic!("the fixture printed {line:?}");
            };
            let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap();
            let place = Place {
                line: number.parse().unwrap(),
                address,
            };
            places.insert(kind.to_owned(), place);
        }
    }

    pub(crate) fn send(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
    }

    pub(crate) fn maps(&self) -> Vec<u8> {
        std::fs::read(format!("/proc/{}/maps", self.pid())).unwrap()
    }

    pub(crate) fn opener(&self) -> ProcOpener {
        ProcOpener::new(Path::new("/proc"), self.pid())
    }

    /// Ends it and waits for that.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A fixture with its modules, as the recorder sees it.
pub(crate) struct Traced {
    pub(crate) running: Running,
    pub(crate) places: HashMap<String, Place>,
    pub(crate) table: ModuleTable,
    pub(crate) symbolizer: Symbolizer,
}

impl Traced {
    pub(crate) fn start(program: &Path) -> Self {
        Self::start_command(&mut Command::new(program))
    }

    pub(crate) fn start_command(command: &mut Command) -> Self {
        let mut running = Running::start(command);
        let places = running.places();
        let opener = Arc::new(running.opener());
        let symbolizer = Symbolizer::new(opener.root());
        let mut table = ModuleTable::new(opener, 64);
        table.update(&running.maps());
        Self {
            running,
            places,
            table,
            symbolizer,
        }
    }

    /// Has debug files be looked for in this directory alone.
    pub(crate) fn set_root(&mut self, root: &Path) {
        let root = FileRoot::open_directory(root).unwrap();
        self.symbolizer = Symbolizer::with_roots(vec![Arc::new(root)]);
    }

    /// The frames at a place that the fixture told.
    pub(crate) fn frames(&mut self, kind: &str) -> Vec<Frame> {
        let place = self.places[kind];
        self.frames_at(place.address - 1)
    }

    pub(crate) fn frames_at(&mut self, address: u64) -> Vec<Frame> {
        let location = self.table.locate(address).expect("the address is mapped");
        let module = Arc::clone(self.table.module(location.module).unwrap());
        match location.virtual_address {
            Some(virtual_address) => self.symbolizer.symbolize(&module, virtual_address),
            None => Vec::new(),
        }
    }

    /// Function and line of the innermost frame.
    pub(crate) fn innermost(&mut self, kind: &str) -> (Option<String>, Option<u32>) {
        self.frames(kind)
            .into_iter()
            .next()
            .map_or((None, None), |f| (f.function, f.line))
    }

    pub(crate) fn line(&self, kind: &str) -> u32 {
        self.places[kind].line
    }
}
