//! Finds the unwind rule of an address: from the mapping to its file, from the file to its table,
//! and a binary search in that. It is asked only for what the cache does not know, so it may
//! cost half a microsecond.
//!
//! Its functions are global ones in the sense of the verifier, checked once on their own: only
//! numbers go in and out.

use aya_ebpf::{
    helpers::generated,
    macros::map,
    maps::{Array, HashMap},
};
use core::ffi::c_void;
use htrace_ebpf::{
    Kernel,
    unwind::{
        lookup::{self, Lookup},
        rule_cache::CACHE_WORDS,
    },
};
use htrace_ebpf_common::{
    call_pattern::may_end_call,
    counters::Counter,
    encoding::{Row, RuleKind},
    tables::{BlockWord, FileKey, Table},
    wire::StackEnd,
};

use crate::{
    kernel::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC, BpfKernel},
    mappings::{Mapping, NoMapping},
    remembered, waits,
};

/// All tables' blocks and rows. The recorder sets the size, and writes them.
#[map]
static TABLE_WORDS: Array<u64> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// Where each file's table lies. The recorder writes them; a file without table has one without
/// blocks.
#[map]
static TABLES: HashMap<FileKey, Table> = HashMap::with_max_entries(16384, BPF_F_NO_PREALLOC);

/// The cache of rules: see [`htrace_ebpf::unwind::rule_cache`].
#[map]
static RULE_CACHE: Array<u64> = Array::with_max_entries(CACHE_WORDS, 0);

/// A word of the cache.
#[inline(always)]
pub(crate) fn remembered_word(index: u32) -> u64 {
    let Some(word) = RULE_CACHE.get_ptr(index) else {
        return 0;
    };
    // SAFETY: the element lives as long as the map; volatile, because other threads write to it.
    unsafe { word.read_volatile() }
}

/// Stores a word in the cache.
#[inline(always)]
pub(crate) fn remember_word(index: u32, value: u64) {
    if let Some(word) = RULE_CACHE.get_ptr_mut(index) {
        // SAFETY: as in `remembered_word`.
        unsafe { word.write_volatile(value) };
    }
}

/// Forgets all rules: addresses may mean something else now.
pub(crate) fn forget_rules() {
    BpfKernel.count(Counter::RulesForgotten);
    remembered::forget();
    // SAFETY: the callback has the signature that the helper calls, and uses no context.
    unsafe {
        generated::bpf_loop(
            CACHE_WORDS / FORGOTTEN_AT_ONCE,
            forget_some as *mut c_void,
            core::ptr::null_mut(),
            0,
        );
    }
    // A thread may have come across a rule that was about to be forgotten, and predict it.
    remembered::forget();
}

const FORGOTTEN_AT_ONCE: u32 = 16;

/// Bytes of the smallest page.
const PAGE: u64 = 4096;

#[inline(never)]
unsafe extern "C" fn forget_some(iteration: u64, _context: *mut c_void) -> i64 {
    let first = iteration as u32 * FORGOTTEN_AT_ONCE;
    for index in 0..FORGOTTEN_AT_ONCE {
        remember_word(first + index, 0);
    }
    0
}

/// The [`Lookup`] of an address: see [`Kernel::find_rule`].
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn find_rule(address: u64, interrupted: u64) -> u64 {
    let interrupted = interrupted != 0;
    let mut mapping = Mapping::NONE;
    let found = match mapping.look_up(address) {
        Ok(()) => rule_in(&mut mapping, address, interrupted),
        Err(NoMapping::Unmapped) => Lookup::refused(StackEnd::Suspect),
        Err(NoMapping::Locked) => Lookup::last(StackEnd::Locked),
    };
    if !interrupted && !is_planted(found) {
        return check_call(found, address.wrapping_add(1)).bits();
    }
    found.bits()
}

/// As [`find_rule`], in programs that may sleep: waits while the mappings are locked.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn find_rule_asleep(address: u64, interrupted: u64) -> u64 {
    let find = || Lookup::from_bits(find_rule(address, interrupted));
    lookup::patiently(find, || waits::asleep_for_mappings(address)).bits()
}

