//! Carrying the state into the initial file system that the kernel boots with (`-x initramfs`).
//!
//! ```text
//!  /etc/initramfs-tools/hooks/dtrace              copies the program and the state when one is made
//!  /etc/initramfs-tools/scripts/init-top/dtrace   starts the program as the first of what init does
//! ```
//!
//! Both are for `initramfs-tools`. They do nothing where the program or the state is gone: what is
//! left of dtrace must not keep a machine from making what it boots with.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use dtrace::diagnostics::{control, raw, system_text};

use super::place::{self, Places};

const HOOK: (&str, &str) = ("hooks/dtrace", include_str!("hook.sh"));
const SCRIPT: (&str, &str) = ("scripts/init-top/dtrace", include_str!("init-top.sh"));
const UPDATE: &str = "/usr/sbin/update-initramfs";

/// The word by which the script starts the program: see [`start`](super::start).
pub(crate) const WORD: &str = "--anonymous-start";

/// An error unless this program, on this machine, can be in an initramfs.
pub(crate) fn check(places: &Places) -> Result<(), String> {
    if !is_static() {
        return Err("-x initramfs: this program needs a loader and libraries, which an initramfs does not \
                    have: use the static program that is published"
            .into());
    }
    let tools = places.initramfs_tools();
    if !tools.is_dir() {
        return Err(format!(
            "-x initramfs: there is no {}: without initramfs-tools leave it out, and tracing begins with \
             the first services",
            tools.display()
        ));
    }
    Ok(())
}

/// Installs the hook, on a machine that was [checked](check). What was done, as messages.
pub(crate) fn install(places: &Places) -> Result<Vec<String>, String> {
    let me = std::env::current_exe().map_err(|e| format!("this program's file: {}", system_text(&e)))?;
    install_for(&me, places)
}

fn install_for(me: &Path, places: &Places) -> Result<Vec<String>, String> {
    let me = quoted(&raw::text(std::os::unix::ffi::OsStringExt::into_vec(me.as_os_str().to_owned())));
    let mut said = Vec::new();
    for (name, text) in [HOOK, SCRIPT] {
        let file = places.initramfs_tools().join(name);
        let text = text.replace("@PROGRAM@", &me).replace("@WORD@", WORD);
        let dir = file.parent().map_or(Ok(()), fs::create_dir_all);
        dir.and_then(|()| place::replace(&file, 0o755, |new| new.write_all(&raw::bytes(&text))))
            .map_err(|e| format!("failed to install a hook: {e}"))?;
        said.push(format!("added the hook {}", file.display()));
    }
    said.push(update(places)?);
    Ok(said)
}

/// Removes the hook, if it is there. What was done, as messages.
pub(crate) fn remove(places: &Places) -> Result<Vec<String>, String> {
    let mut said = Vec::new();
    for file in [HOOK, SCRIPT].map(|(name, _)| places.initramfs_tools().join(name)) {
        if place::remove(&file)? {
            said.push(format!("cleaned up the hook {}", file.display()));
        }
    }
    if !said.is_empty() {
        said.push(update(places)?);
    }
    Ok(said)
}

/// Makes the initial file system of the newest kernel anew.
fn update(places: &Places) -> Result<String, String> {
    if !places.is_real || !Path::new(UPDATE).exists() {
        return Ok("make the initramfs anew: update-initramfs -u".into());
    }
    let made = Command::new(UPDATE).arg("-u").stdin(Stdio::null()).output();
    let made = made.map_err(|e| format!("{UPDATE}: {}", system_text(&e)))?;
    if made.status.success() {
        return Ok("made the initramfs anew: update-initramfs -u".into());
    }
    let text = String::from_utf8_lossy(&made.stderr);
    let last = text.lines().next_back().unwrap_or_default();
    Err(format!("update-initramfs -u has failed ({}): {}", made.status, control::name_text(last)))
}

/// Whether this program runs without a loader.
fn is_static() -> bool {
    // SAFETY: it reads what the kernel gave to the process. The base of an interpreter is 0 where
    // there is none.
    unsafe { libc::getauxval(libc::AT_BASE) == 0 }
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Runs the hook as `mkinitramfs` does.
    fn run(hook: &Path, destination: &Path) -> bool {
        Command::new("sh").arg(hook).env("DESTDIR", destination).status().unwrap().success()
    }

    #[test]
    fn the_hook_copies_the_program_and_what_is_stored_and_nothing_when_that_is_gone() {
        let dir = testing::dir::Dir::new("initramfs-hook");
        let places = Places::under(&dir);
        let (program, hook) = (dir.join("a 'program'"), places.initramfs_tools().join(HOOK.0));
        place::private_dir(&places.stored()).unwrap();
        for name in ["enabling", "boots", "disabled"] {
            place::replace(&places.stored().join(name), 0o600, |_| Ok(())).unwrap();
        }
        place::replace(&program, 0o755, |new| new.write_all(b"it")).unwrap();
        let said = install_for(&program, &places).unwrap();
        assert!(said.len() == 3 && said[2].contains("update-initramfs -u"), "{said:?}");
        assert_eq!(hook.metadata().unwrap().permissions().mode() & 0o777, 0o755);
        let text = fs::read_to_string(&hook).unwrap();
        let stored = places.stored().display().to_string();
        let real = stored.strip_prefix(&dir.display().to_string()).unwrap().to_owned();
        // The machine's own directory is not read.
        fs::write(&hook, text.replace(&format!(" {real}"), &format!(" {stored}"))).unwrap();
        let (with, without) = (dir.join("with"), dir.join("without"));
        assert!(run(&hook, &with));
        assert_eq!(fs::read(with.join("usr/sbin/dtrace")).unwrap(), b"it");
        let copied = Places::under(&with);
        assert!(copied.enabling().exists());
        // The count of boots is the root's.
        assert!(!copied.stored().join("boots").exists() && !copied.stored().join("disabled").exists());
        fs::remove_file(program).unwrap();
        assert!(run(&hook, &without) && !without.exists());
        assert_eq!(remove(&places).unwrap().len(), 3);
        assert!(!hook.exists() && remove(&places).unwrap().is_empty());
    }

    #[test]
    fn a_program_with_a_loader_and_a_machine_without_the_tools_are_refused() {
        let dir = testing::dir::Dir::new("initramfs-none");
        let why = check(&Places::under(&dir)).unwrap_err();
        assert!(why.contains("use the static program") || why.contains("without initramfs-tools"), "{why}");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }
}
