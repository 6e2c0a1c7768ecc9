//! What inputs begin as: files of this machine, programs that are compiled for it, and what other
//! parts of this tree write.
//!
//! A group has the strings of bytes that a target takes, in their order, and the bytes that decide
//! for which question they are.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use exercise::defined;
use exercise::fuzz::case::Case;
use symbols::{
    Files, FunctionQuery, NameKind, Select, TypesQuery, file_facts, functions_of_bytes, sample_answers,
};

mod made;

/// Bytes that are taken of a file.
const LONGEST: usize = 48 << 10;

/// A program with a bit of everything that is read of programs.
const PROGRAM: &str = r#"
struct node { struct node *next; unsigned flags : 3; long key; char name[12]; union { int i; float f; } u; };
enum color { RED, GREEN = 7 };
typedef struct node node_t;
node_t *list;
struct r_debug { int version; void *map; } _r_debug;
void _dl_debug_state(void) {}
static inline int twice(int n) { return 2 * n; }
__attribute__((noinline)) int reach(node_t *n, enum color c) {
    int sum = 0;
    __asm__ volatile ("990: nop\n"
        ".pushsection .note.stapsdt,\"?\",\"note\"\n.balign 4\n.4byte 992f-991f,994f-993f,3\n"
        "991: .asciz \"stapsdt\"\n992: .balign 4\n993: .8byte 990b\n.8byte 0\n.8byte 0\n"
        ".asciz \"app\"\n.asciz \"reach\"\n.asciz \"8@%%rdi -4@16(%%rbp) 4@$7\"\n994: .balign 4\n.popsection\n"
        ".pushsection .note.dtrace,\"\",\"note\"\n.balign 4\n.4byte 6,996f-995f,1\n.asciz \"dtrace\"\n.balign 4\n"
        "995: .4byte 1\n.asciz \"app\"\n.asciz \"provider app %{ probe reach(int *n); %};\"\n996: .balign 4\n.popsection\n");
    for (; n; n = n->next) { sum += twice(n->key) + c; switch (n->flags) { case 1: sum++; case 2: sum += 3; case 4: sum--; } }
    return sum;
}
int main(int argc, char **argv) { return reach(list, argc); }
"#;

/// Programs that the compiler of this machine has made.
pub(crate) struct Programs(PathBuf);

impl Programs {
    /// Compiles them into a directory. A compiler that has not all formats leaves some out.
    pub(crate) fn compile(dir: &Path) {
        let source = dir.join("program.c");
        let _ = std::fs::create_dir_all(dir);
        let _ = std::fs::write(&source, PROGRAM);
        const SHARED: [&str; 4] = ["-shared", "-fPIC", "-nostdlib", "-Wl,-z,noseparate-code,--build-id"];
        for (name, options) in [
            ("plain", &["-g"][..]),
            ("old", &["-gdwarf-4", "-fdebug-types-section"]),
            ("packed", &["-g", "-gz"]),
            ("split", &["-g", "-gsplit-dwarf"]),
            ("ctf", &["-gctf"]),
            ("btf", &["-gbtf"]),
            ("stripped", &["-s"]),
        ] {
            let out = dir.join(name);
            let mut command = Command::new("cc");
            command.args(["-O1", "-o"]).arg(&out).args(SHARED).args(options).arg(&source).current_dir(dir);
            let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }

    /// Those of a directory.
    pub(crate) fn compiled(dir: &Path) -> Programs {
        Programs(dir.to_path_buf())
    }

    fn read(&self, name: &str) -> Vec<u8> {
        file(&self.0.join(name))
    }

    /// All that could be compiled.
    fn all(&self) -> Vec<Vec<u8>> {
        let names = ["plain", "old", "packed", "split", "ctf", "btf", "stripped"];
        names.iter().map(|name| self.read(name)).filter(|bytes| !bytes.is_empty()).collect()
    }

    /// Of split debug information: the file of the unit.
    fn split_unit(&self) -> Vec<u8> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let unit = entries.map(|e| e.path()).find(|path| path.extension().is_some_and(|e| e == "dwo"));
        unit.map(|path| file(&path)).unwrap_or_default()
    }
}

fn file(path: &Path) -> Vec<u8> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let _ = std::fs::File::open(path).map(|file| file.take(LONGEST as u64).read_to_end(&mut bytes));
    bytes
}

/// A section of an ELF file of 64 bits, by its name.
fn section(elf: &[u8], wanted: &str) -> Vec<u8> {
    let number = |at: usize, size: usize| {
        let bytes = elf.get(at..at + size).unwrap_or_default();
        bytes.iter().rev().fold(0usize, |value, byte| value << 8 | usize::from(*byte))
    };
    let (table, count, names) = (number(40, 8), number(60, 2), number(62, 2));
    let place = |n: usize| (number(table + 64 * n + 24, 8), number(table + 64 * n + 32, 8));
    let is_it = |n: &usize| {
        let name = elf.get(place(names).0 + number(table + 64 * n, 4)..).unwrap_or_default();
        name.strip_prefix(wanted.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    };
    let found = (0..count).find(is_it).map(place);
    found.and_then(|(at, size)| elf.get(at..at + size)).unwrap_or_default().to_vec()
}

fn golden(root: &Path) -> Vec<Vec<u8>> {
    let mut paths = Vec::new();
    for name in ["syntax", "check", "lower"] {
        let dir = root.join("crates").join(name).join("tests/golden");
        paths.extend(std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()));
    }
    paths.retain(|path| path.extension().is_some_and(|e| e == "d"));
    paths.sort();
    paths.iter().map(|path| file(path)).collect()
}

