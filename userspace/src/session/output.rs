//! Names and makes the trace file.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, OpenOptions},
    io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use crate::target::Identity;

/// What a file's name is made of, and whose it is to be.
#[derive(Clone, Debug)]
pub struct OutputContext {
    /// Name of the program, without directories.
    pub program: OsString,
    /// Process id of the target.
    pub pid: u32,
    /// Name of this machine.
    pub host: OsString,
    /// Who called sudo.
    pub owner: Option<Identity>,
}

/// A trace file.
#[derive(Debug)]
pub struct Output {
    /// The empty file.
    pub file: File,
    /// Where it is.
    pub path: PathBuf,
}

const SUFFIX: &[u8] = b".zst";

/// Makes the file, and the directories that lead to it. An older file of that name is replaced.
///
/// # Errors
/// When it cannot be made, with its name.
pub fn create(wanted: Option<&Path>, context: &OutputContext) -> anyhow::Result<Output> {
    let path = file_name(wanted, context);
    let describe = || {
        format!(
            "cannot write the trace to {}; -o names another place",
            path.display()
        )
    };
    let file = create_at(&path, context).with_context(describe)?;
    Ok(Output { file, path })
}

fn create_at(path: &Path, context: &OutputContext) -> io::Result<File> {
    const MODE: u32 = 0o600;
    if let Some(directory) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        make_directories(directory, context)?;
    }
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(MODE)
        // Not through a link that somebody else may have put there.
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)?;
    if let Some(owner) = &context.owner {
        let (user, group) = owner.ids();
        std::os::unix::fs::fchown(&file, Some(user), Some(group))?;
    }
    Ok(file)
}

/// Makes missing directories, and gives those to the owner.
fn make_directories(directory: &Path, context: &OutputContext) -> io::Result<()> {
    let missing: Vec<&Path> = directory
        .ancestors()
        .take_while(|ancestor| !ancestor.as_os_str().is_empty() && !ancestor.exists())
        .collect();
    for directory in missing.into_iter().rev() {
        fs::create_dir(directory)?;
        if let Some(owner) = &context.owner {
            let (user, group) = owner.ids();
            std::os::unix::fs::lchown(directory, Some(user), Some(group))?;
        }
    }
    Ok(())
}

/// `heaptrack.PROGRAM.PID.zst`, or what the user wants with `%p` (process id) and `%h` (host)
/// put in and `.zst` at the end.
fn file_name(wanted: Option<&Path>, context: &OutputContext) -> PathBuf {
    let Some(wanted) = wanted else {
        let mut name = OsString::from("heaptrack.");
        name.push(&context.program);
        name.push(format!(".{}.zst", context.pid));
        return name.into();
    };
    let mut name = expand(wanted.as_os_str(), context);
    if !name.ends_with(SUFFIX) {
        name.extend_from_slice(SUFFIX);
    }
    OsString::from_vec(name).into()
}

fn expand(template: &OsStr, context: &OutputContext) -> Vec<u8> {
    let mut name = Vec::new();
    let mut rest = template.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match (byte, behind.first()) {
            (b'%', Some(b'p')) => name.extend_from_slice(context.pid.to_string().as_bytes()),
            (b'%', Some(b'h')) => name.extend_from_slice(context.host.as_bytes()),
            _ => {
                name.push(byte);
                continue;
            }
        }
        rest = &behind[1..];
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> OutputContext {
        OutputContext {
            program: "ls".into(),
            pid: 42,
            host: "box".into(),
            owner: None,
        }
    }

    fn name(wanted: &str) -> PathBuf {
        file_name(Some(Path::new(wanted)), &context())
    }

    #[test]
    fn names_follow_the_program_or_the_wish() {
        assert_eq!(
            file_name(None, &context()),
            Path::new("heaptrack.ls.42.zst")
        );
        assert_eq!(name("run1"), Path::new("run1.zst"));
        assert_eq!(name("run1.zst"), Path::new("run1.zst"));
        assert_eq!(name("%h/%p-%x%"), Path::new("box/42-%x%.zst"));
    }

    #[test]
    fn directories_are_made_and_links_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/run");
        let output = create(Some(&path), &context()).unwrap();
        assert_eq!(output.path, path.with_extension("zst"));

        let link = directory.path().join("link.zst");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        let error = create(Some(&link), &context()).unwrap_err();
        assert!(format!("{error:#}").contains("link.zst"), "{error:#}");
    }
}
