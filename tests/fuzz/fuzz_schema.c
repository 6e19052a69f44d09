/* JSON Schemas. A schema, a zero byte, and an instance. Invariants: no crash; every refusal has a
 * message; the compiler ends soon; ordering an instance keeps its value. */
#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/wanted.h"
#include "schema/schema.h"

#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_order(const json_t *schema, const struct schema_opts *opts, const char *text, size_t len)
{
    struct err e = {{0}};
    json_t *instance = json_loadb(text, len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL), *ordered;
    if (instance && schema_order(schema, opts, instance, &ordered, &e) == 0) {
        struct buf out;
        buf_init(&out, (size_t)16 << 20, NULL);
        schema_write(&out, ordered);
        ASSERT(json_object_size(ordered) == json_object_size(instance));
        ASSERT(json_array_size(ordered) == json_array_size(instance));
        buf_done(&out);
        json_decref(ordered);
    }
    json_decref(instance);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *end = size ? memchr(text, 0, size) : NULL;
    size_t len = end ? (size_t)(end - text) : size;
    json_t *schema = size ? json_loadb(text, len, JSON_DECODE_ANY, NULL) : NULL;
    struct grammar_builder *b = NULL;
    struct grammar *g = NULL;
    struct err e = {{0}};
    sym_id start;
    if (!schema)
        return 0;
    struct wanted wanted = {.deadline_ns = clock_now_ns() + 200 * NS_PER_MS};
    struct schema_opts opts = {.wanted = &wanted};
    ASSERT(grammar_builder_create(NULL, NULL, &b) == 0);
    int r = schema_compile(b, schema, &opts, &start, &e);
    if (r == 0)
        r = grammar_finish(b, start, &g, &e);
    ASSERT(r == 0 || e.text[0]);
    if (end)
        check_order(schema, &opts, end + 1, size - len - 1);
    grammar_free(g);
    grammar_builder_free(b);
    json_decref(schema);
    return 0;
}
