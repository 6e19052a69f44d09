/* grammar_finish.c - from what a builder was given to a grammar that matchers follow.
 *
 * The passes: Small regular rules become terminals. A terminal that matches the empty text becomes an
 * optional one that does not. Symbols that derive no text go. The rest is numbered from the start on and laid
 * out. */
#include "grammar/grammar_state.h"

#include "base/check.h"
#include "base/err.h"
#include "rx/rx_store.h"

#include <errno.h>

/* ---- The draft ---- */

static void draft_rows(struct draft *d, const struct words *rows)
{
    for (uint32_t at = rows->count; at > 0;) {
        /* Backwards, so that each rule's list has the order of the builder. */
        uint32_t row = --d->production_count;
        at = d->productions[row].at;
        uint32_t rule = rows->at[at], count = rows->at[at + 1];
        memcpy(d->symbols + at, rows->at + at + 2, count * sizeof(uint32_t));
        d->productions[row] =
            (struct production){.next = d->first_production[rule], .at = at, .count = count};
        d->first_production[rule] = row;
    }
}

static bool draft_init(struct draft *d, struct grammar_builder *b, sym_id start)
{
    uint32_t given = b->symbols.count / 3;
    size_t symbols = given + (size_t)given + b->rows.count + 2, rows = b->alternatives + 2 * symbols + 1;
    *d = (struct draft){.b = b, .rx = b->rx, .arena = b->arena, .symbol_count = given};
    d->kinds = ARENA_ARRAY(d->arena, uint8_t, symbols);
    d->values = ARENA_ARRAY(d->arena, uint32_t, symbols);
    d->first_production = ARENA_ARRAY(d->arena, uint32_t, symbols);
    d->productions = ARENA_ARRAY(d->arena, struct production, rows);
    d->symbols = ARENA_ARRAY(d->arena, uint32_t, b->rows.count + symbols + 1);
    if (!d->kinds || !d->values || !d->first_production || !d->productions || !d->symbols)
        return false;
    memset(d->first_production, 0xFF, symbols * sizeof(uint32_t));
    for (uint32_t s = 0; s < given; s++) {
        d->kinds[s] = (uint8_t)b->symbols.at[s * 3];
        d->values[s] = b->symbols.at[s * 3 + 1];
    }
    for (uint32_t at = 0; at < b->rows.count; at += 2 + b->rows.at[at + 1])
        d->productions[d->production_count++].at = at;
    uint32_t count = d->production_count;
    draft_rows(d, &b->rows);
    d->production_count = count;
    /* The start: a rule of its own, so that nothing else refers to it. */
    d->start = d->symbol_count++;
    uint32_t last = b->rows.count;
    d->symbols[last] = start;
    d->productions[d->production_count] = (struct production){.next = NO_PRODUCTION, .at = last, .count = 1};
    d->first_production[d->start] = d->production_count++;
    return true;
}

/* A nullable terminal becomes a rule: the same without the empty text, or nothing. */
static void make_optional(struct draft *d, uint32_t s, uint32_t *symbols_used)
{
    rx_id rest = rx_without_empty(d->rx, d->values[s]);
    d->kinds[s] = SYMBOL_RULE;
    d->productions[d->production_count] = (struct production){.next = NO_PRODUCTION};
    d->first_production[s] = d->production_count++;
    if (rest == RX_NONE)
        return;
    d->kinds[d->symbol_count] = SYMBOL_TERMINAL;
    d->values[d->symbol_count] = rest;
    d->symbols[*symbols_used] = d->symbol_count++;
    d->productions[d->production_count] =
        (struct production){.next = d->first_production[s], .at = (*symbols_used)++, .count = 1};
    d->first_production[s] = d->production_count++;
}

static void split_nullable(struct draft *d)
{
    uint32_t used = d->b->rows.count + 1, count = d->symbol_count;
    for (uint32_t s = 0; s < count && !d->rx->failed; s++)
        if (d->kinds[s] == SYMBOL_TERMINAL && rx_nullable(d->rx, d->values[s]))
            make_optional(d, s, &used);
}

