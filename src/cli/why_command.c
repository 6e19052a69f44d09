/* why_command.c - why a request found little in the prefix cache, from the records of a running server. */
#include "cli/admin_client.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/table.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"
#include "host/settings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ASKS_MAX 8 /* answers, of up to 64 records each; a server keeps 200 */

static const char *text_of(const json_t *object, const char *name)
{
    const char *s = json_string_value(json_object_get(object, name));
    return s ? s : "";
}

static unsigned long long count_of(const json_t *object, const char *name)
{
    json_int_t v = json_integer_value(json_object_get(object, name));
    return v > 0 ? (unsigned long long)v : 0;
}

/* ---- records ---- */

/* All records of the server, oldest first: a list of the caller's. NULL: e says why. */
static json_t *ask_all(const struct admin_client *c, struct err *e)
{
    json_t *all = json_array();
    unsigned long long after = 0;
    bool more = all != NULL;
    int r = all ? 0 : err_set(e, -ENOMEM, "no memory for the records of requests");
    for (uint32_t asks = 0; r == 0 && more && asks < ASKS_MAX; asks++) {
        struct admin_reply reply = {0};
        char path[64];
        snprintf(path, sizeof(path), "/api/requests?after=%llu", after);
        r = admin_client_order(c, "GET", path, &reply, e);
        json_t *requests = json_object_get(reply.json, "requests");
        if (r == 0 && json_array_extend(all, requests) < 0)
            r = err_set(e, -EPROTO, "%s has no list of requests", path);
        more = json_is_true(json_object_get(reply.json, "more"));
        after = count_of(json_array_get(all, json_array_size(all) - 1), "number");
        admin_reply_done(&reply);
    }
    if (r == 0)
        return all;
    json_decref(all);
    return NULL;
}

/* A reply's id has the request's behind its last '-' or '_'. */
static const char *id_in(const char *argument)
{
    const char *dash = strrchr(argument, '-'), *bar = strrchr(argument, '_');
    const char *at = MAX_OF(dash, bar);
    return at ? at + 1 : argument;
}

static const json_t *find(const json_t *all, const char *argument)
{
    for (size_t i = json_array_size(all); i > 0; i--)
        if (strcmp(text_of(json_array_get(all, i - 1), "id"), id_in(argument)) == 0 ||
            strcmp(text_of(json_array_get(all, i - 1), "client_id"), argument) == 0)
            return json_array_get(all, i - 1);
    return NULL;
}

/* ---- sentences ---- */

static void say_eviction(const json_t *miss, struct buf *ret)
{
    static const char *const causes[][2] = {
        {"pages", "another sequence needed the pages"},
        {"limit", "the prefix cache was full, and another conversation was newer"},
        {"other_caches", "other models' caches had more use for the memory"},
        {"model", "a model needed the memory"},
        {"pressure", "the machine ran short of memory"},
        {"images", "images needed the memory"},
        {"cleared", "an administrator cleared the cache"},
        {"unload", "the model was unloaded"},
        {"unrecorded", "the record of the eviction is gone, or there was none"}};
    const char *cause = text_of(miss, "cause"), *whom = text_of(miss, "for"), *words = cause;
    for (size_t i = 0; i < COUNT_OF(causes); i++)
        if (strcmp(causes[i][0], cause) == 0)
            words = causes[i][1];
    buf_printf(ret, "It was evicted: %s", words);
    if (whom[0])
        buf_printf(ret, ", for %s",
                   strcmp(whom, "own") == 0              ? "the same key or client"
                   : strcmp(whom, "another_tenant") == 0 ? "another key or client"
                                                         : whom);
    if (strcmp(cause, "unrecorded") != 0)
        buf_printf(ret, ", %llu s before the request's end", count_of(miss, "seconds"));
}

static void say_change(const json_t *miss, struct buf *ret)
{
    unsigned long long from = count_of(miss, "character"), within = count_of(miss, "within");
    const char *at = text_of(miss, "at");
    buf_printf(ret, "The first part that differs is %s", text_of(miss, "part"));
    if (at[0])
        buf_printf(ret, ", in %s", at);
    if (within > 0)
        buf_printf(ret, ", between characters %llu and %llu", from, from + within);
    buf_printf(ret, ". The %s changed it", text_of(miss, "side"));
}

