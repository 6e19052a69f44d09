/* Checkpoints of families with experts: MLX's spelling of their stacks, forms that are refused by name, and
 * every tensor missing, of another shape or cut. */
#include "model_path.h"
#include "small_model.h"
#include "test_ledger.h"

#include <errno.h>

/* ---- stacks as MLX writes them ---- */

enum { EXPERTS_MAX = 8 };

/* From a stack [experts, in, columns] every `step`-th column from `first` on, as rows: [experts, out, in]. */
static void add_turned(struct test_tensors *l, const char *name, const struct tensor *from, uint64_t first,
                       uint64_t step)
{
    uint64_t in = from->shape[1], columns = from->shape[2], out = columns / step;
    const uint64_t shape[3] = {from->shape[0], out, in};
    uint16_t *to = test_tensor_add(l, name, DTYPE_BF16, 3, shape);
    const uint16_t *values = from->data;
    for (uint64_t e = 0; e < shape[0]; e++)
        for (uint64_t row = 0; row < out; row++)
            for (uint64_t k = 0; k < in; k++)
                *to++ = values[(e * in + k) * columns + row * step + first];
}

/* Adds the turned part of a bias [experts, columns]. */
static void add_turned_bias(struct test_tensors *l, const char *name, const struct tensor *from,
                            uint64_t first, uint64_t step)
{
    const uint64_t shape[2] = {from->shape[0], from->shape[1] / step};
    uint16_t *to = test_tensor_add(l, name, DTYPE_BF16, 2, shape);
    const uint16_t *values = from->data;
    for (uint64_t i = 0; i < shape[0] * shape[1]; i++)
        to[i] = values[i * step + first];
}

static void turn_stack(struct test_tensors *l, const char *layer, const char *stack, const char *part,
                       uint64_t first, uint64_t step)
{
    char name[128], to[128];
    snprintf(name, sizeof(name), "%s%s", layer, stack);
    snprintf(to, sizeof(to), "%s%s.weight", layer, part);
    add_turned(l, to, &test_tensor_find(l, name)->t, first, step);
    snprintf(name, sizeof(name), "%s%s_bias", layer, stack);
    snprintf(to, sizeof(to), "%s%s.bias", layer, part);
    add_turned_bias(l, to, &test_tensor_find(l, name)->t, first, step);
}

static void gpt_oss_to_mlx(struct test_tensors *l)
{
    static const char *const old[] = {"gate_up_proj", "gate_up_proj_bias", "down_proj", "down_proj_bias"};
    for (int i = 0; i < 2; i++) {
        char layer[64], name[128];
        snprintf(layer, sizeof(layer), "model.layers.%d.mlp.experts.", i);
        turn_stack(l, layer, "gate_up_proj", "gate_proj", 0, 2);
        turn_stack(l, layer, "gate_up_proj", "up_proj", 1, 2);
        turn_stack(l, layer, "down_proj", "down_proj", 0, 1);
        for (size_t k = 0; k < COUNT_OF(old); k++) {
            snprintf(name, sizeof(name), "%s%s", layer, old[k]);
            test_tensor_remove(l, name);
        }
    }
}

/* Experts one by one as a stack of them. */
static void stack_singles(struct test_tensors *l, const char *layer, const char *from, const char *to)
{
    char name[128];
    uint32_t experts = 0;
    struct test_tensor *one = NULL, *all[EXPERTS_MAX];
    for (;; experts++) {
        snprintf(name, sizeof(name), "%sexperts.%u.%s.weight", layer, experts, from);
        one = test_tensor_find(l, name);
        if (!one)
            break;
        assert_true(experts < EXPERTS_MAX);
        all[experts] = one;
    }
    const uint64_t shape[3] = {experts, all[0]->t.shape[0], all[0]->t.shape[1]};
    snprintf(name, sizeof(name), "%sswitch_mlp.%s.weight", layer, to);
    char *at = test_tensor_add(l, name, DTYPE_BF16, 3, shape);
    for (uint32_t e = 0; e < experts; e++)
        memcpy(at + e * all[e]->t.bytes, all[e]->t.data, all[e]->t.bytes);
    for (uint32_t e = 0; e < experts; e++) {
        snprintf(name, sizeof(name), "%sexperts.%u.%s.weight", layer, e, from);
        test_tensor_remove(l, name);
    }
}

