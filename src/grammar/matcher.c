/* matcher.c - takes bytes and tokens, and takes them back.
 *
 * Each thing taken leaves a mark: its rows, then the threads of the new position. Going back is cutting the
 * stack at a mark. Threads refer to states of the tables; when these have been emptied since, the threads are
 * found again from the text that their rows stand before. */
#include "grammar/matcher.h"

#include "base/check.h"
#include "grammar/grammar_vocab.h"
#include "grammar/matcher_state.h"

#include <errno.h>

/* ---- Marks ---- */

static int mark_push(struct matcher *m, uint32_t row, bool ended)
{
    struct matcher_tables *t = m->tables;
    if (!matcher_fits(m, MARK_UNITS + t->thread_count))
        return -E2BIG;
    struct mark *mark = matcher_mark_at(m, m->top);
    *mark = (struct mark){.before = m->mark, .row = row, .count = t->thread_count, .ended = ended};
    mark->generation = t->generation;
    mark->position = m->position;
    memcpy(mark_threads(mark), t->threads, t->thread_count * sizeof(struct thread));
    m->mark = m->top;
    m->top += MARK_UNITS + t->thread_count;
    m->marks++;
    return 0;
}

static struct mark *last_mark(const struct matcher *m)
{
    return matcher_mark_at(m, m->mark);
}

/* All threads again from their rows, byte by byte together. A thread whose row comes later is dead until
 * then. */
static int replay(struct matcher *m, struct mark *mark)
{
    struct matcher_tables *t = m->tables;
    const struct thread *old = mark_threads(mark);
    uint32_t position = UINT32_MAX;
    for (uint32_t i = 0; i < mark->count; i++)
        position = MIN_OF(position, matcher_row(m, old[i].row)->position);
    for (uint32_t i = 0; i < mark->count; i++)
        t->threads[i] = (struct thread){old[i].row, STATE_DEAD};
    t->thread_count = mark->count;
    for (; position <= mark->position; position++)
        for (uint32_t i = 0; i < mark->count; i++) {
            uint32_t begins = matcher_row(m, old[i].row)->position, to = STATE_DEAD;
            int r = 0;
            if (begins == position)
                r = parse_row_state(m, old[i].row, &to);
            else if (begins < position)
                r = thread_step(t, i, *matcher_text(m, position - 1), &to);
            if (r < 0)
                return r;
            t->threads[i].state = to & ~STATE_ACCEPTS;
        }
    return 0;
}

void matcher_store(struct matcher *m)
{
    struct mark *mark = last_mark(m);
    ASSERT(mark->count <= m->tables->thread_count);
    memcpy(mark_threads(mark), m->tables->threads, mark->count * sizeof(struct thread));
    mark->generation = m->tables->generation;
}

int matcher_load(struct matcher *m)
{
    struct mark *mark = last_mark(m);
    struct matcher_tables *t = m->tables;
    t->source_count = 0;
    if (mark->generation == t->generation) {
        memcpy(t->threads, mark_threads(mark), mark->count * sizeof(struct thread));
        t->thread_count = mark->count;
        return 0;
    }
    int r = replay(m, mark);
    if (r < 0)
        return r;
    matcher_store(m);
    return 0;
}

/* ---- The matcher ---- */

static int begin(struct matcher *m)
{
    struct matcher_tables *t = m->tables;
    uint32_t row, state;
    m->top = m->position = m->base = m->marks = m->marks_from = 0;
    m->mark = UINT32_MAX;
    t->thread_count = t->source_count = 0;
    int r = parse_first_row(m, &row);
    if (r == 0)
        parse_row_like(m, row);
    if (r == 0)
        r = parse_row_state(m, row, &state);
    if (r == 0)
        r = thread_add(t, row, state);
    if (r == 0)
        r = mark_push(m, row, false);
    ASSERT(r < 0 || m->mark < m->top);
    m->marks = 0;
    return r;
}

int matcher_create(const struct matcher_opts *opts, struct matcher **ret)
{
    size_t bytes = opts->bytes_max ? opts->bytes_max : MATCHER_BYTES;
    struct arena *a;
    if (bytes < 4096 || bytes > (size_t)1 << 31)
        return -EINVAL;
    int r = arena_create(&(struct arena_opts){.bytes_max = bytes + 4096, .charge = opts->charge}, &a);
    if (r < 0)
        return r;
    struct matcher *m = ARENA_NEW(a, struct matcher);
    uint64_t *stack = ARENA_ARRAY(a, uint64_t, bytes / 8);
    if (!m || !stack) {
        arena_free(a);
        return -ENOMEM;
    }
    *m = (struct matcher){.arena = a, .tables = opts->tables, .stack = stack, .room = (uint32_t)(bytes / 8)};
    m->items_max = opts->items_max ? MIN_OF(opts->items_max, (uint32_t)MATCHER_ITEMS) : MATCHER_ITEMS;
    r = begin(m);
    if (r < 0) {
        arena_free(a);
        return r;
    }
    *ret = m;
    return 0;
}

void matcher_free(struct matcher *m)
{
    if (m)
        arena_free(m->arena);
}

void matcher_reset(struct matcher *m)
{
    if (m->marks_from == 0) {
        matcher_rewind(m, 0);
        return;
    }
    int r = begin(m);
    ASSERT(r == 0); /* it was when the matcher was made */
}

