//! What programs say before they are read.

use crate::compile::Source;

/// The moment at which a `-c` process is to wait by the last `#pragma D option evaltime=MOMENT` of these
/// programs. A program can only be compiled when the process is there, since it may have probes of it and
/// name it (`$target`), and it waits at that moment by then: so the option is looked for in the text.
pub fn evaltime_in(sources: &[Source]) -> Option<&str> {
    sources.iter().rev().find_map(|source| match source {
        Source::Script(_, text) | Source::Specifier(_, text) => in_text(text),
    })
}

fn in_text(text: &str) -> Option<&str> {
    let mut in_comment = false;
    let mut found = None;
    for line in text.lines() {
        if !in_comment {
            found = in_line(line).or(found);
        }
        // The last of them says how the line ends.
        in_comment = match (line.rfind("/*"), line.rfind("*/")) {
            (Some(open), Some(close)) => open > close,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => in_comment,
        };
    }
    found
}

fn in_line(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("pragma")?;
    let mut words = rest.split_whitespace();
    let is_option = words.next() == Some("D") && words.next() == Some("option");
    let option = words.next().filter(|_| is_option)?;
    option.strip_prefix("evaltime=").map(|moment| moment.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_moment_outside_of_comments_counts() {
        for (text, moment) in [
            ("BEGIN", None),
            ("#pragma D option evaltime=main\nBEGIN", Some("main")),
            ("#pragma D option quiet\n\t# pragma  D option evaltime=\"exec\"\nBEGIN", Some("exec")),
            ("#pragma D option evaltime=exec\n#pragma D option evaltime=main\n", Some("main")),
            ("/*\n#pragma D option evaltime=main\n*/\nBEGIN", None),
            ("/* a */\n#pragma D option evaltime=main\n", Some("main")),
            ("BEGIN { printf(\"#pragma D option evaltime=main\"); }", None),
            ("#pragma D option evaltimes=main\n#pragma X option evaltime=main\n", None),
        ] {
            assert_eq!(in_text(text), moment, "{text}");
        }
    }
}
