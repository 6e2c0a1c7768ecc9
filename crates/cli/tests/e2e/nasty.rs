//! Names that processes choose go through every format, and the parsers of others read each.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use dtrace::formats::TABLE;
use testing::names::NASTY;

use crate::Verdict::{self, Pass, Skip};
use crate::tool::binary;

tests! { names_that_processes_choose_are_data_in_every_format }

/// Reads a file of each format with what is no part of dtrace, and says how many of the names it
/// has. An argument is `FORMAT FILE`.
const READ: &str = r#"
import base64, csv, gzip, io, json, re, sys, zlib
import xml.etree.ElementTree as xml
from html.parser import HTMLParser

class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(text)
        self.close()
    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        assert not any(name == "onerror" for name, _ in attributes), attributes
    def handle_data(self, data):
        self.texts.append(data)

def drawn(form, text):
    """The data of a picture, and that markup in names is text there."""
    data = re.search(r'class="data">(?:<!\[CDATA\[)?(.*?)(?:\]\]>)?</script>', text, re.S)[1]
    data = json.dumps(json.loads(data)) if form == "flame" else zlib.decompress(base64.b64decode(data), -15).decode(errors="replace")
    names = ["<script>alert(1)", "onerror=alert(1)", "<a href=x>", "{{ .Labels.x }}", "%s%n", "=1+1"]
    return {name for name in names if name in data} == set(names)

def fields(data):
    """Of a message of protobuf: number and content."""
    at = 0
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 2:
            length = varint()
            assert at + length <= len(data)
            yield key >> 3, data[at:at + length]
            at += length
        else:
            size = {1: 8, 5: 4}[key & 7]
            yield key >> 3, data[at:at + size]
            at += size

def rows_of_json(text):
    events = [json.loads(line) for line in text.split("\n") if line]
    printed = [event for event in events if event["event"] == "aggregation"]
    rows = [event["rows"] for event in printed if event["aggregations"][0]["name"] == "c"]
    return {json.dumps(row["key"]) for row in rows[-1]}

def metrics(text, module):
    try:
        parser = __import__(module, fromlist=["x"])
    except ImportError:
        return None
    families = parser.text_string_to_metric_families(text)
    samples = [s for family in families for s in family.samples if s.name in ("dtrace_c", "dtrace_c_total")]
    return {tuple(sample.labels.values()) for sample in samples}

def lines(text, pattern):
    found = [re.fullmatch(pattern, line) for line in text.rstrip("\n").split("\n")]
    assert all(found), text[:2000]
    return {match[1] for match in found if re.match(r"dtrace_c,|dtrace\.[\w-]+\.c\.|(?!dtrace)", match[1])}

def read(form, file):
    raw = open(file, "rb").read()
    if form == "pprof":
        texts = [value.decode() for number, value in fields(gzip.decompress(raw)) if number == 6]
        return set(texts)
    if form == "perfetto":
        packets = [value for number, value in fields(raw)]
        assert all(number == 1 for number, _ in fields(raw))
        return {value for packet in packets for _, value in fields(packet)}
    if form == "csv":
        # It has the bytes of each name as they are.
        rows = csv.reader(io.StringIO(raw.decode(errors="surrogateescape"), newline=""))
        return {row[0] for row in rows if len(row) == 2 and row[1] == "1"}
    text = raw.decode()
    if form in ("json", "events"):
        return rows_of_json(text)
    if form == "speedscope":
        return {frame["name"] for frame in json.loads(text)["shared"]["frames"]}
    if form == "folded":
        return lines(text, r"(.*) [0-9]+")
    if form in ("flame", "heat") and file.endswith(".svg"):
        tree = xml.fromstring(text)
        assert not [e for e in tree.iter() if e.tag.endswith(("}img", "}a"))]
        return drawn(form, text)
    if form in ("flame", "heat"):
        page = Page(text)
        assert not {"img", "a"} & set(page.tags), page.tags
        assert page.tags.count("script") <= 2, page.tags
        return drawn(form, text)
    if form == "prometheus":
        return metrics(text, "prometheus_client.parser")
    if form == "openmetrics":
        return metrics(text, "prometheus_client.openmetrics.parser")
    if form == "graphite":
        return lines(text, r"(dtrace(?:\.[\w-]+){3,4}) [0-9]+ [0-9]+")
    if form == "statsd":
        return lines(text, r"(dtrace(?:\.[\w-]+){3,4}):[0-9]+\|[cg]")
    if form == "influx":
        return lines(text, r"((?:[^\s,=]|\\.)+(?:,(?:[^\s,=\\]|\\.)+=(?:[^\s,=\\]|\\.)+)*) \S+ [0-9]+")
    raise Exception("no parser for " + form)

