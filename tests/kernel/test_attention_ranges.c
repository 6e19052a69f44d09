/* Attention of the CPU backend: the same bits however workers share out a sequence's keys. One worker has
 * them whole; two and more take ranges of segments, some of which need several runs. */
#include "test_rng.h"
#include "kern_test.h"

#include "base/arena.h"
#include "base/none.h"
#include "compute/backend.h"
#include "compute/batch.h"
#include "compute/cpu/cpu.h"
#include "compute/layout.h"

#define SEQS_MAX   3
#define TOKENS_MAX (SEQS_MAX * 20)
#define LONGEST    3500 /* tokens: 14 segments */
#define PAGES      DIV_UP(LONGEST, PAGE_TOKENS)

enum { ARRAY_QKV, ARRAY_OUT, ARRAY_ANGLES, ARRAYS };

/* A layer, and a step of it. */
struct attend_case {
    uint32_t heads, kv_heads, k_width, v_width, window;
    enum kv_form form;
    bool gated, norms, norm_all, sinks, both_ways, mtp;
    uint32_t seqs;
    uint32_t position[SEQS_MAX], count[SEQS_MAX];
};

static float between(struct rng *r, float low, float high)
{
    return low + (high - low) * (float)rng_uniform(r);
}

struct attended {
    struct kv_layer kv;
    struct compute_shape shape;
    struct device *device;
    struct arena *memory;
    struct compute *compute;
};

static void attended_init(struct attended *a, const struct attend_case *k, uint32_t workers)
{
    uint32_t q_width = k->heads * k->k_width * (k->gated ? 2 : 1);
    uint32_t row = q_width + k->kv_heads * (k->k_width + k->v_width);
    const struct array_spec arrays[ARRAYS] = {[ARRAY_QKV] = {.width = row},
                                              [ARRAY_OUT] = {.width = k->heads * k->v_width},
                                              [ARRAY_ANGLES] = {.width = k->k_width / 2}};
    a->kv = (struct kv_layer){
        .heads = k->kv_heads, .k_width = k->k_width, .v_width = k->v_width, .form = k->form};
    a->shape = (struct compute_shape){
        .hidden = 16, .vocab = 16, .eps = 1e-6f, .layers = 1, .kv = &a->kv, .kv_count = 1, .group_count = 1};
    page_lay_out(&a->kv, 1, a->shape.groups, 1);
    assert_int_equal(device_open_cpu(workers, NULL, &a->device), 0);
    a->memory = NULL;
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = (size_t)64 << 20}, &a->memory), 0);
    const struct compute_opts o = {.shape = &a->shape,
                                   .arrays = arrays,
                                   .array_count = ARRAYS,
                                   .tokens_max = TOKENS_MAX,
                                   .seqs_max = SEQS_MAX,
                                   .logits_max = 1,
                                   .device = a->device,
                                   .device_memory = a->memory,
                                   .host_memory = a->memory};
    assert_int_equal(a->device->backend->open(&o, &a->compute), 0);
}

static void attended_done(struct attended *a)
{
    arena_free(a->memory);
    device_close(a->device);
}

/* Keys and values of the tokens before the step. */
static void fill_pages(const struct attended *a, const struct attend_case *k, char *base,
                       const uint32_t *pages, uint32_t seq, struct rng *r)
{
    for (uint32_t t = 0; t < k->position[seq]; t++) {
        for (uint32_t head = 0; head < k->kv_heads; head++) {
            const size_t k_offset = page_k_offset(&a->kv, head);
            const struct kern_kv kv = {.base = base,
                                       .page_bytes = a->shape.groups[0].page_bytes,
                                       .pages = pages,
                                       .form = k->form,
                                       .k_offset = k_offset,
                                       .v_offset = k_offset + page_k_bytes(&a->kv),
                                       .k_width = k->k_width,
                                       .v_width = k->v_width};
            float key[KERN_HEAD_MAX], value[KERN_HEAD_MAX];
            for (uint32_t d = 0; d < k->k_width; d++)
                key[d] = between(r, -1, 1);
            for (uint32_t d = 0; d < k->v_width; d++)
                value[d] = between(r, -1, 1);
            cpu_of(a->compute)->ops->kv_put(&kv, t, key, value);
        }
    }
}

