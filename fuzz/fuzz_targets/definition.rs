//! Definitions of providers from any text, and from any bytes of the port's notes: an answer, and a
//! program that uses them is rejected, or its records are laid out and it is compiled to eBPF.
#![no_main]

#[path = "../../crates/bpf-runtime/tests/session/mod.rs"]
mod session;

use bpf_codegen::Layout;
use exercise::defined;
use exercise::stages::Compiled;
use session::Setup;

libfuzzer_sys::fuzz_target!(|input: (bool, u8, &[u8])| {
    let (of_port, program, bytes) = input;
    let text = match of_port {
        true => usdt::port_definitions(bytes).next().map(|(_, text)| text).unwrap_or_default(),
        false => bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid()).to_owned(),
    };
    match defined::compile(program.into(), &text, 64) {
        Ok(Compiled::Module(module, _)) => {
            let setup = Setup::new(*module);
            let layout = Layout::divided(&setup.module, &setup.error, setup.division);
            let plan = session::plan(&setup, &layout);
            // Too large a program is no defect.
            let _ = session::compile_setup(&setup, &plan, &layout);
        }
        Ok(Compiled::Rejected(_)) => {}
        Err(fault) => panic!("{fault}"),
    }
});