/* ---- The layout ---- */

struct layout {
    struct draft *d;
    struct grammar *g;
    const uint8_t *productive, *reachable;
    uint32_t *symbol_of; /* [symbol]: as in grammar.symbols */
    uint32_t *rules;     /* symbols of the rules, in their new order */
    uint32_t *symbols, *alternatives, *alternatives_of;
    struct terminal *terminals;
    struct corner *corners;
};

/* Rules in the order of a walk from the start: rules that follow each other in a prediction lie together. */
static bool number_rules(struct layout *l)
{
    struct draft *d = l->d;
    uint32_t *stack = ARENA_ARRAY(d->arena, uint32_t, (size_t)d->b->rows.count + d->symbol_count * 2 + 4);
    uint8_t *done = ARENA_ARRAY(d->arena, uint8_t, d->symbol_count);
    if (!stack || !done)
        return false;
    uint32_t height = 0;
    stack[height++] = d->start;
    while (height > 0) {
        uint32_t s = stack[--height];
        if (done[s])
            continue;
        done[s] = true;
        l->symbol_of[s] = l->g->rule_count;
        l->rules[l->g->rule_count++] = s;
        for (uint32_t row = d->first_production[s]; row != NO_PRODUCTION; row = d->productions[row].next)
            for (uint32_t i = d->productions[row].count; i-- > 0;) {
                uint32_t next = d->symbols[d->productions[row].at + i];
                if (d->kinds[next] == SYMBOL_RULE && !done[next])
                    stack[height++] = next;
            }
    }
    return true;
}

/* Terminals with equal expressions are one. */
static bool number_terminals(struct layout *l)
{
    struct draft *d = l->d;
    uint32_t *of_rx = ARENA_ARRAY(d->arena, uint32_t, d->rx->count); /* 1 + index */
    if (!of_rx)
        return false;
    for (uint32_t s = 0; s < d->symbol_count; s++) {
        if (!l->reachable[s] || d->kinds[s] == SYMBOL_RULE)
            continue;
        uint32_t index = l->g->terminal_count;
        bool token = d->kinds[s] == SYMBOL_TOKEN;
        if (!token && of_rx[d->values[s]])
            index = of_rx[d->values[s]] - 1;
        else
            l->terminals[l->g->terminal_count++] = token ? (struct terminal){RX_NONE, d->values[s]}
                                                         : (struct terminal){d->values[s], UINT32_MAX};
        if (!token)
            of_rx[d->values[s]] = index + 1;
        l->symbol_of[s] = DOT_TERMINAL | index;
    }
    return true;
}

static void put_places(struct layout *l)
{
    struct draft *d = l->d;
    struct grammar *g = l->g;
    uint32_t alternative = 0;
    for (uint32_t rule = 0; rule < g->rule_count; rule++) {
        l->alternatives_of[rule] = alternative;
        for (uint32_t row = d->first_production[l->rules[rule]]; row != NO_PRODUCTION;
             row = d->productions[row].next) {
            l->alternatives[alternative++] = g->dot_count;
            for (uint32_t i = 0; i < d->productions[row].count; i++)
                l->symbols[g->dot_count++] = l->symbol_of[d->symbols[d->productions[row].at + i]];
            l->symbols[g->dot_count++] = DOT_END | rule;
        }
    }
    l->alternatives_of[g->rule_count] = alternative;
    g->symbols = l->symbols;
    g->alternatives = l->alternatives;
    g->alternatives_of = l->alternatives_of;
}

/* A rule is nullable when an alternative has nullable rules only. Repeats until nothing changes, with a list
 * of rules that wait for others, so in time linear in the grammar for all but contrived orders. */
