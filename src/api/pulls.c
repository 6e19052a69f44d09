/* pulls.c - the process writes its events to a pipe that the network thread watches. */
#include "api/pulls.h"

#include "api/api_state.h"
#include "api/memory_refusal.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/json/json_out.h"
#include "base/log.h"
#include "gen/json_depth.h"
#include "gen/reject.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define BODY_BYTES_MAX 4096
#define END_NS         (10 * NS_PER_S) /* from the order to end to the kill */

/* ---- events of the process ---- */

static void copy(const json_t *e, const char *member, char *ret, size_t bytes_max)
{
    const char *text = json_string_value(json_object_get(e, member));
    if (text)
        snprintf(ret, bytes_max, "%s", text);
}

static uint64_t number(const json_t *e, const char *member)
{
    json_int_t value = json_integer_value(json_object_get(e, member));
    return value > 0 ? (uint64_t)value : 0;
}

static void take_progress(struct pulls *p, const json_t *e)
{
    copy(e, "phase", p->phase, sizeof(p->phase));
    p->trying_again[0] = 0;
    copy(e, "trying_again", p->trying_again, sizeof(p->trying_again));
    p->bytes = number(e, "bytes");
    p->bytes_total = number(e, "bytes_total");
    p->files = (uint32_t)number(e, "files");
    p->files_total = (uint32_t)number(e, "files_total");
    if (p->first_ns == 0 && strcmp(p->phase, "fetch") == 0) {
        p->first_ns = clock_now_ns();
        p->first_bytes = p->bytes;
    }
}

static void take_plan(struct pulls *p, const json_t *e)
{
    copy(e, "family", p->family, sizeof(p->family));
    copy(e, "form", p->form, sizeof(p->form));
    p->context = (uint32_t)number(e, "context");
    p->floor_bytes = number(e, "floor_bytes");
    p->fits = json_is_true(json_object_get(e, "fits"));
}

static void take_event(void *arg, const json_t *e)
{
    struct pulls *p = arg;
    const char *event = json_string_value(json_object_get(e, "event"));
    if (!event)
        return;
    if (strcmp(event, "progress") == 0) {
        take_progress(p, e);
    } else if (strcmp(event, "plan") == 0) {
        take_plan(p, e);
    } else if (strcmp(event, "failed") == 0) {
        copy(e, "error", p->error, sizeof(p->error));
    } else if (strcmp(event, "done") == 0) {
        copy(e, "commit", p->commit, sizeof(p->commit));
        p->bytes = p->bytes_total = number(e, "bytes");
        p->fetched = number(e, "fetched");
        p->files = p->files_total = (uint32_t)number(e, "files");
    }
}

/* ---- its end ---- */

static void unwatch(struct api *a)
{
    if (!a->server)
        return;
    http_server_unwatch(a->server, a->pulls.child.out);
    http_server_unwatch(a->server, a->pulls.child.pidfd);
}

/* Its process runs, or its model is being listed. */
static bool is_underway(const struct pulls *p)
{
    return p->state == PULLS_RUNNING || p->state == PULLS_SERVING;
}

/* Its process is over. */
static void log_end(const struct pulls *p)
{
    const char *result = p->state == PULLS_CANCELLED ? "cancelled"
                         : p->state == PULLS_FAILED  ? "failed"
                                                     : "ok";
    LOG_INFO("pull_ended", "model=\"%s\" result=%s bytes=%llu fetched=%llu error=\"%s\"", p->model, result,
             (ull)p->bytes, (ull)p->fetched, p->state == PULLS_FAILED ? p->error : "");
}

/* All of the model is here: the server looks at it and lists it. */
static void serve(struct api *a)
{
    struct pulls *p = &a->pulls;
    struct hub_name name;
    ASSERT(hub_name_parse(p->model, &name));
    snprintf(p->phase, sizeof(p->phase), "serve");
    a->opts.serve_pulled(a->opts.serve_arg, &name);
}

void pulls_poll(struct api *a)
{
    struct pulls *p = &a->pulls;
    pthread_mutex_lock(&a->lock);
    if (p->state == PULLS_SERVING && a->served.is_told) {
        p->served = a->served;
        a->served.is_told = false;
        p->ended_ns = clock_now_ns();
        p->state = PULLS_DONE;
    }
    pthread_mutex_unlock(&a->lock);
}

