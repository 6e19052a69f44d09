/* draft_vocab.c - a clock over rows of a matrix.
 *
 * The hand goes down from the last place: at first that is the least common token. */
#include "model/draft_vocab.h"

#include "model/config/config.h"
#include "model/load/binder.h"
#include "model/load/weight_memory.h"
#include "model/model.h"

#include "base/arena.h"
#include "base/check.h"
#include "base/none.h"
#include "compute/backend.h"
#include "memory/domain.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

/* Default size. */
#define SHARE         4 /* the vocabulary's size is divided by this */
#define SIZE_MIN      1024u
#define SIZE_MAX_AUTO 16384u
/* A place and one more fit into 16 bits. */
#define SIZE_LIMIT 65520u

uint32_t draft_vocab_size(uint32_t wanted, uint32_t vocab)
{
    uint32_t size = wanted == MODEL_DRAFT_VOCAB_AUTO ? MIN_OF(MAX_OF(vocab / SHARE, SIZE_MIN), SIZE_MAX_AUTO)
                                                     : MIN_OF(wanted, SIZE_LIMIT);
    size = ROUND_UP(size, WEIGHT_PANEL);
    return size > vocab / 2 ? 0 : size; /* more saves less than it misses */
}

uint64_t draft_vocab_tables_bytes(uint32_t size, uint32_t vocab)
{
    struct draft_vocab *v = NULL;
    return size ? size * (sizeof(v->ids[0]) + sizeof(v->used[0])) + vocab * (uint64_t)sizeof(v->places[0]) +
                      3 * 64
                : 0;
}

void draft_vocab_fill(struct draft_vocab *v)
{
    v->hand = v->size;
    memset(v->places, 0, v->vocab * sizeof(v->places[0]));
    memset(v->used, 0, v->size * sizeof(v->used[0]));
    for (uint32_t i = 0; i < v->size; i++) {
        v->ids[i] = i;
        v->places[i] = (uint16_t)(i + 1);
    }
}

/* The first rows of a matrix are its first bytes. */
static struct weight first_rows(const struct weight *head, uint32_t count, dev_ptr at)
{
    struct weight rows = *head;
    ASSERT(count % WEIGHT_PANEL == 0 && head->experts == 1);
    rows.n = count;
    rows.data = at;
    return rows;
}

int draft_vocab_bind(struct binder *b, const struct weight *head, struct arena *tables,
                     struct draft_vocab *ret)
{
    uint32_t size = b->config->draft_vocab, vocab = b->config->vocab;
    struct draft_vocab v = {.size = size, .vocab = vocab};
    *ret = v;
    if (size == 0)
        return 0;
    const struct linear_source rows = binder_rows(&b->output, 0, size);
    uint64_t bytes = b->config->backend->weight_bytes(&rows, 1, b->config->compute);
    dev_ptr memory;
    int r = binder_take(b, bytes, &memory);
    if (r < 0 || !b->memory)
        return r;
    v.ids = ARENA_ARRAY(tables, uint32_t, size);
    v.places = ARENA_ARRAY(tables, uint16_t, vocab);
    v.used = ARENA_ARRAY(tables, uint8_t, size);
    if (!v.ids || !v.places || !v.used)
        return -ENOMEM;
    v.rows = first_rows(head, size, memory);
    domain_copy(b->memory->domain, memory, head->data, bytes);
    draft_vocab_fill(&v);
    *ret = v;
    return 0;
}

/* The next place that was not used since the hand last passed. The hand makes at most one round and a step,
 * and clears all marks on the way. */
static uint32_t free_place(struct draft_vocab *v)
{
    for (;;) {
        v->hand = v->hand == 0 ? v->size - 1 : v->hand - 1;
        if (!v->used[v->hand])
            return v->hand;
        v->used[v->hand] = 0;
    }
}

uint32_t draft_vocab_see(struct draft_vocab *v, uint32_t id)
{
    ASSERT(id < v->vocab);
    if (v->places[id]) {
        v->used[v->places[id] - 1] = 1;
        return NONE;
    }
    uint32_t place = free_place(v);
    v->places[v->ids[place]] = 0;
    v->ids[place] = id;
    v->places[id] = (uint16_t)(place + 1);
    v->used[place] = 1;
    return place;
}
