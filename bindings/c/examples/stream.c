/*
 * Prints the records of a program while they come, in a loop of poll(2) that also waits for the
 * terminal: stream PROGRAM COMMAND. A line on standard input stops it, as ^C does.
 *
 *     cc stream.c $(pkg-config --cflags --libs dtrace-rs) -o stream
 *     ./stream 'syscall::openat:entry /pid == $target/ { trace(copyinstr(arg1)); }' 'ls -l /etc'
 */
#include <dtrace.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static dt_session *session;

static void stop(int signal)
{
    (void)signal;
    dt_stop(session);
}

static void print(const dt_event *e)
{
    if (e->kind != DT_RECORD) {
        if (e->kind != DT_END)
            fprintf(stderr, "%s\n", e->text);
        return;
    }
    printf("%u %s", e->pid, e->probe);
    for (size_t n = 0; n < e->values_count; n++) {
        const dt_value *v = &e->values[n];

        if (v->form == DT_SIGNED)
            printf(" %s=%lld", v->name, (long long)v->number);
        else if (v->form == DT_UNSIGNED)
            printf(" %s=%llu", v->name, (unsigned long long)v->number);
        else
            printf(" %s=%s", v->name, v->text);
    }
    printf("\n");
}

static int fail(void)
{
    const dt_problem *p;

    for (size_t n = 0; (p = dt_error(session, n)) != NULL; n++)
        fprintf(stderr, "stream: %s\n", p->text);
    dt_close(session);
    return 1;
}

int main(int argc, char **argv)
{
    int working = 1, status = 0, input = STDIN_FILENO;

    if (argc != 3) {
        fprintf(stderr, "usage: stream PROGRAM COMMAND\n");
        return 2;
    }
    session = dt_open();
    if (dt_program(session, NULL, argv[1]) != 0 || dt_command(session, argv[2]) != 0 ||
        dt_option(session, "switchrate", "10hz") != 0 || dt_start(session) != 0)
        return fail();
    signal(SIGINT, stop);
    while (working == 1) {
        struct pollfd fds[2] = {{dt_descriptor(session), POLLIN, 0}, {input, POLLIN, 0}};
        char byte;

        poll(fds, 2, dt_deadline(session));
        if (fds[1].revents != 0) {
            if (read(input, &byte, 1) > 0)
                dt_stop(session);
            /* Its end says nothing. */
            input = -1;
        }
        working = dt_work(session, 0);
        for (const dt_event *e; (e = dt_next(session)) != NULL;)
            print(e);
    }
    if (working != 0 || dt_finish(session, &status) != 0)
        return fail();
    for (const dt_event *e; (e = dt_next(session)) != NULL;)
        print(e);
    dt_close(session);
    return status;
}
