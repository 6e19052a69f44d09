/* hub_pull.c - the order of a pull. Sizes of the listing are believed as limits only. A file under its
 * final name has the sum of the listing. */
#include "hub/hub_pull.h"

#include "hub/hub_blob.h"
#include "hub/hub_links.h"
#include "hub/hub_probe.h"
#include "hub/hub_token.h"
#include "hub/hub_work.h"

#include "base/buf.h"
#include "base/bytes_text.h"
#include "base/check.h"
#include "base/files/small_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define INDEX           "model.safetensors.index.json"
#define INDEX_BYTES_MAX ((size_t)24 << 20)
#define FREE_PART       20 /* the disk's size divided by this stays free */
#define PAGES_MAX       100

/* ---- answers into memory ---- */

static int take(void *arg, struct slice bytes)
{
    struct buf *b = arg;
    buf_put_slice(b, bytes);
    return b->error;
}

static void restart(void *arg)
{
    buf_clear(arg);
}

static int get(struct hub_work *w, struct hub_transfer *t, struct buf *into, struct err *e)
{
    t->take = take;
    t->arg = into;
    t->bytes_max = into->bytes_max;
    return hub_work_get(w, t, restart, e);
}

/* ---- the list ---- */

static bool lacks_sums(const struct hub_list *l)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (!l->files[i].etag[0])
            return true;
    return l->count == 0;
}

/* Where the list has no sums: the tree of the commit, page after page. */
static int read_tree(struct hub_work *w, struct hub_transfer *t, struct buf *text, struct err *e)
{
    struct hub_list tree = {.count = 0};
    memcpy(tree.commit, w->list.commit, sizeof(tree.commit));
    snprintf(t->path, sizeof(t->path), "/api/models/%s/tree/%s?recursive=true", w->opts->name.id,
             w->list.commit);
    int r = 0;
    for (unsigned page = 0; r == 0 && t->path[0]; page++) {
        buf_clear(text);
        r = page < PAGES_MAX ? get(w, t, text, e) : err_set(e, -E2BIG, "the hub's list has too many pages");
        if (r == 0)
            r = hub_list_parse(buf_slice(text), &tree, e);
        memcpy(t->path, t->next, sizeof(t->path));
    }
    hub_list_done(&w->list);
    w->list = tree;
    return r;
}

static int read_list(struct hub_work *w, struct hub_transfer *t, struct err *e)
{
    struct buf text;
    char revision[3 * HUB_REVISION_BYTES];
    w->shown.phase = "list";
    buf_init(&text, HUB_LIST_BYTES_MAX, NULL);
    hub_http_encode(w->opts->name.revision, revision, sizeof(revision));
    char *slash;
    while ((slash = strchr(revision, '/'))) {
        memmove(slash + 3, slash + 1, strlen(slash));
        memcpy(slash, "%2F", 3);
    }
    snprintf(t->path, sizeof(t->path), "/api/models/%s/revision/%s?blobs=true", w->opts->name.id, revision);
    int r = get(w, t, &text, e);
    if (r == 0)
        r = hub_list_parse(buf_slice(&text), &w->list, e);
    if (r == 0 && lacks_sums(&w->list))
        r = read_tree(w, t, &text, e);
    buf_done(&text);
    return r;
}

/* The file, if it was fetched before. */
static bool read_present(const struct hub_work *w, const struct hub_file *f, struct buf *ret)
{
    struct hub_blob b;
    struct small_file text = {0};
    bool read = f->etag[0] && hub_blob_init(w->folder, f, &b, NULL) == 0 && b.present &&
                small_file_read(b.path, INDEX_BYTES_MAX, &text, NULL) == 0;
    if (read)
        buf_put(ret, text.bytes, text.len);
    small_file_done(&text);
    return read && !ret->error;
}

/* Marks the models that the caller names: by --include, by the name's quantisation, or as the only one. */
static int choose_models(const struct hub_work *w, bool chosen[], struct err *e)
{
    const struct hub_pull_opts *o = w->opts;
    const struct hub_variant *m;
    bool any = false;
    for (uint32_t i = 0; i < w->list.count && !o->name.quant[0]; i++)
        for (uint32_t k = 0; hub_file_matches(&w->list.files[i], o->include) && k < w->variants.count; k++)
            any |= chosen[k] |= hub_variant_has(&w->variants.list[k], w->list.files[i].name);
    if (any)
        return 0;
    int r = hub_variants_find(&w->variants, &o->name, &m, e);
    if (r == 0)
        chosen[m - w->variants.list] = true;
    else if (w->variants.count > 1 && o->several)
        o->several(o->arg, &w->variants);
    return r;
}

/* Leaves the models that are marked. */
static void keep_models(struct hub_variants *g, const bool chosen[])
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < g->count; i++) {
        if (chosen[i])
            g->list[kept++] = g->list[i];
        else
            free(g->list[i].file);
    }
    g->count = kept;
}

