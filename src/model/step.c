/* step.c - workspace and tiles.
 *
 * The workspace is a list of arrays, each with its bytes per model, token, sequence or worker. Cost and
 * layout both come from this list, so the plan cannot drift from the allocation. Products take tiles of
 * panels x columns. With few columns, every tile has all of them, so a weight is read once. With many, they
 * are cut into blocks, so that a block of activations stays in the cache. The cut changes no bit of a
 * result. */
#include "model/step.h"

#include "model/mrope.h"
#include "model/state_layout.h"

#include "base/check.h"

#include <errno.h>

enum need_per { PER_MODEL, PER_TOKEN, PER_SEQ, PER_WORKER };

struct need {
    void **place;
    enum need_per per;
    uint64_t bytes;
};
#define NEEDS_MAX 64
#define ALIGN     64u

/* The most that the projections of one input give, in floats per token. */
static uint32_t wide(const struct config *c)
{
    uint32_t n = c->hidden;
    uint32_t qkv = c->head_dim * (2 * c->heads + 2 * c->kv_heads);
    uint32_t delta = config_conv_channels(c) + c->value_heads * (c->value_dim + 2);
    n = MAX_OF(n, qkv);
    n = MAX_OF(n, delta);
    n = MAX_OF(n, 2 * c->intermediate);
    n = MAX_OF(n, c->experts + 1 + 2 * c->shared_intermediate);
    return step_row_stride(n);
}

static uint32_t mid_wide(const struct config *c)
{
    uint32_t n = MAX_OF(c->heads * c->head_dim, c->value_heads * c->value_dim);
    n = MAX_OF(n, c->intermediate);
    n = MAX_OF(n, c->shared_intermediate);
    n = MAX_OF(n, c->mtp_count ? 2 * c->hidden : 0);
    return step_row_stride(n);
}

static uint32_t products_max(const struct config *c)
{
    return c->experts + STEP_PROJECTIONS_MAX * PROJECTION_PARTS_MAX;
}

#define NEED(p, kind, n) (*need++ = (struct need){(void **)(p), (kind), (n)})
#define FLOATS(n)        ((uint64_t)(n) * sizeof(float))

