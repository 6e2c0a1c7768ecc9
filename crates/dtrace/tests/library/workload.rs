//! Workloads of known size: threads that make marked system calls and calls of a marked function.

use std::ffi::CString;
use std::process::ExitCode;

/// The target of the uprobe. The text is `text_of(thread, seq)`.
#[inline(never)]
#[unsafe(no_mangle)]
pub(crate) extern "C" fn dt_library_hit(thread: u64, seq: u64, text: *const libc::c_char) -> u64 {
    std::hint::black_box((thread, seq, text));
    thread ^ seq
}

/// A query of a service. One that is slow takes 150 ms at least.
#[inline(never)]
#[unsafe(no_mangle)]
pub(crate) extern "C" fn dt_library_query(text: *const libc::c_char, slow: bool) -> bool {
    if std::hint::black_box((text, slow)).1 {
        std::thread::sleep(std::time::Duration::from_millis(150));
    }
    slow
}

/// `service GO`: waits for a file, and answers four queries that are slow and many that are not.
fn service(go: &str) -> ExitCode {
    // Ends with its parent, because a test that failed does not make the file.
    // SAFETY: no memory is involved.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    while !std::path::Path::new(go).exists() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    for n in 0..4 {
        for (kind, slow) in [("quick", false), ("slow", true), ("quick", false)] {
            let text = CString::new(format!("select {kind} {n}")).unwrap_or_default();
            std::hint::black_box(dt_library_query(text.as_ptr(), slow));
        }
    }
    ExitCode::SUCCESS
}

/// `open N PATH`: opens a file so often.
fn open(times: &str, path: &str) -> ExitCode {
    let path = CString::new(path).unwrap_or_default();
    for _ in 0..times.parse().unwrap_or(0) {
        // SAFETY: the path is NUL-terminated and outlives the call; the descriptor is closed by
        // nobody else.
        unsafe {
            let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_RDONLY);
            libc::close(file as i32);
        }
    }
    ExitCode::SUCCESS
}

/// The text for a number, whose length and content depend on the number.
pub(crate) fn text_of(thread: u64, seq: u64) -> String {
    let filler = "abcdefghijklmnopqrstuvwxyz0123456789".chars().cycle().skip((seq % 36) as usize);
    let filler: String = filler.take((seq * 7 % 150) as usize).collect();
    format!("/no-such/{thread}-{seq}-{filler}")
}

/// Packs a thread's number and a call's number into one argument.
pub(crate) fn pack(thread: u64, seq: u64) -> u64 {
    thread << 32 | seq
}

/// `until THREADS STOP COUNTS`: each thread repeats a marked `getppid` and a pause until the file
/// STOP exists, or its directory does not. Then the file COUNTS gets one line for each thread with
/// the number of its calls.
fn until(threads: u64, stop: &str, counts: &str) -> ExitCode {
    // Ends with its parent, because a test that failed does not stop it.
    // SAFETY: no memory is involved.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let (stop, rounds) = (stop.to_owned(), |thread: u64, stop: &str| {
        let mut seq = 0;
        let stop = std::path::Path::new(stop);
        let is_over = || stop.exists() || !stop.parent().is_some_and(std::path::Path::exists);
        // At least once round: who stops it early has calls to count nevertheless.
        while seq == 0 || seq % 16 != 0 || !is_over() {
            // SAFETY: getppid takes no arguments and ignores the argument registers.
            unsafe { libc::syscall(libc::SYS_getppid, thread, seq) };
            seq += 1;
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        seq
    });
    let all: Vec<_> = (1..=threads)
        .map(|thread| {
            let stop = stop.clone();
            std::thread::spawn(move || rounds(thread, &stop))
        })
        .collect();
    let made: Vec<String> =
        all.into_iter().map(|thread| thread.join().map_or(String::new(), |n| n.to_string())).collect();
    match std::fs::write(counts, made.join("\n")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// `embedded COMMAND` runs the example of an event loop. `THREADS CALLS`: each thread makes so many
/// rounds of a marked `getppid`, a marked `chdir` that fails, and a call of [`dt_library_hit`].
pub(crate) fn run(args: &[String]) -> ExitCode {
    if let [word, threads, stop, counts] = args
        && word == "until"
    {
        return until(threads.parse().unwrap_or(1), stop, counts);
    }
    match args {
        [word, go] if word == "service" => return service(go),
        [word, times, path] if word == "open" => return open(times, path),
        _ => {}
    }
    if let [word, command] = args
        && word == "embedded"
    {
        return crate::embedded::run(command).map_or(ExitCode::FAILURE, |_| ExitCode::SUCCESS);
    }
    let number = |i: usize| args.get(i).and_then(|a| a.parse::<u64>().ok()).unwrap_or(1);
    let (threads, calls) = (number(0), number(1));
    let rounds = move |thread: u64| {
        for seq in 0..calls {
            let text = CString::new(text_of(thread, seq)).unwrap_or_default();
            let mark = pack(thread, seq);
            // SAFETY: getppid takes no arguments and ignores the argument registers. chdir's path
            // is NUL-terminated and outlives the call.
            unsafe {
                libc::syscall(libc::SYS_getppid, thread, seq);
                libc::syscall(libc::SYS_chdir, text.as_ptr(), mark);
            }
            std::hint::black_box(dt_library_hit(thread, seq, text.as_ptr()));
        }
    };
    let all: Vec<_> = (1..=threads).map(|thread| std::thread::spawn(move || rounds(thread))).collect();
    for thread in all {
        let _ = thread.join();
    }
    ExitCode::SUCCESS
}
