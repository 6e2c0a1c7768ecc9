//! New output in the place of old: the same lines are left out (`[...]`), and a comparison tells
//! whether more than figures changed.

/// What stands for lines that are left out.
const LEFT_OUT: &str = "[...]";

/// New output in the shape of the old: as many lines at the beginning and at the end, and what is
/// shown in between where its first line is found again. Reports of losses that the old output had
/// not are left out: how busy the machine was is not what the document is about.
pub(crate) fn shaped(old: &[String], new: &str) -> Result<Vec<String>, String> {
    let is_loss =
        |l: &str| l.starts_with("dtrace: ") && (l.contains(" suppressed by") || l.contains(" drop"));
    let had: Vec<String> = old.iter().map(|l| plain(l)).collect();
    let mut out = placed(old, new)?;
    for line in &mut out {
        if is_loss(line) && !had.contains(&plain(line)) {
            *line = LEFT_OUT.into();
        }
    }
    out.dedup_by(|a, b| a == b && a == LEFT_OUT);
    Ok(out)
}

fn placed(old: &[String], new: &str) -> Result<Vec<String>, String> {
    let new: Vec<String> = new.trim_end().lines().map(|l| l.trim_end().to_string()).collect();
    let parts: Vec<&[String]> = old.split(|l| l == LEFT_OUT).collect();
    let [head, middle @ .., tail] = &parts[..] else { return Ok(new) };
    if head.len() + tail.len() >= new.len() && middle.is_empty() {
        // There is nothing to leave out.
        return Ok(new);
    }
    let begin = head_end(head, &new);
    let from = tail_from(tail, &new).max(begin);
    let mut out = new[..begin].to_vec();
    let mut at = begin;
    for part in middle {
        let first = plain(part.iter().find(|l| !l.is_empty()).map_or("", String::as_str));
        let place = (at..from).find(|i| plain(&new[*i]) == first);
        let place = place.ok_or_else(|| format!("the output has no line like \"{first}\""))?;
        if place > at || out.last().is_none_or(|l| l != LEFT_OUT) {
            out.push(LEFT_OUT.into());
        }
        // A part that ends with a count, as stacks do, is shown up to its count.
        let is_count = |l: &str| !l.trim().is_empty() && l.trim().bytes().all(|b| b.is_ascii_digit());
        let counted = part.last().is_some_and(|l| is_count(l));
        let end = (place..from).find(|i| is_count(&new[*i])).filter(|_| counted).map(|i| i + 1);
        at = end.unwrap_or(place + part.len()).min(from);
        out.extend_from_slice(&new[place..at]);
    }
    if at < from || tail.is_empty() {
        out.push(LEFT_OUT.into());
    }
    if tail.first().is_some_and(String::is_empty) && new.get(from).is_some_and(|l| !l.is_empty()) {
        out.push(String::new());
    }
    out.extend_from_slice(&new[from..]);
    Ok(out)
}

/// Where the first part ends: with `^C`, wherever that came, or after as many lines.
fn head_end(head: &[String], new: &[String]) -> usize {
    let is_interrupt = |l: &String| l == "^C";
    let place = head.iter().position(is_interrupt).zip(new.iter().position(is_interrupt));
    place.map_or(head.len(), |(old, at)| at + head.len() - old).min(new.len())
}

/// Where the last part begins: at the key of a distribution, at a paragraph, or so many lines
/// before the end.
fn tail_from(tail: &[String], new: &[String]) -> usize {
    let lines = tail.iter().skip_while(|l| l.is_empty()).count();
    if lines == 0 {
        return new.len();
    }
    let tail = &tail[tail.len() - lines..];
    // What was lost is said last, and was not before.
    let messages = |of: &[String]| of.iter().rev().take_while(|l| l.starts_with("dtrace: ")).count();
    let more = messages(new).saturating_sub(messages(tail));
    let new = &new[..new.len() - more];
    let is_header = |l: &String| l.contains(" Distribution ");
    if let Some(before) = tail.iter().position(is_header) {
        let count = tail.iter().filter(|l| is_header(l)).count();
        let headers: Vec<usize> = (0..new.len()).filter(|i| is_header(&new[*i])).collect();
        if let Some(header) = headers.len().checked_sub(count).and_then(|at| headers.get(at)) {
            return header.saturating_sub(before);
        }
    }
    let paragraphs = tail.split(|l| l.is_empty()).filter(|p| !p.is_empty()).count();
    if paragraphs > 1 {
        let starts: Vec<usize> = (0..new.len())
            .filter(|i| !new[*i].is_empty() && i.checked_sub(1).is_none_or(|before| new[before].is_empty()))
            .collect();
        if let Some(at) = starts.len().checked_sub(paragraphs).and_then(|at| starts.get(at)) {
            return *at;
        }
    }
    new.len().saturating_sub(lines)
}

/// True where a block changed in more than figures: numbers, addresses, the bars and rows of
/// distributions, and, in lists that are shown in part, the names.
pub(crate) fn differs(old: &[String], new: &[String]) -> bool {
    kinds(old) != kinds(new)
}

/// The lines of a block without their figures; rows of one kind that follow each other are one.
fn kinds(lines: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for command in lines.chunk_by(|_, next| !next.starts_with("# ")) {
        let partial = command.iter().any(|l| l == LEFT_OUT);
        let mut of: Vec<String> = command
            .iter()
            .filter(|l| !l.is_empty() && *l != LEFT_OUT)
            .map(|l| if l.starts_with("# ") { l.clone() } else { kind(l, partial) })
            .collect();
        of.dedup();
        if partial {
            // How often its rows and titles take turns depends on where the output was cut.
            let mut seen = std::collections::BTreeSet::new();
            of.retain(|l| seen.insert(l.clone()));
        }
        all.extend(of);
    }
    all
}

