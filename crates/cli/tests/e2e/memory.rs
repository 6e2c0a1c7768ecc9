//! Objects, pointers, scratch memory, and faults for invalid uses.

use bpf_sys::features::Facility;

use crate::machine::{lacks, no_types};
use crate::tool::{Output, dtrace, workload};
use crate::{Verdict, Verdict::Pass};

tests! {
    arrays_and_structs_work_in_every_scope bit_fields_of_script_structs_are_stored
    structs_are_elements_of_associative_arrays structs_are_copied_from_the_kernel
    pointers_into_variables_read_and_write_them stores_through_pointers_to_scratch_memory
    bcopy_copies_bytes copyin_gets_the_bytes_of_a_write scratch_memory_beyond_its_size_faults
    scratch_memory_in_a_variable_lives_as_long_as_the_firing an_address_of_scratch_memory_faults_after_its_firing
    an_index_out_of_bounds_faults_in_every_kind_of_probe bad_pointers_fault_in_every_kind_of_probe
    a_store_to_kernel_memory_faults trace_of_an_object_prints_its_bytes
    self_objects_are_separate_in_each_thread keys_of_any_number_and_length_are_distinguished
    dynamic_drops_are_reported_when_object_elements_run_out copyout_writes_user_memory_with_w
    invalid_stores_and_addresses_are_rejected
}

/// Runs a script that BEGIN ends.
#[track_caller]
fn begin(script: &str) -> Output {
    dtrace(&["-qn", script]).code(0)
}

