//! Reading the running machine. Only [`System::live`](crate::System::live) uses it.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::Path;

use bpf_sys::{Counter, PerfEvent, TracepointTrial, monotonic_ns};

use crate::record::Facts;

/// Groups whose events are no tracepoints: calls are probes of the provider `syscall`, the others
/// are made by tracers.
const NOT_TRACEPOINTS: [&str; 3] = ["syscalls", "ftrace", "synthetic"];

/// The root of tracefs, or why there is none.
pub(crate) fn tracefs() -> Result<&'static Path, String> {
    bpf_sys::tracefs().map_err(String::from)
}

/// The files that list functions, those with addresses first.
const FUNCTIONS: [&str; 2] = ["available_filter_functions_addrs", "available_filter_functions"];

/// The list of functions that can be traced: lines `[address] name [module]`.
pub(crate) fn functions(tracefs: &Path) -> Result<String, String> {
    for name in FUNCTIONS {
        match text(&tracefs.join(name)) {
            Ok(text) if !text.is_empty() => return Ok(text),
            Ok(_) => return Err(format!("{name} is empty")),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(format!("{name}: {}", reason(&e))),
        }
    }
    Err("it was built without CONFIG_DYNAMIC_FTRACE".into())
}

pub(crate) fn may_list_functions() -> bool {
    tracefs().is_ok_and(|dir| FUNCTIONS.iter().any(|name| std::fs::File::open(dir.join(name)).is_ok()))
}

/// The system's text of an error.
fn reason(e: &io::Error) -> String {
    e.raw_os_error().map_or_else(|| e.to_string(), bpf_sys::errno::text).to_lowercase()
}

/// Reads the file. It has no size, so the buffer is made large enough at once: small reads would
/// take longer.
fn text(path: &Path) -> io::Result<String> {
    const CAPACITY: usize = 4 << 20;
    let mut file = std::fs::File::open(path)?;
    let mut bytes = Vec::with_capacity(CAPACITY);
    file.read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("not text"))
}

fn list_of_events(root: &Path, name: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(root.join(name));
    text.map_err(|e| format!("the list of events cannot be read: {name}: {e}"))
}

/// Group and name of all tracepoints that are events, in the kernel's order.
pub(crate) fn events(root: &Path) -> Result<Vec<(String, String)>, String> {
    let text = list_of_events(root, "available_events")?;
    // `p:GROUP/NAME place`, `s:NAME fields`
    let made = list_of_events(root, "dynamic_events").unwrap_or_default();
    let made = made.lines().filter_map(|l| l.split_once(':')?.1.split(' ').next()?.split_once('/'));
    let made: BTreeSet<(&str, &str)> = made.collect();
    let events = text.lines().filter_map(|l| l.split_once(':'));
    let own = events.filter(|e| !NOT_TRACEPOINTS.contains(&e.0) && !made.contains(e));
    Ok(own.map(|(group, name)| (group.into(), name.into())).collect())
}

/// The names of the events at the entries of system calls.
pub(crate) fn calls(root: &Path) -> Vec<String> {
    let text = list_of_events(root, "available_events").unwrap_or_default();
    let calls = text.lines().filter_map(|l| l.strip_prefix("syscalls:"));
    calls.filter(|name| name.starts_with("sys_enter_")).map(String::from).collect()
}

/// The text of the format of an event.
pub(crate) fn event_format(root: &Path, group: &str, event: &str) -> Option<String> {
    std::fs::read_to_string(root.join("events").join(group).join(event).join("format")).ok()
}

/// Removes the tracepoints that the kernel does not have. It is asked. Without the permission to
/// load a program nothing can be tried, and nothing can be enabled.
pub(crate) fn keep_existing(tracepoints: &mut Vec<(String, String)>) {
    if !tracepoints.is_empty()
        && let Ok(trial) = TracepointTrial::new()
    {
        tracepoints.retain(|(_, name)| trial.exists(name));
    }
}

/// True if this machine cannot count the event. Other errors (no permission) are reported when it
/// is attached.
pub(crate) fn lacks_counter(counter: &Counter, count: u64) -> bool {
    use bpf_sys::errno::{EINVAL, ENODEV, ENOENT, EOPNOTSUPP};
    let cpu = bpf_sys::online_cpus().first().copied().unwrap_or(0);
    let tried = PerfEvent::counter(counter, cpu, count);
    tried.is_err_and(|e| matches!(e.errno, ENOENT | ENODEV | EINVAL | EOPNOTSUPP))
}

/// The pid namespace of this process, if it is not the initial one.
pub(crate) fn pid_namespace() -> Option<proc::PidNamespace> {
    (!proc::in_initial_namespace()).then(proc::pid_namespace).flatten()
}

