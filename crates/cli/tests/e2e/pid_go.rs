//! Functions of Go: where they are entered, their arguments and results, and the stacks of
//! goroutines.

use std::path::PathBuf;
use std::process::Command;

use bpf_sys::features::Facility;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::lacks;
use crate::tool::dtrace;

tests! {
    a_function_of_go_is_entered_once_however_often_its_stack_grows
    arguments_and_results_of_go_have_the_types_and_values_of_the_source
    stacks_of_goroutines_go_down_to_their_beginning
    arguments_that_are_not_where_go_has_them_are_refused
}

/// Methods, goroutines whose stacks grow, and panics that are recovered.
const CALLS: &str = r#"package main
import ("fmt"; "sync")
type Acc struct { total int64; name string }
//go:noinline
func (a *Acc) Add(n int64, s string) int64 { a.total += n + int64(len(s)); return a.total }
//go:noinline
func deep(n int) int { var b [512]byte; b[n%512] = 1; if n == 0 { return int(b[0]) }; return deep(n-1) + int(b[n%512]) }
//go:noinline
func large(n int) int { var b [40000]byte; b[n] = 1; return int(b[n+1]) + n }
//go:noinline
func panicky(n int) (r int) { defer func() { if recover() != nil { r = -1 } }(); if n%10 == 0 { panic("x") }; return n }
func main() {
	a := &Acc{name: "go"}
	for i := 0; i < 1000; i++ { a.Add(int64(i), "abc") }
	var wg sync.WaitGroup
	for k := 0; k < 100; k++ {
		wg.Add(1)
		go func() { defer wg.Done(); b := &Acc{}; for i := 0; i < 100; i++ { b.Add(int64(i), "de") }; deep(100); large(7) }()
	}
	wg.Wait()
	p := 0
	for i := 0; i < 100; i++ { if panicky(i) == -1 { p++ } }
	fmt.Println(a.total, "panics", p)
}
"#;

/// Values of all kinds.
const VALUES: &str = r#"package main
import "fmt"
type pair struct { a int32; b int64 }
type small struct { x, y int8; _ int16; p *int }
type mixed struct { f float64; n int }
type shape interface { area(scale int) int }
type square struct { side int }
//go:noinline
func (s square) area(scale int) int { return s.side * s.side * scale }
//go:noinline
func ints(a, b, c, d, e, f, g, h, i, j, k int) (int, int) { return j + k, a }
//go:noinline
func objects(p pair, s small, xs []int, e error) (n int, err error) { return len(xs) + int(p.b), e }
//go:noinline
func floats(x float64, n int, m mixed, last int) float64 { return x + float64(n+m.n+last) }
//go:noinline
func array(a [3]int, n int8, s string) int { return a[2] + int(n) }
//go:noinline
func unnamed(_ int, b int, c int) (_ int, r int) { r = c; return }
//go:noinline
func many(a, b, c, d, e, f, g int, s string, t string) (r1 string, r2 int, r3 []int, r4 error) {
	return t, len(s), []int{a, b}, nil
}
//go:noinline
func closure(f func(int) int, m map[string]int, none struct{}, last int) int { return f(last) }
//go:noinline
func generic[T any](x T, n int) T { sink = n; return x }
//go:noinline
func bytes(a bool, b uint8, c int16, d uint32, r rune) (bool, uint8) { return a, b }
var sink int
func main() {
	x := 7
	total := 0
	for i := 0; i < 10; i++ {
		var s shape = square{3}
		total += s.area(i)
		j, a := ints(1, 2, 3, 4, 5, 6, 7, 8, 9, 1000+i, 1100)
		n, _ := objects(pair{-5, 60 + int64(i)}, small{1, -2, 0, &x}, []int{1, 2, 3}, fmt.Errorf("e"))
		total += j + a + n + int(floats(1.5, 2, mixed{2.5, 3}, 40+i))
		total += array([3]int{10, 20, 30 + i}, 5, "hello")
		_, r := unnamed(1, 2, 400+i)
		_, l, _, _ := many(1, 2, 3, 4, 5, 6, 70+i, "ab", "cde")
		total += r + l + closure(func(v int) int { return v + x }, nil, struct{}{}, 90+i)
		total += generic(5, 500+i)
		if ok, u := bytes(i%2 == 0, 200, -3, 4000000000, 'x'); ok { total += int(u) }
	}
	fmt.Println(total)
}
"#;

