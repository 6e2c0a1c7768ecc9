/*
 * The library for C in Node.js, which has no foreign functions of its own: one function,
 * trace(program, command, each), that calls each(line) with the JSON of every event. It holds the
 * event loop while it traces: a program that does something else meanwhile would have the loop poll
 * dt_descriptor().
 *
 *     cc -shared -fPIC -I/usr/include/node addon.c $(pkg-config --cflags --libs dtrace-rs) -o addon.node
 */
#include <dtrace.h>
#include <node_api.h>
#include <stdlib.h>

/* A string of JavaScript as one of C, which the caller frees. */
static char *text_of(napi_env env, napi_value value)
{
    size_t length = 0;
    char *text;

    if (napi_get_value_string_utf8(env, value, NULL, 0, &length) != napi_ok)
        return NULL;
    text = malloc(length + 1);
    if (text != NULL)
        napi_get_value_string_utf8(env, value, text, length + 1, &length);
    return text;
}

/* Calls the function with each event; -1: it has thrown. */
static int deliver(napi_env env, dt_session *s, napi_value each)
{
    napi_value self, line;

    for (const char *json; (json = dt_next_json(s)) != NULL;)
        if (napi_get_undefined(env, &self) != napi_ok ||
            napi_create_string_utf8(env, json, NAPI_AUTO_LENGTH, &line) != napi_ok ||
            napi_call_function(env, self, each, 1, &line, NULL) != napi_ok)
            return -1;
    return 0;
}

static int run(napi_env env, dt_session *s, const char *program, const char *command, napi_value each)
{
    int more;

    if (dt_program(s, NULL, program) != 0 || dt_command(s, command) != 0 || dt_start(s) != 0)
        return -1;
    while ((more = dt_work(s, -1)) == 1)
        if (deliver(env, s, each) != 0)
            return -1;
    return more == 0 && dt_finish(s, NULL) == 0 ? deliver(env, s, each) : -1;
}

static napi_value trace(napi_env env, napi_callback_info info)
{
    napi_value arguments[3];
    size_t count = 3;
    char *program, *command;
    dt_session *s;

    if (napi_get_cb_info(env, info, &count, arguments, NULL, NULL) != napi_ok || count != 3) {
        napi_throw_type_error(env, NULL, "trace(program, command, each)");
        return NULL;
    }
    program = text_of(env, arguments[0]);
    command = text_of(env, arguments[1]);
    s = dt_open();
    if (run(env, s, program, command, arguments[2]) != 0) {
        const dt_problem *problem = dt_error(s, 0);

        if (problem != NULL)
            napi_throw_error(env, *problem->tag ? problem->tag : NULL, problem->text);
    }
    dt_close(s);
    free(command);
    free(program);
    return NULL;
}

NAPI_MODULE_INIT()
{
    napi_value function;

    if (napi_create_function(env, "trace", NAPI_AUTO_LENGTH, trace, NULL, &function) == napi_ok)
        napi_set_named_property(env, exports, "trace", function);
    return exports;
}