static void end(struct api *a)
{
    struct pulls *p = &a->pulls;
    struct charge charge = account_charge(a->opts.pull);
    hub_child_read(&p->child, take_event, p);
    unwatch(a);
    struct err why = {0};
    bool done = hub_child_end(&p->child, &why);
    charge_give(&charge, p->reserved_bytes);
    p->reserved_bytes = 0;
    p->ended_ns = clock_now_ns();
    p->state = done ? PULLS_SERVING : p->cancelled_ns ? PULLS_CANCELLED : PULLS_FAILED;
    if (p->state == PULLS_FAILED && !p->error[0])
        snprintf(p->error, sizeof(p->error), "%s", why.text);
    log_end(p);
    if (done)
        serve(a);
}

/* A process whose output is closed ends now, and its descriptor says so. */
static void on_output(void *arg, int fd)
{
    struct api *a = arg;
    if (!hub_child_read(&a->pulls.child, take_event, &a->pulls) && a->server)
        http_server_unwatch(a->server, fd);
}

static void on_end(void *arg, int fd)
{
    (void)fd;
    end(arg);
}

/* ---- orders ---- */

static bool is_allowed(const struct api *a, struct reject *why)
{
    return a->opts.pull || reject_set(why, REJECT_PULL_NOT_ALLOWED, NULL,
                                      "This server pulls no models: start it with --allow-pull.");
}

/* False: 400. */
static bool read_body(struct slice body, struct hub_child_opts *o, char model[], size_t bytes_max,
                      struct reject *why)
{
    struct hub_name name;
    json_error_t error;
    json_t *order = body.len <= BODY_BYTES_MAX && json_depth_within(body, 2)
                        ? json_loadb(body.ptr, body.len, JSON_REJECT_DUPLICATES, &error)
                        : NULL;
    const json_t *id = json_object_get(order, "model"), *anyway = json_object_get(order, "anyway");
    const char *text = json_string_value(id);
    if (!json_is_object(order))
        reject_set(why, REJECT_INVALID_JSON, NULL, "The body is not a JSON object with \"model\".");
    else if (!text || !hub_name_parse(text, &name))
        reject_value(why, "model", "model is the name of a model at the hub: ORG/NAME[@REVISION][:QUANT].");
    else if (anyway && !json_is_boolean(anyway))
        reject_value(why, "anyway", "anyway is true or false.");
    if (!why->kind) {
        snprintf(model, bytes_max, "%s", text);
        o->anyway = json_is_true(anyway);
    }
    json_decref(order);
    return !why->kind;
}

static bool watch(struct api *a)
{
    struct pulls *p = &a->pulls;
    return a->server && http_server_watch(a->server, p->child.out, on_output, a) == 0 &&
           http_server_watch(a->server, p->child.pidfd, on_end, a) == 0;
}

static bool start(struct api *a, const struct hub_child_opts *o, struct reject *why)
{
    struct pulls *p = &a->pulls;
    struct charge charge = account_charge(a->opts.pull);
    if (charge_take(&charge, HUB_CHILD_BYTES) < 0)
        return memory_refusal(a, a->opts.pull, HUB_CHILD_BYTES, 0, why);
    int r = hub_child_start(o, &p->child);
    if (r == 0 && watch(a)) {
        p->reserved_bytes = HUB_CHILD_BYTES;
        p->state = PULLS_RUNNING;
        p->began_ns = clock_now_ns();
        LOG_INFO("pull_started", "model=\"%s\" pid=%d", p->model, (int)p->child.pid);
        return true;
    }
    if (r == 0) {
        unwatch(a);
        hub_child_end(&p->child, NULL);
    }
    charge_give(&charge, HUB_CHILD_BYTES);
    p->state = PULLS_FAILED;
    snprintf(p->error, sizeof(p->error), "its process could not be started: %s", strerror(r < 0 ? -r : 0));
    return reject_set(why, REJECT_ENGINE_ERROR, NULL, "The pull failed: %s.", p->error);
}

