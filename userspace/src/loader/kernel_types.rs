//! Finds where the running kernel's structures have their fields, in the kernel's own type
//! information.
//!
//! The format is BTF version 1 (`Documentation/bpf/btf.rst` of the kernel, `linux/btf.h`). Only what
//! leads to the offset of a field is read: names, structures, unions and their members.

use std::{collections::HashMap, fs};

use htrace_ebpf_common::layout::KernelLayout;

/// Where the kernel offers its type information, from 5.4 on if it was built with it.
const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// Why the fields are not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum TypesError {
    /// The kernel offers no type information.
    #[error("{VMLINUX}: {0}")]
    Unavailable(#[from] std::io::Error),
    /// It is not what the format's description says.
    #[error("{VMLINUX} is broken at byte {offset}")]
    Broken {
        /// Where.
        offset: usize,
    },
    /// A structure has no such field.
    #[error("this kernel's {structure} has no field {field}")]
    NoField {
        /// The structure.
        structure: &'static str,
        /// The field.
        field: &'static str,
    },
}

/// The running kernel's layout.
pub(super) fn running_kernel() -> Result<KernelLayout, TypesError> {
    layout(&fs::read(VMLINUX)?)
}

/// The layout that type information tells.
fn layout(bytes: &[u8]) -> Result<KernelLayout, TypesError> {
    let types = Types::parse(bytes)?;
    let mut layout = KernelLayout {
        vma_start: types.offset("vm_area_struct", "vm_start")?,
        vma_end: types.offset("vm_area_struct", "vm_end")?,
        vma_pgoff: types.offset("vm_area_struct", "vm_pgoff")?,
        vma_flags: types.offset("vm_area_struct", "vm_flags")?,
        vma_file: types.offset("vm_area_struct", "vm_file")?,
        file_inode: types.offset("file", "f_inode")?,
        inode_number: types.offset("inode", "i_ino")?,
        inode_super_block: types.offset("inode", "i_sb")?,
        super_block_device: types.offset("super_block", "s_dev")?,
        ..KernelLayout::default()
    };
    // A kernel without uprobes would not get here; one that keeps returns otherwise only makes
    // stacks through return probes shorter.
    if let Err(error) = add_return_instances(&types, &mut layout) {
        tracing::info!("stacks end at other tools' return probes: {error}");
    }
    Ok(layout)
}

fn add_return_instances(types: &Types<'_>, layout: &mut KernelLayout) -> Result<(), TypesError> {
    layout.task_utask = types.offset("task_struct", "utask")?;
    layout.utask_return_instances = types.offset("uprobe_task", "return_instances")?;
    layout.instance_stack = types.offset("return_instance", "stack")?;
    layout.instance_original = types.offset("return_instance", "orig_ret_vaddr")?;
    layout.instance_next = types.offset("return_instance", "next")?;
    layout.has_return_instances = 1;
    Ok(())
}

const MAGIC: u32 = 0xeb9f;
const HEADER_BYTES: usize = 24;
const KIND_INT: u32 = 1;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_DECL_TAG: u32 = 17;
const KIND_ENUM64: u32 = 19;

/// Anonymous structures lie in others this deep at most.
const MAX_DEPTH: usize = 8;

/// Type information, with an index by number and by name.
struct Types<'a> {
    bytes: &'a [u8],
    strings: usize,
    /// Where each type begins; the first has number 1.
    starts: Vec<usize>,
    structures: HashMap<&'a [u8], usize>,
}

/// Head of a type.
struct Head {
    name: u32,
    kind: u32,
    length: usize,
    /// True if members' offsets hold the size of bit fields, too.
    bit_fields: bool,
}

