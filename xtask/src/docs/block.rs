//! Blocks of a document, and how each is made.

/// A fenced block that shows a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The file, from the repository's top.
    pub(crate) document: String,
    /// Line of the fence, from 1; so also the index of the block's first line, from 0.
    pub(crate) line: usize,
    /// What is between the fences.
    pub(crate) lines: Vec<String>,
    /// Its last command fails.
    pub(crate) fails: bool,
    /// A command of the shell that runs meanwhile.
    pub(crate) load: Option<String>,
    /// Seconds until ^C.
    pub(crate) seconds: Option<u64>,
    /// The kernel that it needs.
    pub(crate) vm: Option<String>,
    /// Why it is left alone.
    pub(crate) kept: Option<String>,
}

/// A command of a block, and the output that stands below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) text: String,
    pub(crate) output: Vec<String>,
}

impl Block {
    /// `docs/book/src/tutorial.md:120`
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.document, self.line)
    }

    /// Its commands, in order.
    pub(crate) fn commands(&self) -> impl Iterator<Item = Shown> {
        let mut all: Vec<Shown> = Vec::new();
        for line in &self.lines {
            match (line.strip_prefix("# "), all.last_mut()) {
                (Some(text), _) => all.push(Shown { text: text.into(), output: Vec::new() }),
                (None, Some(last)) => last.output.push(line.clone()),
                (None, None) => {}
            }
        }
        all.into_iter()
    }
}

/// The blocks of a document that have a command.
pub(crate) fn read(document: &str) -> Result<Vec<Block>, String> {
    parse(document, &super::text_of(document)?)
}

fn parse(document: &str, text: &str) -> Result<Vec<Block>, String> {
    let new = || Block {
        document: document.into(),
        line: 0,
        lines: Vec::new(),
        fails: false,
        load: None,
        seconds: None,
        vm: None,
        kept: None,
    };
    let (mut all, mut block) = (Vec::new(), new());
    let mut lines = text.lines().enumerate();
    while let Some((n, line)) = lines.next() {
        if let Some(how) = line.strip_prefix("<!-- made: ") {
            let how = how.strip_suffix(" -->").ok_or_else(|| format!("{document}:{}: no -->", n + 1))?;
            let (word, rest) = how.split_once(' ').unwrap_or((how, ""));
            let rest = rest.to_string();
            match word {
                "load" => block.load = Some(rest),
                "seconds" => block.seconds = rest.parse().ok(),
                "vm" => block.vm = Some(rest),
                "kept" => block.kept = Some(rest),
                _ => return Err(format!("{document}:{}: unknown word {word}", n + 1)),
            }
            continue;
        }
        if let Some(info) = line.strip_prefix("```") {
            let mut words = info.split(' ');
            let language = words.next().unwrap_or_default();
            block.line = n + 1;
            block.fails = words.next() == Some("fails");
            block.lines =
                lines.by_ref().map(|(_, l)| l.to_string()).take_while(|l| !l.starts_with("```")).collect();
            let first = block.lines.first().map_or("", String::as_str);
            if matches!(language, "console" | "text") && first.starts_with("# ") {
                all.push(block);
            }
        }
        block = new();
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_commands_output_and_the_comments_before_them() {
        let text = "text\n<!-- made: load a | b -->\n<!-- made: seconds 5 -->\n```console fails\n# one 'x'\nout\n# two\n```\n\
                    ```text\nno command\n```\n<!-- made: vm 6.12 -->\n\n```text\n# three\n```\n";
        let blocks = parse("d", text).unwrap();
        assert_eq!(blocks.len(), 2);
        let first = &blocks[0];
        assert_eq!((first.line, first.seconds, first.load.as_deref()), (4, Some(5), Some("a | b")));
        assert!(first.fails && first.vm.is_none());
        let commands: Vec<Shown> = first.commands().collect();
        assert_eq!(commands[0], Shown { text: "one 'x'".into(), output: vec!["out".into()] });
        assert_eq!(commands[1], Shown { text: "two".into(), output: vec![] });
        // A comment counts for the line after it alone.
        assert_eq!((blocks[1].line, &blocks[1].vm), (14, &None));
        assert!(parse("d", "<!-- made: lod x -->\n").is_err());
    }

    #[test]
    fn the_documents_can_be_read() {
        let blocks = super::super::documents().unwrap().iter().map(|d| read(d).unwrap().len()).sum::<usize>();
        assert!(blocks > 100, "{blocks} blocks");
    }
}
