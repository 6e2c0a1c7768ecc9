//! Scripts with the firings that they are tested with: `tests/interpreted/NAME.d`, whose first
//! comment gives options, probes, symbols, memory and firings, a line each:
//!
//! ```text
//!  option NAME[=VALUE]
//!  library DIRECTORY                           of D libraries, in that of the scripts
//!  cpus 2
//!  probe PROVIDER MODULE FUNCTION NAME [TYPE, ...]
//!  symbol 0x1000-0x1100 MODULE`NAME            usymbol PID 0x1000-0x1100 MODULE`NAME
//!  kernel 0x1000 "text\0"                      user 0x2000 "text\0"
//!  tracer KEY=VALUE ...
//!  [N times] fire DESCRIPTION KEY=VALUE ...    numbers of lists have commas between them
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub, dead_code, missing_docs)]

use std::path::PathBuf;
use std::sync::Arc;

use dtrace::interpreter::{Firing, GivenProbes, Interpreter, Memory, Symbols};
use dtrace::options::Options;
use dtrace::{Program, Provider};

/// What the first comment of a script gives.
#[derive(Clone, Default)]
pub struct Given {
    pub options: Vec<(String, Option<String>)>,
    cpus: u32,
    probes: Vec<GivenProbes>,
    symbols: Symbols,
    tracer: Firing,
    firings: Vec<Firing>,
}

/// The directory of the scripts.
pub fn directory() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../dtrace/tests/interpreted"))
}

fn number(text: &str) -> u64 {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse::<i64>().ok().map(|n| n as u64),
    };
    parsed.unwrap_or_else(|| panic!("no number: {text}"))
}

fn bytes(text: &str) -> Vec<u8> {
    let inner = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).expect("a text in quotes");
    inner.replace("\\0", "\0").replace("\\n", "\n").into_bytes()
}

fn firing(words: &str, mut firing: Firing) -> Firing {
    for word in words.split_whitespace() {
        let (key, value) = word.split_once('=').unwrap_or_else(|| panic!("no value: {word}"));
        let n = || number(value);
        let list = || value.split(',').map(number).collect::<Vec<u64>>();
        match key {
            "time" => firing.time = n(),
            "walltime" => firing.walltime = n(),
            "cputime" => firing.cputime = n(),
            "cpu" => firing.cpu = n() as u32,
            "pid" => (firing.pid, firing.tid) = (n() as i32, n() as i32),
            "tid" => firing.tid = n() as i32,
            "uid" => firing.uid = n() as u32,
            "gid" => firing.gid = n() as u32,
            "ancestors" => firing.ancestors = list().iter().map(|n| *n as i32).collect(),
            "execname" => firing.execname = value.into(),
            "level" => firing.level = n() as u8,
            "args" => firing.args = list(),
            "errno" => firing.errno = n() as i32,
            "stack" => firing.stack = list(),
            "ustack" => firing.ustack = list(),
            other => panic!("what is {other}?"),
        }
    }
    firing
}

