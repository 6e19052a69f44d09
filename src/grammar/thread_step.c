/* thread_step.c - one byte for the threads of a position. */
#include "grammar/matcher_state.h"

#include "base/check.h"

#include <errno.h>

int thread_add(struct matcher_tables *t, uint32_t row, uint32_t state)
{
    ASSERT(t->thread_count <= THREAD_ROOM);
    if (state == STATE_DEAD)
        return 0;
    if (t->thread_count >= THREAD_ROOM - THREADS_MAX)
        return -E2BIG;
    t->threads[t->thread_count++] = (struct thread){row, state};
    return 0;
}

int thread_add_ends(struct matcher_tables *t, uint32_t row, uint32_t state)
{
    const uint32_t *ends = lexer_ends(t, state);
    uint32_t count = t->pool[state - STATE_ENDS];
    ASSERT(state >= STATE_FIRST && t->source_count <= SOURCES_MAX);
    if (count > SOURCES_MAX - t->source_count)
        return -E2BIG;
    for (uint32_t i = 0; i < count; i++)
        t->sources[t->source_count++] = (struct source){row, ends[i]};
    return 0;
}

int thread_step(struct matcher_tables *t, uint32_t at, uint8_t byte, uint32_t *ret)
{
    ASSERT(at < t->thread_count);
    for (int attempt = 0; attempt < 2; attempt++) {
        uint32_t to = lexer_step(t, t->threads[at].state, byte);
        if (to == STATE_DEAD || to >= STATE_FIRST) {
            *ret = to;
            return 0;
        }
        if (to == STATE_COMPLEX || lexer_flush(t) < 0)
            break;
    }
    return -E2BIG;
}

int thread_new_row(struct matcher *m, uint32_t position, uint32_t *row)
{
    uint32_t state;
    int r = parse_row(m, position, row);
    if (r == 0)
        r = parse_row_state(m, *row, &state);
    return r < 0 ? r : thread_add(m->tables, *row, state);
}

int threads_step(struct matcher *m, uint32_t at, uint32_t count, uint8_t byte, uint32_t position,
                 uint32_t *row)
{
    struct matcher_tables *t = m->tables;
    uint32_t first = t->thread_count;
    int r = 0;
    ASSERT(at + count <= first);
    *row = NO_ROW_YET;
    for (uint32_t i = at; i < at + count && r == 0; i++) {
        uint32_t to;
        r = thread_step(t, i, byte, &to);
        if (r < 0 || to == STATE_DEAD)
            continue;
        uint32_t state = to & ~STATE_ACCEPTS;
        if (to & STATE_ACCEPTS)
            r = thread_add_ends(t, t->threads[i].row, state);
        if (r == 0 && !t->pool[state - STATE_FINAL])
            r = thread_add(t, t->threads[i].row, state);
    }
    if (r == 0 && t->source_count)
        r = thread_new_row(m, position, row);
    return r == 0 && t->thread_count - first > THREADS_MAX ? -E2BIG : r;
}
