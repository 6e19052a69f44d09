/* checkpoint_gguf.c - a GGUF file, or the parts of one: all tensors of all parts.
 *
 * split.count of the first part is the number of parts, split.no of each its index. One head is in memory at
 * a time, and the first one while tensors are counted. The heads of later parts are read twice: the table of
 * tensors is made to size. */
#include "weights/checkpoint_table.h"

#include "gguf/gguf_head.h"
#include "gguf/gguf_vision.h"
#include "weights/weights_name.h"

#include "base/check.h"
#include "tensor/block_form.h"

#include <errno.h>
#include <string.h>

/* The tables of a head: a model has some thousand tensors. */
#define HEAD_TABLES_BYTES_MAX ((size_t)32 << 20)

#define NAME_BYTES MODEL_FILES_NAME_BYTES

struct parts {
    uint32_t count;
    uint64_t tensors; /* tensors of all parts */
    uint32_t more;    /* tensors of a vision encoder's file */
};

/* A number of the metadata that is absent in a file without parts. */
static uint64_t split_number(const struct gguf *g, const char *key, uint64_t absent)
{
    uint64_t n;
    return gguf_u64(gguf_find(g, key), &n) ? n : absent;
}

/* The head of part `index`, and its name. */
static int open_part(const struct checkpoint *c, const struct parts *p, uint32_t index, char name[NAME_BYTES],
                     struct gguf_head *ret, struct err *e)
{
    const struct regular_file *at;
    int r = model_files_part(c->model, index, p->count, name, e);
    if (r == 0)
        r = model_files_file(c->model, name, &at, e);
    if (r < 0)
        return r;
    r = gguf_head_read(at, c->account, ret, e);
    if (r < 0)
        return err_prefix(e, r, "%s", name);
    const uint64_t no = split_number(&ret->head, "split.no", 0);
    const uint64_t count = split_number(&ret->head, "split.count", 1);
    if (no == index && count == p->count)
        return 0;
    gguf_head_done(ret);
    return err_set(e, -EINVAL, "%s says that it is part %llu of %llu", name, (ull)no + 1, (ull)count);
}

static int count_tensors(const struct checkpoint *c, const struct gguf *first, struct parts *p, struct err *e)
{
    const uint64_t wanted = split_number(first, "split.tensors.count", 0);
    p->tensors = first->tensor_count;
    for (uint32_t i = 1; i < p->count; i++) {
        char name[NAME_BYTES];
        struct gguf_head h;
        int r = open_part(c, p, i, name, &h, e);
        if (r < 0)
            return r;
        p->tensors += h.head.tensor_count;
        gguf_head_done(&h);
    }
    if (p->count > 1 && p->tensors != wanted)
        return err_set(e, -EINVAL, "%s: its parts have %llu tensors, split.tensors.count is %llu",
                       model_files_path(c->model), (ull)p->tensors, (ull)wanted);
    return p->tensors <= CHECKPOINT_TENSORS_MAX
               ? 0
               : err_set(e, -EINVAL, "more than %d tensors", CHECKPOINT_TENSORS_MAX);
}

static struct tensor tensor_of(const struct gguf_tensor *from)
{
    struct tensor t = {
        .rank = from->rank, .bytes = (size_t)from->bytes, .offset = from->offset, .dtype = from->form->dtype};
    memcpy(t.shape, from->shape, sizeof(from->shape));
    if (t.dtype == DTYPE_BLOCKS)
        t.form = from->form;
    return t;
}

static int add_part(struct checkpoint *c, const char *name, const struct gguf_head *h, struct err *e)
{
    const uint32_t file = c->file_count;
    int r = checkpoint_table_add_file(c, name, strlen(name), e);
    if (r < 0)
        return r;
    c->files[file].at = h->at;
    c->file_bytes += h->at->bytes;
    for (uint32_t i = 0; r == 0 && i < h->head.tensor_count; i++) {
        const struct tensor t = tensor_of(&h->head.tensors[i]);
        r = checkpoint_table_add(c, h->head.tensors[i].name, file, &t, e);
    }
    return r < 0 && r != -ENOMEM ? err_prefix(e, r, "%s", name) : r;
}

static int add_others(struct checkpoint *c, const struct parts *p, struct err *e)
{
    int r = 0;
    for (uint32_t i = 1; r == 0 && i < p->count; i++) {
        char name[NAME_BYTES];
        struct gguf_head h;
        r = open_part(c, p, i, name, &h, e);
        if (r < 0)
            return r;
        r = add_part(c, name, &h, e);
        gguf_head_done(&h);
    }
    return r;
}

/* ---- the vision encoder's file ---- */

