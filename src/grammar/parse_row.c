/* parse_row.c - rows of an Earley parser whose input are terminals (Earley 1970).
 *
 * A row holds items that have passed a symbol: a dot, and the row where its rule began. Three things keep
 * rows small. Predicted items are not stored: a table says what a symbol predicts (predict.c). Completed
 * items are not stored either, since each does its work when the row is made. Items before a nullable symbol
 * come with those after it (Aycock, Horspool 2002), so that no rule is completed in the row where it began,
 * and rows never change.
 *
 * Right recursion (Leo 1991): where exactly one item of a row waits for a rule, and the rule is its last
 * symbol, completing the one completes the other. The end of such a chain is remembered; otherwise a list of
 * n elements would cost n steps for each element. */
#include "grammar/matcher_state.h"

#include "base/check.h"

#include <errno.h>

enum {
    ROW_FULL = 1,           /* the pool is full: flush and make the row again */
    ROW_WORK_MAX = 1 << 18, /* steps of one row: with n items that wait for one rule there are n * n */
};

struct making {
    struct matcher *m;
    struct matcher_tables *t;
    const struct grammar *g;
    struct chart_row *row;
    uint32_t done; /* completed rules in t->done */
};

enum { TRAIL = 64 };

/* Returns true if (dot, origin) is new in this row. */
static bool note(struct matcher_tables *t, uint32_t dot, uint32_t origin)
{
    uint32_t mask = (1u << SEEN_ROOM_LOG2) - 1;
    uint32_t at = (dot * 2654435761u ^ origin * 2246822519u) >> (32 - SEEN_ROOM_LOG2);
    for (; t->seen[at].stamp == t->seen_stamp; at = (at + 1) & mask)
        if (t->seen[at].dot == dot && t->seen[at].origin == origin)
            return false;
    t->seen[at] = (struct seen_item){dot, origin, t->seen_stamp};
    return true;
}

static int complete(struct making *k, uint32_t rule, uint32_t row)
{
    ASSERT(rule < k->g->rule_count && row <= k->m->top);
    if (!note(k->t, DOT_END | rule, row))
        return 0;
    if (rule == k->g->start)
        k->row->complete = 1;
    if (k->done == DONE_MAX)
        return -E2BIG;
    k->t->done[k->done++] = (struct source){row, rule};
    return 0;
}

/* Adds the item with this dot, and those with the dot after each nullable symbol from there. */
static int advance(struct making *k, uint32_t dot, uint32_t origin)
{
    for (;; dot++) {
        ASSERT(dot < k->g->dot_count);
        uint32_t symbol = k->g->symbols[dot];
        if (symbol & DOT_END)
            return complete(k, symbol & DOT_INDEX, origin);
        if (!note(k->t, dot, origin))
            return 0;
        if (k->row->count == k->m->items_max || !matcher_fits(k->m, ROW_UNITS + k->row->count + 1))
            return -E2BIG;
        chart_row_items(k->row)[k->row->count++] = (struct item){dot, origin};
        if (symbol & DOT_TERMINAL || !k->g->nullable[symbol])
            return 0;
    }
}

/* Advances every item of `from`, stored or predicted, that waits for `symbol`. Alternatives often wait for
 * the same rule, one after another: what it predicts is asked once. */
static int advance_all(struct making *k, uint32_t from, uint32_t symbol)
{
    struct chart_row *row = matcher_row(k->m, from);
    const struct item *items = chart_row_items(row);
    ASSERT(symbol < k->g->rule_count + k->g->terminal_count);
    const uint32_t *of = &k->g->corners_of[symbol];
    uint32_t asked = DOT_TERMINAL;
    int r = 0;
    k->t->work += row->count;
    for (uint32_t i = 0; i < row->count && r == 0; i++) {
        uint32_t next = k->g->symbols[items[i].dot];
        if (grammar_symbol(k->g, next) == symbol)
            r = advance(k, items[i].dot + 1, items[i].origin);
        if (next & DOT_TERMINAL || next == asked)
            continue;
        asked = next;
        for (uint32_t c = of[0]; c < of[1] && r == 0; c++) {
            k->t->work++;
            int predicted = predict_closure(k->t, next, k->g->corners[c].rule);
            if (predicted < 0)
                return ROW_FULL;
            if (predicted)
                r = advance(k, k->g->corners[c].dot + 1, from);
        }
    }
    return r;
}

