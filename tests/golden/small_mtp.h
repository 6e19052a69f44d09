/* small_mtp.h - a small golden model with an MTP head made up for it: its full layer over again, and a random
 * projection in front. */
#ifndef PLATEAU_TESTS_SMALL_MTP_H
#define PLATEAU_TESTS_SMALL_MTP_H

#include "test_rng.h"
#include "small_model.h"

static inline void small_mtp_random(struct test_tensors *l, struct rng *rng, const char *name, float size,
                                    uint32_t rank, const uint64_t *shape)
{
    float *w = test_tensor_add(l, name, DTYPE_F32, rank, shape);
    struct test_tensor *n = &l->list[l->count - 1];
    for (uint64_t i = 0; i < tensor_count(&n->t); i++)
        w[i] = size * ((float)rng_uniform(rng) * 2 - 1);
    small_to_half(n, DTYPE_BF16);
}

/* Adds the head's tensors to a qwen3_5 golden, in HF's names and conventions: norms are w - 1. */
static inline void small_mtp_add(struct test_tensors *l)
{
    static const char layer[] = "model.layers.3.";
    struct rng rng = {31, 0};
    uint64_t hidden = test_tensor_find(l, "model.norm.weight")->t.shape[0];
    size_t count = l->count;
    char name[192];
    small_mtp_random(l, &rng, "mtp.fc.weight", 0.2f, 2, (const uint64_t[]){hidden, 2 * hidden});
    small_mtp_random(l, &rng, "mtp.pre_fc_norm_embedding.weight", 0.4f, 1, &hidden);
    small_mtp_random(l, &rng, "mtp.pre_fc_norm_hidden.weight", 0.4f, 1, &hidden);
    small_mtp_random(l, &rng, "mtp.norm.weight", 0.4f, 1, &hidden);
    for (size_t i = 0; i < count; i++) {
        if (strncmp(l->list[i].name, layer, strlen(layer)) != 0)
            continue;
        snprintf(name, sizeof(name), "mtp.layers.0.%s", l->list[i].name + strlen(layer));
        struct tensor t = l->list[i].t;
        memcpy(test_tensor_add(l, name, t.dtype, t.rank, t.shape), t.data, t.bytes);
        /* About 0, so that the loader can tell the convention from a norm's mean. */
        if (strstr(name, "norm.weight")) {
            test_tensor_remove(l, name);
            small_mtp_random(l, &rng, name, 0.4f, t.rank, t.shape);
        }
    }
}

static inline bool small_mtp_is_head(const char *tensor)
{
    return strstr(tensor, "mtp.") != NULL;
}

static inline bool small_mtp_is_text(const char *tensor)
{
    return !small_mtp_is_head(tensor);
}

/* Computes the sequences' tokens, then drafts after the first sequence. That has two pages, the others one;
 * each has a state. */
static inline void small_mtp_draft(struct model *m, const struct model_opts *o, const struct model_seq *rows,
                                   uint32_t count, const struct model_draft_seq *draft)
{
    const struct model_shape *s = model_shape(m);
    struct room pages = small_room(m, (count + 1) * s->page_bytes);
    struct room states = small_room(m, count * s->state_bytes);
    struct model_step step = {.seqs = rows, .seq_count = count, .pages = {pages.at}, .states = states.at};
    struct model_draft d = {.seqs = draft, .seq_count = 1, .pages = {pages.at}, .states = states.at};
    device_turn_begin(o->device);
    assert_int_equal(model_forward(m, &step), 0);
    assert_int_equal(model_draft(m, &d), 0);
    device_turn_end(o->device);
    room_free(&pages);
    room_free(&states);
}

/* The directory of a golden with such a head, in the same file. */
static inline const char *small_mtp_model(const char *golden)
{
    return small_changed(golden, small_mtp_add);
}

#endif
