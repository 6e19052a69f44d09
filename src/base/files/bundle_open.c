/* bundle_open.c - opening a bundle, and a file by its path, which may lead into a bundle.
 *
 * The table is read anew for each file that is opened: a load opens some ten. */
#include "base/files/bundle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int read_table(struct regular_file *f, struct bundle *ret, struct err *e)
{
    char page[BUNDLE_PAGE];
    uint64_t at, bytes;
    if (f->bytes < sizeof(page))
        return err_set(e, -EINVAL, "is not a packed file, or was cut");
    int r = regular_file_read(f, 0, page, sizeof(page), e);
    if (r == 0)
        r = bundle_parse_page(page, f->bytes, &at, &bytes, e);
    if (r < 0)
        return r;
    char *table = malloc((size_t)bytes);
    if (!table)
        return err_set(e, -ENOMEM, "no memory left for its table");
    r = regular_file_read(f, at, table, (size_t)bytes, e);
    uint64_t check = 0, wanted;
    memcpy(&wanted, page + 40, sizeof(wanted));
    if (r == 0 && (check = bundle_check_of(table, (size_t)bytes)) != wanted)
        r = err_set(e, -EINVAL, "its table is damaged: the checksum differs");
    if (r == 0)
        r = bundle_parse_table((struct slice){table, (size_t)bytes}, at, ret, e);
    free(table);
    if (r == 0)
        ret->identity = check;
    return r;
}

static bool has_magic(const struct regular_file *f)
{
    char magic[8];
    return f->bytes >= sizeof(magic) && regular_file_read(f, 0, magic, sizeof(magic), NULL) == 0 &&
           memcmp(magic, BUNDLE_MAGIC, sizeof(magic)) == 0;
}

bool bundle_is(const char *path)
{
    struct regular_file f;
    if (regular_file_open_plain(path, &f, NULL) < 0)
        return false;
    const bool is = has_magic(&f);
    regular_file_close(&f);
    return is;
}

int bundle_open(const char *path, struct bundle *ret, struct err *e)
{
    struct regular_file f;
    int r = regular_file_open_plain(path, &f, e);
    if (r < 0)
        return r;
    r = read_table(&f, ret, e);
    if (r < 0) {
        regular_file_close(&f);
        return err_prefix(e, r, "%s", path);
    }
    ret->at = f;
    return 0;
}

void bundle_close(struct bundle *b)
{
    struct regular_file f = b->at;
    if (b->files)
        regular_file_close(&f);
    bundle_free(b);
}

bool bundle_any(const char *path, bool (*is)(const char *name), char ret[BUNDLE_NAME_MAX + 1])
{
    struct bundle b;
    bool any = false;
    if (!bundle_is(path) || bundle_open(path, &b, NULL) < 0)
        return false;
    for (uint32_t i = 0; i < b.file_count && !any; i++) {
        any = is(b.files[i].name);
        if (any && ret)
            snprintf(ret, BUNDLE_NAME_MAX + 1, "%s", b.files[i].name);
    }
    bundle_close(&b);
    return any;
}

/* ---- a path into a bundle ---- */

/* BUNDLE/NAME: the first file on the path must be a bundle. */
static const char *name_in(const char *path, char bundle[BUNDLE_PATH_BYTES])
{
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        const size_t len = (size_t)(slash - path);
        if (len >= BUNDLE_PATH_BYTES)
            return NULL;
        memcpy(bundle, path, len);
        bundle[len] = 0;
        if (bundle_is(bundle))
            return slash + 1;
    }
    return NULL;
}

int bundle_check(const struct bundle *b, const struct bundle_file *file, struct err *e)
{
    char *bytes = NULL;
    int r = 0;
    for (uint32_t i = 0; i < file->part_count && r == 0; i++) {
        const struct file_part *p = &file->parts[i];
        char *more = realloc(bytes, (size_t)p->bytes);
        if (!more) {
            r = err_set(e, -ENOMEM, "no memory left to check %s", file->name);
            break;
        }
        bytes = more;
        r = regular_file_read(&b->at, p->at, bytes, (size_t)p->bytes, e);
        if (r == 0 && bundle_check_of(bytes, (size_t)p->bytes) != p->check)
            r = err_set(e, -EINVAL, "%s in it is damaged: a checksum differs", file->name);
    }
    free(bytes);
    return r;
}

static int open_inside(const char *path, const char *bundle, const char *name, struct regular_file *ret,
                       struct err *e)
{
    struct bundle b;
    int r = bundle_open(bundle, &b, e);
    if (r < 0)
        return r;
    const struct bundle_file *file = bundle_find(&b, name);
    /* A file that is read from a bundle is the one that was put there. */
    r = file ? bundle_check(&b, file, e)
             : err_set(e, -ENOENT, "%s: cannot be opened: the packed file does not have this file", path);
    if (r < 0 && file)
        err_prefix(e, r, "%s", bundle);
    struct file_parts *parts =
        r == 0 ? malloc(sizeof(*parts) + file->part_count * sizeof(parts->parts[0])) : NULL;
    if (parts) {
        *parts = (struct file_parts){.file_bytes = b.at.bytes, .count = file->part_count};
        memcpy(parts->parts, file->parts, file->part_count * sizeof(parts->parts[0]));
        *ret = b.at;
        ret->bytes = file->bytes;
        ret->inside = parts;
        bundle_free(&b);
        return 0;
    }
    bundle_close(&b);
    return r < 0 ? r : err_set(e, -ENOMEM, "no memory left to open %s", path);
}

int regular_file_open(const char *path, struct regular_file *ret, struct err *e)
{
    char bundle[BUNDLE_PATH_BYTES];
    struct err why = {{0}};
    int r = regular_file_open_plain(path, ret, &why);
    const char *name = r == -ENOTDIR ? name_in(path, bundle) : NULL;
    if (name)
        return open_inside(path, bundle, name, ret, e);
    return r < 0 ? err_set(e, r, "%s", why.text) : 0;
}

bool regular_file_exists(const char *path)
{
    struct regular_file f;
    if (access(path, F_OK) == 0)
        return true;
    if (errno != ENOTDIR || regular_file_open(path, &f, NULL) < 0)
        return false;
    regular_file_close(&f);
    return true;
}
