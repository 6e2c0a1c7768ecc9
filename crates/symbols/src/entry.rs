//! The entry point of the [reader](crate::reader) process. The session executes its own executable
//! again. Code that runs before `main` finds an environment variable and serves requests instead.
//!
//! **Why the executable is executed again.** A reader needs its own address space and descriptors.
//! A child of `fork` without `exec` would share those of the session. An abandoned reader, blocked
//! on a dead file server, would keep every BPF program, map and link of the session in the kernel,
//! and the memory of the program that embeds this library. After a `fork` of a multi-threaded
//! process, moreover, only async-signal-safe functions may be called. A separate helper executable
//! would have to be built, installed and found. `/proc/self/exe` always exists and has the right
//! version, and `posix_spawn` of it is safe in a multi-threaded process.
//!
//! **Why before `main`.** The `main` of a program that embeds this library does not know about
//! readers. A function in `.init_array` runs in every executable that this crate is linked into,
//! after the C library is initialized and before `main`. It costs one lookup in the environment.
//!
//! **In a shared object** (the library for C, an extension of a scripting language) executing the
//! executable again would run a different program. Whoever embeds it names an executable that this
//! crate is linked into: the `dtrace` command is one ([`Readers::executed`], [`reader_on_path`]).
//! Nothing is looked for without being asked: a library that executes what it finds would surprise
//! a program with privileges. Without one there is no reader, and addresses of processes are shown
//! as numbers. `.init_array` of a shared object runs when it is loaded, in a process that is
//! another program: it never becomes a reader, whatever its environment.
//!
//! **Versions.** The variable has the [version](VERSION) of whoever starts a reader, and another
//! version refuses: the packets of both may differ. When an executable is named, it is asked for
//! its version first, so that a wrong one is an error there and not a lack of names later.
//!
//! [`Readers::executed`]: crate::Readers::executed

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::reader;
use crate::sys;
use proc::maps;

/// The environment variable that makes a process a reader. Its value is the version of whoever
/// starts it and the limit of the reader's memory in bytes, or [`ASK`].
const VARIABLE: &str = "DTRACE_SYMBOL_READER";
const VARIABLE_C: &std::ffi::CStr = c"DTRACE_SYMBOL_READER";

/// The executable writes its version to standard output and ends.
const ASK: &str = "?";

/// How long an executable that was named may take to tell its version.
const PATIENCE: Duration = Duration::from_secs(10);

/// The same for each that is looked at in `PATH`, while a session waits to begin.
const PATIENCE_ON_PATH: Duration = Duration::from_secs(2);

/// The executable of a reader.
const SELF: &str = "/proc/self/exe";

/// The version, and what tells the protocols of two builds of one version apart: a number of the
/// sources that encode packets.
pub(crate) fn version() -> String {
    format!("{}-{PROTOCOL:016x}", env!("CARGO_PKG_VERSION"))
}

const PROTOCOL: u64 = {
    let mut sources: &[&[u8]] = &[
        include_bytes!("wire.rs"),
        include_bytes!("wire/codec.rs"),
        include_bytes!("wire/functions.rs"),
        include_bytes!("wire/lines.rs"),
        include_bytes!("wire/list.rs"),
        include_bytes!("wire/mappings.rs"),
        include_bytes!("wire/types.rs"),
        include_bytes!("wire/usdt.rs"),
        include_bytes!("entry.rs"),
    ];
    // FNV-1a.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    while let [source, rest @ ..] = sources {
        sources = rest;
        let mut source = *source;
        while let [byte, rest @ ..] = source {
            hash = (hash ^ *byte as u64).wrapping_mul(0x0100_0000_01b3);
            source = rest;
        }
    }
    hash
};

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// Runs before `main`.
extern "C" fn begin() {
    // SAFETY: the name ends in NUL. The value is copied before anything else runs. In an executable
    // no other thread exists yet that could change the environment.
    let value = unsafe {
        let value = libc::getenv(VARIABLE_C.as_ptr());
        if value.is_null() {
            return;
        }
        std::ffi::CStr::from_ptr(value).to_string_lossy().into_owned()
    };
    if !is_in_executable().unwrap_or(false) {
        return;
    }
    // It may have been executed from a thread that blocks them.
    threads::accept_signals();
    let done = match value.as_str() {
        ASK => sys::tell(version().as_bytes()),
        other => {
            let memory = other.split_once(' ').filter(|(of, _)| *of == version());
            let memory = memory.and_then(|(_, memory)| memory.parse().ok());
            memory.is_some_and(|memory| reader::serve(sys::standard_input(), memory).is_ok())
        }
    };
    // SAFETY: ends the process without exit handlers. The executable's `main` has not started.
    unsafe { libc::_exit(i32::from(!done)) };
}

