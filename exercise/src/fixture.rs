//! A miniature kernel for tests of the front end: types, symbols, some probes.

use std::sync::Arc;

use check::{NoSymbol, Symbols};
use probes::{ListCatalog, ProbeDesc};
use types::btf::{Btf, KernelBtf, synth};

/// The symbols of the miniature kernel.
pub struct KernelSymbols;

impl Symbols for KernelSymbols {
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

/// The types of the miniature kernel.
pub fn kernel() -> Arc<KernelBtf> {
    // The bytes are our own; the tests of `types` check that they parse.
    match Btf::parse(synth::kernel(), None) {
        Ok(btf) => Arc::new(KernelBtf::from_btf(btf)),
        Err(_) => KernelBtf::running(),
    }
}

/// The probes that test programs may name.
pub fn catalog() -> ListCatalog {
    let mut list = ListCatalog::default();
    for name in ["BEGIN", "END", "ERROR"] {
        list.add(ProbeDesc::new("dtrace", "", "", name));
    }
    list.add(ProbeDesc::new("profile", "", "", "profile-997hz"));
    list.add(ProbeDesc::new("profile", "", "", "tick-1s"));
    for function in ["read", "write", "openat", "getppid", "exit_group"] {
        for name in ["entry", "return"] {
            list.add(ProbeDesc::new("syscall", "vmlinux", function, name));
        }
    }
    list
}