fn kind(line: &str, partial: bool) -> String {
    let figure = line.split_whitespace().next_back().is_some_and(|w| w.bytes().all(|b| b.is_ascii_digit()));
    if line.starts_with("          ") && (line.contains('`') || line.trim().starts_with("0x")) {
        return "a frame".into();
    }
    if line.contains('|') && figure {
        return "a row of a distribution".into();
    }
    if partial && line.starts_with("  ") && figure {
        return "a row".into();
    }
    plain(line)
}

/// A line with a sign for each number, address and date, and one blank for several.
fn plain(line: &str) -> String {
    const DATES: &str = " Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec Mon Tue Wed Thu Fri Sat Sun ";
    let words = line.split_whitespace().map(|word| {
        let hex = word.len() >= 8 && word.bytes().all(|b| b.is_ascii_hexdigit());
        if hex || (word.len() == 3 && DATES.contains(&format!(" {word} "))) {
            return "#".to_string();
        }
        let mut out = String::new();
        let mut chars = word.chars().peekable();
        while let Some(c) = chars.next() {
            if !c.is_ascii_digit() {
                out.push(c);
                continue;
            }
            let hex = c == '0' && chars.peek() == Some(&'x');
            if hex {
                chars.next();
            }
            while chars.peek().is_some_and(|c| if hex { c.is_ascii_hexdigit() } else { c.is_ascii_digit() }) {
                chars.next();
            }
            out.push('#');
        }
        out
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(String::from).collect()
    }

    #[test]
    fn as_many_lines_are_shown_as_before() {
        let old = lines("matched 3 probes\n^C\n[...]\n\n  a  1\n  b  2");
        let new = "matched 4 probes\n^C\n\n  x  1\n  y  2\n  z  3\n\n";
        let shown = shaped(&old, new).unwrap();
        assert_eq!(shown, lines("matched 4 probes\n^C\n[...]\n\n  y  2\n  z  3"));
        assert!(!differs(&old, &shown));
        // Messages do not displace what was shown.
        let new = "matched 4 probes\ndtrace: 7 drops\n^C\n\n  x  1\n  y  2\n  z  3\ndtrace: 1 drop\n";
        let told = lines("matched 4 probes\n[...]\n^C\n[...]\n\n  y  2\n  z  3\n[...]");
        assert_eq!(shaped(&old, new).unwrap(), told);
        // A short output is shown whole.
        assert_eq!(
            shaped(&old, "matched 4 probes\n^C\n\n  x 1\n").unwrap(),
            lines("matched 4 probes\n^C\n\n  x 1")
        );
        assert_eq!(shaped(&lines("a\nb\n[...]"), "1\n2\n3\n4\n").unwrap(), lines("1\n2\n[...]"));
    }

    #[test]
    fn a_distribution_is_shown_from_its_key_on() {
        let head = "  value  ---- Distribution ---- count";
        let old = lines(&format!("[...]\n  gzip\n{head}\n  1 |   0\n  2 |@@ 4"));
        let new = format!("  tar\n{head}\n 1 | 0\n\n  gzip\n{head}\n 1 | 0\n 2 |@ 5\n 4 | 0\n 8 |@ 2\n");
        let shown = shaped(&old, &new).unwrap();
        assert_eq!(shown, lines(&format!("[...]\n  gzip\n{head}\n 1 | 0\n 2 |@ 5\n 4 | 0\n 8 |@ 2")));
        assert!(!differs(&old, &shown));
    }

    #[test]
    fn a_part_in_the_middle_is_found_by_its_first_line() {
        let old = lines("CPU\n[...]\n 1 <- getname\n 1 -> alloc\n[...]");
        let new = "CPU\n 0 -> a\n 0 <- b\n 0 <- getname\n 0 -> fd\n 0 -> more\n";
        assert_eq!(shaped(&old, new).unwrap(), lines("CPU\n[...]\n 0 <- getname\n 0 -> fd\n[...]"));
        assert!(shaped(&old, "CPU\n 0 -> a\n 0 -> b\n 0 -> c\n").is_err());
        let old = lines("x\n[...]\n  open\n    a\n    b\n    5\n[...]\n  last\n  7");
        let new = "x\n  1\n  2\n  open\n    a\n    c\n    b\n    17\n\n  more\n  1\n  last\n  9\n";
        let shown = lines("x\n[...]\n  open\n    a\n    c\n    b\n    17\n[...]\n  last\n  9");
        assert_eq!(shaped(&old, new).unwrap(), shown);
    }

    #[test]
    fn figures_are_no_difference_and_words_are() {
        let differ = |a: &str, b: &str| differs(&lines(a), &lines(b));
        assert!(!differ("x is 5 at 0x7f21 in 5 ms", "x is 17 at 0x1 in 12 ms"));
        assert!(!differ("2026 Nov 21 10:30:03", "2027 Jan 3 9:12:00"));
        assert!(!differ("d586adf6f5f68400", "de6b3d867cb71c00"));
        assert!(!differ("[...]\n  bash  5", "[...]\n  rustc  17\n  gzip  4"));
        assert!(differ("  bash  5", "  rustc  17"));
        assert!(differ("error: no such probe", "error: not a probe"));
        assert!(!differ("            vmlinux`a+0x1", "            vmlinux`b+0x1\n            vmlinux`c"));
    }
}
