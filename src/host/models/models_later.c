/* models_later.c - models that come while the server runs: after a pull, and at a reload.
 *
 * They get their names by the rules of the start, except that a model that is served keeps all of its own. A
 * model of the hub is ORG/NAME or ORG/NAME:QUANT, and has its short names unless they are taken; another
 * revision of a model that is served is ORG/NAME@COMMIT. A file is NAME, then FOLDER/NAME. Any other one with
 * a taken name is passed over, as the start would refuse it. */
#include "host/models/catalog.h"
#include "host/models/catalog_names.h"
#include "host/models/models_state.h"
#include "host/runtime.h"

#include "base/log.h"
#include "hub/hub_cache.h"

#include <errno.h>
#include <string.h>

#define COMMIT_DIGITS 12 /* digits of a revision in an id */

struct later {
    struct models *models;
    struct registry *registry;
    uint32_t added, left_out;
    bool failed; /* a model was found and not added; `why` has the reason */
    char id[MODEL_ID_BYTES];
    struct err why;
};

/* ---- names ---- */

static bool is_taken(const struct later *l, const char *name)
{
    return registry_find(l->registry, slice_of(name)) >= 0;
}

/* ORG/NAME@COMMIT[:QUANT], of a path in a snapshot. */
static void name_revision(struct model_settings *s, struct hub_name *hub)
{
    char text[HUB_NAME_BYTES];
    const char *commit = strstr(s->dir, "/snapshots/");
    if (commit)
        snprintf(hub->revision, sizeof(hub->revision), "%.*s", COMMIT_DIGITS, commit + strlen("/snapshots/"));
    hub_name_text(hub, text);
    snprintf(s->id, sizeof(s->id), "%.*s", MODEL_ID_BYTES - 1, text);
}

static int name_hub_model(struct later *l, uint32_t index, struct hub_name *hub, struct err *e)
{
    struct models *m = l->models;
    struct model_settings *s = &m->list[index];
    const char *name;
    int r = 0;
    models_note_hub_ids(m, index);
    if (is_taken(l, s->id)) {
        name_revision(s, hub);
        return 0;
    }
    for (uint32_t k = 0; r == 0 && (name = models_short_name(m, index, k)); k++)
        if (!is_taken(l, name))
            r = models_add_alias(s, name, e);
    return r;
}

static void name_file(struct later *l, struct model_settings *s)
{
    for (unsigned folders = 1; folders <= 2 && is_taken(l, s->id); folders++)
        catalog_file_id(s->dir, folders, s->id, sizeof(s->id));
}

static int name_model(struct later *l, uint32_t index, struct err *e)
{
    struct hub_name hub;
    if (hub_cache_name_of(l->models->list[index].dir, &hub))
        return name_hub_model(l, index, &hub, e);
    name_file(l, &l->models->list[index]);
    return 0;
}

/* ---- one that was found ---- */

/* Whether the model is served already; by another name it is not. */
static const struct model_settings *find_served(const struct models *m, const char *path)
{
    char name[MODEL_ID_BYTES], other[MODEL_ID_BYTES];
    catalog_name_of(path, name, sizeof(name));
    for (uint32_t i = 0; i < m->count; i++) {
        const char *hub_id = m->hub_ids[i].whole;
        if (strcmp(m->list[i].dir, path) == 0)
            return &m->list[i];
        if (!hub_id[0])
            catalog_name_of(m->list[i].dir, other, sizeof(other));
        if (strcmp(hub_id[0] ? hub_id : other, name) == 0 && models_is_same_dir(m->list[i].dir, path))
            return &m->list[i];
    }
    return NULL;
}

/* --device auto: to the next device that the start has opened. */
static bool move_on(struct models *m, uint32_t index)
{
    struct err ignored;
    bool moved = false, there = false;
    while (!there && (moved = device_choose_next(&m->own[index])))
        there = models_choose_device(m, index, &ignored) == 0;
    return moved;
}

/* Images have memory only if the start set some aside. */
static void plan(struct models *m, uint32_t index)
{
    struct model_settings *s = &m->list[index];
    struct planning p = {0};
    struct err e = {{0}};
    if (m->process.media_bytes == 0)
        m->own[index].model.image_pixels_max = s->options.image_pixels_max = 0;
    int r = models_plan_one(m, index, &m->process, s, &p, &e);
    while (r == -ENOMEM && move_on(m, index)) {
        struct err ignored;
        r = models_plan_one(m, index, &m->process, s, &p, &ignored);
    }
    if (p.unreadable)
        catalog_hint(s->dir, r, &e);
    if (r < 0)
        models_tell_unusable(s, &e);
}

/* Fills the entry at the count. No other thread reads it before the count has grown. */
static int fill(struct later *l, const char *path, struct err *e)
{
    struct models *m = l->models;
    uint32_t index = m->count;
    m->list[index] = (struct model_settings){.id = ""};
    int r = runtime_find_model(path, NULL, m->list[index].dir, m->list[index].id, e);
    if (r == 0)
        r = name_model(l, index, e);
    if (r == 0)
        r = models_read_settings(m, index, e);
    if (r == 0)
        r = models_choose_device(m, index, e);
    if (r == 0)
        r = registry_check_names(l->registry, &m->list[index], e);
    if (r == 0)
        plan(m, index);
    return r;
}

