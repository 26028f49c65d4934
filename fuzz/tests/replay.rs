//! Replays every committed seed, and mutations of it, through its target on the stable compiler.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 5] = [
    ("reader", htrace_fuzz::reader),
    ("raw", htrace_fuzz::raw),
    ("suppressions", htrace_fuzz::suppressions),
    ("renderers", htrace_fuzz::renderers),
    ("drop_in", htrace_fuzz::drop_in),
];

/// Mutations of each seed; raise it by MUTATIONS in the environment for a longer search.
fn mutations() -> u64 {
    std::env::var("MUTATIONS")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(4)
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 31)
}

/// Flips, cuts, repeats and swaps parts of `data`.
fn mutate(data: &[u8], state: &mut u64) -> Vec<u8> {
    let mut data = data.to_vec();
    for _ in 0..1 + next(state) % 8 {
        if data.is_empty() {
            break;
        }
        let length = data.len();
        let at = (next(state) as usize) % length;
        let to = (at + next(state) as usize % 40).min(length);
        match next(state) % 6 {
            0 => data[at] ^= 1 << (next(state) % 8),
            1 => data[at] = b"0123456789abcdef \n+-ctaisX"[next(state) as usize % 26],
            2 => data.truncate(at),
            3 => {
                let part = data[at..to].to_vec();
                data.splice(at..at, part);
            }
            4 => {
                data.drain(at..to);
            }
            _ => {
                let other = (next(state) as usize) % length;
                data.swap(at, other);
            }
        }
    }
    data
}

#[test]
fn seeds_and_their_mutations_do_no_harm() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    for (name, target) in TARGETS {
        let mut replayed = 0;
        for entry in std::fs::read_dir(seeds.join(name)).unwrap() {
            let data = std::fs::read(entry.unwrap().path()).unwrap();
            target(&data);
            let mut state = data.len() as u64;
            for _ in 0..mutations() {
                target(&mutate(&data, &mut state));
            }
            replayed += 1;
        }
        assert!(replayed > 0, "{name} has no seeds");
    }
}
