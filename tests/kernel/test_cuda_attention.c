/* Attention on a GPU: the kernels of bf16 mode have the same bits at every position for whole sequences,
 * chunks and single tokens, and are near the plain one in f32. Skipped where there is no GPU. */
#include "test_rng.h"
#include "cuda_test.h"

#include "base/arena.h"
#include "base/none.h"
#include "compute/batch.h"
#include "compute/layout.h"
#include "compute/rope.h"
#include "compute/shape.h"
#include "compute/weight.h"
#include "memory/domain.h"

struct batch_seq;

#ifdef TEST_SIMT
#define TOKENS       520u
#define MEMORY_BYTES ((uint64_t)160 << 20)
#define BEGIN        248u
#define CHUNKS       7, 1
#define SEQS         20u
#else
#define TOKENS       700u
#define MEMORY_BYTES ((uint64_t)512 << 20)
#define BEGIN        0u /* begin of chunks: earlier tokens are in the pages */
#define CHUNKS       250, 96, 32, 7, 1
#define SEQS         300u /* more than one launch takes */
#endif
#define PAGES (TOKENS / PAGE_TOKENS + 1)
/* Scale of scores of normed queries and keys, which are larger than the others. */
#define NORMED_SCALE 0.01f

enum { ARRAY_QKV, ARRAY_OUT, ARRAY_ANGLES, ARRAYS };

struct shape {
    uint32_t heads, kv_heads, size, window;
    float cap;
    /* Norms of queries and keys, and a rotation of so many pairs; 0: neither. */
    uint32_t half;
    bool adjacent, norm_rotated;
};

struct attention {
    struct gpu gpu;
    const struct shape *of;
    dev_ptr pages;
    struct arena *host[2];
    struct compute *compute[2]; /* f32, bf16 */
    struct compute_shape shape[2];
    struct kv_layer layer[2];
    struct weight table;
    dev_ptr norms; /* [3][size]: of queries, keys, values */
    struct rope_tables ropes;
    float *x;
    uint32_t in, out; /* values of a token */
    bool images;      /* tokens of two images see each other */
};

static uint32_t ids[TOKENS], columns[TOKENS], seqs_of[TOKENS], ends[TOKENS], tables[2][PAGES];
static struct rope_position positions[TOKENS];
static dev_ptr features[TOKENS];

static void open_compute(struct attention *a, uint32_t i)
{
    const struct array_spec arrays[ARRAYS] = {
        {ROWS_TOKENS, a->in, 0}, {ROWS_TOKENS, a->out, 0}, {ROWS_TOKENS, 2 * MAX_OF(a->of->half, 1u), 0}};
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = (size_t)16 << 20}, &a->host[i]), 0);
    a->compute[i] = gpu_compute(&a->gpu, (struct compute_opts){.shape = &a->shape[i],
                                                               .arrays = arrays,
                                                               .array_count = ARRAYS,
                                                               .mode = i == 0 ? COMPUTE_F32 : COMPUTE_BF16,
                                                               .tokens_max = TOKENS,
                                                               .seqs_max = SEQS,
                                                               .logits_max = 1,
                                                               .host_memory = a->host[i]});
}

static void fill_norms(struct attention *a, struct rng *r)
{
    uint32_t count = 3 * a->of->size;
    float *values = random_values(r, count, -1, 1);
    a->norms = gpu_take(&a->gpu, count * sizeof(float));
    domain_put(a->gpu.device->domain, a->norms, values, count * sizeof(float));
    free(values);
}

static void fill_ropes(struct attention *a)
{
    a->ropes.count = a->of->half > 0;
    a->ropes.table[0] = (struct rope){.half = a->of->half, .magnitude = 1};
    for (uint32_t i = 0; i < a->of->half; i++)
        a->ropes.table[0].inv_freq[i] = 1 / (float)(1 + i);
}

static uint32_t width_of(const struct shape *s)
{
    return (s->heads + 2 * s->kv_heads) * s->size;
}

