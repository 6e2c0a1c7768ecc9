//! A session without a kernel: clauses are laid out as the compiler does it, records and slots are
//! written by hand.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use consumer::{
    Consumer, EnabledProbe, Layout, Message, Options, Output, Process, RawRecord, SlotSink, Source,
    Symbolizer, Text,
};
use events::{Calls, Encoder, Event, Probe, Reader, Sink, Start, SymbolName};
use plane::desc::{Action, AddrForm, AggDesc, AggFunc, AggId, Datum, Field, LayoutBuilder, RecordDesc};
use plane::ring::flags;
use plane::stacks::Stack;

pub const I64: Datum = Datum::Int { size: 8, signed: true };
pub const U64: Datum = Datum::Int { size: 8, signed: false };
pub const I32: Datum = Datum::Int { size: 4, signed: true };
pub const I16: Datum = Datum::Int { size: 2, signed: true };
pub const U8: Datum = Datum::Int { size: 1, signed: false };
pub const STR: Datum = Datum::Str { size: 32 };

/// A value to be written in a record or key.
#[derive(Clone, Debug)]
pub enum V {
    N(i64),
    S(&'static str),
    B(&'static [u8]),
    /// An address and a process.
    U(u64, u32),
}

pub fn write(into: &mut [u8], field: Field, value: &V) {
    let at = field.offset as usize;
    let size = field.datum.size() as usize;
    match value {
        V::N(n) => into[at..at + size].copy_from_slice(&n.to_le_bytes()[..size]),
        V::S(s) => into[at..at + s.len()].copy_from_slice(s.as_bytes()),
        V::B(b) => into[at..at + b.len()].copy_from_slice(b),
        V::U(addr, pid) => {
            into[at..at + 8].copy_from_slice(&addr.to_le_bytes());
            into[at + 8..at + 16].copy_from_slice(&u64::from(*pid).to_le_bytes());
        }
    }
}

#[derive(Default)]
pub struct Kernel {
    pub slots: Vec<(AggId, Vec<u8>, Vec<u64>)>,
    pub stacks: HashMap<u64, Stack>,
    pub snapshots: usize,
    /// Stacks that were asked for.
    pub asked: Vec<u64>,
    /// Whose tables the slots are in.
    pub cpu: u32,
}

impl Source for Kernel {
    fn snapshot(&mut self, sink: &mut SlotSink<'_>) -> io::Result<()> {
        self.snapshots += 1;
        for (id, key, value) in self.slots.drain(..) {
            sink(id, self.cpu, &key, &value);
        }
        Ok(())
    }

    fn stack(&mut self, id: u64) -> Option<Stack> {
        self.asked.push(id);
        self.stacks.get(&id).cloned()
    }
}

/// Functions begin at multiples of 0x100, modules at multiples of 0x10000.
pub struct Names;

fn name(addr: u64, module: &str) -> SymbolName {
    let module = format!("{module}{:x}", addr >> 16).into();
    SymbolName::new(Some(module), Some(format!("f{:x}", addr & !0xff).into()), addr & 0xff)
}

fn start(addr: u64, form: AddrForm) -> u64 {
    addr & if form == AddrForm::Module { !0xffff } else { !0xff }
}

impl Symbolizer for Names {
    fn kernel(&mut self, addr: u64) -> SymbolName {
        name(addr, "mod")
    }
    fn user(&mut self, process: Process, addr: u64) -> SymbolName {
        name(addr, &format!("obj{}.", process.pid))
    }
    fn kernel_start(&mut self, addr: u64, form: AddrForm) -> u64 {
        start(addr, form)
    }
    fn user_start(&mut self, _process: Process, addr: u64, form: AddrForm) -> u64 {
        start(addr, form)
    }
}

struct Recorded {
    cpu: u32,
    epid: u32,
    flags: u16,
    data: Vec<u8>,
}

/// An output, and the messages beside it.
pub struct Captured<W: Output> {
    pub out: W,
    messages: Vec<Message>,
}

impl<W: Output> Write for Captured<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W: Output> Output for Captured<W> {
    fn truncate(&mut self) -> io::Result<()> {
        self.out.truncate()
    }
    fn is_terminal(&self) -> bool {
        self.out.is_terminal()
    }
    fn messages(&mut self, messages: &[Message]) -> io::Result<()> {
        self.messages.extend_from_slice(messages);
        Ok(())
    }
}

/// An output in memory, which may say that it is a terminal: then more is escaped.
#[derive(Default)]
pub struct Memory {
    pub text: Vec<u8>,
    pub terminal: bool,
    pub messages: Vec<Message>,
    pub truncated: usize,
}

impl Memory {
    pub fn terminal() -> Memory {
        Memory { terminal: true, ..Memory::default() }
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for Memory {
    fn truncate(&mut self) -> io::Result<()> {
        self.truncated += 1;
        Ok(())
    }
    fn is_terminal(&self) -> bool {
        self.terminal
    }
    fn messages(&mut self, messages: &[Message]) -> io::Result<()> {
        self.messages.extend_from_slice(messages);
        Ok(())
    }
}

/// Text, and the encoder.
pub type Sinks<W> = (Text<Captured<W>>, Encoder<Vec<u8>>);

/// A session with two sinks: text, and the encoder. Whenever output is taken, the encoded events
/// are decoded and rendered as text, which must be the same bytes.
pub struct Session<W: Output + Send = Vec<u8>> {
    pub consumer: Consumer<Sinks<W>>,
    pub kernel: Kernel,
    clauses: Vec<(u32, Vec<Field>)>,
    keys: Vec<(AggDesc, Vec<Field>)>,
    batch: Vec<Recorded>,
    /// Text of the decoded events, and how many of them are rendered.
    copy: Text<Memory>,
    rendered: usize,
}

pub fn probe(id: u32, description: &str) -> Arc<Probe> {
    let mut parts = description.split(':').map(str::to_owned);
    let mut part = || parts.next().unwrap_or_default().into();
    let provider: Arc<str> = part();
    let calls = match &*provider {
        "syscall" => Calls::System,
        "fbt" | "rawfbt" => Calls::Kernel,
        _ => Calls::None,
    };
    Arc::new(Probe::new(id, [provider, part(), part(), part()], calls))
}

impl Session {
    pub fn new(options: Options) -> Self {
        Session::with(Vec::new(), Box::new(Names), options)
    }

    pub fn output(&mut self) -> String {
        let text = std::mem::take(self.out());
        let copy = self.copied();
        assert!(copy == text, "text of decoded events\n{}\nis not\n{}", show(&copy), show(&text));
        show(&text)
    }
}

fn show(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

impl<W: Output + Send> Session<W> {
    pub fn with(out: W, symbols: Box<dyn Symbolizer>, options: Options) -> Self {
        let copy = Memory { terminal: out.is_terminal(), ..Memory::default() };
        let text = Text::new(Captured { out, messages: Vec::new() });
        let mut consumer = Consumer::new((text, Encoder::new(Vec::new())), symbols, options);
        consumer.start(Start::default());
        Session {
            consumer,
            kernel: Kernel::default(),
            clauses: Vec::new(),
            keys: Vec::new(),
            batch: Vec::new(),
            copy: Text::of_stored_events(copy),
            rendered: 0,
        }
    }

    /// The output.
    pub fn out(&mut self) -> &mut W {
        &mut self.consumer.sink_mut().0.output_mut().out
    }

    /// The events so far, decoded.
    pub fn events(&mut self) -> Vec<Event<'static>> {
        self.consumer.sink_mut().1.flush().unwrap();
        let mut reader = Reader::new(&self.consumer.sink().1.get_ref()[..]);
        let mut all = Vec::new();
        while let Some(event) = reader.next_event().unwrap() {
            all.push(event.into_owned());
        }
        all
    }

    /// The text of the decoded events since the last call.
    pub fn copied(&mut self) -> Vec<u8> {
        let events = self.events();
        for event in &events[self.rendered..] {
            self.copy.event(event).unwrap();
        }
        self.rendered = events.len();
        self.copy.batch_end().unwrap();
        std::mem::take(&mut self.copy.output_mut().text)
    }

    /// The messages since the last call, which are those of the decoded events.
    pub fn messages(&mut self) -> Vec<String> {
        self.consumer.flush().unwrap();
        let text = self.copied();
        self.copy.output_mut().text = text;
        self.copy.flush().unwrap();
        let messages = std::mem::take(&mut self.consumer.sink_mut().0.output_mut().messages);
        assert_eq!(std::mem::take(&mut self.copy.output_mut().messages), messages);
        messages.into_iter().map(|m| m.text).collect()
    }

    /// A clause of a probe; gives its epid.
    pub fn clause(
        &mut self,
        probe: &Arc<Probe>,
        data: &[Datum],
        actions: impl FnOnce(&[Field]) -> Vec<Action>,
    ) -> u32 {
        let mut layout = LayoutBuilder::default();
        let fields: Vec<Field> = data.iter().map(|d| layout.push(*d)).collect();
        let desc = RecordDesc { size: layout.size(), actions: actions(&fields), process: None };
        let epid = self.clauses.len() as u32 + 1;
        let layout = Some(Arc::new(Layout::new(&desc, &[]).unwrap()));
        self.consumer.enable(epid, EnabledProbe { probe: probe.clone(), layout });
        self.clauses.push((desc.size, fields));
        epid
    }

    /// A clause that traces each of its values.
    pub fn traces(&mut self, probe: &Arc<Probe>, data: &[Datum]) -> u32 {
        self.clause(probe, data, |fields| fields.iter().map(|f| Action::Trace(*f)).collect())
    }

    pub fn aggregation(&mut self, name: &str, func: AggFunc, key: &[Datum]) -> AggId {
        let mut layout = LayoutBuilder::default();
        let fields: Vec<Field> = key.iter().map(|d| layout.push_key(*d)).collect();
        let desc = AggDesc { name: name.into(), func, key: fields.clone(), key_size: layout.size() };
        self.keys.push((desc.clone(), fields));
        self.consumer.add_aggregation(desc)
    }

    /// The kernel aggregates: the words of a value for a key.
    pub fn add(&mut self, agg: AggId, key: &[V], words: &[i64]) {
        let (desc, fields) = &self.keys[agg.0 as usize];
        let mut bytes = vec![0; desc.key_size as usize];
        for (field, value) in fields.iter().zip(key) {
            write(&mut bytes, *field, value);
        }
        self.kernel.slots.push((agg, bytes, words.iter().map(|w| *w as u64).collect()));
    }

    /// The kernel adds a sample to a `quantize()` or `lquantize()`.
    pub fn sample(&mut self, agg: AggId, key: &[V], samples: &[(i64, i64)]) {
        let func = self.keys[agg.0 as usize].0.func;
        let mut words = vec![0; func.value_size() as usize / 8];
        for (value, by) in samples {
            let bucket = match func {
                AggFunc::Quantize => plane::desc::quantize_bucket(*value),
                AggFunc::Lquantize { base, limit, step } => {
                    let (base, limit, step) = (i64::from(base), i64::from(limit), i64::from(step));
                    let levels = (limit - base) / step;
                    if *value < base { 0 } else { ((value - base) / step).min(levels) as usize + 1 }
                }
                _ => panic!("not a distribution"),
            };
            words[bucket] += by;
        }
        self.add(agg, key, &words);
    }

    pub fn record(&mut self, cpu: u32, epid: u32, values: &[V]) {
        let (size, fields) = &self.clauses[epid as usize - 1];
        let mut data = vec![0; *size as usize];
        for (field, value) in fields.iter().zip(values) {
            write(&mut data, *field, value);
        }
        self.batch.push(Recorded { cpu, epid, flags: 0, data });
    }

    /// One that says of which thread it is, and nothing else.
    pub fn record_of(&mut self, thread: u16, cpu: u32, epid: u32) {
        self.record(cpu, epid, &[]);
        self.batch.last_mut().unwrap().flags = thread << flags::THREAD;
    }

    pub fn fault(&mut self, epid: u32, kind: u16, action: u16, offset: u32, value: u64) {
        let mut data = plane::ring::Fault::head(kind, action, offset).to_le_bytes().to_vec();
        data.extend(value.to_le_bytes());
        self.batch.push(Recorded { cpu: 0, epid, flags: flags::FAULT, data });
    }

    /// The bytes of the record that was added last.
    pub fn last_data(&mut self) -> &mut Vec<u8> {
        &mut self.batch.last_mut().unwrap().data
    }

    /// The size of an aggregation's keys.
    pub fn key_size(&self, agg: AggId) -> usize {
        self.keys[agg.0 as usize].0.key_size as usize
    }

    /// The batch so far is consumed.
    pub fn drain(&mut self) {
        self.try_drain().unwrap();
    }

    pub fn try_drain(&mut self) -> std::io::Result<()> {
        let batch = std::mem::take(&mut self.batch);
        let raw: Vec<RawRecord<'_>> = batch
            .iter()
            .map(|r| RawRecord { cpu: r.cpu, time: 0, epid: r.epid, flags: r.flags, data: &r.data })
            .collect();
        self.consumer.consume(&raw, &mut self.kernel)
    }

    pub fn finish(&mut self) {
        self.drain();
        self.consumer.finish(&mut self.kernel).unwrap();
    }
}

/// Compares with `tests/golden/NAME.txt`; `UPDATE_GOLDEN=1` rewrites it.
pub fn golden(name: &str, found: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, found).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == found, "{name}: expected\n{expected}\nfound\n{found}\n(UPDATE_GOLDEN=1 rewrites it)");
}
