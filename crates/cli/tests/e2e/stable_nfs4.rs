//! The provider nfsv4, with a server and a client of the kernel over the loopback of a network
//! namespace, compared with their counters (those of `nfsstat`).

use crate::Verdict::{self, Pass};
use crate::stable_nfs::{added, count, lines, no_server, serve};

tests! {
    each_operation_of_nfs_4_starts_and_is_done_as_often_as_the_server_counts_it
    arguments_and_results_of_nfs_4_are_those_of_what_was_done
    a_compound_of_a_client_that_vanishes_has_its_operations_in_their_order
}

/// The operations by their numbers, from 3 on.
const OPERATIONS: [&str; 73] = [
    "access",
    "close",
    "commit",
    "create",
    "delegpurge",
    "delegreturn",
    "getattr",
    "getfh",
    "link",
    "lock",
    "lockt",
    "locku",
    "lookup",
    "lookupp",
    "nverify",
    "open",
    "openattr",
    "open-confirm",
    "open-downgrade",
    "putfh",
    "putpubfh",
    "putrootfh",
    "read",
    "readdir",
    "readlink",
    "remove",
    "rename",
    "renew",
    "restorefh",
    "savefh",
    "secinfo",
    "setattr",
    "setclientid",
    "setclientid-confirm",
    "verify",
    "write",
    "release-lockowner",
    "backchannel-ctl",
    "bind-conn-to-session",
    "exchange-id",
    "create-session",
    "destroy-session",
    "free-stateid",
    "get-dir-delegation",
    "getdeviceinfo",
    "getdevicelist",
    "layoutcommit",
    "layoutget",
    "layoutreturn",
    "secinfo-no-name",
    "sequence",
    "set-ssv",
    "test-stateid",
    "want-delegation",
    "destroy-clientid",
    "reclaim-complete",
    "allocate",
    "copy",
    "copy-notify",
    "deallocate",
    "io-advise",
    "layouterror",
    "layoutstats",
    "offload-cancel",
    "offload-status",
    "read-plus",
    "seek",
    "write-same",
    "clone",
    "getxattr",
    "setxattr",
    "listxattrs",
    "removexattr",
];

