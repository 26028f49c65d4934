//! Finds where in an ELF file the functions to be probed begin.
//!
//! Pure: bytes in, file offsets out. Symbols are taken from the dynamic symbol table and, for
//! static programs, from the full one. The file is a target's, so nothing in it is trusted.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, iter,
    ops::Range,
};

use htrace_ebpf_common::{
    function::Function,
    point::{Point, Register},
};
use object::{
    Object, ObjectSegment, ReadRef, SegmentFlags, elf,
    read::elf::{ElfFile64, ElfSegment64},
};

use super::{
    functions::{self, ProbedFunction},
    operators::{self, Kind, Operator, Verdict, image::Image},
    placement::{self, Arguments, Spot, Task, emulated::KernelVersion},
    symbols,
};

/// What places for probes depend on besides the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placing {
    /// The kernel, which emulates some instructions.
    pub kernel: KernelVersion,
    /// True to see a call by one probe inside the function where the code allows it. Links must
    /// carry cookies of 64 bits.
    pub inside: bool,
}

impl Placing {
    /// Where probes go on the running kernel, if links can be made as its version lets expect.
    #[must_use]
    pub fn expected() -> Self {
        /// First kernel with multi-uprobe links.
        const COOKIES_SINCE: KernelVersion = (6, 6);
        let kernel = super::object::kernel_version();
        Self {
            kernel,
            inside: kernel >= COOKIES_SINCE,
        }
    }
}

/// A place for a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttachPoint {
    /// True for the return of the function, false for its entry.
    pub on_return: bool,
    /// Name of the program to attach.
    pub program: &'static str,
    /// What the program is to know of the place ([`Point::bits`]).
    pub number: u64,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Bytes from the begin of the function; code that it shares may lie before.
    pub inside: i64,
    /// The function.
    pub function: &'static str,
    /// Why the probe is there.
    pub why: Why,
}

/// Why a probe is where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The kernel emulates the first instruction.
    CheapEntry,
    /// It is the first instruction that the kernel emulates, and all is still as at the entry.
    CheapBehindEntry,
    /// No cheaper place was found: the first instruction is single-stepped.
    DearEntry,
    /// Results are seen at the return.
    Return,
    /// A function that can throw is seen at its `ret` instructions.
    Ret,
    /// Size and result are both in registers.
    Whole,
    /// From here on the size may be lost before the result is known.
    Begin,
    /// The result is known of what has begun before.
    End,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CheapEntry => "entry; the kernel emulates the instruction",
            Self::CheapBehindEntry => {
                "first instruction that the kernel emulates; arguments are in place"
            }
            Self::DearEntry => "entry, single-stepped; nothing cheaper was found",
            Self::Return => "return",
            Self::Ret => "its `ret`, since it can throw",
            Self::Whole => "size and result are both in registers: one trap for the call",
            Self::Begin => "takes the size before it is lost",
            Self::End => "result of what the point before has begun",
        })
    }
}

impl fmt::Display for AttachPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            function,
            inside,
            why,
            ..
        } = self;
        let sign = if *inside < 0 { '-' } else { '+' };
        write!(f, "{function}{sign}{:#x}: {why}", inside.unsigned_abs())?;
        let point = Point::from_bits(self.number);
        let place = |register: Option<Register>| register.map(placement::name_of);
        match (place(point.size_in), place(point.result_in)) {
            (Some(size), Some(result)) => write!(f, " (size in {size}, result in {result})"),
            (Some(size), None) => write!(f, " (size in {size})"),
            (None, Some(result)) => write!(f, " (result in {result})"),
            (None, None) => Ok(()),
        }
    }
}

/// Attach points of one program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramPoints {
    /// Bytes from the start of the file.
    pub offsets: Vec<u64>,
    /// The [`AttachPoint::number`] of each.
    pub numbers: Vec<u64>,
}

