//! D text to DIF text: `tests/golden/*.d` to `*.dif`. `UPDATE_GOLDEN=1` rewrites the answers.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use check::{Context, NoSymbol, Options, Symbols};
use diagnostics::{Sink, SourceKind, SourceMap};
use probes::{ListCatalog, ProbeDesc};
use syntax::macros::MacroEnv;
use syntax::{ParseMode, SpecField};
use types::Types;
use types::btf::{Btf, KernelBtf, synth};

/// The symbols of the kernel in miniature.
struct Addresses;

impl Symbols for Addresses {
    fn address(&self, module: Option<&str>, name: &str) -> Result<(u64, String), NoSymbol> {
        match (module, name) {
            (None | Some("vmlinux"), "jiffies") => Ok((0xffff_ffff_8200_0000, "vmlinux".into())),
            (None | Some("vmlinux"), "untyped") => Ok((0xffff_ffff_8200_0010, "vmlinux".into())),
            (None | Some("vmlinux"), "vfs_read") => Ok((0xffff_ffff_8100_0040, "vmlinux".into())),
            (None | Some("vmlinux"), "current_task") => Ok((0x10, "vmlinux".into())),
            (None | Some("vmlinux"), "__per_cpu_offset") => Ok((0xffff_ffff_8200_0100, "vmlinux".into())),
            (None | Some("ext4"), "ext4_sync") => Ok((0xffff_ffff_c000_0000, "ext4".into())),
            (Some("secret"), _) => Err(NoSymbol::Hidden("kernel.kptr_restrict is 2".into())),
            (None | Some("vmlinux" | "ext4"), _) => Err(NoSymbol::Name),
            _ => Err(NoSymbol::Module),
        }
    }

    fn like(&self, _: &str) -> Vec<String> {
        ["jiffies", "untyped"].map(String::from).into()
    }
}

/// The kernel in miniature.
fn kernel() -> Arc<KernelBtf> {
    Arc::new(KernelBtf::of(Btf::parse(synth::kernel(), None).unwrap()))
}

fn catalog() -> ListCatalog {
    let mut list = ListCatalog::default();
    for name in ["BEGIN", "END", "ERROR"] {
        list.add(ProbeDesc::new("dtrace", "", "", name));
    }
    list.add(ProbeDesc::new("profile", "", "", "profile-997hz"))
        .add(ProbeDesc::new("profile", "", "", "tick-1s"));
    for function in ["read", "write", "openat", "getppid"] {
        for name in ["entry", "return"] {
            list.add(ProbeDesc::new("syscall", "vmlinux", function, name));
        }
    }
    list
}

fn lowered(text: &str) -> String {
    let mut map = SourceMap::default();
    let mut sink = Sink::default();
    let file = map.add(SourceKind::Script, "test.d", text);
    let mode = ParseMode::Specifier(SpecField::Name);
    let program = syntax::parse(&mut map, file, mode, &MacroEnv::default(), &(), &mut sink);
    let (types, catalog) = (Types::with_kernel(kernel()), catalog());
    let cx = Context {
        types: &types,
        catalog: &catalog,
        symbols: &Addresses,
        map: &map,
        libraries: &syntax::Libraries::default(),
        options: Options::default(),
    };
    let checked = check::check(&[program], &cx, &mut sink);
    if !sink.is_empty() {
        return sink.into_sorted().iter().map(|d| d.render(&map, true) + "\n").collect();
    }
    let mut module = match lower::lower(&checked) {
        Ok(module) => module,
        Err(error) => return format!("{error}\n"),
    };
    if let Err(error) = dif::verify(&module) {
        return format!("{error}\n{}", dif::text::print(&module, None));
    }
    let text = dif::text::print(&module, None);
    dif::opt::optimize(&mut module);
    match dif::verify(&module) {
        Ok(()) => text,
        Err(error) => format!("optimized: {error}\n{text}"),
    }
}

#[test]
fn golden() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut wrong = Vec::new();
    let mut files: Vec<PathBuf> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let inputs: Vec<&PathBuf> = files.iter().filter(|f| f.extension().is_some_and(|e| e == "d")).collect();
    assert!(!inputs.is_empty());
    for input in inputs {
        let got = lowered(&fs::read_to_string(input).unwrap());
        let output = input.with_extension("dif");
        if update {
            fs::write(&output, &got).unwrap();
        } else if fs::read_to_string(&output).unwrap_or_default() != got {
            wrong.push(format!("{}:\n{got}", input.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
