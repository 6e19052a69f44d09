/* test_recogniser.h - a plain recogniser of a grammar: Earley's sets, byte by byte, without an
 * automaton. A terminal under way is an item of its own, with the derivative of its expression. */
#ifndef PLATEAU_TESTS_UNIT_TEST_RECOGNISER_H
#define PLATEAU_TESTS_UNIT_TEST_RECOGNISER_H

#include "base/check.h"
#include "grammar/grammar_state.h"
#include "rx/rx_store.h"

#include <stdlib.h>

struct plain_item {
    uint32_t dot, origin;
    rx_id rest; /* rest of a terminal under way; RX_NONE: none */
};

struct plain_set {
    struct plain_item *items;
    uint32_t count, room;
    uint32_t *seen; /* item + 1, by hash */
    uint32_t seen_room;
};

static void plain_add(struct plain_set *s, struct plain_item item);

static inline uint32_t *plain_seen(struct plain_set *s, struct plain_item t)
{
    uint64_t h = (t.dot * 0x9E3779B97F4A7C15ull) ^ (t.origin * 0xC2B2AE3D27D4EB4Full) ^
                 (t.rest * 0x165667B19E3779F9ull);
    uint32_t at = (uint32_t)(h >> 33) & (s->seen_room - 1);
    while (s->seen[at]) {
        const struct plain_item *o = &s->items[s->seen[at] - 1];
        if (o->dot == t.dot && o->origin == t.origin && o->rest == t.rest)
            break;
        at = (at + 1) & (s->seen_room - 1);
    }
    return &s->seen[at];
}

static inline void plain_grow(struct plain_set *s)
{
    s->room = s->room ? s->room * 2 : 64;
    s->items = realloc(s->items, s->room * sizeof(*s->items));
    free(s->seen);
    s->seen_room = s->room * 2;
    s->seen = calloc(s->seen_room, sizeof(*s->seen));
    ASSERT(s->items && s->seen);
    for (uint32_t i = 0; i < s->count; i++)
        *plain_seen(s, s->items[i]) = i + 1;
}

static void plain_add(struct plain_set *s, struct plain_item item)
{
    if (s->count == s->room)
        plain_grow(s);
    uint32_t *seen = plain_seen(s, item);
    if (*seen)
        return;
    s->items[s->count++] = item;
    *seen = s->count;
}

/* At the item's dot is a rule or an end. `sets`: all up to this one, the last of `count`. */
static void plain_step(const struct grammar *g, struct plain_set *sets, uint32_t now, struct plain_item item)
{
    uint32_t what = g->symbols[item.dot];
    if (what & DOT_TERMINAL) {
        const struct terminal *t = &g->terminals[what & DOT_INDEX];
        if (t->rx != RX_NONE)
            plain_add(&sets[now], (struct plain_item){item.dot, item.origin, t->rx});
        return;
    }
    if (what & DOT_END) {
        struct plain_set *from = &sets[item.origin];
        for (uint32_t i = 0; i < from->count; i++) {
            struct plain_item o = from->items[i];
            if (o.rest == RX_NONE && g->symbols[o.dot] == (what & DOT_INDEX))
                plain_add(&sets[now], (struct plain_item){o.dot + 1, o.origin, RX_NONE});
        }
        return;
    }
    for (uint32_t i = g->alternatives_of[what]; i < g->alternatives_of[what + 1]; i++)
        plain_add(&sets[now], (struct plain_item){g->alternatives[i], now, RX_NONE});
    if (g->nullable[what])
        plain_add(&sets[now], (struct plain_item){item.dot + 1, item.origin, RX_NONE});
}

static void plain_close(const struct grammar *g, struct plain_set *sets, uint32_t now)
{
    for (uint32_t i = 0; i < sets[now].count; i++)
        if (sets[now].items[i].rest == RX_NONE)
            plain_step(g, sets, now, sets[now].items[i]);
}

static void plain_byte(struct rx_store *s, struct plain_set *sets, uint32_t now, uint8_t byte)
{
    for (uint32_t i = 0; i < sets[now].count; i++) {
        struct plain_item item = sets[now].items[i];
        rx_id rest = item.rest == RX_NONE ? RX_NONE : rx_derive(s, item.rest, byte);
        if (rest == RX_NONE)
            continue;
        plain_add(&sets[now + 1], (struct plain_item){item.dot, item.origin, rest});
        if (rx_nullable(s, rest))
            plain_add(&sets[now + 1], (struct plain_item){item.dot + 1, item.origin, RX_NONE});
    }
}

/* Is `text` in the language of `g`? False if that takes more than `nodes` expressions. */
static bool plain_accepts_within(const struct grammar *g, struct slice text, uint32_t nodes, bool *ret)
{
    struct arena *a;
    struct rx_store *s;
    ASSERT(arena_create(&(struct arena_opts){.bytes_max = (size_t)256 << 20}, &a) == 0);
    ASSERT(rx_store_over(a, g->rx, nodes, &s) == 0);
    struct plain_set *sets = calloc(text.len + 2, sizeof(*sets));
    ASSERT(sets);
    uint32_t start = g->alternatives[g->alternatives_of[g->start]];
    plain_add(&sets[0], (struct plain_item){start, 0, RX_NONE});
    plain_close(g, sets, 0);
    for (uint32_t i = 0; i < text.len && sets[i].count; i++) {
        plain_byte(s, sets, i, (uint8_t)text.ptr[i]);
        plain_close(g, sets, i + 1);
    }
    bool accepted = false;
    for (uint32_t i = 0; i < sets[text.len].count && !accepted; i++) {
        struct plain_item o = sets[text.len].items[i];
        accepted = o.rest == RX_NONE && g->symbols[o.dot] == (DOT_END | g->start);
    }
    bool fits = !rx_failed(s);
    for (size_t i = 0; i < text.len + 2; i++) {
        free(sets[i].items);
        free(sets[i].seen);
    }
    free(sets);
    arena_free(a);
    *ret = accepted;
    return fits;
}

/* Most texts take few expressions; room for many takes ten times as long as the text. */
static bool plain_accepts(const struct grammar *g, struct slice text)
{
    bool accepted;
    if (!plain_accepts_within(g, text, 4000, &accepted))
        ASSERT(plain_accepts_within(g, text, 200000, &accepted));
    return accepted;
}

#endif
