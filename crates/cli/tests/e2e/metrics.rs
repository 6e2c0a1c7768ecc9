//! Metrics of sessions on the running kernel: `--format prometheus`, `graphite` and the like.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Child, Command, Stdio};

use crate::Verdict::{self, Pass, Skip};
use crate::heat::printed;
use crate::tool::{dtrace, finish, signal, start, workload};

tests! {
    files_of_metrics_have_the_numbers_that_are_printed
    what_cannot_be_a_metric_is_said
    a_script_may_print_the_lines_of_graphite_itself
    metrics_are_served_by_a_process_without_privileges
    the_process_that_serves_is_started_again
    who_serves_is_not_root_without_a_capability
    what_is_no_request_for_metrics_is_refused
    a_socket_of_metrics_is_for_its_user_and_goes_with_the_session
    lines_are_sent_to_a_server_of_graphite
    requests_are_sent_to_a_server_of_opentelemetry
    requests_over_https_are_for_a_server_that_the_certificates_know
    profiles_are_sent_to_a_server_of_opentelemetry
    the_command_of_the_service_is_ready_and_serves_what_the_dashboard_shows
}

/// The numbers of lines by what is before them.
fn numbers<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeMap<String, i64> {
    let split = |line: &'a str| {
        let (name, number) = line.rsplit_once(' ')?;
        Some((name.to_string(), number.parse().ok()?))
    };
    lines.filter(|line| !line.starts_with('#')).filter_map(split).collect()
}

/// `calls.read 7`, of the lines of a format: the last number of each path, or their sum.
fn of_lines(text: &str, parse: impl Fn(&str) -> Option<(String, i64)>, adds: bool) -> BTreeMap<String, i64> {
    let mut all = BTreeMap::new();
    for line in text.lines().filter(|line| !line.contains("exporter_")) {
        let (path, number) = parse(line).unwrap_or_else(|| panic!("{line}"));
        let there: &mut i64 = all.entry(path).or_default();
        *there = if adds { *there + number } else { number };
    }
    all
}

/// What is behind the name of the host.
fn behind_host(path: &str) -> Option<String> {
    Some(path.strip_prefix("dtrace.")?.split_once('.')?.1.to_string())
}

