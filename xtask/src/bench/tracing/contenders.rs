//! Who is measured, and at which work.

use std::fmt;

use super::works::Work;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
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

    /// True for those whose work is done by BPF programs in the kernel.
    pub(super) const fn has_programs(self) -> bool {
        matches!(
            self,
            Self::EmptyProbe | Self::Bpftrace | Self::BccMemleak | Self::LibbpfMemleak
        ) || self.is_htrace()
    }

    /// Whether it takes part in a round of a work. What is slow and far from the others is measured
    /// once.
    pub(super) const fn does(self, work: Work, round: u32) -> bool {
        let is_slow = match self {
            Self::Massif | Self::Dhat => true,
            Self::Bpftrace => matches!(work, Work::Python | Work::Sqlite | Work::Cc1plus),
            _ => false,
        };
        if is_slow && round > 1 {
            return false;
        }
        match work {
            Work::Loop | Work::Deep | Work::DeepTwo => true,
            Work::Programs => self.has_programs(),
            Work::Python | Work::Sqlite | Work::Cc1plus | Work::Start => !matches!(
                self,
                Self::EmptyProbe
                    | Self::HtraceReturnProbes
                    | Self::BccMemleak
                    | Self::LibbpfMemleak
                    | Self::HeaptrackRaw
            ),
            Work::Redis => matches!(self, Self::Untraced | Self::Htrace | Self::Heaptrack),
            Work::Attach | Work::Recorder => matches!(self, Self::Htrace),
        }
    }

    /// Pairs of malloc and free for a time that is short and yet sure.
    pub(super) const fn pairs(self) -> u32 {
        match self {
            Self::Untraced => 20_000_000,
            Self::EmptyProbe
            | Self::Htrace
            | Self::HtraceReturnProbes
            | Self::HtraceSampled
            | Self::Heaptrack
            | Self::HeaptrackRaw => 400_000,
            Self::Massif | Self::Dhat => 200_000,
            Self::Bpftrace | Self::BccMemleak | Self::LibbpfMemleak => 60_000,
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}
