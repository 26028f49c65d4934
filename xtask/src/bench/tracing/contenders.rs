//! Who is measured, and how each is run.

use std::ffi::OsString;
use std::fmt;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::samples::Sample;
use super::works::{Work, set_environment};
use super::{Place, run};
use crate::command::{capture, command};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Contender {
    Untraced,
    /// A probe on malloc that does nothing: what a trap costs.
    EmptyProbe,
    Htrace,
    /// With a return probe on malloc, as tracers commonly do.
    HtraceReturnProbes,
    /// One allocation in 512 KiB.
    HtraceSampled,
    Bpftrace,
    BccMemleak,
    LibbpfMemleak,
    /// With its interpreter and compression in the pipe, as users run it.
    Heaptrack,
    /// Its recorder alone.
    HeaptrackRaw,
    Massif,
    Dhat,
}

/// The library whose malloc the peers probe.
const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

impl Contender {
    pub(super) const ALL: [Self; 12] = [
        Self::Untraced,
        Self::EmptyProbe,
        Self::Htrace,
        Self::HtraceReturnProbes,
        Self::HtraceSampled,
        Self::Bpftrace,
        Self::BccMemleak,
        Self::LibbpfMemleak,
        Self::Heaptrack,
        Self::HeaptrackRaw,
        Self::Massif,
        Self::Dhat,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Untraced => "untraced",
            Self::EmptyProbe => "empty probe on malloc (bpftrace)",
            Self::Htrace => "htrace-bpf",
            Self::HtraceReturnProbes => "htrace-bpf --return-probes",
            Self::HtraceSampled => "htrace-bpf --sample 512K",
            Self::Bpftrace => "bpftrace, with stacks",
            Self::BccMemleak => "memleak of bcc",
            Self::LibbpfMemleak => "memleak of libbpf-tools",
            Self::Heaptrack => "heaptrack",
            Self::HeaptrackRaw => "heaptrack --raw",
            Self::Massif => "valgrind massif",
            Self::Dhat => "valgrind dhat",
        }
    }

    pub(super) const fn is_htrace(self) -> bool {
        matches!(
            self,
            Self::Htrace | Self::HtraceReturnProbes | Self::HtraceSampled
        )
    }

    /// Whether it takes part in a work.
    pub(super) const fn does(self, work: Work) -> bool {
        match work {
            Work::Loop | Work::Deep | Work::DeepTwo => true,
            Work::Python | Work::Sqlite | Work::Cc1plus => matches!(
                self,
                Self::Untraced
                    | Self::Htrace
                    | Self::HtraceSampled
                    | Self::Bpftrace
                    | Self::Heaptrack
            ),
            Work::Redis => matches!(self, Self::Untraced | Self::Htrace | Self::Heaptrack),
            Work::Attach => matches!(self, Self::Htrace),
        }
    }

    /// Pairs of malloc and free for a time that is short and yet sure.
    const fn pairs(self) -> u32 {
        match self {
            Self::Untraced => 20_000_000,
            Self::EmptyProbe | Self::Htrace | Self::HtraceReturnProbes | Self::HtraceSampled => {
                400_000
            }
            Self::Heaptrack | Self::HeaptrackRaw => 400_000,
            Self::Massif | Self::Dhat => 200_000,
            Self::Bpftrace | Self::BccMemleak | Self::LibbpfMemleak => 60_000,
        }
    }

    pub(super) fn measure(self, place: &Place, work: Work) -> Result<Sample> {
        // No run may be taken for the next.
        let _absent = std::fs::remove_file(place.result());
        match work {
            Work::Attach => self.attach(place),
            Work::Redis => self.serve(place),
            _ => match (work.pairs(), self) {
                (Some(shape), Self::BccMemleak | Self::LibbpfMemleak) => self.beside(place, shape),
                (Some(shape), _) => self.around_pairs(place, shape),
                (None, _) => self.around(place, &work.program(place)?.context("no program")?),
            },
        }
    }

    /// Runs a program under the tracer; its own time from begin to end counts.
    fn around(self, place: &Place, words: &[String]) -> Result<Sample> {
        let taken = run::to_end(
            set_environment(&mut self.tracing(place, words)?),
            &place.dir.join("said"),
        )?;
        Ok(Sample {
            value: taken.seconds,
            ..self.sample(place, &taken)
        })
    }

    fn around_pairs(self, place: &Place, (depth, threads): (u32, u32)) -> Result<Sample> {
        let words = self.pair_words(place, depth, threads);
        let taken = run::to_end(&mut self.tracing(place, &words)?, &place.dir.join("said"))?;
        let (value, target_kib) = take_result(place)?;
        Ok(Sample {
            value,
            target_kib,
            ..self.sample(place, &taken)
        })
    }

    /// Lets the tracer attach to the program, which waits for it.
    fn beside(self, place: &Place, (depth, threads): (u32, u32)) -> Result<Sample> {
        let words = self.pair_words(place, depth, threads);
        let mut work = run::until_ready(command(&words[0]).args(&words[1..]).arg("attached"))?;
        let pid = work.id().to_string();
        let mut tracer = match self {
            Self::BccMemleak => bcc_memleak(place, &pid),
            _ => libbpf_memleak(place, &pid),
        };
        let said = std::fs::File::create(place.dir.join("said"))?;
        let mut tracer = tracer
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()?;
        let ended = run::wait(&mut work);
        let mut taken = run::Taken::default();
        run::look(tracer.id(), &mut taken);
        run::interrupt(&mut tracer)?;
        ended?;
        let (value, target_kib) = take_result(place)?;
        Ok(Sample {
            value,
            target_kib,
            ..self.sample(place, &taken)
        })
    }

    fn pair_words(self, place: &Place, depth: u32, threads: u32) -> Vec<String> {
        vec![
            place.pairs().to_string_lossy().into_owned(),
            depth.to_string(),
            threads.to_string(),
            self.pairs().to_string(),
            place.result().to_string_lossy().into_owned(),
        ]
    }

    /// The command that runs a program under the tracer.
    fn tracing(self, place: &Place, words: &[String]) -> Result<Command> {
        let mut tracer = match self {
            Self::Untraced => {
                let mut own = command(&words[0]);
                own.args(&words[1..]);
                return Ok(own);
            }
            Self::EmptyProbe => return Ok(bpftrace(words, &format!("uprobe:{LIBC}:malloc {{ }}"))),
            Self::Bpftrace => return Ok(bpftrace(words, &with_stacks())),
            Self::Htrace => htrace(place, &["--"]),
            Self::HtraceReturnProbes => htrace(place, &["--return-probes", "--"]),
            Self::HtraceSampled => htrace(place, &["--sample", "512K", "--"]),
            Self::Heaptrack => heaptrack(place, &[]),
            Self::HeaptrackRaw => heaptrack(place, &["--raw"]),
            Self::Massif => valgrind(place, "massif", "--massif-out-file="),
            Self::Dhat => valgrind(place, "dhat", "--dhat-out-file="),
            Self::BccMemleak | Self::LibbpfMemleak => bail!("it attaches to what runs"),
        };
        tracer.args(words);
        Ok(tracer)
    }

    /// What is known of a run besides its value.
    fn sample(self, place: &Place, taken: &run::Taken) -> Sample {
        let size = |name: &str| {
            let file = std::fs::metadata(place.dir.join(name));
            file.map_or(0.0, |file| file.len() as f64)
        };
        Sample {
            tracer_kib: if self.is_htrace() {
                taken.peak_kib
            } else {
                0.0
            },
            tracer_cpu: if self.is_htrace() { taken.cpu } else { 0.0 },
            file_bytes: match self {
                Self::Heaptrack => size("heaptrack.zst"),
                _ if self.is_htrace() => size("htrace.zst"),
                _ => 0.0,
            },
            lost: lost(&taken.said),
            ..Sample::default()
        }
    }

    /// A server that runs, and is sent requests.
    fn serve(self, place: &Place) -> Result<Sample> {
        const PORT: &str = "17379";
        let server = [
            "redis-server",
            "--port",
            PORT,
            "--save",
            "",
            "--appendonly",
            "no",
        ];
        let server: Vec<String> = server.map(str::to_owned).into();
        let mut tracer = match self {
            Self::Htrace => self.tracing(place, &server[..0])?,
            _ => self.tracing(place, &server)?,
        };
        let mut running = match self {
            Self::Htrace => quiet(command(&server[0]).args(&server[1..])).spawn()?,
            _ => quiet(&mut tracer).spawn()?,
        };
        let measured = answering(PORT).and_then(|()| {
            let beside = (self == Self::Htrace).then(|| attached(place, running.id()));
            let beside = beside.transpose()?;
            let begun = Instant::now();
            let load = [
                "-p", PORT, "-n", "20000", "-c", "10", "-t", "set", "-r", "10000", "-d", "100",
            ];
            capture(command("redis-benchmark").args(load).arg("-q"))?;
            let value = begun.elapsed().as_secs_f64();
            let mut taken = run::Taken::default();
            if let Some(mut beside) = beside {
                run::look(beside.id(), &mut taken);
                run::interrupt(&mut beside)?;
            }
            Ok(Sample {
                value,
                ..self.sample(place, &taken)
            })
        });
        let stopped = capture(command("redis-cli").args(["-p", PORT, "shutdown", "nosave"]));
        if stopped.is_err() {
            running.kill()?;
        }
        running.wait()?;
        measured
    }

    /// Attaches to an interpreter with its libraries, and to a program that looks for pauses.
    fn attach(self, place: &Place) -> Result<Sample> {
        const LIBRARIES: &str = "import ssl,sqlite3,ctypes,lzma,bz2,zlib,decimal,hashlib,sys\n\
                                 print('ready',flush=True);sys.stdin.read()";
        let python = ["python3", "-c", LIBRARIES];
        let mut target = run::until_ready(command(python[0]).args(&python[1..]))?;
        let (value, detach) = timed_attach(place, target.id())?;
        drop(target.stdin.take());
        target.wait()?;
        let mut gaps = run::until_ready(command(place.pairs()).arg("gaps").arg(place.result()))?;
        timed_attach(place, gaps.id())?;
        let mut input = gaps.stdin.take().context("no input")?;
        input.write_all(b"\n")?;
        drop(input);
        gaps.wait()?;
        let (pause, _) = take_result(place)?;
        Ok(Sample {
            value,
            detach,
            pause,
            ..Sample::default()
        })
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// Milliseconds until all probes are live, and until they are gone and the file is whole.
fn timed_attach(place: &Place, pid: u32) -> Result<(f64, f64)> {
    let begun = Instant::now();
    let mut tracer = attached(place, pid)?;
    let attach = begun.elapsed();
    std::thread::sleep(Duration::from_millis(200)); // it records for a while
    let begun = Instant::now();
    run::interrupt(&mut tracer)?;
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    Ok((milliseconds(attach), milliseconds(begun.elapsed())))
}

/// htrace-bpf attached to a process.
fn attached(place: &Place, pid: u32) -> Result<Child> {
    let mut tracer = command(&place.htrace);
    tracer
        .args(["--pid", &pid.to_string(), "-o"])
        .arg(place.dir.join("htrace.zst"));
    let mut tracer = tracer
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(tracer.stderr.take().context("no output")?);
    let mut line = String::new();
    while !line.contains("recording PID") {
        line.clear();
        if lines.read_line(&mut line)? == 0 {
            bail!("htrace-bpf did not attach");
        }
    }
    // Its last words must find somebody who reads.
    std::thread::spawn(move || lines.lines().for_each(drop));
    Ok(tracer)
}

fn answering(port: &str) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        let answer = capture(
            command("redis-cli")
                .args(["-p", port, "ping"])
                .stderr(Stdio::null()),
        );
        if answer.is_ok_and(|answer| answer.trim() == "PONG") {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("the server does not answer")
}

fn quiet(what: &mut Command) -> &mut Command {
    what.stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
}

/// What the pairs wrote. The file is removed, so that no run can be taken for the next.
fn take_result(place: &Place) -> Result<(f64, f64)> {
    let text = std::fs::read_to_string(place.result()).context("the work left no result")?;
    std::fs::remove_file(place.result())?;
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(value)), Some(Ok(peak))) => Ok((value, peak)),
        _ => bail!("result of the work: {text:?}"),
    }
}

