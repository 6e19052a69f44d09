/* admin_commands.c - load, unload, clear, trim: one order each, and its result. */
#include "cli/admin_client.h"
#include "cli/admin_show.h"
#include "cli/cli.h"
#include "cli/help.h"
#include "cli/options.h"

#include "base/bytes_text.h"
#include "base/check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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
    char *text = json_dumps(failed, JSON_COMPACT);
    int r = err_set(e, -EPROTO, "not all of it was done: %s", text ? text : "no memory");
    free(text);
    return r;
}

static int finish(const struct settings *o, const struct admin_reply *reply, struct err *e)
{
    if (o->json)
        admin_show_json(reply);
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
        admin_show_line("%s is loaded", o->argument);
    r = r == 0 ? finish(o, &reply, e) : r;
    admin_reply_done(&reply);
    return r;
}

static int unload(const struct admin_client *c, const struct settings *o, struct err *e)
{
    struct admin_reply reply = {0};
    int r = order_model(c, o, "/unload", &reply, e);
    if (r == 0 && !o->json && reply.status == 202)
        admin_show_line("%s ends the requests that still use it, then it is unloaded", o->argument);
    else if (r == 0 && !o->json)
        admin_show_line("%s is unloaded: %s returned", o->argument,
                        bytes_text(number_of(reply.json, "bytes_returned")).text);
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
        admin_show_line("%s: %s returned", what, bytes_text(number_of(reply.json, "bytes_reclaimed")).text);
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
        admin_show_json(&reply);
    else if (r == 0)
        admin_show_status(c->socket[0] ? c->socket : c->url, reply.json, memory.json);
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
    if (r == 0 && o.help)
        help_command(order->command, stdout);
    else if (r == 0)
        r = run(order, &o, argc, argv, &e);
    else
        options_hide(order->command, argc, argv);
    settings_done(&o);
    if (r < 0)
        admin_show_error(e.text);
    return r == -EINVAL ? 2 : r < 0;
}
