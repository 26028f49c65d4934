//! What is mapped at an address of the current process: looked up in the kernel's own structures,
//! so that there is no second table of mappings that could be behind.
//!
//! While somebody changes mappings, of this process, the structures are locked, and a probe cannot
//! wait for the lock. Then what was found near the address before has to do; it is forgotten
//! whenever rules are.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::BPF_ANY,
    helpers::{bpf_probe_read_kernel, generated},
    macros::map,
    maps::{Array, LruHashMap},
};
use htrace_ebpf::Kernel;
use htrace_ebpf_common::{counters::Counter, tables::FileKey};

use crate::{
    constants as at,
    kernel::{BpfKernel, add},
};

/// Flag of `vm_area_struct.vm_flags`: `include/linux/mm.h`.
const VM_EXEC: u64 = 4;
/// `vm_pgoff` counts pages of this many bytes, as a power of two.
const PAGE_SHIFT: u32 = 12;
/// `EBUSY`: the lock of the mappings is held by somebody who changes them.
const LOCKED: i64 = -16;
/// `MKDEV` makes a device number of 12 and 20 bits.
const DEVICE_MASK: u64 = u32::MAX as u64;

/// Addresses that have all but so many bits in common are looked up together.
const NEAR_BITS: u32 = 16;

/// What was found at the last address looked up of all that lie near each other.
#[map]
static REMEMBERED: LruHashMap<u64, Remembered> = LruHashMap::with_max_entries(4096, 0);

/// How often all that is remembered was forgotten.
#[map]
static GENERATION: Array<u64> = Array::with_max_entries(1, 0);

/// A mapping that was found, and when.
#[repr(C)]
#[derive(Clone, Copy)]
struct Remembered {
    mapping: Mapping,
    generation: u64,
}

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
    /// What is mapped at `address`.
    #[inline(always)]
    pub(crate) fn at(address: u64) -> Result<Self, NoMapping> {
        let mut mapping = Self {
            start: 0,
            end: 0,
            pages_offset: 0,
            flags: 0,
            file: FileKey {
                device: 0,
                inode: 0,
            },
        };
        // What changes meanwhile makes another generation, so that it does not stay remembered.
        let generation = generation();
        let mut result = find(address, &mut mapping);
        if result == LOCKED {
            // The holder may be done by now.
            BpfKernel.count(Counter::MappingsLocked);
            result = find(address, &mut mapping);
        }
        match result {
            0 => {
                mapping.remember(address, generation);
                Ok(mapping)
            }
            LOCKED => Self::remembered(address).ok_or(NoMapping::Locked),
            _ => Err(NoMapping::Unmapped),
        }
    }

    #[inline(always)]
    fn remember(self, address: u64, generation: u64) {
        let found = Remembered {
            mapping: self,
            generation,
        };
        // What is not remembered is not there while mappings are locked; that is counted then.
        let _no_room = REMEMBERED.insert(address >> NEAR_BITS, found, BPF_ANY.into());
    }

    /// What was mapped at `address` the last time.
    #[inline(always)]
    fn remembered(address: u64) -> Option<Self> {
        let found = REMEMBERED.get_ptr(address >> NEAR_BITS)?;
        // SAFETY: elements are replaced, not changed, and outlive the program's run.
        let Remembered {
            mapping,
            generation: known_in,
        } = unsafe { *found };
        let holds = mapping.start <= address && address < mapping.end;
        if !holds || known_in != generation() {
            return None;
        }
        BpfKernel.count(Counter::MappingsRemembered);
        Some(mapping)
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

    /// What it is as the vdso, if it is that.
    #[inline(always)]
    pub(crate) fn as_vdso(&self) -> FileKey {
        FileKey::vdso(self.start)
    }

    /// Offset in the file of the byte that is mapped at `address`.
    #[inline(always)]
    pub(crate) fn file_offset(&self, address: u64) -> u64 {
        let start = self.pages_offset << PAGE_SHIFT;
        start.wrapping_add(address.wrapping_sub(self.start))
    }
}

/// True if a file, code or not, is mapped at an address, or nobody can say.
#[inline(always)]
pub(crate) fn is_of_file(address: u64) -> bool {
    match Mapping::at(address) {
        Ok(mapping) => !mapping.is_anonymous(),
        Err(NoMapping::Locked) => true,
        Err(NoMapping::Unmapped) => false,
    }
}

/// True if code of a file is mapped at an address.
#[inline(always)]
pub(crate) fn is_code_of_file(address: u64) -> bool {
    match Mapping::at(address) {
        Ok(mapping) => mapping.is_code() && !mapping.is_anonymous(),
        Err(NoMapping::Locked) => true,
        Err(NoMapping::Unmapped) => false,
    }
}

/// Forgets all mappings that were found.
#[inline(always)]
pub(crate) fn forget() {
    if let Some(generation) = GENERATION.get_ptr_mut(0) {
        add(generation, 1);
    }
}

#[inline(always)]
fn generation() -> u64 {
    GENERATION.get_ptr(0).map_or(0, |generation| {
        // SAFETY: the element lives as long as the map; volatile, because others write to it.
        unsafe { generation.read_volatile() }
    })
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

/// A word of the kernel's memory; 0 where there is none.
#[inline(always)]
pub(crate) fn word(address: u64) -> u64 {
    // SAFETY: the helper reads any address and fails where there is nothing to read.
    unsafe { bpf_probe_read_kernel(address as *const u64) }.unwrap_or(0)
}