/* The filters of two frames become one tensor, [out, channels, frames, height, width]. */
static int add_filters(struct checkpoint *c, uint32_t file, const struct gguf_head *h, struct err *e)
{
    const struct gguf_tensor *first = gguf_vision_filters(&h->head, 0),
                             *second = gguf_vision_filters(&h->head, 1);
    if (!first || !second || first->rank != 4 || first->form != second->form || second->rank != 4 ||
        memcmp(first->shape, second->shape, sizeof(first->shape)) != 0 || first->form->values != 1)
        return err_set(e, -EINVAL,
                       "tensors v.patch_embd.weight and v.patch_embd.weight.1 must be filters of "
                       "floats with equal shapes");
    struct tensor t = tensor_of(first);
    t.rank = 5;
    t.shape[4] = t.shape[3];
    t.shape[3] = t.shape[2];
    t.shape[2] = 2;
    t.bytes *= 2;
    t.offset = h->at->bytes;
    c->woven = (struct checkpoint_woven){.file = file,
                                         .at = t.offset,
                                         .parts = {first->offset, second->offset},
                                         .run = (size_t)(t.shape[3] * t.shape[4]) * first->form->bytes};
    return checkpoint_table_add(c, SLICE("model.visual.patch_embed.proj.weight"), file, &t, e);
}

static int add_encoder(struct checkpoint *c, const struct gguf_head *h, struct err *e)
{
    char name[GGUF_VISION_NAME_BYTES];
    const char *file_name = model_files_encoder(c->model);
    const uint32_t file = c->file_count;
    int r = checkpoint_table_add_file(c, file_name, strlen(file_name), e);
    if (r < 0)
        return r;
    c->files[file].at = h->at;
    c->file_bytes += h->at->bytes;
    for (uint32_t i = 0; r == 0 && i < h->head.tensor_count; i++) {
        const struct tensor t = tensor_of(&h->head.tensors[i]);
        if (gguf_vision_name(&h->head, h->head.tensors[i].name, name))
            r = checkpoint_table_add(c, slice_of(name), file, &t, e);
    }
    if (r == 0 && gguf_vision_weaves(&h->head))
        r = add_filters(c, file, h, e);
    return r < 0 && r != -ENOMEM ? err_prefix(e, r, "%s", file_name) : r;
}

static int add_first(struct checkpoint *c, struct parts *p, const struct gguf_head *first, struct err *e)
{
    char name[NAME_BYTES];
    const uint64_t count = split_number(&first->head, "split.count", 1);
    if (count > WEIGHTS_PARTS_MAX)
        return err_set(e, -EINVAL, "%s: %llu parts are more than %d", model_files_path(c->model), (ull)count,
                       WEIGHTS_PARTS_MAX);
    p->count = (uint32_t)MAX_OF(count, (uint64_t)1);
    if (split_number(&first->head, "split.no", 0) != 0)
        return err_set(e, -EINVAL, "%s is not the first of its parts: name NAME-00001-of-%05u.gguf",
                       model_files_path(c->model), p->count);
    int r = count_tensors(c, &first->head, p, e);
    if (r == 0)
        r = checkpoint_table_make(c, (uint32_t)p->tensors + p->more, e);
    if (r == 0)
        r = model_files_part(c->model, 0, p->count, name, e);
    return r == 0 ? add_part(c, name, first, e) : r;
}

int checkpoint_gguf_open(struct checkpoint *c, struct err *e)
{
    struct parts p = {0};
    struct gguf_head first = GGUF_HEAD_NONE, encoder = GGUF_HEAD_NONE;
    int r = model_files_encoder_head(c->model, c->account, &encoder, e);
    if (r == 0 || r == -ENOENT)
        r = model_files_head(c->model, c->account, &first, e);
    p.more = encoder.at ? encoder.head.tensor_count : 0;
    if (r == 0)
        r = add_first(c, &p, &first, e);
    gguf_head_done(&first);
    if (r == 0)
        r = add_others(c, &p, e);
    if (r == 0 && encoder.at)
        r = add_encoder(c, &encoder, e);
    gguf_head_done(&encoder);
    return r;
}

int checkpoint_gguf_head_bytes(const struct regular_file *at, uint64_t *ret, struct err *e)
{
    struct gguf_head head = GGUF_HEAD_NONE;
    uint64_t bytes = GGUF_FIRST_READ;
    int r = gguf_head_read(at, NULL, &head, e);
    while (bytes < head.head.head_bytes) /* pieces double, see gguf_head.c */
        bytes *= 2;
    gguf_head_done(&head);
    *ret = MIN_OF(bytes, at->bytes);
    return r;
}

_Static_assert(CHECKPOINT_HEAD_BYTES_MAX == GGUF_HEAD_BYTES_MAX, "the longest head that is parsed");
_Static_assert(CHECKPOINT_HEAD_FIRST_READ == GGUF_FIRST_READ, "enough for most heads");

int checkpoint_head_check(struct slice text, uint64_t file_bytes)
{
    const struct arena_opts opts = {.bytes_max = HEAD_TABLES_BYTES_MAX};
    struct arena *tables = NULL;
    struct gguf head;
    int r = arena_create(&opts, &tables);
    if (r == 0)
        r = gguf_parse(tables, text, file_bytes, &head, NULL);
    arena_free(tables);
    return r;
}

const char *checkpoint_gguf_name(const char *name)
{
    /* Only the vision encoder of --mmproj has an absolute name. */
    if (name[0] == '/')
        return "mmproj.gguf";
    return weights_name_is(name) ? name : "model.gguf";
}
