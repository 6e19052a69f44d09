/* unigram.c - the best way to each byte, from the left (Viterbi); then back from the end.
 *
 * Sums are of doubles in the reference's order, and the first of equal ways wins, as there: ties are common
 * and decide ids. Unknown characters in a row are one token. */
#include "tokenizer/unigram.h"

#include "tokenizer/bpe.h"

#include "base/check.h"
#include "base/wanted.h"
#include "unicode/utf8.h"

#include <errno.h>

struct way {
    double score;
    uint32_t from; /* UINT32_MAX: no token ends here */
    uint32_t id;
};

struct search {
    const struct unigram *u;
    struct slice text;
    struct way *ways; /* [text.len + 1] */
};

static void consider(struct search *s, size_t from, size_t end, double score, uint32_t id)
{
    struct way *to = &s->ways[end];
    ASSERT(from < end && end <= s->text.len);
    score += s->ways[from].score;
    if (to->from == UINT32_MAX || score > to->score)
        *to = (struct way){score, (uint32_t)from, id};
}

/* All tokens that start at `from`. */
static void extend(struct search *s, size_t from, size_t char_end)
{
    const struct unigram *u = s->u;
    bool single = false;
    uint32_t node = TOKEN_TRIE_ROOT;
    ASSERT(from < char_end && char_end <= s->text.len && s->ways[from].from != UINT32_MAX);
    for (size_t at = from; at < s->text.len;) {
        node = token_trie_step(&u->trie, node, (unsigned char)s->text.ptr[at++]);
        if (node == TOKEN_TRIE_NONE)
            break;
        uint32_t id = u->trie.tokens[node];
        if (id == TOKEN_TRIE_NONE)
            continue;
        consider(s, from, at, u->scores[id], id);
        single = single || at == char_end;
    }
    if (!single)
        consider(s, from, char_end, u->unknown_score, u->unknown);
}

static int put_unknown(const struct search *s, size_t from, size_t end, struct bpe_ids *out)
{
    const struct unigram *u = s->u;
    struct slice text = slice_sub(s->text, from, end - from);
    uint32_t id;
    int r = 0;
    bool bytes = true;
    ASSERT(from < end && end <= s->text.len);
    if (hash_map_get(u->by_text, text, &id))
        return bpe_ids_put(out, id);
    for (size_t i = 0; i < text.len && bytes; i++)
        bytes = u->bytes[(unsigned char)text.ptr[i]] != UNIGRAM_NONE;
    if (!bytes)
        return u->unknown == UNIGRAM_NONE ? -EINVAL : bpe_ids_put(out, u->unknown);
    for (size_t i = 0; i < text.len && r == 0; i++)
        r = bpe_ids_put(out, u->bytes[(unsigned char)text.ptr[i]]);
    return r;
}

/* Turns the links of the best row around: `from` becomes the end of the token that starts at a place. */
static void turn(struct search *s)
{
    uint32_t later = 0;
    for (uint32_t end = (uint32_t)s->text.len, from; end > 0; end = from) {
        from = s->ways[end].from;
        ASSERT(from < end);
        s->ways[end].from = later;
        later = end;
    }
    s->ways[0].from = later;
}

static int give(const struct search *s, const struct wanted *w, struct bpe_ids *out)
{
    int r = 0;
    size_t look = 0;
    for (size_t from = 0, end; from < s->text.len && r == 0; from = end) {
        end = s->ways[from].from;
        ASSERT(from < end && end <= s->text.len);
        uint32_t id = s->ways[end].id;
        r = wanted_pass(w, from, &look);
        if (id != s->u->unknown) {
            r = r < 0 ? r : bpe_ids_put(out, id);
            continue;
        }
        while (end < s->text.len && s->ways[s->ways[end].from].id == id)
            end = s->ways[end].from;
        r = r < 0 ? r : put_unknown(s, from, end, out);
    }
    return r;
}

int unigram_encode(const struct unigram *u, struct arena *scratch, struct slice piece, const struct wanted *w,
                   struct bpe_ids *out)
{
    size_t mark = arena_mark(scratch), look = 0;
    struct search s = {.u = u, .text = piece, .ways = ARENA_ARRAY(scratch, struct way, piece.len + 1)};
    uint32_t code;
    int r = s.ways ? 0 : -ENOMEM;
    for (size_t i = 0; i <= piece.len && r == 0; i++)
        s.ways[i] = (struct way){.from = i ? UINT32_MAX : 0};
    for (size_t from = 0, end; from < piece.len && r == 0; from = end) {
        end = from + utf8_next(piece.ptr + from, &code);
        r = wanted_pass(w, from, &look);
        extend(&s, from, end);
    }
    if (r == 0) {
        turn(&s);
        r = give(&s, w, out);
    }
    arena_rewind(scratch, mark);
    return r;
}
