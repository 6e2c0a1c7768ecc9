//! What a guest's kernel tells of itself: its VMCOREINFO, a page of text that it writes for crash
//! dumps, and its table of symbols (kallsyms), whose parts that text names since Linux 6.0.
//!
//! All of it is the guest's, which may lie: counts, lengths and names are bounded, each place is
//! read once, and no place names the next one. A table that is not one gives nothing.

/// What a page of VMCOREINFO begins with.
pub(super) const BEGIN: &[u8] = b"OSRELEASE=";

/// The most symbols of a kernel: one with everything built in has 300,000.
const MOST_SYMBOLS: u32 = 1 << 20;

/// The most bytes of all names, compressed and not.
const MOST_BYTES: usize = 48 << 20;

/// The longest name (`KSYM_NAME_LEN`).
const LONGEST: usize = 512;

/// Number of the parts of names that have a number.
const TOKENS: usize = 256;

/// Start of kernel addresses.
const KERNEL_START: u64 = 1 << 63;

/// Reads the kernel's memory by its own addresses.
pub(super) trait Image {
    /// Fills the buffer, or returns false.
    fn read(&self, at: u64, into: &mut [u8]) -> bool;
}

/// Why a page is no VMCOREINFO that is of use.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoNote {
    /// It is none.
    Other,
    /// The kernel of this release does not tell where its symbols are.
    NoSymbols(String),
}

/// What VMCOREINFO tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// `6.12.1-amd64`
    pub(super) release: Vec<u8>,
    /// Where the kernel has its own name and release (`struct new_utsname`).
    pub(super) uts_name: u64,
    /// How far the kernel is from where it was linked.
    pub(super) slide: u64,
    text: u64,
    count: u64,
    names: u64,
    token_table: u64,
    token_index: u64,
    offsets: u64,
    /// 0 where there is none.
    base: u64,
}

impl Note {
    /// Parses a page.
    pub(super) fn parse(page: &[u8]) -> Result<Note, NoNote> {
        let text = page.split(|byte| *byte == 0).next().filter(|text| text.starts_with(BEGIN));
        let text = text.ok_or(NoNote::Other)?;
        let (mut note, mut uts) = (Note::default(), (0, 0));
        for line in text.split(|byte| *byte == b'\n') {
            let Some(at) = line.iter().position(|byte| *byte == b'=') else { continue };
            let (key, value) = (line.get(..at).unwrap_or_default(), line.get(at + 1..).unwrap_or_default());
            let number = |radix| {
                let digits = std::str::from_utf8(value).ok()?;
                u64::from_str_radix(digits.strip_prefix("0x").unwrap_or(digits), radix).ok()
            };
            let place = match key {
                b"OSRELEASE" if (1..65).contains(&value.len()) => {
                    note.release = value.to_vec();
                    continue;
                }
                b"OFFSET(uts_namespace.name)" => {
                    uts.1 = number(10).unwrap_or_default();
                    continue;
                }
                b"KERNELOFFSET" => &mut note.slide,
                b"SYMBOL(init_uts_ns)" => &mut uts.0,
                b"SYMBOL(_stext)" => &mut note.text,
                b"SYMBOL(kallsyms_num_syms)" => &mut note.count,
                b"SYMBOL(kallsyms_names)" => &mut note.names,
                b"SYMBOL(kallsyms_token_table)" => &mut note.token_table,
                b"SYMBOL(kallsyms_token_index)" => &mut note.token_index,
                b"SYMBOL(kallsyms_offsets)" => &mut note.offsets,
                b"SYMBOL(kallsyms_relative_base)" => &mut note.base,
                _ => continue,
            };
            *place = number(16).unwrap_or_default();
        }
        note.uts_name = uts.0.wrapping_add(uts.1);
        let needed =
            [uts.0, note.text, note.count, note.names, note.token_table, note.token_index, note.offsets];
        let is_plain = note.release.iter().all(u8::is_ascii_graphic) && !note.release.is_empty();
        match needed.iter().all(|place| *place >= KERNEL_START) {
            _ if !is_plain => Err(NoNote::Other),
            true => Ok(note),
            false => Err(NoNote::NoSymbols(String::from_utf8_lossy(&note.release).into_owned())),
        }
    }

