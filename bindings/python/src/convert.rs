//! Events as objects of Python.

use std::sync::Arc;

use dtrace::events::{
    Action, AggValue, Aggregation, Change, Column, Drop, Effect, Event, Fault, Firing, Growth, Int, Interval,
    Occasion, Probe, Record, Stack, Suppressed, Symbol, Value, normalized,
};
use dtrace::render_action;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use crate::types::{self, program_text, text};

type Object<'py> = PyResult<Bound<'py, PyAny>>;

/// An event; none for what Python does not get.
pub(crate) fn event<'py>(py: Python<'py>, event: &Event<'_>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let object = match event {
        Event::Start(start) => {
            let host = &start.host;
            let times = (start.clock.time, start.clock.wall);
            let host = (text(py, host.name.as_bytes())?, &*host.release, &*host.machine, host.cpus);
            types::START.make(py, (&*start.version, times.0, times.1, host.0, host.1, host.2, host.3))
        }
        Event::Record(all) => record(py, all),
        Event::Aggregation(all) => aggregation(py, all),
        Event::Interval(all) => interval(py, all),
        Event::Effect(all) => effect(py, all),
        Event::Fault(all) => fault(py, all),
        Event::Drop(all) => drop(py, all),
        Event::Suppressed(all) => suppressed(py, all),
        Event::Notice(all) => {
            // The names of kinds are words.
            let kind = format!("{:?}", all.kind).to_ascii_lowercase();
            types::NOTICE.make(py, (kind, text(py, all.text.as_bytes())?, all.time))
        }
        Event::Report(all) => types::REPORT.make(py, (text(py, all.as_bytes())?,)),
        Event::End { status } => types::END.make(py, (*status,)),
        _ => return Ok(None),
    };
    object.map(Some)
}

fn list<'py, T>(
    py: Python<'py>,
    all: impl IntoIterator<Item = T>,
    one: impl FnMut(T) -> Object<'py>,
) -> PyResult<Bound<'py, PyTuple>> {
    let all: Vec<_> = all.into_iter().map(one).collect::<PyResult<_>>()?;
    PyTuple::new(py, all)
}

fn probe<'py>(py: Python<'py>, probe: &Arc<Probe>) -> Object<'py> {
    let Probe { id, provider, module, function, name, .. } = &**probe;
    let part = |part: &Arc<str>| text(py, part.as_bytes());
    types::PROBE.make(py, (*id, part(provider)?, part(module)?, part(function)?, part(name)?))
}

fn int(py: Python<'_>, int: Int) -> Object<'_> {
    let number = match int.signed {
        true => int.as_signed().into_pyobject(py),
        false => int.as_unsigned().into_pyobject(py),
    };
    Ok(number?.into_any())
}

fn symbol<'py>(py: Python<'py>, symbol: &Symbol) -> Object<'py> {
    let name = &symbol.name;
    let mut shown = Vec::new();
    symbol.write(&mut shown);
    let some = |part: &Option<Arc<str>>| part.as_ref().map(|part| text(py, part.as_bytes())).transpose();
    types::SYMBOL.make(
        py,
        (
            text(py, &shown)?,
            symbol.address,
            symbol.process,
            some(&name.module)?,
            some(&name.symbol)?,
            name.offset,
            some(&name.path)?,
            some(&name.file)?,
            name.line,
            name.inlined,
            name.interpreted,
        ),
    )
}

fn stack<'py>(py: Python<'py>, stack: &Stack) -> Object<'py> {
    let frames = list(py, &stack.frames, |frame| symbol(py, frame))?;
    types::STACK.make(py, (frames, stack.process))
}

fn value<'py>(py: Python<'py>, value: &Value<'_>) -> Object<'py> {
    match value {
        Value::Int(number) => int(py, *number),
        Value::Str { text: all, .. } | Value::Name { text: all, .. } => Ok(text(py, all)?.into_any()),
        Value::Bytes(all) => Ok(PyBytes::new(py, all).into_any()),
        Value::Stack(all) => stack(py, all),
        Value::Symbol(all) => symbol(py, all),
        _ => Ok(py.None().into_bound(py)),
    }
}

