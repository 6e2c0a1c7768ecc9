//! BTF of a kernel and its modules. Each blob is opened when first needed.
//!
//! A module is only opened for a name that the kernel itself does not have. Modules are searched in
//! the order of their names, so that the result does not depend on load order.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::blob::{Btf, BtfError, BtfKind};
use super::source;

/// BTF of a kernel that is not in files: a record of another machine has it.
pub trait BtfBlobs: std::fmt::Debug + Send + Sync {
    /// The names of all blobs: `vmlinux` is the kernel, the others are its modules.
    fn names(&self) -> Vec<String>;

    /// The bytes of a blob. `None`: there is none of this name. An error says why it cannot be
    /// read.
    fn blob(&self, name: &str) -> Option<Result<Vec<u8>, String>>;
}

/// Where blobs are.
#[derive(Debug)]
enum Source {
    /// Files of a directory.
    Directory(PathBuf),
    /// Given by somebody else.
    Blobs(Arc<dyn BtfBlobs>),
    /// The kernel's own was given. There are no modules.
    Given,
    /// Another user of the same: see [`KernelBtf::as_seen_now`].
    Shared(Arc<KernelBtf>),
}

impl Source {
    fn open(&self, name: &str, base: Option<Arc<Btf>>) -> Result<Btf, BtfError> {
        match self {
            Source::Directory(dir) => Btf::open(&dir.join(name), base),
            Source::Blobs(blobs) => match blobs.blob(name) {
                Some(Ok(bytes)) => Btf::parse(bytes, base),
                Some(Err(why)) => Err(BtfError::Io(why)),
                None => Err(BtfError::Io("no BTF".into())),
            },
            Source::Given | Source::Shared(_) => Err(BtfError::Io("no BTF".into())),
        }
    }
}

/// BTF of a kernel and its modules.
#[derive(Debug)]
pub struct KernelBtf {
    source: Source,
    vmlinux: OnceLock<Result<Arc<Btf>, BtfError>>,
    modules: Mutex<HashMap<String, Option<Arc<Btf>>>>,
    /// The names of the modules, where they remain what they were.
    names: OnceLock<Vec<String>>,
    /// What is looked at is noted.
    is_watched: bool,
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
        KernelBtf::of(Source::Directory(dir.into()))
    }

    /// BTF that is not in files. This function opens nothing.
    pub fn of_blobs(blobs: Arc<dyn BtfBlobs>) -> KernelBtf {
        KernelBtf::of(Source::Blobs(blobs))
    }

    /// The same, which notes what is looked at: see [`KernelBtf::asked`].
    pub fn watched(blobs: Arc<dyn BtfBlobs>) -> KernelBtf {
        KernelBtf { is_watched: true, ..KernelBtf::of_blobs(blobs) }
    }

    /// Of BTF that is [watched](KernelBtf::watched), blobs with the types that were looked at, by
    /// name, `vmlinux` first. They answer what was asked as the whole ones do. The types have their
    /// ids; the others are there without a name.
    pub fn asked(&self) -> Vec<(String, Vec<u8>)> {
        let Some(Ok(vmlinux)) = self.vmlinux.get() else { return Vec::new() };
        let (bytes, strings) = vmlinux.of_asked(0);
        let mut all = vec![("vmlinux".to_owned(), bytes)];
        let modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let asked =
            modules.iter().filter_map(|(name, btf)| Some((name, btf.as_ref().filter(|btf| btf.is_asked())?)));
        all.extend(asked.map(|(name, btf)| (name.clone(), btf.of_asked(strings).0)));
        all.get_mut(1..).unwrap_or_default().sort();
        all
    }

    fn open(&self, name: &str, base: Option<Arc<Btf>>) -> Result<Arc<Btf>, BtfError> {
        let btf = self.source.open(name, base)?;
        Ok(Arc::new(if self.is_watched { btf.watched() } else { btf }))
    }

    fn of(source: Source) -> KernelBtf {
        let (vmlinux, names) = Default::default();
        KernelBtf { source, vmlinux, modules: Mutex::default(), names, is_watched: false }
    }

    /// The same, for one who is not to notice what is loaded and unloaded from now on: what was
    /// asked once has the same answer again. A module that was not asked for is that of the time
    /// when it is.
    pub fn as_seen_now(self: &Arc<Self>) -> Arc<KernelBtf> {
        Arc::new(KernelBtf::of(Source::Shared(self.clone())))
    }

    /// One BTF blob without modules, for tests.
    pub fn from_btf(btf: Btf) -> KernelBtf {
        let vmlinux = OnceLock::new();
        let _ = vmlinux.set(Ok(Arc::new(btf)));
        KernelBtf { vmlinux, ..KernelBtf::of(Source::Given) }
    }

    /// True when the kernel's own BTF has been opened. A session that names no kernel type never
    /// opens it.
    pub fn is_open(&self) -> bool {
        match &self.source {
            Source::Shared(all) => all.is_open(),
            _ => self.vmlinux.get().is_some(),
        }
    }

    /// The kernel's own BTF, or the error.
    pub fn vmlinux(&self) -> Result<&Arc<Btf>, &BtfError> {
        match &self.source {
            Source::Shared(all) => all.vmlinux(),
            _ => self.vmlinux.get_or_init(|| self.open("vmlinux", None)).as_ref(),
        }
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
        let btf = match &self.source {
            Source::Shared(all) => all.module(name),
            _ => self.open(name, Some(base.clone())).ok(),
        };
        modules.insert(name.into(), btf.clone());
        btf
    }

    /// Invalidates the cached BTF of a module that was loaded or unloaded.
    pub fn invalidate(&self, module: &str) {
        self.modules.lock().unwrap_or_else(PoisonError::into_inner).remove(module);
    }

    /// Sorted names of the modules that have BTF, without the kernel itself.
    pub fn modules(&self) -> Vec<String> {
        let mut names: Vec<String> = match &self.source {
            Source::Shared(all) => return self.names.get_or_init(|| all.modules()).clone(),
            Source::Directory(dir) => {
                let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
                entries.filter_map(|e| e.file_name().into_string().ok()).collect()
            }
            Source::Blobs(blobs) => blobs.names(),
            Source::Given => Vec::new(),
        };
        names.retain(|name| name != "vmlinux");
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
