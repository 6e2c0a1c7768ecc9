//! Values of types that are made up.

use super::*;
use crate::shapes::Part;

/// Types by their numbers.
const INT: u64 = 0;
const BYTE: u64 = 1;
const FLOAT64: u64 = 2;
const STRING: u64 = 3;
const PAIR: u64 = 4;
const THREE: u64 = 5;
const ONE: u64 = 6;
const NOTHING: u64 = 7;
const MIXED: u64 = 8;
const COMPLEX: u64 = 9;
const BYTES: u64 = 10;
const SLICE: u64 = 11;

struct Types;

fn parts(all: &[(u64, u64)]) -> Vec<Part> {
    all.iter().map(|(offset, ty)| Part { offset: *offset, ty: Some(*ty), is_bit_field: false }).collect()
}

impl Shapes for Types {
    fn shape(&self, ty: u64) -> Result<Shape, Error> {
        let object = |size| Shape::Object { size: Some(size), is_by_address: false };
        let array = |elem, count| Shape::Array { elem: Some(elem), count };
        Ok(match ty {
            INT => Shape::Integer(8),
            BYTE => Shape::Integer(1),
            FLOAT64 => Shape::Float(8),
            COMPLEX => Shape::Complex(16),
            STRING | PAIR | MIXED => object(16),
            SLICE => object(24),
            NOTHING => object(0),
            THREE => array(INT, 3),
            ONE => array(INT, 1),
            BYTES => array(BYTE, 3),
            _ => return Err(Error::Malformed("no type".into())),
        })
    }

    fn members(&self, ty: u64) -> Result<Vec<Part>, Error> {
        Ok(match ty {
            STRING => parts(&[(0, INT), (8, INT)]),
            // The byte has a register of its own.
            PAIR => parts(&[(0, BYTE), (8, INT)]),
            MIXED => parts(&[(0, FLOAT64), (8, INT)]),
            SLICE => parts(&[(0, INT), (8, INT), (16, INT)]),
            _ => Vec::new(),
        })
    }
}

fn shown(place: Place) -> String {
    match place {
        Place::Argument(n) => format!("arg{n}"),
        Place::Object(n) => format!("at arg{n}"),
        Place::Parts(parts) => {
            let part = |p: &ObjectPart| format!("{}+{}=arg{}", p.offset, p.size, p.argument);
            parts.iter().map(part).collect::<Vec<_>>().join(" ")
        }
        Place::Unreadable(why) => why,
    }
}

fn parameter(ty: u64, spots: &[Spot]) -> String {
    shown(GoConvention::new(&Types).parameter(Some(ty), spots).unwrap())
}

fn results(types: &[u64]) -> Vec<String> {
    let mut convention = GoConvention::new(&Types);
    types.iter().map(|ty| shown(convention.result(Some(*ty), &[]).unwrap())).collect()
}

#[test]
fn registers_are_in_the_order_of_go() {
    let all = [0, 3, 2, 5, 4, 8, 9, 10, 11].map(Spot::register);
    assert_eq!(all, [0, 1, 2, 3, 4, 5, 6, 7, 8].map(Spot::Integer));
    assert_eq!([17, 31, 6, 12].map(Spot::register), [Spot::Float, Spot::Float, Spot::Other, Spot::Other]);
}

#[test]
fn a_parameter_is_where_the_debug_information_has_its_parts() {
    use Spot::{Integer, Stack};
    assert_eq!(parameter(INT, &[Integer(2)]), "arg2");
    assert_eq!(parameter(INT, &[Stack(8)]), "arg10");
    assert_eq!(parameter(STRING, &[Integer(3), Integer(4)]), "0+8=arg3 8+8=arg4");
    assert_eq!(parameter(PAIR, &[Integer(0), Integer(1)]), "0+1=arg0 8+8=arg1");
    assert_eq!(parameter(ONE, &[Integer(5)]), "0+8=arg5");
    assert_eq!(parameter(SLICE, &[Stack(0), Stack(8), Stack(16)]), "0+8=arg9 8+8=arg10 16+8=arg11");
    assert_eq!(parameter(THREE, &[Stack(8)]), "0+8=arg10 8+8=arg11 16+8=arg12");
    for (ty, spots, why) in [
        (INT, &[][..], NOT_SAID),
        (INT, &[Spot::Other], NOT_SAID),
        (STRING, &[Integer(3)], NOT_SAID),
        (FLOAT64, &[Spot::Float], FLOAT),
        (MIXED, &[Spot::Float, Integer(1)], HAS_FLOAT),
        (BYTE, &[Stack(1)], SHARES),
        (BYTES, &[Stack(0)], ODD),
        (INT, &[Stack(8 * 40)], "it is too far behind on the stack"),
        (NOTHING, &[], "it has no size, so nothing is passed"),
    ] {
        assert_eq!(parameter(ty, spots), why, "{ty} {spots:?}");
    }
    let unknown = GoConvention::new(&Types).parameter(None, &[Integer(0)]).unwrap();
    assert_eq!(shown(unknown), "its type is not known");
}

#[test]
fn results_have_the_next_registers_and_behind_them_the_place_of_the_return() {
    assert_eq!(results(&[INT, STRING, INT]), ["arg1", "0+8=arg2 8+8=arg3", "arg4"]);
    assert_eq!(results(&[FLOAT64, NOTHING, INT]), [FLOAT, "it has no size, so nothing is returned", "arg1"]);
    assert_eq!(results(&[MIXED, COMPLEX, INT]), [HAS_FLOAT, HAS_FLOAT, "arg2"]);
    // What has not as many registers as parts is on the stack, and what is behind it is not.
    let on_the_stack = "it is on the stack, and the debug information does not say where";
    let many = [SLICE, SLICE, STRING, STRING, INT];
    let last = results(&many);
    assert_eq!(last[3..], [on_the_stack, "arg9"]);
    assert_eq!(results(&[THREE, INT]), [on_the_stack, "arg1"]);
    let stack = GoConvention::new(&Types).result(Some(THREE), &[Spot::Stack(16)]).unwrap();
    assert_eq!(shown(stack), "0+8=arg12 8+8=arg13 16+8=arg14");
}
