/* checkpoint.c - opening by the reader of the model's kind, that no two tensors overlap, and reading. */
#include "weights/checkpoint.h"

#include "weights/checkpoint_table.h"

#include "base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int by_place(const void *a, const void *b)
{
    const struct checkpoint_entry *x = *(const struct checkpoint_entry *const *)a,
                                  *y = *(const struct checkpoint_entry *const *)b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    uint64_t at_x = x->tensor.offset, at_y = y->tensor.offset;
    return at_x < at_y ? -1 : at_x > at_y;
}

static int check_overlaps(struct checkpoint *c, struct err *e)
{
    size_t mark = arena_mark(c->arena);
    const struct checkpoint_entry **order =
        ARENA_ARRAY(c->arena, const struct checkpoint_entry *, c->entry_count);
    if (!order)
        return -ENOMEM;
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->entry_count; i++) {
        if (c->entries[i].tensor.bytes > 0)
            order[count++] = &c->entries[i];
    }
    qsort(order, count, sizeof(order[0]), by_place);
    int r = 0;
    for (uint32_t i = 1; r == 0 && i < count; i++) {
        const struct checkpoint_entry *x = order[i - 1], *y = order[i];
        if (x->file == y->file && y->tensor.offset < x->tensor.offset + x->tensor.bytes)
            r = err_set(e, -EINVAL, "%s: tensors %s and %s overlap", c->files[x->file].name, x->name,
                        y->name);
    }
    arena_rewind(c->arena, mark);
    return r;
}

static bool is_gguf(const struct checkpoint *c)
{
    return !c->folder[0] && model_files_is_view(c->model);
}

static int read_tables(struct checkpoint *c, struct err *e)
{
    int r = is_gguf(c) ? checkpoint_gguf_open(c, e) : checkpoint_safetensors_open(c, e);
    return r == 0 ? check_overlaps(c, e) : r;
}

int checkpoint_open(struct arena *a, struct model_files *model, const char *folder, struct account *account,
                    struct checkpoint **ret, struct err *e)
{
    struct checkpoint *c = ARENA_NEW(a, struct checkpoint);
    if (!c)
        return err_set(e, -ENOMEM, "no memory left to open %s", model_files_path(model));
    c->arena = a;
    c->account = account;
    c->model = model;
    c->folder = arena_strndup(a, folder, strlen(folder));
    c->files = ARENA_ARRAY(a, struct checkpoint_file, CHECKPOINT_FILES_MAX);
    int r = c->folder && c->files ? read_tables(c, e) : -ENOMEM;
    if (r == -ENOMEM && e && !e->text[0])
        err_set(e, r, "no memory left for the table of tensors of %s", model_files_path(model));
    if (r == 0)
        *ret = c;
    return r;
}

/* ---- reading ---- */

uint32_t checkpoint_file_count(const struct checkpoint *c)
{
    return c->file_count;
}

const char *checkpoint_file_name(const struct checkpoint *c, uint32_t index)
{
    ASSERT(index < c->file_count);
    return c->files[index].name;
}

const char *checkpoint_packed_name(const struct checkpoint *c, uint32_t index)
{
    const char *name = checkpoint_file_name(c, index);
    return is_gguf(c) ? checkpoint_gguf_name(name) : name;
}

int checkpoint_head_bytes(const struct checkpoint *c, uint32_t index, uint64_t *ret, struct err *e)
{
    ASSERT(index < c->file_count);
    const struct regular_file *at = c->files[index].at;
    return is_gguf(c) ? checkpoint_gguf_head_bytes(at, ret, e)
                      : checkpoint_safetensors_head_bytes(at, ret, e);
}

uint32_t checkpoint_count(const struct checkpoint *c)
{
    return c->entry_count;
}

uint64_t checkpoint_bytes(const struct checkpoint *c)
{
    return c->file_bytes;
}

static const struct checkpoint_entry *find(const struct checkpoint *c, const char *name)
{
    uint32_t index;
    return hash_map_get(&c->by_name, slice_of(name), &index) ? &c->entries[index] : NULL;
}

