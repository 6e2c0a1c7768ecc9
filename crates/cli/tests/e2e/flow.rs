//! `-F`: calls indented by entry and return.

use crate::Verdict::{self, Pass, Skip};
use crate::machine::{attaches_to_all_functions, no_functions};
use crate::tool::{Output, dtrace, finish, start, suppressed, workload};

tests! {
    calls_are_indented_by_their_depth clauses_of_one_firing_get_one_arrow
    indentation_follows_a_thread_to_another_cpu a_system_calls_functions_form_a_tree
}

/// The rows without the CPU column.
#[track_caller]
fn rows(o: &Output) -> Vec<&str> {
    let mut lines = o.out.lines();
    assert_eq!(lines.next(), Some("CPU FUNCTION                                 "), "{o:?}");
    let rows: Vec<&str> = lines.take_while(|l| !l.is_empty()).collect();
    let cpu = rows.first().and_then(|r| r.get(..3)).unwrap_or_else(|| panic!("no rows: {o:?}"));
    assert!(rows.iter().all(|r| r.get(..3) == Some(cpu)), "more than one CPU: {o:?}");
    rows.iter().map(|r| r.get(4..).unwrap_or_default()).collect()
}

fn calls_are_indented_by_their_depth() -> Verdict {
    let program = "syscall::getppid:entry, syscall::getppid:return /pid == $target/ { }";
    let o = dtrace(&["-F", "-c", &workload("pinned", 3), "-n", program]).code(0);
    let call = [format!("{:<41} ", " => getppid"), format!("{:<41} ", " <= getppid")];
    assert_eq!(rows(&o), [&call[0], &call[1], &call[0], &call[1], &call[0], &call[1]], "{o:?}");
    Pass
}

fn clauses_of_one_firing_get_one_arrow() -> Verdict {
    let program = "syscall::getppid:entry /pid == $target/ { } \
                   syscall::getppid:entry /pid == $target/ { trace(1); } \
                   syscall::getppid:return /pid == $target/ { trace(2); } \
                   syscall::getppid:return /pid == $target/ { trace(3); }";
    let o = dtrace(&["-F", "-c", &workload("pinned", 1), "-n", program]).code(0);
    let expected = [
        format!("{:<41} ", " => getppid"),
        format!("{:<41}  {:>8}", "  | getppid:entry", 1),
        format!("{:<41}  {:>8}", "  | getppid:return", 2),
        format!("{:<41}  {:>8}", " <= getppid", 3),
    ];
    assert_eq!(rows(&o), expected, "{o:?}");
    Pass
}

fn indentation_follows_a_thread_to_another_cpu() -> Verdict {
    let program = "syscall::sched_setaffinity: /pid == $target/ { }";
    let o = dtrace(&["-F", "-c", &workload("hop", 4), "-n", program]).code(0);
    let lines: Vec<&str> = o.out.lines().skip(1).take_while(|l| !l.is_empty()).collect();
    if lines.is_empty() {
        return Skip("there is one CPU only".into());
    }
    // The C library or the loader may have made calls too.
    let cpu = |l: &str| l.get(..3).unwrap_or_default().to_string();
    let calls: Vec<&[&str]> = lines.chunks(2).collect();
    assert!(calls.len() >= 5, "{o:?}");
    for call in &calls {
        let [entered, left] = call else { panic!("half a call: {o:?}") };
        assert_eq!(entered.get(4..).map(str::trim_end), Some(" => sched_setaffinity"), "{o:?}");
        assert_eq!(left.get(4..).map(str::trim_end), Some(" <= sched_setaffinity"), "{o:?}");
    }
    assert!(calls.iter().filter(|c| cpu(c[0]) != cpu(c[1])).count() >= 4, "it did not move: {o:?}");
    Pass
}

/// The kernel functions that open a file, from a mark of the workload on: the script of the book's
/// example.
fn talk(functions: &str) -> String {
    format!(
        "syscall::getppid:return /pid == $target/ {{ self->go = 1; }} \
         syscall::openat:entry /self->go/ {{ self->t = 1; }} \
         syscall::openat:return /self->t/ {{ self->t = 0; }} \
         {functions} /self->t/ {{ }}"
    )
}

/// A parsed row.
#[derive(Clone, Copy, Debug)]
struct Row<'o> {
    indent: usize,
    enters: bool,
    function: &'o str,
}

