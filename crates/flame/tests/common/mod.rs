//! Rows of aggregations, and a reader of XML that accepts what is well-formed and nothing else.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::borrow::Cow;

use events::{
    AddrForm, AggFunc, AggValue, Aggregation, Column, Event, Occasion, Row, Sink, Stack, Symbol, SymbolName,
    Value,
};
use flame::Flame;

/// A stack, the innermost frame first, as events have it; of a process if it has a number.
pub fn stack(process: Option<u32>, frames: &[&str]) -> Value<'static> {
    let symbol = |text: &&str| {
        let name = match text.split_once('`') {
            Some((module, "")) => SymbolName::new(Some(module.into()), None, 0),
            Some((module, symbol)) => SymbolName::new(Some(module.into()), Some(symbol.into()), 4),
            None if text.is_empty() => SymbolName::default(),
            None if text.contains(':') => interpreted(text),
            None => SymbolName::new(None, Some((*text).into()), 0),
        };
        Symbol::new(0x1234, process, AddrForm::Address, name)
    };
    Value::Stack(Stack { process, frames: frames.iter().map(symbol).collect() })
}

/// The name of a function of an interpreter of the form `file:line:function`, without what is
/// empty.
fn interpreted(text: &str) -> SymbolName {
    let mut parts = text.splitn(3, ':').map(|part| (!part.is_empty()).then_some(part));
    let (file, line) = (parts.next().unwrap(), parts.next().unwrap());
    let mut name = SymbolName::new(None, parts.next().unwrap().map(Into::into), 0);
    (name.file, name.line, name.interpreted) = (file.map(Into::into), line.map(|n| n.parse().unwrap()), true);
    name
}

pub fn name(text: &str) -> Value<'static> {
    Value::Name { text: text.as_bytes().to_vec().into(), size: 16 }
}

pub fn value(function: AggFunc, words: &[u64]) -> AggValue<'static> {
    AggValue { function, words: Cow::Owned(words.to_vec()), normal: 1, cpus: Vec::new(), absent: false }
}

/// Delivers rows of `@aggregation` to a sink.
pub fn deliver(flame: &mut Flame, aggregation: &str, function: AggFunc, rows: Vec<(Vec<Value<'_>>, i64)>) {
    let column = Column { name: aggregation.to_string().into(), function };
    let rows =
        rows.into_iter().map(|(key, n)| Row { key, values: vec![value(function, &[n as u64])] }).collect();
    let all = Aggregation::new(Occasion::End, vec![column], rows);
    flame.event(&Event::Aggregation(all)).unwrap();
}

/// A start tag of a document, with its attributes, or the text between two tags.
#[derive(Debug, PartialEq)]
pub enum Xml {
    Start(String, Vec<(String, String)>),
    End,
    Text(String),
    Cdata(String),
}

impl Xml {
    pub fn attribute(&self, wanted: &str) -> Option<&str> {
        let Xml::Start(_, all) = self else { return None };
        all.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    }

    pub fn number(&self, wanted: &str) -> f64 {
        self.attribute(wanted).unwrap().parse().unwrap()
    }
}

fn unescaped(text: &str) -> String {
    assert!(!text.contains(['<', '>']), "{text}");
    assert!(text.chars().all(|c| !c.is_control() || c == '\n'), "{text:?}");
    let mut parts = text.split('&');
    let mut out = parts.next().unwrap().to_string();
    for part in parts {
        let (entity, rest) = part.split_once(';').unwrap_or_else(|| panic!("{text}"));
        out.push(match entity {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "#39" => '\'',
            _ => panic!("{entity}"),
        });
        out.push_str(rest);
    }
    out
}

/// Reads an element with what is in it.
#[track_caller]
pub fn read(document: &str) -> Vec<Xml> {
    let (mut out, mut open) = (Vec::new(), Vec::new());
    let mut rest =
        document.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"no\"?>\n").unwrap();
    while !rest.is_empty() {
        let (text, tag) = rest.split_at(rest.find('<').unwrap_or(rest.len()));
        if !text.trim().is_empty() {
            assert!(!open.is_empty(), "text outside of the element: {text}");
            out.push(Xml::Text(unescaped(text)));
        }
        let Some(tag) = tag.strip_prefix('<') else { break };
        if let Some(data) = tag.strip_prefix("![CDATA[") {
            let (data, after) = data.split_once("]]>").unwrap();
            assert!(!data.contains(['\u{fffe}', '\u{ffff}', '\0']));
            out.push(Xml::Cdata(data.into()));
            rest = after;
            continue;
        }
        let (tag, after) = tag.split_once('>').unwrap();
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name));
            out.push(Xml::End);
            continue;
        }
        let (tag, empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, mut attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        let mut all = Vec::new();
        while !attributes.is_empty() {
            let (name, after) = attributes.split_once("=\"").unwrap();
            let (value, after) = after.split_once('"').unwrap();
            all.push((name.trim().to_string(), unescaped(value)));
            attributes = after.trim_start();
        }
        out.push(Xml::Start(name.into(), all));
        match empty {
            true => out.push(Xml::End),
            false => open.push(name.to_string()),
        }
    }
    assert!(open.is_empty(), "{open:?}");
    out
}

/// A frame of a picture: its class, place, width, and what is said of it.
#[derive(Clone, Debug)]
pub struct Box {
    pub class: String,
    pub about: String,
    pub x: f64,
    pub y: f64,
    pub width: f64,
}

/// The frames of a picture that are drawn without its script.
#[track_caller]
pub fn boxes(document: &str) -> Vec<Box> {
    let all = read(document);
    let mut out = Vec::new();
    for at in all.windows(5) {
        if let [g, Xml::Start(title, _), Xml::Text(about), Xml::End, rect] = at
            && title == "title"
        {
            let class = g.attribute("class").unwrap().strip_prefix("f ").unwrap().to_string();
            let [x, y, width] = ["x", "y", "width"].map(|name| rect.number(name));
            out.push(Box { class, about: about.clone(), x, y, width });
        }
    }
    out
}
