/* cuda_project.c - products, and what the host reads of them: logits, drafts, values. */
#include "compute/batch.h"
#include "compute/cuda/cuda_step.h"

/* ---- products ---- */

static uint32_t panels_of(const struct weight *w)
{
    return DIV_UP(w->n, CUDA_PANEL);
}

#define DEEP_PANELS 64u /* panels of a matrix of few rows */

/* Inputs begin at whole vectors of four, and k has whole steps. */
static bool takes_vectors(const struct cuda_product *k)
{
    uintptr_t places = (uintptr_t)k->x.at | k->x.stride * sizeof(*k->x.at) | k->x_step * sizeof(*k->x.at);
    return places % 16 == 0 && k->w.k % CUDA_PRODUCT_STEP == 0;
}
static bool takes_tiles(const struct cuda_product *k)
{
    return k->count >= CUDA_PRODUCT_MANY && takes_vectors(k) &&
           (k->w.form != CUDA_AFFINE || k->w.group % 16 == 0);
}

/* Warps of a block share columns, not panels: fewer of them, until each multiprocessor has a block. Blocks
 * with the last panels, which may be fewer, come last. */
static void launch_product_tiles(struct cuda *c, const struct cuda_product *k, uint32_t panels,
                                 uint32_t heads)
{
    uint32_t columns = DIV_UP(k->count, CUDA_PRODUCT_COLUMNS), each = CUDA_PRODUCT_PANELS;
    while (each > 1 && DIV_UP(panels, each) * columns * heads < c->device->units)
        each /= 2;
    cuda_run(c, CUDA_KERNEL_product_tiles,
             (struct cuda_grid){columns, DIV_UP(panels, each), heads, 32 * each, 0}, k);
}

/* Whether warps of a block may share k: of a matrix of few rows, such as a router's. */
static bool takes_deep(const struct cuda *c, const struct cuda_product *k, uint32_t panels, uint32_t heads)
{
    const uint32_t group = k->w.form == CUDA_AFFINE ? k->w.group : CUDA_PRODUCT_STEP;
    return k->count >= CUDA_PRODUCT_DEEP && takes_vectors(k) && group % CUDA_PRODUCT_STEP == 0 &&
           panels * heads <= DEEP_PANELS && c->device->shared_max >= CUDA_PRODUCT_DEEP_SHARED;
}

/* Columns of a block share the weights. With a matrix of few rows the columns have blocks of their own
 * instead, until each multiprocessor has a block. */
static void launch_product(struct cuda *c, const struct cuda_product *k, uint32_t panels, uint32_t heads)
{
    uint32_t each = k->count == 1 ? 1 : k->count <= 4 ? 4 : 16;
    while (each > 1 && panels * heads * DIV_UP(k->count, each) < c->device->units)
        each /= 4;
    if ((each == 16 || k->count >= CUDA_PRODUCT_MANY) && takes_deep(c, k, panels, heads)) {
        cuda_run(c, CUDA_KERNEL_product_deep,
                 (struct cuda_grid){DIV_UP(k->count, CUDA_PRODUCT_COLUMNS), panels, heads,
                                    CUDA_PRODUCT_THREADS, CUDA_PRODUCT_DEEP_SHARED},
                 k);
        return;
    }
    if (takes_tiles(k)) {
        launch_product_tiles(c, k, panels, heads);
        return;
    }
    enum cuda_kernel kernel = each == 1   ? CUDA_KERNEL_product
                              : each == 4 ? CUDA_KERNEL_product4
                                          : CUDA_KERNEL_product16;
    uint32_t threads = each == 1 ? CUDA_PRODUCT_THREADS : CUDA_THREADS;
    cuda_run(c, kernel, (struct cuda_grid){panels, DIV_UP(k->count, each), heads, threads, 0}, k);
}

static void multiply(struct cuda *c, const struct weight *w, const struct cuda_product *k)
{
    if (k->count > 0 && w->form == CUDA_FRAGMENTS)
        cuda_multiply_fragments(c, w, k);
    else if (k->count > 0)
        launch_product(c, k, panels_of(w), 1);
}

void cuda_multiply(struct cuda *c, const struct weight *w, struct cuda_rows x, struct cuda_rows y,
                   const float *bias, uint32_t count)
{
    multiply(c, w, &(struct cuda_product){.w = cuda_matrix(w), .x = x, .y = y, .bias = bias, .count = count});
}

/* ---- experts ----
 *
 * A step of one token has a column for each of its experts. With more tokens an expert has several columns. A
 * kernel sorts the pairs of tokens and experts by expert. A block takes a group of an expert's columns, and
 * reads the weights once for all of them. An output has the same bits either way (kernels/bf16.cu). */

