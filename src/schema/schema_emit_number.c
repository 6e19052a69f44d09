/* schema_emit_number.c - numbers of a way. Multiples of a power of ten are an expression. Others are rules:
 * one for each remainder and derivative of the bounds, so that bounds and multiples hold together. */
#include "schema/schema_work.h"

#include "base/check.h"

struct product_state {
    rx_id rx;
    uint32_t rest;  /* remainder of the digits up to here */
    uint32_t after; /* digits after the point, + 1; 0: before the point */
    sym_id rule;
};

struct product {
    struct schema_work *w;
    uint32_t k, decimals; /* multiples of k * 10^-decimals */
    uint32_t merge;       /* remainders equal modulo this one have equal successors */
    struct product_state *states;
    uint32_t count;
    sym_id digits[10], minus, point;
};

#define STATES_MAX   4000
#define DECIMALS_MAX 12

static rx_id literal(struct schema_work *w, char c)
{
    return rx_literal(w->s, (struct slice){&c, 1});
}

/* ---- one multiple of all ---- */

static uint64_t gcd(uint64_t a, uint64_t b)
{
    return b ? gcd(b, a % b) : a;
}

/* The value in units of 10^-decimals; 0: too large. */
static uint64_t in_units(const struct decimal *d, uint32_t decimals)
{
    ASSERT(decimals >= d->fraction);
    uint64_t value = 0;
    for (uint32_t i = 0; i < d->whole + decimals; i++) {
        if (value > UINT64_MAX / 100)
            return 0;
        value = value * 10 + (uint64_t)(i < (uint32_t)d->whole + d->fraction ? d->digits[i] - '0' : 0);
    }
    return value;
}

/* False: too large, and the work has failed. */
static bool common_multiple(struct product *p, const struct schema_multiple *list)
{
    ASSERT(list);
    uint64_t k = 1;
    for (const struct schema_multiple *m = list; m; m = m->next)
        p->decimals = MAX_OF(p->decimals, (uint32_t)m->of.fraction);
    for (const struct schema_multiple *m = list; m && k && k <= UINT32_MAX; m = m->next) {
        uint64_t next = p->decimals <= DECIMALS_MAX ? in_units(&m->of, p->decimals) : 0;
        k = next && next <= UINT32_MAX ? k / gcd(k, next) * next : 0;
    }
    p->k = k && k <= UINT32_MAX ? (uint32_t)k : 0;
    if (p->k)
        return true;
    schema_fail(p->w, -E2BIG, 0, "\"multipleOf\" is supported with at most %d decimals and 9 digits",
                DECIMALS_MAX);
    return false;
}

/* ---- a power of ten ---- */

/* Texts whose digits after the first `decimals` ones after the point are 0. */
static rx_id at_most_decimals(struct schema_work *w, uint32_t decimals)
{
    struct rx_store *s = w->s;
    struct rx_bytes all = {{0}}, above = {{0}};
    for (int c = '0'; c <= '9'; c++) {
        all.bits[c / 64] |= 1ull << c % 64;
        if (c > '0')
            above.bits[c / 64] |= 1ull << c % 64;
    }
    rx_id digit = rx_bytes(s, &all), digits = rx_repeat(s, digit, 0, RX_UNBOUNDED);
    rx_id not_zero = rx_cat(s, digits, rx_cat(s, rx_bytes(s, &above), digits));
    rx_id any = rx_cat(s, rx_repeat(s, literal(w, '-'), 0, 1), digits);
    rx_id too_fine = rx_cat(
        s, any, rx_cat(s, literal(w, '.'), rx_cat(s, rx_repeat(s, digit, decimals, decimals), not_zero)));
    return rx_not(s, too_fine);
}

/* ---- other multiples ---- */

static uint32_t state_of(struct product *p, rx_id rx, uint32_t rest, uint32_t after)
{
    ASSERT(rest < p->k && after <= p->decimals + 1);
    if (after == 0 && p->decimals == 0 && rest)
        rest = rest % p->merge ? rest % p->merge : p->merge;
    for (uint32_t i = 0; i < p->count; i++)
        if (p->states[i].rx == rx && p->states[i].rest == rest && p->states[i].after == after)
            return i;
    if (p->count == STATES_MAX) {
        schema_fail(p->w, -E2BIG, 0, "\"multipleOf\" with these bounds takes more than %d states",
                    STATES_MAX);
        return 0;
    }
    p->states[p->count] = (struct product_state){rx, rest, after, grammar_rule(p->w->b)};
    return p->count++;
}