fn each_operation_of_nfs_4_starts_and_is_done_as_often_as_the_server_counts_it() -> Verdict {
    if let Some(skip) = no_server() {
        return skip;
    }
    let script =
        "nfsv4:::compound-start { @[probename] = count(); self->xid = args[1]->noi_xid; self->n = 0; \
        self->all = args[2]->array_len; }
        nfsv4:::op-*-start { @[probename] = count(); self->n++; self->in = 1; }
        nfsv4:::op-*-done { @[probename] = count(); @odd[!self->in || self->xid != args[1]->noi_xid] = count(); \
        self->in = 0; }
        nfsv4:::compound-done { @[probename] = count(); }
        nfsv4:::compound-done /self->in || self->n != args[2]->array_len || \
        (args[2]->status == 0 && self->n != self->all)/ { @odd[2] = count(); }
        END { printa(\"count %s %@d\\n\", @); printa(\"odd %d\\n\", @odd); }";
    let work = "for v in 4.0 4.1 4.2; do mount -t nfs -o vers=$v,actimeo=0 127.0.0.1:/ $M; cd $M; mkdir d
        echo hello >d/f; cat d/f; ln d/f l; ln -s d/f s; readlink s; mv l d/m; chmod 600 d/m; ls -l d; df .
        dd if=/dev/zero of=w bs=4096 count=5 conv=fsync; stat gone || :; flock w true; fallocate -l 9000 w || :
        cp w w2; rm d/m w w2 s; rm -r d; cd /; umount $M; done; mount -t nfs -o vers=4 [::1]:/ $M; ls $M";
    let o = serve("operations", work, script);
    // The first three numbers are of no operations.
    let counted = added(&o, "server proc4ops");
    let mut used = 0;
    for (name, counted) in OPERATIONS.iter().zip(&counted[3..]) {
        let probes = ["start", "done"].map(|end| count(&o, &format!("op-{name}-{end}")));
        assert_eq!(probes, [*counted; 2], "{name}: {o:?}");
        used += u32::from(*counted > 0);
    }
    assert!(used >= 30, "{used}: {o:?}");
    let compounds = added(&o, "server proc4")[1];
    assert!(compounds > 0, "{o:?}");
    assert_eq!(["start", "done"].map(|end| count(&o, &format!("compound-{end}"))), [compounds; 2], "{o:?}");
    assert_eq!(lines(&o, "odd"), ["0"], "{o:?}");
    Pass
}

fn arguments_and_results_of_nfs_4_are_those_of_what_was_done() -> Verdict {
    if let Some(skip) = no_server() {
        return skip;
    }
    let script = "nfsv4:::compound-start { @minor[args[2]->minorversion] = count(); }
        nfsv4:::op-write-start { printf(\"write %d %d %d %s %s\\n\", args[2]->offset, args[2]->data_len, \
        args[2]->stable, args[1]->noi_curpath, args[1]->noi_shrpath); }
        nfsv4:::op-write-done { printf(\"wrote %d %d %d\\n\", args[2]->status, args[2]->count, args[2]->committed); }
        nfsv4:::op-read-start, nfsv4:::op-read-plus-start
        { printf(\"read %d %d %s\\n\", args[2]->offset, args[2]->count, basename(args[1]->noi_curpath)); }
        nfsv4:::op-read-done, nfsv4:::op-read-plus-done
        { printf(\"got %d %d %d\\n\", args[2]->status, args[2]->data_len, args[2]->eof); }
        nfsv4:::op-open-start /args[2]->opentype/ { printf(\"open %s %d %s\\n\", args[2]->objname.utf8string_val, \
        args[2]->share_access & 3, basename(args[1]->noi_curpath)); }
        nfsv4:::op-open-done /args[2]->status == NFS4_OK/ { @opened[basename(args[1]->noi_curpath)] = count(); }
        nfsv4:::op-create-start { printf(\"create %s %d\\n\", args[2]->objname.utf8string_val, args[2]->type); }
        nfsv4:::op-rename-start { printf(\"rename %s %s\\n\", args[2]->oldname.utf8string_val, args[2]->newname.utf8string_val); }
        nfsv4:::op-link-start { printf(\"link %s\\n\", args[2]->newname.utf8string_val); }
        nfsv4:::op-remove-start { printf(\"remove %s %d\\n\", args[2]->target.utf8string_val, args[2]->target.utf8string_len); }
        nfsv4:::op-lookup-start /args[2]->objname.utf8string_val == \"gone\"/ { self->gone = 1; }
        nfsv4:::op-lookup-done /self->gone/ { self->gone = 0; printf(\"gone %d\\n\", args[2]->status == NFS4ERR_NOENT); }
        nfsv4:::op-lock-start { printf(\"lock %d %d %d\\n\", args[2]->locktype, args[2]->offset, args[2]->length); }
        nfsv4:::op-locku-start { @unlock[args[2]->offset] = count(); }
        nfsv4:::op-commit-start { printf(\"commit %d %s\\n\", args[2]->offset, basename(args[1]->noi_curpath)); }
        nfsv4:::op-*-start { @ends[args[0]->ci_local, args[0]->ci_remote, args[0]->ci_protocol] = count(); \
        @who[args[1]->noi_cred->cr_uid, args[1]->noi_cred->cr_gid] = count(); }
        nfsv4:::cb-recall-start { printf(\"recall %s %s\\n\", args[0]->ci_remote, basename(args[1]->nci_curpath)); }
        nfsv4:::cb-recall-done { printf(\"recalled %s\\n\", basename(args[1]->nci_curpath)); }
        END { printa(\"minor %d\\n\", @minor); printa(\"opened %s\\n\", @opened); printa(\"unlock %d\\n\", @unlock); \
        printa(\"ends %s %s %s\\n\", @ends); printa(\"who %d %d\\n\", @who); }";
    let work = "mount -t nfs -o vers=4.1,actimeo=0 127.0.0.1:/ $M; cd $M; chmod 777 .
        dd if=/dev/zero of=w bs=4096 count=2 oflag=direct; dd if=w of=/dev/null bs=8192 count=1 iflag=direct
        dd if=/dev/zero of=c bs=1000 count=1 conv=fsync; mkdir d; mv c d/moved; ln w d/link; stat gone || :
        flock w true; rm -r d; setpriv --reuid 1234 --regid 5678 --clear-groups touch mine
        echo text >r; exec 5<r; read line <&5; echo more >>$E/r; exec 5<&-; cd /; umount $M
        mount -t nfs -o vers=4.2 [::1]:/ $M; dd if=$M/w of=/dev/null bs=8192 count=1 iflag=direct";
    let o = serve("arguments4", work, script);
    let writes = lines(&o, "write");
    let share = writes[0].split(' ').next_back().unwrap_or_default();
    assert!(share.ends_with("/run/nfs-e"), "{o:?}");
    // The client wants each of its direct writes on the disk at once. Others it commits.
    let direct = [0, 4096].map(|offset| format!("{offset} 4096 2 {share}/w {share}"));
    assert_eq!(writes[..2], direct.each_ref().map(String::as_str), "{o:?}");
    assert!(writes[2].starts_with("0 1000 ") && writes[2].contains(&format!("{share}/c ")), "{o:?}");
    assert_eq!(lines(&o, "wrote")[..2], ["0 4096 2"; 2], "{o:?}");
    let read = ["0 8192 w", "0 8192 w"];
    let reads: Vec<_> = lines(&o, "read").into_iter().filter(|l| l.ends_with(" w")).collect();
    assert_eq!(reads, read, "{o:?}");
    let got = lines(&o, "got");
    assert!(got.first() == Some(&"0 8192 1") && got.last() == Some(&"0 8192 1"), "{o:?}");
    let opened = lines(&o, "open");
    assert!(opened[0].starts_with("w ") && opened[0].ends_with(" nfs-e"), "{o:?}");
    assert!(opened.iter().any(|l| l.starts_with("mine ")), "{o:?}");
    assert!(["w", "c", "mine", "r"].iter().all(|name| lines(&o, "opened").contains(name)), "{o:?}");
    assert_eq!((lines(&o, "create"), lines(&o, "rename")), (vec!["d 2"], vec!["c moved"]), "{o:?}");
    assert_eq!((lines(&o, "link"), lines(&o, "gone")), (vec!["link"], vec!["1"]), "{o:?}");
    let mut removed = lines(&o, "remove");
    removed.sort_unstable();
    assert_eq!(removed, ["d 1", "link 4", "moved 5"], "{o:?}");
    // A client that has the file delegated locks it itself.
    assert!(lines(&o, "lock").iter().all(|l| l.ends_with(" 0 18446744073709551615")), "{o:?}");
    assert_eq!(lines(&o, "lock").is_empty(), lines(&o, "unlock").is_empty(), "{o:?}");
    let mut minor = lines(&o, "minor");
    minor.sort_unstable();
    assert_eq!(minor, ["1", "2"], "{o:?}");
    let mut ends = lines(&o, "ends");
    ends.sort_unstable();
    assert_eq!(ends, ["127.0.0.1 127.0.0.1 ipv4", "::1 ::1 ipv6"], "{o:?}");
    assert!(lines(&o, "who").contains(&"1234 5678") && lines(&o, "who").contains(&"0 0"), "{o:?}");
    // Whether the server delegates a file is its own decision.
    let recalled = lines(&o, "recall");
    assert_eq!(recalled.len(), lines(&o, "recalled").len(), "{o:?}");
    assert!(recalled.iter().all(|l| *l == "127.0.0.1 r"), "{o:?}");
    Pass
}

/// A compound of PUTROOTFH, GETFH and an operation that is refused, on a connection that is closed
/// with the answer unread.
fn a_compound_of_a_client_that_vanishes_has_its_operations_in_their_order() -> Verdict {
    if let Some(skip) = no_server() {
        return skip;
    }
    let script = "nfsv4:::compound-start { printf(\"step %s %x %s %d\\n\", probename, args[1]->noi_xid, \
        args[2]->tag.utf8string_val, args[2]->array_len); }
        nfsv4:::op-*-start { printf(\"step %s %x\\n\", probename, args[1]->noi_xid); }
        nfsv4:::op-putrootfh-done, nfsv4:::op-getfh-done, nfsv4:::op-restorefh-done
        { printf(\"step %s %d %s\\n\", probename, args[2]->status != 0, basename(args[1]->noi_curpath)); }
        nfsv4:::compound-done { printf(\"step %s %d %d\\n\", probename, args[2]->status != 0, args[2]->array_len); }";
    // The record's length, the transaction, call, RPC 2, the program, version 4, COMPOUND; the
    // credentials of root, and empty ones; the tag, version 0, four operations: 24, 10, 31 (nothing
    // was saved) and 10.
    let work = "count() { sed -n 's/^proc4 2 [0-9]* //p' /proc/net/rpc/nfsd; }; before=$(count) none='\\0\\0\\0\\0\\0\\0\\0\\0'
        exec 3<>/dev/tcp/127.0.0.1/2049
        printf '\\x80\\0\\0\\x5c\\x12\\x34\\x56\\x78\\0\\0\\0\\0\\0\\0\\0\\2\\0\\1\\x86\\xa3\\0\\0\\0\\4\\0\\0\\0\\1'\
        '\\0\\0\\0\\1\\0\\0\\0\\x14'$none$none$none'\\0\\0\\0\\0\\0\\0\\0\\3tag\\0\\0\\0\\0\\0\\0\\0\\0\\4'\
        '\\0\\0\\0\\x18\\0\\0\\0\\xa\\0\\0\\0\\x1f\\0\\0\\0\\xa' >&3
        for i in {1..500}; do test $(count) = $((before + 1)) && break; sleep 0.02; done; exec 3>&-";
    let o = serve("vanish4", work, script);
    assert_eq!(
        lines(&o, "step"),
        [
            "compound-start 12345678 tag 4",
            "op-putrootfh-start 12345678",
            "op-putrootfh-done 0 nfs-e",
            "op-getfh-start 12345678",
            "op-getfh-done 0 nfs-e",
            "op-restorefh-start 12345678",
            "op-restorefh-done 1 nfs-e",
            "compound-done 1 3",
        ],
        "{o:?}"
    );
    Pass
}
