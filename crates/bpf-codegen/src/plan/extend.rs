//! Extending a running session: the plan of the new programs, and the maps that only they use.

use dif::ir::Module;

use super::{
    Needs, Options, Plan, kept_for_exit, least_ring, plan_ring, plan_speculation, reads_vtime, slot_size,
    stack_frames,
};

impl Plan {
    /// The plan of programs that are added to a session with this plan. `module` contains
    /// everything of the session, with the same numbers, followed by what is new. `needs` describes
    /// the new programs. `aggsize` and `dynvarsize` apply to the new aggregations and variables,
    /// once more.
    pub fn extend(&self, module: &Module, options: &Options, needs: &Needs) -> Plan {
        let mut plan = self.clone();
        let least = least_ring(module, self.policy, &needs.end);
        plan.ring_least = self.ring_least.max(least);
        plan.preempt_count = needs.preempt_count;
        plan.vtime |= reads_vtime(module);
        plan.unwind |= needs.unwind;
        plan.runtimes |= needs.runtimes;
        // A set that exists keeps its size.
        plan.processes = if self.processes > 0 { self.processes } else { needs.processes };
        plan.speculation = self.speculation.or_else(|| plan_speculation(module, options, needs.cpus));
        plan.stack_frames = self.stack_frames.max(stack_frames(module));
        // Programs that run already keep no more free than they did.
        plan.kept_for_exit = self.kept_for_exit.max(kept_for_exit(module));
        let suffices = (needs.one_shot || !self.one_shot)
            && self.ring_size >= least
            && self.kept_for_exit == plan.kept_for_exit;
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

#[cfg(test)]
mod tests {
    use super::super::VarPlan;
    use super::*;
    use crate::mir::MapRef;
    use dif::FunctionBuilder;
    use dif::ir::{Clause, RecordDesc, Scope, VarDesc, VarTy};
    use plane::desc::{Action, AggDesc, AggFunc, Datum, Field};

    fn module(record: u32, vars: &[Scope], aggs: usize) -> Module {
        let mut module = Module::new(256);
        let mut nothing = FunctionBuilder::new("clause");
        nothing.ret();
        let record = Some(RecordDesc { size: record, actions: Vec::new(), process: None });
        module.clauses.push(Clause { func: nothing.finish().unwrap(), record, span: None });
        module.vars.extend(vars.iter().map(|scope| VarDesc {
            name: "v".into(),
            scope: *scope,
            ty: VarTy::Int,
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

    #[test]
    fn an_aggsize_beyond_the_most_is_noted_in_the_plan_that_adds_the_aggregation() {
        let with = |aggsize| Options { aggsize, ..Options::default() };
        let (most, more) = (with(2 * plane::table::TABLE_MAX), with(2 * plane::table::TABLE_MAX + 2));
        let mut keyed = module(8, &[], 1);
        keyed.aggs[0].key_size = 8;
        let capped = |options| Plan::new(&keyed, options, &needs(false, 0)).aggs_capped;
        assert!(!capped(&most) && capped(&more));
        assert!(!Plan::new(&module(8, &[], 1), &more, &needs(false, 0)).aggs_capped);
        let first = Plan::new(&keyed, &more, &needs(false, 0));
        assert!(!first.extend(&keyed, &more, &needs(false, 0)).aggs_capped);
    }

    #[test]
    fn arrays_of_libraries_take_nothing_of_dynvarsize() {
        let elements = |names: &[&str], dynvarsize| -> Vec<u32> {
            let mut all = module(8, &vec![Scope::Global; names.len()], 0);
            for (var, name) in all.vars.iter_mut().zip(names) {
                (var.name, var.key, var.key_size) = ((*name).into(), Some(Vec::new()), 8);
            }
            let options = Options { dynvarsize, ..Options::default() };
            let plan = Plan::new(&all, &options, &needs(false, 0));
            let array = |v: &VarPlan| if let VarPlan::Assoc(a) = v { a.elements } else { 0 };
            plan.vars.iter().map(array).collect()
        };
        for dynvarsize in [4096, 64 << 20] {
            let alone = elements(&["a"], dynvarsize);
            let with = elements(&["%0.1%x", "a", "%0.1%y"], dynvarsize);
            assert_eq!((with[1], with[0]), (alone[0], with[2]));
            assert_eq!(with[0], elements(&["a"], 1 << 20)[0]);
        }
    }

    #[test]
    fn a_new_bank_is_made_for_a_longer_record_with_exit() {
        let options = Options { bufsize: 4096, ..Options::default() };
        let exits = |size: u32| {
            let mut module = module(size, &[], 0);
            let actions = &mut module.clauses[0].record.as_mut().unwrap().actions;
            actions.push(Action::Exit(Field { offset: 0, datum: Datum::Int { size: 4, signed: true } }));
            module
        };
        let first = Plan::new(&module(8, &[], 0), &options, &needs(false, 0));
        assert_eq!(first.kept_for_exit, 0);
        // The programs of the first bank leave no space for an exit().
        let with = first.extend(&exits(8), &options, &needs(false, 0));
        assert_eq!((with.bank, with.kept_for_exit), (1, 2 * (24 + 8)));
        let shorter = with.extend(&exits(8), &options, &needs(false, 0));
        assert_eq!((shorter.bank, shorter.kept_for_exit), (1, 2 * (24 + 8)));
        let longer = shorter.extend(&exits(1000), &options, &needs(false, 0));
        assert_eq!((longer.bank, longer.kept_for_exit), (2, 2 * (24 + 1000)));
        // Twice the longest record, and what is kept.
        assert_eq!((longer.ring_least, longer.ring_size), (4096, 4096));
        assert_eq!(first.extend(&exits(1024), &options, &needs(false, 0)).ring_size, 8192);
    }
}
