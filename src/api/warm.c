/* warm.c - files are read again at each load, so that nothing of them is held between two.
 *
 * News are messages: a stream of the request under way, or NULL for "look at the models". A lost message
 * costs a moment. */
#include "api/warm.h"

#include "api/access/auth.h"
#include "api/access/keyring.h"
#include "api/api_state.h"
#include "api/prep.h"
#include "api/warm_file.h"
#include "api/warm_task.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/threads/thread_nice.h"
#include "registry/model_settings.h"

#include <errno.h>
#include <stdlib.h>

#define MESSAGES 64

struct source {
    const char *path; /* borrowed from the settings */
    int model;        /* -1: each request names its own */
    uint64_t tenant;
};

struct warm {
    struct api *api;
    struct source *sources;
    uint32_t source_count;
    uint64_t *loads; /* [models_max]: the load after which each model was warmed last */
    struct mailbox *news;
    pthread_t thread;
    struct thread_stack stack;
    bool has_thread;
    _Atomic bool stopping;
};

/* ---- files ---- */

/* Checks the requests of a file, or computes with the lease the ones of its model. Returns their number;
 * -ECANCELED: the model drains. */
static int each_of(struct warm *w, const struct source *s, struct slice text, const struct model_lease *l,
                   struct err *e)
{
    const struct warm_task_opts opts = {.api = w->api,
                                        .news = w->news,
                                        .stopping = &w->stopping,
                                        .path = s->path,
                                        .model = s->model,
                                        .tenant = s->tenant};
    struct warm_file_at at = {0};
    struct warm_request found;
    int r, count = 0;
    for (; (r = warm_file_next(text, &at, &found, e)) > 0; count++) {
        r = warm_task(&opts, &found, l, e);
        if (r >= 0 && l && warm_task_is_ending(&opts, l))
            r = err_set(e, -ECANCELED, "the model is being unloaded");
        if (r < 0)
            break;
    }
    return r < 0 ? err_prefix(e, r, "--warm %s", s->path) : count;
}

static int each_request(struct warm *w, const struct source *s, const struct model_lease *l, struct err *e)
{
    struct buf text;
    buf_init(&text, WARM_FILE_BYTES_MAX, &w->api->text);
    int r = warm_file_read(s->path, &text, e);
    r = r < 0 ? err_prefix(e, r, "--warm") : each_of(w, s, buf_slice(&text), l, e);
    buf_done(&text);
    return r;
}

/* ---- creation ---- */

/* [KEY=]FILE: the prefix belongs to the clients of that key. */
static int find_owner(const struct api *a, const char *text, struct source *ret, struct err *e)
{
    const struct keyring *keys = a->opts.keys;
    uint32_t count = keyring_count(keys, KEYRING_MODELS);
    const char *equals = strchr(text, '=');
    struct slice name = {0};
    if (equals && !memchr(text, '/', (size_t)(equals - text)))
        name = (struct slice){text, (size_t)(equals - text)};
    ret->path = name.len > 0 ? equals + 1 : text;
    ret->tenant = count == 0 ? auth_local_tenant() : keyring_owner(keys, name);
    if (count == 0 && name.len > 0)
        return err_set(e, -EINVAL, "--warm %s: the server has no API keys, and so none named %.*s", text,
                       SLICE_ARGS(name));
    if (ret->tenant == 0 && name.len > 0)
        return err_set(e, -EINVAL, "--warm %s: no API key is named %.*s", text, SLICE_ARGS(name));
    if (ret->tenant == 0)
        return err_set(e, -EINVAL,
                       "--warm %s: there are several API keys, and their clients share no prefixes; "
                       "--warm KEY=%s says by its name for which",
                       text, text);
    return 0;
}

static int add_source(struct warm *w, const char *text, int model, struct err *e)
{
    struct source s = {.model = model};
    int r = find_owner(w->api, text, &s, e);
    if (r == 0)
        r = each_request(w, &s, NULL, e);
    if (r < 0)
        return r;
    if (r == 0)
        return err_set(e, -EINVAL, "--warm %s: the file has no request", s.path);
    w->sources[w->source_count++] = s;
    return 0;
}

