/* small_file.c - the size is read first, so a file that grows meanwhile is cut; one that shrinks is
 * refused. */
#include "base/files/small_file.h"

#include "base/files/regular_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int small_file_read_open(const struct regular_file *from, const char *path, size_t bytes_max,
                         struct small_file *ret, struct err *e)
{
    if (from->bytes > bytes_max)
        return err_set(e, -EFBIG, "%s is larger than %zu bytes", path, bytes_max);
    struct small_file f = {
        .bytes = malloc((size_t)from->bytes + 1), .len = (size_t)from->bytes, .mode = from->mode};
    if (!f.bytes)
        return err_set(e, -ENOMEM, "%s: no memory for it", path);
    int r = regular_file_read(from, 0, f.bytes, f.len, e);
    if (r < 0) {
        small_file_done(&f);
        return err_prefix(e, r, "%s", path);
    }
    f.bytes[f.len] = 0;
    *ret = f;
    return 0;
}

int small_file_read(const char *path, size_t bytes_max, struct small_file *ret, struct err *e)
{
    struct regular_file f;
    int r = regular_file_open(path, &f, e);
    if (r < 0)
        return r;
    r = small_file_read_open(&f, path, bytes_max, ret, e);
    regular_file_close(&f);
    return r;
}

void small_file_done(struct small_file *f)
{
    if (f->bytes)
        explicit_bzero(f->bytes, f->len);
    free(f->bytes);
    *f = (struct small_file){0};
}
