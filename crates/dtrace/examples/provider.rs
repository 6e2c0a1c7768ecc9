//! A provider that a program brings along: `work:::call` fires when [`work`] of this program is
//! called, and its `arg0` is the argument.
//!
//! ```text
//! cargo run --example provider
//! ```
//!
//! Everything that a provider is made of is in [`dtrace::provider`].

use std::ffi::OsStr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use dtrace::provider::bpf_sys::{AttachType, Link, PerfEvent, Prog, ProgKind};
use dtrace::provider::context::{Context, Index};
use dtrace::provider::method::CustomAttach;
use dtrace::provider::mir::{Builder, Size, V};
use dtrace::provider::{
    Attributes, EnabledProbe, Env, Family, ProbeDesc, ProbeList, ProbeSource, Provider, ProviderFacts,
    ProviderStability, Role, Unit,
};
use dtrace::{Options, Session, System, Text};

const SCRIPT: &str = "work:::call { @calls = count(); @sum = sum(arg0); }";

/// The probed function.
#[inline(never)]
pub(crate) extern "C" fn work(n: u64) -> u64 {
    std::hint::black_box(n)
}

/// The provider, with its list of probes.
struct Work(ProbeList);

impl Provider for Work {
    fn facts(&self) -> ProviderFacts {
        let stability = ProviderStability::uniform(Attributes::EVOLVING);
        ProviderFacts { family: Family::one("work"), has_errno: false, stability }
    }

    fn probes(&self) -> &dyn ProbeSource {
        &self.0
    }

    fn plan(&self, probes: &[EnabledProbe], _: &Env<'_>) -> Result<Vec<Unit>, String> {
        let at = offset_in_file(work as *const () as u64).ok_or("this program is not mapped")?;
        let attach = move |prog: &Prog| {
            let event = PerfEvent::uprobe(OsStr::new("/proc/self/exe"), at, 0, false, None)?;
            Ok(vec![Link::perf_event(prog, event, 0)?])
        };
        let (kind, attach_type) = (ProgKind::Kprobe, AttachType::None);
        Ok(vec![Unit {
            name: "work".into(),
            role: Role::Probe,
            probes: probes.iter().take(1).map(|p| (0, p.clone())).collect(),
            space: 1,
            context: Arc::new(Arguments),
            method: Arc::new(CustomAttach { kind, attach_type, attach: Arc::new(attach) }),
            interrupts: false,
        }])
    }
}

/// The arguments are in the registers that the processor's calling convention says.
struct Arguments;

impl Context for Arguments {
    fn arg(&self, b: &mut Builder, ctx: V, _: Index, n: u8) -> V {
        match b.machine().args.get(usize::from(n)) {
            Some(at) => b.load(Size::B8, ctx, *at),
            None => b.imm(0),
        }
    }
}

/// The file offset of an address of this program.
fn offset_in_file(address: u64) -> Option<u64> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end, offset) = (number(start)?, number(end)?, number(words.nth(1)?)?);
        (start..end).contains(&address).then(|| address - start + offset)
    })
}

/// Traces ten calls; the output of the session.
pub(crate) fn run() -> Result<String, Box<dyn std::error::Error>> {
    let list = ProbeList::new(|| vec![ProbeDesc::new("work", "", "", "call")]);
    let mut session = Session::builder(&System::live())
        .program(SCRIPT)
        .provider(Box::new(Work(list)))
        .options(Options { quiet: true, ..Options::default() })
        .start(Text::new(Vec::new()))?;
    for n in 1..=10 {
        work(n);
    }
    session.work(None, Duration::ZERO)?;
    session.finish()?;
    Ok(String::from_utf8(session.into_sink().into_output())?)
}

fn main() -> ExitCode {
    match run() {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
