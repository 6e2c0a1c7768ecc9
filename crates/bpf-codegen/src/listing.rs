//! Code before it is loaded, as text for golden files and `-x bpflog`.

use std::collections::BTreeMap;
use std::fmt::Write;

use bpf_sys::disasm::{one, target};
use bpf_sys::insn::op;

use crate::emit::Code;
use crate::mir::{MapRef, Param};

/// Lists code before it is loaded, with the names of its functions and maps.
pub fn symbolic(code: &Code) -> String {
    let mut out = String::new();
    let maps: BTreeMap<u32, MapRef> = code.relocs.iter().copied().collect();
    let name = |slot: i64| code.funcs.iter().find(|f| i64::from(f.start) == slot).map(|f| f.name.as_str());
    let mut at = 0;
    while let Some(insn) = code.insns.get(at) {
        if let Some(f) = code.funcs.iter().find(|f| f.start as usize == at) {
            let params: Vec<String> = match at {
                0 => vec!["context".into()],
                _ => f.params.iter().map(Param::to_string).collect(),
            };
            let kind = if f.global || at == 0 { "" } else { "static " };
            let gap = if at == 0 { "" } else { "\n" };
            let _ = writeln!(out, "{gap}{kind}{}({}):", f.name, params.join(", "));
        }
        let (text, slots) = one(&code.insns, at);
        let called = || name(target(at, insn.imm));
        let text = match (maps.get(&(at as u32)), insn.src()) {
            (Some(map), op::PSEUDO_MAP_VALUE) => {
                let offset = code.insns.get(at + 1).map_or(0, |high| high.imm);
                format!("r{} = &{map:?}[{offset}]", insn.dst())
            }
            (Some(map), _) => format!("r{} = {map:?}", insn.dst()),
            (None, op::PSEUDO_CALL) if insn.code == op::JMP | op::CALL => {
                called().map_or(text, |f| format!("call {f}"))
            }
            (None, op::PSEUDO_FUNC) if insn.is_wide() => {
                called().map_or(text, |f| format!("r{} = {f}", insn.dst()))
            }
            _ => text,
        };
        let _ = writeln!(out, "{at:4}  {text}");
        at += slots;
    }
    out
}
