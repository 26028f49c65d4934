//! Demangles C++ and Rust names, and nothing that only looks like one.
//!
//! Only names that begin as mangled ones do are touched: a demangler that also takes bare types
//! would read a C function `f` as `float`. Output is bounded, since a short mangled name can stand
//! for an enormous one.

use std::fmt::{self, Write};

/// Demangled names longer than this stay mangled.
const MAX_LENGTH: usize = 1 << 16;

/// Whether a name begins as mangled names of C++ and Rust do.
#[must_use]
pub fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R")
}

/// The readable form of a symbol's name; the name itself when it has none.
#[must_use]
pub fn demangle(name: &str) -> String {
    let demangled = if is_mangled(name) {
        rust(name).or_else(|| cpp(name))
    } else {
        None
    };
    demangled.unwrap_or_else(|| name.to_owned())
}

/// Asked first: Rust's older scheme is a subset of the C++ one with a hash at the end.
fn rust(name: &str) -> Option<String> {
    let demangled = rustc_demangle::try_demangle(name).ok()?;
    let mut out = Bounded::default();
    // The alternate form leaves the hash away.
    write!(out, "{demangled:#}").ok()?;
    Some(out.0)
}

fn cpp(name: &str) -> Option<String> {
    let symbol = cpp_demangle::Symbol::new(name).ok()?;
    let mut out = Bounded::default();
    symbol
        .structured_demangle(&mut out, &cpp_demangle::DemangleOptions::default())
        .ok()?;
    Some(out.0)
}

#[derive(Default)]
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len().saturating_add(text.len()) > MAX_LENGTH {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_read_as_programmers_write_them() {
        for (mangled, expected) in [
            ("_Znwm", "operator new(unsigned long)"),
            ("_Znam", "operator new[](unsigned long)"),
            ("_ZN3FooC4Ei", "Foo::Foo(int)"),
            ("_ZN3FooC2Ei", "Foo::Foo(int)"),
            ("_ZN1a1bILi3EEEvv", "void a::b<3>()"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
            ),
            ("_Z3foov.cold", "foo() [clone .cold]"),
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"),
        ] {
            assert_eq!(demangle(mangled), expected, "{mangled}");
        }
    }

    #[test]
    fn names_of_c_functions_stay_as_they_are() {
        for name in [
            "f", "i", "v", "St", "Pc", "main", "malloc", "_start", "", "_Z", "_R", "_Zx",
        ] {
            assert_eq!(demangle(name), name);
        }
    }

    #[test]
    fn a_name_that_would_explode_stays_mangled() {
        // Every T_ stands for the pair before it: two to the power of 30 components.
        let mut name = String::from("_Z1fISt4pairIiiE");
        for index in 0..30 {
            let digit = char::from_digit(index, 36).unwrap().to_ascii_uppercase();
            name.push_str(&format!("S0_IS{digit}_S{digit}_E"));
        }
        name.push_str("EvT_");
        assert_eq!(demangle(&name), name);
    }

    proptest! {
        #[test]
        fn no_name_panics(name in "(_Z|_R|)[A-Za-z0-9_.$]{0,60}") {
            prop_assert!(demangle(&name).len() <= MAX_LENGTH);
        }
    }
}
