//! Workloads of known size.

use std::process::ExitCode;

use crate::tool::{cpus, pin};

/// A raw 64-bit system call, for calls whose arguments do not matter.
fn call(nr: i64, a: i64, b: i64, c: i64) -> i64 {
    // SAFETY: only calls that take no pointer, or an invalid one on purpose.
    unsafe { libc::syscall(nr, a, b, c) }
}

/// A 32-bit system call from this 64-bit process: `int 0x80` uses the 32-bit table.
#[cfg(target_arch = "x86_64")]
fn call32(nr: u32, arg: u32) -> i32 {
    let mut result = nr as u64;
    // SAFETY: the calls used take no pointers. int 0x80 clobbers r8 to r11. rbx is saved here,
    // because LLVM reserves it.
    unsafe {
        std::arch::asm!(
            "xchg rbx, {arg}",
            "int 0x80",
            "xchg rbx, {arg}",
            arg = inout(reg) u64::from(arg) => _,
            inout("rax") result,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    result as i32
}

/// Reads from byte 5 of a file, appends to /dev/null, writes to a pipe, and prints the names of its
/// descriptors.
fn files() {
    use std::io::{Read, Seek, Write};
    let passwd = std::fs::File::open("/etc/passwd");
    let null = std::fs::File::options().append(true).open("/dev/null");
    if let (Ok(mut passwd), Ok(mut null), Ok((_read, mut pipe))) = (passwd, null, std::io::pipe()) {
        let _ = passwd.seek(std::io::SeekFrom::Start(5));
        let _ = passwd.read(&mut [0; 1013]);
        let _ = null.write(&[b'x'; 1017]);
        let _ = pipe.write(&[b'x'; 1019]);
        let fd = std::os::fd::AsRawFd::as_raw_fd(&pipe);
        let name = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
        println!("pipe {}", name.display());
    }
}

/// The bytes of a datagram. Each has its own length and its own bytes.
pub(crate) fn datagram(number: u32) -> Vec<u8> {
    let text = format!("datagram {number}: ");
    text.bytes().chain((0..100 + 37 * number).map(|n| (n * (number + 1)) as u8)).collect()
}

/// Sends datagrams to this process, by IPv4 and then by IPv6.
fn datagrams(count: u32) -> std::io::Result<()> {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let receiver = std::net::UdpSocket::bind(address)?;
        let sender = std::net::UdpSocket::bind(address)?;
        for number in 0..count {
            sender.send_to(&datagram(number), receiver.local_addr()?)?;
        }
    }
    Ok(())
}

/// Bytes of which no eight occur twice.
pub(crate) fn stream(kilobytes: u32) -> Vec<u8> {
    (0..kilobytes * 128).flat_map(|n| format!("{n:07} ").into_bytes()).collect()
}

/// Sends a file over TCP, from the pages of the file. Returns the sender's port.
fn send_file(bytes: &[u8]) -> std::io::Result<u16> {
    use std::io::Read;
    let path = std::env::temp_dir().join(format!("dt-stream-{}", std::process::id()));
    std::fs::write(&path, bytes)?;
    let file = std::fs::File::open(&path)?;
    std::fs::remove_file(&path)?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let sender = std::net::TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    let port = sender.local_addr()?.port();
    let reader = std::thread::spawn(move || receiver.read_to_end(&mut Vec::new()));
    let mut left = bytes.len();
    while left > 0 {
        let (to, from) = (std::os::fd::AsRawFd::as_raw_fd(&sender), std::os::fd::AsRawFd::as_raw_fd(&file));
        // SAFETY: a plain system call on descriptors that live across it.
        let sent = unsafe { libc::sendfile(to, from, std::ptr::null_mut(), left) };
        match sent {
            1.. => left -= sent as usize,
            _ => return Err(std::io::Error::last_os_error()),
        }
    }
    drop(sender);
    let _ = reader.join();
    Ok(port)
}

/// Makes calls in a container like that of a container manager: a cgroup, a namespace with that
/// cgroup as root, a host name. False where that is not permitted.
fn container(count: u32) -> bool {
    let pid = std::process::id().to_string();
    let root = std::env::temp_dir().join(format!("dt-cgroup-{pid}"));
    let Ok(path) = std::ffi::CString::new(root.as_os_str().as_encoded_bytes()) else { return false };
    let (none, kind) = (c"none".as_ptr(), c"cgroup2".as_ptr());
    let zone = root.join("dt-zone.scope");
    let enter = |group: &std::path::Path| std::fs::write(group.join("cgroup.procs"), &pid);
    let _ = std::fs::create_dir(&root);
    // SAFETY: strings that live across the calls.
    let mounted = unsafe {
        libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWUTS) == 0
            && libc::mount(
                none,
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
            && libc::mount(none, path.as_ptr(), kind, 0, std::ptr::null()) == 0
            && libc::sethostname(c"dt-zone-host".as_ptr(), 12) == 0
    };
    let made = mounted && std::fs::create_dir(&zone).is_ok() && enter(&zone).is_ok();
    // SAFETY: no pointers.
    let inside = made && unsafe { libc::unshare(libc::CLONE_NEWCGROUP) } == 0;
    if inside {
        (0..count).for_each(|_| _ = call(libc::SYS_getppid, 0, 0, 0));
    }
    let _ = enter(&root);
    let _ = std::fs::remove_dir(&zone);
    // SAFETY: as above.
    unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    let _ = std::fs::remove_dir(&root);
    inside
}

/// The CPU time of this thread in nanoseconds.
fn thread_time() -> i64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the struct.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

/// Spins for so many nanoseconds of this thread's CPU time.
fn spin_ns(ns: u64) {
    let end = thread_time() + ns as i64;
    while thread_time() < end {
        std::hint::black_box((0..1000).sum::<u64>());
    }
}

/// The same in milliseconds, in two halves. A pause of the host affects one of them.
fn spin(ms: u64) {
    (0..2).for_each(|_| spin_ns(ms * 500_000));
}

/// Between two calls of getpgrp: so many milliseconds of work, a sleep of a tenth of a second,
/// `calls` calls of getppid. Prints the CPU time of the thread between them.
fn cpu_time(ms: u64, calls: u32) {
    call(libc::SYS_getpgrp, 0, 0, 0);
    let before = thread_time();
    spin_ns(ms * 500_000);
    std::thread::sleep(std::time::Duration::from_millis(100));
    spin_ns(ms * 500_000);
    (0..calls).for_each(|_| _ = call(libc::SYS_getppid, 0, 0, 0));
    let after = thread_time();
    call(libc::SYS_getpgrp, 0, 0, 0);
    println!("cpu {}", after - before);
}

/// Opens a file that exists and one that does not, so many times. The mode marks these calls.
fn opens(count: u32) {
    let open = |name: &std::ffi::CStr| {
        let (at, flags, mode) = (libc::AT_FDCWD, libc::O_RDONLY, 0o123);
        // SAFETY: a string that lives across the call.
        unsafe { libc::syscall(libc::SYS_openat, at, name.as_ptr(), flags, mode) }
    };
    let (there, missing) = (c"/dev/null", c"/dt-no-such-file");
    // So that a probe can read them.
    for name in [there, missing] {
        name.to_bytes().iter().for_each(|b| _ = std::hint::black_box(*b));
    }
    for _ in 0..count {
        let fd = open(there);
        call(libc::SYS_close, fd, 0, 0);
        open(missing);
    }
}

/// Opens a file so many times. The file's name is in a page that is not mapped at the time of the
/// call, like constants of a program before their first use.
fn cold_names(count: u32) {
    let file = std::env::temp_dir().join(format!("dt-cold-{}", std::process::id()));
    let name = b"/etc/hostname-that-is-cold\0";
    if std::fs::write(&file, name).is_ok()
        && let Ok(open) = std::fs::File::open(&file)
    {
        let fd = std::os::fd::AsRawFd::as_raw_fd(&open);
        // SAFETY: a mapping of our own, which is unmapped. The kernel reads its first page.
        unsafe {
            let none = std::ptr::null_mut();
            let page = libc::mmap(none, 4096, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0);
            for _ in 0..count {
                libc::madvise(page, 4096, libc::MADV_DONTNEED);
                libc::syscall(libc::SYS_openat, libc::AT_FDCWD, page, libc::O_RDONLY);
            }
            libc::munmap(page, 4096);
        }
    }
    let _ = std::fs::remove_file(file);
}

/// A thread that makes a call and ends, without the C library's bookkeeping, which takes longer
/// than the thread.
fn brief_thread(stack: &mut [u64]) {
    extern "C" fn body(_: *mut libc::c_void) -> libc::c_int {
        call(libc::SYS_getppid, 0, 0, 0);
        0
    }
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_CHILD_CLEARTID;
    let lives = std::sync::atomic::AtomicI32::new(1);
    let word = lives.as_ptr();
    // SAFETY: the stack and the word outlive the thread, because this function waits for its end.
    // The thread uses no thread-local storage: its call does not fail.
    unsafe {
        let top = stack.as_mut_ptr().add(stack.len()).cast();
        let none = std::ptr::null_mut::<libc::c_void>();
        libc::clone(body, top, flags, none, none, none, word);
        while lives.load(std::sync::atomic::Ordering::Acquire) != 0 {
            libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, 1, none, none, 0);
        }
    }
}

