//! `--format`: JSON and comma-separated values of sessions on the running kernel.

use testing::json::{Value, lines};

use crate::Verdict::{self, Pass};
use crate::tool::{dtrace, workload};

tests! {
    a_session_prints_its_results_as_json the_output_of_commands_is_not_in_the_json
    json_follows_the_output_to_another_file frames_of_a_process_have_the_path_of_their_object
    a_session_prints_its_aggregations_as_csv a_session_prints_its_records_as_csv
    a_key_that_one_of_several_aggregations_has_is_absent_in_the_others
    names_and_integers_of_kernel_structs_are_those_of_their_types_in_json
    a_fault_has_the_time_of_its_firing_and_precedes_the_records_of_later_clauses
}

/// The member of a line at a path, as JSON.
fn at(line: &Value, path: &str) -> String {
    line.pointer(path).map_or(String::new(), Value::to_string)
}

/// The lines of one kind.
fn of<'a>(all: &'a [Value], event: &str) -> Vec<&'a Value> {
    all.iter().filter(|line| line.get("event").is_some_and(|e| e == event)).collect()
}

fn a_session_prints_its_results_as_json() -> Verdict {
    let text = "BEGIN { trace(pid); printf(\"%s %d\\n\", probename, -1); print(*(int *)0); } \
                ERROR { @faults[arg4, execname] = count(); exit(3); }";
    let o = dtrace(&["--format", "json", "-n", text]).code(3);
    let all = lines(&o.out);
    let faults = of(&all, "fault");
    assert_eq!((faults.len(), at(faults[0], "/value").as_str()), (1, "\"0x0\""), "{o:?}");
    assert!(o.err.contains("invalid address (0x0)"), "{o:?}");
    let rows = of(&all, "aggregation");
    assert_eq!(at(rows[0], "/keys"), "[\"arg4\",\"execname\"]");
    assert_eq!(at(rows[0], "/rows/0/values"), "[{\"value\":1}]");
    assert_eq!(at(all.last().unwrap(), "/status"), "3");

    let text = "BEGIN { trace(pid); printf(\"%s %d\\n\", probename, -1); exit(0); }";
    let o = dtrace(&["-x", "oformat=json", "-n", text]).code(0);
    let all = lines(&o.out);
    let record = of(&all, "record")[0];
    // The session's own thread fires BEGIN.
    assert_eq!(at(record, "/fields/0/value"), at(record, "/pid"));
    assert_eq!(at(record, "/fields/0/name"), "\"pid\"");
    assert_eq!(at(record, "/probe/name"), "\"BEGIN\"");
    assert_eq!(at(record, "/fields/1/text"), "\"BEGIN -1\\n\"");
    assert_eq!(at(record, "/fields/1/args/0"), "{\"name\":\"probename\",\"value\":\"BEGIN\"}");
    Pass
}

fn the_output_of_commands_is_not_in_the_json() -> Verdict {
    let text = "BEGIN { system(\"echo %s\", \"hello\"); exit(0); }";
    let o = dtrace(&["-wq", "--format=json", "-n", text]).code(0);
    assert_eq!(o.err, "hello\n");
    assert_eq!(at(of(&lines(&o.out), "effect")[0], "/command"), "\"echo hello\"");
    // Nor is that of a target, unless the results go elsewhere.
    for format in ["json", "csv"] {
        let o = dtrace(&["-q", "--format", format, "-c", "echo hello", "-n", "END { @ = count(); }"]).code(0);
        assert_eq!(o.err, "hello\n");
        assert!(!o.out.contains("hello") && !o.out.is_empty(), "{o:?}");
    }
    let file = std::env::temp_dir().join(format!("e2e-json-target-{}", std::process::id()));
    let name = file.display().to_string();
    let o =
        dtrace(&["-q", "--format=json", "-o", &name, "-c", "echo hello", "-n", "END { trace(1); }"]).code(0);
    assert_eq!((&*o.out, &*o.err), ("hello\n", ""));
    assert_eq!(of(&lines(&std::fs::read_to_string(&file).unwrap()), "record").len(), 1);
    std::fs::remove_file(&file).unwrap();
    Pass
}

fn json_follows_the_output_to_another_file() -> Verdict {
    let path = std::env::temp_dir().join(format!("e2e-json-{}", std::process::id()));
    let text = format!(
        "BEGIN {{ trace(1); freopen(\"{}\"); trace(2); freopen(\"\"); trace(3); exit(0); }}",
        path.display()
    );
    let o = dtrace(&["-wq", "--format", "json", "-n", &text]).code(0);
    let values = |all: &[Value]| -> Vec<String> {
        let fields = of(all, "record").into_iter().flat_map(|r| r.get("fields")?.as_array());
        fields
            .flatten()
            .filter(|f| f.get("action").is_some_and(|a| a == "trace"))
            .map(|f| at(f, "/value"))
            .collect()
    };
    let there = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(
        (values(&lines(&o.out)), values(&lines(&there))),
        (vec!["1".into(), "3".into()], vec!["2".into()])
    );
    Pass
}

