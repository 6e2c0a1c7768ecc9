//! Where DWARF has the parameters and results of a function of Go.

use gimli::{AttributeValue, Expression, Operation, constants as dw};

use crate::arch::Spot;
use crate::units::{Entry, InFile, Slice, Units};

/// The most ranges of addresses that are looked at for one value.
const MAX_RANGES: usize = 1024;
/// The most operations of one place.
const MAX_OPERATIONS: usize = 256;

impl<'a> Units<'a> {
    /// The spots of a value's parts at an address; with none, where the whole of it is on the stack
    /// anywhere in the function.
    pub(crate) fn spots(&self, of: &InFile<'a>, entry: &Entry<'a>, address: Option<u64>) -> Vec<Spot> {
        let Some(value) = entry.attr_value(dw::DW_AT_location) else { return Vec::new() };
        if let AttributeValue::Exprloc(expression) = value {
            return spots(of, expression);
        }
        let locations = self.dwarf_of(of).and_then(|dwarf| dwarf.attr_locations(&of.unit, value).ok()?);
        let Some(mut locations) = locations else { return Vec::new() };
        for _ in 0..MAX_RANGES {
            let Ok(Some(location)) = locations.next() else { break };
            let spots = spots(of, location.data);
            let is_meant = match address {
                Some(address) => (location.range.begin..location.range.end).contains(&address),
                None => matches!(spots[..], [Spot::Stack(_)]),
            };
            if is_meant {
                return spots;
            }
        }
        Vec::new()
    }
}

/// The spots of an expression: those of its pieces, without padding.
fn spots<'a>(of: &InFile<'a>, expression: Expression<Slice<'a>>) -> Vec<Spot> {
    let (mut spots, mut last) = (Vec::new(), None);
    let mut operations = expression.operations(of.unit.encoding());
    for _ in 0..MAX_OPERATIONS {
        match operations.next() {
            Ok(Some(Operation::Register { register })) => last = Some(Spot::register(register.0)),
            Ok(Some(Operation::CallFrameCFA)) => last = Some(Spot::Stack(0)),
            // A negative one is in the function's own frame.
            Ok(Some(Operation::FrameOffset { offset })) => {
                last = Some(u64::try_from(offset).map_or(Spot::Other, Spot::Stack));
            }
            Ok(Some(Operation::Piece { .. })) => spots.extend(last.take()),
            Ok(None) => break,
            Ok(Some(_)) | Err(_) => return vec![Spot::Other],
        }
    }
    spots.extend(last);
    spots
}