/// Sum of the events that a tracer says are lost.
fn lost(said: &str) -> f64 {
    let number = |line: &str| {
        let line = line.to_lowercase();
        let is_loss = line.starts_with("lost ") || line.starts_with("frees not seen");
        let mut words = line.split(|c: char| !c.is_ascii_digit());
        is_loss.then(|| words.find_map(|word| word.parse::<f64>().ok()))?
    };
    // An empty sum of floats is -0.
    said.lines()
        .filter_map(number)
        .fold(0.0, |sum, one| sum + one)
}

fn htrace(place: &Place, options: &[&str]) -> Command {
    let mut htrace = command(&place.htrace);
    htrace
        .arg("-o")
        .arg(place.dir.join("htrace.zst"))
        .args(options);
    htrace
}

fn heaptrack(place: &Place, options: &[&str]) -> Command {
    let mut heaptrack = command("heaptrack");
    heaptrack
        .arg("-o")
        .arg(place.dir.join("heaptrack"))
        .args(options);
    heaptrack
}

fn valgrind(place: &Place, tool: &str, output: &str) -> Command {
    let mut option = OsString::from(output);
    option.push(place.dir.join("valgrind.out"));
    let mut valgrind = command("valgrind");
    valgrind.arg(format!("--tool={tool}")).arg(option);
    valgrind
}

