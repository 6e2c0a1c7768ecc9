//! Stock Debian kernels, downloaded once as packages and unpacked under `vm/kernels/NAME`.
//!
//! Of the modules, only those that guests may load are unpacked: drivers of hardware that no guest
//! has are three quarters of a package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt::{Apt, io, remove_left, replace, run, staging};

/// The kernels of the matrix.
pub(crate) const NAMES: [&str; 3] = ["6.1", "6.12", "7.2"];

/// Package and the program that shows it is there.
const TOOLS: [(&str, &str); 4] = [
    ("busybox-static", "/bin/busybox"),
    ("cpio", "/usr/bin/cpio"),
    ("xz-utils", "/usr/bin/xz"),
    ("kmod", "/sbin/depmod"),
];

/// Modules for hardware that no guest has, below `kernel/`. What the tests load, by name (`dummy`,
/// `scsi_debug`, `dm-flakey`, `loop`, `ext4`, `kvm_amd` with `ccp`, `iscsi_target_mod`, `iscsi_tcp`, `vsock_loopback`) or through
/// the kernel (`veth`, `fuse`, the netfilter modules), is in none of them, nor is what that needs.
const NO_MODULES: [&str; 51] = [
    "sound",
    "net/bluetooth",
    "net/mac80211",
    "net/wireless",
    "fs/ocfs2",
    "drivers/accel",
    "drivers/ata",
    "drivers/bluetooth",
    "drivers/comedi",
    "drivers/firmware",
    "drivers/gpio",
    "drivers/gpu",
    "drivers/greybus",
    "drivers/hid",
    "drivers/hwmon",
    "drivers/i2c",
    "drivers/iio",
    "drivers/infiniband",
    "drivers/input",
    "drivers/isdn",
    "drivers/leds",
    "drivers/media",
    "drivers/mfd",
    "drivers/mmc",
    "drivers/mtd",
    "drivers/net/can",
    "drivers/net/dsa",
    "drivers/net/ethernet",
    "drivers/net/fddi",
    "drivers/net/hamradio",
    "drivers/net/ieee802154",
    "drivers/net/phy",
    "drivers/net/usb",
    "drivers/net/wan",
    "drivers/net/wireless",
    "drivers/net/wwan",
    "drivers/parport",
    "drivers/pcmcia",
    "drivers/pinctrl",
    "drivers/platform",
    "drivers/power",
    "drivers/regulator",
    "drivers/rtc",
    "drivers/scsi/*/*",
    "drivers/spi",
    "drivers/ssb",
    "drivers/staging",
    "drivers/thunderbolt",
    "drivers/usb",
    "drivers/video",
    "drivers/watchdog",
];

/// Where a kernel is unpacked.
pub(crate) fn dir(name: &str) -> PathBuf {
    crate::vm_dir().join("kernels").join(name)
}

/// Its release, if it is unpacked.
pub(crate) fn release(name: &str) -> Option<String> {
    fs::read_to_string(dir(name).join(".ok")).ok()
}

/// `cargo xtask kernels`: also replaces kernels of which Debian has a newer release.
pub(crate) fn command() -> Result<u8, String> {
    install_tools()?;
    prune(&crate::vm_dir().join("kernels"), &NAMES);
    let apt = Apt::new()?;
    crate::qemu::fetch_newest(&apt)?;
    let packages = apt.names("linux-")?;
    for name in NAMES {
        let newest = newest(name, &packages)?;
        if release(name).as_deref() != Some(newest) {
            unpack(&apt, name, newest, &packages)?;
        }
    }
    Ok(0)
}

/// Installs the programs that guests need, and unpacks QEMU and the kernels that are missing.
pub(crate) fn fetch(names: &[&str]) -> Result<(), String> {
    install_tools()?;
    let wanted: Vec<&str> = names.iter().copied().filter(|n| release(n).is_none()).collect();
    let mut apt = None;
    if !crate::qemu::is_here() {
        apt = Some(Apt::new());
        let unpacked = match &apt {
            Some(Ok(apt)) => crate::qemu::fetch_newest(apt),
            Some(Err(why)) => Err(why.clone()),
            None => Ok(()),
        };
        if let Err(why) = unpacked {
            eprintln!("xtask: no QEMU of another release ({why})");
            install(&[crate::qemu::DISTRIBUTION])?;
        }
    }
    crate::qemu::tell();
    if wanted.is_empty() {
        return Ok(());
    }
    prune(&crate::vm_dir().join("kernels"), &NAMES);
    let apt = apt.unwrap_or_else(Apt::new)?;
    let packages = apt.names("linux-")?;
    wanted.iter().try_for_each(|name| unpack(&apt, name, newest(name, &packages)?, &packages))
}

fn install_tools() -> Result<(), String> {
    install(&TOOLS)
}

