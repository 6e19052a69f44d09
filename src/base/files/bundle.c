/* bundle.c - the format: pure parsing of the first page and of the table. */
#include "base/files/bundle.h"

#include "base/buf.h"
#include "base/check.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t bundle_check_of(const void *bytes, size_t len)
{
    return XXH3_64bits(bytes, len);
}

static uint64_t number_at(const char *bytes, size_t at, size_t len)
{
    uint64_t n = 0;
    ASSERT(len <= sizeof(n));
    memcpy(&n, bytes + at, len);
    return le64toh(n);
}

int bundle_parse_page(const char page[BUNDLE_PAGE], uint64_t file_bytes, uint64_t *table_at,
                      uint64_t *table_bytes, struct err *e)
{
    char copy[BUNDLE_PAGE];
    memcpy(copy, page, sizeof(copy));
    memset(copy + 48, 0, 8);
    if (memcmp(page, BUNDLE_MAGIC, 8) != 0)
        return err_set(e, -EINVAL, "is not a packed file");
    if (number_at(page, 48, 8) != bundle_check_of(copy, sizeof(copy)))
        return err_set(e, -EINVAL, "its first page is damaged: the checksum differs");
    if (number_at(page, 8, 4) != BUNDLE_VERSION)
        return err_set(e, -ENOTSUP, "has version %llu of the format, and %d is read: pack it again",
                       (ull)number_at(page, 8, 4), BUNDLE_VERSION);
    const uint64_t bytes = number_at(page, 16, 8), at = number_at(page, 24, 8), len = number_at(page, 32, 8);
    if (bytes != file_bytes)
        return err_set(e, -EINVAL, "was cut or grew: it has %llu bytes, and had %llu", (ull)file_bytes,
                       (ull)bytes);
    if (len < 4 || len > BUNDLE_TABLE_BYTES_MAX || at < BUNDLE_PAGE || at > bytes || bytes - at != len)
        return err_set(e, -EINVAL, "its table is outside of it");
    *table_at = at;
    *table_bytes = len;
    return 0;
}

/* ---- the table ---- */

/* The first pass counts, the second one fills. */
struct reader {
    struct slice table;
    size_t at;
    bool bad;
    uint64_t end;        /* end of the parts */
    struct bundle *into; /* NULL while counting */
    size_t name_bytes;
    uint32_t parts;
};

static uint64_t take(struct reader *r, size_t len)
{
    if (r->bad || r->table.len - r->at < len) {
        r->bad = true;
        return 0;
    }
    r->at += len;
    return number_at(r->table.ptr, r->at - len, len);
}

/* Names are relative paths without "..", so a file of a bundle is never one outside. */
static bool name_is_fine(struct slice name)
{
    if (name.len == 0 || name.len > BUNDLE_NAME_MAX || memchr(name.ptr, 0, name.len) || name.ptr[0] == '/')
        return false;
    for (size_t i = 0; i + 1 < name.len; i++)
        if (name.ptr[i] == '.' && name.ptr[i + 1] == '.')
            return false;
    return true;
}

static struct slice take_name(struct reader *r)
{
    const size_t len = (size_t)take(r, 2);
    struct slice name = {r->table.ptr + r->at, len};
    if (r->bad || r->table.len - r->at < len || !name_is_fine(name)) {
        r->bad = true;
        return SLICE("");
    }
    r->at += len;
    return name;
}

static void take_part(struct reader *r, uint64_t file_bytes, uint64_t *least)
{
    const struct file_part p = {
        .from = take(r, 8), .bytes = take(r, 8), .at = take(r, 8), .check = take(r, 8)};
    r->bad = r->bad || p.bytes == 0 || p.bytes > BUNDLE_PART_BYTES_MAX || p.from < *least ||
             p.from > file_bytes || p.bytes > file_bytes - p.from || p.at < BUNDLE_PAGE || p.at > r->end ||
             p.bytes > r->end - p.at || r->parts == BUNDLE_PARTS_MAX;
    if (r->bad)
        return;
    *least = p.from + p.bytes;
    if (r->into)
        r->into->parts[r->parts] = p;
    r->parts++;
}

