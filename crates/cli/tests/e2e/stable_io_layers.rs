//! The provider io with devices above others, requests that are merged, that fail, that a driver
//! completes in parts, and that began before tracing.

use std::process::{Child, Command, Stdio};

use testing::eventually;

use crate::Verdict::{self, Pass, Skip};
use crate::blocks::{LoopDevice, run};
use crate::machine::no_types;
use crate::tool::{LIMIT, Output, dtrace, finish, printed, start};

tests! {
    writes_that_are_merged_are_done_once_each
    writes_through_a_linear_device_are_done_once_on_both_devices
    writes_through_a_striped_device_are_done_when_all_their_parts_are
    io_that_an_array_passes_on_is_done_on_the_array
    io_of_a_device_that_fails_is_done_with_its_error
    io_of_which_a_part_fails_is_done_with_its_size_and_error
    io_that_a_driver_completes_in_steps_is_done_once
    io_that_began_before_tracing_is_done_with_its_size
}

/// Counts by device, probe, size and error, and sums of blocks by device and probe, of two or three
/// devices.
const COUNT: &str = "io:::start, io:::done \
    /args[1]->dev_statname == $$1 || args[1]->dev_statname == $$2 || args[1]->dev_statname == $$3/ \
    { @n[args[1]->dev_statname, probename, args[0]->b_bcount, args[0]->b_error] = count(); \
      @sum[args[1]->dev_statname, probename] = sum(args[0]->b_blkno); } \
    END { printa(\"%s %s %d %d %@d\\n\", @n); printa(\"%s %s blocks %@d\\n\", @sum); }";

/// The lines of the output, sorted.
fn lines(o: &Output) -> Vec<String> {
    let mut all: Vec<String> = o.out.lines().filter(|l| !l.is_empty()).map(String::from).collect();
    all.sort_unstable();
    all
}

/// The lines of [`COUNT`] for devices with starts and dones of the same number, size and places:
/// (device, requests, bytes, error, sum of the blocks).
fn expected(devices: &[(&str, u64, u64, u64, u64)]) -> Vec<String> {
    let mut all = Vec::new();
    for (device, count, bytes, error, blocks) in devices {
        all.push(format!("{device} start {bytes} 0 {count}"));
        all.push(format!("{device} done {bytes} {error} {count}"));
        all.push(format!("{device} start blocks {blocks}"));
        all.push(format!("{device} done blocks {blocks}"));
    }
    all.sort_unstable();
    all
}

/// The sum of the blocks of `count` requests, one behind the other.
fn sum(first: u64, blocks: u64, count: u64) -> u64 {
    count * first + blocks * (count - 1) * count / 2
}

/// Runs dtrace with [`COUNT`] while a shell runs `commands`.
fn count(device: &LoopDevice, commands: &str, names: [&str; 3]) -> Output {
    let file = device.dir.join("commands");
    std::fs::write(&file, format!("{{ {commands}\n}} 2>/dev/null\n")).unwrap();
    let command = format!("sh {}", file.display());
    let o = dtrace(&["-q", "-c", &command, "-n", COUNT, names[0], names[1], names[2]]).code(0);
    assert!(!o.err.contains("drop"), "{o:?}");
    o
}

/// A device of device mapper. It exists until it is dropped, which has to be before the devices
/// below.
struct Mapped {
    name: String,
    /// `/dev/dm-0`
    path: String,
}

impl Mapped {
    /// A device of this table. `modules`: those of its targets.
    fn new(test: &str, modules: &str, table: &str) -> Result<Mapped, Verdict> {
        let name = format!("dt-{test}-{}", std::process::id());
        let _ = run(&format!("modprobe -a dm-mod {modules}"));
        let create = format!(
            "printf '{table}\\n' | dmsetup create {name} --noudevsync --noudevrules && \
             dmsetup info -c --noheadings -o blkdevname {name}"
        );
        match run(&create) {
            Ok(device) => Ok(Mapped { path: format!("/dev/{device}"), name }),
            Err(why) => Err(Skip(format!("no device mapper: {}", why.lines().next().unwrap_or_default()))),
        }
    }

