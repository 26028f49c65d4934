//! Foretells which files a program will load, so that they can be probed before it runs.
//!
//! The dynamic linker itself is asked (`ld.so --list`, which maps but runs nothing of the
//! program), because only it knows all of its rules. A script is followed to its interpreter. What
//! is foretold wrongly is found when the program has loaded it.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Read},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use object::{ReadCache, elf, read::elf::ElfFile64};

use super::launch::Program;

/// What a program will load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foretold {
    /// The executable that will run; the interpreter of a script.
    pub executable: PathBuf,
    /// The dynamic linker; none for a static program.
    pub linker: Option<PathBuf>,
    /// Shared libraries, in the order in which symbols are looked up.
    pub libraries: Vec<PathBuf>,
}

/// Scripts whose interpreter is a script: the kernel follows four.
const MAX_SCRIPTS: usize = 5;

impl Foretold {
    /// What `program` will load.
    ///
    /// # Errors
    /// When the program cannot be found or read.
    pub fn of(program: &Program) -> io::Result<Self> {
        let executable = follow_scripts(find(&program.name)?)?;
        let Some(linker) = interpreter(&executable)? else {
            return Ok(Self {
                executable,
                ..Self::default()
            });
        };
        let libraries = list(&linker, &executable, program).unwrap_or_else(|error| {
            tracing::debug!("{} does not list libraries: {error}", linker.display());
            Vec::new()
        });
        Ok(Self {
            executable,
            linker: Some(linker),
            libraries,
        })
    }

    /// The executable and its libraries.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&self.executable)
            .chain(&self.libraries)
            .map(PathBuf::as_path)
    }
}

/// Looks a program up as execvp(3) does.
fn find(name: &OsStr) -> io::Result<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Ok(name.into());
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let candidates = env::split_paths(&path).map(|directory| directory.join(name));
    candidates
        .into_iter()
        .find(|candidate| is_executable(candidate))
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
}

fn follow_scripts(mut path: PathBuf) -> io::Result<PathBuf> {
    for _ in 0..MAX_SCRIPTS {
        match script_interpreter(&path)? {
            Some(interpreter) => path = interpreter,
            None => break,
        }
    }
    Ok(path)
}

/// The interpreter that a script names in its first line, of which the kernel reads 256 bytes.
fn script_interpreter(path: &Path) -> io::Result<Option<PathBuf>> {
    const FIRST_LINE: u64 = 256;
    let mut head = Vec::new();
    File::open(path)?.take(FIRST_LINE).read_to_end(&mut head)?;
    let Some(line) = head.strip_prefix(b"#!") else {
        return Ok(None);
    };
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    Ok(words
        .next()
        .map(|word| PathBuf::from(OsString::from_vec(word.to_vec()))))
}

/// The dynamic linker that an executable names; none for a static one or what is no ELF file.
fn interpreter(path: &Path) -> io::Result<Option<PathBuf>> {
    let cache = ReadCache::new(File::open(path)?);
    let Ok(file) = ElfFile64::<object::Endianness, _>::parse(&cache) else {
        return Ok(None);
    };
    let endian = file.endian();
    let segment = file.elf_program_headers().iter().find_map(|header| {
        use object::read::elf::ProgramHeader;
        (header.p_type(endian) == elf::PT_INTERP).then(|| header.data(endian, &cache).ok())?
    });
    let path = segment.and_then(|bytes| bytes.split(|byte| *byte == 0).next());
    Ok(path.map(|bytes| PathBuf::from(OsString::from_vec(bytes.to_vec()))))
}

/// Asks the dynamic linker for the libraries of an executable, as the user who will run it.
fn list(linker: &Path, executable: &Path, program: &Program) -> io::Result<Vec<PathBuf>> {
    let executable = fs::canonicalize(executable)?;
    let mut command = Command::new(linker);
    command
        .arg("--list")
        .arg(executable)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    if let Some(identity) = program.identity.clone() {
        command.envs(identity.variables());
        // SAFETY: between fork and exec only the system calls that change the user are made, on
        // what was prepared before.
        unsafe { command.pre_exec(move || identity.assume()) };
    }
    let output = command.output()?;
    Ok(output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter_map(listed_path)
        .collect())
}

/// The path in a line such as `libc.so.6 => /lib/libc.so.6 (0x7f…)` or `/lib/x.so (0x7f…)`.
fn listed_path(line: &[u8]) -> Option<PathBuf> {
    let text = String::from_utf8_lossy(line);
    let path = text.rsplit_once(" (0x")?.0.trim();
    let path = path.split_once(" => ").map_or(path, |(_, path)| path);
    path.starts_with('/').then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use nix::sys::signal::SigSet;

    use super::*;

    fn foretell(name: &OsStr) -> io::Result<Foretold> {
        Foretold::of(&Program {
            name: name.into(),
            arguments: Vec::new(),
            identity: None,
            blocked_signals: SigSet::empty(),
        })
    }

    fn has_libc(foretold: &Foretold) -> bool {
        foretold
            .libraries
            .iter()
            .any(|path| path.ends_with("libc.so.6"))
    }

    #[test]
    fn a_dynamic_program_loads_its_libraries() {
        let own = env::current_exe().unwrap();
        let foretold = foretell(own.as_os_str()).unwrap();
        assert_eq!(foretold.executable, own);
        assert!(has_libc(&foretold), "{foretold:?}");
        assert!(foretold.linker.unwrap().exists());
    }

    #[test]
    fn a_script_is_followed_to_its_interpreter() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        let own = env::current_exe().unwrap();
        fs::write(&script, format!("#! {} -x\n", own.display())).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let foretold = foretell(script.as_os_str()).unwrap();
        assert_eq!(foretold.executable, own);
        assert!(has_libc(&foretold));
    }

    #[test]
    fn names_are_looked_up() {
        assert!(
            foretell(OsStr::new("sh"))
                .unwrap()
                .executable
                .ends_with("sh")
        );
        let error = foretell(OsStr::new("no-such-program")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn lines_of_the_dynamic_linker() {
        let path = |line: &str| listed_path(line.as_bytes());
        let expected = Some(PathBuf::from("/lib/libc.so.6"));
        assert_eq!(path("\tlibc.so.6 => /lib/libc.so.6 (0x00007f00)"), expected);
        assert_eq!(path("\t/lib/libc.so.6 (0x00007f00)"), expected);
        assert_eq!(path("\tlinux-vdso.so.1 (0x00007ffd)"), None);
        assert_eq!(path("\tlibx.so => not found"), None);
        assert_eq!(path(""), None);
    }
}
