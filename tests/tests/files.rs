//! Where recordings go and what is said about them.

use std::process::Command;

use htrace_tests::process::run;
use htrace_tests::tracer::binary;
use htrace_tests::{Feature, Launch, Scratch, require, target};

#[test]
fn the_suffix_is_appended_and_directories_are_made() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let name = scratch.join("new/er/run1");
    let ended = run(
        Command::new(binary())
            .arg("-o")
            .arg(name)
            .args(["--", "true"]),
        b"",
    );
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(scratch.join("new/er/run1.zst").exists(), "{}", ended.stderr);
}

#[test]
fn placeholders_expand() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let name = scratch.join("%h/run.%p");
    let args = ["--", "sh", "-c", "echo $$; cat /proc/sys/kernel/hostname"];
    let ended = run(Command::new(binary()).arg("-o").arg(name).args(args), b"");
    let output = String::from_utf8_lossy(&ended.stdout).into_owned();
    let words: Vec<&str> = output.split_whitespace().collect();
    let file = scratch.join(words[1]).join(format!("run.{}.zst", words[0]));
    assert!(file.exists(), "{}\n{}", file.display(), ended.stderr);
}

#[test]
fn the_default_name_tells_program_and_process() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let mut command = Command::new(binary());
    command
        .args(["--", "sh", "-c", "echo $$"])
        .current_dir(scratch.path());
    let ended = run(&mut command, b"");
    let pid = String::from_utf8_lossy(&ended.stdout).trim_end().to_owned();
    let name = format!("heaptrack.sh.{pid}.zst");
    assert!(
        scratch.join(&name).exists(),
        "{name}: {:?}\n{}",
        scratch.files(""),
        ended.stderr
    );
}

#[test]
fn the_summary_counts_and_says_how_to_go_on() {
    if !require(Feature::Root) {
        return;
    }
    let recorded = Launch::new().run(target("ends"), &["20", "return"]);
    assert_eq!(recorded.summary("allocations:"), 20, "{}", recorded.stderr);
    assert_eq!(
        recorded.summary("leaked allocations:"),
        20,
        "{}",
        recorded.stderr
    );
    assert_eq!(
        recorded.summary("temporary allocations:"),
        0,
        "{}",
        recorded.stderr
    );
    let file = recorded.file.to_string_lossy();
    assert!(
        recorded.stderr.contains(&*file),
        "no file name:\n{}",
        recorded.stderr
    );
    assert!(
        recorded.stderr.contains("htrace-bpf report"),
        "no command:\n{}",
        recorded.stderr
    );
}

#[test]
fn the_file_is_complete_by_the_formats_own_rules() {
    if !require(Feature::Root) {
        return;
    }
    let recorded = Launch::new().run(target("counts"), &["1", "3000", "all"]);
    let trace = recorded.trace();
    assert!(!trace.truncated, "{}", recorded.stderr);
    assert!(
        (0x10400..0x20000).contains(&trace.version),
        "version {:x}",
        trace.version
    );
    assert!(
        trace.command.contains("counts 1 3000 all"),
        "command `{}`",
        trace.command
    );
    assert!(!trace.stamps.is_empty(), "no time stamp");
    assert!(
        trace.rss.iter().any(|&pages| pages > 0),
        "no resident set size: {:?}",
        trace.rss
    );
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let scratch = Scratch::new();
    std::fs::write(scratch.join("text.zst"), "not zstd").expect("write a file");
    for name in ["missing.zst", "text.zst"] {
        let ended = run(
            Command::new(binary()).arg("report").arg(scratch.join(name)),
            b"",
        );
        assert_eq!(ended.status.code(), Some(1), "{name}:\n{}", ended.stderr);
        assert!(ended.stderr.contains(name), "{}", ended.stderr);
    }
}
