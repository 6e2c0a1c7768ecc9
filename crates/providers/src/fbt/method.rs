//! Which means a kernel's functions are attached by.
//!
//! `kprobe_multi` wherever the kernel has it: one link for all, and nothing is lost where programs are preempted. Else each
//! function by itself: by a trampoline where the types tell the kernel what to make it of, by a kprobe where not.

use bpf::features::Facility;
use types::btf::{Btf, Def, KernelBtf};

use super::functions::Function;
use super::list::CORE;
use crate::registry::Env;
use crate::sites::AttachMethod;

/// What each means needs of the kernel.
const NEEDS: [(AttachMethod, Facility); 3] = [
    (AttachMethod::Multi, Facility::KprobeMulti),
    (AttachMethod::Fentry, Facility::Fentry),
    (AttachMethod::Kprobe, Facility::KprobePerf),
];

/// The means that is asked for, or the best that the kernel has.
pub(super) fn choose(env: &Env<'_>) -> Result<AttachMethod, String> {
    let mut why = String::new();
    for (method, facility) in NEEDS.iter().filter(|(m, _)| env.method.is_none_or(|only| only == *m)) {
        match env.features.why_not(*facility) {
            None => return Ok(*method),
            Some(reason) => why = format!("{} ({reason})", method.name()),
        }
    }
    Err(format!("this kernel lets no program attach to its functions by {why}"))
}

/// Where functions are attached one by one, many of them take minutes: only if the user wants it so.
pub(super) fn confirm(method: AttachMethod, count: usize, most: usize) -> Result<(), String> {
    let (attach, release) = method.cost_ms();
    if method == AttachMethod::Multi || count <= most {
        return Ok(());
    }
    let minutes = |ms: u64| (ms * count as u64).div_ceil(60_000);
    Err(format!(
        "this kernel attaches to its functions one by one: {count} take it about {} min, and about {} min to let go of; \
         -x fbtmax={count} allows it",
        minutes(attach),
        minutes(release)
    ))
}

/// Arguments that a trampoline carries at most.
const ARGUMENTS: usize = 6;

/// The means for one function, and its id in the kernel's types where it needs one.
pub(super) fn of_function(
    method: AttachMethod,
    kernel: &KernelBtf,
    function: &Function<'_>,
    address: u64,
    env: &Env<'_>,
) -> (AttachMethod, u32) {
    if method != AttachMethod::Fentry {
        return (method, 0);
    }
    // The kernel looks a trampoline's function up by its name, which must be the only one.
    let typed = (function.module == CORE && address != 0).then(|| kernel.vmlinux().ok()).flatten();
    let id = typed.and_then(|btf| {
        btf.func(function.name)
            .filter(|f| f.params.len() <= ARGUMENTS)
            .filter(|f| !f.params.iter().any(|p| by_value(btf, p.ty)))
    });
    match id {
        Some(f) => (AttachMethod::Fentry, f.id),
        None if env.method.is_none() && env.features.has(Facility::KprobePerf) => (AttachMethod::Kprobe, 0),
        None => (AttachMethod::Fentry, 0),
    }
}

/// The id in the kernel's types of a function whose result a program may give: whether it may the kernel says when the program is
/// loaded.
pub(super) fn giving(kernel: &KernelBtf, function: &Function<'_>, env: &Env<'_>) -> Result<u32, String> {
    if let Some(why) = env.features.why_not(Facility::ModifyReturn) {
        return Err(format!("this kernel lets no program give a function's result ({why})"));
    }
    let typed = (function.module == CORE).then(|| kernel.vmlinux().ok()).flatten();
    let Some((btf, found)) = typed.and_then(|btf| Some((btf, btf.func(function.name)?))) else {
        return Err("the kernel's types do not have this function".into());
    };
    match btf.def(btf.resolve(found.ret)) {
        Some(Def::Int { size: 4, .. }) => Ok(found.id),
        _ => Err("its result is no int".into()),
    }
}

/// A struct that is passed as it is, which not every kernel's trampolines can.
fn by_value(btf: &Btf, ty: u32) -> bool {
    ty == 0 || matches!(btf.def(btf.resolve(ty)), Some(Def::Sou { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_one_by_one_are_asked_about() {
        assert_eq!(confirm(AttachMethod::Multi, 50_000, 1000), Ok(()));
        assert_eq!(confirm(AttachMethod::Fentry, 1000, 1000), Ok(()));
        let why = confirm(AttachMethod::Fentry, 38_000, 1000).unwrap_err();
        assert!(why.contains("38000 take it about 6 min") && why.contains("-x fbtmax=38000"), "{why}");
    }
}
