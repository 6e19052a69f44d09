/* bpe_long.c - merges of a long piece, rank by rank.
 *
 * The candidates of one rank are a chain through the symbols, and the ranks are taken in ascending order. A
 * rank's chain is copied out, sorted by position and merged from left to right. Nearly all new candidates
 * have a higher rank, since a merge of two tokens follows the merges that make them, and join a later chain.
 * Tables in which several merges make one token may give a candidate of a lower rank. It goes to a heap that
 * is checked before each merge, so the order is the definition's for every table.
 *
 * Symbols near each other are touched together, so this takes half the processor time of one heap over all
 * candidates: four million letters of "abab..." 0.36 s instead of 0.8, four million random letters 1.0
 * instead of 1.4. A chain's candidates come in ascending runs, one from each rank that made some, so a merge
 * sort has little to do. */
#include "tokenizer/bpe_symbols.h"

#include "base/check.h"
#include "base/none.h"

#include <errno.h>
#include <string.h>

#define OUT (UINT32_MAX - 1) /* link of a symbol in no chain */

struct merging {
    const struct bpe *b;
    struct arena *scratch;
    const struct wanted *wanted;
    uint32_t count;             /* bytes of the piece */
    struct bpe_symbol *symbols; /* [count] */
    uint32_t *heads;            /* [b->ranks], the position entered last; NONE: the chain is empty */
    uint32_t *open, *spare;     /* [count], the chain that is merged now */
    uint32_t rank;              /* its rank */
    struct bpe_heap early;      /* candidates of that rank or a lower one that are not in `open` */
    size_t early_max;
    size_t merges, look; /* merges done; count at which cancellation is polled next */
};

/* ---- chains ---- */

static void chain_enter(struct merging *m, uint32_t at)
{
    ASSERT(m->symbols[at].rank < m->b->ranks);
    uint32_t *head = &m->heads[m->symbols[at].rank];
    m->symbols[at].chain_previous = NONE;
    m->symbols[at].chain_next = *head;
    if (*head != NONE)
        m->symbols[*head].chain_previous = at;
    *head = at;
}

/* Before the symbol's rank changes. */
static void chain_leave(struct merging *m, uint32_t at)
{
    struct bpe_symbol *s = &m->symbols[at];
    if (s->chain_previous == OUT)
        return;
    if (s->chain_previous == NONE)
        m->heads[s->rank] = s->chain_next;
    else
        m->symbols[s->chain_previous].chain_next = s->chain_next;
    if (s->chain_next != NONE)
        m->symbols[s->chain_next].chain_previous = s->chain_previous;
    s->chain_previous = OUT;
}

/* Empties the chain of m->rank into `open`, in the order in which it was entered. */
static uint32_t chain_take(struct merging *m)
{
    uint32_t n = 0;
    for (uint32_t at = m->heads[m->rank]; at != NONE; at = m->symbols[at].chain_next) {
        ASSERT(n < m->count);
        m->open[n++] = at;
        m->symbols[at].chain_previous = OUT;
    }
    m->heads[m->rank] = NONE;
    for (uint32_t i = 0; i < n / 2; i++) {
        uint32_t kept = m->open[i];
        m->open[i] = m->open[n - 1 - i];
        m->open[n - 1 - i] = kept;
    }
    return n;
}

/* `spare` has as many places. */
static void sort(uint32_t *items, uint32_t *spare, uint32_t n)
{
    uint32_t half = n / 2, i = 0, j = half;
    if (n < 2)
        return;
    sort(items, spare, half);
    sort(items + half, spare, n - half);
    if (items[half - 1] <= items[half])
        return;
    for (uint32_t k = 0; k < n; k++)
        spare[k] = j == n || (i < half && items[i] <= items[j]) ? items[i++] : items[j++];
    memcpy(items, spare, n * sizeof(*items));
}

/* ---- merges ---- */

