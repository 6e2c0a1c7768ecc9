//! What a capture contains.

/// What was captured, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The version of the tracer.
    pub tracer: String,
    /// The name of the machine.
    pub host: String,
    /// The release of its kernel.
    pub release: String,
    /// Its architecture.
    pub machine: String,
    /// CPUs that were online.
    pub cpus: u32,
    /// When the capture began: nanoseconds of the clock of `timestamp`, and since 1970.
    pub clock: (u64, u64),
    /// What the macro variable `$target` was; 0 if nothing.
    pub target: u64,
    /// The script, as its author wrote it.
    pub script: String,
    /// The probes, by number: their ids, and their names with colons.
    pub probes: Vec<(u32, String)>,
}

/// A built-in variable with a number.
///
/// The numbers in files are those of [`Word::code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Word {
    /// `pid`
    Pid,
    /// `ppid`
    Ppid,
    /// `tid`
    Tid,
    /// `uid`
    Uid,
    /// `gid`
    Gid,
    /// `walltimestamp`
    Wall,
    /// `vtimestamp`
    CpuTime,
    /// `errno`
    Errno,
    /// `ipl`
    Level,
    /// The thread is not one of the kernel's.
    UserThread,
    /// `curthread`
    CurThread,
    /// `arg0` and so on.
    Arg(u8),
    /// `uregs[]`
    Register(u8),
    /// `caller`
    Caller,
    /// `ucaller`
    Ucaller,
    /// `stackdepth`
    StackDepth,
    /// `ustackdepth`
    UstackDepth,
}

impl Word {
    const PLAIN: [Word; 15] = [
        Word::Pid,
        Word::Ppid,
        Word::Tid,
        Word::Uid,
        Word::Gid,
        Word::Wall,
        Word::CpuTime,
        Word::Errno,
        Word::Level,
        Word::UserThread,
        Word::CurThread,
        Word::Caller,
        Word::Ucaller,
        Word::StackDepth,
        Word::UstackDepth,
    ];
    const ARGS: u8 = 64;
    const REGISTERS: u8 = 128;

    /// Its number in files.
    pub fn code(self) -> u8 {
        match self {
            Word::Arg(n) => Word::ARGS + n % 64,
            Word::Register(n) => Word::REGISTERS + n % 64,
            plain => (0..).zip(Word::PLAIN).find(|(_, word)| *word == plain).map_or(0, |(code, _)| code),
        }
    }

    /// The variable with a number; `None` if it is unknown.
    pub fn of_code(code: u8) -> Option<Word> {
        match code {
            Word::ARGS..Word::REGISTERS => Some(Word::Arg(code - Word::ARGS)),
            Word::REGISTERS..192 => Some(Word::Register(code - Word::REGISTERS)),
            plain => Word::PLAIN.get(usize::from(plain)).copied(),
        }
    }
}

/// A firing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Firing {
    /// The number of its probe in the head.
    pub probe: u32,
    /// `timestamp`
    pub time: u64,
    /// `cpu`
    pub cpu: u32,
    /// The variables that were read.
    pub words: Vec<(Word, u64)>,
    /// `execname`, if it was read; it is never unreadable.
    pub execname: Option<Content>,
    /// The memory that was read.
    pub memory: Vec<Region>,
    /// The stack of the kernel, if it was taken; innermost first.
    pub stack: Option<Vec<Symbol>>,
    /// That of the process.
    pub ustack: Option<Vec<Symbol>>,
    /// Names of other addresses: of each the process, or `None` for the kernel.
    pub symbols: Vec<(Option<u32>, Symbol)>,
}

impl Firing {
    /// The memory that it takes, in bytes: of what it read, and of its stacks and names.
    pub(crate) fn size(&self) -> usize {
        let regions = self.memory.iter().map(|region| region.content.len() + size_of::<Region>());
        let named = self.symbols.iter().map(|(_, symbol)| symbol);
        let symbols = self.stack.iter().chain(&self.ustack).flatten().chain(named).map(Symbol::size);
        regions.chain(symbols).fold(0, usize::saturating_add)
    }
}

