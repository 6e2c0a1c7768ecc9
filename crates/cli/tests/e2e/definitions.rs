//! `-h` and `-G`: headers and objects of provider definitions, as build systems ask for them, and
//! programs that are built with them.

use std::process::Command;

use crate::Verdict::{self, Pass, Skip};
use crate::tool::{Output, binary, dtrace, finish};

tests! {
    a_header_and_an_object_are_written_in_the_current_directory_or_where_o_says
    what_is_missing_for_a_header_is_said
    errors_of_a_definition_name_script_line_and_column_and_leave_the_output_alone
    a_definition_that_tracers_would_not_use_is_an_error
    a_provider_of_the_system_is_no_provider_of_a_program
    definitions_of_well_known_programs_are_accepted
    definitions_are_preprocessed_as_the_options_say
    options_that_build_systems_pass_are_accepted
    an_object_is_for_the_machine_of_the_objects
    a_project_that_makes_header_and_object_links_and_runs
    a_site_of_the_header_fires_exactly_as_often_as_it_is_passed
}

const DEFINITION: &str =
    "provider web {\n\tprobe start(int n);\n\tprobe request__done(int n, const char *path);\n};\n";

/// A directory of a test, which is removed at the end.
struct Project(testing::dir::Dir);

impl Project {
    fn new(name: &str, files: &[(&str, &str)]) -> Project {
        let project = Project(testing::dir::Dir::new(&format!("definitions-{name}")));
        for (name, text) in files {
            std::fs::write(project.0.join(name), text).unwrap();
        }
        project
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.path(name)).unwrap_or_default()).into_owned()
    }

    /// Runs `dtrace` with these words in the directory.
    fn dtrace(&self, words: &str) -> Output {
        let mut command = Command::new(binary());
        command.current_dir(&self.0).args(words.split_whitespace()).stdin(std::process::Stdio::null());
        let child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn();
        finish(child.unwrap())
    }

    /// `None`: there is no such program.
    fn run(&self, words: &str) -> Option<std::process::Output> {
        let mut words = words.split_whitespace();
        Command::new(words.next()?).args(words).current_dir(&self.0).output().ok()
    }
}

fn a_header_and_an_object_are_written_in_the_current_directory_or_where_o_says() -> Verdict {
    let project = Project::new("written", &[]);
    std::fs::create_dir(project.path("src")).unwrap();
    std::fs::write(project.path("src/web.d"), DEFINITION).unwrap();
    let o = project.dtrace("-h -s src/web.d").code(0);
    assert_eq!((&*o.out, &*o.err), ("", ""));
    let header = project.read("web.h");
    assert!(header.contains("#define\tWEB_REQUEST_DONE(arg1, arg2)"), "{header}");
    assert!(header.contains("#define\tWEB_REQUEST_DONE_ENABLED()"), "{header}");
    assert!(header.contains("#ifndef\t_WEB_H\n"), "{header}");
    project.dtrace("-G -s src/web.d").code(0);
    assert!(project.read("web.o").starts_with("\u{7f}ELF"));
    // `-` is the standard output, and the header is named as its file would be.
    let o = project.dtrace("-h -s src/web.d -o -").code(0);
    assert_eq!((&*o.out, &*o.err), (&*header, ""));
    assert!(!project.0.join("-").exists());
    // An older output is replaced.
    std::fs::write(project.path("other-name.h"), "x".repeat(1 << 20)).unwrap();
    project.dtrace("-h -s src/web.d -o other-name.h").code(0);
    assert_eq!(project.read("other-name.h"), header.replace("_WEB_H", "_OTHER_NAME_H"));
    Pass
}

fn what_is_missing_for_a_header_is_said() -> Verdict {
    let project = Project::new("missing", &[("web.d", DEFINITION), ("web", DEFINITION)]);
    for (words, code, says) in [
        ("-h", 2, "-h requires a script: -s file.d\n"),
        ("-G -n BEGIN", 2, "-G requires a script: -s file.d\n"),
        ("-h -s web", 2, "-h requires an output file (-o) if the name of the script does not end with .d\n"),
        ("-G -s web.d -s web", 2, "-G requires an output file (-o) if multiple scripts are specified\n"),
        ("-h -G -s web.d", 2, "only one of the [-AGhlV] options can be specified at a time\n"),
        ("-h -s none.d", 1, "failed to open none.d: No such file or directory\n"),
        ("-G -s web.d none.o", 1, "failed to open none.o: No such file or directory\n"),
        ("-h -s web.d -o none/web.h", 1, "failed to write none/web.h: No such file or directory\n"),
    ] {
        let o = project.dtrace(words).code(code);
        assert_eq!(o.err, format!("dtrace: {says}"), "{words}");
    }
    Pass
}