/* Its only known bound is the number of all candidates, which only degenerate tables approach: it grows. */
static int early_put(struct merging *m, uint64_t item)
{
    if (m->early.count == m->early_max) {
        size_t want = MAX_OF(m->early_max * 2, (size_t)1024);
        uint64_t *items = ARENA_ARRAY(m->scratch, uint64_t, want);
        if (!items)
            return -ENOMEM;
        if (m->early.count)
            memcpy(items, m->early.items, m->early.count * sizeof(*items));
        m->early.items = items;
        m->early_max = want;
    }
    bpe_heap_put(&m->early, item);
    return 0;
}

static int enter(struct merging *m, uint32_t at)
{
    uint32_t rank = m->symbols[at].rank;
    if (rank == RANK_NONE)
        return 0;
    if (rank <= m->rank)
        return early_put(m, (uint64_t)rank << 32 | at);
    chain_enter(m, at);
    return 0;
}

static int merge(struct merging *m, uint32_t at)
{
    ASSERT(at < m->count);
    uint32_t before = m->symbols[at].previous;
    int r = wanted_pass(m->wanted, m->merges++, &m->look);
    if (r < 0)
        return r;
    chain_leave(m, at);
    chain_leave(m, m->symbols[at].next);
    if (before < m->count)
        chain_leave(m, before);
    bpe_symbol_join(m->b, m->symbols, at, m->count);
    /* `before` first: each rank's chain then gets ascending positions. */
    if (before < m->count)
        r = enter(m, before);
    return r < 0 ? r : enter(m, at);
}

/* Merges the heap's candidates before `limit`. */
static int merge_early(struct merging *m, uint64_t limit)
{
    int r = 0;
    while (r == 0 && m->early.count && m->early.items[0] < limit) {
        uint64_t next = bpe_heap_take(&m->early);
        if (m->symbols[(uint32_t)next].rank == next >> 32)
            r = merge(m, (uint32_t)next);
    }
    return r;
}

static int merge_rank(struct merging *m)
{
    ASSERT(m->rank < m->b->ranks);
    uint32_t n = chain_take(m);
    int r = 0;
    sort(m->open, m->spare, n);
    for (uint32_t i = 0; i < n && r == 0; i++) {
        uint32_t at = m->open[i];
        r = merge_early(m, (uint64_t)m->rank << 32 | at);
        if (r == 0 && m->symbols[at].rank == m->rank)
            r = merge(m, at);
    }
    return r < 0 ? r : merge_early(m, UINT64_MAX);
}

/* ---- a piece ---- */

static int begin(struct merging *m, const struct bpe_piece *piece)
{
    size_t look = 0;
    m->symbols = ARENA_ARRAY(m->scratch, struct bpe_symbol, m->count);
    m->heads = ARENA_ARRAY(m->scratch, uint32_t, m->b->ranks);
    m->open = ARENA_ARRAY(m->scratch, uint32_t, m->count);
    m->spare = ARENA_ARRAY(m->scratch, uint32_t, m->count);
    if (!m->symbols || !m->heads || !m->open || !m->spare)
        return -ENOMEM;
    for (uint32_t i = 0; i < m->b->ranks; i++)
        m->heads[i] = NONE;
    for (uint32_t i = 0; i < m->count; i++) {
        int r = wanted_pass(m->wanted, i, &look);
        if (r < 0)
            return r;
        m->symbols[i] = bpe_symbol_of(m->b, piece, i);
        m->symbols[i].chain_previous = OUT;
        if (i == 0)
            continue;
        bpe_symbol_rank(m->b, m->symbols, i - 1, m->count);
        if (m->symbols[i - 1].rank != RANK_NONE)
            chain_enter(m, i - 1);
    }
    return 0;
}

int bpe_encode_long(const struct bpe *b, struct arena *scratch, const struct bpe_piece *piece,
                    const struct wanted *w, struct bpe_ids *out)
{
    struct merging m = {.b = b, .scratch = scratch, .wanted = w, .count = piece->count};
    size_t look = 0;
    int r = begin(&m, piece);
    for (; r == 0 && m.rank < b->ranks; m.rank++)
        if (m.heads[m.rank] != NONE)
            r = merge_rank(&m);
    for (uint32_t i = 0; i < m.count && r == 0; i = m.symbols[i].next) {
        r = wanted_pass(w, i, &look);
        if (r == 0)
            r = bpe_ids_put(out, m.symbols[i].id);
    }
    return r;
}
