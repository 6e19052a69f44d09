/* Any bytes as a packed file's table and as its description: no part lies outside of the file, and a
 * table is written as it was read. The first 8 bytes of the input are the file's length. */
#include "base/buf.h"
#include "base/check.h"
#include "base/files/bundle.h"
#include "model/config/json_read.h"
#include "weights/model_json.h"
#include "model/load/packed.h"

static void check_file(const struct bundle_file *f, uint64_t table_at, struct buf *again)
{
    uint64_t end = 0;
    ASSERT(f->name[0] && f->name[0] != '/' && !strstr(f->name, ".."));
    bundle_put_file(again, f->name, f->bytes, f->part_count);
    for (uint32_t i = 0; i < f->part_count; i++) {
        const struct file_part *p = &f->parts[i];
        ASSERT(p->bytes > 0 && p->from >= end && p->from + p->bytes <= f->bytes);
        ASSERT(p->at >= BUNDLE_PAGE && p->at + p->bytes <= table_at);
        end = p->from + p->bytes;
        bundle_put_part(again, p);
    }
}

static void try_table(struct slice table, uint64_t table_at)
{
    struct bundle b;
    struct buf again;
    struct err e = {{0}};
    int r = bundle_parse_table(table, table_at, &b, &e);
    ASSERT(r == 0 || e.text[0]);
    if (r < 0)
        return;
    buf_init(&again, table.len, NULL);
    bundle_put_count(&again, b.file_count);
    for (uint32_t i = 0; i < b.file_count; i++) {
        ASSERT(bundle_find(&b, b.files[i].name));
        check_file(&b.files[i], table_at, &again);
    }
    ASSERT(!again.error && slice_eq(buf_slice(&again), table));
    buf_done(&again);
    bundle_free(&b);
}

/* The page of such a table is read; with another byte the parser refuses it. */
static void try_page(struct slice table, uint64_t table_at)
{
    char page[BUNDLE_PAGE];
    uint64_t at, bytes;
    struct err e = {{0}};
    bundle_make_page(table, table_at, page);
    const bool fits = table.len >= 4;
    ASSERT((bundle_parse_page(page, table_at + table.len, &at, &bytes, &e) == 0) == fits);
    ASSERT(!fits || (at == table_at && bytes == table.len));
    page[table_at % BUNDLE_PAGE] ^= 4;
    ASSERT(bundle_parse_page(page, table_at + table.len, &at, &bytes, &e) < 0 && e.text[0]);
}

static void try_about(struct slice text)
{
    struct packed_about a;
    struct err e = {{0}};
    json_t *root;
    if (model_json_parse(text, "about", &root, &e) < 0)
        return;
    int r = packed_about_read(root, &a, &e);
    ASSERT(r == 0 || e.text[0]);
    json_decref(root);
    json_t *again = r == 0 ? packed_about_json(&a) : NULL;
    json_decref(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t table_at = 0;
    try_about((struct slice){(const char *)data, size});
    if (size < 8)
        return 0;
    memcpy(&table_at, data, 8);
    table_at = BUNDLE_PAGE + (table_at & 0xffffffffff);
    const struct slice table = {(const char *)data + 8, size - 8};
    try_table(table, table_at);
    try_page(table, table_at);
    return 0;
}
