/*
 * What can go wrong between C and the library: each test is a function that ends the program with
 * its line when something is not as it should be. calls READER TESTEE, where TESTEE N makes N calls
 * of getppid.
 */
#include <dirent.h>
#include <dtrace.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); \
            exit(1); \
        } \
    } while (0)

/* What programs were compiled with: the library has the same numbers. */
_Static_assert(sizeof(dt_kind) == 4 && sizeof(dt_form) == 4, "enumerations");
_Static_assert(sizeof(dt_value) == 40 && offsetof(dt_value, number) == 8 && offsetof(dt_value, text) == 16 &&
                   offsetof(dt_value, length) == 24 && offsetof(dt_value, name) == 32,
               "dt_value");
_Static_assert(sizeof(dt_bucket) == 24 && offsetof(dt_bucket, high) == 8 && offsetof(dt_bucket, count) == 16,
               "dt_bucket");
_Static_assert(sizeof(dt_event) == 88 && offsetof(dt_event, cpu) == 4 && offsetof(dt_event, pid) == 8 &&
                   offsetof(dt_event, tid) == 12 && offsetof(dt_event, time) == 16 && offsetof(dt_event, probe) == 24 &&
                   offsetof(dt_event, name) == 32 && offsetof(dt_event, values) == 40 &&
                   offsetof(dt_event, values_count) == 48 && offsetof(dt_event, result) == 56 &&
                   offsetof(dt_event, buckets) == 64 && offsetof(dt_event, buckets_count) == 72 &&
                   offsetof(dt_event, text) == 80,
               "dt_event");
_Static_assert(sizeof(dt_problem) == 40 && offsetof(dt_problem, message) == 8 && offsetof(dt_problem, tag) == 16 &&
                   offsetof(dt_problem, script) == 24 && offsetof(dt_problem, line) == 32 &&
                   offsetof(dt_problem, column) == 36,
               "dt_problem");

static const char *reader, *testee;

static const char COUNT[] = "syscall::getppid:entry /pid == $target/ { @[execname] = count(); }";

static dt_session *opened(void)
{
    dt_session *s = dt_open();

    CHECK(s != NULL);
    CHECK(dt_reader(s, reader) == 0);
    return s;
}

static dt_session *started(const char *program, int calls)
{
    dt_session *s = opened();
    char command[512];

    snprintf(command, sizeof(command), "%s %d", testee, calls);
    CHECK(dt_program(s, NULL, program) == 0);
    CHECK(dt_command(s, command) == 0);
    if (dt_start(s) != 0) {
        fprintf(stderr, "%s\n", dt_error(s, 0)->text);
        exit(1);
    }
    return s;
}

/* Works to the end, and returns the exit status. */
static int run(dt_session *s)
{
    int more, status = -1;

    while ((more = dt_work(s, -1)) == 1)
        while (dt_next(s) != NULL)
            continue;
    if (more != 0)
        fprintf(stderr, "%s\n", dt_error(s, 0) != NULL ? dt_error(s, 0)->text : "no error");
    CHECK(more == 0);
    CHECK(dt_finish(s, &status) == 0);
    return status;
}

static long rows(dt_session *s)
{
    long sum = 0;
    int ends = 0;

    for (const dt_event *e; (e = dt_next(s)) != NULL;) {
        CHECK(e->probe != NULL && e->name != NULL && e->text != NULL && e->values != NULL && e->buckets != NULL);
        if (e->kind == DT_ROW) {
            CHECK(e->values_count == 1 && e->values[0].form == DT_STRING && e->values[0].length > 0);
            CHECK(strcmp(e->values[0].name, "execname") == 0);
            sum += (long)e->result;
        }
        ends += e->kind == DT_END;
    }
    CHECK(ends == 1);
    return sum;
}