fn bpftrace(words: &[String], script: &str) -> Command {
    let quoted = |word: &String| format!("'{}'", word.replace('\'', r"'\''"));
    let line: Vec<String> = words.iter().map(quoted).collect();
    let mut bpftrace = command("bpftrace");
    // It has no shell, so quotes would be part of words.
    let line = if words.iter().any(|word| word.contains([' ', '\n'])) {
        format!("/bin/sh -c {}", line.join(" "))
    } else {
        words.join(" ")
    };
    bpftrace.args(["-c", &line, "-e", script]);
    bpftrace
}

/// Keeps the live blocks with their stacks, as any tool for leaks must.
fn with_stacks() -> String {
    format!(
        "uprobe:{LIBC}:malloc {{ @size[tid] = arg0; }} \
         uretprobe:{LIBC}:malloc /@size[tid]/ {{ @live[retval] = ustack; delete(@size[tid]); }} \
         uprobe:{LIBC}:free {{ delete(@live[arg0]); }} \
         END {{ clear(@live); clear(@size); }}"
    )
}

fn bcc_memleak(place: &Place, pid: &str) -> Command {
    // Debian's own interpreter, for which its module is made.
    let mut memleak = command("/usr/bin/python3");
    memleak
        .env("BCC_KERNEL_SOURCE", place.kernel_headers())
        .arg(place.dir.join("memleak.py"))
        .args(["-p", pid, "1000"]);
    memleak
}

/// By its own loader and libraries, which are of another suite.
fn libbpf_memleak(place: &Place, pid: &str) -> Command {
    let root = place.libbpf_tools().join("root");
    let libraries = root.join("usr/lib/x86_64-linux-gnu");
    let mut memleak = command(libraries.join("ld-linux-x86-64.so.2"));
    memleak
        .arg("--library-path")
        .arg(&libraries)
        .arg(root.join("usr/sbin/memleak-libbpf"))
        .args(["-p", pid, "-O", LIBC, "1000"]);
    memleak
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_added_up() {
        assert_eq!(
            lost("lost frees-ring-full: 7\nLost 3 events\nnothing lost\n"),
            10.0
        );
        assert_eq!(lost("heaptrack stats:\n"), 0.0);
    }
}
