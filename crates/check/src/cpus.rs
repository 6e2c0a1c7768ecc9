//! Properties of CPUs that are read when the session begins: package, NUMA node, clock.
//!
//! They need no table in the kernel: the lookup is compiled into the program. Neighbouring CPUs
//! mostly have equal values, so the CPU numbers form a few runs, and a tree of comparisons finds
//! the run. On a machine with one package the lookup is a constant.

use diagnostics::Span;
use syntax::ast;
use types::TypeId;

use crate::program::{Expr, ExprKind, Relation};
use crate::session::{CheckResult, Checker};
use crate::tables::CpuFact;

impl Checker<'_> {
    /// `_cpu_chip[cpu]` and similar inlines. -1 for an unknown CPU.
    pub(crate) fn cpu_property(&mut self, fact: CpuFact, cpu: &ast::Expr, span: Span) -> CheckResult<Expr> {
        let cpu = self.value(cpu)?;
        let cpu = self.convert(cpu, TypeId::INT);
        let (cpu, outer) = self.bind(cpu);
        let facts = (self.cx.options.facts.0)();
        let values: Vec<i32> = match fact {
            CpuFact::Chip => facts.cpus.iter().map(|(chip, _)| *chip).collect(),
            CpuFact::Node => facts.cpus.iter().map(|(_, node)| *node).collect(),
            CpuFact::Clock => (facts.clocks.0)(),
        };
        let mut runs: Vec<(i64, i64)> = Vec::new();
        for (at, value) in (0..).zip(values) {
            let value = i64::from(value);
            if runs.last().is_none_or(|(_, last)| *last != value) {
                runs.push((at, value));
            }
        }
        let tree = self.value_of_run(&cpu, &runs, span);
        Ok(self.within(outer, tree))
    }

    /// The value of the run that contains a CPU. `runs` are sorted by their first CPU.
    fn value_of_run(&self, cpu: &Expr, runs: &[(i64, i64)], span: Span) -> Expr {
        let int = |kind| Box::new(Expr { kind, ty: TypeId::INT, span });
        match runs {
            [] => self.int(-1, TypeId::INT, span),
            [(_, value)] => self.int(*value, TypeId::INT, span),
            _ => {
                let (low, high) = runs.split_at(runs.len() / 2);
                let first = high.first().map_or(0, |(first, _)| *first);
                let below = ExprKind::Compare {
                    relation: Relation::Lt,
                    signed: true,
                    left: Box::new(cpu.clone()),
                    right: int(ExprKind::Int(first)),
                };
                let (low, high) = (self.value_of_run(cpu, low, span), self.value_of_run(cpu, high, span));
                *int(ExprKind::Cond(int(below), Box::new(low), Box::new(high)))
            }
        }
    }
}
