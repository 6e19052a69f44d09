/* admin_commands.c - status, load, unload, clear, trim: one order each, and its result for people. */
#include "cli/admin_client.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/table.h"

#include "base/bytes_text.h"
#include "base/check.h"
#include "base/err.h"
#include "host/settings.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DURATION_BYTES 32
#define ROWS_SHOWN     1024

/* ---- lines ---- */

/* The unchanged body, and a line feed. */
static void show_json(const struct admin_reply *r)
{
    printf("%.*s\n", SLICE_ARGS(buf_slice(&r->body)));
}

static void show_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void show_line(const char *format, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    plain_write(stdout, text);
    putchar('\n');
}

/* ---- values ---- */

static const json_t *at(const json_t *object, const char *a, const char *b)
{
    const json_t *v = json_object_get(object, a);
    return b ? json_object_get(v, b) : v;
}

static unsigned long long count(const json_t *v)
{
    double x = json_number_value(v);
    return x > 0 ? (ull)x : 0;
}

static const char *text(const json_t *v)
{
    const char *s = json_string_value(v);
    return s ? s : "-";
}

static struct bytes_text bytes(const json_t *v)
{
    return bytes_text(count(v));
}

static void write_duration(double seconds, char *ret, size_t bytes_max)
{
    unsigned long long s = seconds > 0 ? (ull)seconds : 0;
    if (s < 120)
        snprintf(ret, bytes_max, "%llu s", s);
    else if (s < 7200)
        snprintf(ret, bytes_max, "%llu min", s / 60);
    else if (s < 172800)
        snprintf(ret, bytes_max, "%llu h %llu min", s / 3600, s / 60 % 60);
    else
        snprintf(ret, bytes_max, "%llu days %llu h", s / 86400, s / 3600 % 24);
}

/* ---- tables ---- */

typedef void cells_fn(struct table *t, const json_t *row);

static void print_table(const json_t *rows, const struct table_column *columns, uint32_t column_count,
                        cells_fn *add_cells)
{
    struct table t;
    const size_t count_shown = MIN_OF(json_array_size(rows), (size_t)ROWS_SHOWN);
    table_init(&t, columns, column_count);
    for (size_t k = 0; k < count_shown; k++)
        add_cells(&t, json_array_get(rows, k));
    if (count_shown > 0)
        putchar('\n');
    if (table_end(&t, stdout) < 0)
        plain_error("no memory for a table");
}

static const struct table_column model_columns[] = {{"MODEL", false, 0},  {"STATE", false, 0},
                                                    {"MEMORY", true, 0},  {"CACHE", true, 0},
                                                    {"RUNNING", true, 0}, {"WAITING", false, 0}};

static void model_cells(struct table *t, const json_t *m)
{
    table_cell(t, "%s", text(at(m, "id", NULL)));
    if (json_is_number(at(m, "progress", NULL)))
        table_cell(t, "%s %.0f %%", text(at(m, "state", NULL)),
                   100 * json_number_value(at(m, "progress", NULL)));
    else
        table_cell(t, "%s%s", text(at(m, "state", NULL)),
                   json_is_true(at(m, "pinned", NULL)) ? ", pinned" : "");
    table_cell(t, "%s", bytes(at(m, "used_bytes", NULL)).text);
    table_cell(t, "%s", bytes(at(m, "cache", "bytes")).text);
    table_cell(t, "%llu", count(at(m, "running", NULL)));
    table_cell(t, "%llu", count(at(m, "waiting", NULL)));
}

static const struct table_column request_columns[] = {
    {"REQUEST", false, 0}, {"KEY", false, 2},   {"CLIENT", false, 1}, {"MODEL", false, 0},
    {"PHASE", false, 0},   {"TOKENS", true, 0}, {"AGE", false, 0}};

static void request_cells(struct table *t, const json_t *r)
{
    char age[DURATION_BYTES];
    write_duration(json_number_value(at(r, "age_seconds", NULL)), age, sizeof(age));
    table_cell(t, "%s", text(at(r, "id", NULL)));
    table_cell(t, "%s", text(at(r, "key", NULL)));
    table_cell(t, "%s", text(at(r, "client", NULL)));
    table_cell(t, "%s", text(at(r, "model", NULL)));
    table_cell(t, "%s %.0f %%", text(at(r, "phase", NULL)), 100 * json_number_value(at(r, "progress", NULL)));
    table_cell(t, "%llu", count(at(r, "tokens", NULL)));
    table_cell(t, "%s", age);
}

