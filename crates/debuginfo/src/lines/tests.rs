//! A program whose lines are known, and one that is damaged.

use std::path::PathBuf;
use std::process::Command;

use super::*;

const PROGRAM: &str = "static inline __attribute__((always_inline)) int inner(volatile int *x)
{
    return *x / 3;
}
int outer(volatile int *x)
{
    return inner(x) + 1;
}
int main(void) { volatile int x = 3; return outer(&x); }
";

type Sections = Vec<(&'static str, Vec<u8>)>;

/// The sections of the program, and the addresses of its code.
fn program(test: &str) -> Option<(Sections, std::ops::Range<u64>)> {
    let dir: PathBuf = std::env::temp_dir().join(format!("debuginfo-lines-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("p.c"), PROGRAM).unwrap();
    let run = |words: &[&str]| {
        let output = Command::new(words[0]).args(&words[1..]).current_dir(&dir).output().ok()?;
        assert!(output.status.success(), "{words:?}: {output:?}");
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let built = run(&["cc", "-O2", "-g", "-fno-pie", "-no-pie", "-o", "p", "p.c"]).and_then(|_| {
        let symbols = run(&["nm", "-S", "p"])?;
        let line = symbols.lines().find(|line| line.ends_with(" outer"))?;
        let mut words = line.split(' ').map(|word| u64::from_str_radix(word, 16));
        let (start, size) = (words.next()?.ok()?, words.next()?.ok()?);
        let mut sections = Vec::new();
        for name in LINE_SECTIONS {
            let _ = std::fs::remove_file(dir.join("section"));
            let _ = run(&["objcopy", "--dump-section", &format!("{name}=section"), "p", "copy"]);
            sections.push((name, std::fs::read(dir.join("section")).unwrap_or_default()));
        }
        Some((sections, start..start + size))
    });
    let _ = std::fs::remove_dir_all(&dir);
    built
}

fn read(sections: &[(&'static str, Vec<u8>)], most: u64) -> Result<Lines, Error> {
    let of = |name: &str| sections.iter().find(|(n, _)| *n == name).map(|(_, bytes)| bytes.clone());
    Lines::read(&mut |name: &str| Ok(of(name).unwrap_or_default()), None, most)
}

#[test]
fn functions_that_were_put_inline_are_inside_of_those_with_the_code() {
    let Some((sections, code)) = program("inline") else { return testing::skipped!("no C compiler") };
    let mut lines = read(&sections, 1 << 24).unwrap();
    // There is no end behind the last address.
    assert_eq!(lines.frames(u64::MAX).unwrap(), []);
    let mut all = HashSet::new();
    for address in code {
        let frames = lines.frames(address).unwrap();
        let text = |f: &SourceFrame| {
            let file = f.file.as_deref().unwrap_or("").rsplit('/').next().unwrap_or("").to_owned();
            format!("{} {file}:{}", f.function.as_deref().unwrap_or("?"), f.line.unwrap_or(0))
        };
        all.insert(frames.iter().map(text).collect::<Vec<_>>().join(", "));
    }
    assert!(all.contains("inner p.c:3, outer p.c:7"), "{all:?}");
    assert!(all.contains("outer p.c:7"), "{all:?}");
    assert_eq!(lines.frames(1).unwrap(), []);
    // Too little memory for the unit is an error.
    let size: usize = sections.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(lines.memory() > size as u64);
    let mut small = read(&sections, size as u64 + 16).unwrap();
    assert_eq!(small.frames(u64::from(u32::MAX)).unwrap(), []);
    let outer = read(&sections, 1 << 24).unwrap().units.ranges[0].begin;
    assert_eq!(small.frames(outer), Err(Error::Large));
}

#[test]
fn damaged_sections_give_an_error_or_a_bounded_answer() {
    let Some((all, code)) = program("damaged") else { return testing::skipped!("no C compiler") };
    let mut seed = testing::rng::Rng::new(11);
    let (mut answers, mut errors) = (0, 0);
    for _ in 0..4000 {
        let mut sections = all.clone();
        for _ in 0..seed.below(4) + 1 {
            let n = seed.below(sections.len());
            let bytes = &mut sections[n].1;
            if bytes.is_empty() {
                continue;
            }
            let at = seed.below(bytes.len());
            match seed.below(4) {
                0 => bytes.truncate(at),
                1 => bytes[at] = 0xff,
                _ => bytes[at] = seed.below(256) as u8,
            }
        }
        let Ok(mut lines) = read(&sections, 1 << 24) else {
            errors += 1;
            continue;
        };
        for address in code.clone() {
            match lines.frames(address) {
                Ok(frames) => {
                    assert!(frames.len() <= MAX_INLINED);
                    answers += usize::from(!frames.is_empty());
                }
                Err(_) => errors += 1,
            }
        }
    }
    assert!(answers > 1000 && errors > 100, "{answers} {errors}");
}

/// The library would recurse once for each.
#[test]
fn functions_that_are_nested_without_end_are_an_error() {
    // 1: a unit with code, from 16 on. 2: a function of 256 bytes. 3: one that is inline, with
    // others in it.
    let attributes =
        |all: &[(u8, u8)]| all.iter().flat_map(|(a, b)| [*a, *b]).chain([0, 0]).collect::<Vec<u8>>();
    let code = attributes(&[(0x11, 0x01), (0x12, 0x07)]);
    let mut abbreviations = Vec::new();
    for (number, tag, attributes) in [(1, 0x11, &code), (2, 0x2e, &code), (3, 0x1d, &vec![0, 0])] {
        abbreviations.extend([number, tag, 1]);
        abbreviations.extend(attributes);
    }
    abbreviations.push(0);
    let mut entries = Vec::new();
    for number in [1, 2] {
        entries.push(number);
        entries.extend([16u64, 256].iter().flat_map(|n| n.to_le_bytes()));
    }
    let of = |depth: usize| {
        let mut info = vec![4, 0, 0, 0, 0, 0, 8];
        info.extend(&entries);
        info.extend(vec![3; depth]);
        info.extend(vec![0; depth + 2]);
        let info = [&(info.len() as u32).to_le_bytes()[..], &info].concat();
        read(&[(".debug_info", info), (".debug_abbrev", abbreviations.clone())], 1 << 30).unwrap().frames(20)
    };
    assert_eq!(of(3).unwrap().len(), 1);
    assert_eq!(of(1_000_000), Err(Error::Large));
}
