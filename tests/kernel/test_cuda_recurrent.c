/* The delta net and Mamba-2 on a GPU, through the compute contract. A sequence has the same bits as one
 * chunk, in several chunks, in a batch, and after pending tokens of a state. Columns in registers have the
 * bits of the plain kernels, which goldens compare with the reference. Skipped where there is no GPU. */
#include "test_rng.h"
#include "cuda_test.h"

#include "base/arena.h"
#include "compute/batch.h"
#include "compute/layout.h"
#include "compute/rope.h"
#include "compute/weight.h"
#include "memory/domain.h"

struct batch_seq;

#define VOCAB        97u
#define TOKENS       150u /* tokens of the sequence: more than have a block each in a convolution */
#define SEQS_MAX     3u
#define TOKENS_MAX   (2 * TOKENS)
#define DRAFTS       4u
#define MEMORY_BYTES ((uint64_t)64 << 20)

enum { ARRAY_IN, ARRAY_CONV, ARRAY_GATES, ARRAY_OUT, ARRAYS };

/* Where a row of the convolution's outputs begins: columns stay in registers where all are whole vectors. */
enum { IN_REGISTERS = 0, PLAIN = 1 };

struct layer {
    struct gpu gpu;
    struct arena *host;
    struct compute *compute;
    struct compute_shape shape;
    struct recurrent_layer part;
    bool mamba;
    uint32_t in, channels, gates, out; /* widths */
    struct weight table;
    dev_ptr conv, bias, decay, dt_bias, skip, norm, states;
};

static const struct rope_tables no_ropes;

static dev_ptr put_values(struct layer *l, struct rng *r, uint32_t count, float low, float high)
{
    float *values = random_values(r, count, low, high);
    dev_ptr at = gpu_take(&l->gpu, count * sizeof(float));
    domain_put(l->gpu.device->domain, at, values, count * sizeof(float));
    free(values);
    return at;
}

static void set_widths(struct layer *l)
{
    const struct compute_shape *s = &l->shape;
    uint32_t heads = l->mamba ? s->ssm.heads : s->value_heads;
    l->out = l->mamba ? ssm_inner(&s->ssm) : heads * s->value_dim;
    l->channels = l->mamba ? ssm_channels(&s->ssm) : shape_conv_channels(s);
    l->gates = 2 * heads;
    l->in = l->channels + l->out + (l->mamba ? heads : 2 * heads);
}

static void put_weights(struct layer *l, struct rng *r)
{
    const struct backend *b = l->gpu.device->backend;
    uint32_t heads = l->gates / 2, taps = l->mamba ? l->shape.ssm.conv_width : l->shape.conv_width;
    float *x = random_values(r, (size_t)VOCAB * l->in, -1, 1);
    const struct linear_source table = gpu_table(x, VOCAB, l->in);
    l->table =
        b->weight_begin(&table, 1, COMPUTE_BF16, gpu_take(&l->gpu, b->weight_bytes(&table, 1, COMPUTE_BF16)));
    b->weight_put(l->gpu.device, &l->table, 0, &table);
    free(x);
    l->conv = put_values(l, r, taps * l->channels, -1, 1);
    l->bias = put_values(l, r, l->channels, -1, 1);
    l->decay = put_values(l, r, heads, -1, -0.01f);
    l->dt_bias = put_values(l, r, heads, -2, 1);
    l->skip = put_values(l, r, heads, -1, 1);
    l->norm = put_values(l, r, l->out, 0.5f, 2);
}

static void layer_init(struct layer *l, const struct compute_shape *shape, enum compute_mode mode,
                       struct rng *r)
{
    *l = (struct layer){.shape = *shape, .mamba = shape->ssm.heads > 0};
    struct compute_shape *s = &l->shape;
    set_widths(l);
    s->hidden = l->in;
    s->vocab = VOCAB;
    s->eps = 1e-6f;
    s->layers = s->recurrent_count = 1;
    s->context_max = TOKENS;
    s->drafts_max = DRAFTS;
    l->part = l->mamba ? ssm_recurrent_layer(s) : delta_recurrent_layer(s);
    state_lay_out(s, &l->part);
    const struct array_spec arrays[ARRAYS] = {[ARRAY_IN] = {ROWS_TOKENS, l->in, 0},
                                              [ARRAY_CONV] = {ROWS_TOKENS, l->channels + PLAIN, 0},
                                              [ARRAY_GATES] = {ROWS_TOKENS, l->gates, 0},
                                              [ARRAY_OUT] = {ROWS_TOKENS, l->out, l->out}};
    gpu_open(&l->gpu, MEMORY_BYTES);
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = (size_t)64 << 20}, &l->host), 0);
    l->compute = gpu_compute(&l->gpu, (struct compute_opts){.shape = s,
                                                            .arrays = arrays,
                                                            .array_count = ARRAYS,
                                                            .mode = mode,
                                                            .tokens_max = TOKENS_MAX,
                                                            .seqs_max = SEQS_MAX,
                                                            .logits_max = 1,
                                                            .host_memory = l->host});
    put_weights(l, r);
    l->states = gpu_take(&l->gpu, SEQS_MAX * s->state_bytes);
}

