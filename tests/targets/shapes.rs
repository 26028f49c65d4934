//! Allocates in ordinary Rust, the same on every run. Built as people build it, and once more for
//! the comparison of stacks.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    panic, thread,
};

/// A tree behind a trait, so that calls go through tables of functions.
trait Shape {
    fn describe(&self, depth: usize) -> String;
}

struct Leaf(u32);

struct Group(Vec<Box<dyn Shape>>);

impl Shape for Leaf {
    fn describe(&self, depth: usize) -> String {
        format!("{:depth$}leaf {}", "", self.0)
    }
}

impl Shape for Group {
    fn describe(&self, depth: usize) -> String {
        let mut text = String::new();
        for shape in &self.0 {
            writeln!(text, "{:depth$}{}", "", shape.describe(depth + 1)).unwrap();
        }
        text
    }
}

fn tree(depth: u32) -> Box<dyn Shape> {
    if depth == 0 {
        return Box::new(Leaf(depth));
    }
    Box::new(Group((0..3).map(|_| tree(depth - 1)).collect()))
}

fn count_words(text: &str) -> BTreeMap<String, Vec<usize>> {
    let mut words: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (line, words_of_line) in text.lines().map(str::split_whitespace).enumerate() {
        for word in words_of_line {
            words.entry(word.to_owned()).or_default().push(line);
        }
    }
    words
}

fn panics(depth: u32) -> Vec<u32> {
    let mut numbers = vec![depth; 1 + depth as usize];
    if depth == 0 {
        panic::panic_any(String::from("caught further out"));
    }
    numbers.extend(panics(depth - 1));
    numbers
}

fn work(seed: u64) -> usize {
    let mut total = 0;
    for round in 0..4 {
        let text = tree(7).describe(0);
        total += count_words(&text).values().map(Vec::len).sum::<usize>();
        let squares: HashMap<u64, String> = (0..500_u64)
            .map(|n| n.wrapping_mul(seed + round))
            .map(|n| (n, n.to_string()))
            .collect();
        let mut sorted: Vec<_> = squares.into_iter().collect();
        sorted.sort_by_cached_key(|(_, text)| text.clone());
        total += sorted.len();
        for depth in 0..20 {
            total += panic::catch_unwind(|| panics(depth)).is_err() as usize;
        }
    }
    total
}

fn main() {
    panic::set_hook(Box::new(|_| ()));
    let threads: Vec<_> = (1..4).map(|seed| thread::spawn(move || work(seed))).collect();
    let sum: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    println!("{}", sum + work(9));
}
