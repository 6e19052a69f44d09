/* matcher_tables.c - the memory of an automaton and of the masks of a grammar. */
#include "grammar/matcher_state.h"

#include "base/check.h"
#include "rx/rx_store.h"

#include <errno.h>

enum { BYTES_MIN = 64 << 10, NODE_BYTES = 48 };

/* Scratch whose size the grammar gives. */
static bool scratch_create(struct matcher_tables *t)
{
    const struct grammar *g = t->grammar;
    size_t symbols = (size_t)g->rule_count + g->terminal_count;
    t->list_room = (uint32_t)symbols + 1;
    t->pairs_room = MAX_OF(g->terminal_count, 2048u);
    t->saved_room = 4 * t->pairs_room;
    t->threads = ARENA_ARRAY(t->arena, struct thread, THREAD_ROOM);
    t->sources = ARENA_ARRAY(t->arena, struct source, SOURCES_MAX);
    t->pairs = ARENA_ARRAY(t->arena, uint32_t, 2 * (size_t)t->pairs_room);
    t->saved = ARENA_ARRAY(t->arena, uint32_t, t->saved_room);
    t->stamps = ARENA_ARRAY(t->arena, uint32_t, symbols);
    t->stack = ARENA_ARRAY(t->arena, uint32_t, g->rule_count);
    t->list = ARENA_ARRAY(t->arena, uint32_t, t->list_room);
    t->seen = ARENA_ARRAY(t->arena, struct seen_item, (size_t)1 << SEEN_ROOM_LOG2);
    t->done = ARENA_ARRAY(t->arena, struct source, DONE_MAX);
    t->tops = ARENA_ARRAY(t->arena, struct top, TOPS);
    t->closures = ARENA_ARRAY(t->arena, uint32_t, g->rule_count);
    return t->threads && t->sources && t->pairs && t->saved && t->stamps && t->stack && t->list && t->seen &&
           t->done && t->tops && t->closures;
}

/* Divides `bytes`: three eighths for states, two for expressions, three for masks. */
static int tables_init(struct matcher_tables *t, size_t bytes)
{
    const struct grammar *g = t->grammar;
    t->generation = 1;
    t->pool_room = (uint32_t)MIN_OF(bytes / 8 * 3 / sizeof(uint32_t), (size_t)1 << 30);
    t->pool_used = STATE_FIRST;
    t->bucket_count = t->pool_room / 64 + 64;
    t->pool = ARENA_ARRAY(t->arena, uint32_t, t->pool_room);
    t->state_buckets = ARENA_ARRAY(t->arena, uint32_t, t->bucket_count);
    t->predict_buckets = ARENA_ARRAY(t->arena, uint32_t, t->bucket_count);
    if (!t->pool || !t->state_buckets || !t->predict_buckets || !scratch_create(t))
        return -ENOMEM;
    for (uint32_t byte = 256; byte-- > 0;)
        t->bytes[g->classes[byte]] = (uint8_t)byte;
    int r = rx_store_over(t->arena, g->rx, (uint32_t)(bytes / 4 / NODE_BYTES), &t->rx);
    if (r == 0 && t->vocab)
        r = mask_walk_create(t);
    if (r == 0 && !parse_row_likes_create(t))
        r = -ENOMEM;
    if (r == 0 && t->vocab)
        r = mask_cache_create(t, bytes / 8 * 3);
    return r;
}

int matcher_tables_create(const struct matcher_tables_opts *opts, struct matcher_tables **ret)
{
    size_t bytes = opts->bytes_max ? opts->bytes_max : MATCHER_TABLES_BYTES;
    struct arena *a;
    if (bytes < BYTES_MIN || bytes > (size_t)1 << 31)
        return -EINVAL;
    /* The rest follows from the grammar's size. */
    size_t more = (size_t)1 << 20;
    more += ((size_t)opts->grammar->rule_count + opts->grammar->terminal_count) * 64;
    more += (size_t)rx_count(opts->grammar->rx) * 8;
    int r = arena_create(&(struct arena_opts){.bytes_max = 2 * bytes + more, .charge = opts->charge}, &a);
    if (r < 0)
        return r;
    struct matcher_tables *t = ARENA_NEW(a, struct matcher_tables);
    if (!t) {
        arena_free(a);
        return -ENOMEM;
    }
    *t = (struct matcher_tables){.arena = a, .grammar = opts->grammar, .vocab = opts->vocab};
    r = tables_init(t, bytes);
    if (r < 0) {
        arena_free(a);
        return r;
    }
    *ret = t;
    return 0;
}

void matcher_tables_free(struct matcher_tables *t)
{
    if (t)
        arena_free(t->arena);
}
