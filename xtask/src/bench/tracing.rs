//! The task `bench tracing`: what recording costs, beside the other tracers that Debian has.
//!
//! All run the same work in turn, round by round, so that a slow minute of the machine hits all; medians
//! and spreads over the rounds are told. What is measured of a work is kept in `target/bench`, so that
//! works can be measured one by one; the document is written anew from all that is kept.

mod attach;
mod chart;
mod contenders;
mod document;
mod goals;
mod measure;
mod run;
mod samples;
mod serve;
mod tracers;
mod works;

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::place::Place;
use crate::command::command;
use crate::progress::{note, step};
use crate::setup::{packages, private_apt::PrivateApt};
use crate::workspace::Workspace;
use crate::{build, setup};
use contenders::Contender;
use samples::{Figure, Samples};
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
    /// Measure only these; the others' figures of before are kept.
    #[arg(long, value_enum, value_delimiter = ',')]
    tool: Vec<Contender>,
    /// Forget the figures of before of what is measured; else the new ones are added to them.
    #[arg(long)]
    anew: bool,
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

/// Names in the benchmark's directory.
const LIBBPF_TOOLS: &str = "libbpf-tools";
const KERNEL_HEADERS: &str = "kernel-headers";

fn kept(place: &Place, work: Work) -> PathBuf {
    place.file(&format!("{}.tsv", work.name()))
}

/// The task `bench tracing`. Prints figures as they come, and writes `docs/benchmarks.md`.
pub(crate) fn tracing(workspace: &Workspace, options: &Options) -> Result<()> {
    let place = Place::make(workspace, "bench/tracing")?;
    if !options.prepared {
        prepare(workspace, &place)?;
    }
    if options.prepare {
        return Ok(());
    }
    for &work in chosen(&options.work, &Work::ALL) {
        step(format_args!("{}", work.name()), || {
            measure_rounds(&place, work, options)
        })?;
    }
    document::write(&workspace.root.join("docs"), &place)
}

/// What was named, or all.
fn chosen<'a, T>(named: &'a [T], all: &'a [T]) -> &'a [T] {
    if named.is_empty() { all } else { named }
}

fn prepare(workspace: &Workspace, place: &Place) -> Result<()> {
    setup::setup(workspace, false)?;
    packages("programs that the benchmark needs", PACKAGES)?;
    libbpf_tools(&place.file(LIBBPF_TOOLS))?;
    kernel_headers(&place.file(KERNEL_HEADERS))?;
    let memleak = workspace.root.join("xtask/bench/memleak.py");
    std::fs::copy(memleak, place.file("memleak.py"))?;
    build::build(workspace, true)?;
    let options = ["-fomit-frame-pointer", "-pthread"];
    place.compile(workspace, "g++", "pairs.cpp", &options)
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

/// Runs all contenders that can do a work, round by round, and keeps each round at once.
fn measure_rounds(place: &Place, work: Work, options: &Options) -> Result<()> {
    let contenders = chosen(&options.tool, &Contender::ALL);
    let mut samples = Samples::read(&kept(place, work));
    if options.anew {
        contenders.iter().for_each(|&one| samples.forget(one));
    }
    for round in 1..=options.rounds {
        for &contender in contenders.iter().filter(|one| one.does(work, round)) {
            match measure::measure(place, contender, work) {
                Ok(sample) => {
                    let (unit, digits) = work.unit().shown();
                    let value = sample.get(Figure::Value);
                    note(format_args!(
                        "round {round}: {contender}: {value:.digits$} {unit}"
                    ));
                    samples.add(contender, sample);
                }
                // A tracer that cannot run here must not keep the others from being measured.
                Err(error) => note(format_args!("round {round}: {contender}: {error:#}")),
            }
        }
        samples.write(&kept(place, work))?;
    }
    Ok(())
}

/// Kernel, processor and versions of the tracers.
fn machine() -> Result<String> {
    let packages = ["bpftrace", "bpfcc-tools", "heaptrack", "valgrind"];
    let machine = crate::machine::machine(&packages)?;
    Ok(format!("{machine}, libbpf-tools of {LIBBPF_SUITE}."))
}
