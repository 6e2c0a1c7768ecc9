//! Operands of all forms, written and read; mutations of them.

use testing::rng::Rng;

use super::*;
use crate::argument::{Address, Register};

fn x86(text: &str) -> Argument {
    Machine::X86_64.argument(text)
}

fn register(number: u8, first: u8, bytes: u8) -> Source {
    Source::Register(Register { number, first, bytes })
}

fn memory(base: Option<u8>, offset: i64) -> Address {
    Address { base, offset, ..Address::default() }
}

fn why(machine: Machine, text: &str) -> String {
    match machine.argument(text).source {
        Source::Unreadable(why) => why,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn sizes_and_signs_are_those_of_the_note() {
    for (text, size, signed) in [
        ("1@%al", 1, false),
        ("-1@%al", 1, true),
        ("2@%ax", 2, false),
        ("-2@%ax", 2, true),
        ("4@%eax", 4, false),
        ("-4@%eax", 4, true),
        ("8@%rax", 8, false),
        ("-8@%rax", 8, true),
        // Without a size.
        ("%eax", 4, false),
        ("%rax", 8, false),
        ("$1", 8, false),
    ] {
        assert_eq!((x86(text).size, x86(text).signed), (size, signed), "{text}");
    }
    assert!(why(Machine::X86_64, "3@%eax").contains("1, 2, 4 or 8"));
    assert!(why(Machine::X86_64, "-@%eax").contains("no operand"));
}

#[test]
fn every_register_has_its_parts() {
    let (rax, rdi, r8, r15) = (0, 5, 8, 15);
    for (text, source) in [
        ("8@%rax", register(rax, 0, 8)),
        ("4@%eax", register(rax, 0, 4)),
        ("2@%ax", register(rax, 0, 2)),
        ("1@%al", register(rax, 0, 1)),
        ("1@%ah", register(rax, 1, 1)),
        ("1@%dil", register(rdi, 0, 1)),
        ("8@%r8", register(r8, 0, 8)),
        ("4@%r8d", register(r8, 0, 4)),
        ("2@%r15w", register(r15, 0, 2)),
        ("1@%r15b", register(r15, 0, 1)),
    ] {
        assert_eq!(x86(text).source, source, "{text}");
    }
    for number in 0..16 {
        let name = Machine::X86_64.register_name(number).unwrap();
        assert_eq!(x86(&format!("8@%{name}")).source, register(number, 0, 8));
    }
    assert_eq!(Machine::X86_64.register_name(16), None);
    for text in ["8@%xmm0", "8@%st", "8@%rip", "8@%", "8@%r16", "8@%mm1"] {
        assert!(why(Machine::X86_64, text).contains("holds no integer"), "{text}");
    }
    assert!(why(Machine::X86_64, "8@%fs:0x10").contains("memory of a segment"));
}

#[test]
fn constants_are_numbers() {
    for (text, value) in [
        ("-4@$-1", -1),
        ("4@$4294967295", 4_294_967_295),
        ("8@$0x10", 16),
        ("8@$18446744073709551615", -1),
        ("-8@$3+4", 7),
    ] {
        assert_eq!(x86(text).source, Source::Constant(value), "{text}");
    }
    assert!(why(Machine::X86_64, "8@$.LC0").contains("fixed when the program is linked"));
    assert!(why(Machine::X86_64, "8@$").contains("no number"));
}

#[test]
fn memory_is_a_sum_of_registers_a_symbol_and_a_number() {
    let (rax, rcx, rbp, rsp) = (Some(0), 2, Some(6), Some(7));
    let symbol = |name: &str, address: Address| Address { symbol: Some(name.into()), ..address };
    for (text, address) in [
        ("4@(%rax)", memory(rax, 0)),
        ("4@-20(%rbp)", memory(rbp, -20)),
        ("4@0x10(%rsp)", memory(rsp, 16)),
        ("4@8(%rax,%rcx,4)", Address { index: Some((rcx, 4)), ..memory(rax, 8) }),
        ("4@(%rax,%rcx)", Address { index: Some((rcx, 1)), ..memory(rax, 0) }),
        ("4@8(%rax, %rcx, 2)", Address { index: Some((rcx, 2)), ..memory(rax, 8) }),
        ("4@16(,%rcx,8)", Address { index: Some((rcx, 8)), ..memory(None, 16) }),
        ("4@x(%rip)", symbol("x", memory(None, 0))),
        ("4@16+x(%rip)", symbol("x", memory(None, 16))),
        ("4@x-4(%rip)", symbol("x", memory(None, -4))),
        ("4@count.0(%rip)", symbol("count.0", memory(None, 0))),
        ("4@x", symbol("x", memory(None, 0))),
        ("4@x+8", symbol("x", memory(None, 8))),
        ("4@table(,%rcx,4)", Address { index: Some((rcx, 4)), ..symbol("table", memory(None, 0)) }),
        ("4@table(%rax)", symbol("table", memory(rax, 0))),
    ] {
        assert_eq!(x86(text).source, Source::Memory(address), "{text}");
    }
    for text in
        ["4@8", "4@(%rax", "4@(%eax)", "4@(%rax,%rsp,1)", "4@(%rax,%rcx,3)", "4@(%rax,%rcx,4,5)", "4@()"]
    {
        assert!(why(Machine::X86_64, text).contains("no operand"), "{text}");
    }
    assert!(why(Machine::X86_64, "4@x@GOTPCREL(%rip)").contains("filled in by a linker"));
    assert!(why(Machine::X86_64, "4@8(%rip)").contains("depends on the length"));
    assert!(why(Machine::X86_64, "4@x(%rip,%rax,1)").contains("no operand"));
}

#[test]
fn a_symbol_is_found_from_the_site() {
    let Source::Memory(address) = x86("4@16+x(%rip)").source else { panic!() };
    let found = address.resolved(0x4000, 0x1000);
    assert_eq!((found.symbol, found.from_site, found.offset), (None, true, 0x3010));
    let Source::Memory(address) = x86("4@x(%rip)").source else { panic!() };
    assert_eq!(address.resolved(0x1000, 0x4000).offset, -0x3000);
    let plain = memory(Some(0), 8);
    assert_eq!(plain.resolved(1, 2), plain);
}

#[test]
fn a_floating_point_value_is_no_integer() {
    for text in ["8f@%xmm0", "-8f@%xmm0", "4f@(%rax)", "8f@%rax", "16f@%xmm0"] {
        assert!(why(Machine::X86_64, text).contains("floating-point"), "{text}");
    }
    assert!(why(Machine::Arm64, "8f@d0").contains("floating-point"));
}

#[test]
fn operands_of_arm64_are_read() {
    let arm = |text: &str| Machine::Arm64.argument(text);
    for (text, source) in [
        ("8@x0", register(0, 0, 8)),
        ("-4@w30", register(30, 0, 4)),
        ("8@sp", register(31, 0, 8)),
        ("8@xzr", Source::Constant(0)),
        ("-4@5", Source::Constant(5)),
        ("-4@#-5", Source::Constant(-5)),
        ("8@[x0]", Source::Memory(memory(Some(0), 0))),
        ("8@[sp]", Source::Memory(memory(Some(31), 0))),
        ("4@[sp, 12]", Source::Memory(memory(Some(31), 12))),
        ("4@[x29, #-12]", Source::Memory(memory(Some(29), -12))),
        ("4@[x1, x2]", Source::Memory(Address { index: Some((2, 1)), ..memory(Some(1), 0) })),
    ] {
        assert_eq!(arm(text).source, source, "{text}");
    }
    for text in ["8@x31", "8@[w0]", "8@[x0, w1]", "8@x01", "8@[x0", "8@"] {
        assert!(why(Machine::Arm64, text).contains("no operand"), "{text}");
    }
    assert!(why(Machine::Arm64, "8@[x0, #:lo12:.LANCHOR2]").contains("filled in by a linker"));
    assert!(why(Machine::Arm64, "8@d0").contains("holds no integer"));
    for number in 0..32 {
        let name = Machine::Arm64.register_name(number).unwrap();
        assert_eq!(arm(&format!("8@{name}")).source, register(number, 0, 8));
    }
}

#[test]
fn arguments_are_separated_by_spaces_outside_of_brackets() {
    let all = Machine::Arm64.arguments(" 8@[sp, 8]  -4@w1 4@[x0, x1] ");
    assert_eq!(all.len(), 3);
    assert!(all.iter().all(|a| !matches!(a.source, Source::Unreadable(_))));
    assert_eq!(Machine::X86_64.arguments("-4@8(%rax, %rcx, 2) 8@%rdi").len(), 2);
    assert_eq!(Machine::X86_64.arguments(""), []);
    let many = "4@%eax ".repeat(40);
    assert_eq!(Machine::X86_64.arguments(&many).len(), MAX_ARGUMENTS);
    // One that is not understood keeps the others.
    let all = Machine::X86_64.arguments("8@%rdi 8@nonsense%%% 4@%esi");
    let readable: Vec<bool> = all.iter().map(|a| !matches!(a.source, Source::Unreadable(_))).collect();
    assert_eq!(readable, [true, false, true]);
}

#[test]
fn a_value_is_cut_to_its_size() {
    let value = |size, signed, bits| Argument { size, signed, source: Source::Constant(0) }.converted(bits);
    let bits = 0xfedc_ba98_8765_84f3;
    assert_eq!((value(1, true, bits), value(1, false, bits)), (-13, 0xf3));
    assert_eq!((value(2, true, bits), value(2, false, bits)), (-31501, 0x84f3));
    assert_eq!((value(4, true, bits), value(4, false, bits)), (0x8765_84f3_u32 as i32 as i64, 0x8765_84f3));
    assert_eq!((value(8, true, bits), value(8, false, bits)), (bits as i64, bits as i64));
}

#[test]
fn a_long_operand_is_shortened_in_its_message() {
    let long = why(Machine::X86_64, &format!("8@{}", "?".repeat(100_000)));
    assert!(long.len() < 200, "{long}");
    let odd = why(Machine::X86_64, "8@\u{1b}[2Jx");
    assert!(odd.chars().all(|c| c.is_ascii_graphic() || c == ' '), "{odd}");
}

/// The text of an operand of x86-64.
fn written(argument: &Argument) -> String {
    let size = if argument.signed { -i64::from(argument.size) } else { argument.size.into() };
    let name = |n: u8| Machine::X86_64.register_name(n).unwrap();
    let operand = match &argument.source {
        Source::Constant(n) => format!("${n}"),
        Source::Register(r) => format!("%{}", name(r.number)),
        Source::Memory(a) => {
            let offset =
                if a.offset == 0 && a.symbol.is_none() { String::new() } else { a.offset.to_string() };
            let symbol = a.symbol.as_ref().map_or(String::new(), |s| format!("+{s}"));
            let base = a.base.map_or(String::new(), |b| format!("%{}", name(b)));
            let index = a.index.map_or(String::new(), |(i, s)| format!(",%{},{s}", name(i)));
            match (a.base, a.index) {
                (None, None) => format!("{offset}{symbol}(%rip)"),
                _ => format!("{offset}{symbol}({base}{index})"),
            }
        }
        Source::Unreadable(_) => "?".into(),
    };
    format!("{size}@{operand}")
}

fn argument(rng: &mut Rng) -> Argument {
    let register = |rng: &mut Rng| rng.below(16) as u8;
    let source = match rng.below(3) {
        0 => Source::Constant(rng.bits() as i64),
        1 => Source::Register(Register { number: register(rng), first: 0, bytes: 8 }),
        _ => {
            let base = (rng.below(2) == 0).then(|| register(rng));
            // `%rsp` is no index.
            let index =
                (rng.below(2) == 0).then(|| ((rng.below(7) + 9 * rng.below(2)) as u8, 1 << rng.below(4)));
            let wanted = rng.below(2) == 0 || (base, index) == (None, None);
            let symbol = wanted.then(|| ["x", ".LC0", "a_b.1", "$d"][rng.below(4)].to_owned());
            Source::Memory(Address {
                base,
                index,
                symbol,
                from_site: false,
                offset: rng.bits() as i64 >> rng.below(64),
            })
        }
    };
    Argument { size: 1 << rng.below(4), signed: rng.below(2) == 0, source }
}

/// The arguments are within their bounds, whatever they were read from.
fn assert_bounded(machine: Machine, all: &[Argument], text: &str) {
    assert!(all.len() <= MAX_ARGUMENTS, "{text}");
    for argument in all {
        assert!(matches!(argument.size, 1 | 2 | 4 | 8), "{text}");
        match &argument.source {
            Source::Unreadable(why) => assert!(!why.is_empty() && why.len() < 300, "{text}"),
            Source::Memory(address) => {
                let numbers = address.base.into_iter().chain(address.index.map(|(n, _)| n));
                assert!(numbers.into_iter().all(|n| machine.register_name(n).is_some()), "{text}");
            }
            Source::Register(register) => assert!(machine.register_name(register.number).is_some(), "{text}"),
            Source::Constant(_) => {}
        }
    }
}

#[test]
fn what_is_written_is_read() {
    let mut rng = Rng::new(1);
    for _ in 0..5000 {
        let count = rng.below(13);
        let all: Vec<Argument> = (0..count).map(|_| argument(&mut rng)).collect();
        let text = all.iter().map(written).collect::<Vec<_>>().join(" ");
        assert_eq!(Machine::X86_64.arguments(&text), all, "{text}");
    }
}

#[test]
fn a_mutation_of_an_operand_is_read_or_unreadable() {
    const CHARACTERS: &[u8] = b"-0189@$%()[],:#*+.f axrsp\0\x1b";
    let mut rng = Rng::new(2);
    for _ in 0..20_000 {
        let mut text = written(&argument(&mut rng));
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(text.len() + 1);
            match rng.below(3) {
                0 => text.truncate(at),
                1 => text.insert(at, char::from(CHARACTERS[rng.below(CHARACTERS.len())])),
                _ => text = format!("{}{}", &text[at..], &text[..at]),
            }
        }
        for machine in [Machine::X86_64, Machine::Arm64] {
            assert_bounded(machine, &machine.arguments(&text), &text);
        }
    }
}
