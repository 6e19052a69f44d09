/* test_grammar_reference.h - small random grammars, and a plain recogniser of their languages.
 *
 * A text is a row of units: bytes, and special tokens as 256 + token. The recogniser computes, for every rule
 * and place, the set of places where the rule may end, until nothing changes. */
#ifndef PLATEAU_TESTS_UNIT_TEST_GRAMMAR_REFERENCE_H
#define PLATEAU_TESTS_UNIT_TEST_GRAMMAR_REFERENCE_H

#include "unit/rx/test_rx_reference.h"
#include "test_rng.h"
#include "grammar/grammar.h"
#include "rx/rx_store.h"

enum { REF_RULES = 6, REF_ROWS = 5, REF_SYMBOLS = 4, REF_TERMINALS = 8, REF_UNITS = 28, REF_TOKEN = 256 };

/* A symbol of an alternative: a rule below REF_RULES, else REF_RULES + a terminal. */
struct ref_row {
    uint32_t symbols[REF_SYMBOLS], count;
};

struct ref_grammar {
    struct grammar_builder *builder;
    struct rx_store *rx;
    uint32_t rules, terminals, rows[REF_RULES];
    struct ref_row row[REF_RULES][REF_ROWS];
    rx_id rx_of[REF_TERMINALS];       /* RX_NONE with a token: special */
    uint32_t token_of[REF_TERMINALS]; /* UINT32_MAX: none */
    bool productive[REF_RULES + REF_TERMINALS];
    sym_id start;
};

struct ref_text {
    uint16_t units[REF_UNITS];
    uint32_t count;
};

/* ---- Making ---- */

static inline rx_id ref_bytes(struct rx_store *s, const char *bytes)
{
    struct rx_bytes set = {{0}};
    for (; *bytes; bytes++)
        set.bits[(uint8_t)*bytes / 64] |= 1ull << (uint8_t)*bytes % 64;
    return rx_bytes(s, &set);
}

static inline rx_id ref_rx(struct rx_store *s, struct rng *r, int depth, bool logic)
{
    static const char *const sets[] = {"a", "b", "c", "ab", "bc", "a\"", "abc", "\""};
    if (depth == 0)
        return ref_bytes(s, sets[rng_below(r, 8)]);
    rx_id a = ref_rx(s, r, (int)rng_below(r, (uint64_t)depth), logic);
    switch (rng_below(r, logic ? 8 : 6)) {
    case 0:
    case 1:
        return rx_cat(s, a, ref_rx(s, r, depth - 1, logic));
    case 2:
        return rx_or(s, a, ref_rx(s, r, depth - 1, logic));
    case 3:
        return rx_or(s, a, RX_EMPTY);
    case 6:
        return rx_and(s, a, ref_rx(s, r, depth - 1, logic));
    case 7:
        return rx_and(s, rx_repeat(s, ref_bytes(s, "abc"), 0, 3), rx_not(s, a));
    default: {
        uint32_t min = (uint32_t)rng_below(r, 3), more = (uint32_t)rng_below(r, 4);
        return rx_repeat(s, a, min, more == 3 ? RX_UNBOUNDED : min + more);
    }
    }
}

static inline void ref_productive(struct ref_grammar *g)
{
    for (uint32_t t = 0; t < g->terminals; t++)
        g->productive[REF_RULES + t] =
            g->token_of[t] != UINT32_MAX || rx_alive(g->rx, g->rx_of[t], 100000) == 1;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t rule = 0; rule < g->rules; rule++)
            for (uint32_t k = 0; k < g->rows[rule] && !g->productive[rule]; k++) {
                bool whole = true;
                for (uint32_t i = 0; i < g->row[rule][k].count; i++)
                    whole = whole && g->productive[g->row[rule][k].symbols[i]];
                g->productive[rule] = whole;
                changed |= whole;
            }
    }
}

static inline void ref_random(struct ref_grammar *g, struct grammar_builder *b, struct rng *r, bool logic)
{
    sym_id ids[REF_RULES + REF_TERMINALS];
    *g = (struct ref_grammar){.builder = b, .rx = grammar_rx(b)};
    g->rules = 1 + (uint32_t)rng_below(r, REF_RULES);
    g->terminals = 1 + (uint32_t)rng_below(r, REF_TERMINALS);
    for (uint32_t i = 0; i < g->rules; i++)
        ids[i] = grammar_rule(b);
    for (uint32_t i = 0; i < g->terminals; i++) {
        g->token_of[i] = rng_below(r, 8) == 0 ? (uint32_t)rng_below(r, 2) : UINT32_MAX;
        g->rx_of[i] =
            g->token_of[i] == UINT32_MAX ? ref_rx(g->rx, r, (int)rng_below(r, 4), logic) : (rx_id)RX_NONE;
        ids[REF_RULES + i] = g->token_of[i] == UINT32_MAX ? grammar_terminal(b, g->rx_of[i])
                                                          : grammar_token(b, g->token_of[i]);
    }
    for (uint32_t rule = 0; rule < g->rules; rule++) {
        g->rows[rule] = 1 + (uint32_t)rng_below(r, REF_ROWS - 1);
        for (uint32_t k = 0; k < g->rows[rule]; k++) {
            struct ref_row *row = &g->row[rule][k];
            sym_id symbols[REF_SYMBOLS];
            row->count = (uint32_t)rng_below(r, REF_SYMBOLS + 1);
            for (uint32_t i = 0; i < row->count; i++) {
                bool terminal = rng_below(r, 5) < 3;
                row->symbols[i] = terminal ? REF_RULES + (uint32_t)rng_below(r, g->terminals)
                                           : (uint32_t)rng_below(r, g->rules);
                symbols[i] = ids[row->symbols[i]];
            }
            grammar_alternative(b, ids[rule], symbols, row->count);
        }
    }
    g->start = ids[0];
    ref_productive(g);
}

