//! The providers nfsv3 and nfscl, with a server and a client of the kernel over the loopback of a
//! network namespace, compared with their counters (those of `nfsstat`).

use std::path::Path;

use crate::Verdict::{self, Pass, Skip};
use crate::blocks::run;
use crate::machine::{is_guest, no_functions, no_types};
use crate::tool::{Output, dtrace};

tests! {
    each_procedure_of_nfs_3_starts_and_is_done_as_often_as_the_server_counts_it
    arguments_and_results_of_nfs_3_are_those_of_what_was_done
    requests_of_clients_that_vanish_start_and_are_done
    each_call_of_the_client_starts_and_is_done_as_often_as_it_is_counted
}

/// A server in a namespace of its own with an export, which is a file system in memory. `nfsdcld`
/// knows that no client has anything to reclaim, so nobody waits for that. `$E` is the path of the
/// export, `$M` that for a mount. At the end all of it has gone.
const SERVER: &str = r#"set -eu
ip link set lo up
mount -t tmpfs run /run
mount -t tmpfs state /var/lib/nfs
mkdir -p /var/lib/nfs/rpc_pipefs /var/lib/nfs/nfsdcld /var/lib/nfs/sm /run/rpcbind /run/nfs-e /run/nfs-m
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
E=/run/nfs-e M=/run/nfs-m
mount -t tmpfs export $E
mount -t nfsd nfsd /proc/fs/nfsd
mount -t rpc_pipefs pipes /var/lib/nfs/rpc_pipefs
nfsdcld -F & nfsdcld=$!
rpcbind -f & rpcbind=$!
mountd=
end() {
  umount -f $M || :
  rpc.nfsd 0
  kill $mountd $rpcbind $nfsdcld
  wait
}
trap 'end >&2' EXIT
until rpcinfo 127.0.0.1 >/dev/null 2>&1; do kill -0 $rpcbind; done
exportfs -o rw,no_root_squash,insecure,fsid=0,no_subtree_check '*:/run/nfs-e'
rpc.mountd -F & mountd=$!
until rpcinfo 127.0.0.1 | grep -q mountd; do kill -0 $mountd; done
rpc.nfsd -G 10 -L 10 -H 0.0.0.0 -H :: 2 || rpc.nfsd 2
"#;

/// Why this machine has no server of NFS, if so. Loads the kernel's modules.
pub(crate) fn no_server() -> Option<Verdict> {
    if !is_guest() {
        return Some(Skip("starts servers of the kernel: in guests only".into()));
    }
    if let Some(skip) = no_functions().or_else(no_types) {
        return Some(skip);
    }
    for tool in ["rpc.nfsd", "rpc.mountd", "nfsdcld", "exportfs", "mount.nfs", "rpcbind", "rpcinfo"] {
        if !["/sbin", "/usr/sbin", "/usr/bin"].iter().any(|dir| Path::new(dir).join(tool).exists()) {
            return Some(Skip(format!("this machine has no {tool}")));
        }
    }
    match run("modprobe -a nfsd nfsv3 nfsv4") {
        Ok(_) => None,
        Err(why) => Some(Skip(format!("no server of NFS: {why}"))),
    }
}

/// Runs `dtrace` while a shell runs the commands beside a server. The counters of server and client
/// follow what the commands print.
#[track_caller]
pub(crate) fn serve(test: &str, commands: &str, script: &str) -> Output {
    let dir = testing::dir::Dir::new(&format!("nfs-{test}"));
    let file = dir.join("commands");
    let counters = |when: &str| {
        format!("sed 's/^/{when} server /' /proc/net/rpc/nfsd; sed 's/^/{when} client /' /proc/net/rpc/nfs")
    };
    let (before, after) = (counters("before"), counters("after"));
    let text = format!("{SERVER}{before}\n{commands}\numount $M || :\n{after}\n");
    std::fs::write(&file, text).unwrap();
    let command = format!("unshare -mn bash {}", file.display());
    dtrace(&["-q", "-c", &command, "-n", script]).code(0)
}

/// What was added to each number of a line of counters. Some kernels have one line for all network
/// namespaces.
#[track_caller]
pub(crate) fn added(o: &Output, line: &str) -> Vec<i64> {
    let numbers = |when: &str| -> Vec<i64> {
        let rest = lines(o, when).into_iter().find_map(|l| l.strip_prefix(line)?.strip_prefix(' '));
        let rest = rest.unwrap_or_else(|| panic!("no {when} {line} in {o:?}"));
        // The first says how many there are.
        rest.split_whitespace().skip(1).map(|n| n.parse().unwrap()).collect()
    };
    numbers("after").iter().zip(numbers("before")).map(|(after, before)| after - before).collect()
}