static void mixtral_to_mlx(struct test_tensors *l)
{
    for (int i = 0; i < 2; i++) {
        char layer[64];
        snprintf(layer, sizeof(layer), "model.layers.%d.block_sparse_moe.", i);
        stack_singles(l, layer, "w1", "gate_proj");
        stack_singles(l, layer, "w3", "up_proj");
        stack_singles(l, layer, "w2", "down_proj");
    }
}

static void same_answer(const char *golden, void (*change)(struct test_tensors *l))
{
    struct small_answer *want = calloc(1, sizeof(*want)), *got = calloc(1, sizeof(*got));
    small_ask(golden, want);
    small_ask(small_changed(golden, change), got);
    assert_true(got->hash == want->hash);
    assert_memory_equal(got->logits, want->logits, want->vocab * sizeof(float));
    free(want);
    free(got);
}

TEST(stacks_of_mlx_give_the_same_bits)
{
    same_answer(SMALL_GOLDEN("gpt_oss"), gpt_oss_to_mlx);
    same_answer(SMALL_GOLDEN("mixtral"), mixtral_to_mlx);
    same_answer(SMALL_GOLDEN("minimax_m2"), mixtral_to_mlx);
}

/* The values of every tensor whose name holds `part`, as F32. */
static void widen(struct test_tensors *l, const char *part)
{
    for (size_t i = 0; i < l->count; i++) {
        struct tensor *t = &l->list[i].t;
        if (!strstr(l->list[i].name, part) || !strstr(l->list[i].name, "weight") || t->dtype != DTYPE_BF16)
            continue;
        const uint64_t n = tensor_count(t);
        float *to = malloc(n * sizeof(*to));
        assert_non_null(to);
        for (uint64_t k = 0; k < n; k++)
            to[k] = tensor_f32_at(t, k);
        free((void *)t->data);
        t->data = to;
        t->dtype = DTYPE_F32;
        t->bytes = n * sizeof(*to);
    }
}

static void mixtral_wide_gates(struct test_tensors *l)
{
    widen(l, ".w1.");
}

static void mixtral_wide_ups(struct test_tensors *l)
{
    mixtral_to_mlx(l);
    widen(l, "switch_mlp.up_proj");
}

/* These have biases. */
static void gpt_oss_wide_gates(struct test_tensors *l)
{
    gpt_oss_to_mlx(l);
    widen(l, "experts.gate_proj");
}

/* Files of llama.cpp's quantisation have such mixtures. */
TEST(gate_and_up_of_experts_may_have_other_forms)
{
    same_answer(SMALL_GOLDEN("mixtral"), mixtral_wide_gates);
    same_answer(SMALL_GOLDEN("mixtral"), mixtral_wide_ups);
    same_answer(SMALL_GOLDEN("gpt_oss"), gpt_oss_wide_gates);
}

static void one_wide_expert(struct test_tensors *l)
{
    widen(l, "experts.1.w1.");
}

TEST(one_expert_of_another_form_is_refused)
{
    struct account *account = test_account(ACCOUNT_NO_LIMIT);
    struct model_opts o = small_opts(account);
    struct model *m = NULL;
    struct err e = {{0}};
    assert_int_equal(model_load_at(small_changed(SMALL_GOLDEN("mixtral"), one_wide_expert), &o, &m, &e),
                     -ENOTSUP);
    assert_non_null(strstr(e.text, "experts of one layer differ"));
    assert_int_equal(account_numbers(account).reserved, 0);
}

static void swap_axes(struct test_tensors *l, const char *name)
{
    struct test_tensor *t = test_tensor_find(l, name);
    struct tensor from = t->t;
    uint64_t rows = from.shape[1], columns = from.shape[2];
    uint16_t *to = malloc(from.bytes);
    const uint16_t *values = from.data;
    assert_non_null(to);
    for (uint64_t e = 0; e < from.shape[0]; e++)
        for (uint64_t i = 0; i < rows * columns; i++)
            to[e * rows * columns + i % columns * rows + i / columns] = values[e * rows * columns + i];
    free((void *)from.data);
    t->t.data = to;
    t->t.shape[1] = columns;
    t->t.shape[2] = rows;
}