fn row(text: &str) -> Row<'_> {
    let indent = text.len() - text.trim_start().len();
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        ["->", function] => Row { indent, enters: true, function },
        ["<-", function] => Row { indent, enters: false, function },
        _ => panic!("no call: {text:?}"),
    }
}

/// A call of the outermost function.
struct Tree<'o> {
    rows: &'o [Row<'o>],
    /// Entry rows without return row, or the reverse.
    halves: i64,
}

impl Tree<'_> {
    /// Whether this function calls that one, directly or indirectly.
    fn calls(&self, outer: &str, inner: &str) -> bool {
        let enters = |r: &&Row<'_>, name: &str| r.enters && r.function.starts_with(name);
        let mut rows = self.rows.iter();
        let Some(from) = rows.by_ref().find(|r| enters(r, outer)) else { return false };
        rows.take_while(|r| r.indent > from.indent).any(|r| enters(&r, inner))
    }
}

/// The calls, checked to nest: a call is indented one step more than its caller, and its return has
/// the indentation of its entry.
#[track_caller]
fn trees<'o>(rows: &'o [Row<'o>]) -> Vec<Tree<'o>> {
    let mut all = Vec::new();
    let (mut open, mut begin, mut halves): (Vec<Row<'_>>, _, _) = (Vec::new(), 0, 0);
    for (at, row) in rows.iter().enumerate() {
        let context = || format!("{:#?}\nopen: {open:#?}", &rows[at.saturating_sub(20)..=at]);
        if row.enters {
            assert_eq!(row.indent, 1 + 2 * open.len(), "{}", context());
            open.push(*row);
            continue;
        }
        // For an interrupt, only the first and last function appear in the interrupted thread, each
        // without its counterpart.
        let of = |r: &Row<'_>| {
            r.function == row.function || (r.function, row.function) == ("irq_enter_rcu", "irq_exit_rcu")
        };
        let Some(entered) = open.iter().rposition(of) else {
            assert_eq!(row.indent, 1 + 2 * open.len(), "{}", context());
            halves += 1;
            continue;
        };
        assert_eq!(row.indent, open[entered].indent, "{}", context());
        halves += (open.len() - entered - 1) as i64;
        open.truncate(entered);
        if open.is_empty() {
            all.push(Tree { rows: &rows[begin..=at], halves });
            (begin, halves) = (at + 1, 0);
        }
    }
    assert!(open.is_empty() && halves == 0, "left open: {open:#?}, {halves} halves");
    all
}

fn a_system_calls_functions_form_a_tree() -> Verdict {
    if let Some(skip) = no_functions() {
        return skip;
    }
    // Names that exist on at least one of the kernels.
    let some = "fbt::do_sys_openat2:,fbt::do_filp_open:,fbt::path_openat:,fbt::do_dentry_open:,fbt::getname_flags:,\
                fbt::alloc_empty_file:,fbt::alloc_fd:,fbt::fd_install:,fbt::complete_walk:,fbt::terminate_walk:";
    let functions = if attaches_to_all_functions("7.2") { "fbt:::" } else { some };
    let program = talk(functions);
    let calls = 5;
    let child = start(&["-F", "-Z", "-c", &workload("pinnedopen", calls), "-n", &program]);
    let o = finish(child).code(0);
    assert!(!o.err.contains(" drops"), "{o:?}");
    let texts = rows(&o);
    let rows: Vec<Row<'_>> = texts.iter().map(|t| row(t)).collect();
    let trees = trees(&rows);
    assert_eq!(trees.len(), calls as usize, "{o:?}");
    let halves: i64 = trees.iter().map(|t| t.halves).sum();
    assert!(halves <= suppressed(&o), "{halves} halves: {o:?}");
    assert!(trees.iter().any(|t| t.halves == 0), "no call nests: {o:?}");
    for tree in trees {
        assert_eq!(tree.rows.last().map(|r| r.function), Some(tree.rows[0].function));
        assert!(tree.calls("do_sys_openat2", "path_openat"), "{o:?}");
        assert!(tree.calls("path_openat", "do_dentry_open"), "{o:?}");
        assert!(!tree.calls("do_dentry_open", "path_openat"), "{o:?}");
        assert!(functions != "fbt:::" || tree.rows[0].function.ends_with("_sys_openat"), "{o:?}");
    }
    Pass
}
