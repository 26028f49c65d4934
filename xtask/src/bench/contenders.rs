//! Who is measured, and how each is run.

use std::fmt;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::{place::Place, take_result};
use crate::command::{command, run, shown};

/// The loop.
const PROGRAM: &str = "malloc_loop";

/// Untraced loops are short: more pairs make their time sure.
const UNTRACED_FACTOR: u32 = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Contender {
    Untraced,
    /// Untraced, while htrace-bpf traces another process of the same program and libc.
    Bystander,
    Htrace,
    /// As users run it, with its interpreter and compression in the pipe.
    Heaptrack,
    Bpftrace,
}

impl Contender {
    pub(super) const ALL: [Self; 5] = [
        Self::Untraced,
        Self::Bystander,
        Self::Htrace,
        Self::Heaptrack,
        Self::Bpftrace,
    ];

    /// One run: nanoseconds a pair.
    pub(super) fn measure(self, place: &Place, pairs: u32) -> Result<f64> {
        match self {
            Self::Untraced => untraced(place, pairs)?,
            Self::Bystander => beside_a_traced_process(place, || untraced(place, pairs))?,
            Self::Htrace => quietly(htrace(place).arg("--").args(traced_loop(place, pairs)))?,
            Self::Heaptrack => quietly(heaptrack(place).args(traced_loop(place, pairs)))?,
            Self::Bpftrace => quietly(&mut bpftrace(place, pairs)?)?,
        }
        take_result(&place.result())
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Untraced => "untraced",
            Self::Bystander => "bystander of htrace-bpf",
            Self::Htrace => "htrace-bpf",
            Self::Heaptrack => "heaptrack",
            Self::Bpftrace => "bpftrace, with stacks",
        })
    }
}

fn traced_loop(place: &Place, pairs: u32) -> [std::ffi::OsString; 3] {
    [
        place.file(PROGRAM).into(),
        pairs.to_string().into(),
        place.result().into(),
    ]
}

fn untraced(place: &Place, pairs: u32) -> Result<()> {
    let pairs = pairs.saturating_mul(UNTRACED_FACTOR);
    run(command(place.file(PROGRAM))
        .arg(pairs.to_string())
        .arg(place.result()))
}

fn htrace(place: &Place) -> Command {
    let mut htrace = command(&place.htrace);
    htrace
        .arg("--quiet")
        .arg("-o")
        .arg(place.file("htrace.zst"));
    htrace
}

fn heaptrack(place: &Place) -> Command {
    let mut heaptrack = command("heaptrack");
    heaptrack.arg("-o").arg(place.file("heaptrack"));
    heaptrack
}

/// Keeps the live blocks with their stacks, as any tool for leaks must.
fn bpftrace(place: &Place, pairs: u32) -> Result<Command> {
    let libc = libc_of(place)?;
    let script = format!(
        "uprobe:{libc}:malloc {{ @size[tid] = arg0; }} \
         uretprobe:{libc}:malloc /@size[tid]/ {{ @live[retval] = ustack; delete(@size[tid]); }} \
         uprobe:{libc}:free {{ delete(@live[arg0]); }} \
         END {{ clear(@live); clear(@size); }}"
    );
    let words = traced_loop(place, pairs);
    let words = words
        .iter()
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>();
    let mut bpftrace = command("bpftrace");
    bpftrace.args(["-c", &words.join(" "), "-e", &script]);
    Ok(bpftrace)
}

/// The libc that the loop is linked with.
fn libc_of(place: &Place) -> Result<String> {
    let libraries = crate::command::capture(command("ldd").arg(place.file(PROGRAM)))?;
    let line = libraries
        .lines()
        .find(|line| line.trim_start().starts_with("libc.so"));
    let path = line.and_then(|line| line.split_whitespace().nth(2));
    path.map(str::to_owned)
        .context("the loop is not linked with a libc")
}

/// Runs a tracer; what it says is shown only if it fails.
fn quietly(tracer: &mut Command) -> Result<()> {
    let output = tracer
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("starting `{}`", shown(tracer)))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("`{}`: {}: {}", shown(tracer), output.status, words.trim());
    }
    Ok(())
}

/// Does `work` while htrace-bpf traces a process that has started and now waits.
fn beside_a_traced_process(place: &Place, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut other = htrace(place);
    other.arg("--").arg(place.file(PROGRAM)).arg("hold");
    let mut tracer = other
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting `{}`", shown(&other)))?;
    let mut ready = String::new();
    let heard = BufReader::new(tracer.stdout.take().context("no output")?).read_line(&mut ready);
    let outcome = match heard {
        Ok(_) if ready == "ready\n" => work(),
        _ => Err(anyhow::anyhow!("the traced process did not start")),
    };
    drop(tracer.stdin.take()); // ends the process, and with it the tracer
    let status = tracer.wait()?;
    outcome?;
    if !status.success() {
        bail!("`{}`: {status}", shown(&other));
    }
    Ok(())
}
