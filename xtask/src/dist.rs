//! `cargo xtask dist`: what is published of a release, made so that two builds of a commit give the
//! same bytes.
//!
//! ```text
//! target/dist/dtrace-VERSION-x86_64.tar.gz    a prefix: program, tools, libraries, pages, completions, licences, SBOM
//! target/dist/dtrace-rs_VERSION_amd64.deb     the same for Debian
//! target/dist/dtrace-rs-VERSION-1.x86_64.rpm  the same for those who use RPM
//! target/dist/SHA256SUMS                      of the three
//! ```
//!
//! The program is linked statically ([`program`]); every time in the files is that of the commit
//! (`SOURCE_DATE_EPOCH`, if it is set); owners, order and compression are those of [`archive`].
//! `--test` installs, uses and removes the packages in new roots of Debian ([`roots`]), which takes
//! minutes and needs a mirror, so `.ci/run` does not do it.
//!
//! ```text
//!  program ─▶ contents (+ sbom) ─▶ archive, deb, rpm ─▶ target/dist ─▶ roots
//! ```

pub(crate) mod archive;
mod contents;
mod date;
mod deb;
mod digest;
pub(crate) mod program;
mod roots;
mod rpm;
mod sbom;
mod size;

use std::path::{Path, PathBuf};

use self::contents::Release;

/// What the published program is built for.
pub(crate) const TARGET: &str = "x86_64-unknown-linux-musl";

/// The lines of `cargo xtask help`.
pub(crate) const HELP: &str = "  dist [--test] [--lintian] [--program FILE]
                build the static program (or take FILE) and make the tarball, the packages and their checksums in
                target/dist; --test installs and removes the packages in new Debian roots, --lintian checks the .deb
  size          build the static program and print its size by section and by crate; fails above 10 MB
";

/// `cargo xtask dist [--test] [--lintian] [--program FILE]`
pub(crate) fn command(args: &[String]) -> Result<u8, String> {
    let (mut test, mut lintian, mut program) = (false, false, None);
    let mut words = args.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--test" => test = true,
            "--lintian" => lintian = true,
            "--program" => program = Some(words.next().ok_or("dist: --program needs a file")?),
            _ => return Err(format!("dist: no option {word}; there are --test, --lintian and --program")),
        }
    }
    let tree = crate::root();
    let time = program::time(&tree)?;
    let built = match program {
        // Two names of one file: it may have its symbols or not.
        Some(file) => program::Built { with_symbols: file.into(), stripped: file.into() },
        None => program::build(&tree, time)?,
    };
    size::check(&built)?;
    let directory = crate::test::target_dir().join("dist");
    let release = Release::of(&tree, &built.stripped, time)?;
    let files = write(&release, &directory)?;
    for file in &files {
        println!("{:>10}  {}", std::fs::metadata(file).map_or(0, |m| m.len()), file.display());
    }
    let deb = directory.join(deb::file_name(&release));
    if test {
        roots::test(&deb)?;
        roots::test_rpm(&directory.join(rpm::file_name(&release)))?;
    }
    if lintian {
        roots::lintian(&deb)?;
    }
    Ok(0)
}

/// `cargo xtask size`
pub(crate) fn size(args: &[String]) -> Result<u8, String> {
    if let Some(word) = args.first() {
        return Err(format!("size: no option {word}"));
    }
    let tree = crate::root();
    let built = program::build(&tree, program::time(&tree)?)?;
    print!("{}", size::table(&built)?);
    size::check(&built).map(|()| 0)
}

/// Writes what is published to a directory: the paths. What else is there of an earlier release is
/// removed.
fn write(release: &Release, directory: &Path) -> Result<Vec<PathBuf>, String> {
    let top = format!("dtrace-{}-x86_64", release.version);
    let tarball = archive::with_directories(&release.tarball());
    let files = [
        (format!("{top}.tar.gz"), archive::gzip(&archive::tar(&format!("{top}/"), &tarball, release.time)?)),
        (deb::file_name(release), deb::package(release)?),
        (rpm::file_name(release), rpm::package(release)?),
    ];
    let sums: String =
        files.iter().map(|(name, bytes)| format!("{}  {name}\n", digest::sha256(bytes))).collect();
    let failed = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    let _ = std::fs::remove_dir_all(directory);
    std::fs::create_dir_all(directory).map_err(|e| failed(directory, e))?;
    let mut paths = Vec::new();
    for (name, bytes) in files.into_iter().chain([("SHA256SUMS".to_owned(), sums.into_bytes())]) {
        let path = directory.join(name);
        std::fs::write(&path, bytes).map_err(|e| failed(&path, e))?;
        paths.push(path);
    }
    Ok(paths)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn three_files_and_their_sums_are_written_and_are_the_same_each_time() {
        let dir = std::env::temp_dir().join(format!("dt-dist-{}", std::process::id()));
        let made = || {
            let paths = write(&contents::tests::release(), &dir).unwrap();
            let read = |path: &PathBuf| {
                (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(path).unwrap())
            };
            paths.iter().map(read).collect::<Vec<_>>()
        };
        let (one, two) = (made(), made());
        assert!(one == two);
        let names: Vec<&str> = one.iter().map(|(name, _)| name.as_str()).collect();
        let deb = "dtrace-rs_0.1.0_amd64.deb";
        assert_eq!(names, ["dtrace-0.1.0-x86_64.tar.gz", deb, "dtrace-rs-0.1.0-1.x86_64.rpm", "SHA256SUMS"]);
        let sums =
            std::process::Command::new("sha256sum").args(["-c", "SHA256SUMS"]).current_dir(&dir).output();
        let said = String::from_utf8(sums.unwrap().stdout).unwrap();
        assert_eq!(said.matches(": OK").count(), 3, "{said}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
