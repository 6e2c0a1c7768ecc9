//! Extending a running session: the plan of the new programs, and the maps that only they use.

use dif::ir::Module;

use super::create::make;
use super::{
    Map, MapRef, Maps, Needs, Options, Plan, least_ring, plan_ring, reads_vtime, slot_size, stack_frames,
};
use crate::sys::SysError;

impl Plan {
    /// The plan of programs that are added to a session with this plan. `module` contains
    /// everything of the session, with the same numbers, followed by what is new. `needs` describes
    /// the new programs. `aggsize` and `dynvarsize` apply to the new aggregations and variables,
    /// once more.
    pub fn extend(&self, module: &Module, options: &Options, needs: &Needs) -> Plan {
        let mut plan = self.clone();
        let least = least_ring(module);
        plan.ring_least = self.ring_least.max(least);
        plan.preempt_count = needs.preempt_count;
        plan.vtime |= reads_vtime(module);
        plan.stack_frames = self.stack_frames.max(stack_frames(module));
        let suffices = (needs.one_shot || !self.one_shot) && self.ring_size >= least;
        if suffices {
            // The mask of taken slots is shared, so a taken slot is taken in both maps.
            plan.slot_size = self.slot_size.max(slot_size(needs));
        } else {
            plan.bank += 1;
            plan.one_shot &= needs.one_shot;
            if self.one_shot && !plan.one_shot {
                plan.cpus = needs.cpus.max(1);
            }
            plan.ring_size = plan_ring(module, options, plan.one_shot).max(least);
            plan.ring_capped = !plan.one_shot && options.bufsize > u64::from(plane::ring::RING_MAX);
            plan.slot_size = slot_size(needs);
        }
        plan.add_aggs(module, options);
        plan.add_vars(module, options, needs.levels);
        plan
    }
}

impl Maps {
    /// Creates the maps that the extended plan has and the plan `before` has not. [`Maps::adopt`]
    /// adds them to the session.
    pub fn extend(before: &Plan, plan: Plan, auto: bool) -> Result<Maps, SysError> {
        make(plan, Some(before), auto, None)
    }

    /// Adds the maps of an extended plan, which becomes the session's plan. Returns the maps that
    /// were replaced. Running programs still use those.
    pub fn adopt(&mut self, more: Maps) -> Vec<(MapRef, Map)> {
        self.plan = more.plan;
        self.lowered = more.lowered;
        more.maps.into_iter().filter_map(|(at, map)| Some((at, self.maps.insert(at, map)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::VarPlan;
    use super::*;
    use dif::FunctionBuilder;
    use dif::ir::{Clause, RecordDesc, Scope, VarDesc, VarTy};
    use plane::desc::{AggDesc, AggFunc};

    fn module(record: u32, vars: &[Scope], aggs: usize) -> Module {
        let mut module = Module::new(256);
        let mut nothing = FunctionBuilder::new("clause");
        nothing.ret();
        let record = Some(RecordDesc { size: record, actions: Vec::new() });
        module.clauses.push(Clause { func: nothing.finish().unwrap(), record, span: None });
        module.vars.extend(vars.iter().map(|scope| VarDesc {
            name: "v".into(),
            scope: *scope,
            ty: VarTy::Int { size: 8, signed: true },
            key: None,
            key_size: 0,
        }));
        let desc = || AggDesc { name: "a".into(), func: AggFunc::Count, key: Vec::new(), key_size: 0 };
        module.aggs.extend((0..aggs).map(|_| desc()));
        module
    }

    fn needs(one_shot: bool, slot_bytes: u32) -> Needs {
        Needs { cpus: 4, one_shot, slot_bytes, levels: 3, ..Needs::default() }
    }

    #[test]
    fn maps_that_are_large_enough_are_kept() {
        let options = Options::default();
        let first = Plan::new(&module(8, &[Scope::Global], 1), &options, &needs(false, 64));
        let more = module(8, &[Scope::Global, Scope::Global, Scope::Thread], 2);
        let grown = first.extend(&more, &options, &needs(false, 64));
        assert_eq!((grown.bank, grown.cpus, grown.ring_size), (0, 4, first.ring_size));
        assert_eq!(grown.vars[0], first.vars[0]);
        assert!(matches!(grown.vars[1], VarPlan::GlobalAlone(8)));
        // The first of self-> are in the session's common storage.
        assert!(matches!(grown.vars[2], VarPlan::Thread(0)));
        let new: Vec<MapRef> = grown.wanted(Some(&first)).into_iter().map(|w| w.0).collect();
        assert_eq!(new, [MapRef::SelfStore, MapRef::Agg(1), MapRef::Var(1)]);
    }

    #[test]
    fn a_new_bank_is_made_when_the_rings_are_too_short_or_for_begin_alone() {
        let options = Options { bufsize: 4096, ..Options::default() };
        let begin = Plan::new(&module(8, &[], 1), &options, &needs(true, 0));
        assert_eq!((begin.cpus, begin.aggs[0].cpus), (1, 1));
        let grown = begin.extend(&module(8, &[], 2), &options, &needs(false, 0));
        assert_eq!((grown.bank, grown.cpus), (1, 4));
        assert_eq!((grown.aggs[0].cpus, grown.aggs[1].cpus), (1, 4));
        let longer = grown.extend(&module(4000, &[], 2), &options, &needs(false, 200));
        assert_eq!((longer.bank, longer.cpus, longer.ring_size), (2, 4, 8192));
        let new: Vec<MapRef> = longer.wanted(Some(&grown)).into_iter().map(|w| w.0).collect();
        assert_eq!(new, [MapRef::PerCpu, MapRef::Rings, MapRef::Slots]);
        // Only BEGIN and END are new, so any bank suffices.
        assert_eq!(longer.extend(&module(8, &[], 2), &options, &needs(true, 0)).bank, 2);
    }
}
