/* remote.c - options about the answer travel with the request. Any other option of chat is about a load, so
 * with one no server is looked for. */
#include "cli/chat/remote.h"

#include "cli/chat/first_question.h"
#include "cli/chat/stream_client.h"
#include "cli/page_address.h"

#include "base/check.h"
#include "base/clock.h"
#include "host/settings.h"
#include "host/socket_dir.h"
#include "registry/model_settings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define LISTED_MAX            5 /* models in a message */
#define REMOTE_BODY_BYTES_MAX ((size_t)512 << 20)

/* ---- which model ---- */

static const char *id_of(const json_t *model)
{
    const char *id = json_string_value(json_object_get(model, "id"));
    return id ? id : "";
}

/* Whether it is the bundled model, by whatever name. */
static bool is_toy(const json_t *model)
{
    const char *root = json_string_value(json_object_get(model, "root"));
    return first_question_is_toy(root ? root : id_of(model));
}

/* The model of that name; without a name the first, or one after it if that is the bundled one. NULL: no
 * model has the name. */
static const json_t *choose(const json_t *list, const char *name)
{
    size_t i;
    const json_t *model;
    json_array_foreach(list, i, model) {
        if (name ? strcmp(id_of(model), name) == 0 : !is_toy(model))
            return model;
    }
    return name ? NULL : json_array_get(list, 0);
}

static bool is_text_only(const json_t *model)
{
    const json_t *modalities = json_object_get(model, "input_modalities");
    size_t i;
    const json_t *one;
    json_array_foreach(modalities, i, one) {
        const char *name = json_string_value(one);
        if (!name || strcmp(name, "text") != 0)
            return false;
    }
    return json_array_size(modalities) > 0;
}

static int no_model(const json_t *list, const struct remote *r, struct err *e)
{
    char names[256] = "";
    size_t i, n = 0;
    const json_t *model;
    json_array_foreach(list, i, model) {
        if (i < LISTED_MAX && n < sizeof(names))
            n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", i ? ", " : "", id_of(model));
    }
    if (i == 0)
        return err_set(e, -ENOENT, "%s has no model", remote_where(r));
    return err_set(e, -ENOENT, "%s has no model %s; it has %s%s", remote_where(r), r->settings->models.model,
                   names, i > LISTED_MAX ? " and more" : "");
}

static int look(struct remote *r, struct err *e)
{
    struct admin_reply reply = {0};
    int error = admin_client_order(&r->client, "GET", "/v1/models", &reply, e);
    if (error == -EPROTO && reply.status == 401)
        err_set(e, error,
                r->client.key[0] ? "%s refuses the key"
                                 : "%s needs a key: --api-key-file FILE or PLATEAU_API_KEY",
                remote_where(r));
    if (error == 0) {
        const json_t *list = json_object_get(reply.json, "data");
        const json_t *model = choose(list, r->settings->models.model);
        json_int_t context = json_integer_value(json_object_get(model, "max_model_len"));
        if (model) {
            snprintf(r->id, sizeof(r->id), "%s", id_of(model));
            r->text_only = is_text_only(model);
            r->context = context > 0 && context < UINT32_MAX ? (uint32_t)context : 0;
        } else {
            error = no_model(list, r, e);
        }
    }
    admin_reply_done(&reply);
    return error;
}

int remote_open(const struct settings *o, struct remote *ret, struct err *e)
{
    *ret = (struct remote){.settings = o};
    int r = admin_client_open_url(o, &ret->client, e);
    return r == 0 ? look(ret, e) : r;
}

/* ---- a server of this machine ---- */

static void note_change(void *arg, const struct settings_change *change)
{
    static const char *const travel[] = {
        "model",     "url",    "max-tokens", "temperature",    "top-p",     "top-k", "seed",
        "system",    "think",  "stats",      "hide-reasoning", "history",   "local", "env-file",
        "log-level", "config", "api-key",    "api-key-file",   "log-format"};
    bool *loads = arg;
    for (size_t i = 0; i < COUNT_OF(travel); i++)
        if (strcmp(change->name, travel[i]) == 0)
            return;
    *loads = true;
}

/* Whether an option is about a load, which another process's copy would not obey. */
static bool is_for_a_load(const struct settings *o)
{
    struct settings usual;
    struct err e;
    bool loads = settings_defaults(&usual, &e) < 0;
    if (!loads)
        settings_compare(COMMAND_CHAT, &usual, o, note_change, &loads);
    settings_done(&usual);
    return loads;
}

/* Takes the server's port, with its own admin key: a socket takes short requests only. */
static void prefer_port(struct remote *r)
{
    char key[PAGE_KEY_BYTES];
    struct page_address page;
    struct err e;
    page_key(r->client.socket, key);
    if (key[0] && page_address_find(&r->client, NULL, &page, &e) == 0) {
        snprintf(r->client.base, sizeof(r->client.base), "%s", page.text);
        snprintf(r->client.key, sizeof(r->client.key), "%s", key);
        r->client.socket[0] = 0;
    }
    explicit_bzero(key, sizeof(key));
}

