//! Overlays, and the mappings of running processes.

use std::fs::File;
use std::io::{Read, Write};
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::*;

#[test]
fn the_real_files_of_a_plain_file_system_are_those_of_the_address_map() {
    let pid = std::process::id();
    let all = match RealFiles::default().of_process(pid) {
        Ok(all) => all,
        Err(why) => return testing::skipped!("{why}"),
    };
    let exe = std::env::current_exe().unwrap();
    let inode = std::fs::metadata(exe).unwrap().st_ino();
    let address = mapping as fn(&[u8]) -> Option<RealMapping> as usize as u64;
    let here = all.iter().find(|m| (m.start..m.end).contains(&address)).unwrap();
    assert_eq!(here.file.inode, inode);
    assert!(all.windows(2).all(|w| w[0].end <= w[1].start));
    // Only this process, and only files.
    let map = proc::maps::parse(&std::fs::read("/proc/self/maps").unwrap());
    assert!(all.iter().all(|m| map.mappings.iter().any(|n| n.start <= m.start && m.start < n.end)));
}

#[test]
fn a_process_that_does_not_exist_has_no_mappings() {
    match RealFiles::default().of_process(0x3fff_fff0) {
        Ok(all) => assert_eq!(all, []),
        Err(why) => assert!(!why.is_empty()),
    }
}

/// Two overlays of one directory with a program, each in a mount namespace of its own, and a
/// process in each that runs the program.
struct Containers {
    base: PathBuf,
    program: RealInode,
    shells: Vec<Child>,
}

