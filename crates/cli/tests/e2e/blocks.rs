//! Translators of block I/O, against requests of known content on a loop device.

use std::path::PathBuf;
use std::process::Command;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::no_types;
use crate::tool::{Output, dtrace};

tests! {
    direct_io_is_described_by_its_bios_and_requests a_partition_has_its_own_name_and_blocks
    files_of_buffered_io_have_their_paths every_member_of_the_libraries_passes_the_verifier
}

/// A command that must succeed; otherwise what it said.
pub(crate) fn run(command: &str) -> Result<String, String> {
    let out = Command::new("sh").args(["-c", command]).output().map_err(|e| e.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if out.status.success() { Ok(text(&out.stdout)) } else { Err(text(&out.stderr)) }
}

/// A loop device of 8 MiB, and a directory for what a test needs besides. Both exist until it is
/// dropped.
pub(crate) struct LoopDevice {
    pub(crate) dir: PathBuf,
    /// `/dev/loop0`
    pub(crate) path: String,
}

impl LoopDevice {
    pub(crate) fn new(test: &str) -> Result<LoopDevice, Verdict> {
        let dir = std::env::temp_dir().join(format!("dt-{test}-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("mnt")).unwrap();
        let image = dir.join("image");
        std::fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
        // A guest has these drivers as modules. Where they are built in, there is no such module.
        let _ = run("modprobe -a loop ext4");
        match run(&format!("losetup -P -f --show {}", image.display())) {
            Ok(path) => Ok(LoopDevice { dir, path }),
            Err(why) => {
                let _ = std::fs::remove_dir_all(&dir);
                Err(Skip(format!("no loop device: {why}")))
            }
        }
    }

    /// A device with a file system without a journal, and the directory where it is mounted.
    pub(crate) fn with_files(test: &str) -> Result<(LoopDevice, String), Verdict> {
        let device = LoopDevice::new(test)?;
        let mount = device.dir.join("mnt").display().to_string();
        let path = &device.path;
        match run(&format!("mkfs.ext4 -q -b 4096 -O ^has_journal {path} && mount -t ext4 {path} {mount}")) {
            Ok(_) => Ok((device, mount)),
            Err(why) => Err(Skip(format!("no file system on a loop device: {why}"))),
        }
    }

    /// `loop0`
    pub(crate) fn name(&self) -> &str {
        self.path.trim_start_matches("/dev/")
    }

    /// Runs dtrace while a shell runs `commands`.
    pub(crate) fn trace(&self, commands: &str, name: &str, script: &str) -> Output {
        let file = self.dir.join("commands");
        std::fs::write(&file, format!("{{ {commands}\n}} 2>/dev/null\n")).unwrap();
        let command = format!("sh {}", file.display());
        dtrace(&["-q", "-c", &command, "-n", script, name]).code(0)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = run(&format!("umount {}", self.dir.join("mnt").display()));
        let _ = run(&format!("losetup -d {}", self.path));
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

// row translator.bufinfo, translator.devinfo
fn direct_io_is_described_by_its_bios_and_requests() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let device = match LoopDevice::new("direct") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    let path = &device.path;
    let commands = format!(
        "dd if=/dev/zero of={path} bs=64k count=2 seek=1 oflag=direct; dd if={path} of=/dev/null bs=8k count=1 skip=3 iflag=direct"
    );
    // A variable is of one type, and that of the translated value belongs to it.
    let show = |probe: &str, word: &str| {
        format!(
            "{probe} /xlate <devinfo_t *> (args[0])->dev_statname == $$1/ {{ \
             this->{word}_b = xlate <bufinfo_t *> (args[0]); this->{word}_d = xlate <devinfo_t *> (args[0]); \
             this->{word}_f = xlate <fileinfo_t *> (args[0]); \
             printf(\"{word} %s%s%s%s%s %d %d %d %d %d %d %d %d %s %s %s %d:%d %s %s %d\\n\", \
             this->{word}_b->b_flags & B_READ ? \"R\" : \"\", this->{word}_b->b_flags & B_WRITE ? \"W\" : \"\", \
             this->{word}_b->b_flags & B_ASYNC ? \"A\" : \"\", this->{word}_b->b_flags & B_PHYS ? \"P\" : \"\", \
             this->{word}_b->b_flags & (B_PAGEIO | B_ERROR) ? \"?\" : \"\", \
             this->{word}_b->b_bcount, this->{word}_b->b_bufsize, this->{word}_b->b_blkno, this->{word}_b->b_lblkno, this->{word}_b->b_resid, \
             this->{word}_b->b_error, this->{word}_b->b_addr == (caddr_t)args[0], \
             this->{word}_b->b_edev == (this->{word}_d->dev_major << 20 | this->{word}_d->dev_minor), \
             this->{word}_d->dev_name, this->{word}_d->dev_statname, this->{word}_d->dev_pathname, this->{word}_d->dev_major, this->{word}_d->dev_minor, \
             this->{word}_f->fi_name, this->{word}_f->fi_pathname, this->{word}_f->fi_offset); }} "
        )
    };
    let script =
        show("rawtp:block::block_bio_queue", "bio") + &show("rawtp:block::block_rq_issue", "request");
    let o = device.trace(&commands, device.name(), &script);
    let name = device.name();
    let minor = name.trim_start_matches("loop");
    let line = |word: &str, flags: &str, bytes: u32, block: u32| {
        format!(
            "{word} {flags} {bytes} {bytes} {block} {block} 0 0 1 1 loop {name} {path} 7:{minor} <unknown> <unknown> {}",
            block * 512
        )
    };
    for word in ["bio", "request"] {
        let wanted = [line(word, "WP", 65536, 128), line(word, "WP", 65536, 256), line(word, "RP", 8192, 48)];
        let lines: Vec<&str> = o.out.lines().filter(|l| l.starts_with(word)).collect();
        assert_eq!(lines, wanted, "{o:?}");
    }
    assert_eq!(o.err, "", "{o:?}");
    Pass
}

fn a_partition_has_its_own_name_and_blocks() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let device = match LoopDevice::new("partition") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    let (path, name) = (&device.path, device.name());
    let node = format!("{path}p3");
    if let Err(why) = run(&format!("addpart {path} 3 2048 4096")) {
        return Skip(format!("no partitions: {why}"));
    }
    let commands = format!("dd if=/dev/zero of={node} bs=64k count=1 seek=1 oflag=direct");
    let show = |probe: &str| {
        format!(
            "rawtp:block::{probe} /xlate <devinfo_t *> (args[0])->dev_statname == $$1/ {{ \
             printf(\"%s %d %d\\n\", xlate <devinfo_t *> (args[0])->dev_pathname, \
             xlate <bufinfo_t *> (args[0])->b_blkno, xlate <bufinfo_t *> (args[0])->b_bcount); }} "
        )
    };
    let sector = "rawtp:block::block_rq_issue /xlate <devinfo_t *> (args[0])->dev_statname == $$1/ \
                  { printf(\"sector %d\\n\", args[0]->__sector); }";
    let script = show("block_bio_queue") + &show("block_rq_issue") + sector;
    let o = device.trace(&commands, &format!("{name}p3"), &script);
    let mut lines: Vec<&str> = o.out.lines().filter(|l| !l.is_empty()).collect();
    lines.sort_unstable();
    let shown = format!("{node} 128 65536");
    assert_eq!(lines, [&*shown, &*shown, "sector 2176"], "{o:?}");
    Pass
}

// row translator.fileinfo
fn files_of_buffered_io_have_their_paths() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let (device, mount) = match LoopDevice::with_files("buffered") {
        Ok(all) => all,
        Err(skip) => return skip,
    };
    let (path, name) = (&device.path, device.name());
    let mount = std::fs::canonicalize(mount).unwrap().display().to_string();
    run(&format!("mkdir {mount}/sub && sync -f {mount}")).unwrap();
    // Another mount shows only a directory of the file system.
    let commands = format!(
        "mkdir {mount}/bound; mount --bind {mount}/sub {mount}/bound; \
         dd if=/dev/zero of={mount}/sub/data bs=64k count=2 conv=fsync; \
         umount {mount}/bound; umount {mount}; mount -t ext4 {path} {mount}; \
         dd if={mount}/sub/data of=/dev/null bs=64k count=2"
    );
    // Paths are from the root of the system, which is above the root of a guest.
    let script = "BEGIN { printf(\"root %s\\n\", root); } \
                  rawtp:block::block_bio_queue /xlate <devinfo_t *> (args[0])->dev_statname == $$1 && \
                  xlate <fileinfo_t *> (args[0])->fi_name == \"data\"/ { this->f = xlate <fileinfo_t *> (args[0]); \
                  this->b = xlate <bufinfo_t *> (args[0]); \
                  @bytes[this->b->b_flags & (B_READ | B_WRITE | B_PAGEIO | B_PHYS), this->f->fi_pathname, this->f->fi_dirname, \
                  this->f->fi_mount, this->f->fi_fs] = sum(this->b->b_bcount); \
                  @end[this->b->b_flags & (B_READ | B_WRITE)] = max(this->f->fi_offset + this->b->b_bcount); \
                  @start[this->b->b_flags & (B_READ | B_WRITE)] = min(this->f->fi_offset); } \
                  rawtp:block::block_rq_issue /xlate <devinfo_t *> (args[0])->dev_statname == $$1 && \
                  xlate <fileinfo_t *> (args[0])->fi_name == \"data\"/ \
                  { @requests[xlate <fileinfo_t *> (args[0])->fi_pathname] = sum(xlate <bufinfo_t *> (args[0])->b_bcount); } \
                  END { printa(\"bytes %x %s %s %s %s %@d\\n\", @bytes); printa(\"start %x %@d\\n\", @start); \
                  printa(\"end %x %@d\\n\", @end); printa(\"requests %s %@d\\n\", @requests); }";
    let o = device.trace(&commands, name, script);
    let of = |word: &str| -> Vec<&str> {
        let mut lines: Vec<&str> = o.out.lines().filter_map(|l| l.strip_prefix(word)).collect();
        lines.sort_unstable();
        lines
    };
    let root = of("root ")[0].trim_end_matches('/');
    let (mount, dir) = (format!("{root}{mount}"), format!("{root}{mount}/sub"));
    let bytes = |flags: &str| format!("{flags} {dir}/data {dir} {mount} ext4 131072");
    assert_eq!(of("bytes "), [bytes("110"), bytes("50")], "{o:?}");
    assert_eq!(of("start "), ["100 0", "40 0"], "{o:?}");
    assert_eq!(of("end "), ["100 131072", "40 131072"], "{o:?}");
    assert_eq!(of("requests "), [format!("{dir}/data 262144")], "{o:?}");
    assert_eq!(o.err, "", "{o:?}");
    Pass
}

/// Type, type that is translated, and members, of each translator in a library.
fn translators(text: &str) -> Vec<(String, String, Vec<String>)> {
    let mut out: Vec<(String, String, Vec<String>)> = Vec::new();
    for line in text.lines() {
        if let Some((output, input)) = line.strip_prefix("translator ").and_then(|l| l.split_once(" < ")) {
            let input = input.trim_end_matches(['{', '>', ' ']);
            let input = input.trim_end_matches(|c: char| c.is_ascii_alphanumeric()).to_string();
            out.push((output.to_string(), input, Vec::new()));
        } else if let Some((member, _)) = line.strip_prefix('\t').and_then(|l| l.split_once(" = "))
            && member.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            && let Some((_, _, members)) = out.last_mut()
        {
            members.push(member.to_string());
        }
    }
    out
}

/// Each member of each translator, in a clause whose predicate is false: the value that is
/// translated is no address of its type.
fn every_member_of_the_libraries_passes_the_verifier() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let libraries = [
        include_str!("../../../../lib/cgroup.d"),
        include_str!("../../../../lib/icmp.d"),
        include_str!("../../../../lib/io.d"),
        include_str!("../../../../lib/ip.d"),
        include_str!("../../../../lib/irq.d"),
        include_str!("../../../../lib/net.d"),
        include_str!("../../../../lib/oom.d"),
        include_str!("../../../../lib/proc.d"),
        include_str!("../../../../lib/procfs.d"),
        include_str!("../../../../lib/sched.d"),
        include_str!("../../../../lib/tcp.d"),
        include_str!("../../../../lib/udp.d"),
    ];
    let mut count = 0;
    for (output, input, members) in libraries.iter().flat_map(|text| translators(text)) {
        let mut script = "BEGIN { exit(0); } ".to_string();
        for some in members.chunks(6) {
            script += "BEGIN /pid == 0/ { ";
            for member in some {
                // A struct cannot be recorded, so its first member is used instead.
                let inner = match &**member {
                    "pr_start" | "pr_time" | "pr_ctime" => ".tv_sec",
                    "pr_lwp" => ".pr_lwpid",
                    "cpu_info" => ".pi_state",
                    _ => "",
                };
                script += &format!("trace(xlate <{output}> (({input})arg0).{member}{inner}); ");
            }
            script += "} ";
        }
        count += members.len();
        let o = dtrace(&["-qn", &script]).code(0);
        assert_eq!(o.err, "", "{output} < {input}: {o:?}");
    }
    assert!(count > 250, "{count}");
    Pass
}
