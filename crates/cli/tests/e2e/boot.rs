//! Anonymous tracing from an initramfs on: the root of a process that traces becomes another one
//! below it.
//!
//! Mounts and processes have namespaces of their own, so the machine's own root is untouched. Real
//! boots are those of `cargo xtask boot`.

use std::process::Command;

use testing::dir::Dir;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::no_types;
use crate::tool::{binary, finish, spawn};

tests! {
    what_is_traced_in_an_initramfs_goes_on_in_the_root_and_is_claimed_there
}

const SCRIPT: &str = include_str!("boot.sh");

/// What a command printed, without empty lines, and its exit status.
fn part<'a>(text: &'a str, word: &str) -> (Vec<&'a str>, &'a str) {
    let rest = text.split_once(&format!("@{word}\n")).unwrap_or_else(|| panic!("no {word} in {text}")).1;
    let (own, status) = rest.split_once("@status ").unwrap_or_else(|| panic!("no end of {word} in {text}"));
    let lines = own.lines().map(str::trim).filter(|line| !line.is_empty());
    (lines.collect(), status.lines().next().unwrap_or_default())
}

fn what_is_traced_in_an_initramfs_goes_on_in_the_root_and_is_claimed_there() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let dir = Dir::new("boot");
    let (before, after) = (format!("kb{}", std::process::id()), format!("ka{}", std::process::id()));
    let program = format!(
        "BEGIN {{ printf(\"begin\\n\"); }}
        proc:::exec-success /execname == \"{before}\" || execname == \"{after}\"/
        {{ printf(\"%s\\n\", execname); @[execname] = count(); }}
        END {{ printf(\"end\\n\"); }}"
    );
    let text = SCRIPT.replace("@BEFORE@", &before).replace("@AFTER@", &after).replace("@PROGRAM@", &program);
    let script = dir.join("boot.sh");
    std::fs::write(&script, text).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh"]);
    let Ok(child) = spawn(command.arg(&script).arg(&*dir).arg(binary())) else {
        return Skip("unshare is not installed".into());
    };
    let o = finish(child);
    let refused = o.err.lines().find(|line| line.starts_with("unshare: ") || line.starts_with("mount: "));
    if let Some(refused) = refused.filter(|_| !o.out.contains("@roots\n")) {
        return Skip(format!("unshare and mount: {refused}"));
    }
    let (claim, status) = part(&o.out, "claim");
    let (first, second) = (vec![before.as_str(); 20], vec![after.as_str(); 20]);
    let expected = [vec!["begin"], first, second, vec!["end"]].concat();
    assert_eq!((claim.get(..42), status), (Some(&*expected), "0"), "{o:?}");
    let mut counts: Vec<Vec<&str>> = claim[42..].iter().map(|l| l.split_whitespace().collect()).collect();
    counts.sort();
    assert_eq!(counts, [[after.as_str(), "20"], [before.as_str(), "20"]], "{o:?}");
    assert_eq!(
        part(&o.out, "again"),
        (vec!["dtrace: could not enable tracing: No anonymous tracing state"], "1"),
        "{o:?}"
    );
    // The boot was counted in the root.
    assert!(o.out.contains("@boots 1\n"), "{o:?}");
    let (third, status) = part(&o.out, "third");
    assert!(third.iter().any(|l| l.contains("the last 2 boots did not reach")) && status == "1", "{o:?}");
    let (files, _) = part(&o.out, "disabled");
    assert!(files.contains(&"disabled") && !files.contains(&"boots"), "{o:?}");
    let (why, status) = part(&o.out, "why");
    assert!(why.iter().any(|l| l.contains("the last 2 boots did not reach")) && status == "1", "{o:?}");
    Pass
}
