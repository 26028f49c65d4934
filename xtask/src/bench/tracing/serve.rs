//! A server that runs, and is sent requests.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::contenders::Contender;
use super::samples::Sample;
use super::{Place, attach, measure, run};
use crate::command::{capture, command};

const PORT: &str = "17379";

/// The server is started, or run under heaptrack; htrace-bpf attaches to it. What counts is the time
/// in which it answers.
pub(super) fn serve(place: &Place, contender: Contender) -> Result<Sample> {
    let mut server = match contender {
        Contender::Heaptrack => measure::tracing(place, contender, &words())?,
        _ => measure::tracing(place, Contender::Untraced, &words())?,
    };
    let mut running = quiet(&mut server).spawn()?;
    let measured = answering().and_then(|()| match contender {
        Contender::Htrace => traced(place, running.id()),
        _ => Ok((load()?, run::Taken::default())),
    });
    stop(&mut running)?;
    let (seconds, taken) = measured?;
    // The file is whole only now.
    let sample = Sample::of(seconds);
    Ok(measure::with_rest(place, contender, sample, &taken))
}

fn words() -> Vec<String> {
    let words = [
        "redis-server",
        "--port",
        PORT,
        "--save",
        "",
        "--appendonly",
        "no",
    ];
    words.map(str::to_owned).into()
}

fn traced(place: &Place, pid: u32) -> Result<(f64, run::Taken)> {
    let mut tracer = attach::attached(place, pid)?;
    let seconds = load();
    let mut taken = run::Taken::default();
    run::look(tracer.id(), &mut taken);
    run::interrupt(&mut tracer)?;
    taken.said = std::fs::read_to_string(place.file("said"))?;
    Ok((seconds?, taken))
}

/// Seconds for many requests.
fn load() -> Result<f64> {
    let begun = Instant::now();
    capture(command("redis-benchmark").args([
        "-p", PORT, "-n", "20000", "-c", "10", "-t", "set", "-r", "10000", "-d", "100", "-q",
    ]))?;
    Ok(begun.elapsed().as_secs_f64())
}

fn answering() -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        let mut ping = command("redis-cli");
        ping.args(["-p", PORT, "ping"]).stderr(Stdio::null());
        if capture(&mut ping).is_ok_and(|answer| answer.trim() == "PONG") {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("the server does not answer")
}

fn stop(server: &mut Child) -> Result<()> {
    let stopped = capture(command("redis-cli").args(["-p", PORT, "shutdown", "nosave"]));
    if stopped.is_err() {
        server.kill()?;
    }
    server.wait().context("waiting for the server")?;
    Ok(())
}

fn quiet(what: &mut Command) -> &mut Command {
    what.stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
}
