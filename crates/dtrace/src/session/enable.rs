//! Enabling: what a program registers with the consumer, and programs that are added to a running
//! session.

use std::borrow::Cow;
use std::sync::Arc;

use consumer::{Consumer, Layout};
use diagnostics::control;
use events::Sink;
use plane::control::Activity;
use plane::desc::AggId;
use probes::ProbeInfo;
use providers::Role;

use super::held::drain;
use super::settings::{self, consumer_options};
use super::state::{Running, over};
use super::{Notice, more_left_out};
use crate::compile::{Macros, Program, Source};
use crate::engine::{Enabled, Engine, Firings, Loading};
use crate::error::{CompileError, Error};
use crate::options::Options;
use crate::session::advice::advice;

impl<S: Sink> Running<S> {
    pub(super) fn enable(&mut self, sources: &[Source], macros: &Macros) -> Result<Vec<usize>, CompileError> {
        let mut options = self.options.clone();
        let strings = self.strings.iter().map(|s| s.to_vec()).collect();
        let more = self.program.extend(sources, macros, &mut options, strings, &*self.interrupted);
        let more = more?;
        let map = more.map.clone();
        let first = self.program.titles.len();
        self.programs.clear();
        let enabled = self.enable_program(more, options, None).map(|_| ());
        if enabled.is_ok() {
            let registry = &self.program.registry;
            let is_error = |p: &ProbeInfo| registry.role(&p.desc) == Role::Error;
            let mut added = self.program.checked.clauses.iter().skip(self.program.running);
            let sees_faults = added.any(|clause| clause.probes.iter().any(is_error));
            self.shapes.clauses_added(sees_faults);
            self.follow_system();
        }
        let flushed = self.flush();
        enabled.and(flushed).map_err(|error| CompileError { error, map })?;
        Ok((first..self.program.titles.len()).map(|n| self.program.matched(n)).collect())
    }

    /// Enables a program that includes the running ones. `later`: it is for probes that came later,
    /// and whether its programs serve others too, where that is possible.
    pub(super) fn enable_program(
        &mut self,
        more: Program,
        options: Options,
        later: Option<bool>,
    ) -> Result<Enabled, Error> {
        if self.engine.activity().0 != Activity::Active {
            return Err(over("enable tracing"));
        }
        let cpus = match self.engine.firings() {
            Firings::Asynchronous => self.program.system.online_cpus(),
            Firings::Ready | Firings::Exhausted => self.cpus.clone(),
        };
        settings::check(&options, more.is_destructive(), &cpus)?;
        let interrupted = self.interrupted.clone();
        let Running { engine, consumer, held, options: current, .. } = self;
        // Loading takes time, in which the running programs fill their buffers.
        let mut between = |engine: &mut dyn Engine| drain(engine, consumer, current, held, false);
        let (partial, grow) = (later.is_some(), later.unwrap_or(false));
        let loading = Loading { first: self.next_epid, partial, grow };
        let enabled = engine.load_more(&more, &options, loading, &*interrupted, &mut between)?;
        self.report_engine();
        let registered = Registered { aggs: self.program.module.aggs.len(), strings: self.strings.len() };
        register(&mut self.consumer, &more, &enabled, registered)?;
        self.consumer.advise(advice(self.engine.firings(), &more, &enabled));
        // These stay registered even if attaching fails, because a number must not be used twice.
        (self.program, self.next_epid) = (more, enabled.next);
        self.strings.clone_from(&enabled.strings);
        self.options = options;
        let target = self.consumer.options().target;
        self.consumer.set_options(consumer_options(&self.options, target));
        self.watch_processes();
        let adopted = self.engine.adopt(&*interrupted);
        self.engine.take_codes().into_iter().for_each(|codes| self.consumer.set_codes(codes));
        self.report_engine();
        let none = match &adopted {
            Ok(rejected) => rejected.clone(),
            Err(_) => {
                let ranges = enabled.ranges.iter().filter(|_| partial).map(|range| range.first);
                enabled.sites.iter().map(|site| site.first).chain(ranges).collect()
            }
        };
        none.into_iter().for_each(|epid| self.consumer.disable(epid));
        adopted.map(|_| enabled)
    }

    /// Reports the notices of the engine.
    pub(super) fn report_engine(&mut self) {
        for notice in self.engine.take_notices() {
            self.report(&notice);
        }
        let program = self.program.clone();
        self.report_left_out(&program);
    }

    /// Reports for which probes of processes a clause is not, and what definitions of programs say
    /// that is not used: each once, and of many the first.
    pub(super) fn report_left_out(&mut self, program: &Program) {
        let told = &mut self.shapes.told;
        program.checked.left_out.iter().for_each(|text| told.add(text.clone()));
        let said = told.take(more_left_out);
        said.into_iter().for_each(|text| self.report(&Notice::Missed(text)));
    }
}

/// The number of objects that are registered with a consumer.
#[derive(Default)]
pub(super) struct Registered {
    aggs: usize,
    strings: usize,
}

/// Registers the new aggregations, strings and enabled probes with the consumer.
pub(super) fn register<S: Sink>(
    consumer: &mut Consumer<S>,
    program: &Program,
    enabled: &Enabled,
    registered: Registered,
) -> Result<(), Error> {
    for desc in program.module.aggs.iter().skip(registered.aggs) {
        consumer.add_aggregation(desc.clone());
    }
    // A program may name the keys of a running aggregation otherwise.
    for (id, names) in (0..).zip(&program.checked.agg_keys) {
        consumer.name_keys(AggId(id), names.clone());
    }
    for (id, unsigned) in (0..).zip(&program.checked.agg_unsigned) {
        consumer.mark_unsigned(AggId(id), *unsigned);
    }
    for (at, text) in enabled.strings.iter().enumerate().skip(registered.strings) {
        // The program's own strings are printed unchanged. The strings after them are names of
        // probes.
        let shown = match control::name(text) {
            Cow::Owned(escaped) if at >= program.module.strings.len() => escaped.into_bytes().into(),
            _ => text.clone(),
        };
        consumer.intern(at as u32, shown);
    }
    for (prefix, pid, name) in &enabled.providers {
        consumer.intern_provider(*prefix, *pid, control::name_text(name).as_bytes());
    }
    let layouts = layouts(program)?;
    let loaded: Arc<[Option<Arc<Layout>>]> = layouts.iter().skip(program.running).cloned().collect();
    for site in &enabled.sites {
        consumer.enable_site(site.first, site.probe.clone(), loaded.clone());
    }
    for range in &enabled.ranges {
        let layout = layouts.get(range.clause).cloned().flatten();
        consumer.enable_all(range.first, range.probes.clone(), layout);
    }
    Ok(())
}

/// The layouts of the records of all clauses.
pub(super) fn layouts(program: &Program) -> Result<Vec<Option<Arc<Layout>>>, Error> {
    // The n-th clause of the module is the n-th one of the checked program.
    let mut checked = program.checked.clauses.iter();
    let layout = |clause: &dif::ir::Clause| {
        let names = checked.next().map_or(&[][..], |clause| &clause.names);
        let layout = clause.record.as_ref().map(|record| Layout::new(record, names)).transpose();
        Ok(layout.map_err(|e| Error::Internal(format!("{e:?}")))?.map(Arc::new))
    };
    program.module.clauses.iter().map(layout).collect()
}
