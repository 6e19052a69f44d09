/* binder.c - packing: matrices into projections, stacks of experts, the embedding and the output matrix.
 *
 * Packers read pieces of matrices into their stages. After reading, tensors are dropped from the page cache.
 * So a load holds one copy of the weights, a piece for each packer, and of the page cache one matrix or
 * RUN_BYTES of experts. How rows are stored is the backend's. */
#include "model/load/binder.h"

#include "model/config/config.h"
#include "model/family/family.h"
#include "model/load/packers.h"
#include "model/load/weight_staging.h"

#include "base/check.h"
#include "base/err.h"
#include "base/none.h"
#include "compute/backend.h"
#include "compute/weight.h"
#include "tensor/quantise.h"
#include "weights/checkpoint.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>

uint64_t binder_source_bytes(const struct linear_source *s)
{
    uint64_t bytes = s->weight.bytes + (s->affine ? s->scales.bytes + s->biases.bytes : 0);
    /* A matrix that is a part of its tensors. */
    return s->stored && s->stored_rows ? bytes / s->stored_rows * s->out : bytes;
}

/* A weight that is not a number has a code of its own only as E4M3. */
static bool is_number(const struct linear_source *s)
{
    const uint8_t *codes = s->weight.data;
    for (size_t i = 0; s->codes == CODES_E4M3 && i < s->weight.bytes; i++) {
        if ((codes[i] & 0x7f) == 0x7f)
            return false;
    }
    return true;
}

/* -EINVAL: the tensor of `from` that `t` is holds such a value; the scales of blocks lie in the weight. */
static int not_finite(const struct checkpoint *c, const struct linear_source *from, const struct tensor *t,
                      struct err *e)
{
    const struct tensor *of = t->bytes > 0 ? t : &from->weight;
    return err_set(e, -EINVAL, "tensor %s holds a value that is infinite%s or not a number",
                   checkpoint_name_of(c, of), from->at_load ? ", too large for --quant" : "");
}

/* True if all scales are finite in the kernels' form: scale * code_scale(). */
static bool scales_are_finite(const struct linear_source *s)
{
    uint64_t groups = s->in / s->group;
    for (uint64_t row = 0; row < s->out; row++) {
        for (uint64_t g = 0; g < groups; g++) {
            if (!isfinite(linear_source_scale(s, row, g) * code_scale(s->codes)))
                return false;
        }
    }
    return true;
}

static bool is_finite(const struct tensor *t)
{
    uint64_t n = tensor_count(t);
    for (uint64_t i = 0; i < n; i++) {
        if (!isfinite(tensor_f32_at(t, i)))
            return false;
    }
    return true;
}

int binder_check_quantised(const struct checkpoint *c, const struct linear_source *from,
                           const struct linear_source *s, struct err *e)
{
    const bool biases = s->bias_kind == BIASES_STORED, levels = s->super || s->codes != CODES_WHOLE;
    if (!s->affine)
        return !from->stored || is_finite(&s->weight) ? 0 : not_finite(c, from, &from->scales, e);
    if (!is_number(s))
        return not_finite(c, from, &from->weight, e);
    if (levels ? !scales_are_finite(s) : !is_finite(&s->scales))
        return not_finite(c, from, &from->scales, e);
    if (biases && s->super && !is_finite(&s->supers))
        return not_finite(c, from, &from->supers, e);
    return biases && !levels && !is_finite(&s->biases) ? not_finite(c, from, &from->biases, e) : 0;
}

void binder_drop(struct binder *b, const struct linear_source *s)
{
    checkpoint_drop(b->checkpoint, &s->weight);
    if (!s->affine)
        return;
    checkpoint_drop(b->checkpoint, &s->scales);
    if (s->bias_kind != BIASES_CENTRED)
        checkpoint_drop(b->checkpoint, &s->biases);
}

