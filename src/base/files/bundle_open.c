/* bundle_open.c - reading the table of a bundle, and opening a file in it. */
#include "base/files/bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static int read_table(const struct regular_file *f, struct bundle *ret, struct err *e)
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

bool bundle_begins(const struct regular_file *f)
{
    char magic[8];
    return f->bytes >= sizeof(magic) && regular_file_read(f, 0, magic, sizeof(magic), NULL) == 0 &&
           memcmp(magic, BUNDLE_MAGIC, sizeof(magic)) == 0;
}

int bundle_read(struct regular_file *f, struct bundle *ret, struct err *e)
{
    int r = read_table(f, ret, e);
    if (r < 0)
        return r;
    ret->at = *f;
    *f = REGULAR_FILE_NONE;
    return 0;
}

void bundle_close(struct bundle *b)
{
    struct regular_file f = b->at;
    if (b->files)
        regular_file_close(&f);
    bundle_free(b);
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

int bundle_open_file(const struct bundle *b, const char *name, const char *path, struct regular_file *ret,
                     struct err *e)
{
    const struct bundle_file *file = bundle_find(b, name);
    if (!file)
        return err_set(e, -ENOENT, "%s: cannot be opened: the packed file does not have this file", path);
    /* A file that is read from a bundle is the one that was put there. */
    int r = bundle_check(b, file, e);
    if (r < 0)
        return err_prefix(e, r, "%s", path);
    struct file_parts *parts = malloc(sizeof(*parts) + file->part_count * sizeof(parts->parts[0]));
    const int fd = parts ? fcntl(b->at.fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (fd < 0) {
        r = parts ? -errno : -ENOMEM;
        free(parts);
        return err_set(e, r, "%s: cannot be opened: %s", path, strerror(-r));
    }
    *parts = (struct file_parts){.file_bytes = b->at.bytes, .count = file->part_count};
    memcpy(parts->parts, file->parts, file->part_count * sizeof(parts->parts[0]));
    *ret = b->at;
    ret->fd = fd;
    ret->bytes = file->bytes;
    ret->inside = parts;
    return 0;
}
