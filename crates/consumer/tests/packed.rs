//! `agghist` and `aggpack`, to the column.
#![allow(clippy::unwrap_used)]

use consumer::{Encoding, Options};
use plane::desc::{Action, AggFunc, AggId, Datum};

use crate::common::{I16, I32, I64, STR, Session, U8, V, probe};

fn session(agghist: bool, aggpack: bool, aggzoom: bool) -> Session {
    Session::new(Options { quiet: true, agghist, aggpack, aggzoom, ..Options::default() })
}

/// What `printa(@a)` prints.
fn printed(s: &mut Session, agg: AggId) -> String {
    let probe = probe(1, "dtrace:::BEGIN");
    let epid = s.clause(&probe, &[], |_| vec![Action::Printa { format: None, aggs: vec![agg] }]);
    s.record(0, epid, &[]);
    s.drain();
    s.output()
}

fn sums(zoom: bool, values: &[(&'static str, i64)]) -> String {
    let mut s = session(true, false, zoom);
    let agg = s.aggregation("a", AggFunc::Sum, &[STR]);
    for (key, value) in values {
        s.add(agg, &[V::S(key)], &[*value]);
    }
    printed(&mut s, agg)
}

// row format.agghist
#[test]
fn sums_are_bars_of_their_total_or_of_the_tallest() {
    const MIXED: &[(&str, i64)] = &[("down", -10), ("up", 10), ("more", 20)];
    assert_eq!(
        sums(false, MIXED),
        "\n
              key  ------------- Distribution ------------- count    
             down                @@@@@|                     -10      
               up                     |@@@@@                10       
             more                     |@@@@@@@@@@           20       
"
    );
    assert_eq!(
        sums(true, MIXED),
        "\n
              key  ------------- Distribution ------------- count    
             down           @@@@@@@@@@|                     -10      
               up                     |@@@@@@@@@@           10       
             more                     |@@@@@@@@@@@@@@@@@@@  20       
"
    );
    assert_eq!(
        sums(true, &[("one", 1), ("five", 5), ("six", 6)]),
        "\n
              key  ------------- Distribution ------------- count    
              one |@@@@@@@                                  1        
             five |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@        5        
              six |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@ 6        
"
    );
    assert_eq!(
        sums(true, &[("all", -100), ("some", -20), ("few", -5)]),
        "\n
              key  ------------- Distribution ------------- count    
              all   @@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@| -100     
             some                                 @@@@@@@@| -20      
              few                                       @@| -5       
"
    );
}

#[test]
fn bars_are_drawn_for_keyed_counts_and_sums_only() {
    let mut s = session(true, false, false);
    let keyless = s.aggregation("n", AggFunc::Count, &[]);
    s.add(keyless, &[], &[3]);
    assert_eq!(printed(&mut s, keyless), format!("\n {:>16}\n", 3));
    let greatest = s.aggregation("m", AggFunc::Max, &[I32]);
    s.add(greatest, &[V::N(1)], &[3]);
    assert_eq!(printed(&mut s, greatest), format!("\n {:>8} {:>16}\n", 1, 3));
    let stacks = s.aggregation("s", AggFunc::Count, &[Datum::KernelStack { frames: 1 }]);
    s.add(stacks, &[V::N(0)], &[3]);
    assert_eq!(printed(&mut s, stacks), format!("\n\n {:>16}\n", 3));
}

// row format.aggpack
#[test]
fn a_distribution_is_a_line() {
    let mut s = session(false, true, false);
    let plain = s.aggregation("x", AggFunc::Quantize, &[]);
    s.sample(plain, &[], &[(1 << 32, 1)]);
    assert_eq!(
        printed(&mut s, plain),
        "\n\n        min .---. max        | count\n 2147483648 : X : 8589934592 | 1\n"
    );
    let keyed = s.aggregation("y", AggFunc::Quantize, &[I32]);
    s.sample(keyed, &[V::N(1)], &[(1, 1)]);
    assert_eq!(
        printed(&mut s, keyed),
        "\n\n      key  min .---. max  | count\n        1    0 : X : 2    | 1\n"
    );
    let tuple = s.aggregation("z", AggFunc::Quantize, &[STR, U8, I16, I64]);
    s.sample(tuple, &[V::S("foo"), V::N(1), V::N(2), V::N(3)], &[(1, 1)]);
    assert_eq!(
        printed(&mut s, tuple),
        "\n\n                                         key  min .---. max  | count
              foo   1     2                3    0 : X : 2    | 1\n"
    );
}

#[test]
fn all_lines_have_one_range_and_each_its_own_scale() {
    let mut s = session(false, true, false);
    let agg = s.aggregation("a", AggFunc::Quantize, &[I32]);
    for i in [0, 21, 22, 78, 79, 100] {
        s.sample(agg, &[V::N(i)], &[(0, i), (1, 100 - i)]);
    }
    assert_eq!(
        printed(&mut s, agg),
        "\n
      key  min .---. max  | count
      100    0 :X  : 2    | 100
       79    0 :X_ : 2    | 100
       78    0 :xx : 2    | 100
       22    0 :xx : 2    | 100
       21    0 :_X : 2    | 100
        0    0 : X : 2    | 100
"
    );
}

#[test]
fn negative_counts_and_zoom_are_drawn_in_a_packed_line() {
    for (zoom, line) in [
        (true, "   < -10 : V    X    X                    : >= 20    | 1\n"),
        (false, "   < -10 : v    x    x                    : >= 20    | 1\n"),
    ] {
        let mut s = session(false, true, zoom);
        let agg = s.aggregation("neg", AggFunc::Lquantize { base: -10, limit: 20, step: 1 }, &[]);
        s.sample(agg, &[], &[(-10, -1), (-5, 1), (0, 1)]);
        let head = "\n\n     min .--------------------------------. max      | count\n";
        assert_eq!(printed(&mut s, agg), format!("{head}{line}"));
    }
}

#[test]
fn blocks_are_drawn_with_utf8_encoding() {
    let mut s = session(false, true, false);
    let options = s.consumer.options().clone();
    s.consumer.set_options(Options { encoding: Encoding::Utf8, ..options });
    let agg = s.aggregation("a", AggFunc::Lquantize { base: 0, limit: 5, step: 1 }, &[I32]);
    s.sample(agg, &[V::N(1)], &[(0, 6), (1, 1), (2, 1), (3, 1)]);
    s.sample(agg, &[V::N(2)], &[(4, 9)]);
    assert_eq!(
        printed(&mut s, agg),
        "\n\n      key     min .-------. max      | count
        1     < 0 : ▆▂▂▂  : >= 5     | 9
        2     < 0 :     █ : >= 5     | 9\n"
    );
}
