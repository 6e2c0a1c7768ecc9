//! DIF text to eBPF: `tests/golden/*.dif` to `*.bpf`. `UPDATE_GOLDEN=1` rewrites the expected
//! files.
//!
//! The expected files do not depend on the running kernel. Offsets come from the synthetic kernel
//! of `types::btf::synth`, and the source says what the kernel supports. Comments at the start of
//! the source that begin with `;!` describe the program around the clauses:
//!
//! ```text
//! ;! error clause_1       the clause belongs to ERROR
//! ;! probes 70            the program serves so many probes, selected at run time; default one
//! ;! for clause_0 3 5     the clause runs for these probes
//! ;! untyped              no BTF for tasks
//! ;! namespace            the tracer is in a pid namespace of its own, and where its numbers are is not known
//! ;! namespace 2          it is known, and the namespace is so far below the initial one
//! ;! divide 10            clauses are placed in functions of about so many operations
//! ;! levels 3             self-> has so many context levels
//! ;! fill                 the policy of rings; also ring
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use bpf_codegen::arch::{AARCH64, Machine, X86_64};
use bpf_codegen::context::ProbeSet;
use bpf_codegen::plan::Options;
use bpf_codegen::target::{GenerationOffsets, PidNamespace, PidOffsets, Target, TaskOffsets};
use bpf_codegen::{Division, Layout};
use plane::ring::Policy;

use crate::session::{self, Setup};

fn synthetic() -> Target {
    let btf = types::btf::Btf::parse(types::btf::synth::kernel(), None).unwrap();
    let offset = |member: &str| btf.field(&format!("task_struct.{member}")).unwrap().offset() as i16;
    let task = TaskOffsets {
        comm: offset("comm"),
        real_parent: offset("real_parent"),
        tgid: offset("tgid"),
        flags: offset("flags"),
    };
    let wall_offset = 1_700_000_000_000_000_000;
    // The synthetic kernel has no CPU-time account.
    let runtime = Some(64);
    let task_numbers = [(64, 4), (68, 4)].into();
    // It does not count programs either.
    let generation = Some(GenerationOffsets {
        leader: offset("group_leader"),
        start: offset("start_boottime"),
        execs: 72,
    });
    let task = Some(task);
    Target { task, generation, task_btf: true, task_numbers, runtime, wall_offset, ..Target::default() }
}

/// Where the numbers of a level are.
fn numbers(own: u32) -> PidOffsets {
    let number = 96 + 16 * own as i16;
    PidOffsets { thread: 80, signal: 88, process: 24, level: 4, own, number, nr: 0, ns: 8, inum: 16 }
}

fn compiled(text: &str, machine: &'static Machine) -> String {
    let mut module = dif::text::parse(text).unwrap();
    dif::verify::verify(&module).unwrap();
    dif::opt::optimize(&mut module);
    let clause = |name: &str| module.clauses.iter().position(|c| c.func.name == name).unwrap();
    let mut setup = Setup::new(module.clone());
    setup.target = Target { machine, ..synthetic() };
    setup.cpus = 4;
    setup.options = Options::default();
    for line in text.lines().filter_map(|l| l.strip_prefix(";! ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |i: usize| words[i].parse::<u32>().unwrap();
        match words[0] {
            "error" => setup.error.push(clause(words[1])),
            "probes" => setup.probes = number(1),
            "for" => {
                let mut bits = vec![0; setup.probes.div_ceil(64) as usize];
                for i in 2..words.len() {
                    bits[number(i) as usize / 64] |= 1 << (number(i) % 64);
                }
                setup.clauses[clause(words[1])].1 = ProbeSet::Bitmap(bits);
            }
            "untyped" => (setup.target.task, setup.target.task_btf) = (None, false),
            "namespace" => {
                let numbers = (words.len() > 1).then(|| numbers(number(1)));
                setup.target.pid_namespace = Some(PidNamespace { dev: 4, ino: 4_026_531_836, numbers });
            }
            "divide" => setup.division = Division { whole: 0, part: number(1) as usize },
            "fill" => setup.options.bufpolicy = Policy::Fill,
            "ring" => setup.options.bufpolicy = Policy::Ring,
            "growing" => setup.growing = true,
            "levels" => setup.levels = number(1),
            other => panic!("unknown line {other}"),
        }
    }
    setup.clauses.retain(|(c, _)| !setup.error.contains(c));
    let layout = Layout::divided(&setup.module, &setup.error, setup.division);
    match session::compile_setup(&setup, &session::plan(&setup, &layout), &layout) {
        Ok(program) => bpf_codegen::listing::symbolic(&program.code),
        Err(error) => format!("{error}\n"),
    }
}

#[test]
fn each_module_compiles_to_its_expected_code() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    testing::golden::compare(&dir, "dif", "bpf", |_, text| compiled(text, &X86_64));
}

/// Modules whose code is another one on each machine, in a folder of their own: `*.bpf` is the code
/// for x86-64, `*.aarch64` that for arm64.
#[test]
fn each_module_that_reads_registers_compiles_for_each_machine() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/machines");
    testing::golden::compare(&dir, "dif", "bpf", |_, text| compiled(text, &X86_64));
    testing::golden::compare(&dir, "dif", "aarch64", |_, text| compiled(text, &AARCH64));
}

#[test]
fn other_modules_have_the_same_code_on_each_machine() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for input in testing::golden::inputs(&dir, "dif") {
        let text = std::fs::read_to_string(&input).unwrap();
        assert_eq!(compiled(&text, &X86_64), compiled(&text, &AARCH64), "{}", input.display());
    }
}