impl Given {
    /// Reads the first comment of a script.
    pub fn of(script: &str) -> Given {
        let comment = script.strip_prefix("/*").and_then(|s| s.split_once("*/")).expect("a comment").0;
        let mut given = Given { cpus: 1, ..Given::default() };
        let mut memory = Memory::new();
        let range = |text: &str| {
            let (start, end) = text.split_once('-').unwrap();
            number(start)..number(end)
        };
        for line in comment.lines().map(|l| l.trim().trim_start_matches('*').trim()) {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "option" => {
                    let (name, value) = rest.split_once('=').map_or((rest, None), |(n, v)| (n, Some(v)));
                    given.options.push((name.into(), value.map(String::from)));
                }
                "library" => {
                    let path = directory().join(rest).display().to_string();
                    given.options.push(("libdir".into(), Some(path)));
                }
                "cpus" => given.cpus = number(rest) as u32,
                "probe" => {
                    let words: Vec<&str> = rest.splitn(5, ' ').collect();
                    let types: Vec<&str> =
                        words.get(4).map_or_else(Vec::new, |t| t.split(',').map(str::trim).collect());
                    let at = given.probes.iter().position(|p| p.facts().family.contains(words[0]));
                    let provider =
                        at.map_or_else(|| GivenProbes::new(words[0]), |at| given.probes.remove(at));
                    given.probes.push(provider.probe(words[1], words[2], words[3], &types));
                }
                "symbol" => {
                    let (at, name) = rest.split_once(' ').unwrap();
                    let (module, name) = name.split_once('`').unwrap();
                    given.symbols = given.symbols.kernel(range(at), module, name);
                }
                "usymbol" => {
                    let words: Vec<&str> = rest.split(' ').collect();
                    let (module, name) = words[2].split_once('`').unwrap();
                    given.symbols =
                        given.symbols.user(number(words[0]) as i32, range(words[1]), module, name);
                }
                "kernel" | "user" => {
                    let (at, text) = rest.split_once(' ').unwrap();
                    memory = match word {
                        "kernel" => memory.kernel(number(at), bytes(text)),
                        _ => memory.user(number(at), bytes(text)),
                    };
                }
                "tracer" => given.tracer = firing(rest, Firing::default()),
                "fire" => given.fire(1, rest),
                times if rest.starts_with("times fire ") => {
                    given.fire(number(times), rest.trim_start_matches("times fire "));
                }
                _ => {}
            }
        }
        let memory = Arc::new(memory);
        given.firings.iter_mut().chain([&mut given.tracer]).for_each(|f| f.memory = memory.clone());
        given
    }

    fn fire(&mut self, times: u64, words: &str) {
        let (probe, rest) = words.split_once(' ').unwrap_or((words, ""));
        (0..times).for_each(|_| self.firings.push(firing(rest, Firing::of(probe))));
    }

    pub fn interpreter(&self) -> Interpreter {
        Interpreter::new(self.firings.clone())
            .with_cpus(self.cpus)
            .with_tracer(self.tracer.clone())
            .with_symbols(self.symbols.clone())
    }

    pub fn options(&self) -> Options {
        let mut options = Options::default();
        for (name, value) in &self.options {
            options.set(name, value.as_deref()).unwrap();
        }
        options
    }

    pub fn providers(&self) -> Vec<Box<dyn Provider>> {
        self.probes.iter().map(|p| Box::new(p.clone()) as Box<dyn Provider>).collect()
    }
}

/// The ids of given probes depend on how many other probes there are.
pub fn without_ids(program: &Program, text: String) -> String {
    let mut list = Vec::new();
    dtrace::list::described(&mut list, program, false).unwrap();
    let list = String::from_utf8(list).unwrap();
    let ids = list.lines().filter_map(|l| l.split_whitespace().next()).filter(|id| id.len() >= 4);
    ids.fold(text, |text, id| text.replace(id, "####"))
}

/// Takes every privilege of this thread; bpf(2) ends the process, and perf_event_open(2) does not
/// exist (compiling asks it for the counters of the machine). So what follows runs as any user, on
/// a kernel without BPF. (Credentials and filters belong to threads.)
pub fn without_privileges() {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        return;
    }
    const NOBODY: libc::c_long = 65534;
    // BPF_LD | BPF_W | BPF_ABS: the number of the call; BPF_JMP | BPF_JEQ; BPF_RET.
    let load = libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 };
    let is = |call: libc::c_long, jt| libc::sock_filter { code: 0x15, jt, jf: 0, k: call as u32 };
    let answer = |k| libc::sock_filter { code: 0x06, jt: 0, jf: 0, k };
    let mut filter = [
        load,
        is(libc::SYS_bpf, 2),
        is(libc::SYS_perf_event_open, 2),
        answer(libc::SECCOMP_RET_ALLOW),
        answer(libc::SECCOMP_RET_KILL_PROCESS),
        answer(libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: plain system calls; the filter outlives the call that copies it.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY), 0);
            assert_eq!(libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY), 0);
        }
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}
