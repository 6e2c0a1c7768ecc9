//! Compilers that remember: a directory of links to this program that stands before the compilers
//! in the tests' `PATH`.
//!
//! The end-to-end tests compile the programs that they trace. In an emulated guest that takes 4 s
//! for a program in C and 20 s for one in C++, and the same programs are compiled on this machine
//! and in each guest. Called by a compiler's name, this program hands out what was compiled before,
//! in `target/compiled`, where all that decides the result is equal: the compiler, its options, and
//! the names and contents of the files that it was given and that it can include. Whatever it does
//! not understand, it leaves to the compiler, as it does when the result cannot be kept: guests
//! read what this machine has compiled, and keep nothing.
//!
//! One difference is left: debug information says in which directory a program was compiled, and
//! that is the directory of the first time. A test to which that matters names its directory in an
//! option.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The names that this program answers to.
const NAMES: [&str; 4] = ["cc", "c++", "gcc", "g++"];

/// The endings of files that are compiled or included.
const SOURCES: [&str; 7] = ["c", "cc", "h", "hh", "hpp", "inc", "s"];

/// More words than any test gives: a compiler that links a program of Rust.
const MOST_WORDS: usize = 40;

/// Options whose result is not one file.
const SEVERAL_FILES: [&str; 5] = ["-M", "-gsplit-dwarf", "-save-temps", "--coverage", "-fprofile"];

/// The directory of the links.
pub(crate) fn dir() -> PathBuf {
    crate::test::target_dir().join("compilers")
}

/// Makes the links.
pub(crate) fn link() -> Result<(), String> {
    let dir = dir();
    let program = crate::own_program()?;
    let to_error = |e| format!("{}: {e}", dir.display());
    fs::create_dir_all(&dir).map_err(to_error)?;
    for name in NAMES {
        let link = dir.join(name);
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&program, &link).map_err(to_error)?;
    }
    Ok(())
}

/// The compiler's name, if this program was called by one.
pub(crate) fn called() -> Option<&'static str> {
    let word = std::env::args_os().next()?;
    let name = Path::new(&word).file_name()?;
    NAMES.into_iter().find(|n| *n == name)
}

/// Compiles: the exit status.
pub(crate) fn compile(name: &str) -> Result<u8, String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let real = real(name).ok_or_else(|| format!("{name}: not found"))?;
    let known = Request::of(&words).and_then(|request| Some((request.key(name, &real)?, request.output)));
    let Some((key, output)) = known else {
        return Err(Command::new(&real).args(&words).exec().to_string());
    };
    // Where this program was built: a guest has no `CARGO_TARGET_DIR`.
    let this = crate::own_program()?;
    let target = this.ancestors().nth(2).unwrap_or(Path::new("."));
    let kept = target.join("compiled").join(format!("{key:016x}"));
    if fs::copy(&kept, output).is_ok() {
        return Ok(0);
    }
    let child = Command::new(&real).args(&words).stderr(Stdio::piped()).spawn();
    let done = child.and_then(|c| c.wait_with_output()).map_err(|e| format!("{}: {e}", real.display()))?;
    eprint!("{}", String::from_utf8_lossy(&done.stderr));
    if done.status.success() && done.stderr.is_empty() {
        keep(Path::new(output), &kept);
    }
    Ok(done.status.code().map_or(1, |code| code as u8))
}

/// Keeps a result, if that is possible: whole or not at all.
fn keep(output: &Path, kept: &Path) {
    let part = kept.with_extension(std::process::id().to_string());
    let _ = kept.parent().map(fs::create_dir_all);
    if fs::copy(output, &part).and_then(|_| fs::rename(&part, kept)).is_err() {
        let _ = fs::remove_file(&part);
    }
}

/// The compiler behind the link.
fn real(name: &str) -> Option<PathBuf> {
    let this = crate::own_program().ok()?;
    let path = std::env::var_os("PATH")?;
    let others = |file: &PathBuf| fs::canonicalize(file).is_ok_and(|real| real != this);
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(others)
}

/// What is compiled, as far as it is understood.
struct Request<'a> {
    output: &'a str,
    words: &'a [String],
}

