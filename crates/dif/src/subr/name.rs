//! The subroutines by their names, for what need not know what they do.

/// A subroutine. Several D names for the same operation share one (`ntohs` is `htons`).
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subr {
    Args,
    Basename,
    Chill,
    Cleanpath,
    Commit,
    Container,
    DPath,
    DentryPath,
    Dirname,
    Discard,
    First,
    Fullpath,
    Getmajor,
    Getminor,
    Htonl,
    Htonll,
    Htons,
    Index,
    InetNtoa,
    InetNtoa6,
    InetNtop,
    Json,
    LinkNtop,
    Lltostr,
    Memstr,
    Mountpoint,
    Pod,
    Progenyof,
    Raise,
    Return,
    Rand,
    Rindex,
    SetChar,
    Speculation,
    Strchr,
    Strjoin,
    Strrchr,
    Strstr,
    Strtok,
    StrtokNext,
    Strtoll,
    Substr,
    Tail,
    Tolower,
    Toupper,
}

/// Selects a path of a `struct path`, or of a dentry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathOf {
    /// The file's path, as the process sees it.
    File,
    /// The path of the root of its mount.
    Mount,
    /// The file's path from the root of the mount namespace.
    Full,
    /// The path of a dentry in a mount, from the root of the mount namespace.
    Dentry,
}

/// What the kernel's structs tell by a walk through their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameOf {
    /// A path of a file.
    Path(PathOf),
    /// The container that a `struct cgroup` is in.
    Container,
    /// The pod that a `struct cgroup` is in.
    Pod,
}