/* x[TOKENS][in] belongs to `a` from now on. The plain kernel has pages of 8 bits where the others have. */
static void attention_init(struct attention *a, const struct shape *s, enum kv_form form, float *x,
                           struct rng *r)
{
    const enum kv_form forms[] = {kv_form_scaled(form) ? form : KV_F32, form};
    *a = (struct attention){.of = s, .x = x};
    a->in = width_of(s);
    a->out = s->heads * s->size;
    for (uint32_t i = 0; i < 2; i++) {
        a->layer[i] =
            (struct kv_layer){.heads = s->kv_heads, .k_width = s->size, .v_width = s->size, .form = forms[i]};
        a->shape[i] = (struct compute_shape){.hidden = a->out,
                                             .vocab = TOKENS,
                                             .eps = 1e-6f,
                                             .layers = 1,
                                             .context_max = TOKENS,
                                             .kv = &a->layer[i],
                                             .kv_count = 1,
                                             .group_count = 1};
        page_lay_out(&a->layer[i], 1, a->shape[i].groups, 1);
    }
    gpu_open(&a->gpu, MEMORY_BYTES);
    a->pages = gpu_take(&a->gpu, 2 * PAGES * a->shape[0].groups[0].page_bytes);
    open_compute(a, 0);
    open_compute(a, 1);
    fill_norms(a, r);
    fill_ropes(a);
    const struct linear_source table = gpu_table(a->x, TOKENS, a->in);
    const struct backend *b = a->gpu.device->backend;
    a->table =
        b->weight_begin(&table, 1, COMPUTE_F32, gpu_take(&a->gpu, b->weight_bytes(&table, 1, COMPUTE_F32)));
    b->weight_put(a->gpu.device, &a->table, 0, &table);
}

/* Rows of bf16. */
static float *random_rows(const struct shape *s, struct rng *r)
{
    size_t count = (size_t)TOKENS * width_of(s);
    float *x = random_values(r, count, -1, 1);
    for (size_t i = 0; i < count; i++)
        x[i] = bf16_to_f32(f32_to_bf16(x[i]));
    return x;
}

/* Returns a copy of the rows whose keys and values are those that are read from a form of 8 bits. */
static float *read_rows(const struct shape *s, enum kv_form form, const float *x)
{
    static char page[(4 + 256) * PAGE_TOKENS];
    size_t bytes = (size_t)TOKENS * width_of(s) * sizeof(float);
    float *ret = malloc(bytes);
    assert_non_null(ret);
    memcpy(ret, x, bytes);
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t h = s->heads; h < s->heads + 2 * s->kv_heads; h++) {
            float *to = ret + (size_t)t * width_of(s) + (size_t)h * s->size;
            kv_form_put(form, page, s->size, 0, 0, 1, to);
            for (uint32_t d = 0; d < s->size; d++)
                to[d] = kv_form_value(form, page, s->size, 0, 0, 1, d);
        }
    return ret;
}

static void attention_done(struct attention *a)
{
    free(a->x);
    arena_free(a->host[0]);
    arena_free(a->host[1]);
    gpu_close(&a->gpu);
}

/* A step of the sequences, whose tokens' arrays are filled. */
static void compute_rows(struct attention *a, uint32_t mode, const struct batch_seq *seqs, uint32_t n,
                         uint32_t all, float *values)
{
    const struct batch batch = {.token_count = all,
                                .value_count = all,
                                .seq_count = n,
                                .seqs = seqs,
                                .ids = ids,
                                .token_seq = seqs_of,
                                .positions = positions,
                                .features = features,
                                .ends = a->images ? ends : NULL,
                                .image_count = a->images,
                                .logit_columns = columns,
                                .hidden_columns = columns,
                                .pages = {a->pages},
                                .values = values};
    const struct shape *s = a->of;
    struct op_attention op = {.heads = s->heads,
                              .scale = 0.7f,
                              .window = s->window,
                              .cap = s->cap,
                              .image_ends = a->images,
                              .qkv = {ARRAY_QKV, 0, a->in},
                              .out = {ARRAY_OUT, 0, a->out}};
    if (s->half > 0) {
        op.scale = NORMED_SCALE;
        op.angles = (struct act){ARRAY_ANGLES, 0, 2 * s->half};
        op.adjacent = s->adjacent;
        op.norm_rotated = s->norm_rotated;
        op.q_norm = a->norms;
        op.k_norm = dev_add(a->norms, s->size * sizeof(float));
        op.v_norm = dev_add(a->norms, 2 * s->size * sizeof(float));
    }
    struct compute *c = a->compute[mode];
    compute_step_begin(c, &batch);
    compute_embed(c, &(struct op_embed){.table = &a->table,
                                        .ropes = &a->ropes,
                                        .h = op.qkv,
                                        .angles = {ARRAY_ANGLES, 0, 2 * s->half}});
    compute_append(c, &op);
    compute_attend(c, &op);
    compute_values(c, &(struct op_values){.x = op.out});
    assert_int_equal(compute_step_end(c), 0);
}