static void null_pointers(void)
{
    dt_session *s = opened();

    CHECK(dt_close(NULL) == 0);
    CHECK(dt_option(NULL, "quiet", NULL) == -1 && dt_reader(NULL, "") == -1);
    CHECK(dt_program(NULL, NULL, COUNT) == -1 && dt_argument(NULL, "x") == -1);
    CHECK(dt_command(NULL, "ls") == -1 && dt_process(NULL, 1) == -1 && dt_start(NULL) == -1);
    CHECK(dt_enable(NULL, NULL, COUNT) == -1 && dt_descriptor(NULL) == -1 && dt_deadline(NULL) == -1);
    CHECK(dt_work(NULL, 0) == -1 && dt_stop(NULL) == -1 && dt_finish(NULL, NULL) == -1);
    CHECK(dt_next(NULL) == NULL && dt_next_json(NULL) == NULL);
    CHECK(strcmp(dt_error(NULL, 0)->text, "the session is NULL") == 0 && dt_error(NULL, 1) == NULL);
    CHECK(dt_option(s, NULL, NULL) == -1 && dt_reader(s, NULL) == -1 && dt_program(s, "x", NULL) == -1);
    CHECK(strcmp(dt_error(s, 0)->text, "the program is NULL") == 0);
    CHECK(dt_argument(s, NULL) == -1 && dt_command(s, NULL) == -1);
    dt_close(s);
}

static void options(void)
{
    static const char *const refused[][3] = {
        {"listen", "127.0.0.1:0", "dtrace -x listen serves it"},
        {"otlp", "http://localhost:4318", "every gives a program what is sent"},
        {"otlpprofiles", "http://localhost:4318", "dtrace -x otlpprofiles sends it"},
        {"graphite", "localhost:2003", "dtrace -x graphite sends it"},
        {"events", "unix:/tmp/nowhere", "a program has the events itself"},
        {"oformat", "json", "a program has results as events"},
        {"slices", "a:::x(1)..a:::y(1)", "dtrace --to FILE.pftrace writes timelines"},
        {"to", "1s", "dtrace --replay FILE ends there"},
        {"verbose", NULL, "dtrace -S prints it"},
    };
    dt_session *s = opened();
    const dt_problem *why;

    for (size_t n = 0; n < sizeof(refused) / sizeof(refused[0]); n++) {
        CHECK(dt_option(s, refused[n][0], refused[n][1]) == -1);
        why = dt_error(s, 0);
        CHECK(strcmp(why->tag, "D_PRAGMA_OPTSET") == 0 && strstr(why->text, "the command dtrace alone") != NULL);
        CHECK(strstr(why->text, refused[n][2]) != NULL);
    }
    CHECK(dt_option(s, "bufsiez", "4m") == -1 && strstr(dt_error(s, 0)->text, "did you mean bufsize?") != NULL);
    CHECK(dt_option(s, "every", "foo") == -1 && strstr(dt_error(s, 0)->text, "a time with its unit") != NULL);
    CHECK(dt_program(s, NULL, "\n#pragma D option listen=127.0.0.1:0\nBEGIN { }") == 0 && dt_start(s) == -1);
    why = dt_error(s, 0);
    CHECK(why->line == 2 && strcmp(why->tag, "D_PRAGMA_OPTSET") == 0);
    CHECK(strstr(why->text, "dtrace -x listen serves it") != NULL);
    dt_close(s);

    /* While it traces. */
    s = opened();
    CHECK(dt_option(s, "every", "100ms") == 0 && dt_program(s, NULL, "BEGIN { }") == 0 && dt_start(s) == 0);
    CHECK(dt_option(s, "quietresize", NULL) == 0 && dt_option(s, "switchrate", "10ms") == 0);
    CHECK(dt_option(s, "switchrat", "10ms") == -1 && strstr(dt_error(s, 0)->text, "did you mean switchrate?") != NULL);
    dt_close(s);
}