/* Each of `times` chosen copies of these sources, packed in `bytes`, is read for every token. */
static void count_active(struct binder *b, const struct linear_source *s, uint32_t count, uint64_t bytes,
                         uint32_t times)
{
    b->active.bytes += times * bytes;
    for (uint32_t i = 0; i < count; i++) {
        b->active.source_bytes += times * binder_source_bytes(&s[i]);
        b->active.products += times * s[i].out * s[i].in;
    }
}

/* Sources that pack_at will read. */
static void count_sources(struct binder *b, const struct linear_source *s, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        b->parameters += s[i].out * s[i].in;
        b->source_bytes += binder_source_bytes(&s[i]);
        weight_forms_add(&b->forms, &s[i], b->table ? 0 : binder_source_bytes(&s[i]));
        b->stage_bytes = MAX_OF(b->stage_bytes, weight_staging_matrix_bytes(&s[i]));
    }
}

static bool same_form(const struct linear_source *x, const struct linear_source *y)
{
    if (x->in != y->in || x->affine != y->affine || x->exact != y->exact)
        return false;
    if (!x->affine)
        return x->weight.dtype == y->weight.dtype;
    return x->bits == y->bits && x->group == y->group && x->codes == y->codes &&
           x->bias_kind == y->bias_kind && x->super == y->super && x->scales.dtype == y->scales.dtype &&
           x->biases.dtype == y->biases.dtype;
}

/* ---- packing ---- */

#define RUN_BYTES ((uint64_t)32 << 20) /* bytes of sources that are packed together, about */

/* Matrices of one form and size, packed together. Each is `count` sources, one above the other. A tile is a
 * number of whole panels of one matrix. */
struct run {
    struct binder *b;
    const struct linear_source *sources; /* matrix i begins at sources[i * apart] */
    uint32_t matrices, count, apart;
    struct weight first; /* matrix i lies `stride` bytes behind matrix i - 1 */
    uint64_t stride;
    uint32_t rows, tiles;       /* rows of a tile except the last; tiles of a matrix */
    atomic_uint_least64_t read; /* bytes of sources since the last progress */
};

/* Rows [from, to) of a source become rows `at` and following. */
static int pack_rows(struct run *p, const struct linear_source *s, uint64_t from, uint64_t to, uint32_t at,
                     const struct weight *w, struct weight_staging *stage, struct err *e)
{
    const struct binder *b = p->b;
    struct linear_source piece;
    for (uint64_t row = from; row < to; row += piece.out) {
        int r = weight_staging_rows(stage, s, row, to - row, &piece, e);
        if (r == 0)
            r = binder_check_quantised(b->checkpoint, s, &piece, e);
        if (r < 0)
            return r;
        binder_backend(b)->weight_put(b->device, w, at + (uint32_t)(row - from), &piece);
        atomic_fetch_add(&p->read, binder_source_bytes(s) / s->out * piece.out);
    }
    return 0;
}

static int pack_tile(void *arg, uint32_t tile, struct weight_staging *stage, struct err *e)
{
    struct run *p = arg;
    const uint32_t matrix = tile / p->tiles, from = tile % p->tiles * p->rows;
    const uint32_t to = MIN_OF(from + p->rows, p->first.n);
    const struct linear_source *s = p->sources + matrix * p->apart;
    struct weight w = p->first;
    w.data = dev_add(w.data, matrix * p->stride);
    int r = 0;
    for (uint32_t at = 0, i = 0; r == 0 && at < to; at += (uint32_t)s[i++].out) {
        ASSERT(i < p->count);
        uint32_t first = MAX_OF(from, at), end = MIN_OF(to, at + (uint32_t)s[i].out);
        if (first < end)
            r = pack_rows(p, &s[i], first - at, end - at, first, &w, stage, e);
    }
    return r;
}

static int tell_progress(void *arg)
{
    struct run *p = arg;
    return binder_advance(p->b, atomic_exchange(&p->read, 0));
}

static uint32_t rows_of_tile(const struct run *p)
{
    uint64_t rows = p->first.n;
    for (uint32_t i = 0; i < p->count; i++)
        rows =
            MIN_OF(rows, MAX_OF(weight_staging_rows_max(packers_staging(p->b->packers), &p->sources[i]), 1u));
    return MAX_OF((uint32_t)rows / WEIGHT_PANEL * WEIGHT_PANEL, WEIGHT_PANEL);
}