// row variable.scalar-array, variable.two-dimensional, variable.struct-assignment
fn arrays_and_structs_work_in_every_scope() -> Verdict {
    let o = begin(
        "struct point { int x; char y; long z; }; struct line { struct point from; struct point to; };
         struct line g; self struct line t; this struct line c; int m[2][3]; this short s[4]; self char n[3];
         string names[3];
         BEGIN {
            g.to.x = 5; g.to.y = 300; g.to.z = -1; g.from = g.to; g.from.x += 2; g.from.z--;
            self->t = g; self->t.to.x = 9; this->c.to = self->t.from; this->c.to.y++;
            this->i = pid ? 1 : 0;
            m[1][2] = 7; m[this->i][this->i] = 8; m[0][0] = m[1][2] * 2;
            this->s[this->i] = 70000; this->s[3] = -5; self->n[this->i + 1] = 200; names[this->i] = \"one\";
            printf(\"%d %d %d\\n\", g.from.x, g.from.y, g.from.z);
            printf(\"%d %d %d %d\\n\", self->t.to.x, self->t.from.x, this->c.to.y, this->c.from.x);
            printf(\"%d %d %d %d\\n\", m[1][2], m[1][1], m[0][0], m[0][1]);
            printf(\"%d %d %d [%s] [%s]\\n\", this->s[1], this->s[3], self->n[2], names[1], names[2]);
            printf(\"%d %d %d\\n\", sizeof(g), sizeof(m), sizeof(struct point));
            exit(0);
         }",
    );
    assert_eq!(o.out, "7 44 -2\n9 7 45 0\n7 8 14 0\n4464 -5 -56 [one] []\n32 24 16\n\n", "{o:?}");
    Pass
}

fn bit_fields_of_script_structs_are_stored() -> Verdict {
    let o = begin(
        "struct flags { unsigned int low : 3; int signed_one : 5; unsigned int wide : 20; int last : 4; };
         struct flags f; struct flags a[int];
         BEGIN {
            f.low = 13; f.signed_one = -7; f.wide = 0xfffff; f.last = 3; f.wide++; f.signed_one -= 2;
            a[1].last = f.low; a[1].wide = 77;
            printf(\"%d %d %d %d\\n\", f.low, f.signed_one, f.wide, f.last);
            printf(\"%d %d %d\\n\", a[1].last, a[1].wide, a[2].wide);
            printf(\"%d\\n\", f.low = 15);
            exit(0);
         }",
    );
    assert_eq!(o.out, "5 -9 0 3\n5 77 0\n7\n\n", "{o:?}");
    Pass
}

// row variable.associative-struct-value
fn structs_are_elements_of_associative_arrays() -> Verdict {
    let o = begin(
        "struct point { int x; int y; char s[5]; }; struct point a[int, string]; self struct point b[string];
         BEGIN {
            a[1, \"k\"].x = 4; a[1, \"k\"].x++; a[1, \"k\"].y -= 3; a[1, \"k\"].s[2] = 'q';
            this->i = pid ? 3 : 0; a[1, \"k\"].s[this->i] = 'r';
            this->p = a[1, \"k\"]; a[2, \"k\"] = this->p; a[2, \"k\"].x *= 10;
            self->b[\"z\"] = a[2, \"k\"]; self->b[\"z\"].y = 6;
            printf(\"%d %d %d %d\\n\", a[1, \"k\"].x, a[1, \"k\"].y, a[1, \"k\"].s[2], this->p.s[3]);
            printf(\"%d %d %d\\n\", a[2, \"k\"].x, self->b[\"z\"].x, self->b[\"z\"].y);
            a[1, \"k\"] = 0;
            printf(\"%d %d %d\\n\", a[1, \"k\"].x, a[3, \"no\"].x, self->b[\"none\"].y);
            exit(0);
         }",
    );
    assert_eq!(o.out, "5 -3 113 114\n50 50 6\n0 0 0\n\n", "{o:?}");
    // Assigning 0 frees a thread-local one too, of any size; one that has memory anyway cannot be
    // freed.
    let o = begin(
        "struct odd { int x; char s[11]; }; self struct odd t; self struct odd u; struct odd g;
         BEGIN { self->t.x = 4; self->t.s[10] = 'q'; self->u = self->t; self->t = 0; }
         BEGIN { printf(\"%d %d %d %d\\n\", self->t.x, self->t.s[10], self->u.x, self->u.s[10]); exit(0); }",
    );
    assert_eq!(o.out, "0 0 4 113\n\n", "{o:?}");
    let o = dtrace(&["-qn", "struct odd { int x; } g; BEGIN { g = 0; }"]).code(1);
    assert!(o.err.contains("operands have incompatible types"), "{o:?}");
    Pass
}

fn structs_are_copied_from_the_kernel() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let o = begin(
        "struct list_head g; struct list_head a[int];
         BEGIN {
            this->l = curthread->tasks; g = curthread->tasks; a[pid] = *&curthread->tasks;
            this->t = (struct task_struct *)curthread;
            printf(\"%d %d %d %d\\n\", this->l.next == curthread->tasks.next, g.prev == this->l.prev,
                a[pid].next == g.next, this->t->tgid == pid);
            exit(0);
         }",
    );
    assert_eq!(o.out, "1 1 1 1\n\n", "{o:?}");
    // The object is unchanged when the source cannot be read.
    let o = begin(
        "struct point { int x; int y; }; struct point g;
         BEGIN { g.x = 3; } BEGIN { g = *(struct point *)8; printf(\"no\"); }
         BEGIN { printf(\"%d\\n\", g.x); exit(0); }",
    );
    assert_eq!(o.out, "3\n\n", "{o:?}");
    assert!(o.err.contains("invalid address (0x8) in action #1"), "{o:?}");
    Pass
}

fn pointers_into_variables_read_and_write_them() -> Verdict {
    let o = begin(
        "struct point { int x; int y; }; struct point g[4]; self struct point t; this struct point c; int *kept;
         BEGIN {
            this->p = &g[2]; this->p->y = 5; this->p--; this->p->x = 6; kept = &g[3].x; *kept = 11;
            this->q = &self->t.y; *this->q = 7; this->r = &this->c; this->r->x = 8;
            printf(\"%d %d %d %d\\n\", g[2].y, g[1].x, self->t.y, this->c.x);
            printf(\"%d %d\\n\", this->p == &g[1], &g[3] - this->p);
         }
         BEGIN { printf(\"%d %d\\n\", *kept, *(kept - 1)); exit(0); }",
    );
    assert_eq!(o.out, "5 6 7 8\n1 2\n11 5\n\n", "{o:?}");
    Pass
}

fn stores_through_pointers_to_scratch_memory() -> Verdict {
    let o = begin(
        "struct point { char c; int x; struct { short lo; short hi; } in[2]; };
         BEGIN {
            this->p = (struct point *)alloca(2 * sizeof(struct point));
            this->p->c = 1; this->p->x = -2; this->p->in[1].hi = 70000; this->p[1].x = 9;
            this->p[1].x <<= 2; ++this->p->x; this->g = *this->p;
            *((int *)this->p + 1) += 100;
            printf(\"%d %d %d %d %d\\n\", this->p->c, this->p->x, this->p->in[1].hi, this->p[1].x, this->g.x);
            exit(0);
         }",
    );
    assert_eq!(o.out, "1 99 4464 36 -1\n\n", "{o:?}");
    Pass
}

fn bcopy_copies_bytes() -> Verdict {
    let o = begin(
        "char text[16];
         BEGIN {
            this->n = pid ? 5 : 0; this->p = (char *)alloca(16); this->q = alloca(16);
            bcopy(\"hello, world\", this->p, 13); bcopy(this->p + 7, this->q, this->n + 1);
            text[0] = 'a'; text[1] = 'b'; this->r = alloca(8); bcopy(text, this->r, 8); bcopy(text, this->r, 0);
            printf(\"%s|%s|%s|%s\\n\", stringof(this->p), stringof(this->q), stringof(this->r), text);
            exit(0);
         }",
    );
    assert_eq!(o.out, "hello, world|world|ab|ab\n\n", "{o:?}");
    Pass
}

fn copyin_gets_the_bytes_of_a_write() -> Verdict {
    // Two numbers of 8 bytes, as on the workload's stack, and the same through memory that was
    // allocated before.
    let o = dtrace(&[
        "-q",
        "-c",
        "/bin/echo abcdefgh",
        "-n",
        "syscall::write:entry /pid == $target && arg2 == 9/ {
            this->p = (char *)copyin(arg1, arg2); this->q = (char *)alloca(16); copyinto(arg1 + 4, 3, this->q + 1);
            this->q[0] = '<'; this->q[4] = 0;
            printf(\"%c%c %s %s %x\\n\", this->p[0], this->p[7], stringof(this->q), copyinstr(arg1, 3), *(int *)this->p);
            @ = count(); }",
    ])
    .code(0);
    assert!(o.out.contains("ah <efg abc 64636261\n"), "{o:?}");
    assert_eq!(o.last_number(), 1, "{o:?}");
    Pass
}

fn scratch_memory_beyond_its_size_faults() -> Verdict {
    let script = "BEGIN { this->a = alloca(4000); this->b = alloca(96); printf(\"fits\\n\"); }
         BEGIN { this->a = alloca(4000); this->b = alloca(97); printf(\"no\\n\"); }
         BEGIN { this->b = alloca(-1); printf(\"no\\n\"); }
         BEGIN { this->n = pid ? 5000 : 0; this->b = copyin(1, this->n); printf(\"no\\n\"); }
         BEGIN { exit(0); }";
    let o = begin(script);
    assert_eq!(o.out, "fits\n\n", "{o:?}");
    assert_eq!(o.err.matches("out of scratch space in action #2").count(), 2, "{o:?}");
    assert_eq!(o.err.matches("out of scratch space in action #1").count(), 1, "{o:?}");
    // The option raises the limit.
    let o = dtrace(&["-x", "scratchsize=64k", "-qn", "BEGIN { this->p = (char *)alloca(65536); this->p[65535] = 7; printf(\"%d\\n\", this->p[65535]); exit(0); }"]).code(0);
    assert_eq!(o.out, "7\n\n", "{o:?}");
    Pass
}

fn scratch_memory_in_a_variable_lives_as_long_as_the_firing() -> Verdict {
    // Each clause has all of its memory, whatever those before it keep.
    let o = begin(
        "int *kept;
         BEGIN { kept = (int *)alloca(8); *kept = 4; this->q = (int *)alloca(3000); this->q[749] = 9; }
         BEGIN { this->r = (int *)alloca(4096); this->r[0] = 1; this->r[1023] = 2; }
         BEGIN { this->s = (int *)alloca(4096); this->s[0] = 5; }
         BEGIN { printf(\"%d %d %d %d %d\\n\", *kept, this->q[749], this->r[0], this->r[1023], this->s[0]); *kept = 7; }
         BEGIN { printf(\"%d\\n\", *kept); } BEGIN { this->p = (int *)alloca(8); this->p[2] = 1; printf(\"no\\n\"); }
         BEGIN { exit(0); }",
    );
    assert_eq!(o.out, "4 9 1 2 5\n7\n\n", "{o:?}");
    assert_eq!(o.err.matches("invalid address (0x5d01").count(), 1, "{o:?}");
    // A clause without an address in a variable keeps nothing: a hundred of them fit.
    let script =
        format!("{} BEGIN {{ exit(0); }}", "BEGIN { trace(*(int *)alloca(4000) * 0); } ".repeat(100));
    let o = begin(&script);
    assert_eq!((o.out.matches('0').count(), &*o.err), (100, ""), "{o:?}");
    // Beyond what there is space for, the last clauses fault, and nothing that is kept is
    // overwritten.
    let more = "BEGIN { this->q = (long *)alloca(64); *this->q = 1; trace(e[1].x); } ".repeat(9);
    let script = format!(
        "struct s {{ long x; }}; struct s e[int]; BEGIN {{ this->p = (long *)alloca(64); *this->p = 7; trace(e[1].x); }}
         {more} BEGIN {{ printf(\"|%d\\n\", *this->p); exit(0); }}"
    );
    let o = dtrace(&["-q", "-x", "scratchsize=64", "-x", "faultlines=all", "-n", &script]).code(0);
    assert!(o.out.ends_with("|7\n\n"), "{o:?}");
    assert!(o.err.lines().count() >= 1 && o.err.lines().all(|l| l.contains("out of scratch space")), "{o:?}");
    // A clause that keeps something takes all it may, at the greatest size too.
    let script = "BEGIN { this->p = (char *)alloca(262144); this->p[262143] = 5; } BEGIN { this->q = (char *)alloca(8); this->q[7] = 2; }
         BEGIN { printf(\"%d %d\\n\", this->p[262143], this->q[7]); exit(0); }";
    let o = dtrace(&["-q", "-x", "scratchsize=256k", "-n", script]).code(0);
    assert_eq!(o.out, "5 2\n\n", "{o:?}");
    // What ERROR keeps is gone behind it, and what the clauses of the firing keep is not.
    let o = begin(
        "BEGIN { this->p = (int *)alloca(8); *this->p = 4; trace(*(int *)0); } BEGIN { trace(*(int *)0); }
         BEGIN { printf(\"%d\\n\", *this->p); exit(0); }
         ERROR { this->e = (int *)alloca(4096); this->e[0] = 77; } ERROR { printf(\"E%d \", this->e[0]); }",
    );
    assert_eq!(o.out, "E77 E77 4\n\n", "{o:?}");
    // What scripts do with the memory of a process: read in one clause, used in the next ones.
    let o = dtrace(&[
        "-q",
        "-c",
        "/bin/echo abcdefgh",
        "-n",
        "syscall::write:entry /pid == $target && arg2 == 9/ { this->p = (char *)copyin(arg1, arg2); this->n = arg2; }
         syscall::write:entry /pid == $target && this->n == 9/ { this->x = (char *)alloca(64); this->x[0] = 'x';
            printf(\"<%c%c%c>\\n\", this->p[0], this->p[7], this->x[0]); }",
    ])
    .code(0);
    assert!(o.out.contains("<ahx>\n"), "{o:?}");
    Pass
}

fn an_address_of_scratch_memory_faults_after_its_firing() -> Verdict {
    // Also where the next firing has taken memory at the same place.
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 5),
        "-n",
        "int *kept; int n;
         syscall::getppid:entry /pid == $target && n/ { this->z = (int *)alloca(64); *this->z = 1; *kept = 2; printf(\"no\\n\"); }
         syscall::getppid:entry /pid == $target/ { n++; kept = (int *)alloca(8); *kept = 1; self->kept = kept; }
         syscall::getppid:return /pid == $target/ { this->z = (int *)alloca(64); *this->z = 1; *self->kept = 2; printf(\"no\\n\"); }
         END { printf(\"%d\\n\", n); }",
    ])
    .code(0);
    assert_eq!(o.out.trim(), "5", "{o:?}");
    assert_eq!(o.err.matches("getppid:entry): invalid address (0x5d01").count(), 4, "{o:?}");
    assert_eq!(o.err.matches("getppid:return): invalid address (0x5d01").count(), 5, "{o:?}");
    Pass
}

/// Runs each clause in BEGIN, at entry and return of each call of the workload, and on a clock. The
/// text must be among the errors of each.
#[track_caller]
fn everywhere(setup: &str, clauses: &[(&str, &str)]) {
    let all = |probe: &str| -> String {
        clauses.iter().map(|(c, _)| format!("{probe} {{ {c} printf(\"no\"); }}\n")).collect()
    };
    let told = |err: &str, probe: &str, text: &str| {
        err.lines().filter(|l| l.contains(probe) && l.contains(text)).count()
    };
    let script = format!(
        "{setup} int n; {} {} {} syscall::getppid:entry /pid == $target/ {{ n++; }} END {{ printf(\"%d\\n\", n); }}",
        all("BEGIN"),
        all("syscall::getppid:entry /pid == $target/"),
        all("syscall::getppid:return /pid == $target/"),
    );
    let o = dtrace(&["-q", "-c", &workload("getppid", 3), "-n", &script]).code(0);
    assert_eq!(o.out.trim(), "3", "{o:?}");
    for (clause, text) in clauses {
        for (probe, times) in [("dtrace:::BEGIN", 1), ("getppid:entry", 3), ("getppid:return", 3)] {
            assert_eq!(told(&o.err, probe, text), times, "{clause} in {probe}: {o:?}");
        }
    }
    let script = format!("{setup} {} tick-20ms {{ exit(0); }}", all("tick-20ms"));
    let o = dtrace(&["-qn", &script]).code(0);
    for (clause, text) in clauses {
        assert!(told(&o.err, "tick-20ms", text) > 0, "{clause}: {o:?}");
    }
    assert!(!o.out.contains("no"), "{o:?}");
}

// row variable.array-bounds
fn an_index_out_of_bounds_faults_in_every_kind_of_probe() -> Verdict {
    everywhere(
        "int a[5]; self char m[2][3]; this long c[4]; int x;",
        &[
            ("this->i = 5 + (pid < 0); a[this->i] = 1;", "index out of bounds (5) in action #2"),
            ("this->i = -1 - (pid < 0); x = a[this->i];", "index out of bounds (-1) in action #2"),
            ("this->i = 3 + (pid < 0); self->m[0][this->i]++;", "index out of bounds (3) in action #2"),
            ("this->i = 4 + (pid < 0); this->c[this->i] = 1;", "index out of bounds (4) in action #2"),
        ],
    );
    Pass
}

fn bad_pointers_fault_in_every_kind_of_probe() -> Verdict {
    everywhere(
        "int a[5]; int x; string s;",
        &[
            ("x = *(int *)0;", "invalid address (0x0) in action #1"),
            ("s = copyinstr(1);", "invalid address (0x1) in action #1"),
            ("this->p = &a[4]; x = this->p[1];", "invalid address (0x5d10000000000014) in action #2"),
            (
                "this->q = (int *)0x7fff00001000; x = *this->q;",
                "invalid address (0x7fff00001000) in action #2",
            ),
            ("this->r = alloca(8); bcopy((void *)16, this->r, 4);", "invalid address (0x10) in action #2"),
            ("bcopy(&a[0], &a[1], 4);", "invalid address (0x5d10000000000004) in action #1"),
            ("this->r = copyin(2, 4);", "invalid address (0x2) in action #1"),
            ("s = stringof((char *)3);", "invalid address (0x3) in action #1"),
        ],
    );
    Pass
}

fn a_store_to_kernel_memory_faults() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let o = begin(
        "BEGIN { this->t = curthread; this->t->tgid = 1; printf(\"no\"); }
         BEGIN { this->p = (long *)alloca(8); *this->p = (long)curthread; this->q = (int *)*this->p; *this->q = 1; printf(\"no\"); }
         BEGIN { bcopy(curthread, curthread, 8); printf(\"no\"); }
         BEGIN { printf(\"%d\\n\", curthread->tgid == pid); exit(0); }",
    );
    assert_eq!(o.out, "1\n\n", "{o:?}");
    assert_eq!(o.err.matches("invalid address (0xff").count(), 3, "{o:?}");
    let o = dtrace(&["-qn", "BEGIN { curthread->tgid = 1; }"]).code(1);
    assert!(o.err.contains("operator = can only be applied to a writable variable"), "{o:?}");
    Pass
}

fn trace_of_an_object_prints_its_bytes() -> Verdict {
    let o = begin(
        "struct point { int x; int y; }; struct point g; short v[3]; struct point a[int];
         BEGIN { g.x = 1; g.y = 0x7a00; v[2] = 0x102; a[1] = g; trace(g); trace(v); trace(a[1]); exit(0); }",
    );
    let rows: Vec<&str> = o.out.lines().filter(|l| l.trim_start().starts_with("0:")).collect();
    assert_eq!(rows.len(), 3, "{o:?}");
    assert!(rows[0].contains("01 00 00 00 00 7a 00 00") && rows[1].contains("00 00 00 00 02 01"), "{o:?}");
    assert_eq!(rows[0], rows[2], "{o:?}");
    Pass
}

fn self_objects_are_separate_in_each_thread() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("threads", 250),
        "-n",
        "struct pair { int calls; int v[3]; }; self struct pair t; self struct pair a[int];
         syscall::getppid:entry /pid == $target/ { self->t.calls++; self->t.v[self->t.calls % 3]++; self->a[7].calls += 2; }
         syscall::getppid:entry /self->t.calls == 250 && self->t.v[0] == 83 && self->a[7].calls == 500/ { @ = count(); }",
    ])
    .code(0);
    assert_eq!(o.last_number(), 4, "{o:?}");
    Pass
}

// row variable.associative-eight-keys
fn keys_of_any_number_and_length_are_distinguished() -> Verdict {
    let o = begin(
        "string s; char c[6]; int a[int, string, char]; long t; 
         BEGIN {
            s = \"key\"; c[0] = 'o'; c[1] = 'k'; t = 3;
            n[1, 2, 3, 4, 5, 6, 7, 8, 9, 10] = 5; n[1, 2, 3, 4, 5, 6, 7, 8, 9, 11] = 6;
            v[s, s, execname, s, s, s, s, s, s, 1] = 7; w[c] = 8; a[t, s, 'x'] = 9;
            printf(\"%d %d %d\\n\", n[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], n[1, 2, 3, 4, 5, 6, 7, 8, 9, 11], n[1, 2, 3, 4, 5, 6, 7, 8, 9, 12]);
            printf(\"%d %d %d %d\\n\", v[s, s, execname, s, s, s, s, s, s, 1], v[s, s, s, s, s, s, s, s, s, 1], w[\"ok\"], a[3, \"key\", 120]);
            w[\"ok\"] = 0; printf(\"%d\\n\", w[c]); exit(0);
         }",
    );
    assert_eq!(o.out, "5 6 0\n7 0 8 9\n0\n\n", "{o:?}");
    let o = dtrace(&[
        "-x",
        "strsize=4k",
        "-qn",
        "string s; BEGIN { s = \"k\"; v[s, s, s] = 7; printf(\"%d %d\\n\", v[s, s, \"k\"], v[s, s, \"l\"]); exit(0); }",
    ])
    .code(0);
    assert_eq!(o.out, "7 0\n\n", "{o:?}");
    Pass
}

fn dynamic_drops_are_reported_when_object_elements_run_out() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-x",
        "dynvarsize=8k",
        "-c",
        &workload("getppid", 2000),
        "-n",
        "struct pair { int a; char b[100]; }; struct pair p[int]; int i;
         syscall::getppid:entry /pid == $target/ { p[i].a = i; i++; } END { printf(\"%d %d\\n\", i, p[3].a); }",
    ])
    .code(0);
    assert_eq!(o.out, "2000 3\n\n", "{o:?}");
    assert!(o.err.contains(" dynamic variable drops"), "{o:?}");
    Pass
}

fn copyout_writes_user_memory_with_w() -> Verdict {
    let script = "syscall::write:entry /pid == $target && arg2 == 6/ { copyoutstr(\"HE\", arg1, 2); this->p = alloca(2);
        *(short *)this->p = 0x4c4c; copyout(this->p, arg1 + 2, 2); } syscall::write:entry /pid == $target/ { copyout(\"x\", 1, 1); }";
    let words = ["-q", "-c", "/bin/echo hello", "-n", script];
    let o = dtrace(&words).code(1);
    assert!(o.err.contains("Destructive actions not allowed"), "{o:?}");
    let o = dtrace(&[&["-w"][..], &words[..]].concat());
    if let Some(skip) = lacks(Facility::ProbeWriteUser) {
        assert!(o.code(1).err.contains("this kernel lets no program write user memory"));
        return skip;
    }
    let o = o.code(0);
    assert!(o.out.contains("HELLo\n"), "{o:?}");
    assert!(o.err.contains("invalid address (0x1) in action #1"), "{o:?}");
    Pass
}

fn invalid_stores_and_addresses_are_rejected() -> Verdict {
    for (script, text) in [
        ("int a[5]; BEGIN { a[5] = 1; }", "index outside array bounds: 5, max allowed is 4"),
        ("BEGIN { *(int *)0 = 1; }", "operator = can only be applied to a writable variable"),
        ("int x; BEGIN { y = &x; }", "cannot take address of dynamic variable"),
        ("int a[3]; BEGIN { b[a] = 1; }", "may not be used as associative array index: key #1"),
        ("char big[16385];", "too big: at most 16384 are allowed"),
        ("int a[int, int]; BEGIN { a[1] = 2; }", "prototype mismatch: 1 key passed, 2 expected"),
        ("struct s { int x; }; struct s p; BEGIN { p = 1; }", "operands have incompatible types"),
    ] {
        let o = dtrace(&["-qn", script]).code(1);
        assert!(o.err.contains(text), "{script}: {o:?}");
    }
    Pass
}
