/* detok.c - joins the held bytes with the new ones that a character can need; the rest needs no copy. */
#include "tokenizer/detok.h"

#include "tokenizer/token_decoder.h"
#include "tokenizer/tokenizer.h"

#include "base/check.h"
#include "unicode/utf8.h"

void detok_init(struct detok *d, const struct tokenizer *t, bool skip_special)
{
    *d = (struct detok){
        .tokenizer = t, .skip_special = skip_special, .strip = tokenizer_decoder(t)->strip_max};
}

void detok_continue(struct detok *d)
{
    d->started = true;
    d->strip = 0;
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
    ASSERT(d->held > 0 && d->held <= sizeof(d->tail));
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

static void push_bytes(struct detok *d, struct slice s, struct buf *out)
{
    for (; d->strip && s.len; d->strip--) {
        if (s.ptr[0] != tokenizer_decoder(d->tokenizer)->strip) {
            d->strip = 0;
            break;
        }
        s = slice_sub(s, 1, s.len);
    }
    if (d->held && s.len)
        s = detok_join(d, s, out);
    if (s.len)
        detok_hold(d, slice_sub(s, s.len - utf8_put_decided(out, s), s.len));
}

static void push_first(struct detok *d, uint32_t id, struct buf *out)
{
    const struct token_decoder *decoder = tokenizer_decoder(d->tokenizer);
    struct slice s = tokenizer_token_text(d->tokenizer, id);
    if (decoder->first == FIRST_SAME)
        s = tokenizer_token_bytes(d->tokenizer, id);
    if (decoder->first != FIRST_DROPS) {
        push_bytes(d, s, out);
        return;
    }
    for (size_t at = 0, found; at < s.len; at = found + decoder->mark.len) {
        found = MIN_OF(slice_find(s, decoder->mark, at), s.len);
        push_bytes(d, slice_sub(s, at, found - at), out);
    }
}

void detok_push(struct detok *d, uint32_t id, struct buf *out)
{
    if (!tokenizer_is_token(d->tokenizer, id) || (d->skip_special && tokenizer_is_special(d->tokenizer, id)))
        return;
    if (d->started)
        push_bytes(d, tokenizer_token_bytes(d->tokenizer, id), out);
    else
        push_first(d, id, out);
    d->started = true;
}

void detok_flush(struct detok *d, struct buf *out)
{
    if (d->held)
        buf_puts(out, UTF8_REPLACEMENT);
    detok_init(d, d->tokenizer, d->skip_special);
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
