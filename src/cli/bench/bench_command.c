/* bench_command.c - the command bench: finds the server that it measures, or starts one, so that both ways
 * measure with the same requests. */
#include "cli/admin_client.h"
#include "cli/bench/bench_measure.h"
#include "cli/bench/bench_results.h"
#include "cli/chat/remote.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/own_server.h"

#include "base/rng.h"
#include "host/machine_limits.h"
#include "host/settings.h"
#include "http/http_guard.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#define LEFT_MS 1000 /* from an unload to a look at what stayed */

struct bench {
    const struct settings *o;
    struct remote remote;
    struct own_server own;
    struct bench_measure measure;
};

/* ---- the server ---- */

static int start_server(struct bench *b, struct settings *o, struct err *e)
{
    const struct own_server_opts opts = {
        .model = o->models.model, .log_level = "warn", .stopped = interrupt_pending};
    int r = own_server_start(&opts, &b->own, e);
    if (r < 0)
        return err_prefix(e, r, "the server of the measurement did not start");
    o->url = b->own.url;
    o->keys.api_keys[0] = b->own.key;
    o->models.model = NULL; /* it has one */
    return remote_open(o, &b->remote, e);
}

/* A server at --url, one of this machine that has the model, or one of its own. */
static int find_server(struct bench *b, struct settings *o, struct err *e)
{
    const char *files = o->models.model;
    int r = 0;
    if (o->url) {
        o->models.model = o->bench.name ? o->bench.name : files;
        r = remote_open(o, &b->remote, e);
    } else {
        remote_note_key(o);
        if (o->local || !remote_find(o, &b->remote))
            r = start_server(b, o, e);
    }
    o->models.model = files;
    return r;
}

/* ---- a token's cost for the machine ---- */

static bool is_here(const struct bench *b)
{
    const char *base = b->remote.client.base, *scheme = strstr(base, "://");
    const char *host = scheme ? scheme + 3 : base;
    return b->remote.client.socket[0] ||
           http_guard_host_is_loopback((struct slice){host, strcspn(host, "/")});
}

static int ask_about_model(const struct bench *b, struct admin_reply *ret, struct err *e)
{
    char path[1024];
    int r = admin_path("/v1/models/", b->remote.id, "", path, sizeof(path));
    return r == 0 ? admin_client_order(&b->remote.client, "GET", path, ret, e) : r;
}

static struct model_work work_of(const json_t *work)
{
    return (struct model_work){
        .token_bytes = (uint64_t)json_integer_value(json_object_get(work, "token_bytes")),
        .token_operations = (uint64_t)json_integer_value(json_object_get(work, "token_operations")),
        .logits_operations = (uint64_t)json_integer_value(json_object_get(work, "logits_operations")),
        .routed = json_is_true(json_object_get(work, "routed"))};
}

/* The server says it, or the files of MODEL beside --name do. Returns why neither does, or NULL. */
static const char *find_work(struct bench *b)
{
    struct admin_reply model = {0};
    struct err e = {{0}};
    const char *missing =
        "the server does not say what its model reads; with --name, MODEL may name its files";
    if (!is_here(b))
        return "the server is on another machine";
    const bool files = b->o->url && b->o->bench.name && b->o->models.model;
    if (files)
        missing = machine_limits_work(b->o->models.model, &b->measure.work, &e) == 0
                      ? NULL
                      : "MODEL has no files of a model here";
    else if (ask_about_model(b, &model, &e) == 0 && json_object_get(model.json, "work")) {
        const json_t *work = json_object_get(model.json, "work");
        b->measure.work = work_of(work);
        missing = json_is_null(work) ? "the model is not on the processors" : NULL;
    }
    admin_reply_done(&model);
    return missing;
}

static void find_limits(struct bench *b, struct bench_results *ret)
{
    ret->no_shares = find_work(b);
    if (!ret->no_shares && machine_limits_open(&b->measure.limits) < 0)
        ret->no_shares = "no memory or no threads to measure it";
    ret->in_cache = b->measure.limits && machine_limits_in_cache(b->measure.work.token_bytes);
}

/* ---- memory ---- */

static uint64_t integer_at(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

/* The plan and the peak, where the server says them. */
static void read_memory(const struct bench *b, struct bench_results *ret)
{
    struct admin_reply model = {0}, memory = {0};
    struct err e;
    if (ask_about_model(b, &model, &e) == 0)
        ret->planned_bytes = integer_at(model.json, "needed_bytes");
    if (admin_client_order(&b->remote.client, "GET", "/api/memory", &memory, &e) == 0) {
        const json_t *root = json_array_get(json_object_get(memory.json, "accounts"), 0);
        ret->peak_bytes = integer_at(root, "peak_bytes");
        ret->limit_bytes = integer_at(root, "limit_bytes");
    }
    admin_reply_done(&model);
    admin_reply_done(&memory);
}

/* Reads the bytes in use after an unload, of a server that only bench uses. */
static int read_left(const struct bench *b, struct bench_results *ret, struct err *e)
{
    struct admin_reply unload = {0}, after = {0};
    char order[1024];
    int r = admin_path("/v1/models/", b->remote.id, "/unload", order, sizeof(order));
    if (r == 0)
        r = admin_client_order(&b->remote.client, "POST", order, &unload, e);
    if (r == 0) {
        poll(NULL, 0, LEFT_MS);
        r = admin_client_order(&b->remote.client, "GET", "/api/memory", &after, e);
    }
    if (r == 0)
        ret->left_bytes = integer_at(after.json, "used_bytes");
    admin_reply_done(&unload);
    admin_reply_done(&after);
    return r;
}

/* ---- the command ---- */

static int measure(struct bench *b, struct bench_results *ret, struct err *e)
{
    *ret = (struct bench_results){.model = b->remote.id,
                                  .server = b->own.pid ? "a server of its own" : remote_where(&b->remote),
                                  .tokens = b->o->bench.tokens};
    b->measure.remote = &b->remote;
    b->measure.tokens = b->o->bench.tokens;
    b->measure.quick = b->o->bench.quick;
    rng_secret(&b->measure.seed, sizeof(b->measure.seed));
    find_limits(b, ret);
    int r = bench_measure_run(&b->measure, ret, e);
    if (r == 0)
        read_memory(b, ret);
    return r == 0 && b->own.pid ? read_left(b, ret, e) : r;
}

static void show(const struct settings *o, const struct bench_results *s)
{
    if (o->json)
        bench_results_json(s);
    else if (o->bench.csv)
        bench_results_csv(s);
    else
        bench_results_table(s);
}

static int run(struct settings *o, struct err *e)
{
    struct bench b = {.o = o};
    struct bench_results results;
    interrupt_catch();
    int r = find_server(&b, o, e);
    cli_hide_secrets();
    if (r == 0)
        r = measure(&b, &results, e);
    if (r == 0)
        show(o, &results);
    machine_limits_close(b.measure.limits);
    remote_close(&b.remote);
    own_server_stop(&b.own);
    return cli_status(r, e);
}

static int start(struct settings *o, struct err *e)
{
    if (o->json && o->bench.csv)
        return err_set(e, -EINVAL, "--json and --csv exclude each other");
    if (o->url && o->local)
        return err_set(e, -EINVAL, "--url is a server, and --local none: give one of them");
    if (!o->url && o->bench.name)
        return err_set(e, -EINVAL,
                       "--name is what the server of --url calls its model; without --url give MODEL alone");
    return run(o, e);
}

int command_bench(int argc, char **argv)
{
    return cli_run(COMMAND_BENCH, argc, argv, start);
}
