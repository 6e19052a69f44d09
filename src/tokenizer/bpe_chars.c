/* bpe_chars.c - looks up the characters, then merges tokens as bpe.c does.
 *
 * A text without a pre-tokenizer is one piece. In most vocabularies no token has a mark (U+2581) behind
 * another character, so no merge crosses the place before a mark. Words are then merged one by one, in less
 * memory. */
#include "tokenizer/bpe_chars.h"

#include "tokenizer/bpe.h"
#include "tokenizer/piece_ids.h"

#include "base/check.h"
#include "base/wanted.h"
#include "unicode/utf8.h"

#include <errno.h>

/* Stretches up to this many bytes need no scratch. */
#define BYTES_ON_STACK 64

struct symbols {
    const struct bpe_chars *c;
    uint32_t *ids; /* at most one for each byte */
    uint32_t count;
    bool unknown; /* an unknown token waits: the next one may fuse with it */
};

static void flush_unknown(struct symbols *s)
{
    if (s->unknown)
        s->ids[s->count++] = s->c->unknown;
    s->unknown = false;
}

static bool put_bytes(struct symbols *s, struct slice one)
{
    for (size_t i = 0; i < one.len; i++)
        if (s->c->bytes[(unsigned char)one.ptr[i]] == BPE_CHARS_NONE)
            return false;
    for (size_t i = 0; i < one.len; i++)
        s->ids[s->count++] = s->c->bytes[(unsigned char)one.ptr[i]];
    return true;
}

static void put_char(struct symbols *s, struct slice one)
{
    uint32_t id;
    if (hash_map_get(s->c->by_text, one, &id)) {
        flush_unknown(s);
        s->ids[s->count++] = id;
        return;
    }
    if (put_bytes(s, one) || s->c->unknown == BPE_CHARS_NONE)
        return;
    if (!s->c->fuse_unknown)
        flush_unknown(s);
    s->unknown = true;
}

static int encode_stretch(const struct bpe_chars *c, struct arena *scratch, struct slice text,
                          const struct wanted *w, struct bpe_ids *out)
{
    uint32_t small[BYTES_ON_STACK], code;
    size_t mark = arena_mark(scratch), look = 0;
    struct symbols s = {.c = c, .ids = small};
    int r = 0;
    if (text.len > BYTES_ON_STACK)
        s.ids = ARENA_ARRAY(scratch, uint32_t, text.len);
    if (!s.ids)
        return -ENOMEM;
    for (size_t i = 0, bytes; i < text.len && r == 0; i += bytes) {
        bytes = utf8_next(text.ptr + i, &code);
        put_char(&s, slice_sub(text, i, bytes));
        r = wanted_pass(w, i, &look);
    }
    flush_unknown(&s);
    ASSERT(s.count <= text.len);
    if (r == 0 && s.count)
        r = bpe_encode_piece(c->bpe, scratch, &(struct bpe_piece){NULL, s.ids, s.count}, w, out);
    arena_rewind(scratch, mark);
    return r;
}

/* The next mark that follows another character, or the end. */
static size_t stretch_end(const struct bpe_chars *c, struct slice piece, size_t from)
{
    if (c->mark.len == 0)
        return piece.len;
    while (slice_starts(slice_sub(piece, from, c->mark.len), c->mark))
        from += c->mark.len;
    size_t end = slice_find(piece, c->mark, from);
    return MIN_OF(end, piece.len);
}

int bpe_chars_encode(const struct bpe_chars *c, struct arena *scratch, struct slice piece,
                     struct piece_ids *known, const struct wanted *w, struct bpe_ids *out)
{
    int r = 0;
    for (size_t from = 0, end; from < piece.len && r >= 0; from = end) {
        end = stretch_end(c, piece, from);
        ASSERT(end > from);
        struct slice stretch = slice_sub(piece, from, end - from);
        size_t first = out->count;
        r = piece_ids_put(known, stretch, out);
        if (r != 0)
            continue;
        r = encode_stretch(c, scratch, stretch, w, out);
        if (r == 0)
            piece_ids_keep(known, stretch, out, first);
    }
    return MIN_OF(r, 0);
}