static void find_nullable(struct draft *d, const struct grammar *g, uint8_t *nullable, uint32_t *waiting)
{
    uint32_t left = g->rule_count;
    for (uint32_t rule = 0; rule < left; rule++)
        waiting[rule] = left - 1 - rule;
    for (bool changed = true; changed && !grammar_late(d);) {
        uint32_t kept = 0;
        changed = false;
        for (uint32_t i = 0; i < left; i++) {
            uint32_t rule = waiting[i];
            for (uint32_t a = g->alternatives_of[rule]; a < g->alternatives_of[rule + 1] && !nullable[rule];
                 a++) {
                uint32_t at = g->alternatives[a];
                while (!(g->symbols[at] & (DOT_END | DOT_TERMINAL)) && nullable[g->symbols[at]])
                    at++;
                nullable[rule] = (g->symbols[at] & DOT_END) != 0;
            }
            if (nullable[rule])
                changed = true;
            else
                waiting[kept++] = rule;
        }
        left = kept;
    }
}

/* Calls back for each symbol that may stand first in an alternative of `rule`. */
static void each_corner(const struct grammar *g, uint32_t rule, uint32_t *counts, struct corner *corners)
{
    for (uint32_t a = g->alternatives_of[rule]; a < g->alternatives_of[rule + 1]; a++)
        for (uint32_t at = g->alternatives[a]; !(g->symbols[at] & DOT_END); at++) {
            uint32_t symbol = grammar_symbol(g, g->symbols[at]);
            if (corners)
                corners[counts[symbol]] = (struct corner){at, rule};
            counts[symbol]++;
            if (g->symbols[at] & DOT_TERMINAL || !g->nullable[g->symbols[at]])
                break;
        }
}

static bool put_corners(struct layout *l)
{
    struct grammar *g = l->g;
    uint32_t symbols = g->rule_count + g->terminal_count;
    uint32_t *of = ARENA_ARRAY(g->arena, uint32_t, (size_t)symbols + 1);
    uint32_t *next = ARENA_ARRAY(l->d->arena, uint32_t, (size_t)symbols + 1);
    if (!of || !next)
        return false;
    for (uint32_t rule = 0; rule < g->rule_count; rule++)
        each_corner(g, rule, of, NULL);
    uint32_t sum = 0;
    for (uint32_t s = 0; s <= symbols; s++) {
        uint32_t count = of[s];
        of[s] = next[s] = sum;
        sum += count;
    }
    struct corner *corners = ARENA_ARRAY(g->arena, struct corner, sum);
    if (!corners)
        return false;
    for (uint32_t rule = 0; rule < g->rule_count; rule++)
        each_corner(g, rule, next, corners);
    g->corners = corners;
    g->corners_of = of;
    return true;
}

static bool put_expressions(struct layout *l)
{
    struct grammar *g = l->g;
    rx_id *roots = ARENA_ARRAY(l->d->arena, rx_id, g->terminal_count);
    rx_prove(l->d->rx);
    if (!roots || rx_store_create(g->arena, l->d->rx->count + 64, &g->rx) < 0)
        return false;
    for (uint32_t t = 0; t < g->terminal_count; t++)
        roots[t] = l->terminals[t].rx;
    rx_copy(l->d->rx, g->rx, l->d->arena, roots, g->terminal_count);
    for (uint32_t t = 0; t < g->terminal_count; t++)
        l->terminals[t].rx = roots[t];
    rx_refine(g->rx);
    memcpy(g->classes, g->rx->classes, sizeof(g->classes));
    g->class_count = g->rx->class_count;
    g->terminals = l->terminals;
    static const struct rx_range plain[] = {{0x20, 0x21},   {0x23, 0x5B},     {0x5D, 0x7E},
                                            {0x80, 0x2027}, {0x202A, 0xD7FF}, {0xE000, 0x10FFFF}};
    g->plain = rx_codepoints(g->rx, plain, COUNT_OF(plain));
    return !g->rx->failed;
}