static int check_parts(const struct hub_variants *g, struct err *e)
{
    for (uint32_t i = 0; i < g->count; i++)
        if (g->list[i].parts != g->list[i].parts_max)
            return err_set(e, -ENODATA, "%s: the hub has %u of its %u parts", g->list[i].file,
                           g->list[i].parts, g->list[i].parts_max);
    return 0;
}

static int choose_variants(struct hub_work *w, struct err *e)
{
    bool *chosen = calloc(w->variants.count + 1, sizeof(*chosen));
    int r = chosen ? choose_models(w, chosen, e) : err_set(e, -ENOMEM, "no memory for a list of files");
    if (r == 0) {
        hub_variants_keep(&w->list, &w->variants, chosen, w->opts->include);
        keep_models(&w->variants, chosen);
        r = check_parts(&w->variants, e);
    }
    free(chosen);
    return r;
}

/* A repository's .safetensors files come first, unless the name chooses a GGUF model. */
static int choose_weights(struct hub_work *w, struct slice index, struct err *e)
{
    int r = hub_variants_of_list(&w->list, &w->variants, e);
    if (r < 0)
        return r;
    if (w->opts->name.quant[0] || (w->variants.count > 0 && !w->variants.safetensors))
        return choose_variants(w, e);
    hub_variants_done(&w->variants);
    return hub_list_choose(&w->list, w->opts->include, index, e);
}

/* The files that are needed; the index of the weights says which shards are. */
static int choose(struct hub_work *w, struct hub_transfer *t, struct err *e)
{
    const struct hub_file *index = hub_list_find(&w->list, INDEX);
    struct buf text;
    int r = 0;
    buf_init(&text, INDEX_BYTES_MAX, NULL);
    *t = (struct hub_transfer){.code = 0};
    if (index && index->bytes <= INDEX_BYTES_MAX && !read_present(w, index, &text)) {
        r = hub_work_path(w, INDEX, t->path, e);
        if (r == 0)
            r = get(w, t, &text, e);
    }
    if (r == 0)
        r = choose_weights(w, buf_slice(&text), e);
    buf_done(&text);
    for (uint32_t i = 0; r == 0 && i < w->list.count; i++)
        if (!w->list.files[i].etag[0])
            r = err_set(e, -EBADMSG, "the hub lists no sum for %s, so it cannot be checked",
                        w->list.files[i].name);
    return r;
}

/* ---- files that are there ---- */

static bool is_twin(const struct hub_work *w, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++)
        if (strcmp(w->list.files[i].etag, w->list.files[index].etag) == 0)
            return true;
    return false;
}

static int look(struct hub_work *w, struct err *e)
{
    int r = 0;
    w->blobs = calloc(w->list.count, sizeof(*w->blobs));
    w->had = calloc(w->list.count, sizeof(*w->had));
    if (!w->blobs || !w->had)
        return err_set(e, -ENOMEM, "no memory for a list of files");
    w->shown.files = w->list.count;
    for (uint32_t i = 0; r == 0 && i < w->list.count; i++) {
        struct hub_blob *b = &w->blobs[i];
        r = hub_blob_init(w->folder, &w->list.files[i], b, e);
        w->had[i] = b->present || hub_blob_on_disk(b) > 0;
        b->present |= is_twin(w, i);
        w->shown.bytes_total += b->file->bytes;
        if (b->present) {
            w->here += b->file->bytes;
            w->shown.files_done++;
        }
    }
    return r;
}

static uint64_t missing(const struct hub_work *w)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < w->list.count; i++)
        if (!w->blobs[i].present)
            bytes += w->blobs[i].file->bytes;
    return bytes;
}

/* Unfinished files take disk already. */
static uint64_t unfinished(const struct hub_work *w)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < w->list.count; i++)
        if (!w->blobs[i].present)
            bytes += hub_blob_on_disk(&w->blobs[i]);
    return bytes;
}

static int check_disk(const struct hub_work *w, struct err *e)
{
    struct statvfs s;
    uint64_t bytes = missing(w), have = unfinished(w);
    bytes -= MIN_OF(bytes, have);
    if (bytes == 0 || statvfs(w->folder, &s) < 0)
        return 0;
    uint64_t free_bytes = (uint64_t)s.f_bavail * s.f_frsize,
             keep = (uint64_t)s.f_blocks * s.f_frsize / FREE_PART;
    if (bytes <= free_bytes && free_bytes - bytes >= keep)
        return 0;
    return err_set(
        e, -ENOSPC,
        "too little disk: %s would be fetched, %s are free at %s, and 5 %% of the disk (%s) stay free",
        bytes_text(bytes).text, bytes_text(free_bytes).text, w->folder, bytes_text(keep).text);
}

/* The name of GGUF model `index`, else that of the directory. */
static struct hub_name name_of(const struct hub_work *w, uint32_t index)
{
    struct hub_name n = w->opts->name;
    if (index < w->variants.count)
        memcpy(n.quant, w->variants.list[index].quant, sizeof(n.quant));
    return n;
}