fn single(all: impl IntoIterator<Item = Vec<u8>>) -> Vec<Case> {
    all.into_iter().map(|bytes| Case { choices: Vec::new(), pool: vec![bytes] }).collect()
}

fn group(pool: &[Vec<u8>]) -> Case {
    Case { choices: Vec::new(), pool: pool.to_vec() }
}

/// The groups of a target.
pub(crate) fn of(target: &str, root: &Path, programs: &Programs) -> Vec<Case> {
    let elfs = programs.all();
    let of_each = |names: &[&str]| -> Vec<Case> {
        let sections = |elf: &Vec<u8>| names.iter().map(|name| section(elf, name)).collect();
        elfs.iter().map(|elf| Case { choices: Vec::new(), pool: sections(elf) }).collect()
    };
    let with = |first: &[u8], groups: Vec<Case>| -> Vec<Case> {
        let add = |case: Case| Case { pool: [vec![first.to_vec()], case.pool].concat(), ..case };
        groups.into_iter().map(add).collect()
    };
    let mut all = match target {
        "syntax" | "check" => single(golden(root)),
        "programs" => single((0..8).map(made::noise)),
        "capture" => single([made::capture()]),
        "events" => single([made::events()]),
        "postmortem" => single([made::core_file()]),
        "sideband" => single([made::side_band()]),
        "text" => of_each(&[".text"]),
        "functions" => with(b"r*", single(elfs.clone())),
        "frames" => of_each(&[".eh_frame", ".debug_frame"]),
        "usdt" => with(b"8@%rdi -4@16(%rbp,%rcx,4) 2@$-7 4@%ah 8@x+8(%rip)", of_each(&[".note.stapsdt"])),
        "dof" => [single([made::dof(), made::port_notes()]), of_each(&[".note.dtrace"])].concat(),
        "definition" => {
            let of_port = |case: Case| Case { choices: vec![1], ..case };
            let good = Case { choices: vec![0], pool: vec![defined::GOOD.into()] };
            single([made::port_notes()]).into_iter().map(of_port).chain([good]).collect()
        }
        "debuginfo" => {
            let dwarf = of_each(&[".debug_info", ".debug_abbrev", ".debug_str"]);
            let ctf = of_each(&[".ctf", ".symtab", ".strtab"]);
            let btf = of_each(&[".BTF", ".symtab", ".strtab"]);
            let kernel = group(&[types::btf::synth::kernel(), Vec::new(), Vec::new()]);
            with(b"node", [dwarf, ctf, btf, vec![kernel]].concat())
        }
        "lines" => of_each(&[".debug_info", ".debug_abbrev", ".debug_str", ".debug_line", ".debug_rnglists"]),
        "answers" => elfs.iter().flat_map(|elf| answers(elf)).collect(),
        "perfmap" => single([made::perf_map()]),
        "debugfiles" => {
            let unit = programs.split_unit();
            let pool =
                |own: &Vec<u8>| vec![own.clone(), Vec::new(), Vec::new(), unit.clone(), b"node".to_vec()];
            let mut all: Vec<Case> = elfs.iter().map(|own| group(&pool(own))).collect();
            all.extend(made::linked(&programs.read("plain")).map(|pool| group(&pool)));
            all
        }
        "served" => {
            let elf = testing::elf::Elf { build_id: Some((1..9).collect()), ..Default::default() }.bytes();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-Y: z\r\n\r\n", elf.len());
            let chunked = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", elf.len());
            let whole = [head.as_bytes(), &elf].concat();
            let chunked = [chunked.as_bytes(), &elf, b"\r\n0\r\n\r\n"].concat();
            vec![group(&[whole, elf.clone()]), group(&[chunked, elf])]
        }
        "requests" => single([
            b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9464\r\nAccept: text/plain;version=0.0.4\r\n\r\n"
                .to_vec(),
            b"HEAD /metrics?x HTTP/1.0\r\nHost: [::ffff:127.0.0.1]:1\r\n\r\n".to_vec(),
        ]),
        "procfs" => {
            single(["maps", "stat", "status", "cgroup"].map(|n| file(&Path::new("/proc/self").join(n))))
        }
        "image" => {
            let auxv = file(Path::new("/proc/self/auxv"));
            elfs.iter().map(|elf| group(&[elf.clone(), auxv.clone()])).collect()
        }
        "calls" => single([made::calls()]),
        "kallsyms" => single([file(Path::new("/proc/kallsyms")), made::kernel_symbols()]),
        "tracefs" => single(made::event_formats()),
        "rings" => vec![group(&[made::ring(), made::control()])],
        _ => Vec::new(),
    };
    all.retain(|case| case.pool.iter().any(|bytes| !bytes.is_empty()));
    if all.is_empty() {
        all = single([b"text 12 -3\n".to_vec(), made::noise(1)]);
    }
    all
}

/// What a reader answers about a file.
fn answers(elf: &[u8]) -> Vec<Case> {
    const MEMORY: u64 = 16 << 20;
    let functions = functions_of_bytes(elf.to_vec(), &FunctionQuery::names(Select::All), MEMORY);
    let files = Files { own: elf, debug: b"", supplement: b"", split: b"" };
    let queries = ["node", "color"].map(|name| TypesQuery::Name(NameKind::Struct, name.into()));
    let facts = file_facts(&files, MEMORY, &[0x1000, 0x1200, 0x300], &queries);
    let (Ok(functions), Ok(facts)) = (functions, facts) else { return Vec::new() };
    let samples = sample_answers(functions, &facts).into_iter();
    samples.map(|(question, pool)| Case { choices: vec![question], pool }).collect()
}