    /// `dm-0`
    fn device(&self) -> &str {
        self.path.trim_start_matches("/dev/")
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let _ = run(&format!("dmsetup remove --retry --noudevsync --noudevrules {}", self.name));
    }
}

/// The block of each page is a request of its own when it is submitted. What lies side by side is
/// one for the driver.
fn writes_that_are_merged_are_done_once_each() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let device = match LoopDevice::new("io-merged") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    let one = format!("dd if=/dev/zero of={} bs=4k count=2048 conv=fsync; ", device.path);
    // A flush has no size.
    let script = COUNT.replacen(
        "args[1]->dev_statname == $$1",
        "args[0]->b_bcount && args[1]->dev_statname == $$1",
        1,
    ) + "rawtp:block::block_rq_issue \
        /xlate <devinfo_t *> (args[0])->dev_statname == $$1 && xlate <bufinfo_t *> (args[0])->b_bcount/ \
        { @requests = count(); } END { printa(\"requests %@d\\n\", @requests); }";
    let file = device.dir.join("commands");
    std::fs::write(&file, format!("{{ {one}{one} }} 2>/dev/null\n")).unwrap();
    let command = format!("sh {}", file.display());
    let o = dtrace(&["-q", "-c", &command, "-n", &script, device.name(), "", ""]).code(0);
    let mut found = lines(&o);
    let requests = found.pop().and_then(|l| l.strip_prefix("requests ")?.parse::<u64>().ok());
    assert_eq!(found, expected(&[(device.name(), 4096, 4096, 0, 2 * sum(0, 8, 2048))]), "{o:?}");
    assert!(requests.is_some_and(|n| n < 2048), "nothing was merged: {o:?}");
    Pass
}

fn writes_through_a_linear_device_are_done_once_on_both_devices() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let below = match LoopDevice::new("io-linear") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    // The device begins at sector 2048 of the one below.
    let mapped = match Mapped::new("io-linear", "", &format!("0 8192 linear {} 2048", below.path)) {
        Ok(mapped) => mapped,
        Err(skip) => return skip,
    };
    let writes = format!("dd if=/dev/zero of={} bs=1024 count=4096 oflag=direct", mapped.path);
    let o = count(&below, &writes, [mapped.device(), below.name(), ""]);
    let wanted = expected(&[
        (mapped.device(), 4096, 1024, 0, sum(0, 2, 4096)),
        (below.name(), 4096, 1024, 0, sum(2048, 2, 4096)),
    ]);
    assert_eq!(lines(&o), wanted, "{o:?}");
    Pass
}

/// An array of `md` over two devices, in chunks of 64 KiB. It exists until it is dropped, which has
/// to be before the devices below.
struct Array(String);

impl Array {
    fn new(a: &LoopDevice, b: &LoopDevice) -> Result<Array, Verdict> {
        let _ = run("modprobe -a md-mod raid0");
        let name = format!("md_dt{}", std::process::id());
        let array = Array(name.clone());
        let file = |name: &str| format!("/sys/block/{}/md/{name}", array.0);
        let mut text =
            format!("echo {name} >/sys/module/md_mod/parameters/new_array && echo raid0 >{} ", file("level"));
        for (at, value) in [("metadata_version", "none"), ("raid_disks", "2"), ("chunk_size", "65536")] {
            text += &format!("&& echo {value} >{} ", file(at));
        }
        for (slot, device) in [a, b].map(LoopDevice::name).iter().enumerate() {
            let of_device = file(&format!("dev-{device}"));
            text += &format!(
                "&& cat /sys/block/{device}/dev >{} && echo {slot} >{of_device}/slot && echo 7168 >{of_device}/size ",
                file("new_dev")
            );
        }
        // An array that counts its requests passes copies of them on, and not the requests.
        text +=
            &format!("&& echo active >{} && echo 0 >/sys/block/{name}/queue/iostats ", file("array_state"));
        // The kernel looks for partitions when it is first opened.
        let path = array.path(a);
        text += &format!(
            "&& mknod {path} b $(tr : ' ' </sys/block/{name}/dev) && dd if={path} of=/dev/null bs=4k count=1"
        );
        match run(&text) {
            Ok(_) => Ok(array),
            Err(why) => Err(Skip(format!("no arrays: {}", why.lines().next().unwrap_or_default()))),
        }
    }