impl<'a> Types<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, TypesError> {
        let mut types = Self {
            bytes,
            strings: 0,
            starts: vec![0],
            structures: HashMap::new(),
        };
        if types.number(0)? & 0xffff != MAGIC {
            return Err(TypesError::Broken { offset: 0 });
        }
        let header = types.number(4)? as usize;
        let base = header.max(HEADER_BYTES);
        let mut at = base.saturating_add(types.number(8)? as usize);
        let end = at
            .saturating_add(types.number(12)? as usize)
            .min(bytes.len());
        types.strings = base.saturating_add(types.number(16)? as usize);
        while at < end {
            let head = types.head(at)?;
            if head.kind == KIND_STRUCT {
                types
                    .structures
                    .entry(types.string(head.name))
                    .or_insert(at);
            }
            types.starts.push(at);
            at = at.saturating_add(head.size());
        }
        Ok(types)
    }

    /// Bytes from the beginning of a structure to a field, also one of an anonymous part.
    fn offset(&self, structure: &'static str, field: &'static str) -> Result<u32, TypesError> {
        let missing = TypesError::NoField { structure, field };
        let Some(&at) = self.structures.get(structure.as_bytes()) else {
            return Err(missing);
        };
        let bits = self.find(at, field.as_bytes(), MAX_DEPTH)?;
        bits.map(|bits| bits / 8).ok_or(missing)
    }

    /// Bits from the beginning of the structure or union at `at` to a field.
    fn find(&self, at: usize, field: &[u8], depth: usize) -> Result<Option<u32>, TypesError> {
        let head = self.head(at)?;
        if depth == 0 || !matches!(head.kind, KIND_STRUCT | KIND_UNION) {
            return Ok(None);
        }
        for index in 0..head.length {
            let member = at + 12 + 12 * index;
            let name = self.string(self.number(member)?);
            let offset = self.number(member + 8)?;
            let bits = if head.bit_fields {
                offset & 0xff_ffff
            } else {
                offset
            };
            if name == field {
                return Ok(Some(bits));
            }
            let start = self.starts.get(self.number(member + 4)? as usize).copied();
            if name.is_empty()
                && let Some(start) = start.filter(|start| *start != 0)
                && let Some(inner) = self.find(start, field, depth - 1)?
            {
                return Ok(Some(bits.saturating_add(inner)));
            }
        }
        Ok(None)
    }

    fn head(&self, at: usize) -> Result<Head, TypesError> {
        let info = self.number(at + 4)?;
        Ok(Head {
            name: self.number(at)?,
            kind: info >> 24 & 0x1f,
            length: (info & 0xffff) as usize,
            bit_fields: info >> 31 != 0,
        })
    }

    fn number(&self, offset: usize) -> Result<u32, TypesError> {
        let bytes = self.bytes.get(offset..).and_then(|rest| rest.first_chunk());
        bytes
            .map(|bytes| u32::from_ne_bytes(*bytes))
            .ok_or(TypesError::Broken { offset })
    }

    fn string(&self, offset: u32) -> &'a [u8] {
        let rest = self
            .bytes
            .get(self.strings.saturating_add(offset as usize)..);
        rest.and_then(|rest| rest.split(|byte| *byte == 0).next())
            .unwrap_or_default()
    }
}

impl Head {
    /// Bytes of the whole type.
    const fn size(&self) -> usize {
        12 + match self.kind {
            KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
            KIND_ARRAY => 12,
            KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => 12 * self.length,
            KIND_ENUM | KIND_FUNC_PROTO => 8 * self.length,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A structure `s` with a field `a` at 8 and an anonymous union at 16 that holds `b` at 4.
    fn small() -> Vec<u8> {
        let strings = b"\0s\0a\0b\0";
        let structure = KIND_STRUCT << 24 | 2;
        let union = KIND_UNION << 24 | 1;
        let types: [u32; 18] = [
            1, structure, 24, 3, 0, 64, 0, 2, 128, // the structure, type 1
            0, union, 8, 5, 0, 32, // the union, type 2
            0, 0, 0, // void-like, type 3
        ];
        let header = [
            MAGIC | 1 << 16,
            HEADER_BYTES as u32,
            0,
            72,
            72,
            strings.len() as u32,
        ];
        let words = header
            .iter()
            .chain(&types)
            .flat_map(|word| word.to_ne_bytes());
        words.chain(strings.iter().copied()).collect()
    }

    #[test]
    fn fields_are_found_also_in_anonymous_parts() {
        let bytes = small();
        let types = Types::parse(&bytes).unwrap();
        assert_eq!(types.offset("s", "a").unwrap(), 8);
        assert_eq!(types.offset("s", "b").unwrap(), 20);
        assert!(matches!(
            types.offset("s", "c"),
            Err(TypesError::NoField { .. })
        ));
        assert!(matches!(
            types.offset("t", "a"),
            Err(TypesError::NoField { .. })
        ));
    }

    #[test]
    fn cut_information_is_an_error_and_never_a_panic() {
        let bytes = small();
        for cut in 0..bytes.len() {
            if let Ok(types) = Types::parse(&bytes[..cut]) {
                let _any = types.offset("s", "b");
            }
        }
        assert!(Types::parse(&[0; 64]).is_err());
    }

    #[test]
    fn the_running_kernel_has_all_fields() {
        if !std::path::Path::new(VMLINUX).exists() {
            println!("skipped: this kernel has no {VMLINUX}");
            return;
        }
        let layout = running_kernel().unwrap();
        assert_eq!(layout.vma_start, 0, "the first field of vm_area_struct");
        assert!(layout.vma_file > layout.vma_start);
        assert_eq!(layout.has_return_instances, 1);
    }
}
