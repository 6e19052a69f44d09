/* bpe.c - a linked list of symbols and a heap of candidate merges.
 *
 * Candidates are (rank, position) in one 64-bit number, so the smallest is the next merge. A symbol remembers the
 * rank of its pair with the next symbol; a candidate whose rank differs is stale (one of its two symbols has been merged
 * since) and is dropped when it surfaces. Every merge takes one candidate and adds at most two, and the heap begins with
 * at most n - 1, so 2 n places are enough. Scanning all pairs for the lowest rank at every step would be simpler and
 * is quadratic: a megabyte of one letter would take hours. */
#include "text/bpe.h"

#include "base/check.h"

#include <errno.h>

#define RANK_NONE UINT32_MAX
/* Pieces up to this many bytes (nearly all: words) live on the stack, 2 KiB. */
#define BYTES_ON_STACK 64

struct bpe_slot {
    uint32_t left, right;
    uint32_t merged;
    uint32_t rank_plus_1; /* 0: empty */
};

struct symbol {
    uint32_t id;
    uint32_t rank; /* of the merge with the next symbol; RANK_NONE: cannot be, or this symbol is gone */
    uint32_t previous, next; /* positions; the first has previous == count, the last next == count */
};

struct heap {
    uint64_t *items;
    size_t count;
};

int bpe_init(struct bpe *b, struct arena *a, uint32_t merges_max)
{
    uint32_t log2 = 4;
    while (((uint64_t)2 << log2) < (uint64_t)merges_max * 3)
        log2++;
    struct bpe_slot *slots = ARENA_ARRAY(a, struct bpe_slot, (size_t)1 << log2);
    if (!slots)
        return -ENOMEM;
    *b = (struct bpe){.slots_log2 = log2, .slots = slots};
    return 0;
}

/* The pair's slot, or the empty one where it would go. Not seeded: the pairs are the model's, not a client's. */
static struct bpe_slot *bpe_find(const struct bpe *b, uint32_t left, uint32_t right)
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

void bpe_add(struct bpe *b, const struct bpe_merge *merge)
{
    ASSERT(merge->rank < RANK_NONE);
    *bpe_find(b, merge->left, merge->right) =
        (struct bpe_slot){merge->left, merge->right, merge->merged, merge->rank + 1};
}

int bpe_ids_put(struct bpe_ids *out, uint32_t id)
{
    if (out->count == out->max)
        return -E2BIG;
    out->ids[out->count++] = id;
    return 0;
}

static void heap_sink(struct heap *h, size_t at)
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

static void heap_put(struct heap *h, uint64_t item)
{
    size_t at = h->count++;
    for (size_t parent; at > 0 && item < h->items[parent = (at - 1) / 2]; at = parent)
        h->items[at] = h->items[parent];
    h->items[at] = item;
}

static uint64_t heap_take(struct heap *h)
{
    uint64_t item = h->items[0];
    h->items[0] = h->items[--h->count];
    if (h->count)
        heap_sink(h, 0);
    return item;
}

/* Looks up the merge of the symbol at `at` with its next one. */
static void symbol_rank(const struct bpe *b, struct symbol *symbols, uint32_t at, uint32_t count)
{
    struct symbol *s = &symbols[at];
    /* RANK_NONE is what an empty slot's 0 becomes. */
    s->rank = s->next < count ? bpe_find(b, s->id, symbols[s->next].id)->rank_plus_1 - 1 : RANK_NONE;
}

static void symbols_init(const struct bpe *b, struct slice piece, struct symbol *symbols, struct heap *heap)
{
    uint32_t count = (uint32_t)piece.len;
    for (uint32_t i = 0; i < count; i++) {
        symbols[i].id = b->byte_ids[(unsigned char)piece.ptr[i]];
        symbols[i].previous = i ? i - 1 : count;
        symbols[i].next = i + 1;
    }
    for (uint32_t i = 0; i < count; i++) {
        symbol_rank(b, symbols, i, count);
        if (symbols[i].rank != RANK_NONE)
            heap->items[heap->count++] = (uint64_t)symbols[i].rank << 32 | i;
    }
    for (size_t i = heap->count / 2; i-- > 0;)
        heap_sink(heap, i);
}

/* Merges the symbol at `at` with its next one and enters the two pairs this makes. */
static void symbols_merge(const struct bpe *b, struct symbol *symbols, uint32_t at, uint32_t count,
                          struct heap *heap)
{
    struct symbol *s = &symbols[at];
    struct symbol *gone = &symbols[s->next];
    s->id = bpe_find(b, s->id, gone->id)->merged;
    s->next = gone->next;
    gone->rank = RANK_NONE;
    if (s->next < count)
        symbols[s->next].previous = at;
    symbol_rank(b, symbols, at, count);
    if (s->rank != RANK_NONE)
        heap_put(heap, (uint64_t)s->rank << 32 | at);
    if (s->previous < count) {
        uint32_t before = s->previous;
        symbol_rank(b, symbols, before, count);
        if (symbols[before].rank != RANK_NONE)
            heap_put(heap, (uint64_t)symbols[before].rank << 32 | before);
    }
}

int bpe_encode(const struct bpe *b, struct arena *scratch, struct slice piece, struct bpe_ids *out)
{
    ASSERT(piece.len < (size_t)1 << 31);
    struct symbol symbols_small[BYTES_ON_STACK], *symbols = symbols_small;
    uint64_t items_small[2 * BYTES_ON_STACK];
    struct heap heap = {.items = items_small};
    size_t mark = arena_mark(scratch);
    uint32_t count = (uint32_t)piece.len;
    int r = -ENOMEM;
    if (count > BYTES_ON_STACK) {
        symbols = ARENA_ARRAY(scratch, struct symbol, count);
        heap.items = ARENA_ARRAY(scratch, uint64_t, (size_t)count * 2);
        if (!symbols || !heap.items)
            goto done;
    }
    symbols_init(b, piece, symbols, &heap);
    while (heap.count) {
        uint64_t next = heap_take(&heap);
        uint32_t at = (uint32_t)next;
        if (symbols[at].rank == next >> 32)
            symbols_merge(b, symbols, at, count, &heap);
    }
    r = 0;
    for (uint32_t i = 0; i < count && r == 0; i = symbols[i].next)
        r = bpe_ids_put(out, symbols[i].id);
done:
    arena_rewind(scratch, mark);
    return r;
}
