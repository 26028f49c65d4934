//! heaptrack's recorder counts the same on the same program, and its printer
//! reads our files as our own report does.

use htrace_tests::heaptrack::{self, Counts};
use htrace_tests::report::{Report, SECTIONS};
use htrace_tests::{Feature, Launch, Recorded, require, target};

/// What a program does beyond what it does without rounds; the runtime of each
/// recorder differs (heaptrack's brings libstdc++ along).
fn ours(threads: &str, rounds: &str) -> Counts {
    let recorded = Launch::new().run(target("counts"), &[threads, rounds, "hooked"]);
    recorded.assert_nothing_lost();
    Counts::from(&recorded.trace())
}

fn theirs(threads: &str, rounds: &str) -> Counts {
    heaptrack::record(&target("counts"), &[threads, rounds, "hooked"])
}

#[test]
fn their_recorder_counts_the_same() {
    if !require(Feature::Root) || !require(Feature::Heaptrack) {
        return;
    }
    let own = ours("1", "500") - ours("1", "0");
    assert_eq!(own, theirs("1", "500") - theirs("1", "0"));
    assert!(own.calls > 5000, "nothing was compared: {own:?}");
}

#[test]
fn their_recorder_counts_the_same_with_threads() {
    if !require(Feature::Root) || !require(Feature::Heaptrack) {
        return;
    }
    // The peak of several threads is a matter of their timing.
    let without_peak = |counts: Counts| Counts { peak: 0, ..counts };
    let own = without_peak(ours("4", "500") - ours("4", "0"));
    assert_eq!(own, without_peak(theirs("4", "500") - theirs("4", "0")));
}

/// Their printer and our report, after a check that theirs had no complaint.
fn both(recorded: &Recorded) -> (Report, Report) {
    let (theirs, ended) = heaptrack::print(&recorded.file);
    assert_eq!(ended.stderr, "", "heaptrack_print complains about the file");
    let ours = recorded.report();
    assert_eq!(
        ours.totals(),
        theirs.totals(),
        "ours:\n{}\ntheirs:\n{}",
        ours.text,
        theirs.text
    );
    (ours, theirs)
}

#[test]
fn their_printer_prints_the_same_rankings() {
    if !require(Feature::Root) || !require(Feature::Heaptrack) {
        return;
    }
    let recorded = Launch::new().run(target("framepointers"), &["2", "100"]);
    let (ours, theirs) = both(&recorded);
    for section in SECTIONS {
        let (ours, theirs) = (ours.groups(section), theirs.groups(section));
        assert!(!theirs.is_empty(), "{section} is empty");
        assert_eq!(ours, theirs, "{section}");
    }
}

#[test]
fn their_printer_prints_the_same_totals_of_a_real_program() {
    if !require(Feature::Root) || !require(Feature::Heaptrack) {
        return;
    }
    let recorded = Launch::new().run("ls", &["-lR", "/usr/share/doc"]);
    let (ours, theirs) = both(&recorded);
    for section in SECTIONS {
        let theirs = theirs.first_group(section);
        assert!(theirs.len() > 1, "{section} is empty");
        assert_eq!(ours.first_group(section), theirs, "{section}");
    }
}

#[test]
fn suppressions_of_the_target_work_in_both() {
    if !require(Feature::Root) || !require(Feature::Heaptrack) {
        return;
    }
    let recorded = Launch::new().run(target("suppressed"), &[]);
    let (ours, _) = both(&recorded);
    assert_eq!(ours.total("total memory leaked"), "70B", "{}", ours.text);
    assert_eq!(ours.total("suppressed leaks"), "1000B", "{}", ours.text);
}
