//! What is mapped at an address of the current process: looked up in the kernel's own structures,
//! so that there is no second table of mappings that could be behind.

use core::ffi::c_void;

use aya_ebpf::helpers::generated;
use htrace_ebpf::Kernel;
use htrace_ebpf_common::{counters::Counter, tables::FileKey};

use crate::{constants as at, kernel::BpfKernel, remembered};

/// Flag of `vm_area_struct.vm_flags`: `include/linux/mm.h`.
const VM_EXEC: u64 = 4;
/// `vm_pgoff` counts pages of this many bytes, as a power of two.
const PAGE_SHIFT: u32 = 12;
/// `EBUSY`: the lock of the mappings is held by somebody who changes them.
const LOCKED: i64 = -16;
/// `MKDEV` makes a device number of 12 and 20 bits.
const DEVICE_MASK: u64 = u32::MAX as u64;

/// A mapping.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Mapping {
    start: u64,
    end: u64,
    pages_offset: u64,
    flags: u64,
    /// Zeros for memory without a file.
    pub(crate) file: FileKey,
}

/// Why there is no mapping.
pub(crate) enum NoMapping {
    /// Nothing is mapped there.
    Unmapped,
    /// It could not be looked up.
    Locked,
}

impl Mapping {
    /// A mapping of nothing.
    pub(crate) const NONE: Self = Self {
        start: 0,
        end: 0,
        pages_offset: 0,
        flags: 0,
        file: FileKey {
            device: 0,
            inode: 0,
        },
    };

    /// Becomes what is mapped at `address`. In place, because the stacks of all functions in a
    /// chain of calls have 512 bytes together.
    #[inline(always)]
    pub(crate) fn look_up(&mut self, address: u64) -> Result<(), NoMapping> {
        let generation = remembered::generation();
        match find(address, self) {
            0 => {
                if self.is_code() {
                    remembered::remember(self, generation);
                }
                Ok(())
            }
            LOCKED => {
                BpfKernel.count(Counter::MappingsLocked);
                if remembered::recall(address, self) {
                    Ok(())
                } else {
                    Err(NoMapping::Locked)
                }
            }
            _ => Err(NoMapping::Unmapped),
        }
    }

    /// Copies field by field: what the compiler makes of an assignment is a loop over bytes, which
    /// takes the verifier as long as a third of all else.
    #[inline(always)]
    pub(crate) fn become_like(&mut self, other: &Self) {
        self.start = other.start;
        self.end = other.end;
        self.pages_offset = other.pages_offset;
        self.flags = other.flags;
        self.file.device = other.file.device;
        self.file.inode = other.file.inode;
    }

    /// The first address.
    #[inline(always)]
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// True for addresses in the mapping.
    #[inline(always)]
    pub(crate) fn contains(&self, address: u64) -> bool {
        address >= self.start && address < self.end
    }

    /// True if any of the addresses from `start` to before `end` is in the mapping.
    #[inline(always)]
    pub(crate) fn overlaps(&self, start: u64, end: u64) -> bool {
        self.start < end && start < self.end
    }

    /// True if what is mapped is code.
    #[inline(always)]
    pub(crate) fn is_code(&self) -> bool {
        self.flags & VM_EXEC != 0
    }

    /// True for memory without a file.
    #[inline(always)]
    pub(crate) fn is_anonymous(&self) -> bool {
        self.file.inode == 0
    }

    /// Takes memory without a file for the vdso.
    #[inline(always)]
    pub(crate) fn take_for_vdso(&mut self) {
        self.file = FileKey::vdso(self.start);
    }

    /// Offset in the file of the byte that is mapped at `address`.
    #[inline(always)]
    pub(crate) fn file_offset(&self, address: u64) -> u64 {
        let start = self.pages_offset << PAGE_SHIFT;
        start.wrapping_add(address.wrapping_sub(self.start))
    }
}

/// True if code of a file is mapped at an address.
#[inline(always)]
pub(crate) fn is_code_of_file(address: u64) -> bool {
    let mut mapping = Mapping::NONE;
    match mapping.look_up(address) {
        Ok(()) => mapping.is_code() && !mapping.is_anonymous(),
        Err(NoMapping::Locked) => true,
        Err(NoMapping::Unmapped) => false,
    }
}

/// True if nothing can be looked up now.
#[inline(always)]
pub(crate) fn are_locked(address: u64) -> bool {
    // SAFETY: as in `find`; the callback uses no context.
    let found = unsafe {
        generated::bpf_find_vma(
            generated::bpf_get_current_task_btf(),
            address,
            ignore_mapping as *mut c_void,
            core::ptr::null_mut(),
            0,
        )
    };
    found == LOCKED
}

/// As [`copy_mapping`], but copies nothing.
#[inline(never)]
unsafe extern "C" fn ignore_mapping(_task: *mut c_void, _vma: *const u8, _: *mut c_void) -> i64 {
    0
}

fn find(address: u64, mapping: &mut Mapping) -> i64 {
    // SAFETY: the callback has the signature that the helper calls, and the mapping outlives the
    // call.
    unsafe {
        generated::bpf_find_vma(
            generated::bpf_get_current_task_btf(),
            address,
            copy_mapping as *mut c_void,
            (&raw mut *mapping).cast(),
            0,
        )
    }
}

/// Called with the mapping while it is locked.
#[inline(never)]
unsafe extern "C" fn copy_mapping(_task: *mut c_void, vma: *const u8, to: *mut Mapping) -> i64 {
    // SAFETY: the mapping that `find` has passed.
    let to = unsafe { &mut *to };
    let vma = vma as u64;
    to.start = word(vma + at::vma_start());
    to.end = word(vma + at::vma_end());
    to.pages_offset = word(vma + at::vma_pgoff());
    to.flags = word(vma + at::vma_flags());
    let file = word(vma + at::vma_file());
    if file != 0 {
        let inode = word(file.wrapping_add(at::file_inode()));
        let super_block = word(inode.wrapping_add(at::inode_super_block()));
        to.file.inode = word(inode.wrapping_add(at::inode_number()));
        to.file.device = word(super_block.wrapping_add(at::super_block_device())) & DEVICE_MASK;
    }
    0
}

/// A word of the kernel's memory; 0 where there is none: the helper stores zeros when it fails
/// (`bpf_probe_read_kernel_common`, since Linux 5.5). Whether it has is not looked at, because the
/// verifier would follow both ways from each of a row of words.
#[inline(always)]
pub(crate) fn word(address: u64) -> u64 {
    let mut word = 0_u64;
    // SAFETY: the helper reads any address, and writes so many bytes.
    let _zero_then = unsafe {
        generated::bpf_probe_read_kernel(
            (&raw mut word).cast(),
            size_of::<u64>() as u32,
            address as *const c_void,
        )
    };
    word
}
