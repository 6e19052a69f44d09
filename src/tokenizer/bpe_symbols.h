/* bpe_symbols.h - a piece while it is merged, for bpe.c, bpe_long.c and their test. */
#ifndef PLATEAU_TOKENIZER_BPE_SYMBOLS_H
#define PLATEAU_TOKENIZER_BPE_SYMBOLS_H

#include "tokenizer/bpe.h"

#define RANK_NONE UINT32_MAX

struct bpe_slot {
    uint32_t left, right;
    uint32_t merged;
    uint32_t rank_plus_1; /* 0: empty */
};

struct bpe_symbol {
    uint32_t id;
    uint32_t rank; /* rank of the merge with the next symbol; RANK_NONE: cannot be, or this symbol is gone */
    uint32_t previous, next; /* positions; the first has previous == count, the last next == count */
    uint32_t chain_previous,
        chain_next; /* bpe_long.c's; here, so that one line of the cache has all of a symbol */
};

/* A binary heap; the smallest item is on top. The array is the caller's and large enough. */
struct bpe_heap {
    uint64_t *items;
    size_t count;
};

static inline void bpe_heap_sink(struct bpe_heap *h, size_t at)
{
    uint64_t item = h->items[at];
    for (size_t child; (child = 2 * at + 1) < h->count; at = child) {
        if (child + 1 < h->count && h->items[child + 1] < h->items[child])
            child++;
        if (item <= h->items[child])
            break;
        h->items[at] = h->items[child];
    }
    h->items[at] = item;
}

static inline void bpe_heap_put(struct bpe_heap *h, uint64_t item)
{
    size_t at = h->count++;
    for (size_t parent; at > 0 && item < h->items[parent = (at - 1) / 2]; at = parent)
        h->items[at] = h->items[parent];
    h->items[at] = item;
}

static inline uint64_t bpe_heap_take(struct bpe_heap *h)
{
    uint64_t item = h->items[0];
    h->items[0] = h->items[--h->count];
    if (h->count)
        bpe_heap_sink(h, 0);
    return item;
}

/* The pair's slot, or the empty one where it would go. Not seeded: the pairs are the model's, not a
 * client's. */
static inline struct bpe_slot *bpe_find(const struct bpe *b, uint32_t left, uint32_t right)
{
    uint64_t mask = ((uint64_t)1 << b->slots_log2) - 1;
    uint64_t mixed = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15ull;
    mixed ^= mixed >> 32;
    for (uint64_t i = mixed * 0x9E3779B97F4A7C15ull >> (64 - b->slots_log2);; i++) {
        struct bpe_slot *s = &b->slots[i & mask];
        if (s->rank_plus_1 == 0 || (s->left == left && s->right == right))
            return s;
    }
}

/* Symbol `at` of the piece; its rank is not known yet. */
static inline struct bpe_symbol bpe_symbol_of(const struct bpe *b, const struct bpe_piece *p, uint32_t at)
{
    return (struct bpe_symbol){.id = p->ids ? p->ids[at] : b->byte_ids[(unsigned char)p->bytes[at]],
                               .rank = RANK_NONE,
                               .previous = at ? at - 1 : p->count,
                               .next = at + 1};
}

/* Looks up the merge of the symbol at `at` with its next one. */
static inline void bpe_symbol_rank(const struct bpe *b, struct bpe_symbol *symbols, uint32_t at,
                                   uint32_t count)
{
    struct bpe_symbol *s = &symbols[at];
    /* RANK_NONE is what an empty slot's 0 becomes. */
    s->rank = s->next < count ? bpe_find(b, s->id, symbols[s->next].id)->rank_plus_1 - 1 : RANK_NONE;
}

/* Merges the symbol at `at` with its next one, which is gone then, and looks up the two pairs that this
 * makes. */
static inline void bpe_symbol_join(const struct bpe *b, struct bpe_symbol *symbols, uint32_t at,
                                   uint32_t count)
{
    struct bpe_symbol *s = &symbols[at];
    struct bpe_symbol *gone = &symbols[s->next];
    s->id = bpe_find(b, s->id, gone->id)->merged;
    s->next = gone->next;
    gone->rank = RANK_NONE;
    if (s->next < count)
        symbols[s->next].previous = at;
    bpe_symbol_rank(b, symbols, at, count);
    if (s->previous < count)
        bpe_symbol_rank(b, symbols, s->previous, count);
}

/* bpe_encode_piece() in its two ways, each for pieces of any length; `scratch` is not rewound. */
int bpe_encode_short(const struct bpe *b, struct arena *scratch, const struct bpe_piece *piece,
                     struct bpe_ids *out);
int bpe_encode_long(const struct bpe *b, struct arena *scratch, const struct bpe_piece *piece,
                    const struct wanted *w, struct bpe_ids *out);

#endif
