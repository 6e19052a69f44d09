/* shards.c - a step in parts, one after the other.
 *
 * A backend may spoil the batch's arrays during a step of its own. So they are kept here, and restored
 * before the next part begins.
 *
 * A part waits on the host for the one before it. Events between the devices' queues would save that wait,
 * but need recordings of several devices. */
#include "compute/shards.h"

#include "compute/batch.h"
#include "compute/shape.h"

#include "base/arena.h"
#include "base/check.h"

#include <errno.h>
#include <string.h>

/* The batch's arrays as they were when the step began. */
struct kept {
    struct batch_seq *seqs;
    uint32_t *ids, *token_seq, *logit_columns, *hidden_columns, *ends;
    struct rope_position *positions;
    dev_ptr *features;
};

struct shards {
    struct compute compute; /* first */
    /* Constant. */
    struct compute *of[SHARDS_MAX];
    uint32_t count;
    /* The step. */
    const struct batch *whole; /* NULL: none is under way */
    struct batch part;         /* the batch of the part under way */
    struct kept kept;
    uint32_t at;    /* the shard of the part under way */
    uint32_t begun; /* parts that were begun */
    uint32_t seen;  /* bit per shard: a part of it had the step's key */
    bool is_open;   /* a part is under way */
    bool skips;     /* its operations are repeated from a recording, or it failed */
    uint32_t key;
    int error;
};

static struct shards *shards_of(struct compute *c)
{
    return (struct shards *)c;
}

/* ---- the batch ---- */

#define EACH_TOKEN_ARRAY(X) X(ids) X(token_seq) X(positions) X(features) X(logit_columns) X(ends)
#define EACH_SEQ_ARRAY(X)   X(seqs) X(hidden_columns)

struct compute_bytes shards_bytes(void)
{
    const struct kept *k = NULL;
#define BYTES(name) +sizeof(k->name[0])
    return (struct compute_bytes){.fixed = sizeof(struct shards) + 9 * 64,
                                  .token = 0 EACH_TOKEN_ARRAY(BYTES),
                                  .seq = 0 EACH_SEQ_ARRAY(BYTES)};
#undef BYTES
}

static bool create_kept(struct arena *a, const struct shards_opts *o, struct kept *k)
{
    bool ok = true;
#define CREATE_TOKENS(name)                                                                                  \
    ok = ok && (k->name = arena_alloc_array(a, o->tokens_max, sizeof(k->name[0]))) != NULL;
#define CREATE_SEQS(name)                                                                                    \
    ok = ok && (k->name = arena_alloc_array(a, o->seqs_max, sizeof(k->name[0]))) != NULL;
    EACH_TOKEN_ARRAY(CREATE_TOKENS)
    EACH_SEQ_ARRAY(CREATE_SEQS)
#undef CREATE_TOKENS
#undef CREATE_SEQS
    return ok;
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (to && from && bytes > 0)
        memcpy(to, from, bytes);
}

/* Returns a batch's array for writing: from a step's begin to its end it is the backend's. */
static void *own(const void *array)
{
    return (void *)(uintptr_t)array;
}

static void keep(struct kept *k, const struct batch *b)
{
#define KEEP_TOKENS(name) copy(k->name, b->name, b->token_count * sizeof(k->name[0]));
#define KEEP_SEQS(name)   copy(k->name, b->name, b->seq_count * sizeof(k->name[0]));
    EACH_TOKEN_ARRAY(KEEP_TOKENS)
    EACH_SEQ_ARRAY(KEEP_SEQS)
}

static void restore(const struct kept *k, const struct batch *b)
{
#define RESTORE_TOKENS(name) copy(own(b->name), k->name, b->token_count * sizeof(k->name[0]));
#define RESTORE_SEQS(name)   copy(own(b->name), k->name, b->seq_count * sizeof(k->name[0]));
    EACH_TOKEN_ARRAY(RESTORE_TOKENS)
    EACH_SEQ_ARRAY(RESTORE_SEQS)
}

/* ---- parts ---- */

/* The step's batch in the memory of a shard. Only the last part has results. */
static struct batch batch_of(const struct shards *s, uint32_t shard, bool last)
{
    struct batch b = *s->whole;
    if (shard > 0) {
        memcpy(b.pages, s->whole->beside_shards[shard - 1].pages, sizeof(b.pages));
        b.states = s->whole->beside_shards[shard - 1].states;
    }
    if (last)
        return b;
    b.logit_count = b.value_count = 0;
    b.samples = NULL;
    b.beside = NULL;
    return b;
}

static void begin_part(struct shards *s, uint32_t shard, bool last)
{
    ASSERT(!s->is_open && shard < s->count);
    if (s->begun++ > 0)
        restore(&s->kept, s->whole);
    s->at = shard;
    s->part = batch_of(s, shard, last);
    s->is_open = true;
    compute_step_begin(s->of[shard], &s->part);
}

