//! What a report is to consist of.

use std::path::PathBuf;

use crate::cost::CostKind;
use crate::massif::MassifOptions;
use crate::report::{ReportOptions, Style};
use crate::tree::{Direction, TreeOptions};
use crate::window::Window;

/// What a report is to consist of.
#[derive(Clone, Debug)]
pub struct Request {
    /// The trace; `-` for standard input.
    pub file: PathBuf,
    /// Subtract this trace.
    pub base: Option<PathBuf>,
    /// The text report.
    pub report: ReportOptions,
    /// Where to write the histogram of sizes.
    pub histogram: Option<PathBuf>,
    /// Where to write folded stacks.
    pub flamegraph: Option<PathBuf>,
    /// The cost of folded stacks.
    pub flamegraph_cost: CostKind,
    /// Where to write Massif snapshots.
    pub massif: Option<PathBuf>,
    /// What they look like.
    pub massif_options: MassifOptions,
    /// Keep backtraces through functions with this text in their names.
    pub filter_function: Option<String>,
    /// Keep backtraces through modules with this text in their paths.
    pub filter_module: Option<String>,
    /// Leak suppressions.
    pub suppressions: Suppressions,
    /// Refuse damaged files.
    pub strict: bool,
    /// How the report is written.
    pub format: Format,
    /// Only what happens within this window counts.
    pub window: Option<Window>,
    /// Print how old leaked memory is.
    pub leak_ages: bool,
    /// Views of inclusive costs behind the report.
    pub views: Vec<View>,
    /// What these look like.
    pub tree: TreeOptions,
}

/// Which leak suppressions count.
#[derive(Clone, Debug)]
pub struct Suppressions {
    /// A file of them.
    pub file: Option<PathBuf>,
    /// Those that the target has embedded.
    pub embedded: bool,
    /// Those for system libraries.
    pub builtin: bool,
}

impl Default for Suppressions {
    fn default() -> Self {
        Self {
            file: None,
            embedded: true,
            builtin: true,
        }
    }
}

impl Request {
    /// The default report on `file`.
    #[must_use]
    pub fn new(file: PathBuf) -> Self {
        Self {
            file,
            base: None,
            report: ReportOptions::default(),
            histogram: None,
            flamegraph: None,
            flamegraph_cost: CostKind::Allocations,
            massif: None,
            massif_options: MassifOptions::new(Style::Mended),
            filter_function: None,
            filter_module: None,
            suppressions: Suppressions::default(),
            strict: false,
            format: Format::default(),
            window: None,
            leak_ages: false,
            views: Vec::new(),
            tree: TreeOptions {
                kind: CostKind::Peak,
                shorten_templates: true,
                min_percent: 1.0,
                limit: 20,
            },
        }
    }
}

/// How the report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// heaptrack_print's words and layout.
    #[default]
    Text,
    /// See [`crate::json`].
    Json,
}

/// A view of inclusive costs behind the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// A tree.
    Tree(Direction),
    /// The table of callers and callees.
    CallersAndCallees,
}