static void take_file(struct reader *r, uint32_t index)
{
    const struct slice name = take_name(r);
    struct bundle_file f = {.bytes = take(r, 8), .part_count = (uint32_t)take(r, 4)};
    uint64_t least = 0;
    r->bad = r->bad || f.bytes > INT64_MAX;
    if (r->into) {
        char *copy = r->into->names + r->name_bytes;
        memcpy(copy, name.ptr, name.len);
        copy[name.len] = 0;
        f.name = copy;
        f.parts = r->into->parts + r->parts;
        r->into->files[index] = f;
    }
    r->name_bytes += name.len + 1;
    for (uint32_t i = 0; i < f.part_count && !r->bad; i++)
        take_part(r, f.bytes, &least);
}

static bool walk(struct reader *r, uint32_t *files)
{
    r->at = r->name_bytes = r->parts = 0;
    *files = (uint32_t)take(r, 4);
    r->bad = r->bad || *files > BUNDLE_FILES_MAX;
    for (uint32_t i = 0; i < *files && !r->bad; i++)
        take_file(r, i);
    return !r->bad && r->at == r->table.len;
}

int bundle_parse_table(struct slice table, uint64_t table_at, struct bundle *ret, struct err *e)
{
    struct reader r = {.table = table, .end = table_at};
    struct bundle b = {.at = REGULAR_FILE_NONE};
    if (!walk(&r, &b.file_count))
        return err_set(e, -EINVAL, "its table is not valid at byte %zu", r.at);
    b.part_count = r.parts;
    b.files = calloc((size_t)b.file_count + 1, sizeof(*b.files));
    b.parts = calloc((size_t)b.part_count + 1, sizeof(*b.parts));
    b.names = malloc(r.name_bytes + 1);
    if (!b.files || !b.parts || !b.names) {
        bundle_free(&b);
        return err_set(e, -ENOMEM, "no memory left for its table");
    }
    r.into = &b;
    const bool again = walk(&r, &b.file_count);
    ASSERT(again && r.parts == b.part_count);
    *ret = b;
    return 0;
}

/* ---- writing ---- */

static void put(struct buf *to, uint64_t n, size_t len)
{
    const uint64_t little = htole64(n);
    buf_put(to, &little, len);
}

void bundle_put_count(struct buf *table, uint32_t files)
{
    ASSERT(files <= BUNDLE_FILES_MAX);
    put(table, files, 4);
}

void bundle_put_file(struct buf *table, const char *name, uint64_t bytes, uint32_t parts)
{
    ASSERT(name_is_fine(slice_of(name)) && parts <= BUNDLE_PARTS_MAX);
    put(table, strlen(name), 2);
    buf_puts(table, name);
    put(table, bytes, 8);
    put(table, parts, 4);
}

void bundle_put_part(struct buf *table, const struct file_part *part)
{
    ASSERT(part->bytes > 0 && part->bytes <= BUNDLE_PART_BYTES_MAX && part->at >= BUNDLE_PAGE);
    put(table, part->from, 8);
    put(table, part->bytes, 8);
    put(table, part->at, 8);
    put(table, part->check, 8);
}

static void set(char *page, size_t at, uint64_t n, size_t len)
{
    const uint64_t little = htole64(n);
    memcpy(page + at, &little, len);
}

void bundle_make_page(struct slice table, uint64_t table_at, char ret[BUNDLE_PAGE])
{
    ASSERT(table.len <= BUNDLE_TABLE_BYTES_MAX);
    memset(ret, 0, BUNDLE_PAGE);
    memcpy(ret, BUNDLE_MAGIC, 8);
    set(ret, 8, BUNDLE_VERSION, 4);
    set(ret, 16, table_at + table.len, 8);
    set(ret, 24, table_at, 8);
    set(ret, 32, table.len, 8);
    set(ret, 40, bundle_check_of(table.ptr, table.len), 8);
    set(ret, 48, bundle_check_of(ret, BUNDLE_PAGE), 8);
}

void bundle_free(struct bundle *b)
{
    free(b->files);
    free(b->parts);
    free(b->names);
    *b = (struct bundle){.at = REGULAR_FILE_NONE};
}

const struct bundle_file *bundle_find(const struct bundle *b, const char *name)
{
    for (uint32_t i = 0; i < b->file_count; i++)
        if (strcmp(b->files[i].name, name) == 0)
            return &b->files[i];
    return NULL;
}