/* Sorts the step's pairs into groups of at most `columns`, unless an earlier product did. */
static struct cuda_sorted sort_pairs(struct cuda *c, uint32_t columns)
{
    const struct cuda_sort k = {.expert = c->expert,
                                .pairs = c->step.tokens * c->shape->top_k,
                                .experts = c->shape->experts,
                                .columns = columns,
                                .order = c->order,
                                .groups = c->groups,
                                .group_count = c->group_count};
    if (c->sorted_by != columns)
        cuda_run_product(
            c, CUDA_KERNEL_sort,
            (struct cuda_grid){1, 1, 1, CUDA_SORT_THREADS, 2 * k.experts * (uint32_t)sizeof(uint32_t)}, &k);
    c->sorted_by = columns;
    return (struct cuda_sorted){c->order, c->groups, c->group_count};
}

/* Columns are pairs; the matrix is for the caller to say. `out`: from one expert's bias to the next. */
static struct cuda_product product_of_experts(const struct cuda *c, struct act x, struct act y,
                                              const float *bias, uint32_t out)
{
    bool by_pair = c->arrays[x.array].rows == ROWS_PAIRS;
    return (struct cuda_product){.x = cuda_rows(c, x),
                                 .y = cuda_rows(c, y),
                                 .bias = bias,
                                 .count = c->step.tokens * c->shape->top_k,
                                 .x_div = by_pair ? 1 : c->shape->top_k,
                                 .bias_step = out,
                                 .expert = c->expert,
                                 .rounded = cuda_rounded_of(c, x)};
}

static void multiply_pairs(struct cuda *c, const struct weight *w, struct cuda_product *k)
{
    uint32_t columns = w->form == CUDA_FRAGMENTS ? cuda_expert_columns(c, w, k->count) : 1;
    k->w = cuda_matrix(w);
    if (columns > 1)
        k->sorted = sort_pairs(c, columns);
    if (w->form == CUDA_FRAGMENTS)
        cuda_multiply_fragments(c, w, k);
    else
        cuda_run(c, CUDA_KERNEL_product_experts,
                 (struct cuda_grid){panels_of(w), k->count, 1, CUDA_THREADS, 0}, k);
}

/* The outputs of a part follow the outputs of the part before. */
static void multiply_experts(struct cuda *c, const struct op_product *a)
{
    struct cuda_product k = product_of_experts(c, a->x, a->y, cuda_pointer(a->w->bias), a->w->out);
    for (uint32_t i = 0; i < a->w->part_count; i++) {
        const struct weight *w = &a->w->parts[i];
        multiply_pairs(c, w, &k);
        k.y.at += w->n;
        k.bias = k.bias ? k.bias + w->n : NULL;
    }
}

/* ---- products that wait for the next operation ---- */

/* The product computes the norm of its inputs. */
static void norm_inputs(struct cuda_product *k, const struct cuda_norm_held *n)
{
    if (!n->held)
        return;
    k->normed = n->k.h;
    k->norm = n->k.norm.weight;
    k->norm_eps = n->k.norm.eps;
}

/* The product that waits. `end`: with glu or add, what it does with its outputs. */
static void run_held(struct cuda *c, const struct cuda_product *end)
{
    const struct cuda_held h = c->held;
    struct cuda_product k = h.experts ? product_of_experts(c, h.x, h.y, h.bias, h.w->n)
                                      : (struct cuda_product){.w = cuda_matrix(h.w),
                                                              .x = cuda_rows(c, h.x),
                                                              .y = cuda_rows(c, h.y),
                                                              .bias = h.bias,
                                                              .count = h.count,
                                                              .rounded = cuda_rounded_of(c, h.x)};
    c->held.w = NULL;
    k.beside = h.beside && c->lets_beside;
    norm_inputs(&k, &h.norm);
    k.add = end->add;
    k.add_scale = end->add_scale;
    if (end->glu) {
        k.glu = 1;
        k.y = end->y;
        k.y_rounded = end->y_rounded;
    }
    if (h.experts)
        multiply_pairs(c, h.w, &k);
    else
        multiply(c, h.w, &k);
}

static void run_norm(struct cuda *c)
{
    struct cuda_norm_op k = c->norm.k;
    void *arguments[] = {&c->step, &k};
    c->norm.held = false;
    cuda_run_beside(c, CUDA_KERNEL_norm, cuda_by_row(c->step.tokens), arguments);
}

