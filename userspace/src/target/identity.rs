//! As whom a launched program runs.
//!
//! Tracing needs privileges that the program must not get: when we were started through sudo, the
//! program runs as the user who typed the command (sudo(8): `SUDO_UID` and `SUDO_GID`).

use std::{
    env,
    ffi::{CString, OsString},
    io,
};

use nix::unistd::{Gid, Uid, User, getgrouplist, setfsgid, setfsuid};

/// A user to run a program as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    uid: Uid,
    gid: Gid,
    /// All groups, looked up beforehand: between fork and exec nothing may allocate.
    groups: Vec<Gid>,
    /// Environment variables that describe the user.
    variables: Vec<(&'static str, OsString)>,
}

/// Why a program cannot run as somebody.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// There is no such user.
    #[error("there is no user {0:?}")]
    NoSuchUser(String),
    /// The user data base cannot be read.
    #[error("cannot look up user {0:?}: {1}")]
    LookUp(String, nix::Error),
}

impl Identity {
    /// The user of that name or number.
    ///
    /// # Errors
    /// When there is none.
    pub fn named(user: &str) -> Result<Self, IdentityError> {
        let found = match user.parse() {
            Ok(uid) => User::from_uid(Uid::from_raw(uid)),
            Err(_) => User::from_name(user),
        };
        match found {
            Ok(Some(found)) => Ok(Self::of(found)),
            Ok(None) => Err(IdentityError::NoSuchUser(user.to_owned())),
            Err(error) => Err(IdentityError::LookUp(user.to_owned(), error)),
        }
    }

    /// The user who called sudo, if somebody did and we run as root.
    ///
    /// # Errors
    /// When sudo names a user that does not exist.
    pub fn behind_sudo() -> Result<Option<Self>, IdentityError> {
        match env::var("SUDO_UID") {
            Ok(uid) if uid != "0" && Uid::effective().is_root() => Self::named(&uid).map(Some),
            _ => Ok(None),
        }
    }

    fn of(user: User) -> Self {
        let name = OsString::from(&user.name);
        let variables = vec![
            ("HOME", user.dir.into_os_string()),
            ("LOGNAME", name.clone()),
            ("SHELL", user.shell.into_os_string()),
            ("USER", name),
        ];
        // A name from the user data base has no NUL in it.
        let name = CString::new(user.name).unwrap_or_default();
        let groups = getgrouplist(&name, user.gid).unwrap_or_else(|_| vec![user.gid]);
        Self {
            groups,
            uid: user.uid,
            gid: user.gid,
            variables,
        }
    }

    /// User and group id, for handing files over.
    #[must_use]
    pub const fn ids(&self) -> (u32, u32) {
        (self.uid.as_raw(), self.gid.as_raw())
    }

    /// Environment variables that describe the user.
    pub fn variables(&self) -> impl Iterator<Item = (&'static str, &OsString)> {
        self.variables.iter().map(|(name, value)| (*name, value))
    }

    /// Makes the calling thread this user for what it does to files, until the value goes.
    #[must_use]
    pub fn in_file_system(&self) -> InFileSystem {
        let user = setfsuid(Uid::from_raw(NO_ID));
        let group = setfsgid(Gid::from_raw(NO_ID));
        // Groups first, while that is still allowed.
        setfsgid(self.gid);
        setfsuid(self.uid);
        InFileSystem { user, group }
    }

    /// Makes the calling process this user for good: groups first, while that is still allowed.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn assume(&self) -> io::Result<()> {
        nix::unistd::setgroups(&self.groups)?;
        nix::unistd::setresgid(self.gid, self.gid, self.gid)?;
        nix::unistd::setresuid(self.uid, self.uid, self.uid)?;
        Ok(())
    }
}

/// While it lives, the thread is another user for what it does to files.
#[derive(Debug)]
pub struct InFileSystem {
    user: Uid,
    group: Gid,
}

impl Drop for InFileSystem {
    fn drop(&mut self) {
        setfsuid(self.user);
        setfsgid(self.group);
    }
}

/// Asks without a change: setfsuid(2) returns what there was, and takes no such id.
const NO_ID: u32 = u32::MAX;

/// The user that the calling thread is for what it does to files.
#[must_use]
pub fn fs_user() -> u32 {
    setfsuid(Uid::from_raw(NO_ID)).as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let root = Identity::named("root").unwrap();
        assert_eq!(root.ids(), (0, 0));
        assert_eq!(Identity::named("0").unwrap(), root);
        assert!(
            root.variables()
                .any(|(name, value)| name == "USER" && value == "root")
        );
    }

    #[test]
    fn an_unknown_user_is_named() {
        let error = Identity::named("no-such-user").unwrap_err();
        assert_eq!(error.to_string(), r#"there is no user "no-such-user""#);
    }
}
