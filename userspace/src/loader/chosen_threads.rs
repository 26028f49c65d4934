//! The threads whose allocations are recorded, when not all are: tells the programs of them.

use std::fmt;

use aya::maps::{HashMap, Map};

use super::{LoadError, object::Object};

/// A thread, or all of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadChoice {
    /// By its id, as gettid(2) tells it in the initial pid namespace.
    Id(u32),
    /// By the name that it has when it allocates: `/proc/PID/task/TID/comm`.
    Name(String),
}

/// Longest name of a thread in bytes: `TASK_COMM_LEN` of the kernel less the zero.
const LONGEST_NAME: usize = 15;

impl From<&str> for ThreadChoice {
    /// A number is an id. Of a name only so much counts as the kernel keeps.
    fn from(text: &str) -> Self {
        text.parse()
            .map_or_else(|_| Self::Name(text.to_owned()), Self::Id)
    }
}

impl fmt::Display for ThreadChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

/// A name as the kernel keeps it: cut, and filled up with zeros.
fn padded(name: &str) -> [u8; LONGEST_NAME + 1] {
    let mut padded = [0; LONGEST_NAME + 1];
    for (to, from) in padded.iter_mut().zip(name.bytes().take(LONGEST_NAME)) {
        *to = from;
    }
    padded
}

/// Fills the programs' maps.
pub(super) fn store(object: &mut Object, threads: &[ThreadChoice]) -> Result<(), LoadError> {
    let names = Map::HashMap(object.take_map("THREAD_NAMES")?);
    let mut names: HashMap<_, [u8; LONGEST_NAME + 1], u8> =
        names.try_into().map_err(LoadError::map)?;
    let ids = Map::HashMap(object.take_map("THREAD_IDS")?);
    let mut ids: HashMap<_, u32, u8> = ids.try_into().map_err(LoadError::map)?;
    for thread in threads {
        match thread {
            ThreadChoice::Id(id) => ids.insert(id, 1, 0),
            ThreadChoice::Name(name) => names.insert(padded(name), 1, 0),
        }
        .map_err(LoadError::map)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_ids_and_names_are_cut_as_the_kernel_does() {
        assert_eq!(ThreadChoice::from("42"), ThreadChoice::Id(42));
        let name = ThreadChoice::from("pool-1");
        assert_eq!(name, ThreadChoice::Name("pool-1".to_owned()));
        assert_eq!(&padded("pool"), b"pool\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(&padded("a-name-that-is-long"), b"a-name-that-is-\0");
    }
}