fn values<'py>(py: Python<'py>, all: &[Value<'_>]) -> PyResult<Bound<'py, PyTuple>> {
    list(py, all, |one| value(py, one))
}

/// The names of the columns of a key.
fn names<'py>(py: Python<'py>, all: &[std::borrow::Cow<'_, str>]) -> PyResult<Bound<'py, PyTuple>> {
    list(py, all, |name| program_text(py, name).map(Bound::into_any))
}

fn aggregated<'py>(py: Python<'py>, value: &AggValue<'_>) -> Object<'py> {
    if let Some(number) = value.number() {
        return Ok(number.into_pyobject(py)?.into_any());
    }
    // From the first bucket that has values to the last.
    let mut all: Vec<_> = value.ranges().into_iter().zip(value.buckets().map(|(_, count)| count)).collect();
    let is_empty = |(_, count): &(_, i64)| *count == 0;
    while all.last().is_some_and(is_empty) {
        all.pop();
    }
    let buckets = all.into_iter().skip_while(is_empty);
    let bucket = |((low, high), count)| types::BUCKET.make(py, (low, high, normalized(count, value.normal)));
    let buckets = list(py, buckets, bucket)?;
    types::DISTRIBUTION.make(py, (value.function.name(), buckets))
}

fn of_column<'py>(py: Python<'py>, column: &Column<'_>) -> PyResult<(Bound<'py, PyString>, &'static str)> {
    Ok((text(py, column.name.as_bytes())?, column.function.name()))
}

fn aggregation<'py>(py: Python<'py>, all: &Aggregation<'_>) -> Object<'py> {
    let rows = list(py, &all.rows, |row| {
        let of = row.values.first().map(|value| aggregated(py, value)).transpose()?;
        types::ROW.make(py, (values(py, &row.key)?, of))
    })?;
    let occasion = match all.occasion {
        Occasion::Printa => "printa",
        Occasion::End => "end",
        Occasion::Demand => "demand",
    };
    let Some(column) = all.columns.first() else { return Ok(py.None().into_bound(py)) };
    let (name, function) = of_column(py, column)?;
    types::AGGREGATION.make(py, (name, function, names(py, &all.keys)?, rows, all.time, occasion))
}

fn interval<'py>(py: Python<'py>, all: &Interval<'_>) -> Object<'py> {
    let rows = list(py, &all.rows, |Growth { key, increment, total }| {
        types::GROWTH.make(py, (values(py, key)?, aggregated(py, increment)?, aggregated(py, total)?))
    })?;
    let (name, function) = of_column(py, &all.column)?;
    types::INTERVAL
        .make(py, (all.begin, all.end, name, function, names(py, &all.keys)?, rows, all.wall, all.unsigned))
}

/// The word of an action, and its value.
fn action<'py>(py: Python<'py>, action: &Action<'_>) -> PyResult<(&'static str, Bound<'py, PyAny>)> {
    let none = || py.None().into_bound(py);
    let bytes = |all: &[u8]| PyBytes::new(py, all).into_any();
    Ok(match action {
        Action::Trace(all) => ("trace", value(py, all)?),
        Action::Print { bytes: all, .. } => ("print", bytes(all)),
        Action::Dump(all) => ("tracemem", bytes(all)),
        Action::Packet(all) => ("pcap", bytes(&all.bytes)),
        Action::Printf { args, .. } => {
            ("printf", list(py, args, |argument| value(py, &argument.value))?.into_any())
        }
        Action::Exit(status) => ("exit", status.into_pyobject(py)?.into_any()),
        Action::Change { aggregation, change } => {
            let word = match change {
                Change::Clear => "clear",
                Change::Trunc(_) => "trunc",
                Change::Normalize(_) => "normalize",
                Change::Denormalize => "denormalize",
            };
            (word, text(py, aggregation.as_bytes())?.into_any())
        }
        Action::Nothing => ("nothing", none()),
        _ => ("unknown", none()),
    })
}

fn record<'py>(py: Python<'py>, all: &Record<'_>) -> Object<'py> {
    let Firing { time, cpu, pid, tid, probe: of, .. } = &all.firing;
    let fields = list(py, &all.fields, |field| {
        let (word, value) = action(py, &field.action)?;
        let shown = render_action(&field.action).map(|shown| text(py, &shown)).transpose()?;
        types::FIELD.make(py, (word, program_text(py, &field.name)?, value, shown))
    })?;
    let part = (all.part.first, all.part.last);
    types::RECORD.make(py, (*time, *cpu, probe(py, of)?, *pid, *tid, fields, part.0, part.1))
}

fn effect<'py>(py: Python<'py>, all: &Effect<'_>) -> Object<'py> {
    let (word, of) = match all {
        Effect::System(command) => ("system", Some(command)),
        Effect::Freopen(path) => ("freopen", path.as_ref()),
        _ => ("ftruncate", None),
    };
    types::EFFECT.make(py, (word, of.map(|of| text(py, of)).transpose()?))
}

fn fault<'py>(py: Python<'py>, all: &Fault<'_>) -> Object<'py> {
    let of = all.probe.as_ref().map(|of| probe(py, of)).transpose()?;
    let shown = text(py, all.to_string().as_bytes())?;
    types::FAULT.make(py, (all.time, all.cpu, of, all.kind as u64, all.value, all.count, shown))
}

fn drop<'py>(py: Python<'py>, all: &Drop) -> Object<'py> {
    let kind = all.kind.words().map_or("other".into(), |words| words.tag.to_ascii_lowercase());
    types::DROP.make(py, (kind, all.cpu, all.count, all.time, all.to_string()))
}

fn suppressed<'py>(py: Python<'py>, all: &Suppressed<'_>) -> Object<'py> {
    let shown = text(py, all.to_string().as_bytes())?;
    types::SUPPRESSED.make(py, (text(py, all.program.as_bytes())?, all.cpu, all.count, all.time, shown))
}
