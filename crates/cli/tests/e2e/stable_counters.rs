//! The providers vminfo and sysinfo: each probe by count and by amount, with workloads of known
//! size.

use std::collections::BTreeMap;

use crate::Verdict::{self, Pass, Skip};
use crate::blocks::{LoopDevice, run};
use crate::machine::{no_functions, no_types};
use crate::stable_cgroup::Memory;
use crate::tool::{Output, dtrace, suppressed, workload};

tests! {
    page_faults_of_each_kind_are_counted
    huge_pages_count_as_the_pages_they_replace
    pages_of_a_device_are_counted_as_they_are_read_and_written
    pages_of_swap_are_counted_as_they_are_read_and_written
    pages_that_are_looked_at_and_freed_are_counted_as_the_kernel_counts_them
    system_calls_and_new_threads_are_counted_with_their_bytes
    switches_of_a_thread_are_counted_as_the_kernel_counts_them
    migrations_are_counted_where_they_are_decided
    interrupts_between_cpus_are_counted
    interrupts_of_devices_are_counted
    locks_that_are_waited_for_are_counted_once
    lookups_of_paths_are_counted_once
    modules_are_counted_as_they_are_loaded_and_unloaded
}

/// The sums of all probes of a provider in each part of a workload.
fn parts(provider: &str, name: &str, argument: &str) -> Result<BTreeMap<String, i64>, Verdict> {
    let script = format!(
        "self int64_t in; syscall::getppid:entry /(pid == $target || ppid == $target) && arg0 < 100/ {{ self->in = self->in ? 0 : arg0; }}
        {provider}::: /self->in/ {{ @[self->in, probename] = sum(arg0); }}
        END {{ printa(\"%d %s %@d\\n\", @); }}"
    );
    traced(&script, name, argument).map(|o| sums(&o))
}

fn traced(script: &str, name: &str, argument: &str) -> Result<Output, Verdict> {
    let command = workload(name, 1);
    let command = format!("{} {argument}", command.trim_end_matches(" 1"));
    let o = dtrace(&["-q", "-c", &command, "-n", script]).code(0);
    if o.err.contains("exited with status 77") {
        return Err(Skip("Operation not permitted".into()));
    }
    Ok(o)
}

/// The lines of the output: words, and a number at the end.
fn sums(o: &Output) -> BTreeMap<String, i64> {
    let row = |line: &str| {
        let (words, number) = line.rsplit_once(' ')?;
        Some((words.to_string(), number.parse().ok()?))
    };
    o.out.lines().filter_map(row).collect()
}

/// Those of one part.
fn of(all: &BTreeMap<String, i64>, part: u32) -> Vec<(&str, i64)> {
    let prefix = format!("{part} ");
    all.iter().filter_map(|(words, n)| Some((words.strip_prefix(&prefix)?, *n))).collect()
}

fn has_functions() -> bool {
    no_functions().is_none()
}

fn page_faults_of_each_kind_are_counted() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let all = match parts("vminfo", "faultkinds", "100") {
        Ok(all) => all,
        Err(skip) => return skip,
    };
    let mut copied = vec![("prot_fault", 100)];
    let mut private = vec![("as_fault", 100)];
    if has_functions() {
        copied.insert(0, ("cow_fault", 100));
        private.push(("cow_fault", 100));
    }
    assert_eq!(of(&all, 1), [("as_fault", 100), ("zfod", 100)], "{all:?}");
    assert_eq!(of(&all, 2), copied, "{all:?}");
    assert_eq!(of(&all, 3), private, "{all:?}");
    assert_eq!(of(&all, 4), [("as_fault", 100)], "{all:?}");
    assert_eq!(of(&all, 5), [("prot_fault", 100), ("zfod", 100)], "{all:?}");
    Pass
}

fn huge_pages_count_as_the_pages_they_replace() -> Verdict {
    if let Some(skip) = no_functions() {
        return skip;
    }
    let all = match parts("vminfo", "faultkinds", "1") {
        Ok(all) => all,
        Err(skip) => return skip,
    };
    assert_eq!(all.get("6 zfod"), Some(&1024), "{all:?}");
    Pass
}

fn pages_of_a_device_are_counted_as_they_are_read_and_written() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let device = match LoopDevice::new("paging") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    let all = match parts("vminfo", "paging", &device.path) {
        Ok(all) => all,
        Err(skip) => return skip,
    };
    let one = |part: u32| -> Vec<(&str, i64)> {
        of(&all, part).into_iter().filter(|(name, _)| *name != "as_fault").collect()
    };
    assert_eq!(one(1), [("fspgin", 32), ("maj_fault", 32), ("pgin", 32), ("pgpgin", 32)], "{all:?}");
    // The kernel reads ahead here, whatever is said. Not on every machine may a device be executed.
    let kind = if has_functions() { "2 execpgin" } else { "2 fspgin" };
    assert_eq!(all.get(kind), all.get("2 pgpgin"), "{all:?}");
    assert!(all.get("2 pgpgin").is_none_or(|pages| *pages >= 33), "{all:?}");
    let read = of(&all, 3);
    assert!(read.contains(&("pgpgin", 64)) && read.contains(&("fspgin", 64)), "{all:?}");
    let written = of(&all, 4);
    assert!(written.contains(&("pgpgout", 64)) && written.contains(&("fspgout", 64)), "{all:?}");
    assert!(written.iter().any(|(name, n)| *name == "pgout" && (1..=64).contains(n)), "{all:?}");
    // Memory of the process itself is not paged.
    assert!(one(5).is_empty() && one(6).is_empty(), "{all:?}");
    let all = match parts("sysinfo", "paging", &device.path) {
        Ok(all) => all,
        Err(skip) => return skip,
    };
    let get = |name: &str| all.get(name).copied().unwrap_or(0);
    assert_eq!((get("1 bread"), get("1 bwrite"), get("1 phread")), (32, 0, 0), "{all:?}");
    assert_eq!((get("4 bread"), get("4 phwrite")), (0, 0), "{all:?}");
    assert!((1..=64).contains(&get("4 bwrite")), "{all:?}");
    assert_eq!((get("5 bwrite"), get("5 phwrite"), get("5 bawrite")), (20, 20, 0), "{all:?}");
    assert_eq!((get("6 bread"), get("6 phread")), (30, 30), "{all:?}");
    Pass
}

/// A swap device of a test, in use until it is dropped.
pub(crate) struct Swap<'a>(&'a LoopDevice);

