//! Why there is no report.

use std::io;
use std::path::PathBuf;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// An input could not be opened.
    #[error("cannot open {path}")]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// An output could not be created or written.
    #[error("cannot write {path}")]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The report itself could not be written.
    #[error("cannot write the report")]
    Report(#[from] io::Error),
    /// The file is damaged and was to be refused if so, or nothing of it could be read.
    #[error("{path}: {reason}")]
    Refused {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}