void cuda_flush(struct cuda *c)
{
    if (c->held.w)
        run_held(c, &(struct cuda_product){0});
    if (c->norm.held)
        run_norm(c);
    if (!c->append.held)
        return;
    const struct cuda_append a = c->append;
    c->append.held = false;
    cuda_run_step(c, a.kernel, a.grid, &a.k);
}

/* Whether what reads `p` takes it as bf16. */
static bool reads_rounded(const struct projection *p)
{
    for (uint32_t i = 0; p && i < p->part_count; i++)
        if (p->parts[i].form != CUDA_FRAGMENTS)
            return false;
    return p != NULL;
}

/* The activation goes to y_rounded alone. */
static bool glu_of_held(struct cuda *c, const struct op_glu *a, struct cuda_rounded y_rounded)
{
    const struct cuda_held *h = &c->held;
    const struct cuda_product k = {.glu = 1, .y = cuda_rows(c, a->out), .y_rounded = y_rounded};
    if (!h->w || h->bias || a->function != GLU_SILU || a->plain || a->up.width > 0 ||
        a->in.array != h->y.array || a->in.from != h->y.from || 2 * a->out.width != h->w->n ||
        a->out.array == h->x.array || !k.y_rounded.at || !reads_rounded(a->reader))
        return false;
    if (!h->experts && (a->out.array == h->y.array || !cuda_takes_glu(c, h->w, h->count)))
        return false;
    run_held(c, &k);
    return true;
}

bool cuda_glu_of_held(struct cuda *c, const struct op_glu *a)
{
    const struct cuda_rounded rounded = cuda_rounded_whole(c, a->out);
    if (!glu_of_held(c, a, rounded))
        return false;
    cuda_has_rounded(c, rounded, a->out);
    return true;
}

bool cuda_shared_glu_of_held(struct cuda *c, const struct op_glu *a)
{
    bool fits = c->step.tokens <= CUDA_SHARED_TOKENS && a->out.width % CUDA_UNIT == 0;
    if (!fits || !glu_of_held(c, a, (struct cuda_rounded){c->rounded_shared, c->step.tokens, 0}))
        return false;
    c->shared_of = a->out;
    return true;
}

bool cuda_add_of_held(struct cuda *c, const struct residual *add, struct act h)
{
    const struct cuda_held *p = &c->held;
    const struct cuda_product k = {.add = cuda_rows(c, h), .add_scale = add->scale != 0 ? add->scale : 1};
    if (!p->w || p->experts || add->kind != RESIDUAL_ADD || !dev_is_null(add->norm.weight) ||
        !dev_is_null(add->layer_scale) || add->out.array != p->y.array || add->out.from != p->y.from ||
        add->out.width != p->w->n || h.width != p->w->n || h.array == p->x.array ||
        !cuda_takes_add(c, p->w, p->count))
        return false;
    run_held(c, &k);
    if (c->rounded_of.array == h.array)
        c->rounded_of.width = 0;
    return true;
}

static void multiply_heads(struct cuda *c, const struct op_product *a)
{
    const struct weight *w = &a->w->parts[0];
    const struct cuda_product k = {.w = cuda_matrix(w),
                                   .x = cuda_rows(c, a->x),
                                   .y = cuda_rows(c, a->y),
                                   .count = c->step.tokens,
                                   .x_step = a->x.width / w->experts,
                                   .y_step = a->y.width / w->experts};
    ASSERT(w->form != CUDA_FRAGMENTS && a->w->part_count == 1 && a->x.width % w->experts == 0 &&
           a->y.width % w->experts == 0);
    launch_product(c, &k, panels_of(w), w->experts);
}

/* ---- lists of products ---- */

/* A product of the list, whose outputs begin at `first`. */
static struct cuda_product part_of(struct cuda *c, const struct op_product *a, uint32_t part, uint32_t first,
                                   struct cuda_rows y, uint32_t from, uint32_t count)
{
    const float *bias = cuda_pointer(a->w->bias);
    struct cuda_product k = {.w = cuda_matrix(&a->w->parts[part]),
                             .x = cuda_rows(c, a->x),
                             .y = y,
                             .bias = bias ? bias + first : NULL,
                             .count = count,
                             .rounded = cuda_rounded_of(c, a->x)};
    k.x.at += (uint64_t)from * k.x.stride;
    k.y.at += first;
    k.rounded.first = from;
    return k;
}

/* The last product waits, since the next operation may be its activation. */
static bool hold_last(struct cuda *c, const struct op_product *a, uint32_t part, uint32_t first)
{
    const struct weight *w = &a->w->parts[part];
    if (a->columns != COLUMNS_TOKENS || a->y.array == OP_LOGITS || a->w->part_count == 1 ||
        !dev_is_null(a->w->bias) || !cuda_takes_glu(c, w, c->step.tokens))
        return false;
    c->held = (struct cuda_held){
        .w = w, .x = a->x, .y = act_part(a->y, first, w->n), .count = c->step.tokens, .beside = true};
    return true;
}