/// Where a file is to be probed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachPoints {
    /// Names of the functions found.
    pub functions: BTreeSet<&'static str>,
    /// Length in bytes of the executable segment that holds them.
    pub text_length: u64,
    points: BTreeSet<AttachPoint>,
    /// Where the functions begin.
    addresses: BTreeSet<u64>,
}

/// Why a file has no attach points.
#[derive(Debug, thiserror::Error)]
#[error("not a readable 64-bit ELF file")]
pub struct ElfError(#[from] object::Error);

impl AttachPoints {
    /// Looks for `functions` in an ELF file.
    ///
    /// # Errors
    /// When the file is not a 64-bit ELF file or its tables cannot be read.
    pub fn find<'data>(
        elf: impl ReadRef<'data>,
        functions: &[ProbedFunction],
        placing: Placing,
    ) -> Result<Self, ElfError> {
        let file = ElfFile64::<object::Endianness, _>::parse(elf)?;
        let mut found = Self::default();
        // Only files with something to probe are worth reading further.
        let mut image = None;
        for symbol in symbols::functions(&file).filter(|symbol| !symbol.is_local) {
            let function = functions
                .iter()
                .find(|function| function.name == symbol.name);
            if let Some(function) = function {
                let image = image.get_or_insert_with(|| Image::new(&file).ok());
                let range = symbol.address..symbol.address.saturating_add(symbol.size);
                let placer = Placer {
                    file: &file,
                    image: image.as_ref(),
                    placing,
                };
                found.add(&placer, function, range);
            }
        }
        Ok(found)
    }

    /// Looks for C++ operators that allocate, or free, by themselves. `functions` has their
    /// mangled names; `text_length` stays 0, because they call no probed function.
    ///
    /// # Errors
    /// When the file is not a 64-bit ELF file or its tables cannot be read.
    pub fn of_operators<'data>(
        elf: impl ReadRef<'data>,
        placing: Placing,
    ) -> Result<Self, ElfError> {
        let file = ElfFile64::<object::Endianness, _>::parse(elf)?;
        let mut found = Self::default();
        let operators = operators::find(&file)?;
        let image = (!operators.is_empty())
            .then(|| Image::new(&file).ok())
            .flatten();
        let placer = Placer {
            file: &file,
            image: image.as_ref(),
            placing,
        };
        for operator in operators {
            match &operator.verdict {
                Verdict::Apart { rets } => found.add_operator(&placer, &operator, rets),
                verdict => tracing::debug!("{} is not probed: it {verdict}", operator.name),
            }
        }
        Ok(found)
    }

    /// Looks for a function that a recording waits for, by the name of its symbol, local or not.
    ///
    /// # Errors
    /// When the file is not a 64-bit ELF file.
    pub fn of_awaited<'data>(
        elf: impl ReadRef<'data>,
        name: &str,
        placing: Placing,
    ) -> Result<Self, ElfError> {
        let file = ElfFile64::<object::Endianness, _>::parse(elf)?;
        let placer = Placer {
            file: &file,
            image: None,
            placing,
        };
        let named = symbols::functions(&file).filter(|symbol| symbol.name == name);
        let entry = |symbol: symbols::FunctionSymbol<'_>| {
            let range = symbol.address..symbol.address.saturating_add(symbol.size);
            let entry = placer.entry(range, 0)?;
            Some(AttachPoint {
                program: functions::AWAITED,
                function: "the awaited function",
                ..entry
            })
        };
        Ok(Self {
            points: named.filter_map(entry).collect(),
            ..Self::default()
        })
    }

    /// The same points in functions that no allocator calls.
    #[must_use]
    pub fn without_text(mut self) -> Self {
        self.text_length = 0;
        self
    }

    /// True if nothing was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// All points.
    pub fn points(&self) -> impl Iterator<Item = &AttachPoint> {
        self.points.iter()
    }

    /// Attach points of one program each: its name, whether it goes to returns, where to.
    /// Entries come before returns.
    #[must_use]
    pub fn by_program(&self) -> Vec<(&'static str, bool, ProgramPoints)> {
        let mut groups: BTreeMap<(bool, &'static str), ProgramPoints> = BTreeMap::new();
        for point in &self.points {
            let group = groups.entry((point.on_return, point.program)).or_default();
            group.offsets.push(point.offset);
            group.numbers.push(point.number);
        }
        let entry = |((on_return, program), points)| (program, on_return, points);
        groups.into_iter().map(entry).collect()
    }

    /// Adds the points of an operator; all of them or, if one is in no executable segment, none.
    fn add_operator<'data, R: ReadRef<'data>>(
        &mut self,
        placer: &Placer<'_, 'data, R>,
        operator: &Operator,
        rets: &[u64],
    ) {
        let (program, number, rets) = match operator.kind {
            Kind::New => (functions::ENTER, Function::OperatorNew.number(), rets),
            Kind::Delete => (functions::ENTER_FREE, 0, &[][..]),
        };
        let range = operator.address..operator.address.saturating_add(1);
        let entry = placer.entry(range, 1).map(|entry| AttachPoint {
            program,
            number,
            function: operator.name,
            ..entry
        });
        let exits = rets.iter().map(|ret| {
            Some(AttachPoint {
                on_return: false,
                program: functions::LEAVE_AT_RET,
                number: 0,
                offset: file_offset(placer.file, *ret)?,
                inside: ret.wrapping_sub(operator.address).cast_signed(),
                function: operator.name,
                why: Why::Ret,
            })
        });
        let Some(points) = iter::once(entry).chain(exits).collect::<Option<Vec<_>>>() else {
            return;
        };
        self.functions.insert(operator.name);
        self.points.extend(points);
    }

    /// Adds the points of a function. Aliases share an address and thus their points; a symbol
    /// outside all executable segments has none.
    fn add<'data, R: ReadRef<'data>>(
        &mut self,
        placer: &Placer<'_, 'data, R>,
        function: &ProbedFunction,
        range: Range<u64>,
    ) {
        let Some(segment) = executable_segment(placer.file, range.start) else {
            return;
        };
        self.functions.insert(function.name);
        self.text_length = self.text_length.max(segment.file_range().1);
        let (address, known) = (range.start, &mut self.addresses);
        if !known.insert(address) {
            return;
        }
        if let Some(points) = placer.inside(function, range.clone()) {
            self.points.extend(points);
            return;
        }
        let Some(entry) = placer.entry(range, function.arguments()) else {
            return;
        };
        let entry = AttachPoint {
            program: function.enter,
            number: function.function.map_or(0, Function::number),
            function: function.name,
            ..entry
        };
        self.points.insert(entry);
        self.points
            .extend(function.leave.map(|program| AttachPoint {
                on_return: true,
                program,
                number: 0,
                why: Why::Return,
                ..entry
            }));
    }
}

