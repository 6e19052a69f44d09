/* gguf_head.c - heads are read in pieces that double until the head is whole. */
#include "gguf/gguf_head.h"

#include "base/check.h"

#include <errno.h>

#define KEYS_BYTES_MAX ((size_t)GGUF_KEYS_MAX * 128)

/* The first `len` bytes of the file as a head. -EAGAIN: it is longer. */
static int read_first(struct gguf_head *h, size_t len, struct err *e)
{
    char *text = arena_alloc(h->arena, len);
    if (!text)
        return err_set(e, -ENOMEM, "no memory left for %zu bytes of its head", len);
    int r = regular_file_read(h->at, 0, text, len, e);
    return r < 0 ? r : gguf_parse(h->arena, (struct slice){text, len}, h->at->bytes, &h->head, e);
}

int gguf_head_read(const struct regular_file *at, struct account *account, struct gguf_head *ret,
                   struct err *e)
{
    struct gguf_head h = {.at = at};
    struct charge charge = account ? account_charge(account) : (struct charge){0};
    /* The text, the table of tensors, that of keys. */
    const size_t most = (size_t)MIN_OF(at->bytes, (uint64_t)GGUF_HEAD_BYTES_MAX);
    struct arena_opts opts = {.bytes_max = 5 * most + KEYS_BYTES_MAX, .charge = account ? &charge : NULL};
    int r = arena_create(&opts, &h.arena);
    if (r < 0)
        return err_set(e, r, "no memory left to read its head");
    for (size_t len = MIN_OF(most, GGUF_FIRST_READ);; len = MIN_OF(most, 2 * len)) {
        size_t mark = arena_mark(h.arena);
        r = read_first(&h, len, e);
        if (r != -EAGAIN)
            break;
        ASSERT(len < most);
        arena_rewind(h.arena, mark);
    }
    if (r < 0)
        gguf_head_done(&h);
    else
        *ret = h;
    return r;
}

void gguf_head_done(struct gguf_head *h)
{
    arena_free(h->arena);
    *h = GGUF_HEAD_NONE;
}