bool checkpoint_find(const struct checkpoint *c, const char *name, struct tensor *ret)
{
    const struct checkpoint_entry *entry = find(c, name);
    if (!entry)
        return false;
    *ret = entry->tensor;
    return true;
}

uint32_t checkpoint_index(const struct checkpoint *c, const char *name)
{
    const struct checkpoint_entry *entry = find(c, name);
    ASSERT(entry);
    return (uint32_t)(entry - c->entries);
}

bool checkpoint_any(const struct checkpoint *c, const char *head)
{
    for (uint32_t i = 0; i < c->entry_count; i++) {
        if (slice_starts(slice_of(c->entries[i].name), slice_of(head)))
            return true;
    }
    return false;
}

const char *checkpoint_name(const struct checkpoint *c, uint32_t index)
{
    ASSERT(index < c->entry_count);
    return c->entries[index].name;
}

const char *checkpoint_file_of(const struct checkpoint *c, const char *name)
{
    const struct checkpoint_entry *entry = find(c, name);
    return entry ? c->files[entry->file].name : NULL;
}

const char *checkpoint_name_of(const struct checkpoint *c, const struct tensor *t)
{
    for (uint32_t i = 0; i < c->entry_count; i++) {
        const struct tensor *own = &c->entries[i].tensor;
        if (own->file == t->file && t->offset >= own->offset && t->offset - own->offset < own->bytes)
            return c->entries[i].name;
    }
    return "?";
}

static const struct checkpoint_file *file_of(const struct checkpoint *c, const struct tensor *t)
{
    ASSERT(!t->data && t->file < c->file_count);
    return &c->files[t->file];
}

static bool is_woven(const struct checkpoint *c, const struct tensor *t)
{
    return c->woven.at > 0 && t->file == c->woven.file && t->offset >= c->woven.at;
}

/* Bytes [from, from + len) of the woven tensor. */
static int read_woven(const struct checkpoint *c, uint64_t from, char *into, size_t len, struct err *e)
{
    const struct checkpoint_woven *w = &c->woven;
    const struct checkpoint_file *f = &c->files[w->file];
    while (len > 0) {
        const uint64_t run = from / w->run, within = from % w->run;
        const size_t n = MIN_OF(len, w->run - (size_t)within);
        int r = regular_file_read(f->at, w->parts[run % 2] + run / 2 * w->run + within, into, n, e);
        if (r < 0)
            return err_prefix(e, r, "%s", f->name);
        from += n;
        into += n;
        len -= n;
    }
    return 0;
}

int checkpoint_read(const struct checkpoint *c, const struct tensor *t, size_t from, void *into, size_t len,
                    struct err *e)
{
    const struct checkpoint_file *f = file_of(c, t);
    ASSERT(from <= t->bytes && len <= t->bytes - from);
    if (is_woven(c, t))
        return read_woven(c, t->offset + from - c->woven.at, into, len, e);
    int r = regular_file_read(f->at, t->offset + from, into, len, e);
    return r < 0 ? err_prefix(e, r, "%s", f->name) : 0;
}

int checkpoint_check(const struct checkpoint *c, struct err *e)
{
    for (uint32_t i = 0; i < c->file_count; i++) {
        int r = regular_file_check(c->files[i].at, e);
        if (r < 0)
            return err_prefix(e, r, "%s", c->files[i].name);
    }
    return 0;
}

void checkpoint_ahead(const struct checkpoint *c, const struct tensor *t)
{
    if (!is_woven(c, t))
        regular_file_ahead(file_of(c, t)->at, t->offset, t->bytes);
}

void checkpoint_drop(const struct checkpoint *c, const struct tensor *t)
{
    /* Whole pages inside only: a page at the border also holds a neighbour that may not have been read. */
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t from = ROUND_UP(t->offset, page), to = (t->offset + t->bytes) / page * page;
    if (from < to && !is_woven(c, t))
        regular_file_drop(file_of(c, t)->at, from, to - from);
}