/// What no call has put there, but the kernel or `makecontext`.
#[inline(always)]
fn is_planted(found: Lookup) -> bool {
    match found.rule() {
        Ok(rule) => matches!(rule.kind(), RuleKind::SignalFrame | RuleKind::EndOfStack),
        Err(_) => false,
    }
}

/// Refuses what does not follow a call.
#[inline(always)]
fn check_call(found: Lookup, return_address: u64) -> Lookup {
    match bytes_before(return_address) {
        None => Lookup::refused(StackEnd::Unreadable),
        Some(before) if may_end_call(before) => found,
        Some(_) => Lookup::refused(StackEnd::Suspect),
    }
}

/// The 8 bytes before an address; zeros for those on a page that cannot be read.
#[inline(always)]
fn bytes_before(address: u64) -> Option<u64> {
    if let Some(bytes) = BpfKernel.read_user(address.wrapping_sub(8)) {
        return Some(bytes);
    }
    let on_page = address % PAGE;
    if on_page == 0 || on_page >= 8 {
        return None;
    }
    let bytes = BpfKernel.read_user(address.wrapping_sub(on_page))?;
    Some(bytes << (64 - 8 * on_page))
}

#[inline(always)]
fn rule_in(mapping: &mut Mapping, address: u64, interrupted: bool) -> Lookup {
    if !mapping.is_code() {
        return Lookup::refused(StackEnd::Suspect);
    }
    let is_anonymous = mapping.is_anonymous();
    if is_anonymous {
        mapping.take_for_vdso();
    }
    let table = match known_table(&mapping.file) {
        Some(table) => table,
        None if is_anonymous => return Lookup::last(StackEnd::Jit),
        None => match awaited_table(&mapping.file, address) {
            Some(table) => table,
            None => return Lookup::last(StackEnd::NoTable),
        },
    };
    if table.blocks == 0 {
        return Lookup::last(StackEnd::NoTable);
    }
    if interrupted && table.call_sites_only != 0 {
        return Lookup::last(StackEnd::Unsupported);
    }
    let offset = mapping.file_offset(address);
    let place = table
        .rel_pc(offset)
        .and_then(|rel_pc| Some((rel_pc, table.block_word(rel_pc)?)));
    match place {
        Some((rel_pc, block)) => Lookup::from_bits(search(rel_pc, block as u64)),
        None => Lookup::last(StackEnd::Gap),
    }
}

/// The table of a file that has none. The recorder is asked for it, and given the time to make it.
#[inline(always)]
fn awaited_table(file: &FileKey, address: u64) -> Option<&'static Table> {
    let asked = waits::ask_for_table(file.device, file.inode, address);
    waits::for_table(file.device, file.inode, asked);
    known_table(file)
}

/// The table of a file, if the recorder has made it.
#[inline(always)]
pub(crate) fn known_table(file: &FileKey) -> Option<&'static Table> {
    // SAFETY: elements are replaced, not changed, and outlive the program's run.
    TABLES.get_ptr(file).map(|table| unsafe { &*table })
}

#[inline(always)]
fn table_word(index: u32) -> Option<u64> {
    TABLE_WORDS.get(index).copied()
}

/// The [`Lookup`] of the last row that begins at or before `rel_pc`, whose block has its word at
/// `block`.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn search(rel_pc: u64, block: u64) -> u64 {
    /// A block has at most as many rows as bytes, and one from before.
    const STEPS: [u32; 9] = [256, 128, 64, 32, 16, 8, 4, 2, 1];
    let broken = Lookup::last(StackEnd::NoTable).bits();
    let Some(block) = table_word(block as u32) else {
        return broken;
    };
    let block = BlockWord::from_bits(block);
    let mut index = block.first();
    for step in STEPS {
        let next = index.wrapping_add(step);
        if next > block.last() {
            continue;
        }
        let Some(row) = table_word(next) else {
            return broken;
        };
        if Row::from_bits(row).rel_pc() as u64 <= rel_pc {
            index = next;
        }
    }
    match table_word(index) {
        Some(row) => Lookup::found(Row::from_bits(row).rule()).bits(),
        None => broken,
    }
}
