//! The provider io: each probe by count and by argument, with requests of known number and size on
//! a loop device.

use crate::Verdict::{self, Pass, Skip};
use crate::blocks::{LoopDevice, run};
use crate::machine::{no_functions, no_types};
use crate::stable_io_layers::faulty_disk;
use crate::tool::Output;

tests! {
    each_direct_write_starts_once
    each_direct_write_starts_once_and_is_done_once_with_its_size
    a_request_that_is_split_is_done_once_with_all_its_bytes
    requests_whose_parts_end_on_several_cpus_are_done_once_each
    start_and_done_of_a_request_have_the_same_arg0_which_no_other_in_flight_has
    the_blocks_of_a_partition_are_its_own_when_io_is_done
    io_that_fails_has_its_error_when_it_is_done
}

/// The lines of the output, sorted.
fn lines(o: &Output) -> Vec<&str> {
    let mut all: Vec<&str> = o.out.lines().filter(|l| !l.is_empty()).collect();
    all.sort_unstable();
    all
}

/// Counts of each probe by size and block, of the device `$$1`.
const COUNT: &str = "io::: /args[1]->dev_statname == $$1/ \
    { @n[probename, args[0]->b_bcount] = count(); @sum[probename] = sum(args[0]->b_blkno); } \
    END { printa(\"%s %d %@d\\n\", @n); printa(\"blocks %s %@d\\n\", @sum); }";

fn each_direct_write_starts_once() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let device = match LoopDevice::new("io-start") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    let writes = format!("dd if=/dev/zero of={} bs=2048 count=4096 oflag=direct", device.path);
    let o = device.trace(&writes, device.name(), &COUNT.replace("io:::", "io:genunix::start"));
    // Blocks 0, 4, 8, …
    assert_eq!(lines(&o), [&format!("blocks start {}", 4 * 4095 * 4096 / 2), "start 2048 4096"], "{o:?}");
    assert_eq!(o.err, "", "{o:?}");
    Pass
}

fn each_direct_write_starts_once_and_is_done_once_with_its_size() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let device = match LoopDevice::new("io-direct") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    let writes = format!("dd if=/dev/zero of={} bs=2048 count=4096 oflag=direct", device.path);
    let o = device.trace(&writes, device.name(), COUNT);
    let mut expected = Vec::new();
    // Waits are known where functions can be traced.
    let waits = if no_functions().is_none() { &["wait-done", "wait-start"][..] } else { &[] };
    for probe in ["done", "start"].iter().chain(waits) {
        expected.push(format!("blocks {probe} {}", 4 * 4095 * 4096 / 2));
        expected.push(format!("{probe} 2048 4096"));
    }
    expected.sort_unstable();
    assert_eq!(lines(&o), expected, "{o:?}");
    assert!(!o.err.contains("drop"), "{o:?}");
    Pass
}

/// The greatest size of a request of a device. The device keeps it for whoever uses it next.
struct RequestLimit(String, String);

impl RequestLimit {
    fn set(device: &str, kilobytes: &str) -> std::io::Result<RequestLimit> {
        let path = format!("/sys/block/{device}/queue/max_sectors_kb");
        let before = std::fs::read_to_string(&path)?;
        std::fs::write(&path, kilobytes)?;
        Ok(RequestLimit(path, before))
    }
}

impl Drop for RequestLimit {
    fn drop(&mut self) {
        let _ = std::fs::write(&self.0, &self.1);
    }
}

fn a_request_that_is_split_is_done_once_with_all_its_bytes() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let device = match LoopDevice::new("io-split") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    let name = device.name();
    let _limit = match RequestLimit::set(name, "16") {
        Ok(limit) => limit,
        Err(why) => return Skip(format!("no limit of the size of requests: {why}")),
    };
    let writes = format!("dd if=/dev/zero of={} bs=256k count=32 oflag=direct", device.path);
    let script = "io:::start, io:::done /args[1]->dev_statname == $$1/ \
        { @n[probename, args[0]->b_bcount] = count(); @sum[probename] = sum(args[0]->b_blkno); } \
        rawtp:block::block_rq_issue /xlate <devinfo_t *> (args[0])->dev_statname == $$1/ { @n[\"issue\", 16384] = count(); } \
        END { printa(\"%s %d %@d\\n\", @n); printa(\"blocks %s %@d\\n\", @sum); }";
    let o = device.trace(&writes, name, script);
    let blocks = 512 * 31 * 32 / 2;
    let expected = [
        format!("blocks done {blocks}"),
        format!("blocks start {blocks}"),
        "done 262144 32".to_string(),
        "issue 16384 512".to_string(),
        "start 262144 32".to_string(),
    ];
    assert_eq!(lines(&o), expected, "{o:?}");
    Pass
}

