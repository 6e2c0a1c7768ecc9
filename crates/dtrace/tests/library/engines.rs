//! The kernel and the interpreter as engines of the same program: the same text, messages and
//! status.

use std::time::{Duration, Instant};

use dtrace::events::Event;
use dtrace::interpreter::{Firing, Interpreter};
use dtrace::options::Options;
use dtrace::{Session, Status};

use crate::tool::{Output, Traced, compile, sink, take_reports};
use crate::{Test, Verdict};

pub(crate) const TESTS: &[Test] = &[("engines::both_engines_print_the_same", agree)];

/// All is in BEGIN and END, which fire in this process by both engines.
const SCRIPT: &str = r#"
struct point { int x; short y; char name[6]; };
struct point p; int zero; int seen[string, int];
BEGIN { printf("%s %d %d\n", probename, pid, uid); trace(id); trace(epid); trace("text"); }
BEGIN { p.x = -3; p.y = 7; print(p); s = strjoin("ab", lltostr(p.x)); trace(s); tracemem(&p, 8); }
BEGIN { seen["a", 1] = 5; seen["b", 2] += 3; @k["a", 1] = sum(seen["a", 1]); @k["b", 2] = sum(seen["b", 2]); }
BEGIN { @q = quantize(1); @q = quantize(-100); @l = lquantize(15, 0, 100, 10); @a = avg(3); @a = avg(4); @s = stddev(9); }
BEGIN { printf("lost\n"); zero = 1 / zero; }
BEGIN { this->c = copyinstr(8); printf("never %s\n", this->c); }
ERROR { printf("fault %d %d %d %d %x\n", arg1, arg2, arg3, arg4, arg5); }
BEGIN /substr("readable", 0, 4) == "read" && index("hay needle", "needle") == 4/ { printf("%s\n", basename("/a/b.c")); }
BEGIN { self->t = 11; this->u = self->t << 2 ^ 0xff; printf("%d %x %c\n", this->u, (unsigned char)-1, 'c'); }
BEGIN { normalize(@k, 2); printa("%s %d %@d\n", @k); exit(4); }
END { printf("%d %d %s\n", self->t, seen["b", 2], probename); trace(stringof("end")); exit(6); }
"#;

/// A report, without the time and the CPU.
fn report_text(report: &Event<'_>) -> String {
    match report {
        Event::Fault(fault) => fault.to_string(),
        other => format!("{other:?}"),
    }
}

fn run(mut session: Traced, out: &Output) -> (String, Vec<String>, i32) {
    let begun = Instant::now();
    while session.work(None, Duration::from_millis(20)).unwrap() == Status::Working {
        assert!(begun.elapsed() < testing::HANG_LIMIT, "no end");
    }
    let status = session.finish().unwrap();
    let notices = take_reports(&mut session).iter().map(report_text).collect();
    (out.text(), notices, status)
}

fn agree() -> Verdict {
    let mut options = Options::default();
    let program = compile(SCRIPT, &mut options, 0);
    let out = Output::default();
    let kernel = Session::start(&program, options.clone(), Vec::new(), sink(&out)).unwrap();
    let kernel = run(kernel, &out);
    // SAFETY: these calls have no arguments.
    let (cpu, tid) = unsafe { (libc::sched_getcpu(), libc::gettid()) };
    let tracer = Firing { pid: std::process::id() as i32, tid, cpu: cpu as u32, ..Firing::default() };
    let out = Output::default();
    let interpreter = Interpreter::new([]).with_tracer(tracer);
    let interpreter = run(Session::interpret(&program, options, interpreter, sink(&out)).unwrap(), &out);
    // The CPU on which BEGIN and END ran is that of the moment.
    let without_cpu = |text: &str| -> Vec<String> {
        let row = |l: &str| l.get(..3).is_some_and(|cpu| cpu.trim().parse::<u32>().is_ok());
        text.lines().map(|l| if row(l) { l[3..].to_owned() } else { l.to_owned() }).collect()
    };
    assert_eq!(without_cpu(&kernel.0), without_cpu(&interpreter.0));
    assert_eq!((&kernel.1, kernel.2), (&interpreter.1, interpreter.2));
    assert!(kernel.0.contains("fault ") && kernel.1.len() == 2 && kernel.2 == 6, "{kernel:?}");
    Verdict::Pass
}