/* Multiplies the parts that have fragments, or the others. */
static void multiply_parts(struct cuda *c, const struct op_product *a, bool fragments,
                           const struct cuda_norm_held *norm, struct cuda_rows y, uint32_t from,
                           uint32_t count)
{
    const struct act rounded = c->rounded_of;
    const bool last = a->w->parts[a->w->part_count - 1].form == CUDA_FRAGMENTS;
    for (uint32_t i = 0, first = 0; i < a->w->part_count; first += a->w->parts[i++].n) {
        const struct weight *w = &a->w->parts[i];
        if ((w->form == CUDA_FRAGMENTS) != fragments)
            continue;
        if (fragments && last && i + 1 == a->w->part_count && hold_last(c, a, i, first))
            return;
        struct cuda_product k = part_of(c, a, i, first, y, from, count);
        k.beside = fragments && c->lets_beside;
        if (i == 0)
            norm_inputs(&k, norm);
        multiply(c, w, &k);
        if (!fragments)
            cuda_keep_rounded(c, rounded, a->y);
    }
}

/* Multiplies rows [from, from + count) of x, of which the first product computes the norm. The parts' outputs
 * are one after the other. Parts with fragments come last and run beside the others, unless the first one
 * computes the norm. */
static void multiply_rows(struct cuda *c, const struct op_product *a, const struct cuda_norm_held *norm,
                          struct cuda_rows y, uint32_t from, uint32_t count)
{
    bool fragments = norm->held;
    c->lets_beside = c->routed && !norm->held;
    multiply_parts(c, a, fragments, norm, y, from, count);
    c->lets_beside = c->lets_beside && !fragments;
    multiply_parts(c, a, !fragments, norm, y, from, count);
}

/* Multiplies as many rows at a time as there is room for; with several rounds the host gets each at once. */
static void multiply_logits(struct cuda *c, const struct op_product *a)
{
    struct cuda_device *d = c->device;
    uint32_t all = c->in->logit_count, vocab = c->shape->vocab;
    const struct cuda_rows y = {c->logits, vocab, vocab};
    c->logits_here = all <= c->seqs_max;
    for (uint32_t from = 0; from < all; from += c->seqs_max) {
        uint32_t count = MIN_OF(all - from, c->seqs_max);
        multiply_rows(c, a, &(struct cuda_norm_held){0}, y, from, count);
        if (!c->logits_here)
            (void)cuda_done(c,
                            d->driver->get(c->in->logits + (size_t)from * vocab, (uintptr_t)c->logits,
                                           (size_t)count * vocab * sizeof(float), d->stream),
                            "logits");
    }
}

/* The norm that waits becomes a part of the product. False: it does not, or none waits. */
static bool take_norm(struct cuda *c, const struct op_product *a, struct cuda_norm_held *ret)
{
    const struct act *y = &c->norm.y;
    *ret = (struct cuda_norm_held){0};
    if (!c->norm.held || a->columns != COLUMNS_TOKENS || a->x.array != y->array || a->x.from != y->from ||
        a->x.width != y->width || a->w->parts[0].form != CUDA_FRAGMENTS ||
        !cuda_is_narrow(c, &a->w->parts[0], c->step.tokens))
        return false;
    *ret = c->norm;
    c->norm.held = false;
    return true;
}

static bool hold(struct cuda *c, const struct op_product *a, const struct cuda_norm_held *norm)
{
    const struct projection *w = a->w;
    const struct weight *first = &w->parts[0];
    bool experts = a->columns == COLUMNS_EXPERTS;
    bool takes = experts
                     ? cuda_takes_experts_glu(c, first, c->step.tokens * c->shape->top_k)
                     : cuda_takes_add(c, first, c->step.tokens) || cuda_takes_glu(c, first, c->step.tokens);
    if ((!experts && a->columns != COLUMNS_TOKENS) || w->part_count != 1 || a->y.array == OP_LOGITS || !takes)
        return false;
    c->held = (struct cuda_held){first,
                                 a->x,
                                 a->y,
                                 c->step.tokens,
                                 cuda_pointer(w->bias),
                                 *norm,
                                 experts,
                                 c->routed && !norm->held && !experts};
    return true;
}

