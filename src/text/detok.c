/* detok.c - joins the held bytes with the new ones that a character can need; the rest needs no copy. */
#include "text/detok.h"

#include "base/check.h"
#include "text/utf8.h"

void detok_init(struct detok *d, const struct tokenizer *t, bool skip_special)
{
    *d = (struct detok){.tokenizer = t, .skip_special = skip_special};
}

static void detok_hold(struct detok *d, struct slice tail)
{
    ASSERT(tail.len <= sizeof(d->tail));
    if (tail.len)
        memcpy(d->tail, tail.ptr, tail.len);
    d->held = (uint8_t)tail.len;
}

/* Completes or breaks the held character with the first bytes of `s`, and returns the rest of `s`. */
static struct slice detok_join(struct detok *d, struct slice s, struct buf *out)
{
    char joint[UTF8_BYTES_MAX];
    size_t more = MIN_OF(s.len, sizeof(joint) - d->held);
    memcpy(joint, d->tail, d->held);
    memcpy(joint + d->held, s.ptr, more);
    struct slice both = {joint, d->held + more};
    size_t left = utf8_put_decided(out, both);
    if (left > more) {
        /* Still the same character: `s` was too short to end it. */
        ASSERT(more == s.len);
        detok_hold(d, both);
        return slice_sub(s, s.len, 0);
    }
    d->held = 0;
    return slice_sub(s, more - left, s.len);
}

void detok_push(struct detok *d, uint32_t id, struct buf *out)
{
    if (d->skip_special && tokenizer_is_special(d->tokenizer, id))
        return;
    struct slice s = tokenizer_token_bytes(d->tokenizer, id);
    if (d->held && s.len)
        s = detok_join(d, s, out);
    if (s.len)
        detok_hold(d, slice_sub(s, s.len - utf8_put_decided(out, s), s.len));
}

void detok_flush(struct detok *d, struct buf *out)
{
    if (d->held)
        buf_puts(out, UTF8_REPLACEMENT);
    d->held = 0;
}

int tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t count, bool skip_special,
                     struct buf *ret)
{
    struct detok d;
    detok_init(&d, t, skip_special);
    for (size_t i = 0; i < count; i++)
        detok_push(&d, ids[i], ret);
    detok_flush(&d, ret);
    return ret->error;
}
