//! The provider fsinfo: each probe by count, by file and by bytes, with operations of known number.

use crate::Verdict::{self, Pass};
use crate::blocks::LoopDevice;
use crate::machine::{no_functions, no_types};
use crate::tool::{dtrace, workload};

tests! { operations_on_files_are_counted_with_their_file_and_bytes }

/// The probes of the workload: by name, with the name of the file, the bytes, and how often. Where
/// functions cannot be traced, some do not exist, and of one fewer are seen.
const OPERATIONS: [(&str, &str, u32, u32, Option<u32>); 22] = [
    ("addmap", "one", 8192, 1, Some(1)),
    ("close", "mnt", 0, 1, Some(1)),
    ("close", "one", 0, 1, Some(1)),
    ("create", "fifo", 0, 1, None),
    ("create", "one", 0, 1, Some(1)),
    ("fsync", "one", 0, 2, Some(2)),
    ("getattr", "one", 0, 5, Some(3)),
    ("ioctl", "one", 0, 2, Some(2)),
    ("link", "one", 0, 1, None),
    ("map", "one", 8192, 1, Some(1)),
    ("mkdir", "sub", 0, 1, None),
    ("open", "mnt", 0, 1, Some(1)),
    ("open", "one", 0, 1, Some(1)),
    ("read", "one", 2011, 6, Some(6)),
    ("readlink", "link", 6, 2, None),
    ("rename", "two", 0, 1, None),
    ("rmdir", "sub", 0, 1, None),
    ("seek", "one", 0, 2, Some(2)),
    ("setattr", "one", 0, 2, Some(2)),
    ("space", "one", 0, 1, Some(1)),
    ("symlink", "link", 0, 1, None),
    ("write", "one", 3011, 4, Some(4)),
];

fn operations_on_files_are_counted_with_their_file_and_bytes() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let (_device, mount) = match LoopDevice::with_files("fsinfo") {
        Ok(all) => all,
        Err(skip) => return skip,
    };
    let script = "
        self int64_t in;
        syscall::getppid:entry /pid == $target && arg0 == 1/ { self->in = !self->in; }
        fsinfo::: /self->in/
        {
            @n[probename, args[0]->fi_name] = count();
            @[probename, args[0]->fi_name] = sum(args[1]);
        }
        fsinfo:::read, fsinfo:::getattr /self->in/
        {
            @at[args[0]->fi_fs, args[0]->fi_mount, args[0]->fi_dirname, args[0]->fi_pathname] = count();
        }
        END
        {
            printa(\"%s %s %@d %@d\\n\", @, @n);
            printa(\"at %s %s %s %s\\n\", @at);
        }";
    let command = workload("fileoperations", 1);
    let command = format!("{} {mount}", command.trim_end_matches(" 1"));
    let o = dtrace(&["-q", "-c", &command, "-n", script]).code(0);
    let has_functions = no_functions().is_none();
    let mut expected: Vec<String> = Vec::new();
    for (probe, name, bytes, all, restricted) in OPERATIONS {
        if let Some(count) = if has_functions { Some(all) } else { restricted } {
            expected.push(format!("{probe} {name} {bytes} {count}"));
        }
    }
    let listed = o.value_of("listed");
    expected.push(format!("readdir mnt {listed} 2"));
    if has_functions {
        expected.extend((0..5).map(|n| format!("lookup missing{n} 0 1")));
        expected.push("lookup one 0 1".into());
        expected.extend(["one", "three", "link", "fifo"].map(|name| format!("remove {name} 0 1")));
    }
    expected.push(format!("at ext4 {mount} {mount} {mount}/one"));
    expected.push(format!("listed {listed}"));
    expected.sort_unstable();
    let mut lines: Vec<&str> = o.out.lines().filter(|l| !l.is_empty()).collect();
    lines.sort_unstable();
    assert_eq!(lines, expected, "{o:?}");
    Pass
}
