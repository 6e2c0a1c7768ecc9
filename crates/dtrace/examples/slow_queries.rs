//! Attaches to a service that runs, and prints each of its queries that takes long.
//!
//! ```text
//! sudo -E cargo run --example slow_queries -- 1234 exec_simple_query 100
//! ```
//!
//! `exec_simple_query` is PostgreSQL's; any function serves whose first argument is the text of a
//! query.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use dtrace::{Options, Output, Session, System, Target, Text};

const SCRIPT: &str = r#"
    pid$target::FUNCTION:entry { self->query = arg0; self->begin = timestamp; }
    pid$target::FUNCTION:return /self->begin && timestamp - self->begin >= LIMIT/ {
        printf("%d ms: %s\n", (timestamp - self->begin) / 1000000, copyinstr(self->query));
    }
    pid$target::FUNCTION:return { self->begin = 0; }
"#;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match attach(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn attach(words: &[String]) -> Result<(), Box<dyn Error>> {
    let [pid, function, limit] = words else { return Err("give a process, a function, milliseconds".into()) };
    let service = Target::grab(pid.parse()?)?;
    run(service, function, Duration::from_millis(limit.parse()?), std::io::stdout()).map(drop)
}

/// Writes the slow calls of a function of the service until it ends.
pub(crate) fn run<W: Output + Send>(
    service: Target,
    function: &str,
    limit: Duration,
    out: W,
) -> Result<W, Box<dyn Error>> {
    let script = SCRIPT.replace("FUNCTION", function).replace("LIMIT", &limit.as_nanos().to_string());
    let mut session = Session::builder(&System::live())
        .program(script)
        .options(Options { quiet: true, ..Options::default() })
        .target(service)
        .start(Text::new(out))?;
    session.run()?;
    Ok(session.into_sink().into_output())
}
