/* checkpoint_gguf.c - a GGUF file, or the parts of one: all tensors of all parts.
 *
 * split.count of the first part is the number of parts, split.no of each its index. One head is in memory at
 * a time, and the first one while tensors are counted. The heads of later parts are read twice: the table of
 * tensors is made to size. */
#include "weights/checkpoint_table.h"

#include "weights/gguf_file.h"
#include "weights/gguf_name.h"

#include "base/check.h"
#include "tensor/block_form.h"

#include <errno.h>
#include <stdio.h>

struct parts {
    char first[GGUF_PATH_BYTES];
    uint32_t count;
    uint64_t tensors; /* tensors of all parts */
};

/* A number of the metadata that is absent in a file without parts. */
static uint64_t split_number(const struct gguf *g, const char *key, uint64_t absent)
{
    uint64_t n;
    return gguf_u64(gguf_find(g, key), &n) ? n : absent;
}

static int open_part(const struct checkpoint *c, const struct parts *p, uint32_t index, struct gguf_file *ret,
                     struct err *e)
{
    char path[GGUF_PATH_BYTES];
    int r = gguf_file_part(p->first, index, p->count, path, e);
    if (r == 0)
        r = gguf_file_open(path, c->account, ret, e);
    if (r < 0)
        return r;
    uint64_t no = split_number(&ret->head, "split.no", 0);
    uint64_t count = split_number(&ret->head, "split.count", 1);
    if (no == index && count == p->count)
        return 0;
    gguf_file_close(ret);
    return err_set(e, -EINVAL, "%s says that it is part %llu of %llu", path, (ull)no + 1, (ull)count);
}

static int count_tensors(const struct checkpoint *c, const struct gguf *first, struct parts *p, struct err *e)
{
    uint64_t wanted = split_number(first, "split.tensors.count", 0);
    p->tensors = first->tensor_count;
    for (uint32_t i = 1; i < p->count; i++) {
        struct gguf_file f;
        int r = open_part(c, p, i, &f, e);
        if (r < 0)
            return r;
        p->tensors += f.head.tensor_count;
        gguf_file_close(&f);
    }
    if (p->count > 1 && p->tensors != wanted)
        return err_set(e, -EINVAL, "%s: its parts have %llu tensors, split.tensors.count is %llu", p->first,
                       (ull)p->tensors, (ull)wanted);
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

/* Takes the open file from *f. */
static int add_part(struct checkpoint *c, const char *path, struct gguf_file *f, struct err *e)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    uint32_t file = c->file_count;
    int r = checkpoint_table_add_file(c, name, strlen(name), e);
    if (r < 0)
        return r;
    c->files[file].at = f->at;
    c->file_bytes += f->at.bytes;
    f->at = REGULAR_FILE_NONE;
    for (uint32_t i = 0; r == 0 && i < f->head.tensor_count; i++) {
        const struct tensor t = tensor_of(&f->head.tensors[i]);
        r = checkpoint_table_add(c, f->head.tensors[i].name, file, &t, e);
    }
    return r < 0 && r != -ENOMEM ? err_prefix(e, r, "%s", c->files[file].name) : r;
}

static int add_others(struct checkpoint *c, const struct parts *p, struct err *e)
{
    char path[GGUF_PATH_BYTES];
    int r = 0;
    for (uint32_t i = 1; r == 0 && i < p->count; i++) {
        struct gguf_file f;
        r = gguf_file_part(p->first, i, p->count, path, e);
        if (r == 0)
            r = open_part(c, p, i, &f, e);
        if (r < 0)
            return r;
        r = add_part(c, path, &f, e);
        gguf_file_close(&f);
    }
    return r;
}

static int open_all(struct checkpoint *c, struct parts *p, struct gguf_file *first, struct err *e)
{
    uint64_t count = split_number(&first->head, "split.count", 1);
    if (count > GGUF_PARTS_MAX)
        return err_set(e, -EINVAL, "%s: %llu parts are more than %d", p->first, (ull)count, GGUF_PARTS_MAX);
    p->count = (uint32_t)MAX_OF(count, (uint64_t)1);
    if (split_number(&first->head, "split.no", 0) != 0)
        return err_set(e, -EINVAL, "%s is not the first of its parts: name NAME-00001-of-%05u.gguf", p->first,
                       p->count);
    int r = count_tensors(c, &first->head, p, e);
    if (r == 0)
        r = checkpoint_table_make(c, (uint32_t)p->tensors, e);
    return r == 0 ? add_part(c, p->first, first, e) : r;
}

static int open_gguf(struct checkpoint *c, struct err *e)
{
    struct parts p;
    struct gguf_file first = GGUF_FILE_NONE;
    int r = gguf_file_open_model(c->dir, p.first, c->account, &first, e);
    if (r == 0)
        r = open_all(c, &p, &first, e);
    gguf_file_close(&first);
    return r == 0 ? add_others(c, &p, e) : r;
}

const struct checkpoint_reader checkpoint_gguf = {.reads = gguf_file_is, .open = open_gguf};
