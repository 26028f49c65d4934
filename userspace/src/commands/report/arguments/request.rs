//! From the command line to the request.

use anyhow::bail;
use htrace_analysis::CostKind;
use htrace_analysis::massif::MassifOptions;
use htrace_analysis::report::{ReportOptions as Sections, Style};
use htrace_analysis::request::{Request, Suppressions};
use htrace_analysis::tree::TreeOptions;
use htrace_analysis::window::Window;

use super::ReportOptions;

impl ReportOptions {
    /// What the options ask for.
    ///
    /// # Errors
    /// When there is no file, or two.
    pub fn into_request(self) -> anyhow::Result<Request> {
        let window = self.window()?;
        let report = self.sections();
        let file = match (self.positional, self.file) {
            (Some(file), None) | (None, Some(file)) => file,
            (None, None) => bail!("no trace given; try: htrace-bpf report FILE"),
            (Some(one), Some(two)) => {
                bail!("two traces given: {} and {}", one.display(), two.display())
            }
        };
        Ok(Request {
            file,
            base: self.diff,
            report,
            histogram: self.print_histogram,
            flamegraph: self.print_flamegraph,
            flamegraph_cost: self.flamegraph_cost_type,
            massif: self.print_massif,
            massif_options: MassifOptions {
                style: Style::Mended,
                threshold: self.massif_threshold,
                detailed_frequency: self.massif_detailed_freq,
            },
            filter_function: self.filter_bt_function,
            filter_module: self.filter_module,
            suppressions: Suppressions {
                file: self.suppressions,
                embedded: !self.disable_embedded_suppressions,
                builtin: !self.disable_builtin_suppressions,
            },
            strict: self.strict,
            format: self.format,
            window,
            leak_ages: self.leak_ages,
            views: self.tree,
            tree: TreeOptions {
                kind: self.tree_cost,
                shorten_templates: self.shorten_templates,
                min_percent: self.tree_threshold,
                limit: usize::try_from(self.peak_limit).unwrap_or(usize::MAX),
            },
        })
    }

    fn sections(&self) -> Sections {
        Sections {
            style: Style::Mended,
            merge: self.merge_backtraces,
            shorten_templates: self.shorten_templates,
            allocators: self.wants(CostKind::Allocations),
            peaks: self.wants(CostKind::Peak),
            leaks: self.wants(CostKind::Leaked),
            temporary: self.wants(CostKind::Temporary),
            peak_limit: self.peak_limit,
            sub_peak_limit: self.sub_peak_limit,
            suppressions: self.print_suppressions,
            min_cost: self.min_cost,
        }
    }

    /// Whether the ranking by a cost is wanted.
    fn wants(&self, kind: CostKind) -> bool {
        match (self.sort, kind) {
            (Some(only), kind) => only == kind,
            (None, CostKind::Allocations) => self.print_allocators,
            (None, CostKind::Peak) => self.print_peaks,
            (None, CostKind::Leaked) => self.print_leaks,
            (None, CostKind::Temporary) => self.print_temporary,
        }
    }

    fn window(&self) -> anyhow::Result<Option<Window>> {
        if self.from.is_none() && self.to.is_none() {
            return Ok(None);
        }
        let window = Window {
            from: self.from.unwrap_or(0),
            to: self.to.unwrap_or(i64::MAX),
        };
        if window.from >= window.to {
            bail!("--from must be before --to");
        }
        Ok(Some(window))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::commands::report::arguments::with_values;
    use clap::Parser as _;

    fn parse(line: &str) -> ReportOptions {
        let words = with_values(line.split(' ').map(OsString::from).collect());
        ReportOptions::try_parse_from(std::iter::once("report".into()).chain(words)).unwrap()
    }

    #[test]
    fn leaks_are_asked_for_in_every_way_that_people_write() {
        for line in [
            "-l 1 f",
            "-l1 f",
            "--print-leaks=1 f",
            "--print-leaks f",
            "-l f",
            "f -l",
            "f -l yes",
        ] {
            let options = parse(line);
            assert!(options.print_leaks, "{line}");
            assert_eq!(options.positional, Some("f".into()), "{line}");
        }
        assert!(!parse("-l 0 f").print_leaks);
        assert!(!parse("-l0 -f f").print_leaks);
    }

    #[test]
    fn limits_take_numbers_and_leave_files_alone() {
        assert_eq!(parse("-n3 -s 7 f").peak_limit, 3);
        assert_eq!(parse("-n 3 -s 7 f").sub_peak_limit, 7);
        assert_eq!(parse("-n f").peak_limit, 10);
        assert_eq!(parse("--top=4 f").peak_limit, 4);
    }

    #[test]
    fn a_window_has_two_ends_in_order() {
        let window = parse("--from 1s --to 2s f").into_request().unwrap().window;
        assert_eq!(
            window,
            Some(Window {
                from: 1000,
                to: 2000
            })
        );
        assert!(parse("--from 2s --to 1s f").into_request().is_err());
    }

    #[test]
    fn sort_leaves_one_ranking() {
        let sections = parse("--sort leaked f").into_request().unwrap().report;
        assert!(sections.leaks && !sections.peaks && !sections.allocators && !sections.temporary);
    }

    #[test]
    fn words_behind_a_double_dash_are_no_options() {
        assert_eq!(with_values(vec!["--".into(), "-l".into()]), ["--", "-l"]);
        assert_eq!(parse("-- -l").positional, Some("-l".into()));
    }

    #[test]
    fn exactly_one_file_is_needed() {
        assert!(parse("a").into_request().is_ok());
        assert!(parse("-f a").into_request().is_ok());
        assert!(parse("-f a b").into_request().is_err());
        assert!(parse("-l").into_request().is_err());
    }
}
