//! The debug information of one file.
//!
//! blazesym reads it, one instance a file, so that each can be let go of alone. Of a file that
//! shares descriptions with others through a `dwz` file it would give inlined functions without
//! names, as blazesym 0.2.7 follows no references into that; [`super::alternate`] reads those.
//!
//! Neither is proof against malformed debug information: a panic counts as an error, after which
//! the file is not asked again. blazesym also maps the file, and so ends this process when
//! somebody cuts the file short meanwhile. Its demangling and its search for other files are not
//! used: see [`super::demangle`] and [`super::debug_file`].

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::Arc;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolizer};

use super::alternate::AlternateDwarf;
use super::demangle::demangle;
use super::frame::{Frame, source_path};
use super::guard::guarded;

/// The debug information of one file.
pub struct DwarfFile {
    reader: Reader,
}

enum Reader {
    Blazesym(Box<BlazesymFile>),
    Alternate(Box<AlternateDwarf>),
}

struct BlazesymFile {
    blazesym: Symbolizer,
    source: Source<'static>,
    /// blazesym opens the file at the first question; until then the descriptor has to stay.
    unopened: Option<Arc<File>>,
}

impl DwarfFile {
    /// Prepares to read a file that is complete in itself.
    #[must_use]
    pub fn new(file: &Arc<File>) -> Self {
        let no_directories: [&Path; 0] = [];
        let blazesym = Symbolizer::builder()
            .enable_auto_reload(false)
            .enable_demangling(false)
            .set_debug_dirs(Some(no_directories))
            .build();
        let source = Source::Elf(Elf::new(format!("/proc/self/fd/{}", file.as_raw_fd())));
        let unopened = Some(Arc::clone(file));
        Self {
            reader: Reader::Blazesym(Box::new(BlazesymFile {
                blazesym,
                source,
                unopened,
            })),
        }
    }

    /// Reads a file and the `dwz` file that it needs.
    ///
    /// # Errors
    /// When one of them cannot be read; the text says why.
    pub fn with_alternate(file: &Arc<File>, alternate: &Arc<File>) -> Result<Self, String> {
        let dwarf = guarded(|| AlternateDwarf::read(file, alternate))?;
        Ok(Self {
            reader: Reader::Alternate(Box::new(dwarf)),
        })
    }

    /// The frames at a virtual address, innermost first; none when the file does not know it.
    /// The last frame is the function that the code is in, perhaps without a name. Names are
    /// mangled, see [`readable`].
    ///
    /// # Errors
    /// When the file cannot be read or its debug information is broken; the text says how. The
    /// file should not be asked again then.
    pub fn frames(&mut self, virtual_address: u64) -> Result<Vec<Frame>, String> {
        // Both compute the address behind.
        if virtual_address == u64::MAX {
            return Ok(Vec::new());
        }
        match &mut self.reader {
            Reader::Blazesym(reader) => reader.frames(virtual_address),
            Reader::Alternate(reader) => guarded(|| reader.frames(virtual_address)),
        }
    }
}

impl BlazesymFile {
    fn frames(&mut self, virtual_address: u64) -> Result<Vec<Frame>, String> {
        let answer = guarded(|| {
            let input = Input::VirtOffset(virtual_address);
            let symbolized = self.blazesym.symbolize_single(&self.source, input);
            let symbolized = symbolized.map_err(|error| format!("{error:#}"))?;
            Ok(symbolized.as_sym().map(frames_of).unwrap_or_default())
        });
        self.unopened = None;
        answer
    }
}

/// blazesym gives the function first and what is inlined from the outside in.
fn frames_of(symbol: &Sym<'_>) -> Vec<Frame> {
    let inlined = symbol.inlined.iter().rev();
    let mut frames: Vec<Frame> = inlined
        .map(|inlined| frame(&inlined.name, inlined.code_info.as_ref()))
        .collect();
    frames.push(frame(&symbol.name, symbol.code_info.as_deref()));
    frames
}

/// Names stay mangled here for the outermost frame's sake.
fn frame(name: &str, code: Option<&CodeInfo<'_>>) -> Frame {
    Frame {
        function: (!name.is_empty()).then(|| name.to_owned()),
        file: code.map(|code| source_path(code.dir.as_deref(), &code.file)),
        line: code.and_then(|code| code.line),
    }
}

/// Demangles all names. `symbol` is the symbol table's name for the address: it stands in where
/// the debug information has no name, or only an unqualified one where the symbol has a full one.
pub fn readable(frames: &mut [Frame], symbol: Option<&str>) {
    if let (Some(outermost), Some(symbol)) = (frames.last_mut(), symbol) {
        let is_full = |name: &str| super::demangle::is_mangled(name);
        match &outermost.function {
            Some(name) if is_full(name) || !is_full(symbol) => {}
            _ => outermost.function = Some(without_clone(symbol).to_owned()),
        }
    }
    for frame in frames {
        frame.function = frame.function.take().map(|name| demangle(&name));
    }
}

/// Leaves away what compilers append to the symbols of copies of a function (`.constprop.0`), as
/// debug information does. Two dots in a row are part of a Rust name.
fn without_clone(symbol: &str) -> &str {
    match symbol.split_once('.') {
        Some((function, _)) if !symbol.contains("..") => function,
        _ => symbol,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: Option<&str>) -> Vec<Frame> {
        vec![Frame {
            function: name.map(str::to_owned),
            ..Frame::default()
        }]
    }

    fn outermost(dwarf: Option<&str>, symbol: Option<&str>) -> Option<String> {
        let mut frames = named(dwarf);
        readable(&mut frames, symbol);
        frames.pop().unwrap().function
    }

    #[test]
    fn the_fuller_name_wins() {
        assert_eq!(
            outermost(Some("f"), Some("_ZN1aL1fEv")).as_deref(),
            Some("a::f()")
        );
        assert_eq!(
            outermost(Some("_Z1fv"), Some("_Z1gv")).as_deref(),
            Some("f()")
        );
        assert_eq!(outermost(Some("f"), Some("f.part.0")).as_deref(), Some("f"));
        assert_eq!(outermost(None, Some("f")).as_deref(), Some("f"));
        assert_eq!(outermost(Some("f"), None).as_deref(), Some("f"));
        assert_eq!(outermost(None, None), None);
    }

    #[test]
    fn what_is_no_elf_file_is_an_error() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        assert!(DwarfFile::new(&file).frames(0x1000).is_err());
        assert!(DwarfFile::with_alternate(&file, &file).is_err());
    }
}
