//! `-C`: scripts go through the system's C preprocessor.
//!
//! The preprocessor is a program of the system, never a library of ours; where there is none, the
//! message says which package brings it. Its line markers (`# 12 "file"`) bring positions back to
//! the script.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use diagnostics::{control, raw};
use probes::Version;

use crate::options::{Conformance, Options};

/// The newest version of D; `-xversion` asks for an older one.
const VERSION: Version = Version::new(1, 13);

/// Names that D defines (reference: predefined macros with `-C`).
fn predefined(options: &Options) -> Vec<String> {
    let version = options.version.unwrap_or(VERSION).number();
    let mut names =
        vec!["__SUNW_D=1".to_string(), format!("__SUNW_D_VERSION={version:#010x}"), "__SUNW_D_64".into()];
    names.extend(["__unix", "__SVR4", "__linux", system::arch::MACRO, "__Linux"].map(String::from));
    names
}

/// Words of GNU C in the system's headers that D does not have. They are defined away.
const PLAIN: [&str; 9] = [
    "__attribute__(xyz)=",
    "__extension__=",
    "__restrict=",
    "__inline=",
    "__inline__=",
    "__signed__=signed",
    "__volatile__=volatile",
    "__const=const",
    "__builtin_va_list=void *",
];

/// The preprocessor. A name without a slash is looked for in the directories of `PATH` that are
/// absolute: a `.` or an empty word in it stands for the current directory, where anybody may have
/// put a `cpp`.
fn find(named: &[u8]) -> Option<PathBuf> {
    let named = Path::new(OsStr::from_bytes(named));
    if named.as_os_str().as_bytes().contains(&b'/') {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let runs = |file: &PathBuf| {
        let attributes = std::fs::metadata(file);
        attributes.is_ok_and(|a| a.is_file() && a.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(named)).find(runs)
}

/// Where `#include "x"` looks first: the script's directory, and not the current one.
fn directory(script: &str) -> OsString {
    let script = raw::bytes(script);
    match script.iter().rposition(|b| *b == b'/') {
        None => ".".into(),
        Some(0) => "/".into(),
        Some(end) => OsString::from_vec(script.get(..end).unwrap_or_default().to_vec()),
    }
}

/// Runs a script through the preprocessor.
pub(crate) fn preprocess(name: &str, text: &str, options: &Options) -> Result<String, String> {
    let named = &options.cpppath;
    let program = control::name_text(named);
    let missing = || {
        format!(
            "Preprocessor not found: {program} (Debian's package cpp has it; -xcpppath names another one)"
        )
    };
    let mut command = Command::new(find(&raw::bytes(named)).ok_or_else(missing)?);
    match options.stdc {
        Conformance::S => command.arg("-traditional-cpp"),
        _ => &mut command,
    };
    command.arg("-U__GNUC__");
    for define in PLAIN {
        command.arg("-D").arg(define);
    }
    for define in predefined(options).iter().chain(&options.define) {
        command.arg("-D").arg(define);
    }
    for undef in &options.undef {
        command.arg("-U").arg(undef);
    }
    for dir in &options.incdir {
        command.arg("-I").arg(dir);
    }
    command.arg("-iquote").arg(directory(name));
    let headers = options.cpphdrs;
    if headers {
        command.arg("-H");
    }
    command.args(&options.cppargs);
    // The user sees the list of headers. Other messages are printed after a failure.
    let errors = if headers { Stdio::inherit() } else { Stdio::piped() };
    // Of a file that is called "-", the preprocessor takes the current directory for its directory.
    command.arg("/proc/self/fd/0").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
    let mut child = bpf_sys::with_original_fd_limit(&mut command).spawn().map_err(|e| {
        if e.kind() == std::io::ErrorKind::NotFound { missing() } else { format!("{program}: {e}") }
    })?;
    // What precedes the D text is not cpp's. The marker keeps the numbers of the lines, and gives
    // the text its name.
    let (head, body) = text.split_at(syntax::script_start(text));
    let first = head.matches('\n').count() + 1;
    let name = control::name_text(name);
    let input = format!("# {first} \"{name}\"\n{body}");
    let mut stdin = child.stdin.take();
    let feeder = threads::spawn("cpp", threads::LARGE_STACK, move || {
        if let Some(pipe) = stdin.as_mut() {
            // A preprocessor that stops reading reports the reason.
            let _ = pipe.write_all(&raw::bytes(&input));
        }
    });
    let out = child.wait_with_output().map_err(|e| format!("{program}: {e}"))?;
    let _ = feeder.map_err(|e| format!("{program}: {e}"))?.join();
    if !out.status.success() {
        let why = String::from_utf8_lossy(&out.stderr);
        return Err(format!("failed to preprocess {name}:\n{}", why.trim_end()));
    }
    Ok(raw::text(out.stdout))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn have_cpp() -> bool {
        let there = Command::new("cpp").arg("--version").stdout(Stdio::null()).status().is_ok();
        if !there {
            testing::skipped!("this machine has no C preprocessor");
        }
        there
    }

    #[test]
    fn defined_names_are_replaced_and_lines_keep_their_file_name() {
        if !have_cpp() {
            return;
        }
        let mut o = Options::default();
        o.set("define", Some("ANSWER=42")).unwrap();
        let text = preprocess(
            "x.d",
            "#!/usr/sbin/dtrace -s\n#ifdef __linux\nBEGIN { trace(ANSWER); }\n#endif\n",
            &o,
        );
        let text = text.unwrap();
        assert!(text.contains("trace(42)"), "{text}");
        assert!(text.contains("\"x.d\""), "{text}");
    }

    #[test]
    fn a_missing_preprocessor_is_named() {
        let mut o = Options::default();
        o.set("cpppath", Some("/nonexistent/cpp")).unwrap();
        assert!(
            preprocess("x.d", "", &o).unwrap_err().starts_with("Preprocessor not found: /nonexistent/cpp")
        );
    }

    #[test]
    fn an_error_of_the_preprocessor_is_shown() {
        if have_cpp() {
            let e = preprocess("x.d", "#error broken\n", &Options::default()).unwrap_err();
            assert!(e.contains("broken"), "{e}");
        }
    }
}