static void wrong_order(void)
{
    dt_session *s = opened();

    CHECK(dt_error(s, 0) == NULL);
    CHECK(dt_work(s, 0) == -1 && strstr(dt_error(s, 0)->text, "dt_start") != NULL);
    CHECK(dt_error(s, 1) == NULL);
    CHECK(dt_next(s) == NULL && dt_next_json(s) == NULL && dt_descriptor(s) == -1 && dt_deadline(s) == -1);
    CHECK(dt_finish(s, NULL) == -1 && dt_enable(s, NULL, COUNT) == -1);
    CHECK(dt_option(s, "bufsize", "some") == -1 && strstr(dt_error(s, 0)->text, "bufsize=some") != NULL);
    CHECK(dt_option(s, "nosuch", NULL) == -1 && dt_error(s, 0)->line == 0);
    CHECK(dt_reader(s, "/bin/true") == -1 && strstr(dt_error(s, 0)->text, "/bin/true") != NULL);
    CHECK(dt_process(s, -5) == -1);
    dt_close(s);

    s = started(COUNT, 1);
    CHECK(dt_start(s) == -1 && strcmp(dt_error(s, 0)->text, "the session has begun") == 0);
    CHECK(dt_program(s, NULL, COUNT) == -1 && dt_command(s, "ls") == -1 && dt_argument(s, "1") == -1);
    CHECK(run(s) == 0);
    /* After the end, and after all events. */
    CHECK(rows(s) == 1);
    CHECK(dt_work(s, 0) == 0 && dt_finish(s, NULL) == 0 && dt_stop(s) == 0);
    CHECK(dt_enable(s, NULL, COUNT) == -1 && dt_error(s, 0)->text[0] != '\0');
    CHECK(dt_next(s) == NULL && dt_next_json(s) == NULL);
    dt_close(s);
}

static void diagnostics(void)
{
    dt_session *s = opened();
    const dt_problem *p;

    CHECK(dt_program(s, "bad.d", "BEGIN\n{\n    x = nosuch;\n    y = curthread->nosuch;\n}\n") == 0);
    CHECK(dt_start(s) == -1);
    p = dt_error(s, 0);
    CHECK(p != NULL && strcmp(p->script, "bad.d") == 0 && p->line == 3 && p->column == 9);
    CHECK(strncmp(p->tag, "D_", 2) == 0 && strstr(p->message, "nosuch") != NULL);
    CHECK(strstr(p->text, "failed to compile script bad.d: line 3") != NULL);
    CHECK(dt_error(s, 1) != NULL && dt_error(s, 1)->line == 4 && dt_error(s, 2) == NULL);
    CHECK(dt_start(s) == -1 && strcmp(dt_error(s, 0)->text, "the session could not begin") == 0);
    dt_close(s);
}

static void records(void)
{
    dt_session *s = started("syscall::getppid:entry /pid == $target/ { trace(++n); trace((uint64_t)-1); trace(\"a\\n\"); "
                            "printf(\"n is %d\", n); @q = quantize(n); @s[ustack()] = count(); }",
                            3);
    int seen = 0, more;

    do {
        struct pollfd fd = {dt_descriptor(s), POLLIN, 0};

        CHECK(fd.fd >= 0 && dt_deadline(s) >= 0);
        poll(&fd, 1, dt_deadline(s));
        more = dt_work(s, 0);
        CHECK(more >= 0);
        for (const dt_event *e; (e = dt_next(s)) != NULL;) {
            if (e->kind != DT_RECORD)
                continue;
            seen++;
            CHECK(strcmp(e->probe, "syscall:vmlinux:getppid:entry") == 0 || strcmp(e->probe, "syscall::getppid:entry") == 0);
            CHECK(e->values_count == 4 && e->pid != 0 && e->tid == e->pid && e->time != 0);
            CHECK(e->values[0].number == seen && e->values[0].form == DT_SIGNED);
            CHECK(e->values[1].form == DT_UNSIGNED && (uint64_t)e->values[1].number == UINT64_MAX);
            CHECK(strcmp(e->values[2].text, "a\n") == 0 && e->values[2].length == 2);
            CHECK(strncmp(e->text, "n is ", 5) == 0 && atoi(e->text + 5) == seen);
        }
    } while (more == 1);
    CHECK(dt_finish(s, NULL) == 0);
    long counted = 0, frames = 0;
    for (const dt_event *e; (e = dt_next(s)) != NULL;) {
        seen += e->kind == DT_RECORD;
        if (e->kind != DT_ROW)
            continue;
        if (strcmp(e->name, "q") == 0) {
            CHECK(e->values_count == 0 && e->buckets_count == 2 && e->result == 3);
            CHECK(e->buckets[0].low == 1 && e->buckets[0].high == 1 && e->buckets[0].count == 1);
            CHECK(e->buckets[1].low == 2 && e->buckets[1].high == 3 && e->buckets[1].count == 2);
        } else {
            CHECK(e->values[0].form == DT_STACK);
            counted += e->result;
            frames += strstr(e->values[0].text, "main") != NULL;
        }
    }
    CHECK(seen == 3 && counted == 3);
    /* A reader was named, so there are names. */
    CHECK(frames > 0);
    dt_close(s);
}