/// The command that begins a reader, of the executable that was named or of this one. `Err`: why
/// there can be no reader.
pub(crate) fn command(named: Option<&Path>, memory: u64) -> io::Result<Command> {
    if named.is_none() && !is_in_executable()? {
        return Err(io::Error::other("the library is in a shared object, and no reader was named"));
    }
    let mut command = Command::new(named.unwrap_or(Path::new(SELF)));
    command.env(VARIABLE, format!("{} {memory}", version()));
    Ok(command)
}

/// Asks an executable whether it can be a reader for this version of the crate. `Err`: why not.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    check_within(path, PATIENCE)
}

fn check_within(path: &Path, patience: Duration) -> io::Result<()> {
    let (ours, theirs) = (version(), version_of(path, patience)?);
    let why = match theirs.is_empty() {
        true => "it is not the dtrace command, or an older one".to_owned(),
        false if theirs == ours => return Ok(()),
        false => format!("it has the version {theirs}, and this library {ours}"),
    };
    Err(io::Error::other(format!("{} cannot read symbols for this library: {why}", path.display())))
}

/// The version that an executable tells; empty if it tells none in this time. Nothing of what it
/// has started is left.
fn version_of(path: &Path, patience: Duration) -> io::Result<String> {
    const LONGEST: usize = 256;
    let mut command = Command::new(path);
    command.env(VARIABLE, ASK).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.process_group(0).spawn()?;
    let (mut told, end) = (Vec::new(), Instant::now() + patience);
    if let Some(mut output) = child.stdout.take() {
        let mut part = [0; LONGEST];
        while told.len() < LONGEST {
            let left = end.saturating_duration_since(Instant::now());
            match sys::wait_for(output.as_fd(), false, left) {
                Ok(Some(true)) => {}
                Ok(None) if !left.is_zero() => continue,
                _ => break,
            }
            match output.read(&mut part) {
                Ok(count @ 1..) => told.extend(part.iter().take(count)),
                _ => break,
            }
        }
    }
    // It has told what it has to tell, or is something else. Its group is its own, and stays until
    // it is waited for.
    if let Ok(group) = i32::try_from(child.id()) {
        // SAFETY: a plain system call.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    let _ = child.kill();
    let _ = child.wait();
    let told = String::from_utf8_lossy(&told).into_owned();
    let is_version = told.len() < LONGEST && told.chars().all(|c| c.is_ascii_graphic());
    Ok(if is_version { told } else { String::new() })
}

/// The first `dtrace` in the directories of `PATH` that can be a reader for this version. Each one
/// that is there is executed to be asked, so this is for a program that would execute `dtrace` from
/// its `PATH` too. Relative directories, what others than root and this user may have written, and
/// a process with more privileges than whoever has started it, are left out.
pub fn reader_on_path() -> Option<PathBuf> {
    // SAFETY: no memory is passed.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return None;
    }
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).filter(|dir| dir.is_absolute()).map(|dir| dir.join("dtrace"));
    let mut there = found.filter(|file| is_safe(file));
    there.find(|file| check_within(file, PATIENCE_ON_PATH).is_ok())
}

/// True for a file that nobody but root and this user, and their groups, can have written or put
/// there.
fn is_safe(file: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    // SAFETY: plain system calls.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let is_ours = |m: &std::fs::Metadata| {
        let is_of_group = m.gid() == 0 || m.gid() == group;
        let others = if is_of_group { 0o002 } else { 0o022 };
        (m.uid() == 0 || m.uid() == user) && m.mode() & others == 0
    };
    let directory = file.parent().and_then(|dir| dir.metadata().ok());
    file.metadata().is_ok_and(|m| m.is_file() && is_ours(&m)) && directory.is_some_and(|m| is_ours(&m))
}

