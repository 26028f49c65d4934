//! Finds the C++ `operator new` and `operator delete` of a module that allocate by themselves.
//!
//! Most operators call `malloc` and `free`, where probes see them. A program or library that
//! replaces them by a pool of its own is seen only by probes on the operators. Which is the case
//! is told by their code: it is followed through calls, jumps and linkage tables of the module
//! that defines them. What cannot be seen through is taken to lead into a probed function, for
//! a block that is counted twice is worse than one that is not.
//!
//! Pure: bytes in, addresses out. The file is a target's, so nothing in it is trusted, and work
//! on it is bounded.

pub(in crate::loader) mod flow;
mod frames;
pub(in crate::loader) mod image;
mod names;
pub(in crate::loader) mod survey;

use std::fmt;

use object::{Endianness, ReadRef, read::elf::ElfFile64};

pub use self::survey::Kind;
use self::{flow::Flow, image::Image, names::Role, survey::Survey};
use super::symbols;

/// Bytes at the begin of a function that a probe may skip (`endbr64`, `test`), and one more.
const ENTRY_LENGTH: u64 = 8;

/// Where an operator leads that cannot be probed, or must not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lead {
    /// Into a probed function, or another operator.
    Function(&'static str),
    /// Into itself.
    Itself,
    /// Into a function of another module that is not known to do without an allocator.
    Unknown(String),
    /// Through a pointer that can be any.
    Pointer,
    /// Further than is followed.
    TooLong,
    /// To where no valid code is.
    NoCode,
}

impl fmt::Display for Lead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function(name) => write!(f, "leads into {name}"),
            Self::Itself => write!(f, "calls itself"),
            Self::Unknown(name) => write!(f, "may lead into an allocator through {name}"),
            Self::Pointer => write!(f, "may lead into an allocator through a pointer"),
            Self::TooLong => write!(f, "is too long to be followed"),
            Self::NoCode => write!(f, "has code that cannot be followed"),
        }
    }
}

/// What is to be done about an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It allocates or frees by itself, and returns by the `ret` instructions at these addresses.
    Apart {
        /// In ascending order.
        rets: Vec<u64>,
    },
    /// It leads, or may lead, into a function that is probed.
    Leads(Lead),
    /// It is left by jumps to other functions, or not at all: its result cannot be seen.
    Unfollowed,
    /// Its first instructions are part of a loop: a probe there would be hit more than once.
    Repeats,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apart { .. } => write!(f, "leads into no probed function"),
            Self::Leads(lead) => lead.fmt(f),
            Self::Unfollowed => write!(f, "does not end in a `ret` of its own"),
            Self::Repeats => write!(f, "begins with a loop"),
        }
    }
}

/// An operator that a module defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// Its mangled name; one of them if the code has several.
    pub name: &'static str,
    /// What it does.
    pub kind: Kind,
    /// Where it begins.
    pub address: u64,
    /// What is to be done about it.
    pub verdict: Verdict,
}

/// The operators that an ELF file defines, by address. Those that share their code with a probed
/// function of C are not among them.
///
/// # Errors
/// When the tables of a file that has operators cannot be read.
pub fn find<'data, R: ReadRef<'data>>(
    file: &ElfFile64<'data, Endianness, R>,
) -> object::Result<Vec<Operator>> {
    if !has_operators(file) {
        return Ok(Vec::new());
    }
    let image = Image::new(file)?;
    let judge = |(address, role)| match role {
        Role::New(name) => Some(judge(&image, name, Kind::New, address)),
        Role::Delete(name) => Some(judge(&image, name, Kind::Delete, address)),
        _ => None,
    };
    let mut operators: Vec<Operator> = image.roles().filter_map(judge).collect();
    operators.sort_by_key(|operator| operator.address);
    Ok(operators)
}

/// Quick, because most modules have none.
fn has_operators<'data, R: ReadRef<'data>>(file: &ElfFile64<'data, Endianness, R>) -> bool {
    symbols::functions(file).any(|function| Role::of_operator(function.name).is_some())
}

fn judge<'data, R: ReadRef<'data>>(
    image: &Image<'data, R>,
    name: &'static str,
    kind: Kind,
    address: u64,
) -> Operator {
    let flow = Survey::operator(image, kind, address);
    Operator {
        name,
        kind,
        address,
        verdict: verdict(&flow, kind, address),
    }
}

fn verdict(flow: &Flow, kind: Kind, address: u64) -> Verdict {
    if let Some(lead) = flow.reached().lead {
        return Verdict::Leads(lead);
    }
    if flow.repeats(address, ENTRY_LENGTH) {
        return Verdict::Repeats;
    }
    let rets = flow.rets();
    if kind == Kind::New && (rets.is_empty() || flow.returns_elsewhere()) {
        return Verdict::Unfollowed;
    }
    Verdict::Apart { rets }
}

#[cfg(test)]
mod tests;
