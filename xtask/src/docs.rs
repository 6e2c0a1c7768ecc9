//! `cargo xtask docs`: runs the commands that the README, the one-liners and the book show, and
//! puts their output in.
//!
//! ```text
//!  block    a document's blocks: commands, output, how the block is made
//!  run      one command, as the block says: interrupted, under load, never longer than its limit
//!  links    the pages of the documentation, and whether their links lead somewhere
//!  merge    new output in the place of the old: what is left out, and whether more than figures changed
//! ```
//!
//! A block is a fenced `console` block, or a `text` block whose first line is a command (`# ...`).
//! Comments before the fence say how it is made:
//!
//! ```text
//!  <!-- made: load COMMAND -->     the shell runs COMMAND until the block is done
//!  <!-- made: seconds N -->        ^C after so many seconds (3), also where the block does not show it
//!  <!-- made: vm KERNEL -->        in a guest, with --vm KERNEL
//!  <!-- made: kept WHY -->         left alone
//! ```
//!
//! Commands run in a directory of their own, which is removed afterwards. Where a command fails
//! (and the block does not say `fails`), is late, or its output does not fit the old one's shape,
//! the block stays as it is and is reported. So are links that lead nowhere.

mod block;
mod links;
mod merge;
mod run;

use std::fs;
use std::path::Path;

use block::Block;

/// The documents whose output is real: the README, the one-liners and the chapters of the book.
fn documents() -> Result<Vec<String>, String> {
    let mut all = vec!["README.md".to_string(), "docs/oneliners.md".to_string()];
    all.extend(links::pages()?.into_iter().filter(|page| page.starts_with("docs/book/")));
    Ok(all)
}

/// Begins a block in the output of a guest; document, line, and whether it succeeded follow.
const MARK: &str = "=== block ";

/// A block that was made.
struct Made {
    document: String,
    line: usize,
    /// Its new lines, or why there are none.
    lines: Result<Vec<String>, String>,
}

/// `cargo xtask docs [--check] [--vm KERNEL] [DOCUMENT:LINE...]`
pub(crate) fn command(args: &[String]) -> Result<u8, String> {
    let (mut check, mut vm, mut inside, mut only) = (false, None, None, Vec::new());
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().ok_or_else(|| format!("docs: {word} needs a kernel"));
        match word.as_str() {
            "--check" => check = true,
            "--vm" => vm = Some(value()?),
            // What a guest is told to do.
            "--inside" => inside = Some(value()?),
            place if place.contains(':') => only.push(place.to_string()),
            other => return Err(format!("docs: unknown word {other}")),
        }
    }
    let mut blocks = Vec::new();
    for document in documents()? {
        blocks.extend(block::read(&document)?);
    }
    let wanted = |b: &Block| only.is_empty() || only.contains(&b.place());
    if let Some(kernel) = inside {
        for block in blocks.iter().filter(|b| b.vm.as_ref() == Some(&kernel) && wanted(b)) {
            print(&make(block));
        }
        return Ok(0);
    }
    let (mut made, mut skipped) = (Vec::new(), Vec::new());
    for block in blocks.iter().filter(|b| wanted(b)) {
        match (&block.kept, &block.vm) {
            (Some(why), _) => skipped.push(format!("{}: left alone: {why}", block.place())),
            (None, Some(kernel)) if vm.as_ref() == Some(kernel) => {}
            (None, Some(kernel)) => skipped.push(format!("{}: needs --vm {kernel}", block.place())),
            (None, None) if vm.is_some() => {}
            (None, None) => {
                eprintln!("{}", block.place());
                made.push(make(block));
            }
        }
    }
    if let Some(kernel) = &vm {
        made = in_guest(kernel, &only)?;
    }
    for line in &skipped {
        println!("skipped  {line}");
    }
    let broken = links::broken()?;
    for line in &broken {
        println!("BROKEN   {line}");
    }
    Ok(finish(&blocks, made, check)?.max(u8::from(!broken.is_empty())))
}

