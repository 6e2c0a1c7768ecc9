//! The choice of the method that attaches to functions of the kernel.
//!
//! `kprobe_multi` if the kernel has it: one link serves all functions, and no firing is lost if a
//! program is preempted. Else each function is attached to by itself: by a trampoline if BTF has
//! the function, by a kprobe if not.

use bpf_sys::features::Facility;
use types::btf::{Btf, Def, KernelBtf};

use super::functions::Function;
use super::list::CORE;
use crate::contract::Env;
use crate::contract::method::FunctionMethod;

/// The facility of the kernel that each method needs.
const NEEDS: [(FunctionMethod, Facility); 3] = [
    (FunctionMethod::Multi, Facility::KprobeMulti),
    (FunctionMethod::Fentry, Facility::Fentry),
    (FunctionMethod::Kprobe, Facility::KprobePerf),
];

/// The method that the user asks for, or the best that the kernel has.
pub(super) fn choose(env: &Env<'_>) -> Result<FunctionMethod, String> {
    let mut why = String::new();
    for (method, facility) in NEEDS.iter().filter(|(m, _)| env.method.is_none_or(|only| only == *m)) {
        match env.features.why_not(*facility) {
            None => return Ok(*method),
            Some(reason) => why = format!("{} ({reason})", method.name()),
        }
    }
    Err(format!("this kernel lets no program attach to its functions by {why}"))
}

/// Refuses to attach to many functions one by one, which takes minutes, unless the user allows so
/// many.
pub(super) fn confirm(method: FunctionMethod, count: usize, most: usize) -> Result<(), String> {
    let (attach, detach) = method.cost_ms();
    if method == FunctionMethod::Multi || count <= most {
        return Ok(());
    }
    let minutes = |ms: u64| (ms * count as u64).div_ceil(60_000);
    Err(format!(
        "this kernel attaches to its functions one by one: {count} take about {} min to attach, and about {} min to detach; \
         -x fbtmax={count} allows it",
        minutes(attach),
        minutes(detach)
    ))
}

/// The greatest number of arguments of a function that a trampoline takes.
const ARGUMENTS: usize = 6;

/// The method for one function, and the function's BTF id if the method needs it.
pub(super) fn of_function(
    method: FunctionMethod,
    kernel: &KernelBtf,
    function: &Function<'_>,
    address: u64,
    env: &Env<'_>,
) -> (FunctionMethod, u32) {
    if method != FunctionMethod::Fentry {
        return (method, 0);
    }
    // The kernel finds a trampoline's function by its name, which must be unique.
    let typed = (function.module == CORE && address != 0).then(|| kernel.vmlinux().ok()).flatten();
    let id = typed.and_then(|btf| {
        btf.func(function.name)
            .filter(|f| f.params.len() <= ARGUMENTS)
            .filter(|f| !f.params.iter().any(|p| by_value(btf, p.ty)))
    });
    match id {
        Some(f) => (FunctionMethod::Fentry, f.id),
        None if env.method.is_none() && env.features.has(Facility::KprobePerf) => (FunctionMethod::Kprobe, 0),
        None => (FunctionMethod::Fentry, 0),
    }
}

/// The BTF id of a function whose result a clause sets. Whether that is allowed, the kernel decides
/// when the program is loaded.
pub(super) fn modify_return_target(
    kernel: &KernelBtf,
    function: &Function<'_>,
    env: &Env<'_>,
) -> Result<u32, String> {
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

/// True for a struct that is passed by value. Not every kernel's trampolines support it.
fn by_value(btf: &Btf, ty: u32) -> bool {
    ty == 0 || matches!(btf.def(btf.resolve(ty)), Some(Def::Sou { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attaching_to_many_functions_one_by_one_needs_the_option() {
        assert_eq!(confirm(FunctionMethod::Multi, 50_000, 1000), Ok(()));
        assert_eq!(confirm(FunctionMethod::Fentry, 1000, 1000), Ok(()));
        let why = confirm(FunctionMethod::Fentry, 38_000, 1000).unwrap_err();
        assert!(why.contains("38000 take about 6 min") && why.contains("-x fbtmax=38000"), "{why}");
    }
}
