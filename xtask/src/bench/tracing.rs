//! The task `bench tracing`: what recording costs, beside the other tracers that Debian has.
//!
//! All run the same work in turn, round by round, so that a slow minute of the machine hits all; medians
//! and spreads over the rounds are told. What is measured of a work is kept in `target/bench`, so that
//! works can be measured one by one; the document is written anew from all that is kept.

mod chart;
mod contenders;
mod document;
mod run;
mod samples;
mod works;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::command::{command, run as run_command};
use crate::progress::{note, step};
use crate::setup::{packages, private_apt::PrivateApt};
use crate::workspace::Workspace;
use crate::{build, setup};
use contenders::Contender;
use samples::Samples;
use works::Work;

/// Debian's packages with the other tracers and with the programs that are recorded.
const PACKAGES: &[&str] = &[
    "bpfcc-tools",
    "bpftrace",
    "g++",
    "heaptrack",
    "linux-headers-cloud-amd64", // bcc compiles against some kernel's
    "python3",
    "redis-server",
    "redis-tools",
    "sqlite3",
    "valgrind",
];

/// Where libbpf's tools are new enough to trace user memory.
const LIBBPF_SUITE: &str = "sid";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Measure only these works; the others' figures of before are kept.
    #[arg(long, value_enum, value_delimiter = ',')]
    work: Vec<Work>,
    /// How often each contender runs.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Install and build what is needed, and measure nothing.
    #[arg(long)]
    prepare: bool,
    /// Install and build nothing.
    #[arg(long, conflicts_with = "prepare")]
    prepared: bool,
}

/// Where the benchmark's files lie.
#[derive(Debug)]
struct Place {
    dir: PathBuf,
    htrace: PathBuf,
}

impl Place {
    fn of(workspace: &Workspace) -> Result<Self> {
        let dir = workspace.target.join("bench/tracing");
        std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        Ok(Self {
            dir,
            htrace: workspace.binary(true),
        })
    }

    fn pairs(&self) -> PathBuf {
        self.dir.join("pairs")
    }

    fn result(&self) -> PathBuf {
        self.dir.join("result")
    }

    fn libbpf_tools(&self) -> PathBuf {
        self.dir.join("libbpf-tools")
    }

    fn kernel_headers(&self) -> PathBuf {
        self.dir.join("kernel-headers")
    }

    fn samples(&self, work: Work) -> PathBuf {
        self.dir.join(format!("{}.tsv", work.name()))
    }
}

/// The task `bench tracing`. Prints figures as they come, and writes `docs/benchmarks.md`.
pub(crate) fn tracing(workspace: &Workspace, options: &Options) -> Result<()> {
    let place = Place::of(workspace)?;
    if !options.prepared {
        prepare(workspace, &place)?;
    }
    if options.prepare {
        return Ok(());
    }
    let works = match options.work.as_slice() {
        [] => Work::ALL.to_vec(),
        some => some.to_vec(),
    };
    for work in works {
        step(format_args!("{}", work.name()), || {
            measure(&place, work, options.rounds)?.write(&place.samples(work))
        })?;
    }
    document::write(&workspace.root.join("docs"), &place)
}

fn prepare(workspace: &Workspace, place: &Place) -> Result<()> {
    setup::setup(workspace, false)?;
    packages("programs that the benchmark needs", PACKAGES)?;
    libbpf_tools(&place.libbpf_tools())?;
    kernel_headers(&place.kernel_headers())?;
    let memleak = workspace.root.join("xtask/bench/memleak.py");
    std::fs::copy(memleak, place.dir.join("memleak.py"))?;
    build::build(workspace, true)?;
    run_command(
        command("g++")
            .args(["-O2", "-fomit-frame-pointer", "-Wall", "-pthread", "-o"])
            .arg(place.pairs())
            .arg(workspace.root.join("xtask/bench/pairs.cpp")),
    )
}

fn libbpf_tools(dir: &Path) -> Result<()> {
    let root = dir.join("root");
    if root.join("usr/sbin/memleak-libbpf").exists() {
        return Ok(());
    }
    step("libbpf's tools with their own libraries", || {
        let apt = PrivateApt::new(dir, LIBBPF_SUITE)?;
        apt.update()?;
        let names = [
            "libbpf-tools",
            "libbpf1",
            "libc6",
            "libelf1t64",
            "libzstd1",
            "zlib1g",
        ];
        apt.unpack(&names, &root)
    })
}

/// bcc compiles against one directory of headers; Debian has two for a kernel.
fn kernel_headers(dir: &Path) -> Result<()> {
    if dir.exists() {
        return Ok(());
    }
    let all = std::fs::read_dir("/usr/src")?
        .flatten()
        .map(|entry| entry.path());
    let mut parts: Vec<PathBuf> = all
        .filter(|path| path.to_string_lossy().contains("/linux-headers-"))
        .collect();
    // `…-common` last in the alphabet, and yet below.
    parts.sort_by_key(|path| !path.to_string_lossy().ends_with("-common"));
    std::fs::create_dir_all(dir)?;
    for part in parts {
        // Links that are there already point to the same file.
        let copied = command("cp")
            .args(["--recursive", "--symbolic-link", "--force"])
            .arg(part.join("."))
            .arg(dir)
            .stderr(std::process::Stdio::null())
            .status()?;
        if !copied.success() {
            note(format_args!("not all of {} was linked", part.display()));
        }
    }
    Ok(())
}

/// Runs all contenders that can do a work, round by round.
fn measure(place: &Place, work: Work, rounds: u32) -> Result<Samples> {
    let mut samples = Samples::default();
    for round in 1..=rounds {
        for contender in Contender::ALL {
            if !contender.does(work) {
                continue;
            }
            match contender.measure(place, work) {
                Ok(sample) => {
                    note(format_args!(
                        "round {round}: {contender}: {}",
                        sample.told(work)
                    ));
                    samples.add(contender, sample);
                }
                // A tracer that cannot run here must not keep the others from being measured.
                Err(error) => note(format_args!("round {round}: {contender}: {error:#}")),
            }
        }
    }
    Ok(samples)
}

/// Kernel, processor and versions of the tracers.
fn machine() -> Result<String> {
    let packages = ["bpftrace", "bpfcc-tools", "heaptrack", "valgrind"];
    let machine = crate::machine::machine(&packages)?;
    Ok(format!("{machine}, libbpf-tools of {LIBBPF_SUITE}."))
}