static void turn_both(struct test_tensors *l)
{
    swap_axes(l, "model.language_model.layers.1.mlp.experts.gate_up_proj");
    swap_axes(l, "model.language_model.layers.1.mlp.experts.down_proj");
}

static void turn_one(struct test_tensors *l)
{
    swap_axes(l, "model.language_model.layers.1.mlp.experts.down_proj");
}

/* transformers takes either orientation. */
TEST(stacks_of_qwen3_vl_moe_may_lie_either_way)
{
    same_answer(SMALL_GOLDEN("qwen3_vl_moe"), turn_both);
    small_refuses(small_changed(SMALL_GOLDEN("qwen3_vl_moe"), turn_one), -EINVAL,
                  "experts.gate_up_proj has shape");
}

static void rename_part(struct test_tensors *l, const char *from, const char *to)
{
    for (size_t i = 0; i < l->count; i++) {
        char name[sizeof(l->list[i].name)];
        const char *at = strstr(l->list[i].name, from);
        if (!at)
            continue;
        snprintf(name, sizeof(name), "%.*s%s%s", (int)(at - l->list[i].name), l->list[i].name, to,
                 at + strlen(from));
        memcpy(l->list[i].name, name, sizeof(name));
    }
}

/* The names of transformers 5 in memory. */
static void granitemoe_to_memory(struct test_tensors *l)
{
    rename_part(l, "router.layer.", "router.");
    rename_part(l, "input_linear.weight", "experts.gate_up_proj");
    rename_part(l, "output_linear.weight", "experts.down_proj");
}

static void minimax_to_memory(struct test_tensors *l)
{
    rename_part(l, "block_sparse_moe.gate", "mlp.gate");
    rename_part(l, "block_sparse_moe.e_score", "mlp.e_score");
}

TEST(a_role_may_have_several_names)
{
    same_answer(SMALL_GOLDEN("granitemoe"), granitemoe_to_memory);
    same_answer(SMALL_GOLDEN("minimax_m2"), minimax_to_memory);
}

/* ---- refusals ---- */

static void to_biasless_q(struct test_tensors *l)
{
    rename_part(l, "layers.1.self_attn.q_proj.bias", "lost");
}

static void to_biasless_experts(struct test_tensors *l)
{
    rename_part(l, "layers.1.mlp.experts.down_proj_bias", "lost");
}

static void to_biasless_first(struct test_tensors *l)
{
    rename_part(l, "layers.0.mlp.router.bias", "lost");
}

TEST(a_bias_is_in_all_layers_or_in_none)
{
    small_refuses(small_changed(SMALL_GOLDEN("gpt_oss"), to_biasless_q), -EINVAL,
                  "tensor model.layers.1.self_attn.q_proj lacks a bias, but that of layer 0 has one");
    small_refuses(small_changed(SMALL_GOLDEN("gpt_oss"), to_biasless_experts), -EINVAL,
                  "tensor model.layers.1.mlp.experts.down_proj lacks a bias");
    small_refuses(small_changed(SMALL_GOLDEN("gpt_oss"), to_biasless_first), -EINVAL,
                  "tensor model.layers.1.mlp.router has a bias, but that of layer 0 has none");
}

static void to_blocks(struct test_tensors *l)
{
    struct test_tensor *t = test_tensor_find(l, "model.layers.0.mlp.experts.gate_up_proj");
    snprintf(t->name, sizeof(t->name), "model.layers.0.mlp.experts.gate_up_proj_blocks");
}

TEST(mxfp4_blocks_without_scales_are_refused_by_name)
{
    small_refuses(small_changed(SMALL_GOLDEN("gpt_oss"), to_blocks), -EINVAL,
                  "the checkpoint has no tensor model.layers.0.mlp.experts.gate_up_proj_scales");
}

static const char *const hostile[] = {SMALL_GOLDEN("gpt_oss"), SMALL_GOLDEN("minimax_m2"),
                                      SMALL_GOLDEN("granitemoe")};

