/* Compute modes of whole numbers and of BF16: logits near f32's in every width, group and kind of layer, and
 * the same bits in every tier of their products.
 *
 * A bound holds as long as no router chooses another expert, and the seeds see to it: nearly equal experts of
 * a made-up model differ as much as any others. */
#include "model_path.h"
#include "test_ledger.h"
#include "test_rng.h"
#include "small_quantised.h"
#include "small_vision.h"

#include "compute/cpu/cpu_device.h"

static const enum compute_mode fast[] = {COMPUTE_INT16, COMPUTE_INT8};
/* Largest difference of a logit from f32's, by mode. */
static const double near[] = {[COMPUTE_INT16] = 0.005, [COMPUTE_INT8] = 2};

static void ask_in(const char *dir, enum compute_mode mode, struct device *device, struct small_answer *ret)
{
    struct model_opts o = small_opts(NULL);
    o.parts.compute = mode;
    if (device)
        o.device = device;
    small_ask_with(dir, &o, ret);
}

/* A device with products of the modes for `flags`, and the machine's kernels for all else. */
static struct device *device_of_tier(unsigned flags)
{
    struct device *d;
    struct kern_ops tier;
    assert_int_equal(cpu_device_open(2, kern_cpu_flags(), NULL, &d), 0);
    kern_ops_init(&tier, flags & kern_cpu_flags());
    struct kern_ops *ops = &cpu_device_of(d)->ops;
    ops->int_tier = tier.int_tier;
    ops->quantise = tier.quantise;
    ops->int_matmul = tier.int_matmul;
    ops->bf16_tier = tier.bf16_tier;
    ops->round_bf16 = tier.round_bf16;
    ops->bf16_matmul = tier.bf16_matmul;
    return d;
}

static const char *write_quantised(uint32_t bits, uint32_t group, enum dtype dtype, bool tied)
{
    struct test_tensors *dense = random_model(bits * 100 + group, tied);
    struct test_tensors *quantised = random_model(bits * 100 + group, tied);
    char config[8192];
    quantise_model(quantised, dense, bits, group, dtype);
    quantised_config(config, sizeof(config), bits, group);
    const char *dir = small_write(config, quantised);
    small_free(dense);
    small_free(quantised);
    return dir;
}

static void modes_are_near(uint32_t bits, uint32_t group, enum dtype dtype, bool tied)
{
    struct small_answer expected, got, other;
    const char *dir = write_quantised(bits, group, dtype, tied);
    ask_in(dir, COMPUTE_F32, NULL, &expected);
    for (size_t i = 0; i < COUNT_OF(fast); i++) {
        ask_in(dir, fast[i], NULL, &got);
        double difference = largest_difference(&expected, &got);
        if (!(difference < near[fast[i]]))
            print_message("%s, bits %u group %u: %g\n", compute_mode_name(fast[i]), bits, group, difference);
        assert_true(difference < near[fast[i]] && difference > 0);
        for (unsigned t = 0; t < 2; t++) {
            struct device *d = device_of_tier(t == 0 ? 0 : KERN_CPU_AVX2);
            ask_in(dir, fast[i], d, &other);
            device_close(d);
            assert_true(other.hash == got.hash);
        }
    }
}

