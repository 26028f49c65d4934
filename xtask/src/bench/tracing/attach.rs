//! Attaching to what runs, and how long that and detaching take.

use std::fs::File;
use std::io::Write as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::measure::take_result;
use super::samples::{Figure, Sample};
use super::{Place, run};
use crate::command::{capture, command};

/// A program with so many libraries, LLVM's among them.
const WITH_LIBRARIES: &str = "/usr/bin/bpftrace";

/// Attaches to a program with the libraries of another one, which looks for its own pauses. The
/// first time, tables are made and kept.
pub(super) fn attach(place: &Place) -> Result<Sample> {
    once(place)?;
    once(place)
}

fn once(place: &Place) -> Result<Sample> {
    let mut program = command(place.file("pairs"));
    program
        .arg("gaps")
        .arg(place.result())
        .env("LD_PRELOAD", libraries()?.join(":"));
    let mut target = run::until_ready(&mut program)?;
    let begun = Instant::now();
    let mut tracer = attached(place, target.id())?;
    let attach = begun.elapsed();
    std::thread::sleep(Duration::from_millis(200)); // it records for a while
    let begun = Instant::now();
    run::interrupt(&mut tracer)?;
    let detach = begun.elapsed();
    let mut input = target.stdin.take().context("no input")?;
    input.write_all(b"\n")?;
    drop(input);
    target.wait()?;
    let (pause, _) = take_result(place)?;
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    Ok(Sample::of(milliseconds(attach))
        .with(Figure::Detach, milliseconds(detach))
        .with(Figure::Pause, pause))
}

fn libraries() -> Result<Vec<String>> {
    let lines = capture(command("ldd").arg(WITH_LIBRARIES))?;
    let paths = lines.lines().filter_map(|line| line.split("=> ").nth(1));
    let paths = paths.filter_map(|rest| rest.split_whitespace().next());
    Ok(paths.map(str::to_owned).collect())
}

/// htrace-bpf attached to a process. What it says goes to the file `said`.
pub(super) fn attached(place: &Place, pid: u32) -> Result<Child> {
    let said = place.file("said");
    let mut tracer = super::tracers::htrace(place, &["--pid", &pid.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&said)?)
        .spawn()?;
    while !std::fs::read_to_string(&said)?.contains("recording PID") {
        if tracer.try_wait()?.is_some() {
            bail!("htrace-bpf did not attach");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(tracer)
}
