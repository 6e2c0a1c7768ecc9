//! `fds[]`, `curpsinfo` and `curlwpsinfo` beside what `/proc` says of the same process.

use std::ffi::CStr;
use std::fs;

use crate::Verdict::{self, Pass};
use crate::machine::no_types;
use crate::tool::{dtrace, workload};
use crate::translators::mount_of;

tests! {
    descriptors_of_every_kind_are_described curpsinfo_and_curlwpsinfo_are_what_proc_says
}

/// Marks the system calls of the workloads.
const MARK: libc::c_int = 4711;

/// The number of the file system of descriptors of processes (`PID_FS_MAGIC`).
const PIDFS: libc::c_long = 0x5049_4446;

/// Prints what `/proc` says of a descriptor, and makes a call with it.
fn show(kind: &str, fd: libc::c_int) {
    // What this kernel does not have is not traced.
    if fd < 0 {
        return;
    }
    let link = fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
    let field = |name| info.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default().trim();
    // This flag is one of the descriptor, not of the file.
    let flags = i32::from_str_radix(field("flags:"), 8).unwrap_or(-1) & !libc::O_CLOEXEC;
    println!("want {kind}|{}|{}|{flags:o}", link.display(), field("pos:"));
    // SAFETY: no pointers.
    unsafe { libc::fcntl(fd, libc::F_GETFD, MARK) };
}

fn open(path: &CStr, flags: libc::c_int) -> libc::c_int {
    // SAFETY: a string that lives across the call.
    unsafe { libc::open(path.as_ptr(), flags, 0o600) }
}

/// Opens a descriptor of each kind, in the directory of temporary files.
pub(crate) fn descriptors() {
    let dir = std::env::temp_dir().join(format!("dt-fds-{}", std::process::id()));
    if fs::create_dir(&dir).is_err() || std::env::set_current_dir(&dir).is_err() {
        return;
    }
    let mut two = [-1; 2];
    let zero = [0u64; 16];
    // SAFETY: strings, arrays and structs that live across their calls; all zero is a valid signal
    // set.
    unsafe {
        let file = open(c"a file", libc::O_RDWR | libc::O_CREAT);
        libc::write(file, c"hello".as_ptr().cast(), 5);
        show("file", file);
        libc::lseek(file, 3, libc::SEEK_SET);
        show("file", file);
        libc::unlink(c"a file".as_ptr());
        show("file", file);
        show("file", open(c".", libc::O_DIRECTORY));
        show("file", open(c"/", libc::O_DIRECTORY));
        show("file", open(c"/", libc::O_PATH));
        show("file", open(c"/dev/null", libc::O_WRONLY | libc::O_APPEND));
        show("file", open(c"/proc/self/status", libc::O_RDONLY));
        libc::mkfifo(c"fifo".as_ptr(), 0o600);
        show("file", open(c"fifo", libc::O_RDWR));
        libc::unlink(c"fifo".as_ptr());
        libc::pipe(two.as_mut_ptr());
        show("pipefs", two[0]);
        show("pipefs", two[1]);
        show("sockfs", libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0));
        show("sockfs", libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, 0));
        show("anon_inodefs", libc::eventfd(0, libc::EFD_NONBLOCK));
        show("anon_inodefs", libc::epoll_create1(0));
        show("anon_inodefs", libc::inotify_init());
        show("anon_inodefs", libc::timerfd_create(libc::CLOCK_MONOTONIC, 0));
        show("anon_inodefs", libc::signalfd(-1, zero.as_ptr().cast(), 0));
        let memory = libc::memfd_create(c"some memory".as_ptr(), 0);
        libc::write(memory, zero.as_ptr().cast(), 7);
        show("tmpfs", memory);
        show("hugetlbfs", libc::memfd_create(c"huge".as_ptr(), libc::MFD_HUGETLB));
        show("nsfs", open(c"/proc/self/ns/net", libc::O_RDONLY));
        show("nsfs", open(c"/proc/self/ns/mnt", libc::O_RDONLY));
        let process = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) as libc::c_int;
        let mut of: libc::statfs = std::mem::zeroed();
        libc::fstatfs(process, &mut of);
        // They had no file system of their own before 6.9.
        show(if of.f_type == PIDFS { "pidfs" } else { "anon_inodefs" }, process);
        for none in [-1, 999, i32::MAX] {
            libc::fcntl(none, libc::F_GETFD, MARK);
        }
    }
    let _ = fs::remove_dir(&dir);
}

/// Name and directory of a file, and its file system and mount point.
fn parts_of(path: &str) -> [String; 4] {
    let (dir, name) = match path.rsplit_once('/') {
        Some(("", "")) => ("/", "/"),
        Some(("", name)) => ("/", name),
        Some((dir, name)) => (dir, name),
        None => ("", path),
    };
    let (fs, mount) = mount_of(path);
    [name.into(), dir.into(), fs, mount]
}

// row builtin.fds
fn descriptors_of_every_kind_are_described() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let file = "fds[arg0].fi";
    let script = format!(
        "syscall::fcntl:entry /pid == $target && arg2 == {MARK}/ {{ printf(\"have %s|%s|%s|%s|%s|%d|%o\\n\", \
         {file}_pathname, {file}_name, {file}_dirname, {file}_fs, {file}_mount, {file}_offset, {file}_oflags); }}"
    );
    let o = dtrace(&["-qc", &workload("descriptors", 1), "-n", &script]).code(0);
    let lines = |word: &'static str| o.out.lines().filter_map(move |l| l.strip_prefix(word));
    let mut have: Vec<String> = lines("have ").map(String::from).collect();
    let none = "<none>|<none>|<none>|<none>|<none>|0|0";
    assert!(have.len() > 20 && have.split_off(have.len() - 3) == [none; 3], "{o:?}");
    let want = lines("want ").map(|line| {
        let words: Vec<&str> = line.split('|').collect();
        let &[kind, path, offset, flags] = &words[..] else { panic!("{line}") };
        let path = path.trim_end_matches(" (deleted)");
        let [name, dir, fs, mount] = match kind {
            "file" => parts_of(path),
            _ => [path.trim_start_matches('/'), "<unknown>", kind, "<unknown>"].map(String::from),
        };
        format!("{path}|{name}|{dir}|{fs}|{mount}|{offset}|{flags}")
    });
    let want: Vec<String> = want.collect();
    assert_eq!(have.len(), want.len(), "{o:?}");
    have.iter().zip(&want).for_each(|(have, want)| assert_eq!(have, want));
    Pass
}