static int pack_run(struct run *p)
{
    const struct packers_work work = {.tile = pack_tile, .between = tell_progress, .arg = p};
    p->rows = rows_of_tile(p);
    p->tiles = DIV_UP(p->first.n, p->rows);
    int r = packers_run(p->b->packers, &work, p->matrices * p->tiles, p->b->e);
    if (r == 0)
        r = tell_progress(p);
    for (uint32_t i = 0; i < p->matrices; i++) {
        for (uint32_t k = 0; k < p->count; k++)
            binder_drop(p->b, &p->sources[i * p->apart + k]);
    }
    return r;
}

int binder_pack(struct binder *b, const struct linear_source *s, uint32_t count, const struct weight *w)
{
    struct run p = {.b = b, .sources = s, .matrices = 1, .count = count, .first = *w};
    return pack_run(&p);
}

/* Packs up to `matrices` at a time, as long as their sources stay within RUN_BYTES. */
static int pack_stack(struct run *p, uint32_t matrices)
{
    uint64_t bytes = 0;
    int r = 0;
    for (uint32_t k = 0; k < p->count; k++)
        bytes += binder_source_bytes(&p->sources[k]);
    const uint32_t most = (uint32_t)MIN_OF(DIV_UP(RUN_BYTES, MAX_OF(bytes, 1u)), (uint64_t)matrices);
    for (uint32_t from = 0; r == 0 && from < matrices; from += p->matrices) {
        p->matrices = MIN_OF(most, matrices - from);
        r = pack_run(p);
        p->sources += p->matrices * p->apart;
        p->first.data = dev_add(p->first.data, p->matrices * p->stride);
    }
    return r;
}

static int bind_matrix(struct binder *b, const struct linear_source *s, uint32_t count, struct weight *ret)
{
    const struct backend *backend = binder_backend(b);
    const enum compute_mode mode = binder_mode(b, s);
    uint64_t bytes = backend->weight_bytes(s, count, mode);
    dev_ptr at;
    int r = binder_take(b, bytes, &at);
    if (r < 0)
        return r;
    count_active(b, s, count, bytes, 1);
    count_sources(b, s, count);
    *ret = backend->weight_begin(s, count, mode, at);
    binder_note(b, ret);
    return binder_packs(b) ? binder_pack(b, s, count, ret) : 0;
}

/* A matrix of a projection. */
static void count_part(struct binder *b, const struct weight *w)
{
    b->sums |= w->sums;
    b->fast |= w->mode != COMPUTE_F32;
    b->floats |= w->mode == COMPUTE_FP8;
}

int binder_projection(struct binder *b, struct linear_source *parts, uint32_t count, struct projection *ret)
{
    struct projection p = {.in = (uint32_t)parts[0].in};
    binder_quantise(b, parts, count, b->config->quant);
    for (uint32_t from = 0, to; from < count; from = to) {
        ASSERT(p.part_count < PROJECTION_PARTS_MAX && parts[from].in == p.in);
        for (to = from + 1; to < count && same_form(&parts[from], &parts[to]);)
            to++;
        int r = bind_matrix(b, &parts[from], to - from, &p.parts[p.part_count]);
        if (r < 0)
            return r;
        b->halves |= parts[from].weight.dtype == DTYPE_F16;
        count_part(b, &p.parts[p.part_count]);
        p.sums |= p.parts[p.part_count++].sums;
    }
    for (uint32_t i = 0; i < count; i++)
        p.out += (uint32_t)parts[i].out;
    *ret = p;
    return binder_biases(b, parts, count, &ret->bias);
}