static int plan(struct hub_work *w, struct err *e)
{
    char dir[HUB_PATH_BYTES], path[HUB_PATH_BYTES + HUB_FILE_BYTES_MAX + 2];
    int r = hub_probe_make(w, dir, e);
    for (uint32_t i = 0; r == 0 && (i == 0 || i < w->variants.count); i++) {
        const struct hub_name name = name_of(w, i);
        const bool one = i < w->variants.count;
        snprintf(path, sizeof(path), "%s%s%s", dir, one ? "/" : "", one ? w->variants.list[i].file : "");
        r = w->opts->planned(w->opts->arg, &name, path, missing(w), e);
    }
    hub_probe_remove(dir);
    return r;
}

/* ---- the snapshot ---- */

static int link_all(struct hub_work *w, struct err *e)
{
    const struct hub_name *n = &w->opts->name;
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < w->list.count; i++)
        r = hub_links_add(w->folder, w->list.commit, w->list.files[i].name, w->list.files[i].etag, e);
    if (r == 0 && strcmp(n->revision, w->list.commit) != 0)
        r = hub_links_set_ref(w->folder, n->revision, w->list.commit, e);
    return r;
}

static int fetch(struct hub_work *w, struct hub_transfer *t, struct err *e)
{
    const struct hub_pull_opts *o = w->opts;
    int r = read_list(w, t, e);
    if (r == 0)
        r = choose(w, t, e);
    if (r == 0)
        r = look(w, e);
    if (r == 0 && !o->plans_only)
        r = check_disk(w, e);
    bool fetches = r == 0 && missing(w) > 0;
    if (r == 0)
        r = hub_work_fetch(w, false, e);
    if (r == 0 && o->planned && (fetches || o->plans_only))
        r = plan(w, e);
    if (r < 0 || o->plans_only)
        return r;
    w->keeps = true;
    r = hub_work_fetch(w, true, e);
    return r == 0 ? link_all(w, e) : r;
}

static int open_http(struct hub_work *w, struct err *e)
{
    char token[HUB_TOKEN_BYTES];
    const char *endpoint = w->opts->endpoint ? w->opts->endpoint : getenv("HF_ENDPOINT");
    int r = hub_token_read(token, e);
    struct hub_http_opts opts = {.endpoint = endpoint, .token = token, .stall_s = w->opts->stall_s};
    if (r == 0)
        r = hub_http_create(&opts, &w->http, e);
    explicit_bzero(token, sizeof(token));
    return r;
}

static void report(const struct hub_work *w, struct hub_pulled *ret)
{
    ret->name = name_of(w, 0);
    snprintf(ret->commit, sizeof(ret->commit), "%s", w->list.commit);
    snprintf(ret->snapshot, sizeof(ret->snapshot), "%.3900s/snapshots/%s", w->folder, w->list.commit);
    ret->bytes = w->shown.bytes_total;
    ret->fetched = w->shown.fetched;
    ret->files = w->list.count;
    ret->odd = w->list.odd;
}

static void close_work(struct hub_work *w)
{
    hub_http_free(w->http);
    for (uint32_t i = 0; w->blobs && i < w->list.count; i++) {
        /* Small files alone would look like a model whose pull was cut. */
        if (w->blobs[i].path[0] && !w->keeps && !w->had[i])
            hub_blob_remove(&w->blobs[i]);
        hub_blob_done_with(&w->blobs[i]);
    }
    free(w->blobs);
    free(w->had);
    hub_variants_done(&w->variants);
    hub_list_done(&w->list);
}

int hub_pull(const struct hub_pull_opts *o, struct hub_pulled *ret, struct err *e)
{
    struct hub_work w = {.opts = o};
    struct hub_transfer *t = calloc(1, sizeof(*t));
    int lock = -1, r = t ? 0 : -ENOMEM;
    *ret = (struct hub_pulled){.bytes = 0};
    if (hub_is_offline())
        r = err_set(e, -ENETDOWN, "HF_HUB_OFFLINE is set, so nothing is fetched: unset it to fetch %s",
                    o->name.id);
    if (r == 0)
        r = open_http(&w, e);
    if (r == 0)
        r = hub_links_make_folder(o->cache, &o->name, w.folder, e);
    if (r == 0)
        r = lock = hub_links_lock(o->cache, &o->name, e);
    if (r >= 0) {
        hub_probe_remove_stale(w.folder);
        r = fetch(&w, t, e);
    }
    if (r == -ECANCELED || r == -EAGAIN || r == -EIO || r == -ENOSPC)
        w.keeps = !o->plans_only;
    report(&w, ret);
    close_work(&w);
    if (lock >= 0) {
        hub_links_drop_empty(w.folder);
        close(lock);
    }
    free(t);
    return r;
}