/// Has a class, a nice value, one CPU and a child that ended; prints what `/proc` says, and makes a
/// call.
pub(crate) fn status() {
    let _ = std::process::Command::new("/bin/true").status();
    // SAFETY: structs that live across the calls; all zero is a valid set of CPUs.
    unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut cpus);
        libc::sched_setaffinity(0, size_of_val(&cpus), &cpus);
        let param = libc::sched_param { sched_priority: 0 };
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &param);
        libc::setpriority(libc::PRIO_PROCESS, 0, 7);
    }
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // SAFETY: no pointers.
    unsafe { libc::syscall(libc::SYS_getppid) };
    println!("stat {}", stat.trim());
}

// row builtin.curpsinfo, builtin.curlwpsinfo
fn curpsinfo_and_curlwpsinfo_are_what_proc_says() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let script = "syscall::getppid:entry /pid == $target/ { this->p = curpsinfo; this->l = curlwpsinfo; \
         printf(\"ids %d %d %d %d %d\\n\", this->p->pr_pid, this->p->pr_ppid, this->p->pr_pgid, this->p->pr_sid, \
         this->p->pr_nlwp); \
         printf(\"args %d %d %d %d\\n\", this->p->pr_argv, this->p->pr_arglen, this->p->pr_envp, this->p->pr_argc); \
         printf(\"tty %d\\n\", this->p->pr_ttydev == -1u ? 0 : 1); \
         printf(\"size %d\\n\", this->p->pr_size); \
         printf(\"sched %d %d %d %d %s\\n\", this->l->pr_pri, this->l->pr_nice, this->l->pr_onpro, \
         this->l->pr_bindpro, this->l->pr_clname); \
         printf(\"start %d %d\\n\", this->p->pr_start.tv_sec, this->p->pr_start.tv_nsec); \
         printf(\"cpu %d\\n\", this->p->pr_time.tv_sec * 1000 + this->p->pr_time.tv_nsec / 1000000); \
         printf(\"children %d\\n\", this->p->pr_ctime.tv_sec * 1000 + this->p->pr_ctime.tv_nsec / 1000000); \
         printf(\"zero %d %d %d %d %d %d %d %d %d\\n\", this->p->pr_flag, this->p->pr_wstat, this->p->pr_nzomb, \
         this->p->pr_pctcpu, this->p->pr_pctmem, this->l->pr_wchan, this->l->pr_stype, this->l->pr_oldpri, \
         this->l->pr_pctcpu); }";
    let command = format!("{} one two", workload("status", 1));
    let o = dtrace(&["-qc", &command, "-n", script]).code(0);
    let line = |word: &str| -> Vec<String> {
        let line = o.out.lines().find_map(|l| l.strip_prefix(word));
        line.unwrap_or_else(|| panic!("{word}: {o:?}")).split_whitespace().map(String::from).collect()
    };
    let numbers = |word: &str| -> Vec<i64> { line(word).iter().flat_map(|w| w.parse()).collect() };
    // The numbers are those of proc(5). The name, the second field, may have blanks.
    let stat = line("stat ").join(" ");
    let after = stat.rsplit_once(") ").unwrap().1;
    let fields: Vec<i64> = after.split(' ').map(|f| f.parse().unwrap_or(0)).collect();
    let field = |n: usize| fields[n - 3];
    let pid: i64 = stat.split(' ').next().unwrap().parse().unwrap();
    assert_eq!(numbers("ids "), [pid, field(4), field(5), field(6), field(20)], "{o:?}");
    let arguments = command.split(' ').count() as i64;
    assert_eq!(numbers("args "), [field(48), field(49) - field(48), field(50), arguments], "{o:?}");
    assert_eq!(numbers("tty "), [i64::from(field(7) != 0)], "{o:?}");
    assert_eq!(numbers("size "), [field(23) / 1024], "{o:?}");
    // The priority of /proc does not count those of real-time threads.
    let scheduling = format!("{} 7 {cpu} {cpu} BATCH", field(18) + 100, cpu = field(39));
    assert_eq!(line("sched ").join(" "), scheduling, "{o:?}");
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let boot: i64 = stat.lines().find_map(|l| l.strip_prefix("btime ")).unwrap().trim().parse().unwrap();
    let start = numbers("start ");
    let difference = start[0] * 100 + start[1] / 10_000_000 - (boot * 100 + field(22));
    assert!((-100..=100).contains(&difference), "{difference} ticks: {o:?}");
    // Milliseconds beside ticks of ten, of which /proc gives those of the process and those of the
    // kernel.
    let (used, children) = (numbers("cpu ")[0], numbers("children ")[0]);
    assert!((-20..1000).contains(&(used - 10 * (field(14) + field(15)))), "{o:?}");
    assert!((0..=20).contains(&(children - 10 * (field(16) + field(17)))), "{o:?}");
    assert_eq!(numbers("zero "), [0; 9], "{o:?}");
    Pass
}
