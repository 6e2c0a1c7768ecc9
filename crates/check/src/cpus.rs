//! Properties of CPUs that are read when the session begins: package, NUMA node, clock.
//!
//! They need no table in the kernel: the lookup is compiled into the program. Neighbouring CPUs
//! mostly have equal values, so the CPU numbers form a few runs, and a tree of comparisons finds
//! the run. On a machine with one package the lookup is a constant.

use diagnostics::Span;
use syntax::ast;
use types::TypeId;

use crate::program::Expr;
use crate::runs::choice;
use crate::session::Checker;
use crate::state::recovery::CheckResult;
use crate::tables::CpuFact;

impl Checker<'_> {
    /// `_cpu_chip[cpu]` and similar inlines. -1 for an unknown CPU.
    pub(crate) fn cpu_property(&mut self, fact: CpuFact, cpu: &ast::Expr, span: Span) -> CheckResult<Expr> {
        let cpu = self.value(cpu)?;
        let cpu = self.convert(cpu, TypeId::INT);
        let (cpu, outer) = self.bind(cpu);
        let facts = self.cx.options.facts.read();
        let values: Vec<i32> = match fact {
            CpuFact::Chip => facts.cpus.iter().map(|(chip, _)| *chip).collect(),
            CpuFact::Node => facts.cpus.iter().map(|(_, node)| *node).collect(),
            CpuFact::Clock => facts.clocks.read(),
        };
        let mut runs: Vec<(i64, i64)> = Vec::new();
        for (at, value) in (0..).zip(values) {
            let value = i64::from(value);
            if runs.last().is_none_or(|(_, last)| *last != value) {
                runs.push((at, value));
            }
        }
        let value = |value: Option<&i64>| self.int(value.copied().unwrap_or(-1), TypeId::INT, span);
        let tree = choice(&cpu, &runs, &value);
        Ok(self.within(outer, tree))
    }
}