/* Images have positions [40, 104) and [130, 136) of each sequence. */
static uint32_t end_of(uint32_t position)
{
    return position >= 40 && position < 104 ? 104 : position >= 130 && position < 136 ? 136 : position + 1;
}

/* The next counts[i] tokens of both sequences, from from[i] on, to their places in ret[i]. */
static void step(struct attention *a, uint32_t mode, const uint32_t from[2], const uint32_t counts[2],
                 float *ret[2])
{
    struct batch_seq seqs[2];
    uint32_t all = counts[0] + counts[1], n = 0;
    float *values = malloc((size_t)all * a->out * sizeof(float));
    for (uint32_t i = 0, t = 0; i < 2; i++) {
        if (counts[i] == 0)
            continue;
        seqs[n] = (struct batch_seq){.first = t,
                                     .count = counts[i],
                                     .position = from[i],
                                     .second = NONE,
                                     .state_in = NONE,
                                     .state_out = NONE,
                                     .pages = {tables[i]}};
        for (uint32_t c = 0; c < counts[i]; c++, t++) {
            ids[t] = (from[i] + c + 77 * i) % TOKENS;
            for (uint32_t axis = 0; axis < 3; axis++)
                positions[t].axis[axis] = from[i] + c;
            ends[t] = end_of(from[i] + c);
            seqs_of[t] = n;
            columns[t] = t;
        }
        n++;
    }
    assert_non_null(values);
    compute_rows(a, mode, seqs, n, all, values);
    for (uint32_t i = 0, t = 0; i < 2; t += counts[i], i++)
        if (ret[i])
            memcpy(ret[i] + (size_t)from[i] * a->out, values + (size_t)t * a->out,
                   (size_t)counts[i] * a->out * sizeof(float));
    free(values);
}

static void same_bits(const struct attention *a, const float *whole, const float *got, const char *what)
{
    for (uint32_t t = BEGIN; t < TOKENS / 2; t++)
        if (memcmp(whole + (size_t)t * a->out, got + (size_t)t * a->out, a->out * sizeof(float)) != 0)
            fail_msg("%s: position %u differs", what, t);
}

/* Queries, keys and values are bf16, values of at most 1. Weights are rounded to bf16, in the sum too: 2^-9
 * of each. Scores are sums of products below 1 in size, whose errors are far less.
 *
 * Normed ones become bf16, 2^-9 of each. A normed query times a normed key is at most the head's size, and so
 * is the square of a value; a score's error e changes a weight by 2 e in all. */
static void is_near(const struct attention *a, const float *plain, const float *got)
{
    double size = a->of->size, bound = 0x1p-8 + 0x1p-10;
    if (a->of->half > 0)
        bound = sqrt(size) * (bound + 0x1p-9 + 2 * (double)NORMED_SCALE * size * 0x1p-8);
    for (size_t i = 0; i < (size_t)(TOKENS / 2) * a->out; i++)
        assert_within((double)got[i], (double)plain[i], bound, "attention");
}

/* Two sequences; the second's first chunk has 5 tokens fewer. */
static void run(struct attention *a, uint32_t mode, uint32_t begin, uint32_t chunk, float *ret[2])
{
    const uint32_t length = TOKENS / 2;
    uint32_t from[2] = {begin, begin};
    while (from[0] < length || from[1] < length) {
        uint32_t counts[2] = {MIN_OF(chunk, length - from[0]), MIN_OF(chunk, length - from[1])};
        if (from[1] == begin && chunk > 5)
            counts[1] = MIN_OF(counts[1], chunk - 5);
        step(a, mode, from, counts, ret);
        from[0] += counts[0];
        from[1] += counts[1];
    }
}

