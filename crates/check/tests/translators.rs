//! Checks the translators of the D libraries against the types of the running kernel. Also runs in
//! guests.
//!
//! Every member of every translator must compile here. When a member has alternatives, `defined()`
//! selects one of them. `tests/kernels/RELEASE` lists the results of `defined()` for each kernel of
//! the matrix. The running kernel must have the results in its file, and over all files each
//! alternative must be selected somewhere. So an alternative that no kernel needs is detected
//! without a machine that runs all kernels.
//!
//! `UPDATE_KERNELS=1` writes the file of the running kernel. `BTF=PATH` and `RELEASE=6.1` select
//! another kernel.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use check::{Context, Facts, FactsReader, NoSymbol, Options, Symbols};
use diagnostics::{Sink, SourceKind, SourceMap};
use probes::{ListCatalog, ProbeDesc};
use syntax::ast::Item;
use syntax::macros::MacroEnv;
use syntax::{Libraries, ParseMode, SpecField};
use types::Types;
use types::btf::{Btf, KernelBtf};

/// The texts of `lib/` by name, from the source tree, which guests see too.
fn texts() -> BTreeMap<String, String> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../lib");
    let files = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    files.map(|f| (f.file_name().unwrap().to_str().unwrap().into(), fs::read_to_string(f).unwrap())).collect()
}

fn kernel() -> Option<Arc<KernelBtf>> {
    let kernel = match std::env::var("BTF") {
        Ok(path) => Arc::new(KernelBtf::from_btf(Btf::open(Path::new(&path), None).unwrap())),
        Err(_) => KernelBtf::running(),
    };
    kernel.vmlinux().is_ok().then_some(kernel)
}

/// Major and minor number of the running kernel.
fn release() -> String {
    std::env::var("RELEASE").unwrap_or_else(|_| {
        let text = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        text.split(['.', '-']).take(2).collect::<Vec<_>>().join(".")
    })
}

/// Two packages, so that the lookup of CPUs is not a constant.
fn facts() -> Facts {
    let cpus = vec![(0, 0), (0, 0), (1, 1), (1, 1)];
    let clocks = check::ClocksReader::new(|| vec![2000, 2000, 3000, 3000]);
    Facts {
        boottime: 1,
        pagesize: 4096,
        tick: 4_000_000,
        cpus,
        processor_type: "x86_64".into(),
        clocks,
        ..Facts::default()
    }
}

/// The machine facts inside a container.
fn facts_inside() -> Facts {
    Facts { pid_namespace: 4_026_532_000, ..facts() }
}

/// Symbols for the libraries, which name none.
struct NoSymbols;

impl Symbols for NoSymbols {
    fn address(&self, _: Option<&str>, _: &str) -> Result<(u64, String), NoSymbol> {
        Err(NoSymbol::Name)
    }