fn files_of_metrics_have_the_numbers_that_are_printed() -> Verdict {
    let dir = testing::dir::Dir::new("metrics-numbers");
    let file = |name: &str| dir.join(name).into_os_string().into_string().unwrap();
    let words = workload("stacks-slowly", 60);
    // What is cleared is printed no more, and exported as if it were not.
    let script = "syscall:::entry /pid == $target/ { @calls[probefunc] = count(); @amount[probefunc] = sum((uint32_t)arg1 % 100); \
                  @change[probefunc] = sum((int)(arg1 % 100) - 50); @spread[probefunc] = quantize(arg1 % 1000); @cleared[probefunc] = count(); } \
                  tick-20ms { clear(@cleared); } \
                  END { printa(\"calls.%s %@d\\n\", @calls); printa(\"amount.%s %@d\\n\", @amount); printa(\"change.%s %@d\\n\", @change); \
                        printa(@spread); trunc(@cleared); }";
    let names = ["x.prom", "x.openmetrics", "x.graphite", "x.statsd", "x.influx"].map(file);
    let mut all = vec!["-q", "-xevery=50ms", "-c", &words, "-n", script];
    names.iter().for_each(|name| all.extend(["--to", name]));
    let o = dtrace(&all).code(0);
    assert_eq!(o.err, "");
    let expected = numbers(o.out.lines().filter(|line| line.contains('.') && !line.contains('|')));
    let of = |name: &str| -> BTreeMap<String, i64> {
        let all = expected.iter().filter_map(|(path, n)| Some((path.strip_prefix(name)?.to_string(), *n)));
        all.collect()
    };
    assert!(of("calls.").len() > 2 && of("calls.").values().sum::<i64>() > 60, "{}", o.out);
    let read = |name: &String| std::fs::read_to_string(name).unwrap();

    let (prometheus, openmetrics) = (read(&names[0]), read(&names[1]));
    let found = numbers(prometheus.lines());
    let labelled = |family: &str| -> BTreeMap<String, i64> {
        let begin = format!("dtrace_{family}{{probefunc=\"");
        let key =
            |(name, n): (&String, &i64)| Some((name.strip_prefix(&begin)?.strip_suffix("\"}")?.into(), *n));
        found.iter().filter_map(key).collect()
    };
    assert_eq!(labelled("calls_total"), of("calls."));
    assert_eq!(labelled("cleared_total"), of("calls."));
    assert_eq!(labelled("amount_total"), of("amount."));
    assert_eq!(labelled("change"), of("change."));
    assert!(
        prometheus.contains("# TYPE dtrace_change gauge")
            && prometheus.contains("# TYPE dtrace_amount_total counter")
    );
    assert!(openmetrics.contains("# TYPE dtrace_amount counter") && openmetrics.ends_with("\n# EOF\n"));
    let plain = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with('#')).map(String::from).collect()
    };
    assert_eq!(plain(&prometheus), plain(&openmetrics));

    // A bucket that text prints by its least value ends before the next one.
    let spread = printed(&o.out);
    for ((key, label), count) in spread.iter().filter(|((key, _), _)| of("calls.").contains_key(key)) {
        let least: i64 = label.parse().unwrap();
        let until = |end: i64| {
            let name = format!("dtrace_spread_bucket{{probefunc=\"{key}\",le=\"{end}\"}}");
            found.get(&name).copied()
        };
        let end = if least == 0 { 0 } else { 2 * least - 1 };
        assert_eq!(
            until(end).unwrap() - until(least - 1).unwrap_or(0),
            *count,
            "{key} {label}\n{prometheus}"
        );
    }

    let graphite = |line: &str| {
        let [path, number, time] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
        let _: u64 = time.parse().ok()?;
        Some((behind_host(path)?, number.parse().ok()?))
    };
    let statsd = |line: &str| {
        let (path, rest) = line.split_once(':')?;
        Some((behind_host(path)?, rest.split_once('|')?.0.parse().ok()?))
    };
    let influx = |line: &str| {
        let [path, number, _] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
        let (name, tags) = path.strip_prefix("dtrace_")?.split_once(',')?;
        let values: Vec<&str> =
            tags.split(',').skip(1).filter_map(|tag| Some(tag.split_once('=')?.1)).collect();
        Some((
            format!("{name}.{}", values.join(".")),
            number.strip_prefix("value=")?.strip_suffix('i')?.parse().ok()?,
        ))
    };
    let all = [
        ("graphite", of_lines(&read(&names[2]), graphite, false)),
        ("influx", of_lines(&read(&names[4]), influx, false)),
        ("statsd", of_lines(&read(&names[3]).replace("|g", "|c"), statsd, true)),
    ];
    for (format, mut found) in all {
        let mut expected = expected.clone();
        for (key, n) in of("calls.") {
            expected.insert(format!("cleared.{key}"), n);
        }
        for ((key, label), count) in &spread {
            if of("calls.").contains_key(key) {
                expected.insert(format!("spread.{key}.{label}"), *count);
            }
        }
        if format == "statsd" {
            // A gauge is set, and not added.
            let is_gauge = |path: &String| path.starts_with("change.");
            found.retain(|path, _| !is_gauge(path));
            expected.retain(|path, _| !is_gauge(path));
        }
        assert_eq!(found, expected, "{format}");
    }
    Pass
}