static int end_part(struct shards *s)
{
    ASSERT(s->is_open);
    s->is_open = false;
    return compute_step_end(s->of[s->at]);
}

static void step_begin(struct compute *c, const struct batch *b)
{
    struct shards *s = shards_of(c);
    ASSERT(!s->whole);
    s->whole = b;
    s->begun = s->seen = 0;
    s->error = 0;
    s->skips = false;
    keep(&s->kept, b);
    begin_part(s, 0, !b->beside_shards);
}

/* The first part of a shard has the step's key. The last part has other operations of the first shard; they
 * are few, and not recorded. */
static bool repeats(struct shards *s)
{
    const uint32_t bit = 1u << s->at;
    if (s->seen & bit)
        return false;
    s->seen |= bit;
    return compute_replay(s->of[s->at], s->key);
}

static bool replay(struct compute *c, uint32_t key)
{
    struct shards *s = shards_of(c);
    ASSERT(s->whole && s->seen == 0 && s->at == 0);
    s->key = key;
    s->skips = repeats(s);
    /* The other parts may need what the caller calls now. */
    return s->skips && !s->whole->beside_shards;
}

static void hand_over(struct compute *c, const struct op_hand_over *a)
{
    struct shards *s = shards_of(c);
    const uint32_t from = s->at;
    ASSERT(s->whole && s->whole->beside_shards && s->seen > 0 && a->shard != from);
    if (s->error < 0)
        return;
    s->error = end_part(s);
    s->skips = s->error < 0;
    if (s->error < 0)
        return;
    ASSERT(a->shard == 0 || a->shard > from);
    begin_part(s, a->shard, a->shard == 0);
    for (uint32_t i = 0; i < a->count; i++)
        s->of[a->shard]->ops->take_rows(s->of[a->shard], s->of[from], a->arrays[i], s->part.token_count);
    s->skips = repeats(s);
}

static int step_end(struct compute *c)
{
    struct shards *s = shards_of(c);
    ASSERT(s->whole);
    if (s->is_open && s->error == 0)
        s->error = end_part(s);
    s->whole = NULL;
    return s->error;
}

static void step_cancel(struct compute *c)
{
    struct shards *s = shards_of(c);
    ASSERT(s->whole);
    if (s->is_open)
        compute_step_cancel(s->of[s->at]);
    s->is_open = false;
    s->whole = NULL;
}

/* ---- operations ---- */

#define FORWARD(backend, name, type)                                                                         \
    static void backend##_##name(struct compute *c, const struct type *a)                                    \
    {                                                                                                        \
        struct shards *s = shards_of(c);                                                                     \
        if (!s->skips)                                                                                       \
            compute_##name(s->of[s->at], a);                                                                 \
    }
COMPUTE_OPS(FORWARD, to_shard)
#undef FORWARD

static void project(struct compute *c, const struct op_product *list, uint32_t count)
{
    struct shards *s = shards_of(c);
    if (!s->skips)
        compute_project(s->of[s->at], list, count);
}

static void project_glu(struct compute *c, const struct op_product *p, const struct op_glu *a)
{
    struct shards *s = shards_of(c);
    if (!s->skips)
        compute_project_glu(s->of[s->at], p, a);
}

/* Logits are the first shard's. */
static int row(struct compute *c, uint32_t i)
{
    struct shards *s = shards_of(c);
    ASSERT(!s->whole);
    return compute_row(s->of[0], i);
}

static bool encode(struct compute *c, const struct op_encode *a, uint32_t *at)
{
    struct shards *s = shards_of(c);
    ASSERT(!s->whole);
    return compute_encode(s->of[0], a, at);
}

static void close_shards(struct compute *c)
{
    struct shards *s = shards_of(c);
    for (uint32_t i = 0; i < s->count; i++)
        compute_close(s->of[i]);
}

static const struct compute_ops ops = {.close = close_shards,
                                       .step_begin = step_begin,
                                       .replay = replay,
                                       .step_end = step_end,
                                       .step_cancel = step_cancel,
                                       .project = project,
                                       .project_glu = project_glu,
                                       .row = row,
                                       .encode = encode,
                                       .hand_over = hand_over,
                                       COMPUTE_OPS(COMPUTE_OP_ENTRY, to_shard)};

int shards_open(struct arena *a, const struct shards_opts *opts, struct compute **ret)
{
    struct shards *s = ARENA_NEW(a, struct shards);
    ASSERT(opts->count > 1 && opts->count <= SHARDS_MAX);
    if (!s || !create_kept(a, opts, &s->kept))
        return -ENOMEM;
    s->compute.ops = &ops;
    s->count = opts->count;
    memcpy(s->of, opts->of, sizeof(s->of));
    *ret = &s->compute;
    return 0;
}