/* The replicas of the model at the count, and their plans. *made: how many there are, also on failure. */
static int fill_replicas(struct later *l, uint32_t count, uint32_t *made, struct err *e)
{
    struct models *m = l->models;
    uint32_t index = m->count;
    int r = 0;
    if (index + count > m->models_max)
        return err_set(e, -ENOSPC, "a server lists no more than %u models, replicas included", m->models_max);
    m->list[index].replica_count = count;
    for (uint32_t k = 1; k < count && r == 0; k++) {
        r = models_make_replica(m, index, k, e);
        *made = r == 0 ? k : *made;
        if (r == 0)
            r = models_choose_device(m, index + k, e);
        if (r == 0)
            r = registry_check_names(l->registry, &m->list[index + k], e);
        if (r == 0)
            plan(m, index + k);
    }
    return r;
}

static int add(struct later *l, const char *path, struct err *e)
{
    struct models *m = l->models;
    uint32_t index = m->count, made = 0, count = 1;
    int r = fill(l, path, e);
    if (r == 0) {
        count = MAX_OF(m->own[index].model.replicas, 1u);
        r = fill_replicas(l, count, &made, e);
    }
    if (r < 0) {
        for (uint32_t k = 0; k <= made; k++)
            json_decref((json_t *)m->list[index + k].template_kwargs);
        return r;
    }
    for (uint32_t k = 0; k < count && r == 0; k++) {
        /* Loads look for their model in the list: it is there before the registry knows it. */
        m->count++;
        r = registry_add(l->registry, &m->list[index + k], e); /* fails at the end of the server only */
    }
    return r;
}

static void tell_added(const struct model_settings *s)
{
    char needs[64] = "unknown";
    if (s->planned)
        snprintf(needs, sizeof(needs), "%llu", (ull)plan_load_bytes(&s->plan));
    LOG_INFO("model_added", "model=%s alias=\"%s\" dir=\"%s\" needed_bytes=%s", s->id,
             s->alias_count > 0 ? s->aliases[0] : "", s->dir, needs);
}

static void fail(struct later *l, const char *path, const struct err *e)
{
    LOG_WARN("model_not_added", "path=\"%s\" error=\"%s\"", path, e->text);
    if (!l->failed)
        l->why = *e;
    l->failed = true;
}

static void leave_out(struct later *l)
{
    struct err e;
    err_set(&e, -ENOSPC,
            "a server lists no more than %u models until it is started anew: %d more than at its start, "
            "%d in all",
            l->models->models_max, MODELS_LATER_MAX, REGISTRY_MODELS_MAX);
    if (l->left_out++ == 0 && !l->failed)
        l->why = e;
    l->failed = true;
}

/* NULL: it is not added, and the search goes on. */
static const struct model_settings *add_found(struct later *l, const char *path)
{
    struct models *m = l->models;
    const uint32_t index = m->count;
    struct err e = {{0}};
    if (m->count == m->models_max) {
        leave_out(l);
        return NULL;
    }
    if (add(l, path, &e) < 0) {
        fail(l, path, &e);
        return NULL;
    }
    l->added++;
    tell_added(&m->list[index]);
    return &m->list[index];
}

static int on_found(void *arg, const char *path, struct err *e)
{
    struct later *l = arg;
    const struct model_settings *s = find_served(l->models, path);
    (void)e;
    if (!s)
        s = add_found(l, path);
    if (s && !l->id[0])
        snprintf(l->id, sizeof(l->id), "%s", s->id);
    return 0;
}

/* ---- the search ---- */

static void search_all(struct later *l)
{
    const struct settings *o = l->models->settings;
    struct models_others others;
    char cache[CATALOG_PATH_BYTES];
    uint32_t found;
    struct err e = {{0}};
    for (uint32_t i = 0; o->models.dirs[i]; i++)
        if (models_search_dir(o->models.dirs[i], on_found, l, &found, &others, &e) < 0)
            fail(l, o->models.dirs[i], &e);
    if (o->models.hub_cache && models_search_hub(on_found, l, &found, cache, &e) < 0)
        fail(l, cache, &e);
}

static void search_pulled(struct later *l, const struct hub_name *name)
{
    uint32_t found = 0;
    struct err e = {{0}};
    int r = models_search_revision(name, on_found, l, &found, &e);
    if (r == 0 && found == 0)
        r = err_set(&e, -ENOENT, "it has no weights that are read here");
    if (r < 0)
        fail(l, name->id, &e);
}

int models_search_again(struct models *m, struct registry *r, const struct hub_name *pulled,
                        char id[MODEL_ID_BYTES], struct err *e)
{
    struct later l = {.models = m, .registry = r};
    if (pulled)
        search_pulled(&l, pulled);
    else
        search_all(&l);
    LOG_INFO("models_searched", "added=%u models=%u left_out=%u", l.added, m->count, l.left_out);
    snprintf(id, MODEL_ID_BYTES, "%s", l.id);
    *e = l.why;
    return l.failed && !l.id[0] ? -ENOENT : (int)l.added;
}