/// Four threads call getppid for so many seconds, with an argument that is different every hundred
/// calls. Prints the number of calls.
fn keys(seconds: u64) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
    let calls = |thread: i64| {
        let mut number = 0;
        while std::time::Instant::now() < end {
            (0..100).for_each(|_| _ = call(libc::SYS_getppid, thread << 48 | number, 0, 0));
            number += 1;
        }
        100 * number
    };
    let calls: i64 = std::thread::scope(|s| {
        let threads: Vec<_> = (1..5).map(|thread| s.spawn(move || calls(thread))).collect();
        threads.into_iter().filter_map(|t| t.join().ok()).sum()
    });
    // In one write, and not to standard output: dtrace's long writes there are not whole in a full
    // pipe.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("calls {calls}\n").as_bytes());
}

/// Writes to a new page, and to so many more between two calls of getppid with 1 and 0: each with a
/// page fault of its own, and no other fault is between the calls.
fn touch(pages: usize) {
    const PAGE: usize = 4096;
    let (read_write, mine) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a mapping of its own, which is large enough for what is written.
    unsafe {
        let bytes = (1 + pages) * PAGE;
        let memory = libc::mmap(std::ptr::null_mut(), bytes, read_write, mine, -1, 0);
        if memory == libc::MAP_FAILED {
            return;
        }
        libc::madvise(memory, bytes, libc::MADV_NOHUGEPAGE);
        for (mark, range) in [(1, 0..1), (0, 1..1 + pages)] {
            range.for_each(|i| memory.cast::<u8>().add(i * PAGE).write_volatile(1));
            libc::syscall(libc::SYS_getppid, mark);
        }
    }
}

