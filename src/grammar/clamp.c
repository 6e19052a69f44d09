/* clamp.c - states that differ only in counters that no token reaches have the same mask.
 *
 * A token of n bytes passes at most n repetitions. So x{m,k} followed by anything allows the same tokens as
 * x{m,} once k is above the longest token's bytes, and m counts no further than one more than these. Without
 * that a string with a maximum length has another mask to compute at each of its characters. */
#include "grammar/grammar_vocab.h"
#include "grammar/matcher_state.h"

#include "base/check.h"
#include "rx/rx_store.h"

static rx_id clamp_repeat(struct matcher_tables *t, rx_id x)
{
    const struct rx_item *n = rx_at(t->rx, x);
    uint32_t most = t->vocab->longest + 1;
    if (n->kind != RX_K_REPEAT || (n->max == RX_UNBOUNDED && n->min <= most) || n->max <= most)
        return x;
    return rx_repeat(t->rx, n->a, MIN_OF(n->min, most), RX_UNBOUNDED);
}

/* Whether the part of a chain that a token reaches has something to clamp: most have not. */
static bool chain_changes(struct matcher_tables *t, rx_id x)
{
    uint32_t length = 0;
    for (; rx_at(t->rx, x)->kind == RX_K_CAT && length <= t->vocab->longest; length++) {
        rx_id part = rx_at(t->rx, x)->a;
        if (clamp_repeat(t, part) != part)
            return true;
        x = rx_at(t->rx, x)->b;
    }
    return clamp_repeat(t, x) != x;
}

/* All repetitions of a chain: each byte of a token is in one of them at most. */
static rx_id clamp_chain(struct matcher_tables *t, rx_id x)
{
    struct rx_store *s = t->rx;
    uint32_t from = s->list_count, length = 0;
    if (!chain_changes(t, x))
        return x;
    /* A token does not reach further; the rest stays. */
    for (; rx_at(s, x)->kind == RX_K_CAT && length <= t->vocab->longest; length++) {
        if (!rx_push(s, clamp_repeat(t, rx_at(s, x)->a)))
            return x;
        x = rx_at(s, x)->b;
    }
    rx_id made = clamp_repeat(t, x);
    for (uint32_t i = s->list_count; i-- > from;)
        made = rx_cat(s, s->list[i], made);
    s->list_count = from;
    return made;
}

static rx_id clamp(struct matcher_tables *t, rx_id x)
{
    struct rx_store *s = t->rx;
    if (rx_at(s, x)->kind != RX_K_OR)
        return clamp_chain(t, x);
    uint32_t from = s->list_count;
    for (; rx_at(s, x)->kind == RX_K_OR; x = rx_at(s, x)->b)
        if (!rx_push(s, clamp_chain(t, rx_at(s, x)->a)))
            return x;
    if (!rx_push(s, clamp_chain(t, x)))
        return x;
    return rx_or_list(s, from);
}

uint32_t clamp_state(struct matcher_tables *t, uint32_t state)
{
    uint32_t count = t->pool[state - STATE_PAIRS];
    if (t->pool[state - STATE_CLAMPED])
        return t->pool[state - STATE_CLAMPED];
    const uint32_t *pairs = t->pool + state + t->grammar->class_count;
    ASSERT(count <= t->pairs_room);
    for (uint32_t i = 0; i < count; i++) {
        t->pairs[2 * i] = pairs[2 * i];
        t->pairs[2 * i + 1] = clamp(t, pairs[2 * i + 1]);
    }
    if (rx_failed(t->rx))
        return STATE_FULL;
    uint32_t to = lexer_state(t, t->pairs, count) & ~STATE_ACCEPTS;
    if (to >= STATE_FIRST)
        t->pool[state - STATE_CLAMPED] = to;
    return to;
}