fn what_cannot_be_a_metric_is_said() -> Verdict {
    let dir = testing::dir::Dir::new("metrics-nothing");
    let file = dir.join("x.prom").into_os_string().into_string().unwrap();
    let o = dtrace(&["-q", "--to", &file, "-n", "BEGIN { trace(1); exit(0); }"]).code(1);
    assert!(o.err.contains("--format prometheus: metrics are of aggregations"), "{}", o.err);
    let o = dtrace(&["-q", "--format", "graphite", "-n", "BEGIN { @[stack()] = count(); exit(0); }"]).code(1);
    assert!(o.err.contains("--format graphite: a stack in the key is no label"), "{}", o.err);
    assert!(!dir.join("x.prom").exists());
    // What is beside it is exported.
    let script = "BEGIN { @stacks[stack()] = count(); @n = count(); exit(0); }";
    let o = dtrace(&["-q", "--to", &file, "-n", script]).code(0);
    assert!(o.err.contains("--format prometheus: @stacks[stack()] = count() is left out"), "{}", o.err);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("\ndtrace_n_total 1\n") && !text.contains("dtrace_stacks"), "{text}");
    assert!(text.contains("dtrace_exporter_left_out_total{reason=\"stack\"} 1\n"), "{text}");
    Pass
}

fn a_script_may_print_the_lines_of_graphite_itself() -> Verdict {
    let script = "syscall::getppid:entry /pid == $target/ { @[execname, walltimestamp / 1000000000] = count(); } \
                  END { printa(\"dtrace.calls.%s %@d %d\\n\", @); }";
    let o = dtrace(&["-q", "-c", &workload("getppid", 100), "-n", script]).code(0);
    let mut sum = 0;
    for line in o.out.lines().filter(|line| !line.is_empty()) {
        let [path, n, second] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert!(
            path.starts_with("dtrace.calls.") && second.parse::<u64>().unwrap() > 1_700_000_000,
            "{line}"
        );
        sum += n.parse::<i64>().unwrap();
    }
    assert_eq!(sum, 100, "{}", o.out);
    Pass
}

/// An address at which nobody listens.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// What is answered to a request.
fn answer(mut stream: impl Read + Write, request: &[u8]) -> String {
    stream.write_all(request).unwrap();
    let mut text = Vec::new();
    // A request that is too long is answered before all of it is read.
    let _ = stream.read_to_end(&mut text);
    String::from_utf8(text).unwrap()
}

const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A session that serves at an address, once it does.
fn serving(address: &str, script: &str) -> Child {
    let child = start(&["-q", "-xevery=50ms", &format!("-xlisten={address}"), "-n", script]);
    testing::eventually("metrics are served", std::time::Duration::from_secs(30), || {
        let text = match address.strip_prefix("unix:") {
            Some(path) => UnixStream::connect(path).map(|stream| answer(stream, REQUEST)),
            None => TcpStream::connect(address).map(|stream| answer(stream, REQUEST)),
        };
        text.is_ok_and(|text| text.contains("\ndtrace_n_total 7\n"))
    });
    child
}

const SEVEN: &str = "BEGIN { @n = sum(7); @spread = quantize(5); }";

/// The process that serves for a session.
fn server_of(session: &Child) -> Option<String> {
    // Each thread has the children that it has started.
    let tasks = std::fs::read_dir(format!("/proc/{}/task", session.id())).unwrap().flatten();
    let children: String =
        tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok()).collect();
    let is_server = |pid: &&str| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.windows(15).any(|part| part == b"--serve-metrics")
    };
    children.split_whitespace().find(is_server).map(String::from)
}

fn the_process_that_serves_is_started_again() -> Verdict {
    let address = free_address();
    let script = format!("{SEVEN} tick-50ms {{ @ticks = count(); }}");
    let words = ["-xevery=50ms", &format!("-xlisten={address}"), "-n", &script];
    let child = start(&words);
    // A socket that listens is asked, whether or not somebody serves.
    let answered =
        || TcpStream::connect(&address).is_ok_and(|s| answer(s, REQUEST).contains("\ndtrace_n_total 7\n"));
    for _ in 0..2 {
        testing::eventually("metrics are served", testing::HANG_LIMIT, answered);
        let server = server_of(&child).unwrap();
        // SAFETY: a plain system call.
        assert_eq!(unsafe { libc::kill(server.parse().unwrap(), libc::SIGKILL) }, 0);
        testing::eventually("another process serves", testing::HANG_LIMIT, || {
            server_of(&child).is_some_and(|next| next != server)
        });
    }
    testing::eventually("metrics are served", testing::HANG_LIMIT, answered);
    signal(&child, libc::SIGINT);
    let o = finish(child).code(0);
    let said = format!("-x listen={address}: the process that serves has ended (signal: 9");
    assert_eq!(o.err.matches(&said).count(), 1, "{}", o.err);
    assert!(o.err.contains(&format!("{address}: 2 restarts of the process that serves\n")), "{}", o.err);
    Pass
}

