//! BTF of a kernel and its modules. Each blob is opened when first needed.
//!
//! A module is only opened for a name that the kernel itself does not have. Modules are searched in
//! the order of their names, so that the result does not depend on load order.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::blob::{Btf, BtfError, BtfKind};
use super::source;

/// BTF of a kernel and its modules.
#[derive(Debug)]
pub struct KernelBtf {
    dir: Option<PathBuf>,
    vmlinux: OnceLock<Result<Arc<Btf>, BtfError>>,
    modules: Mutex<HashMap<String, Option<Arc<Btf>>>>,
}

impl KernelBtf {
    /// The BTF of the running kernel, shared by the whole process: only the first user pays for the
    /// walk over its types. This function opens nothing.
    pub fn running() -> Arc<KernelBtf> {
        static RUNNING: OnceLock<Arc<KernelBtf>> = OnceLock::new();
        RUNNING.get_or_init(|| Arc::new(Self::at(Path::new(source::KERNEL_DIR)))).clone()
    }

    /// The BTF in a directory with `vmlinux` and a file for each module. This function opens
    /// nothing.
    pub fn at(dir: &Path) -> KernelBtf {
        KernelBtf { dir: Some(dir.into()), vmlinux: OnceLock::new(), modules: Mutex::default() }
    }

    /// One BTF blob without modules, for tests.
    pub fn from_btf(btf: Btf) -> KernelBtf {
        let vmlinux = OnceLock::new();
        let _ = vmlinux.set(Ok(Arc::new(btf)));
        KernelBtf { dir: None, vmlinux, modules: Mutex::default() }
    }

    /// True when the kernel's own BTF has been opened. A session that names no kernel type never
    /// opens it.
    pub fn is_open(&self) -> bool {
        self.vmlinux.get().is_some()
    }

    /// The kernel's own BTF, or the error.
    pub fn vmlinux(&self) -> Result<&Arc<Btf>, &BtfError> {
        let open = || match &self.dir {
            Some(dir) => Btf::open(&dir.join("vmlinux"), None).map(Arc::new),
            None => Err(BtfError::Io("no BTF".into())),
        };
        self.vmlinux.get_or_init(open).as_ref()
    }

    /// The BTF of a module. `vmlinux` is the kernel itself.
    pub fn module(&self, name: &str) -> Option<Arc<Btf>> {
        let base = self.vmlinux().ok()?;
        if name == "vmlinux" {
            return Some(base.clone());
        }
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return None;
        }
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = modules.get(name) {
            return known.clone();
        }
        let path = self.dir.as_ref()?.join(name);
        let btf = Btf::open(&path, Some(base.clone())).ok().map(Arc::new);
        modules.insert(name.into(), btf.clone());
        btf
    }

    /// Invalidates the cached BTF of a module that was loaded or unloaded.
    pub fn invalidate(&self, module: &str) {
        self.modules.lock().unwrap_or_else(PoisonError::into_inner).remove(module);
    }

    /// Sorted names of the modules that have BTF, without the kernel itself.
    pub fn modules(&self) -> Vec<String> {
        let Some(entries) = self.dir.as_ref().and_then(|d| std::fs::read_dir(d).ok()) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|e| e.file_name().into_string().ok())
            .filter(|n| n != "vmlinux")
            .collect();
        names.sort();
        names
    }

    /// Finds a type by kind and name: in the kernel, otherwise in the first module that has it.
    pub fn find(&self, kinds: &[BtfKind], name: &str) -> Option<(Arc<Btf>, u32)> {
        self.search(|btf| btf.find_local(kinds, name))
    }

    /// Finds an enumeration constant: its enumeration and value.
    pub fn enumerator(&self, name: &str) -> Option<(Arc<Btf>, u32, i64)> {
        self.search(|btf| btf.enumerator(name)).map(|(btf, (id, value))| (btf, id, value))
    }

    fn search<T>(&self, query: impl Fn(&Btf) -> Option<T>) -> Option<(Arc<Btf>, T)> {
        let vmlinux = self.vmlinux().ok()?;
        if let Some(found) = query(vmlinux) {
            return Some((vmlinux.clone(), found));
        }
        self.modules().iter().find_map(|name| {
            let btf = self.module(name)?;
            let found = query(&btf)?;
            Some((btf, found))
        })
    }
}