/* Lists every array of the workspace; returns their number. */
static uint32_t list_needs(struct step *s, const struct config *c, struct need needs[NEEDS_MAX])
{
    struct need *need = needs;
    uint32_t mid = mid_wide(c);
    NEED(&s->seq_column, PER_SEQ, sizeof(uint32_t));
    NEED(&s->seq_pending, PER_SEQ, sizeof(uint32_t));
    NEED(&s->token_seq, PER_TOKEN, sizeof(uint32_t));
    NEED(&s->spans, PER_TOKEN, sizeof(struct step_span));
    NEED(&s->positions, PER_TOKEN, sizeof(struct rope_position));
    NEED(&s->features, PER_TOKEN, sizeof(float *));
    NEED(&s->ids, PER_TOKEN, sizeof(uint32_t));
    NEED(&s->cosines, PER_TOKEN, FLOATS(c->rope.rot / 2));
    NEED(&s->sines, PER_TOKEN, FLOATS(c->rope.rot / 2));
    NEED(&s->residual, PER_TOKEN, FLOATS(c->hidden));
    NEED(&s->normed, PER_TOKEN, FLOATS(step_row_stride(c->hidden)));
    NEED(&s->normed_sums, PER_TOKEN, FLOATS(step_sums_floats(c->hidden)));
    NEED(&s->proj, PER_TOKEN, FLOATS(wide(c)));
    NEED(&s->conv, PER_TOKEN, FLOATS(config_conv_channels(c)));
    NEED(&s->alpha, PER_TOKEN, FLOATS(c->value_heads));
    NEED(&s->beta, PER_TOKEN, FLOATS(c->value_heads));
    NEED(&s->mid, PER_TOKEN, FLOATS(mid));
    NEED(&s->mid_sums, PER_TOKEN, FLOATS(step_sums_floats(mid)));
    NEED(&s->block_out, PER_TOKEN, FLOATS(c->hidden));
    NEED(&s->logit_columns, PER_TOKEN, sizeof(uint32_t));
    NEED(&s->columns.x, PER_TOKEN, STEP_PROJECTIONS_MAX * sizeof(float *));
    for (int i = 0; i < 3; i++)
        NEED(&s->columns.xsum[i], PER_TOKEN, STEP_PROJECTIONS_MAX * sizeof(float *));
    for (int i = 0; i < PROJECTION_PARTS_MAX; i++)
        NEED(&s->columns.y[i], PER_TOKEN, STEP_PROJECTIONS_MAX * sizeof(float *));
    NEED(&s->products, PER_MODEL, products_max(c) * sizeof(struct step_product));
    if (c->experts) {
        uint64_t k = c->top_k, im = c->expert_intermediate;
        NEED(&s->expert_begin, PER_MODEL, (c->experts + 1) * sizeof(uint32_t));
        NEED(&s->pair_expert, PER_TOKEN, k * sizeof(uint32_t));
        NEED(&s->pair_order, PER_TOKEN, k * sizeof(uint32_t));
        NEED(&s->pair_weight, PER_TOKEN, FLOATS(k));
        NEED(&s->shared_gate, PER_TOKEN, FLOATS(1));
        NEED(&s->pair_up, PER_TOKEN, FLOATS(k * 2 * im));
        NEED(&s->pair_up_sums, PER_TOKEN, FLOATS(k * step_sums_floats((uint32_t)im)));
        NEED(&s->pair_out, PER_TOKEN, FLOATS(k * c->hidden));
        const float ***const reads[] = {&s->pair_x, &s->pair_xsum, &s->pair_mid, &s->pair_mid_sum};
        for (size_t i = 0; i < COUNT_OF(reads); i++)
            NEED(reads[i], PER_TOKEN, k * sizeof(float *));
        NEED(&s->pair_up_y, PER_TOKEN, k * sizeof(float *));
        NEED(&s->pair_out_y, PER_TOKEN, k * sizeof(float *));
    }
    NEED(&s->attention_scratch, PER_WORKER, FLOATS(KERN_ATTN_SCRATCH));
    NEED(&s->queries, PER_WORKER, STEP_QUERIES_MAX * sizeof(struct kern_query));
    if (state_pending_max(c))
        NEED(&s->delta_scratch, PER_WORKER, FLOATS(KERN_DELTA_SCRATCH(c->key_dim)));
    if (c->mtp_count) {
        NEED(&s->drafts, PER_SEQ, sizeof(struct step_draft));
        NEED(&s->draft_seqs, PER_SEQ, sizeof(struct model_seq));
        NEED(&s->draft_best, PER_SEQ, step_draft_tiles_max(c) * sizeof(struct step_best));
        NEED(&s->draft_logits, PER_WORKER, FLOATS(STEP_DRAFT_COLUMNS * STEP_DRAFT_LOGITS));
    }
    ASSERT(need - needs <= NEEDS_MAX);
    return (uint32_t)(need - needs);
}

struct model_workspace step_cost(const struct config *c)
{
    struct step s = {0};
    struct need needs[NEEDS_MAX];
    uint64_t sums[PER_WORKER + 1] = {0};
    uint32_t count = list_needs(&s, c, needs);
    for (uint32_t i = 0; i < count; i++)
        sums[needs[i].per] += needs[i].bytes;
    return (struct model_workspace){.fixed_bytes =
                                        sums[PER_MODEL] + (count + 1) * ALIGN + sizeof(struct step),
                                    .token_bytes = sums[PER_TOKEN],
                                    .seq_bytes = sums[PER_SEQ],
                                    .worker_bytes = sums[PER_WORKER]};
}

int step_create(struct arena *a, const struct config *c, const struct model_opts *opts, struct step **ret)
{
    struct step *s = arena_alloc(a, sizeof(*s));
    struct need needs[NEEDS_MAX];
    const uint64_t counts[] = {[PER_MODEL] = 1,
                               [PER_TOKEN] = opts->tokens_max,
                               [PER_SEQ] = opts->seqs_max,
                               [PER_WORKER] = workers_count(opts->workers)};
    if (!s)
        return -ENOMEM;
    *s = (struct step){.config = c, .ops = opts->ops, .workers = opts->workers};
    uint32_t count = list_needs(s, c, needs);
    for (uint32_t i = 0; i < count; i++) {
        *needs[i].place = arena_alloc_array(a, counts[needs[i].per], needs[i].bytes);
        if (!*needs[i].place)
            return -ENOMEM;
    }
    s->tokens_max = opts->tokens_max;
    s->seqs_max = opts->seqs_max;
    s->logits_max = opts->logits_max;
    s->wide = wide(c);
    s->mid_wide = mid_wide(c);
    s->normed_wide = step_row_stride(c->hidden);
    s->products_max = products_max(c);
    rope_init(&s->rope, &c->rope);
    *ret = s;
    return 0;
}