fn errors_of_a_definition_name_script_line_and_column_and_leave_the_output_alone() -> Verdict {
    let text = "provider web {\n\tprobe start(int);\n\tprobe start(int);\n};\n";
    let project = Project::new("errors", &[("web.d", text), ("web.h", "before")]);
    let o = project.dtrace("-h -s web.d").code(1);
    let says =
        "failed to compile script web.d: line 3: probe start has been declared already\n  --> web.d:3:8\n";
    assert!(o.err.starts_with(&format!("dtrace: {says}")), "{o:?}");
    let o = project.dtrace("-h -xerrtags -s web.d").code(1);
    assert!(o.err.contains("[D_PROV_PRDUP] line 3: "), "{o:?}");
    assert_eq!(project.read("web.h"), "before");
    Pass
}

fn a_definition_that_tracers_would_not_use_is_an_error() -> Verdict {
    let translated = |value: &str| {
        format!(
            "typedef struct s {{ int a; }} s_t;\ntypedef struct {{ int b; }} t_t;\ntranslator t_t < s_t *S > {{\n\tb = {value};\n}};\n\
             provider web {{ probe start(s_t *S) : (t_t *S); }};\n"
        )
    };
    let plain = |before: &str| format!("{before}provider web {{ probe start(int); }};\n");
    for (text, at, tag, says) in [
        (translated("system(\"id\")"), "4:6", "D_PROV_INCOMPAT", "this is a call of system( )"),
        (translated("(copyout(\"x\", 1, 1), 1)"), "4:7", "D_PROV_INCOMPAT", "this is a call of copyout( )"),
        (translated("S->a = 1"), "4:6", "D_PROV_INCOMPAT", "this is an assignment"),
        (translated("(int)curthread->pid"), "4:11", "D_PROV_INCOMPAT", "curthread is no parameter"),
        (translated("`jiffies"), "4:6", "D_PROV_INCOMPAT", "this is a symbol of the kernel"),
        (translated("S->nowhere"), "4:9", "D_TYPE_MEMBER", "nowhere is not a member of"),
        (plain("typedef nosuch_t other_t;\n"), "1:9", "D_TYPE_ERR", "nosuch_t"),
        (plain("int count;\n"), "1:1", "D_PROV_INCOMPAT", "this is a variable"),
        (plain("BEGIN { exit(0); }\n"), "1:1", "D_PROV_INCOMPAT", "this is a clause"),
        (
            "provider syscall { probe entry(); };".into(),
            "1:10",
            "D_PROV_BADNAME",
            "syscall is that of a provider of the",
        ),
        (
            "provider proc { probe exec(); };".into(),
            "1:10",
            "D_PROV_BADNAME",
            "proc is that of a provider of the",
        ),
    ] {
        let project = Project::new("tracers", &[("web.d", &text)]);
        let o = project.dtrace("-h -s web.d").code(1);
        let (line, _) = at.split_once(':').unwrap_or_default();
        assert!(o.err.contains(&format!(" line {line}: ")) && o.err.contains(says), "{text}: {o:?}");
        assert!(o.err.contains(&format!("--> web.d:{at}\n")), "{text}: {o:?}");
        let o = project.dtrace("-G -xerrtags -s web.d").code(1);
        assert!(o.err.contains(tag), "{text}: {o:?}");
        assert_eq!((project.read("web.h"), project.read("web.o")), (String::new(), String::new()), "{text}");
    }
    Pass
}

/// Those that this machine has.
fn a_provider_of_the_system_is_no_provider_of_a_program() -> Verdict {
    let list = dtrace(&["-l"]).code(0);
    let names = list.out.lines().skip(1).filter_map(|l| l.split_whitespace().nth(1));
    let mut names: Vec<&str> = names.filter(|n| !n.ends_with(|c: char| c.is_ascii_digit())).collect();
    names.sort_unstable();
    names.dedup();
    assert!(names.contains(&"syscall") && names.contains(&"proc"), "{names:?}");
    for name in names {
        let project = Project::new("system", &[("web.d", &format!("provider {name} {{ probe start(); }};"))]);
        let o = project.dtrace("-h -s web.d").code(1);
        assert!(o.err.contains(&format!("provider name {name} is that of ")), "{o:?}");
    }
    Pass
}