/* The key that says whether a matrix of this role has a bias; NULL: it is true, or there is none. */
static const char *bias_denied(const struct config *c, enum tensor_role role)
{
    switch (role) {
    case ROLE_Q:
    case ROLE_K:
    case ROLE_V:
    case ROLE_QKV:
    case ROLE_LATENT_Q_A:
    case ROLE_LATENT_KV_A:
        return c->attention_biases ? NULL : "attention_bias";
    case ROLE_O:
        return c->attention_out_biases ? NULL : "attention_bias (or attention_out_bias)";
    case ROLE_GATE:
    case ROLE_UP:
    case ROLE_GATE_UP:
    case ROLE_DOWN:
        return c->mlp_biases ? NULL : "mlp_bias";
    default:
        return NULL;
    }
}

/* transformers leaves out a bias that the configuration denies. Whether it was trained is not known, except
 * beside a quantised matrix, where GPTQ's writers put zeros. */
static int check_denied(struct binder *b, const char *path, enum tensor_role role,
                        const struct linear_source *s)
{
    const char *key = bias_denied(b->config, role);
    if (!s->has_bias || s->affine || s->stored || !key)
        return 0;
    return err_set(b->e, -EINVAL, "tensor %s%s has a bias, but %s is false", b->prefix, path, key);
}

int binder_layer_matrices(struct binder *b, uint32_t layer, const struct binder_matrix *matrices,
                          uint32_t count, uint64_t in, struct linear_source *ret)
{
    char path[BINDER_PATH_MAX];
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < count; i++) {
        r = binder_linear(b, binder_path(b, layer, matrices[i].role, path), matrices[i].out, in, &ret[i]);
        if (r == 0)
            r = check_denied(b, path, matrices[i].role, &ret[i]);
        if (r == 0)
            r = binder_check_bias(b, layer, matrices[i].role, ret[i].has_bias);
        if (r == 0) {
            ret[i].bias_factor = matrices[i].bias_factor;
            ret[i].exact = role_is_exact(matrices[i].role);
        }
    }
    return r;
}

#define LAYER_MATRICES_MAX 6

int binder_layer_projection(struct binder *b, uint32_t layer, const struct binder_matrix *matrices,
                            uint32_t count, uint64_t in, struct projection *ret)
{
    struct linear_source sources[LAYER_MATRICES_MAX];
    ASSERT(count <= LAYER_MATRICES_MAX);
    int r = binder_layer_matrices(b, layer, matrices, count, in, sources);
    return r == 0 ? binder_projection(b, sources, count, ret) : r;
}

/* Binds the experts' biases, one expert after the other. A token reads those of top_k experts. */
static int bind_expert_biases(struct binder *b, const struct linear_source *parts, uint32_t experts,
                              uint32_t count, dev_ptr *ret)
{
    struct binder_active before = b->active;
    int r = binder_biases(b, parts, experts * count, ret);
    b->active.bytes = before.bytes + (b->active.bytes - before.bytes) / experts * b->config->top_k;
    b->active.source_bytes =
        before.source_bytes + (b->active.source_bytes - before.source_bytes) / experts * b->config->top_k;
    return r;
}

/* Sources [from, to) of the `count` that each expert has, as one stack. */
static int bind_stack(struct binder *b, const struct linear_source *parts, uint32_t experts, uint32_t count,
                      uint32_t from, uint32_t to, struct weight *ret)
{
    const struct backend *backend = binder_backend(b);
    const uint32_t each = to - from;
    parts += from;
    const enum compute_mode mode = binder_mode(b, parts);
    uint64_t stride = ROUND_UP(backend->weight_bytes(parts, each, mode), (uint64_t)64);
    dev_ptr at;
    int r = binder_take(b, stride * experts, &at);
    if (r < 0)
        return r;
    count_active(b, parts, each, stride, b->config->top_k);
    for (uint32_t i = 0; i < experts; i++)
        count_sources(b, &parts[i * count], each);
    *ret = backend->weight_begin(parts, each, mode, at);
    struct run p = {.b = b, .sources = parts, .count = each, .apart = count, .first = *ret, .stride = stride};
    if (binder_packs(b))
        r = pack_stack(&p, experts);
    ret->experts = experts;
    ret->expert_bytes = stride;
    count_part(b, ret);
    binder_note(b, ret);
    return r;
}