/* Loading fails with one sentence that has `name` in it, if that is not NULL. */
static void one_sentence(struct account *parent, const char *dir, const char *name)
{
    struct model *m = NULL;
    struct err e = {{0}};
    struct model_opts o = small_opts(parent);
    int r = model_load_at(dir, &o, &m, &e);
    if (r != -EINVAL || (name && !strstr(e.text, name)) || strchr(e.text, '\n'))
        print_message("%s: gave %d: %s\n", name ? name : dir, r, e.text);
    assert_int_equal(r, -EINVAL);
    assert_null(m);
    assert_true(!name || strstr(e.text, name));
    assert_null(strchr(e.text, '\n'));
    assert_int_equal(account_numbers(parent).reserved, 0);
}

/* A tied head and biases may be missing: those checkpoints are others. */
static bool is_optional(const char *name)
{
    struct slice s = slice_of(name);
    return slice_ends(s, SLICE(".bias")) || slice_ends(s, SLICE("_proj_bias")) ||
           strcmp(name, "lm_head.weight") == 0;
}

TEST(every_tensor_that_is_missing_is_named)
{
    struct account *account = test_account(ACCOUNT_NO_LIMIT);
    for (size_t i = 0; i < COUNT_OF(hostile); i++) {
        struct test_tensors *l = small_read(hostile[i]);
        char *config = test_read_file(hostile[i], "config.json", NULL);
        const char *dir = test_dir();
        test_write_text(dir, "config.json", config);
        for (size_t k = 0; k < l->count; k++) {
            struct test_tensor kept = l->list[k];
            if (is_optional(kept.name))
                continue;
            l->list[k] = l->list[--l->count];
            test_write_tensors(l, dir, "model.safetensors", 0, NULL);
            one_sentence(account, dir, NULL);
            l->list[l->count++] = l->list[k];
            l->list[k] = kept;
        }
        free(config);
        small_free(l);
    }
}

TEST(every_tensor_of_another_shape_is_named)
{
    struct account *account = test_account(ACCOUNT_NO_LIMIT);
    for (size_t i = 0; i < COUNT_OF(hostile); i++) {
        struct test_tensors *l = small_read(hostile[i]);
        char *config = test_read_file(hostile[i], "config.json", NULL);
        const char *dir = test_dir();
        test_write_text(dir, "config.json", config);
        for (size_t k = 0; k < l->count; k++) {
            struct tensor *t = &l->list[k].t, kept = *t;
            /* A matrix gets one axis more; a vector becomes two columns, as one column is accepted. */
            uint64_t columns = t->rank == 1 ? 2 : 1;
            if (t->rank == 1 && (t->shape[0] <= 2 || t->shape[0] % 2 != 0))
                continue;
            t->shape[t->rank - 1] /= columns;
            t->shape[t->rank++] = columns;
            test_write_tensors(l, dir, "model.safetensors", 0, NULL);
            one_sentence(account, dir, l->list[k].name);
            *t = kept;
            if (t->rank < 2 || t->shape[t->rank - 1] == t->shape[t->rank - 2])
                continue;
            t->shape[t->rank - 1] = kept.shape[t->rank - 2]; /* transposed */
            t->shape[t->rank - 2] = kept.shape[t->rank - 1];
            test_write_tensors(l, dir, "model.safetensors", 0, NULL);
            one_sentence(account, dir, l->list[k].name);
            *t = kept;
        }
        free(config);
        small_free(l);
    }
}

TEST(a_file_cut_anywhere_is_refused)
{
    struct account *account = test_account(ACCOUNT_NO_LIMIT);
    for (size_t i = 0; i < COUNT_OF(hostile); i++) {
        size_t len;
        char *bytes = test_read_file(hostile[i], "model.safetensors", &len);
        const char *dir = test_dir();
        test_copy_file(hostile[i], dir, "config.json");
        for (size_t cut = 0; cut < len; cut += 1 + len / 61) {
            test_write_file(dir, "model.safetensors", bytes, cut);
            one_sentence(account, dir, NULL);
        }
        free(bytes);
    }
}

TEST_MAIN()