    /// A node of its own, since nothing else may make one.
    fn path(&self, a: &LoopDevice) -> String {
        a.dir.join("array").display().to_string()
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        let _ = run(&format!("echo clear >/sys/block/{}/md/array_state", self.0));
    }
}

fn io_that_an_array_passes_on_is_done_on_the_array() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let devices = LoopDevice::new("io-array-a").and_then(|a| Ok((a, LoopDevice::new("io-array-b")?)));
    let (a, b) = match devices {
        Ok(devices) => devices,
        Err(skip) => return skip,
    };
    let array = match Array::new(&a, &b) {
        Ok(array) => array,
        Err(skip) => return skip,
    };
    let writes = format!("dd if=/dev/zero of={} bs=32k count=64 oflag=direct", array.path(&a));
    // Whether the devices below have requests of their own depends on the kernel.
    let o = count(&a, &writes, [&array.0, "", ""]);
    assert_eq!(lines(&o), expected(&[(&array.0, 64, 32768, 0, sum(0, 64, 64))]), "{o:?}");
    Pass
}

fn writes_through_a_striped_device_are_done_when_all_their_parts_are() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let devices = LoopDevice::new("io-stripe-a").and_then(|a| Ok((a, LoopDevice::new("io-stripe-b")?)));
    let (a, b) = match devices {
        Ok(devices) => devices,
        Err(skip) => return skip,
    };
    // Stripes of 4 KiB.
    let table = format!("0 16384 striped 2 8 {} 0 {} 0", a.path, b.path);
    let mapped = match Mapped::new("io-stripe", "", &table) {
        Ok(mapped) => mapped,
        Err(skip) => return skip,
    };
    let writes = format!("dd if=/dev/zero of={} bs=64k count=128 oflag=direct", mapped.path);
    let o = count(&a, &writes, [mapped.device(), a.name(), b.name()]);
    let wanted = expected(&[
        (mapped.device(), 128, 65536, 0, sum(0, 128, 128)),
        (a.name(), 1024, 4096, 0, sum(0, 8, 1024)),
        (b.name(), 1024, 4096, 0, sum(0, 8, 1024)),
    ]);
    assert_eq!(lines(&o), wanted, "{o:?}");
    Pass
}

fn io_of_a_device_that_fails_is_done_with_its_error() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let below = match LoopDevice::new("io-flakey") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    // All of the first fails at once. The second is never up.
    let error = match Mapped::new("io-errors", "", "0 16384 error") {
        Ok(mapped) => mapped,
        Err(skip) => return skip,
    };
    let table = format!("0 16384 flakey {} 0 0 3600", below.path);
    let flakey = match Mapped::new("io-flakey", "dm-flakey", &table) {
        Ok(mapped) => mapped,
        Err(skip) => return skip,
    };
    let one = |path: &str, n: u32| {
        format!("dd if=/dev/zero of={path} bs=2048 count=1 seek={n} oflag=direct conv=notrunc; ")
    };
    let writes: String = (0..32).map(|n| one(&error.path, n) + &one(&flakey.path, n)).collect();
    let o = count(&below, &writes, [error.device(), flakey.device(), below.name()]);
    let wanted = expected(&[
        (error.device(), 32, 2048, 5, sum(0, 4, 32)),
        (flakey.device(), 32, 2048, 5, sum(0, 4, 32)),
    ]);
    assert_eq!(lines(&o), wanted, "{o:?}");
    Pass
}