/// What is read of [`VALUES`]: what does not change, and the sum of what does. Of `unnamed` the
/// parameters with names.
const READ: &str = r#"
pid$target:a.out:main.square.area:entry { @["area", args[0].side, 0, 0, 0] = sum(args[1]); }
pid$target:a.out:main.square.area:return { @["area:", 0, 0, 0, 0] = sum(args[1]); }
pid$target:a.out:main.ints:entry { @["ints", args[0], args[8], args[10], arg9 == args[9]] = sum(args[9]); }
pid$target:a.out:main.ints:return { @["ints:", args[2], arg2, 0, 0] = sum(args[1]); }
pid$target:a.out:main.objects:entry {
	@["objects", args[0].a, args[1].x, args[1].y, *args[1].p] = sum(args[0].b);
	@["objects, slice", args[2].len, args[2].cap, args[2].array[2], args[3].tab != 0] = sum(1);
}
pid$target:a.out:main.objects:return { @["objects:", args[2].data != 0, 0, 0, 0] = sum(args[1]); }
pid$target:a.out:main.floats:entry { @["floats", args[1], arg1, 0, 0] = sum(args[3]); }
pid$target:a.out:main.array:entry {
	@["array", args[0][0], args[0][1], args[1], args[2].len] = sum(args[0][2]);
	@[copyinstr((uintptr_t)args[2].str, args[2].len), 0, 0, 0, 0] = sum(1);
}
pid$target:a.out:main.unnamed:entry { @["unnamed", args[FIRST], 0, 0, 0] = sum(args[SECOND]); }
pid$target:a.out:main.unnamed:return { @["unnamed:", 0, 0, 0, 0] = sum(args[2]); }
pid$target:a.out:main.many:entry {
	@["many", args[7].len, args[8].len, args[0], args[5]] = sum(args[6]);
	@[copyinstr((uintptr_t)args[8].str, args[8].len), 0, 0, 0, 0] = sum(1);
}
pid$target:a.out:main.many:return { @["many:", args[1].len, args[2], args[3].len, args[4].tab == 0] = sum(1); }
pid$target:a.out:main.closure:entry { @["closure", args[0] != 0, args[1] == 0, 0, 0] = sum(args[3]); }
pid$target:a.out:main.generic?go.shape.int*:entry { @["generic", args[0], 0, 0, 0] = sum(args[1]); }
pid$target:a.out:main.bytes:entry { @["bytes", args[1], args[2], args[3], args[4]] = sum(args[0]); }
pid$target:a.out:main.bytes:return { @["bytes:", args[2], 0, 0, 0] = sum(args[1]); }
END { printa("%s %d %d %d %d = %@d\n", @); }
"#;

const VALUES_READ: [&str; 19] = [
    "area 3 0 0 0 = 45",
    "area: 0 0 0 0 = 405",
    "array 10 20 5 5 = 345",
    "bytes 200 -3 4000000000 120 = 5",
    "bytes: 200 0 0 0 = 5",
    "cde 0 0 0 0 = 10",
    "closure 1 1 0 0 = 945",
    "floats 2 3 0 0 = 445",
    "generic 5 0 0 0 = 5045",
    "hello 0 0 0 0 = 10",
    "ints 1 9 1100 1 = 10045",
    "ints: 1 1 0 0 = 21045",
    "many 2 3 1 6 = 745",
    "many: 3 2 2 1 = 10",
    "objects -5 1 -2 7 = 645",
    "objects, slice 3 3 3 1 = 10",
    "objects: 1 0 0 0 = 675",
    "unnamed 2 0 0 0 = 4045",
    "unnamed: 0 0 0 0 = 4045",
];

/// A program of Go in a directory of its own.
struct Program {
    dir: PathBuf,
}

