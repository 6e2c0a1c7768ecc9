//! The provider lockstat: waits for locks against the kernel's own events, by count, kind and time,
//! and locks that are acquired by count and address.

use crate::Verdict::{self, Pass, Skip};
use crate::machine::{no_functions, no_types};
use crate::tool::{Output, dtrace, workload};

tests! {
    each_wait_for_a_lock_is_counted_once_by_its_kind_and_its_times_add_up
    a_wait_that_ends_on_another_cpu_is_one_wait_with_its_whole_time
    a_wait_for_a_mutex_that_is_interrupted_has_its_error
    waits_of_readers_and_writers_have_their_kind
    each_lock_is_acquired_and_released_once_where_functions_can_be_traced
    the_first_argument_is_the_lock_with_its_type
}

/// The numbers of the line that begins with these words, or zeros.
fn row(o: &Output, words: &str) -> [i64; 2] {
    let line = o.out.lines().find_map(|l| l.strip_prefix(words)?.strip_prefix(' '));
    let mut all = line.unwrap_or("").split_whitespace().map(|w| w.parse().unwrap());
    [all.next().unwrap_or(0), all.next().unwrap_or(0)]
}

/// The reason for which the workload did nothing.
fn skipped(o: &Output) -> Option<Verdict> {
    let why = o.out.lines().find_map(|l| l.strip_prefix("skip "))?;
    Some(Skip(format!("the workload cannot wait for a lock here: {why}")))
}

