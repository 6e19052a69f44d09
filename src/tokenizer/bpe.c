/* bpe.c - a linked list of symbols and a heap of candidate merges; chains of candidates instead of the heap
 * in long pieces.
 *
 * Candidates are (rank, position) in one 64-bit number, so the smallest is the next merge. A symbol remembers
 * the rank of its pair with the next symbol. A candidate whose rank differs is stale (one of its two symbols
 * has been merged since) and is dropped when it surfaces. Every merge takes one candidate and adds at most
 * two, and the heap starts with at most n - 1, so 2 n places are enough. Scanning all pairs for the lowest
 * rank at every step would be simpler and is quadratic: a megabyte of one letter would take hours.
 *
 * A heap of millions misses the processor's cache at each of its twenty levels. Long pieces (bpe_long.c) use
 * no heap. */
#include "tokenizer/bpe.h"

#include "tokenizer/bpe_symbols.h"

#include "base/check.h"

#include <errno.h>

/* Pieces up to this many bytes (nearly all: words) live on the stack, 2 KiB. */
#define BYTES_ON_STACK 64
/* Up to this many the heap stays in the cache, and a table of all ranks would cost more than it saves. */
#define HEAP_BYTES_MAX 4096

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

void bpe_add(struct bpe *b, const struct bpe_merge *merge)
{
    ASSERT(merge->rank < RANK_NONE);
    b->ranks = MAX_OF(b->ranks, merge->rank + 1);
    *bpe_find(b, merge->left, merge->right) =
        (struct bpe_slot){merge->left, merge->right, merge->merged, merge->rank + 1};
}

/* ---- short pieces ---- */

static void symbols_init(const struct bpe *b, const struct bpe_piece *piece, struct bpe_symbol *symbols,
                         struct bpe_heap *heap)
{
    ASSERT(heap->count == 0);
    uint32_t count = piece->count;
    for (uint32_t i = 0; i < count; i++)
        symbols[i] = bpe_symbol_of(b, piece, i);
    for (uint32_t i = 0; i < count; i++) {
        bpe_symbol_rank(b, symbols, i, count);
        if (symbols[i].rank != RANK_NONE)
            heap->items[heap->count++] = (uint64_t)symbols[i].rank << 32 | i;
    }
    for (size_t i = heap->count / 2; i-- > 0;)
        bpe_heap_sink(heap, i);
}

/* Merges the symbol at `at` with its next one and enters the two pairs this makes. */
static void symbols_merge(const struct bpe *b, struct bpe_symbol *symbols, uint32_t at, uint32_t count,
                          struct bpe_heap *heap)
{
    ASSERT(at < count);
    bpe_symbol_join(b, symbols, at, count);
    if (symbols[at].rank != RANK_NONE)
        bpe_heap_put(heap, (uint64_t)symbols[at].rank << 32 | at);
    uint32_t before = symbols[at].previous;
    if (before < count && symbols[before].rank != RANK_NONE)
        bpe_heap_put(heap, (uint64_t)symbols[before].rank << 32 | before);
}

int bpe_encode_short(const struct bpe *b, struct arena *scratch, const struct bpe_piece *piece,
                     struct bpe_ids *out)
{
    struct bpe_symbol symbols_small[BYTES_ON_STACK], *symbols = symbols_small;
    uint64_t items_small[2 * BYTES_ON_STACK];
    struct bpe_heap heap = {.items = items_small};
    uint32_t count = piece->count;
    if (count > BYTES_ON_STACK) {
        symbols = ARENA_ARRAY(scratch, struct bpe_symbol, count);
        heap.items = ARENA_ARRAY(scratch, uint64_t, (size_t)count * 2);
        if (!symbols || !heap.items)
            return -ENOMEM;
    }
    symbols_init(b, piece, symbols, &heap);
    while (heap.count) {
        uint64_t next = bpe_heap_take(&heap);
        uint32_t at = (uint32_t)next;
        if (symbols[at].rank == next >> 32)
            symbols_merge(b, symbols, at, count, &heap);
    }
    int r = 0;
    for (uint32_t i = 0; i < count && r == 0; i = symbols[i].next)
        r = bpe_ids_put(out, symbols[i].id);
    return r;
}

int bpe_encode_piece(const struct bpe *b, struct arena *scratch, const struct bpe_piece *piece,
                     const struct wanted *w, struct bpe_ids *out)
{
    ASSERT(piece->count < (uint32_t)1 << 31);
    size_t mark = arena_mark(scratch);
    int r = piece->count <= HEAP_BYTES_MAX ? bpe_encode_short(b, scratch, piece, out)
                                           : bpe_encode_long(b, scratch, piece, w, out);
    arena_rewind(scratch, mark);
    return r;
}

/* The piece without bytes that have no token; in `scratch`. */
static int fill_gaps(const struct bpe *b, struct arena *scratch, struct slice piece, struct bpe_piece *ret)
{
    char *kept = arena_alloc(scratch, MAX_OF(piece.len, 1u));
    ASSERT(b->gaps);
    if (!kept)
        return -ENOMEM;
    *ret = (struct bpe_piece){.bytes = kept};
    for (size_t i = 0; i < piece.len; i++)
        if (b->byte_ids[(unsigned char)piece.ptr[i]] != BPE_NONE)
            kept[ret->count++] = piece.ptr[i];
    return 0;
}

int bpe_encode(const struct bpe *b, struct arena *scratch, struct slice piece, const struct wanted *w,
               struct bpe_ids *out)
{
    ASSERT(piece.len < (size_t)1 << 31);
    struct bpe_piece p = {piece.ptr, NULL, (uint32_t)piece.len};
    size_t mark = arena_mark(scratch);
    int r = b->gaps ? fill_gaps(b, scratch, piece, &p) : 0;
    if (r == 0)
        r = bpe_encode_piece(b, scratch, &p, w, out);
    arena_rewind(scratch, mark);
    return r;
}