fn frames_of_a_process_have_the_path_of_their_object() -> Verdict {
    let text = "syscall::getppid:entry /pid == $target/ { ustack(); exit(0); }";
    let o = dtrace(&["-q", "--format", "json", "-n", text, "-c", &workload("getppid", 10)]).code(0);
    let all = lines(&o.out);
    let record = of(&all, "record")[0];
    let stack = record.pointer("/fields/0/value/stack").and_then(Value::as_array).unwrap();
    let part =
        |frame: &'_ Value, name: &str| frame.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
    let found = stack.iter().find(|frame| part(frame, "symbol") == "syscall").unwrap_or(&Value::Null);
    let (object, path) = (part(found, "object"), part(found, "path"));
    assert!(path.starts_with('/') && !object.is_empty() && path.ends_with(&object), "{record}");
    Pass
}

fn a_session_prints_its_aggregations_as_csv() -> Verdict {
    let text = "BEGIN { @n[probename, \"a,b\"] = count(); @q = quantize(5); exit(0); }";
    let o = dtrace(&["-q", "--format", "csv", "-n", text]).code(0);
    let expected = "probename,\"\"\"a,b\"\"\",@n\nBEGIN,\"a,b\",1\n\naggregation,min,max,value\n@q,4,7,1\n";
    assert_eq!(o.out, expected);
    Pass
}

fn a_session_prints_its_records_as_csv() -> Verdict {
    let script = "syscall::getppid:entry /pid == $target/ { printf(\"%s %d\\n\", execname, pid); }";
    let words = workload("getppid", 20);
    let o = dtrace(&["-q", "--format", "csv", "-c", &words, "-n", script]).code(0);
    let rows: Vec<Vec<&str>> = o.out.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0], ["time", "cpu", "probe", "pid", "tid", "execname", "pid"], "{}", o.out);
    let fits =
        |row: &[&str]| row[2].starts_with("syscall:") && row[3] == row[6] && row[0].parse::<u64>().is_ok();
    assert_eq!(rows[1..].iter().filter(|row| fits(row)).count(), 20, "{}", o.out);
    assert_eq!(rows.len(), 21);
    Pass
}

fn a_key_that_one_of_several_aggregations_has_is_absent_in_the_others() -> Verdict {
    let text = "BEGIN { @a[1] = count(); @b[2] = sum(0); printa(@a, @b); exit(0); }";
    let o = dtrace(&["-q", "--format", "csv", "-x", "aggsortkey", "-n", text]).code(0);
    assert_eq!(o.out, "key1,@a,@b\n1,1,\n2,,0\n");
    let o = dtrace(&["-q", "--format", "json", "-x", "aggsortkey", "-n", text]).code(0);
    let rows = at(of(&lines(&o.out), "aggregation")[0], "/rows");
    let expected = r#"[{"key":[1],"values":[{"value":1},null]},{"key":[2],"values":[null,{"value":0}]}]"#;
    assert_eq!(rows, expected);
    Pass
}

fn names_and_integers_of_kernel_structs_are_those_of_their_types_in_json() -> Verdict {
    let text = "struct s { int i; unsigned int u; char c[8]; }; struct s *p; \
                BEGIN { p = alloca(sizeof (struct s)); p->i = -1; p->u = 4294967295; \
                print(*p); trace(curthread->comm); @[curthread->comm] = count(); exit(0); }";
    let o = dtrace(&["-q", "--format", "json", "-n", text]).code(0);
    let all = lines(&o.out);
    let record = of(&all, "record")[0];
    assert_eq!(at(record, "/fields/0/value"), r#"{"c":"","i":-1,"u":4294967295}"#);
    let comm = at(record, "/fields/1/value");
    assert!(comm.starts_with('"') && comm.len() > 2, "{comm}");
    assert_eq!(at(of(&all, "aggregation")[0], "/rows/0/key"), format!("[{comm}]"));
    Pass
}

fn a_fault_has_the_time_of_its_firing_and_precedes_the_records_of_later_clauses() -> Verdict {
    let text = "BEGIN { trace(1); } BEGIN { trace(*(int *)0); } BEGIN { trace(timestamp); exit(0); }";
    let o = dtrace(&["-q", "--format", "json", "-n", text]).code(0);
    let all = lines(&o.out);
    let event = |line: &Value| at(line, "/event").trim_matches('"').to_owned();
    let shown: Vec<&Value> = all.iter().filter(|l| matches!(&*event(l), "record" | "fault")).collect();
    let events: Vec<String> = shown.iter().map(|line| event(line)).collect();
    assert_eq!(events, ["record", "fault", "record"], "{o:?}");
    let times: Vec<String> = shown.iter().map(|line| at(line, "/time")).collect();
    assert!(times.iter().all(|time| *time == times[0]), "{o:?}");
    assert_eq!(at(shown[2], "/fields/0/value"), times[0]);
    Pass
}
