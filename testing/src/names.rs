//! Names that processes, files and users may choose, and that no format may take for its own words.

/// One of each kind: quotes, ends of lines, characters that turn a line around, too long, no UTF-8,
/// markup, templates, formats, NUL, separators, controls, what looks like a path, nothing.
pub const NASTY: &[&[u8]] = &[
    b"a\"b\\",
    b"'single' `back`",
    b"a\nb",
    b"a\r\n\tb",
    "a\u{202e}b\u{2028}\u{2066}".as_bytes(),
    &[b'x'; 4096],
    b"a\xff\xfeb",
    b"<script>alert(1)</script>",
    b"</text>]]><img src=x onerror=alert(1)>",
    b"-->&lt;\"><a href=x>",
    b"{{ .Labels.x }}",
    b"%s%n",
    b"a\0b",
    b"a,b=c d;e|f:g@h#i",
    b"=1+1",
    b"\x1b[2J",
    "\u{4e2d}\u{6587}".as_bytes(),
    b"..",
    b"",
];
