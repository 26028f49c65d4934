//! Names and makes the trace file.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    os::{
        fd::OwnedFd,
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::MetadataExt,
        },
    },
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use nix::unistd::geteuid;
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2},
    io::Errno,
};

use crate::target::{Identity, identity::fs_user};

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

/// Makes the file as the user whose it is to be, so that he gets nothing done here that he could
/// not do by himself, whatever links he has put on the way. Where he may not write, root may, and
/// then follows no link at all.
fn create_at(path: &Path, context: &OutputContext) -> io::Result<File> {
    let Some(owner) = &context.owner else {
        return create_as_ourselves(path, LinksOnTheWay::Followed);
    };
    let created = {
        let _as_owner = owner.in_file_system();
        create_as_ourselves(path, LinksOnTheWay::Followed)
    };
    match created {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let file = create_as_ourselves(path, LinksOnTheWay::Refused)?;
            let (user, group) = owner.ids();
            std::os::unix::fs::fchown(&file, Some(user), Some(group))?;
            Ok(file)
        }
        created => created,
    }
}

/// What to do about symbolic links among the directories of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinksOnTheWay {
    Followed,
    Refused,
}

fn create_as_ourselves(path: &Path, links: LinksOnTheWay) -> io::Result<File> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    if let Some(directory) = parent {
        // 0777 without what the umask takes away.
        fs::create_dir_all(directory)?;
    }
    let directory = open_directory(parent.unwrap_or(Path::new(".")), links)?;
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let new = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match openat(&directory, name, new | OFlags::CREATE | OFlags::EXCL, OWN) {
        Ok(file) => return Ok(file.into()),
        Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let file = File::from(openat(&directory, name, new, Mode::empty())?);
    require_own(&file)?;
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

const OWN: Mode = Mode::RUSR.union(Mode::WUSR);

fn open_directory(directory: &Path, links: LinksOnTheWay) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = match links {
        LinksOnTheWay::Followed => ResolveFlags::empty(),
        LinksOnTheWay::Refused => ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    };
    Ok(openat2(CWD, directory, flags, Mode::empty(), resolve)?)
}

/// Refuses a file that somebody else has put there to read along, or that is known by other names
/// as well.
fn require_own(file: &File) -> io::Result<()> {
    let metadata = file.metadata()?;
    let own = [geteuid().as_raw(), fs_user()].contains(&metadata.uid());
    if !own {
        return Err(io::Error::other("there is a file of somebody else"));
    }
    if metadata.is_file() && metadata.nlink() > 1 {
        return Err(io::Error::other(
            "there is a file that has other names, too",
        ));
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

    #[test]
    fn an_older_file_is_emptied_and_a_file_with_other_names_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.zst");
        fs::write(&path, "old").unwrap();
        create(Some(&path), &context()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");

        let other = directory.path().join("other");
        fs::write(&other, "precious").unwrap();
        fs::remove_file(&path).unwrap();
        fs::hard_link(&other, &path).unwrap();
        let error = create(Some(&path), &context()).unwrap_err();
        assert!(format!("{error:#}").contains("other names"), "{error:#}");
        assert_eq!(fs::read(&other).unwrap(), b"precious");
    }

    #[test]
    fn a_new_file_is_its_owners_alone() {
        let directory = tempfile::tempdir().unwrap();
        let output = create(Some(&directory.path().join("run")), &context()).unwrap();
        assert_eq!(output.file.metadata().unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn root_follows_no_link_where_the_owner_may_not_write() {
        let directory = tempfile::tempdir().unwrap();
        let (real, link) = (directory.path().join("real"), directory.path().join("link"));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let create = |links| create_as_ourselves(&link.join("run.zst"), links);
        assert!(create(LinksOnTheWay::Refused).is_err());
        assert!(fs::read_dir(&real).unwrap().next().is_none());
        create(LinksOnTheWay::Followed).unwrap();
    }
}