/* The results of the step into ret[tokens][heads * v_width]; `base` gets the pages. */
static void run(const struct attend_case *k, uint32_t workers, float *ret, char *base, size_t *bytes)
{
    struct rng r = {k->heads * 100 + k->k_width, 0};
    struct attended a;
    attended_init(&a, k, workers);
    const struct cpu *c = cpu_of(a.compute);
    uint32_t pages[SEQS_MAX][PAGES], tokens = 0;
    struct batch_seq seqs[SEQS_MAX] = {{0}};
    *bytes = a.shape.groups[0].page_bytes * SEQS_MAX * PAGES;
    memset(base, 0, *bytes);
    for (uint32_t s = 0; s < k->seqs; s++) {
        for (uint32_t i = 0; i < PAGES; i++)
            pages[s][i] = s * PAGES + PAGES - 1 - i;
        seqs[s] = (struct batch_seq){.first = tokens,
                                     .count = k->count[s],
                                     .position = k->position[s],
                                     .state_in = NONE,
                                     .state_out = NONE,
                                     .pages = {pages[s]}};
        tokens += k->count[s];
        fill_pages(&a, k, base, pages[s], s, &r);
    }
    const struct batch batch = {
        .token_count = tokens, .seq_count = k->seqs, .seqs = seqs, .pages = {{(uintptr_t)base ^ c->flip}}};
    const struct act qkv = {ARRAY_QKV, 0,
                            k->heads * k->k_width * (k->gated ? 2 : 1) +
                                k->kv_heads * (k->k_width + k->v_width)},
                     out = {ARRAY_OUT, 0, k->heads * k->v_width}, angles = {ARRAY_ANGLES, 0, k->k_width / 2};
    device_turn_begin(a.device);
    compute_step_begin(a.compute, &batch);
    for (uint32_t t = 0; t < tokens; t++) {
        for (uint32_t i = 0; i < qkv.width; i++)
            cpu_row(c, qkv, t)[i] = between(&r, -2, 2);
        for (uint32_t i = 0; i < angles.width; i++)
            cpu_row(c, angles, t)[i] = between(&r, -1, 1);
    }
    float *norm = random_values(&r, k->heads * k->k_width, 0.5f, 2),
          *sinks = random_values(&r, k->heads, -1, 1);
    const dev_ptr null = {0};
    const struct op_attention op = {.heads = k->heads,
                                    .scale = 0.2f,
                                    .window = k->window,
                                    .both_ways = k->both_ways,
                                    .norm_all = k->norm_all,
                                    .growth = 0.1f,
                                    .growth_every = 100,
                                    .gated = k->gated,
                                    .mtp = k->mtp,
                                    .q_norm = k->norms ? (dev_ptr){(uintptr_t)norm ^ c->flip} : null,
                                    .k_norm = k->norms ? (dev_ptr){(uintptr_t)norm ^ c->flip} : null,
                                    .sinks = k->sinks ? (dev_ptr){(uintptr_t)sinks ^ c->flip} : null,
                                    .qkv = qkv,
                                    .out = out,
                                    .angles = angles};
    a.compute->ops->append(a.compute, &op);
    a.compute->ops->attend(a.compute, &op);
    for (uint32_t t = 0; t < tokens; t++)
        memcpy(ret + (size_t)t * out.width, cpu_row(c, out, t), out.width * sizeof(float));
    assert_int_equal(compute_step_end(a.compute), 0);
    device_turn_end(a.device);
    for (uint32_t i = 0; i < workers * CPU_ATTEND_TILES; i++)
        assert_int_equal(c->ranges_ended[i], 0);
    free(norm);
    free(sinks);
    attended_done(&a);
}

static void check(const struct attend_case *k)
{
    static const uint32_t workers[] = {2, 3, 8, 16};
    const size_t room = (size_t)64 << 20, floats = (size_t)TOKENS_MAX * k->heads * k->v_width;
    size_t bytes;
    float *whole = calloc(floats, sizeof(float)), *shared = calloc(floats, sizeof(float));
    char *pages = aligned_alloc(64, room), *other = aligned_alloc(64, room);
    run(k, 1, whole, pages, &bytes);
    assert_true(bytes <= room);
    for (uint32_t i = 0; i < COUNT_OF(workers); i++) {
        run(k, workers[i], shared, other, &bytes);
        assert_same_bits(shared, whole, floats, "attention");
        assert_memory_equal(other, pages, bytes);
    }
    free(whole);
    free(shared);
    free(pages);
    free(other);
}

