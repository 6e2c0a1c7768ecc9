//! A session in this process with its output and reports, and a provider of the tests.

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use dtrace::events::{DropKind, Event, NoticeKind, SinkError};
use dtrace::options::Options;
use dtrace::provider::bpf_sys::{AttachType, Link, PerfEvent, Prog, ProgKind};
use dtrace::provider::context::{Context, Index};
use dtrace::provider::method::CustomAttach;
use dtrace::provider::mir::{Builder, Size, V};
use dtrace::provider::{
    Attributes, EnabledProbe, Env, Family, ProbeDesc, ProbeList, ProbeSource, ProviderFacts,
    ProviderStability, Role, Unit,
};
use dtrace::{Field, Macros, Message, Program, Provider, Session, Sink, Source, Status, Target, Text};

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

impl dtrace::Output for Output {
    /// [`Reports`] has them.
    fn messages(&mut self, _messages: &[Message]) -> std::io::Result<()> {
        Ok(())
    }
}

/// The events that report something besides the results.
#[derive(Default)]
pub(crate) struct Reports(Vec<Event<'static>>);

impl Sink for Reports {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        if let Event::Suppressed(suppressed) = event {
            testing::suppressed::note(suppressed.to_string());
        }
        if let Event::Fault(_) | Event::Drop(_) | Event::Suppressed(_) | Event::Notice(_) = event {
            self.0.push(event.clone().into_owned());
        }
        Ok(())
    }
}

/// A session whose text and reports the test sees.
pub(crate) type Traced = Session<(Text<Output>, Reports)>;

pub(crate) fn sink(output: &Output) -> (Text<Output>, Reports) {
    (Text::new(output.clone()), Reports::default())
}

/// The reports since the last call.
pub(crate) fn take_reports(session: &mut Traced) -> Vec<Event<'static>> {
    std::mem::take(&mut session.sink_mut().1.0)
}

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
pub(crate) fn run_to_end(session: &mut Traced, limit: Duration) -> Losses {
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
pub(crate) fn collect_reports(session: &mut Traced, losses: &mut Losses) {
    for report in take_reports(session) {
        match report {
            Event::Drop(d) if d.kind == DropKind::Principal => losses.records += d.count,
            Event::Drop(d) => losses.others.push((d.kind, d.count)),
            Event::Suppressed(s) => losses.suppressed += s.count,
            // How something is done.
            Event::Notice(n) if n.kind == NoticeKind::Detail => {}
            Event::Notice(n) if n.kind == NoticeKind::Target => {
                assert!(n.text.ends_with("has exited"), "{}", n.text);
            }
            other => panic!("unexpected report: {other:?}"),
        }
    }
}

/// Compiles a script, with the provider of [`Hits`].
#[track_caller]
pub(crate) fn compile(text: &str, options: &mut Options, target: u64) -> Program {
    let macros = Macros { target, ..Macros::default() };
    let source = Source::Specifier(Field::Name, text.into());
    dtrace::compile_with(
        &dtrace::System::live(),
        &[source],
        &macros,
        options,
        vec![Box::new(Hits::new()) as Box<dyn Provider>],
    )
    .unwrap_or_else(|e| panic!("{e}"))
}

/// The command line of the workload.
pub(crate) fn workload(threads: u64, calls: u64) -> Target {
    let me = own_program();
    Target::create(format!("{} --workload {threads} {calls}", me.display())).unwrap()
}

/// The beginning of the name of a copy of this program, and of its processes, as of this program
/// itself.
const COPY: &str = "library-dt-copy-";

/// The file of this program that workloads run: a copy of its own, because a uprobe fires in all
/// processes that run its file, and tests run beside each other. In a guest they run one after the
/// other.
pub(crate) fn own_program() -> PathBuf {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    let copied = || {
        let me = std::env::current_exe().unwrap();
        let is_copy = me.file_name().is_some_and(|name| name.to_string_lossy().starts_with(COPY));
        if is_copy || std::env::var_os("DTRACE_IN_VM").is_some() {
            return me;
        }
        let copy = copy_of(std::process::id());
        std::fs::copy(me, &copy).unwrap();
        copy
    };
    PLACE.get_or_init(copied).clone()
}

fn copy_of(pid: u32) -> PathBuf {
    std::env::temp_dir().join(format!("{COPY}{pid}"))
}

/// Removes what [`own_program`] has made.
pub(crate) fn remove_copy() {
    let _ = std::fs::remove_file(copy_of(std::process::id()));
}

/// A provider of one probe, `hits:::hit`: a uprobe on [`dt_library_hit`] that the test itself
/// attaches.
pub(crate) struct Hits(ProbeList);

impl Hits {
    pub(crate) fn new() -> Hits {
        Hits(ProbeList::new(|| vec![ProbeDesc::new("hits", "", "", "hit")]))
    }
}

impl Provider for Hits {
    fn facts(&self) -> ProviderFacts {
        let stability = ProviderStability::uniform(Attributes::EVOLVING);
        ProviderFacts { family: Family::one("hits"), has_errno: false, stability }
    }

    fn probes(&self) -> &dyn ProbeSource {
        &self.0
    }

    fn plan(&self, probes: &[EnabledProbe], _env: &Env<'_>) -> Result<Vec<Unit>, String> {
        Ok(vec![on_the_workload("hits", vec![(0, probes[0].clone())], 1, Arc::new(Arguments))])
    }
}

/// A program at each call of [`dt_library_hit`], whose probes the context tells apart.
pub(crate) fn on_the_workload(
    name: &str,
    probes: Vec<(u32, EnabledProbe)>,
    space: u32,
    context: Arc<dyn Context>,
) -> Unit {
    let attach = |prog: &Prog| {
        let at = testing::offset_in_file(dt_library_hit as *const () as u64).unwrap();
        let event = PerfEvent::uprobe(own_program().as_os_str(), at, 0, false, None)?;
        Ok(vec![Link::perf_event(prog, event, 0)?])
    };
    let custom =
        CustomAttach { kind: ProgKind::Kprobe, attach_type: AttachType::None, attach: Arc::new(attach) };
    let method = Arc::new(custom);
    Unit { name: name.into(), role: Role::Probe, probes, space, context, method, interrupts: false }
}

/// Arguments of a function of the process.
struct Arguments;

impl Context for Arguments {
    fn arg(&self, b: &mut Builder, ctx: V, _: Index, n: u8) -> V {
        match b.machine().args.get(usize::from(n)) {
            Some(at) => b.load(Size::B8, ctx, *at),
            None => b.imm(0),
        }
    }
}
