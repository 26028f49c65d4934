//! The functions below which allocations are recorded, when not all are.
//!
//! Pure: it knows names and addresses, neither records nor the file. Functions are chosen by the
//! names that reports show, a C++ function's argument list may be left away. What is at an address
//! is asked for once.

use htrace_ebpf_common::wire::StackEnd;
use rustc_hash::FxHashMap;

use super::names::{Names, Place};

/// The word under which files name what is left out so: the option's.
pub(super) const CHOICE_OF_FUNCTIONS: &str = "functions";

/// A choice of functions; none stands for all.
#[derive(Debug, Default)]
pub(super) struct ChosenFunctions {
    chosen: Vec<String>,
    /// Whether one of them is at an address.
    known: FxHashMap<(Place, u64), bool>,
}

/// Allocations that are below none of the chosen functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// All of them.
    pub(super) allocations: u64,
    /// Bytes in them.
    pub(super) bytes: u64,
    /// Those of them whose stacks are cut or lost, which may have held a chosen function.
    pub(super) in_doubt: u64,
}

impl ChosenFunctions {
    /// The functions of these names.
    pub(super) fn new(names: Vec<String>) -> Self {
        Self {
            chosen: names,
            ..Self::default()
        }
    }

    /// True if there is no choice.
    pub(super) const fn are_all(&self) -> bool {
        self.chosen.is_empty()
    }

    /// True if one of them, or a function that was inlined there, is at one of a stack's `calls`.
    pub(super) fn are_in(
        &mut self,
        mut calls: impl Iterator<Item = u64>,
        names: &mut impl Names,
    ) -> bool {
        self.are_all() || calls.any(|address| self.are_at(address, names))
    }

    fn are_at(&mut self, address: u64, names: &mut impl Names) -> bool {
        let place = (names.place(address), address);
        if let Some(known) = self.known.get(&place) {
            return *known;
        }
        let frames = names.resolve(address).frames;
        let mut functions = frames.iter().filter_map(|frame| frame.function.as_deref());
        let found = functions.any(|function| self.hold(function));
        self.known.insert(place, found);
        found
    }

    fn hold(&self, function: &str) -> bool {
        let bare = without_parameters(function);
        self.chosen
            .iter()
            .any(|name| name == function || name == bare)
    }
}

impl LeftOut {
    /// Counts an allocation of `size` bytes whose stack ends so; `None` if the stack was lost.
    pub(super) fn count(&mut self, size: u64, end: Option<StackEnd>) {
        self.allocations += 1;
        self.bytes += size;
        self.in_doubt += u64::from(!end.is_some_and(StackEnd::is_whole));
    }
}

/// What follows the argument list of a demangled C++ name.
const QUALIFIERS: [&str; 4] = [" const", " volatile", " &", "&"];

/// A function's name without its argument list and what follows that: `a::f(int) const` is `a::f`.
/// Names without one stay as they are.
fn without_parameters(function: &str) -> &str {
    let mut rest = function;
    // Parts that a compiler has made of a function: `f() [clone .cold]`.
    while let Some((before, _)) = rest
        .strip_suffix(']')
        .and_then(|rest| rest.rsplit_once(" [clone "))
    {
        rest = before;
    }
    while let Some(before) = QUALIFIERS.iter().find_map(|word| rest.strip_suffix(word)) {
        rest = before;
    }
    match opening(rest).map(|at| rest[..at].trim_end()) {
        Some(bare) if !bare.is_empty() && !is_call_operator(bare) => bare,
        _ => function,
    }
}

/// True if `()` behind it are not arguments but complete its name, `operator()`.
fn is_call_operator(bare: &str) -> bool {
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
    bare.strip_suffix("operator")
        .is_some_and(|before| !before.ends_with(is_of_name))
}

/// Where the parenthesis was opened that is closed at the end of `text`.
fn opening(text: &str) -> Option<usize> {
    if !text.ends_with(')') {
        return None;
    }
    let mut open = 0_usize;
    for (at, byte) in text.bytes().enumerate().rev() {
        match byte {
            b')' => open += 1,
            b'(' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{session::names::Resolved, symbolize::Frame};

    #[test]
    fn argument_lists_are_left_away_and_nothing_else() {
        for (function, bare) in [
            ("parse", "parse"),
            ("shop::parse_record(long)", "shop::parse_record"),
            ("a::f(void (*)(int), b<(c)1>) const", "a::f"),
            ("a::f() const volatile &&", "a::f"),
            ("foo() [clone .isra.0] [clone .cold]", "foo"),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
            ("a::operator()(int) const", "a::operator()"),
            ("a::operator()", "a::operator()"),
            ("operator<<(a&, int)", "operator<<"),
            ("a::my_operator(int)", "a::my_operator"),
            ("a::operator bool() const", "a::operator bool"),
            ("f(int)::{lambda(int)#1}", "f(int)::{lambda(int)#1}"),
            (
                "f(int)::{lambda(int)#1}::operator()(int) const",
                "f(int)::{lambda(int)#1}::operator()",
            ),
            (
                "<shop::A as core::fmt::Display>::fmt",
                "<shop::A as core::fmt::Display>::fmt",
            ),
            ("void a::b<3>()", "void a::b<3>"),
            // What nobody means as a name.
            ("", ""),
            ("(int)", "(int)"),
            ("int)", "int)"),
            ("])))", "])))"),
            ("a [clone ", "a [clone "),
        ] {
            assert_eq!(without_parameters(function), bare, "{function}");
        }
    }

    #[test]
    fn a_name_means_itself_and_what_it_is_with_arguments() {
        let names = ["parse", "shop::f(long)"].map(str::to_owned);
        let chosen = ChosenFunctions::new(names.into());
        for function in ["parse", "parse(int)", "shop::f(long)"] {
            assert!(chosen.hold(function), "{function}");
        }
        for function in ["shop::parse", "parse_all", "shop::f(int)", "shop::f", ""] {
            assert!(!chosen.hold(function), "{function}");
        }
    }

    /// At each address `outer`, and inlined into it `at_ADDRESS`; it counts what is asked.
    #[derive(Default)]
    struct Asked(u32);

    impl Names for Asked {
        fn update(&mut self, _mappings: &[u8]) -> bool {
            false
        }

        fn place(&mut self, _address: u64) -> Place {
            Place::Unknown
        }

        fn resolve(&mut self, address: u64) -> Resolved {
            self.0 += 1;
            let names = [format!("at_{address}"), "outer".to_owned()];
            let frames = names.map(|name| Frame {
                function: Some(name),
                ..Frame::default()
            });
            Resolved {
                frames: frames.into(),
                ..Resolved::default()
            }
        }
    }

    #[test]
    fn any_frame_counts_and_each_address_is_asked_for_once() {
        let mut names = Asked::default();
        let mut inner = ChosenFunctions::new(vec!["at_2".to_owned()]);
        assert!(inner.are_in([1, 2, 3].into_iter(), &mut names));
        assert!(!inner.are_in([1, 3].into_iter(), &mut names));
        assert!(inner.are_in([3, 2].into_iter(), &mut names));
        assert_eq!(names.0, 3);
        let mut outer = ChosenFunctions::new(vec!["outer".to_owned()]);
        assert!(outer.are_in([1].into_iter(), &mut names));
        assert!(!outer.are_in([].into_iter(), &mut names));
    }

    #[test]
    fn without_a_choice_nothing_is_asked() {
        let mut names = Asked::default();
        assert!(ChosenFunctions::default().are_in([1].into_iter(), &mut names));
        assert_eq!(names.0, 0);
    }
}