fn io_of_which_a_part_fails_is_done_with_its_size_and_error() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let below = match LoopDevice::new("io-half") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    // 4 KiB that can be written, 4 KiB that cannot, 8 KiB that can.
    let table = format!("0 8 linear {0} 0\\n8 8 error\\n16 16 linear {0} 16", below.path);
    let mapped = match Mapped::new("io-half", "", &table) {
        Ok(mapped) => mapped,
        Err(skip) => return skip,
    };
    let writes = format!("dd if=/dev/zero of={} bs=16k count=1 oflag=direct", mapped.path);
    let o = count(&below, &writes, [mapped.device(), below.name(), ""]);
    let mut wanted = expected(&[(mapped.device(), 1, 16384, 5, 0)]);
    for line in [
        "start 4096 0 1",
        "done 4096 0 1",
        "start 8192 0 1",
        "done 8192 0 1",
        "start blocks 16",
        "done blocks 16",
    ] {
        wanted.push(format!("{} {line}", below.name()));
    }
    wanted.sort_unstable();
    assert_eq!(lines(&o), wanted, "{o:?}");
    Pass
}

/// The disk of the driver that makes faults, which is there a while after the driver.
pub(crate) fn faulty_disk() -> Result<String, Verdict> {
    run("modprobe sd_mod; modprobe scsi_debug dev_size_mb=8 opts=2")
        .map_err(|why| Skip(format!("no device that fails: {why}")))?;
    let find = "for disk in /sys/block/*; do name=${disk##*/}; \
                grep -qs scsi_debug $disk/device/model && [ -b /dev/$name ] && echo $name; done | grep .";
    Ok(eventually("a disk of the driver", LIMIT, || run(find)))
}

/// A disk of the driver that makes faults. Its options are as before when this is dropped.
struct FaultyDisk {
    name: String,
    before: Vec<(String, String)>,
}

impl FaultyDisk {
    fn new(options: &[(&str, &str)]) -> Result<FaultyDisk, Verdict> {
        let none = |why: String| Skip(format!("no device that fails: {why}"));
        let mut disk = FaultyDisk { name: faulty_disk()?, before: Vec::new() };
        for (option, value) in options {
            let path = format!("/sys/bus/pseudo/drivers/scsi_debug/{option}");
            let old = std::fs::read_to_string(&path).map_err(|e| none(e.to_string()))?;
            std::fs::write(&path, value).map_err(|e| none(e.to_string()))?;
            disk.before.push((path, old));
        }
        Ok(disk)
    }
}

impl Drop for FaultyDisk {
    fn drop(&mut self) {
        for (path, old) in &self.before {
            let _ = std::fs::write(path, old.trim());
        }
    }
}

fn io_that_a_driver_completes_in_steps_is_done_once() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    // 0x100: each second command transfers half of what it should.
    let disk = match FaultyDisk::new(&[("every_nth", "2"), ("opts", "0x100")]) {
        Ok(disk) => disk,
        Err(skip) => return skip,
    };
    let reads = format!("dd if=/dev/{} of=/dev/null bs=16k count=32 iflag=direct", disk.name);
    let script = format!(
        "rawtp:block::block_rq_complete /xlate <devinfo_t *> (args[0])->dev_statname == $$1 && \
         args[2] < args[0]->__data_len/ {{ @parts = count(); }} END {{ printa(\"parts %@d\\n\", @parts); }} {COUNT}"
    );
    let o = dtrace(&["-q", "-c", &reads, "-n", &script, &disk.name, "", ""]).code(0);
    let (parts, others): (Vec<_>, Vec<_>) = lines(&o).into_iter().partition(|l| l.starts_with("parts "));
    assert_eq!(others, expected(&[(&disk.name, 32, 16384, 0, sum(0, 32, 32))]), "{o:?}");
    let parts = parts.first().and_then(|l| l.strip_prefix("parts ")?.parse::<u64>().ok());
    assert!(parts.is_some_and(|n| n >= 16), "the driver completed no request in parts: {o:?}");
    Pass
}

