//! speedscope's file format, as its published schema describes it: a table of frames, and a sampled
//! profile for each aggregation.

use crate::escape::json;
use crate::loss::Loss;
use crate::profile::{Frame, Profile};

/// The profiles in one file.
pub(crate) fn write(profiles: &[&Profile], loss: &Loss, host: &str) -> Vec<u8> {
    let mut out = String::from("{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\n");
    out.push_str("\"exporter\":\"dtrace ");
    out.push_str(env!("CARGO_PKG_VERSION"));
    out.push_str("\",\n\"name\":");
    let lines = loss.lines();
    let lost = if lines.is_empty() { String::new() } else { format!(" (lost: {})", lines.join(", ")) };
    json(&mut out, &format!("{}{lost}", if host.is_empty() { "dtrace" } else { host }));
    out.push_str(",\n\"activeProfileIndex\":0,\n\"shared\":{\"frames\":[");
    let mut first = true;
    for frame in profiles.iter().flat_map(|profile| profile.frames()) {
        out.push_str(if std::mem::take(&mut first) { "\n" } else { ",\n" });
        push_frame(&mut out, frame);
    }
    out.push_str("]},\n\"profiles\":[");
    let mut base = 0;
    for (n, profile) in profiles.iter().enumerate() {
        out.push_str(if n == 0 { "\n" } else { ",\n" });
        push_profile(&mut out, profile, base);
        base += profile.frames().len();
    }
    out.push_str("]}\n");
    out.into_bytes()
}

fn push_frame(out: &mut String, frame: &Frame) {
    let (file, function) = frame.parts();
    out.push_str("{\"name\":");
    json(out, function);
    if let Some(file) = file {
        out.push_str(",\"file\":");
        json(out, file);
    }
    out.push('}');
}

fn push_profile(out: &mut String, profile: &Profile, base: usize) {
    out.push_str("{\"type\":\"sampled\",\"name\":");
    json(out, &profile.title);
    out.push_str(&format!(",\"unit\":\"none\",\"startValue\":0,\"endValue\":{}", profile.total()));
    let (mut samples, mut weights) = (String::new(), String::new());
    for (path, value) in profile.each() {
        if !weights.is_empty() {
            samples.push(',');
            weights.push(',');
        }
        samples.push('[');
        for (n, frame) in path.iter().enumerate() {
            if n > 0 {
                samples.push(',');
            }
            samples.push_str(&(base + *frame as usize).to_string());
        }
        samples.push(']');
        weights.push_str(&value.to_string());
    }
    out.push_str(&format!(",\n\"samples\":[{samples}],\n\"weights\":[{weights}]}}"));
}
