//! Lines of comments are short enough to be read: code within what rustfmt gives, prose within a
//! hundred columns. Pictures, code and tables in them have the width that they need.

/// The columns of a line of a comment.
const WIDEST: usize = 100;

/// The numbers of lines that are too wide.
pub(super) fn breaches(text: &str) -> Vec<usize> {
    let (mut wide, mut in_block, mut in_string) = (Vec::new(), false, false);
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let Some(comment) = trimmed.strip_prefix("//").filter(|_| !in_string) else {
            // A text in several lines may have what looks like comments.
            in_string ^= (line.matches("r#\"").count() + line.matches("\"#").count()) % 2 != 0;
            in_block = false;
            continue;
        };
        let prose = comment.trim_start_matches(['/', '!']);
        if prose.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block
            && !prose.trim_start().starts_with('|')
            && !prose.starts_with("     ")
            && prose.trim().contains(' ')
            && line.chars().count() > WIDEST
        {
            wide.push(number + 1);
        }
    }
    wide
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_narrow_and_pictures_are_as_wide_as_they_are() {
        let wide = "word ".repeat(25);
        let text = [
            format!("//! {wide}"),
            format!("//! ```text\n//! {wide}\n//! ```"),
            format!("    /// {wide}"),
            format!("    /// | {wide}"),
            format!("let x = 1; // {wide}"),
            format!("// {}", "w".repeat(120)),
            format!("let text = r#\"\n// {wide}\n\"#;"),
            format!("// {wide}"),
        ];
        assert_eq!(breaches(&text.join("\n")), [1, 5, 12]);
    }
}
