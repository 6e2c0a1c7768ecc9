//! Functions that begin with a site of USDT that has a semaphore: for all who trace it, the place
//! has that semaphore.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::Verdict::{self, Pass};
use crate::tool::{dtrace, finish, printed, signal, start};
use crate::usdt::{Programs, compiled};
use crate::usdt_later::own;

tests! {
    a_function_of_a_later_library_that_begins_with_a_site_has_both_probes
    a_function_of_a_later_program_that_begins_with_a_site_has_both_probes
    a_site_that_another_tracer_keeps_from_being_traced_is_named
    a_later_site_that_another_tracer_keeps_from_being_traced_is_named
}

/// `at` begins with a site, and `beside` has one without a semaphore.
const SITES: &str = r#"
    __attribute__((section(".probes"), used)) volatile unsigned short tst_at_semaphore;
    PLAIN void at(long a)
    {
        __asm__ volatile("990: nop\n" NOTE("tst", "at", "tst_at_semaphore", "-8@%0") :: "r"(a));
    }
    PLAIN void beside(long a)
    {
        __asm__ volatile("990: nop\n" NOTE("tst", "at", "0", "-8@%0") :: "r"(a + 1000));
    }
    PLAIN int calls(void)
    {
        int on = 0;
        for (int i = 0; i < 100; i++) {
            at(i);
            beside(i);
            on += tst_at_semaphore;
        }
        return on;
    }
"#;

const FLAGS: [&str; 1] = ["-fcf-protection=none"];

const OPENER: &str = r#"
    #include <dlfcn.h>
    int main(int c, char **v)
    {
        void *l = dlopen(v[1], RTLD_NOW);
        printf("on %d\n", ((int (*)(void))dlsym(l, "calls"))());
        return 0;
    }
"#;

/// The script for a module, and what it prints. `pid` comes first, or last.
fn script(provider: &str, (module, probe): (&str, &str), first: bool) -> String {
    let pid = format!("pid$target:{module}:at:{probe} {{ @a = count(); }}");
    let usdt = format!("{provider}:{module}:at:at {{ @b = count(); @c = sum(arg0); }}");
    let [one, two] = if first { [pid, usdt] } else { [usdt, pid] };
    format!("{one} {two} END {{ printa(\"%@d %@d %@d\\n\", @a, @b, @c); }}")
}

fn a_function_of_a_later_library_that_begins_with_a_site_has_both_probes() -> Verdict {
    let programs = compiled!(Programs::new("places-library"));
    let text = SITES.replace("\"tst\"", &format!("\"{}\"", own("tst")));
    let library =
        compiled!(programs.compile("libat.so", &text, &[&FLAGS[..], &["-shared", "-fPIC"]].concat()));
    let opener = compiled!(programs.compile("opener", OPENER, &["-ldl"]));
    for provider in ["$target", "*"].map(|processes| format!("{}{processes}", own("tst"))) {
        for (means, probe) in [("ret", "entry"), ("uretprobe", "return")] {
            for first in [false, true] {
                let script = script(&provider, ("libat.so", probe), first);
                let means = format!("pidreturn={means}");
                let o = dtrace(&["-qZ", "-x", &means, "-c", &format!("{opener} {library}"), "-n", &script])
                    .code(0);
                assert!(o.out.contains("on 100\n"), "{script}: {o:?}");
                assert!(o.out.contains("100 100 4950\n"), "{script}: {o:?}");
            }
        }
    }
    Pass
}

fn a_function_of_a_later_program_that_begins_with_a_site_has_both_probes() -> Verdict {
    let programs = compiled!(Programs::new("places-program"));
    let text = SITES.replace("\"tst\"", &format!("\"{}\"", own("tst")));
    let text = format!("{text} int main(void) {{ printf(\"on %d\\n\", calls()); return 0; }}");
    let program = compiled!(programs.compile("later", &text, &FLAGS));
    // The shell stays, so that the program is a child.
    std::fs::write(programs.path("run.sh"), format!("{program}\ntrue\n")).unwrap();
    let command = format!("sh {}", programs.path("run.sh"));
    let provider = format!("{}*", own("tst"));
    for first in [false, true] {
        let script = script(&provider, ("later", "entry"), first);
        let o = dtrace(&["-qZ", "-x", "follow=all", "-c", &command, "-n", &script]).code(0);
        assert!(o.out.contains("on 100\n"), "{script}: {o:?}");
        assert!(o.out.contains("100 100 4950\n"), "{script}: {o:?}");
    }
    Pass
}

fn a_site_that_another_tracer_keeps_from_being_traced_is_named() -> Verdict {
    let programs = compiled!(Programs::new("places-other"));
    let main = "int main(void) { getchar(); calls(); getchar(); return 0; }";
    let program = compiled!(programs.compile("waits", &format!("{SITES} {main}"), &FLAGS));
    let mut process = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let pid = process.id();
    let script = format!("BEGIN {{ printf(\"begun\\n\"); }} pid{pid}:a.out:at:entry {{ @ = count(); }}");
    let mut other = start(&["-q", "-n", &script]);
    printed(&mut other);
    // Of two sites of the probe one is left.
    let script = format!(
        "BEGIN {{ printf(\"begun\\n\"); }} tst{pid}:::at {{ @[probefunc] = count(); }} END {{ printa(\"%s %@d\\n\", @); }}"
    );
    let mut own = start(&["-q", "-n", &script]);
    printed(&mut own);
    crate::usdt::next(&mut process);
    drop(process.stdin.take());
    process.wait().unwrap();
    for session in [&own, &other] {
        signal(session, 15);
    }
    let (o, other) = (finish(own).code(0), finish(other).code(0));
    assert_eq!(other.last_number(), 100, "{other:?}");
    assert_eq!(o.out.split_whitespace().collect::<Vec<_>>(), ["begun", "beside", "100"], "{o:?}");
    assert!(o.err.contains(&format!("not enabled: tst{pid}:waits:at:at: ")), "{o:?}");
    assert!(o.err.contains("with another semaphore or without one"), "{o:?}");
    Pass
}

fn a_later_site_that_another_tracer_keeps_from_being_traced_is_named() -> Verdict {
    let programs = compiled!(Programs::new("places-later"));
    let text = SITES.replace("\"tst\"", &format!("\"{}\"", own("tst")));
    let library =
        compiled!(programs.compile("libat.so", &text, &[&FLAGS[..], &["-shared", "-fPIC"]].concat()));
    let opener = compiled!(programs.compile(
        "opener",
        &OPENER.replace("return 0", "fflush(stdout); getchar(); return 0"),
        &["-ldl"]
    ));
    let mut process =
        Command::new(&opener).arg(&library).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // It has the library when it says what its calls have counted.
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let script = format!("BEGIN {{ printf(\"begun\\n\"); }} pid{}:libat.so:at:entry {{}}", process.id());
    let mut other = start(&["-q", "-n", &script]);
    printed(&mut other);
    let provider = format!("{}$target", own("tst"));
    let script = format!("{provider}:libat.so:at:at {{ @ = count(); }} END {{ printa(\"%@d\\n\", @); }}");
    let command = format!("{opener} {library}");
    let o = dtrace(&["-qZ", "-c", &command, "-n", &script]).code(0);
    drop(process.stdin.take());
    process.wait().unwrap();
    signal(&other, 15);
    finish(other).code(0);
    assert!(line == "on 0\n" && o.out.contains(&line), "{line} {o:?}");
    assert!(o.err.contains("with another semaphore or without one"), "{o:?}");
    Pass
}