fn requests_whose_parts_end_on_several_cpus_are_done_once_each() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let device = match LoopDevice::new("io-parts") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    let name = device.name();
    let _limit = match RequestLimit::set(name, "4") {
        Ok(limit) => limit,
        Err(why) => return Skip(format!("no limit of the size of requests: {why}")),
    };
    let one =
        |n: u32| format!("dd if=/dev/zero of={} bs=64k count=32 seek={} oflag=direct &", device.path, 32 * n);
    let writes = format!("{} {} {} {} wait", one(0), one(1), one(2), one(3));
    let script = "io:::start, io:::done /args[1]->dev_statname == $$1/ \
        { @n[probename, args[0]->b_bcount] = count(); @sum[probename] = sum(args[0]->b_blkno); } \
        END { printa(\"%s %d %@d\\n\", @n); printa(\"blocks %s %@d\\n\", @sum); }";
    let o = device.trace(&writes, name, script);
    let blocks = 128 * 127 * 128 / 2;
    let expected = [
        format!("blocks done {blocks}"),
        format!("blocks start {blocks}"),
        "done 65536 128".to_string(),
        "start 65536 128".to_string(),
    ];
    assert_eq!(lines(&o), expected, "{o:?}");
    Pass
}

fn start_and_done_of_a_request_have_the_same_arg0_which_no_other_in_flight_has() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let device = match LoopDevice::new("io-key") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    let name = device.name();
    let _limit = match RequestLimit::set(name, "16") {
        Ok(limit) => limit,
        Err(why) => return Skip(format!("no limit of the size of requests: {why}")),
    };
    // Four at once, each in four parts.
    let one =
        |n: u32| format!("dd if=/dev/zero of={} bs=64k count=32 seek={} oflag=direct &", device.path, 32 * n);
    let writes = format!("{} {} {} {} wait", one(0), one(1), one(2), one(3));
    let pair = |from: &str, to: &str, n: u32| {
        format!(
            "int key{n}[uintptr_t], address{n}[caddr_t], place{n}[dev_t, uint64_t]; \
             io:::{from} /args[1]->dev_statname == $$1/ {{ @[\"{from}: known before\"] = sum(key{n}[arg0]); \
             key{n}[arg0] = 1; address{n}[args[0]->b_addr] = 1; place{n}[args[0]->b_edev, args[0]->b_blkno] = 1; }} \
             io:::{to} /args[1]->dev_statname == $$1/ {{ @[\"{to}: arg0\"] = sum(key{n}[arg0]); \
             @[\"{to}: b_addr\"] = sum(address{n}[args[0]->b_addr]); \
             @[\"{to}: place\"] = sum(place{n}[args[0]->b_edev, args[0]->b_blkno]); \
             key{n}[arg0] = 0; address{n}[args[0]->b_addr] = 0; place{n}[args[0]->b_edev, args[0]->b_blkno] = 0; }} "
        )
    };
    let mut script = pair("start", "done", 1);
    let mut probes = vec![("start", "done")];
    // A thread waits until each of its requests is done, where that is known.
    if no_functions().is_none() {
        script += &pair("wait-start", "wait-done", 2);
        probes.push(("wait-start", "wait-done"));
    }
    script += "END { printa(\"%s %@d\\n\", @); }";
    let o = device.trace(&writes, name, &script);
    let mut expected = Vec::new();
    for (from, to) in probes {
        expected.push(format!("{from}: known before 0"));
        expected.extend(["arg0", "b_addr", "place"].map(|key| format!("{to}: {key} 128")));
    }
    expected.sort_unstable();
    assert_eq!(lines(&o), expected, "{o:?}");
    Pass
}

fn the_blocks_of_a_partition_are_its_own_when_io_is_done() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let device = match LoopDevice::new("io-partition") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    if let Err(why) = run(&format!("addpart {} 3 2048 4096", device.path)) {
        return Skip(format!("no partitions: {why}"));
    }
    let writes = format!("dd if=/dev/zero of={}p3 bs=64k count=1 seek=1 oflag=direct", device.path);
    let script = "io:::start, io:::done /args[1]->dev_statname == $$1/ { printf(\"%s %d %d\\n\", probename, \
        args[0]->b_blkno, args[0]->b_bcount); }";
    let o = device.trace(&writes, &format!("{}p3", device.name()), script);
    assert_eq!(lines(&o), ["done 128 65536", "start 128 65536"], "{o:?}");
    Pass
}

fn io_that_fails_has_its_error_when_it_is_done() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let device = match LoopDevice::new("io-error") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    // Writes beyond the limit of the file's size fail in the kernel's thread of the device, so the
    // driver with faults of its own is used: sectors 4660 to 4669 cannot be read.
    let name = match faulty_disk() {
        Ok(name) => name,
        Err(skip) => return skip,
    };
    let reads = format!("dd if=/dev/{name} of=/dev/null bs=512 count=1 skip=4660 iflag=direct");
    let script = "io:::start, io:::done /args[1]->dev_statname == $$1/ { printf(\"%s %d %d %d %d\\n\", probename, \
        args[0]->b_blkno, args[0]->b_bcount, args[0]->b_error, (args[0]->b_flags & B_ERROR) != 0); }";
    let o = device.trace(&reads, &name, script);
    assert_eq!(lines(&o), ["done 4660 512 61 1", "start 4660 512 0 0"], "{o:?}");
    Pass
}
