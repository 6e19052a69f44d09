#include "host/models/models_state.h"

#include "base/log.h"
#include "hub/hub_cache.h"

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

static void tell_passed_over(const char *model, unsigned count, const char *why)
{
    LOG_WARN("hub_model_passed_over", "model=\"%s\" models=%u reason=\"%s\"", model, count, why);
}

/* An incomplete download is listed with its reason, which says how to fetch the rest. */
static int see_in_hub(void *arg, const struct catalog_entry *m, struct err *e)
{
    if (m->kind == CATALOG_HUB)
        tell_passed_over(m->id, 1, m->why);
    return m->kind == CATALOG_HUB || m->kind == CATALOG_ENCODER ? 0 : see(arg, m->path, e);
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

static int see_below(void *arg, const struct catalog_entry *m, struct err *e)
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
                 "model_dir=\"%s\" mmproj=%u bin=%u first=\"%s\" reason=\"not models: vision "
                 "encoders, which are read with the model beside them, and weights in .bin files\"",
                 dir, o->mmprojs, o->bins, o->first);
}

int models_search_dir(const char *dir, models_found_fn *found, void *arg, uint32_t *count,
                      struct models_others *others, struct err *e)
{
    struct search s = {found, arg, 0, others};
    *others = (struct models_others){0};
    int r = catalog_walk(dir, see_below, &s, e);
    *count = s.count;
    if (r < 0)
        return err_prefix(e, r, "--model-dir %s", dir);
    tell_others(dir, others);
    if (others->hub_models > 0)
        tell_passed_over(dir, others->hub_models, others->hub_why.text);
    return 0;
}

int models_search_hub(models_found_fn *found, void *arg, uint32_t *count, char ret[CATALOG_PATH_BYTES],
                      struct err *e)
{
    struct search s = {found, arg, 0, NULL};
    int r = hub_cache_dir(ret, e);
    if (r == 0)
        r = catalog_walk(ret, see_in_hub, &s, e);
    *count = s.count;
    return r < 0 ? err_prefix(e, r, "--hub-cache") : 0;
}

int models_search_revision(const struct hub_name *name, models_found_fn *found, void *arg, uint32_t *count,
                           struct err *e)
{
    struct search s = {found, arg, 0, NULL};
    char path[HUB_PATH_BYTES];
    int r = catalog_find_in_hub(name, path, e);
    if (r == 0)
        r = see(&s, path, e);
    *count = s.count;
    return r;
}