bool pulls_order(struct api *a, struct slice body, struct reject *why)
{
    struct pulls *p = &a->pulls;
    struct pulls next = {.child = {.pidfd = -1, .out = -1}, .phase = "list"};
    struct hub_child_opts o = {.model = p->model,
                               .ceiling_bytes = account_numbers(ledger_root(a->opts.ledger)).limit};
    if (!is_allowed(a, why) || !api_is_ready(a, why) ||
        !read_body(body, &o, next.model, sizeof(next.model), why))
        return false;
    if (is_underway(p))
        return reject_set(why, REJECT_PULL_RUNS, NULL,
                          "%s is being pulled, and one pull runs at a time. DELETE /api/models/pull ends it.",
                          p->model);
    *p = next;
    return start(a, &o, why);
}

bool pulls_cancel(struct api *a)
{
    struct pulls *p = &a->pulls;
    if (p->state != PULLS_RUNNING)
        return false;
    if (p->cancelled_ns == 0)
        p->cancelled_ns = clock_now_ns();
    hub_child_stop(&p->child);
    return true;
}

void pulls_tick(struct api *a, uint64_t now_ns)
{
    struct pulls *p = &a->pulls;
    if (p->state == PULLS_RUNNING && p->cancelled_ns && now_ns > p->cancelled_ns + END_NS)
        end(a);
}

void pulls_drain(struct api *a)
{
    pulls_cancel(a);
}

void pulls_close(struct api *a)
{
    pulls_cancel(a);
    if (a->pulls.state == PULLS_RUNNING)
        end(a);
}

/* ---- the report ---- */

static const char *state_name(const struct pulls *p)
{
    static const char *const names[] = {
        [PULLS_NONE] = "none", [PULLS_RUNNING] = "running", [PULLS_SERVING] = "running",
        [PULLS_DONE] = "done", [PULLS_FAILED] = "failed",   [PULLS_CANCELLED] = "cancelled"};
    return p->state == PULLS_RUNNING && p->cancelled_ns ? "cancelling" : names[p->state];
}

static void write_rate(const struct pulls *p, struct json_out *j)
{
    double seconds = p->first_ns ? (double)(clock_now_ns() - p->first_ns) / NS_PER_S : 0;
    double rate =
        seconds > 0.5 && p->bytes > p->first_bytes ? (double)(p->bytes - p->first_bytes) / seconds : 0;
    bool known = p->state == PULLS_RUNNING && rate >= 1;
    double left = (double)(p->bytes_total - MIN_OF(p->bytes, p->bytes_total));
    json_put_fixed(j, "bytes_per_second", 0, known ? rate : NAN);
    json_put_fixed(j, "seconds_left", 0, known ? left / rate : NAN);
}

static void write_plan(const struct pulls *p, struct json_out *j)
{
    if (!p->family[0]) {
        json_put_null(j, "plan");
        return;
    }
    json_open(j, "plan");
    JSON_PUT_STRINGS(j, {"family", p->family}, {"form", p->form});
    JSON_PUT_U64S(j, {"context", p->context}, {"floor_bytes", p->floor_bytes});
    json_put_bool(j, "fits", p->fits);
    json_close(j);
}

void pulls_write(struct api *a, struct json_out *j, const char *key)
{
    const struct pulls *p = &a->pulls;
    json_open(j, key);
    json_put_string(j, "state", state_name(p));
    if (p->state != PULLS_NONE) {
        uint64_t until_ns = is_underway(p) ? clock_now_ns() : p->ended_ns;
        JSON_PUT_STRINGS(j, {"model", p->model}, {"phase", p->phase});
        JSON_PUT_U64S(j, {"bytes", p->bytes}, {"bytes_total", p->bytes_total}, {"fetched_bytes", p->fetched},
                      {"files", p->files}, {"files_total", p->files_total});
        json_put_fixed(j, "seconds", 1, (double)(until_ns - MIN_OF(p->began_ns, until_ns)) / NS_PER_S);
        write_rate(p, j);
        write_plan(p, j);
        json_put_string(j, "commit", p->commit[0] ? p->commit : NULL);
        const bool waits = p->state == PULLS_RUNNING && p->trying_again[0];
        JSON_PUT_STRINGS(j, {"trying_again", waits ? p->trying_again : NULL},
                         {"error", p->state == PULLS_FAILED ? p->error : NULL},
                         {"served", p->served.id[0] ? p->served.id : NULL},
                         {"not_served", p->served.why[0] ? p->served.why : NULL});
    }
    json_close(j);
}
