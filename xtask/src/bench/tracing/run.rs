//! Runs a command to its end and watches what it takes.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::bench::kernel_stats::{self, Run};
use crate::command::{command, shown};

/// What a process took, as far as it was seen before its end.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) seconds: f64,
    /// Peak of resident memory in KiB, without its children's.
    pub(super) peak_kib: f64,
    /// CPU seconds, without its children's.
    pub(super) cpu: f64,
    /// Standard error.
    pub(super) said: String,
    /// Its BPF programs, and what they have cost if the kernel counts it.
    pub(super) programs: Vec<Run>,
}

/// Distance of looks at a process.
const LOOK: Duration = Duration::from_millis(5);
/// Nothing that is measured here takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a command; it must do well.
pub(super) fn to_end(what: &mut Command, said: &Path) -> Result<Taken> {
    let file = File::create(said)?;
    let begun = Instant::now();
    let mut child = what
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file)
        .spawn()
        .with_context(|| format!("starting `{}`", shown(what)))?;
    let mut taken = Taken::default();
    let status = loop {
        look(child.id(), &mut taken);
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            bail!("`{}` does not end", shown(what));
        }
        std::thread::sleep(LOOK);
    };
    taken.seconds = begun.elapsed().as_secs_f64();
    taken.said = String::from_utf8_lossy(&std::fs::read(said)?).into_owned();
    if !status.success() {
        bail!("`{}`: {status}: {}", shown(what), taken.said.trim());
    }
    Ok(taken)
}

/// Looks at a process that runs; one that has ended keeps what was seen.
pub(super) fn look(pid: u32, taken: &mut Taken) {
    /// `sysconf(_SC_CLK_TCK)` on Linux for x86-64.
    const TICKS_A_SECOND: f64 = 100.0;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|line| line.split_whitespace().next()?.parse().ok());
    taken.peak_kib = taken.peak_kib.max(peak.unwrap_or(0.0));
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // proc(5): fields 14 and 15, of which the name's parenthesis ends the second.
    let behind = stat.rsplit_once(") ").map_or("", |(_, behind)| behind);
    let ticks = behind.split(' ').skip(11).take(2);
    let ticks: f64 = ticks.filter_map(|field| field.parse::<f64>().ok()).sum();
    taken.cpu = taken.cpu.max(ticks / TICKS_A_SECOND);
    let programs = kernel_stats::runs(pid).unwrap_or_default();
    let runs = |programs: &[Run]| programs.iter().map(|run| run.count).sum::<u64>();
    if runs(&programs) >= runs(&taken.programs) {
        taken.programs = programs;
    }
}

/// Starts a program that says `ready`, and waits until it has.
pub(super) fn until_ready(what: &mut Command) -> Result<Child> {
    let mut child = what
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting `{}`", shown(what)))?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
    if line != "ready\n" {
        bail!("`{}` says {line:?}", shown(what));
    }
    Ok(child)
}

/// Ends a process as Ctrl-C would.
pub(super) fn interrupt(child: &mut Child) -> Result<()> {
    command("kill")
        .args(["-INT", &child.id().to_string()])
        .status()?;
    let begun = Instant::now();
    while child.try_wait()?.is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill()?;
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Waits for the end of a process.
pub(super) fn wait(child: &mut Child) -> Result<()> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            if status.success() {
                return Ok(());
            }
            bail!("the work ended with {status}");
        }
        if begun.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            bail!("the work does not end; was it ever probed?");
        }
        std::thread::sleep(LOOK);
    }
}