/* The only item of `from` that waits for `rule`: 1. None or several: 0. ROW_FULL + 1 when the pool is. */
static int only_item(struct making *k, uint32_t from, uint32_t rule, struct item *ret)
{
    struct chart_row *row = matcher_row(k->m, from);
    const struct item *items = chart_row_items(row);
    ASSERT(rule < k->g->rule_count);
    const uint32_t *of = &k->g->corners_of[rule];
    struct item one = {UINT32_MAX, 0};
    uint32_t asked = DOT_TERMINAL;
    for (uint32_t i = 0; i < row->count; i++) {
        uint32_t next = k->g->symbols[items[i].dot];
        k->t->work++;
        if (next == rule) {
            if (one.dot != UINT32_MAX)
                return 0;
            one = items[i];
        }
        if (next & DOT_TERMINAL || next == asked)
            continue;
        asked = next;
        for (uint32_t c = of[0]; c < of[1]; c++) {
            k->t->work++;
            int predicted = predict_closure(k->t, next, k->g->corners[c].rule);
            if (predicted < 0)
                return ROW_FULL + 1;
            if (!predicted || (one.dot == k->g->corners[c].dot && one.origin == from))
                continue;
            if (one.dot != UINT32_MAX)
                return 0;
            one = (struct item){k->g->corners[c].dot, from};
        }
    }
    *ret = one;
    return one.dot != UINT32_MAX;
}

static struct top *top_of(struct making *k, uint32_t rule, uint32_t row)
{
    return &k->t->tops[(row * 31u + rule * 2654435761u) % TOPS];
}

/* From (rule, row) to the end of its chain of right recursion. */
static int climb(struct making *k, uint32_t *rule, uint32_t *row)
{
    struct source trail[TRAIL];
    uint32_t steps = 0;
    ASSERT(*row <= k->m->top && *rule < k->g->rule_count);
    for (;;) {
        const struct top *top = top_of(k, *rule, *row);
        if (top->uid == matcher_row(k->m, *row)->uid && top->rule == *rule) {
            *rule = top->top_rule;
            *row = top->top_row;
            break;
        }
        struct item item;
        int only = only_item(k, *row, *rule, &item);
        if (only > 1)
            return ROW_FULL;
        if (!only || !(k->g->symbols[item.dot + 1] & DOT_END))
            break;
        trail[steps++ % TRAIL] = (struct source){*row, *rule};
        *rule = k->g->symbols[item.dot + 1] & DOT_INDEX;
        *row = item.origin;
    }
    for (uint32_t i = 0; i < MIN_OF(steps, (uint32_t)TRAIL); i++)
        *top_of(k, trail[i].terminal, trail[i].row) =
            (struct top){matcher_row(k->m, trail[i].row)->uid, trail[i].terminal, *rule, *row};
    return 0;
}

uint32_t parse_origin(struct matcher *m, struct item item)
{
    struct making k = {.m = m, .t = m->tables, .g = m->tables->grammar};
    uint32_t end = item.dot, row = item.origin;
    while (!(k.g->symbols[end] & DOT_END))
        end++;
    uint32_t rule = k.g->symbols[end] & DOT_INDEX, up = rule;
    struct item next;
    while (only_item(&k, row, up, &next) == 1 && k.g->symbols[next.dot + 1] & DOT_END) {
        up = k.g->symbols[next.dot + 1] & DOT_INDEX;
        row = next.origin;
        if (up == rule)
            item.origin = row;
    }
    return item.origin;
}

static int complete_all(struct making *k)
{
    uint64_t work_max = k->t->work + ROW_WORK_MAX;
    int r = 0;
    ASSERT(k->done <= DONE_MAX);
    for (uint32_t i = 0; i < k->done && r == 0; i++) {
        if (k->t->work > work_max)
            return -E2BIG;
        uint32_t rule = k->t->done[i].terminal, row = k->t->done[i].row;
        r = climb(k, &rule, &row);
        /* The end of a chain may have been completed already. */
        bool same = rule == k->t->done[i].terminal && row == k->t->done[i].row;
        if (r == 0 && !same && !note(k->t, DOT_END | rule, row))
            continue;
        if (r == 0 && rule == k->g->start)
            k->row->complete = 1;
        if (r == 0)
            r = advance_all(k, row, rule);
    }
    return r;
}