static bool layout(struct layout *l)
{
    struct draft *d = l->d;
    struct grammar *g = l->g;
    size_t symbols = d->symbol_count, rows = d->production_count, dots = rows;
    for (uint32_t row = 0; row < rows; row++)
        dots += d->productions[row].count;
    l->symbol_of = ARENA_ARRAY(d->arena, uint32_t, symbols);
    l->rules = ARENA_ARRAY(d->arena, uint32_t, symbols);
    uint32_t *waiting = ARENA_ARRAY(d->arena, uint32_t, symbols);
    if (!l->symbol_of || !l->rules || !waiting || !number_rules(l))
        return false;
    uint32_t terminals = 0;
    for (uint32_t s = 0; s < symbols; s++)
        terminals += l->reachable[s] && d->kinds[s] != SYMBOL_RULE;
    l->terminals = ARENA_ARRAY(g->arena, struct terminal, terminals);
    l->symbols = ARENA_ARRAY(g->arena, uint32_t, dots);
    l->alternatives = ARENA_ARRAY(g->arena, uint32_t, rows);
    l->alternatives_of = ARENA_ARRAY(g->arena, uint32_t, (size_t)g->rule_count + 1);
    uint8_t *nullable = ARENA_ARRAY(g->arena, uint8_t, g->rule_count);
    if (!l->terminals || !l->symbols || !l->alternatives || !l->alternatives_of || !nullable ||
        !number_terminals(l))
        return false;
    put_places(l);
    find_nullable(d, g, nullable, waiting);
    g->nullable = nullable;
    return put_corners(l) && put_expressions(l);
}

/* ---- Finish ---- */

static int finish(struct draft *d, struct grammar *g, struct err *e)
{
    if (!grammar_inline(d))
        return -ENOMEM;
    split_nullable(d);
    uint8_t *productive = ARENA_ARRAY(d->arena, uint8_t, d->symbol_count);
    uint8_t *reachable = ARENA_ARRAY(d->arena, uint8_t, d->symbol_count);
    if (!productive || !reachable || grammar_late(d) || d->rx->failed)
        return -ENOMEM;
    int r = grammar_reduce(d, productive, reachable, e);
    if (r < 0)
        return r;
    struct layout l = {.d = d, .g = g, .productive = productive, .reachable = reachable};
    return !grammar_late(d) && layout(&l) && !grammar_late(d) ? 0 : -ENOMEM;
}

/* A full arena or store is a limit; memory that the charge refuses is not. */
static int no_room(const struct grammar_builder *b, const struct grammar *g, struct err *e)
{
    if (grammar_builder_stopped(b) == -ETIME)
        return err_set(e, -ETIME, "the grammar takes too long to compile; a smaller one is needed");
    if (grammar_builder_stopped(b) < 0)
        return err_set(e, grammar_builder_stopped(b), "the compilation was cancelled");
    if (b->too_large || b->rx->too_large || arena_overran(b->arena) || (g && arena_overran(g->arena)))
        return err_set(e, -E2BIG,
                       "the grammar is too large: at most %u expressions, %u symbols and %zu MiB are allowed",
                       b->limits.nodes_max, b->limits.symbols_max, b->limits.bytes_max >> 20);
    return err_set(e, -ENOMEM, "there is not enough memory for the grammar");
}

int grammar_finish(struct grammar_builder *b, sym_id start, struct grammar **ret, struct err *e)
{
    struct arena *a;
    struct draft d;
    if (grammar_builder_failed(b))
        return no_room(b, NULL, e);
    ASSERT(start < b->symbols.count / 3);
    struct arena_opts opts = {.bytes_max = b->limits.bytes_max, .charge = b->charge.take ? &b->charge : NULL};
    if (arena_create(&opts, &a) < 0)
        return no_room(b, NULL, e);
    struct grammar *g = ARENA_NEW(a, struct grammar);
    int r = -ENOMEM;
    if (g) {
        *g = (struct grammar){.arena = a};
        r = draft_init(&d, b, start) ? finish(&d, g, e) : -ENOMEM;
        if (r == -ENOMEM)
            r = no_room(b, g, e);
    }
    if (r < 0) {
        arena_free(a);
        return r;
    }
    *ret = g;
    return 0;
}

void grammar_free(struct grammar *g)
{
    if (g)
        arena_free(g->arena);
}

size_t grammar_bytes(const struct grammar *g)
{
    return arena_committed_bytes(g->arena);
}
