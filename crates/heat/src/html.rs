//! A page with the picture. Its policy forbids the browser to load anything.

use flame::escape;

use crate::collect::Heat;
use crate::svg;

/// The page.
pub(crate) fn write(heat: &Heat) -> Vec<u8> {
    let mut out = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n\
         <title>",
    );
    escape::xml(&mut out, &svg::title(heat));
    out.push_str(
        "</title>\n<style>html, body { margin: 0; background: var(--bg); }</style>\n</head>\n<body>\n",
    );
    svg::push(&mut out, heat);
    out.push_str("</body>\n</html>\n");
    out.into_bytes()
}