/// Installs those of the packages whose program is not there.
pub(crate) fn install(packages: &[(&str, &str)]) -> Result<(), String> {
    let missing: Vec<&str> =
        packages.iter().filter(|(_, p)| !Path::new(p).exists()).map(|(n, _)| *n).collect();
    if !missing.is_empty() {
        run(Command::new("apt-get").args(["update", "-qq"]))?;
        run(Command::new("apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(&missing))?;
    }
    Ok(())
}

/// Removes what is no kernel of the matrix (any more), and what a process that is gone had half
/// unpacked.
fn prune(kernels: &Path, names: &[&str]) {
    remove_left(kernels);
    for entry in fs::read_dir(kernels).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && !names.contains(&name.as_str()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The release of the newest package of a kernel, among all names of packages. Debian 12 names its
/// kernels by ABI number, later ones by full version.
fn newest<'a>(name: &str, packages: &'a [String]) -> Result<&'a str, String> {
    let release = |package: &'a String| {
        let release = package.strip_prefix("linux-image-")?;
        let rest = release.strip_prefix(name)?.strip_prefix('.')?.strip_suffix("-amd64")?;
        let plain = rest.chars().all(|c| c.is_ascii_digit() || ".-".contains(c))
            || rest.split_once("+deb").is_some_and(|(patch, debian)| {
                [patch, debian].iter().all(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit()))
            });
        plain.then_some(release)
    };
    packages
        .iter()
        .filter_map(release)
        .max_by_key(|r| version_key(r))
        .ok_or_else(|| format!("no Debian kernel {name} in the package registry"))
}

fn unpack(apt: &Apt, name: &str, release: &str, known: &[String]) -> Result<(), String> {
    // Newer suites split the image: boot file and modules are packages of their own.
    let parts = ["image", "binary", "modules"].map(|part| format!("linux-{part}-{release}"));
    let packages: Vec<&str> = parts.iter().filter(|p| known.contains(p)).map(String::as_str).collect();
    let target = staging(&dir(name))?;
    let mut exclude = vec!["./usr/share".to_owned(), "./boot/System.map*".to_owned()];
    for lib in ["./lib", "./usr/lib"] {
        exclude.extend(NO_MODULES.map(|dir| format!("{lib}/modules/*/kernel/{dir}")));
    }
    apt.unpack(&packages, &target, &exclude.iter().map(String::as_str).collect::<Vec<_>>())?;
    let modules = target.join("lib/modules");
    if !modules.exists() {
        io(&modules, fs::create_dir_all(target.join("lib")))?;
        io(&modules, fs::rename(target.join("usr/lib/modules"), &modules))?;
    }
    run(Command::new("/sbin/depmod").arg("-b").arg(&target).arg(release))?;
    let _ = fs::remove_dir_all(target.join("usr"));
    io(&target, fs::write(target.join(".ok"), release))?;
    replace(&target, &dir(name))?;
    eprintln!("xtask: kernel {name} is {release}");
    Ok(())
}

fn version_key(package: &str) -> Vec<u64> {
    package.split(|c: char| !c.is_ascii_digit()).filter_map(|d| d.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_release_of_a_kernel_is_the_one_of_the_highest_version() {
        let packages = [
            "linux-image-6.1.0-9-amd64",
            "linux-image-6.1.0-50-amd64",
            "linux-image-6.1.0-51-cloud-amd64",
            "linux-image-6.1.0-51-amd64-unsigned",
            "linux-image-6.12.107+deb13-amd64",
            "linux-image-6.12.99+deb13-amd64",
            "linux-image-6.12.117+deb13-rt-amd64",
            "linux-image-6.12.117+deb13-amd64-dbg",
            "linux-headers-6.12.120+deb13-amd64",
        ]
        .map(String::from);
        assert_eq!(newest("6.1", &packages), Ok("6.1.0-50-amd64"));
        assert_eq!(newest("6.12", &packages), Ok("6.12.107+deb13-amd64"));
        assert!(newest("7.2", &packages).is_err());
    }

    #[test]
    fn kernels_outside_the_matrix_and_half_unpacked_ones_are_removed() {
        let dir = std::env::temp_dir().join(format!("xtask-kernels-{}", std::process::id()));
        // No process has the highest number: the kernel's limit is 4194304.
        let mine = format!(".6.12-{}-0", std::process::id());
        for name in ["6.12", "6.6", ".6.12-4194305-0", &mine] {
            fs::create_dir_all(dir.join(name)).unwrap();
        }
        prune(&dir, &["6.12"]);
        let mut left: Vec<String> = fs::read_dir(&dir)
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        left.sort();
        assert_eq!(left, [mine, "6.12".into()]);
        fs::remove_dir_all(dir).unwrap();
    }
}