TEST(one_token_of_a_long_sequence)
{
    check(&(struct attend_case){.heads = 4,
                                .kv_heads = 2,
                                .k_width = 64,
                                .v_width = 64,
                                .norms = true,
                                .seqs = 1,
                                .position = {2050},
                                .count = {1}});
    check(&(struct attend_case){.heads = 8,
                                .kv_heads = 1,
                                .k_width = 24,
                                .v_width = 40,
                                .norms = true,
                                .sinks = true,
                                .seqs = 1,
                                .position = {2047},
                                .count = {1}});
}

TEST(more_ranges_of_a_longer_sequence)
{
    check(&(struct attend_case){.heads = 6,
                                .kv_heads = 6,
                                .k_width = 24,
                                .v_width = 24,
                                .norms = true,
                                .form = KV_BF16,
                                .seqs = 1,
                                .position = {3400},
                                .count = {1}});
}

TEST(segments_for_which_the_room_needs_several_runs)
{
    check(&(struct attend_case){.heads = 40,
                                .kv_heads = 1,
                                .k_width = 24,
                                .v_width = 24,
                                .norms = true,
                                .seqs = 1,
                                .position = {2050},
                                .count = {1}});
    check(&(struct attend_case){.heads = 16,
                                .kv_heads = 4,
                                .k_width = 24,
                                .v_width = 24,
                                .gated = true,
                                .seqs = 2,
                                .position = {2050, 3},
                                .count = {2, 1}});
}

TEST(a_few_sequences_of_any_length)
{
    check(&(struct attend_case){.heads = 2,
                                .kv_heads = 2,
                                .k_width = 64,
                                .v_width = 64,
                                .norms = true,
                                .seqs = 3,
                                .position = {0, 255, 1300},
                                .count = {1, 1, 1}});
    check(&(struct attend_case){.heads = 6,
                                .kv_heads = 3,
                                .k_width = 24,
                                .v_width = 24,
                                .norms = true,
                                .form = KV_BF16,
                                .seqs = 3,
                                .position = {256, 511, 900},
                                .count = {1, 1, 1}});
}

TEST(drafts_and_spans_of_one_sequence)
{
    check(&(struct attend_case){.heads = 4,
                                .kv_heads = 2,
                                .k_width = 24,
                                .v_width = 24,
                                .norms = true,
                                .gated = true,
                                .seqs = 2,
                                .position = {1022, 300},
                                .count = {4, 3}});
    check(&(struct attend_case){.heads = 16,
                                .kv_heads = 1,
                                .k_width = 24,
                                .v_width = 24,
                                .norms = true,
                                .seqs = 1,
                                .position = {1025},
                                .count = {3}});
    check(&(struct attend_case){.heads = 4,
                                .kv_heads = 2,
                                .k_width = 24,
                                .v_width = 24,
                                .norms = true,
                                .norm_all = true,
                                .seqs = 1,
                                .position = {600},
                                .count = {1}});
    check(&(struct attend_case){.heads = 4,
                                .kv_heads = 2,
                                .k_width = 24,
                                .v_width = 24,
                                .mtp = true,
                                .seqs = 2,
                                .position = {700, 1},
                                .count = {1, 1}});
}

TEST(windows_begin_and_end_in_any_segment)
{
    for (uint32_t window = 1; window < 1400; window += 233)
        check(&(struct attend_case){.heads = 4,
                                    .kv_heads = 2,
                                    .k_width = 24,
                                    .v_width = 24,
                                    .norms = true,
                                    .sinks = true,
                                    .window = window,
                                    .seqs = 2,
                                    .position = {1290, 254},
                                    .count = {1, 18}});
    check(&(struct attend_case){.heads = 2,
                                .kv_heads = 2,
                                .k_width = 24,
                                .v_width = 24,
                                .both_ways = true,
                                .seqs = 1,
                                .position = {0},
                                .count = {12}});
}

TEST_MAIN()
