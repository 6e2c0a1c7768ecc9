//! Address maps in packets.

use proc::maps::{Map, Mapping};

use super::{MAX_NUMBERS, Response};

/// The packets of an address map.
pub(crate) fn mapping_packets(mappings: &[Mapping]) -> impl Iterator<Item = Response> + '_ {
    mappings.chunks(MAX_NUMBERS / 4).map(|chunk| Response::Mappings(chunk.to_vec()))
}

/// Appends received mappings to a map. False if they are inconsistent with the packets before.
pub(crate) fn add_mappings(map: &mut Map, more: Vec<Mapping>) -> bool {
    let files = map.files.len();
    let sane = |m: &Mapping| m.backing.file().is_none_or(|n| (n as usize) < files);
    let sane = more.iter().all(sane) && map.mappings.len() + more.len() <= proc::maps::MAX_MAPPINGS;
    let first = map.mappings.len().saturating_sub(1);
    map.mappings.extend(more);
    sane && map.mappings.get(first..).is_some_and(|new| new.is_sorted_by_key(|m| m.start))
}

#[cfg(test)]
mod tests {
    use proc::maps::Backing;

    use super::*;

    #[test]
    fn mappings_of_unknown_files_and_out_of_order_are_rejected() {
        let at = |start, backing| Mapping { start, end: start + 1, offset: 0, backing, is_code: false };
        let mut map = Map::default();
        assert!(add_mappings(&mut map, vec![at(5, Backing::Vdso)]));
        assert!(!add_mappings(&mut map.clone(), vec![at(6, Backing::File(0))]));
        assert!(!add_mappings(&mut map, vec![at(4, Backing::Anonymous)]));
    }
}
