//! Names of providers that end like those of process probes and are none.

use diagnostics::Tag;

use crate::catalog::{Catalog, MatchError};
use crate::desc::Pattern;
use crate::family::number;
use diagnostics::glob::is_glob;

/// Why a description means no process, although its provider ends with digits: they are no process
/// id, or nothing is before them.
pub fn misnamed(pattern: &Pattern, catalog: &dyn Catalog) -> Option<MatchError> {
    let name = pattern.provider.as_str();
    let (prefix, digits) =
        name.split_at_checked(name.trim_end_matches(|c: char| c.is_ascii_digit()).len())?;
    let has_process = digits.is_empty() || number(digits).is_some_and(|pid| pid > 0 && !prefix.is_empty());
    if has_process || is_glob(name) {
        return None;
    }
    // A provider may have a number in its only name.
    if catalog.families().iter().any(|family| !family.is_of_processes() && family.prefix() == name) {
        return None;
    }
    if prefix.is_empty() {
        let error = MatchError::new(format!("'{name}' is not a valid provider")).tagged(Tag::D_PROC_BADPROV);
        return Some(error.with_help("the name of a provider is before the process id, as in pid1234"));
    }
    let help = match digits.trim_start_matches('0') {
        "" => "$target is 0 without -c and -p".into(),
        rest if rest != digits => format!("a process id has no zeros before it: {prefix}{rest}"),
        _ => format!("a process id is at most {}", u32::MAX),
    };
    let error = MatchError::new(format!("'{name}' does not contain a valid pid"));
    Some(error.tagged(Tag::D_PROC_BADPID).with_help(help))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::ListCatalog;
    use crate::desc::ProbeDesc;

    #[test]
    fn a_name_without_a_process_is_told_from_one_without_a_provider() {
        let mut catalog = ListCatalog::default();
        catalog.add(ProbeDesc::new("odd0", "", "", "probe"));
        let tag = |name: &str| {
            let pattern = Pattern { provider: name.into(), ..Pattern::default() };
            misnamed(&pattern, &catalog).and_then(|e| e.tag)
        };
        for name in ["pid0", "tst0", "pid00", "pid01", "pid4294967296", "pid99999999999999999999"] {
            assert_eq!(tag(name), Some(Tag::D_PROC_BADPID), "{name}");
        }
        assert_eq!((tag("0"), tag("123")), (Some(Tag::D_PROC_BADPROV), Some(Tag::D_PROC_BADPROV)));
        for name in ["", "pid", "pid1", "pid12x", "pid*0", "pid4194305", "odd0"] {
            assert_eq!(tag(name), None, "{name}");
        }
    }
}
