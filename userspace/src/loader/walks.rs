//! Chooses how stacks are walked: by unwind tables where the kernel can, or by frame pointers.

use htrace_ebpf_common::layout::KernelLayout;

use super::{LoadError, kernel_types, object};

/// How the user wants stacks to be walked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unwind {
    /// By unwind tables where the kernel can.
    #[default]
    Auto,
    /// By unwind tables, or not at all.
    EhFrame,
    /// By frame pointers.
    FramePointers,
}

/// How stacks are walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walks {
    /// By unwind tables: Linux 5.17.
    Tables(KernelLayout),
    /// By frame pointers: Linux 5.17.
    FramePointers,
    /// By frame pointers, in a loop with a lower bound.
    Old,
}

/// First version with the helpers `bpf_loop` and `bpf_find_vma`.
const HELPERS_SINCE: (u32, u32) = (5, 17);
const HELPERS_SINCE_NAME: &str = "5.17";

impl Walks {
    /// What is possible of what is wanted.
    pub(super) fn choose(wanted: Unwind) -> Result<Self, LoadError> {
        let has_helpers = object::kernel_version() >= HELPERS_SINCE;
        let by_tables = || {
            if !has_helpers {
                let running = object::kernel_release();
                return Err(LoadError::KernelTooOld {
                    needed: HELPERS_SINCE_NAME,
                    running,
                });
            }
            let layout = kernel_types::running_kernel();
            layout
                .map(Self::Tables)
                .map_err(|error| LoadError::NoTypes(error.to_string()))
        };
        let by_frame_pointers = if has_helpers {
            Self::FramePointers
        } else {
            Self::Old
        };
        match wanted {
            Unwind::FramePointers => Ok(by_frame_pointers),
            Unwind::EhFrame => by_tables(),
            Unwind::Auto => Ok(by_tables().unwrap_or_else(|error| {
                tracing::warn!("stacks are walked by frame pointers only: {error}");
                by_frame_pointers
            })),
        }
    }

    /// Values of the programs' variables `BY_TABLES` and `KERNEL_LAYOUT`.
    pub(super) fn constants(self) -> ([u8; 1], Vec<u8>) {
        let (by_tables, layout) = match self {
            Self::Tables(layout) => (1, layout),
            Self::FramePointers | Self::Old => (0, KernelLayout::default()),
        };
        let fields = layout
            .fields()
            .iter()
            .flat_map(|field| field.to_ne_bytes())
            .collect();
        ([by_tables], fields)
    }
}
