//! Where debug information is found: files of its own, shared and split files, servers.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use testing::server::answering;

use crate::Verdict::{self, Pass, Skip};
use crate::tool::{binary, dtrace, pseudo_terminal, under};
use crate::user_types::{Dir, EXPECTED, MEMBERS, built, lines};

tests! {
    types_of_separate_and_shared_debug_files_are_read
    types_lines_and_inlined_functions_of_split_debug_information_are_read
    debug_files_of_a_server_are_fetched_once_if_the_option_names_it
    a_server_of_debug_files_is_known_by_its_certificate
    a_terminal_shows_which_file_is_waited_for
}

fn types_of_separate_and_shared_debug_files_are_read() -> Verdict {
    let (dir, program) = built!(Dir::c("separate", &["-O2", "-gz=zlib", "-Wl,--build-id"]));
    built!(dir.run(&["objcopy", "--only-keep-debug", "program", "program.debug"]));
    built!(dir.run(&["objcopy", "--strip-debug", "program"]));
    let o = dtrace(&["-qc", &program, "-n", MEMBERS]).code(1);
    assert!(o.err.contains("it has no debug information (DWARF, BTF, CTF)"), "{o:?}");
    built!(dir.run(&["objcopy", "--add-gnu-debuglink=program.debug", "program"]));
    let o = dtrace(&["-qc", &program, "-n", MEMBERS]).code(0);
    assert_eq!(lines(&o), EXPECTED, "{o:?}");
    // A part of the types is in a file that two programs share.
    let (dir, program) = built!(Dir::c("shared", &["-O2", "-Wl,--build-id"]));
    built!(dir.run(&["cc", "-g", "-O1", "-o", "other", "p.c"]));
    built!(dir.run(&["dwz", "-m", "shared.debug", "program", "other"]));
    let o = dtrace(&["-qc", &program, "-n", MEMBERS]).code(0);
    assert_eq!(lines(&o), EXPECTED, "{o:?}");
    std::fs::remove_file(dir.path("shared.debug")).unwrap();
    let o = dtrace(&["-qc", &program, "-n", MEMBERS]).code(1);
    assert!(o.err.contains("shares types with shared.debug, which is not installed"), "{o:?}");
    Pass
}

const SPLIT: &str = r#"
struct inner { int depth; char tag; };
int visits = 3;
static inline __attribute__((always_inline)) int folded(volatile int *p)
{
    return *p * 2;
}
__attribute__((noinline)) int visit(struct inner *i)
{
    volatile int n = i->depth;
    visits++;
    return folded(&n);
}
int take(struct inner *);
int main(void) { struct inner i = { 21, 't' }; return take(&i) == 42 ? 0 : 1; }
"#;

const SPLIT_OTHER: &str = r#"
struct inner { int depth; char tag; };
struct outer { long first; struct inner *inner; } whole = { 77, 0 };
int visit(struct inner *);
__attribute__((noinline)) int take(struct inner *i) { whole.inner = i; int n = visit(i); __asm__ volatile("" ::: "memory"); return n; }
"#;

fn types_lines_and_inlined_functions_of_split_debug_information_are_read() -> Verdict {
    let dir = built!(Dir::new("split"));
    std::fs::write(dir.path("a.c"), SPLIT).unwrap();
    std::fs::write(dir.path("b.c"), SPLIT_OTHER).unwrap();
    let script = "pid$target:a.out:visit:entry { printf(\"%d %c %d %d %d\\n\", args[0]->depth, args[0]->tag, a.out`visits, \
         a.out`whole.first, a.out`whole.inner->depth); }";
    let program = dir.path("program");
    let types = |what: &str| {
        let o = dtrace(&["-qc", &program, "-n", script]).code(0);
        assert_eq!(o.out.trim(), "21 t 3 77 21", "{what}: {o:?}");
    };
    // The frames while the function runs that was put inline: where its multiplication is.
    let frames = |what: &str| {
        let script = "pid$target:a.out:visit: { @[ustack(2)] = count(); }";
        let o = dtrace(&["-xinlines", "-xsrclines", "-qc", &program, "-n", script]).code(0);
        for (function, line) in [
            ("program`folded [inlined]", "a.c:6)"),
            ("program`visit+", "a.c:12)"),
            ("program`take+", "b.c:5)"),
        ] {
            let is_it = |shown: &&str| shown.starts_with(function) && shown.ends_with(line);
            assert!(lines(&o).iter().any(is_it), "{what}: {function} {line}: {o:?}");
        }
    };
    for version in ["-gdwarf-5", "-gdwarf-4"] {
        for part in ["a", "b"] {
            let (source, object) = (format!("{part}.c"), format!("{part}.o"));
            built!(dir.run(&["cc", version, "-gsplit-dwarf", "-O2", "-c", &source, "-o", &object]));
        }
        built!(dir.run(&["cc", "-o", "program", "a.o", "b.o"]));
        types(version);
        frames(version);
        // What is in a package needs no other file.
        // That of the GNU binutils ends by a signal at the fifth version.
        let is_packed = version == "-gdwarf-4" && dir.run(&["dwp", "-e", "program"]).is_ok();
        for part in ["a.dwo", "b.dwo"] {
            std::fs::rename(dir.path(part), dir.path(&format!("away.{part}"))).unwrap();
        }
        if is_packed {
            types("package");
            frames("package");
            std::fs::remove_file(dir.path("program.dwp")).unwrap();
        }
        let o = dtrace(&["-qc", &program, "-n", "pid$target:a.out:visit:entry { trace(args[0]->depth); }"]);
        assert!(o.code(1).err.contains("its debug information is in a.dwo, which is not found"), "{version}");
        // A file that is another one's, damaged, or none that may be opened, is none.
        std::fs::copy(dir.path("away.b.dwo"), dir.path("a.dwo")).unwrap();
        let whole = std::fs::read(dir.path("away.b.dwo")).unwrap();
        std::fs::write(dir.path("b.dwo"), &whole[..whole.len() / 2]).unwrap();
        let o = dtrace(&["-qc", &program, "-n", "pid$target:a.out:visit:entry { trace(args[0]->depth); }"]);
        assert!(o.code(1).err.contains("its debug information is in a.dwo, which is not found"), "{version}");
        for part in ["a.dwo", "b.dwo"] {
            std::fs::remove_file(dir.path(part)).unwrap();
        }
        built!(dir.run(&["mkfifo", "a.dwo"]));
        let o = dtrace(&["-qc", &program, "-n", "pid$target:a.out:visit:entry { trace(args[0]->depth); }"]);
        assert!(o.code(1).err.contains("its debug information is in a.dwo, which is not found"), "{version}");
        std::fs::remove_file(dir.path("a.dwo")).unwrap();
    }
    Pass
}

