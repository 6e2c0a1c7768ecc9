//! Scripts of other systems. A name that has no meaning on Linux is rejected with its reason, and
//! so is a name that is not supported yet. Nothing is silently ignored.

use crate::Verdict::{self, Pass};
use crate::tool::dtrace;

tests! {
    functions_of_other_systems_are_rejected_by_name actions_of_other_systems_are_rejected_by_name
    variables_of_other_systems_are_rejected_by_name
    constants_of_other_systems_are_rejected_by_name size_modifiers_in_conversions_are_accepted
}

/// Checks that the script is rejected with this tag and message.
#[track_caller]
fn refused(script: &str, tag: &str, says: &str) {
    let o = dtrace(&["-xerrtags", "-e", "-n", script]).code(1);
    assert!(o.err.contains(&format!("[{tag}]")) && o.err.contains(says), "{script}\n{}", o.err);
}

fn functions_of_other_systems_are_rejected_by_name() -> Verdict {
    for call in [
        "sx_shared_held(0)",
        "sx_exclusive_held(0)",
        "sx_isexclusive(0)",
        "mtons(1)",
        "kdebug_trace(1)",
        "kdebug_trace_string(1)",
        "vm_kernel_addrperm(0)",
        "ptrauth_strip(0)",
        "msgsize(0)",
        "msgdsize(0)",
        "ddi_pathname(0, 0)",
    ] {
        let name = call.split('(').next().unwrap_or(call);
        refused(
            &format!("BEGIN {{ trace({call}); }}"),
            "D_UNSUPPORTED",
            &format!("{name}() is not available"),
        );
    }
    Pass
}

fn actions_of_other_systems_are_rejected_by_name() -> Verdict {
    for call in ["panic()", "breakpoint()"] {
        let name = call.split('(').next().unwrap_or(call);
        refused(&format!("BEGIN {{ {call}; }}"), "D_UNSUPPORTED", &format!("{name}() is not available"));
    }
    refused("BEGIN { pidresume(1); }", "D_FUNC_UNDEF", "undefined function name: pidresume");
    Pass
}

fn variables_of_other_systems_are_rejected_by_name() -> Verdict {
    for name in ["jid", "jailname", "machtimestamp", "pthread_self", "dispatchqaddr"] {
        refused(
            &format!("BEGIN {{ trace({name}); }}"),
            "D_VAR_UNSUP",
            &format!("built-in variable '{name}' has no meaning on Linux: "),
        );
    }
    Pass
}

fn constants_of_other_systems_are_rejected_by_name() -> Verdict {
    let script = "BEGIN { printf(\"%d %d %d %d %d %d %d %d %d\", CLD_EXITED, SI_USER, DTRACEFLT_BADADDR, F_GETFL, \
                  IPPROTO_TCP, RW_READER, SRUN, TH_SYN, TCP_STATE_ESTABLISHED); exit(0); }";
    let o = dtrace(&["-qn", script]).code(0);
    assert_eq!(o.out.trim(), "1 0 1 3 6 1 2 2 1");
    Pass
}

// row conversion.sized, conversion.wide, conversion.P, conversion.I
fn size_modifiers_in_conversions_are_accepted() -> Verdict {
    let script = "BEGIN { printf(\"%hd %lld %llx %ls %wc\", (short)-5, (long long)7, (int64_t)255, \"abc\", 'x'); \
                  printf(\" %P\", (uint16_t)0); printf(\" %I\", \"no address\"); exit(0); }";
    let o = dtrace(&["-qn", script]).code(0);
    assert_eq!(o.out.trim(), "-5 7 ff abc x 0 no address");
    refused("BEGIN { printf(\"%lx\", 1); }", "D_PRINTF_ARG_TYPE", "");
    Pass
}