impl Symbol {
    fn size(&self) -> usize {
        let texts = [&self.module, &self.symbol, &self.path];
        size_of::<Symbol>() + texts.into_iter().flatten().map(Vec::len).sum::<usize>()
    }
}

/// An address with its name when it was captured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbol {
    /// The address.
    pub address: u64,
    /// The module, or the file of a process.
    pub module: Option<Vec<u8>>,
    /// The symbol.
    pub symbol: Option<Vec<u8>>,
    /// The path of the file.
    pub path: Option<Vec<u8>>,
    /// From the symbol.
    pub offset: u64,
    /// The address in the file, where the symbol is not known.
    pub in_file: Option<u64>,
}

/// Memory that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Whose.
    pub place: Place,
    /// Where it begins.
    pub address: u64,
    /// What was there.
    pub content: Content,
}

/// Whose memory, or what is made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// The kernel's.
    Kernel,
    /// That of the process in which the probe fired.
    User,
    /// The path of a `struct path` of the kernel.
    Path,
    /// The same from the root of all mounts.
    FullPath,
    /// The place at which its mount is.
    MountPath,
    /// The path of a `struct dentry`.
    DentryPath,
    /// Whether the process descends from the one whose id is the address: a byte, 0 or 1.
    Ancestor,
    /// The arguments of the process from an address in its memory on, with spaces between them.
    Arguments,
    /// The container that a `struct cgroup` is in.
    Container,
    /// The pod that a `struct cgroup` is in.
    Pod,
}

impl Place {
    /// All, by their numbers in files.
    pub const ALL: [Place; 10] = [
        Place::Kernel,
        Place::User,
        Place::Path,
        Place::FullPath,
        Place::MountPath,
        Place::DentryPath,
        Place::Ancestor,
        Place::Arguments,
        Place::Container,
        Place::Pod,
    ];

    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Place::Kernel => "kernel",
            Place::User => "user",
            Place::Path => "path",
            Place::FullPath => "full",
            Place::MountPath => "mount",
            Place::DentryPath => "dentry",
            Place::Ancestor => "ancestor",
            Place::Arguments => "arguments",
            Place::Container => "container",
            Place::Pod => "pod",
        }
    }
}

/// What was in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// These bytes.
    Bytes(Vec<u8>),
    /// These bytes, and more of which nothing is known: a text that was cut.
    Start(Vec<u8>),
    /// It could not be read.
    Unreadable,
}

impl Content {
    /// The bytes that are known, and whether more follow; `None` if it could not be read.
    pub fn known(&self) -> Option<(&[u8], bool)> {
        match self {
            Content::Bytes(bytes) => Some((bytes, false)),
            Content::Start(bytes) => Some((bytes, true)),
            Content::Unreadable => None,
        }
    }

    /// The same, for good.
    pub fn into_known(self) -> Option<(Vec<u8>, bool)> {
        match self {
            Content::Bytes(bytes) => Some((bytes, false)),
            Content::Start(bytes) => Some((bytes, true)),
            Content::Unreadable => None,
        }
    }

    /// How many bytes are known.
    pub(crate) fn len(&self) -> usize {
        self.known().map_or(0, |(bytes, _)| bytes.len())
    }
}

/// Something that is missing in a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// What, in words.
    pub what: String,
    /// How often.
    pub count: u64,
}

/// The last moments of a session, and why they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Each firing from this time on, until the next one, is in the capture; by the clock of
    /// `timestamp`.
    pub from: u64,
    /// The last moment.
    pub until: u64,
    /// The same in nanoseconds since 1970.
    pub wall: u64,
    /// Why it was written, as who asked for it said it.
    pub reason: Vec<u8>,
}
