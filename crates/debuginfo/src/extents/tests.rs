//! A program with a function in two parts, and one that is damaged.

use std::path::PathBuf;
use std::process::Command;

use super::*;
use crate::split::NoSplitFiles;

const PROGRAM: &str = "__attribute__((cold, noinline)) void rare(int n) { static volatile int k; k += n; }
volatile int sink;
__attribute__((noinline)) int work(int n) { sink += n; if (n % 4 == 0) { rare(n); sink += 2; rare(n + 1); } return n; }
int main(void) { return work(3) - 3; }
";

type Contents = Vec<(&'static str, Vec<u8>)>;

/// The sections of the program, and the first address and size of `work`, its part, and `rare`.
fn program(test: &str, flag: &str) -> Option<(Contents, [Range<u64>; 3])> {
    let dir: PathBuf = std::env::temp_dir().join(format!("debuginfo-extents-{test}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("p.c"), PROGRAM).unwrap();
    let run = |words: &[&str]| {
        let output = Command::new(words[0]).args(&words[1..]).current_dir(&dir).output().ok()?;
        assert!(output.status.success(), "{words:?}: {output:?}");
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let built = run(&["cc", "-O2", flag, "-fno-pie", "-no-pie", "-o", "p", "p.c"]).and_then(|_| {
        let symbols = run(&["nm", "-S", "p"])?;
        let range = |name: &str| {
            let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}")))?;
            let mut words = line.split(' ').map(|word| u64::from_str_radix(word, 16));
            let (start, size) = (words.next()?.ok()?, words.next()?.ok()?);
            Some(start..start + size)
        };
        let ranges = [range("work")?, range("work.cold")?, range("rare")?];
        let mut sections = Vec::new();
        for name in EXTENT_SECTIONS {
            let _ = std::fs::remove_file(dir.join("section"));
            let _ = run(&["objcopy", "--dump-section", &format!("{name}=section"), "p", "copy"]);
            sections.push((name, std::fs::read(dir.join("section")).unwrap_or_default()));
        }
        Some((sections, ranges))
    });
    let _ = std::fs::remove_dir_all(&dir);
    built
}

fn read(sections: &[(&'static str, Vec<u8>)]) -> Result<Extents, Error> {
    let of = |name: &str| sections.iter().find(|(n, _)| *n == name).map(|(_, bytes)| bytes.clone());
    Extents::read(&mut |name: &str| Ok(of(name).unwrap_or_default()), false, &mut NoSplitFiles)
}

#[test]
fn a_function_in_two_parts_has_both_and_is_entered_in_the_first() {
    for flag in ["-gdwarf-5", "-gdwarf-4", "-gdwarf-3"] {
        let Some((sections, [work, part, rare])) = program("parts", flag) else {
            return testing::skipped!("no C compiler that puts cold code elsewhere");
        };
        let mut extents = read(&sections).unwrap();
        for address in [work.start, work.end - 1, part.start, part.end - 1] {
            let found = extents.of(address).unwrap();
            assert_eq!(
                (found.entry, &found.ranges),
                (work.start, &vec![part.clone(), work.clone()]),
                "{flag}"
            );
        }
        let found = extents.of(rare.end - 1).unwrap();
        assert_eq!((found.entry, &found.ranges), (rare.start, &vec![rare.clone()]), "{flag}");
        assert_eq!([0, 1, u64::MAX].map(|address| extents.of(address)), [None, None, None]);
        // Nothing is left to walk.
        let mut extents = read(&sections).unwrap();
        extents.left = 16;
        assert_eq!(extents.of(work.start), None);
    }
}

#[test]
fn damaged_sections_give_an_error_or_a_bounded_answer() {
    let Some((all, ranges)) = program("damaged", "-g") else { return testing::skipped!("no C compiler") };
    let mut seed = testing::rng::Rng::new(12);
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
        let Ok(mut extents) = read(&sections) else {
            errors += 1;
            continue;
        };
        for address in ranges.iter().flat_map(Clone::clone) {
            match extents.of(address) {
                Some(found) => {
                    assert!(
                        found.ranges.len() <= MAX_RANGES && found.ranges.iter().any(|r| r.contains(&address))
                    );
                    answers += 1;
                }
                None => errors += 1,
            }
        }
    }
    assert!(answers > 1000 && errors > 100, "{answers} {errors}");
}