/// Places probes in the functions of a file.
struct Placer<'a, 'data, R: ReadRef<'data>> {
    file: &'a ElfFile64<'data, object::Endianness, R>,
    image: Option<&'a Image<'data, R>>,
    placing: Placing,
}

impl<'data, R: ReadRef<'data>> Placer<'_, 'data, R> {
    /// A point at the entry of the function at `range`, or soon after, where so many arguments are
    /// still in place. Program and function are for the caller to fill in.
    fn entry(&self, range: Range<u64>, arguments: usize) -> Option<AttachPoint> {
        let kernel = self.placing.kernel;
        let skipped = |image| placement::skipped_at_entry(image, range.clone(), arguments, kernel);
        let cheap = self.image.and_then(skipped);
        let skip = cheap.unwrap_or(0);
        Some(AttachPoint {
            on_return: false,
            program: "",
            number: 0,
            offset: file_offset(self.file, range.start)?.checked_add(skip)?,
            inside: skip.cast_signed(),
            function: "",
            why: match cheap {
                Some(0) => Why::CheapEntry,
                Some(_) => Why::CheapBehindEntry,
                None => Why::DearEntry,
            },
        })
    }

    /// Points inside a function, if its calls can be seen there.
    fn inside(&self, function: &ProbedFunction, range: Range<u64>) -> Option<Vec<AttachPoint>> {
        let start = range.start;
        let arguments = match function.function? {
            Function::Malloc => Arguments::Size,
            Function::Calloc => Arguments::Factors,
            _ => return None,
        };
        if !self.placing.inside {
            return None;
        }
        let spots = placement::inside(self.image?, range, arguments, self.placing.kernel)?;
        let point = |spot: &Spot| {
            let (program, why) = match spot.task {
                Task::Whole => (functions::ENTER, Why::Whole),
                Task::Begin => (functions::ENTER, Why::Begin),
                Task::End => (functions::LEAVE_AT_RET, Why::End),
            };
            Some(AttachPoint {
                on_return: false,
                program,
                number: spot.point.bits(),
                offset: file_offset(self.file, spot.address)?,
                inside: spot.address.wrapping_sub(start).cast_signed(),
                function: function.name,
                why,
            })
        };
        spots.iter().map(point).collect()
    }
}