/* ---- Recognising ---- */

struct ref_places {
    rx_places ends[REF_RULES][REF_UNITS + 1];
    bool prefix[REF_RULES][REF_UNITS + 1];
};

/* Bytes from place `at` on, up to the next special token. */
static inline struct slice ref_bytes_at(const struct ref_text *t, uint32_t at, char *room)
{
    size_t len = 0;
    for (uint32_t i = at; i < t->count && t->units[i] < REF_TOKEN; i++)
        room[len++] = (char)t->units[i];
    return (struct slice){room, len};
}

static inline rx_places ref_ends(struct ref_grammar *g, const struct ref_text *t, const struct ref_places *p,
                                 uint32_t symbol, uint32_t at)
{
    char room[REF_UNITS];
    if (symbol < REF_RULES)
        return p->ends[symbol][at];
    uint32_t token = g->token_of[symbol - REF_RULES];
    if (token != UINT32_MAX)
        return at < t->count && t->units[at] == REF_TOKEN + token ? 2u << at : 0;
    return rx_ends(g->rx, g->rx_of[symbol - REF_RULES], ref_bytes_at(t, at, room), 1) << at;
}

/* Whether everything from `at` on is the prefix of a text of `symbol`. */
static inline bool ref_prefix(struct ref_grammar *g, const struct ref_text *t, const struct ref_places *p,
                              uint32_t symbol, uint32_t at)
{
    char room[REF_UNITS];
    if (at == t->count)
        return g->productive[symbol];
    if (symbol < REF_RULES)
        return p->prefix[symbol][at];
    uint32_t token = g->token_of[symbol - REF_RULES];
    if (token != UINT32_MAX)
        return at + 1 == t->count && t->units[at] == REF_TOKEN + token;
    struct slice bytes = ref_bytes_at(t, at, room);
    if (at + bytes.len != t->count)
        return false;
    rx_id left = g->rx_of[symbol - REF_RULES];
    for (size_t i = 0; i < bytes.len; i++)
        left = rx_derive(g->rx, left, (uint8_t)bytes.ptr[i]);
    return rx_alive(g->rx, left, 100000) == 1;
}

static inline rx_places ref_row_places(struct ref_grammar *g, const struct ref_text *t,
                                       const struct ref_places *p, const struct ref_row *row, uint32_t at,
                                       bool *prefix)
{
    rx_places now = 1u << at;
    for (uint32_t i = 0; i < row->count; i++) {
        rx_places next = 0;
        bool rest = true;
        for (uint32_t k = i + 1; k < row->count; k++)
            rest = rest && g->productive[row->symbols[k]];
        for (uint32_t place = at; place <= t->count; place++) {
            if (!(now >> place & 1))
                continue;
            next |= ref_ends(g, t, p, row->symbols[i], place);
            *prefix |= rest && ref_prefix(g, t, p, row->symbols[i], place);
        }
        now = next;
    }
    *prefix |= now >> t->count & 1;
    return now;
}

/* Whether the text is one of the language; *prefix: whether it begins one. */
static inline bool ref_recognise(struct ref_grammar *g, const struct ref_text *t, bool *prefix)
{
    struct ref_places p = {0};
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t rule = 0; rule < g->rules; rule++)
            for (uint32_t at = 0; at <= t->count; at++)
                for (uint32_t k = 0; k < g->rows[rule]; k++) {
                    bool begins = p.prefix[rule][at];
                    rx_places ends =
                        p.ends[rule][at] | ref_row_places(g, t, &p, &g->row[rule][k], at, &begins);
                    changed |= ends != p.ends[rule][at] || begins != p.prefix[rule][at];
                    p.ends[rule][at] = ends;
                    p.prefix[rule][at] = begins;
                }
    }
    *prefix = t->count ? p.prefix[0][0] : g->productive[0];
    return p.ends[0][0] >> t->count & 1;
}

#endif
