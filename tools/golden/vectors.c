/* vectors.c - a small prefill of its own: each text has its pages, no state and no decoding. A score is a
 * vector of one value: of the classifier, or of two logits. */
#include "model_path.h"

#include "base/check.h"
#include "base/none.h"
#include "golden/room.h"
#include "golden/vectors.h"
#include "model/config/pooling.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct text {
    const struct golden_vector *golden;
    uint32_t *pages;
    uint32_t done;
    float *vector, *first; /* [width]: of this run, and of the first */
};

struct run {
    struct model *model;
    struct pooling_config pooling;
    uint32_t hidden, vocab, count;
    uint32_t room; /* values of a vector on its way */
    struct text *texts;
    struct model_seq *seqs;
    float *rows;   /* [tokens of all][hidden] */
    float *logits; /* [count][vocab] */
    uint32_t *page_ids;
    struct room memory;
    dev_ptr pages[PAGE_GROUPS_MAX];
};

static void run_done(struct run *r)
{
    for (uint32_t i = 0; r->texts && i < r->count; i++) {
        free(r->texts[i].vector);
        free(r->texts[i].first);
    }
    free(r->texts);
    free(r->seqs);
    free(r->rows);
    free(r->logits);
    free(r->page_ids);
    room_free(&r->memory);
}

static int run_init(struct run *r, const struct golden_file *f)
{
    uint32_t tokens = 0, pages = 0;
    r->count = f->vector_count;
    for (uint32_t i = 0; i < r->count; i++) {
        tokens += f->vectors[i].ids.count;
        pages += DIV_UP(f->vectors[i].ids.count, PAGE_TOKENS);
    }
    r->texts = calloc(r->count, sizeof(r->texts[0]));
    r->seqs = calloc(r->count, sizeof(r->seqs[0]));
    r->rows = calloc(tokens, r->hidden * sizeof(float));
    r->page_ids = calloc(pages, sizeof(r->page_ids[0]));
    r->logits = calloc(r->count, r->vocab * sizeof(float));
    if (!r->texts || !r->seqs || !r->rows || !r->logits || !r->page_ids)
        return -ENOMEM;
    for (uint32_t i = 0; i < pages; i++)
        r->page_ids[i] = pages - 1 - i;
    uint32_t at = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        struct text *t = &r->texts[i];
        t->golden = &f->vectors[i];
        t->pages = r->page_ids + at;
        at += DIV_UP(t->golden->ids.count, PAGE_TOKENS);
        t->vector = calloc(r->room, sizeof(float));
        t->first = calloc(r->room, sizeof(float));
        if (!t->vector || !t->first)
            return -ENOMEM;
    }
    const struct model_shape *shape = model_shape(r->model);
    int result = room_make(model_domain(r->model), pages * shape->page_bytes, 0xff, &r->memory);
    room_page_bases(shape, r->memory.at, pages, r->pages);
    return result;
}

/* The next chunk of each text in [from, to) that has tokens left. Returns how many there are. */
static uint32_t fill(struct run *r, uint32_t from, uint32_t to, uint32_t chunk)
{
    uint32_t count = 0;
    for (uint32_t i = from; i < to; i++) {
        struct text *t = &r->texts[i];
        uint32_t left = t->golden->ids.count - t->done;
        if (left == 0)
            continue;
        uint32_t n = MIN_OF(left, chunk);
        r->seqs[count] = (struct model_seq){.tokens = t->golden->ids.ids + t->done,
                                            .token_count = n,
                                            .position = t->done,
                                            .second = t->golden->second,
                                            .state_in = NONE,
                                            .state_out = NONE,
                                            .logits_from = !t->golden->answers ? 0
                                                           : n < left          ? n
                                                                               : n - 1,
                                            .values = !t->golden->answers};
        room_tables(t->pages, r->seqs[count++].pages);
    }
    return count;
}

static void take(struct run *r, uint32_t from, uint32_t to)
{
    const float *rows = r->rows, *logits = r->logits;
    uint32_t seq = 0;
    for (uint32_t i = from; i < to; i++) {
        struct text *t = &r->texts[i];
        if (t->done == t->golden->ids.count)
            continue;
        uint32_t n = r->seqs[seq++].token_count;
        t->done += n;
        if (!t->golden->answers) {
            pooling_take(r->pooling.kind, t->vector, r->hidden, rows, t->done - n, n);
            rows += (size_t)n * r->hidden;
        } else if (t->done == t->golden->ids.count) {
            t->vector[0] = logits[t->golden->yes] - logits[t->golden->no];
            logits += r->vocab;
        }
    }
}

