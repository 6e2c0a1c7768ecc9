//! All targets, for who runs them without libFuzzer: this file is a module of `exercise`'s tests
//! and of its example `fuzz`.

use exercise::fuzz::Target;

/// The targets. They are roots of crates elsewhere, and have no main function there.
#[allow(unused_attributes, clippy::module_inception, clippy::indexing_slicing)]
#[path = "fuzz_targets"]
mod targets {
    pub(crate) mod answers;
    pub(crate) mod calls;
    pub(crate) mod capture;
    pub(crate) mod check;
    pub(crate) mod debugfiles;
    pub(crate) mod debuginfo;
    pub(crate) mod definition;
    pub(crate) mod dof;
    pub(crate) mod events;
    pub(crate) mod frames;
    pub(crate) mod functions;
    pub(crate) mod image;
    pub(crate) mod kallsyms;
    pub(crate) mod lines;
    pub(crate) mod perfmap;
    pub(crate) mod postmortem;
    pub(crate) mod procfs;
    pub(crate) mod programs;
    pub(crate) mod requests;
    pub(crate) mod rings;
    pub(crate) mod served;
    pub(crate) mod sideband;
    pub(crate) mod syntax;
    pub(crate) mod text;
    pub(crate) mod tracefs;
    pub(crate) mod usdt;
}

/// Each by its name.
pub(crate) const TARGETS: &[(&str, Target)] = &[
    ("answers", targets::answers::run),
    ("calls", targets::calls::run),
    ("capture", targets::capture::run),
    ("check", targets::check::run),
    ("debugfiles", targets::debugfiles::run),
    ("debuginfo", targets::debuginfo::run),
    ("definition", targets::definition::run),
    ("dof", targets::dof::run),
    ("events", targets::events::run),
    ("frames", targets::frames::run),
    ("functions", targets::functions::run),
    ("image", targets::image::run),
    ("kallsyms", targets::kallsyms::run),
    ("lines", targets::lines::run),
    ("perfmap", targets::perfmap::run),
    ("postmortem", targets::postmortem::run),
    ("procfs", targets::procfs::run),
    ("programs", targets::programs::run),
    ("requests", targets::requests::run),
    ("rings", targets::rings::run),
    ("served", targets::served::run),
    ("sideband", targets::sideband::run),
    ("syntax", targets::syntax::run),
    ("text", targets::text::run),
    ("tracefs", targets::tracefs::run),
    ("usdt", targets::usdt::run),
];
