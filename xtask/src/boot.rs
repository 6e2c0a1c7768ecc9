//! `cargo xtask boot`: anonymous tracing in machines that really boot. It takes minutes and needs a
//! mirror of Debian, so `.ci/run` does not do it.
//!
//! ```text
//!  own     an initramfs of our own: N executions, switch_root to a tmpfs, N executions, the claim
//!  debian  bookworm with initramfs-tools and systemd on a disk: the same, and
//!          a boot with dtrace.anonymous=0, one that nobody claims, one whose machine is killed, and the third after two of these
//! ```
//!
//! The machines are emulated, without a network. What they print on their console is the result:
//! lines with `@`.

mod debian;
mod machine;
mod own;

use std::path::{Path, PathBuf};

use crate::apt::io;

/// The lines of `cargo xtask help`.
pub(crate) const HELP: &str = "  boot [--kernel 6.1|6.12|7.2] [--program FILE] [own|debian]
                trace booting machines (-A) with the static program, or FILE: an initramfs of our own, and a
                Debian root with systemd; needs root
";

/// Executions before the root is there, and after.
const KNOWN: usize = 20;

/// What is traced.
const PROGRAM: &str = r#"BEGIN { printf("begin\n"); }
proc:::exec-success /execname == "known-before" || execname == "known-after"/ { printf("%s\n", execname); @[execname] = count(); }
END { printf("end\n"); }"#;

/// The files of a run, which are removed with it.
struct Work(PathBuf);

impl Drop for Work {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `cargo xtask boot …`
pub(crate) fn command(args: &[String]) -> Result<u8, String> {
    crate::sys::note_interrupts();
    let (mut kernel, mut program, mut wanted) = ("6.12".to_owned(), None, Vec::new());
    let mut words = args.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--kernel" => kernel.clone_from(words.next().ok_or("boot: --kernel needs a name")?),
            "--program" => program = Some(PathBuf::from(words.next().ok_or("boot: --program needs a file")?)),
            "own" | "debian" => wanted.push(word.as_str()),
            other => return Err(format!("boot: no option {other}\n{HELP}")),
        }
    }
    if !crate::kernels::NAMES.contains(&kernel.as_str()) {
        return Err(format!("boot: no kernel {kernel}; there are {}", crate::kernels::NAMES.join(", ")));
    }
    if !crate::test::is_root() {
        return Err("boot: roots are made as root".into());
    }
    crate::kernels::fetch(&[&kernel])?;
    let program = match program {
        Some(file) => file,
        None => crate::dist::program::of(&crate::root())?,
    };
    let dir = std::env::temp_dir().join(format!("xtask-boot-{}", std::process::id()));
    let work = Work(dir);
    io(&work.0, std::fs::create_dir_all(&work.0))?;
    let is_wanted = |name: &str| wanted.is_empty() || wanted.contains(&name);
    if is_wanted("own") {
        own::test(&kernel, &program, &work.0)?;
    }
    if is_wanted("debian") {
        debian::test(&kernel, &program, &work.0)?;
    }
    Ok(0)
}

/// What a machine printed of a kind: the texts after `@KIND `.
fn told<'a>(console: &'a str, kind: &str) -> Vec<&'a str> {
    let start = format!("@{kind} ");
    console.lines().filter_map(|line| line.trim_end_matches('\r').strip_prefix(&start)).collect()
}

/// The lines that a command printed in a machine, without empty ones, and its exit status.
fn printed<'a>(console: &'a str, word: &str) -> Option<(Vec<&'a str>, &'a str)> {
    let (begin, end) = (format!("@begin {word}"), format!("@end {word} "));
    let lines = console.lines().map(str::trim);
    let mut lines = lines.skip_while(|line| *line != begin).skip(1);
    let mut own = Vec::new();
    loop {
        let line = lines.next()?;
        match line.strip_prefix(&end) {
            Some(status) => return Some((own, status)),
            None if line.is_empty() => {}
            None => own.push(line),
        }
    }
}

/// The error of a check, with the console.
fn wrong(what: &str, console: &str) -> String {
    let lines: Vec<&str> = console.lines().collect();
    let last = lines.get(lines.len().saturating_sub(150)..).unwrap_or_default().join("\n");
    format!("boot: {what}; the console:\n{last}")
}

/// Checks the text of the claim: each execution is in it, in order, as a live session prints them.
fn check_claim(console: &str) -> Result<(), String> {
    let Some((lines, status)) = printed(console, "claim") else {
        return Err(wrong("nothing was claimed", console));
    };
    let mut expected = vec!["begin"];
    expected.extend(["known-before"; KNOWN]);
    expected.extend(["known-after"; KNOWN]);
    expected.push("end");
    let counts = ["known-after", "known-before"].map(|name| format!("{name} {KNOWN}"));
    let words = |line: &&str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let got: Vec<String> = lines.iter().map(words).collect();
    let expected: Vec<String> = expected.into_iter().map(String::from).chain(counts).collect();
    if got != expected || status != "0" {
        return Err(wrong(&format!("the claimed text is another one (status {status}): {got:?}"), console));
    }
    match printed(console, "again") {
        Some((lines, "1")) if lines == ["dtrace: could not enable tracing: No anonymous tracing state"] => {
            Ok(())
        }
        other => Err(wrong(&format!("the second claim: {other:?}"), console)),
    }
}

/// Prints what the machine told of the tracer.
fn report(name: &str, console: &str) {
    for memory in told(console, "memory") {
        println!("{name}: the tracer's memory was {memory} at most");
    }
    for ticks in told(console, "cpu") {
        let ticks: Vec<u64> = ticks.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        // user nice system idle iowait irq softirq: all but the idle ones are work.
        if let [user, system, rest @ ..] = ticks.as_slice() {
            let all: u64 =
                rest.iter().take(7).enumerate().filter(|(i, _)| ![3, 4].contains(i)).map(|(_, n)| n).sum();
            let share = (user + system) as f64 * 100.0 / all.max(1) as f64;
            println!("{name}: the tracer took {} of {all} ticks of CPU ({share:.1} %)", user + system);
        }
    }
}

/// Copies a file, which is made a program.
fn put(text: impl AsRef<[u8]>, file: &Path, mode: u32) -> Result<(), String> {
    if let Some(dir) = file.parent() {
        io(dir, std::fs::create_dir_all(dir))?;
    }
    io(file, std::fs::write(file, text))?;
    io(file, std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(mode)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_prints_is_found_among_other_lines() {
        let console = "x\n@memory 12 kB\r\n@begin claim\r\n\r\nbegin\r\n  known 3\r\n@end claim 0\r\n";
        assert_eq!(told(console, "memory"), ["12 kB"]);
        assert_eq!(printed(console, "claim"), Some((vec!["begin", "known 3"], "0")));
        assert_eq!(printed(console, "again"), None);
        assert!(check_claim(console).unwrap_err().contains("another one"));
    }
}
