//! Asks blazesym about one file with debug information.
//!
//! Each file has a blazesym of its own, so that it can be let go of alone. blazesym maps the file
//! and is not proof against malformed debug information: a panic of its counts as an error, after
//! which it is not asked again. Its demangling and its search for other files are not used: see
//! [`super::demangle`] and [`super::debug_file`].
//!
//! Of a `dwz` file blazesym 0.2.7 reads strings, but follows no references into it: an inlined
//! function whose description was moved there has a place and no name.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolizer};

use super::debug_file::DebugFile;
use super::demangle::demangle;
use super::frame::{Frame, source_path};
use crate::modules::BuildId;

/// The debug information of one file.
pub struct DwarfFile {
    blazesym: Symbolizer,
    source: Source<'static>,
    /// blazesym opens the file at the first question; until then the descriptor has to stay.
    unopened: Option<Unopened>,
}

/// What has to be there while blazesym opens its files.
struct Unopened {
    _file: Arc<File>,
    _alternate: Option<AlternateDirectory>,
}

/// A directory in which blazesym finds the `dwz` file by its build id.
struct AlternateDirectory {
    directory: tempfile::TempDir,
    _file: Arc<File>,
}

impl DwarfFile {
    /// Prepares to read a file; its `dwz` file, if it needs one and one was found, comes along.
    #[must_use]
    pub fn new(file: &Arc<File>, alternate: Option<(&BuildId, &DebugFile)>) -> Self {
        let alternate = alternate.and_then(|(build_id, file)| alternate_directory(build_id, file));
        let directories: Vec<PathBuf> = alternate
            .iter()
            .map(|alternate| alternate.directory.path().to_owned())
            .collect();
        let blazesym = Symbolizer::builder()
            .enable_auto_reload(false)
            .enable_demangling(false)
            .set_debug_dirs(Some(directories))
            .build();
        Self {
            blazesym,
            source: Source::Elf(Elf::new(descriptor_path(file))),
            unopened: Some(Unopened {
                _file: Arc::clone(file),
                _alternate: alternate,
            }),
        }
    }

    /// The frames at a virtual address, innermost first; none when the file does not know it.
    /// The last frame is the function that the code is in, perhaps without a name.
    ///
    /// # Errors
    /// When the file cannot be read or its debug information is broken; the text says how. The
    /// file should not be asked again then.
    pub fn frames(&mut self, virtual_address: u64) -> Result<Vec<Frame>, String> {
        // blazesym computes the address behind.
        if virtual_address == u64::MAX {
            return Ok(Vec::new());
        }
        let input = Input::VirtOffset(virtual_address);
        let (blazesym, source) = (&self.blazesym, &self.source);
        // What may be left inconsistent is inside of blazesym, and the caller lets go of it.
        let answer = catch_unwind(AssertUnwindSafe(|| {
            let symbolized = blazesym.symbolize_single(source, input)?;
            Ok::<_, blazesym::Error>(symbolized.as_sym().map(frames_of).unwrap_or_default())
        }));
        self.unopened = None;
        match answer {
            Ok(answer) => answer.map_err(|error| format!("{error:#}")),
            Err(_) => Err("its debug information is malformed".to_owned()),
        }
    }
}

fn descriptor_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn alternate_directory(build_id: &BuildId, alternate: &DebugFile) -> Option<AlternateDirectory> {
    let directory = tempfile::tempdir().ok()?;
    let name = build_id.to_string();
    let (first, rest) = name.split_at_checked(2)?;
    let parent = directory.path().join(".build-id").join(first);
    std::fs::create_dir_all(&parent).ok()?;
    symlink(
        descriptor_path(&alternate.file),
        parent.join(format!("{rest}.debug")),
    )
    .ok()?;
    Some(AlternateDirectory {
        directory,
        _file: Arc::clone(&alternate.file),
    })
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

/// Names stay mangled here for the outermost frame's sake, see [`readable`].
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
        assert!(DwarfFile::new(&file, None).frames(0x1000).is_err());
    }
}
