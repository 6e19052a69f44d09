/* bundle.h - one file that holds files, whole or in part, each part with its checksum.
 *
 * A packed model is a bundle: the small files of its source, the heads of the source's weight files, and
 * packed weights.
 *
 *     0     "plateau\n", 8            16  bytes of the whole file, 8      40  XXH3-64 of the table, 8
 *     8     version, 4                24  where the table begins, 8       48  XXH3-64 of the first page, this
 *    12     0, 4                      32  bytes of the table, 8               number counted as 0, 8
 *    56     zeros up to 4096
 *  4096     the parts, without gaps
 *    ...    the table, up to the end of the file: the number of files, 4; of each its name's length, 2, the
 *           name, the bytes of the file as its source has it, 8, the number of parts, 4; of each part where
 *           it begins in that file, 8, its bytes, 8, where it lies in the bundle, 8, and its XXH3-64, 8
 *
 * Numbers are little-endian. Parts of a file ascend, do not overlap, and have at most BUNDLE_PART_BYTES_MAX:
 * checking one takes as much memory. Parsing is pure; a bundle that is
 * open is constant, any thread. */
#ifndef PLATEAU_BASE_BUNDLE_H
#define PLATEAU_BASE_BUNDLE_H

#include "base/err.h"
#include "base/files/regular_file.h"
#include "base/slice.h"

#include <stdbool.h>

#define BUNDLE_MAGIC           "plateau\n"
#define BUNDLE_VERSION         1
#define BUNDLE_PAGE            4096
#define BUNDLE_PATH_BYTES      4608
#define BUNDLE_NAME_MAX        255
#define BUNDLE_FILES_MAX       8192
#define BUNDLE_PARTS_MAX       1048576 /* parts of all files together */
#define BUNDLE_PART_BYTES_MAX  ((uint64_t)16 << 20)
#define BUNDLE_TABLE_BYTES_MAX ((uint64_t)64 << 20)

struct bundle_file {
    const char *name;
    uint64_t bytes; /* bytes of the whole file, also of parts that are not here */
    const struct file_part *parts;
    uint32_t part_count;
};

struct bundle {
    struct regular_file at;
    struct bundle_file *files; /* heap, with names and parts */
    uint32_t file_count;
    struct file_part *parts;
    uint32_t part_count;
    char *names;
    uint64_t identity; /* the checksum of the table, and so of all contents */
};

uint64_t bundle_check_of(const void *bytes, size_t len);

/* The first page of a bundle of `file_bytes`: where its table lies. 0, -EINVAL (it is not a bundle, was cut,
 * or its bytes changed), -ENOTSUP (another version). */
int bundle_parse_page(const char page[BUNDLE_PAGE], uint64_t file_bytes, uint64_t *table_at,
                      uint64_t *table_bytes, struct err *e);
/* Its table, which the page's checksum has been compared with. 0, -EINVAL, -ENOMEM. bundle_free() frees what
 * `ret` has. */
int bundle_parse_table(struct slice table, uint64_t table_at, struct bundle *ret, struct err *e);
void bundle_free(struct bundle *b);

/* Writing. A table is a buffer: the number of files, then each file with its parts after it. The buffer
 * keeps a failure. */
struct buf;
void bundle_put_count(struct buf *table, uint32_t files);
void bundle_put_file(struct buf *table, const char *name, uint64_t bytes, uint32_t parts);
void bundle_put_part(struct buf *table, const struct file_part *part);
/* The first page of a bundle that ends with `table`, which begins at `table_at`. */
void bundle_make_page(struct slice table, uint64_t table_at, char ret[BUNDLE_PAGE]);

/* Whether the file begins as a bundle does. False where it cannot be read. */
bool bundle_begins(const struct regular_file *f);
/* Reads the table of an open file and takes the file over: *f is REGULAR_FILE_NONE afterwards. 0, -EINVAL,
 * -ENOTSUP, -ENOMEM, or what reading said; e does not name the file. */
int bundle_read(struct regular_file *f, struct bundle *ret, struct err *e);
/* Zeroed is fine. */
void bundle_close(struct bundle *b);
/* Reads the parts of a file and compares their checksums. 0, -EINVAL (one differs), -ENOMEM, or what reading
 * said. */
int bundle_check(const struct bundle *b, const struct bundle_file *f, struct err *e);
/* NULL: it has no such file. */
const struct bundle_file *bundle_find(const struct bundle *b, const char *name);
/* Opens the file `name` in it, after comparing its checksums; `path` is for messages. A file that is there in
 * part is read elsewhere with -ENODATA. 0, -ENOENT, -EINVAL (a checksum differs), -ENOMEM, or what the system
 * said. */
int bundle_open_file(const struct bundle *b, const char *name, const char *path, struct regular_file *ret,
                     struct err *e);

#endif