/// True when this code is mapped from the same file as the program headers of the executable
/// (`AT_PHDR`).
fn is_in_executable() -> io::Result<bool> {
    // SAFETY: no memory is passed.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) };
    let map = maps::parse(&std::fs::read("/proc/self/maps")?);
    let file = |addr: u64| maps::find(&map.mappings, addr).map(|m| m.backing);
    let here = file(begin as extern "C" fn() as usize as u64);
    Ok(here.is_some() && here == file(headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_may_have_written_is_not_executed() {
        use std::os::unix::fs::PermissionsExt;
        let dir = std::env::temp_dir().join(format!("dtrace-entry-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let file = dir.join("dtrace");
        std::fs::write(&file, "").unwrap();
        let set = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
        let safe = [(0o755, 0o755), (0o777, 0o755), (0o755, 0o757)].map(|(of_dir, of_file)| {
            set(&dir, of_dir).and_then(|()| set(&file, of_file)).unwrap();
            is_safe(&file)
        });
        assert_eq!(safe, [true, false, false]);
        assert!(!is_safe(&dir) && !is_safe(&dir.join("none")));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    fn has(command: &Command, value: &str) -> bool {
        command.get_envs().any(|(name, of)| name == VARIABLE && of.is_some_and(|of| of == value))
    }

    #[test]
    fn a_test_is_an_executable_that_can_be_run_again() {
        let command = command(None, 5).unwrap();
        assert_eq!(command.get_program(), "/proc/self/exe");
        assert!(has(&command, &format!("{} 5", version())));
    }

    #[test]
    fn an_executable_with_this_crate_is_a_reader_and_others_are_not() {
        let me = std::env::current_exe().unwrap();
        check(&me).unwrap();
        assert_eq!(command(Some(&me), 5).unwrap().get_program(), me);
        for other in ["/bin/true", "/bin/cat", "/bin/sh", "/bin/env"] {
            let why = check(Path::new(other)).unwrap_err().to_string();
            assert!(why.starts_with(other) && why.contains("not the dtrace command"), "{why}");
        }
        assert_eq!(check(Path::new("/no/such")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn an_executable_that_hangs_is_ended_with_all_that_it_has_started() {
        use std::os::unix::fs::PermissionsExt;
        let dir = std::env::temp_dir().join(format!("dt-entry-hangs-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (script, started) = (dir.join("dtrace"), dir.join("started"));
        let text =
            format!("#!/bin/sh\nsleep 6000 &\necho $! >{0}.new; mv {0}.new {0}; wait\n", started.display());
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        // It may be slow to begin.
        let child = testing::eventually("a child of the script", testing::HANG_LIMIT, || {
            assert_eq!(version_of(&script, Duration::from_millis(200)).unwrap(), "");
            std::fs::read_to_string(&started).ok()
        });
        let stat = format!("/proc/{}/stat", child.trim());
        testing::eventually("the end of the child", testing::HANG_LIMIT, || {
            let stat = std::fs::read_to_string(&stat).unwrap_or_default();
            stat.rsplit(')').next().is_none_or(|rest| rest.is_empty() || rest.trim().starts_with('Z'))
        });
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// Nothing is read from the socket of a client of another version.
    #[test]
    fn a_reader_refuses_another_version() {
        for value in ["268435456", "0.0.0-0 268435456", "", &version()] {
            let mut me = Command::new(std::env::current_exe().unwrap());
            let status = me.env(VARIABLE, value).stdin(Stdio::null()).status().unwrap();
            assert_eq!(status.code(), Some(1), "{value:?}");
        }
    }

    #[test]
    fn an_executable_of_another_version_is_named_with_both_versions() {
        let dir = std::env::temp_dir().join(format!("dt-entry-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let script = dir.join("dtrace");
        std::fs::write(&script, "#!/bin/sh\nprintf 9.9.9-0\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&script, mode).unwrap();
        let why = check(&script).unwrap_err().to_string();
        assert!(why.contains("9.9.9-0") && why.contains(&version()), "{why}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