static void show_agents(const json_t *models)
{
    const json_t *m;
    size_t i;
    json_array_foreach(models, i, m)
        if (at(m, "agents", NULL))
            show_line("agents        %llu of %llu places of %s, %llu running, %llu refused",
                      count(at(m, "agents", "active")), count(at(m, "agents", "limit")),
                      text(at(m, "id", NULL)), count(at(m, "agents", "running")),
                      count(at(m, "agents", "refused")));
}

/* Prints /api/status and /api/memory. Missing fields show as 0 or "-". */
static void show_status(const char *where, const json_t *status, const json_t *memory)
{
    const json_t *host = at(at(status, "caches", NULL), "host", NULL);
    char up[DURATION_BYTES];
    write_duration(json_number_value(at(status, "uptime_seconds", NULL)), up, sizeof(up));
    show_line("server        %s, up %s", where, up);
    show_line("requests      %llu active, %llu waiting", count(at(status, "active_requests", NULL)),
              count(at(status, "waiting_requests", NULL)));
    show_line("memory        %s used, %s reserved of %s", bytes(at(memory, "used_bytes", NULL)).text,
              bytes(at(memory, "reserved_bytes", NULL)).text, bytes(at(memory, "limit_bytes", NULL)).text);
    show_line("prefix cache  %s of %s", bytes(at(host, "bytes", NULL)).text,
              bytes(at(host, "limit_bytes", NULL)).text);
    show_agents(at(status, "models", NULL));
    print_table(at(status, "models", NULL), model_columns, COUNT_OF(model_columns), model_cells);
    if (json_array_size(at(status, "requests", NULL)) > 0)
        print_table(at(status, "requests", NULL), request_columns, COUNT_OF(request_columns), request_cells);
}

/* ---- orders ---- */

/* 0, or negative with e. */
typedef int act_fn(const struct admin_client *c, const struct settings *o, struct err *e);

static uint64_t number_of(const json_t *object, const char *name)
{
    json_int_t v = json_integer_value(json_object_get(object, name));
    return v > 0 ? (uint64_t)v : 0;
}

/* Lists the failed parts and their reasons; 0: none. */
static int show_failed(const json_t *reply, struct err *e)
{
    const json_t *failed = json_object_get(reply, "failed");
    if (json_array_size(failed) == 0)
        return 0;
    struct buf text;
    buf_init(&text, ADMIN_REPLY_BYTES_MAX, NULL);
    admin_write_json(failed, &text);
    err_set(e, -EPROTO, "not all of it was done: %.*s", SLICE_ARGS(buf_slice(&text)));
    buf_done(&text);
    return -EPROTO;
}

static int finish(const struct settings *o, const struct admin_reply *reply, struct err *e)
{
    if (o->json)
        show_json(reply);
    return show_failed(reply->json, e);
}

/* ---- load, unload ---- */

static int order_model(const struct admin_client *c, const struct settings *o, const char *what,
                       struct admin_reply *reply, struct err *e)
{
    char path[1024];
    if (admin_path("/v1/models/", o->argument, what, path, sizeof(path)) < 0)
        return err_set(e, -EINVAL, "the model's name is too long");
    return admin_client_order(c, "POST", path, reply, e);
}

static int load(const struct admin_client *c, const struct settings *o, struct err *e)
{
    struct admin_reply reply = {0};
    int r = order_model(c, o, "/load", &reply, e);
    if (r == 0 && !o->json)
        show_line("%s is loaded", o->argument);
    r = r == 0 ? finish(o, &reply, e) : r;
    admin_reply_done(&reply);
    return r;
}

