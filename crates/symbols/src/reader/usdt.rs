//! The probes that a file describes in its notes: where they are, what the kernel does there, where
//! their arguments are.
//!
//! A site is where a segment with code maps it, and a semaphore where another segment does, so what
//! a note says of places that the process does not execute is refused before the kernel hears of
//! it. The instruction is read too, because some that programs have at their sites cannot be probed
//! without harm on every kernel ([`Nop`]).

use std::collections::{BTreeMap, BTreeSet};

use text::Kernel;
use text::uprobe::Nop;
use usdt::{Argument, DofSite, Machine, Note, Notes, Source, port_definitions, port_notes, provider_name};

use super::elf::{Elf, ElfError};
use crate::usdt::{ProbeSite, ProviderText};

/// The longest section of notes, in bytes.
const MAX_SECTION: u64 = 4 << 20;
/// The most sites of a file. The JVM has 500.
const MAX_SITES: usize = 1 << 15;
/// The longest section of definitions, in bytes.
const MAX_DEFINITIONS: u64 = 1 << 20;
/// The most definitions of a file.
const MAX_PROVIDERS: usize = 256;
/// The longest instruction, in bytes.
const INSTRUCTION: usize = 15;

/// The sections in which a file can describe probes; those that it does not have are empty.
struct Sections {
    stapsdt: Vec<u8>,
    port: Vec<u8>,
    dof: Vec<u8>,
}

impl Sections {
    fn of(elf: &Elf) -> Result<Sections, ElfError> {
        let bytes = |name: &[u8]| elf.section_bytes(name, MAX_SECTION).map(Option::unwrap_or_default);
        let (port, dof) = (bytes(b".note.usdt"), bytes(b".SUNW_dof"));
        // What is wrong with a rare one hides no other.
        let (port, dof) = (port.unwrap_or_default(), dof.unwrap_or_default());
        Ok(Sections { stapsdt: bytes(b".note.stapsdt")?, port, dof })
    }
}

/// Reads the sites of a file, without their functions. `most` bounds the memory for names of
/// symbols.
pub(super) fn sites(elf: &Elf, most: u64) -> Result<Vec<ProbeSite>, ElfError> {
    let base = elf.section_address(b".stapsdt.base");
    let machine = Machine::own();
    let mut sites = Vec::new();
    let mut addresses = Vec::new();
    let mut add = |note: Note<'_>| {
        let arguments = machine.arguments(note.arguments);
        // A place that is not in the file is no site that a process could reach.
        let Some(offset) = elf.code_offset(note.address).filter(|_| addresses.len() < MAX_SITES) else {
            return;
        };
        let semaphore = (note.semaphore != 0).then_some(note.semaphore);
        let at = semaphore.map(|address| elf.data_offset(address));
        let (step, nop) = match at {
            Some(None) => (Err("its semaphore is not in the data of the file".to_owned()), None),
            Some(Some(at)) if at % 2 != 0 => (Err("its semaphore is at an odd address".to_owned()), None),
            _ => step(elf, offset, note.address),
        };
        addresses.push(note.address);
        sites.push(ProbeSite {
            provider: note.provider.to_owned(),
            name: note.name.to_owned(),
            function: None,
            offset,
            semaphore: at.flatten(),
            arguments,
            step,
            nop,
        });
    };
    let sections = Sections::of(elf)?;
    Notes::new(&sections.stapsdt, base).take(MAX_SITES).for_each(&mut add);
    port_notes(&sections.port).take(MAX_SITES).for_each(&mut add);
    for DofSite { provider, name, address, arguments } in machine.dof_sites(&sections.dof) {
        add(Note { provider, name, arguments: &arguments, address, semaphore: 0 });
    }
    resolve(elf, &mut sites, &addresses, most);
    Ok(sites)
}

/// What a file says of its providers, each text once.
pub(super) fn definitions(elf: &Elf) -> Result<Vec<ProviderText>, ElfError> {
    let bytes = |name: &[u8]| elf.section_bytes(name, MAX_DEFINITIONS).map(Option::unwrap_or_default);
    // What is wrong with the rare ones hides no other.
    let (own, port) = (bytes(b".note.dtrace")?, bytes(b".note.usdt").unwrap_or_default());
    let own = usdt::definitions(&own).map(|found| (found.provider, found.text.to_owned()));
    let mut all: Vec<ProviderText> = Vec::new();
    for (provider, text) in own.chain(port_definitions(&port)).take(MAX_PROVIDERS) {
        if !all.iter().any(|p| p.provider == provider && p.text == text) {
            all.push(ProviderText { provider: provider.to_owned(), text });
        }
    }
    Ok(all)
}

/// The names of the providers that a file describes, as descriptions have them without a process
/// id.
pub(super) fn providers(elf: &Elf) -> Result<BTreeSet<String>, ElfError> {
    let sections = Sections::of(elf)?;
    let notes = Notes::new(&sections.stapsdt, None).take(MAX_SITES);
    let mut names: BTreeSet<&str> = notes.map(|note| note.provider).collect();
    names.extend(port_notes(&sections.port).take(MAX_SITES).map(|note| note.provider));
    names.extend(Machine::own().dof_sites(&sections.dof).iter().map(|site| site.provider));
    Ok(names.into_iter().filter_map(provider_name).collect())
}

/// What kernels do with a probe at an address.
fn step(elf: &Elf, offset: u64, address: u64) -> (Result<text::Step, String>, Option<Nop>) {
    let mut code = [0; INSTRUCTION];
    let there = elf.size().saturating_sub(offset).min(INSTRUCTION as u64) as usize;
    let code = code.get_mut(..there).unwrap_or_default();
    match elf.read_at(offset, code) {
        Ok(()) => {
            let step = text::uprobe::step(code, address, Kernel::UNKNOWN).map_err(|e| e.to_string());
            (step, Nop::of_marker(code, address))
        }
        Err(e) => (Err(e.to_string()), None),
    }
}

/// Finds the symbols that arguments name.
fn resolve(elf: &Elf, sites: &mut [ProbeSite], addresses: &[u64], most: u64) {
    let symbol = |argument: &Argument| match &argument.source {
        Source::Memory(address) => address.symbol.clone(),
        _ => None,
    };
    let names: BTreeSet<String> = sites.iter().flat_map(|s| &s.arguments).filter_map(symbol).collect();
    // Without the table no symbol is known.
    let known: BTreeMap<String, u64> =
        if names.is_empty() { BTreeMap::new() } else { elf.named(&names, most).unwrap_or_default() };
    for (site, at) in sites.iter_mut().zip(addresses) {
        for argument in &mut site.arguments {
            let Some(name) = symbol(argument) else { continue };
            argument.source = match (&argument.source, known.get(&name)) {
                (Source::Memory(address), Some(found)) => Source::Memory(address.resolved(*found, *at)),
                _ => Source::Unreadable(format!("the file has no symbol {}", shown(&name))),
            };
        }
    }
}

/// A name for a message.
fn shown(name: &str) -> String {
    const LONGEST: usize = 64;
    let mut end = name.len().min(LONGEST);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.get(..end).unwrap_or_default().to_owned()
}
