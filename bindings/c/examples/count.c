/*
 * Counts the system calls of a command: count COMMAND
 *
 *     cc count.c $(pkg-config --cflags --libs dtrace-rs) -o count && ./count 'ls -l /etc'
 */
#include <dtrace.h>
#include <stdio.h>

static int fail(dt_session *s)
{
    const dt_problem *p;

    for (size_t n = 0; (p = dt_error(s, n)) != NULL; n++)
        fprintf(stderr, "count: %s\n", p->text);
    dt_close(s);
    return 1;
}

int main(int argc, char **argv)
{
    dt_session *s = dt_open();
    int status = 1;

    if (argc != 2) {
        fprintf(stderr, "usage: count COMMAND\n");
        return 2;
    }
    if (dt_program(s, NULL, "syscall:::entry /pid == $target/ { @[probefunc] = count(); }") != 0 ||
        dt_command(s, argv[1]) != 0 || dt_start(s) != 0)
        return fail(s);
    /* 1: there is more to come. What comes before the end are messages. */
    while ((status = dt_work(s, -1)) == 1)
        for (const dt_event *e; (e = dt_next(s)) != NULL;)
            fprintf(stderr, "%s\n", e->text);
    if (status != 0 || dt_finish(s, NULL) != 0)
        return fail(s);
    for (const dt_event *e; (e = dt_next(s)) != NULL;) {
        if (e->kind == DT_ROW)
            printf("%-24s %lld\n", e->values[0].text, (long long)e->result);
        else if (e->kind != DT_END)
            fprintf(stderr, "%s\n", e->text);
    }
    dt_close(s);
    return 0;
}