static void add_spans(struct step *s, uint32_t seq, uint32_t column)
{
    const struct model_seq *r = &s->in->seqs[seq];
    for (uint32_t done = 0; done < r->token_count;) {
        uint32_t position = r->position + done;
        uint32_t count = MIN_OF(STEP_SPAN_TOKENS - position % STEP_SPAN_TOKENS, r->token_count - done);
        s->spans[s->span_count++] = (struct step_span){seq, column + done, position, count};
        done += count;
    }
}

/* A token's position among text and images, and its features if it is an image's. */
static void add_place(struct step *s, const struct model_seq *seq, uint32_t column, uint32_t position)
{
    const struct model_grid *g = mrope_grid(seq->grids, seq->grid_count, position);
    s->positions[column] = mrope_at(seq->grids, seq->grid_count, position);
    s->features[column] = NULL;
    if (!g)
        return;
    ASSERT(g->features);
    s->features[column] =
        g->features + (size_t)(position - g->first) * s->config->vision.shape.feature_floats;
    s->imaged++;
}

/* Tokens of state_in to apply. Without states nothing is pending: K and V of rejected drafts are
 * overwritten. */
static uint32_t pending_in(const struct step *s, const struct model_seq *seq)
{
    uint32_t most = state_pending_max(s->config);
    if (s->config->linear_count == 0)
        return 0;
    ASSERT(!seq->keep_pending || seq->token_count <= most);
    if (most == 0 || seq->state_in == NONE)
        return 0;
    uint32_t pending = step_state_header(s->config, s->in->states, seq->state_in)->accepted;
    ASSERT(pending <= most);
    return pending;
}

void step_begin(struct step *s, const struct model_step *in)
{
    ASSERT(in->seq_count <= s->seqs_max);
    s->in = in;
    s->seqs = in->seq_count;
    s->tokens = s->span_count = s->imaged = 0;
    s->pending_residual = NULL;
    for (uint32_t r = 0; r < in->seq_count; r++) {
        const struct model_seq *seq = &in->seqs[r];
        ASSERT(seq->token_count > 0 && seq->token_count <= s->tokens_max - s->tokens);
        s->seq_column[r] = s->tokens;
        s->seq_pending[r] = pending_in(s, seq);
        add_spans(s, r, s->tokens);
        for (uint32_t i = 0; i < seq->token_count; i++, s->tokens++) {
            s->ids[s->tokens] = seq->tokens[i];
            add_place(s, seq, s->tokens, seq->position + i);
            s->token_seq[s->tokens] = r;
        }
    }
}

void step_sums_part(const struct step *s, unsigned groups, float *sums, const float *x, uint32_t n,
                    uint32_t from, uint32_t to)
{
    static const struct {
        unsigned flag;
        uint32_t group;
    } sizes[] = {{GROUP_32, 32}, {GROUP_64, 64}, {GROUP_128, 128}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        if (groups & sizes[i].flag)
            s->ops->group_sums(sums + step_sums_offset(n, sizes[i].group) + from / sizes[i].group, x + from,
                               to - from, sizes[i].group);
    }
}

void step_sums(const struct step *s, unsigned groups, float *sums, const float *x, uint32_t n)
{
    step_sums_part(s, groups, sums, x, n, 0, n);
}

/* ---- splitting ---- */

void step_run(struct step *s, workers_fn *fn, void *arg, uint32_t tiles)
{
    if (tiles == 1)
        fn(arg, 0, 0);
    else if (tiles > 1)
        workers_run(s->workers, fn, arg, tiles);
}

struct token_stage {
    struct step *step;
    step_token_fn *fn;
    const void *arg;
    uint32_t count, block;
};

static void token_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct token_stage *st = arg;
    (void)worker;
    uint32_t from = tile * st->block, to = MIN_OF(from + st->block, st->count);
    for (uint32_t t = from; t < to; t++)
        st->fn(st->step, st->arg, t);
}

/* Fewer values than these take less time than a barrier. The first limit is for one token, whose parts would
 * go to several workers. The second is for several tokens: one worker has them in its cache, others would
 * have to fetch them. */
