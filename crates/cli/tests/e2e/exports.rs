//! `--to` and `--format NAME=FILE`: files of results beside what is printed.

use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;

use crate::Verdict::{self, Pass};
use crate::tool::{dtrace, finish, start, workload};

tests! {
    a_file_has_what_would_be_printed_in_its_format
    a_pipe_gets_a_stream_as_it_comes
    a_file_that_cannot_be_written_is_said
    a_session_that_does_not_begin_leaves_a_file_as_it_was
    what_is_written_to_a_descriptor_follows_what_is_there
    a_file_is_one_file_whatever_its_names_are
    a_format_of_intervals_says_that_stored_events_have_none
}

/// The names of the files in a directory.
fn names(dir: &testing::dir::Dir) -> Vec<String> {
    let entries = std::fs::read_dir(&**dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

fn a_file_has_what_would_be_printed_in_its_format() -> Verdict {
    let dir = testing::dir::Dir::new("exports-same");
    let file = |name: &str| dir.join(name).into_os_string().into_string().unwrap();
    let script = "syscall::getppid:entry /pid == $target/ { this->n = n++; trace(this->n); @[this->n % 3] = count(); }";
    let words = workload("getppid", 20);
    let o = dtrace(&[
        "-q",
        "--format",
        "json",
        "-o",
        &file("printed"),
        "--to",
        &file("a.json"),
        "--to",
        &file("b.csv"),
        "--format",
        "json=c",
        "-c",
        &words,
        "-n",
        script,
    ]);
    // A name without a directory is of the current one.
    let of_current = std::fs::read("c");
    let _ = std::fs::remove_file("c");
    assert_eq!(o.code, Some(0), "{}", o.err);
    let printed = std::fs::read_to_string(file("printed")).unwrap();
    assert_eq!(printed.lines().filter(|line| line.contains("\"event\":\"record\"")).count(), 20, "{printed}");
    assert_eq!(std::fs::read_to_string(file("a.json")).unwrap(), printed);
    assert_eq!(of_current.unwrap(), printed.as_bytes());
    let csv = std::fs::read_to_string(file("b.csv")).unwrap();
    assert!(csv.ends_with("\n2,6\n0,7\n1,7\n"), "{csv}");
    assert_eq!(names(&dir), ["a.json", "b.csv", "printed"]);
    Pass
}

fn a_pipe_gets_a_stream_as_it_comes() -> Verdict {
    let dir = testing::dir::Dir::new("exports-pipe");
    let pipe = dir.join("pipe");
    let name = std::ffi::CString::new(pipe.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name is a string of C.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let words = format!("json={}", pipe.display());
    // Nobody reads it.
    let o = dtrace(&["-q", "--format", &words, "-n", "BEGIN { exit(0); }"]).code(1);
    assert!(o.err.contains("failed to write") && o.err.contains("pipe"), "{}", o.err);
    let mut reader = std::fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
    let child = start(&["-q", "--format", &words, "-n", "BEGIN { trace(41); }"]);
    let mut text = Vec::new();
    testing::eventually("the record in the pipe", testing::HANG_LIMIT, || {
        let _ = reader.read_to_end(&mut text);
        String::from_utf8_lossy(&text).contains("\"event\":\"record\"")
    });
    crate::tool::signal(&child, libc::SIGINT);
    let o = finish(child).code(0);
    assert!(o.out.contains("41"), "{}", o.out);
    let _ = reader.read_to_end(&mut text);
    assert!(String::from_utf8_lossy(&text).ends_with("{\"event\":\"end\",\"status\":0}\n"));
    assert_eq!(names(&dir), ["pipe"]);
    Pass
}

fn a_file_that_cannot_be_written_is_said() -> Verdict {
    let o = dtrace(&["-q", "--to", "/nowhere/x.json", "-n", "BEGIN { exit(0); }"]).code(1);
    assert!(o.err.contains("failed to write '/nowhere/x.json'"), "{}", o.err);
    // What is no file is not replaced by one: what the system has in `/dev` least of all.
    let before = std::fs::symlink_metadata("/dev/stdout").unwrap().file_type();
    let o =
        dtrace(&["-q", "--format", "folded=/dev/stdout", "-n", "BEGIN { @[stack()] = count(); exit(0); }"]);
    assert!(o.code == Some(1) && o.err.contains("not a regular file"), "{o:?}");
    let o = dtrace(&["-q", "--format", "json=/dev/stdout", "-n", "BEGIN { trace(41); exit(0); }"]).code(0);
    assert!(o.out.contains("\"event\":\"end\"") && o.out.contains("41"), "{o:?}");
    assert_eq!(std::fs::symlink_metadata("/dev/stdout").unwrap().file_type(), before);
    let dir = testing::dir::Dir::new("exports-folder");
    std::fs::create_dir(dir.join("x.json")).unwrap();
    let folder = dir.join("x.json").into_os_string().into_string().unwrap();
    let o = dtrace(&["-q", "--to", &folder, "-n", "BEGIN { trace(41); exit(0); }"]).code(1);
    assert!(!o.out.contains("41") && o.err.contains("not a regular file"), "{o:?}");
    // What fails later ends no session: its results are printed.
    let script = "syscall::getppid:entry /pid == $target/ { @ = count(); }";
    let words = workload("getppid", 100);
    let o = dtrace(&["-q", "--format", "json=/dev/full", "-c", &words, "-n", script]).code(1);
    assert_eq!(o.last_number(), 100);
    assert!(o.err.contains("failed to write '/dev/full'"), "{}", o.err);
    assert_eq!(o.err.matches("/dev/full").count(), 1, "{}", o.err);
    Pass
}

fn what_is_written_to_a_descriptor_follows_what_is_there() -> Verdict {
    let dir = testing::dir::Dir::new("exports-descriptor");
    let file = dir.join("log.txt");
    for append in [true, false] {
        std::fs::write(&file, "before\n").unwrap();
        let mut options = std::fs::File::options();
        let mut out = options.write(true).append(append).open(&file).unwrap();
        std::io::Seek::seek(&mut out, std::io::SeekFrom::End(0)).unwrap();
        let mut command = std::process::Command::new(crate::tool::binary());
        command.args([
            "-q",
            "--format",
            "csv=/dev/stdout",
            "-n",
            "BEGIN { printf(\"text\\n\"); trace(41); exit(0); }",
        ]);
        let o = command.stdout(out).output().unwrap();
        assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("before\n") && text.contains("text\n"), "{text}");
        let row = text.lines().find(|line| line.contains("dtrace:::BEGIN")).unwrap_or_default();
        assert!(text.contains("time,cpu,probe,") && row.ends_with(",41"), "{text}");
    }
    Pass
}

fn a_file_is_one_file_whatever_its_names_are() -> Verdict {
    let dir = testing::dir::Dir::new("exports-same-file");
    let name = |name: &str| dir.join(name).into_os_string().into_string().unwrap();
    std::fs::write(dir.join("a.json"), "keep\n").unwrap();
    std::os::unix::fs::symlink(dir.join("a.json"), dir.join("o.txt")).unwrap();
    let script = "BEGIN { printf(\"text\\n\"); exit(0); }";
    let o = dtrace(&["-q", "--to", &name("a.json"), "-o", &name("o.txt"), "-n", script]).code(1);
    assert!(o.err.contains("a file can be written once"), "{o:?}");
    let out = std::fs::File::options().append(true).open(dir.join("a.json")).unwrap();
    let mut command = std::process::Command::new(crate::tool::binary());
    let o = command.args(["-q", "--to", &name("a.json"), "-n", script]).stdout(out).output().unwrap();
    assert!(String::from_utf8_lossy(&o.stderr).contains("a file can be written once"), "{o:?}");
    assert_eq!(std::fs::read_to_string(dir.join("a.json")).unwrap(), "keep\n");
    Pass
}

fn a_session_that_does_not_begin_leaves_a_file_as_it_was() -> Verdict {
    let dir = testing::dir::Dir::new("exports-refused");
    let file = dir.join("x.json").into_os_string().into_string().unwrap();
    std::fs::write(&file, "before").unwrap();
    dtrace(&["-q", "--to", &file, "-n", "nobody:::has { exit(0); }"]).code(1);
    dtrace(&["-q", "--to", &file, "-b", "1", "-n", "BEGIN { trace(\"a\"); exit(0); }"]).code(1);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "before");
    dtrace(&["-e", "-q", "--to", &file, "-n", "BEGIN { exit(0); }"]).code(0);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "before");
    assert_eq!(names(&dir), ["x.json"]);
    Pass
}

fn a_format_of_intervals_says_that_stored_events_have_none() -> Verdict {
    let dir = testing::dir::Dir::new("exports-intervals");
    let file = |name: &str| dir.join(name).into_os_string().into_string().unwrap();
    let lacks = "have no intervals of aggregations: trace with -x every=1s";
    for (words, has_intervals) in [(&[][..], false), (&["-xevery=1s"][..], true)] {
        let format = format!("events={}", file("e"));
        let mut all = vec!["-q", "--format", &format, "-n", "BEGIN { @n = count(); exit(0); }"];
        all.extend(words);
        assert_eq!(dtrace(&all).code(0).err, "");
        let graphite = format!("graphite={}", file("g"));
        let o =
            dtrace(&["-q", "--events", &file("e"), "--format", &graphite]).code(i32::from(!has_intervals));
        assert_eq!(o.err.contains(lacks), !has_intervals, "{}", o.err);
        let lines = std::fs::read_to_string(file("g")).unwrap();
        assert_eq!(
            lines.lines().filter(|line| line.contains(".n ")).count(),
            usize::from(has_intervals),
            "{lines}"
        );
    }
    Pass
}
