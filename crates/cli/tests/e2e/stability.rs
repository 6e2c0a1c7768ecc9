//! The output of `-v` for listed probes and for programs.

use crate::Verdict::{self, Pass};
use crate::tool::dtrace;

tests! {
    verbose_listings_show_three_blocks_of_stability verbose_mode_reports_the_stability_of_programs
    verbose_mode_without_enabling_shows_descriptions stability_below_amin_is_an_error
    a_statement_has_the_least_stability_of_its_names the_version_option_hides_newer_names
}

fn block(title: &str, triple: &str) -> String {
    let mut words = triple.split('/');
    let mut next = || words.next().unwrap();
    format!(
        "\n\t{title}\n\t\tIdentifier Names: {}\n\t\tData Semantics:   {}\n\t\tDependency Class: {}\n",
        next(),
        next(),
        next()
    )
}

fn verbose_listings_show_three_blocks_of_stability() -> Verdict {
    let o = dtrace(&["-lv", "-n", "tick-7"]).code(0);
    let mut lines = o.out.splitn(3, '\n');
    assert_eq!(
        lines.next(),
        Some("   ID   PROVIDER            MODULE                          FUNCTION NAME")
    );
    let row = lines.next().unwrap();
    assert!(row.ends_with(&format!("{:>10} {:>17} {:>33} tick-7", "profile", "", "")), "{o:?}");
    let evolving = "Evolving/Evolving/Common";
    let blocks = block("Probe Description Attributes", evolving) + &block("Argument Attributes", evolving);
    assert_eq!(lines.next(), Some(&*(blocks + "\n\tArgument Types\n\t\tNone\n\n")));
    // The names of the function and module are part of the stability.
    let o = dtrace(&["-lv", "-n", "syscall::read:entry"]).code(0);
    assert!(o.out.contains(&block("Probe Description Attributes", "Private/Private/Unknown")), "{o:?}");
    Pass
}

// row stability.report
fn verbose_mode_reports_the_stability_of_programs() -> Verdict {
    let report = |title: &str, described: &str, stated: &str| {
        format!("\nStability attributes for {title}:\n")
            + &block("Minimum Probe Description Attributes", described)
            + &block("Minimum Statement Attributes", stated)
            + "\n"
    };
    let o = dtrace(&["-qv", "-n", "dtrace:::BEGIN{exit(0);}", "-n", "BEGIN,syscall::read:entry{}"]).code(0);
    let stable = "Stable/Stable/Common";
    let expected = report("description dtrace:::BEGIN", stable, stable)
        + &report("description BEGIN,syscall::read:entry", "Unstable/Unstable/ISA", stable);
    assert_eq!(o.out, expected + "\n");
    assert_eq!(o.err, "");
    Pass
}

// row pragma.attributes
fn a_statement_has_the_least_stability_of_its_names() -> Verdict {
    let stated = |text: &str| {
        let o = dtrace(&["-qev", "-n", text]).code(0);
        let (_, after) = o.out.split_once("Minimum Statement Attributes\n").unwrap();
        after.lines().take(3).map(|l| l.split_whitespace().last().unwrap()).collect::<Vec<_>>().join("/")
    };
    assert_eq!(stated("dtrace:::BEGIN { trace(htons(1)); }"), "Evolving/Evolving/Common");
    assert_eq!(stated("dtrace:::BEGIN { trace(SIGKILL); }"), "Stable/Stable/Common");
    // A translator has a higher stability than the kernel data behind it.
    assert_eq!(stated("dtrace:::BEGIN { trace(curthread->pid); }"), "Stable/Private/Common");
    assert_eq!(stated("dtrace:::BEGIN { trace(curpsinfo->pr_pid); }"), "Stable/Stable/Common");
    assert_eq!(
        stated("dtrace:::BEGIN { trace(((struct task_struct *)arg0)->pid); }"),
        "Private/Private/Unknown"
    );
    let program = "#pragma D attributes Stable/Private/ISA x\nint x; dtrace:::BEGIN { trace(htons(x)); }";
    assert_eq!(stated(program), "Evolving/Private/ISA");
    let o =
        dtrace(&["-xerrtags", "-xamin=Stable/Stable/Common", "-en", "dtrace:::BEGIN { trace(htons(1)); }"]);
    let says = "[D_ATTR_MIN] in action list: attributes for function htons( ) (Evolving/Evolving/Common) are less than predefined minimum";
    assert!(o.err.contains(says), "{o:?}");
    o.code(1);
    Pass
}

// row stability.version
fn the_version_option_hides_newer_names() -> Verdict {
    let program = "BEGIN { @ = stddev(3); exit(0); }";
    dtrace(&["-xversion=1.6", "-en", program]).code(0);
    let o = dtrace(&["-xversion=1.5", "-xerrtags", "-en", program]).code(1);
    assert!(o.err.contains("[D_FUNC_UNDEF] in action list: undefined function name: stddev"), "{o:?}");
    let o = dtrace(&["-xversion=1.5", "-en", program]).code(1);
    assert!(o.err.contains("`stddev` came with D 1.6; the option version asks for 1.5"), "{o:?}");
    let o = dtrace(&["-xversion=1.99", "-en", program]);
    assert!(o.err.contains("Invalid value for specified option"), "{o:?}");
    Pass
}

fn verbose_mode_without_enabling_shows_descriptions() -> Verdict {
    let o = dtrace(&["-ev", "-n", "profile:::tick-1s { exit(0); }"]).code(0);
    let evolving = "Evolving/Evolving/Common";
    let expected = String::from("\nStability attributes for description profile:::tick-1s :\n")
        + &block("Minimum Probe Description Attributes", evolving)
        + &block("Minimum Statement Attributes", "Stable/Stable/Common")
        + "\nprofile:::tick-1s\n"
        + &block("Probe Description Attributes", evolving)
        + &block("Argument Attributes", evolving)
        + "\n\tArgument Types\n\t\tNone\n\n";
    assert_eq!((o.out, o.err.as_str()), (expected, ""));
    Pass
}

// row stability.amin
fn stability_below_amin_is_an_error() -> Verdict {
    let o = dtrace(&["-xerrtags", "-xamin=Evolving/Evolving/Common", "-n", "BEGIN { exit(0); }"]).code(1);
    let says = "[D_ATTR_MIN] attributes for description :::BEGIN (Unstable/Unstable/Common) are less than predefined minimum";
    assert!(o.err.contains(says), "{o:?}");
    dtrace(&["-xamin=Evolving/Evolving/Common", "-n", "dtrace:::BEGIN { exit(0); }"]).code(0);
    Pass
}