TEST(whole_numbers_are_near_f32_and_equal_in_every_tier)
{
    static const uint32_t widths[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    for (size_t b = 0; b < COUNT_OF(widths); b++)
        modes_are_near(widths[b], groups[b % 3], dtypes[b % 2], b % 3 == 1);
    modes_are_near(8, 64, DTYPE_F32, false);
}

/* Attention, the delta rule, experts, latent attention, without quantised weights. */
TEST(bf16_is_near_f32_and_equal_in_every_tier)
{
    static const char *const dirs[] = {SMALL_GOLDEN("llama"), SMALL_GOLDEN("qwen3_5"),
                                       SMALL_GOLDEN("qwen3_5_moe"), SMALL_GOLDEN("deepseek_v2"),
                                       SMALL_GOLDEN("gpt_oss")};
    for (size_t i = 0; i < COUNT_OF(dirs); i++) {
        struct small_answer expected, got, other;
        ask_in(dirs[i], COMPUTE_F32, NULL, &expected);
        ask_in(dirs[i], COMPUTE_BF16, NULL, &got);
        double difference = largest_difference(&expected, &got);
        if (!(difference > 0 && difference < 2))
            fail_msg("%s: %g", dirs[i], difference);
        for (unsigned t = 0; t < 2; t++) {
            struct device *d = device_of_tier(t == 0 ? 0 : KERN_CPU_AVX2);
            ask_in(dirs[i], COMPUTE_BF16, d, &other);
            device_close(d);
            assert_true(other.hash == got.hash);
        }
    }
}

TEST(what_is_quantised_computes_in_f32_beside_bf16)
{
    struct small_answer expected, got;
    const char *dir = write_quantised(8, 64, DTYPE_BF16, false);
    struct model_opts o = small_opts(NULL);
    o.parts.compute = COMPUTE_BF16;
    struct model_shape s;
    assert_int_equal(model_probe_at(dir, &o.parts, &s, NULL), 0);
    assert_int_equal(s.compute, COMPUTE_F32);
    ask_in(dir, COMPUTE_F32, NULL, &expected);
    ask_in(dir, COMPUTE_BF16, NULL, &got);
    assert_true(got.hash == expected.hash);
}

TEST(what_is_not_quantised_computes_in_f32)
{
    struct small_answer expected, got;
    struct model *m = NULL;
    struct model_opts o = small_opts(NULL);
    o.parts.compute = COMPUTE_INT8;
    assert_int_equal(model_load_at(SMALL_GOLDEN("llama"), &o, &m, NULL), 0);
    assert_int_equal(model_shape(m)->compute, COMPUTE_F32);
    small_run(m, &o, &got);
    model_free(m);
    small_ask(SMALL_GOLDEN("llama"), &expected);
    assert_true(got.hash == expected.hash);
}

/* A backend without whole numbers stands for a GPU's. */
TEST(auto_is_int16_where_backend_and_weights_have_it)
{
    struct model_opts o = small_opts(NULL);
    struct backend plain = *o.parts.backend, slow = plain;
    struct model_shape s;
    const char *dir = write_quantised(4, 64, DTYPE_BF16, false);
    plain.integers = plain.bf16 = false;
    slow.prefers_bf16 = NULL;
    o.parts.backend = &slow;
    o.parts.compute = COMPUTE_AUTO;
    assert_int_equal(model_probe_at(dir, &o.parts, &s, NULL), 0);
    assert_int_equal(s.compute, COMPUTE_INT16);
    assert_int_equal(model_probe_at(SMALL_GOLDEN("llama"), &o.parts, &s, NULL), 0);
    assert_int_equal(s.compute, COMPUTE_F32);
    o.parts.backend = &plain;
    assert_int_equal(model_probe_at(dir, &o.parts, &s, NULL), 0);
    assert_int_equal(s.compute, COMPUTE_F32);
    o.parts.compute = COMPUTE_INT16;
    assert_int_equal(model_probe_at(dir, &o.parts, &s, NULL), -ENOTSUP);
}

static bool prefers(void)
{
    return true;
}

static void halve_to(struct test_tensors *l, enum dtype dtype)
{
    for (size_t i = 0; i < l->count; i++) {
        if (l->list[i].t.rank >= 2)
            small_to_half(&l->list[i], dtype);
    }
}

/* A model of random matrices of that type. */
static const char *write_halves(enum dtype dtype)
{
    struct test_tensors *l = random_model(31, false);
    char config[8192];
    halve_to(l, dtype);
    snprintf(config, sizeof(config), "{%s}", QUANT_CONFIG);
    const char *dir = small_write(config, l);
    small_free(l);
    return dir;
}

static enum compute_mode auto_of(const char *dir, const struct backend *backend)
{
    struct model_opts o = small_opts(NULL);
    struct model_shape s;
    o.parts.backend = backend;
    o.parts.compute = COMPUTE_AUTO;
    assert_int_equal(model_probe_at(dir, &o.parts, &s, NULL), 0);
    return s.compute;
}

TEST(auto_is_bf16_for_weights_of_bf16_where_the_machine_prefers_it)
{
    struct backend amx = *small_opts(NULL).parts.backend, slow = amx;
    amx.prefers_bf16 = prefers;
    slow.prefers_bf16 = NULL;
    const char *quantised = write_quantised(4, 64, DTYPE_BF16, false);
    assert_int_equal(auto_of(quantised, &amx), COMPUTE_INT16);
    const char *floats = write_halves(DTYPE_BF16);
    assert_int_equal(auto_of(floats, &amx), COMPUTE_BF16);
    assert_int_equal(auto_of(floats, &slow), COMPUTE_F32);
    floats = write_halves(DTYPE_F16);
    assert_int_equal(auto_of(floats, &amx), COMPUTE_F32);
}

TEST(a_page_takes_what_the_form_of_its_values_says)
{
    static const size_t bits[] = {[KV_F32] = 32, [KV_BF16] = 16, [KV_INT8] = 8, [KV_FP8] = 8};
    struct model_shape plain, grouped;
    struct model_opts o = small_opts(NULL);
    assert_int_equal(model_probe_at(SMALL_GOLDEN("llama"), &o.parts, &plain, NULL), 0);
    for (enum kv_form form = KV_F32; form < KV_INT4; form++) {
        struct model_shape s;
        o.parts.kv_form = form;
        assert_int_equal(model_probe_at(SMALL_GOLDEN("llama"), &o.parts, &s, NULL), 0);
        assert_int_equal(s.kv_form, form);
        size_t scales = kv_form_scaled(form) ? 2 * PAGE_TOKENS * sizeof(float) : 0;
        assert_int_equal(s.page_bytes, plain.page_bytes / 32 * bits[form] +
                                           scales * plain.kv[0].heads * plain.kv[0].layers);
    }
    /* int4: heads of 16 stay in f32; others have 4 bits of a value and 16 of 32 values. */
    o.parts.kv_form = KV_INT4;
    assert_int_equal(model_probe_at(SMALL_GOLDEN("llama"), &o.parts, &grouped, NULL), 0);
    assert_true(grouped.kv_form == KV_F32 && grouped.page_bytes == plain.page_bytes);
    const char *canary = PLATEAU_SOURCE_DIR "/models/canary";
    assert_int_equal(model_probe_at(canary, &o.parts, &grouped, NULL), 0);
    o.parts.kv_form = KV_F32;
    assert_int_equal(model_probe_at(canary, &o.parts, &plain, NULL), 0);
    assert_true(grouped.kv_form == KV_INT4 && grouped.page_bytes * 64 == plain.page_bytes * 9);
}

TEST(a_load_names_the_form_of_its_pages_and_the_next_smaller_one)
{
    struct model_shape s;
    struct model_opts o = small_opts(NULL);
    for (enum kv_form form = KV_F32; form < KV_INT4; form++) {
        o.parts.kv_form = form;
        assert_int_equal(model_probe_at(SMALL_GOLDEN("llama"), &o.parts, &s, NULL), 0);
        assert_int_equal(s.kv_smaller, kv_form_scaled(form) ? KV_AUTO : form + 1);
    }
    /* GPU: keys and values in bf16 beside products in bf16, and for some sizes of heads. */
    const char *canary = PLATEAU_SOURCE_DIR "/models/canary";
    struct backend device = backend_cpu;
    device.integers = false;
    o.parts = (struct model_parts){.backend = &device, .kv_form = KV_AUTO, .compute = COMPUTE_BF16};
    assert_int_equal(model_probe_at(canary, &o.parts, &s, NULL), 0);
    assert_true(s.kv_form == KV_BF16 && s.kv_smaller == KV_INT8);
    o.parts.kv_form = KV_F32;
    assert_int_equal(model_probe_at(canary, &o.parts, &s, NULL), 0);
    assert_true(s.kv_form == KV_F32 && s.kv_smaller == KV_BF16);
    o.parts.kv_form = KV_INT8;
    assert_int_equal(model_probe_at(canary, &o.parts, &s, NULL), 0);
    assert_true(s.kv_form == KV_INT8 && s.kv_smaller == KV_AUTO);
    o.parts.kv_form = KV_FP8;
    assert_int_equal(model_probe_at(canary, &o.parts, &s, NULL), 0);
    assert_true(s.kv_form == KV_FP8 && s.kv_smaller == KV_AUTO);
    o.parts.kv_form = KV_F32;
    o.parts.compute = COMPUTE_F32;
    assert_int_equal(model_probe_at(canary, &o.parts, &s, NULL), 0);
    assert_true(s.kv_form == KV_F32 && s.kv_smaller == KV_AUTO);
    o.parts = (struct model_parts){.backend = &device, .kv_form = KV_AUTO, .compute = COMPUTE_BF16};
    assert_int_equal(model_probe_at(SMALL_GOLDEN("deepseek_v2"), &o.parts, &s, NULL), 0);
    assert_true(s.kv_form == KV_F32 && s.kv_smaller == KV_AUTO);
}

TEST(parts_that_the_cpu_alone_computes_are_refused_on_a_gpu)
{
    struct model_shape s;
    struct err e = {0};
    struct backend device = backend_cpu;
    struct model_parts parts = {.backend = &device, .kv_form = KV_AUTO, .compute = COMPUTE_BF16};
    device.name = "gpu";
    device.integers = false;
    assert_int_equal(model_probe_at(SMALL_GOLDEN("kimi_linear"), &parts, &s, &e), -ENOTSUP);
    assert_non_null(
        strstr(e.text, "the layers of Kimi delta attention of kimi_linear are not computed on gpu"));
    e = (struct err){0};
    assert_int_equal(model_probe_at(SMALL_GOLDEN("apertus"), &parts, &s, &e), -ENOTSUP);
    assert_non_null(strstr(e.text, "the MLPs of apertus are not computed on gpu"));
    e = (struct err){0};
    assert_int_equal(model_probe_at(SMALL_GOLDEN("step3p5"), &parts, &s, &e), -ENOTSUP);
    assert_non_null(strstr(e.text, "activations between bounds of step3p5 are not computed on gpu"));
    parts.kv_form = KV_INT4;
    e = (struct err){0};
    assert_int_equal(model_probe_at(SMALL_GOLDEN("llama"), &parts, &s, &e), -ENOTSUP);
    assert_non_null(strstr(e.text, "keys and values in int4 belong to the CPU"));
}

TEST(fp8_is_for_fp8_weights_on_a_gpu)
{
    struct model_shape s;
    struct err e = {0};
    struct backend device = backend_cpu;
    struct model_parts parts = {.backend = &device, .kv_form = KV_AUTO, .compute = COMPUTE_FP8};
    assert_int_equal(model_probe_at(SMALL_GOLDEN("llama"), &parts, &s, &e), -ENOTSUP);
    assert_non_null(strstr(e.text, "compute mode fp8 belongs to GPUs; it is not supported on cpu"));
    device.integers = false;
    device.fp8 = true;
    e = (struct err){0};
    assert_int_equal(model_probe_at(SMALL_GOLDEN("llama"), &parts, &s, &e), -ENOTSUP);
    assert_non_null(strstr(e.text, "compute mode fp8 is for FP8 weights"));
}

TEST(the_plan_is_what_a_load_takes)
{
    const char *dir = write_quantised(4, 64, DTYPE_BF16, false);
    for (size_t i = 0; i < COUNT_OF(fast); i++) {
        struct model_shape probed, exact;
        struct model *m = NULL;
        struct account *parent = test_account(ACCOUNT_NO_LIMIT);
        struct model_opts o = small_opts(parent);
        assert_int_equal(model_probe_at(dir, &o.parts, &exact, NULL), 0);
        o.parts.compute = fast[i];
        assert_int_equal(model_probe_at(dir, &o.parts, &probed, NULL), 0);
        assert_int_equal(model_load_at(dir, &o, &m, NULL), 0);
        assert_memory_equal(&probed.workspace, &model_shape(m)->workspace, sizeof(probed.workspace));
        assert_int_equal(probed.weight_bytes, exact.weight_bytes);
        assert_true(probed.workspace.device.token > exact.workspace.device.token);
        assert_int_equal(model_shape(m)->compute, fast[i]);
        const struct model_workspace w =
            model_workspace_bytes(&probed, o.tokens_max, o.seqs_max, o.device->workers);
        uint64_t workspace = w.device_bytes + w.host_bytes, used = account_numbers(parent).used;
        assert_true(used >= probed.weight_bytes + workspace / 2);
        assert_true(used <= probed.weight_bytes + workspace + (1 << 20));
        model_free(m);
        assert_int_equal(account_numbers(parent).reserved, 0);
    }
}

TEST(a_quantised_head_drafts_in_whole_numbers)
{
    struct test_tensors *dense = random_model(77, false), *quantised = random_model(77, false);
    char config[8192];
    uint32_t expected, got;
    add_head(dense);
    add_head(quantised);
    quantise_model(quantised, dense, 8, 64, DTYPE_F32);
    quantised_config(config, sizeof(config), 8, 64);
    const char *dir = small_write(config, quantised);
    float logit = draft_of(dir, COMPUTE_F32, &expected);
    float near_logit = draft_of(dir, COMPUTE_INT16, &got);
    assert_true(fabsf(near_logit - logit) < 0.01f && near_logit != logit);
    assert_int_equal(got, expected);
    small_free(dense);
    small_free(quantised);
}

TEST(a_head_drafts_in_bf16)
{
    struct test_tensors *dense = random_model(78, false);
    char config[8192];
    uint32_t expected, got;
    add_head(dense);
    halve_to(dense, DTYPE_BF16);
    snprintf(config, sizeof(config), "{%s}", QUANT_CONFIG);
    const char *dir = small_write(config, dense);
    float logit = draft_of(dir, COMPUTE_F32, &expected), near_logit = draft_of(dir, COMPUTE_BF16, &got);
    assert_true(fabsf(near_logit - logit) < 0.2f && near_logit != logit);
    assert_int_equal(got, expected);
    small_free(dense);
}

/* ---- vision encoders ---- */

static void features_in(const char *dir, enum compute_mode mode, struct small_image *ret)
{
    struct model_opts o = small_opts(NULL);
    o.parts.compute = mode;
    struct model *m = small_vision_load(dir, &o);
    *ret = small_image_make(m, 160, 96);
    small_encode(m, &o, ret);
    room_free(&ret->room);
    model_free(m);
}

static double features_difference(const struct small_image *a, const struct small_image *b)
{
    double largest = 0, size = 0;
    assert_int_equal(a->floats, b->floats);
    for (size_t i = 0; i < a->floats; i++) {
        largest = fmax(largest, fabs((double)a->features[i] - b->features[i]));
        size = fmax(size, fabs((double)a->features[i]));
    }
    return largest / size;
}

static void free_features(struct small_image *p)
{
    free(p->features);
    free(p->pixels);
}

static bool of_tower(const struct test_tensor *n)
{
    return strncmp(n->name, "model.visual.", 13) == 0 && n->t.rank == 2;
}

TEST(a_quantised_tower_encodes_in_whole_numbers)
{
    static const struct small_vision tower = {64, 2, 2, 128, 6, 1, 2};
    struct test_tensors *dense = small_vision_tensors(&tower, 4),
                        *quantised = small_vision_tensors(&tower, 4);
    char *config = small_vision_config(&tower), text[8192];
    for (size_t i = 0; i < dense->count; i++)
        if (of_tower(&dense->list[i]))
            quantise(quantised, dense, dense->list[i].name, 8, 64, DTYPE_BF16);
    snprintf(text, sizeof(text), "%.*s,\"quantization\":{\"bits\":8,\"group_size\":64}}",
             (int)strlen(config) - 1, config);
    const char *dir = small_write(text, quantised);
    struct small_image expected, got;
    features_in(dir, COMPUTE_F32, &expected);
    for (size_t i = 0; i < COUNT_OF(fast); i++) {
        features_in(dir, fast[i], &got);
        double difference = features_difference(&expected, &got);
        assert_true(difference > 0 && difference < (fast[i] == COMPUTE_INT16 ? 1e-3 : 0.2));
        free_features(&got);
    }
    free_features(&expected);
    free(config);
    small_free(dense);
    small_free(quantised);
}

TEST(a_tower_encodes_in_bf16)
{
    static const struct small_vision tower = {64, 2, 2, 128, 6, 1, 2};
    struct test_tensors *dense = small_vision_tensors(&tower, 4);
    char *config = small_vision_config(&tower);
    halve_to(dense, DTYPE_BF16);
    const char *dir = small_write(config, dense);
    struct small_image expected, got;
    features_in(dir, COMPUTE_F32, &expected);
    features_in(dir, COMPUTE_BF16, &got);
    double difference = features_difference(&expected, &got);
    assert_true(difference > 0 && difference < 0.1);
    free_features(&expected);
    free_features(&got);
    free(config);
    small_free(dense);
}

TEST_MAIN()