uint32_t matcher_marks(const struct matcher *m)
{
    return m->marks;
}

void matcher_rewind(struct matcher *m, uint32_t count)
{
    ASSERT(count <= m->marks && count >= m->marks_from);
    for (; m->marks > count; m->marks--)
        m->mark = last_mark(m)->before;
    ASSERT(m->mark < m->top);
    m->top = m->mark + MARK_UNITS + last_mark(m)->count;
    m->position = last_mark(m)->position;
}

bool matcher_may_end(const struct matcher *m)
{
    const struct mark *mark = last_mark(m);
    ASSERT(mark->row == NO_ROW_YET || mark->row < m->mark);
    return !mark->ended && mark->row != NO_ROW_YET && matcher_row(m, mark->row)->complete;
}

bool matcher_has_ended(const struct matcher *m)
{
    return last_mark(m)->ended;
}

/* ---- Taking ---- */

/* Steps over `bytes`; `extra`, where there is one, ends with the last of them. The new threads are
 * t->threads. */
static int run_bytes(struct matcher *m, struct slice bytes, const struct source *extra, uint32_t *row)
{
    struct matcher_tables *t = m->tables;
    for (size_t i = 0; i < bytes.len; i++) {
        uint32_t count = t->thread_count;
        *row = NO_ROW_YET;
        if (count == 0 && !extra)
            return 0;
        if (!matcher_fits(m, 8))
            return -E2BIG;
        *matcher_text(m, m->position++) = (uint8_t)bytes.ptr[i];
        t->source_count = 0;
        if (i + 1 == bytes.len && extra)
            t->sources[t->source_count++] = *extra;
        int r = threads_step(m, 0, count, (uint8_t)bytes.ptr[i], m->position, row);
        if (r < 0)
            return r;
        if (*row != NO_ROW_YET)
            parse_row_like(m, *row);
        ASSERT(t->thread_count >= count);
        t->thread_count -= count;
        memmove(t->threads, t->threads + count, t->thread_count * sizeof(struct thread));
    }
    return 0;
}

/* A special token, which has no bytes. */
static int run_special(struct matcher *m, const struct source *end, uint32_t *row)
{
    struct matcher_tables *t = m->tables;
    t->thread_count = 0;
    t->sources[0] = *end;
    t->source_count = 1;
    int r = thread_new_row(m, m->position, row);
    if (r == 0)
        parse_row_like(m, *row);
    return r;
}

/* Before the stack is full, so that masks have room for their rows. */
static void make_room(struct matcher *m)
{
    uint32_t used = m->top + (m->position - m->base) / 8;
    if (used > m->room / 4 * 3 && m->marks - m->marks_from >= MATCHER_KEEP + MATCHER_KEEP / 2)
        matcher_compact(m, MATCHER_KEEP);
}

/* 1, 0 or -E2BIG, as matcher_take(). */
static int take(struct matcher *m, struct slice bytes, const struct source *extra)
{
    uint32_t top = m->top, position = m->position, row = last_mark(m)->row;
    int r = matcher_load(m);
    if (r == 0 && bytes.len)
        r = run_bytes(m, bytes, extra, &row);
    else if (r == 0 && extra)
        r = run_special(m, extra, &row);
    bool alive = m->tables->thread_count || row != NO_ROW_YET;
    if (r == 0 && alive)
        r = mark_push(m, row, false);
    if (r == 0 && alive)
        return 1;
    ASSERT(m->top >= top && m->position >= position);
    m->top = top;
    m->position = position;
    return r;
}

int matcher_take_bytes(struct matcher *m, struct slice bytes)
{
    make_room(m);
    return last_mark(m)->ended ? 0 : take(m, bytes, NULL);
}

/* The terminal of this special token that the position allows, or UINT32_MAX. */
static uint32_t token_terminal(struct matcher *m, uint32_t token)
{
    struct matcher_tables *t = m->tables;
    uint32_t row = last_mark(m)->row, state;
    if (row == NO_ROW_YET || parse_row_state(m, row, &state) < 0)
        return UINT32_MAX;
    uint32_t at = t->pool[matcher_row(m, row)->predict + PREDICT_TOKENS];
    for (uint32_t i = 0; at && i < t->pool[at]; i++)
        if (t->grammar->terminals[t->pool[at + 1 + i]].token == token)
            return t->pool[at + 1 + i];
    return UINT32_MAX;
}

static int take_end(struct matcher *m)
{
    ASSERT(!last_mark(m)->ended);
    m->tables->thread_count = 0;
    int r = mark_push(m, NO_ROW_YET, true);
    return r < 0 ? r : 1;
}

int matcher_take(struct matcher *m, uint32_t token)
{
    const struct grammar_vocab *v = m->tables->vocab;
    ASSERT(v);
    make_room(m);
    if (last_mark(m)->ended || token >= v->size)
        return 0;
    if (grammar_vocab_ends(v, token) && matcher_may_end(m))
        return take_end(m);
    struct slice bytes = grammar_vocab_text(v, token);
    uint32_t terminal = matcher_load(m) < 0 ? UINT32_MAX : token_terminal(m, token);
    struct source special = {last_mark(m)->row, terminal};
    if (bytes.len == 0 && terminal == UINT32_MAX)
        return 0;
    return take(m, bytes, terminal == UINT32_MAX ? NULL : &special);
}