fn who_serves_is_not_root_without_a_capability() -> Verdict {
    use std::os::unix::process::CommandExt;
    for capability in [6, 7] {
        let mut command = Command::new(crate::tool::binary());
        command.args(["-q", "-xlisten=127.0.0.1:0", "-n", SEVEN]);
        // CAP_SETGID and CAP_SETUID: no program that it executes has them.
        // SAFETY: the child makes one plain system call.
        unsafe {
            command.pre_exec(move || match libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
        let o = finish(crate::tool::spawn(&mut command).unwrap()).code(1);
        let said = "failed to write '127.0.0.1:0': who serves must not be root, and set";
        assert!(o.err.contains(said) && o.err.contains("Operation not permitted"), "{}", o.err);
    }
    Pass
}

fn metrics_are_served_by_a_process_without_privileges() -> Verdict {
    let address = free_address();
    let child = serving(&address, SEVEN);
    let text = answer(TcpStream::connect(&address).unwrap(), REQUEST);
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("version=0.0.4"), "{text}");
    assert!(text.contains("dtrace_spread_bucket{le=\"7\"} 1\n"), "{text}");
    let server = server_of(&child).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{server}/status")).unwrap();
    let field = |name: &str| -> Vec<&str> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().collect()
    };
    assert_eq!(field("Uid:"), ["65534"; 4]);
    assert_eq!(field("Gid:"), ["65534"; 4]);
    assert!(field("Groups:").is_empty(), "{status}");
    for set in ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:"] {
        assert_eq!(field(set), ["0000000000000000"], "{set}");
    }
    assert_eq!(field("NoNewPrivs:"), ["1"]);
    // The connection goes a moment later.
    testing::eventually("the process that serves has its two sockets only", testing::HANG_LIMIT, || {
        std::fs::read_dir(format!("/proc/{server}/fd")).unwrap().count() == 3
    });
    let o = dtrace(&["-q", &format!("-xlisten={address}"), "-n", SEVEN]).code(1);
    assert!(o.err.contains(&format!("failed to write '{address}': Address already in use")), "{}", o.err);
    signal(&child, libc::SIGINT);
    let o = finish(child).code(0);
    assert_eq!((o.err.as_str(), o.out.contains("  7")), ("", true), "{}", o.out);
    assert!(TcpStream::connect(&address).is_err());
    Pass
}

