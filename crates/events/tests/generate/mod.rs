//! Random events.
#![allow(dead_code, unreachable_pub)]

use std::borrow::Cow;
use std::sync::Arc;

use events::{
    Action, AddrForm, AggFunc, AggValue, Aggregation, Argument, Calls, Change, Clock, Column, Drop, DropKind,
    Effect, Event, Fault, FaultKind, Field, Firing, Flow, Form, Format, Growth, Host, Int, Interval, Member,
    Notice, NoticeKind, Occasion, Packet, Part, Probe, Record, Row, Setting, SettingValue, Shape, Stack,
    Start, Suppressed, Symbol, SymbolName, Value,
};

/// A source of random events: xorshift, so that a seed always gives the same events.
pub(crate) struct Generator(u64);

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Generator(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bf0_3635_dcf9_7a1b)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, count: u64) -> u64 {
        (self.next() >> 11) % count
    }

    /// A number of any magnitude.
    fn number(&mut self) -> u64 {
        let bits = self.below(65);
        if bits == 0 { 0 } else { self.next() >> (64 - bits) }
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 0
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    fn list<T>(&mut self, most: u64, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| one(self)).collect()
    }

    fn option<T>(&mut self, one: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| one(self))
    }

    fn bytes(&mut self) -> Cow<'static, [u8]> {
        self.list(20, |g| g.next() as u8).into()
    }

    fn string(&mut self) -> String {
        let words = ["", "read", "vmlinux", "a\x1b[m", "\u{e9}\u{10ff85}", "x y", "libc.so.6", "_"];
        self.pick(&words).into()
    }

    fn text(&mut self) -> Cow<'static, str> {
        self.string().into()
    }

    fn shared(&mut self) -> Arc<str> {
        self.string().into()
    }

    fn settings(&mut self) -> Vec<Setting<'static>> {
        self.list(4, |g| Setting {
            name: g.text(),
            value: match g.below(3) {
                0 => SettingValue::Flag(g.flag()),
                1 => SettingValue::Number(g.number()),
                _ => SettingValue::Text(g.text()),
            },
        })
    }

    fn probe(&mut self) -> Cow<'static, Arc<Probe>> {
        let names = [(); 4].map(|()| self.shared());
        let calls = self.pick(&[Calls::None, Calls::System, Calls::Kernel]);
        Cow::Owned(Arc::new(Probe::new(self.number() as u32, names, calls)))
    }

    fn firing(&mut self) -> Firing<'static> {
        let (time, cpu, epid) = (self.number(), self.number() as u32, self.number() as u32);
        let mut firing = Firing::new(time, cpu, epid, self.probe());
        firing.thread = self.option(|g| g.next() as u16 & 0x1fff);
        firing.flow = self.pick(&[Flow::None, Flow::Entry, Flow::Return]);
        firing.pid = self.option(|g| g.number() as u32);
        firing.tid = self.option(|g| g.number() as u32);
        firing
    }

    fn symbol(&mut self) -> Symbol {
        let module = self.option(Self::shared);
        let symbol = if module.is_some() { self.option(Self::shared) } else { None };
        let mut name = SymbolName::new(module, symbol, self.number());
        (name.path, name.file) = (self.option(Self::shared), self.option(Self::shared));
        name.line = self.option(|g| g.number() as u32);
        (name.inlined, name.interpreted) = (self.flag(), self.flag());
        name.in_file = self.option(Self::number);
        let form = self.pick(&[
            AddrForm::Symbol,
            AddrForm::Function,
            AddrForm::Module,
            AddrForm::Address,
            AddrForm::Guest,
        ]);
        Symbol::new(self.number(), self.option(|g| g.number() as u32), form, name)
    }

    fn value(&mut self) -> Value<'static> {
        match self.below(8) {
            7 => Value::Unknown,
            0 | 1 => {
                let (size, signed) = (self.pick(&[1, 2, 4, 8]), self.flag());
                let int = if self.flag() { Int::new } else { Int::whole };
                Value::Int(int(self.number(), size, signed))
            }
            2 => Value::Str { text: self.bytes(), size: self.number() as u32 >> 22 },
            3 => Value::Name { text: self.bytes(), size: self.number() as u32 >> 22 },
            4 => Value::Bytes(self.bytes()),
            5 => Value::Stack(Stack {
                process: self.option(|g| g.number() as u32),
                frames: self.list(5, Self::symbol),
            }),
            _ => Value::Symbol(Box::new(self.symbol())),
        }
    }

    fn format(&mut self) -> Cow<'static, Format> {
        let formats: [&[u8]; 5] = [b"", b"%d %s\n", b"100%%", b"\xff%-*.*s\xfe", b"%@u %k"];
        Cow::Owned(Format::from_bytes(self.pick(&formats)).unwrap())
    }

    fn shape(&mut self, depth: u32) -> Shape {
        let form = match self.below(if depth == 0 { 7 } else { 9 }) {
            0 => Form::Int { signed: self.flag() },
            1 => Form::Char { signed: self.flag() },
            2 => Form::Float,
            3 => Form::Pointer,
            4 => Form::FunctionPointer,
            5 => Form::Enum {
                signed: self.flag(),
                names: self.list(3, |g| (g.shared(), g.number() as i64)).into(),
            },
            6 => Form::String,
            7 => Form::Array(Arc::new(self.shape(depth - 1))),
            _ => Form::Sou(
                self.list(3, |g| Member {
                    name: g.shared(),
                    offset: g.number() as u32,
                    bits: g.option(|g| (g.next() as u8, g.next() as u8)),
                    shape: g.shape(depth - 1),
                })
                .into(),
            ),
        };
        Shape { name: self.shared(), size: self.number() as u32, form }
    }

    fn action(&mut self) -> Action<'static> {
        match self.below(10) {
            8 => Action::Unknown,
            9 => Action::Packet(Packet {
                protocol: self.number() as u16,
                time: self.number(),
                length: self.number() as u32,
                bytes: self.bytes(),
            }),
            0 | 1 => Action::Trace(self.value()),
            2 => Action::Print {
                shape: Cow::Owned(Arc::new(self.shape(3))),
                bytes: self.bytes(),
                functions: self.list(2, Self::symbol),
            },
            3 => Action::Dump(self.bytes()),
            4 => Action::Printf {
                format: self.format(),
                args: self.list(3, |g| Argument { name: g.text(), value: g.value() }),
            },
            5 => Action::Exit(self.number() as i32),
            6 => Action::Change {
                aggregation: self.text(),
                change: match self.below(4) {
                    0 => Change::Clear,
                    1 => Change::Trunc(self.number() as i64),
                    2 => Change::Normalize(self.number()),
                    _ => Change::Denormalize,
                },
            },
            _ => Action::Nothing,
        }
    }

    fn part(&mut self) -> Part {
        Part { first: self.flag(), last: self.flag() }
    }

    fn function(&mut self) -> AggFunc {
        let base = self.below(100) as i32 - 50;
        let low = self.below(3) as u16;
        let all = [
            AggFunc::Count,
            AggFunc::Sum,
            AggFunc::Min,
            AggFunc::Max,
            AggFunc::Avg,
            AggFunc::Stddev,
            AggFunc::Quantize,
            AggFunc::Lquantize { base, limit: base + 40, step: 7 },
            AggFunc::Llquantize { factor: 10, low, high: low + 2, nsteps: 20 },
        ];
        self.pick(&all)
    }

    fn words(&mut self, function: AggFunc) -> Cow<'static, [u64]> {
        (0..function.value_size() / 8).map(|_| self.number()).collect::<Vec<_>>().into()
    }

    pub(crate) fn columns(&mut self) -> Vec<Column<'static>> {
        self.list(2, |g| Column { name: g.text(), function: g.function() })
    }

    pub(crate) fn row(&mut self, columns: &[Column<'_>]) -> Row<'static> {
        let value = |function| AggValue {
            function,
            words: self.words(function),
            normal: self.number().max(1),
            cpus: self.list(2, |g| (g.number() as u32, g.words(function))),
            absent: self.below(9) == 0,
        };
        let values = columns.iter().map(|c| c.function).map(value).collect();
        Row { key: self.list(3, Self::value), values }
    }

    fn aggregation(&mut self) -> Aggregation<'static> {
        let columns = self.columns();
        let occasion = self.pick(&[Occasion::Printa, Occasion::End, Occasion::Demand]);
        let rows = self.list(4, |g| g.row(&columns));
        let mut all = Aggregation::new(occasion, columns, rows);
        all.part = self.part();
        all.time = self.option(Self::number);
        all.format = self.option(Self::format);
        all.keys = self.list(3, Self::text);
        all
    }

    fn interval(&mut self) -> Interval<'static> {
        let column = Column { name: self.text(), function: self.function() };
        let columns = [column.clone(), column.clone()];
        let growth = |g: &mut Self| {
            let Row { key, mut values } = g.row(&columns);
            let (total, increment) = (values.pop().unwrap(), values.pop().unwrap());
            Growth { key, increment, total }
        };
        let rows = self.list(4, growth);
        let mut all = Interval::new(self.number(), self.number(), column, rows);
        (all.part, all.keys) = (self.part(), self.list(3, Self::text));
        (all.unsigned, all.wall) = (self.flag(), self.number());
        all
    }

    pub(crate) fn event(&mut self) -> Event<'static> {
        match self.below(18) {
            0 => {
                let clock = Clock { time: self.number(), wall: self.number() };
                let host = Host::new(self.text(), self.text(), self.text(), self.number() as u32);
                let mut start = Start::new(self.text(), clock, host);
                start.settings = self.settings();
                Event::Start(start)
            }
            1 => Event::Options(self.settings()),
            2..=5 => Event::Record(Record {
                firing: self.firing(),
                part: self.part(),
                fields: self.list(5, |g| Field { name: g.text(), action: g.action() }),
            }),
            6 | 7 => Event::Aggregation(self.aggregation()),
            8 => Event::Effect(match self.below(3) {
                0 => Effect::System(self.bytes()),
                1 => Effect::Freopen(self.option(Self::bytes)),
                _ => Effect::Ftruncate,
            }),
            9 => {
                let (time, cpu, epid) = (self.number(), self.number() as u32, self.number() as u32);
                let mut fault = Fault::new(time, cpu, epid, self.pick(&FaultKind::ALL), self.number());
                fault.probe = self.option(Self::probe);
                fault.action = self.number() as u16;
                fault.offset = self.option(|g| g.number() as u32);
                fault.count = self.number().max(1);
                Event::Fault(fault)
            }
            10 => {
                let kind = self.pick(&DropKind::ALL);
                let mut drop = Drop::new(kind, self.number() as u32, self.number());
                drop.time = self.option(Self::number);
                Event::Drop(drop)
            }
            11 => {
                let cpu = self.option(|g| g.number() as u32);
                let mut suppressed = Suppressed::new(self.text(), cpu, self.number());
                suppressed.time = self.option(Self::number);
                Event::Suppressed(suppressed)
            }
            12 => {
                let (kind, text, time) =
                    (self.pick(&NoticeKind::ALL), self.text(), self.option(Self::number));
                Event::Notice(Notice { kind, text, time })
            }
            13 => Event::Interrupt,
            14 => Event::Stop,
            15 => Event::Report(self.text()),
            16 => Event::Interval(self.interval()),
            _ => Event::End { status: self.number() as i32 },
        }
    }

    /// Changes, removes or repeats some bytes after `from`.
    pub(crate) fn damage(&mut self, bytes: &mut Vec<u8>, from: usize) {
        let Some(count) = bytes.len().checked_sub(from).filter(|n| *n > 0) else { return };
        let at = from + self.below(count as u64) as usize;
        match self.below(4) {
            0 | 1 => bytes[at] = self.next() as u8,
            2 => bytes[at] ^= 1 << self.below(8),
            _ => {
                let end = (at + 1 + self.below(8) as usize).min(bytes.len());
                match self.flag() {
                    true => drop(bytes.drain(at..end)),
                    false => {
                        let copy = bytes[at..end].to_vec();
                        bytes.splice(at..at, copy);
                    }
                }
            }
        }
    }
}