/* Each list ends with NULL; model -1: the process's own. */
static const char *const *list_of(const struct api *a, int model)
{
    static const char *const none[] = {NULL};
    if (model >= 0)
        return registry_settings(a->opts.registry, (uint32_t)model)->warm;
    return a->opts.warm ? a->opts.warm : none;
}

static uint32_t count_sources(const struct api *a)
{
    uint32_t count = 0;
    for (int model = -1; model < (int)api_model_count(a); model++)
        for (const char *const *text = list_of(a, model); *text; text++)
            count++;
    return count;
}

static int add_sources(struct warm *w, struct err *e)
{
    int r = 0;
    for (int model = -1; model < (int)api_model_count(w->api); model++)
        for (const char *const *text = list_of(w->api, model); *text && r == 0; text++)
            r = add_source(w, *text, model, e);
    return r;
}

int warm_create(struct api *a, struct warm **ret, struct err *e)
{
    uint32_t count = count_sources(a);
    *ret = NULL;
    if (count == 0)
        return 0;
    struct warm *w = calloc(1, sizeof(*w));
    int r = -ENOMEM;
    if (w) {
        w->api = a;
        w->sources = calloc(count, sizeof(*w->sources));
        w->loads = calloc(a->opts.models_max, sizeof(*w->loads));
    }
    if (w && w->sources && w->loads)
        r = mailbox_create(&(struct mailbox_opts){MESSAGES, sizeof(void *), false, &a->text}, &w->news);
    r = r < 0 ? err_set(e, r, "no memory for --warm") : add_sources(w, e);
    if (r < 0) {
        warm_free(w);
        return r;
    }
    *ret = w;
    return 0;
}

/* ---- the thread ---- */

/* A file that cannot be read any longer does not end the others. */
static void warm_model(struct warm *w, const struct model_lease *l)
{
    int r = 0;
    for (uint32_t i = 0; i < w->source_count && r != -ECANCELED; i++) {
        const struct source *s = &w->sources[i];
        struct err e = {0};
        r = s->model < 0 || s->model == (int)l->index ? each_request(w, s, l, &e) : 0;
        if (r < 0)
            LOG_WARN("warm_failed", "model=%s file=\"%s\" line=- error=\"%s\"",
                     api_model_id(w->api, l->index), s->path, e.text);
    }
}

/* Warms the model if it was loaded since it was warmed last. */
static void look_at(struct warm *w, uint32_t index)
{
    struct registry_info info;
    struct model_lease l = {0};
    registry_info(w->api->opts.registry, index, &info);
    if (info.state != MODEL_READY || info.loads == w->loads[index] ||
        registry_lease(w->api->opts.registry, index, &l) < 0)
        return;
    w->loads[index] = info.loads;
    warm_model(w, &l);
    registry_release(&l);
}

static void *run(void *arg)
{
    struct warm *w = arg;
    void *message;
    thread_nice(10);
    while (!atomic_load(&w->stopping)) {
        for (uint32_t i = 0; i < api_model_count(w->api) && !atomic_load(&w->stopping); i++)
            look_at(w, i);
        if (!atomic_load(&w->stopping))
            (void)mailbox_wait(w->news, &message, NS_PER_S);
    }
    return NULL;
}

int warm_start(struct warm *w)
{
    if (!w)
        return 0;
    struct charge charge = account_charge(w->api->opts.threads ? w->api->opts.threads : w->api->opts.text);
    int r = thread_stack_init(&w->stack, PREP_STACK_BYTES, &charge);
    if (r == 0)
        r = thread_stack_start(&w->stack, run, w, &w->thread);
    if (r < 0) {
        thread_stack_done(&w->stack);
        return r;
    }
    w->has_thread = true;
    pthread_setname_np(w->thread, "warm");
    return 0;
}

void warm_wake(struct warm *w)
{
    void *look = NULL;
    if (w)
        (void)mailbox_put(w->news, &look); /* full: the thread looks anyway */
}

void warm_stop(struct warm *w)
{
    if (!w || !w->has_thread)
        return;
    atomic_store(&w->stopping, true);
    warm_wake(w);
    pthread_join(w->thread, NULL);
    thread_stack_done(&w->stack);
    w->has_thread = false;
}

void warm_free(struct warm *w)
{
    if (!w)
        return;
    warm_stop(w);
    mailbox_free(w->news);
    free(w->sources);
    free(w->loads);
    free(w);
}
