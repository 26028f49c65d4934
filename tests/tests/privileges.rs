//! User nobody with exactly CAP_BPF and CAP_PERFMON can launch, and attach to
//! an own process; with one of them less the message names it.

use std::path::PathBuf;
use std::process::Command;

use htrace_tests::caps::nobody_with;
use htrace_tests::process::{Running, run};
use htrace_tests::tracer::{binary, record_from_mark};
use htrace_tests::truth::Truth;
use htrace_tests::{Feature, Launch, Scratch, require, target};

/// Copies that nobody can execute, wherever the workspace is.
struct Programs {
    _scratch: Scratch,
    tracer: PathBuf,
    counts: PathBuf,
}

fn programs() -> Option<Programs> {
    if !require(Feature::Root) || !require(Feature::Setpriv) {
        return None;
    }
    let scratch = Scratch::new();
    let tracer = scratch.copy_program(&binary());
    let counts = scratch.copy_program(&target("counts"));
    Some(Programs {
        _scratch: scratch,
        tracer,
        counts,
    })
}

impl Programs {
    fn nobody(&self, capabilities: &[&str]) -> Launch {
        Launch::new()
            .under(&nobody_with(capabilities))
            .binary(self.tracer.clone())
    }

    /// The counting program as nobody without any capability.
    fn counts_of_nobody(&self, rounds: &str) -> Command {
        let words = nobody_with(&[]);
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .arg(&self.counts)
            .args(["4", rounds, "all", "wait"]);
        command
    }
}

#[test]
fn launching_with_two_capabilities() {
    let Some(programs) = programs() else { return };
    let nobody = programs.nobody(&["bpf", "perfmon"]);
    let recorded = nobody.run(&programs.counts, &["1", "200", "all"]);
    recorded.assert_nothing_lost();
    let (trace, truth) = (recorded.trace(), recorded.truth());
    assert_eq!(trace.calls, truth.get("total_calls"), "{}", recorded.stderr);
    assert_eq!(
        trace.leaked,
        truth.get("total_leaked"),
        "{}",
        recorded.stderr
    );
    assert!(trace.calls_under("plain") > 0, "{:?}", trace.stacks());
}

#[test]
fn attaching_with_two_capabilities() {
    let Some(programs) = programs() else { return };
    let nobody = programs.nobody(&["bpf", "perfmon"]);
    let (recorded, ended) = record_from_mark(&nobody, &mut programs.counts_of_nobody("200"));
    recorded.assert_nothing_lost();
    let (trace, truth) = (recorded.trace(), Truth::parse(&ended.stdout));
    assert_eq!(trace.calls, truth.get("mark_calls"), "{}", recorded.stderr);
    assert_eq!(
        trace.leaked,
        truth.get("mark_leaked"),
        "{}",
        recorded.stderr
    );
    assert!(trace.calls_under("work") > 0, "{:?}", trace.stacks());
}

#[test]
fn the_launched_program_keeps_the_users_rights_only() {
    let Some(programs) = programs() else { return };
    let recorded = programs.nobody(&["bpf", "perfmon"]).run("id", &["-u"]);
    assert_eq!(recorded.stdout, b"65534\n", "{}", recorded.stderr);
}

#[test]
fn launching_with_one_capability_less_names_it() {
    let Some(programs) = programs() else { return };
    for (given, missing) in [("bpf", "CAP_PERFMON"), ("perfmon", "CAP_BPF")] {
        let scratch = Scratch::new();
        let nobody = programs.nobody(&[given]);
        let ended = run(
            &mut nobody.command(&scratch, &programs.counts, &["1", "1", "all"]),
            b"",
        );
        assert_eq!(ended.status.code(), Some(125), "{}", ended.stderr);
        assert!(
            ended.stderr.contains(missing),
            "no {missing} in:\n{}",
            ended.stderr
        );
        assert!(ended.stdout.is_empty(), "the program ran");
    }
}

#[test]
fn attaching_with_one_capability_less_names_it() {
    let Some(programs) = programs() else { return };
    let mut counts = Running::start(&mut programs.counts_of_nobody("1"));
    counts.wait_for_line("ready");
    for (given, missing) in [("bpf", "CAP_PERFMON"), ("perfmon", "CAP_BPF")] {
        let ended = programs.nobody(&[given]).attach_in_vain(counts.pid());
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
        assert!(
            ended.stderr.contains(missing),
            "no {missing} in:\n{}",
            ended.stderr
        );
    }
    assert_eq!(
        counts.finish().status.code(),
        Some(0),
        "the target did not live on"
    );
}
