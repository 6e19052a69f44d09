/* lexer.c - all terminals as one automaton, made as far as texts need it.
 *
 * A state has the rest of each terminal that is still possible. Transitions are by class of bytes: bytes
 * that no terminal tells apart. States lie in a pool of words of fixed size, so a transition is one look-up,
 * and emptying the pool is one assignment. When the pool or the store of expressions is full, everything goes
 * but the states that the caller stands on; these are carried over by their pairs. */
#include "grammar/matcher_state.h"

#include "base/check.h"
#include "rx/rx_store.h"

#include <errno.h>

uint32_t lexer_take(struct matcher_tables *t, uint32_t words)
{
    ASSERT(t->pool_used <= t->pool_room);
    if (words > t->pool_room - t->pool_used)
        return 0;
    uint32_t at = t->pool_used;
    memset(t->pool + at, 0, words * sizeof(uint32_t));
    t->pool_used += words;
    return at;
}

static uint32_t hash_pairs(const uint32_t *pairs, uint32_t count)
{
    uint64_t h = count;
    for (uint32_t i = 0; i < 2 * count; i++)
        h = (h ^ pairs[i]) * 0x9E3779B97F4A7C15ull, h ^= h >> 32;
    return (uint32_t)h;
}

/* Transitions by bytes that no pair begins with are dead: a state of hundreds of pairs has few others. */
static void mark_dead(const struct matcher_tables *t, uint32_t *words, const uint32_t *pairs, uint32_t count)
{
    struct rx_bytes first = {{0}};
    for (uint32_t i = 0; i < count; i++)
        rx_first(t->rx, pairs[2 * i + 1], &first);
    for (uint32_t c = 0; c < t->grammar->class_count; c++)
        if (!rx_has(&first, t->bytes[c]))
            words[c] = STATE_DEAD;
}

static uint32_t state_new(struct matcher_tables *t, const uint32_t *pairs, uint32_t count, uint32_t hash)
{
    uint32_t classes = t->grammar->class_count, ends = 0, final = 1;
    for (uint32_t i = 0; i < count; i++) {
        ends += rx_nullable(t->rx, pairs[2 * i + 1]);
        final &= pairs[2 * i + 1] == RX_EMPTY;
    }
    uint32_t at = lexer_take(t, STATE_HEAD + classes + 2 * count + ends);
    if (!at)
        return STATE_FULL;
    uint32_t state = at + STATE_HEAD, *words = t->pool + state;
    words[-STATE_HASH] = hash;
    words[-STATE_PAIRS] = count;
    words[-STATE_ENDS] = ends;
    words[-STATE_FINAL] = final;
    memcpy(words + classes, pairs, 2 * (size_t)count * sizeof(uint32_t));
    uint32_t *end = words + classes + 2 * (size_t)count;
    for (uint32_t i = 0; i < count; i++)
        if (rx_nullable(t->rx, pairs[2 * i + 1]))
            *end++ = pairs[2 * i];
    mark_dead(t, words, pairs, count);
    ASSERT(end == words + classes + 2 * (size_t)count + ends);
    uint32_t *bucket = &t->state_buckets[hash % t->bucket_count];
    words[-STATE_NEXT] = *bucket;
    *bucket = state;
    return state | (ends ? STATE_ACCEPTS : 0);
}

uint32_t lexer_state(struct matcher_tables *t, const uint32_t *pairs, uint32_t count)
{
    if (count == 0)
        return STATE_DEAD;
    ASSERT(count <= t->grammar->terminal_count);
    uint32_t hash = hash_pairs(pairs, count);
    for (uint32_t state = t->state_buckets[hash % t->bucket_count]; state;
         state = t->pool[state - STATE_NEXT]) {
        const uint32_t *words = t->pool + state;
        if (words[-STATE_HASH] == hash && words[-STATE_PAIRS] == count &&
            memcmp(words + t->grammar->class_count, pairs, 2 * (size_t)count * sizeof(uint32_t)) == 0)
            return state | (words[-STATE_ENDS] ? STATE_ACCEPTS : 0);
    }
    return state_new(t, pairs, count, hash);
}