static int row_begin(struct making *k, struct matcher *m, uint32_t position)
{
    *k = (struct making){.m = m, .t = m->tables, .g = m->tables->grammar};
    if (!matcher_fits(m, ROW_UNITS))
        return -E2BIG;
    k->row = matcher_row(m, m->top);
    uint64_t uid = ++k->t->next_uid;
    *k->row = (struct chart_row){.uid = uid, .like = uid, .position = position};
    if (++k->t->seen_stamp == 0) {
        memset(k->t->seen, 0, sizeof(*k->t->seen) << SEEN_ROOM_LOG2);
        k->t->seen_stamp = 1;
    }
    return 0;
}

static int row_make(struct making *k)
{
    int r = 0;
    for (uint32_t i = 0; i < k->t->source_count && r == 0; i++)
        r = advance_all(k, k->t->sources[i].row, k->g->rule_count + k->t->sources[i].terminal);
    if (r == 0)
        r = complete_all(k);
    k->t->work += 8 + k->row->count;
    return r;
}

static void row_push(struct making *k, uint32_t *ret)
{
    ASSERT(k->row->count <= k->m->items_max && matcher_fits(k->m, ROW_UNITS + k->row->count));
    *ret = k->m->top;
    k->m->top += ROW_UNITS + k->row->count;
}

int parse_row(struct matcher *m, uint32_t position, uint32_t *ret)
{
    for (int attempt = 0;; attempt++) {
        struct making k;
        int r = row_begin(&k, m, position);
        if (r == 0)
            r = row_make(&k);
        if (r == 0) {
            row_push(&k, ret);
            return 0;
        }
        if (r != ROW_FULL || attempt == 1)
            return -E2BIG;
        r = lexer_flush(m->tables);
        if (r < 0)
            return r;
    }
}

int parse_first_row(struct matcher *m, uint32_t *ret)
{
    struct making k;
    int r = row_begin(&k, m, 0);
    if (r == 0)
        r = advance(&k, k.g->alternatives[k.g->alternatives_of[k.g->start]], m->top);
    if (r == 0)
        row_push(&k, ret);
    return r;
}

/* ---- Rows that are like each other ---- */

enum { LIKES = 64, LIKE_ITEMS = 8 };

/* The continuations of a row depend on its items, and on the continuations of the rows where these began. */
struct row_like {
    uint64_t like; /* 0: empty */
    uint32_t count;
    uint32_t dots[LIKE_ITEMS];
    uint64_t origins[LIKE_ITEMS]; /* likes of the rows where items began; 0: the row itself */
};

struct row_likes {
    struct row_like all[LIKES];
};

bool parse_row_likes_create(struct matcher_tables *t)
{
    t->likes = ARENA_NEW(t->arena, struct row_likes);
    return t->likes;
}

void parse_row_like(struct matcher *m, uint32_t at)
{
    struct chart_row *row = matcher_row(m, at);
    struct row_like key = {.like = row->uid, .count = row->count};
    uint64_t hash = row->count;
    ASSERT(at < m->top && row->count <= m->items_max);
    if (row->count > LIKE_ITEMS)
        return;
    for (uint32_t i = 0; i < row->count; i++) {
        struct item item = chart_row_items(row)[i];
        key.dots[i] = item.dot;
        key.origins[i] = item.origin == at ? 0 : matcher_row(m, item.origin)->like;
        hash = (hash ^ item.dot ^ key.origins[i] << 32) * 0x9E3779B97F4A7C15ull, hash ^= hash >> 32;
    }
    struct row_like *known = &m->tables->likes->all[hash % LIKES];
    bool same = known->like && known->count == key.count &&
                memcmp(known->dots, key.dots, sizeof(key.dots)) == 0 &&
                memcmp(known->origins, key.origins, sizeof(key.origins)) == 0;
    if (same)
        row->like = known->like;
    else
        *known = key;
}

int parse_row_state(struct matcher *m, uint32_t row, uint32_t *ret)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        uint32_t at = predict_row(m->tables, matcher_row(m, row));
        if (at >= STATE_FIRST) {
            *ret = m->tables->pool[at + PREDICT_STATE];
            return 0;
        }
        if (at == STATE_COMPLEX || lexer_flush(m->tables) < 0)
            break;
    }
    return -E2BIG;
}
