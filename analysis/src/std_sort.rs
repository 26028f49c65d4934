//! The unstable sort of GNU's C++ library, for the order of ties.
//!
//! heaptrack_print sorts with `std::sort`, and what it prints for equal costs depends on that
//! algorithm. To print the same, the same swaps have to be made: introsort with a median of three,
//! a heap sort when it degenerates, and a final insertion sort (libstdc++, unchanged since GCC
//! 4.8).

/// Ranges up to this length are left to the final insertion sort.
const INSERTION_LIMIT: usize = 16;

/// Sorts as `std::sort(items, less)` of libstdc++ does. `less` must be a strict weak order; if it
/// is not, the order is unspecified, but nothing else happens.
pub fn std_sort<T: Copy>(items: &mut [T], less: &mut impl FnMut(&T, &T) -> bool) {
    if items.len() < 2 {
        return;
    }
    let depth = 2 * items.len().ilog2();
    quick_part(items, depth, less);
    insertion_part(items, less);
}

fn quick_part<T: Copy>(mut items: &mut [T], mut depth: u32, less: &mut impl FnMut(&T, &T) -> bool) {
    while items.len() > INSERTION_LIMIT {
        if depth == 0 {
            heap_sort(items, less);
            return;
        }
        depth -= 1;
        median_to_front(items, less);
        let cut = partition(items, less);
        let (front, back) = items.split_at_mut(cut);
        quick_part(back, depth, less);
        items = front;
    }
}

/// Swaps the median of the second, the middle and the last item with the first.
fn median_to_front<T>(items: &mut [T], less: &mut impl FnMut(&T, &T) -> bool) {
    let (x, y, z) = (1, items.len() / 2, items.len() - 1);
    let mut before = |left: usize, right: usize| less(&items[left], &items[right]);
    let median = if before(x, y) {
        if before(y, z) {
            y
        } else if before(x, z) {
            z
        } else {
            x
        }
    } else if before(x, z) {
        x
    } else if before(y, z) {
        z
    } else {
        y
    };
    items.swap(0, median);
}

/// Partitions around the first item and returns the cut.
fn partition<T>(items: &mut [T], less: &mut impl FnMut(&T, &T) -> bool) -> usize {
    let (mut low, mut high) = (1, items.len());
    loop {
        // The median guarantees an end of both walks; the bounds guard against a `less` that is
        // no order.
        while low < items.len() && less(&items[low], &items[0]) {
            low += 1;
        }
        high -= 1;
        while high > 0 && less(&items[0], &items[high]) {
            high -= 1;
        }
        if low >= high {
            return low.min(items.len() - 1).max(1);
        }
        items.swap(low, high);
        low += 1;
    }
}

fn insertion_part<T: Copy>(items: &mut [T], less: &mut impl FnMut(&T, &T) -> bool) {
    for at in 1..items.len() {
        if at < INSERTION_LIMIT && less(&items[at], &items[0]) {
            items[..=at].rotate_right(1);
        } else {
            move_down(items, at, less);
        }
    }
}

fn move_down<T: Copy>(items: &mut [T], mut at: usize, less: &mut impl FnMut(&T, &T) -> bool) {
    let moved = items[at];
    while at > 0 && less(&moved, &items[at - 1]) {
        items[at] = items[at - 1];
        at -= 1;
    }
    items[at] = moved;
}

fn heap_sort<T: Copy>(items: &mut [T], less: &mut impl FnMut(&T, &T) -> bool) {
    for parent in (0..items.len() / 2).rev() {
        let value = items[parent];
        sift(items, parent, value, less);
    }
    for last in (1..items.len()).rev() {
        let value = items[last];
        items[last] = items[0];
        sift(&mut items[..last], 0, value, less);
    }
}