/// Where the code at `address` lies, in bytes from the start of the file.
fn file_offset<'data, R: ReadRef<'data>>(
    file: &ElfFile64<'data, object::Endianness, R>,
    address: u64,
) -> Option<u64> {
    let segment = executable_segment(file, address)?;
    let inside = address - segment.address();
    segment.file_range().0.checked_add(inside)
}

fn executable_segment<'data, 'file, R: ReadRef<'data>>(
    file: &'file ElfFile64<'data, object::Endianness, R>,
    address: u64,
) -> Option<ElfSegment64<'data, 'file, object::Endianness, R>> {
    file.segments().find(|segment| {
        let executable = matches!(
            segment.flags(),
            SegmentFlags::Elf { p_flags } if p_flags & elf::PF_X != 0
        );
        let start = segment.address();
        executable && address >= start && address - start < segment.file_range().1
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::functions::{ALLOCATOR, ESSENTIAL};

    const PLACING: Placing = Placing {
        kernel: (6, 18),
        inside: false,
    };

    /// The library that this test runs on.
    fn libc() -> Vec<u8> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps
            .lines()
            .find(|line| line.ends_with("/libc.so.6"))
            .unwrap();
        std::fs::read(line.split_whitespace().last().unwrap()).unwrap()
    }

    #[test]
    fn the_c_library_has_all_functions() {
        let points = AttachPoints::find(&*libc(), &ALLOCATOR, PLACING).unwrap();
        for name in [
            ESSENTIAL,
            "free",
            "reallocarray",
            "posix_memalign",
            "pvalloc",
        ] {
            assert!(
                points.functions.contains(name),
                "{name} in {:?}",
                points.functions
            );
        }
        assert!(points.text_length > 0x10_0000);
    }

    #[test]
    fn entries_come_before_returns_and_frees_have_none() {
        let groups = AttachPoints::find(&*libc(), &ALLOCATOR, PLACING)
            .unwrap()
            .by_program();
        let first_return = groups.iter().position(|group| group.1).unwrap();
        assert!(groups[..first_return].iter().all(|group| !group.1));
        assert_eq!(
            &groups[first_return..].len(),
            &1,
            "one program serves all returns"
        );
        let entries = groups[..first_return]
            .iter()
            .filter(|group| group.0 != "enter_free");
        let allocating: usize = entries.map(|group| group.2.offsets.len()).sum();
        assert_eq!(groups[first_return].2.offsets.len(), allocating);
    }

    #[test]
    fn garbage_is_an_error_and_cuts_do_not_panic() {
        assert!(AttachPoints::find(&b"#!/bin/sh\n"[..], &ALLOCATOR, PLACING).is_err());
        let whole = libc();
        for cut in (0..whole.len()).step_by(whole.len() / 97) {
            let _any = AttachPoints::find(&whole[..cut], &ALLOCATOR, PLACING);
        }
    }
}
