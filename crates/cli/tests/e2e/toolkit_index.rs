//! What leads to the tools: the command `dtrace-toolkit`, the chapter of questions, and the table
//! of the tools of other tracers.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Verdict::{self, Pass};
use crate::tool::finish;
use crate::toolkit::{Program, ROOT, run, start, tools, write_compiler};

tests! {
    the_toolkit_lists_searches_and_explains_its_tools
    the_toolkit_is_found_where_it_is_installed
    tools_that_show_processes_leave_out_the_tracer
    each_question_leads_to_tools_that_exist
    each_tool_of_bcc_and_bpftrace_has_one_here_or_a_reason
    commands_for_tools_of_bcc_and_bpftrace_compile
}

fn document(name: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join("docs/book/src").join(name)).unwrap()
}

fn the_toolkit_lists_searches_and_explains_its_tools() -> Verdict {
    let list = run("dtrace-toolkit", &[]).code(0);
    let names: Vec<&str> = list.out.lines().filter_map(|l| l.split_whitespace().next()).collect();
    assert_eq!(names, tools(), "{list:?}");
    assert!(list.out.lines().all(|l| l.split_whitespace().count() > 2), "{list:?}");
    assert!(names.len() > 120, "{list:?}");
    assert_eq!(run("dtrace-toolkit", &["list"]).code(0).out, list.out);
    // All words, in any case; what a tool's line has, not its text.
    let found = run("dtrace-toolkit", &["search", "TCP", "again"]).code(0);
    assert_eq!(found.out, "tcpretrans       segments of TCP that are sent again\n");
    let none = run("dtrace-toolkit", &["search", "no-such-word"]).code(1);
    assert_eq!((none.out, none.err), (String::new(), "dtrace-toolkit: no tool has 'no-such-word'\n".into()));
    let explained = run("dtrace-toolkit", &["explain", "runqslower"]).code(0);
    for text in ["threads that wait long for a CPU", "-p pid\nOnly this process.", "scripts/runqslower\n"] {
        assert!(explained.out.contains(text), "{explained:?}");
    }
    assert!(!explained.out.contains('\\') && !explained.out.contains("rwbypid"), "{explained:?}");
    for (words, code, why) in [
        (&["explain", "no-such-tool"][..], 1, "there is no tool 'no-such-tool'"),
        (&["explain", "../Cargo.toml"], 2, "a tool has a name of small letters and digits: ../Cargo.toml"),
        (&["explain"], 2, "the name of a tool is needed"),
        (&["search"], 2, "a word is needed"),
        (&["find"], 2, "list, search or explain, not find"),
    ] {
        let o = run("dtrace-toolkit", words).code(code);
        assert!(o.out.is_empty() && o.err.starts_with(&format!("dtrace-toolkit: {why}")), "{o:?}");
    }
    Pass
}

fn the_toolkit_is_found_where_it_is_installed() -> Verdict {
    let place = Program::shell("tk");
    let at = |name: &str| place.dir.join(name);
    for dir in ["bin", "share/dtrace/toolkit", "share/man/man1"] {
        std::fs::create_dir_all(at(dir)).unwrap();
    }
    for tool in ["dtrace-toolkit", "opensnoop"] {
        let to = at("share/dtrace/toolkit").join(tool);
        std::fs::copy(Path::new(ROOT).join("scripts").join(tool), to).unwrap();
    }
    std::os::unix::fs::symlink("../share/dtrace/toolkit/dtrace-toolkit", at("bin/dtrace-toolkit")).unwrap();
    let page = Path::new(ROOT).join("docs/dtrace-toolkit.1");
    // In packages the page is compressed.
    let zipped = Command::new("gzip").args(["-c"]).arg(&page).output();
    let (to, text) = match zipped {
        Ok(o) if o.status.success() => ("share/man/man1/dtrace-toolkit.1.gz", o.stdout),
        _ => ("share/man/man1/dtrace-toolkit.1", std::fs::read(&page).unwrap()),
    };
    std::fs::write(at(to), text).unwrap();
    let execute = |words: &[&str]| {
        let mut command = Command::new(at("bin/dtrace-toolkit"));
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command.spawn().unwrap()).code(0).out
    };
    assert_eq!(execute(&[]).lines().count(), 2);
    // In a package, where another program has the name of the tool.
    std::os::unix::fs::symlink("../share/dtrace/toolkit/opensnoop", at("bin/opensnoop-dtrace")).unwrap();
    let names: Vec<String> =
        execute(&[]).lines().filter_map(|l| Some(l.split_once(' ')?.0.to_string())).collect();
    assert_eq!(names, ["dtrace-toolkit", "opensnoop-dtrace"]);
    assert!(execute(&["search", "opened"]).starts_with("opensnoop-dtrace "));
    for name in ["opensnoop", "opensnoop-dtrace"] {
        let explained = execute(&["explain", name]);
        assert!(explained.contains("Only calls that fail."), "{explained}");
        assert!(explained.contains("\nIts command: opensnoop-dtrace\n"), "{explained}");
    }
    let explained = execute(&["explain", "opensnoop"]);
    assert!(explained.contains("Only calls that fail.") && explained.contains("-f path\n"), "{explained}");
    Pass
}

