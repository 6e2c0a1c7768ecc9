//! What a description can name of one process, for a user who waits at a prompt. Nothing is tried
//! of the kernel, held or remembered.

use probes::{FIELD_LIMITS, FieldKind, MatchError, Pattern, glob_matches};
use symbols::{Processes, Readers};
use usdt::{probe_name, provider_name};

use crate::process::object::cut;
use crate::process::read::{PROMPT, read_objects};

/// The function of a site where the file has no symbol.
pub(super) const NO_FUNCTION: &str = "-";

/// The memory of the reader.
const MEMORY: u64 = 256 << 20;

/// Calls with what a field of the probes of a process is that a pattern matches.
pub(super) fn names(
    pid: u32,
    pattern: &Pattern,
    field: FieldKind,
    readers: &Readers,
    give: &mut dyn FnMut(&str),
) -> Result<(), MatchError> {
    let mut symbols = Processes::new(readers);
    symbols.set_limits(PROMPT, MEMORY);
    for object in read_objects(pid, &mut symbols)? {
        if !object.is_called(&pattern.module) {
            continue;
        }
        let described = symbols.described_probes(object.text.file).unwrap_or_default();
        for site in &described.sites {
            let (Some(provider), Some(name)) = (provider_name(&site.provider), probe_name(&site.name)) else {
                continue;
            };
            let provider = format!("{provider}{pid}");
            let function = site.function.as_ref().map_or(NO_FUNCTION, |(name, _)| cut(name, FIELD_LIMITS[2]));
            let fields = [&provider, &*object.name, function, &name];
            let globs = [&*pattern.provider, "", &*pattern.function, &*pattern.name];
            if globs.iter().zip(fields).all(|(glob, text)| glob_matches(glob, text)) {
                give(match field {
                    FieldKind::Provider => &provider,
                    FieldKind::Module => &object.name,
                    FieldKind::Function => function,
                    FieldKind::Name => &name,
                });
            }
        }
    }
    Ok(())
}