bool remote_find(const struct settings *o, struct remote *ret)
{
    struct socket_servers found;
    struct stat st;
    /* A path names files, which need not be those that a server of the same name has. */
    if (o->local || is_for_a_load(o) || (o->models.model && stat(o->models.model, &st) == 0))
        return false;
    socket_servers_find(&found);
    for (uint32_t i = 0; i < found.count; i++) {
        struct err e;
        *ret = (struct remote){.settings = o};
        snprintf(ret->client.socket, sizeof(ret->client.socket), "%s", found.paths[i]);
        if (look(ret, &e) == 0) {
            prefer_port(ret);
            return true;
        }
        remote_close(ret);
    }
    return false;
}

void remote_note_key(const struct settings *o)
{
    if (!o->url && (o->keys.api_keys[0] || o->keys.api_key_files[0]))
        fputs("plateau: the API key is not used: only a server of --url gets it\n", stderr);
}

void remote_close(struct remote *r)
{
    admin_client_close(&r->client);
}

const char *remote_where(const struct remote *r)
{
    return r->client.socket[0] ? r->client.socket : r->client.base;
}

/* ---- an answer ---- */

/* Only options that were given: for the others the server has defaults. */
static json_t *request_of(const struct remote *r, json_t *messages, uint64_t seed)
{
    const struct settings *o = r->settings;
    const struct sampling_defaults *s = &o->model.sampling;
    json_t *body =
        json_pack("{s:s, s:O, s:b, s:{s:b}, s:I, s:{s:b}}", "model", r->id, "messages", messages, "stream", 1,
                  "stream_options", "include_usage", 1, "seed", (json_int_t)(seed >> 2),
                  "chat_template_kwargs", "enable_thinking", o->answer.think);
    /* Usage of an answer that is stopped; servers of others may refuse the member. */
    if (!o->url)
        json_object_set_new(json_object_get(body, "stream_options"), "continuous_usage_stats", json_true());
    if (s->temperature >= 0)
        json_object_set_new(body, "temperature", json_real(s->temperature));
    if (s->top_p > 0)
        json_object_set_new(body, "top_p", json_real(s->top_p));
    if (s->top_k > 0)
        json_object_set_new(body, "top_k", json_integer(s->top_k));
    if (o->answer.max_tokens)
        json_object_set_new(body, "max_tokens", json_integer(o->answer.max_tokens));
    if (o->answer.ignore_eos)
        json_object_set_new(body, "ignore_eos", json_true());
    return body;
}

struct answer {
    part_sink_fn *sink;
    void *arg;
    struct stream_finish *finish;
    uint64_t began_ns, first_ns, last_ns;
};

static void give(struct answer *a, enum part_kind kind, const json_t *text)
{
    struct part p = {.kind = kind, .text = {json_string_value(text), json_string_length(text)}};
    if (p.text.len == 0)
        return;
    a->last_ns = clock_now_ns();
    if (a->first_ns == 0)
        a->first_ns = a->last_ns;
    a->sink(a->arg, &p);
}

static void on_event(void *arg, const json_t *data)
{
    struct answer *a = arg;
    const json_t *choice = json_array_get(json_object_get(data, "choices"), 0);
    const json_t *delta = json_object_get(choice, "delta");
    const json_t *thought = json_object_get(delta, "reasoning_content");
    const char *reason = json_string_value(json_object_get(choice, "finish_reason"));
    give(a, PART_REASONING, thought ? thought : json_object_get(delta, "reasoning"));
    give(a, PART_TEXT, json_object_get(delta, "content"));
    if (reason)
        a->finish->reason = strcmp(reason, "length") == 0       ? FINISH_LENGTH
                            : strcmp(reason, "repetition") == 0 ? FINISH_REPETITION
                                                                : FINISH_STOP;
    struct stream_usage usage;
    if (stream_usage_of(data, &usage)) {
        a->finish->prompt_tokens = usage.prompt_tokens;
        a->finish->completion_tokens = usage.completion_tokens;
        a->finish->cached_tokens = usage.cached_tokens;
    }
}

int remote_answer(const struct remote *r, json_t *messages, uint64_t seed, bool (*stopped)(void),
                  part_sink_fn *sink, void *sink_arg, struct stream_finish *ret, struct err *e)
{
    json_t *json = request_of(r, messages, seed);
    struct buf body;
    buf_init(&body, REMOTE_BODY_BYTES_MAX, NULL);
    int error = admin_write_json(json, &body);
    buf_putc(&body, 0);
    *ret = (struct stream_finish){.reason = FINISH_STOP};
    struct answer a = {.sink = sink, .arg = sink_arg, .finish = ret, .began_ns = clock_now_ns()};
    struct stream_request q = {
        .client = &r->client, .path = "/v1/chat/completions", .body = body.ptr, .event = on_event, .arg = &a};
    json_decref(json);
    if (error < 0 || body.error)
        error = err_set(e, -ENOMEM, "no memory for the request");
    else
        error = stream_client_run(&q, 1, stopped, e);
    buf_done(&body);
    if (error < 0)
        return error;
    ret->prefill_ns = (a.first_ns ? a.first_ns : clock_now_ns()) - a.began_ns;
    ret->decode_ns = a.last_ns - a.first_ns;
    if (q.result == -ECANCELED)
        ret->reason = FINISH_ABORTED;
    else if (q.result < 0)
        return err_set(e, q.result, "%s", q.e.text);
    return 0;
}
