//! Several sessions in one program.

use std::process::Command;
use std::sync::mpsc::Receiver;

use dtrace::{Bytes, Options, Session, System, Text};
use testing::dir::Dir;

use crate::{Test, Verdict};

pub(crate) const TESTS: &[Test] =
    &[("together::sessions_of_one_program_have_their_own_options_targets_and_servers", apart)];

/// Waits for a file, and calls `getppid` so often. Its functions have no names, so the servers of
/// debug files are asked for them.
const PROGRAM: &str = r#"
#include <unistd.h>
#include <sys/syscall.h>
int main(int argc, char **argv) {
    while (access(argv[1], F_OK)) usleep(1000);
    for (int i = 0; i < CALLS; i++) syscall(SYS_getppid);
    return 0;
}
"#;

/// A server that has no debug files, and sends what it is asked for.
fn server() -> (String, Receiver<String>) {
    let none = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    testing::server::answering(|_| none.to_vec())
}

/// The build id that the compiler's driver gives a program with this number of calls.
fn id(calls: u32) -> String {
    format!("{calls:040x}")
}

/// Two sessions at once: each has its own target, length of strings and server, and the numbers and
/// texts of its own.
fn apart() -> Verdict {
    if !cfg!(feature = "debuginfod") {
        return Verdict::Skip("built without debuginfod".into());
    }
    if Command::new("cc").arg("--version").output().is_err() {
        return Verdict::Skip("no cc".into());
    }
    let dir = Dir::new("together");
    let file = |name: &str| dir.join(name).display().to_string();
    std::fs::write(file("p.c"), PROGRAM).unwrap();
    let (go, system) = (file("go"), System::live());
    let begin = |calls: u32, strsize: u64, url: &str| {
        let program = file(&format!("calls-{calls}"));
        let made = Command::new("cc")
            .args(["-O1", "-s", &format!("-DCALLS={calls}"), &format!("-Wl,--build-id=0x{}", id(calls))])
            .args(["-o", &program, &file("p.c")])
            .status();
        assert!(made.unwrap().success());
        let options = Options {
            quiet: true,
            strsize: Bytes(strsize),
            debuginfod: vec![url.to_owned()],
            srclines: true,
            ..Options::default()
        };
        Session::builder(&system)
            .program("syscall::getppid:entry /pid == $target/ { @[\"a text of a key\"] = count(); @s[ustack()] = count(); }")
            .options(options)
            .command(format!("{program} {go}"))
            .start(Text::new(Vec::new()))
            .unwrap()
    };
    let (servers, sizes, calls) = ([server(), server()], [8, 256], [300, 500]);
    let sessions = [0, 1].map(|i| begin(calls[i], sizes[i], &servers[i].0));
    std::fs::write(&go, "").unwrap();
    let texts = std::thread::scope(|scope| {
        let ends = sessions.map(|mut session| {
            scope.spawn(move || {
                session.run().unwrap();
                String::from_utf8(session.into_sink().into_output()).unwrap()
            })
        });
        ends.map(|end| end.join().unwrap())
    });
    for (i, key) in [(0, "a text "), (1, "a text of a key")] {
        let line = texts[i].lines().find(|line| line.contains("a text")).unwrap_or_default();
        let (text, count) = line.trim().rsplit_once(' ').unwrap_or_default();
        assert_eq!((text.trim_end(), count), (key.trim_end(), &*calls[i].to_string()), "{}", texts[i]);
        let asked: Vec<String> = servers[i].1.try_iter().collect();
        let own = format!("/buildid/{}/debuginfo", id(calls[i]));
        assert!(
            asked.contains(&own) && !asked.iter().any(|path| path.contains(&id(calls[1 - i]))),
            "{asked:?}"
        );
    }
    Verdict::Pass
}
