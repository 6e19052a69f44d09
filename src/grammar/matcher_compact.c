/* matcher_compact.c - gives up old marks, and what only they need.
 *
 * What remains: the last marks, the rows that their threads stand on, and the rows where items of these
 * began. A list does not hold the rows of its elements: where completing a rule completes the same rule of an
 * earlier row by right recursion, an item begins in that row as well. So the stack follows the depth of a
 * text and not its length, but for the text itself, which stays from the first byte that a thread has read.
 *
 * The stack is compacted in place. Rows lie below the rows and marks that refer to them, so moving to the
 * left in their order overwrites nothing that is still to be moved. */
#include "grammar/matcher_state.h"

#include "base/check.h"

#define LIST_END (UINT32_MAX - 1)

struct compacting {
    struct matcher *m;
    uint32_t oldest, first; /* the first mark, and the first that stays */
    uint32_t list;          /* first row that stays and is not visited; linked by `moved` */
    uint32_t base;          /* text before it goes */
};

/* ---- The stack in its order ---- */

struct place {
    uint32_t at, units, next_mark;
    bool is_mark;
};

static struct place before_all(const struct compacting *s)
{
    return (struct place){.next_mark = s->oldest};
}

/* The next row or mark; false at the end. `before` of marks leads to the mark after them meanwhile. */
static bool next_place(const struct compacting *s, struct place *p)
{
    p->at += p->units;
    if (p->at >= s->m->top)
        return false;
    p->is_mark = p->at == p->next_mark;
    if (p->is_mark) {
        const struct mark *mark = matcher_mark_at(s->m, p->at);
        p->units = MARK_UNITS + mark->count;
        p->next_mark = mark->before;
    } else {
        p->units = ROW_UNITS + matcher_row(s->m, p->at)->count;
    }
    ASSERT(p->at + p->units <= s->m->top);
    return true;
}

static bool stays(const struct compacting *s, const struct place *p)
{
    return p->is_mark ? p->at >= s->first : matcher_row(s->m, p->at)->moved != 0;
}

static void reverse_marks(struct compacting *s, uint32_t keep)
{
    uint32_t after = UINT32_MAX, at = s->m->mark;
    for (uint32_t i = 0; at != UINT32_MAX; i++) {
        struct mark *mark = matcher_mark_at(s->m, at);
        uint32_t before = mark->before;
        if (i == keep)
            s->first = at;
        mark->before = after;
        after = at;
        at = before;
    }
    ASSERT(after != UINT32_MAX);
    s->oldest = after;
}

/* ---- Rows that stay ---- */

static void need_row(struct compacting *s, uint32_t row)
{
    ASSERT(row < s->m->top);
    struct chart_row *head = matcher_row(s->m, row);
    if (head->moved)
        return;
    head->moved = s->list + 1;
    s->list = row;
}

static void find_rows(struct compacting *s)
{
    for (uint32_t at = s->first; at != UINT32_MAX; at = matcher_mark_at(s->m, at)->before) {
        struct mark *mark = matcher_mark_at(s->m, at);
        if (mark->row != NO_ROW_YET)
            need_row(s, mark->row);
        for (uint32_t i = 0; i < mark->count; i++)
            need_row(s, mark_threads(mark)[i].row);
    }
    while (s->list != LIST_END) {
        struct chart_row *row = matcher_row(s->m, s->list);
        s->list = row->moved - 1;
        for (uint32_t i = 0; i < row->count; i++) {
            struct item *item = &chart_row_items(row)[i];
            item->origin = parse_origin(s->m, *item);
            need_row(s, item->origin);
        }
    }
}

/* `moved` of a row that stays: 1 + its new place. */
static void give_places(struct compacting *s)
{
    uint32_t to = 0;
    for (struct place p = before_all(s); next_place(s, &p);) {
        if (!stays(s, &p))
            continue;
        if (!p.is_mark)
            matcher_row(s->m, p.at)->moved = to + 1;
        to += p.units;
    }
}

static uint32_t new_place(const struct compacting *s, uint32_t row)
{
    ASSERT(matcher_row(s->m, row)->moved);
    return matcher_row(s->m, row)->moved - 1;
}

static void refer_mark(struct compacting *s, struct mark *mark)
{
    s->base = MIN_OF(s->base, mark->position);
    if (mark->row != NO_ROW_YET)
        mark->row = new_place(s, mark->row);
    for (uint32_t i = 0; i < mark->count; i++) {
        struct thread *thread = &mark_threads(mark)[i];
        s->base = MIN_OF(s->base, matcher_row(s->m, thread->row)->position);
        thread->row = new_place(s, thread->row);
    }
}

static void refer_row(const struct compacting *s, struct chart_row *row)
{
    for (uint32_t i = 0; i < row->count; i++)
        chart_row_items(row)[i].origin = new_place(s, chart_row_items(row)[i].origin);
}

static void refer_all(struct compacting *s)
{
    s->base = s->m->position;
    for (struct place p = before_all(s); next_place(s, &p);) {
        if (stays(s, &p) && p.is_mark)
            refer_mark(s, matcher_mark_at(s->m, p.at));
        else if (stays(s, &p))
            refer_row(s, matcher_row(s->m, p.at));
    }
}

/* ---- Moving ---- */

static void move_all(struct compacting *s)
{
    struct matcher *m = s->m;
    uint32_t to = 0, before = UINT32_MAX;
    for (struct place p = before_all(s); next_place(s, &p);) {
        if (!stays(s, &p))
            continue;
        if (p.is_mark)
            matcher_mark_at(m, p.at)->before = before;
        else
            matcher_row(m, p.at)->moved = 0;
        ASSERT(to <= p.at);
        memmove(m->stack + to, m->stack + p.at, (size_t)p.units * sizeof(*m->stack));
        before = p.is_mark ? to : before;
        to += p.units;
    }
    ASSERT(before < to && to <= m->top);
    m->mark = before;
    m->top = to;
}

static void move_text(struct compacting *s)
{
    struct matcher *m = s->m;
    uint8_t *end = (uint8_t *)(m->stack + m->room);
    ASSERT(s->base >= m->base && s->base <= m->position);
    size_t kept = m->position - s->base;
    memmove(end - kept, end - (m->position - m->base), kept);
    m->base = s->base;
}

void matcher_compact(struct matcher *m, uint32_t keep)
{
    struct compacting s = {.m = m, .list = LIST_END};
    if (m->marks - m->marks_from <= keep)
        return;
    reverse_marks(&s, keep);
    find_rows(&s);
    give_places(&s);
    refer_all(&s);
    move_all(&s);
    move_text(&s);
    ASSERT(m->marks - keep > m->marks_from);
    m->marks_from = m->marks - keep;
    /* They name rows by their places. */
    memset(m->tables->tops, 0, TOPS * sizeof(*m->tables->tops));
}