void cuda_project(struct compute *compute, const struct op_product *list, uint32_t count)
{
    struct cuda *c = cuda_of(compute);
    for (uint32_t i = 0; i < count; i++) {
        const struct op_product *a = &list[i];
        struct cuda_norm_held norm;
        if (!take_norm(c, a, &norm))
            cuda_flush(c);
        if (hold(c, a, &norm))
            continue;
        if (a->y.array == OP_LOGITS)
            multiply_logits(c, a);
        else if (a->columns == COLUMNS_EXPERTS)
            multiply_experts(c, a);
        else if (a->columns == COLUMNS_HEADS)
            multiply_heads(c, a);
        else
            multiply_rows(c, a, &norm, cuda_rows(c, a->y), 0,
                          a->columns == COLUMNS_LOGITS ? c->step.logits : c->step.tokens);
    }
}

/* ---- logits, values, drafts ---- */

static void finish_rows(struct cuda *c, const struct op_finish *a, uint32_t count)
{
    uint32_t vocab = c->shape->vocab;
    const struct cuda_finish k = {{c->logits, vocab, vocab}, a->scale, a->cap};
    cuda_run(c, CUDA_KERNEL_finish, cuda_by_row(count), &k);
}

/* Rows that went to the host come back for it, a round at a time: the host's functions have other bits. */
static void finish_rounds(struct cuda *c, const struct op_finish *a)
{
    struct cuda_device *d = c->device;
    uint32_t all = c->in->logit_count, vocab = c->shape->vocab;
    (void)cuda_done(c, d->driver->stream_wait(d->stream), "wait");
    for (uint32_t from = 0; from < all; from += c->seqs_max) {
        uint32_t count = MIN_OF(all - from, c->seqs_max);
        float *rows = c->in->logits + (size_t)from * vocab;
        size_t bytes = (size_t)count * vocab * sizeof(float);
        (void)cuda_done(c, d->driver->put((uintptr_t)c->logits, rows, bytes, d->stream), "logits");
        finish_rows(c, a, count);
        (void)cuda_done(c, d->driver->get(rows, (uintptr_t)c->logits, bytes, d->stream), "logits");
    }
}

void cuda_finish(struct compute *compute, const struct op_finish *a)
{
    struct cuda *c = cuda_of(compute);
    if (c->logits_here)
        finish_rows(c, a, c->in->logit_count);
    else
        finish_rounds(c, a);
}

void cuda_values(struct compute *compute, const struct op_values *a)
{
    struct cuda *c = cuda_of(compute);
    struct cuda_device *d = c->device;
    const struct cuda_rows x = cuda_rows(c, a->x);
    cuda_flush(c);
    for (uint32_t i = 0; i < c->in->value_count; i++)
        (void)cuda_done(c,
                        d->driver->get(c->in->values + (size_t)i * a->x.width,
                                       (uintptr_t)(x.at + (size_t)(c->in->logit_count + i) * x.stride),
                                       a->x.width * sizeof(float), d->stream),
                        "values");
}

const uint64_t *cuda_valid(struct cuda *c)
{
    const uint64_t *valid = c->in->valid_ids;
    struct cuda_device *d = c->device;
    if (!valid || c->valid_of == valid)
        return valid ? c->valid : NULL;
    bool ok = cuda_done(
        c,
        d->driver->put((uintptr_t)c->valid, valid, DIV_UP(c->shape->vocab, 64u) * sizeof(*valid), d->stream),
        "ids");
    c->valid_of = ok ? valid : NULL;
    return c->valid;
}

void cuda_best(struct compute *compute, const struct op_best *a)
{
    struct cuda *c = cuda_of(compute);
    struct cuda_device *d = c->device;
    uint32_t n = a->rows->n, count = c->step.tokens;
    const struct cuda_best k = {.logits = {c->logits, c->shape->vocab, n},
                                .ids = a->ids ? c->draft_ids : NULL,
                                .valid = cuda_valid(c),
                                .best_logit = c->best,
                                .n = n};
    cuda_flush(c);
    _Static_assert(sizeof(struct draft_best) == 2 * sizeof(float), "a logit and an id");
    ASSERT(count <= c->seqs_max && n <= c->shape->vocab);
    if (a->ids)
        (void)cuda_done(c, d->driver->put((uintptr_t)c->draft_ids, a->ids, n * sizeof(a->ids[0]), d->stream),
                        "ids");
    cuda_multiply(c, a->rows, cuda_rows(c, a->x), k.logits, NULL, count);
    cuda_run(c, CUDA_KERNEL_best, cuda_by_row(count), &k);
    (void)cuda_done(
        c, d->driver->get(c->in->best, (uintptr_t)c->best, count * sizeof(struct draft_best), d->stream),
        "best");
}
