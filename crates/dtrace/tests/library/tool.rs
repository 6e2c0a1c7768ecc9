//! A session in this process with its output and reports, and a provider of the tests.

use std::ffi::OsStr;
use std::io::Write;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bpf::mir::{Builder, Size, V};
use bpf::program::{Context, Index};
use bpf::sys::{AttachType, Link, PerfEvent, ProgKind};
use consumer::Message;
use dtrace::options::Options;
use dtrace::{Field, Macros, Notice, Program, Provider, Session, Source, Status, Target};
use plane::control::DropKind;
use probes::{Attributes, ProbeDesc, ProviderFacts, ProviderStability};
use providers::{Attach, CustomAttach, EnabledProbe, Env, Role, Unit};

use crate::workload::dt_library_hit;

/// The output of a session.
#[derive(Clone, Default)]
pub(crate) struct Output(Arc<Mutex<Vec<u8>>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl dtrace::Output for Output {}

impl Output {
    /// The text from this byte on.
    pub(crate) fn after(&self, at: usize) -> String {
        String::from_utf8_lossy(self.0.lock().unwrap().get(at..).unwrap_or_default()).into_owned()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

/// Losses, by kind.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    pub(crate) records: u64,
    pub(crate) others: Vec<(DropKind, u64)>,
    /// Firings that the kernel suppressed.
    pub(crate) suppressed: u64,
}

/// Runs the session until its targets end, and returns its losses. Any other report fails the test.
#[track_caller]
pub(crate) fn run_to_end(session: &mut Session<Output>, limit: Duration) -> Losses {
    let start = Instant::now();
    let mut losses = Losses::default();
    while session.work(None, Duration::from_millis(100)).unwrap() == Status::Working {
        assert!(start.elapsed() < limit, "no end after {limit:?}");
        collect_reports(session, &mut losses);
    }
    losses
}

/// Collects the session's reports.
#[track_caller]
pub(crate) fn collect_reports(session: &mut Session<Output>, losses: &mut Losses) {
    for notice in session.take_notices() {
        match notice {
            Notice::Message(Message::Drop(d)) if d.kind == DropKind::Principal => losses.records += d.count,
            Notice::Message(Message::Drop(d)) => losses.others.push((d.kind, d.count)),
            Notice::Suppressed { count, .. } => losses.suppressed += count,
            Notice::Target(text) => assert!(text.ends_with("has exited"), "{text}"),
            other => panic!("unexpected report: {other}"),
        }
    }
}

/// Compiles a script, with the provider of [`Hits`].
#[track_caller]
pub(crate) fn compile(text: &str, options: &mut Options, target: u64) -> Program {
    let macros = Macros { target, ..Macros::default() };
    let source = Source::Specifier(Field::Name, text.into());
    dtrace::compile_with(&[source], &macros, options, vec![Box::new(Hits) as Box<dyn Provider>])
        .unwrap_or_else(|(map, e)| panic!("{}", e.messages(&map, true).join("\n")))
}

/// The command line of the workload.
pub(crate) fn workload(threads: u64, calls: u64) -> Target {
    let me = std::env::current_exe().unwrap();
    Target::create(format!("{} --workload {threads} {calls}", me.display())).unwrap()
}

/// A provider of one probe, `hits:::hit`: a uprobe on [`dt_library_hit`] that the test itself
/// attaches.
pub(crate) struct Hits;

impl Provider for Hits {
    fn facts(&self) -> ProviderFacts {
        let stability = ProviderStability::uniform(Attributes::EVOLVING);
        ProviderFacts { name: "hits".into(), has_errno: false, stability }
    }

    fn list(&self) -> Vec<ProbeDesc> {
        vec![ProbeDesc::new("hits", "", "", "hit")]
    }

    fn plan(&self, probes: &[EnabledProbe], _env: &Env<'_>) -> Result<Vec<Unit>, String> {
        let attach = |prog: &bpf::sys::Prog| {
            let (path, offset) =
                (OsStr::new("/proc/self/exe"), offset_in_file(dt_library_hit as *const () as u64));
            let event = PerfEvent::uprobe(path, offset, 0, false, None)?;
            Ok(vec![Link::perf_event(prog, event, 0)?])
        };
        let custom =
            CustomAttach { kind: ProgKind::Kprobe, attach_type: AttachType::None, attach: Rc::new(attach) };
        Ok(vec![Unit {
            name: "hits".into(),
            role: Role::Probe,
            probes: vec![(0, probes[0].clone())],
            space: 1,
            context: Rc::new(Arguments),
            attach: Attach::Custom(custom),
            interrupts: false,
        }])
    }
}

/// Arguments of a function of the process.
struct Arguments;

impl Context for Arguments {
    fn arg(&self, b: &mut Builder, ctx: V, _: Index, n: u8) -> V {
        match bpf::arch::FUNCTION_ARGS.get(usize::from(n)) {
            Some(at) => b.load(Size::B8, ctx, *at),
            None => b.imm(0),
        }
    }
}

/// The file offset of an address of this executable.
pub(crate) fn offset_in_file(address: u64) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = words[0].split_once('-').unwrap();
        let number = |s| u64::from_str_radix(s, 16).unwrap();
        if (number(start)..number(end)).contains(&address) {
            return address - number(start) + number(words[2]);
        }
    }
    panic!("no mapping");
}