/// Tools of calls and faults without `pid != $pid`, and what else keeps the tracer out.
const OTHERWISE: [(&str, &str); 12] = [
    ("argdist", "inline int WANTED"),
    ("biosnoop", "io:::"),
    ("dtrace-toolkit", "usage: dtrace-toolkit"),
    ("lastwords", "execname == NAME"),
    ("pfilestat", "pid == PID"),
    ("tcpaccept", "SOCK[arg0]"),
    ("tcpsnoop", "tcp:::"),
    ("tcptop", "tcp:::"),
    ("vfsstat", "reads++"),
    ("vmstatevents", "vminfo:::"),
    ("vopstat", "fi_mount"),
    ("filelife", "born[self->path] && pid != $pid"),
];

fn tools_that_show_processes_leave_out_the_tracer() -> Verdict {
    for tool in tools() {
        let text = std::fs::read_to_string(Path::new(ROOT).join("scripts").join(&tool)).unwrap();
        let shows = ["\nsyscall::", "\nfsinfo:::", "\nvminfo:::"].iter().any(|probes| text.contains(probes));
        let otherwise = OTHERWISE.iter().find(|(name, _)| *name == tool);
        let kept_out = otherwise.map_or("pid != $pid", |(_, text)| text);
        assert!(!shows || text.contains(kept_out), "{tool} shows what dtrace does itself");
    }
    // It writes its lines to this process, and reads much before it traces.
    let tracing = ["syscallbypid", "readdist", "writedist", "vmbypid"].map(|tool| start(tool, &[]));
    let pids: Vec<String> = tracing.iter().map(|t| t.id().to_string()).collect();
    run("opensnoop", &["-h"]);
    for (o, pid) in tracing.map(|t| t.end().code(0)).iter().zip(&pids) {
        let own = o.out.lines().filter(|l| l.split_whitespace().next() == Some(pid));
        assert_eq!(own.collect::<Vec<_>>(), [""; 0], "{o:?}");
    }
    Pass
}

/// What is written as code in a text.
fn code(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn each_question_leads_to_tools_that_exist() -> Verdict {
    let chapter = document("which-tool.md");
    let tools: BTreeSet<String> = tools().into_iter().collect();
    let rows = chapter.lines().filter(|l| l.starts_with("| ") && !l.starts_with("| Question |"));
    let mut asked = 0;
    for row in rows {
        let Some((_, answer)) = row.trim_end_matches(" |").rsplit_once(" | ") else { panic!("{row}") };
        let named = code(answer);
        assert!(!named.is_empty(), "{row}");
        named.iter().for_each(|t| assert!(tools.contains(*t), "{t}: {row}"));
        asked += 1;
    }
    assert!(asked > 40, "{asked}");
    Pass
}

/// The rows of the table: another tracer's tool, and what is here.
fn rows(table: &str) -> Vec<(String, String)> {
    let row = |l: &str| {
        let (theirs, ours) = l.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ")?;
        let name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b);
        theirs.bytes().all(name).then(|| (theirs.to_string(), ours.replace("\\|", "|")))
    };
    table.lines().filter_map(row).collect()
}