/// Facts that programs read.
pub(crate) fn facts() -> Facts {
    let number = |path: String| std::fs::read_to_string(path).ok()?.trim().parse::<i32>().ok();
    let node = |cpu: &str| {
        let dir = std::fs::read_dir(cpu).ok()?;
        let names = dir.filter_map(|e| e.ok()?.file_name().into_string().ok());
        names.filter_map(|n| n.strip_prefix("node")?.parse::<i32>().ok()).next()
    };
    let cpus = (0..bpf_sys::possible_cpus()).map(|n| {
        let cpu = format!("/sys/devices/system/cpu/cpu{n}");
        let chip = number(format!("{cpu}/topology/physical_package_id"));
        // A machine without NUMA has one group.
        (chip.unwrap_or(-1), node(&cpu).unwrap_or(0))
    });
    Facts {
        boottime: clock_offset(bpf_sys::boot_ns),
        wall_offset: wall_offset(),
        page_size: bpf_sys::page_size() as u64,
        tick: bpf_sys::tick_ns(),
        pid_namespace: pid_namespace().map_or(0, |ns| ns.ino as u32),
        cpus: cpus.collect(),
        fputypes: crate::arch::FPU_TYPES.into(),
    }
}

/// The clock of each CPU in MHz: the nominal clock if the kernel reports it, otherwise the current
/// one; -1 if both are unknown. It takes long on a machine with many CPUs.
pub(crate) fn clocks() -> Vec<i32> {
    let khz = |n: usize, file: &str| -> Option<i32> {
        let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{n}/cpufreq/{file}")).ok()?;
        Some(text.trim().parse::<i32>().ok()? / 1000)
    };
    let nominal = |n| khz(n, "base_frequency").or_else(|| khz(n, "cpuinfo_max_freq"));
    let count = bpf_sys::possible_cpus();
    let mut clocks: Vec<i32> = (0..count).map(|n| nominal(n).unwrap_or(-1)).collect();
    if clocks.contains(&-1) {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        read_current_clocks(&text, &mut clocks);
    }
    clocks
}

/// Sets the unknown clocks from `/proc/cpuinfo`.
fn read_current_clocks(cpuinfo: &str, clocks: &mut [i32]) {
    let mut cpu = None;
    for (name, value) in cpuinfo.lines().filter_map(|l| l.split_once(':')) {
        match name.trim() {
            "processor" => cpu = value.trim().parse::<usize>().ok(),
            "cpu MHz" => {
                if let (Some(at), Ok(mhz)) = (cpu, value.trim().parse::<f64>())
                    && let Some(slot) = clocks.get_mut(at).filter(|c| **c == -1)
                {
                    *slot = mhz.round() as i32;
                }
            }
            _ => {}
        }
    }
}

/// The offset in nanoseconds from the monotonic clock to the time since 1970.
pub(crate) fn wall_offset() -> i64 {
    clock_offset(monotonic_ns)
}

/// The offset in nanoseconds from a clock to the time since 1970. The reading with the shortest
/// duration counts, because a pause between two clocks falsifies a reading.
fn clock_offset(clock: fn() -> u64) -> i64 {
    let one = || {
        let before = clock() as i64;
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let after = clock() as i64;
        (after - before, wall.as_nanos() as i64 - (before + (after - before) / 2))
    };
    (0..5).map(|_| one()).min().map_or(0, |(_, offset)| offset)
}

/// The kernel's random id of this boot; empty where it does not say.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_or_else(|_| String::new(), |s| s.trim().into())
}

/// Modules that are loaded, and those that are built in and have parameters.
pub(crate) fn modules() -> BTreeSet<String> {
    let entries = std::fs::read_dir("/sys/module").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().into_string().ok()).collect()
}

/// True for a kernel module that is loaded or built in.
pub(crate) fn has_module(name: &str) -> bool {
    let plain = !name.contains('/') && !name.starts_with('.');
    plain && Path::new("/sys/module").join(name).is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_read_from_cpuinfo_if_sysfs_has_none() {
        let text =
            "processor\t: 0\ncpu MHz\t\t: 2793.436\nflags\t: fpu\n\nprocessor\t: 2\ncpu MHz\t\t: 800.5\n";
        let mut clocks = [-1, 3000, -1, -1];
        read_current_clocks(text, &mut clocks);
        assert_eq!(clocks, [2793, 3000, 801, -1]);
    }

    #[test]
    fn events_made_by_tracers_are_not_listed() {
        let dir = std::env::temp_dir().join(format!("dt-events-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let all = "sched:sched_switch\nkprobes:mine\nsyscalls:sys_enter_read\nsched:mine\nsynthetic:lat\n";
        std::fs::write(dir.join("available_events"), all).unwrap();
        std::fs::write(dir.join("dynamic_events"), "p:kprobes/mine vfs_read\ns:lat u64 l\n").unwrap();
        let (found, calls) = (events(&dir), calls(&dir));
        std::fs::remove_dir_all(&dir).unwrap();
        let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
        assert_eq!(found.unwrap(), [pair("sched", "sched_switch"), pair("sched", "mine")]);
        assert_eq!(calls, ["sys_enter_read"]);
    }

    #[test]
    fn a_kernel_without_the_list_of_functions_is_an_error() {
        let dir = std::env::temp_dir().join(format!("dt-functions-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        assert!(functions(&dir).unwrap_err().contains("CONFIG_DYNAMIC_FTRACE"));
        std::fs::write(dir.join("available_filter_functions"), "vfs_read\n").unwrap();
        assert_eq!(functions(&dir).unwrap(), "vfs_read\n");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
