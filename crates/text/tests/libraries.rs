//! The functions of this machine's libraries: what share of them can be probed, and how.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::time::Instant;

use text::{Flow, Function, Kernel, Step, Uses};

use crate::common::Library;

const LIBRARIES: [&str; 3] = ["libc.so.6", "ld-linux-x86-64.so.2", "libstdc++.so.6"];

/// Whether most functions of a large library are so.
fn percent(part: usize, whole: usize) -> usize {
    part * 100 / whole.max(1)
}

#[test]
fn most_functions_of_libraries_decode_and_probes_that_move_cost_less() {
    let arguments = (0..6).fold(Uses::NOTHING, Uses::and_argument).and_stack();
    for name in LIBRARIES {
        let Some(library) = Library::named(name) else {
            println!("no {name} here");
            continue;
        };
        let (mut count, mut whole, mut tables, mut sites, mut returns, mut bytes) = (0, 0, 0, 0, 0, 0);
        let mut cheap = [0; 4];
        let mut reasons = BTreeMap::new();
        let start = Instant::now();
        library.each(|address, code, inside| {
            let function = Function::decode(code, address, inside);
            count += 1;
            bytes += code.len();
            whole += usize::from(function.refusal().is_none());
            tables += usize::from(function.has_jump_table());
            for (n, uses) in [Uses::NOTHING.and_registers(), arguments, Uses::NOTHING].into_iter().enumerate()
            {
                let entry = function.entry(Kernel::UNKNOWN, uses);
                cheap[n] += usize::from(entry.is_ok_and(|e| e.step != Step::Single));
                cheap[3] += usize::from(entry.is_err() && n == 0);
            }
            match function.returns(Kernel::UNKNOWN) {
                Ok(found) => {
                    returns += 1;
                    sites += found.len();
                }
                Err(e) => {
                    // The place is a matter of the function: the kind of the reason is counted.
                    let kind: String = e.to_string().chars().filter(|c| c.is_alphabetic()).take(40).collect();
                    reasons.entry(kind).or_insert((0, e)).0 += 1;
                }
            }
        });
        let took = start.elapsed();
        println!(
            "{name}: {count} functions, {bytes} bytes, {took:?}: {}% decode, {}% with return probes ({sites} sites), \
             {}% with a jump table; entries not single-stepped: {}% at the first instruction, {}% moved, \
             {}% moved where nothing is used; {} refused",
            percent(whole, count),
            percent(returns, count),
            percent(tables, count),
            percent(cheap[0], count),
            percent(cheap[1], count),
            percent(cheap[2], count),
            cheap[3]
        );
        for (n, refusal) in reasons.values() {
            println!("  {n}: {refusal}");
        }
        assert!(count > 10, "{name}: {count} functions");
        assert!(percent(whole, count) >= 80, "{name}");
        assert!(percent(returns, count) >= 80, "{name}");
        assert!(percent(tables, count) <= 30, "{name}");
        assert!(cheap[0] <= cheap[1] && cheap[1] < cheap[2], "{name}: {cheap:?}");
        assert!(percent(cheap[0], count) >= 15, "{name}");
        assert!(percent(cheap[2], count) >= 35, "{name}");
        assert!(percent(cheap[3], count) <= 10, "{name}");
    }
}

/// A return probe that a program can reach only by a jump into the middle would never fire, and an
/// offset probe there would change the program.
#[test]
fn every_place_in_a_library_is_an_instruction_when_decoded_from_the_start() {
    for name in LIBRARIES {
        let Some(library) = Library::named(name) else { continue };
        library.each(|address, code, inside| {
            let function = Function::decode(code, address, inside);
            let mut expected = 0;
            for instruction in function.instructions() {
                assert_eq!(instruction.offset, expected, "{name}+{address:#x}");
                expected += u32::from(instruction.length);
                if let Flow::Jump { target } | Flow::Branch { target, .. } = instruction.flow {
                    let inside = u64::try_from(target).ok().filter(|t| *t < code.len() as u64);
                    let is_certain = function.refusal().is_none();
                    assert!(
                        !is_certain
                            || inside.is_none_or(|t| {
                                function.find(t).is_some() || code.get(t as usize - 1) == Some(&0xf0)
                            })
                    );
                }
            }
        });
    }
}
