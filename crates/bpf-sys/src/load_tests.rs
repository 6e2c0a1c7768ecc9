//! Tests of loading, on the running kernel.

use super::*;
use crate::insn::{Alu, Helper, Reg, Size};

fn line(n: u32, text: &str) -> SourceLine {
    SourceLine { file: "x.d".into(), line: n.into(), column: 2, text: text.into() }
}

/// A program whose second line dereferences a number.
fn bad() -> ProgramImage {
    let mut p = ProgramImage::new(
        "bad",
        ProgKind::RawTracepoint,
        vec![Insn::mov64_imm(Reg::R1, 8), Insn::ldx(Size::B8, Reg::R0, Reg::R1, 0), Insn::exit()],
    );
    p.lines = vec![(0, line(1, "x = 8;")), (1, line(2, "\ty = *x;"))];
    p
}

#[test]
fn a_rejected_program_names_the_source_line() {
    let e = bad().load(0).expect_err("the verifier must refuse this");
    if e.error.is_permission() && !e.is_rejection() {
        testing::skipped!("{e}");
        return;
    }
    assert_eq!(e.source, Some(line(2, "\ty = *x;")), "{e}\n{}", e.log);
    assert_eq!(e.insn.as_ref().map(|(slot, _)| *slot), Some(1));
    let text = e.to_string();
    assert!(text.contains("--> x.d:2:2\n   | \ty = *x;"), "{text}");
    assert!(text.contains("R1 invalid mem access"), "{text}");
    assert!(e.log.contains("; y = *x;"), "the kernel did not take our lines: {}", e.log);
}

#[test]
fn the_last_instruction_of_a_log_is_found() {
    let log = "0: R1=ctx() R10=fp0\n; x = 8;\n0: (b7) r1 = 8   ; R1=8\n12: (79) r0 = *(u64 *)(r1 +0)\n\
               R1 invalid mem access 'scalar'\nprocessed 2 insns (limit 1000000)\n";
    assert_eq!(last_slot(log), Some(12));
    assert_eq!(reason(log).as_deref(), Some("R1 invalid mem access 'scalar'"));
    let log = "BPF program is too large. Processed 1000001 insn\nverification time 16378385 usec\n\
               stack depth 0 max 0\ninsns processed 1000001\nprocessed 1000001 insns (limit 1000000)\n";
    assert_eq!(reason(log).as_deref(), Some("BPF program is too large. Processed 1000001 insn"));
    assert_eq!(last_slot("nothing here\n"), None);
}

#[test]
fn global_functions_and_callbacks_load_and_run() {
    // main: r0 = add_32(loop(10, callback, stack, 0)). The callback only returns "continue".
    const CALLBACK: u32 = 11;
    const ADD_32: u32 = 13;
    let mut insns = vec![Insn::st(Size::B8, Reg::R10, -8, 0), Insn::mov64_imm(Reg::R1, 10)];
    insns.extend(Insn::ld_func(Reg::R2, CALLBACK as i32 - 3)); // slots 2, 3
    insns.extend([
        Insn::mov64(Reg::R3, Reg::R10),
        Insn::alu64_imm(Alu::Add, Reg::R3, -8),
        Insn::mov64_imm(Reg::R4, 0),
        Insn::call(Helper::LOOP),
        Insn::mov64(Reg::R1, Reg::R0),
        Insn::call_pseudo(ADD_32 as i32 - 10), // slot 9
        Insn::exit(),
    ]);
    insns.extend([Insn::mov64_imm(Reg::R0, 0), Insn::exit()]);
    insns.extend([Insn::mov64(Reg::R0, Reg::R1), Insn::alu64_imm(Alu::Add, Reg::R0, 32), Insn::exit()]);
    let mut p = ProgramImage::new("funcs", ProgKind::RawTracepoint, insns);
    let f = |name: &str, start, params, global| Subprogram {
        name: name.into(),
        start,
        params: vec![Param::Word; params],
        global,
    };
    p.funcs =
        vec![f("main:entry", 0, 1, true), f("callback", CALLBACK, 2, false), f("add_32", ADD_32, 1, true)];
    p.lines = vec![(0, line(1, "main")), (ADD_32, line(3, "function"))];
    // Level 2, because at level 1 kernel 6.1 drops the messages of paths that verified.
    match p.load(2) {
        Ok(loaded) => {
            assert_eq!(loaded.prog.test_run(&[], None).expect("test run"), 42);
            assert!(loaded.log.contains("is safe for any args that match its prototype"), "{}", loaded.log);
        }
        Err(e) if e.error.is_permission() && !e.is_rejection() => testing::skipped!("{e}"),
        Err(e) => panic!("{e}\n{}", e.log),
    }
}

#[test]
fn a_log_longer_than_the_first_buffer_is_complete() {
    // Thousands of instructions before the error, so that the log exceeds the first buffer.
    let mut p = bad();
    let mut insns = vec![Insn::mov64_imm(Reg::R2, 1); 20_000];
    insns.append(&mut p.insns);
    p.insns = insns;
    p.lines = vec![(0, line(1, "filler")), (20_001, line(2, "fault"))];
    let e = p.load(0).expect_err("the verifier must refuse this");
    if e.error.is_permission() && !e.is_rejection() {
        testing::skipped!("{e}");
        return;
    }
    assert_eq!(e.source.as_ref().map(|s| s.line), Some(2), "{e}");
    assert!(e.log.len() > 1 << 16);
}

#[test]
fn a_program_that_is_too_complex_is_rejected_with_the_limit_and_a_short_log() {
    if std::env::var_os("DTRACE_IN_VM").is_some() {
        testing::skipped!("an emulated CPU takes a minute over it");
        return;
    }
    let p = ProgramImage::new(
        "endless",
        ProgKind::RawTracepoint,
        vec![
            Insn::mov64_imm(Reg::R1, 2_000_000),
            Insn::alu64_imm(Alu::Sub, Reg::R1, 1),
            Insn::jmp_imm(crate::insn::Jmp::Ne, Reg::R1, 0, -2),
            Insn::mov64_imm(Reg::R0, 0),
            Insn::exit(),
        ],
    );
    let e = p.load(0).expect_err("the verifier must give up");
    if e.error.is_permission() && !e.is_rejection() {
        testing::skipped!("{e}");
        return;
    }
    assert!(e.is_too_complex(), "{e}");
    assert!(e.to_string().contains("1000000 steps at most"), "{e}");
    assert!(e.log.len() < 4096, "{} bytes", e.log.len());
}

#[test]
fn copies_know_their_number() {
    let mut insns = Insn::ld_imm64(Reg::R0, 0).to_vec();
    insns.push(Insn::exit());
    let mut image = ProgramImage::new("copies", ProgKind::RawTracepoint, insns);
    image.copies = vec![0];
    let mut copies = Vec::new();
    let each = |prog| {
        copies.push(prog);
        true
    };
    match image.load_copies(3, 0, each) {
        Err(e) if e.error.is_permission() => testing::skipped!("{e}"),
        made => {
            made.unwrap();
            let numbers = copies.iter().map(|p| p.test_run(&[0; 2], None).unwrap()).collect::<Vec<_>>();
            assert_eq!(numbers, [0, 1, 2]);
        }
    }
}