static void json(void)
{
    dt_session *s = started("syscall::getppid:entry /pid == $target/ { trace(n++); } END { exit(7); }", 5);
    int records = 0, status = 0, more;

    while ((more = dt_work(s, 100)) == 1)
        for (const char *line; (line = dt_next_json(s)) != NULL;)
            records += strstr(line, "\"event\":\"record\"") != NULL && line[0] == '{';
    CHECK(more == 0 && dt_finish(s, &status) == 0 && status == 7);
    for (const char *line; (line = dt_next_json(s)) != NULL;)
        records += strstr(line, "getppid") != NULL;
    CHECK(records == 5);
    dt_close(s);
}

static void enabled_later(void)
{
    dt_session *s = opened();
    char program[256];

    snprintf(program, sizeof(program), "syscall::getppid:entry /pid == %d/ { @[execname] = count(); }", getpid());
    CHECK(dt_program(s, NULL, "BEGIN { }") == 0 && dt_start(s) == 0);
    CHECK(dt_enable(s, "wrong.d", "BEGIN { x = ; }") == -1 && strcmp(dt_error(s, 0)->script, "wrong.d") == 0);
    CHECK(dt_enable(s, NULL, program) == 0);
    CHECK(dt_option(s, "aggsortkey", NULL) == 0);
    for (int n = 0; n < 10; n++)
        syscall(SYS_getppid);
    CHECK(dt_stop(s) == 0);
    /* Events wait. */
    while (dt_work(s, -1) == 1)
        continue;
    CHECK(dt_finish(s, NULL) == 0 && rows(s) == 10);
    dt_close(s);
}

static void *traced(void *calls)
{
    dt_session *s = started(COUNT, *(int *)calls);

    CHECK(run(s) == 0);
    *(int *)calls -= (int)rows(s);
    dt_close(s);
    return NULL;
}

static void threads(void)
{
    int calls[2] = {300, 700};
    pthread_t both[2];

    for (int n = 0; n < 2; n++)
        CHECK(pthread_create(&both[n], NULL, traced, &calls[n]) == 0);
    for (int n = 0; n < 2; n++)
        CHECK(pthread_join(both[n], NULL) == 0);
    CHECK(calls[0] == 0 && calls[1] == 0);
}

static void forked(void)
{
    dt_session *s = started(COUNT, 400);
    int status = -1;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        CHECK(dt_work(s, 0) == -1 && strstr(dt_error(s, 0)->text, "forked child") != NULL);
        CHECK(dt_option(s, "aggsortkey", NULL) == -1 && strstr(dt_error(s, 0)->text, "forked child") != NULL);
        CHECK(dt_next(s) == NULL && strstr(dt_error(s, 0)->text, "forked child") != NULL);
        CHECK(dt_next_json(s) == NULL && strstr(dt_error(s, 0)->text, "forked child") != NULL);
        CHECK(dt_finish(s, NULL) == -1 && dt_stop(s) == -1 && dt_descriptor(s) == -1 && dt_deadline(s) == -1);
        CHECK(dt_close(s) == 0);
        /* It can trace by itself. */
        s = started("syscall::getppid:entry /pid == $target/ { @[execname] = count(); @s[ustack()] = count(); }", 20);
        CHECK(run(s) == 0);
        dt_close(s);
        s = started(COUNT, 30);
        CHECK(run(s) == 0 && rows(s) == 30);
        dt_close(s);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(run(s) == 0 && rows(s) == 400);
    dt_close(s);
}

