//! The provider iscsi, with the kernel's target and initiators over loopback.

use std::path::Path;

use crate::Verdict::{self, Pass, Skip};
use crate::blocks::run;
use crate::iscsi_initiator::{LUN, PORT, TARGET};
use crate::machine::{is_guest, no_functions, no_types};
use crate::tool::{Output, dtrace, workload};

tests! {
    each_pdu_of_a_target_is_told_once_with_its_members
}

/// Why this machine has no target of iSCSI, if so. Makes one with a disk in memory.
fn no_target() -> Option<Verdict> {
    if !is_guest() {
        return Some(Skip("starts a target of the kernel: in guests only".into()));
    }
    if let Some(skip) = no_functions().or_else(no_types) {
        return Some(skip);
    }
    let config = "/sys/kernel/config";
    if let Err(why) = run(&format!(
        "modprobe -a target_core_mod iscsi_target_mod
        mountpoint -q {config} || mount -t configfs configfs {config}"
    )) {
        return Some(Skip(format!("no target of iSCSI: {why}")));
    }
    // Another test has made it.
    if Path::new(config).join("target/iscsi").join(TARGET).exists() {
        return None;
    }
    let made = run(&format!(
        "set -e
        cd {config}/target
        mkdir -p core/rd_mcp_0/ram
        echo rd_pages=1024 >core/rd_mcp_0/ram/control
        echo 1 >core/rd_mcp_0/ram/enable
        mkdir -p iscsi/{TARGET}/tpgt_1/lun/lun_{LUN}
        ln -s $PWD/core/rd_mcp_0/ram iscsi/{TARGET}/tpgt_1/lun/lun_{LUN}/ram
        cd iscsi/{TARGET}/tpgt_1
        echo 0 >attrib/authentication
        echo 1 >attrib/generate_node_acls
        echo 0 >attrib/demo_mode_write_protect
        mkdir np/127.0.0.1:{PORT} np/[::1]:{PORT}
        echo 1 >enable"
    ));
    made.unwrap();
    None
}

/// The rest of the lines that begin with a word.
fn lines<'a>(o: &'a Output, word: &str) -> Vec<&'a str> {
    let mut lines: Vec<&str> =
        o.out.lines().filter_map(|l| l.strip_prefix(word)?.strip_prefix(' ')).collect();
    lines.sort_unstable();
    lines
}

/// Prints each PDU with its members.
const ALL: &str = r#"iscsi:::
{
    printf("pdu %s|%s|%s|%s|%s|%s|%s|%s|%d|%x|%x|%d|%d|%d|%d|%x|", probename, args[0]->ci_local,
        args[0]->ci_remote, args[0]->ci_protocol, args[1]->ii_target, args[1]->ii_initiator,
        args[1]->ii_isid, args[1]->ii_transport, args[1]->ii_lun, args[1]->ii_itt, args[1]->ii_ttt,
        args[1]->ii_cmdsn, args[1]->ii_statsn, args[1]->ii_datasn, args[1]->ii_datalen, args[1]->ii_flags);
}
iscsi:::scsi-command
{
    this->cdb = (uint64_t *)args[2]->ic_cdb;
    printf("%016x%016x", htonll(this->cdb[0]), htonll(this->cdb[1]));
}
iscsi::: { printf("\n"); }
"#;

fn each_pdu_of_a_target_is_told_once_with_its_members() -> Verdict {
    if let Some(skip) = no_target() {
        return skip;
    }
    let o = dtrace(&["-q", "-c", &workload("iscsi", 1), "-n", ALL]).code(0);
    let (told, seen) = (lines(&o, "told"), lines(&o, "pdu"));
    let names: std::collections::BTreeSet<_> = told.iter().filter_map(|l| l.split('|').next()).collect();
    assert_eq!(names.len(), 15, "{names:?} {o:?}");
    assert_eq!(seen, told, "{o:?}");
    Pass
}
