//! Exit statuses of the command.

/// An exit status.
pub(crate) struct ExitStatus {
    /// The number.
    pub(crate) code: u8,
    /// When the command ends with it, one sentence without its full stop; for the manual page.
    pub(crate) help: &'static str,
}

/// Nothing failed.
pub(crate) const SUCCESS: ExitStatus = ExitStatus {
    code: 0,
    help: "success, also where records were dropped or clauses faulted. A program that calls exit() gives the status \
           itself; the last exit() counts, that of END too",
};

/// Something failed.
pub(crate) const FAILURE: ExitStatus = ExitStatus {
    code: 1,
    help: "compiling, enabling or tracing failed, the output could not be written, or a second signal ended dtrace; of --check: \
           nothing can be traced here",
};

/// The command line is wrong.
pub(crate) const USAGE: ExitStatus = ExitStatus {
    code: 2,
    help: "the command line has an unknown option, or options that exclude each other",
};

/// Every status that the command gives by itself.
pub(crate) const TABLE: [&ExitStatus; 3] = [&SUCCESS, &FAILURE, &USAGE];
