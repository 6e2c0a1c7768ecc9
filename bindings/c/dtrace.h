/*
 * DTrace for Linux: sessions in C. libdtrace-rs(3) explains all of this.
 *
 *     dt_session *s = dt_open();
 *     dt_program(s, NULL, "syscall:::entry /pid == $target/ { @[probefunc] = count(); }");
 *     dt_command(s, "ls -l /etc");
 *     if (dt_start(s) != 0)
 *         errx(1, "%s", dt_error(s, 0)->text);
 *     while (dt_work(s, -1) == 1)
 *         continue;
 *     dt_finish(s, NULL);
 *     for (const dt_event *e; (e = dt_next(s)) != NULL;)
 *         if (e->kind == DT_ROW)
 *             printf("%s %lld\n", e->values[0].text, (long long)e->result);
 *     dt_close(s);
 *
 * A session is used by one thread at a time, and by the process that has opened it: a call while
 * another thread is in one fails, and so does every call in a forked child. Only dt_stop() may be
 * called at any time. Several sessions are independent.
 *
 * Texts end with a NUL, and are UTF-8 but for what the traced system has named otherwise. Those that
 * a program gives may contain other bytes, as names of files do. Memory that a function returns
 * belongs to the session: it is valid until the next call with the session that is not dt_error()
 * or dt_stop(). A function that gets NULL instead of a session fails.
 *
 * The threads of the library block all signals, so that those of the program get them.
 */
#ifndef DTRACE_RS_H
#define DTRACE_RS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What an event is. Later versions may have further ones: leave out what you do not know. */
typedef enum dt_kind {
    /* A clause has recorded values. */
    DT_RECORD = 1,
    /* A row of an aggregation, by printa() or at the end. */
    DT_ROW = 2,
    /* A clause has faulted: text. */
    DT_FAULT = 3,
    /* Something was lost or could not be recorded: text, and how many times in result. */
    DT_LOSS = 4,
    /* A message of the session: text. */
    DT_NOTICE = 5,
    /* The session has ended: its exit status in result. */
    DT_END = 6,
} dt_kind;

/* The form of a value. */
typedef enum dt_form {
    /* number is an int64_t. */
    DT_SIGNED = 1,
    /* number is the bits of a uint64_t. */
    DT_UNSIGNED = 2,
    /* text is a string; it can contain bytes that are no UTF-8. */
    DT_STRING = 3,
    /* text is memory, which can contain NULs. */
    DT_BYTES = 4,
    /* text is the name of the address in number. */
    DT_SYMBOL = 5,
    /* text has a line for each frame, the innermost first. */
    DT_STACK = 6,
} dt_form;

/* A value of a record or of a key. */
typedef struct dt_value {
    dt_form form;
    /* See dt_form; 0 for strings, memory and stacks. */
    int64_t number;
    /* A NUL follows its length bytes. Empty for numbers. */
    const char *text;
    size_t length;
    /* The expression in the program ("pid"); empty if it is not known. */
    const char *name;
} dt_value;

/* A bucket of quantize() and its like that is not empty. */
typedef struct dt_bucket {
    /* The least and the greatest integer in it. */
    int64_t low;
    int64_t high;
    int64_t count;
} dt_bucket;

/* An event. What its kind does not have is 0 or empty, and never NULL. */
typedef struct dt_event {
    dt_kind kind;
    /* Of a record or fault. */
    uint32_t cpu;
    uint32_t pid;
    uint32_t tid;
    /* Nanoseconds, by the clock of `timestamp` (CLOCK_MONOTONIC). */
    uint64_t time;
    /* provider:module:function:name of a record or fault. */
    const char *probe;
    /* The name of the aggregation, without @. */
    const char *name;
    /* The values of a record, the columns of the key of a row. */
    const dt_value *values;
    size_t values_count;
    /* The value of a row: what printa() prints for count(), sum(), min(), max(), avg() and stddev();
       of a distribution the sum of its buckets. How many times, of a loss or fault; the exit status,
       of the end. */
    int64_t result;
    /* The distribution of a row, as printa() prints it: after normalize() each count is divided. */
    const dt_bucket *buckets;
    size_t buckets_count;
    /* What printf() prints of a record; the message of others. */
    const char *text;
} dt_event;

