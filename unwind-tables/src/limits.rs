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
    /// Largest number of rows.
    pub rows: usize,
    /// Largest size of a common information entry in bytes. Each frame description that refers to
    /// one reads and runs it again, so that a large one would cost quadratic time. Frame
    /// descriptions with a larger one are skipped, and their code becomes a gap.
    pub cie_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            section_bytes: 1 << 28,
            fdes: 1 << 22,
            rows: 1 << 24,
            cie_bytes: 1 << 10,
        }
    }
}