/* The first sequence token by token, beside chunks of the second. */
static void run_mixed(struct attention *a, float *ret[2])
{
    const uint32_t length = TOKENS / 2;
    for (uint32_t from[2] = {BEGIN, 0}, counts[2] = {1, 0}; from[0] < length;
         from[0]++, from[1] += counts[1]) {
        counts[1] = MIN_OF(length - from[1], 32u);
        step(a, 1, from, counts, ret);
    }
}

/* Each of the last positions as a sequence of its own, with a token and the pages of the first sequence. */
static void run_rows(struct attention *a, float *ret[2])
{
    static struct batch_seq seqs[SEQS];
    const uint32_t first = TOKENS / 2 - SEQS;
    for (uint32_t i = 0; i < SEQS; i++) {
        seqs[i] = (struct batch_seq){.first = i,
                                     .count = 1,
                                     .position = first + i,
                                     .second = NONE,
                                     .state_in = NONE,
                                     .state_out = NONE,
                                     .pages = {tables[0]}};
        ids[i] = first + i;
        seqs_of[i] = columns[i] = i;
        for (uint32_t axis = 0; axis < 3; axis++)
            positions[i].axis[axis] = first + i;
    }
    compute_rows(a, 1, seqs, SEQS, SEQS, ret[0] + (size_t)first * a->out);
}

/* Attention of the plain kernel over pages of f32 that have the values which the CPU reads from a form of 8
 * bits. */
static void attend_read_rows(const struct shape *s, enum kv_form form, const float *x, float *ret[2],
                             struct rng *r)
{
    struct attention a;
    attention_init(&a, s, KV_BF16, read_rows(s, form, x), r);
    run(&a, 0, 0, TOKENS / 2, ret);
    attention_done(&a);
}

static void holds(const struct shape *s, enum kv_form form, struct rng *r)
{
    static const uint32_t chunks[] = {CHUNKS};
    struct attention a;
    size_t bytes = (size_t)(TOKENS / 2) * s->heads * s->size * sizeof(float);
    float *plain[2] = {malloc(bytes), malloc(bytes)}, *whole[2] = {malloc(bytes), malloc(bytes)};
    float *got[2] = {malloc(bytes), malloc(bytes)};
    const bool as_read = kv_form_scaled(form) && s->half == 0;
    float *x = random_rows(s, r);
    if (as_read)
        attend_read_rows(s, form, x, got, r);
    attention_init(&a, s, form, x, r);
    run(&a, 0, 0, TOKENS / 2, plain);
    for (uint32_t i = 0; as_read && i < 2; i++)
        same_bits(&a, plain[i], got[i], "the plain kernel over 8 bits");
    run(&a, 1, 0, TOKENS / 2, whole);
    is_near(&a, plain[0], whole[0]);
    is_near(&a, plain[1], whole[1]);
    for (uint32_t i = 0; i < COUNT_OF(chunks); i++) {
        char what[64];
        snprintf(what, sizeof(what), "heads of %u in %s, chunks of %u", s->size, kv_form_name(form),
                 chunks[i]);
        memset(got[0], 0xff, bytes);
        memset(got[1], 0xff, bytes);
        run(&a, 1, BEGIN, chunks[i], got);
        same_bits(&a, whole[0], got[0], what);
        same_bits(&a, whole[1], got[1], what);
    }
    memset(got[0], 0xff, bytes);
    memset(got[1], 0xff, bytes);
    run_mixed(&a, got);
    same_bits(&a, whole[0], got[0], "a token beside a chunk");
    same_bits(&a, whole[1], got[1], "a chunk beside a token");
    run_rows(&a, got);
    same_bits(&a, whole[0], got[0], "many sequences");
    print_message("%u heads of %u in %s, window %u, %u pairs: good\n", s->heads, s->size, kv_form_name(form),
                  s->window, s->half);
    for (uint32_t i = 0; i < 2; i++) {
        free(plain[i]);
        free(whole[i]);
        free(got[i]);
    }
    attention_done(&a);
}

