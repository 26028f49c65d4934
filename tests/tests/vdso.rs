//! Stacks through the kernel's own shared object, which is in no file.

use htrace_tests::{Feature, Launch, require, target};

#[test]
fn signals_that_interrupt_the_vdso_have_whole_stacks() {
    if !require(Feature::Root) {
        return;
    }
    let recorded = Launch::new().run(target("vdso"), &["300"]);
    recorded.assert_nothing_lost();
    let (trace, truth) = (recorded.trace(), recorded.truth());
    let mut through_vdso = 0;
    for (calls, stack) in trace.stacks() {
        if stack.first().is_none_or(|ip| ip.function != "handle") {
            continue;
        }
        let outermost = stack.last().map(|ip| ip.function.as_str());
        assert_eq!(outermost, Some("_start"), "{stack:?}");
        if stack.iter().any(|ip| ip.module.contains("vdso")) {
            through_vdso += calls;
        }
    }
    assert!(
        through_vdso > 0,
        "no signal came in the vdso: {:?}",
        trace.stacks()
    );
    assert!(trace.calls_under("handle") >= truth.get("at_least"));
}
