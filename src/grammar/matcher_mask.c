/* matcher_mask.c - which tokens may come next: a walk over the trie of the vocabulary.
 *
 * The walk keeps the threads of each byte on the path from the root. A byte without threads prunes its
 * subtree. Where terminals end, a row is made for the rest of the walk; the row that one thread makes is
 * kept, since the same terminal ends at many nodes. Where every plain character may follow, a slice's mask
 * comes first and the walk is over the other tokens. */
#include "grammar/grammar_vocab.h"
#include "grammar/matcher_state.h"

#include "base/check.h"
#include "rx/rx_store.h"

#include <errno.h>

enum { KEPT = 256, WORK_CHECK = 1024 };

struct frame {
    uint32_t at, count; /* its threads in t->threads */
    uint32_t top;       /* top of the matcher's stack */
};

/* The row that the ends of one thread make. */
struct kept_row {
    uint32_t row, state; /* row and state of the thread */
    uint32_t walk, made;
};

struct mask_walk {
    struct frame frames[TOKEN_BYTES_MAX + 1];
    uint32_t states[TOKEN_BYTES_MAX + 1]; /* states of frames with one thread */
    struct kept_row kept[KEPT];
    uint32_t count;      /* walks until now */
    uint32_t generation; /* generation of the tables; kept rows of another are forgotten */
    uint32_t keep;       /* the matcher's stack stays up to here */
    uint32_t tokens;     /* allowed by this walk; no node is seen twice */
    bool crossed;        /* some token goes beyond the end of a terminal */
    uint64_t work, work_max;
};

int mask_walk_create(struct matcher_tables *t)
{
    t->walk = ARENA_NEW(t->arena, struct mask_walk);
    return t->walk && slice_run_create(t) ? 0 : -ENOMEM;
}

/* The row of the ends in t->sources, which all come from the thread (row, state) unless `state` is
 * STATE_DEAD. */
static int walk_row(struct matcher *m, struct mask_walk *w, uint32_t row, uint32_t state, uint32_t *ret)
{
    struct matcher_tables *t = m->tables;
    if (w->generation != t->generation) {
        w->generation = t->generation;
        w->count++;
    }
    struct kept_row *kept = &w->kept[(row * 31u + state) % KEPT];
    if (state != STATE_DEAD && kept->walk == w->count && kept->row == row && kept->state == state) {
        *ret = kept->made;
        return parse_row_state(m, *ret, &state) < 0 ? -E2BIG : thread_add(t, *ret, state);
    }
    uint32_t generation = t->generation;
    int r = thread_new_row(m, m->position, ret);
    if (r == 0 && state != STATE_DEAD && generation == t->generation && kept->walk != w->count) {
        *kept = (struct kept_row){row, state, w->count, *ret};
        w->keep = m->top;
    }
    return r;
}

/* The node's byte for all threads of `f`: fills `to`. *dead: nothing is left. */
static int walk_step(struct matcher *m, struct mask_walk *w, const struct frame *f, uint8_t byte,
                     struct frame *to, bool *dead)
{
    struct matcher_tables *t = m->tables;
    uint32_t ending = 0, row = NO_ROW_YET, one = STATE_DEAD;
    ASSERT(f->at + f->count <= THREAD_ROOM && w->keep >= w->frames[0].top);
    m->top = MAX_OF(f->top, w->keep);
    to->at = t->thread_count = f->at + f->count;
    t->source_count = 0;
    int r = 0;
    for (uint32_t i = f->at; i < f->at + f->count && r == 0; i++) {
        uint32_t next;
        r = thread_step(t, i, byte, &next);
        if (r < 0 || next == STATE_DEAD)
            continue;
        uint32_t state = next & ~STATE_ACCEPTS;
        if (next & STATE_ACCEPTS) {
            r = thread_add_ends(t, t->threads[i].row, state);
            one = ending++ ? STATE_DEAD : state;
            row = t->threads[i].row;
        }
        if (r == 0 && !t->pool[state - STATE_FINAL])
            r = thread_add(t, t->threads[i].row, state);
    }
    if (r == 0 && ending) {
        uint32_t made;
        w->crossed = true;
        r = walk_row(m, w, row, one, &made);
    }
    to->count = t->thread_count - to->at;
    to->top = m->top;
    *dead = to->count == 0 && ending == 0;
    return r == 0 && to->count > THREADS_MAX ? -E2BIG : r;
}

static uint64_t work_done(const struct matcher_tables *t)
{
    return t->work + t->rx->work;
}