static void add_step(struct product *p, uint32_t from, sym_id terminal, uint32_t to)
{
    ASSERT(from < p->count && to < p->count);
    sym_id both[2] = {terminal, p->states[to].rule};
    grammar_alternative(p->w->b, p->states[from].rule, both, 2);
}

static bool is_whole(const struct product *p, const struct product_state *st)
{
    uint64_t rest = st->rest % p->k;
    for (uint32_t i = st->after ? st->after - 1 : 0; i < p->decimals; i++)
        rest = rest * 10 % p->k;
    return rest == 0;
}

static void digit_step(struct product *p, uint32_t at, int digit)
{
    struct product_state st = p->states[at];
    rx_id rx = rx_derive(p->w->s, st.rx, (uint8_t)('0' + digit));
    bool beyond = st.after > p->decimals;
    if (rx == RX_NONE || (beyond && digit > 0))
        return;
    uint32_t rest = beyond ? st.rest : (uint32_t)(((uint64_t)st.rest * 10 + (uint64_t)digit) % p->k);
    uint32_t after = beyond || st.after == 0 ? st.after : st.after + 1;
    add_step(p, at, p->digits[digit], state_of(p, rx, rest, after));
}

static void steps_of(struct product *p, uint32_t at)
{
    struct product_state st = p->states[at];
    rx_id minus = rx_derive(p->w->s, st.rx, '-'), point = rx_derive(p->w->s, st.rx, '.');
    if (rx_nullable(p->w->s, st.rx) && is_whole(p, &st))
        grammar_alternative(p->w->b, st.rule, NULL, 0);
    if (minus != RX_NONE)
        add_step(p, at, p->minus, state_of(p, minus, 0, 0));
    if (point != RX_NONE && st.after == 0)
        add_step(p, at, p->point, state_of(p, point, st.rest, 1));
    for (int digit = 0; digit <= 9 && !p->w->error; digit++)
        digit_step(p, at, digit);
}

static void emit_product(struct product *p, rx_id bounds, sym_id rule)
{
    ASSERT(p->k > 1);
    struct schema_work *w = p->w;
    p->states = schema_take(w, STATES_MAX * sizeof(*p->states));
    if (!p->states)
        return;
    p->merge = p->k / (uint32_t)gcd(p->k, 10);
    for (int i = 0; i <= 9; i++)
        p->digits[i] = grammar_terminal(w->b, literal(w, (char)('0' + i)));
    p->minus = grammar_terminal(w->b, literal(w, '-'));
    p->point = grammar_terminal(w->b, literal(w, '.'));
    state_of(p, bounds, 0, 0);
    for (uint32_t i = 0; i < p->count && !schema_failed(w); i++)
        steps_of(p, i);
    grammar_alternative(w->b, rule, &p->states[0].rule, 1);
}

/* ---- the numbers of a way ---- */

static rx_id bounds_of(struct schema_work *w, const struct schema_alternative *way)
{
    const struct json_number *n = &way->number;
    bool free = !n->low && !n->high && !n->whole && !n->broken && !way->multiples && !way->except;
    rx_id all = free ? w->text.number : json_number_rx(&w->text, n);
    for (const struct schema_except *e = way->except; e; e = e->next) {
        struct decimal d;
        if (json_is_number(e->value) && decimal_of(e->value, &d))
            all = rx_and(w->s, all, rx_not(w->s, json_number_spellings(&w->text, &d)));
    }
    return all;
}

void schema_emit_number(struct schema_work *w, const struct schema_alternative *way, sym_id rule)
{
    struct product p = {.w = w};
    rx_id bounds = bounds_of(w, way);
    if (bounds == RX_NONE || (way->multiples && !common_multiple(&p, way->multiples)))
        return;
    if (way->multiples && p.k > 1) {
        emit_product(&p, bounds, rule);
        return;
    }
    if (way->multiples)
        bounds = rx_and(w->s, bounds, at_most_decimals(w, p.decimals));
    sym_id terminal = grammar_terminal(w->b, bounds);
    grammar_alternative(w->b, rule, &terminal, 1);
}