impl Containers {
    /// `None` if there are no mount namespaces or overlays here.
    fn new(test: &str) -> Option<Containers> {
        // In memory: a guest's root is an overlay itself.
        let base = testing::memory_dir().join(format!("files-{test}-{}", std::process::id()));
        std::fs::create_dir_all(base.join("lower/bin")).unwrap();
        let path = base.join("lower/bin/program");
        let elf = testing::elf::Elf { code: testing::elf::calls(1), ..Default::default() };
        std::fs::write(&path, elf.bytes()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let stat = Handle::from_fd(File::open(&path).unwrap().into()).stat().unwrap();
        let program = RealInode { dev: stat.dev, inode: stat.inode };
        let mut all = Containers { base, program, shells: Vec::new() };
        let script = "cd \"$0\" && mkdir -p $1/upper $1/work $1/merged && mount -t tmpfs none $1 2>/dev/null \
                      && mkdir $1/upper $1/work $1/merged && mount -t overlay overlay \
                      -o lowerdir=\"$0\"/lower,upperdir=\"$0\"/$1/upper,workdir=\"$0\"/$1/work $1/merged \
                      && echo x && exec $1/merged/bin/program";
        for name in ["one", "two"] {
            let mut shell = Command::new("unshare")
                .args(["--mount", "sh", "-c", script])
                .args([&all.base, Path::new(name)])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .ok()?;
            let ready = shell.stdout.as_mut().unwrap().read_exact(&mut [0; 2]);
            all.shells.push(shell);
            ready.ok()?;
        }
        let runs = |child: &Child| {
            let comm = std::fs::read_to_string(format!("/proc/{}/comm", child.id()));
            comm.is_ok_and(|comm| comm == "program\n")
        };
        testing::eventually("the programs", testing::HANG_LIMIT, || all.shells.iter().all(runs));
        Some(all)
    }

    /// The first mapping of the program in a process: its address, what user space sees, its path.
    fn seen(&self, n: usize) -> (u32, u64, RealInode, Vec<u8>) {
        let pid = self.shells[n].id();
        let map = proc::maps::parse(&std::fs::read(format!("/proc/{pid}/maps")).unwrap());
        let at = map.files.iter().position(|f| f.path.ends_with(b"/bin/program")).unwrap();
        let is_its = |m: &&proc::maps::Mapping| m.backing == proc::maps::Backing::File(at as u32);
        let file = &map.files[at];
        let seen = RealInode { dev: file.dev, inode: file.inode };
        // In another mount namespace the path begins at its root, which is not that of a changed
        // root.
        let root = std::fs::read_link(format!("/proc/{pid}/root")).unwrap();
        let path =
            file.path.strip_prefix(root.as_os_str().as_encoded_bytes()).filter(|p| p.starts_with(b"/"));
        let path = path.unwrap_or(&file.path).to_vec();
        (pid, map.mappings.iter().find(is_its).unwrap().start, seen, path)
    }
}

impl Drop for Containers {
    fn drop(&mut self) {
        for shell in &mut self.shells {
            drop(shell.stdin.take().map(|mut input| input.write_all(b"x")));
            let _ = shell.wait();
        }
        let _ = std::fs::remove_dir_all(&self.base);
    }
}

#[test]
fn a_file_that_two_overlays_show_is_one_file() {
    let Some(containers) = Containers::new("overlays") else {
        return testing::skipped!("no overlays in mount namespaces here");
    };
    let mut files = RealFiles::default();
    if let Err(why) = files.of_process(std::process::id()) {
        return testing::skipped!("{why}");
    }
    let (one, two) = (containers.seen(0), containers.seen(1));
    for (pid, addr, seen, _) in [&one, &two] {
        let real = Identity::Real(containers.program);
        assert_eq!(files.identify(*pid, *addr, *seen), real, "{seen:?}");
    }
    println!("seen {:?} {:?}, real {:?}", one.2, two.2, containers.program);
}

#[test]
fn without_the_iterator_the_layers_of_the_overlay_are_searched() {
    let Some(containers) = Containers::new("layers") else {
        return testing::skipped!("no overlays in mount namespaces here");
    };
    let mut files = RealFiles { program: Some(Err("none".into())), ..RealFiles::default() };
    let (pid, addr, seen, path) = containers.seen(0);
    if seen == containers.program {
        return testing::skipped!("the kernel shows the file below the overlay here");
    }
    let own = Root::from_fd(File::open(format!("/proc/{pid}/root")).unwrap().into());
    let handle = Handle::from_fd(File::open(format!("/proc/{pid}/exe")).unwrap().into());
    let mapped = Mapped { pid, addr, seen, path: &path, handle: &handle, layers_root: &own };
    assert_eq!(identify(&mut files, &mapped), Identity::Real(containers.program));
    // A root in which the layers are not: what is seen may be one file or two.
    let empty = Root::from_fd(File::open(containers.base.join("lower")).unwrap().into());
    let mapped = Mapped { layers_root: &empty, ..mapped };
    assert_eq!(identify(&mut files, &mapped), Identity::Seen(seen));
    // Another file at the path in the layer.
    std::fs::remove_file(containers.base.join("lower/bin/program")).unwrap();
    std::fs::write(containers.base.join("lower/bin/program"), "another").unwrap();
    let mapped = Mapped { layers_root: &own, ..mapped };
    assert_eq!(identify(&mut files, &mapped), Identity::Seen(seen));
}

#[test]
fn overlays_are_found_in_the_list_of_mounts() {
    let text = b"36 35 0:31 / /merged\\040here rw,relatime shared:1 - overlay overlay rw,lowerdir=/a\\:b:/c,upperdir=/u,workdir=/w\n\
        37 35 8:1 / /mnt rw - ext4 /dev/sda1 rw\n\
        38 35 0:32 / /ro rw - overlay none ro,lowerdir+=/x,lowerdir+=/y\n\
        39 35 0:31 /sub /bind rw - overlay overlay rw,lowerdir=/a\n\
        40 35 0:33 / / rw - overlay overlay rw,lowerdir=l/ABC:l/DEF,upperdir=diff\n\
        garbage\n41 35 0:3 / /x rw -\n";
    let all = overlays(text);
    let layers = |n: usize| all[n].layers.iter().map(|l| String::from_utf8_lossy(l)).collect::<Vec<_>>();
    assert_eq!(all.iter().map(|o| o.mount).collect::<Vec<_>>(), [36, 38, 40]);
    assert_eq!(
        (&all[0].mount_point[..], layers(0)),
        (&b"/merged here"[..], vec!["/u".into(), "/a:b".into(), "/c".into()])
    );
    assert_eq!(layers(1), ["/x", "/y"]);
    assert_eq!(layers(2), ["diff", "l/ABC", "l/DEF"]);
    for cut in 0..text.len() {
        overlays(&text[..cut]);
    }
}

#[test]
fn of_several_overlays_at_one_place_the_one_through_which_a_file_is_seen_is_searched() {
    let base = testing::memory_dir().join(format!("files-places-{}", std::process::id()));
    for layer in ["old", "new"] {
        std::fs::create_dir_all(base.join(layer)).unwrap();
        std::fs::write(base.join(layer).join("program"), "x").unwrap();
    }
    let root = Root::own().unwrap();
    let handle = root.find(base.join("new/program").as_os_str().as_encoded_bytes()).unwrap();
    let stat = handle.stat().unwrap();
    let overlay = |mount: u64, layer: &str| Overlay {
        mount,
        mount_point: b"/merged".to_vec(),
        layers: vec![base.join(layer).as_os_str().as_encoded_bytes().to_vec()],
    };
    let find = |all: &[Overlay], path: &[u8]| find_in_layers(all, &root, path, &handle);
    let real = Some(RealInode { dev: stat.dev, inode: stat.inode });
    let (below, above) = (overlay(stat.mount + 1, "old"), overlay(stat.mount, "new"));
    assert_eq!(find(&[below.clone(), above.clone()], b"/merged/program"), real);
    assert_eq!(find(&[above.clone(), below.clone()], b"/merged/program"), real);
    // What is mounted at or below the place of an overlay is none of its files.
    assert_eq!(find(&[below], b"/merged/program"), None);
    assert_eq!(find(&[above], b"/elsewhere/program"), None);
    std::fs::remove_dir_all(base).unwrap();
}

#[test]
fn a_container_with_its_own_user_namespace_does_not_choose_the_identity_of_its_files() {
    let base = testing::memory_dir().join(format!("files-claimed-{}", std::process::id()));
    std::fs::create_dir_all(base.join("lower")).unwrap();
    let elf = testing::elf::Elf { code: testing::elf::calls(1), ..Default::default() };
    let path = base.join("lower/program");
    std::fs::write(&path, elf.bytes()).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = "cd \"$0\" && mkdir merged other && mount -t overlay overlay -o lowerdir=\"$0\"/lower:\"$0\"/other merged \
                  && echo x && exec merged/program";
    let mut shell = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(&base)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let ready = shell.stdout.as_mut().unwrap().read_exact(&mut [0; 2]).is_ok();
    let comm = || std::fs::read_to_string(format!("/proc/{}/comm", shell.id())).unwrap_or_default();
    if ready {
        testing::eventually("the program", testing::HANG_LIMIT, || comm() == "program\n");
        let pid = shell.id();
        let map = proc::maps::parse(&std::fs::read(format!("/proc/{pid}/maps")).unwrap());
        let file = &map.files[0];
        let seen = RealInode { dev: file.dev, inode: file.inode };
        let root = Root::from_fd(File::open(format!("/proc/{pid}/root")).unwrap().into());
        let handle = Handle::from_fd(File::open(format!("/proc/{pid}/exe")).unwrap().into());
        let addr = map.mappings[0].start;
        let mapped = Mapped { pid, addr, seen, path: &file.path, handle: &handle, layers_root: &root };
        let mut files = RealFiles { program: Some(Err("none".into())), ..RealFiles::default() };
        assert_eq!(identify(&mut files, &mapped), Identity::Seen(seen));
    } else {
        testing::skipped!("no overlays in user namespaces here");
    }
    drop(shell.stdin.take());
    let _ = shell.wait();
    std::fs::remove_dir_all(base).unwrap();
}