impl Program {
    /// Compiles a program; the error is why it cannot be.
    fn build(name: &str, source: &str) -> Result<Program, Verdict> {
        if let Some(skip) = lacks(Facility::UprobeMulti) {
            return Err(skip);
        }
        let dir = std::env::temp_dir().join(format!("dt-go-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("main.go"), source).unwrap();
        let program = Program { dir };
        program.again("program", &[])?;
        Ok(program)
    }

    /// Compiles the program with these flags. Gives its path.
    fn again(&self, name: &str, flags: &[&str]) -> Result<String, Verdict> {
        let built = Command::new("go")
            .current_dir(&self.dir)
            .args(["build", "-o", name])
            .args(flags)
            .arg("main.go")
            .env("GOCACHE", self.dir.join("cache"))
            .env("GO111MODULE", "off")
            .output();
        match built {
            Err(e) => Err(Skip(format!("no Go compiler: {e}"))),
            Ok(o) => {
                assert!(o.status.success(), "{o:?}");
                Ok(self.path(name))
            }
        }
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn a_function_of_go_is_entered_once_however_often_its_stack_grows() -> Verdict {
    let program = match Program::build("entries", CALLS) {
        Ok(program) => program,
        Err(skip) => return skip,
    };
    let path = program.path("program");
    let probes = "pid$target:a.out:main.deep:entry, pid$target:a.out:main.deep:return,
         pid$target:a.out:main.large:entry, pid$target:a.out:main.large:return,
         pid$target:a.out:main.panicky:entry, pid$target:a.out:main.panicky:return,
         pid$target:a.out:main.*Acc?.Add:entry, pid$target:a.out:main.*Acc?.Add:return";
    // What the clauses use decides where other probes are.
    for used in ["", "/arg0 != 0 || arg0 == 0/", "/ustackdepth > 0/", "/uregs[R_SP] != 0/"] {
        let script = format!(
            "{probes} {used} {{ @[probefunc, probename] = count(); }} END {{ printa(\"%s %s %@d\\n\", @); }}"
        );
        let o = dtrace(&["-qc", &path, "-n", &script]).code(0);
        assert!(o.out.starts_with("502500 panics 10\n"), "{o:?}");
        let mut rows: Vec<&str> = o.out.lines().skip(1).filter(|line| !line.is_empty()).collect();
        rows.sort_unstable();
        let expected = [
            "main.(*Acc).Add entry 11000",
            "main.(*Acc).Add return 11000",
            "main.deep entry 10100",
            "main.deep return 10100",
            "main.large entry 100",
            "main.large return 100",
            "main.panicky entry 100",
            "main.panicky return 100",
        ];
        assert_eq!(rows, expected, "{used}: {o:?}");
    }
    Pass
}

fn arguments_and_results_of_go_have_the_types_and_values_of_the_source() -> Verdict {
    let program = match Program::build("values", VALUES) {
        Ok(program) => program,
        Err(skip) => return skip,
    };
    // Without optimization every parameter is stored before it is used.
    let plain = match program.again("plain", &["-gcflags=-N -l"]) {
        Ok(plain) => plain,
        Err(skip) => return skip,
    };
    for path in [program.path("program"), plain] {
        // Go 1.19 does not list parameters without a name, Go 1.26 does.
        let listed = dtrace(&["-lvc", &path, "-n", "pid$target:a.out:main.unnamed:entry"]).code(0);
        let (first, second) = if listed.out.contains("args[2]: int") { ("1", "2") } else { ("0", "1") };
        let script = READ.replace("FIRST", first).replace("SECOND", second);
        let o = dtrace(&["-qc", &path, "-n", &script]).code(0);
        let mut rows: Vec<&str> = o.out.lines().filter(|line| line.contains('=')).collect();
        rows.sort_unstable();
        assert_eq!(rows, VALUES_READ, "{o:?}");
    }
    let types =
        dtrace(&["-lvc", &program.path("program"), "-n", "pid$target:a.out:main.array:entry"]).code(0);
    for line in ["args[0]: int [3]", "args[1]: int8", "args[2]: struct string"] {
        assert!(types.out.contains(line), "{line}: {types:?}");
    }
    let floats = "pid$target:a.out:main.floats:entry { trace(args[0]); }";
    let o = dtrace(&["-qc", &program.path("program"), "-n", floats]).code(1);
    assert!(o.err.contains("a floating-point number is passed in a register"), "{o:?}");
    Pass
}

fn stacks_of_goroutines_go_down_to_their_beginning() -> Verdict {
    let program = match Program::build("stacks", CALLS) {
        Ok(program) => program,
        Err(skip) => return skip,
    };
    let path = program.path("program");
    let script = "pid$target:a.out:main.deep:entry /arg0 == 0/ { @entry[ustack()] = count(); }
         pid$target:a.out:main.panicky:return { @return[ustack()] = count(); }";
    let o = dtrace(&["-qc", &path, "-x", "ustackframes=200", "-n", script]).code(0);
    assert!(!o.out.contains("incomplete"), "{o:?}");
    let (mut deep, mut frames, mut below, mut returns) = (0, 0, "", 0);
    for line in o.out.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.parse::<u64>() {
            // Under each stack its count; the last frame is the one above.
            Ok(count) => {
                assert!(below.starts_with("program`runtime.goexit"), "{below}: {o:?}");
                if frames == 0 {
                    returns += count
                } else {
                    assert_eq!((frames, count), (101, 100), "{o:?}")
                }
                deep += frames;
                frames = 0;
            }
            Err(_) => frames += u64::from(line.starts_with("program`main.deep")),
        }
        below = line;
    }
    assert_eq!((deep, returns), (101, 100), "{o:?}");
    Pass
}

fn arguments_that_are_not_where_go_has_them_are_refused() -> Verdict {
    let program = match Program::build("refused", CALLS) {
        Ok(program) => program,
        Err(skip) => return skip,
    };
    let path = program.path("program");
    let one = "pid$target:a.out:runtime.memmove:entry";
    let o = dtrace(&["-qc", &path, "-n", &format!("{one} {{ @ = sum(arg2); }}")]).code(1);
    assert!(o.err.contains("runtime.memmove has no such arguments: it is written in assembly"), "{o:?}");
    let o = dtrace(&["-qc", &path, "-n", &format!("{one} {{ @ = sum(args[0]); }}")]).code(1);
    assert!(o.err.contains("it is written in assembly"), "{o:?}");
    // Without arguments it has its probe.
    let o = dtrace(&["-qc", &path, "-n", &format!("{one} {{ @ = count(); }}")]).code(0);
    assert!(o.last_number() > 0, "{o:?}");
    // Beside others it is left out, and said.
    let both = "pid$target:a.out:runtime.memmove:entry, pid$target:a.out:runtime.morestack*:entry,
         pid$target:a.out:main.deep:entry { @[probefunc] = max(arg0); }";
    let o = dtrace(&["-c", &path, "-n", both]).code(0);
    assert_eq!(o.value_of("main.deep"), 100, "{o:?}");
    assert!(
        o.err.contains("left out: 1 (program`runtime.memmove:entry): it is written in assembly"),
        "{o:?}"
    );
    assert!(o.err.contains("as functions in assembly have them (ABI0)"), "{o:?}");
    // Without types the registers are known all the same, and without names nothing is.
    let untyped = match program.again("untyped", &["-ldflags=-w"]) {
        Ok(untyped) => untyped,
        Err(skip) => return skip,
    };
    let argument = |of: &str| format!("pid$target:a.out:main.panicky:entry {{ @ = sum({of}); }}");
    assert_eq!(dtrace(&["-qc", &untyped, "-n", &argument("arg0")]).code(0).last_number(), 4950);
    let o = dtrace(&["-qc", &untyped, "-n", &argument("args[0]")]).code(1);
    assert!(o.err.contains("it has no debug information"), "{o:?}");
    let stripped = program.again("stripped", &["-ldflags=-s -w"]);
    let Ok(stripped) = stripped else { return Pass };
    let o = dtrace(&["-qc", &stripped, "-n", &argument("arg0")]).code(1);
    assert!(o.err.contains("stripped is stripped of all names"), "{o:?}");
    Pass
}