/// A server that answers each request for a debug file with these bytes, and sends what was asked
/// for.
fn server(file: Vec<u8>) -> (String, std::sync::mpsc::Receiver<String>) {
    answering(move |_| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", file.len());
        [head.as_bytes(), &file].concat()
    })
}

fn debug_files_of_a_server_are_fetched_once_if_the_option_names_it() -> Verdict {
    let (dir, program) = built!(Dir::c("server", &["-O2", "-Wl,--build-id"]));
    built!(dir.run(&["cc", "-g", "-O2", "-DSECOND", "-Wl,--build-id", "-o", "other", "p.c"]));
    let (right, wrong) = ["program", "other"].map(|name| std::fs::read(dir.path(name)).unwrap()).into();
    built!(dir.run(&["objcopy", "--strip-debug", "program"]));
    let (url, asked) = server(right);
    let (other, _) = server(wrong);
    let cache = dir.path("cache");
    let run = |urls: &str, options: &[&str]| {
        let (cache, urls) = (format!("DEBUGINFOD_CACHE_PATH={cache}"), format!("DEBUGINFOD_URLS={urls}"));
        under(&["env", &cache, &urls], &[options, &["-qc", &program, "-n", MEMBERS]].concat()).unwrap()
    };
    let (of_url, of_other) = (format!("-xdebuginfod={url}"), format!("-xdebuginfod={other}"));
    // Nobody is asked without the option.
    let o = run(&url, &[]).code(1);
    assert!(
        o.err.contains("it has no debug information (DWARF, BTF, CTF)") && asked.try_recv().is_err(),
        "{o:?}"
    );
    let o = run("", &[&of_other]).code(1);
    assert!(o.err.contains("what it sent has another build id"), "{o:?}");
    assert!(!std::fs::read_dir(&cache).unwrap().flatten().any(|id| id.path().join("debuginfo").exists()));
    let o = run("", &["-xdebuginfod=http://127.0.0.1:1"]).code(1);
    assert!(o.err.contains("none was fetched: http://127.0.0.1:1: "), "{o:?}");
    let o = run("", &["-xdebuginfod=ftp://example.org"]).code(1);
    assert!(o.err.contains("option debuginfod: \"ftp://example.org\""), "{o:?}");
    // The first of two has another file.
    let o = run("", &[&of_other, &of_url]).code(0);
    assert_eq!(lines(&o), EXPECTED, "{o:?}");
    let path = asked.try_recv().unwrap();
    assert!(path.starts_with("/buildid/") && path.ends_with("/debuginfo"), "{path}");
    // Then it is in the cache.
    for (urls, option) in [("", of_url.as_str()), (url.as_str(), "-xdebuginfod=env")] {
        let o = run(urls, &[option]).code(0);
        assert_eq!(lines(&o), EXPECTED, "{option}: {o:?}");
    }
    assert!(asked.try_recv().is_err());
    // What is damaged there is fetched again.
    let id = path.split('/').nth(2).unwrap();
    std::fs::write(format!("{cache}/{id}/debuginfo"), "damaged").unwrap();
    let o = run(&url, &["-xdebuginfod=env"]).code(0);
    assert_eq!((lines(&o), asked.try_iter().count()), (EXPECTED.to_vec(), 1), "{o:?}");
    Pass
}