/// Reads a byte from standard input, maps the text of an executable made by `testing::elf`, and
/// calls it.
fn mapped(path: &str) -> bool {
    let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
    let Ok(file) = std::fs::File::open(path) else { return false };
    let (fd, none) = (std::os::fd::AsRawFd::as_raw_fd(&file), std::ptr::null_mut());
    // SAFETY: the file's text is at this offset: a function without parameters that preserves all
    // but rax, rcx and r11.
    unsafe {
        let text = libc::mmap(none, 4096, libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE, fd, 0x1000);
        if text == libc::MAP_FAILED {
            return false;
        }
        std::mem::transmute::<*mut libc::c_void, extern "C" fn()>(text)();
    }
    true
}

/// Makes a call with stack number `n`: 2 to 20 frames, and no other number has the same. A chain of
/// frames of its own replaces the frame pointer for the time of the call.
#[cfg(target_arch = "x86_64")]
fn call_with_stack(n: u64) {
    const CODE: u64 = 0x10_0000_0000;
    let more = n as usize % 19 + 1;
    // A frame is the address of the next one, and the return address.
    let mut frames = [[0u64; 2]; 20];
    let first = frames.as_ptr();
    for (i, frame) in frames.iter_mut().enumerate().take(more) {
        let next = if i + 1 < more { first.wrapping_add(i + 1) as u64 } else { 0 };
        *frame = [next, CODE + (n << 8) + i as u64];
    }
    std::hint::black_box(&frames);
    // SAFETY: getppid takes no argument. The kernel reads the frame pointer's memory, and the
    // frame pointer is restored.
    unsafe {
        std::arch::asm!(
            "push rbp",
            "mov rbp, {first}",
            "syscall",
            "pop rbp",
            first = in(reg) first,
            inout("rax") libc::SYS_getppid => _,
            out("rcx") _, out("r11") _,
        );
    }
}