static void say_why(const json_t *miss, struct buf *ret)
{
    const char *part = text_of(miss, "part");
    if (!part[0])
        buf_puts(ret, "It found all that an earlier turn had left, or began a conversation");
    else if (strcmp(part, "evicted") == 0)
        say_eviction(miss, ret);
    else if (strcmp(part, "rendering") == 0)
        buf_puts(ret, "The request's parts are the same, and the template wrote earlier ones in another way");
    else if (strcmp(part, "unknown") == 0)
        buf_printf(ret, "It has replies, and no turn of it is known: the records go back %llu s, to %s",
                   count_of(miss, "seconds"),
                   strcmp(text_of(miss, "cause"), "restart") == 0 ? "the server's start"
                                                                  : "the last one that was dropped");
    else
        say_change(miss, ret);
}

static int show(const json_t *r)
{
    const json_t *miss = json_object_get(r, "cache_miss");
    struct buf text;
    buf_init(&text, ADMIN_REPLY_BYTES_MAX, NULL);
    buf_printf(&text, "request  %s, %s, model %s\n", text_of(r, "id"), text_of(r, "action"),
               text_of(r, "model"));
    buf_printf(&text, "prompt   %llu tokens, %llu found, %llu lost\nwhy      ", count_of(r, "prompt_tokens"),
               count_of(r, "cached_tokens"), count_of(miss, "cache_missed_input_tokens"));
    say_why(miss, &text);
    buf_puts(&text, ".\n");
    buf_putc(&text, 0);
    int error = text.error;
    if (error == 0)
        plain_write(stdout, text.ptr);
    buf_done(&text);
    return error;
}

/* ---- the list ---- */

static const struct table_column columns[] = {{"REQUEST", false, 0}, {"MODEL", false, 1}, {"PROMPT", true, 0},
                                              {"FOUND", true, 0},    {"LOST", true, 0},   {"WHY", false, 0}};

static bool lost(const json_t *r)
{
    return json_is_object(json_object_get(r, "cache_miss"));
}

static int list(const json_t *all)
{
    struct table t;
    uint32_t rows = 0;
    table_init(&t, columns, COUNT_OF(columns));
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *r = json_array_get(all, i), *miss = json_object_get(r, "cache_miss");
        if (!lost(r))
            continue;
        rows++;
        table_cell(&t, "%s", text_of(r, "id"));
        table_cell(&t, "%s", text_of(r, "model"));
        table_cell(&t, "%llu", count_of(r, "prompt_tokens"));
        table_cell(&t, "%llu", count_of(r, "cached_tokens"));
        table_cell(&t, "%llu", count_of(miss, "cache_missed_input_tokens"));
        table_cell(&t, "%s", text_of(miss, "part"));
    }
    if (table_end(&t, stdout) < 0)
        return -ENOMEM;
    if (rows == 0)
        plain_write(stdout, "No request of the last ones lost a prefix.\n");
    return 0;
}

/* ---- the command ---- */

static void print_json(const json_t *value)
{
    struct buf text;
    buf_init(&text, ADMIN_REPLY_BYTES_MAX, NULL);
    if (admin_write_json(value, &text) == 0)
        printf("%.*s\n", SLICE_ARGS(buf_slice(&text)));
    buf_done(&text);
}

static int answer(const json_t *all, const struct settings *o, struct err *e)
{
    const json_t *found = o->argument ? find(all, o->argument) : NULL;
    if (o->argument && !found)
        return err_set(e, -ENOENT,
                       "no record of a request %s: the server keeps those of its last 200 requests",
                       o->argument);
    if (o->json)
        print_json(found ? found : all);
    else
        return found ? show(found) : list(all);
    return 0;
}

static int run(struct settings *o, struct err *e)
{
    struct admin_client c = {.url = NULL};
    int r = admin_client_open(o, &c, e);
    cli_hide_secrets();
    if (r == 0) {
        json_t *all = ask_all(&c, e);
        r = all ? answer(all, o, e) : -EPROTO;
        json_decref(all);
    }
    admin_client_close(&c);
    return r == -EINVAL ? r : r < 0 ? cli_status(r, e) : 0;
}

int command_why(int argc, char **argv)
{
    return cli_run(COMMAND_WHY, argc, argv, run);
}
