//! Names that processes choose.

use events::{Calls, Value};
use testing::names::NASTY;

use crate::{Fed, probe, string, traced};

#[test]
fn nasty_names_are_texts() {
    for name in NASTY {
        let mut fed = Fed::new();
        let lossy = String::from_utf8_lossy(name).replace(':', ";");
        let named = Value::Name { text: (*name).into(), size: 4097 };
        let fields = vec![traced("execname", named), traced("copyinstr(arg0)", string(name))];
        fed.fire(1, (7, 7), &probe(&format!("p:m:{lossy}:entry"), Calls::None), fields);
        fed.fire(
            2,
            (7, 7),
            &probe(&format!("p:m:{lossy}:return"), Calls::None),
            vec![traced(&lossy, string(b"v"))],
        );
        let trace = fed.end();
        let slices = trace.described();
        assert_eq!((slices.len(), slices[0].2, slices[0].3), (1, 1, 2), "{lossy:?}");
        let plain = |text: &str| {
            let hostile = |c: char| {
                c.is_control()
                    || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
            };
            assert!(!text.contains(hostile) && text.chars().count() <= 1000, "{text:?}");
        };
        plain(&slices[0].0);
        trace.tracks.values().filter_map(|track| track.name.as_deref()).for_each(plain);
        let annotations: Vec<_> = trace.events.iter().flat_map(|event| event.annotations.clone()).collect();
        annotations.iter().for_each(|(name, _)| plain(name));
        plain(&annotations[0].1);
        match std::str::from_utf8(name) {
            Ok(text) => assert_eq!(annotations[1].1, text, "data is as it is"),
            Err(_) => assert!(annotations[1].1.contains("\\377\\376")),
        }
    }
}
