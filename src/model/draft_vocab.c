/* draft_vocab.c - a clock over rows of a matrix.
 *
 * The hand goes down from the last place: at first that is the least common token. */
#include "model/draft_vocab.h"

#include "model/model.h"

#include "base/check.h"

#include <string.h>

/* Default size. */
#define SHARE         4 /* of the vocabulary */
#define SIZE_MIN      1024u
#define SIZE_MAX_AUTO 16384u
/* A place and one more fit into 16 bits. */
#define SIZE_LIMIT 65520u

uint32_t draft_vocab_size(uint32_t wanted, uint32_t vocab)
{
    uint32_t size = wanted == MODEL_DRAFT_VOCAB_AUTO ? MIN_OF(MAX_OF(vocab / SHARE, SIZE_MIN), SIZE_MAX_AUTO)
                                                     : MIN_OF(wanted, SIZE_LIMIT);
    size = ROUND_UP(size, (uint32_t)MATRIX_PANEL);
    return size > vocab / 2 ? 0 : size; /* more saves less than it misses */
}

void draft_vocab_fill(struct draft_vocab *v, void *memory, const struct matrix *head)
{
    v->hand = v->size;
    v->rows = matrix_part(head, 0, v->size / MATRIX_PANEL);
    memcpy(memory, v->rows.data, matrix_panels(&v->rows) * matrix_panel_bytes(&v->rows));
    v->rows.data = memory;
    memset(v->places, 0, v->vocab * sizeof(v->places[0]));
    memset(v->used, 0, v->size * sizeof(v->used[0]));
    for (uint32_t i = 0; i < v->size; i++) {
        v->ids[i] = i;
        v->places[i] = (uint16_t)(i + 1);
    }
}

int draft_vocab_bind(struct binder *b, const struct matrix *head, struct draft_vocab *ret)
{
    uint32_t size = b->config->draft_vocab, vocab = b->config->vocab;
    struct draft_vocab v = {.size = size, .vocab = vocab};
    *ret = v;
    if (size == 0)
        return 0;
    struct linear_source rows = binder_rows(&b->output, 0, size);
    void *memory, *ids, *places, *used;
    int r = binder_take(b, matrix_packed_bytes(&rows), &memory);
    if (r == 0)
        r = binder_take(b, size * sizeof(v.ids[0]), &ids);
    if (r == 0)
        r = binder_take(b, vocab * sizeof(v.places[0]), &places);
    if (r == 0)
        r = binder_take(b, size * sizeof(v.used[0]), &used);
    if (r < 0 || !memory)
        return r;
    v.ids = ids;
    v.places = places;
    v.used = used;
    draft_vocab_fill(&v, memory, head);
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

bool draft_vocab_see(struct draft_vocab *v, const struct matrix *head, uint32_t id)
{
    ASSERT(id < v->vocab);
    if (v->places[id]) {
        v->used[v->places[id] - 1] = 1;
        return false;
    }
    uint32_t place = free_place(v);
    v->places[v->ids[place]] = 0;
    v->ids[place] = id;
    v->places[id] = (uint16_t)(place + 1);
    v->used[place] = 1;
    matrix_copy_row(&v->rows, place, head, id);
    return true;
}
