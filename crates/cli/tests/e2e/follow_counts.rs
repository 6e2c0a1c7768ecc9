//! What followed children call is counted once for each call, however they come into being and end.

use bpf_sys::features::Facility;

use crate::Verdict::{self, Pass};
use crate::machine::lacks;
use crate::many::numbers;
use crate::pid::{Programs, compiled};
use crate::tool::dtrace;

tests! {
    calls_of_followed_children_are_counted_once_each
    calls_of_followed_threads_are_counted_once_each_whichever_of_them_ends_or_executes
}

/// Calls of each process.
const CALLS: u64 = 7;

/// Makes children as its first argument says, so many as the second one says, that execute this
/// program to do what the third one says, or does that itself. A call of `add` is one of the C
/// library, too.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline, noclone)) long add(long n) { __asm__ volatile(""); return n + getppid(); }
static char *self;
static volatile long sum;
static int work(void *unused) { for (int i = 0; i < 7; i++) sum += add(i); return 0; }
static void *works(void *unused) { work(NULL); return NULL; }
static void run(const char *what) { execl(self, self, what, "1", NULL); _exit(9); }
static void *runs(void *unused) { run("work"); return NULL; }
static pthread_t first;
static void *survives(void *unused) { pthread_join(first, NULL); work(NULL); exit(0); }
int main(int argc, char **argv)
{
    char *what = argv[1];
    int count = atoi(argv[2]), status, failed = 0, gate[2];
    pthread_t threads[64];
    self = argv[0];
    if (!strcmp(what, "work"))
        return work(NULL);
    if (!strcmp(what, "thread-executes"))
        return pthread_create(threads, NULL, runs, NULL) || pthread_join(threads[0], NULL);
    if (!strcmp(what, "first-ends")) {
        first = pthread_self();
        pthread_create(threads, NULL, survives, NULL);
        pthread_exit(NULL);
    }
    if (!strcmp(what, "works-in-threads")) {
        for (int i = 0; i < 4; i++)
            pthread_create(threads + i, NULL, works, NULL);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        return 0;
    }
    if (pipe(gate))
        return 8;
    for (int i = 0; i < count; i++) {
        pid_t child = -1;
        if (!strcmp(what, "vfork")) {
            if (!(child = vfork()))
                run("work");
        } else if (!strcmp(what, "clone")) {
            // Its end sends no signal, and the kernel tells tracers that it is a thread.
            char *stack = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
            child = clone(work, stack + 65536, 0, NULL);
        } else if (!(child = fork())) {
            char byte;
            if (!strcmp(what, "fork"))
                _exit(work(NULL));
            close(gate[1]);
            // All of them are there when one of them begins.
            if (!strcmp(what, "at-once"))
                read(gate[0], &byte, 1);
            run(argv[3]);
        }
        if (strcmp(what, "at-once"))
            failed |= waitpid(child, &status, __WALL) != child || status;
    }
    close(gate[1]);
    while (wait(&status) > 0)
        failed |= status;
    return failed;
}
"#;

/// How children come into being, how many, what they do, and how many threads of each work.
type Workload = (&'static str, u64, &'static str, u64);

fn counted(name: &str, workloads: &[Workload]) -> Verdict {
    let built = Programs::new(&format!("counts-{name}"), ("cc", PROGRAM), &["-O2", "-pthread"]);
    let (_dir, program) = compiled!(built);
    if let Some(skip) = lacks(Facility::TpBtf) {
        return skip;
    }
    let clauses = "pid$target:a.out:add:entry { @n[\"entries\"] = count(); } pid$target:a.out:add:return { @n[\"returns\"] = count(); } \
                   pid$target:libc:getppid:entry { @n[\"library\"] = count(); } END { printa(\"%s %@d\\n\", @n); }";
    for (how, children, what, threads) in workloads {
        let command = format!("{program} {how} {children} {what}");
        let o = dtrace(&["-x", "follow=all", "-qc", &command, "-n", clauses]).code(0);
        let counts = numbers(&o);
        let calls = CALLS * children * threads;
        for which in ["entries", "returns", "library"] {
            assert_eq!(counts.get(which), Some(&calls), "{command}, {which}: {o:?}");
        }
    }
    Pass
}

fn calls_of_followed_children_are_counted_once_each() -> Verdict {
    counted(
        "children",
        &[
            ("one-by-one", 3, "work", 1),
            ("one-by-one", 20, "work", 1),
            ("at-once", 5, "work", 1),
            ("at-once", 20, "work", 1),
            ("fork", 12, "work", 1),
            ("vfork", 12, "work", 1),
            ("clone", 12, "work", 1),
        ],
    )
}

fn calls_of_followed_threads_are_counted_once_each_whichever_of_them_ends_or_executes() -> Verdict {
    counted(
        "threads",
        &[
            ("one-by-one", 10, "works-in-threads", 4),
            ("one-by-one", 10, "first-ends", 1),
            ("one-by-one", 10, "thread-executes", 1),
            ("at-once", 10, "first-ends", 1),
        ],
    )
}
