//! USDT beside programs that describe more than their share: they hide the probes of nobody else.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::Verdict::{self, Pass};
use crate::tool::{Output, dtrace, finish, printed, signal, start};
use crate::usdt::{Programs, compiled, line, next, wait};
use crate::usdt_later::own;

tests! {
    programs_with_many_probes_hide_no_other_program
    programs_with_many_probes_that_start_later_hide_no_other_program
    a_program_whose_arguments_a_clause_does_not_fit_denies_it_to_nobody
    what_a_list_leaves_out_is_said
}

/// The user whose programs are hostile.
const NOBODY: u32 = 65534;

/// For each line it fires ten times, and says that it has.
const GOOD: &str = r#"
PLAIN void hit(long a) { __asm__ volatile("990: nop\n" NOTE(PROVIDER, "hit", "0", ARGUMENTS) :: "r"(a)); }
int main(void)
{
    while (getchar() != EOF) {
        for (int i = 0; i < 10; i++)
            hit(i);
        puts("fired");
        fflush(stdout);
    }
    return 0;
}
"#;

/// How many probes a hostile program describes: as many as are read of one file.
const MANY: usize = 1 << 15;

/// The source of the descriptions of so many probes.
fn descriptions(programs: &Programs, provider: &str, count: usize) {
    let mut notes = String::from(".pushsection .note.stapsdt,\"\",\"note\"\n");
    for n in 0..count {
        let _ = write!(
            notes,
            ".balign 4\n.4byte 8, 2f-1f, 3\n.asciz \"stapsdt\"\n1: .8byte main, 0, 0\n.asciz \"{provider}\"\n\
             .asciz \"p{n}\"\n.asciz \"8@%rax\"\n2: .balign 4\n"
        );
    }
    notes.push_str(".popsection\n");
    std::fs::write(programs.path("notes.s"), notes).unwrap();
}

/// A program that describes many probes and waits.
fn many(programs: &Programs, name: &str, provider: &str) -> Result<String, Verdict> {
    descriptions(programs, provider, MANY);
    let text = "int main(void) { puts(\"waits\"); fflush(stdout); while (getchar() != EOF); return 0; }";
    programs.compile(name, text, &["-no-pie", "notes.s"])
}

fn good(programs: &Programs, name: &str, provider: &str, arguments: &str) -> Result<String, Verdict> {
    let words = [format!("-DPROVIDER=\"{provider}\""), format!("-DARGUMENTS=\"{arguments}\"")];
    programs.compile(name, GOOD, &words.each_ref().map(String::as_str))
}

/// A provider of ours, a program that describes many probes of it, and one that describes one.
fn crowd(name: &str) -> Result<(Programs, String, String, String), Verdict> {
    let (programs, provider) = (Programs::new(name)?, own(&format!("tst{name}")));
    let program = many(&programs, "many", &provider)?;
    let good = good(&programs, "good", &provider, "-8@%0")?;
    Ok((programs, provider, program, good))
}

/// Copies of a program that a user runs.
fn copies(programs: &Programs, program: &str, user: u32, count: usize) -> Vec<Child> {
    let one = |n: usize| {
        let path = programs.path(&format!("many{n}"));
        let _ = std::fs::remove_file(&path);
        std::fs::copy(program, &path).unwrap();
        let mut child =
            Command::new(&path).uid(user).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        assert_eq!(line(&mut child), "waits");
        child
    };
    (0..count).map(one).collect()
}

