//! The script of a page in a browser, where there is one: what is selected by a link has its exact
//! numbers.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use events::AggFunc;
use heat::Format;

use crate::Fed;
use crate::files::hour;
use crate::read::read;

/// A browser without a window.
fn browser() -> Option<&'static str> {
    let is_there = |name: &&str| {
        let tried = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(is_there)
}

/// A page in a file, which is removed.
struct Page(PathBuf);

impl Page {
    fn new(name: &str, bytes: &[u8]) -> Page {
        let file = std::env::temp_dir().join(format!("heat-{}-{name}", std::process::id()));
        std::fs::write(&file, bytes).unwrap();
        Page(file)
    }

    /// The document after its script.
    fn document(&self, browser: &str, link: &str) -> String {
        let words =
            ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"];
        let file = format!("file://{}{link}", self.0.display());
        let o = Command::new(browser).args(words).arg(file).output().unwrap();
        String::from_utf8_lossy(&o.stdout).into_owned()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The texts of a class, in order.
fn texts(document: &str, class: &str) -> Vec<String> {
    let of = |part: &str| {
        let tag = part.split_once('>')?;
        Some(tag.1.split_once('<')?.0.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    };
    document.split(&format!("<text class=\"{class}\"")).skip(1).filter_map(of).collect()
}

#[test]
fn a_browser_shows_the_exact_table_of_a_cell_and_of_a_range() {
    let Some(browser) = browser() else { return testing::skipped!("no chromium") };
    let hostile = "a</text><img src=x onerror=alert(1)>";
    let mut fed = Fed::new();
    let function = AggFunc::Lquantize { base: 0, limit: 100, step: 10 };
    fed.second(0, function, &[("cat", 3, 7), (hostile, 3, 1_234_567), (hostile, 5, 2)]);
    fed.second(1, function, &[("cat", 4, 11)]);
    fed.second(2, function, &[("cat", 3, 13)]);
    for (name, format) in [("cell.html", Format::Html), ("cell.svg", Format::Svg)] {
        let page = Page::new(name, &format.write(&fed.0));
        let cell = page.document(browser, "#0.0.1.0.0;utc");
        assert!(cell.contains("dtrace-heat live"), "{cell}");
        assert_eq!(texts(&cell, "name"), [hostile, "cat"]);
        let selected = texts(&cell, "selection").remove(0);
        let expected = "Selected: 2026-01-02 03:04:05.000Z to 2026-01-02 03:04:06.000Z, 20 to 29: 1,234,574";
        assert_eq!(selected, expected);
        for number in [">1,234,567<", ">7<"] {
            assert!(cell.contains(number), "{number}");
        }
        let range = page.document(browser, "#0.1.3;start");
        assert_eq!(texts(&range, "selection"), ["Selected: 1.000 s to 3.000 s, 20 to 49: 24"]);
        let all = page.document(browser, "#;start;linear;scale=linear;key=1");
        assert_eq!(texts(&all, "selection"), ["All: 0.000 s to 3.000 s, 20 to 49: 1,234,600"]);
        assert_eq!(all.matches("class=\"row chosen\"").count(), 1);
        assert!(!cell.contains("<img") && !all.contains("<img"), "a name is text");
    }
}

#[test]
fn a_browser_draws_an_hour_whose_sum_is_that_of_its_counts() {
    let Some(browser) = browser() else { return testing::skipped!("no chromium") };
    let mut fed = Fed::new();
    hour(&mut fed);
    let bytes = Format::Html.write(&fed.0);
    let map = read(std::str::from_utf8(&bytes).unwrap()).remove(0);
    let page = Page::new("hour.html", &bytes);
    let document = page.document(browser, "#;start");
    let sum: i64 = map.cells.iter().map(|(.., count)| count).sum();
    let shown = texts(&document, "selection").remove(0).replace(',', "");
    assert!(shown.ends_with(&format!(": {sum}")), "{shown} {sum}");
    assert_eq!(texts(&document, "name").len(), 20);
    for (key, names) in map.keys.iter().enumerate().take(3) {
        let sum: i64 = map.cells.iter().filter(|(_, k, ..)| *k == key).map(|(.., count)| count).sum();
        let at = document.find(&format!(">{}</text>", names[0])).unwrap();
        let row = &document[document[..at].rfind("class=\"row\"").unwrap()..at].replace(',', "");
        assert!(row.contains(&format!(">{sum}<")), "{row}");
    }
}
