//! Events that were stored: rendered without the session, and without its effects.
#![allow(clippy::unwrap_used)]

use consumer::{Json, Text};
use events::{
    Action, Argument, Effect, Encoder, Event, Format, Int, Notice, NoticeKind, ReadError, Reader, Setting,
    SettingValue, Sink, Suppressed, Value,
};

use crate::common::Memory;
use crate::generate::Generator;

#[test]
fn no_effect_of_stored_events_is_performed() {
    let path = std::env::temp_dir().join(format!("consumer-stored-{}", std::process::id()));
    let name = path.to_str().unwrap().as_bytes();
    let command = [b"echo >", name].concat();
    let effects = [Effect::Freopen(Some(name.into())), Effect::System(command.into()), Effect::Ftruncate];
    let mut text = Text::of_stored_events(Memory::terminal());
    for effect in effects {
        text.event(&Event::Effect(effect)).unwrap();
        text.event(&Event::Interrupt).unwrap();
    }
    text.flush().unwrap();
    assert_eq!((&*text.output().text, text.output().truncated), (&b"\n\n\n"[..], 0));
    assert!(!path.exists());
}

/// A stream of another machine must not make this one query the network.
#[test]
fn addresses_and_ports_of_stored_events_are_printed_as_numbers() {
    let found = (0..).find_map(|seed| match Generator::new(seed).event() {
        Event::Record(record) if !record.fields.is_empty() => Some(record),
        _ => None,
    });
    let mut record = found.unwrap();
    record.fields.truncate(1);
    let values = [Value::Str { text: b"127.0.0.1"[..].into(), size: 16 }, Value::Int(Int::new(22, 2, false))];
    record.fields[0].action = Action::Printf {
        format: std::borrow::Cow::Owned(Format::parse("<%I %P>").unwrap()),
        args: values.map(|value| Argument { name: "".into(), value }).into(),
    };
    let mut text = Text::of_stored_events(Memory::terminal());
    text.event(&Event::Record(record)).unwrap();
    text.flush().unwrap();
    let printed = String::from_utf8_lossy(&text.output().text).into_owned();
    assert!(printed.contains("<127.0.0.1 22>"), "{printed}");
}

/// The bytes of random events, damaged: what can be read can be rendered.
#[test]
fn damaged_events_are_rendered_without_a_panic() {
    let rounds: u64 = std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1500);
    let (mut rendered, mut length) = (0u64, 0);
    for seed in 0..rounds {
        let mut generator = Generator::new(seed);
        let mut encoder = Encoder::new(Vec::new());
        for _ in 0..6 {
            encoder.event(&generator.event()).unwrap();
        }
        encoder.flush().unwrap();
        let mut bytes = encoder.get_ref().clone();
        for _ in 0..generator.below(4) {
            generator.damage(&mut bytes, 12);
        }
        let mut reader = Reader::new(&bytes[..]);
        let mut text = Text::of_stored_events(Memory::terminal());
        for _ in 0..64 {
            match reader.next_event() {
                Ok(None) => break,
                Ok(Some(event)) => {
                    rendered += 1;
                    text.event(&event).unwrap();
                }
                Err(ReadError::Malformed { .. }) => {}
                Err(_) => break,
            }
        }
        text.flush().unwrap();
        length += text.output().text.len();
    }
    assert!(rendered > rounds && length > 0);
}

#[test]
fn a_report_is_part_of_the_output_in_its_place() {
    let mut text = Text::of_stored_events(Memory::default());
    text.event(&Event::Report("\nStability attributes\n".into())).unwrap();
    text.event(&Event::Stop).unwrap();
    text.flush().unwrap();
    assert_eq!(text.output().text, b"\nStability attributes\n\n");
}

/// Each second's number is an event; text and JSON say them together where tracing stops, and quiet
/// ones nothing before.
#[test]
fn suppressed_firings_are_summed_up_where_tracing_stops() {
    let run = |sink: &mut dyn Sink, quiet: bool| {
        let value = SettingValue::Flag(quiet);
        sink.event(&Event::Options(vec![Setting { name: "quiet".into(), value }])).unwrap();
        for second in 1..=3 {
            let mut suppressed = Suppressed::new("tick-1ms", Some(1), second);
            suppressed.time = Some(second * 1_000_000_000);
            sink.event(&Event::Suppressed(suppressed)).unwrap();
            sink.flush().unwrap();
        }
        sink.event(&Event::Stop).unwrap();
        sink.flush().unwrap();
    };
    let first = "up to 1 firing was suppressed until now";
    let last = "6 firings of tick-1ms on CPU 1 suppressed by the kernel";
    for (quiet, expected) in [(false, &[first, last][..]), (true, &[last])] {
        let (mut text, mut json) = (Text::new(Memory::default()), Json::new(Memory::default()));
        run(&mut text, quiet);
        run(&mut json, quiet);
        for output in [text.output(), json.output()] {
            assert_eq!(output.messages.iter().map(|m| &*m.text).collect::<Vec<_>>(), expected);
        }
        let counts = String::from_utf8_lossy(&json.output().text).matches("\"suppressed\",").count();
        assert_eq!(counts, 3);
    }
}

/// With `-w` a session goes on after an alarm, and there are more firings to count.
#[test]
fn suppressed_firings_are_summed_up_where_tracing_is_aborted_and_not_at_an_alarm() {
    let run = |sink: &mut dyn Sink| {
        for _ in 0..2 {
            sink.event(&Event::Suppressed(Suppressed::new("tick-1ms", Some(1), 2))).unwrap();
            let kind = NoticeKind::Unresponsive;
            sink.event(&Event::Notice(Notice { kind, text: "alarm".into(), time: None })).unwrap();
            sink.flush().unwrap();
        }
        for _ in 0..2 {
            sink.aborted();
            sink.flush().unwrap();
        }
    };
    let (mut text, mut json) = (Text::new(Memory::default()), Json::new(Memory::default()));
    run(&mut text);
    run(&mut (&mut json, Encoder::new(Vec::<u8>::new())));
    for output in [text.output(), json.output()] {
        let found: Vec<&str> = output.messages.iter().map(|m| &*m.text).collect();
        assert_eq!(found, ["alarm", "alarm", "4 firings of tick-1ms on CPU 1 suppressed by the kernel"]);
    }
}
