//! Recording: turns what was typed into what is to be recorded, and maps failures to exit
//! statuses.

use std::{process::ExitCode, time::Duration};

use crate::{
    cli::{OverloadChoice, RecordArgs, UnwindChoice},
    loader::{Settings, ThreadChoice, Unwind},
    session::{self, Limits, Options, Target, Verbosity},
    sys::scheduling::Scheduling,
    target::LaunchError,
};

/// Records, and returns the exit status that this process is to have.
#[must_use]
pub fn run(args: RecordArgs) -> ExitCode {
    let options = options(args);
    let verbosity = options.verbosity;
    let default = options.target.failure_status();
    match record(options) {
        Ok(status) => status.into(),
        Err(error) => {
            verbosity.complain(&format!("htrace-bpf: {error:#}"));
            let status = error
                .downcast_ref()
                .map_or(default, LaunchError::exit_status);
            status.into()
        }
    }
}

/// Signals have to be blocked before any other thread exists, so everything runs on this one but
/// for what the session starts itself.
fn record(options: Options) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(session::record(options))
}

fn options(args: RecordArgs) -> Options {
    const LOG_FROM: u8 = 3;
    let mut words = args.program.into_iter();
    let target = match (args.pid, words.next()) {
        (None, Some(program)) => Target::Launch {
            program,
            arguments: words.collect(),
            user: args.user,
        },
        (pid, _) => Target::Attach {
            pid: pid.unwrap_or_default(),
        },
    };
    Options {
        target,
        output: args.output,
        duration: args.duration,
        limits: Limits {
            file: args.max_size,
            memory: args.max_memory,
        },
        verbosity: if args.quiet {
            Verbosity::Quiet
        } else {
            Verbosity::Normal
        },
        compression_level: args.compression_level,
        scheduling: Scheduling {
            nice: args.nice,
            cpus: args.cpu.map(|list| list.0),
        },
        functions: args.functions.map(|list| list.0).unwrap_or_default(),
        settings: Settings {
            ring_bytes: args.ring_size << 20,
            unwind: unwind(args.unwind),
            max_frames: args.max_frames,
            guess_frame_pointers: args.guess_frame_pointers,
            max_pause: match args.on_overload {
                OverloadChoice::Pause => args.max_pause,
                OverloadChoice::Drop => Duration::ZERO,
            },
            log: args.verbose >= LOG_FROM,
            perf_links: args.perf_links,
            return_probes: args.return_probes,
            min_size: args.min_size.unwrap_or(0),
            sample_bytes: args.sample.unwrap_or(0),
            threads: threads(&args.threads),
            paused: args.paused,
            wait_for: args.wait_for,
            ..Settings::default()
        },
    }
}

fn threads(words: &[String]) -> Vec<ThreadChoice> {
    words.iter().map(|word| word.as_str().into()).collect()
}

fn unwind(choice: UnwindChoice) -> Unwind {
    match choice {
        UnwindChoice::Auto => Unwind::Auto,
        UnwindChoice::EhFrame => Unwind::EhFrame,
        UnwindChoice::Fp => Unwind::FramePointers,
    }
}