static uint32_t width_of(const struct run *r, const struct text *t)
{
    return t->golden->scores ? 1 : model_shape(r->model)->vector_width;
}

static int run_texts(struct run *r, uint32_t from, uint32_t to, uint32_t chunk)
{
    uint32_t count;
    for (uint32_t i = from; i < to; i++)
        r->texts[i].done = 0;
    while ((count = fill(r, from, to, chunk)) > 0) {
        struct model_step step = {
            .seqs = r->seqs, .seq_count = count, .logits = r->logits, .values = r->rows};
        memcpy(step.pages, r->pages, sizeof(step.pages));
        int result = model_forward(r->model, &step);
        if (result < 0)
            return result;
        take(r, from, to);
    }
    for (uint32_t i = from; i < to; i++) {
        struct text *t = &r->texts[i];
        if (!t->golden->answers)
            pooling_end(r->pooling.kind, t->vector, r->hidden, t->golden->ids.count);
        if (!t->golden->answers)
            model_finish_vector(r->model, t->vector);
        if (t->golden->scores)
            t->vector[0] = 1 / (1 + expf(-t->vector[0]));
        else if (r->pooling.normalize)
            pooling_normalize(t->vector, width_of(r, t));
    }
    return 0;
}

static double bound_of(const struct model_shape *s)
{
    return compute_rounds(s->compute) ? VECTOR_BOUND_BF16
           : s->kv_form == KV_F32     ? VECTOR_BOUND
           : s->kv_form >= KV_FP8     ? VECTOR_BOUND_KV_FP8
                                      : VECTOR_BOUND_KV;
}

static void compare(struct run *r, uint32_t i, struct vectors_result *ret)
{
    const struct text *t = &r->texts[i];
    double error = t->golden->vector.count == width_of(r, t) ? 0 : INFINITY;
    for (uint32_t k = 0; k < width_of(r, t) && error < INFINITY; k++) {
        double one = fabs(t->golden->vector.values[k] - (double)t->vector[k]);
        error = one <= error ? error : one;
    }
    if (!(error <= ret->error_max))
        ret->error_max = error;
    if (!(error <= bound_of(model_shape(r->model))) && ret->wrong++ == 0)
        ret->first_wrong = i;
}

static int run_all(struct run *r, struct vectors_result *ret)
{
    static const uint32_t chunks[] = {UINT32_MAX, 32, 7, 1};
    /* A text that sees itself both ways is not cut. */
    size_t count = model_shape(r->model)->both_ways ? 1 : COUNT_OF(chunks);
    for (uint32_t i = 0; i < r->count; i++) {
        int result = run_texts(r, i, i + 1, UINT32_MAX);
        if (result < 0)
            return result;
        compare(r, i, ret);
        memcpy(r->texts[i].first, r->texts[i].vector, width_of(r, &r->texts[i]) * sizeof(float));
    }
    for (size_t c = 0; c < count; c++) {
        int result = run_texts(r, 0, r->count, chunks[c]);
        if (result < 0)
            return result;
        for (uint32_t i = 0; i < r->count; i++)
            ret->different +=
                memcmp(r->texts[i].first, r->texts[i].vector, width_of(r, &r->texts[i]) * sizeof(float)) != 0;
    }
    return 0;
}

/* Returns the pooling of a model without modules.json, see registry/model_use.c. */
static struct pooling_config pooling_without(const struct model_shape *s)
{
    enum pooling kind = s->labels > 0 ? (s->encoder ? POOLING_CLS : POOLING_LAST)
                                      : (s->both_ways ? POOLING_MEAN : POOLING_LAST);
    return (struct pooling_config){.kind = kind, .normalize = true};
}

int vectors_run(struct model *m, const char *dir, const struct golden_file *f, struct vectors_result *ret,
                struct err *e)
{
    const struct model_shape *shape = model_shape(m);
    struct run r = {.model = m, .hidden = shape->hidden, .vocab = shape->vocab, .room = shape->vector_room};
    *ret = (struct vectors_result){0};
    int result = pooling_config_load_at(dir, r.hidden, &r.pooling, e);
    if (result == 0 && r.pooling.kind == POOLING_NONE)
        r.pooling = pooling_without(shape);
    if (result == 0)
        result = run_init(&r, f);
    if (result == 0)
        result = run_all(&r, ret);
    run_done(&r);
    return result;
}