/// The rest of the lines that begin with a word.
pub(crate) fn lines<'a>(o: &'a Output, word: &str) -> Vec<&'a str> {
    o.out.lines().filter_map(|l| l.strip_prefix(word)?.strip_prefix(' ')).collect()
}

/// The count of a probe: a line `count NAME N`.
pub(crate) fn count(o: &Output, probe: &str) -> i64 {
    let row = lines(o, "count").into_iter().find_map(|l| l.strip_prefix(probe)?.strip_prefix(' '));
    row.map_or(0, |n| n.parse().unwrap())
}

const PROCEDURES: [&str; 22] = [
    "null",
    "getattr",
    "setattr",
    "lookup",
    "access",
    "readlink",
    "read",
    "write",
    "create",
    "mkdir",
    "symlink",
    "mknod",
    "remove",
    "rmdir",
    "rename",
    "link",
    "readdir",
    "readdirplus",
    "fsstat",
    "fsinfo",
    "pathconf",
    "commit",
];

/// Uses every procedure. What a client has made itself it need not ask for.
const WORK: &str = "mount -t nfs -o vers=3,nolock,actimeo=0,wsize=4096 127.0.0.1:$E $M; cd $M; mkdir d
    echo hello >d/f; ln d/f l; ln -s d/f s; mknod p p; mv l d/m; chmod 600 d/m; ls -l d; df .
    dd if=/dev/zero of=w bs=4096 count=5 conv=fsync; stat gone || :; cd /; umount $M
    mount -t nfs -o vers=3,nolock,nordirplus,proto=tcp6 [::1]:$E $M; cd $M; ls; cat d/f; readlink s
    rm d/m p s; rm -r d; cd /; umount $M";

