//! Questions and answers.

/// Maximum length of a name. Longer ones (of C++ templates) are cut.
pub const MAX_NAME: usize = 1024;

/// Why debug information cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// It is malformed, or of a kind that is not read: the reason.
    Malformed(String),
    /// An answer would need more than the limits allow.
    Large,
    /// The name means several different things.
    Ambiguous(String),
}

/// The most entries that are looked at for one name.
pub(crate) const MAX_CANDIDATES: usize = 4096;

/// Names for a message, each once.
pub(crate) fn in_order(names: impl Iterator<Item = String>) -> Vec<String> {
    const MAX_NAMES: usize = 256;
    let mut names: Vec<String> = names.take(MAX_CANDIDATES).collect();
    names.sort_unstable();
    names.dedup();
    names.truncate(MAX_NAMES);
    names
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Malformed(why) => write!(f, "malformed debug information: {why}"),
            Error::Large => f.write_str("the debug information is larger than the limits"),
            Error::Ambiguous(name) => {
                write!(f, "units of the program have different things of the name {name}")
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<gimli::Error> for Error {
    fn from(error: gimli::Error) -> Error {
        Error::Malformed(error.to_string())
    }
}

/// Reads the sections of a file by their names. One that does not exist is empty.
pub type Load<'a, E> = &'a mut dyn FnMut(&str) -> Result<Vec<u8>, E>;

/// What a name is the name of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameKind {
    /// A struct or class.
    Struct,
    /// A union.
    Union,
    /// An enumeration.
    Enum,
    /// A typedef.
    Typedef,
    /// A variable outside of functions.
    Variable,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Query {
    /// The function at an address of the file; if no entry has the address, the one that has this
    /// name.
    Function {
        /// The address.
        address: u64,
        /// The name, as in the symbol table.
        name: String,
    },
    /// A type or variable by name. Names of scopes are joined by `::`.
    Name(NameKind, String),
    /// A type by the number that an answer gave it.
    Entry(u64),
    /// Names of this kind with this beginning, for messages.
    Like(NameKind, String),
}

/// Where a parameter of a function is when the function is entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is `argN`.
    Argument(u8),
    /// It is the object at the address `argN`.
    Object(u8),
    /// It is an object whose parts are arguments.
    Parts(Vec<ObjectPart>),
    /// It is nowhere where a program in the kernel can read it, and why.
    Unreadable(String),
}

/// A number or pointer of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectPart {
    /// From the beginning of the object.
    pub offset: u32,
    /// 1, 2, 4 or 8 bytes.
    pub size: u8,
    /// It is `argN`.
    pub argument: u8,
}

/// The answer to a question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Types, as BTF.
    pub btf: Vec<u8>,
    /// The type that was asked for: of a function its prototype, of a variable its type. 0 is
    /// `void`. `None` if there is no such name.
    pub found: Option<u32>,
    /// The types in `btf` that are only named, with the numbers of their entries.
    pub cuts: Vec<(u32, u64)>,
    /// Of a function, the places of its parameters. Those of a language with several results
    /// follow.
    pub places: Vec<Place>,
    /// So many of the places, the last ones, are of results when the function returns. They are
    /// parameters of the prototype.
    pub results: u32,
    /// Of a variable, its address in the file.
    pub address: Option<u64>,
    /// Names, if they were asked for.
    pub names: Vec<String>,
}
