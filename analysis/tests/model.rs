//! Figures against a naive model that copies everything at every maximum.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;

use htrace_analysis::builder::Rules;
use htrace_analysis::merge::merge;
use htrace_analysis::{Costs, load};
use support::Random;
use support::generator::{self, Shape};

/// The obvious way to count.
#[derive(Default)]
struct Model {
    infos: Vec<(i64, u32)>,
    by_trace: BTreeMap<u32, Costs>,
    total: Costs,
    last: u64,
}

impl Model {
    fn line(&mut self, line: &str) {
        let field = |number| u64::from_str_radix(line.split(' ').nth(number).unwrap(), 16).unwrap();
        match line.as_bytes().first() {
            Some(b'a') => {
                let (size, trace) = (field(1).cast_signed(), field(2) as u32);
                self.by_trace.entry(trace).or_default();
                self.infos.push((size, trace));
            }
            Some(b'+') => self.allocate(field(1)),
            Some(b'-') => self.free(field(1)),
            _ => {}
        }
    }

    fn allocate(&mut self, info: u64) {
        let (size, trace) = self.infos[info as usize];
        let costs = self.by_trace.get_mut(&trace).unwrap();
        costs.allocations += 1;
        costs.leaked += size;
        self.total.allocations += 1;
        self.total.leaked += size;
        if self.total.leaked > self.total.peak {
            self.total.peak = self.total.leaked;
            self.by_trace
                .values_mut()
                .for_each(|costs| costs.peak = costs.leaked);
        }
        self.last = info;
    }

    fn free(&mut self, info: u64) {
        let (size, trace) = self.infos[info as usize];
        let temporary = i64::from(self.last == info);
        let costs = self.by_trace.get_mut(&trace).unwrap();
        costs.leaked -= size;
        costs.temporary += temporary;
        self.total.leaked -= size;
        self.total.temporary += temporary;
        self.last = 0;
    }
}

#[test]
fn every_figure_equals_the_naive_model() {
    for seed in 0..2000 {
        let shape = Shape {
            malformed: false,
            version: 3,
            known_traces: false,
        };
        let text = generator::trace(&mut Random(seed), shape);
        let mut model = Model::default();
        text.lines().for_each(|line| model.line(line));
        let loaded = load(text.as_bytes(), Rules::LENIENT, &mut ());
        assert!(
            loaded.is_whole(),
            "seed {seed}: {:?}",
            loaded.profile.problems
        );
        let profile = loaded.profile;
        assert_eq!(profile.total, model.total, "seed {seed}");
        let by_trace: BTreeMap<u32, Costs> = profile
            .entries
            .iter()
            .map(|entry| (entry.trace.get(), entry.costs))
            .collect();
        assert_eq!(by_trace, model.by_trace, "seed {seed}");
        // Merged figures are sums over the backtraces, peaks too: all shares are of one moment.
        let mut sum = Costs::default();
        for group in merge(&profile.tables, &profile.entries) {
            let mut members = Costs::default();
            for &entry in &group.entries {
                members += profile.entries[entry as usize].costs;
            }
            assert_eq!(group.costs, members, "seed {seed}");
            sum += group.costs;
        }
        assert_eq!(sum, profile.total, "seed {seed}");
    }
}
