//! Programs by D's grammar, the fuzzer's bytes deciding: they become code, all the way to eBPF, and where this process may
//! load programs the kernel's verifier accepts it.
#![no_main]

#[path = "../../crates/bpf/tests/session/mod.rs"]
mod session;

use bpf::program::Layout;
use exercise::choices::Choices;
use exercise::stages::{Compiled, compile};
use session::{Run, Setup, privileged};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let text = exercise::generate::program(&mut Choices::Bytes(bytes), &Default::default());
    match compile(&text, 64, None) {
        Ok(Compiled::Module(module, _)) => {
            let setup = Setup::new(*module);
            let layout = Layout::divided(&setup.module, &setup.error, setup.division);
            let plan = session::plan(&setup, &layout);
            if session::compile_setup(&setup, &plan, &layout).is_ok() && privileged("programs") {
                Run::new(setup);
            }
        }
        Ok(Compiled::Refused(_)) => {}
        Err(fault) => panic!("{fault}"),
    }
});
