/* packed.c - opening a packed file, and its weights as memory.
 *
 * Each byte of the file has a checksum: a load reads all weights once, which also brings the pages in. The
 * packers share that work, each a part at a time. */
#include "model/load/packed.h"

#include "model/config/config.h"
#include "model/config/json_read.h"
#include "model/load/weight_memory.h"

#include "base/check.h"
#include "base/files/mapped_file.h"
#include "base/files/small_file.h"
#include "compute/backend.h"
#include "tensor/quantise.h"
#include "weights/model_files.h"
#include "weights/model_json.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PIECE_BYTES  ((size_t)2 << 20) /* that is brought in before it is read */
#define DIGEST_BYTES 17

/* ---- about ---- */

static const char *digest_text(uint64_t digest, char ret[DIGEST_BYTES])
{
    snprintf(ret, DIGEST_BYTES, "%016llx", (ull)digest);
    return ret;
}

static json_t *mark_json(const struct bind_mark *m)
{
    char text[DIGEST_BYTES];
    return json_pack("{sI ss}", "bytes", (json_int_t)m->used, "layout", digest_text(m->digest, text));
}

json_t *packed_about_json(const struct packed_about *a)
{
    return json_pack("{ss ss ss ss ss ss so so so}", "source", a->source, "fingerprint", a->fingerprint,
                     "layout", a->layout, "program", a->program, "compute", compute_mode_name(a->compute),
                     "quant", quantise_name(a->quant), "text", mark_json(&a->text), "all", mark_json(&a->all),
                     "mtp", mark_json(&a->head));
}

static void take_text(struct json_read *r, const char *key, char *ret, size_t bytes)
{
    const char *text = json_read_string_or(r, key, "");
    if (strlen(text) >= bytes)
        json_read_fail(r, -EINVAL, "%s is too long", key);
    else
        memcpy(ret, text, strlen(text) + 1);
}

static void take_mark(struct json_read *r, const char *key, struct bind_mark *ret)
{
    const json_t *mark = json_object_get(r->object, key), *bytes = json_object_get(mark, "bytes"),
                 *layout = json_object_get(mark, "layout");
    const json_int_t used = json_integer_value(bytes);
    const char *digest = json_string_value(layout);
    char *end = NULL;
    *ret = (struct bind_mark){(uint64_t)used, digest ? strtoull(digest, &end, 16) : 0};
    if (!json_is_integer(bytes) || used < 0 || used > (json_int_t)1 << 50 || !digest || !*digest || *end)
        json_read_fail(r, -EINVAL, "%s is not valid", key);
}

int packed_about_read(const json_t *from, struct packed_about *ret, struct err *e)
{
    struct packed_about a = {.quant = 0};
    char compute[16], quant[16];
    struct json_read r = {.object = from, .where = PACKED_ABOUT, .e = e};
    take_text(&r, "source", a.source, sizeof(a.source));
    take_text(&r, "fingerprint", a.fingerprint, sizeof(a.fingerprint));
    take_text(&r, "layout", a.layout, sizeof(a.layout));
    take_text(&r, "program", a.program, sizeof(a.program));
    take_text(&r, "compute", compute, sizeof(compute));
    take_text(&r, "quant", quant, sizeof(quant));
    take_mark(&r, "text", &a.text);
    take_mark(&r, "all", &a.all);
    take_mark(&r, "mtp", &a.head);
    if (!r.error && (!compute_mode_parse(compute, &a.compute) || !quantise_parse(quant, &a.quant)))
        json_read_fail(&r, -ENOTSUP, "compute '%s' or quant '%s' is not known", compute, quant);
    if (r.error)
        return r.error;
    *ret = a;
    return 0;
}

/* ---- opening ---- */

static int read_about(struct model_files *files, struct packed_about *ret, struct err *e)
{
    const struct regular_file *at;
    struct small_file text = {0};
    json_t *about = NULL;
    int r = model_files_file(files, PACKED_ABOUT, &at, e);
    if (r == 0)
        r = small_file_read_open(at, PACKED_ABOUT, MODEL_JSON_BYTES_MAX, &text, e);
    if (r == 0)
        r = model_json_parse((struct slice){text.bytes, text.len}, PACKED_ABOUT, &about, e);
    if (r == 0)
        r = packed_about_read(about, ret, e);
    json_decref(about);
    small_file_done(&text);
    return r;
}

int packed_open(struct model_files *files, struct packed *ret, struct err *e)
{
    struct packed p = {.path = model_files_path(files), .bundle = model_files_bundle(files)};
    int r = p.bundle ? read_about(files, &p.about, e) : 0;
    if (r == 0)
        *ret = p;
    return r < 0 ? err_prefix(e, r, "%s", p.path) : 0;
}

int packed_set_parts(const struct packed *p, struct model_parts *parts, struct err *e)
{
    if (!p->bundle)
        return 0;
    if (parts->backend && parts->backend->apart)
        return err_set(e, -ENOTSUP,
                       "%s is packed for the CPU: --device cpu takes it, device %s the model that it was "
                       "packed from (%s)",
                       p->path, parts->backend->name, p->about.source);
    if (parts->quant && parts->quant != p->about.quant)
        return err_set(e, -ENOTSUP, "%s is packed with --quant %s: pack %s again with --quant %s", p->path,
                       quantise_name(p->about.quant), p->about.source, quantise_name(parts->quant));
    parts->quant = p->about.quant;
    if (parts->compute == COMPUTE_AUTO)
        parts->compute = p->about.compute;
    return 0;
}

