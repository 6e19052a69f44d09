/* grammar.c - the builder of a grammar. grammar_finish.c makes the grammar. */
#include "grammar/grammar.h"

#include "grammar/grammar_state.h"

#include "base/check.h"
#include "rx/rx_store.h"

#include <errno.h>

const struct grammar_limits grammar_limits_default = {
    .bytes_max = (size_t)32 << 20,
    .nodes_max = 400000,
    .symbols_max = 400000,
};

int grammar_builder_create(const struct grammar_limits *limits, const struct charge *charge,
                           struct grammar_builder **ret)
{
    struct arena *a;
    if (!limits)
        limits = &grammar_limits_default;
    int r = arena_create(&(struct arena_opts){.bytes_max = limits->bytes_max, .charge = charge}, &a);
    if (r < 0)
        return r;
    struct grammar_builder *b = ARENA_NEW(a, struct grammar_builder);
    if (!b)
        goto fail;
    *b = (struct grammar_builder){.arena = a, .limits = *limits};
    if (charge)
        b->charge = *charge;
    b->buckets = ARENA_ARRAY(a, uint32_t, BUCKETS);
    if (!b->buckets || rx_store_create(a, limits->nodes_max, &b->rx) < 0)
        goto fail;
    *ret = b;
    return 0;
fail:
    arena_free(a);
    return -ENOMEM;
}

void grammar_builder_free(struct grammar_builder *b)
{
    if (b)
        arena_free(b->arena);
}

void grammar_builder_bound(struct grammar_builder *b, const struct wanted *wanted,
                           const struct charge *charge)
{
    rx_wanted(b->rx, wanted);
    if (charge)
        b->charge = *charge;
}

int grammar_builder_stopped(const struct grammar_builder *b)
{
    return b->rx->stopped;
}

struct rx_store *grammar_rx(struct grammar_builder *b)
{
    return b->rx;
}

bool grammar_builder_failed(const struct grammar_builder *b)
{
    return b->failed || rx_failed(b->rx);
}

static bool words_put(struct grammar_builder *b, struct words *w, uint32_t word)
{
    if (w->count == w->room) {
        uint32_t room = w->room ? w->room * 2 : 256;
        uint32_t *more = ARENA_ARRAY(b->arena, uint32_t, room);
        if (!more) {
            b->failed = true;
            return false;
        }
        if (w->count)
            memcpy(more, w->at, w->count * sizeof(*more));
        w->at = more;
        w->room = room;
    }
    w->at[w->count++] = word;
    return true;
}

static bool takes_more(struct grammar_builder *b, uint32_t count)
{
    uint64_t used = b->symbols.count / 3 + b->rows.count;
    if (used + count > b->limits.symbols_max)
        b->failed = b->too_large = true;
    return !b->failed;
}

static sym_id symbol_new(struct grammar_builder *b, enum symbol_kind kind, uint32_t value, uint32_t next)
{
    if (!takes_more(b, 1))
        return 0;
    ASSERT(b->symbols.count % 3 == 0);
    sym_id id = b->symbols.count / 3;
    words_put(b, &b->symbols, kind);
    words_put(b, &b->symbols, value);
    words_put(b, &b->symbols, next);
    return id;
}

sym_id grammar_rule(struct grammar_builder *b)
{
    return symbol_new(b, SYMBOL_RULE, 0, 0);
}

/* The symbol of this kind and value; buckets hold ids + 1. */
static sym_id symbol_of(struct grammar_builder *b, enum symbol_kind kind, uint32_t value)
{
    uint32_t *bucket = &b->buckets[((value * 2 + (kind == SYMBOL_TOKEN)) * 2654435761u) % BUCKETS];
    for (uint32_t at = *bucket; at; at = b->symbols.at[(at - 1) * 3 + 2])
        if (b->symbols.at[(at - 1) * 3] == kind && b->symbols.at[(at - 1) * 3 + 1] == value)
            return at - 1;
    sym_id id = symbol_new(b, kind, value, *bucket);
    if (!b->failed)
        *bucket = id + 1;
    return id;
}

sym_id grammar_terminal(struct grammar_builder *b, rx_id expression)
{
    return symbol_of(b, SYMBOL_TERMINAL, expression);
}

sym_id grammar_token(struct grammar_builder *b, uint32_t token)
{
    return symbol_of(b, SYMBOL_TOKEN, token);
}

void grammar_alternative(struct grammar_builder *b, sym_id rule, const sym_id *symbols, uint32_t count)
{
    if (!takes_more(b, count + 2))
        return;
    ASSERT(rule < b->symbols.count / 3 && b->symbols.at[rule * 3] == SYMBOL_RULE);
    words_put(b, &b->rows, rule);
    words_put(b, &b->rows, count);
    for (uint32_t i = 0; i < count; i++) {
        ASSERT(symbols[i] < b->symbols.count / 3);
        words_put(b, &b->rows, symbols[i]);
    }
    b->alternatives++;
}