static void never_taken(void)
{
    dt_session *s = opened();
    char program[256];
    int more, taken = 0;

    snprintf(program, sizeof(program), "syscall::getppid:entry /pid == %d/ { trace(1); }", getpid());
    CHECK(dt_program(s, NULL, program) == 0 && dt_option(s, "bufsize", "32m") == 0 && dt_start(s) == 0);
    for (int n = 0; n < 110000; n++)
        syscall(SYS_getppid);
    while ((more = dt_work(s, -1)) == 1)
        continue;
    CHECK(more == -1 && strstr(dt_error(s, 0)->text, "dt_next") != NULL);
    dt_stop(s);
    do
        for (const dt_event *e; (e = dt_next(s)) != NULL;)
            taken += e->kind == DT_RECORD ? 1 : e->kind == DT_LOSS ? (int)e->result : 0;
    while ((more = dt_work(s, -1)) == 1);
    CHECK(more == 0 && dt_finish(s, NULL) == 0);
    for (const dt_event *e; (e = dt_next(s)) != NULL;)
        taken += e->kind == DT_RECORD ? 1 : e->kind == DT_LOSS ? (int)e->result : 0;
    CHECK(taken == 110000);
    dt_close(s);
}

static void normalized(void)
{
    dt_session *s = started("syscall::getppid:entry /pid == $target/ { n++; @q = quantize(n); } END { normalize(@q, 3); }", 7);
    int seen = 0;

    CHECK(run(s) == 0);
    for (const dt_event *e; (e = dt_next(s)) != NULL;) {
        if (e->kind != DT_ROW)
            continue;
        /* 1; 2 and 3; 4 to 7: of the counts 1, 2 and 4 a third is printed. */
        CHECK(e->buckets_count == 1 && e->buckets[0].low == 4 && e->buckets[0].count == 1 && e->result == 1);
        seen++;
    }
    CHECK(seen == 1);
    dt_close(s);
}

/* Names of files may be any bytes. */
static void names_that_are_no_text(void)
{
    dt_session *s = dt_open();
    char link[512], command[600];

    snprintf(link, sizeof(link), "%s-\xff", testee);
    CHECK(symlink(reader, link) == 0 && dt_reader(s, link) == 0 && unlink(link) == 0);
    CHECK(symlink(testee, link) == 0);
    CHECK(dt_reader(s, reader) == 0);
    snprintf(command, sizeof(command), "%s 25", link);
    CHECK(dt_program(s, NULL, COUNT) == 0 && dt_command(s, command) == 0 && dt_start(s) == 0);
    CHECK(run(s) == 0 && rows(s) == 25);
    CHECK(unlink(link) == 0);
    dt_close(s);
}

static int is_readable(int fd)
{
    struct pollfd one = {fd, POLLIN, 0};

    return poll(&one, 1, 0) == 1;
}

static void *stopping(void *s)
{
    CHECK(dt_stop(s) == 0);
    return NULL;
}

static void stopped_at_any_time(void)
{
    dt_session *s = opened();
    pthread_t thread;

    /* Before the start. */
    CHECK(dt_program(s, NULL, "BEGIN { }") == 0 && dt_stop(s) == 0);
    CHECK(dt_start(s) == -1 && strcmp(dt_error(s, 0)->text, "the session was stopped before it began") == 0);
    CHECK(dt_work(s, 0) == -1);
    dt_close(s);

    /* Beside it. */
    for (int n = 0; n < 5; n++) {
        s = opened();
        CHECK(dt_program(s, NULL, "BEGIN { }") == 0);
        CHECK(pthread_create(&thread, NULL, stopping, s) == 0);
        if (n % 2 == 0)
            CHECK(pthread_join(thread, NULL) == 0);
        if (dt_start(s) == 0) {
            while (dt_work(s, -1) == 1)
                continue;
            CHECK(dt_finish(s, NULL) == 0);
        } else {
            CHECK(strcmp(dt_error(s, 0)->text, "the session was stopped before it began") == 0);
        }
        if (n % 2 != 0)
            CHECK(pthread_join(thread, NULL) == 0);
        dt_close(s);
    }

    /* While somebody waits. */
    s = opened();
    CHECK(dt_program(s, NULL, "BEGIN { }") == 0 && dt_start(s) == 0);
    while (is_readable(dt_descriptor(s)))
        CHECK(dt_work(s, 0) == 1);
    errno = 7;
    CHECK(dt_stop(s) == 0 && errno == 7);
    CHECK(is_readable(dt_descriptor(s)) && dt_work(s, -1) == 0);
    CHECK(dt_finish(s, NULL) == 0);
    dt_close(s);
}