int packed_check_files(const struct packed *p, struct err *e)
{
    int r = 0;
    for (uint32_t i = 0; p->bundle && r == 0 && i < p->bundle->file_count; i++) {
        const char *name = p->bundle->files[i].name;
        if (strcmp(name, PACKED_WEIGHTS) != 0 && strcmp(name, PACKED_HEAD) != 0)
            r = bundle_check(p->bundle, &p->bundle->files[i], e);
    }
    return r < 0 ? err_prefix(e, r, "%s", p->path) : 0;
}

static bool same(const struct bind_mark *x, const struct bind_mark *y)
{
    return x->used == y->used && x->digest == y->digest;
}

int packed_check(const struct packed *p, const struct config *c, const struct measured *m, struct err *e)
{
    const struct packed_about *a = &p->about;
    const struct bind_mark all = {m->text.used, m->text.digest};
    if (!p->bundle)
        return 0;
    const bool layout = c->backend->layout && strcmp(a->layout, c->backend->layout) == 0;
    if (layout && same(&m->text_mark, &a->text) && (!c->vision.shape.present || same(&all, &a->all)) &&
        (!c->mtp_count || c->eagle || same(&m->head_mark, &a->head)))
        return 0;
    if (layout && c->compute != a->compute)
        return err_set(e, -ENOTSUP, "%s is packed for --compute %s: pack %s again with --compute %s", p->path,
                       compute_mode_name(a->compute), a->source, compute_mode_name(c->compute));
    return err_set(e, -ENOTSUP,
                   "%s is packed in another layout (%s of plateau %s; this is %s of %s): run plateau pack of "
                   "%s again",
                   p->path, a->layout, a->program, c->backend->layout ? c->backend->layout : "none",
                   PLATEAU_VERSION, a->source);
}

/* ---- checksums ---- */

struct checking {
    const struct packed *packed;
    const struct bundle_file *file;
    const char *at; /* its first byte */
    uint64_t used;
    uint32_t parts;
    _Atomic uint32_t done;
    const struct packed_load *load;
};

static int check_part(void *arg, uint32_t index, struct weight_staging *stage, struct err *e)
{
    struct checking *c = arg;
    const struct file_part *part = &c->file->parts[index];
    const char *from = c->at + part->from;
    const size_t page = PACKED_PAGE;
    (void)stage;
    for (size_t i = 0; i < part->bytes; i += PIECE_BYTES) {
        /* Whole pages at once instead of a fault each. An old kernel refuses: then they fault. */
        const size_t n = MIN_OF(PIECE_BYTES, (size_t)part->bytes - i);
        (void)madvise((void *)(uintptr_t)(from + i), ROUND_UP(n, page), MADV_POPULATE_READ);
    }
    if (bundle_check_of(from, (size_t)part->bytes) != part->check)
        return err_set(e, -EINVAL, "%s is damaged: a checksum of its weights differs", c->packed->path);
    atomic_fetch_add(&c->done, 1);
    return 0;
}

static int report_checked(void *arg)
{
    struct checking *c = arg;
    const struct packed_load *l = c->load;
    const uint64_t done = c->used / c->parts * atomic_load(&c->done);
    return l->progress && l->progress(l->arg, l->before + done, l->total) != 0 ? -ECANCELED : 0;
}

/* The parts of a region that has no gaps: the first `parts` of them have `used` bytes. */
static int find_parts(const struct packed *p, const char *name, uint64_t used, const struct bundle_file **ret,
                      uint32_t *parts, struct err *e)
{
    const struct bundle_file *f = bundle_find(p->bundle, name);
    uint64_t have = 0;
    uint32_t count = 0;
    while (f && count < f->part_count && have < used) {
        const struct file_part *part = &f->parts[count];
        if (part->from != have || part->at != f->parts[0].at + have || part->at % PACKED_PAGE != 0)
            break;
        have += part->bytes;
        count++;
    }
    if (used == 0 || have < used)
        return err_set(e, -EINVAL, "%s: %s has %llu bytes, and %llu are needed", p->path, name, (ull)have,
                       (ull)used);
    *ret = f;
    *parts = count;
    return 0;
}

int packed_map(const struct packed *p, const char *region, uint64_t used, const struct packed_load *load,
               struct account *account, struct weight_memory *ret, struct err *e)
{
    struct checking c = {.packed = p, .used = used, .load = load};
    const struct packers_work work = {check_part, report_checked, &c};
    struct mapped_file mapped = {0};
    int r = find_parts(p, region, used, &c.file, &c.parts, e);
    if (r < 0)
        return r;
    const struct file_part *first = &c.file->parts[0], *last = &c.file->parts[c.parts - 1];
    const uint64_t bytes = ROUND_UP(last->from + last->bytes, PACKED_PAGE);
    regular_file_ahead(&p->bundle->at, first->at, bytes);
    r = mapped_file_open(&p->bundle->at, first->at, (size_t)bytes, &mapped, e);
    if (r < 0)
        return err_prefix(e, r, "%s", p->path);
    c.at = mapped.at;
    int checked = packers_run(load->packers, &work, c.parts, e);
    r = mapped_file_check(&mapped, e);
    if (r < 0)
        err_prefix(e, r, "%s", p->path);
    else if (checked == -ECANCELED)
        r = err_set(e, checked, "the load was cancelled");
    else
        r = checked;
    if (r < 0) {
        mapped_file_close(&mapped);
        return r;
    }
    r = weight_memory_map(ret, &mapped, used, account);
    return r == 0 ? 0 : err_set(e, r, "%llu bytes of mapped weights are more than is left", (ull)used);
}