    /// The kernel's symbols as lines of `/proc/kallsyms`, with the addresses for which it was
    /// linked. `None`: the tables are not there, damaged, or of a form that is not known.
    pub(super) fn symbols(&self, image: &impl Image) -> Option<Vec<u8>> {
        let count = u32::from_le_bytes(bytes(image, self.count, 4)?.try_into().ok()?);
        let count = (1..=MOST_SYMBOLS).contains(&count).then_some(count)? as usize;
        let names = self.names(image, count)?;
        let offsets = bytes(image, self.offsets, 4 * count)?;
        let base = match self.base {
            0 => 0,
            at => u64::from_le_bytes(bytes(image, at, 8)?.try_into().ok()?),
        };
        let lines = || names.split(|byte| *byte == b'\n').zip(offsets.chunks_exact(4)).enumerate();
        let address = |form: Form, n: usize, word: &[u8]| {
            let word = word.first_chunk().map_or(0, |word| i32::from_le_bytes(*word));
            form.address(base, self.offsets.wrapping_add(4 * n as u64), word)
        };
        // What the form is, and whether this is the table of the kernel that tells of it, shows at
        // a symbol whose address is known.
        let (n, (_, word)) = lines().find(|(_, (line, _))| line.get(2..) == Some(b"_stext"))?;
        let form = Form::ALL.into_iter().find(|form| address(*form, n, word) == self.text)?;
        let mut text = Vec::with_capacity(names.len() + 18 * count);
        for (n, (line, word)) in lines().filter(|(_, (line, _))| !line.is_empty()) {
            let address = address(form, n, word);
            // Those of per-CPU variables are offsets.
            let linked = if address < KERNEL_START { address } else { address.wrapping_sub(self.slide) };
            put_hex(&mut text, linked);
            text.push(b' ');
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        Some(text)
    }

    /// The type and name of each symbol in a line, as `T _stext`; an empty line for one without.
    fn names(&self, image: &impl Image, count: usize) -> Option<Vec<u8>> {
        let index = bytes(image, self.token_index, 2 * TOKENS)?;
        let index = index.chunks_exact(2).filter_map(|pair| Some(u16::from_le_bytes(*pair.first_chunk()?)));
        let index: Vec<usize> = index.map(usize::from).collect();
        if !index.is_sorted() || index.first() != Some(&0) {
            return None;
        }
        let table = bytes(image, self.token_table, index.last()? + LONGEST)?;
        let token = |start: &usize| table.get(*start..)?.split(|byte| *byte == 0).next();
        let tokens: Vec<&[u8]> = index.iter().map(token).collect::<Option<_>>()?;
        // The table of parts is behind the names in all kernels.
        let size = usize::try_from(self.token_table.checked_sub(self.names)?).ok()?;
        let compressed = bytes(image, self.names, size)?;
        let mut compressed = compressed.iter().copied();
        let (mut lines, mut name) = (Vec::with_capacity(16 * count), Vec::new());
        for _ in 0..count {
            let first = usize::from(compressed.next()?);
            let length = match first & 0x80 {
                0 => first,
                _ => first & 0x7f | usize::from(compressed.next()?) << 7,
            };
            name.clear();
            for _ in 0..length {
                let token = tokens.get(usize::from(compressed.next()?))?;
                name.extend_from_slice(token.get(..token.len().min(LONGEST)).unwrap_or_default());
                if name.len() > LONGEST {
                    return None;
                }
            }
            if lines.len() + name.len() > MOST_BYTES {
                return None;
            }
            if let Some((kind, name)) = name.split_first().filter(|(_, name)| !name.is_empty()) {
                // Other bytes could begin another line, or do something to a terminal.
                let plain = |byte: &u8| if byte.is_ascii_graphic() { *byte } else { b'?' };
                lines.extend([plain(kind), b' ']);
                lines.extend(name.iter().map(plain));
            }
            lines.push(b'\n');
        }
        Some(lines)
    }
}

/// How the table has addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Offsets from the base.
    FromBase,
    /// Negative: offsets from the base, downwards; others are offsets of per-CPU variables. Until
    /// 6.14.
    Negative,
    /// Offsets from where they are.
    FromPlace,
}

impl Form {
    const ALL: [Form; 3] = [Form::FromBase, Form::Negative, Form::FromPlace];

    fn address(self, base: u64, place: u64, word: i32) -> u64 {
        let signed = i64::from(word) as u64;
        match self {
            Form::FromBase => base.wrapping_add(u64::from(word as u32)),
            Form::Negative if word >= 0 => signed,
            Form::Negative => base.wrapping_sub(1).wrapping_sub(signed),
            Form::FromPlace => place.wrapping_add(signed),
        }
    }
}

/// So many bytes of the kernel's memory.
fn bytes(image: &impl Image, at: u64, count: usize) -> Option<Vec<u8>> {
    if count > MOST_BYTES {
        return None;
    }
    let mut bytes = vec![0; count];
    image.read(at, &mut bytes).then_some(bytes)
}

fn put_hex(out: &mut Vec<u8>, number: u64) {
    let digit = |shift: u32| char::from_digit((number >> shift) as u32 & 15, 16).unwrap_or('0') as u8;
    out.extend((0..16).rev().map(|n| digit(4 * n)));
}