/// The tools of bcc (of `tools` and `libbpf-tools`) and of bpftrace.
const PEERS: &str = "argdist bashreadline bindsnoop biolatency biolatpcts biopattern biosnoop biostacks biotop \
    bitesize bpflist btrfsdist btrfsslower cachestat cachetop capable cobjnew compactsnoop cpudist cpufreq cpuunclaimed \
    cpuwalk criticalstat cthreads dbslower dbstat dcsnoop dcstat deadlock dirtop doublefree drsnoop execsnoop \
    exitsnoop ext4dist ext4slower f2fsslower filegone filelife fileslower filetop fsdist fsslower funccount \
    funcinterval funclatency funcslower futexctn gethostlatency hardirqs inject javacalls javaflow javagc \
    javaobjnew javastat javathreads killsnoop klockstat ksnoop kvmexit llcstat loads mdflush memleak mountsnoop mptcpify \
    mysqld_qslower naptime netqtop nfsdist nfsslower nodegc nodestat numamove numasched offcputime offwaketime \
    oomkill opensnoop perlcalls perlflow perlstat phpcalls phpflow phpstat pidpersec ppchcalls profile \
    pythoncalls pythonflow pythongc pythonstat rdmaucma readahead reset-trace rubycalls rubyflow rubygc \
    rubyobjnew rubystat runqlat runqlen runqslower setuids shmsnoop sigsnoop slabratetop sofdsnoop softirqs softirqslower \
    solisten ssllatency sslsniff sslsnoop stackcount statsnoop swapin syncsnoop syscount tclcalls tclflow \
    tclobjnew tclstat tcpaccept tcpcong tcpconnect tcpconnlat tcpdrop tcplife tcppktlat tcpretrans tcprtt \
    tcpstates tcpsubnet tcpsynbl tcptop tcptracer threadsnoop tplist trace ttysnoop ucalls uflow ugc undump \
    uobjnew ustat uthreads vfscount vfsstat virtiostat wakeuptime wqlat writeback xfsdist xfsslower zfsdist \
    zfsslower";

fn each_tool_of_bcc_and_bpftrace_has_one_here_or_a_reason() -> Verdict {
    let tools: BTreeSet<String> = tools().into_iter().collect();
    let rows = rows(&document("toolkit-peers.md"));
    let named: BTreeSet<&str> = rows.iter().map(|(theirs, _)| theirs.as_str()).collect();
    assert_eq!(named.len(), rows.len(), "a tool has two rows");
    for theirs in PEERS.split_whitespace() {
        assert!(named.contains(theirs), "{theirs} has no row");
    }
    let mut absent = Vec::new();
    for (theirs, ours) in &rows {
        if let Some(reason) = ours.strip_prefix("none: ") {
            assert!(reason.split(' ').count() > 2, "{theirs}: {ours}");
            absent.push(theirs.as_str());
            continue;
        }
        let named = code(ours);
        assert!(!named.is_empty(), "{theirs}: {ours}");
        for text in named.iter().filter(|t| !t.starts_with("dtrace ")) {
            // A tool, perhaps with its options.
            assert!(tools.contains(text.split(' ').next().unwrap()), "{theirs}: {ours}");
        }
    }
    // They change what the kernel does, or are about another machine.
    assert_eq!(absent, ["inject", "mptcpify", "ppchcalls", "reset-trace"]);
    Pass
}

fn commands_for_tools_of_bcc_and_bpftrace_compile() -> Verdict {
    if let Some(skip) = crate::machine::no_types() {
        return skip;
    }
    let place = Program::shell("tk");
    write_compiler(&place.dir);
    let path = format!("{}:/usr/bin:/bin", place.dir.display());
    let table = rows(&document("toolkit-peers.md"));
    // A small program: its files are read for each command.
    let mut process = Command::new("sleep").arg("600").spawn().unwrap();
    let (mut compiled, mut wrong) = (0, Vec::new());
    for (theirs, ours) in &table {
        for text in code(ours).into_iter().filter(|t| t.starts_with("dtrace ")) {
            let text = text.replace(" PID ", &format!(" {} ", process.id()));
            let mut command = Command::new("sh");
            command.args(["-c", &text]).env("PATH", &path);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let o = finish(command.spawn().unwrap());
            // This kernel may lack a probe: the message says why.
            let lacks_a_probe = o.err.contains("does not match any probes: ");
            if o.code != Some(0) && !lacks_a_probe {
                wrong.push(format!("{theirs}: {o:?}"));
            }
            compiled += usize::from(o.code == Some(0));
        }
    }
    let _ = process.kill();
    let _ = process.wait();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(compiled >= 30, "{compiled}");
    Pass
}
