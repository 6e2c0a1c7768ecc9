//! Scripts for other systems: what is said of their words, and that what is said exists.

use crate::Verdict::{self, Pass, Skip};
use crate::machine::no_functions;
use crate::tool::dtrace;

tests! {
    what_linux_has_in_place_of_a_foreign_word_exists
    a_foreign_word_is_answered_with_what_linux_has
    load_averages_have_the_scale_that_scripts_expect
}

const TABLE: &str = include_str!("../../../check/src/foreign.txt");

/// The descriptions of probes in the table.
fn descriptions() -> Vec<&'static str> {
    let rows = TABLE.lines().filter(|l| !l.starts_with('#')).filter_map(|l| l.rsplit('\t').next());
    rows.flat_map(|text| text.split('`').skip(1).step_by(2))
        .filter(|quoted| quoted.matches(':').count() == 3)
        .collect()
}

fn what_linux_has_in_place_of_a_foreign_word_exists() -> Verdict {
    let all = descriptions();
    assert!(all.len() > 100, "{all:?}");
    // Modules need not be loaded, and a process is none of the table's.
    let is_here = |text: &&&str| {
        let fields: Vec<&str> = text.split(':').collect();
        let of_module = !fields[1].is_empty() && ["fbt", "sdt"].contains(&fields[0]);
        let is_module = of_module && std::fs::metadata(format!("/sys/module/{}", fields[1])).is_err();
        let is_scsi = text.contains("scsi");
        let is_nfs = fields[0].starts_with("nfs");
        !is_scsi
            && !is_nfs
            && !fields[0].contains('$')
            && (fields[0] != "fbt" || no_functions().is_none() && !is_module)
            && (fields[0] != "sdt" || !["xen", "scsi"].contains(&fields[1]))
    };
    let here: Vec<&&str> = all.iter().filter(is_here).collect();
    assert!(here.len() > 60, "{here:?}");
    for some in here.chunks(40) {
        let names = some.iter().flat_map(|text| ["-n", **text]);
        let o = dtrace(&["-l"].into_iter().chain(names).collect::<Vec<_>>());
        // A probe that another kernel has is not a wrong name.
        let wrong: Vec<&str> =
            o.err.lines().filter(|l| l.contains("match") && !l.contains("this kernel")).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
    Pass
}

fn a_foreign_word_is_answered_with_what_linux_has() -> Verdict {
    for (script, says) in [
        ("fbt::fop_read:entry { trace(1); }", "`fsinfo:::read`"),
        ("fbt::zio_done:return { trace(1); }", "where the module zfs is loaded"),
        ("vfs:namei:lookup:entry { trace(1); }", "`fsinfo:::`"),
        ("syscall::open_nocancel:entry { trace(1); }", "`syscall::openat:entry`, whose path is arg1"),
        ("BEGIN { trace(((vnode_t *)0)->v_path); }", "`struct inode`"),
        ("BEGIN { trace(curproc); }", "`curthread->group_leader`"),
    ] {
        let o = dtrace(&["-n", script]).code(1);
        let help = o.err.lines().find(|l| l.contains("a word of other systems; Linux has ")).unwrap_or("");
        assert!(help.contains(says), "{script}: {o:?}");
    }
    let o = dtrace(&["-n", "mib:::tcpInDupAck { trace(1); }"]).code(1);
    assert!(o.err.contains("Linux counts no duplicate acknowledgments"), "{o:?}");
    Pass
}

fn load_averages_have_the_scale_that_scripts_expect() -> Verdict {
    let script = "BEGIN { this->own = `avenrun[0]; this->theirs = `hp_avenrun[0];
        printf(\"%d\", `avenrun[0] != this->own || this->theirs == this->own << 5); exit(0); }";
    let o = dtrace(&["-qn", script]);
    if o.err.contains("symbol table") {
        return Skip("the kernel's symbol table has functions only".into());
    }
    assert_eq!(o.code(0).out.trim(), "1");
    Pass
}
