//! The types of a function's arguments and of its result, from the BTF of the kernel or of the
//! module.

use std::sync::Arc;

use probes::{ArgType, Args};
use types::btf::{Btf, Def, KernelBtf};

/// The size of a register in bytes.
const REGISTER: u32 = 8;

/// The arguments at a function's entry.
pub(super) fn at_entry(kernel: &KernelBtf, module: &str, function: &str) -> Args {
    let btf = btf(kernel, module)?;
    let function = btf.func(function).ok_or_else(|| unknown(function))?;
    let mut types = Vec::new();
    let mut register = 0;
    for param in &function.params {
        // Variable arguments (`...`) have no type.
        if param.ty == 0 {
            break;
        }
        let in_registers = match size_by_value(&btf, param.ty) {
            None => {
                types.push(ArgType::btf(register, &btf, param.ty));
                1
            }
            // A small struct is passed in one or two registers. (It has no address, which `args[]`
            // of a struct would be.)
            Some(size) if size <= 2 * REGISTER => {
                types.push(ArgType::text(register, "uint64_t"));
                size.div_ceil(REGISTER)
            }
            // A large one is on the stack, and moves the arguments after it.
            Some(_) => break,
        };
        register += in_registers as u8;
    }
    Ok(types.into())
}

/// The arguments at a function's return: `args[1]` is the result.
pub(super) fn at_return(kernel: &KernelBtf, module: &str, function: &str) -> Args {
    let btf = btf(kernel, module)?;
    let function = btf.func(function).ok_or_else(|| unknown(function))?;
    let offset = ArgType::text(0, "int");
    Ok(match (function.ret, size_by_value(&btf, function.ret)) {
        (0, _) => [offset].into(),
        (ret, None) => [offset, ArgType::btf(1, &btf, ret)].into(),
        (_, Some(_)) => [offset, ArgType::text(1, "uint64_t")].into(),
    })
}

fn btf(kernel: &KernelBtf, module: &str) -> Result<Arc<Btf>, String> {
    if let Err(e) = kernel.vmlinux() {
        return Err(format!("this kernel does not show its types ({e})"));
    }
    kernel.module(module).ok_or_else(|| format!("module {module} does not show its types"))
}

fn unknown(function: &str) -> String {
    match function.contains('.') {
        true => format!("the compiler made {function}, and its arguments need not be those of the source"),
        false => format!("the kernel's types do not say what {function} takes"),
    }
}

/// The size in bytes of a struct or union that is passed by value.
fn size_by_value(btf: &Btf, ty: u32) -> Option<u32> {
    match btf.def(btf.resolve(ty)) {
        Some(Def::Sou { .. }) => btf.size(ty),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use types::Types;
    use types::btf::synth::Builder;

    use super::*;

    #[test]
    fn structs_in_registers_move_the_arguments_after_them() {
        let mut s = Builder::default();
        let int = s.int("int", 4, 1);
        let pointer = s.pointer(int);
        let pair = s.sou(false, "pair", 16, &[("a", pointer, 0), ("b", pointer, 64)]);
        let large = s.sou(false, "large", 24, &[("a", pointer, 0)]);
        s.func("f", int, &[("p", pointer), ("pair", pair), ("n", int), ("large", large), ("m", int)]);
        s.func("nothing", 0, &[]);
        let kernel = KernelBtf::from_btf(Btf::parse(s.finish(), None).unwrap());
        let types = Types::new();
        let shown = |args: Args| -> Vec<String> {
            args.unwrap().iter().map(|a| format!("{} {}", a.from, a.name(&types))).collect()
        };
        assert_eq!(shown(at_entry(&kernel, "vmlinux", "f")), ["0 int *", "1 uint64_t", "3 int"]);
        assert_eq!(shown(at_return(&kernel, "vmlinux", "f")), ["0 int", "1 int"]);
        assert_eq!(shown(at_return(&kernel, "vmlinux", "nothing")), ["0 int"]);
        assert!(at_entry(&kernel, "vmlinux", "f.isra.0").unwrap_err().contains("compiler"));
        assert!(at_entry(&kernel, "vmlinux", "g").is_err() && at_entry(&kernel, "nfs", "f").is_err());
    }
}