/* Threads of the library whose mask lacks a signal that a program may have a handler for. */
static int threads_with_signals(int *threads)
{
    DIR *tasks = opendir("/proc/self/task");
    int bad = 0;

    CHECK(tasks != NULL);
    *threads = 0;
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        char path[300], line[256];
        unsigned long long blocked = 0, wanted = 0;
        FILE *file;

        if (task->d_name[0] == '.' || atoi(task->d_name) == getpid())
            continue;
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", task->d_name);
        if ((file = fopen(path, "r")) == NULL)
            continue;
        while (fgets(line, sizeof(line), file) != NULL)
            sscanf(line, "SigBlk: %llx", &blocked);
        fclose(file);
        for (const int *s = (const int[]){SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGALRM, SIGPROF, 0}; *s; s++)
            wanted |= 1ULL << (*s - 1);
        (*threads)++;
        bad += (blocked & wanted) != wanted;
    }
    closedir(tasks);
    return bad;
}

static void signals(void)
{
    dt_session *s = opened();
    char command[512];
    int threads, more;

    snprintf(command, sizeof(command), "%s 50", testee);
    CHECK(dt_program(s, NULL, "syscall::getppid:entry /pid == $target/ { @[ustack()] = count(); } tick-1ms { }") == 0);
    CHECK(dt_command(s, command) == 0 && dt_start(s) == 0);
    CHECK(threads_with_signals(&threads) == 0 && threads > 0);
    do
        CHECK(threads_with_signals(&threads) == 0);
    while ((more = dt_work(s, -1)) == 1);
    CHECK(more == 0 && dt_finish(s, NULL) == 0);
    CHECK(threads_with_signals(&threads) == 0);
    dt_close(s);
}

static void no_descriptors(void)
{
    dt_session *s = started(COUNT, 60);
    struct rlimit before, few;
    int taken[256], count = 0, more;

    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    few = before;
    few.rlim_cur = 200;
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    while (count < 256 && (taken[count] = open("/dev/null", O_RDONLY)) >= 0)
        count++;
    CHECK(count > 0 && count < 256 && errno == EMFILE);
    while ((more = dt_work(s, -1)) == 1)
        continue;
    CHECK(more == 0 && dt_finish(s, NULL) == 0);
    while (count > 0)
        close(taken[--count]);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(rows(s) == 60);
    dt_close(s);
}

/* What a program does to the output is done, whoever reads the events, or nobody. */
static void effects(void)
{
    char file[] = "/tmp/dtrace-effects-XXXXXX", program[256];
    int there = mkstemp(file);
    dt_session *s = opened();

    CHECK(there >= 0);
    snprintf(program, sizeof(program), "BEGIN { system(\"echo -n done > %s\"); exit(4); }", file);
    CHECK(dt_program(s, NULL, program) == 0 && dt_option(s, "destructive", NULL) == 0 && dt_start(s) == 0);
    CHECK(run(s) == 4);
    dt_close(s);
    CHECK(read(there, program, sizeof(program)) == 4 && memcmp(program, "done", 4) == 0);
    close(there);
    unlink(file);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    reader = argv[1];
    testee = argv[2];
    CHECK(strchr(dt_version(), '.') != NULL);
    null_pointers();
    options();
    wrong_order();
    diagnostics();
    records();
    json();
    enabled_later();
    threads();
    forked();
    never_taken();
    normalized();
    effects();
    names_that_are_no_text();
    stopped_at_any_time();
    signals();
    no_descriptors();
    puts("done");
    return 0;
}
