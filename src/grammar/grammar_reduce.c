/* grammar_reduce.c - symbols that no text derives from, and symbols that the start does not need.
 *
 * Without them every row that a parser can make is the prefix of some text of the language, which makes masks
 * exact. Both are worklists over occurrences: linear in the grammar. */
#include "grammar/grammar_state.h"

#include "base/err.h"
#include "rx/rx_store.h"

#include <errno.h>

enum { ALIVE_STEPS = 100000 };

struct reducing {
    struct draft *d;
    uint8_t *productive;
    uint32_t *open;     /* [row]: symbols that are not known to be productive */
    uint32_t *rule_of;  /* [row]: its rule */
    uint8_t *listed;    /* [row]: its rule is not a terminal by now */
    uint32_t *users_of; /* [symbol_count + 1], into `users`: rows that a symbol stands in, by occurrence */
    uint32_t *users;
    uint32_t *queue, queued;
};

static int terminals(struct reducing *p, struct err *e)
{
    struct draft *d = p->d;
    for (uint32_t s = 0; s < d->symbol_count; s++) {
        int alive = d->kinds[s] == SYMBOL_TOKEN;
        if (d->kinds[s] == SYMBOL_TERMINAL && p->users_of[s + 1] > p->users_of[s])
            alive = rx_alive(d->rx, d->values[s], ALIVE_STEPS);
        if (alive < 0 && rx_failed(d->rx))
            return -ENOMEM;
        if (alive < 0)
            return err_set(
                e, -E2BIG,
                "it is too complex to decide whether an intersection or complement matches any text");
        if (alive && !p->productive[s]) {
            p->productive[s] = true;
            p->queue[p->queued++] = s;
        }
    }
    return 0;
}

static void reduce_row(struct reducing *p, uint32_t row)
{
    uint32_t rule = p->rule_of[row];
    if (p->productive[rule])
        return;
    p->productive[rule] = true;
    p->queue[p->queued++] = rule;
}

static void productive_rules(struct reducing *p)
{
    struct draft *d = p->d;
    for (uint32_t row = 0; row < d->production_count; row++)
        if (d->productions[row].count == 0 && p->listed[row])
            reduce_row(p, row);
    for (uint32_t i = 0; i < p->queued; i++) {
        uint32_t s = p->queue[i];
        for (uint32_t u = p->users_of[s]; u < p->users_of[s + 1]; u++)
            if (--p->open[p->users[u]] == 0)
                reduce_row(p, p->users[u]);
    }
}

static bool index_rows(struct reducing *p)
{
    struct draft *d = p->d;
    uint32_t *filled = ARENA_ARRAY(d->arena, uint32_t, d->symbol_count);
    for (uint32_t s = 0; s < d->symbol_count; s++)
        for (uint32_t row = d->kinds[s] == SYMBOL_RULE ? d->first_production[s] : NO_PRODUCTION;
             row != NO_PRODUCTION; row = d->productions[row].next) {
            p->rule_of[row] = s;
            p->listed[row] = true;
            p->open[row] = d->productions[row].count;
            for (uint32_t i = 0; i < d->productions[row].count; i++)
                p->users_of[d->symbols[d->productions[row].at + i] + 1]++;
        }
    for (uint32_t s = 0; s < d->symbol_count; s++)
        p->users_of[s + 1] += p->users_of[s];
    p->users = ARENA_ARRAY(d->arena, uint32_t, p->users_of[d->symbol_count]);
    if (!filled || !p->users)
        return false;
    for (uint32_t row = 0; row < d->production_count; row++)
        for (uint32_t i = 0; i < d->productions[row].count && p->open[row]; i++) {
            uint32_t s = d->symbols[d->productions[row].at + i];
            p->users[p->users_of[s] + filled[s]++] = row;
        }
    return true;
}

/* Rows with a symbol that is not productive go. */
static void drop_rows(struct draft *d, const uint8_t *productive)
{
    for (uint32_t s = 0; s < d->symbol_count; s++) {
        if (d->kinds[s] != SYMBOL_RULE)
            continue;
        uint32_t *link = &d->first_production[s];
        while (*link != NO_PRODUCTION) {
            const struct production *row = &d->productions[*link];
            bool whole = true;
            for (uint32_t i = 0; i < row->count && whole; i++)
                whole = productive[d->symbols[row->at + i]];
            if (whole)
                link = &d->productions[*link].next;
            else
                *link = row->next;
        }
    }
}

static void reach(struct draft *d, uint8_t *reachable, uint32_t *queue)
{
    uint32_t queued = 0;
    reachable[d->start] = true;
    queue[queued++] = d->start;
    for (uint32_t i = 0; i < queued; i++)
        for (uint32_t row = d->kinds[queue[i]] == SYMBOL_RULE ? d->first_production[queue[i]] : NO_PRODUCTION;
             row != NO_PRODUCTION; row = d->productions[row].next)
            for (uint32_t k = 0; k < d->productions[row].count; k++) {
                uint32_t s = d->symbols[d->productions[row].at + k];
                if (!reachable[s]) {
                    reachable[s] = true;
                    queue[queued++] = s;
                }
            }
}

int grammar_reduce(struct draft *d, uint8_t *productive, uint8_t *reachable, struct err *e)
{
    struct reducing p = {.d = d, .productive = productive};
    p.open = ARENA_ARRAY(d->arena, uint32_t, d->production_count);
    p.rule_of = ARENA_ARRAY(d->arena, uint32_t, d->production_count);
    p.listed = ARENA_ARRAY(d->arena, uint8_t, d->production_count);
    p.users_of = ARENA_ARRAY(d->arena, uint32_t, (size_t)d->symbol_count + 1);
    p.queue = ARENA_ARRAY(d->arena, uint32_t, d->symbol_count);
    if (!p.open || !p.rule_of || !p.listed || !p.users_of || !p.queue || !index_rows(&p))
        return -ENOMEM;
    int r = terminals(&p, e);
    if (r < 0)
        return r;
    productive_rules(&p);
    if (!productive[d->start])
        return err_set(e, -EINVAL, "no text at all matches the grammar");
    drop_rows(d, productive);
    reach(d, reachable, p.queue);
    return 0;
}
