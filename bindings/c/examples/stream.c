/*
 * Prints the records of a program while they come, and its aggregations, in a loop of poll(2) that
 * also waits for the terminal: stream PROGRAM COMMAND. A line on standard input stops it, as ^C does.
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

static void print_value(const dt_value *v)
{
    if (v->name[0] != '\0')
        printf(" %s=", v->name);
    else
        printf(" ");
    if (v->form == DT_SIGNED)
        printf("%lld", (long long)v->number);
    else if (v->form == DT_UNSIGNED)
        printf("%llu", (unsigned long long)v->number);
    else if (v->form == DT_BYTES)
        for (size_t n = 0; n < v->length; n++)
            printf("%02x", (unsigned char)v->text[n]);
    else
        printf("%s", v->text);
}

static void print(const dt_event *e)
{
    switch (e->kind) {
    case DT_RECORD:
        printf("%u %s", e->pid, e->probe);
        for (size_t n = 0; n < e->values_count; n++)
            print_value(&e->values[n]);
        /* What printf() prints may have several lines. */
        if (e->text[0] != '\0')
            printf(": %s", e->text);
        printf("\n");
        break;
    case DT_ROW:
        printf("@%s", e->name);
        for (size_t n = 0; n < e->values_count; n++)
            print_value(&e->values[n]);
        printf(": %lld\n", (long long)e->result);
        for (size_t n = 0; n < e->buckets_count; n++)
            printf("    %lld to %lld: %lld\n", (long long)e->buckets[n].low, (long long)e->buckets[n].high,
                   (long long)e->buckets[n].count);
        break;
    case DT_END:
        break;
    default:
        fprintf(stderr, "%s\n", e->text);
    }
}

/* A signal after this finds no session. */
static void end(void)
{
    signal(SIGINT, SIG_DFL);
    dt_close(session);
}

static int fail(void)
{
    const dt_problem *p;

    for (size_t n = 0; (p = dt_error(session, n)) != NULL; n++)
        fprintf(stderr, "stream: %s\n", p->text);
    end();
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
    /* ^C ends a start that takes long, too. */
    signal(SIGINT, stop);
    if (dt_program(session, NULL, argv[1]) != 0 || dt_command(session, argv[2]) != 0 ||
        dt_option(session, "switchrate", "10hz") != 0 || dt_start(session) != 0)
        return fail();
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
    end();
    return status;
}