TEST(a_positions_bits_do_not_depend_on_the_chunk)
{
    static const struct shape shapes[] = {
#ifdef TEST_SIMT
        {.heads = 6, .kv_heads = 2, .size = 64, .window = 100},
        {.heads = 12, .kv_heads = 1, .size = 128, .window = 31},
        {.heads = 4, .kv_heads = 1, .size = 128, .half = 64},
        {.heads = 3, .kv_heads = 3, .size = 64, .half = 16, .adjacent = true},
        {.heads = 2, .kv_heads = 1, .size = 256, .window = 200, .cap = 5, .half = 48, .norm_rotated = true},
#else
        {.heads = 4, .kv_heads = 2, .size = 128},
        {.heads = 6, .kv_heads = 2, .size = 64, .window = 100},
        {.heads = 2, .kv_heads = 1, .size = 256, .window = 300, .cap = 5},
        {.heads = 8, .kv_heads = 1, .size = 128, .window = 31},
        {.heads = 3, .kv_heads = 3, .size = 64, .cap = 2},
        {.heads = 32, .kv_heads = 8, .size = 128, .half = 64},
        {.heads = 14, .kv_heads = 14, .size = 64, .half = 16, .adjacent = true},
        {.heads = 10, .kv_heads = 5, .size = 256, .half = 48, .norm_rotated = true},
#endif
    };
    NEEDS_GPU
    struct rng r = {9, 0};
    for (uint32_t i = 0; i < PAGES; i++) {
        tables[0][i] = 2 * (PAGES - 1 - i);
        tables[1][i] = 2 * i + 1;
    }
    for (uint32_t i = 0; i < COUNT_OF(shapes); i += LARGEST < UINT32_MAX ? 2 : 1)
        for (enum kv_form form = KV_BF16; form <= KV_FP8; form++)
            holds(&shapes[i], form, &r);
}

/* Both sequences in five steps. In one of them few tokens have an image among them. */
static void run_cut(struct attention *a, float *ret[2])
{
    static const uint32_t cuts[2][6] = {{0, 40, 104, 130, 136, TOKENS / 2},
                                        {0, 120, 136, 140, 141, TOKENS / 2}};
    for (uint32_t i = 0; i + 1 < COUNT_OF(cuts[0]); i++) {
        const uint32_t from[2] = {cuts[0][i], cuts[1][i]};
        const uint32_t counts[2] = {cuts[0][i + 1] - from[0], cuts[1][i + 1] - from[1]};
        step(a, 1, from, counts, ret);
    }
}

TEST(tokens_of_an_image_see_each_other)
{
    static const struct shape shapes[] = {{.heads = 2, .kv_heads = 1, .size = 256, .half = 48, .window = 50},
                                          {.heads = 4, .kv_heads = 2, .size = 64}};
    NEEDS_GPU
    struct rng r = {10, 0};
    for (uint32_t i = 0; i < PAGES; i++) {
        tables[0][i] = 2 * (PAGES - 1 - i);
        tables[1][i] = 2 * i + 1;
    }
    for (uint32_t i = 0; i < COUNT_OF(shapes); i++) {
        struct attention a;
        const size_t count = (size_t)(TOKENS / 2) * shapes[i].heads * shapes[i].size;
        float *rows[3][2];
        for (uint32_t k = 0; k < 6; k++) {
            rows[k / 2][k % 2] = malloc(count * sizeof(float));
            memset(rows[k / 2][k % 2], 0xff, count * sizeof(float));
        }
        attention_init(&a, &shapes[i], KV_BF16, random_rows(&shapes[i], &r), &r);
        run(&a, 1, 0, TOKENS / 2, rows[2]);
        a.images = true;
        run(&a, 0, 0, TOKENS / 2, rows[0]);
        run(&a, 1, 0, TOKENS / 2, rows[1]);
        for (uint32_t k = 0; k < 2; k++) {
            is_near(&a, rows[0][k], rows[1][k]);
            assert_memory_not_equal(rows[1][k] + 60 * a.out, rows[2][k] + 60 * a.out, a.out * sizeof(float));
            assert_memory_equal(rows[1][k] + 30 * a.out, rows[2][k] + 30 * a.out, a.out * sizeof(float));
        }
        run_cut(&a, rows[2]);
        for (uint32_t k = 0; k < 2; k++)
            assert_same_bits(rows[2][k], rows[1][k], count, "steps with images");
        for (uint32_t k = 0; k < 6; k++)
            free(rows[k / 2][k % 2]);
        attention_done(&a);
    }
}

TEST_MAIN()
