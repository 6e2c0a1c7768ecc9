//! Drawing stacks: from rows of an aggregation, with their names, to the bytes of each file.

use std::borrow::Cow;
use std::time::Instant;

use dtrace::Sink;
use dtrace::events::{
    AddrForm, AggFunc, AggValue, Aggregation, Column, Event, Occasion, Row, Stack, Symbol, SymbolName, Value,
};
use dtrace::flame::{Flame, Format, Unnamed};

use crate::run::{Tools, figure, median};

/// Different stacks, and the frames of each.
const STACKS: usize = 100_000;
const FRAMES: usize = 30;
/// The most that drawing them may take.
const SECONDS: f64 = 2.0;

/// Rows of stacks that share a root, as those of a program do: a path in a tree of some thousand
/// functions.
fn rows() -> Vec<Row<'static>> {
    let mut state = 1u64;
    let mut random = |most: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % most
    };
    let name = |n: usize| {
        let function = format!("storage::engine::function_{n}");
        SymbolName::new(Some("postgres".into()), Some(function.into()), 0)
    };
    let names: Vec<SymbolName> = (0..5000).map(name).collect();
    let symbol = |n: usize| Symbol::new(n as u64, Some(1), AddrForm::Address, names[n].clone());
    let row = |n: usize| {
        let mut frames: Vec<Symbol> = (0..FRAMES - 3).map(|at| symbol((random(3) + 7 * at) % 5000)).collect();
        frames.extend([n % 5000, n / 5000 % 5000, 4999].map(symbol));
        frames.reverse();
        let value = AggValue {
            function: AggFunc::Count,
            words: Cow::Owned(vec![1 + n as u64 % 100]),
            normal: 1,
            cpus: Vec::new(),
            absent: false,
        };
        Row { key: vec![Value::Stack(Stack { process: Some(1), frames })], values: vec![value] }
    };
    (0..STACKS).map(row).collect()
}

pub(crate) fn flame(_: &Tools) {
    const ROUNDS: usize = 5;
    println!(
        "\nflame: {STACKS} different stacks of {FRAMES} frames, from named rows to a file (median of {ROUNDS})"
    );
    let column = Column { name: "_".into(), function: AggFunc::Count };
    let event = Event::Aggregation(Aggregation::new(Occasion::End, vec![column], rows()));
    let formats = [
        ("svg", Format::Svg),
        ("html", Format::Html),
        ("folded", Format::Folded),
        ("pprof", Format::Pprof),
        ("speedscope", Format::Speedscope),
    ];
    for (name, format) in formats {
        let (mut times, mut size, mut stacks) = (Vec::new(), 0, 0);
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let mut flame = Flame::new(Unnamed::Unknown, None);
            let _ = flame.event(&event);
            size = format.write(&flame).len();
            times.push(start.elapsed().as_secs_f64());
            stacks = flame.profiles().iter().map(|p| p.total()).sum::<u64>();
        }
        let seconds = median(times);
        let verdict = match name == "svg" {
            true if seconds <= SECONDS => "reached: at most 2 s",
            true => "MISSED: at most 2 s",
            false => "",
        };
        let mib = size as f64 / f64::from(1 << 20);
        println!(
            "  {name:<11} {:>6} s {:>7} MiB, sum {stacks}  {verdict}",
            figure(seconds, 2),
            figure(mib, 1)
        );
    }
}