/* Nodes below a frame with one thread, while transitions are known and no terminal ends: from `i` on. Returns
 * the first node that is none of these, with the frames of its path. */
static uint32_t walk_plainly(struct matcher_tables *t, const struct trie *trie, uint32_t i, uint32_t *bits)
{
    struct mask_walk *w = t->walk;
    const struct trie_node *nodes = trie->nodes;
    const uint8_t *classes = t->grammar->classes;
    const uint32_t *pool = t->pool, base = nodes[i].depth - 1, count = trie->count;
    const struct frame *f = &w->frames[base];
    ASSERT(f->count == 1 && nodes[i].depth > 0 && nodes[i].depth <= TOKEN_BYTES_MAX);
    w->states[base] = t->threads[f->at].state;
    while (i < count && nodes[i].depth > base) {
        struct trie_node node = nodes[i];
        uint32_t next = pool[w->states[node.depth - 1] + classes[node.byte]];
        if (next == STATE_DEAD) {
            i += node.size;
            continue;
        }
        if (next < STATE_FIRST || next & STATE_ACCEPTS)
            break;
        w->states[node.depth] = next;
        if (node.same)
            w->tokens += grammar_vocab_set(t->vocab, &nodes[i], bits);
        else if (node.token != VOCAB_TOKENS_MAX)
            bits[node.token / 32] |= 1u << node.token % 32, w->tokens++;
        w->work++;
        i++;
    }
    for (uint32_t d = base + 1; i < count && d < nodes[i].depth; d++) {
        uint32_t at = f->at + d - base;
        t->threads[at] = (struct thread){t->threads[f->at].row, w->states[d]};
        w->frames[d] = (struct frame){at, 1, f->top};
    }
    return i;
}

static int walk(struct matcher *m, const struct trie *trie, uint32_t *bits)
{
    struct matcher_tables *t = m->tables;
    struct mask_walk *w = t->walk;
    const struct trie_node *nodes = trie->nodes;
    for (uint32_t i = 0; i < trie->count;) {
        uint32_t depth = nodes[i].depth;
        if (w->frames[depth - 1].count == 1) {
            i = walk_plainly(t, trie, i, bits);
            if (i == trie->count || nodes[i].depth < depth)
                continue;
        }
        struct trie_node node = nodes[i];
        struct frame *f = &w->frames[node.depth - 1], *to = f + 1;
        bool dead;
        int r = walk_step(m, w, f, (uint8_t)node.byte, to, &dead);
        w->work++;
        if (r < 0 || (w->work_max && w->work + work_done(t) > w->work_max))
            return -E2BIG;
        if (!dead && node.token != VOCAB_TOKENS_MAX)
            w->tokens += grammar_vocab_set(t->vocab, &nodes[i], bits);
        i += to->count ? 1 : node.size;
    }
    return 0;
}

/* The largest slice that any thread of the frame takes whole. */
static const struct vocab_slice *find_slice(struct matcher_tables *t, const struct frame *f)
{
    uint32_t run = 0;
    for (uint32_t i = 0; i < f->count && i < 8; i++)
        run = MAX_OF(run, slice_run(t, t->threads[f->at + i].state));
    for (uint32_t i = 0; i < VOCAB_SLICES; i++)
        if (t->vocab->slices[i].chars && run >= t->vocab->slices[i].chars)
            return &t->vocab->slices[i];
    return NULL;
}

/* The walk's first frame: the position's threads with clamped states, after the threads themselves. */
static int first_frame(struct matcher *m, struct frame *f)
{
    struct matcher_tables *t = m->tables;
    uint32_t count = t->thread_count;
    for (uint32_t i = 0, flushed = 0; i < count; i++) {
        uint32_t state = clamp_state(t, t->threads[i].state);
        if (state < STATE_FIRST && (flushed++ || lexer_flush(t) < 0))
            return -E2BIG;
        if (state < STATE_FIRST)
            state = clamp_state(t, t->threads[i].state);
        if (state < STATE_FIRST || thread_add(t, t->threads[i].row, state) < 0)
            return -E2BIG;
    }
    *f = (struct frame){count, count, m->top};
    return 0;
}