/// Each wait of the target from its first event to its last, with the flags of all of its phases.
const WAITS: &str = "
rawtp:lock::contention_begin /pid == $target && !from[tid, arg0]/ { from[tid, arg0] = timestamp; }
rawtp:lock::contention_begin /pid == $target/ { flags[tid, arg0] |= arg1 & 1 ? 1 : 2; kind[tid, arg0] = arg1; }
rawtp:lock::contention_end /pid == $target && from[tid, arg0]/
{
	this->kind = kind[tid, arg0];
	this->name = this->kind & 6 ? \"rw\" : this->kind & 0x28 ? \"adaptive\" : this->kind == 1 ? \"spin\" : \"none\";
	@expected[this->name, \"spin\"] = sum(flags[tid, arg0] & 1);
	@expected[this->name, \"block\"] = sum(flags[tid, arg0] >> 1);
	@times[this->name] = sum(timestamp - from[tid, arg0]);
	from[tid, arg0] = 0;
	flags[tid, arg0] = 0;
	kind[tid, arg0] = 0;
}
lockstat:::adaptive-spin, lockstat:::adaptive-block, lockstat:::spin-spin, lockstat:::rw-spin, lockstat:::rw-block
/pid == $target/
{
	@[probename] = count();
	@sums[strtok(probename, \"-\")] = sum(args[1]);
}
END
{
	printa(\"expected %s-%s %@d\\n\", @expected);
	printa(\"times %s %@d\\n\", @times);
	printa(\"%s %@d\\n\", @);
	printa(\"sums %s %@d\\n\", @sums);
}";

fn each_wait_for_a_lock_is_counted_once_by_its_kind_and_its_times_add_up() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let o = dtrace(&["-q", "-x", "dynvarsize=16m", "-c", &workload("contends", 3000), "-n", WAITS]).code(0);
    for probe in ["adaptive-spin", "adaptive-block", "spin-spin", "rw-spin", "rw-block"] {
        assert_eq!(row(&o, probe), row(&o, &format!("expected {probe}")), "{probe}: {o:?}");
    }
    for kind in ["adaptive", "spin", "rw"] {
        assert_eq!(row(&o, &format!("sums {kind}")), row(&o, &format!("times {kind}")), "{kind}: {o:?}");
    }
    Pass
}

/// The waits of the thread of this name in calls of read.
const TERMINAL: &str = "
syscall::read:entry /pid == $target && execname == \"dt-waiter\"/ { self->in = 1; }
syscall::read:return { self->in = 0; }
rawtp:lock::contention_begin /self->in && arg1 & 0x20 && !self->lock/
{
	self->lock = arg0;
	self->from = timestamp;
	self->on = cpu;
}
lockstat:::adaptive-block, lockstat:::adaptive-spin /self->in && arg0 == self->lock/
{
	@[probename] = count();
	@sum[\"lockstat\"] = sum(args[1]);
}
lockstat:::adaptive-acquire-error /self->in && arg0 == self->lock/ { @error[args[1]] = count(); }
rawtp:lock::contention_end /self->in && arg0 == self->lock/
{
	@sum[\"kernel\"] = sum(timestamp - self->from);
	@moved = sum(self->on != cpu);
	self->lock = 0;
}
END
{
	printa(\"%s %@d\\n\", @);
	printa(\"sum %s %@d\\n\", @sum);
	printa(\"moved %@d\\n\", @moved);
	printa(\"error %d %@d\\n\", @error);
}";

fn a_wait_that_ends_on_another_cpu_is_one_wait_with_its_whole_time() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let o = dtrace(&["-q", "-c", &workload("waits-for-terminal", 20), "-n", TERMINAL]).code(0);
    if let Some(skip) = skipped(&o) {
        return skip;
    }
    assert_eq!([row(&o, "adaptive-block")[0], row(&o, "adaptive-spin")[0]], [21, 21], "{o:?}");
    assert_eq!(row(&o, "sum lockstat"), row(&o, "sum kernel"), "{o:?}");
    // It waited while it was seen to sleep.
    assert!(row(&o, "sum lockstat")[0] > 21 * 3_000_000, "{o:?}");
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert!(cpus == 1 || row(&o, "moved")[0] >= 20, "{o:?}");
    Pass
}

fn a_wait_for_a_mutex_that_is_interrupted_has_its_error() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let o = dtrace(&["-q", "-c", &workload("waits-for-terminal", 2), "-n", TERMINAL]).code(0);
    if let Some(skip) = skipped(&o) {
        return skip;
    }
    // EINTR, once.
    assert_eq!(row(&o, "error"), [4, 1], "{o:?}");
    assert_eq!(row(&o, "adaptive-block")[0], 3, "{o:?}");
    Pass
}

fn waits_of_readers_and_writers_have_their_kind() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let script = "
        syscall::mkdir:entry, syscall::getdents64:entry /pid == $target && execname == \"dt-waiter\"/ { self->in = 1; }
        syscall::mkdir:return, syscall::getdents64:return { self->in = 0; }
        rawtp:lock::contention_begin /self->in && arg1 & 6/ { self->from = timestamp; self->lock = arg0; }
        lockstat:::rw-block /self->in && arg0 == self->lock/
        {
            @[args[2] == RW_WRITER ? \"writer\" : \"reader\"] = count();
            @time[timestamp - self->from == args[1]] = count();
            @typed[(uintptr_t)&args[0]->wait_lock - arg0 == offsetof(struct rw_semaphore, wait_lock), arg3] = count();
        }
        END { printa(\"%s %@d\\n\", @); printa(\"right %d %@d\\n\", @time); \
              printa(\"typed %d %d %@d\\n\", @typed); }";
    let o = dtrace(&["-q", "-c", &workload("waits-for-directory", 10), "-n", script]).code(0);
    if let Some(skip) = skipped(&o) {
        return skip;
    }
    assert_eq!([row(&o, "writer")[0], row(&o, "reader")[0]], [10, 10], "{o:?}");
    assert_eq!(row(&o, "right"), [1, 20], "{o:?}");
    assert_eq!(row(&o, "typed 1"), [0, 20], "{o:?}");
    Pass
}

fn each_lock_is_acquired_and_released_once_where_functions_can_be_traced() -> Verdict {
    if let Some(skip) = no_types().or_else(no_functions) {
        return skip;
    }
    let probes = |kind: &str| format!("lockstat:::{kind}-acquire, lockstat:::{kind}-release");
    let file = |fd: u32| format!("curthread->files->fdt->fd[{fd}]");
    let script = format!(
        "syscall::write:entry, syscall::pwrite64:entry, syscall::getdents64:entry, syscall::fcntl:entry
         /pid == $target && arg0 >= 50 && arg0 <= 52/ {{ self->fd = arg0; }}
         {} /self->fd == 50 && arg0 == (uintptr_t)&((struct pipe_inode_info *){}->private_data)->mutex/
         {{ @[probename, 0, mutex_owned(args[0])] = count(); }}
         {} /self->fd == 51 && arg0 == (uintptr_t)&{}->f_lock/
         {{ @[probename, 0, (uintptr_t)&args[0]->rlock == arg0] = count(); }}
         {} /self->fd == 51 && arg0 == (uintptr_t)&{}->f_inode->i_rwsem/
         {{ @[probename, args[1] == RW_READER, arg2] = count(); }}
         {} /self->fd == 52 && arg0 == (uintptr_t)&{}->f_inode->i_rwsem/
         {{ @[probename, args[1] == RW_READER, arg2] = count(); }}
         syscall::write:return, syscall::pwrite64:return, syscall::getdents64:return, syscall::fcntl:return
         {{ self->fd = 0; }}
         END {{ printa(\"%s %d %d %@d\\n\", @); }}",
        probes("adaptive"),
        file(50),
        probes("spin"),
        file(51),
        probes("rw"),
        file(51),
        probes("rw"),
        file(52)
    );
    let o = dtrace(&["-q", "-x", "dynvarsize=16m", "-c", &workload("acquires", 50), "-n", &script]).code(0);
    if let Some(skip) = skipped(&o) {
        return skip;
    }
    let mut lines: Vec<&str> = o.out.lines().filter(|l| !l.is_empty()).collect();
    lines.sort_unstable();
    let expected = [
        "adaptive-acquire 0 1 50",
        "adaptive-release 0 1 50",
        "rw-acquire 0 1 50",
        "rw-acquire 1 1 50",
        "rw-release 0 1 50",
        "rw-release 1 1 50",
        "spin-acquire 0 1 50",
        "spin-release 0 1 50",
    ];
    assert_eq!(lines, expected, "{o:?}");
    Pass
}

/// What `-lv` says of the arguments.
const TYPES: [(&str, &[&str]); 13] = [
    ("adaptive-acquire", &["struct mutex *"]),
    ("adaptive-acquire-error", &["struct mutex *", "int"]),
    ("adaptive-block", &["struct mutex *", "uint64_t"]),
    ("adaptive-release", &["struct mutex *"]),
    ("adaptive-spin", &["struct mutex *", "uint64_t"]),
    ("rw-acquire", &["rwlock_t *", "int"]),
    ("rw-block", &["struct rw_semaphore *", "uint64_t", "int"]),
    ("rw-downgrade", &["struct rw_semaphore *"]),
    ("rw-release", &["rwlock_t *", "int"]),
    ("rw-spin", &["rwlock_t *", "uint64_t", "int"]),
    ("spin-acquire", &["spinlock_t *"]),
    ("spin-release", &["spinlock_t *"]),
    ("spin-spin", &["spinlock_t *", "uint64_t"]),
];

fn the_first_argument_is_the_lock_with_its_type() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let o = dtrace(&["-lvn", "lockstat:::"]).code(0);
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in o.out.lines() {
        if line.contains(" lockstat ") {
            found.push((line.split_whitespace().last().unwrap(), Vec::new()));
        } else if let Some((_, ty)) = line.trim().split_once("]: ") {
            found.last_mut().unwrap().1.push(ty);
        }
    }
    found.sort_unstable();
    let mut expected: Vec<_> = TYPES.iter().map(|(probe, types)| (*probe, types.to_vec())).collect();
    if no_functions().is_some() {
        // Waits alone.
        expected.retain(|(probe, _)| ["-block", "-spin", "-error"].iter().any(|end| probe.ends_with(end)));
    }
    assert_eq!(found, expected, "{o:?}");
    Pass
}