/// In the style of the definitions of PostgreSQL, Python, GLib and libvirt: provider blocks, with
/// types that nothing declares, and headers of the system, whose functions are no variables of a
/// definition.
fn definitions_of_well_known_programs_are_accepted() -> Verdict {
    for (words, text) in [
        (
            "-C",
            "#define LocalTransactionId unsigned int\n#define Oid unsigned int\n#define bool unsigned char\n\
             provider postgresql {\n probe transaction__start(LocalTransactionId);\n\
             probe lock__wait__start(unsigned int, LOCKMODE);\n probe sort__done(bool, long);\n };",
        ),
        (
            "",
            "provider python {\n probe function__entry(const char *, const char *, int, PyFrameObject *);\n\
             probe gc__done(long);\n};\n#pragma D attributes Evolving/Evolving/Common provider python provider\n\
             #pragma D attributes Private/Private/Common provider python module\n",
        ),
        ("", "provider glib {\n probe mem__alloc(void*, unsigned int, unsigned int, unsigned int);\n};"),
        (
            "",
            "provider libvirt {\n probe rpc_socket_new(void *sock, int refs);\n probe event(enum state s, struct sock *s);\n};",
        ),
        (
            "-C",
            "#include <stdint.h>\n#include <stdio.h>\n#include <sys/types.h>\nextern int verbose;\n\
             provider web { probe start(uint32_t, size_t, FILE *f); };",
        ),
    ] {
        let project = Project::new("known", &[("web.d", text)]);
        for mode in ["-h", "-G"] {
            let o = project.dtrace(&format!("{mode} {words} -s web.d")).code(0);
            assert_eq!(o.err, "", "{text}");
        }
    }
    Pass
}

fn definitions_are_preprocessed_as_the_options_say() -> Verdict {
    let text = "#include \"types.h\"\n#ifdef MORE\n#define ARG ,int\n#else\n#define ARG\n#endif\n\
        provider web { probe start(ident ARG); };\n";
    let project = Project::new("preprocessed", &[("web.d", text)]);
    std::fs::create_dir(project.path("include")).unwrap();
    std::fs::write(project.path("include/types.h"), "#define ident unsigned short\n").unwrap();
    let o = project.dtrace("-C -Iinclude -DMORE -h -s web.d");
    if o.err.contains("Preprocessor not found") {
        return Skip("this machine has no C preprocessor".into());
    }
    let header = project.read("web.h");
    assert!(header.contains("\"start\", \"2@%0 -4@%1\""), "{o:?} {header}");
    assert!(header.contains("/* probe start(unsigned short ,int) */"), "{header}");
    project.dtrace("-C -I include -h -s web.d").code(0);
    assert!(project.read("web.h").contains("\"start\", \"2@%0\""));
    Pass
}

fn options_that_build_systems_pass_are_accepted() -> Verdict {
    let project = Project::new("accepted", &[("web.d", DEFINITION), ("probe.d", "BEGIN{}")]);
    for words in [
        "-h -64 -s web.d -o a",
        "-64 -h -k -s web.d -o a",
        "-32 -h -s web.d -o a",
        "-G -fPIC -s web.d -o a",
        "-fpic -G -s web.d -o a",
        "-x nolibs -G -s web.d -o a web.d",
        "-xlinktype=elf -xlazyload -G -s web.d -o a",
        "--types -h -s web.d -o a",
        "-C -G -s web.d -o a",
        // Python's configure asks whether there is a -G in this way.
        "-G -s probe.d -o a",
    ] {
        let _ = std::fs::remove_file(project.path("a"));
        let o = project.dtrace(words);
        if o.err.contains("Preprocessor not found") {
            continue;
        }
        assert_eq!((o.code, &*o.err, &*o.out), (Some(0), "", ""), "{words}");
        assert!(!project.read("a").is_empty(), "{words}");
    }
    // They mean something else where a program is traced.
    assert!(dtrace(&["-k", "-n", "BEGIN"]).code(2).err.contains("invalid option -- 'k'"));
    Pass
}

