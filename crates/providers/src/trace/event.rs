//! Programs on perf events of tracepoints. Their arguments are the members of the event's record,
//! in order.
//!
//! A member of integer type is its value. An array, or a string elsewhere in the record, is its
//! address, as [`probes::ArgType`] has it. The record begins at the context's address. To the
//! verifier that address is a pointer, on which arithmetic is restricted. So the address is stored
//! and read again by a helper, after which the verifier treats it as a number.

use bpf_codegen::context::{Context, Index};
use bpf_codegen::mir::{Alu, Builder, Helper, Size, V};

use super::{Field, Place};

/// The context of a program on a perf event: the event's record.
pub(crate) struct Record(pub(crate) Vec<Field>);

/// True if the argument is the member's address.
pub(crate) fn by_address(field: &Field) -> bool {
    field.place != Place::Here || width(field).is_none()
}

/// The size of a member that is an integer, else `None`.
fn width(field: &Field) -> Option<Size> {
    if field.ty.ends_with(']') || field.size == 0 || !field.offset.is_multiple_of(field.size) {
        return None;
    }
    Some(match field.size {
        1 => Size::B1,
        2 => Size::B2,
        4 => Size::B4,
        8 => Size::B8,
        _ => return None,
    })
}

/// The context's address as a number.
fn number(b: &mut Builder, ctx: V) -> V {
    let (kept, read) = (b.stack(8), b.stack(8));
    b.slot_store(Size::B8, kept, 0, ctx);
    b.slot_store(Size::B8, read, 0, 0);
    let (to, eight, from) = (b.slot_addr(read, 0), b.imm(8), b.slot_addr(kept, 0));
    b.call(Helper::PROBE_READ_KERNEL, &[to, eight, from]);
    b.slot_load(Size::B8, read, 0)
}

/// Extends an integer of so many bytes to 64 bits.
pub(super) fn extend(b: &mut Builder, value: V, bytes: u16, signed: bool) -> V {
    let bits = 64 - 8 * i64::from(bytes.min(8));
    if !signed || bits == 0 {
        return value;
    }
    let high = b.shl(value, bits);
    b.sar(high, bits)
}

impl Context for Record {
    fn arg(&self, b: &mut Builder, ctx: V, _index: Index, n: u8) -> V {
        let Some(field) = self.0.get(usize::from(n)) else { return b.imm(0) };
        let Ok(offset) = i16::try_from(field.offset) else { return b.imm(0) };
        match (field.place, width(field)) {
            (Place::Here, Some(size)) => {
                let value = b.load(size, ctx, offset);
                extend(b, value, field.size, field.signed)
            }
            (Place::Here, None) => {
                let record = number(b, ctx);
                b.add(record, i64::from(offset))
            }
            (place, _) => {
                let at = b.load(Size::B4, ctx, offset);
                let at = b.alu(Alu::And, at, 0xffff);
                let record = number(b, ctx);
                let from = b.add(record, at);
                match place {
                    Place::RelLoc => b.add(from, i64::from(offset) + 4),
                    _ => from,
                }
            }
        }
    }

    /// The places of the members: their names and the number of the event are not in the code.
    fn shape(&self) -> Option<String> {
        let member = |f: &Field| (f.place, f.offset, width(f), f.size, f.signed);
        Some(format!("members of a record: {:?}", self.0.iter().map(member).collect::<Vec<_>>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(ty: &str, offset: u16, size: u16, signed: bool, place: Place) -> Option<String> {
        let field = Field { name: "x".into(), ty: ty.into(), offset, size, signed, place };
        Record(vec![field]).shape()
    }

    #[test]
    fn records_with_members_at_the_same_places_have_one_shape() {
        let one = shape("int", 8, 4, true, Place::Here);
        assert_eq!(shape("pid_t", 8, 4, true, Place::Here), one);
        for other in [
            shape("int", 12, 4, true, Place::Here),
            shape("short", 8, 2, true, Place::Here),
            shape("unsigned int", 8, 4, false, Place::Here),
            shape("char[4]", 8, 4, true, Place::Here),
            shape("char[]", 8, 4, true, Place::DataLoc),
        ] {
            assert_ne!(other, one);
        }
    }
}