for word in sys.argv[1:]:
    form, file = word.split(" ", 1)
    try:
        found = read(form, file)
    except Exception as e:
        print(form, file.rsplit("/", 1)[-1], "error", type(e).__name__, str(e)[:300])
    else:
        of_picture = {True: "drawn", None: "skipped"}
        print(form, file.rsplit("/", 1)[-1], len(found) if isinstance(found, set) else of_picture.get(found))
"#;

fn names_that_processes_choose_are_data_in_every_format() -> Verdict {
    let python = ["/usr/bin/python3", "python3"].into_iter().find(|python| {
        Command::new(python).args(["-c", "import json"]).status().is_ok_and(|status| status.success())
    });
    let Some(python) = python else { return Skip("no python3".into()) };
    let dir = testing::dir::Dir::new("nasty");
    // A word of a command has no NUL; the tests of each crate have it.
    let names: Vec<&[u8]> = NASTY.iter().copied().filter(|name| !name.contains(&0)).collect();
    let clauses = (1..=names.len()).map(|n| {
        format!(
            "BEGIN {{ trace($${n}); @c[$${n}] = count(); @q[$${n}] = quantize({n}); @s[$${n}, stack()] = count(); }}\n"
        )
    });
    let script = clauses.chain(["BEGIN { exit(0); }".to_string()]).collect::<String>();
    let mut words: Vec<OsString> = ["-q", "-x", "strsize=8k", "-x", "every=10s", "-b", "16m", "-o"]
        .map(OsString::from)
        .into_iter()
        .chain([dir.join("printed").into()])
        .collect();
    let mut written = Vec::new();
    for format in TABLE {
        // Those whose ending is a form are written in each of them.
        let endings = if format.by_ending { format.endings } else { &format.endings[..1] };
        for ending in endings {
            let file = dir.join(format!("{}{ending}", format.name));
            words.extend(["--format".into(), format!("{}={}", format.name, file.display()).into()]);
            written.push((format.name, file));
        }
    }
    words.extend(["-n".into(), script.into(), "--".into()]);
    words.extend(names.iter().map(|name| OsStr::from_bytes(name).to_owned()));
    let o = Command::new(binary()).args(&words).output().unwrap();
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    // What is stored is read by the command, in a format that others read.
    let events = dir.join("events.events");
    let stored =
        Command::new(binary()).arg("--events").arg(&events).args(["--format", "json"]).output().unwrap();
    assert!(stored.status.success(), "{}", String::from_utf8_lossy(&stored.stderr));
    std::fs::write(&events, &stored.stdout).unwrap();
    let read = written.iter().map(|(name, file)| format!("{name} {}", file.display()));
    let read = Command::new(python).args(["-c", READ]).args(read).output().unwrap();
    let said = String::from_utf8_lossy(&read.stdout);
    assert!(read.status.success(), "{said}{}", String::from_utf8_lossy(&read.stderr));
    assert_eq!(said.lines().count(), written.len(), "{said}");
    for line in said.lines() {
        let found = line.rsplit(' ').next().and_then(|word| word.parse::<usize>().ok());
        // What a path of Graphite cannot have becomes `_`, so two of them are one series there.
        let alike = usize::from(line.starts_with("graphite") || line.starts_with("statsd"));
        match found {
            Some(found) => assert!(found + alike >= names.len(), "{line}\n{said}"),
            // There is no parser of Prometheus here; the picture has them.
            None => assert!(line.ends_with(" skipped") || line.ends_with(" drawn"), "{line}\n{said}"),
        }
    }
    Pass
}
