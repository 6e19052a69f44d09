/* slice_run.c - whether a state takes every token of a slice, read off its expressions.
 *
 * x{m,n} followed by anything takes n plain characters when x matches each of them. That x does is decided
 * once for each x: "plain characters less x" then has no text. An intersection of such repetitions takes
 * as many as the shortest, and one without a bound loses nothing by the complement of finitely many texts. */
#include "grammar/matcher_state.h"

#include "base/check.h"
#include "rx/rx_store.h"

enum { OPEN_DEPTH = 8, OPEN_STEPS = 500 };

/* Zero: not decided. */
struct run_memo {
    rx_id body;
    uint32_t generation, plain;
};

static bool takes_plain(struct matcher_tables *t, rx_id body)
{
    struct run_memo *memo = &t->runs[body % RUN_MEMO];
    if (memo->body == body && memo->generation == t->generation)
        return memo->plain;
    rx_id others = rx_and(t->rx, t->grammar->plain, rx_not(t->rx, body));
    bool plain = rx_alive(t->rx, others, 2000) == 0 && !rx_failed(t->rx);
    *memo = (struct run_memo){body, t->generation, plain};
    return plain;
}

/* Returns the run of an intersection whose elements are all repetitions of plain characters or complements of
 * finite sets. */
static uint32_t run_of_all(struct matcher_tables *t, rx_id x)
{
    uint32_t least = 0, most = RX_UNBOUNDED, repeats = 0, complements = 0;
    for (bool more = true; more; x = rx_at(t->rx, x)->b) {
        more = rx_at(t->rx, x)->kind == RX_K_AND;
        const struct rx_item *n = rx_at(t->rx, more ? rx_at(t->rx, x)->a : x);
        if (n->kind == RX_K_NOT && rx_at(t->rx, n->a)->flags & RX_F_FINITE)
            complements++;
        else if (n->kind == RX_K_REPEAT && takes_plain(t, n->a))
            least = MAX_OF(least, n->min), most = MIN_OF(most, n->max), repeats++;
        else
            return 0;
    }
    if (repeats == 0 || least > most || (complements && most != RX_UNBOUNDED))
        return 0;
    return MIN_OF(most, (uint32_t)RUN_MAX);
}

/* The part of `x` that stays in it with any plain characters before: if it has a text, every plain text
 * begins one. A complement of finitely many loses to them nothing, since more characters may stand between.
 * */
static rx_id open_part(struct matcher_tables *t, rx_id x, uint32_t depth)
{
    const struct rx_item *n = rx_at(t->rx, x), *first = n->kind == RX_K_CAT ? rx_at(t->rx, n->a) : n;
    if (first->kind == RX_K_REPEAT && first->max == RX_UNBOUNDED && takes_plain(t, first->a))
        return x;
    if (n->kind == RX_K_NOT && rx_at(t->rx, n->a)->flags & RX_F_FINITE)
        return x;
    if ((n->kind != RX_K_OR && n->kind != RX_K_AND) || depth == 0)
        return RX_NONE;
    rx_id a = open_part(t, n->a, depth - 1), b = open_part(t, n->b, depth - 1);
    return n->kind == RX_K_OR ? rx_or(t->rx, a, b) : rx_and(t->rx, a, b);
}

/* Returns the run of an intersection. */
static uint32_t run_of_and(struct matcher_tables *t, rx_id x)
{
    uint32_t run = run_of_all(t, x);
    if (run > 0)
        return run;
    rx_id open = open_part(t, x, OPEN_DEPTH);
    return open != RX_NONE && rx_alive(t->rx, open, OPEN_STEPS) == 1 ? RUN_MAX : 0;
}

static uint32_t run_of(struct matcher_tables *t, rx_id x, uint32_t depth)
{
    const struct rx_item *n = rx_at(t->rx, x);
    uint32_t run = 0;
    if (n->kind == RX_K_REPEAT && takes_plain(t, n->a))
        return MIN_OF(n->max, (uint32_t)RUN_MAX);
    if (depth == 0 || x == RX_ALL)
        return x == RX_ALL ? RUN_MAX : 0;
    if (n->kind == RX_K_AND)
        return run_of_and(t, x);
    if (n->kind == RX_K_CAT && rx_at(t->rx, n->b)->flags & RX_F_EVIDENT) {
        run = run_of(t, n->a, depth - 1);
        if (run < RUN_MAX && rx_nullable(t->rx, n->a))
            run = MAX_OF(run, run_of(t, n->b, depth - 1));
    }
    for (uint32_t i = 0; n->kind == RX_K_OR && i < 16 && run < RUN_MAX; i++) {
        run = MAX_OF(run, run_of(t, n->a, depth - 1));
        if (rx_at(t->rx, n->b)->kind != RX_K_OR)
            return MAX_OF(run, run_of(t, n->b, depth - 1));
        n = rx_at(t->rx, n->b);
    }
    return run;
}

uint32_t slice_run(struct matcher_tables *t, uint32_t state)
{
    ASSERT(state >= STATE_FIRST && state < t->pool_used);
    uint32_t *known = &t->pool[state - STATE_RUN];
    if (*known)
        return *known - 1;
    const uint32_t *pairs = t->pool + state + t->grammar->class_count;
    uint32_t run = 0;
    for (uint32_t i = 0; i < t->pool[state - STATE_PAIRS] && i < 64 && run < RUN_MAX; i++)
        run = MAX_OF(run, run_of(t, pairs[2 * i + 1], 3));
    if (!rx_failed(t->rx))
        *known = run + 1;
    return rx_failed(t->rx) ? 0 : run;
}

bool slice_run_create(struct matcher_tables *t)
{
    t->runs = ARENA_ARRAY(t->arena, struct run_memo, RUN_MEMO);
    return t->runs;
}
