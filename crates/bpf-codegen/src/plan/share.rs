//! Sharing of maps, because a program may use only 64.
//!
//! ```text
//!  aggregations   share one map, whose elements hold a table of each: the tables are adjacent
//!  arrays         whose keys and values have the same length share a map of maps: programs look the array up in it,
//!                 and have one function for all of them
//! ```
//!
//! A few have maps of their own, because those are faster to access.

use std::collections::BTreeMap;

use plane::table::{TableShape, VALUE_MAX_OLD};

use super::{AggPlan, ArrayPosition, Plan, TableLocation, VarPlan};

/// Up to this number of aggregations or arrays planned together have maps of their own.
const ALONE: usize = 16;

impl Plan {
    /// Assigns maps to the aggregations from `first` on.
    pub(super) fn share_aggs(&mut self, first: usize) {
        let together = self.aggs.len() - first > ALONE;
        let mut location = TableLocation::default();
        for (i, agg) in self.aggs.iter_mut().enumerate().skip(first) {
            let size = agg.shape.table_size;
            let fits = u64::from(location.stride) + u64::from(size) <= VALUE_MAX_OLD;
            if i == first || !together || !fits {
                location = TableLocation { map: i as u32, at: 0, stride: 0 };
            }
            location.at = location.stride;
            location.stride += size;
            agg.location = location;
        }
        self.close_aggs(first);
    }

    /// Sets the stride, which is known once the last aggregation of a map is placed.
    fn close_aggs(&mut self, first: usize) {
        let strides: BTreeMap<u32, u32> =
            self.aggs.iter().map(|a| (a.location.map, a.location.stride)).collect();
        for agg in self.aggs.iter_mut().skip(first) {
            agg.location.stride = strides.get(&agg.location.map).copied().unwrap_or(agg.location.stride);
        }
    }

    /// Halves the tables of the aggregations in a map, false when they are minimal.
    pub(super) fn halve_aggs(&mut self, map: u32) -> bool {
        let (mut any, mut end) = (false, 0);
        for AggPlan { func, shape, location, .. } in self.aggs.iter_mut().filter(|a| a.location.map == map) {
            if shape.slots_log2 > 0 {
                *shape = TableShape::new(*func, shape.key_size, u64::from(shape.table_size) / 2);
                any = true;
            }
            location.at = end;
            end += shape.table_size;
            location.stride = end;
        }
        self.close_aggs(map as usize);
        any
    }

    /// Groups the arrays from `first` on that share a map.
    pub(super) fn share_arrays(&mut self, first: usize) {
        let mut alike: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
        for (i, var) in self.vars.iter().enumerate().skip(first) {
            // Arrays of threads have several maps each.
            if let VarPlan::Assoc(a) = var
                && a.heads.is_none()
            {
                alike.entry((a.key_size(), a.data)).or_default().push(i);
            }
        }
        if alike.values().map(Vec::len).sum::<usize>() <= ALONE {
            return;
        }
        for group in alike.values().filter(|g| g.len() > 1) {
            for (index, var) in (0..).zip(group) {
                if let Some(VarPlan::Assoc(a)) = self.vars.get_mut(*var) {
                    a.shared = Some(ArrayPosition { first: group[0] as u32, index });
                }
            }
        }
    }

    /// The maps of arrays among the variables from `first` on, by their first array.
    pub(super) fn arrays(&self, first: u32) -> impl Iterator<Item = u32> {
        (0..).zip(&self.vars).skip(first as usize).filter_map(|(i, v)| match v {
            VarPlan::Assoc(a) if a.shared?.first == i => Some(i),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use dif::ir::Module;

    use crate::mir::MapRef;
    use crate::plan::{Needs, Options, Plan};

    fn plan(aggs: usize, arrays: usize) -> Plan {
        let mut text = "module strsize 256\nstring s0 = \"\"\n".to_owned();
        for v in 0..arrays {
            let size = if v % 4 == 0 { 256 } else { 8 };
            let key = if v % 4 == 0 { "0:str(256)" } else { "0:u64" };
            text += &format!("var var{v} = global \"v{v}\" int [{key}] size {size}\n");
        }
        for a in 0..aggs {
            text += &format!("agg agg{a} = \"a{a}\" count [0:u64] size 8\n");
        }
        let module: Module = dif::text::parse(&text).unwrap();
        Plan::new(&module, &Options::default(), &Needs { cpus: 8, ..Needs::default() })
    }

    fn maps(plan: &Plan, such: fn(&MapRef) -> bool) -> usize {
        plan.wanted(None).iter().filter(|(map, _)| such(map)).count()
    }

    #[test]
    fn a_few_aggregations_and_arrays_have_maps_of_their_own() {
        let plan = plan(16, 16);
        assert_eq!(maps(&plan, |m| matches!(m, MapRef::Agg(_))), 16);
        assert_eq!(maps(&plan, |m| matches!(m, MapRef::Arrays(_))), 0);
    }

    #[test]
    fn many_aggregations_share_a_map_without_overlap() {
        let mut plan = plan(200, 100);
        for _ in 0..3 {
            assert_eq!(maps(&plan, |m| matches!(m, MapRef::Agg(_))), 1);
            assert_eq!(maps(&plan, |m| matches!(m, MapRef::Arrays(_))), 2);
            let mut end = 0;
            for agg in &plan.aggs {
                assert_eq!((agg.location.map, agg.location.at), (0, end));
                end += agg.shape.table_size;
            }
            assert!(plan.aggs.iter().all(|a| a.location.stride == end) && end <= 4 << 20);
            assert!(plan.halve_aggs(0));
        }
    }
}
