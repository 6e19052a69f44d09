/* grammar_inline.c - fewer and larger terminals: steps within a terminal cost a table look-up, steps between
 * terminals an Earley row.
 *
 * A rule whose alternatives are terminals only, or such rules, becomes one terminal while it stays small.
 * Terminals with loops over characters grow by one byte on each side at most: many rules share the
 * same string terminal, and with it its states and masks. */
#include "grammar/grammar_state.h"

#include "rx/rx_store.h"

enum { SIZE_MAX_INLINE = 200, SYMBOLS_MAX_INLINE = 400 };

bool grammar_late(struct draft *d)
{
    rx_check_limits(d->rx);
    return grammar_builder_stopped(d->b) != 0;
}

struct inlining {
    struct draft *d;
    uint32_t *open;     /* symbols of a rule that are not terminals yet */
    uint32_t *users_of; /* [symbol_count + 1], into `users`: rules that a rule stands in, by occurrence */
    uint32_t *users;
    uint32_t *queue, queued;
};

static bool is_loop(const struct draft *d, uint32_t symbol)
{
    return rx_has_loop(d->rx, d->values[symbol]);
}

static bool is_byte(const struct draft *d, uint32_t symbol)
{
    return rx_at(d->rx, d->values[symbol])->kind == RX_K_BYTES;
}

/* Whether an alternative, all of terminals, may become one. */
static bool row_fits(const struct draft *d, const struct production *row)
{
    uint32_t loops = 0, bytes = 0;
    for (uint32_t i = 0; i < row->count; i++) {
        loops += is_loop(d, d->symbols[row->at + i]);
        bytes += is_byte(d, d->symbols[row->at + i]);
    }
    return loops == 0 || (loops == 1 && bytes + 1 == row->count);
}

static rx_id row_rx(struct draft *d, const struct production *row)
{
    rx_id made = RX_EMPTY;
    for (uint32_t i = row->count; i-- > 0;)
        made = rx_cat(d->rx, d->values[d->symbols[row->at + i]], made);
    return made;
}

static bool rule_rx(struct draft *d, uint32_t rule, rx_id *ret)
{
    uint32_t symbols = 0;
    rx_id made = RX_NONE;
    for (uint32_t at = d->first_production[rule]; at != NO_PRODUCTION; at = d->productions[at].next) {
        symbols += d->productions[at].count + 1;
        if (symbols > SYMBOLS_MAX_INLINE || !row_fits(d, &d->productions[at]))
            return false;
        made = rx_or(d->rx, made, row_rx(d, &d->productions[at]));
    }
    *ret = made;
    return !d->rx->failed && rx_size(d->rx, made, SIZE_MAX_INLINE) < SIZE_MAX_INLINE;
}

static void count_symbols(struct inlining *in)
{
    struct draft *d = in->d;
    for (uint32_t rule = 0; rule < d->symbol_count; rule++) {
        if (d->kinds[rule] != SYMBOL_RULE)
            continue;
        for (uint32_t at = d->first_production[rule]; at != NO_PRODUCTION; at = d->productions[at].next)
            for (uint32_t i = 0; i < d->productions[at].count; i++) {
                uint32_t symbol = d->symbols[d->productions[at].at + i];
                in->open[rule] += d->kinds[symbol] != SYMBOL_TERMINAL;
                in->users_of[symbol + 1] += d->kinds[symbol] == SYMBOL_RULE;
            }
    }
    for (uint32_t s = 0; s < d->symbol_count; s++)
        in->users_of[s + 1] += in->users_of[s];
}

static void list_users(struct inlining *in, uint32_t *filled)
{
    struct draft *d = in->d;
    for (uint32_t rule = 0; rule < d->symbol_count; rule++) {
        if (d->kinds[rule] != SYMBOL_RULE)
            continue;
        if (in->open[rule] == 0 && rule != d->start)
            in->queue[in->queued++] = rule;
        for (uint32_t at = d->first_production[rule]; at != NO_PRODUCTION; at = d->productions[at].next)
            for (uint32_t i = 0; i < d->productions[at].count; i++) {
                uint32_t symbol = d->symbols[d->productions[at].at + i];
                if (d->kinds[symbol] == SYMBOL_RULE)
                    in->users[in->users_of[symbol] + filled[symbol]++] = rule;
            }
    }
}

static void inline_rules(struct inlining *in)
{
    struct draft *d = in->d;
    for (uint32_t i = 0; i < in->queued && !grammar_late(d) && !d->rx->failed; i++) {
        uint32_t rule = in->queue[i];
        rx_id rx;
        if (!rule_rx(d, rule, &rx))
            continue;
        d->kinds[rule] = SYMBOL_TERMINAL;
        d->values[rule] = rx;
        for (uint32_t u = in->users_of[rule]; u < in->users_of[rule + 1]; u++)
            if (--in->open[in->users[u]] == 0 && in->users[u] != d->start)
                in->queue[in->queued++] = in->users[u];
    }
}

static void merge_row(struct draft *d, struct production *row)
{
    uint32_t kept = 0, *symbols = d->symbols + row->at;
    for (uint32_t i = 0; i < row->count && !d->rx->failed; i++) {
        uint32_t s = symbols[i], before = kept ? symbols[kept - 1] : s;
        bool both = kept && d->kinds[before] == SYMBOL_TERMINAL && d->kinds[s] == SYMBOL_TERMINAL;
        symbols[kept++] = s;
        if (!both || is_loop(d, before) || is_loop(d, s))
            continue;
        rx_id rx = rx_cat(d->rx, d->values[before], d->values[s]);
        if (rx_size(d->rx, rx, SIZE_MAX_INLINE) >= SIZE_MAX_INLINE)
            continue;
        kept--;
        symbols[kept - 1] = d->symbol_count;
        d->kinds[d->symbol_count] = SYMBOL_TERMINAL;
        d->values[d->symbol_count++] = rx;
    }
    row->count = kept;
}

bool grammar_inline(struct draft *d)
{
    size_t n = d->symbol_count;
    struct inlining in = {.d = d};
    in.open = ARENA_ARRAY(d->arena, uint32_t, n);
    in.users_of = ARENA_ARRAY(d->arena, uint32_t, n + 1);
    in.queue = ARENA_ARRAY(d->arena, uint32_t, n);
    uint32_t *filled = ARENA_ARRAY(d->arena, uint32_t, n);
    if (!in.open || !in.users_of || !in.queue || !filled)
        return false;
    count_symbols(&in);
    in.users = ARENA_ARRAY(d->arena, uint32_t, in.users_of[n]);
    if (!in.users)
        return false;
    list_users(&in, filled);
    inline_rules(&in);
    for (uint32_t s = 0; s < n; s++)
        for (uint32_t at = d->kinds[s] == SYMBOL_RULE ? d->first_production[s] : NO_PRODUCTION;
             at != NO_PRODUCTION; at = d->productions[at].next)
            merge_row(d, &d->productions[at]);
    return !d->rx->failed;
}