impl Swap<'_> {
    /// In guests only, as it changes what all processes use.
    pub(crate) fn on(device: &LoopDevice) -> Result<Swap<'_>, Verdict> {
        match run(&format!("mkswap {0} && swapon {0}", device.path)) {
            Ok(_) => Ok(Swap(device)),
            Err(why) => Err(Skip(format!("Operation not permitted: {why}"))),
        }
    }
}

impl Drop for Swap<'_> {
    fn drop(&mut self) {
        let _ = run(&format!("swapoff {}", self.0.path));
    }
}

/// What the kernel counts: pages from swap, and to swap.
pub(crate) fn swapped() -> (i64, i64) {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap();
    let of = |name: &str| {
        let mut lines = text.lines().filter_map(|l| l.strip_prefix(name)?.trim().parse().ok());
        lines.next().unwrap_or(0)
    };
    (of("pswpin "), of("pswpout "))
}

fn pages_of_swap_are_counted_as_they_are_read_and_written() -> Verdict {
    if !crate::machine::is_guest() {
        return Skip("changes what all processes use: in guests only".into());
    }
    let device = match LoopDevice::new("swap") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    let _swap = match Swap::on(&device) {
        Ok(swap) => swap,
        Err(skip) => return skip,
    };
    let before = swapped();
    let script = "vminfo:::anonpgin, vminfo:::anonpgout { @[probename] = sum(arg0); }
        END { printa(\"%s %@d\\n\", @); }";
    let o = match traced(script, "swapped", "400") {
        Ok(o) => o,
        Err(skip) => return skip,
    };
    let after = swapped();
    let all = sums(&o);
    let get = |name: &str| all.get(name).copied().unwrap_or(0);
    assert!(get("anonpgout") >= 400, "{all:?}");
    assert_eq!((get("anonpgin"), get("anonpgout")), (after.0 - before.0, after.1 - before.1), "{o:?}");
    Pass
}

/// Where pages have generations (`lru_gen`) the kernel counts as looked at only those that it takes
/// off the lists, so `scan` is at least its number; what is freed is exact in both.
fn pages_that_are_looked_at_and_freed_are_counted_as_the_kernel_counts_them() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let device = match LoopDevice::new("tight") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    let Some(group) = Memory::new() else { return Skip("no memory cgroup can be made here".into()) };
    let counted = |name: &str| -> Option<i64> {
        let text = std::fs::read_to_string(group.0.join("memory.stat")).ok()?;
        text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    };
    if counted("pgscan").is_none() {
        return Skip("this kernel does not count them in a cgroup".into());
    }
    std::fs::write(group.0.join("memory.max"), "3M").unwrap();
    let script = "vminfo:::scan, vminfo:::dfree, vminfo:::anonfree, vminfo:::fsfree /pid == $target/ { @[probename] = sum(arg0); }
        END { printa(\"%s %@d\\n\", @); }";
    let file = std::env::temp_dir().join(format!("dt-tight-{}.sh", std::process::id()));
    let read = format!("exec dd if={} of=/dev/null bs=64k status=none", device.path);
    std::fs::write(&file, format!("echo $$ >{}/cgroup.procs || exit 77\n{read}\n", group.0.display()))
        .unwrap();
    let o = dtrace(&["-q", "-c", &format!("sh {}", file.display()), "-n", script]);
    let _ = std::fs::remove_file(&file);
    let o = o.code(0);
    if o.err.contains("exited with status 77") {
        return Skip("no process may enter the cgroup".into());
    }
    let (all, of) = (sums(&o), |name: &str| counted(name).unwrap_or(0));
    let get = |name: &str| all.get(name).copied().unwrap_or(0);
    // The device has 2,048 pages, the group space for 768.
    assert!(get("dfree") >= 1000, "{o:?}");
    assert_eq!((get("dfree"), get("anonfree") + get("fsfree")), (of("pgsteal"), of("pgsteal")), "{o:?}");
    let generations = std::fs::read_to_string("/sys/kernel/mm/lru_gen/enabled").unwrap_or_default();
    match generations.trim() {
        "" | "0x0000" => assert_eq!(get("scan"), of("pgscan"), "{o:?}"),
        _ => assert!(get("scan") >= of("pgscan") && of("pgscan") >= get("dfree"), "{o:?} {}", of("pgscan")),
    }
    Pass
}

fn system_calls_and_new_threads_are_counted_with_their_bytes() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let script = "
        self int64_t in;
        syscall::getppid:entry /(pid == $target || ppid == $target) && arg0 < 100/ { self->in = self->in ? 0 : arg0; }
        sysinfo:::sysread, sysinfo:::readch, sysinfo:::syswrite, sysinfo:::writech, sysinfo:::sysfork,
        sysinfo:::sysvfork, sysinfo:::sysexec, sysinfo:::nthreads, sysinfo:::msg, sysinfo:::sema, sysinfo:::procovf
        /self->in/ { @[self->in, probename] = sum(args[0]); @n[self->in, probename] = count(); }
        END { printa(\"%d %s %@d\\n\", @); printa(\"n%d %s %@d\\n\", @n); }";
    let o = match traced(script, "counted", "1") {
        Ok(o) => o,
        Err(skip) => return skip,
    };
    let all = sums(&o);
    assert_eq!(of(&all, 1), [("readch", 392), ("sysread", 14)], "{o:?}");
    assert_eq!(all.get("n1 readch"), Some(&13), "{o:?}");
    assert_eq!(of(&all, 2), [("syswrite", 13), ("writech", 392)], "{o:?}");
    assert_eq!(all.get("n2 writech"), Some(&12), "{o:?}");
    assert_eq!(of(&all, 3), [("nthreads", 9), ("sysfork", 3), ("sysvfork", 2)], "{o:?}");
    assert_eq!(of(&all, 4), [("sysexec", 2)], "{o:?}");
    assert_eq!(of(&all, 5), [("msg", 6), ("sema", 4)], "{o:?}");
    assert_eq!(of(&all, 6), [("procovf", 3)], "{o:?}");
    Pass
}

fn switches_of_a_thread_are_counted_as_the_kernel_counts_them() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let script = "
        self int64_t in;
        syscall::getppid:entry /pid == $target && !self->in/
        { self->nvcsw = curthread->nvcsw; self->nivcsw = curthread->nivcsw; self->in = 1; calls++; }
        sysinfo:::pswitch, sysinfo:::inv_swtch /self->in && calls == 1/ { @[probename] = sum(arg0); }
        rawtp:sched::sched_switch /self->in && calls == 1 && args[2]->pid == 0/ { @[\"idle\"] = sum(1); }
        sysinfo:::idlethread /self->in && calls == 1/ { @[probename] = sum(arg0); }
        syscall::getppid:return /pid == $target/ { self->returned++; }
        syscall::getppid:entry /pid == $target && self->returned == 1/
        {
            self->in = 0;
            printf(\"kernel %d\\nforced %d\\n\", curthread->nvcsw + curthread->nivcsw - self->nvcsw - self->nivcsw,
                curthread->nivcsw - self->nivcsw);
        }
        END { printa(\"%s %@d\\n\", @); }";
    let o = match traced(script, "sleeps", "200") {
        Ok(o) => o,
        Err(skip) => return skip,
    };
    let lost = suppressed(&o);
    let all = sums(&o);
    let get = |name: &str| all.get(name).copied().unwrap_or(0);
    let about = |seen: i64, wanted: i64| seen <= wanted && seen + lost >= wanted;
    assert!(get("kernel") > 0, "{o:?}");
    assert!(about(get("pswitch"), get("kernel")), "{o:?}");
    assert!(about(get("inv_swtch"), get("forced")), "{o:?}");
    assert_eq!(get("idlethread"), get("idle"), "{o:?}");
    Pass
}

fn migrations_are_counted_where_they_are_decided() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let script = "
        self int64_t in;
        syscall::getppid:entry /pid == $target && arg0 < 100/ { self->in = self->in ? 0 : arg0; }
        sysinfo:::cpumigrate /self->in/ { @[probename] = sum(arg0); }
        rawtp:sched::sched_migrate_task /self->in/ { @[\"all\"] = sum(1); }
        rawtp:sched::sched_migrate_task /self->in && args[0]->real_parent->tgid == $target/ { @[\"children\"] = sum(1); }
        END { printa(\"%s %@d\\n\", @); }";
    let o = match traced(script, "migrations", "20") {
        Ok(o) => o,
        Err(_) => return Skip("there is one CPU only".into()),
    };
    let all = sums(&o);
    let get = |name: &str| all.get(name).copied().unwrap_or(0);
    assert_eq!(get("children"), 20, "{o:?}");
    assert_eq!(get("cpumigrate"), get("all"), "{o:?}");
    Pass
}

fn interrupts_between_cpus_are_counted() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let there = dtrace(&["-ln", "sysinfo:::xcalls"]);
    if there.code != Some(0) {
        return Skip(
            there.err.lines().next().and_then(|l| l.split_once("probes: ")).map_or("", |l| l.1).into(),
        );
    }
    let online = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if online < 2 {
        return Skip("there is one CPU only".into());
    }
    let script = "
        self int64_t in;
        syscall::getppid:entry /pid == $target && arg0 < 100/ { self->in = self->in ? 0 : arg0; }
        sysinfo:::xcalls /self->in/ { @[probename] = sum(arg0); @n = count(); }
        END { printa(\"%s %@d\\n\", @); printa(\"calls %@d\\n\", @n);
            printf(\"bits %d\\n\", _bits[0x8000000000000001] + _bits[0xffffffffffffffff] + _bits[0x0123456789abcdef]); }";
    let o = match traced(script, "barriers", "40") {
        Ok(o) => o,
        Err(skip) => return skip,
    };
    let all = sums(&o);
    let get = |name: &str| all.get(name).copied().unwrap_or(0);
    // The other thread may be off its CPU for a time, and then needs no interrupt.
    assert!(get("xcalls") >= 20 && get("xcalls") >= get("calls"), "{o:?}");
    // One CPU is the only other one.
    assert!(online > 2 || get("xcalls") == get("calls"), "{o:?}");
    assert_eq!(get("bits"), 2 + 64 + 32, "{o:?}");
    Pass
}

fn interrupts_of_devices_are_counted() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let script = "sysinfo:::intr { @[probename] = sum(arg0); } rawtp:irq::irq_handler_entry { @[\"handlers\"] = sum(1); }
        END { printa(\"%s %@d\\n\", @); }";
    let o = dtrace(&["-q", "-c", "sleep 1", "-n", script]).code(0);
    let all = sums(&o);
    assert_eq!(all.get("intr"), all.get("handlers"), "{o:?}");
    Pass
}

fn locks_that_are_waited_for_are_counted_once() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let (_device, mount) = match LoopDevice::with_files("locks") {
        Ok(all) => all,
        Err(skip) => return skip,
    };
    let script = "
        self int64_t in;
        syscall::getppid:entry /pid == $target && arg0 < 100/ { self->in = self->in ? 0 : arg0; }
        sysinfo:::mutex_adenters, sysinfo:::rw_rdfails, sysinfo:::rw_wrfails /self->in/ { @[self->in, probename] = sum(arg0); }
        END { printa(\"%d %s %@d\\n\", @); }";
    let o = match traced(script, "locks", &mount) {
        Ok(o) => o,
        Err(skip) => return skip,
    };
    let all = sums(&o);
    let get = |name: &str| all.get(name).copied().unwrap_or(0);
    assert_eq!(get("1 mutex_adenters"), 3, "{o:?}");
    assert_eq!(get("2 rw_wrfails"), 4, "{o:?}");
    assert_eq!(get("3 rw_rdfails"), 5, "{o:?}");
    Pass
}

fn lookups_of_paths_are_counted_once() -> Verdict {
    if let Some(skip) = no_functions() {
        return skip;
    }
    let all = match parts("sysinfo", "counted", "1") {
        Ok(all) => all,
        Err(skip) => return skip,
    };
    assert_eq!(all.get("7 namei"), Some(&10), "{all:?}");
    Pass
}

fn modules_are_counted_as_they_are_loaded_and_unloaded() -> Verdict {
    if !std::path::Path::new("/proc/modules").exists() {
        return Skip("this kernel has no modules".into());
    }
    if std::path::Path::new("/sys/module/dummy").exists() {
        return Skip("module dummy is loaded already".into());
    }
    let script = "sysinfo:::modload, sysinfo:::modunload /progenyof($target)/ { @[probename] = sum(arg0); }
        END { printa(\"%s %@d\\n\", @); }";
    let commands = std::env::temp_dir().join(format!("dt-modules-{}", std::process::id()));
    let once = "modprobe dummy && modprobe -r dummy";
    std::fs::write(&commands, format!("{once} && {once}\n")).unwrap();
    let o = dtrace(&["-q", "-c", &format!("sh {}", commands.display()), "-n", script]).code(0);
    let _ = std::fs::remove_file(commands);
    if o.err.contains("exited with status") {
        return Skip(format!("Operation not permitted: {}", o.err));
    }
    let all = sums(&o);
    assert_eq!(all.get("modload"), Some(&2), "{o:?}");
    assert_eq!(all.get("modunload"), Some(&2), "{o:?}");
    Pass
}