impl<'a> Request<'a> {
    /// `None`: what this program does not understand.
    fn of(words: &'a [String]) -> Option<Request<'a>> {
        let output = words.windows(2).find(|pair| pair[0] == "-o").map(|pair| pair[1].as_str())?;
        let odd = |word: &String| word.starts_with('@') || SEVERAL_FILES.iter().any(|o| word.starts_with(o));
        (words.len() <= MOST_WORDS && !words.iter().any(odd)).then_some(Request { output, words })
    }

    /// A hash of all that decides the result. `None`: a file cannot be read.
    fn key(&self, name: &str, compiler: &Path) -> Option<u64> {
        // With these keys its values are the same in each process.
        let mut hash = DefaultHasher::new();
        let meta = fs::metadata(compiler).ok()?;
        (name, meta.len(), meta.modified().ok()?).hash(&mut hash);
        let mut places = vec![PathBuf::from(".")];
        for (i, word) in self.words.iter().enumerate() {
            if word == self.output && i > 0 && self.words[i - 1] == "-o" {
                Path::new(word).file_name().hash(&mut hash);
            } else if Path::new(word).is_file() {
                of_file(Path::new(word), &mut hash)?;
                places.extend(
                    Path::new(word).parent().filter(|p| !p.as_os_str().is_empty()).map(PathBuf::from),
                );
            } else {
                word.hash(&mut hash);
            }
            for option in ["-I", "-L"] {
                match word.strip_prefix(option) {
                    Some("") => places.extend(self.words.get(i + 1).map(PathBuf::from)),
                    Some(place) => places.push(place.into()),
                    None => {}
                }
            }
        }
        let mut files: Vec<PathBuf> = places.iter().flat_map(|place| included(place)).collect();
        files.sort();
        files.dedup();
        files.iter().try_for_each(|file| of_file(file, &mut hash))?;
        Some(hash.finish())
    }
}

/// Adds a file's name and contents.
fn of_file(file: &Path, hash: &mut DefaultHasher) -> Option<()> {
    (file.file_name()?, fs::read(file).ok()?).hash(hash);
    Some(())
}

/// The files of a directory that a compiler or linker may take from it.
fn included(place: &Path) -> Vec<PathBuf> {
    // What comes with the system, as the compiler itself does.
    if place.starts_with("/usr") {
        return Vec::new();
    }
    let ends = |file: &Path| {
        let extension = file.extension().and_then(|e| e.to_str());
        extension.is_some_and(|e| SOURCES.contains(&e) || matches!(e, "so" | "a"))
    };
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|file| ends(file) && file.is_file()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(dir: &Path, words: &[&str]) -> Option<u64> {
        let words: Vec<String> = words.iter().map(|w| w.replace("DIR", &dir.display().to_string())).collect();
        Request::of(&words)?.key("cc", Path::new("/proc/self/exe"))
    }

    #[test]
    fn a_result_is_kept_for_equal_sources_and_options() {
        let dir = std::env::temp_dir().join(format!("compilers-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let write = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
        write("p.c", "int main(void) { return 0; }");
        let words = ["-O2", "-IDIR", "-o", "DIR/p", "DIR/p.c"];
        let first = key(&dir, &words);
        assert!(first.is_some());
        // Its output's contents decide nothing.
        write("p", "program");
        assert_eq!(key(&dir, &words), first);
        for (changed, what) in [
            (key(&dir, &["-O1", "-IDIR", "-o", "DIR/p", "DIR/p.c"]), "an option"),
            (key(&dir, &["-O2", "-IDIR", "-o", "DIR/q", "DIR/p.c"]), "the name of the result"),
        ] {
            assert!(changed.is_some() && changed != first, "{what}");
        }
        write("p.h", "");
        let with_header = key(&dir, &words);
        assert_ne!(with_header, first);
        write("p.c", "int main(void) { return 1; }");
        assert_ne!(key(&dir, &words), with_header);
        for odd in [&["p.c"][..], &["-gsplit-dwarf", "-o", "p", "p.c"], &["@words", "-o", "p"]] {
            assert_eq!(key(&dir, odd), None, "{odd:?}");
        }
        fs::remove_dir_all(dir).unwrap();
    }
}
