//! What is done when the kernel's verifier refuses the programs: simpler ones are tried.

use super::{
    LoadError,
    walks::{Unwind, Walks},
};

impl Walks {
    /// This way to walk stacks and then those that ask less of the kernel, unless the user wants
    /// this one.
    pub(super) fn and_simpler(self, wanted: Unwind) -> Vec<Self> {
        let all = match self {
            Self::Tables(_) => vec![self, Self::FramePointers, Self::Old],
            Self::FramePointers => vec![self, Self::Old],
            Self::Old => vec![self],
        };
        let count = if wanted == Unwind::EhFrame {
            1
        } else {
            all.len()
        };
        all.into_iter().take(count).collect()
    }
}

/// The first of several ways that the verifier does not refuse. What else fails is an error at
/// once: it would fail with every way.
///
/// # Errors
/// When the last one is refused, or any fails otherwise.
pub(super) fn first_accepted<T>(
    ways: &[Walks],
    mut load: impl FnMut(Walks) -> Result<T, LoadError>,
) -> Result<T, LoadError> {
    let Some((last, before)) = ways.split_last() else {
        return Err(LoadError::NoObject);
    };
    for way in before {
        match load(*way) {
            Err(error @ LoadError::Verifier { .. }) => {
                tracing::warn!("this kernel refuses the best programs: {error}");
                tracing::warn!("stacks are walked by frame pointers only");
            }
            other => return other,
        }
    }
    load(*last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> LoadError {
        LoadError::Verifier {
            program: "enter_allocation".to_owned(),
            log: "the sequence of 8193 jumps is too complex".to_owned(),
            source: std::io::ErrorKind::InvalidInput.into(),
        }
    }

    /// What was tried, and what came of it, when the verifier accepts one way.
    fn tried(wanted: Unwind, accepted: Option<Walks>) -> (Vec<Walks>, Result<Walks, LoadError>) {
        let ways = Walks::FramePointers.and_simpler(wanted);
        let mut tried = Vec::new();
        let result = first_accepted(&ways, |way| {
            tried.push(way);
            if Some(way) == accepted {
                Ok(way)
            } else {
                Err(refused())
            }
        });
        (tried, result)
    }

    #[test]
    fn simpler_programs_are_tried_when_the_verifier_refuses() {
        let (walked, result) = tried(Unwind::Auto, Some(Walks::Old));
        assert_eq!(walked, [Walks::FramePointers, Walks::Old]);
        assert!(matches!(result, Ok(Walks::Old)));
        let (walked, result) = tried(Unwind::Auto, Some(Walks::FramePointers));
        assert_eq!(walked, [Walks::FramePointers]);
        assert!(result.is_ok());
    }

    #[test]
    fn what_the_user_wants_is_not_replaced() {
        let (walked, result) = tried(Unwind::EhFrame, Some(Walks::Old));
        assert_eq!(walked, [Walks::FramePointers]);
        assert!(matches!(result, Err(LoadError::Verifier { .. })));
    }

    #[test]
    fn the_last_refusal_is_the_error() {
        let (walked, result) = tried(Unwind::Auto, None);
        assert_eq!(walked.len(), 2);
        assert!(matches!(result, Err(LoadError::Verifier { .. })));
    }

    #[test]
    fn other_errors_are_not_tried_again() {
        let mut count = 0;
        let result: Result<(), _> = first_accepted(&[Walks::FramePointers, Walks::Old], |_| {
            count += 1;
            Err(LoadError::NoObject)
        });
        assert!(matches!(result, Err(LoadError::NoObject)));
        assert_eq!(count, 1);
    }
}
