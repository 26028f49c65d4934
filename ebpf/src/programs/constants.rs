//! What the recorder sets before it loads the programs. The map of these variables is frozen then,
//! so the verifier knows their values and drops code that they rule out.

use core::ptr;

use htrace_ebpf_common::layout::KernelLayout;

/// 1 to unwind by tables, 0 to follow frame pointers.
#[unsafe(no_mangle)]
static BY_TABLES: u8 = 0;

/// 1 if probes may stand inside functions, of which links tell where.
#[unsafe(no_mangle)]
static INSIDE: u8 = 0;

/// Where the kernel's structures have their fields.
#[unsafe(no_mangle)]
static KERNEL_LAYOUT: [u32; KernelLayout::FIELDS] = [0; KernelLayout::FIELDS];

/// True to unwind by tables.
#[inline(always)]
pub(crate) fn by_tables() -> bool {
    // SAFETY: a variable of this program; volatile, since the recorder changes its value.
    unsafe { ptr::read_volatile(&raw const BY_TABLES) != 0 }
}

/// True if probes may stand inside functions. Verifiers are slow, and that of Linux 6.1 goes wrong
/// where programs are large, so what cannot be is left out.
#[inline(always)]
pub(crate) fn inside() -> bool {
    // SAFETY: as in `by_tables`.
    unsafe { ptr::read_volatile(&raw const INSIDE) != 0 }
}

macro_rules! fields {
    ($($field:ident)*) => {
        /// Fields in the order of [`KernelLayout::fields`].
        #[expect(non_camel_case_types, reason = "named as the fields are")]
        enum Field { $($field),* }

        $(
            #[inline(always)]
            pub(crate) fn $field() -> u64 {
                let field = &raw const KERNEL_LAYOUT[Field::$field as usize];
                // SAFETY: as in `by_tables`.
                unsafe { ptr::read_volatile(field) as u64 }
            }
        )*
    };
}

fields! {
    vma_start vma_end vma_pgoff vma_flags vma_file file_inode inode_number inode_super_block
    super_block_device task_utask utask_return_instances instance_stack instance_original
    instance_next has_return_instances
}
