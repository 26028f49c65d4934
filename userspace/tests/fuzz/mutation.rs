//! Mutations of bytes, determined by a seed alone.

/// Numbers of a seed (xorshift64*).
struct Numbers(u64);

impl Numbers {
    fn of(seed: u64) -> Self {
        let mixed = (seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Self(mixed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Words at which lengths and offsets go wrong.
const EDGES: [u64; 8] = [
    0,
    1,
    0x7f,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    u64::MAX,
    u64::MAX - 7,
];

/// The input with some damage: most of it small, half of it near the start, where headers are.
pub(crate) fn mutated(input: &[u8], seed: u64) -> Vec<u8> {
    let mut numbers = Numbers::of(seed);
    let mut bytes = input.to_vec();
    for _ in 0..1 + numbers.below(8) {
        let near = if numbers.next() & 1 == 0 {
            512
        } else {
            bytes.len()
        };
        let at = numbers.below(near.min(bytes.len()));
        damage(&mut bytes, at, &mut numbers);
    }
    bytes
}

fn damage(bytes: &mut Vec<u8>, at: usize, numbers: &mut Numbers) {
    let length = numbers.below(16) + 1;
    let end = (at + length).min(bytes.len());
    match numbers.below(6) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << numbers.below(8);
            }
        }
        1 => bytes[at..end].fill(numbers.next() as u8),
        2 => {
            let edge = EDGES[numbers.below(EDGES.len())].to_le_bytes();
            let room = end - at;
            bytes[at..end]
                .iter_mut()
                .zip(edge.into_iter().take(room))
                .for_each(|(to, from)| *to = from);
        }
        3 => {
            let from = numbers.below(bytes.len());
            let piece = bytes[from..(from + length).min(bytes.len())].to_vec();
            bytes.splice(at..at, piece);
        }
        4 => {
            bytes.drain(at..end);
        }
        _ if numbers.below(8) == 0 => bytes.truncate(at),
        _ => bytes[at..end]
            .iter_mut()
            .for_each(|byte| *byte = numbers.next() as u8),
    }
}

#[test]
fn a_seed_determines_its_input_and_seeds_differ() {
    let input: Vec<u8> = (0..=255).collect();
    assert_eq!(mutated(&input, 7), mutated(&input, 7));
    let changed = (0..100)
        .filter(|seed| mutated(&input, *seed) != input)
        .count();
    assert!(changed > 90, "{changed}");
    // Nothing to damage is no panic.
    mutated(&[], 1);
}
