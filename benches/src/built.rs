//! A program that is built with a header of `dtrace -h`.

use std::path::{Path, PathBuf};
use std::process::Command;

use dtrace::{Macros, ProviderDefinitions, Source, options::Options};

/// A directory with the program `bench` and its header `bench.h`. It is removed in the end.
pub(crate) struct Built(PathBuf);

impl Built {
    /// `name` is that of the section; `file` says which language the text is of.
    pub(crate) fn new(
        name: &str,
        definition: &str,
        (compiler, file, text): (&str, &str, &str),
    ) -> Result<Built, String> {
        let built = Built(std::env::temp_dir().join(format!("dt-bench-{name}-{}", std::process::id())));
        std::fs::create_dir_all(&built.0).map_err(|e| e.to_string())?;
        let source = Source::Script("bench.d".into(), definition.into());
        let definitions = ProviderDefinitions::read(&[source], &Macros::default(), &Options::default())
            .map_err(|e| e.to_string())?;
        for (name, text) in [("bench.h", definitions.header("bench.h").as_str()), (file, text)] {
            std::fs::write(built.0.join(name), text).map_err(|e| e.to_string())?;
        }
        let out = Command::new(compiler).args(["-O2", file, "-o", "bench"]).current_dir(&built.0).output();
        let out = out.map_err(|e| format!("{compiler}: {e}"))?;
        let said = String::from_utf8_lossy(&out.stderr);
        if out.status.success() { Ok(built) } else { Err(format!("{compiler}: {said}")) }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.0
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.0.join("bench")
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