fn what_is_no_request_for_metrics_is_refused() -> Verdict {
    let address = free_address();
    let child = serving(&address, SEVEN);
    let connect = || TcpStream::connect(&address).unwrap();
    // Who says nothing is no obstacle to others.
    let silent: Vec<TcpStream> = (0..40).map(|_| connect()).collect();
    let status = |request: &[u8]| answer(connect(), request).get(9..12).unwrap_or_default().to_string();
    assert_eq!(status(REQUEST), "200");
    assert_eq!(status(b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n"), "403");
    assert_eq!(status(b"GET /other HTTP/1.1\r\nHost: localhost\r\n\r\n"), "404");
    assert_eq!(status(b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"), "405");
    assert_eq!(status(b"\0\0\0\r\n\r\n"), "400");
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat((8 << 10) - 26));
    assert_eq!(status(long.as_bytes()), "431");
    drop(silent);
    signal(&child, libc::SIGINT);
    finish(child).code(0);
    let o = dtrace(&["-xlisten=nowhere", "-n", SEVEN]).code(1);
    assert!(o.err.contains("it takes an address with a port, as in 127.0.0.1:9464"), "{}", o.err);
    let o = dtrace(&["-q", "-xlisten=127.0.0.1:0", "-n", "BEGIN { trace(1); exit(0); }"]).code(1);
    assert!(o.err.contains("-x listen=127.0.0.1:0: metrics are of aggregations"), "{}", o.err);
    // The kernel chooses a port.
    let o = dtrace(&["-q", "-xlisten=127.0.0.1:0", "-n", "BEGIN { @ = count(); exit(0); }"]).code(0);
    let said = "-x listen=127.0.0.1:0: metrics are served at 127.0.0.1:";
    let port: u16 = o.err.split(said).nth(1).and_then(|rest| rest.trim_end().parse().ok()).unwrap();
    assert_ne!(port, 0, "{}", o.err);
    Pass
}

fn a_socket_of_metrics_is_for_its_user_and_goes_with_the_session() -> Verdict {
    let dir = testing::dir::Dir::new("metrics-socket");
    let path = dir.join("socket");
    let address = format!("unix:{}", path.display());
    for signalled in [libc::SIGKILL, libc::SIGINT] {
        // The first session leaves its socket, which the second one replaces.
        let child = serving(&address, SEVEN);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        signal(&child, signalled);
        finish(child);
        let ended = || UnixStream::connect(&path).is_err();
        testing::eventually("the process that serves ends", testing::HANG_LIMIT, ended);
    }
    assert!(!path.exists());
    Pass
}

fn lines_are_sent_to_a_server_of_graphite() -> Verdict {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("-xgraphite={}", listener.local_addr().unwrap());
    let read = std::thread::spawn(move || {
        let reader = BufReader::new(listener.accept().unwrap().0);
        let lines: Vec<String> = reader.lines().map(Result::unwrap).collect();
        lines
    });
    let script = "syscall::getppid:entry /pid == $target/ { @n[probefunc] = count(); }";
    let words = workload("getppid", 100);
    let o = dtrace(&["-q", "-xevery=20ms", &server, "-c", &words, "-n", script]).code(0);
    assert_eq!((o.last_number(), o.err.as_str()), (100, ""), "{}", o.out);
    let lines = read.join().unwrap();
    let last: Vec<&str> = lines.last().unwrap().split(' ').collect();
    assert!(last[0].ends_with(".n.getppid") && last[1] == "100", "{lines:?}");
    // The server is gone.
    let o = dtrace(&["-q", &server, "-n", SEVEN]).code(1);
    assert!(
        o.err.contains("failed to write '127.0.0.1:") && o.err.contains("Connection refused"),
        "{}",
        o.err
    );
    Pass
}

/// The bodies of requests for a path, from a server that takes all until the headers of one are
/// `stop`.
fn collect(listener: &TcpListener, path: &str) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    // The first connection is the one of the start, until the one of a later request.
    loop {
        let mut reader = BufReader::new(listener.accept().unwrap().0);
        let (mut line, mut length) = (String::new(), None);
        // The test ends it: requests of the session may follow each of its intervals.
        let mut is_last = false;
        while reader.read_line(&mut line).unwrap_or(0) > 2 {
            length = line.strip_prefix("Content-Length: ").map_or(length, |n| n.trim().parse::<usize>().ok());
            is_last |= line == "stop\r\n";
            assert!(!line.contains(" HTTP/") || line.starts_with(&format!("POST {path} ")), "{line}");
            line.clear();
        }
        if is_last {
            return bodies;
        }
        let Some(length) = length else { continue };
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        bodies.push(body);
    }
}

fn requests_are_sent_to_a_server_of_opentelemetry() -> Verdict {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let option = format!("-xotlp=http://{address}");
    let served = std::thread::spawn(move || collect(&listener, "/v1/metrics"));
    let script = "BEGIN { @n[\"key of a row\"] = count(); } tick-100ms { @last[\"dtrace.last=1\"] = count(); exit(0); }";
    let o = dtrace(&["-q", "-xevery=20ms", &option, "-n", script]).code(0);
    assert_eq!(o.err, "");
    TcpStream::connect(address).unwrap().write_all(b"stop\r\n\r\n").unwrap();
    let bodies = served.join().unwrap();
    let has = |body: &[u8], text: &[u8]| body.windows(text.len()).any(|part| part == text);
    assert!(bodies.iter().any(|body| has(body, b"dtrace.n") && has(body, b"key of a row")), "{bodies:?}");
    let o = dtrace(&["-q", "-xotlp=ftp://host:4318", "-n", script]).code(1);
    assert!(o.err.contains("it takes a server with its port, as in http://localhost:4318"), "{}", o.err);
    Pass
}

/// A certificate of this machine's address, and its key. False: there is no openssl.
fn certify(dir: &testing::dir::Dir, name: &str) -> bool {
    let config = "[req]\ndistinguished_name = none\nx509_extensions = all\n[none]\n[all]\nsubjectAltName = IP:127.0.0.1\n";
    std::fs::write(dir.join("config"), config).unwrap();
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
                 -config config -sha256";
    let mut command = Command::new("openssl");
    command.args(words.split_whitespace()).arg("-keyout").arg(format!("{name}.key"));
    command.arg("-out").arg(format!("{name}.pem")).current_dir(&**dir);
    command.output().is_ok_and(|o| o.status.success())
}

fn requests_over_https_are_for_a_server_that_the_certificates_know() -> Verdict {
    let dir = testing::dir::Dir::new("metrics-https");
    if !(certify(&dir, "known") && certify(&dir, "unknown")) {
        return Skip("no package openssl".into());
    }
    // What is sent to it is its output, and what it answers its input.
    let mut server = Command::new("openssl")
        .args(["s_server", "-accept", "127.0.0.1:0", "-key", "known.key", "-cert", "known.pem"])
        .current_dir(&*dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut said, mut answers) =
        (BufReader::new(server.stdout.take().unwrap()), server.stdin.take().unwrap());
    let mut line = Vec::new();
    let port = loop {
        line.clear();
        assert!(said.read_until(b'\n', &mut line).unwrap() > 0, "it does not listen");
        let text = String::from_utf8_lossy(&line);
        if let Some((_, port)) = text.strip_prefix("ACCEPT ").and_then(|text| text.rsplit_once(':')) {
            break port.trim().to_string();
        }
    };
    let served = std::thread::spawn(move || {
        let (mut line, mut length, mut bodies) = (Vec::new(), None, Vec::new());
        while said.read_until(b'\n', &mut line).unwrap_or(0) > 0 {
            let text = String::from_utf8_lossy(&line).into_owned();
            length = text.strip_prefix("Content-Length: ").map_or(length, |n| n.trim().parse::<usize>().ok());
            line.clear();
            if text == "\r\n"
                && let Some(length) = length.take()
            {
                let mut body = vec![0; length];
                said.read_exact(&mut body).unwrap();
                bodies.push(body);
                answers.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
                answers.flush().unwrap();
            }
        }
        bodies
    });
    let option = format!("-xotlp=https://127.0.0.1:{port}");
    let run = |cert: &str| {
        let mut command = Command::new(crate::tool::binary());
        command.args([
            "-q",
            "-xevery=20ms",
            &option,
            "-n",
            "BEGIN { @n[\"key of a row\"] = count(); exit(0); }",
        ]);
        command.env("SSL_CERT_FILE", dir.join(cert)).env_remove("SSL_CERT_DIR");
        finish(crate::tool::spawn(&mut command).unwrap())
    };
    let o = run("unknown.pem").code(1);
    assert!(
        o.err.contains("failed to write 'https://127.0.0.1:") && o.err.contains("certificate"),
        "{}",
        o.err
    );
    let o = run("known.pem").code(0);
    assert_eq!(o.err, "");
    server.kill().unwrap();
    server.wait().unwrap();
    let bodies = served.join().unwrap();
    let has = |body: &[u8], text: &[u8]| body.windows(text.len()).any(|part| part == text);
    assert!(bodies.iter().any(|body| has(body, b"dtrace.n") && has(body, b"key of a row")), "{bodies:?}");
    Pass
}

/// The samples of requests by the descriptors that OpenTelemetry publishes for Python: how many
/// profiles there are, the sum of their values, and what their samples have.
const SAMPLES: &str = "
import sys
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceRequest
total, seen, ids = 0, set(), set()
for file in sys.argv[1:]:
    request = ExportProfilesServiceRequest.FromString(open(file, 'rb').read())
    known(request)
    d = request.dictionary
    text = lambda n: d.string_table[n]
    attribute = lambda n: text(d.attribute_table[n].key_strindex) + '=' + d.attribute_table[n].value.string_value
    for table in (d.mapping_table, d.location_table, d.function_table, d.link_table, d.attribute_table, d.stack_table):
        assert table[0].ByteSize() == 0
    assert text(0) == ''
    for r in request.resource_profiles:
        for s in r.scope_profiles:
            for p in s.profiles:
                assert len(p.profile_id) == 16 and p.profile_id not in ids and p.time_unix_nano and p.duration_nano
                ids.add(p.profile_id)
                for sample in p.samples:
                    total += sum(sample.values)
                    seen |= {attribute(n) for n in sample.attribute_indices}
                    for n in d.stack_table[sample.stack_index].location_indices:
                        l = d.location_table[n]
                        file = text(d.mapping_table[l.mapping_index].filename_strindex)
                        name = text(d.function_table[l.lines[0].function_index].name_strindex)
                        seen.add(f'{file}`{name}' + ' ' + ' '.join(attribute(n) for n in l.attribute_indices))
print(len(ids) > 1, total)
print('\\n'.join(sorted(seen)))
";

fn profiles_are_sent_to_a_server_of_opentelemetry() -> Verdict {
    let dir = testing::dir::Dir::new("metrics-profiles");
    let python = match crate::timeline::python(&dir, &["opentelemetry-proto"]) {
        Ok(python) => python,
        Err(why) => return Skip(format!("no package opentelemetry-proto of Python: {why}")),
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let option = format!("-xotlpprofiles=http://{address}");
    let served = std::thread::spawn(move || collect(&listener, "/v1development/profiles"));
    let words = workload("stacks-slowly", 60);
    let script =
        "syscall::getppid:entry /pid == $target/ { @[execname, ustack(), stack()] = count(); @n = count(); }";
    let o = dtrace(&["-q", "-xevery=20ms", &option, "-c", &words, "-n", script]).code(0);
    assert_eq!(o.err, "");
    TcpStream::connect(address).unwrap().write_all(b"stop\r\n\r\n").unwrap();
    let mut files = Vec::new();
    for (n, body) in served.join().unwrap().into_iter().enumerate() {
        let file = dir.join(n.to_string());
        std::fs::write(&file, body).unwrap();
        files.push(file);
    }
    let o = Command::new(python)
        .args(["-c", &format!("{}{SAMPLES}", crate::timeline::KNOWN)])
        .args(files)
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
    assert!(out.starts_with("True 120\n") && out.contains("\nexecname=e2e-"), "{out}{err}");
    assert!(
        out.contains("`e2e::workload::call_with_stack profile.frame.type=native")
            && out.contains("profile.frame.type=kernel"),
        "{out}"
    );
    let o = dtrace(&["-q", &option, "-n", "BEGIN { @[execname] = count(); }"]).code(1);
    assert!(o.err.contains("no key of an aggregation has one, as in @[ustack()] = count()"), "{}", o.err);
    Pass
}

fn the_command_of_the_service_is_ready_and_serves_what_the_dashboard_shows() -> Verdict {
    const SERVICE: &str = include_str!("../../../../docs/exporter/dtrace-exporter@.service");
    const SCRIPT: &str = include_str!("../../../../docs/exporter/system.d");
    const DASHBOARD: &str = include_str!("../../../../docs/exporter/grafana.json");
    let dir = testing::dir::Dir::new("metrics-service");
    let (script, socket, address) = (dir.join("system.d"), dir.join("notify"), free_address());
    std::fs::write(&script, SCRIPT).unwrap();
    let manager = UnixDatagram::bind(&socket).unwrap();
    let command = SERVICE.lines().find_map(|line| line.strip_prefix("ExecStart=dtrace ")).unwrap();
    let command = command.replace("${LISTEN}", &address).replace(" $OPTIONS", "");
    let command = command.replace("/etc/dtrace/%i.d", &script.display().to_string());
    let words: Vec<&str> = command.split(' ').collect();
    let child =
        crate::tool::spawn(Command::new(crate::tool::binary()).args(words).env("NOTIFY_SOCKET", &socket));
    let child = child.unwrap();
    let mut state = [0; 16];
    manager.set_read_timeout(Some(testing::HANG_LIMIT)).unwrap();
    let length = manager.recv(&mut state).unwrap();
    assert_eq!(&state[..length], b"READY=1");
    let text = testing::eventually("a program is counted", testing::HANG_LIMIT, || {
        Command::new("true").status().unwrap();
        let text = TcpStream::connect(&address).map(|stream| answer(stream, REQUEST)).unwrap_or_default();
        text.contains("\ndtrace_execs_total{execname=\"true\"} ").then_some(text)
    });
    assert!(text.contains("\ndtrace_exporter_time_seconds "), "{text}");
    signal(&child, libc::SIGTERM);
    finish(child).code(0);
    let mut samples = samples_of(SCRIPT);
    // What the script has aggregated is exported by these names.
    let exported = text.lines().filter_map(|line| line.strip_prefix("dtrace_")?.split_once(['{', ' ']));
    let (own, of_script): (Vec<_>, Vec<_>) = exported.partition(|(name, _)| name.starts_with("exporter_"));
    assert!(of_script.iter().all(|(name, _)| samples.contains_key(*name)), "{of_script:?}");
    for (name, rest) in own {
        let label = rest.split_once('=').map_or("", |(label, _)| label);
        samples.insert(name.into(), vec![label.into()]);
    }
    let mut asked = std::collections::BTreeSet::new();
    for line in DASHBOARD.lines().filter(|line| line.contains("\"expr\"")) {
        let names: Vec<&str> = line
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .filter_map(|word| word.strip_prefix("dtrace_"))
            .collect();
        let labels: Vec<&String> = names
            .iter()
            .flat_map(|name| samples.get(*name).unwrap_or_else(|| panic!("{name} is not exported: {line}")))
            .collect();
        for by in line.split(" by (").skip(1).filter_map(|rest| rest.split_once(')')) {
            by.0.split(", ")
                .for_each(|label| assert!(labels.iter().any(|of| *of == label), "{label}: {line}"));
        }
        asked.extend(names);
    }
    assert_eq!(asked, samples.keys().map(String::as_str).collect(), "everything is shown");
    Pass
}

/// The samples of a script's aggregations, `@name[KEY] = function(`, and their labels.
fn samples_of(script: &str) -> BTreeMap<String, Vec<String>> {
    let mut all = BTreeMap::new();
    for (name, rest) in script.split('@').skip(1).filter_map(|text| text.split_once('[')) {
        let (key, function) = rest.split_once("] = ").unwrap();
        let mut label: String =
            key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        while label.contains("__") {
            label = label.replace("__", "_");
        }
        let (suffix, more) = match function.split('(').next().unwrap() {
            "count" | "sum" => ("_total", None),
            "quantize" => ("_bucket", Some("le".to_string())),
            other => panic!("{other}"),
        };
        all.insert(format!("{name}{suffix}"), [label].into_iter().chain(more).collect());
    }
    assert_eq!(all.len(), 4, "{all:?}");
    all
}