/* The tokens that the walk's first frame allows, and how many. */
static int walk_all(struct matcher *m, uint64_t work_max, uint32_t *bits, uint32_t *count)
{
    struct matcher_tables *t = m->tables;
    struct mask_walk *w = t->walk;
    uint32_t top = m->top;
    w->count++;
    w->generation = t->generation;
    w->keep = m->top;
    w->crossed = false;
    w->work = 0;
    w->work_max = work_max ? work_max + work_done(t) : 0;
    const struct vocab_slice *slice = find_slice(t, &w->frames[0]);
    w->tokens = slice ? slice->count : 0;
    if (slice)
        memcpy(bits, slice->bits, t->vocab->words * sizeof(*bits));
    else
        memset(bits, 0, t->vocab->words * sizeof(*bits));
    rx_limit(t->rx, work_max ? t->rx->work + work_max : UINT64_MAX);
    int r = walk(m, slice ? &slice->rest : &t->vocab->all, bits);
    rx_limit(t->rx, UINT64_MAX);
    ASSERT(m->top >= top);
    m->top = top;
    *count = w->tokens;
    return r;
}

static uint32_t only_bit(const uint32_t *bits)
{
    uint32_t i = 0;
    while (!bits[i])
        i++;
    return i * 32 + (uint32_t)__builtin_ctz(bits[i]);
}

/* Makes the key of the mask cache from the frame's threads. False if there are more than MASK_KEY_MAX: the
 * mask is not cached. */
static bool frame_key(struct matcher *m, const struct frame *f, struct mask_key *ret)
{
    const struct thread *threads = m->tables->threads + f->at;
    ASSERT(f->count > 0);
    *ret = (struct mask_key){.count = f->count};
    if (f->count > MASK_KEY_MAX)
        return false;
    for (uint32_t i = 0; i < f->count; i++) {
        ret->states[i] = threads[i].state;
        ret->likes[i] = matcher_row(m, threads[i].row)->like;
    }
    return true;
}

static int byte_mask(struct matcher *m, uint64_t work_max, uint32_t *bits, uint32_t *count)
{
    struct matcher_tables *t = m->tables;
    struct frame *f = &t->walk->frames[0];
    if (t->thread_count == 0) {
        memset(bits, 0, t->vocab->words * sizeof(*bits));
        return 0;
    }
    if (first_frame(m, f) < 0)
        return -E2BIG;
    struct mask_key key;
    if (!frame_key(m, f, &key))
        return walk_all(m, work_max, bits, count);
    const uint32_t *known = mask_cache_find(t, &key, count);
    if (known) {
        memcpy(bits, known, t->vocab->words * sizeof(*bits));
        return 0;
    }
    int r = walk_all(m, work_max, bits, count);
    if (r < 0)
        return r;
    /* A flush renames states: then the threads have the new names. */
    frame_key(m, f, &key);
    if (!t->walk->crossed)
        memset(key.likes, 0, sizeof(key.likes));
    mask_cache_put(t, &key, bits, *count);
    return 0;
}

static void set_bit(const struct grammar_vocab *v, uint32_t token, uint32_t *bits, uint32_t *count)
{
    if (token >= v->size)
        return;
    *count += !(bits[token / 32] >> token % 32 & 1);
    bits[token / 32] |= 1u << token % 32;
}

/* Special tokens of the grammar, and end tokens. */
static int special_mask(struct matcher *m, uint32_t *bits, uint32_t *count)
{
    struct matcher_tables *t = m->tables;
    uint32_t row = matcher_mark_at(m, m->mark)->row, state;
    t->thread_count = matcher_mark_at(m, m->mark)->count;
    if (row == NO_ROW_YET)
        return 0;
    if (parse_row_state(m, row, &state) < 0)
        return -E2BIG;
    uint32_t at = t->pool[matcher_row(m, row)->predict + PREDICT_TOKENS];
    for (uint32_t i = 0; at && i < t->pool[at]; i++)
        set_bit(t->vocab, t->grammar->terminals[t->pool[at + 1 + i]].token, bits, count);
    for (uint32_t i = 0; matcher_may_end(m) && i < t->vocab->end_count; i++)
        set_bit(t->vocab, t->vocab->ends[i], bits, count);
    return 0;
}

int matcher_mask(struct matcher *m, uint64_t work_max, uint32_t *bits, struct matcher_mask *ret)
{
    struct matcher_tables *t = m->tables;
    ASSERT(t->vocab);
    uint32_t count = 0;
    int r = 0;
    bool ended = matcher_mark_at(m, m->mark)->ended;
    if (!ended) {
        r = matcher_load(m);
        if (r == 0)
            r = byte_mask(m, work_max, bits, &count);
        if (r == 0)
            r = special_mask(m, bits, &count);
        if (r == 0)
            matcher_store(m);
    }
    if (r < 0 || ended)
        memset(bits, 0, t->vocab->words * sizeof(*bits));
    if (r == 0)
        *ret = (struct matcher_mask){.count = count, .single = count == 1 ? only_bit(bits) : 0};
    return r;
}
