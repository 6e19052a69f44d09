/* pack_files.c - files by their names' endings. A folder of a Dense module or of a pooling begins with its
 * number. */
#include "model/load/pack_files.h"

#include "model/measure.h"
#include "model/vector_head.h"

#include "base/check.h"
#include "base/files/bundle.h"
#include "tensor/tensor.h"
#include "weights/checkpoint.h"
#include "weights/model_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PATH_BYTES      4608
#define FILE_BYTES_MAX  ((uint64_t)1 << 30) /* largest file that goes in whole */
#define RANGES_MAX      (2 + 2 * VECTOR_HEAD_MAX)
#define SMALL_FILES_MAX 1024

struct range {
    uint64_t from, to;
};

static int put_all(struct pack_files *p, const char *bytes, size_t len, struct err *e)
{
    while (len > 0) {
        ssize_t n = pwrite(p->fd, bytes, len, (off_t)p->at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(e, -errno, "cannot be written: %s", strerror(errno));
        bytes += n;
        len -= (size_t)n;
        p->at += (uint64_t)n;
    }
    return 0;
}

static int put_part(struct pack_files *p, uint64_t from, const char *bytes, size_t len, struct err *e)
{
    const struct file_part part = {from, len, p->at, bundle_check_of(bytes, len)};
    bundle_put_part(&p->table, &part);
    return put_all(p, bytes, len, e);
}

static uint32_t parts_of(const struct range *r)
{
    return (uint32_t)((r->to - r->from + BUNDLE_PART_BYTES_MAX - 1) / BUNDLE_PART_BYTES_MAX);
}

static int copy_range(struct pack_files *p, const struct regular_file *f, const struct range *r,
                      struct err *e)
{
    char *bytes = malloc((size_t)MIN_OF(r->to - r->from, BUNDLE_PART_BYTES_MAX));
    int error = bytes ? 0 : err_set(e, -ENOMEM, "no memory left to copy it");
    for (uint64_t at = r->from; error == 0 && at < r->to;) {
        const size_t n = (size_t)MIN_OF(r->to - at, BUNDLE_PART_BYTES_MAX);
        error = regular_file_read(f, at, bytes, n, e);
        if (error == 0)
            error = put_part(p, at, bytes, n, e);
        at += n;
    }
    free(bytes);
    return error;
}

static int by_begin(const void *x, const void *y)
{
    const struct range *a = x, *b = y;
    return a->from < b->from ? -1 : a->from > b->from;
}

/* Ranges may be in any order, overlap, and be empty. */
static int copy_ranges(struct pack_files *p, const char *name, const struct regular_file *f,
                       struct range *ranges, uint32_t count, struct err *e)
{
    uint32_t kept = 0, parts = 0;
    qsort(ranges, count, sizeof(ranges[0]), by_begin);
    for (uint32_t i = 0; i < count; i++) {
        struct range r = ranges[i];
        if (kept > 0)
            r.from = MAX_OF(r.from, ranges[kept - 1].to);
        if (r.from < r.to)
            ranges[kept++] = r;
    }
    for (uint32_t i = 0; i < kept; i++)
        parts += parts_of(&ranges[i]);
    bundle_put_file(&p->table, name, f->bytes, parts);
    p->count++;
    int r = 0;
    for (uint32_t i = 0; i < kept && r == 0; i++)
        r = copy_range(p, f, &ranges[i], e);
    return r;
}

int pack_files_put(struct pack_files *p, const char *name, struct slice bytes, struct err *e)
{
    bundle_put_file(&p->table, name, bytes.len, bytes.len > 0);
    p->count++;
    return bytes.len > 0 ? put_part(p, 0, bytes.ptr, bytes.len, e) : 0;
}

static int copy_whole(struct pack_files *p, const char *name, const struct regular_file *f, struct err *e)
{
    struct range all = {0, f->bytes};
    if (strlen(name) > BUNDLE_NAME_MAX)
        return err_set(e, -ENAMETOOLONG, "the path of %s is too long", name);
    int r = f->bytes <= FILE_BYTES_MAX ? copy_ranges(p, name, f, &all, 1, e)
                                       : err_set(e, -EFBIG, "is larger than %llu bytes", (ull)FILE_BYTES_MAX);
    return r < 0 ? err_prefix(e, r, "%s", name) : 0;
}

/* ---- small files ---- */

struct folder {
    struct pack_files *to;
    struct model_files *files;
    const char *name;
    uint32_t count;
};

static bool is_small(const char *name)
{
    static const char *const ends[] = {".json", ".jinja", ".txt", ".model"};
    for (size_t i = 0; i < COUNT_OF(ends); i++)
        if (slice_ends(slice_of(name), slice_of(ends[i])))
            return true;
    return false;
}

static bool is_of_module(const char *name)
{
    return is_small(name) || slice_ends(slice_of(name), SLICE(".safetensors"));
}

static bool is_module(const char *name)
{
    return name[0] >= '0' && name[0] <= '9' && strchr(name, '_');
}

static int add_file(void *arg, const char *file, struct err *e)
{
    struct folder *f = arg;
    const struct regular_file *at;
    char name[PATH_BYTES];
    if (f->count++ == SMALL_FILES_MAX)
        return err_set(e, -EINVAL, "%s/%s has more than %d files", model_files_path(f->files), f->name,
                       SMALL_FILES_MAX);
    snprintf(name, sizeof(name), "%s%s%s", f->name, f->name[0] ? "/" : "", file);
    int r = model_files_file(f->files, name, &at, e);
    if (r == -EINVAL || r == -ENOENT) /* a folder, or a link to nothing */
        return 0;
    return r == 0 ? copy_whole(f->to, name, at, e) : r;
}

/* The files of a folder that `wanted` takes; no such folder has none. */
static int add_folder(struct pack_files *p, struct model_files *files, const char *name,
                      bool (*wanted)(const char *), struct err *e)
{
    struct folder f = {p, files, name, 0};
    return model_files_each(files, name, wanted, add_file, &f, e);
}

static int add_module(void *arg, const char *name, struct err *e)
{
    const struct folder *f = arg;
    int r = add_folder(f->to, f->files, name, is_of_module, e);
    return r == -ENOTDIR ? 0 : r;
}

static int add_small(struct pack_files *p, struct model_files *files, struct err *e)
{
    static const char *const folders[] = {"", "mtp", "additional_chat_templates"};
    struct folder own = {p, files, "", 0};
    int r = 0;
    for (size_t i = 0; i < COUNT_OF(folders) && r == 0; i++)
        r = add_folder(p, files, folders[i], is_small, e);
    return r == 0 ? model_files_each(files, "", is_module, add_module, &own, e) : r;
}

/* ---- heads ---- */

static void add_tensor(const struct tensor *t, uint32_t file, struct range *ranges, uint32_t *count)
{
    if (t->bytes > 0 && t->file == file)
        ranges[(*count)++] = (struct range){t->offset, t->offset + t->bytes};
}

/* A classifier's tensors are read as floats. */
static uint32_t read_beside(const struct source *s, uint32_t file, struct range *ranges)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->vector_head.shape.count; i++) {
        if (s->vector_head.checkpoint[i] != s->checkpoint)
            continue;
        add_tensor(&s->vector_head.weight[i], file, ranges, &count);
        if (s->vector_head.has_bias[i])
            add_tensor(&s->vector_head.bias[i], file, ranges, &count);
    }
    return count;
}

static int add_weights(struct pack_files *p, struct model_files *files, const struct source *s, uint32_t file,
                       struct err *e)
{
    const char *name = checkpoint_file_name(s->checkpoint, file);
    const struct regular_file *f;
    struct range ranges[RANGES_MAX];
    int r = model_files_file(files, name, &f, e);
    if (r < 0)
        return r;
    const uint32_t count = read_beside(s, file, ranges);
    ranges[count].from = 0;
    r = checkpoint_head_bytes(s->checkpoint, file, &ranges[count].to, e);
    if (r == 0)
        r = copy_ranges(p, checkpoint_packed_name(s->checkpoint, file), f, ranges, count + 1, e);
    return r < 0 ? err_prefix(e, r, "%s", name) : 0;
}

int pack_files_add(struct pack_files *p, struct model_files *files, const struct source *s, struct err *e)
{
    int r = model_files_is_view(files) ? 0 : add_small(p, files, e);
    for (uint32_t i = 0; i < checkpoint_file_count(s->checkpoint) && r == 0; i++)
        r = add_weights(p, files, s, i, e);
    return r == 0 && p->table.error ? err_set(e, p->table.error, "its table is too large") : r;
}