/// Puts `value` into the heap `items` with a hole at `start`.
fn sift<T: Copy>(items: &mut [T], start: usize, value: T, less: &mut impl FnMut(&T, &T) -> bool) {
    let length = items.len();
    let mut hole = start;
    while hole < (length - 1) / 2 {
        let mut child = 2 * hole + 2;
        if less(&items[child], &items[child - 1]) {
            child -= 1;
        }
        items[hole] = items[child];
        hole = child;
    }
    if length.is_multiple_of(2) && length >= 2 && hole == (length - 2) / 2 {
        items[hole] = items[2 * hole + 1];
        hole = 2 * hole + 1;
    }
    while hole > start && less(&items[(hole - 1) / 2], &value) {
        items[hole] = items[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    items[hole] = value;
}

/// First position in `items`, sorted by `less`, whose item is not less than the searched one:
/// `is_less(item)` tells whether an item is. The same probes as `std::lower_bound`.
pub fn lower_bound<T>(items: &[T], mut is_less: impl FnMut(&T) -> bool) -> usize {
    let (mut first, mut length) = (0, items.len());
    while length > 0 {
        let half = length / 2;
        if is_less(&items[first + half]) {
            first += half + 1;
            length -= half + 1;
        } else {
            length = half;
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn order(keys: &[i64]) -> Vec<usize> {
        let mut positions: Vec<usize> = (0..keys.len()).collect();
        std_sort(&mut positions, &mut |&x, &y| keys[x].abs() > keys[y].abs());
        positions
    }

    #[test]
    fn ties_come_out_as_from_libstdcxx() {
        let words = |text: &str| -> Vec<usize> {
            text.split(' ').map(|word| word.parse().unwrap()).collect()
        };
        assert_eq!(order(&[7; 16]), (0..16).collect::<Vec<_>>());
        for (count, expected) in [
            (17, "8 16 15 14 13 12 11 10 9 0 7 6 5 4 3 2 1"),
            (18, "9 17 16 15 14 13 12 11 10 0 8 7 6 5 4 3 2 1"),
            (20, "10 19 18 17 16 15 14 13 12 11 0 9 8 7 6 5 4 3 2 1"),
            (
                33,
                "25 17 18 19 20 21 22 23 24 16 26 27 28 29 30 31 32 0 15 14 13 12 11 10 9 8 7 6 5 4 3 2 1",
            ),
        ] {
            assert_eq!(order(&vec![7; count]), words(expected));
        }
        let thirds: Vec<i64> = (0..20).map(|i| i % 3).collect();
        assert_eq!(
            order(&thirds),
            words("2 17 5 14 8 11 10 19 16 13 7 4 1 0 9 12 6 15 3 18")
        );
        let quarters: Vec<i64> = (0..24).map(|i| 3 - i % 4).collect();
        assert_eq!(
            order(&quarters),
            words("0 20 4 16 8 12 1 21 17 13 9 5 10 14 6 18 2 22 11 7 15 19 3 23")
        );
    }

    proptest! {
        #[test]
        fn sorts(keys in prop::collection::vec(-50i64..50, 0..300)) {
            let sorted: Vec<i64> = order(&keys).into_iter().map(|at| keys[at].abs()).collect();
            let mut expected: Vec<i64> = keys.iter().map(|key| key.abs()).collect();
            expected.sort_unstable_by(|x, y| y.cmp(x));
            prop_assert_eq!(sorted, expected);
        }

        #[test]
        fn heap_sort_sorts(mut keys in prop::collection::vec(-50i64..50, 2..100)) {
            let mut expected = keys.clone();
            expected.sort_unstable();
            heap_sort(&mut keys, &mut |x, y| x < y);
            prop_assert_eq!(keys, expected);
        }

        #[test]
        fn a_comparison_that_is_no_order_does_no_harm(
            mut items in prop::collection::vec(0u8..9, 0..200), seed: u64,
        ) {
            let mut state = seed;
            std_sort(&mut items, &mut |_, _| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state >> 63 == 1
            });
        }
    }
}