uint32_t lexer_step_new(struct matcher_tables *t, uint32_t state, uint32_t class)
{
    const uint32_t *pairs = t->pool + state + t->grammar->class_count;
    uint32_t count = t->pool[state - STATE_PAIRS], kept = 0;
    ASSERT(count <= t->pairs_room);
    t->work += 4 + count;
    for (uint32_t i = 0; i < count; i++) {
        rx_id rest = rx_derive(t->rx, pairs[2 * i + 1], t->bytes[class]);
        if (rest == RX_NONE)
            continue;
        int alive = rx_alive(t->rx, rest, ALIVE_STEPS_MAX);
        if (alive == 0)
            continue;
        t->pairs[2 * kept] = pairs[2 * i];
        t->pairs[2 * kept++ + 1] = rest;
        if (alive < 0 && !rx_failed(t->rx))
            return STATE_COMPLEX;
    }
    if (rx_failed(t->rx))
        return rx_is_spent(t->rx) ? STATE_COMPLEX : STATE_FULL;
    uint32_t to = lexer_state(t, t->pairs, kept);
    if (to == STATE_DEAD || to >= STATE_FIRST)
        t->pool[state + class] = to;
    return to;
}

/* ---- Flush ---- */

/* Saved states: old state, count, pairs. Returns words used, or 0 when they do not fit. */
static uint32_t save_states(struct matcher_tables *t)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < t->thread_count; i++) {
        uint32_t state = t->threads[i].state, at = 0;
        if (state < STATE_FIRST)
            continue;
        while (at < used && t->saved[at] != state)
            at += 2 + 2 * t->saved[at + 1];
        if (at < used)
            continue;
        uint32_t count = t->pool[state - STATE_PAIRS];
        if (2 + 2 * (uint64_t)count > t->saved_room - used)
            return UINT32_MAX;
        t->saved[used] = state;
        t->saved[used + 1] = count;
        memcpy(t->saved + used + 2, t->pool + state + t->grammar->class_count,
               2 * (size_t)count * sizeof(uint32_t));
        used += 2 + 2 * count;
    }
    return used;
}

static int restore_states(struct matcher_tables *t, uint32_t used)
{
    ASSERT(used <= t->saved_room);
    for (uint32_t at = 0; at < used; at += 2 + 2 * t->saved[at + 1]) {
        uint32_t old = t->saved[at];
        uint32_t state = lexer_state(t, t->saved + at + 2, t->saved[at + 1]) & ~STATE_ACCEPTS;
        if (state < STATE_FIRST)
            return -E2BIG;
        t->saved[at] = state;
        for (uint32_t i = 0; i < t->thread_count; i++)
            /* The top bit tells new states from old ones meanwhile. */
            if (t->threads[i].state == old)
                t->threads[i].state = state | STATE_ACCEPTS;
    }
    for (uint32_t i = 0; i < t->thread_count; i++)
        t->threads[i].state &= ~STATE_ACCEPTS;
    return 0;
}

static void empty(struct matcher_tables *t)
{
    t->pool_used = STATE_FIRST;
    t->generation++;
    t->flushes++;
    memset(t->state_buckets, 0, t->bucket_count * sizeof(uint32_t));
    memset(t->predict_buckets, 0, t->bucket_count * sizeof(uint32_t));
    memset(t->closures, 0, t->grammar->rule_count * sizeof(uint32_t));
}

int lexer_flush(struct matcher_tables *t)
{
    uint32_t used = save_states(t);
    if (used == UINT32_MAX)
        return -E2BIG;
    /* The roots are gathered, moved, and put back. */
    uint32_t roots = 0;
    for (uint32_t at = 0; at < used; at += 2 + 2 * t->saved[at + 1])
        for (uint32_t i = 0; i < t->saved[at + 1]; i++)
            t->pairs[roots++ % (2 * t->pairs_room)] = t->saved[at + 3 + 2 * i];
    if (roots > 2 * t->pairs_room)
        return -E2BIG;
    rx_compact(t->rx, t->pairs, roots);
    roots = 0;
    for (uint32_t at = 0; at < used; at += 2 + 2 * t->saved[at + 1])
        for (uint32_t i = 0; i < t->saved[at + 1]; i++)
            t->saved[at + 3 + 2 * i] = t->pairs[roots++];
    ASSERT(2 * roots <= used);
    empty(t);
    int r = restore_states(t, used);
    uint32_t nodes = t->rx->nodes_max - t->rx->first;
    if (r == 0 && (t->pool_used > t->pool_room / 4 * 3 || t->rx->count - t->rx->first > nodes / 4 * 3))
        r = -E2BIG;
    return r;
}
