/* remote.c - options about the answer travel with the request. Any other option of chat is about a load, so
 * with one no server is looked for. */
#include "cli/chat/remote.h"

#include "cli/chat/first_question.h"
#include "cli/chat/stream_client.h"
#include "cli/own_server.h"
#include "cli/page_address.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
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

static void describe(const json_t *model, struct remote *ret)
{
    const json_int_t context = json_integer_value(json_object_get(model, "max_model_len"));
    snprintf(ret->id, sizeof(ret->id), "%s", id_of(model));
    ret->text_only = is_text_only(model);
    ret->chats = !json_is_false(json_object_get(model, "chat"));
    ret->context = context > 0 && context < UINT32_MAX ? (uint32_t)context : 0;
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
        if (model)
            describe(model, r);
        else
            error = no_model(list, r, e);
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

void remote_open_own(const struct settings *o, struct own_server *s, struct remote *ret)
{
    *ret = (struct remote){
        .settings = o, .own = s, .context = s->context, .text_only = s->text_only, .chats = s->chats};
    snprintf(ret->id, sizeof(ret->id), "%s", s->model);
    snprintf(ret->client.socket, sizeof(ret->client.socket), "%s", s->socket);
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

/* ---- requests ---- */

uint64_t remote_seed(const struct settings *o)
{
    uint64_t seed = o->answer.seed;
    if (seed == 0) {
        rng_secret(&seed, sizeof(seed));
        seed >>= 1; /* JSON's integers have a sign */
    }
    return seed;
}

bool remote_is_gone(const struct remote *r)
{
    return r->own && r->own->pid == 0;
}

/* The own server's end explains a request that failed. */
static int explain(const struct remote *r, int error, struct err *e)
{
    struct err end = {{0}};
    if (error == -ECANCELED || error == -EPROTO || error == -E2BIG || !r->own ||
        !own_server_is_gone(r->own, &end))
        return error;
    return end.text[0] ? err_set(e, -ECHILD, "%s", end.text) : error;
}

/* Consumes `json`. */
static int run(const struct remote *r, const char *path, json_t *json, struct stream_request *q,
               bool (*stopped)(void), struct err *e)
{
    struct buf body;
    buf_init(&body, REMOTE_BODY_BYTES_MAX, NULL);
    int error = admin_write_json(json, &body);
    buf_putc(&body, 0);
    json_decref(json);
    q->client = &r->client;
    q->path = path;
    q->body = body.ptr;
    if (error < 0 || body.error)
        error = err_set(e, -ENOMEM, "no memory for the request");
    else
        error = stream_client_run(q, 1, stopped, e);
    buf_done(&body);
    if (error == 0 && q->result < 0)
        error = err_set(e, q->result, "%s", q->e.text);
    return error < 0 ? explain(r, error, e) : 0;
}

/* ---- an answer ---- */

/* Only options that were given: for the others the server has defaults. */
static json_t *request_of(const struct remote *r, const struct remote_question *q)
{
    const struct settings *o = r->settings;
    const struct sampling_defaults *s = &o->model.sampling;
    json_t *body = json_pack("{s:s, s:b, s:{s:b}, s:I}", "model", r->id, "stream", 1, "stream_options",
                             "include_usage", 1, "seed", (json_int_t)(q->seed & INT64_MAX));
    /* Usage of an answer that is stopped; servers of others may refuse the member. */
    if (!o->url)
        json_object_set_new(json_object_get(body, "stream_options"), "continuous_usage_stats", json_true());
    if (q->messages) {
        json_object_set(body, "messages", q->messages);
        json_object_set_new(body, "chat_template_kwargs",
                            json_pack("{s:b}", "enable_thinking", o->answer.think));
    } else {
        json_object_set(body, "prompt", (json_t *)q->prompt);
    }
    if (q->messages && q->plain)
        json_object_set_new(body, "reasoning_format", json_string("none"));
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
    const struct remote_question *q;
    struct remote_answer *ret;
    uint64_t began_ns, first_ns, last_ns;
};

static void give(struct answer *a, bool reasoning, const json_t *text)
{
    const struct slice s = {json_string_value(text), json_string_length(text)};
    if (s.len == 0)
        return;
    a->last_ns = clock_now_ns();
    if (a->first_ns == 0)
        a->first_ns = a->last_ns;
    a->q->text(a->q->arg, reasoning, s);
}

static void on_event(void *arg, const json_t *data)
{
    struct answer *a = arg;
    const json_t *choice = json_array_get(json_object_get(data, "choices"), 0);
    const json_t *delta = json_object_get(choice, "delta");
    const json_t *thought = json_object_get(delta, "reasoning_content");
    const char *reason = json_string_value(json_object_get(choice, "finish_reason"));
    give(a, true, thought ? thought : json_object_get(delta, "reasoning"));
    give(a, false, delta ? json_object_get(delta, "content") : json_object_get(choice, "text"));
    if (reason)
        a->ret->end = strcmp(reason, "length") == 0       ? REMOTE_LENGTH
                      : strcmp(reason, "repetition") == 0 ? REMOTE_LOOP
                                                          : REMOTE_STOP;
    struct stream_usage usage;
    if (stream_usage_of(data, &usage)) {
        a->ret->prompt_tokens = usage.prompt_tokens;
        a->ret->completion_tokens = usage.completion_tokens;
        a->ret->cached_tokens = usage.cached_tokens;
    }
}

int remote_ask(const struct remote *r, const struct remote_question *q, struct remote_answer *ret,
               struct err *e)
{
    *ret = (struct remote_answer){.end = REMOTE_STOP};
    struct answer a = {.q = q, .ret = ret, .began_ns = clock_now_ns()};
    struct stream_request request = {.event = on_event, .arg = &a};
    int error = run(r, q->messages ? "/v1/chat/completions" : "/v1/completions", request_of(r, q), &request,
                    q->stopped, e);
    ret->first_ns = (a.first_ns ? a.first_ns : clock_now_ns()) - a.began_ns;
    ret->rest_ns = a.last_ns - a.first_ns;
    if (error == -ECANCELED)
        ret->end = REMOTE_STOPPED;
    return error == -ECANCELED ? 0 : error;
}

/* ---- one part ---- */

static void on_tokens(void *arg, const json_t *data)
{
    *(uint32_t *)arg = (uint32_t)json_integer_value(json_object_get(data, "image_tokens"));
}

int remote_read_part(const struct remote *r, json_t *part, bool (*stopped)(void), uint32_t *ret,
                     struct err *e)
{
    static const char at[] = "messages[0].content[0]";
    json_t *json =
        json_pack("{s:s, s:[{s:s, s:[O]}]}", "model", r->id, "messages", "role", "user", "content", part);
    struct stream_request request = {.whole = true, .event = on_tokens, .arg = ret};
    int error = run(r, "/tokenize", json, &request, stopped, e);
    const size_t len = strlen(at);
    if (error < 0 && strncmp(e->text, at, len) == 0) {
        const struct err whole = *e;
        err_set(e, error, "%s", whole.text + len + strspn(whole.text + len, ": "));
    }
    return error;
}
