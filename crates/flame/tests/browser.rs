//! The script of a picture in a browser, where there is one: it draws, and zooms and searches by a
//! link.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;
use std::process::{Command, Stdio};

use flame::{Format, Loss, read_folded};

/// A browser without a window.
fn browser() -> Option<&'static str> {
    let is_there = |name: &&str| {
        let tried = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(is_there)
}

/// The document of a page after its script.
fn document(browser: &str, file: &str, link: &str) -> String {
    let words = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom"];
    let o = Command::new(browser).args(words).arg(format!("file://{file}{link}")).output().unwrap();
    String::from_utf8_lossy(&o.stdout).into_owned()
}

struct Page(PathBuf);

impl Drop for Page {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_browser_draws_zooms_and_searches() {
    let Some(browser) = browser() else { return testing::skipped!("no chromium") };
    let hostile = "x`</text><img src=x onerror=alert(1)>";
    let mut text = format!("main;f;g_[k] 30\nmain;{hostile} 20\n");
    (0..1000).for_each(|n| text.push_str(&format!("main;f;narrow_{n} 1\n")));
    text.push_str("main;wide 20000000\n");
    let profile = read_folded(text.as_bytes(), "test").unwrap();
    let page = Format::Html.write_profiles(&[&profile], &Loss::default(), "");
    let file = Page(std::env::temp_dir().join(format!("flame-browser-{}.html", std::process::id())));
    std::fs::write(&file.0, page).unwrap();
    let path = file.0.to_str().unwrap();

    let all = document(browser, path, "");
    assert!(all.contains("dtrace-flame live"), "{all}");
    let frames = |document: &str, class: &str| document.matches(&format!("class=\"f {class}")).count();
    // A name whose frame is too narrow is found.
    let found = document(browser, path, "#s=narrow_123%24");
    assert!(found.contains(">1 name matches: test 0.00 %</text>"), "{found}");
    // The second node is `main`, the third `f`: zoomed to, its callees appear, and those that match
    // are marked.
    let zoomed = document(browser, path, "#s=narrow_12&z=0.2");
    assert!(frames(&zoomed, "u") > 800 && frames(&all, "u") < 10, "{zoomed}");
    assert_eq!((zoomed.matches(" outer\" data-node").count(), frames(&zoomed, "hit")), (2, 11));
    for document in [all, found, zoomed] {
        assert!(!document.contains("<img"), "a name is text");
    }
}
