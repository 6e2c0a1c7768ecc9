//! A page with the picture. Its policy forbids the browser to load anything.

use crate::escape;
use crate::loss::Loss;
use crate::profile::Profile;
use crate::svg;

/// The page.
pub(crate) fn write(profiles: &[&Profile], loss: &Loss, host: &str) -> Vec<u8> {
    let mut out = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <title>",
    );
    escape::xml(&mut out, &svg::title(profiles));
    out.push_str(
        "</title>\n<style>html, body { margin: 0; background: var(--bg); }</style>\n</head>\n<body>\n",
    );
    svg::push(&mut out, profiles, loss, host);
    out.push_str("</body>\n</html>\n");
    out.into_bytes()
}
