//! The command line of `report`: heaptrack_print's options and ours.

mod optional_values;
mod request;
mod values;

use std::path::{Path, PathBuf};

use htrace_analysis::CostKind;
use htrace_analysis::request::{Format, View};

pub(super) use optional_values::with_values;
pub use values::parse_cost;
use values::{parse_bool, parse_format, parse_time, parse_view};

/// Print what a heap trace adds up to: who allocates most, at the peak, temporarily, and what
/// leaks.
#[derive(Debug, clap::Parser)]
#[command(name = "htrace-bpf report")]
pub struct ReportOptions {
    /// The trace: zstd, gzip or plain, by content; - reads standard input.
    #[arg(value_name = "FILE")]
    positional: Option<PathBuf>,
    /// The trace, as an option.
    #[arg(short, long)]
    file: Option<PathBuf>,
    /// Subtract this trace: print what FILE has more or less.
    #[arg(short, long, value_name = "BASE")]
    diff: Option<PathBuf>,
    /// Shorten template identifiers.
    #[arg(short = 't', long, value_name = "BOOL", default_value = "1", value_parser = parse_bool, require_equals = true, action = clap::ArgAction::Set)]
    shorten_templates: bool,
    /// Merge backtraces by the function that allocates.
    #[arg(short = 'm', long, value_name = "BOOL", default_value = "1", value_parser = parse_bool, require_equals = true, action = clap::ArgAction::Set)]
    merge_backtraces: bool,
    /// Print the backtraces that held most memory at the peak.
    #[arg(short = 'p', long, value_name = "BOOL", default_value = "1", value_parser = parse_bool, require_equals = true, action = clap::ArgAction::Set)]
    print_peaks: bool,
    /// Print the backtraces that allocate most often.
    #[arg(short = 'a', long, value_name = "BOOL", default_value = "1", value_parser = parse_bool, require_equals = true, action = clap::ArgAction::Set)]
    print_allocators: bool,
    /// Print the backtraces of most temporary allocations.
    #[arg(short = 'T', long, value_name = "BOOL", default_value = "1", value_parser = parse_bool, require_equals = true, action = clap::ArgAction::Set)]
    print_temporary: bool,
    /// Print the backtraces of memory that was never freed.
    #[arg(short = 'l', long, value_name = "BOOL", default_value = "0", value_parser = parse_bool, require_equals = true, action = clap::ArgAction::Set)]
    print_leaks: bool,
    /// Entries of a ranking.
    #[arg(
        short = 'n',
        long,
        alias = "top",
        value_name = "N",
        default_value = "10",
        require_equals = true
    )]
    peak_limit: u64,
    /// Backtraces of a merged entry.
    #[arg(
        short = 's',
        long,
        value_name = "N",
        default_value = "5",
        require_equals = true
    )]
    sub_peak_limit: u64,
    /// Write a histogram of allocation sizes to this file.
    #[arg(short = 'H', long, value_name = "PATH")]
    print_histogram: Option<PathBuf>,
    /// Write folded stacks for flame graphs to this file.
    #[arg(short = 'F', long, value_name = "PATH")]
    print_flamegraph: Option<PathBuf>,
    /// The cost of folded stacks: allocations, temporary, leaked or peak.
    #[arg(long, value_name = "COST", default_value = "allocations", value_parser = parse_cost)]
    flamegraph_cost_type: CostKind,
    /// Write Massif snapshots, for ms_print, to this file.
    #[arg(short = 'M', long, value_name = "PATH")]
    print_massif: Option<PathBuf>,
    /// Percentage of the live memory below which Massif sums places up.
    #[arg(long, value_name = "PERCENT", default_value = "1")]
    massif_threshold: f64,
    /// Every how many Massif snapshots there is a tree; 0 for never.
    #[arg(long, value_name = "N", default_value = "2")]
    massif_detailed_freq: u64,
    /// Only backtraces through functions whose name contains TEXT.
    #[arg(long, value_name = "TEXT")]
    filter_bt_function: Option<String>,
    /// Only backtraces through modules whose path contains TEXT.
    #[arg(long, value_name = "TEXT")]
    filter_module: Option<String>,
    /// Leave out ranking entries that cost less.
    #[arg(long, value_name = "COST", default_value = "0")]
    min_cost: u64,
    /// A file of leak suppressions, one `leak:PATTERN` a line.
    #[arg(long, value_name = "PATH")]
    suppressions: Option<PathBuf>,
    /// Ignore suppressions that the target has embedded.
    #[arg(long)]
    disable_embedded_suppressions: bool,
    /// Ignore suppressions for leaks of system libraries.
    #[arg(long)]
    disable_builtin_suppressions: bool,
    /// Print what was suppressed by which pattern.
    #[arg(long, value_name = "BOOL", default_value = "0", value_parser = parse_bool, require_equals = true, action = clap::ArgAction::Set)]
    print_suppressions: bool,
    /// Only the ranking by this cost: allocations, temporary, leaked or peak.
    #[arg(long, value_name = "COST", value_parser = parse_cost)]
    sort: Option<CostKind>,
    /// How to print: text or json (see docs/report-json.md).
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = parse_format)]
    format: Format,
    /// Only what was allocated from this time on, such as 1.5s or 200ms since the start.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    from: Option<i64>,
    /// Only what was allocated before this time.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    to: Option<i64>,
    /// Print how old leaked memory is.
    #[arg(long)]
    leak_ages: bool,
    /// Print inclusive costs: top-down, bottom-up or callers; may be given several times.
    #[arg(long, value_name = "VIEW", value_parser = parse_view)]
    tree: Vec<View>,
    /// The cost of trees.
    #[arg(long, value_name = "COST", default_value = "peak", value_parser = parse_cost)]
    tree_cost: CostKind,
    /// Leave out tree nodes below this percentage.
    #[arg(long, value_name = "PERCENT", default_value = "1")]
    tree_threshold: f64,
    /// Look for the modules of a raw trace under this directory.
    #[arg(long, value_name = "DIRECTORY", default_value = "/")]
    pub sysroot: PathBuf,
    /// Refuse a damaged or truncated file instead of reporting what could be read.
    #[arg(long)]
    strict: bool,
}

impl ReportOptions {
    /// The folder that the trace argument names, if it is one.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        let path = self.positional.as_ref().or(self.file.as_ref())?;
        path.is_dir().then_some(path)
    }
}
