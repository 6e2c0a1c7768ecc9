//! The arguments of a probe: where each value is when the probe fires.

/// The most arguments that a probe has. What a note describes beyond them is ignored.
pub const MAX_ARGUMENTS: usize = 12;

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Argument {
    /// Bytes of the value: 1, 2, 4 or 8.
    pub size: u8,
    /// The value has a sign.
    pub signed: bool,
    /// Where the value is.
    pub source: Source,
}

/// Where a value is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// It is this.
    Constant(i64),
    /// In a register.
    Register(Register),
    /// In memory of the process.
    Memory(Address),
    /// Nowhere that is understood: why (in lower case, without a full stop).
    Unreadable(String),
}

/// A register, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Register {
    /// Its number. What it means depends on the machine ([`crate::Machine::register_name`]).
    pub number: u8,
    /// The first byte of the part.
    pub first: u8,
    /// The bytes of the part.
    pub bytes: u8,
}

/// An address: the sum of its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// The number of a register.
    pub base: Option<u8>,
    /// The number of a register, and what its value is multiplied by: 1, 2, 4 or 8.
    pub index: Option<(u8, u8)>,
    /// The address of this symbol.
    pub symbol: Option<String>,
    /// The address of the site of the probe.
    pub from_site: bool,
    /// This number.
    pub offset: i64,
}

impl Address {
    /// The same address without the name of its symbol. `symbol` is the symbol's address, `site`
    /// that of the probe, both as in the file, so the result is right wherever the file is mapped.
    #[must_use]
    pub fn resolved(&self, symbol: u64, site: u64) -> Address {
        match self.symbol {
            None => self.clone(),
            Some(_) => {
                let distance = symbol.wrapping_sub(site) as i64;
                let offset = self.offset.wrapping_add(distance);
                Address { symbol: None, from_site: true, offset, ..self.clone() }
            }
        }
    }
}

impl Argument {
    /// An argument that cannot be read.
    pub fn unreadable(size: u8, signed: bool, why: impl Into<String>) -> Argument {
        Argument { size, signed, source: Source::Unreadable(why.into()) }
    }

    /// The name of its type in C.
    pub fn type_name(&self) -> &'static str {
        match (self.size, self.signed) {
            (1, true) => "int8_t",
            (1, false) => "uint8_t",
            (2, true) => "int16_t",
            (2, false) => "uint16_t",
            (4, true) => "int32_t",
            (4, false) => "uint32_t",
            (_, true) => "int64_t",
            (_, false) => "uint64_t",
        }
    }

    /// The value of which these are the 64 bits at its place: cut to its size, and extended by its
    /// sign.
    pub fn converted(&self, bits: u64) -> i64 {
        let unused = 64 - 8 * u32::from(self.size.clamp(1, 8));
        match self.signed {
            true => (bits << unused) as i64 >> unused,
            false => (bits << unused >> unused) as i64,
        }
    }
}