    fn like(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

/// The checker's messages for a program, and the checked program as text.
fn checked(text: &str, kernel: &Arc<KernelBtf>, facts: fn() -> Facts) -> (Vec<String>, String) {
    let (mut map, mut sink, env) = (SourceMap::default(), Sink::default(), MacroEnv::default());
    let mut libraries = Libraries::embedded();
    let file = map.add(SourceKind::Script, "test.d", text);
    let mode = ParseMode::Specifier(SpecField::Name);
    let program = syntax::parse(&mut map, file, mode, &env, &libraries, &mut sink);
    libraries.load(&[text], &mut map, &env, &mut sink);
    let types = Types::with_kernel(kernel.clone());
    let mut catalog = ListCatalog::default();
    catalog.add(ProbeDesc::new("dtrace", "", "", "BEGIN"));
    let options = Options { facts: FactsReader::new(facts), ..Options::default() };
    let cx = Context {
        types: &types,
        catalog: &catalog,
        map: &map,
        libraries: &libraries,
        definitions: &[],
        symbols: &NoSymbols,
        options,
        stop: &|| false,
    };
    let out = check::check(&[program], &cx, &mut sink);
    let complaints: Vec<String> = sink.into_sorted().iter().map(|d| d.render(&map, true)).collect();
    (complaints, check::dump::dump(&out, &types))
}

/// Output type, input type and member of every translator of a library.
fn members(name: &str, text: &str) -> Vec<(String, String, String)> {
    let (mut map, mut sink) = (SourceMap::default(), Sink::default());
    let file = map.add(SourceKind::Library, name, text);
    let tree = syntax::parse(
        &mut map,
        file,
        ParseMode::Script,
        &MacroEnv::default(),
        &Libraries::embedded(),
        &mut sink,
    );
    assert!(sink.is_empty(), "{name}");
    let source = |from: u32, to: u32| text[from as usize..to as usize].to_string();
    let mut out = Vec::new();
    for item in &tree.items {
        let Item::Translator(t) = item else { continue };
        let input = source(t.input.span.start, t.input.span.end);
        let argument = t.input.declarator.name.as_ref().unwrap().text.len();
        let input = input[..input.len() - argument].trim().to_string();
        let output = source(t.output.span.start, t.output.span.end).trim().to_string();
        for m in &t.members {
            out.push((output.clone(), input.clone(), m.name.text.clone()));
        }
    }
    out
}

// row translator.every-member
#[test]
fn every_member_of_every_translator_compiles() {
    let Some(kernel) = kernel() else {
        testing::skipped!("this kernel has no types");
        return;
    };
    let mut count = 0;
    for (file, text) in texts() {
        // Its types are those of a module.
        if file == "kvm.d" && !Path::new("/sys/module/kvm").exists() {
            continue;
        }
        // The same, of modules that few machines load. The tests of the providers read them.
        if file.starts_with("nfs") || file == "iscsi.d" {
            continue;
        }
        for (output, input, member) in members(&file, &text) {
            // A struct cannot be recorded, so its first member is used instead.
            let inner = match &*member {
                "pr_start" | "pr_time" | "pr_ctime" => ".tv_sec",
                "pr_lwp" => ".pr_lwpid",
                "cpu_info" => ".pi_state",
                _ => "",
            };
            let program = format!("BEGIN {{ trace(xlate <{output}> (({input})arg0).{member}{inner}); }}");
            for facts in [facts as fn() -> Facts, facts_inside] {
                let (complaints, _) = checked(&program, &kernel, facts);
                assert!(complaints.is_empty(), "{program}\n{}", complaints.join("\n"));
            }
            count += 1;
        }
    }
    assert!(count > 70, "{count}");
}

/// Every `defined(…)` of the libraries that asks for a type, as written. Those that ask for a probe
/// are for the tests of the providers.
fn tests_of_types() -> Vec<String> {
    let mut out = Vec::new();
    // What kvm.d asks is which of two modules is loaded.
    for (_, text) in texts().iter().filter(|(file, _)| *file != "kvm.d") {
        for (at, _) in text.match_indices("defined(") {
            let end = at + text[at..].find(')').unwrap() + 1;
            let question = text[at..end].split_whitespace().collect::<Vec<_>>().join(" ");
            if !question.contains(':') {
                out.push(question);
            }
        }
    }
    out.sort();
    out.dedup();
    out
}

fn listed(release: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/kernels").join(release)
}

/// The results in a file, by expression.
fn results(path: &Path) -> BTreeMap<String, bool> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter(|l| !l.starts_with('#'));
    lines
        .filter_map(|l| l.rsplit_once(' '))
        .map(|(question, answer)| (question.into(), answer == "1"))
        .collect()
}

#[test]
fn the_running_kernel_selects_the_alternatives_listed_for_it() {
    let Some(kernel) = kernel() else {
        testing::skipped!("this kernel has no types");
        return;
    };
    let path = listed(&release());
    let update = std::env::var_os("UPDATE_KERNELS").is_some();
    if !path.exists() && !update {
        testing::skipped!("kernel {} is none of the matrix", release());
        return;
    }
    let mut found = BTreeMap::new();
    for question in tests_of_types() {
        let program = format!("BEGIN {{ trace({question} ? 1111 : 2222); }}");
        let (complaints, text) = checked(&program, &kernel, facts);
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
        assert_ne!(text.contains("1111:int"), text.contains("2222:int"), "{text}");
        found.insert(question, text.contains("1111:int"));
    }
    if update {
        let lines = found.iter().map(|(q, a)| format!("{q} {}\n", u8::from(*a)));
        fs::write(&path, lines.collect::<String>()).unwrap();
    }
    assert_eq!(found, results(&path));
}

// row translator.defined
#[test]
fn each_alternative_is_selected_by_some_kernel() {
    let dir = listed("");
    let files: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(files.len() >= 4);
    for question in tests_of_types() {
        let mut choices = [Vec::new(), Vec::new()];
        for file in &files {
            let Some(answer) = results(file).get(&question).copied() else {
                panic!("{} does not say {question}", file.display());
            };
            choices[usize::from(answer)].push(file.file_name().unwrap().to_owned());
        }
        assert!(
            !choices[0].is_empty() && !choices[1].is_empty(),
            "{question} is the same everywhere: {choices:?}"
        );
    }
}