static void layer_done(struct layer *l)
{
    arena_free(l->host);
    gpu_close(&l->gpu);
}

static void put_layer(const struct layer *l, uint32_t from)
{
    const struct act in = {ARRAY_IN, 0, l->in}, conv = {ARRAY_CONV, from, l->channels};
    const struct act gates = {ARRAY_GATES, 0, l->gates}, out = {ARRAY_OUT, 0, l->out};
    const struct op_delta delta = {.conv = l->conv,
                                   .decay = l->decay,
                                   .dt_bias = l->dt_bias,
                                   .norm = l->norm,
                                   .in = in,
                                   .conv_out = conv,
                                   .gates = gates,
                                   .out = out};
    const struct op_ssm ssm = {.norm_kind = SSM_NORM_AFTER_GATE,
                               .dt_min = 0.01f,
                               .conv = l->conv,
                               .conv_bias = l->bias,
                               .a = l->decay,
                               .dt_bias = l->dt_bias,
                               .skip = l->skip,
                               .norm = l->norm,
                               .in = in,
                               .conv_out = conv,
                               .gates = gates,
                               .out = out};
    compute_embed(l->compute,
                  &(struct op_embed){.table = &l->table, .ropes = &no_ropes, .h = in, .angles = in});
    if (l->mamba) {
        compute_ssm_convolve(l->compute, &ssm);
        compute_ssm_recur(l->compute, &ssm);
    } else {
        compute_convolve(l->compute, &delta);
        compute_recur(l->compute, &delta);
    }
    compute_values(l->compute, &(struct op_values){.x = out});
}

/* A step of `count` sequences: `position` is where each begins in the one of TOKENS tokens, whose row of
 * outputs goes to the same place of `ret`. */
static void run(const struct layer *l, uint32_t from, struct batch_seq *seqs, uint32_t count, float *ret)
{
    uint32_t ids[TOKENS_MAX], columns[TOKENS_MAX], seqs_of[TOKENS_MAX], tokens = 0;
    static const struct rope_position positions[TOKENS_MAX];
    static const dev_ptr features[TOKENS_MAX];
    float *values = malloc((size_t)TOKENS_MAX * l->out * sizeof(float));
    assert_non_null(values);
    for (uint32_t i = 0; i < count; i++) {
        seqs[i].first = tokens;
        seqs[i].second = NONE;
        for (uint32_t t = 0; t < seqs[i].count; t++, tokens++) {
            ids[tokens] = (seqs[i].position + t) * 7 % VOCAB;
            columns[tokens] = tokens;
            seqs_of[tokens] = i;
        }
    }
    const struct batch batch = {.token_count = tokens,
                                .value_count = tokens,
                                .seq_count = count,
                                .seqs = seqs,
                                .ids = ids,
                                .token_seq = seqs_of,
                                .positions = positions,
                                .features = features,
                                .logit_columns = columns,
                                .hidden_columns = columns,
                                .states = l->states,
                                .values = values};
    compute_step_begin(l->compute, &batch);
    put_layer(l, from);
    assert_int_equal(compute_step_end(l->compute), 0);
    for (uint32_t i = 0; i < count; i++)
        memcpy(ret + (size_t)seqs[i].position * l->out, values + (size_t)seqs[i].first * l->out,
               (size_t)seqs[i].count * l->out * sizeof(float));
    free(values);
}

/* Tokens [position, position + count). `state` is the one before them, and becomes the one after them. */
static struct batch_seq chunk(uint32_t position, uint32_t count, uint32_t state)
{
    return (struct batch_seq){
        .position = position, .count = count, .state_in = position ? state : NONE, .state_out = state};
}

static void run_chunk(const struct layer *l, uint32_t from, struct batch_seq seq, float *ret)
{
    run(l, from, &seq, 1, ret);
}

static void in_chunks(const struct layer *l, uint32_t from, float *ret)
{
    static const uint32_t ends[] = {1, 2, 35, 36, 43, TOKENS};
    for (uint32_t i = 0, at = 0; i < COUNT_OF(ends); at = ends[i++])
        run_chunk(l, from, chunk(at, ends[i] - at, 0), ret);
}