fn an_object_is_for_the_machine_of_the_objects() -> Verdict {
    let project = Project::new("machine", &[("web.d", DEFINITION), ("notes.txt", "x")]);
    // A file of arm64 needs no more than its head here.
    let mut head = vec![0; 64];
    head[..6].copy_from_slice(b"\x7fELF\x02\x01");
    let machine = |bytes: &[u8]| u16::from_le_bytes([bytes[18], bytes[19]]);
    for number in [183u16, 62] {
        head[18..20].copy_from_slice(&number.to_le_bytes());
        std::fs::write(project.path(&format!("{number}.o")), &head).unwrap();
        project.dtrace(&format!("-G -s web.d -o web.o notes.txt {number}.o")).code(0);
        assert_eq!(machine(&std::fs::read(project.path("web.o")).unwrap()), number);
    }
    let o = project.dtrace("-G -s web.d -o web.o 62.o 183.o").code(1);
    assert_eq!(o.err, "dtrace: 62.o and 183.o are objects of different machines\n");
    Pass
}

const MAKEFILE: &str = "\
program: main.o work.o probes.o
\tcc -o $@ main.o work.o probes.o
main.o work.o: probes.h
probes.h: probes.d
\t$(DTRACE) -C -h -s $< -o $@
probes.o: probes.d main.o work.o
\t$(DTRACE) -C -G -s $< main.o work.o -o $@
";

const MAIN: &str = "\
#include \"probes.h\"
#include <stdlib.h>
void work(int);
int main(int argc, char **argv)
{
	int i, all = argc > 1 ? atoi(argv[1]) : 0;
	for (i = 0; i < all; i++)
		work(i);
	return 0;
}
";

const WORK: &str = "\
#include \"probes.h\"
__attribute__((noinline)) void work(int n)
{
	if (n % 4 == 0)
		WEB_START(n);
	if (WEB_REQUEST_DONE_ENABLED())
		WEB_REQUEST_DONE(n, \"/path\");
}
";

/// Builds the program. `Err`: the test is skipped.
fn made(name: &str) -> Result<Project, Verdict> {
    let files = [("probes.d", DEFINITION), ("Makefile", MAKEFILE), ("main.c", MAIN), ("work.c", WORK)];
    let project = Project::new(name, &files);
    if project.run("cc --version").is_none() || project.run("cpp --version").is_none() {
        return Err(Skip("no C compiler".into()));
    }
    let Some(o) = project.run(&format!("make DTRACE={} CFLAGS=-O2", binary().display())) else {
        return Err(Skip("no make".into()));
    };
    assert!(o.status.success(), "{o:?}");
    Ok(project)
}

fn a_project_that_makes_header_and_object_links_and_runs() -> Verdict {
    let project = match made("make") {
        Ok(project) => project,
        Err(skip) => return skip,
    };
    assert!(project.run("./program 10").is_some_and(|o| o.status.success()));
    let notes = String::from_utf8(project.run("readelf -nW program").unwrap().stdout).unwrap();
    assert_eq!(notes.matches("Provider: web").count(), 2, "{notes}");
    Pass
}

/// The site as a place in a function: its note is at the `nop` that is probed.
fn a_site_of_the_header_fires_exactly_as_often_as_it_is_passed() -> Verdict {
    let project = match made("fires") {
        Ok(project) => project,
        Err(skip) => return skip,
    };
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    let notes = String::from_utf8(project.run("readelf -nW program").unwrap().stdout).unwrap();
    let site = notes.split("Name: start").nth(1).and_then(|t| t.split("Location: ").nth(1)).unwrap();
    let site = number(site.split(',').next().unwrap());
    let symbols = String::from_utf8(project.run("nm program").unwrap().stdout).unwrap();
    let work = symbols.lines().find(|l| l.ends_with(" T work")).unwrap();
    let offset = site - number(work.split(' ').next().unwrap());
    let command = format!("{} 1000", project.path("program"));
    let script =
        format!("pid$target:a.out:work:{offset:x} {{ @ = count(); }} END {{ printa(\"%@d\\n\", @); }}");
    let o = dtrace(&["-qc", &command, "-n", &script]);
    if o.err.contains("uprobe") {
        return Skip(o.err);
    }
    assert_eq!(o.code(0).out.trim(), "250");
    Pass
}