/// Calls with stacks 1 to `count`, twice; `burst` calls, then a pause.
fn many_stacks(count: u32, burst: u32) {
    for n in (1..=count).chain(1..=count) {
        call_with_stack(n.into());
        if n % burst == 0 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// Pins the thread to its current CPU.
fn stay() {
    // SAFETY: no pointers.
    pin(0, unsafe { libc::sched_getcpu() }.max(0) as usize);
}

/// Moves from one CPU to another and back by sched_setaffinity. False where that is not permitted.
fn hop(count: u32) -> bool {
    let &[first, second, ..] = &cpus()[..] else { return false };
    // Visits both CPUs, wherever it begins.
    [first, second].iter().cycle().take(1 + count as usize).for_each(|cpu| pin(0, *cpu));
    true
}

/// Runs workload `args[0]`, `args[1]` times.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let count: u32 = args.get(1).and_then(|c| c.parse().ok()).unwrap_or(1);
    match args.first().map(String::as_str) {
        Some("getppid") => (0..count).for_each(|_| {
            call(libc::SYS_getppid, 0, 0, 0);
        }),
        Some("probes") => return crate::usdt_languages::probes(),
        Some("queries") => return crate::toolkit_user::queries(),
        Some("leaks") => crate::toolkit_user::leak(count),
        Some("made") => return crate::usdt_languages::made("tstheld", count.into()),
        // Sleeps for a millisecond so many times, between two calls.
        Some("sleeps") => {
            call(libc::SYS_getppid, 0, 0, 0);
            for _ in 0..count {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            call(libc::SYS_getppid, 0, 0, 0);
        }
        // Spins for so many milliseconds of its CPU time between two calls, beside a thread on the
        // same CPU.
        Some("preempted") => {
            stay();
            std::thread::scope(|s| {
                call(libc::SYS_getppid, 0, 0, 0);
                s.spawn(|| spin(u64::from(count)));
                spin(u64::from(count));
                call(libc::SYS_getppid, 0, 0, 0);
            });
        }
        Some("pingpong") => crate::toolkit_cpu::pingpong(count),
        Some("yields") => (0..count).for_each(|_| std::thread::yield_now()),
        // Keeps a CPU busy until it is killed.
        Some("occupies") => {
            pin(0, count as usize);
            loop {
                std::hint::spin_loop();
            }
        }
        // Is on a CPU for so many milliseconds.
        Some("spins") => {
            let begun = std::time::Instant::now();
            while begun.elapsed().as_millis() < u128::from(count) {}
        }
        // Becomes nicer by one, so many times, and is then of another policy.
        Some("nicer") => {
            // SAFETY: these take no memory but `param`, which is ours; 0 is this process.
            unsafe {
                (1..=count as i32).for_each(|nice| {
                    libc::setpriority(libc::PRIO_PROCESS, 0, nice);
                });
                let param = libc::sched_param { sched_priority: 10 };
                libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param);
            }
        }
        // Under a name that a terminal would obey.
        Some("renamed") => {
            // SAFETY: a string that outlives the call.
            unsafe { libc::prctl(libc::PR_SET_NAME, c"\x1b[31m\nx\xc2\x9b".as_ptr()) };
            (0..count).for_each(|_| {
                call(libc::SYS_getppid, 0, 0, 0);
            });
        }
        // A name with an override of the direction, a mark of byte order and a tag.
        Some("marked") => {
            // SAFETY: a string that outlives the call.
            unsafe {
                libc::prctl(libc::PR_SET_NAME, c"a\u{202e}b\u{feff}c\u{e0041}".as_ptr());
            }
            (0..count).for_each(|_| {
                call(libc::SYS_getppid, 0, 0, 0);
            });
        }
        // Sets a bit that the kernel keeps: children start with the default scheduling.
        Some("reset") => {
            let param = libc::sched_param { sched_priority: 0 };
            // SAFETY: `param` is ours; 0 is this process.
            unsafe {
                libc::sched_setscheduler(0, libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK, &raw const param)
            };
            (0..count).for_each(|_| {
                call(libc::SYS_getppid, 0, 0, 0);
            });
        }
        Some("stacks") => many_stacks(count, 200),
        Some("stacks-slowly") => many_stacks(count, 20),
        Some("stacks-at-once") => many_stacks(count, u32::MAX),
        // Fails with EBADF.
        Some("badclose") => (0..count).for_each(|_| {
            call(libc::SYS_close, 0x7fff_0001, 0, 0);
        }),
        // 32-bit getppid is number 64, which in the 64-bit table is semget.
        #[cfg(target_arch = "x86_64")]
        Some("getppid32") => {
            if call32(64, 0) < 0 {
                return ExitCode::from(77);
            }
            (1..count).for_each(|_| {
                call32(64, 0);
            });
        }
        // 32-bit close(0xffffffff). The argument must arrive zero-extended.
        #[cfg(target_arch = "x86_64")]
        Some("close32") => {
            // -38 (ENOSYS): there are no 32-bit calls.
            if call32(64, 0) < 0 {
                return ExitCode::from(77);
            }
            (0..count).for_each(|_| {
                call32(6, 0xffff_fff0);
            });
        }
        Some("write") => {
            let null = std::fs::File::options().write(true).open("/dev/null");
            if let Ok(mut null) = null {
                (0..count).for_each(|i| {
                    let _ = std::io::Write::write(&mut null, &vec![b'x'; 1 << (i % 8)]);
                });
            }
        }
        Some("open") => (0..count).for_each(|_| {
            let _ = std::fs::File::open("/etc/hostname-that-is-not-there");
        }),
        Some("opens") => opens(count),
        Some("opens-by-threads") => std::thread::scope(|s| {
            (0..4).for_each(|_| _ = s.spawn(|| opens(count)));
        }),
        Some("keys") => keys(u64::from(count)),
        Some("threads") => {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    std::thread::spawn(move || {
                        (0..count).for_each(|_| {
                            call(libc::SYS_getppid, 0, 0, 0);
                        })
                    })
                })
                .collect();
            for t in threads {
                let _ = t.join();
            }
        }
        // Four processes at once.
        Some("processes") => {
            let me = std::env::current_exe().unwrap_or_default();
            let calls = ["--workload", "getppid", &count.to_string()];
            let start = |_| std::process::Command::new(&me).args(calls).spawn();
            let all: Vec<_> = (0..4).map(start).collect();
            all.into_iter().flatten().for_each(|mut p| _ = p.wait());
        }
        // Threads that live for one call.
        Some("brief") => {
            let mut stack = vec![0u64; 2048];
            for _ in 0..count {
                brief_thread(&mut stack);
            }
        }
        Some("mapped") => {
            if !args.get(1).is_some_and(|path| mapped(path)) {
                return ExitCode::FAILURE;
            }
        }
        Some("coldnames") => cold_names(count),
        Some("cputime") => cpu_time(u64::from(count), 0),
        Some("cpucalls") => cpu_time(0, count),
        Some("container") => {
            if !container(count) {
                return ExitCode::from(77);
            }
        }
        // Two threads, one after the other: the second calls twice as often.
        Some("named") => {
            for (name, times) in [("first", count), ("second", 2 * count)] {
                let calls = move || (0..times).for_each(|_| _ = call(libc::SYS_getppid, 0, 0, 0));
                let thread = std::thread::Builder::new().name(name.into()).spawn(calls);
                let _ = thread.map(std::thread::JoinHandle::join);
            }
        }
        // On one CPU.
        Some("pinned") => {
            stay();
            (0..count).for_each(|_| _ = call(libc::SYS_getppid, 0, 0, 0));
        }
        // The same, and opens a file. A call before it marks the start.
        Some("pinnedopen") => {
            stay();
            call(libc::SYS_getppid, 0, 0, 0);
            (0..count).for_each(|_| _ = std::fs::File::open("/etc/passwd"));
        }
        // Moves between two CPUs.
        Some("hop") => {
            if !hop(count) {
                return ExitCode::from(77);
            }
        }
        Some("openread") => (0..count).for_each(|_| {
            if let Ok(mut file) = std::fs::File::open("/etc/passwd") {
                let _ = std::io::Read::read(&mut file, &mut [0; 16]);
            }
        }),
        Some("touch") => touch(count as usize),
        Some("decodes") => crate::toolkit_files::decoded(),
        // Runs another program, once after the other.
        Some("spawn") => (0..count).for_each(|_| {
            let _ = std::process::Command::new("/bin/true").status();
        }),
        // Four at once, each for so many milliseconds of its own CPU time.
        Some("spinners") => std::thread::scope(|s| {
            (0..4).for_each(|_| _ = s.spawn(|| spin(u64::from(count))));
        }),
        Some("files") => files(),
        Some("descriptors") => crate::processes::descriptors(),
        Some("status") => crate::processes::status(),
        Some("datagrams") => {
            if let Err(e) = datagrams(count) {
                println!("no network: {e}");
            }
        }
        Some("sendfile") => match send_file(&stream(count)) {
            Ok(port) => println!("port {port}"),
            Err(e) => println!("no network: {e}"),
        },
        Some("datagram") => crate::packets::report(crate::packets::datagram(count)),
        Some("connection") => crate::packets::report(crate::packets::connection(count)),
        Some("udp") => crate::packets::report(crate::stable_udp::datagrams(count)),
        Some("wrong-packets") => crate::packets::report(crate::stable_mib_errors::move_counters_of_errors()),
        Some("counters") => crate::packets::report(crate::stable_mib::move_counters()),
        Some("messages") => crate::packets::report(crate::stable_icmp::send_messages(count)),
        Some("unwanted") => crate::packets::report(crate::stable_drops::unwanted(count)),
        Some("unanswered") => crate::packets::report(crate::stable_drops::unanswered(count)),
        Some(name @ ("conversation" | "wire-datagrams")) => crate::wires::run(name, &args[1..]),
        Some("sleep") => std::thread::sleep(std::time::Duration::from_millis(u64::from(count))),
        Some("panics") => crate::pid::catch_panics(count),
        Some("exit") => return ExitCode::from(count as u8),
        other => {
            let argument = args.get(1).map_or("", String::as_str);
            let found = other.and_then(|name| {
                crate::lives::run(name, count)
                    .or_else(|| crate::counters::run(name, argument))
                    .or_else(|| crate::locks::run(name, count))
                    .or_else(|| crate::postmortem::run(name, count))
            });
            return found.unwrap_or_else(|| {
                eprintln!("no workload {other:?}");
                ExitCode::FAILURE
            });
        }
    }
    ExitCode::SUCCESS
}
