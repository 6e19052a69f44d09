#include "host/models/models_search.h"

#include "host/models/model_place.h"

#include "base/log.h"
#include "hub/hub_cache.h"
#include "hub/hub_variants.h"

#include <errno.h>
#include <stdio.h>

struct search {
    models_found_fn *found;
    void *arg;
    uint32_t count;
    struct models_others *others;
};

static int see(void *arg, const char *path, struct err *e)
{
    struct search *s = arg;
    s->count++;
    return s->found(s->arg, path, e);
}

static void note_other(struct models_others *o, const struct catalog_entry *m)
{
    const bool mmproj = m->kind == CATALOG_ENCODER, bin = m->kind == CATALOG_BIN;
    if ((mmproj || bin) && o->mmprojs + o->bins == 0)
        snprintf(o->first, sizeof(o->first), "%s", m->path);
    o->mmprojs += mmproj;
    o->bins += bin;
    if (m->kind == CATALOG_HUB && o->hub_models++ == 0)
        err_set(&o->hub_why, 0, "%s", m->why);
}

static int see_entry(void *arg, const struct catalog_entry *m, struct err *e)
{
    struct search *s = arg;
    if (catalog_is_model(m))
        return see(s, m->path, e);
    note_other(s->others, m);
    return 0;
}

static void tell_others(const char *dir, const struct models_others *o)
{
    if (o->mmprojs + o->bins > 0)
        LOG_WARN("files_passed_over",
                 "model_dir=\"%s\" mmproj=%u bin=%u first=\"%s\" reason=\"vision encoders of GGUF "
                 "models and weights in .bin files are not read\"",
                 dir, o->mmprojs, o->bins, o->first);
}

static void tell_passed_over(const char *model, unsigned count, const char *why)
{
    LOG_WARN("hub_model_passed_over", "model=\"%s\" models=%u reason=\"%s\"", model, count, why);
}

int models_search_dir(const char *dir, models_found_fn *found, void *arg, uint32_t *count,
                      struct models_others *others, struct err *e)
{
    struct search s = {found, arg, 0, others};
    *others = (struct models_others){0};
    int r = catalog_walk(dir, see_entry, &s, e);
    *count = s.count;
    if (r < 0)
        return err_prefix(e, r, "--model-dir %s", dir);
    tell_others(dir, others);
    if (others->hub_models > 0)
        tell_passed_over(dir, others->hub_models, others->hub_why.text);
    return 0;
}

/* The directory, unless it has GGUF files alone, and each GGUF model. */
static int see_snapshot(struct search *s, const char *snapshot, struct err *e)
{
    char path[HUB_PATH_BYTES + HUB_FILE_BYTES_MAX + 2];
    struct hub_variants g;
    int r = hub_variants_of_snapshot(snapshot, &g, e);
    if (r == 0 && (g.safetensors || g.count == 0))
        r = see(s, snapshot, e);
    for (uint32_t i = 0; i < g.count && r == 0; i++) {
        snprintf(path, sizeof(path), "%s/%s", snapshot, g.list[i].file);
        r = see(s, path, e);
    }
    hub_variants_done(&g);
    return r;
}

static int see_in_hub(void *arg, const struct hub_cache_model *found, struct err *e)
{
    if (found->snapshot[0])
        return see_snapshot(arg, found->snapshot, e);
    tell_passed_over(found->name.id, 1, found->why.text);
    return 0;
}

int models_search_hub(models_found_fn *found, void *arg, uint32_t *count, char ret[CATALOG_PATH_BYTES],
                      struct err *e)
{
    struct search s = {found, arg, 0, NULL};
    int r = hub_cache_dir(ret, e);
    if (r == 0)
        r = hub_cache_each(ret, see_in_hub, &s, e);
    *count = s.count;
    return r < 0 ? err_prefix(e, r, "--hub-cache") : 0;
}

int models_search_revision(const struct hub_name *name, models_found_fn *found, void *arg, uint32_t *count,
                           struct err *e)
{
    struct search s = {found, arg, 0, NULL};
    char path[HUB_PATH_BYTES];
    int r = model_place_in_hub(name, path, e);
    if (r == 0)
        r = see(&s, path, e);
    *count = s.count;
    return r;
}
