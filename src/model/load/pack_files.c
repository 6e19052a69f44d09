/* pack_files.c - files by their names' endings. A folder of a Dense module or of a pooling begins with its
 * number. */
#include "model/load/pack_files.h"

#include "model/measure.h"
#include "model/vector_head.h"

#include "base/check.h"
#include "base/files/bundle.h"
#include "tensor/tensor.h"
#include "weights/checkpoint.h"
#include "weights/gguf_file.h"
#include "weights/gguf_name.h"
#include "weights/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
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

static int copy_whole(struct pack_files *p, const char *dir, const char *name, struct err *e)
{
    char path[PATH_BYTES];
    struct regular_file f;
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >= sizeof(path) ||
        strlen(name) > BUNDLE_NAME_MAX)
        return err_set(e, -ENAMETOOLONG, "the path of %s is too long", name);
    int r = regular_file_open(path, &f, e);
    if (r < 0)
        return r;
    struct range all = {0, f.bytes};
    r = f.bytes <= FILE_BYTES_MAX ? copy_ranges(p, name, &f, &all, 1, e)
                                  : err_set(e, -EFBIG, "is larger than %llu bytes", (ull)FILE_BYTES_MAX);
    regular_file_close(&f);
    return r < 0 ? err_prefix(e, r, "%s", path) : 0;
}

/* ---- small files ---- */

static bool ends_in_one_of(const char *name, const char *const *ends, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (slice_ends(slice_of(name), slice_of(ends[i])))
            return true;
    return false;
}

static int small(const struct dirent *d)
{
    static const char *const ends[] = {".json", ".jinja", ".txt", ".model"};
    return d->d_name[0] != '.' && ends_in_one_of(d->d_name, ends, COUNT_OF(ends));
}

static int of_module(const struct dirent *d)
{
    return small(d) || slice_ends(slice_of(d->d_name), SLICE(".safetensors"));
}

static int numbered(const struct dirent *d)
{
    return d->d_name[0] >= '0' && d->d_name[0] <= '9' && strchr(d->d_name, '_');
}

/* The files of DIR/FOLDER that `wanted` takes; no such folder has none. */
static int add_folder(struct pack_files *p, const char *dir, const char *folder,
                      int (*wanted)(const struct dirent *), struct err *e)
{
    char path[PATH_BYTES], name[PATH_BYTES];
    struct dirent **entries = NULL;
    struct stat st;
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, folder) >= sizeof(path))
        return err_set(e, -ENAMETOOLONG, "the path of %s is too long", folder);
    int r = 0, count = scandir(path, &entries, wanted, alphasort);
    if (count > SMALL_FILES_MAX)
        r = err_set(e, -EINVAL, "%s has more than %d files", path, SMALL_FILES_MAX);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "%s%s%s", folder, folder[0] ? "/" : "", entries[i]->d_name);
        if (r == 0 && (size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) < sizeof(path) &&
            stat(path, &st) == 0 && S_ISREG(st.st_mode))
            r = copy_whole(p, dir, name, e);
        free(entries[i]);
    }
    free(entries);
    return r;
}

static int add_modules(struct pack_files *p, const char *dir, struct err *e)
{
    struct dirent **entries = NULL;
    int r = 0, count = scandir(dir, &entries, numbered, alphasort);
    for (int i = 0; i < count; i++) {
        if (r == 0)
            r = add_folder(p, dir, entries[i]->d_name, of_module, e);
        free(entries[i]);
    }
    free(entries);
    return r;
}

/* ---- heads ---- */

static int head_bytes(const char *path, const struct regular_file *f, uint64_t *ret, struct err *e)
{
    char first[SAFETENSORS_FIRST_BYTES];
    struct gguf_file gguf;
    size_t bytes = 0;
    int r;
    if (gguf_file_is(path)) {
        r = gguf_file_open(path, NULL, &gguf, e);
        /* A head is read in pieces that double (gguf_file.c). */
        for (bytes = GGUF_FIRST_READ; r == 0 && bytes < gguf.head.head_bytes;)
            bytes *= 2;
        if (r == 0)
            gguf_file_close(&gguf);
    } else {
        const size_t len = (size_t)MIN_OF(f->bytes, (uint64_t)sizeof(first));
        r = regular_file_read(f, 0, first, len, e);
        if (r == 0)
            r = safetensors_data_at((struct slice){first, len}, f->bytes, &bytes, e);
    }
    *ret = MIN_OF((uint64_t)bytes, f->bytes);
    return r;
}

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

/* A GGUF file is called so in the packed file, whatever its own name is. */
static const char *name_of(const char *name, bool gguf)
{
    return gguf && !gguf_name_is(name) ? "model.gguf" : name;
}

static int add_weights(struct pack_files *p, const char *dir, const struct source *s, uint32_t file,
                       struct err *e)
{
    const char *name = checkpoint_file_name(s->checkpoint, file);
    char path[PATH_BYTES];
    struct range ranges[RANGES_MAX];
    struct regular_file f;
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >= sizeof(path))
        return err_set(e, -ENAMETOOLONG, "the path of %s is too long", name);
    int r = regular_file_open(path, &f, e);
    if (r < 0)
        return r;
    const uint32_t count = read_beside(s, file, ranges);
    ranges[count].from = 0;
    r = head_bytes(path, &f, &ranges[count].to, e);
    if (r == 0)
        r = copy_ranges(p, name_of(name, gguf_file_is(path)), &f, ranges, count + 1, e);
    regular_file_close(&f);
    return r < 0 ? err_prefix(e, r, "%s", path) : 0;
}

/* The folder of a GGUF file that was named itself. */
static void folder_of(const char *path, char ret[PATH_BYTES])
{
    struct stat st;
    snprintf(ret, PATH_BYTES, "%s", path);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return;
    char *slash = strrchr(ret, '/');
    if (slash)
        *slash = 0;
    else
        snprintf(ret, PATH_BYTES, ".");
}

int pack_files_add(struct pack_files *p, const char *dir, const struct source *s, struct err *e)
{
    char folder[PATH_BYTES];
    int r = 0;
    folder_of(dir, folder);
    if (!gguf_file_is(dir)) {
        r = add_folder(p, dir, "", small, e);
        if (r == 0)
            r = add_folder(p, dir, "mtp", small, e);
        if (r == 0)
            r = add_folder(p, dir, "additional_chat_templates", small, e);
        if (r == 0)
            r = add_modules(p, dir, e);
    }
    for (uint32_t i = 0; i < checkpoint_file_count(s->checkpoint) && r == 0; i++)
        r = add_weights(p, folder, s, i, e);
    return r == 0 && p->table.error ? err_set(e, p->table.error, "its table is too large") : r;
}