fn of_user(program: &str, user: u32) -> Child {
    Command::new(program).uid(user).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

fn fires(process: &mut Child) {
    next(process);
    assert_eq!(line(process), "fired");
}

fn end(processes: Vec<Child>) {
    for mut process in processes {
        drop(process.stdin.take());
        process.wait().unwrap();
    }
}

fn ended(session: Child) -> Output {
    signal(&session, 15);
    finish(session).code(0)
}

/// Counts the firings of each process's probe, in the order of their ids.
fn script(provider: &str) -> String {
    format!(
        "{provider}*::: {{ @[pid] = count(); }} {provider}*:::hit {{ printf(\"seen %d\\n\", pid); }} \
         BEGIN {{ printf(\"begun\\n\"); }} END {{ printa(\"=%d %@d\\n\", @); }}"
    )
}

fn counts(o: &Output) -> Vec<String> {
    let mut all: Vec<String> = o.out.lines().filter_map(|l| Some(l.rsplit_once('=')?.1.to_owned())).collect();
    all.sort();
    all
}

fn each_has_ten(processes: &[&Child]) -> Vec<String> {
    let mut all: Vec<String> = processes.iter().map(|process| format!("{} 10", process.id())).collect();
    all.sort();
    all
}

fn programs_with_many_probes_hide_no_other_program() -> Verdict {
    let (programs, provider, program, good) = compiled!(crowd("crowd"));
    let mut hostile = copies(&programs, &program, NOBODY, 10);
    let (mut mine, mut another) = (wait(&good), of_user(&good, NOBODY - 1));
    let other = programs.path("other");
    std::fs::copy(&good, &other).unwrap();
    // Of the user's own programs, too, those that describe little are traced.
    let mut his = of_user(&other, NOBODY);
    let mut session = start(&["-n", &script(&provider)]);
    printed(&mut session);
    for process in [&mut mine, &mut another, &mut his] {
        fires(process);
    }
    let o = ended(session);
    let expected = each_has_ten(&[&mine, &another, &his]);
    let whose: Vec<u32> = hostile.iter().map(Child::id).collect();
    hostile.extend([mine, another, his]);
    end(hostile);
    assert_eq!(counts(&o), expected, "{o:?}");
    let said: Vec<&str> = o.err.lines().filter(|line| line.contains("left out")).collect();
    // Which of them are looked at before their user's share of the time is over depends on the
    // machine, and a few are named.
    let is_his =
        |line: &&str| whose.iter().any(|pid| line.contains(&format!("process {pid} of user {NOBODY}")));
    assert!(said.iter().any(is_his), "{o:?}");
    assert!(!said.iter().any(|line| line.contains("of good") || line.contains("of other")), "{o:?}");
    Pass
}

fn programs_with_many_probes_that_start_later_hide_no_other_program() -> Verdict {
    let (programs, provider, program, good) = compiled!(crowd("crowdlater"));
    let mut session = start(&["-Zn", &script(&provider)]);
    printed(&mut session);
    let mut hostile = copies(&programs, &program, NOBODY, 11);
    let mut mine = wait(&good);
    let seen = format!("seen {}", mine.id());
    // Those before are looked at first.
    testing::eventually("the good program", crate::tool::LIMIT, || {
        fires(&mut mine);
        crate::tool::unread(&session) > 0 && line(&mut session).contains(&seen)
    });
    let o = ended(session);
    hostile.push(mine);
    end(hostile);
    let said = format!("of user {NOBODY}");
    let told: Vec<&str> = o.err.lines().filter(|l| l.contains("are not enabled: ")).collect();
    assert!(told.len() == 8 && told.iter().all(|l| l.contains(&said)), "{o:?}");
    assert!(o.err.lines().any(|l| l.contains("of 3 more files are left out")), "{o:?}");
    Pass
}

/// It is left out with a message, whether it is the first or the last.
fn a_program_whose_arguments_a_clause_does_not_fit_denies_it_to_nobody() -> Verdict {
    let (programs, provider) = (compiled!(Programs::new("unfit")), own("tstunfit"));
    let first = compiled!(good(&programs, "a_none", &provider, ""));
    let right = compiled!(good(&programs, "good", &provider, "-8@%0"));
    let last = compiled!(good(&programs, "z_none", &provider, ""));
    let script = format!(
        "{provider}*:::hit {{ @[pid] = sum(args[0] - 3); }} BEGIN {{ printf(\"begun\\n\"); }} \
         END {{ printa(\"=%d %@d\\n\", @); }}"
    );
    for wrong in [vec![&first], vec![&last], vec![&first, &last]] {
        let mut all: Vec<Child> = wrong.iter().map(|program| of_user(program, NOBODY)).collect();
        all.push(wait(&right));
        let mut session = start(&["-n", &script]);
        printed(&mut session);
        all.iter_mut().for_each(fires);
        let o = ended(session);
        let expected = format!("{} 15", all.last().unwrap().id());
        end(all);
        assert_eq!(counts(&o), [expected], "{o:?}");
        assert!(o.err.contains("_none:hit:hit is left out: "), "{o:?}");
        assert!(o.err.contains("index 0 is out of range"), "{o:?}");
    }
    // What fits no program is an error.
    let alone = of_user(&first, NOBODY);
    let o = dtrace(&["-n", &script]).code(1);
    end(vec![alone]);
    assert!(o.err.contains("index 0 is out of range"), "{o:?}");
    Pass
}

fn what_a_list_leaves_out_is_said() -> Verdict {
    let (programs, provider, program, good) = compiled!(crowd("crowdlist"));
    let mut all = copies(&programs, &program, NOBODY, 4);
    all.push(wait(&good));
    let o = dtrace(&["-ln", &format!("{provider}*:::p*"), "-n", &format!("{provider}*:::")]).code(0);
    let listed = format!("{provider}{}", all.last().unwrap().id());
    end(all);
    assert_eq!(o.out.lines().filter(|l| l.split_whitespace().nth(1) == Some(&listed)).count(), 1);
    assert!(o.err.contains("left out: ") && o.err.contains(&format!("of user {NOBODY}")), "{}", o.err);
    // Once for both descriptions.
    let told: Vec<&str> = o.err.lines().filter(|line| line.contains("left out: ")).collect();
    assert_eq!(told.iter().collect::<HashSet<_>>().len(), told.len(), "{}", o.err);
    Pass
}
