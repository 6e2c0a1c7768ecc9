//! Targets that make probes and fire them at once: each is held where it maps them, until they are
//! traced.

use std::process::Command;
use std::time::Duration;

use crate::Verdict::{self, Pass};
use crate::pid_later::end_of;
use crate::tool::{dtrace, finish, printed, signal, start};
use crate::usdt_dynamic::{Programs, made};
use crate::usdt_languages::{node_package, python_package};

tests! {
    a_target_in_c_fires_no_probe_that_it_makes_before_it_is_traced
    a_target_in_rust_fires_no_probe_that_it_makes_before_it_is_traced
    a_target_in_python_fires_no_probe_that_it_makes_before_it_is_traced
    a_target_in_node_fires_no_probe_that_it_makes_before_it_is_traced
    a_followed_child_fires_no_probe_that_it_makes_before_it_is_traced
    every_file_that_a_target_makes_is_traced_from_its_first_firing
    a_target_that_makes_probes_goes_on_when_its_tracer_ends
}

/// Makes as many providers as it is told, fires the probe of each as often as it is told, and keeps
/// them or not.
const PROGRAM: &str = r#"
#include <stdlib.h>
#include "dtrace_usdt.h"
int main(int argc, char **argv)
{
    for (int n = atoi(argv[1]); n > 0; n--) {
        dtusdt_provider *provider = dtusdt_provider_new("tstheld");
        dtusdt_probe *hit = dtusdt_probe_add(provider, "hit", "int");
        if (dtusdt_provider_enable(provider, argc > 4 ? argv[4] : NULL) != 0)
            return 3;
        for (int i = 0; i < atoi(argv[2]); i++)
            DTUSDT_PROBE(hit, i);
        if (atoi(argv[3]))
            dtusdt_provider_free(provider);
    }
    return 9;
}
"#;

const PYTHON: &str = r#"
from dtrace_usdt import Provider
provider = Provider("tstheld")
hit = provider.probe("hit", int)
provider.enable()
for i in range(300):
    hit(i)
"#;

const JAVASCRIPT: &str = r#"
const { Provider } = require(process.argv[2]);
const provider = new Provider('tstheld');
const hit = provider.probe('hit', Number);
provider.enable();
for (let i = 0; i < 1000; i++) hit.fire(i);
"#;

/// How often a command's probes fired, and with what sum of their arguments. (Tests beside fire
/// probes of that name too.)
fn fired(command: &str, processes: &str, more: &[&str]) -> String {
    let script = format!(
        "tstheld{processes}:::hit /progenyof($target)/ {{ @ = count(); @s = sum(arg0); }} END {{ printa(\"%@d %@d\", @, @s); }}"
    );
    let o = dtrace(&[more, &["-Zqc", command, "-n", &script]].concat()).code(0);
    o.out.trim().to_owned()
}

/// What a thousand firings are, with 0 to 999.
const THOUSAND: &str = "1000 499500";

fn a_target_in_c_fires_no_probe_that_it_makes_before_it_is_traced() -> Verdict {
    let programs = made!(Programs::new("held"));
    let program = made!(programs.compile(PROGRAM, false));
    for command in [format!("{program} 1 1000 0"), format!("{program} 1 1000 0 /dev/shm")] {
        for processes in ["$target", "*"] {
            assert_eq!(fired(&command, processes, &[]), THOUSAND, "{command} {processes}");
        }
    }
    // Without symbols and without a C library of its own.
    let stripped = programs.0.join("stripped").display().to_string();
    let c = crate::usdt_dynamic::sources("c");
    let mut compiler = Command::new("cc");
    compiler.args(["-static", "-s", "-O2", "-o", &stripped]).arg(programs.0.join("program.c"));
    if compiler.arg(c.join("dtrace_usdt.c")).arg("-I").arg(&c).output().unwrap().status.success() {
        assert_eq!(fired(&format!("{stripped} 1 1000 0"), "$target", &[]), THOUSAND);
    }
    Pass
}

fn a_target_in_rust_fires_no_probe_that_it_makes_before_it_is_traced() -> Verdict {
    made!(Programs::new("held-rust"));
    let command = format!("{} --workload made 1000", std::env::current_exe().unwrap().display());
    assert_eq!(fired(&command, "$target", &[]), THOUSAND);
    Pass
}

fn a_target_in_python_fires_no_probe_that_it_makes_before_it_is_traced() -> Verdict {
    let programs = made!(Programs::new("held-python"));
    made!(python_package(&programs));
    std::fs::write(programs.0.join("script.py"), PYTHON).unwrap();
    // `python3` may be a script that executes it.
    let command = format!("python3 {}", programs.0.join("script.py").display());
    let path = format!("setenv=PYTHONPATH={}", programs.0.display());
    assert_eq!(fired(&command, "$target", &["-x", &path]), "300 44850");
    Pass
}

fn a_target_in_node_fires_no_probe_that_it_makes_before_it_is_traced() -> Verdict {
    let programs = made!(Programs::new("held-node"));
    made!(node_package(&programs));
    std::fs::write(programs.0.join("script.js"), JAVASCRIPT).unwrap();
    let [script, package] = ["script.js", "index.js"].map(|file| programs.0.join(file).display().to_string());
    assert_eq!(fired(&format!("node {script} {package}"), "$target", &[]), THOUSAND);
    Pass
}

fn a_followed_child_fires_no_probe_that_it_makes_before_it_is_traced() -> Verdict {
    let programs = made!(Programs::new("held-child"));
    let program = made!(programs.compile(PROGRAM, false));
    let shell = programs.0.join("many.sh");
    std::fs::write(&shell, format!("for n in 1 2 3 4 5; do {program} 2 100 0; done; exit 0\n")).unwrap();
    for follow in ["exec", "all"] {
        let follow = format!("follow={follow}");
        assert_eq!(
            fired(&format!("/bin/sh {}", shell.display()), "*", &["-x", &follow]),
            "1000 49500",
            "{follow}"
        );
    }
    Pass
}

fn every_file_that_a_target_makes_is_traced_from_its_first_firing() -> Verdict {
    let programs = made!(Programs::new("held-files"));
    let program = made!(programs.compile(PROGRAM, false));
    assert_eq!(fired(&format!("{program} 200 5 0"), "$target", &[]), "1000 2000");
    assert_eq!(fired(&format!("{program} 200 5 1"), "$target", &[]), "1000 2000");
    Pass
}

fn a_target_that_makes_probes_goes_on_when_its_tracer_ends() -> Verdict {
    let programs = made!(Programs::new("held-ends"));
    let program = made!(programs.compile(PROGRAM, false));
    for n in 0..6u64 {
        let mut process = Command::new(&program).args(["6000", "1", "1"]).spawn().unwrap();
        let pid = process.id().to_string();
        let script = "BEGIN { printf(\"%d\\n\", $target); } tstheld$target:::hit { @ = count(); }";
        let mut tracer = start(&["-Zq", "-p", &pid, "-n", script]);
        printed(&mut tracer);
        // At another moment each time.
        std::thread::sleep(Duration::from_micros(3000 + 1700 * n));
        if n % 2 == 0 {
            tracer.kill().unwrap();
            tracer.wait().unwrap();
        } else {
            signal(&tracer, 2);
            finish(tracer).code(0);
        }
        assert_eq!(end_of(&mut process), Some(9), "{n}");
    }
    Pass
}
