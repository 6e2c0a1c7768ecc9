//! What a stretch of code refers to: the addresses that it calls, jumps to, or takes.
//!
//! A symbol table tells functions from the parts of others, if the file has one. Otherwise who
//! reaches an address tells: what is called, or whose address is taken, is a function.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction as Decoded, Mnemonic, OpKind};

/// How code refers to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// It calls it.
    Call,
    /// It jumps to it.
    Jump,
    /// It computes it, or has it as a constant, which may be a number like any other.
    Address,
}

/// Calls `found` with each reference of the code at an address, in order. Bytes that are no
/// instruction are skipped.
pub fn references(bytes: &[u8], address: u64, mut found: impl FnMut(Reference, u64)) {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut decoded = Decoded::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut decoded);
        if let Some((reference, target)) = reference(&decoded) {
            found(reference, target);
        }
    }
}

fn reference(decoded: &Decoded) -> Option<(Reference, u64)> {
    match decoded.flow_control() {
        FlowControl::Call if decoded.code() == Code::Call_rel32_64 => {
            Some((Reference::Call, decoded.near_branch_target()))
        }
        FlowControl::UnconditionalBranch if decoded.is_jmp_short_or_near() => {
            Some((Reference::Jump, decoded.near_branch_target()))
        }
        FlowControl::ConditionalBranch => Some((Reference::Jump, decoded.near_branch_target())),
        FlowControl::Next => taken(decoded).map(|address| (Reference::Address, address)),
        _ => None,
    }
}

/// The address that an instruction may take.
fn taken(decoded: &Decoded) -> Option<u64> {
    match decoded.mnemonic() {
        Mnemonic::Lea if decoded.is_ip_rel_memory_operand() => Some(decoded.ip_rel_memory_address()),
        Mnemonic::Mov | Mnemonic::Push => {
            let last = decoded.op_count().checked_sub(1)?;
            let is_wide = matches!(
                decoded.op_kind(last),
                OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64
            );
            is_wide.then(|| decoded.immediate(last))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_jumps_and_addresses_are_found() {
        let code = [
            &[0xe8, 0xfb, 0x0f, 0, 0][..],                     // call 0x2000
            &[0x06, 0x90, 0x90],                               // no instruction
            &[0x74, 0xf6],                                     // je 0x1000
            &[0xe9, 0xf1, 0xff, 0xff, 0xff],                   // jmp 0x1000
            &[0x48, 0x8d, 0x05, 0x01, 0, 0, 0],                // lea 1(%rip),%rax
            &[0xbf, 0x00, 0x20, 0x40, 0],                      // mov $0x402000,%edi
            &[0x48, 0xb8, 1, 2, 0, 0, 0, 0, 0, 0],             // movabs $0x201,%rax
            &[0x83, 0xc0, 0x10, 0xff, 0xd0, 0xff, 0xe0, 0xc3], // add, call *%rax, jmp *%rax, ret
        ]
        .concat();
        let mut all = Vec::new();
        references(&code, 0x1000, |reference, target| all.push((reference, target)));
        assert_eq!(
            all,
            [
                (Reference::Call, 0x2000),
                (Reference::Jump, 0x1000),
                (Reference::Jump, 0x1000),
                (Reference::Address, 0x1017),
                (Reference::Address, 0x402000),
                (Reference::Address, 0x201),
            ]
        );
    }
}