/* What is wrong. Without a place in a program, script is empty and line is 0. */
typedef struct dt_problem {
    /* The message as the command prints it, with the source line if there is one. */
    const char *text;
    /* The message alone. */
    const char *message;
    /* The tag of the original, as D_UNKNOWN; empty if it has none. */
    const char *tag;
    /* The name of the script, or the text of a program without a name. */
    const char *script;
    uint32_t line;
    uint32_t column;
} dt_problem;

typedef struct dt_session dt_session;

/* The version of the library, as "0.1.0". */
const char *dt_version(void);

/* A new session. NULL: there is no memory. */
dt_session *dt_open(void);

/* The functions that return an int return 0, or -1 for an error: see dt_error(). */

/* Ends a session at once and frees it. What was not finished is not reported. While another thread
   is using the session this is an error and nothing happens: dt_stop() it, and close it when that
   call has returned. In a forked child it frees the copy; the parent's session goes on. */
int dt_close(dt_session *session);

/* Sets an option of -x, before the start or, if it can change, while tracing. value may be NULL. One
   that the command alone obeys (listen, otlp, oformat) is an error that says what does. */
int dt_option(dt_session *session, const char *name, const char *value);

/* The executable that reads symbols of processes: the dtrace command of this version. Without this,
   the first dtrace of this version in PATH that others cannot have written; with an empty path,
   none. */
int dt_reader(dt_session *session, const char *path);

/* Adds a program in D. With the name of a script, errors show that; name may be NULL. */
int dt_program(dt_session *session, const char *name, const char *text);

/* Adds an operand of the programs: $1, $2 and so on. */
int dt_argument(dt_session *session, const char *text);

/* Adds a command (split at blanks, no shell) that runs while it is traced; the first is $target. */
int dt_command(dt_session *session, const char *command);

/* Adds a process that runs. */
int dt_process(dt_session *session, int pid);

/* Compiles the programs and enables their probes. */
int dt_start(dt_session *session);

/* Enables a further program while the session runs. */
int dt_enable(dt_session *session, const char *name, const char *text);

/* A descriptor to poll, the same until dt_close(): it is readable when there is work, and after
   dt_stop(). */
int dt_descriptor(dt_session *session);

/* Milliseconds until dt_work() is due although the descriptor is not readable; -1 for an error. */
int dt_deadline(dt_session *session);

/* Waits for work for at most so many milliseconds (-1: for ever, 0: not at all) and does it.
   1: call it again; 0: tracing is over, call dt_finish(); -1: an error. One is that more than 100,000
   events have not been taken by dt_next(). */
int dt_work(dt_session *session, int timeout);

/* The next event, in the order in which they happened. NULL: there is none now, or an error. */
const dt_event *dt_next(dt_session *session);

/* The next event as JSON, as `dtrace -x oformat=json` has it (events.schema.json): all of them, also
   those that are no dt_event, as what intervals have added (the option every). A session is read by
   this or by dt_next(), not by both. NULL as there. */
const char *dt_next_json(dt_session *session);

/* Stops tracing at once: dt_work() returns 0, also one that is waiting. From any thread and from a
   signal handler, at any time between dt_open() and dt_close(): before or during dt_start() that
   fails, unless it was about to return; then dt_work() returns 0. */
int dt_stop(dt_session *session);

/* Stops tracing, runs END and delivers what is left, for dt_next(). status may be NULL: the argument
   of exit(). */
int dt_finish(dt_session *session, int *status);

/* What was wrong in this thread's last call with the session, by number from 0. NULL: there is no
   more. A call that returned -1, or NULL for an error, has at least one. */
const dt_problem *dt_error(dt_session *session, size_t number);

#ifdef __cplusplus
}
#endif

#endif
