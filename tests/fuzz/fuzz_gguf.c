/* Any bytes as a GGUF file: every tensor lies inside, after the head, and every value of the metadata can be
 * walked. A part of the head is refused or asks for more. */
#include "gguf/gguf.h"

#include "base/check.h"

#include <errno.h>
#include <math.h>

static size_t walk(const struct gguf_value *v, struct slice file)
{
    struct gguf_walk w = {.value = v};
    struct gguf_item item;
    size_t count = 0;
    ASSERT(v->bytes.ptr >= file.ptr && v->bytes.ptr + v->bytes.len <= file.ptr + file.len);
    for (; gguf_next(&w, &item); count++) {
        const struct slice s = item.string;
        ASSERT(item.kind != GGUF_IS_STRING || (s.ptr >= file.ptr && s.ptr + s.len <= file.ptr + file.len));
        ASSERT(!item.whole || (!isnan(item.real) && item.kind == GGUF_IS_NUMBER));
    }
    ASSERT(w.at == v->bytes.len);
    return count;
}

static void check(const struct gguf *g, struct slice file)
{
    ASSERT(g->head_bytes >= GGUF_LEAST_BYTES && g->head_bytes <= file.len);
    for (uint32_t i = 0; i < g->pair_count; i++)
        ASSERT(walk(&g->pairs[i].value, file) == g->pairs[i].value.count);
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        ASSERT(t->name.len > 0 && t->form && t->rank <= GGUF_RANK_MAX);
        ASSERT(t->offset >= g->head_bytes && t->offset <= file.len && t->bytes <= file.len - t->offset);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice file = {(const char *)data, size};
    struct arena *a = NULL;
    struct gguf g, part;
    struct err e = {{0}};
    if (arena_create(&(struct arena_opts){.bytes_max = (size_t)64 << 20}, &a) < 0)
        return 0;
    int r = gguf_parse(a, file, size, &g, &e);
    ASSERT(r == 0 || (r < 0 && r != -EAGAIN && e.text[0]));
    if (r == 0)
        check(&g, file);
    size_t less = size / 2;
    int half = gguf_parse(a, slice_sub(file, 0, less), size, &part, NULL);
    ASSERT(r < 0 || half == (g.head_bytes <= less ? 0 : -EAGAIN));
    arena_free(a);
    return 0;
}