/* Three sequences at three places in one step: chunks of many tokens, then one each. */
static void among_others(const struct layer *l, uint32_t from, float *ret)
{
    const uint32_t begins[] = {0, 33, 90};
    for (uint32_t i = 1; i < SEQS_MAX; i++)
        run_chunk(l, from, chunk(0, begins[i], i), ret);
    struct batch_seq many[] = {chunk(0, 20, 0), chunk(33, 11, 1), chunk(90, 59, 2)};
    struct batch_seq one[] = {chunk(20, 1, 0), chunk(44, 1, 1), chunk(149, 1, 2)};
    run(l, from, many, SEQS_MAX, ret);
    run(l, from, one, SEQS_MAX, ret);
}

/* A known token and four drafts after a state that stays; three hold. Then two of the next ones, a token
 * without drafts, one that leaves nothing pending, and the tokens after those. */
static void with_drafts(const struct layer *l, uint32_t from, float *ret)
{
    run_chunk(l, from, chunk(0, 40, 0), ret);
    struct batch_seq drafts = chunk(40, 1 + DRAFTS, 0), next = chunk(43, 1 + DRAFTS, 0),
                     none = chunk(45, 1, 0);
    struct batch_seq one = chunk(46, 1, 0);
    drafts.keep_pending = next.keep_pending = none.keep_pending = true;
    next.pending = 3;
    none.pending = 2;
    one.pending = 1;
    run_chunk(l, from, drafts, ret);
    run_chunk(l, from, next, ret);
    run_chunk(l, from, none, ret);
    run_chunk(l, from, one, ret);
    run_chunk(l, from, chunk(47, 60, 0), ret);
}

static void check_same(const struct layer *l, const char *what, uint32_t from, const float *want,
                       void (*again)(const struct layer *, uint32_t, float *))
{
    size_t count = (size_t)TOKENS * l->out;
    float *got = malloc(count * sizeof(float));
    assert_non_null(got);
    memcpy(got, want, count * sizeof(float));
    again(l, from, got);
    for (uint32_t t = 0; t < TOKENS; t++)
        if (memcmp(got + (size_t)t * l->out, want + (size_t)t * l->out, l->out * sizeof(float)) != 0)
            fail_msg("%s, from %u: token %u differs from the whole sequence", what, from, t);
    free(got);
}

static void whole(const struct layer *l, uint32_t from, float *ret)
{
    run_chunk(l, from, chunk(0, TOKENS, 0), ret);
}

static void check_layer(const struct layer *l)
{
    float *want = calloc((size_t)TOKENS * l->out, sizeof(float));
    assert_non_null(want);
    whole(l, IN_REGISTERS, want);
    for (uint32_t i = 0; i < TOKENS * l->out; i++)
        assert_true(want[i] - want[i] == 0);
    assert_memory_not_equal(want, want + l->out, l->out * sizeof(float));
    check_same(l, "the plain kernel", PLAIN, want, whole);
    for (uint32_t from = IN_REGISTERS; from <= PLAIN; from++) {
        check_same(l, "chunks", from, want, in_chunks);
        check_same(l, "among others", from, want, among_others);
        check_same(l, "drafts", from, want, with_drafts);
    }
    free(want);
}

TEST(a_sequence_has_the_same_bits_in_every_step)
{
    static const struct compute_shape shapes[] = {
        {.conv_width = 4, .key_heads = 1, .value_heads = 2, .key_dim = 128, .value_dim = 128},
        {.conv_width = 4, .key_heads = 2, .value_heads = 2, .key_dim = 128, .value_dim = 64},
        {.conv_width = 3, .key_heads = 2, .value_heads = 4, .key_dim = 24, .value_dim = 40},
        {.ssm = {.heads = 2, .head_dim = 64, .groups = 1, .state = 128, .conv_width = 4}},
        {.ssm = {.heads = 4, .head_dim = 40, .groups = 2, .state = 16, .conv_width = 4}},
    };
    NEEDS_GPU
    struct rng r = {17, 0};
    for (uint32_t i = 0; i < 2 * COUNT_OF(shapes); i++) {
        struct layer l;
        layer_init(&l, &shapes[i / 2], i % 2 ? COMPUTE_F32 : COMPUTE_BF16, &r);
        check_layer(&l);
        layer_done(&l);
        print_message("shape %u, %s: good\n", i / 2, i % 2 ? "f32" : "bf16");
    }
}

TEST_MAIN()