#define VALUES_FEW        4096u
#define VALUES_FEW_TOKENS 16384u

void step_each(struct step *s, step_token_fn *fn, const void *arg, uint32_t count, uint32_t values)
{
    /* Four tiles per worker balance the load; more of them cost more than they gain. */
    uint32_t tiles_wanted = 4 * workers_count(s->workers);
    if ((uint64_t)count * values < VALUES_FEW_TOKENS)
        tiles_wanted = 1;
    struct token_stage st = {s, fn, arg, count, MAX_OF(DIV_UP(count, tiles_wanted), 1)};
    step_run(s, token_tile, &st, DIV_UP(count, st.block));
}

void step_each_token(struct step *s, step_token_fn *fn, const void *arg, uint32_t values)
{
    step_each(s, fn, arg, s->tokens, values);
}

struct part_stage {
    struct step *step;
    step_part_fn *fn;
    const void *arg;
    uint32_t width, part, parts;
};

static void part_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct part_stage *st = arg;
    (void)worker;
    uint32_t from = tile % st->parts * st->part;
    st->fn(st->step, st->arg, tile / st->parts, from, MIN_OF(from + st->part, st->width));
}

struct whole_rows {
    step_part_fn *fn;
    const void *arg;
    uint32_t width;
};

static void whole_row(struct step *s, const void *arg, uint32_t t)
{
    const struct whole_rows *w = arg;
    w->fn(s, w->arg, t, 0, w->width);
}

void step_each_part(struct step *s, step_part_fn *fn, const void *arg, uint32_t width)
{
    uint32_t workers = workers_count(s->workers);
    if (s->tokens >= workers || s->tokens * width <= VALUES_FEW) {
        struct whole_rows w = {fn, arg, width};
        step_each_token(s, whole_row, &w, width);
        return;
    }
    struct part_stage st = {s, fn, arg, width, ROUND_UP(DIV_UP(width, DIV_UP(workers, s->tokens)), 128u), 0};
    st.parts = DIV_UP(width, st.part);
    step_run(s, part_tile, &st, s->tokens * st.parts);
}

/* ---- products ---- */

uint32_t step_product_add(struct step *s, uint32_t count, const struct matrix *m,
                          const struct kern_columns *c)
{
    enum { COLUMNS_FEW = 16 };
    ASSERT(count < s->products_max);
    bool few = c->count <= COLUMNS_FEW;
    s->products[count] = (struct step_product){
        .matrix = *m,
        .columns = *c,
        .panels_step = few ? s->ops->panels_few : s->ops->panels_many,
        .columns_step = few ? COLUMNS_FEW : s->ops->columns_many,
    };
    return count + 1;
}

/* The product that tile belongs to: the last one that begins at or before it. */
static const struct step_product *product_of(const struct step *s, uint32_t count, uint32_t tile)
{
    uint32_t low = 0, high = count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (s->products[middle].tile_begin <= tile)
            low = middle;
        else
            high = middle;
    }
    return &s->products[low];
}

struct product_stage {
    struct step *step;
    uint32_t count;
};

static void product_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct product_stage *st = arg;
    const struct step_product *p = product_of(st->step, st->count, tile);
    (void)worker;
    uint32_t local = tile - p->tile_begin;
    uint32_t panel = local / p->column_tiles * p->panels_step;
    uint32_t column = local % p->column_tiles * p->columns_step;
    struct kern_columns c = {.count = MIN_OF(p->columns_step, p->columns.count - column),
                             .x = p->columns.x + column,
                             .xsum = p->columns.xsum ? p->columns.xsum + column : NULL,
                             .y = p->columns.y + column};
    uint32_t panels = matrix_panels(&p->matrix);
    st->step->ops->matmul(&p->matrix, &c, panel, MIN_OF(panel + p->panels_step, panels));
}

/* Returns the number of tiles of the list. */
static uint32_t cut_tiles(struct step *s, uint32_t count)
{
    uint32_t tiles = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct step_product *p = &s->products[i];
        p->tile_begin = tiles;
        p->column_tiles = DIV_UP(p->columns.count, p->columns_step);
        tiles += p->column_tiles * DIV_UP(matrix_panels(&p->matrix), p->panels_step);
    }
    return tiles;
}

