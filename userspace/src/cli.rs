//! The command line: what was typed. What it means for a recording is worked out in `commands`.

mod function_names;

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{ArgAction, Args, Parser, Subcommand};

pub use self::function_names::FunctionNames;

/// Traces every heap allocation of a process, without changing it.
///
/// Starts PROGRAM, or attaches to a running process, and records all its allocations and frees
/// with their stacks into a file in heaptrack's format.
#[derive(Debug, Parser)]
#[command(
    name = "htrace-bpf",
    version,
    args_conflicts_with_subcommands = true,
    override_usage = "htrace-bpf [OPTIONS] -- PROGRAM [ARGS]...\n       \
                      htrace-bpf [OPTIONS] --pid PID\n       \
                      htrace-bpf report FILE"
)]
pub struct Cli {
    /// What to do, if not to record.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How to record.
    #[command(flatten)]
    pub record: RecordArgs,
}

/// What else there is to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Report on a trace file: who allocates most, what is live at the peak, what leaks.
    Report(crate::commands::report::Args),
    /// Compare two trace files: what appeared, vanished, grew and shrank.
    Diff(crate::commands::diff::Args),
    /// Draw a flame graph of a trace file as SVG.
    Flamegraph(crate::commands::flamegraph::Args),
    /// Tell whether a trace file is whole, and what is odd about it; without a file, what this
    /// system has for recording.
    Check(crate::commands::check::Args),
    /// Give names to the addresses of a raw heaptrack file.
    Interpret(crate::commands::interpret::Args),
}

/// How to record.
#[derive(Args, Debug)]
pub struct RecordArgs {
    /// Attach to this process instead of starting a program.
    #[arg(short, long, value_name = "PID", conflicts_with = "program")]
    pub pid: Option<u32>,
    /// Write the trace to FILE.zst; %p becomes the process id, %h the host name.
    /// [default: heaptrack.PROGRAM.PID.zst]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Stop recording after this time, such as 30s, 5m or 500ms.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Run the program as this user. [default: the user who called sudo, or the current one]
    #[arg(long, value_name = "USER", conflicts_with = "pid")]
    pub user: Option<String>,
    /// Say nothing but errors.
    #[arg(short, long)]
    pub quiet: bool,
    /// Say more: once for what is done, twice for details, three times to let the BPF programs
    /// log each call. RUST_LOG gives finer control.
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
    /// Size of the buffer between kernel and recorder in MiB, a power of two.
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = parse_ring_size)]
    pub ring_size: u32,
    /// What to do when the program allocates faster than can be recorded: let its threads pause
    /// until there is room again, or drop what finds no room and count it.
    #[arg(long, value_enum, value_name = "HOW", default_value = "pause")]
    pub on_overload: OverloadChoice,
    /// Longest pause of a thread; after it, what finds no room is dropped and counted.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_duration)]
    pub max_pause: Duration,
    /// End the recording when the trace file has this size, such as 500M or 2G.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max_size: Option<u64>,
    /// End the recording when htrace-bpf itself uses so much memory.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max_memory: Option<u64>,
    /// How to walk stacks: by unwind tables (eh-frame), by frame pointers (fp), or by unwind tables
    /// where the kernel can (auto).
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    pub unwind: UnwindChoice,
    /// Largest number of frames of a stack; deeper ones are cut at the outer end.
    #[arg(long, value_name = "N", default_value_t = 1024,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub max_frames: u32,
    /// Follow frame pointers through code without unwind data, such as what V8 makes at run time.
    /// Whether that code keeps them is a guess; how many stacks rest on it is told.
    #[arg(long)]
    pub guess_frame_pointers: bool,
    /// Leave out allocations of fewer bytes; K, M and G stand for powers of 1024.
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub min_size: Option<u64>,
    /// Record a sample of allocations: one in so many bytes on average, each with the chance that
    /// its size gives it. Sizes in the file are estimates without bias; counts are of the sample.
    #[arg(long, value_name = "BYTES", value_parser = parse_sample)]
    pub sample: Option<u64>,
    /// Record only what these threads allocate: names, as they are when they allocate, or ids,
    /// with commas between.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub threads: Vec<String>,
    /// Record only what is allocated below these functions, inlined ones too: names as reports show
    /// them, with or without argument lists, and commas between. Makes file and report smaller, but
    /// not the probes cheaper.
    #[arg(long, value_name = "NAMES", value_parser = function_names::parse)]
    pub functions: Option<FunctionNames>,
    /// Record nothing until this function is first called: the name of its symbol, as nm(1) tells
    /// it. Each of its calls costs a trap.
    #[arg(long, value_name = "FUNCTION", conflicts_with = "paused")]
    pub wait_for: Option<String>,
    /// Record nothing yet: SIGUSR1 to htrace-bpf begins or resumes, SIGUSR2 pauses.
    #[arg(long)]
    pub paused: bool,
    /// How hard to compress the file, from 1 (fast) to 19 (small).
    #[arg(long, value_name = "LEVEL", default_value_t = 9,
          value_parser = clap::value_parser!(i32).range(1..=19))]
    pub compression_level: i32,
    /// Give way to other programs, from 0 to 19, as nice(1) does; the recorded one is not changed.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..=19))]
    pub nice: Option<i32>,
    /// Convert and compress on these CPUs alone, such as 0,2-3.
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    pub cpu: Option<CpuList>,
    /// Attach with one perf event a probe, as on kernels before 6.6.
    #[arg(long, hide = true)]
    pub perf_links: bool,
    /// Probe every function at entry and return, even where one probe inside it would do.
    #[arg(long, hide = true)]
    pub return_probes: bool,
    /// The program to record, and its arguments.
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// What to do when the buffer between kernel and recorder fills up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OverloadChoice {
    /// Threads wait for room.
    Pause,
    /// What finds no room is dropped.
    Drop,
}

