//! The programs whose stacks are compared, and how each is made to allocate.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use crate::oracle::{self, Compiled};

/// A program with its arguments.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) command: Vec<String>,
    /// So many calls at least, or it did not do its work.
    pub(crate) at_least: u64,
    /// The exit status by which it says that it did.
    pub(crate) status: i32,
    /// Kept until it has run.
    _files: Vec<Compiled>,
}

impl Target {
    fn new(name: &'static str, at_least: u64, command: &[&str]) -> Self {
        Self {
            name,
            at_least,
            status: 0,
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            _files: Vec::new(),
        }
    }

    fn compiled(name: &'static str, at_least: u64, program: Compiled) -> Self {
        Self {
            command: vec![program.path()],
            _files: vec![program],
            ..Self::new(name, at_least, &[])
        }
    }
}

/// All of them.
pub(crate) fn all() -> Vec<Target> {
    let mut targets = Vec::from(interpreters());
    targets.extend(tools());
    targets.push(cc1plus());
    targets.push(rust());
    for (name, flags) in [
        ("tricky -O2", &["-O2", "-mavx2"][..]),
        ("tricky -O0", &["-O0"]),
        ("tricky -O3", &["-O3", "-fomit-frame-pointer"]),
    ] {
        let program = oracle::compile_cpp("tricky.cpp", flags);
        targets.push(Target::compiled(name, 1000, program));
    }
    targets.push(reload());
    targets
}

fn interpreters() -> [Target; 4] {
    let bash = "for i in {1..2000}; do x=${i}y; a[i]=$x; done; declare -p a | md5sum >/dev/null";
    let perl = "my %h; for my $i (1..20000) { my $s = 'x' . $i; $s =~ s/(\\d)/<$1>/g; $h{$s} = [$i] } \
                my @s = sort { $a cmp $b } keys %h; print scalar @s";
    let python = "\
import importlib
for name in ('json', 'ctypes', 'decimal', 'sqlite3', 'ssl', 'bz2', 'lzma', 'zlib', 'hashlib',
             'pyexpat', 'curses', 'readline', 'multiprocessing', 'asyncio', 'email', 'unittest'):
    try:
        importlib.import_module(name)
    except ImportError:
        pass
import ast, decimal, json, re
json.loads(json.dumps([{str(i): [i] * 3} for i in range(3000)]))
str(decimal.Decimal(2).sqrt(decimal.Context(prec=3000)))
compile(open(re.__file__).read(), 'x', 'exec')
";
    let node = "\
const zlib = require('zlib'), crypto = require('crypto');
const rows = Array.from({length: 500}, (_, i) => ({i, s: String(i).repeat(20)}));
zlib.gunzipSync(zlib.gzipSync(JSON.stringify(rows)));
crypto.createHash('sha256').update(JSON.stringify(rows)).digest('hex');
crypto.generateKeyPairSync('ec', {namedCurve: 'P-256'});";
    [
        Target::new("bash", 4000, &["bash", "-c", bash]),
        Target::new("perl", 20_000, &["perl", "-e", perl]),
        Target::new("python3", 10_000, &[&python3(), "-c", python]),
        Target::new("node", 20_000, &[&node_itself(), "-e", node]),
    ]
}

fn tools() -> [Target; 3] {
    let sql = "create table t(a, b); \
               with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000) \
               insert into t select i, hex(randomblob(20)) from n; \
               create index x on t(b); \
               select sum(length(b)), length(group_concat(b)) from t group by a % 7 order by b;";
    let git = ["git", "--no-pager", "diff", "--no-index", "--shortstat"];
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let (sources, tests) = (sources.to_str().unwrap(), tests.to_str().unwrap());
    let gdb = [
        "gdb",
        "-nx",
        "-batch",
        "-ex",
        "pipe info functions alloc | wc -l",
    ];
    // 1 stands for: there are differences.
    let differ = Target {
        status: 1,
        ..Target::new("git", 1000, &[&git[..], &[sources, tests]].concat())
    };
    [
        differ,
        Target::new("sqlite3", 3000, &["sqlite3", ":memory:", sql]),
        Target::new("gdb", 10_000, &[&gdb[..], &["/bin/bash"]].concat()),
    ]
}

/// The compiler proper, on headers that are full of templates. It gets a preprocessed file, since
/// only its driver knows where headers are.
fn cc1plus() -> Target {
    let preprocessed = oracle::compile_cpp("templates.cpp", &["-E"]);
    let named = Command::new("g++")
        .arg("-print-prog-name=cc1plus")
        .output()
        .unwrap();
    let program = String::from_utf8(named.stdout).unwrap();
    let options = [
        "-std=c++20",
        "-fpreprocessed",
        "-quiet",
        "-O1",
        "-o",
        "/dev/null",
    ];
    let file = preprocessed.path();
    let command = [&[program.trim()], &options[..], &[&file]].concat();
    Target {
        _files: vec![preprocessed],
        ..Target::new("cc1plus", 300_000, &command)
    }
}

/// The Rust program of the end-to-end tests.
const SHAPES: &str = "../../../../tests/targets/shapes.rs";

fn rust() -> Target {
    let flags = ["-Copt-level=3", "-Cforce-frame-pointers=no"];
    let program = oracle::compile("rustc", SHAPES, &flags, &[]);
    Target::compiled("rust", 50_000, program)
}

/// A program that loads two libraries in turn, so that each lies where the other one was.
fn reload() -> Target {
    let shared = ["-O2", "-fomit-frame-pointer", "-shared", "-fPIC"];
    let library =
        |layout: &str| oracle::compile("gcc", "layout.c", &[&shared[..], &[layout]].concat(), &[]);
    let (one, other) = (library("-DLAYOUT=1"), library("-DLAYOUT=2"));
    let program = oracle::compile("gcc", "reload.c", &["-O2"], &["-ldl"]);
    let command = [program.path(), one.path(), other.path()];
    let [program_path, one_path, other_path] = command.each_ref().map(String::as_str);
    Target {
        _files: vec![one, other, program],
        ..Target::new(
            "reload",
            20_000,
            &[program_path, one_path, other_path, "10000"],
        )
    }
}

/// The interpreter itself: `python3` in `PATH` may be a script that starts it.
fn python3() -> String {
    itself("python3", &["-c", "import sys; print(sys.executable)"])
}

/// As [`python3`].
fn node_itself() -> String {
    itself("node", &["-p", "process.execPath"])
}

fn itself(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.expect(program);
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Programs that are not installed: `cargo xtask setup --tests` installs them.
pub(crate) fn missing() -> Vec<&'static str> {
    let wanted = [
        "bash", "perl", "python3", "node", "git", "sqlite3", "gdb", "g++", "rustc",
    ];
    let path = env::var_os("PATH").unwrap_or_default();
    let is_there =
        |name: &str| env::split_paths(&path).any(|dir: PathBuf| dir.join(name).is_file());
    wanted.into_iter().filter(|name| !is_there(name)).collect()
}