void step_products(struct step *s, uint32_t count)
{
    uint32_t tiles = cut_tiles(s, count);
    if (tiles < 2 * workers_count(s->workers)) { /* too few for an even load: halves */
        for (uint32_t i = 0; i < count; i++)
            s->products[i].panels_step = DIV_UP(s->products[i].panels_step, 2u);
        tiles = cut_tiles(s, count);
    }
    struct product_stage st = {s, count};
    step_run(s, product_tile, &st, tiles);
    s->columns.used = 0;
}

static int group_index(uint32_t group)
{
    return group == 32 ? 0 : group == 64 ? 1 : 2;
}

uint32_t step_project_add(struct step *s, uint32_t list, const struct projection *p, struct step_rows x,
                          struct step_rows y, uint32_t count)
{
    struct step_columns *c = &s->columns;
    uint32_t offset = 0, from = c->used;
    c->used += count;
    ASSERT(c->used <= STEP_PROJECTIONS_MAX * s->tokens_max && x.width == p->in);
    for (uint32_t t = 0; t < count; t++)
        c->x[from + t] = x.data + t * x.stride;
    for (uint32_t i = 0; i < p->part_count; i++) {
        const struct matrix *m = &p->parts[i];
        struct kern_columns columns = {.count = count, .x = c->x + from, .y = c->y[i] + from};
        for (uint32_t t = 0; t < count; t++)
            c->y[i][from + t] = y.data + t * y.stride + offset;
        if (m->form == MATRIX_AFFINE) {
            const float **sums = c->xsum[group_index(m->group)] + from;
            for (uint32_t t = 0; t < count; t++)
                sums[t] =
                    x.sums + t * (size_t)step_sums_floats(x.width) + step_sums_offset(x.width, m->group);
            columns.xsum = sums;
        }
        list = step_product_add(s, list, m, &columns);
        offset += m->n;
    }
    return list;
}

void step_project(struct step *s, const struct projection *p, struct step_rows x, struct step_rows y,
                  uint32_t count)
{
    step_products(s, step_project_add(s, 0, p, x, y, count));
}

/* ---- norms ---- */

struct norm_args {
    const float *weight;
    unsigned groups;
};

static void norm_token(struct step *s, const void *arg, uint32_t t)
{
    const struct norm_args *n = arg;
    uint32_t hidden = s->config->hidden;
    if (s->pending_residual)
        s->pending_residual(s, t);
    float *x = s->normed + (size_t)t * s->normed_wide;
    s->ops->rmsnorm(x, s->residual + (size_t)t * hidden, n->weight, hidden, s->config->eps);
    step_sums(s, n->groups, s->normed_sums + (size_t)t * step_sums_floats(hidden), x, hidden);
}

void step_norm(struct step *s, const float *weight, unsigned groups)
{
    struct norm_args n = {weight, groups};
    step_each_token(s, norm_token, &n, 4 * s->config->hidden);
    s->pending_residual = NULL;
}

static void add_features(struct step *s, const void *arg, uint32_t t)
{
    uint32_t hidden = s->config->hidden, layer = *(const uint32_t *)arg;
    if (s->pending_residual)
        s->pending_residual(s, t);
    if (s->features[t])
        s->ops->add(s->residual + (size_t)t * hidden, s->features[t] + (size_t)hidden * (1 + layer), hidden);
}

void step_add_features(struct step *s, uint32_t layer)
{
    step_each_token(s, add_features, &layer, 2 * s->config->hidden);
    s->pending_residual = NULL;
}

void step_add_block_out(struct step *s, uint32_t t)
{
    size_t at = (size_t)t * s->config->hidden;
    s->ops->add(s->residual + at, s->block_out + at, s->config->hidden);
}

static float *state_part(const struct step *s, uint32_t state, size_t offset)
{
    return state == NONE ? NULL : (float *)(s->in->states + state * state_bytes(s->config) + offset);
}

float *step_state(const struct step *s, uint32_t state, uint32_t linear_index)
{
    return state_part(s, state, linear_index * state_layer_bytes(s->config));
}

float *step_state_pending(const struct step *s, uint32_t state, uint32_t linear_index)
{
    return state_part(s, state, state_pending_offset(s->config, linear_index));
}

struct state_header *step_state_header(const struct config *c, char *states, uint32_t state)
{
    return state_pending_max(c)
               ? (struct state_header *)(states + state * state_bytes(c) + state_header_offset(c))
               : NULL;
}
