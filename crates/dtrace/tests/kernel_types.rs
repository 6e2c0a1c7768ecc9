//! The kernel's types cost a script nothing as long as it names none. The test has a process of its
//! own, because open BTF stays open. (The `syscall` provider reads BTF for its own probes and for
//! the ids of those behind them, so only probes before them are named here.)

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use dtrace::options::Options;
use dtrace::{Macros, Source, compile};
use types::btf::KernelBtf;

fn compiles(text: &str) {
    let source = Source::Script("x.d".into(), text.into());
    let program = compile(&dtrace::System::live(), &[source], &Macros::default(), &mut Options::default());
    program.unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn a_script_that_names_no_kernel_type_does_not_open_btf() {
    if !testing::alone!() {
        return;
    }
    let kernel = KernelBtf::running();
    compiles(
        "struct node { struct node *next; int value:3; uint8_t name[16]; };\n\
         typedef struct node node_t;\n\
         typedef unsigned int u32;\n\
         inline int N = 3;\n\
         int total, list[4]; string texts[int, string]; self int depth;\n\
         BEGIN { x = 1; y = (x) - 1; z = (timestamp) - (y) * (x) & (N); this->p = (node_t *)arg0; }\n\
         END /(pid) == $pid && ((struct node *)arg1)->next != NULL/\n\
         { this->h = (hrtime_t)timestamp; this->b = (boolean_t)B_TRUE; this->z = (zoneid_t)ARPHRD_ETHER; this->u = (uid_t)uid; \
         total += (u32)arg0 + sizeof (x) + sizeof (list); self->depth++; texts[1, execname] = probefunc; @[pid] = sum((arg0) & 7); }\n",
    );
    assert!(!kernel.is_open());
    compiles("BEGIN { this->t = (struct task_struct *)arg0; }");
    assert!(kernel.is_open());
}
