//! How much work and memory a hostile image may cost.

/// Bounds on what [`build`](crate::build) accepts.
///
/// The defaults are several times what the largest programs in use need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest size of an unwind section in bytes, after decompression.
    pub section_bytes: u64,
    /// Largest number of frame descriptions.
    pub fdes: usize,
    /// Largest number of rows, before and after merging.
    pub rows: usize,
    /// Largest size of a common information entry in bytes. Its instructions run again for each
    /// frame description that refers to it, so that a large one would cost quadratic time. Frame
    /// descriptions with a larger one become unsupported.
    pub cie_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            section_bytes: 1 << 30,
            fdes: 1 << 22,
            rows: 1 << 24,
            cie_bytes: 1 << 10,
        }
    }
}