/* A source has one form in all experts: gate and up may differ. */
static int check_experts(struct binder *b, const struct linear_source *parts, uint32_t experts,
                         uint32_t count)
{
    for (uint32_t i = count; i < experts * count; i++) {
        if (!same_form(&parts[i % count], &parts[i]))
            return err_set(b->e, -ENOTSUP, "the experts of one layer differ in dtype or quantisation");
    }
    return 0;
}

int binder_experts(struct binder *b, struct linear_source *parts, uint32_t experts, uint32_t count,
                   struct projection *ret)
{
    struct projection p = {.in = (uint32_t)parts[0].in};
    binder_quantise(b, parts, experts * count, b->config->quant);
    int r = check_experts(b, parts, experts, count);
    for (uint32_t from = 0, to; r == 0 && from < count; from = to) {
        ASSERT(p.part_count < PROJECTION_PARTS_MAX);
        for (to = from + 1; to < count && same_form(&parts[from], &parts[to]);)
            to++;
        struct weight *stack = &p.parts[p.part_count];
        r = bind_stack(b, parts, experts, count, from, to, stack);
        if (r == 0) {
            p.part_count++;
            p.out += stack->n;
            p.sums |= stack->sums;
        }
    }
    *ret = p;
    return r < 0 ? r : bind_expert_biases(b, parts, experts, count, &ret->bias);
}

int binder_table(struct binder *b, const char *path, uint64_t rows, uint64_t columns, struct weight *ret)
{
    struct linear_source s;
    int r = binder_linear(b, path, rows, columns, &s);
    struct binder_active active = b->active;
    if (r < 0)
        return r;
    binder_quantise(b, &s, 1, quantise_table_bits(b->config->quant));
    r = bind_matrix(b, &s, 1, ret);
    b->active = active;
    return r;
}

static int bind_embedding(struct binder *b, struct weight *embedding, struct projection *head)
{
    char path[BINDER_PATH_MAX], module[BINDER_NAME_MAX - 16], name[BINDER_NAME_MAX];
    static const char *const before[] = {"", "language_model."};
    struct linear_source s;
    struct tensor t;
    uint64_t vocab = b->config->vocab, hidden = b->config->hidden;
    int r = binder_linear(b, binder_path(b, NONE, ROLE_EMBEDDING, path), vocab, hidden, &s);
    struct binder_active active = b->active;
    if (r == 0) {
        binder_quantise(b, &s, 1, quantise_table_bits(b->config->quant));
        r = bind_matrix(b, &s, 1, embedding);
    }
    if (r == 0 && b->config->family->encoder)
        b->active = active;
    if (r < 0 || b->config->family->encoder)
        return r;
    for (size_t i = 0; i < COUNT_OF(before); i++) {
        snprintf(module, sizeof(module), "%s%s", before[i], binder_path(b, NONE, ROLE_HEAD, path));
        snprintf(name, sizeof(name), "%s.weight", module);
        if (!binder_find_optional(b, name, &t) && !binder_has_stored(b, module)) {
            r = s.has_bias ? 0 : binder_bias(b, module, &s);
            if (r < 0)
                return r;
            continue;
        }
        b->active = active; /* a token reads one row of the table */
        r = binder_output(b, module, vocab, hidden, &s);
        if (r < 0)
            return r;
        binder_quantise(b, &s, 1, quantise_table_bits(b->config->quant));
        b->output = s;
        return binder_projection(b, &s, 1, head);
    }
    b->output = s;
    count_part(b, embedding);
    *head = (struct projection){.in = (uint32_t)hidden,
                                .out = (uint32_t)vocab,
                                .part_count = 1,
                                .sums = embedding->sums,
                                .parts = {*embedding}};
    return binder_biases(b, &s, 1, &head->bias);
}

int binder_embedding(struct binder *b, struct weight *embedding, struct projection *head)
{
    b->table = true;
    int r = bind_embedding(b, embedding, head);
    b->table = false;
    return r;
}