fn a_terminal_shows_which_file_is_waited_for() -> Verdict {
    let (dir, program) = built!(Dir::c("waited", &["-O2", "-Wl,--build-id"]));
    let file = std::fs::read(&program).unwrap();
    built!(dir.run(&["objcopy", "--strip-debug", "program"]));
    let (seen, waits) = std::sync::mpsc::channel::<()>();
    let waits = std::sync::Mutex::new(waits);
    let (url, _asked) = answering(move |_| {
        // Until the test has seen it; a test that has ended waits for nothing.
        let _ = waits.lock().unwrap().recv();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", file.len());
        [head.as_bytes(), &file].concat()
    });
    let Some((mut ours, theirs)) = pseudo_terminal(24, 80) else { return Skip("no terminals".into()) };
    let child = Command::new(binary())
        .args([&format!("-xdebuginfod={url}"), "-xsymtimeout=10s", "-qc", &program, "-n", MEMBERS])
        .env("DEBUGINFOD_CACHE_PATH", dir.path("cache"))
        .stdout(Stdio::piped())
        .stderr(theirs)
        .spawn()
        .unwrap();
    let mut shown = Vec::new();
    let mut part = [0; 256];
    let has = |shown: &[u8], text: &[u8]| shown.windows(text.len()).any(|at| at == text);
    while !has(&shown, b"reading ") || !shown.ends_with(b"program") {
        let length = ours.read(&mut part).unwrap_or(0);
        assert!(length > 0, "{}", String::from_utf8_lossy(&shown));
        shown.extend_from_slice(&part[..length]);
    }
    drop(seen);
    let o = child.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&o.stdout).split_whitespace().collect::<Vec<_>>().join(" "),
        EXPECTED.join(" ")
    );
    // The end of the terminal is an error.
    while let Ok(length @ 1..) = ours.read(&mut part) {
        shown.extend_from_slice(&part[..length]);
    }
    assert!(shown.ends_with(b"\r\x1b[K"), "{}", String::from_utf8_lossy(&shown));
    Pass
}

fn a_server_of_debug_files_is_known_by_its_certificate() -> Verdict {
    if Command::new("openssl").arg("version").output().is_err() {
        return Skip("this machine has no openssl".into());
    }
    let (dir, program) = built!(Dir::c("secure", &["-O2", "-Wl,--build-id=0x11223344556677"]));
    let config = "[req]\ndistinguished_name = none\nx509_extensions = all\n[none]\n[all]\nsubjectAltName = IP:127.0.0.1\n";
    std::fs::write(dir.path("config"), config).unwrap();
    for subject in ["known", "unknown"] {
        let (key, cert) = (format!("{subject}.key"), format!("{subject}.pem"));
        let words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
             -config config -sha256 -keyout";
        let words: Vec<&str> = words.split_whitespace().chain([&*key, "-out", &cert]).collect();
        built!(dir.run(&words));
    }
    let place = dir.path("buildid/11223344556677");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::copy(&program, format!("{place}/debuginfo")).unwrap();
    built!(dir.run(&["objcopy", "--strip-debug", "program"]));
    let mut server = Command::new("openssl")
        .args(["s_server", "-WWW", "-accept", "127.0.0.1:0", "-key", "known.key", "-cert", "known.pem"])
        .current_dir(dir.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
    let port =
        said.find_map(|line| Some(line.strip_prefix("ACCEPT ")?.rsplit_once(':')?.1.to_owned())).unwrap();
    let mut option = format!("-xdebuginfod=https://127.0.0.1:{port}");
    let run = |option: &str, cert: &str| {
        let cache = format!("DEBUGINFOD_CACHE_PATH={}", dir.path("cache"));
        let cert = format!("SSL_CERT_FILE={}", dir.path(cert));
        under(&["env", &cache, &cert], &[option, "-qc", &program, "-n", MEMBERS]).unwrap()
    };
    let o = run(&option, "unknown.pem").code(1);
    assert!(o.err.contains("certificate"), "{o:?}");
    let o = run(&option, "known.pem").code(0);
    assert_eq!(lines(&o), EXPECTED, "{o:?}");
    // A server of HTTP sends to it.
    std::fs::remove_dir_all(dir.path("cache")).unwrap();
    let (from, _) = answering(move |path| {
        format!("HTTP/1.1 301 Moved\r\nLocation: https://127.0.0.1:{port}{path}\r\nContent-Length: 0\r\n\r\n")
            .into_bytes()
    });
    option = format!("-xdebuginfod={from}");
    let o = run(&option, "known.pem").code(0);
    assert_eq!(lines(&o), EXPECTED, "{o:?}");
    let _ = server.kill();
    let _ = server.wait();
    Pass
}
