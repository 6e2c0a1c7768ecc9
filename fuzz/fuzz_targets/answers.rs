//! What a reader of symbols may send to a session that runs as root: any packets. They are used, or
//! the request fails.
#![no_main]

use std::sync::Arc;

use symbols::{Answered, answered};
use types::Types;
use types::btf::Btf;
use usdt::{MAX_ARGUMENTS, provider_name};

libfuzzer_sys::fuzz_target!(|input: (u8, [&[u8]; 4])| {
    let (question, packets) = input;
    match answered(question, &packets) {
        Some(Answered::Map(Ok(mapped))) => {
            assert!(mapped.iter().all(|m| m.start < m.end));
            assert!(mapped.is_sorted_by_key(|m| m.start));
        }
        Some(Answered::Functions(Ok(list))) => {
            for function in &list.functions {
                for name in &function.names {
                    let _ = name.matches("*");
                }
            }
        }
        Some(Answered::Types(Ok(answer))) => {
            let Some(found) = answer.found else { return };
            let Ok(btf) = Btf::parse(answer.btf, None).map(Arc::new) else { return };
            let types = Types::new();
            let ty = types.import(&btf, found);
            types.name(ty);
            types.size(ty);
            types.align(ty);
        }
        Some(Answered::Probes(Ok(probes))) => {
            for site in &probes.sites {
                assert!(site.arguments.len() <= MAX_ARGUMENTS);
                provider_name(&site.provider);
            }
        }
        Some(Answered::Frames(Ok(Some(frames)))) => {
            for load in &frames.loads {
                frames.address(load.offset);
            }
            frames.table.find(0x1234);
            frames.table.parts();
        }
        Some(Answered::Symbol(Some((name, _)))) => assert!(name.len() <= 4096),
        Some(Answered::Lines(lines)) => assert!(lines.len() <= 1 << 16),
        Some(Answered::Describing(Ok(pids))) => {
            assert!(pids.iter().all(|pid| [std::process::id(), 1].contains(pid)));
        }
        _ => {}
    }
});
