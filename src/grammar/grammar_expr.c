/* grammar_expr.c - counted repetition of a rule by halves: n times is two times n/2 times, so that 1,000
 * items take about 30 rules. Any number of times is left recursion, which a parser follows with one item per
 * row. */
#include "grammar/grammar_expr.h"

#include "base/check.h"

struct expr expr_rx(rx_id rx)
{
    return (struct expr){.regular = true, .rx = rx};
}

struct expr expr_sym(sym_id sym)
{
    return (struct expr){.sym = sym};
}

sym_id expr_symbol(struct grammar_builder *b, struct expr p)
{
    return p.regular ? grammar_terminal(b, p.rx) : p.sym;
}

struct expr expr_cat(struct grammar_builder *b, struct expr x, struct expr y)
{
    if (x.regular && y.regular)
        return expr_rx(rx_cat(grammar_rx(b), x.rx, y.rx));
    if (x.regular && x.rx == RX_EMPTY)
        return y;
    if (y.regular && y.rx == RX_EMPTY)
        return x;
    sym_id both[2] = {expr_symbol(b, x), expr_symbol(b, y)}, rule = grammar_rule(b);
    grammar_alternative(b, rule, both, 2);
    return expr_sym(rule);
}

static void add_way(struct grammar_builder *b, sym_id rule, struct expr x)
{
    if (x.regular && x.rx == RX_EMPTY) {
        grammar_alternative(b, rule, NULL, 0);
        return;
    }
    sym_id s = expr_symbol(b, x);
    grammar_alternative(b, rule, &s, 1);
}

struct expr expr_or(struct grammar_builder *b, struct expr x, struct expr y)
{
    if (x.regular && y.regular)
        return expr_rx(rx_or(grammar_rx(b), x.rx, y.rx));
    sym_id rule = grammar_rule(b);
    add_way(b, rule, x);
    add_way(b, rule, y);
    return expr_sym(rule);
}

static sym_id exactly(struct grammar_builder *b, sym_id x, uint32_t count)
{
    ASSERT(count > 0);
    if (count == 1)
        return x;
    sym_id half = exactly(b, x, count / 2), rule = grammar_rule(b);
    sym_id parts[3] = {half, half, x};
    grammar_alternative(b, rule, parts, count % 2 ? 3 : 2);
    return rule;
}

struct up_to {
    struct grammar_builder *b;
    sym_id x;
    struct {
        uint32_t max;
        sym_id rule;
    } known[64];
    uint32_t count;
};

/* 0 to max times: either the first half of them and up to the rest, or fewer than that half. Each level of
 * halves has at most three different counts. */
static sym_id up_to(struct up_to *u, uint32_t max)
{
    for (uint32_t i = 0; i < u->count; i++)
        if (u->known[i].max == max)
            return u->known[i].rule;
    sym_id rule = grammar_rule(u->b);
    if (max <= 1) {
        grammar_alternative(u->b, rule, NULL, 0);
        if (max == 1)
            grammar_alternative(u->b, rule, &u->x, 1);
    } else {
        uint32_t half = (max + 1) / 2;
        sym_id fewer = up_to(u, half - 1);
        sym_id more[2] = {exactly(u->b, u->x, half), up_to(u, max - half)};
        grammar_alternative(u->b, rule, &fewer, 1);
        grammar_alternative(u->b, rule, more, 2);
    }
    ASSERT(u->count < COUNT_OF(u->known));
    u->known[u->count].max = max;
    u->known[u->count++].rule = rule;
    return rule;
}

static sym_id any_number(struct grammar_builder *b, sym_id x)
{
    sym_id rule = grammar_rule(b), more[2] = {rule, x};
    grammar_alternative(b, rule, NULL, 0);
    grammar_alternative(b, rule, more, 2);
    return rule;
}

struct expr expr_repeat(struct grammar_builder *b, struct expr x, uint32_t min, uint32_t max)
{
    ASSERT(min <= max);
    if (x.regular)
        return expr_rx(rx_repeat(grammar_rx(b), x.rx, min, max));
    ASSERT(min <= GRAMMAR_REPEAT_MAX && (max == RX_UNBOUNDED || max <= GRAMMAR_REPEAT_MAX));
    struct up_to u = {.b = b, .x = x.sym};
    struct expr rest = max == RX_UNBOUNDED ? expr_sym(any_number(b, x.sym))
                       : max > min         ? expr_sym(up_to(&u, max - min))
                                           : expr_rx(RX_EMPTY);
    return min == 0 ? rest : expr_cat(b, expr_sym(exactly(b, x.sym, min)), rest);
}