/// How to walk stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum UnwindChoice {
    /// By unwind tables where the kernel can, else by frame pointers.
    Auto,
    /// By unwind tables.
    EhFrame,
    /// By frame pointers.
    Fp,
}

/// A number with a unit: `ms`, `s` (also without), `m` or `h`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("unknown unit {unit:?}; use ms, s, m or h")),
    };
    let number: f64 = digits
        .parse()
        .map_err(|_| format!("{digits:?} is not a number"))?;
    Duration::try_from_secs_f64(number * factor).map_err(|error| error.to_string())
}

/// Numbers of CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(pub Vec<usize>);

/// Numbers and ranges of numbers, with commas between.
fn parse_cpus(text: &str) -> Result<CpuList, String> {
    /// Of a `cpu_set_t` (`CPU_SETSIZE`).
    const MOST: usize = 1024;
    let number = |digits: &str| match digits.parse::<usize>() {
        Ok(number) if number < MOST => Ok(number),
        _ => Err(format!("{digits:?} is not the number of a CPU")),
    };
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("{part:?} is no range"));
        }
        cpus.extend(first..=last);
    }
    Ok(CpuList(cpus))
}

/// A number of bytes, with a unit of 1024 to the power of one, two or three: `K`, `M` or `G`.
fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        unit => return Err(format!("unknown unit {unit:?}; use K, M or G")),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("{digits:?} is not a whole number"))?;
    let most = u64::MAX >> shift;
    (1..=most)
        .contains(&number)
        .then(|| number << shift)
        .ok_or_else(|| "out of range".to_owned())
}

/// Distances of samples that the programs can compute with.
fn parse_sample(text: &str) -> Result<u64, String> {
    const LARGEST: u64 = 1 << 30;
    match parse_size(text)? {
        size @ 1..=LARGEST => Ok(size),
        _ => Err("must be from 1 to 1G".to_owned()),
    }
}

/// A power of two up to what the kernel can take.
fn parse_ring_size(text: &str) -> Result<u32, String> {
    const LARGEST: u32 = 1024;
    match text.parse::<u32>() {
        Ok(size) if size.is_power_of_two() && size <= LARGEST => Ok(size),
        _ => Err(format!("must be a power of two from 1 to {LARGEST}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn a_program_comes_with_or_without_dashes() {
        let cli = Cli::try_parse_from(["htrace-bpf", "-o", "x", "--", "report", "-l"]).unwrap();
        assert_eq!(cli.record.program, ["report", "-l"]);
        let cli = Cli::try_parse_from(["htrace-bpf", "-q", "ls", "-R", "-o", "/usr"]).unwrap();
        assert_eq!(cli.record.program, ["ls", "-R", "-o", "/usr"]);
        assert_eq!(cli.record.output, None);
    }

    #[test]
    fn a_process_and_a_program_exclude_each_other() {
        assert!(Cli::try_parse_from(["htrace-bpf", "--pid", "1", "--", "ls"]).is_err());
        assert!(Cli::try_parse_from(["htrace-bpf", "--pid", "one"]).is_err());
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("7"), Ok(Duration::from_secs(7)));
        for wrong in ["", "s", "3d", "-1s", "1e400"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("7"), Ok(7));
        assert_eq!(parse_size("500M"), Ok(500 << 20));
        assert_eq!(parse_size("2G"), Ok(2 << 30));
        for wrong in ["", "0", "M", "1T", "-1", "1.5G", "99999999999G"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn samples_and_lists_are_read() {
        assert_eq!(parse_sample("1G"), Ok(1 << 30));
        assert!(parse_sample("0").is_err() && parse_sample("2G").is_err());
        assert_eq!(parse_cpus("0,2-4").unwrap().0, [0, 2, 3, 4]);
        for wrong in ["", "1-", "3-2", "1024", "x"] {
            assert!(parse_cpus(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ring_sizes_are_powers_of_two() {
        assert_eq!(parse_ring_size("16"), Ok(16));
        for wrong in ["0", "3", "2048", "x"] {
            assert!(parse_ring_size(wrong).is_err(), "{wrong}");
        }
    }
}