/// A file system that is frozen on a loop device, until this is dropped, and a loop device over a
/// file in it.
struct Frozen {
    below: LoopDevice,
    /// `/dev/loop1`
    path: String,
}

impl Frozen {
    fn new(test: &str) -> Result<Frozen, Verdict> {
        let below = LoopDevice::new(test)?;
        let mount = below.dir.join("mnt").display().to_string();
        let make = format!(
            "mkfs.ext4 -q -b 4096 -O ^has_journal {0} && mount -t ext4 {0} {mount} && \
             dd if=/dev/zero of={mount}/image bs=64k count=32 conv=fsync 2>&1 && losetup -f --show {mount}/image",
            below.path
        );
        let made = run(&make).map_err(|why| Skip(format!("no file system on a loop device: {why}")))?;
        let path = made.lines().last().unwrap_or_default().to_string();
        let frozen = Frozen { below, path };
        match run(&format!("fsfreeze -f {mount}")) {
            Ok(_) => Ok(frozen),
            Err(why) => Err(Skip(format!("no file system on a loop device: it cannot be frozen: {why}"))),
        }
    }

    fn thaw(&self) {
        let _ = run(&format!("fsfreeze -u {}", self.below.dir.join("mnt").display()));
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.thaw();
        let _ = run(&format!("losetup -d {}", self.path));
    }
}

/// Waits until so many requests of a device are in flight. Device mapper counts the parts of one
/// too.
fn in_flight(device: &str, count: u64) {
    let number = || {
        let text = std::fs::read_to_string(format!("/sys/block/{device}/inflight")).unwrap();
        text.split_whitespace().map(|n| n.parse::<u64>().unwrap()).sum::<u64>()
    };
    eventually(format_args!("{count} requests in flight"), LIMIT, || match number() {
        n if n >= count => Ok(()),
        n => Err(n),
    });
}

/// Starts direct writes of 16 KiB, one at each of these places.
fn writers(path: &str, places: std::ops::Range<u32>) -> Vec<Child> {
    let one = |n: u32| {
        let words = [
            "if=/dev/zero",
            &format!("of={path}"),
            "bs=16k",
            "count=1",
            &format!("seek={n}"),
            "oflag=direct",
        ];
        Command::new("dd").args(words).arg("conv=notrunc").stderr(Stdio::null()).spawn().unwrap()
    };
    places.map(one).collect()
}

fn io_that_began_before_tracing_is_done_with_its_size() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let slow = match Frozen::new("io-before") {
        Ok(slow) => slow,
        Err(skip) => return skip,
    };
    let name = slow.path.trim_start_matches("/dev/").to_string();
    // Where there is device mapper, a device of its own above.
    let mapped = Mapped::new("io-before", "", &format!("0 64 linear {} 2048", slow.path)).ok();
    let above = mapped.as_ref().map_or("", Mapped::device).to_string();
    let mut children = writers(&slow.path, 0..8);
    in_flight(&name, 8);
    if let Some(mapped) = &mapped {
        children.extend(writers(&mapped.path, 0..1));
        in_flight(&above, 1);
    }
    let script = format!("BEGIN {{ printf(\"ready\\n\"); }} {COUNT}");
    let mut tracer = start(&["-q", "-n", &script, &name, &above, ""]);
    printed(&mut tracer);
    slow.thaw();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    crate::tool::signal(&tracer, libc::SIGTERM);
    let o = finish(tracer).code(0);
    let (mut wanted, mut blocks, mut requests) = (vec!["ready".to_string()], sum(0, 32, 8), 8);
    if mapped.is_some() {
        wanted.extend([format!("{above} done 16384 0 1"), format!("{above} done blocks 0")]);
        (blocks, requests) = (blocks + 2048, 9);
    }
    wanted.extend([format!("{name} done 16384 0 {requests}"), format!("{name} done blocks {blocks}")]);
    wanted.sort_unstable();
    assert_eq!(lines(&o), wanted, "{o:?}");
    assert!(!o.err.contains("drop"), "{o:?}");
    Pass
}