/// Says what came of it, and writes the documents.
fn finish(blocks: &[Block], made: Vec<Made>, check: bool) -> Result<u8, String> {
    let (mut refreshed, mut failed, mut changed) = (0, 0, 0);
    let mut edits: Vec<(&Block, Vec<String>)> = Vec::new();
    for made in made {
        let Some(block) = blocks.iter().find(|b| b.document == made.document && b.line == made.line) else {
            continue;
        };
        match made.lines {
            Err(why) => {
                failed += 1;
                println!("FAILED   {}: {why}", block.place());
            }
            Ok(lines) => {
                if merge::differs(&block.lines, &lines) {
                    changed += 1;
                    println!("changed  {}: {}", block.place(), block.lines[0]);
                }
                refreshed += usize::from(lines != block.lines);
                edits.push((block, lines));
            }
        }
    }
    if !check {
        for document in &documents()? {
            let mut of: Vec<_> = edits.iter().filter(|(b, _)| b.document == *document).collect();
            of.sort_by_key(|(b, _)| std::cmp::Reverse(b.line));
            let path = crate::root().join(document);
            let fail = |e: std::io::Error| format!("{}: {e}", path.display());
            let text = fs::read_to_string(&path).map_err(fail)?;
            let mut all: Vec<String> = text.lines().map(String::from).collect();
            // From the last to the first, so that the lines of the others stay.
            for (block, lines) in of {
                all.splice(block.line..block.line + block.lines.len(), lines.iter().cloned());
            }
            let new = all.join("\n") + "\n";
            if new != text {
                fs::write(&path, new).map_err(fail)?;
            }
        }
    }
    println!(
        "docs: {} blocks made, {refreshed} differ, {changed} in more than figures, {failed} failed",
        edits.len()
    );
    Ok(u8::from(failed > 0 || (check && changed > 0)))
}

/// Runs the commands of a block and puts their output where the old one stands.
fn make(block: &Block) -> Made {
    let lines = scratch(&block.place()).and_then(|dir| {
        let made = run::block(block, &dir);
        let _ = fs::remove_dir_all(&dir);
        let mut lines = Vec::new();
        let mut succeeded = true;
        for (command, (output, success)) in block.commands().zip(made?) {
            lines.push(format!("# {}", command.text));
            lines.extend(merge::shaped(&command.output, &output)?);
            succeeded = success;
        }
        // A command whose status is another than 0 and whose output is as before is one that a
        // script ends so.
        match (block.fails, succeeded) {
            (true, true) => Err("does not fail any more".into()),
            (false, false) if merge::differs(&block.lines, &lines) => {
                Err(format!("the command failed:\n{}", lines.join("\n")))
            }
            _ => Ok(lines),
        }
    });
    Made { document: block.document.clone(), line: block.line, lines }
}

/// The directory that the commands of a block run in: a copy of the examples and of `dtrace` that
/// every user can read.
fn scratch(place: &str) -> Result<std::path::PathBuf, String> {
    let name: String = place.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let dir = std::env::temp_dir().join(format!("dtrace-docs-{}-{name}", std::process::id()));
    let fail = |e: std::io::Error| format!("{}: {e}", dir.display());
    let _ = fs::remove_dir_all(&dir);
    let examples = dir.join("docs/examples");
    fs::create_dir_all(&examples).and_then(|()| fs::create_dir_all(dir.join("bin"))).map_err(fail)?;
    for entry in fs::read_dir(crate::root().join("docs/examples")).map_err(fail)?.flatten() {
        fs::copy(entry.path(), examples.join(entry.file_name())).map_err(fail)?;
    }
    let dtrace = crate::test::target_dir().join("release/dtrace");
    fs::copy(&dtrace, dir.join("bin/dtrace")).map_err(|e| format!("{}: {e}", dtrace.display()))?;
    Ok(dir)
}

/// What [`in_guest`] reads.
fn print(made: &Made) {
    let (word, lines) = match &made.lines {
        Ok(lines) => ("made", lines.join("\n")),
        Err(why) => ("failed", why.clone()),
    };
    println!("{MARK}{} {} {word}\n{lines}", made.document, made.line);
}

/// Makes all blocks of one kernel in one guest, by this same program.
fn in_guest(kernel: &str, only: &[String]) -> Result<Vec<Made>, String> {
    if !crate::kernels::NAMES.contains(&kernel) {
        return Err(format!("docs: no kernel {kernel}; there are {}", crate::kernels::NAMES.join(", ")));
    }
    crate::kernels::fetch(&[kernel])?;
    let mut guest = crate::vm::Guest::new(kernel);
    guest.timeout = 900;
    let this = crate::own_program()?;
    let mut words = vec![this.display().to_string(), "docs".into(), "--inside".into(), kernel.into()];
    words.extend_from_slice(only);
    let mut output = Vec::new();
    let ended = crate::vm::boot(&guest, &words, &mut output)?;
    if !matches!(ended, crate::vm::Ended::Status(0)) {
        eprintln!("docs: the guest did not finish; what it made before is used");
    }
    let text = String::from_utf8_lossy(&output);
    let made = text.split(MARK).skip(1).filter_map(|part| {
        let (head, body) = part.split_once('\n')?;
        let mut head = head.split(' ');
        let (document, line, word) = (head.next()?, head.next()?.parse().ok()?, head.next()?);
        let body = body.trim_end_matches('\n');
        let lines = match word {
            "made" => Ok(body.lines().map(String::from).collect()),
            _ => Err(body.to_string()),
        };
        Some(Made { document: document.into(), line, lines })
    });
    Ok(made.collect())
}

/// A file of the repository.
fn text_of(document: &str) -> Result<String, String> {
    let path = crate::root().join(Path::new(document));
    fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
}
