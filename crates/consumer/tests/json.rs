//! JSON: every line is valid by the schema, and has the values of its event.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;

use consumer::{Json, Message, Output, Text};
use events::{
    Action, AddrForm, AggFunc, AggValue, Aggregation, Argument, Calls, Column, Drop, DropKind, Effect, Event,
    Field, Firing, Form, Format, Int, Member, Occasion, Part, Probe, Record, Row, Shape, Sink, Stack, Symbol,
    SymbolName, Value,
};
use testing::json;

use crate::generate::Generator;

#[derive(Default)]
struct Captured(Vec<u8>, Vec<String>);

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for Captured {
    fn messages(&mut self, messages: &[Message]) -> io::Result<()> {
        self.1.extend(messages.iter().map(|m| m.text.clone()));
        Ok(())
    }
}

fn output(events: &[Event<'_>]) -> String {
    let mut sink = Json::of_stored_events(Captured::default());
    events.iter().for_each(|event| sink.event(event).unwrap());
    sink.flush().unwrap();
    String::from_utf8(std::mem::take(&mut sink.output_mut().0)).unwrap()
}

fn lines(events: &[Event<'_>]) -> Vec<json::Value> {
    json::lines(&output(events))
}

fn probe() -> Arc<Probe> {
    Arc::new(Probe::new(351, ["syscall", "vmlinux", "read", "entry"].map(Into::into), Calls::System))
}

fn record(fields: Vec<Field<'_>>) -> Record<'_> {
    let firing = Firing::new(u64::MAX, 3, 1, Cow::Owned(probe()));
    Record { firing, part: Part::WHOLE, fields }
}

fn trace<'a>(name: &'a str, value: Value<'a>) -> Field<'a> {
    Field { name: name.into(), action: Action::Trace(value) }
}

fn string(text: &[u8]) -> Value<'_> {
    Value::Str { text: text.into(), size: 64 }
}

/// The value of the only field.
fn value_of(value: Value<'_>) -> json::Value {
    let line = lines(&[Event::Record(record(vec![trace("x", value)]))]).remove(0);
    line.pointer("/fields/0/value").unwrap().clone()
}

#[test]
fn every_event_is_a_line_that_is_valid_by_the_schema() {
    let events: Vec<Event<'_>> = (0..3000).map(|seed| Generator::new(seed).event()).collect();
    let output = output(&events);
    assert_eq!(json::lines(&output).len(), events.len());
    assert!(!output.contains(|c: char| c.is_control() && c != '\n'));
}

#[test]
fn a_record_has_its_probe_and_its_named_values() {
    let mut all = record(vec![
        trace("pid", Value::Int(Int::new(7, 4, true))),
        Field {
            name: "".into(),
            action: Action::Printf {
                format: Cow::Owned(Format::parse("%d \"%s\"\n").unwrap()),
                args: vec![
                    events::Argument { name: "arg0".into(), value: Value::Int(Int::new(!0, 8, false)) },
                    events::Argument { name: "execname".into(), value: string(b"a\tb") },
                ],
            },
        },
        Field { name: "".into(), action: Action::Nothing },
    ]);
    (all.firing.pid, all.firing.tid) = (Some(7), Some(8));
    let expected = concat!(
        r#"{"event":"record","#,
        r#""probe":{"id":351,"provider":"syscall","module":"vmlinux","function":"read","name":"entry"},"#,
        r#""time":18446744073709551615,"cpu":3,"pid":7,"tid":8,"#,
        r#""fields":[{"action":"trace","name":"pid","value":7},"#,
        r#"{"action":"printf","text":"18446744073709551615 \"a\tb\"\n","args":[{"name":"arg0","value":18446744073709551615},"#,
        r#"{"name":"execname","value":"a\tb"}]}]}"#,
        "\n"
    );
    assert_eq!(output(&[Event::Record(all)]), expected);
}

#[test]
fn integers_of_64_bits_are_exact() {
    for bits in [0, 1, (1 << 53) + 1, i64::MAX as u64, 1 << 63, u64::MAX] {
        assert_eq!(value_of(Value::Int(Int::new(bits, 8, false))).as_u64(), Some(bits));
        assert_eq!(value_of(Value::Int(Int::new(bits, 8, true))).as_i64(), Some(bits as i64));
    }
    assert_eq!(value_of(Value::Int(Int::new(0xff, 1, true))).as_i64(), Some(-1));
}

/// The bytes of a string in JSON.
fn bytes_of(value: &json::Value) -> Vec<u8> {
    if let Some(text) = value.as_str() {
        return text.as_bytes().to_vec();
    }
    let digits = value.get("bytes").and_then(json::Value::as_str).unwrap();
    let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(pair).collect()
}

#[test]
fn strings_of_any_bytes_are_read_as_they_were_recorded() {
    let mut texts: Vec<Vec<u8>> = vec![b"".into(), b"plain".into(), "\u{e9}\u{1f600}\u{9b}".into()];
    texts.extend((0..=255u8).flat_map(|byte| [vec![byte], vec![b'a', byte, 0xc3, 0xa9]]));
    texts.push((0..=255).collect());
    for text in texts {
        let found = value_of(string(&text));
        assert_eq!(bytes_of(&found), text);
        assert_eq!(found.is_string(), std::str::from_utf8(&text).is_ok());
    }
}

#[test]
fn stacks_are_frames_with_object_symbol_offset_and_line() {
    let mut name = SymbolName::new(Some("libc.so.6".into()), Some("read".into()), 0x1c);
    name.path = Some("/usr/lib/libc.so.6".into());
    (name.file, name.line) = (Some("read.c".into()), Some(26));
    let frame = |address, name| Symbol::new(address, Some(9), AddrForm::Address, name);
    let frames = vec![frame(0x7f00_0000_001c, name.clone()), frame(0, SymbolName::default())];
    let stack = value_of(Value::Stack(Stack { process: Some(9), frames }));
    let expected = concat!(
        r#"{"pid":9,"stack":[{"address":"0x7f000000001c","file":"read.c","line":26,"object":"libc.so.6","#,
        r#""offset":28,"path":"/usr/lib/libc.so.6","pid":9,"symbol":"read"},{"address":"0x0","pid":9}]}"#
    );
    assert_eq!(stack.to_string(), expected);
    // Functions of an interpreter, one of which nothing is known of.
    let mut function = SymbolName::new(None, Some("Server.handle".into()), 0);
    (function.file, function.line, function.interpreted) = (Some("/srv/app.py".into()), Some(12), true);
    let mut unknown = SymbolName::default();
    unknown.interpreted = true;
    let frames = vec![frame(0x7f, function), frame(0x7f, unknown)];
    let stack = value_of(Value::Stack(Stack { process: Some(9), frames }));
    let expected = concat!(
        r#"{"pid":9,"stack":[{"address":"0x7f","file":"/srv/app.py","interpreted":true,"line":12,"offset":0,"#,
        r#""pid":9,"symbol":"Server.handle"},{"address":"0x7f","interpreted":true,"pid":9}]}"#
    );
    assert_eq!(stack.to_string(), expected);
    let kernel = SymbolName::new(Some("vmlinux".into()), Some("vfs_read".into()), 0);
    let symbol = Symbol::new(0xffff_ffff_8100_0000, None, AddrForm::Function, kernel);
    assert_eq!(
        value_of(Value::Symbol(symbol.into())).to_string(),
        r#"{"symbol":{"address":"0xffffffff81000000","form":"function","object":"vmlinux","offset":0,"symbol":"vfs_read"}}"#
    );
}

#[test]
fn printed_values_are_objects_of_their_members_with_the_sign_of_their_type() {
    let shape = |name: &str, size, form| Shape { name: name.into(), size, form };
    let member = |name: &str, offset, shape| Member { name: name.into(), offset, bits: None, shape };
    let int = || shape("int", 4, Form::Int { signed: true });
    let chars =
        |name, size| shape(name, size, Form::Array(Arc::new(shape("char", 1, Form::Char { signed: true }))));
    let unsigned = || shape("unsigned int", 4, Form::Int { signed: false });
    let inner = shape("union", 4, Form::Sou([member("in", 0, int())].into()));
    let names = [("ONE".into(), 1)].into();
    let members = [
        member("a", 0, int()),
        member("", 4, inner),
        member("e", 8, shape("enum e", 4, Form::Enum { signed: true, names })),
        member("text", 12, chars("char [3]", 3)),
        // Nothing that follows a NUL is lost.
        member("raw", 12, chars("char [4]", 4)),
        member("p", 16, shape("void *", 8, Form::Pointer)),
        member("f", 24, shape("float", 4, Form::Float)),
        Member { bits: Some((4, 3)), ..member("bit", 28, int()) },
        Member { bits: Some((4, 3)), ..member("ubit", 28, unsigned()) },
        member("u", 0, unsigned()),
        member("s8", 0, shape("signed char", 1, Form::Char { signed: true })),
        member("u8", 0, shape("unsigned char", 1, Form::Char { signed: false })),
        member("all", 0, shape("int [2]", 8, Form::Array(Arc::new(int())))),
    ];
    let mut bytes = Vec::new();
    [!0u32, 2, 1].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
    bytes.extend(b"ab\0c");
    bytes.extend(0xabcu64.to_le_bytes());
    bytes.extend(1.5f32.to_le_bytes());
    bytes.extend(0b101_1111u32.to_le_bytes());
    let print = Action::Print {
        shape: Cow::Owned(Arc::new(shape("struct s", 32, Form::Sou(members.into())))),
        bytes: bytes.into(),
        functions: Vec::new(),
    };
    let field = Field { name: "*this->s".into(), action: print };
    let expected = concat!(
        r#"{"action":"print","name":"*this->s","type":"struct s","value":{"a":-1,"in":2,"e":"ONE","#,
        r#""text":"ab","raw":{"memory":"61620063"},"p":"0xabc","f":1.5,"bit":-3,"ubit":5,"u":4294967295,"s8":-1,"u8":255,"all":[-1,2]}}"#
    );
    let output = output(&[Event::Record(record(vec![field]))]);
    assert!(output.contains(expected), "{output}");
    json::lines(&output);
}

#[test]
fn memory_that_text_shows_as_a_string_is_a_string() {
    let memory = |bytes: &'static [u8]| value_of(Value::Bytes(bytes.into())).to_string();
    assert_eq!(memory(b"bash\0\0\0\0"), r#""bash""#);
    assert_eq!(memory(b"ba\0h"), r#"{"memory":"62610068"}"#);
    assert_eq!(memory(b"\0\0"), r#"{"memory":"0000"}"#);
    assert_eq!(memory(b"\x01b"), r#"{"memory":"0162"}"#);
    let dump = Field { name: "".into(), action: Action::Dump(b"bash".as_slice().into()) };
    assert!(output(&[Event::Record(record(vec![dump]))]).contains(r#"{"memory":"62617368"}"#));
}

#[test]
fn a_value_that_an_aggregation_does_not_have_is_null_in_json_and_nothing_in_csv() {
    let column = |name: &'static str, function| Column { name: name.into(), function };
    let value = |function, words: Vec<u64>, absent| AggValue {
        function,
        words: words.into(),
        normal: 1,
        cpus: Vec::new(),
        absent,
    };
    let row = |key: &'static [u8], absent| Row {
        key: vec![string(key)],
        values: vec![value(AggFunc::Count, vec![0], absent), value(AggFunc::Max, vec![7], !absent)],
    };
    let columns = vec![column("a", AggFunc::Count), column("b", AggFunc::Max)];
    let mut all = Aggregation::new(Occasion::Printa, columns, vec![row(b"x", true), row(b"y", false)]);
    all.keys = vec!["k".into()];
    let event = Event::Aggregation(all);
    let line = lines(std::slice::from_ref(&event)).remove(0);
    assert_eq!(line.pointer("/rows/0/values").unwrap().to_string(), r#"[null,{"value":7}]"#);
    assert_eq!(line.pointer("/rows/1/values").unwrap().to_string(), r#"[{"value":0},null]"#);
    assert_eq!(csv(&[event]), "k,@a,@b\nx,,7\ny,0,\n");

    let lquantize = AggFunc::Lquantize { base: 0, limit: 20, step: 10 };
    let values = vec![value(AggFunc::Count, vec![0], true), value(lquantize, vec![0, 3, 0, 0], false)];
    let columns = vec![column("a", AggFunc::Count), column("q", lquantize)];
    let all = Aggregation::new(Occasion::Printa, columns, vec![Row { key: Vec::new(), values }]);
    assert_eq!(csv(&[Event::Aggregation(all)]), "aggregation,min,max,value\n@q,0,9,3\n");
}

#[test]
fn csv_quotes_strings_that_are_formulas_or_have_controls() {
    let texts: [&[u8]; 9] = [b"=1+1", b"+1", b"-x", b"@SUM(1)", b"\x1b[2J", b"a\tb", b" a", b"a ", b"a b=c"];
    let rows = texts.iter().map(|text| Row {
        key: vec![string(text), Value::Int(Int::new(-1i64 as u64, 8, true))],
        values: vec![AggValue {
            function: AggFunc::Sum,
            words: vec![-2i64 as u64].into(),
            normal: 1,
            cpus: Vec::new(),
            absent: false,
        }],
    });
    let columns = vec![Column { name: "s".into(), function: AggFunc::Sum }];
    let all = Aggregation::new(Occasion::End, columns, rows.collect());
    let expected = "key1,key2,@s\n\"=1+1\",-1,-2\n\"+1\",-1,-2\n\"-x\",-1,-2\n\"@SUM(1)\",-1,-2\n\
                    \"\x1b[2J\",-1,-2\n\"a\tb\",-1,-2\n\" a\",-1,-2\n\"a \",-1,-2\na b=c,-1,-2\n";
    assert_eq!(csv(&[Event::Aggregation(all)]), expected);
}

#[test]
fn aggregations_have_keys_and_buckets_as_data() {
    let mut words = vec![0; plane::desc::QUANTIZE_BUCKETS as usize];
    words[plane::desc::quantize_bucket(9)] = 4;
    let value = |function, words: Vec<u64>, normal| AggValue {
        function,
        words: words.into(),
        normal,
        cpus: Vec::new(),
        absent: false,
    };
    let mut sum = value(AggFunc::Sum, vec![100], 10);
    sum.cpus = vec![(1, vec![100].into())];
    let row = Row {
        key: vec![string(b"cat"), Value::Int(Int::new(3, 4, true))],
        values: vec![value(AggFunc::Quantize, words, 2), sum],
    };
    let column = |name: &'static str, function| Column { name: name.into(), function };
    let columns = vec![column("q", AggFunc::Quantize), column("s", AggFunc::Sum)];
    let mut all = Aggregation::new(Occasion::Printa, columns, vec![row]);
    all.keys = vec!["execname".into(), "arg0".into()];
    let at_the_end = all.clone();
    all.time = Some(5);
    let mut begin = record(Vec::new());
    begin.part = Part { first: true, last: false };
    begin.firing.time = 5;
    let mut end = begin.clone();
    end.part = Part { first: false, last: true };
    let all =
        [Event::Record(begin), Event::Aggregation(all), Event::Record(end), Event::Aggregation(at_the_end)];
    let text = output(&all);
    let found: Vec<&str> = text.lines().collect();
    let rest = concat!(
        r#""keys":["execname","arg0"],"aggregations":[{"name":"q","function":"quantize"},{"name":"s","function":"sum"}],"#,
        r#""rows":[{"key":["cat",3],"values":[{"buckets":[{"min":8,"max":15,"count":2}],"normal":2},"#,
        r#"{"value":10,"normal":10,"cpus":[{"cpu":1,"value":10}]}]}]}"#
    );
    assert_eq!(found[1], format!(r#"{{"event":"aggregation","occasion":"printa","time":5,{rest}"#));
    assert_eq!(found[3], format!(r#"{{"event":"aggregation","occasion":"printa",{rest}"#));
    assert!(found[0].contains(r#""last":false"#) && found[2].contains(r#""first":false"#));
    json::lines(&text);
}

/// Who reads only the records still sees on standard error that some are missing.
#[test]
fn drops_are_lines_and_messages() {
    let mut sink = Json::new(Captured::default());
    let mut drop = Drop::new(DropKind::Principal, 2, 7);
    drop.time = Some(9);
    sink.event(&Event::Drop(drop)).unwrap();
    sink.flush().unwrap();
    let Captured(bytes, messages) = sink.output();
    let expected = "{\"event\":\"drop\",\"time\":9,\"kind\":\"principal\",\"cpu\":2,\"count\":7,\"message\":\"7 drops on CPU 2\"}\n";
    assert_eq!(String::from_utf8_lossy(bytes), expected);
    assert_eq!(messages, &["7 drops on CPU 2"]);
}

#[test]
fn stored_effects_are_lines_and_not_performed() {
    let path = std::env::temp_dir().join(format!("json-effect-{}", std::process::id()));
    let name = path.to_str().unwrap().to_owned();
    let command = format!("touch {name}");
    let events = [
        Event::Effect(Effect::System(command.as_bytes().into())),
        Event::Effect(Effect::Freopen(Some(name.as_bytes().into()))),
    ];
    assert_eq!(lines(&events).len(), 2);
    assert!(!path.exists());
}

fn csv(events: &[Event<'_>]) -> String {
    let mut sink = Text::csv(Captured::default());
    events.iter().for_each(|event| sink.event(event).unwrap());
    sink.flush().unwrap();
    String::from_utf8(std::mem::take(&mut sink.output_mut().0)).unwrap()
}

#[test]
fn csv_has_a_line_for_each_record_with_a_column_for_each_value() {
    let probe = |name: &str| Arc::new(Probe::new(1, ["p", "m", "f", name].map(Into::into), Calls::None));
    let record = |probe: &Arc<Probe>, time, fields| {
        let mut firing = Firing::new(time, 3, 1, Cow::Owned(probe.clone()));
        (firing.pid, firing.tid) = (Some(7), Some(8));
        Event::Record(Record { firing, part: Part::WHOLE, fields })
    };
    let trace = |name: &str, value: Value<'static>| Field {
        name: Cow::Owned(name.into()),
        action: Action::Trace(value),
    };
    let text = |text: &'static str| Value::Str { text: text.as_bytes().into(), size: 16 };
    let int = |n: i64| Value::Int(Int::new(n as u64, 8, true));
    let printf = |format: &str, args: Vec<Argument<'static>>| Field {
        name: "".into(),
        action: Action::Printf { format: Cow::Owned(Format::parse(format).unwrap()), args },
    };
    let (a, b) = (probe("a"), probe("b"));
    let of_name = |n: i64| vec![trace("execname", text("=x")), trace("", int(n))];
    let arg = |value| Argument { name: "this->d".into(), value };
    let events = [
        record(&a, 10, of_name(-1)),
        record(&b, 11, of_name(2)),
        record(&b, 12, vec![printf("text\n", vec![])]),
        record(&b, 13, vec![printf("%d\n", vec![arg(int(5))])]),
        record(&b, 14, vec![Field { name: "".into(), action: Action::Nothing }]),
    ];
    let expected = "time,cpu,probe,pid,tid,execname,value2\n10,3,p:m:f:a,7,8,\"=x\",-1\n11,3,p:m:f:b,7,8,\"=x\",2\n\n\
                    time,cpu,probe,pid,tid,this->d\n13,3,p:m:f:b,7,8,5\n\n\
                    time,cpu,probe,pid,tid\n14,3,p:m:f:b,7,8\n";
    assert_eq!(csv(&events), expected);
}

#[test]
fn csv_has_one_line_for_a_record_that_comes_in_parts() {
    let probe = Arc::new(Probe::new(1, ["p", "m", "f", "a"].map(Into::into), Calls::None));
    let part = |time, first, last, names: &[&str]| {
        let firing = Firing::new(time, 3, 1, Cow::Owned(probe.clone()));
        let field = |name: &&str| Field {
            name: Cow::Owned((*name).into()),
            action: Action::Trace(Value::Int(Int::new(time, 8, true))),
        };
        Event::Record(Record {
            firing,
            part: Part { first, last },
            fields: names.iter().map(field).collect(),
        })
    };
    let table = || {
        let value = AggValue {
            function: AggFunc::Count,
            words: vec![7].into(),
            normal: 1,
            cpus: Vec::new(),
            absent: false,
        };
        let columns = vec![Column { name: "n".into(), function: AggFunc::Count }];
        Event::Aggregation(Aggregation::new(
            Occasion::Printa,
            columns,
            vec![Row { key: vec![], values: vec![value] }],
        ))
    };
    let mut events = Vec::new();
    for time in [1, 2] {
        events.extend([
            part(time, true, false, &["x"]),
            part(time, false, false, &[]),
            part(time, false, true, &["y"]),
        ]);
    }
    let expected = "time,cpu,probe,x,y\n1,3,p:m:f:a,1,1\n2,3,p:m:f:a,2,2\n";
    assert_eq!(csv(&events), expected);
    // An aggregation that its clause prints between them is before its line.
    events.extend([part(3, true, false, &["x"]), table(), part(3, false, true, &["y"])]);
    // A record with fewer values, one with none, and one whose end is missing.
    events.extend([part(4, true, true, &["x"]), part(5, true, true, &[]), part(6, true, false, &["x"])]);
    events.push(part(7, true, true, &["x"]));
    let more = "\n@n\n7\n\ntime,cpu,probe,x,y\n3,3,p:m:f:a,3,3\n\n\
                time,cpu,probe,x\n4,3,p:m:f:a,4\n6,3,p:m:f:a,6\n7,3,p:m:f:a,7\n";
    assert_eq!(csv(&events), format!("{expected}{more}"));
}

#[test]
fn a_file_of_csv_begins_with_its_first_table() {
    let dir = testing::dir::Dir::new("csv-freopen");
    let name = |name: &str| dir.join(name).into_os_string().into_encoded_bytes();
    let probe = Arc::new(Probe::new(1, ["p", "m", "f", "a"].map(Into::into), Calls::None));
    let record = |time| {
        let firing = Firing::new(time, 3, 1, Cow::Owned(probe.clone()));
        let action = Action::Trace(Value::Int(Int::new(time, 8, true)));
        let fields = vec![Field { name: "x".into(), action }];
        Event::Record(Record { firing, part: Part::WHOLE, fields })
    };
    let reopen = |path: &str| Event::Effect(Effect::Freopen(Some(name(path).into())));
    let events = [
        record(1),
        reopen("a"),
        record(2),
        reopen("b"),
        record(3),
        reopen("a"),
        record(4),
        Event::Effect(Effect::Freopen(None)),
        record(5),
    ];
    let line = |n: u64| format!("time,cpu,probe,x\n{n},3,p:m:f:a,{n}\n");
    assert_eq!(csv(&events), format!("{}\n{}", line(1), line(5)));
    let file = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    assert_eq!(file("a"), format!("{}\n{}", line(2), line(4)));
    assert_eq!(file("b"), line(3));
}

#[test]
fn csv_has_a_stack_in_a_cell_with_functions_of_an_interpreter_as_frames() {
    let frame = |module: Option<&str>, symbol: &str| {
        let mut name = SymbolName::new(module.map(Into::into), Some(symbol.into()), 0);
        (name.file, name.line, name.interpreted) =
            (module.is_none().then(|| "a.py".into()), Some(3), module.is_none());
        Symbol::new(1, Some(7), AddrForm::Address, name)
    };
    let frames = vec![frame(Some("python3.11"), "eval"), frame(None, "f"), frame(Some("python3.11"), "main")];
    let value = AggValue {
        function: AggFunc::Count,
        words: vec![2].into(),
        normal: 1,
        cpus: Vec::new(),
        absent: false,
    };
    let rows = vec![Row { key: vec![Value::Stack(Stack { process: Some(7), frames })], values: vec![value] }];
    let columns = vec![Column { name: "a".into(), function: AggFunc::Count }];
    let expected = "key1,@a\npython3.11`eval;[ a.py:3 (f) ];python3.11`main,2\n";
    assert_eq!(csv(&[Event::Aggregation(Aggregation::new(Occasion::End, columns, rows))]), expected);
}

#[test]
fn csv_has_a_column_for_each_number_and_a_line_for_each_bucket() {
    let number = |n: u64| AggValue {
        function: AggFunc::Count,
        words: vec![n].into(),
        normal: 1,
        cpus: Vec::new(),
        absent: false,
    };
    let column = |name: &'static str, function| Column { name: name.into(), function };
    let key = |text: &'static [u8]| vec![string(text), Value::Int(Int::new(!0, 8, true))];
    let rows = vec![
        Row { key: key(b"plain"), values: vec![number(1), number(2)] },
        Row { key: key(b"a,\"b\"\n"), values: vec![number(3), number(4)] },
    ];
    let columns = vec![column("a", AggFunc::Count), column("_", AggFunc::Count)];
    let mut numbers = Aggregation::new(Occasion::End, columns, rows);
    numbers.keys = vec!["execname".into(), "".into()];
    let mut words = vec![0; 4];
    (words[0], words[2]) = (5, 6);
    let lquantize = AggFunc::Lquantize { base: 0, limit: 20, step: 10 };
    let value =
        AggValue { function: lquantize, words: words.into(), normal: 2, cpus: Vec::new(), absent: false };
    let rows = vec![Row { key: Vec::new(), values: vec![value] }];
    let buckets = Aggregation::new(Occasion::End, vec![column("q", lquantize)], rows);
    let events = [Event::Stop, Event::Aggregation(numbers), Event::Aggregation(buckets)];
    let expected = "execname,key2,@a,@\nplain,-1,1,2\n\"a,\"\"b\"\"\n\",-1,3,4\n\n\
                    aggregation,min,max,value\n@q,,-1,2\n@q,10,19,3\n";
    assert_eq!(csv(&events), expected);
}
