/* model_listing.c - the plan that plateau plan would print, of one model after the other. */
#include "host/models/model_listing.h"

#include "host/models/catalog_files.h"
#include "host/models/catalog.h"
#include "host/device_choice.h"
#include "host/runtime.h"
#include "host/settings.h"

#include "base/check.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#define PATH_BYTES (RUNTIME_DIR_BYTES + 256)

static void add_file(const char *path, struct model_listing *m)
{
    struct stat st;
    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
        return;
    m->disk_bytes += (uint64_t)st.st_size;
    m->used_s = MAX_OF(m->used_s, (int64_t)st.st_atime);
}

/* The files of the folder itself, not of folders in it. Links count as what they lead to. */
static void add_files(const char *path, struct model_listing *m)
{
    char name[PATH_BYTES];
    add_file(path, m);
    if (m->disk_bytes > 0)
        m->disk_bytes = MAX_OF(m->disk_bytes, catalog_file_bytes(path));
    DIR *d = opendir(path);
    for (const struct dirent *f; d && (f = readdir(d));) {
        int n = snprintf(name, sizeof(name), "%s/%s", path, f->d_name);
        if (n > 0 && (size_t)n < sizeof(name))
            add_file(name, m);
    }
    if (d)
        closedir(d);
}

void model_listing_make(const struct settings *o, const char *path, const char *id, struct model_listing *ret)
{
    struct settings own = *o;
    struct planning p = {.settings = &own,
                         .seqs = o->model.engine.max_num_seqs,
                         .queue = o->model.engine.max_queue,
                         .workers = runtime_workers(o),
                         .model_bytes_max = o->model.bytes_max,
                         .serves = true};
    *ret = (struct model_listing){.state = LISTING_FITS};
    add_files(path, ret);
    int r = planning_make(&p, path, id, &ret->why);
    while (r == -ENOMEM && device_choose_next(&own)) {
        struct err ignored;
        r = planning_make(&p, path, id, &ignored);
    }
    if (p.unreadable) {
        ret->state = LISTING_REFUSED;
        catalog_hint(path, r, &ret->why);
        return;
    }
    ret->state = r < 0 ? LISTING_TOO_LARGE : LISTING_FITS;
    ret->shape = p.model.shape;
    ret->kind = p.kind;
    ret->floor_bytes = p.plan.floor_bytes;
    ret->ceiling_bytes = p.plan.ceiling_bytes;
    ret->compaction_reserve = p.plan.reserve;
    ret->max_model_len = r < 0 ? 0 : plan_context(&p.plan);
}

const char *listing_state_name(enum listing_state s)
{
    static const char *const names[] = {
        [LISTING_FITS] = "fits", [LISTING_TOO_LARGE] = "too large", [LISTING_REFUSED] = "refused"};
    ASSERT((size_t)s < COUNT_OF(names));
    return names[s];
}
