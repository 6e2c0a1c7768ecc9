//! Tests of programs that serve later probes.

use super::*;

#[test]
fn programs_without_sites_are_unloaded_after_a_time_and_beyond_a_number() {
    let limit = IDLE.as_nanos() as u64;
    let idle = |times: &[u64]| times.iter().map(|t| (*t, 7)).collect::<Vec<_>>();
    assert_eq!(idle_too_long(&[], limit), 0);
    assert_eq!(idle_too_long(&idle(&[5, 6, 7]), 5 + limit - 1), 0);
    assert_eq!(idle_too_long(&idle(&[5, 6, 7]), 6 + limit), 2);
    assert_eq!(idle_too_long(&idle(&[9; IDLE_MAX + 3]), 10), 3);
}

#[test]
fn the_bits_of_clauses_fill_the_words_in_order() {
    assert_eq!(clause_bits([true, false, true].into_iter()), [5, 0, 0]);
    assert_eq!(clause_bits((0..192).map(|n| n % 64 == 63)), [1 << 63; 3]);
    assert_eq!(clause_bits((0..300).map(|n| n >= 192)), [0; 3]);
}
