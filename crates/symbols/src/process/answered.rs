//! What a session makes of a reader's answer, whatever that is: for fuzzing.
//!
//! The reader parses what traced processes have written, and may be in the hands of one of them.
//! What it sends is the boundary between such a process and the session, which runs as root.

use std::time::Duration;

use debuginfo::{Answer, Query};
use files::open::RootKey;
use proc::maps::{Backing, MappedFile, Mapping};

use super::{CodeSource, MappedText, Processes};
use crate::client::{Limits, Reader};
use crate::frames::FrameTable;
use crate::functions::{FunctionQuery, Select};
use crate::object::Lookup;
use crate::pool::Readers;
use crate::reader::Read as FileFacts;
use crate::sources::SourceFrame;
use crate::usdt::DescribedProbes;
use crate::wire::list::{FileFunctions, Functions};
use crate::wire::{self, Identity, PlaceName, Response, types};

/// The memory of a reader, which bounds what is taken of an answer.
const MEMORY: u64 = 16 << 20;

/// What was asked, and what the answer was taken for. `Err`: why there is none.
#[derive(Debug)]
pub enum Answered {
    /// What a process has mapped.
    Map(Result<Vec<MappedText>, String>),
    /// The functions of a file.
    Functions(Result<FileFunctions, String>),
    /// Types of a file.
    Types(Result<Answer, String>),
    /// The probes that a file describes.
    Probes(Result<DescribedProbes, String>),
    /// The table by which stacks are walked.
    Frames(Result<Option<FrameTable>, String>),
    /// The symbol at an offset of a file.
    Symbol(Option<(String, u64)>),
    /// The lines at an offset of a file.
    Lines(Vec<SourceFrame>),
    /// Which of some processes describe probes.
    Describing(Result<Vec<u32>, String>),
}

/// Asks a reader whose answer is these packets, if they fit into a socket.
pub fn answered(question: u8, packets: &[&[u8]]) -> Option<Answered> {
    const AT: u64 = 0x1234;
    const OFFSETS: [u64; 3] = [0, 0x1000, AT];
    let pid = std::process::id();
    let limits = Limits::of_time(Duration::from_secs(2), MEMORY);
    // Each answer ends.
    let end = Response::End(None).encode();
    let packets: Vec<&[u8]> = packets.iter().copied().chain([&end[..]]).collect();
    let mut asking = Processes {
        reader: Reader::answered(limits, &packets)?,
        with_sources: true,
        ..Processes::new(&Readers::new())
    };
    let mapped = MappedFile { dev: (8, 1), inode: 7, path: b"/bin/x".to_vec() };
    let file = asking.objects.note(&mapped, RootKey::default(), None);
    let text =
        || MappedText { file, name: "x".into(), start: 1 << 20, end: 2 << 20, offset: 0, is_code: true };
    let query = FunctionQuery::names(Select::All);
    Some(match question % 8 {
        0 => Answered::Map(asking.mapped(pid)),
        1 => Answered::Functions(asking.functions(file, &query)),
        2 => Answered::Types(asking.types(&text(), &Query::Entry(7))),
        3 => Answered::Probes(asking.described_probes(file)),
        4 => Answered::Frames(asking.frames(CodeSource::File(file))),
        5 => {
            asking.objects.resolve(file, &OFFSETS, &mut asking.reader);
            Answered::Symbol(match asking.objects.known(file, AT) {
                Some(Lookup::Symbol(name, into)) => Some((name.to_string(), *into)),
                _ => None,
            })
        }
        6 => {
            asking.objects.resolve_sources(file, &OFFSETS, &mut asking.reader);
            let found = asking.objects.known_sources(file, AT).cloned().unwrap_or_default();
            Answered::Lines(found.to_vec())
        }
        _ => Answered::Describing(asking.describing("x*", true, &[pid, 1])),
    })
}

/// What a reader may send when it is asked, about a file of which this is known: packets of each
/// question.
pub fn sample_answers(functions: FileFunctions, facts: &FileFacts) -> Vec<(u8, Vec<Vec<u8>>)> {
    let identity = Identity { start: 1, stack: 2, exe: (3, 4, 5) };
    let mapping = |n: u64, backing| {
        let (start, end) = (n << 12, (n + 1) << 12);
        Mapping { start, end, offset: 0, backing, is_code: n.is_multiple_of(2) }
    };
    let backings = [Backing::File(0), Backing::Zeros(0), Backing::Anonymous, Backing::Vdso];
    let file = MappedFile { dev: (1, 2), inode: 3, path: b"/bin/x".to_vec() };
    let texts = facts.probes.providers.iter().flat_map(|p| [&p.provider, "\0", &p.text, "\0"]);
    let texts: Vec<u8> = texts.flat_map(str::bytes).collect();
    let mut table = Vec::new();
    if let Some(FrameTable { table: rows, loads, runtime }) = &facts.frames {
        table.push(Response::CodeLoads(loads.clone()));
        table.extend(runtime.map(Response::Runtime));
        table.extend(rows.encode().chunks(wire::NAMES).map(|part| Response::Frames(part.to_vec())));
    }
    let symbols = facts.symbols.iter().map(|found| PlaceName::from(found.clone())).collect();
    let mut all = vec![
        (
            0,
            vec![
                Response::Process(identity, RootKey::default()),
                Response::Root(RootKey::default()),
                Response::File(file),
                Response::Mappings((1..).zip(backings).map(|(n, backing)| mapping(n, backing)).collect()),
                Response::PerfMap(7),
            ],
        ),
        (
            1,
            vec![
                Response::Functions(Functions::of(&functions.functions.iter().collect::<Vec<_>>())),
                Response::FileFunctions(functions),
            ],
        ),
        (3, vec![Response::Definitions(texts), Response::Sites(facts.probes.sites.clone())]),
        (4, table),
        (5, vec![Response::Symbols(symbols)]),
        (6, vec![Response::Lines(facts.lines.clone())]),
        (7, vec![Response::Describing(vec![1, std::process::id()])]),
    ];
    all.extend(
        facts.types.iter().map(|answer| (2, vec![Response::Types(types::encode(answer, Some(4096)))])),
    );
    all.iter().map(|(question, list)| (*question, list.iter().map(Response::encode).collect())).collect()
}
