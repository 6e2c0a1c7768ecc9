//! Runs the commands of a block, as a terminal would show them.
//!
//! Standard output and error are one pipe, so their lines stand in the order in which they were
//! written. A command is a process group of its own: what is sent to it reaches all its processes,
//! as ^C does.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::block::{Block, Shown};

/// A command that is not interrupted may take so long.
const LIMIT: Duration = Duration::from_secs(120);
/// So long it may take to end after ^C.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process group, killed when it is dropped.
struct Group(Child);

impl Group {
    fn start(text: &str, dir: &Path, out: Stdio) -> Result<Group, String> {
        let path = std::env::var("PATH").unwrap_or_default();
        // A background job of a shell ignores SIGINT, and so would all that it starts.
        let child = Command::new("env")
            .args(["--default-signal=INT", "sh", "-c", text])
            .current_dir(dir)
            .env("PATH", format!("{}:{path}", dir.join("bin").display()))
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        child.map(Group).map_err(|e| format!("sh: {e}"))
    }

    fn signal(&self, name: &str) {
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-s", name, "--", &group]).stderr(Stdio::null()).status();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal("KILL");
        let _ = self.0.wait();
    }
}

/// Programs of the examples, and how they are compiled.
const PROGRAMS: [(&str, &str); 2] = [
    ("./spin", "gcc -O1 -fno-omit-frame-pointer -o spin docs/examples/spin.c"),
    ("./pool", "gcc -O2 -pthread -o pool docs/examples/pool.c"),
];

/// The outputs of a block's commands, in order, and whether each succeeded.
pub(crate) fn block(block: &Block, dir: &Path) -> Result<Vec<(String, bool)>, String> {
    let commands: Vec<Shown> = block.commands().collect();
    for (program, compile) in PROGRAMS {
        if !commands.iter().any(|c| c.text.contains(program)) {
            continue;
        }
        let done = Group::start(compile, dir, Stdio::null())?.0.wait();
        if !done.is_ok_and(|s| s.success()) {
            return Err(format!("{compile}: failed"));
        }
    }
    let _load = block.load.as_ref().map(|l| Group::start(l, dir, Stdio::null())).transpose()?;
    let mut outputs = Vec::new();
    for shown in &commands {
        outputs.push(command(shown, block.seconds, dir).map_err(|e| format!("{}: {e}", shown.text))?);
    }
    Ok(outputs)
}

/// Runs one; its output, and whether it succeeded.
fn command(shown: &Shown, seconds: Option<u64>, dir: &Path) -> Result<(String, bool), String> {
    let interrupted = shown.output.iter().any(|l| l == "^C");
    let text = format!("exec 2>&1\n{}\n", shown.text);
    let mut group = Group::start(&text, dir, Stdio::piped())?;
    let mut pipe = group.0.stdout.take().ok_or("no pipe")?;
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(n @ 1..) = pipe.read(&mut bytes) {
            if send.send(bytes[..n].to_vec()).is_err() {
                break;
            }
        }
    });
    let mut output = Vec::new();
    let mut until = Instant::now()
        + match seconds {
            Some(seconds) => Duration::from_secs(seconds),
            None if interrupted => Duration::from_secs(3),
            None => LIMIT,
        };
    let mut ending = seconds.is_none() && !interrupted;
    loop {
        match receive.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(bytes) => output.extend(bytes),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) if ending => return Err("did not end in time".into()),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                if interrupted {
                    output.extend(b"^C");
                }
                group.signal("INT");
                (ending, until) = (true, Instant::now() + PATIENCE);
            }
        }
    }
    let status = group.0.wait().map_err(|e| e.to_string())?;
    // The shell itself ends by the signal that it shared with the command.
    let success = status.success() || status.signal() == Some(2) || (ending && status.code() == Some(130));
    Ok((String::from_utf8_lossy(&output).into_owned(), success))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, output: &[&str]) -> Shown {
        Shown { text: text.into(), output: output.iter().map(|l| l.to_string()).collect() }
    }

    #[test]
    fn both_outputs_are_one_and_a_status_is_kept() {
        let dir = std::env::temp_dir();
        let (out, success) = command(&shown("echo a; echo b >&2; echo c", &[]), None, &dir).unwrap();
        assert_eq!((out.as_str(), success), ("a\nb\nc\n", true));
        assert!(!command(&shown("exit 3", &[]), None, &dir).unwrap().1);
    }

    #[test]
    fn an_interrupted_command_shows_where() {
        let dir = std::env::temp_dir();
        let text = "trap 'echo; echo end; exit 0' INT; echo begin; while :; do sleep 0.1; done";
        let (out, success) = command(&shown(text, &["begin", "^C"]), Some(1), &dir).unwrap();
        assert_eq!((out.as_str(), success), ("begin\n^C\nend\n", true));
    }
}