static int unload(const struct admin_client *c, const struct settings *o, struct err *e)
{
    struct admin_reply reply = {0};
    struct admin_client order = *c;
    order.body = o->force ? "{\"force\":true}" : NULL;
    int r = order_model(&order, o, "/unload", &reply, e);
    if (r == 0 && !o->json && reply.status == 202)
        show_line("%s ends the requests that still use it, then it is unloaded", o->argument);
    else if (r == 0 && !o->json)
        show_line("%s is unloaded: %s returned", o->argument,
                  bytes_text(number_of(reply.json, "bytes_returned")).text);
    if (r == 0 && !o->json && number_of(reply.json, "sessions_ended") > 0)
        show_line("%llu sessions with %s end before their time", (ull)number_of(reply.json, "sessions_ended"),
                  bytes_text(number_of(reply.json, "session_bytes")).text);
    r = r == 0 ? finish(o, &reply, e) : r;
    admin_reply_done(&reply);
    return r;
}

/* ---- clear, trim ---- */

static int reclaim(const struct admin_client *c, const struct settings *o, const char *path, const char *what,
                   struct err *e)
{
    struct admin_reply reply = {0};
    int r = admin_client_order(c, "POST", path, &reply, e);
    if (r == 0 && !o->json)
        show_line("%s: %s returned", what, bytes_text(number_of(reply.json, "bytes_reclaimed")).text);
    r = r == 0 ? finish(o, &reply, e) : r;
    admin_reply_done(&reply);
    return r;
}

static int clear(const struct admin_client *c, const struct settings *o, struct err *e)
{
    if (!o->argument || strcmp(o->argument, "memory") == 0)
        return reclaim(c, o, "/api/hot-cache/clear", "prefix cache in memory", e);
    if (strcmp(o->argument, "ssd") == 0)
        return reclaim(c, o, "/api/ssd-cache/clear", "prefix cache on disk", e);
    return err_set(e, -EINVAL, "%s: memory or ssd is expected", o->argument);
}

static int trim(const struct admin_client *c, const struct settings *o, struct err *e)
{
    return reclaim(c, o, "/api/trim", "free memory", e);
}

static int status(const struct admin_client *c, const struct settings *o, struct err *e)
{
    struct admin_reply reply = {0}, memory = {0};
    int r = admin_client_order(c, "GET", "/api/status", &reply, e);
    if (r == 0 && !o->json)
        r = admin_client_order(c, "GET", "/api/memory", &memory, e);
    if (r == 0 && o->json)
        show_json(&reply);
    else if (r == 0)
        show_status(c->socket[0] ? c->socket : c->url, reply.json, memory.json);
    admin_reply_done(&reply);
    admin_reply_done(&memory);
    return r;
}

/* ---- the commands ---- */

static const struct order {
    const char *name;
    enum setting_command command;
    act_fn *act;
    bool names_model;
} orders[] = {{"status", COMMAND_STATUS, status, false},
              {"load", COMMAND_LOAD, load, true},
              {"unload", COMMAND_UNLOAD, unload, true},
              {"clear", COMMAND_CLEAR, clear, false},
              {"trim", COMMAND_TRIM, trim, false}};

static int run(const struct order *order, struct settings *o, int argc, char **argv, struct err *e)
{
    struct admin_client c = {.url = NULL};
    int r = 0;
    if (order->names_model && !o->argument)
        r = err_set(e, -EINVAL, "name a model: plateau %s MODEL; plateau status lists them", order->name);
    if (r == 0)
        r = admin_client_open(o, &c, e);
    options_hide(order->command, argc, argv);
    if (r == 0)
        r = order->act(&c, o, e);
    admin_client_close(&c);
    return r;
}

/* Prints its errors itself: they may quote the server. */
int command_admin(int argc, char **argv)
{
    const struct order *order = orders;
    struct settings o;
    struct err e = {{0}};
    while (strcmp(order->name, argv[0]) != 0)
        order++;
    int r = options_parse(order->command, argc, argv, &o, &e);
    options_check_environment();
    if (r == 0 && !cli_help(order->command, &o))
        r = run(order, &o, argc, argv, &e);
    else if (r < 0)
        options_hide(order->command, argc, argv);
    settings_done(&o);
    if (r < 0)
        plain_error(e.text);
    return r == -EINVAL ? 2 : r < 0;
}