fn each_procedure_of_nfs_3_starts_and_is_done_as_often_as_the_server_counts_it() -> Verdict {
    if let Some(skip) = no_server() {
        return skip;
    }
    let script = "nfsv3:::op-*-start { @[probename] = count(); self->xid = args[1]->noi_xid; self->n++; }
        nfsv3:::op-*-done { @[probename] = count(); }
        nfsv3:::op-*-done /self->n != 1 || self->xid != args[1]->noi_xid/ { @odd = count(); }
        nfsv3:::op-*-done { self->n = 0; }
        END { printa(\"count %s %@d\\n\", @); printa(\"odd %@d\\n\", @odd); }";
    let o = serve("procedures", WORK, script);
    let counted = added(&o, "server proc3");
    for (name, counted) in PROCEDURES.iter().zip(&counted) {
        assert!(*counted > 0, "{name} was not used: {o:?}");
        let probes = ["start", "done"].map(|end| count(&o, &format!("op-{name}-{end}")));
        assert_eq!(probes, [*counted; 2], "{name}: {o:?}");
    }
    assert_eq!(lines(&o, "odd"), [""; 0], "{o:?}");
    Pass
}

fn arguments_and_results_of_nfs_3_are_those_of_what_was_done() -> Verdict {
    if let Some(skip) = no_server() {
        return skip;
    }
    let script = "nfsv3:::op-write-start { printf(\"write %d %d %d %d %s %s\\n\", args[2]->offset, args[2]->count, \
        args[2]->data.data_len, args[2]->stable, args[1]->noi_curpath, args[1]->noi_shrpath); }
        nfsv3:::op-write-done { printf(\"wrote %d %d %d %s\\n\", args[2]->status, args[2]->res_u.ok.count, \
        args[2]->res_u.ok.committed, basename(args[1]->noi_curpath)); }
        nfsv3:::op-read-start { printf(\"read %d %d %s\\n\", args[2]->offset, args[2]->count, \
        basename(args[1]->noi_curpath)); }
        nfsv3:::op-read-done { printf(\"got %d %d %d %d %s\\n\", args[2]->status, args[2]->res_u.ok.count, \
        args[2]->res_u.ok.data.data_len, args[2]->res_u.ok.eof, basename(args[1]->noi_curpath)); }
        nfsv3:::op-rename-start { printf(\"rename %s %s %s\\n\", args[2]->from.name, args[2]->to.name, \
        basename(args[1]->noi_curpath)); }
        nfsv3:::op-link-start, nfsv3:::op-link-done { printf(\"link %s\\n\", basename(args[1]->noi_curpath)); }
        nfsv3:::op-link-start { printf(\"link-name %s\\n\", args[2]->link.name); }
        nfsv3:::op-symlink-start { printf(\"symlink %s %s\\n\", args[2]->where.name, args[2]->symlink.symlink_data); }
        nfsv3:::op-mkdir-start, nfsv3:::op-create-start, nfsv3:::op-mknod-start
        { printf(\"make %s %s\\n\", probename, args[2]->where.name); }
        nfsv3:::op-remove-start, nfsv3:::op-rmdir-start { printf(\"remove %s\\n\", args[2]->object.name); }
        nfsv3:::op-lookup-start /args[2]->what.name == \"gone\"/ { self->gone = 1; }
        nfsv3:::op-lookup-done /self->gone/ { self->gone = 0; printf(\"gone %d\\n\", args[2]->status == NFS3ERR_NOENT); }
        nfsv3:::op-setattr-start /args[2]->new_attributes.valid & 1/
        { printf(\"mode %o\\n\", args[2]->new_attributes.mode & 07777); }
        nfsv3:::op-getattr-done /args[2]->res_u.ok.obj_attributes.mode == 0641/
        { @size[args[2]->res_u.ok.obj_attributes.size] = count(); }
        nfsv3:::op-fsinfo-done { @max[args[2]->res_u.ok.wtmax > 65535] = count(); }
        nfsv3:::op-fsinfo-start, nfsv3:::op-fsinfo-done, nfsv3:::op-pathconf-done
        /args[1]->noi_curpath != args[1]->noi_shrpath/ { printf(\"elsewhere %s %s\\n\", probename, args[1]->noi_curpath); }
        nfsv3:::op-fsstat-start, nfsv3:::op-fsstat-done /args[1]->noi_curpath == \"<unknown>\"/
        { printf(\"elsewhere %s\\n\", probename); }
        nfsv3:::op-commit-start { printf(\"commit %d %s\\n\", args[2]->offset, basename(args[1]->noi_curpath)); }
        nfsv3:::op-*-start { @ends[args[0]->ci_local, args[0]->ci_remote, args[0]->ci_protocol] = count(); \
        @who[args[1]->noi_cred->cr_uid, args[1]->noi_cred->cr_gid] = count(); }
        END { printa(\"size %d\\n\", @size); printa(\"large %d\\n\", @max); printa(\"ends %s %s %s\\n\", @ends); \
        printa(\"who %d %d\\n\", @who); }";
    let work = "mount -t nfs -o vers=3,nolock,actimeo=0 127.0.0.1:$E $M; cd $M; chmod 777 .
        dd if=/dev/zero of=w bs=4096 count=3 oflag=direct; dd if=w of=/dev/null bs=8192 count=2 iflag=direct
        dd if=/dev/zero of=c bs=1000 count=1 conv=fsync; mkdir d; ln w d/link; mv c d/moved; ln -s some/where s
        chmod 641 w; stat w; mknod p p; stat gone || :; df .; rm s p; rm -r d
        setpriv --reuid 1234 --regid 5678 --clear-groups touch mine; cd /; umount $M
        mount -t nfs -o vers=3,nolock,proto=tcp6 [::1]:$E $M";
    let o = serve("arguments", work, script);
    let share =
        lines(&o, "write").first().and_then(|l| l.split(' ').next_back()).unwrap_or_default().to_string();
    assert!(share.ends_with("/run/nfs-e"), "{o:?}");
    let path = |name: &str| format!("{share}/{name} {share}");
    // The client wants each of its direct writes on the disk at once. Others it commits.
    let direct = [0, 4096, 8192].map(|offset| format!("{offset} 4096 4096 2 {}", path("w")));
    let writes = lines(&o, "write");
    assert_eq!(writes[..3], direct.each_ref().map(String::as_str), "{o:?}");
    assert_eq!(
        writes[3],
        format!("0 1000 1000 {} {}", writes[3].split(' ').nth(3).unwrap(), path("c")),
        "{o:?}"
    );
    assert_eq!(lines(&o, "wrote")[..3], ["0 4096 2 w"; 3], "{o:?}");
    assert_eq!(lines(&o, "read"), ["0 8192 w", "8192 8192 w"], "{o:?}");
    assert_eq!(lines(&o, "got"), ["0 8192 8192 0 w", "0 4096 4096 1 w"], "{o:?}");
    assert_eq!(lines(&o, "rename"), ["c moved nfs-e"], "{o:?}");
    assert_eq!((lines(&o, "link"), lines(&o, "link-name")), (vec!["w"; 2], vec!["link"]), "{o:?}");
    assert_eq!(lines(&o, "symlink"), ["s some/where"], "{o:?}");
    let made = ["create w", "create c", "mkdir d", "mknod p", "create mine"];
    let made = made.map(|l| format!("op-{}", l.replacen(' ', "-start ", 1)));
    assert_eq!(lines(&o, "make"), made.each_ref().map(String::as_str), "{o:?}");
    let mut removed = lines(&o, "remove");
    removed.sort_unstable();
    assert_eq!(removed, ["d", "link", "moved", "p", "s"], "{o:?}");
    assert_eq!((lines(&o, "gone"), lines(&o, "size")), (vec!["1"], vec!["12288"]), "{o:?}");
    assert!(lines(&o, "mode").contains(&"641"), "{o:?}");
    assert_eq!((lines(&o, "large"), lines(&o, "elsewhere")), (vec!["1"], vec![]), "{o:?}");
    let mut ends = lines(&o, "ends");
    ends.sort_unstable();
    assert_eq!(ends, ["127.0.0.1 127.0.0.1 ipv4", "::1 ::1 ipv6"], "{o:?}");
    assert!(lines(&o, "who").contains(&"1234 5678") && lines(&o, "who").contains(&"0 0"), "{o:?}");
    Pass
}

/// Requests that are sent by hand, on a connection that is closed with the answers unread: three of
/// NULL, and one of GETATTR with a handle that is none.
fn requests_of_clients_that_vanish_start_and_are_done() -> Verdict {
    if let Some(skip) = no_server() {
        return skip;
    }
    let script = "nfsv3:::op-null-start, nfsv3:::op-null-done, nfsv3:::op-getattr-start
        { printf(\"%s %x %s\\n\", probename, args[1]->noi_xid, args[1]->noi_curpath); }
        nfsv3:::op-getattr-done { printf(\"%s %x %s %s\\n\", probename, args[1]->noi_xid, args[1]->noi_curpath, \
        args[2]->status == NFS3ERR_BADHANDLE || args[2]->status == NFS3ERR_STALE ? \"refused\" : \"ok\"); }";
    // The record's length, the transaction, call, RPC 2, the program, version 3, the procedure; two
    // empty credentials; the handle.
    let work =
        "head='\\0\\0\\0\\0\\0\\0\\0\\2\\0\\1\\x86\\xa3\\0\\0\\0\\3\\0\\0\\0' none='\\0\\0\\0\\0\\0\\0\\0\\0'
        asked() { sed -n 's/^proc3 22 \\([0-9]*\\) \\([0-9]*\\) .*/\\1 + \\2/p' /proc/net/rpc/nfsd; }
        before=$(($(asked))); exec 3<>/dev/tcp/127.0.0.1/2049
        for n in 1 2 3; do printf '\\x80\\0\\0\\x28\\x12\\x34\\x56\\x7'$n$head'\\0'$none$none >&3; done
        printf '\\x80\\0\\0\\x34\\x12\\x34\\x56\\x74'$head'\\1'$none$none'\\0\\0\\0\\x8'$none >&3
        for i in {1..500}; do test $(($(asked))) = $((before + 4)) && break; sleep 0.02; done; exec 3>&-";
    let o = serve("vanish", work, script);
    assert_eq!(added(&o, "server proc3")[..2], [3, 1], "{o:?}");
    for end in ["op-null-start", "op-null-done"] {
        let mut seen = lines(&o, end);
        seen.sort_unstable();
        assert_eq!(seen, [1, 2, 3].map(|n| format!("1234567{n} <unknown>")), "{end}: {o:?}");
    }
    assert_eq!(lines(&o, "op-getattr-start"), ["12345674 <unknown>"], "{o:?}");
    assert_eq!(lines(&o, "op-getattr-done"), ["12345674 <unknown> refused"], "{o:?}");
    Pass
}

fn each_call_of_the_client_starts_and_is_done_as_often_as_it_is_counted() -> Verdict {
    if let Some(skip) = no_server() {
        return skip;
    }
    let script =
        "nfscl:::op-*-start { @[probename, args[1]->noi_version] = count(); open[args[1]->noi_call] = 1; }
        nfscl:::op-*-done { @[probename, args[1]->noi_version] = count(); @ends[args[0]->ci_local, \
        args[0]->ci_remote, args[0]->ci_protocol, args[1]->noi_server] = count(); }
        nfscl:::op-*-done /!open[args[1]->noi_call] || args[1]->noi_xid == 0 || \
        args[2]->nr_total < args[2]->nr_rtt/ { @odd[probename] = count(); }
        nfscl:::op-*-done { open[args[1]->noi_call] = 0; }
        nfscl:::op-read-start, nfscl:::op-read-plus-start, nfscl:::op-write-start { printf(\"asked %s %d %d %d %s\\n\", \
        substr(probename, 3, 4), args[1]->noi_version, args[1]->noi_offset, args[1]->noi_count, \
        basename(args[1]->noi_curpath)); }
        nfscl:::op-read-done, nfscl:::op-read-plus-done, nfscl:::op-write-done { printf(\"moved %s %d %d %d\\n\", \
        substr(probename, 3, 4), args[1]->noi_version, args[2]->nr_count, args[2]->nr_status); }
        END { printa(\"count %s %d %@d\\n\", @); printa(\"ends %s %s %s %s %@d\\n\", @ends); \
        printa(\"odd %s %@d\\n\", @odd); }";
    let work = format!(
        "{WORK}\nmount -t nfs -o vers=3,nolock 127.0.0.1:$E $M; cd $M
        dd if=/dev/zero of=w bs=4096 count=2 oflag=direct; dd if=w of=/dev/null bs=4096 iflag=direct; cd /; umount $M
        mount -t nfs -o vers=4.2 127.0.0.1:/ $M; cd $M; mkdir e; touch e/a; mv e/a e/b; ls e; rm -r e; chmod 600 w
        dd if=/dev/zero of=w bs=8192 count=2 oflag=direct; dd if=w of=/dev/null bs=8192 iflag=direct; cd /; umount $M"
    );
    let o = serve("client", &work, script);
    let counted = added(&o, "client proc3");
    for (name, counted) in PROCEDURES.iter().zip(&counted) {
        let probes = ["start", "done"].map(|end| count(&o, &format!("op-{name}-{end} 3")));
        assert_eq!(probes, [*counted; 2], "{name}: {o:?}");
    }
    let all: i64 = added(&o, "client proc4").iter().sum();
    for end in ["start", "done"] {
        let rows = lines(&o, "count").into_iter().filter(|l| l.contains(&format!("-{end} 4 ")));
        let seen: i64 = rows.filter_map(|l| l.split(' ').next_back()?.parse::<i64>().ok()).sum();
        assert_eq!(seen, all, "{end}: {o:?}");
    }
    let named =
        ["null", "exchange-id", "create-session", "open", "close", "create", "rename", "remove", "setattr"];
    for name in named.into_iter().chain(["write", "readdir", "reclaim-complete", "destroy-session"]) {
        assert!(count(&o, &format!("op-{name}-done 4")) > 0, "{name}: {o:?}");
    }
    assert_eq!(lines(&o, "odd"), [""; 0], "{o:?}");
    for (version, size) in [(3, 4096), (4, 8192)] {
        for kind in ["read", "writ"] {
            // The last read may find the end.
            let of = |word: &str| -> Vec<String> {
                lines(&o, &format!("{word} {kind} {version}")).into_iter().map(String::from).collect()
            };
            let asked = [0, size].map(|offset| format!("{offset} {size} w"));
            assert!(of("asked").windows(2).any(|pair| pair == asked), "{kind} {version}: {o:?}");
            let moved = [0, 0].map(|status| format!("{size} {status}"));
            assert!(of("moved").windows(2).any(|pair| pair == moved), "{kind} {version}: {o:?}");
        }
    }
    let ends = lines(&o, "ends");
    for end in ["127.0.0.1 127.0.0.1 ipv4 127.0.0.1 ", "::1 ::1 ipv6 ::1 "] {
        assert!(ends.iter().any(|l| l.starts_with(end)), "{end}: {o:?}");
    }
    Pass
}
