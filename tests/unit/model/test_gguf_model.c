/* GGUF files as models: metadata as a configuration, blocks and other orders as plain matrices. */
#include "model_path.h"
#include "test_gguf.h"
#include "test_rng.h"

#include "model/blocks/blocks.h"
#include "model/config/config.h"
#include "gguf/gguf_arch.h"
#include "model/config/pooling.h"
#include "compute/backend.h"
#include "compute/ops.h"
#include "model/family/family.h"
#include "model/load/binder.h"
#include "model/load/weight_staging.h"
#include "tensor/block_form.h"
#include "tensor/tensor_naming.h"
#include "weights/checkpoint.h"

#include <errno.h>
#include <math.h>

static struct test_gguf file;

static struct arena *arena(void)
{
    static struct arena *a;
    if (!a)
        assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 64 << 20}, &a), 0);
    arena_reset(a);
    return a;
}

TEST(an_order_puts_halves_side_by_side)
{
    const struct tensor_reorder pairs = {0, 2, 3, 1}, heads = {4, 2, 3, 2}, none = {0};
    const uint64_t paired[12] = {0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11};
    const uint64_t tiled[16] = {0, 1, 2, 3, 4, 5, 8, 9, 12, 13, 6, 7, 10, 11, 14, 15};
    for (uint64_t i = 0; i < 12; i++)
        assert_int_equal(tensor_reorder_at(&pairs, i), paired[i]);
    for (uint64_t i = 0; i < 16; i++)
        assert_int_equal(tensor_reorder_at(&heads, i), tiled[i]);
    assert_int_equal(tensor_reorder_at(&none, 7), 7);
}

/* ---- pieces ---- */

enum { ROWS = 12, COLUMNS = 512 };

/* A file with one matrix of random bytes; scales are small numbers. */
static const char *write_matrix(uint32_t type, struct rng *rng)
{
    const char *dir = test_dir();
    const struct block_form *f = block_form_find(type);
    size_t bytes = (size_t)block_form_bytes(f, (uint64_t)ROWS * COLUMNS);
    test_gguf_begin(&file, 3, 1, 0);
    test_gguf_info(&file, "w", 2, (const uint64_t[]){COLUMNS, ROWS}, type, 0);
    test_gguf_data(&file, 32, bytes, 0);
    for (size_t i = 0; i < bytes; i++)
        file.bytes[file.len - bytes + i] = (char)(rng_below(rng, 0x2c) & 0x2b);
    test_write_file(dir, "m.gguf", file.bytes, file.len);
    return dir;
}

/* Values of the piece are those of the file, in the order. */
static void check_piece(const struct linear_source *piece, const struct linear_source *s, uint64_t first,
                        const char *data)
{
    static float row[COLUMNS];
    const struct block_form *f = s->weight.form;
    size_t row_bytes = s->weight.bytes / ROWS;
    for (uint64_t i = 0; i < piece->out; i++) {
        const char *from = data + tensor_reorder_at(&s->row_order, first + i) * row_bytes;
        block_form_unpack(f ? f : block_form_find(0), from, COLUMNS, row);
        for (uint64_t k = 0; k < COLUMNS; k++)
            assert_true(linear_source_at(piece, 0, i, k) == row[tensor_reorder_at(&s->column_order, k)]);
    }
}

static void rows_are_right(uint32_t type, struct tensor_reorder rows, struct tensor_reorder columns,
                           size_t room)
{
    struct rng rng = {type, 0};
    struct checkpoint *c;
    struct weight_staging stage;
    struct linear_source s = {.experts = 1,
                              .out = ROWS,
                              .in = COLUMNS,
                              .row_order = rows,
                              .column_order = columns},
                         piece;
    assert_int_equal(checkpoint_open_at(arena(), write_matrix(type, &rng), NULL, &c, NULL), 0);
    assert_true(checkpoint_find(c, "w", &s.weight));
    if (s.weight.form)
        block_form_source(s.weight.form, &s);
    uint64_t whole = weight_staging_matrix_bytes(&s);
    s.out = 1;
    uint64_t one = weight_staging_matrix_bytes(&s);
    s.out = ROWS;
    assert_true(one < whole);
    assert_int_equal(weight_staging_init(&stage, c, NULL, room ? one + 256 + room : whole), 0);
    const char *data = file.bytes + file.len - s.weight.bytes;
    uint32_t pieces = 0;
    for (uint64_t row = 0; row < ROWS; row += piece.out, pieces++) {
        assert_int_equal(weight_staging_rows(&stage, &s, row, s.out - row, &piece, NULL), 0);
        assert_true(piece.out > 0 && row + piece.out <= ROWS && !piece.weight.form);
        check_piece(&piece, &s, row, data);
    }
    assert_true(room == 0 || pieces > 1);
    weight_staging_done(&stage);
    checkpoint_close_at();
}

TEST(pieces_of_every_form_are_right_in_every_order)
{
    const struct tensor_reorder none = {0}, pairs = {0, 2, 3, 1}, heads = {128, 2, 3, 64},
                                all = {0, 2, 4, 64};
    for (uint32_t type = 0; type < 64; type++) {
        const struct block_form *f = block_form_find(type);
        if (!f || f->dtype == DTYPE_F16 || f->dtype == DTYPE_BF16)
            continue;
        rows_are_right(type, none, none, 0);
        rows_are_right(type, pairs, none, 2000);
        rows_are_right(type, none, heads, 2000);
        rows_are_right(type, pairs, all, 0);
    }
}

TEST(words_of_codebooks_need_a_backend_that_multiplies_them)
{
    static const struct tensor_naming naming = {.layers = "blk"};
    const uint32_t types[] = {16, 17, 18, 19, 21, 22, 29};
    struct backend backend = backend_cpu;
    struct config config = {.naming = &naming, .backend = &backend};
    struct err e = {{0}};
    struct binder b = {.config = &config, .e = &e};
    backend.codebooks = false;
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        struct linear_source s = {.experts = 1, .out = 1, .in = 256};
        s.weight = (struct tensor){.dtype = DTYPE_BLOCKS, .form = block_form_find(types[i]), .rank = 2};
        assert_int_equal(binder_naming_source(&b, "t", "m", &s), -ENOTSUP);
        assert_non_null(strstr(e.text, s.weight.form->name));
        assert_non_null(strstr(e.text, "is read on CPUs alone"));
    }
}

/* ---- metadata ---- */

/* A file of metadata alone, and an embedding of 16 words; `count` keys follow. */
static void begin_model(const char *arch, uint64_t count)
{
    char key[64];
    static const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {{"block_count", 4},          {"context_length", 1000},    {"embedding_length", 64},
                   {"feed_forward_length", 96}, {"attention.head_count", 4}, {"attention.key_length", 32}};
    test_gguf_begin(&file, 3, 1, COUNT_OF(numbers) + 1 + count);
    test_gguf_key_text(&file, "general.architecture", arch);
    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        snprintf(key, sizeof(key), "%s.%s", arch, numbers[i].key);
        test_gguf_key_u32(&file, key, numbers[i].value);
    }
}

static int load(struct config *ret, struct err *e)
{
    const char *dir = test_dir();
    test_gguf_info(&file, "token_embd.weight", 2, (const uint64_t[]){64, 16}, 0, 0);
    test_gguf_data(&file, 32, (size_t)64 * 16 * 4, 0);
    test_write_file(dir, "m.gguf", file.bytes, file.len);
    return config_load_at(arena(), dir, ret, e);
}

static void loads(struct config *ret)
{
    struct err e = {{0}};
    int r = load(ret, &e);
    if (r < 0)
        print_message("%s\n", e.text);
    assert_int_equal(r, 0);
}

static void refuses(int code, const char *says)
{
    struct config c;
    struct err e = {{0}};
    int r = load(&c, &e);
    if (r != code || !strstr(e.text, says))
        print_message("gave %d: %s\n", r, e.text);
    assert_int_equal(r, code);
    assert_non_null(strstr(e.text, says));
}

TEST(metadata_are_a_configuration)
{
    struct config c;
    begin_model("llama", 4);
    test_gguf_list(&file, "llama.attention.head_count_kv", GGUF_I32, 4);
    for (int i = 0; i < 4; i++)
        test_gguf_u32(&file, 2);
    test_gguf_key_f32(&file, "llama.rope.freq_base", 5e5f);
    test_gguf_key_f32(&file, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    test_gguf_key_u32(&file, "llama.rope.dimension_count", 16);
    loads(&c);
    assert_string_equal(c.family_name, "llama");
    assert_non_null(c.naming);
    assert_int_equal(c.layers, 4);
    assert_int_equal(c.context_max, 1000);
    assert_int_equal(c.hidden, 64);
    assert_int_equal(c.intermediate, 96);
    assert_int_equal(c.vocab, 16);
    assert_int_equal(c.heads, 4);
    assert_int_equal(c.kv_heads, 2);
    assert_int_equal(c.head_dim, 32);
    assert_true(c.eps == 1e-5f);
    assert_true(c.ropes[0].theta == 5e5);
    assert_int_equal(c.ropes[0].rot, 16);
}

TEST(what_the_metadata_leave_out_the_architecture_says)
{
    struct config c;
    begin_model("qwen3moe", 3);
    test_gguf_key_u32(&file, "qwen3moe.expert_count", 8);
    test_gguf_key_u32(&file, "qwen3moe.expert_used_count", 2);
    test_gguf_key_u32(&file, "qwen3moe.expert_feed_forward_length", 32);
    loads(&c);
    assert_string_equal(c.family_name, "qwen3_moe");
    assert_true(c.normalise);
    assert_int_equal(c.experts, 8);
    begin_model("gemma3", 2);
    test_gguf_key_u32(&file, "gemma3.attention.sliding_window", 16);
    test_gguf_key_f32(&file, "gemma3.rope.freq_base_swa", 2e4f);
    loads(&c);
    assert_int_equal(c.layer[0].window, 16);
    assert_true(c.score_scalar == 32);
    assert_true(c.ropes[1].theta == 2e4);
}

TEST(files_may_divide_the_frequencies)
{
    struct config c;
    float factors[16];
    for (int i = 0; i < 16; i++)
        factors[i] = 1 + (float)i;
    const char *dir = test_dir();
    begin_model("llama", 0);
    memcpy(file.bytes + 8, &(uint64_t){2}, 8); /* tensors */
    test_gguf_info(&file, "token_embd.weight", 2, (const uint64_t[]){64, 1}, 0, 0);
    test_gguf_info(&file, "rope_freqs.weight", 1, (const uint64_t[]){16}, 0, 256);
    test_gguf_data(&file, 32, 256, 0);
    test_gguf_put(&file, factors, sizeof(factors));
    test_write_file(dir, "m.gguf", file.bytes, file.len);
    assert_int_equal(config_load_at(arena(), dir, &c, NULL), 0);
    assert_int_equal(c.ropes[0].type, ROPE_FACTORS);
    assert_int_equal(c.ropes[0].factors, 16);
    assert_true(c.ropes[0].factors_short[15] == 16);
    struct rope r;
    config_rope_init(&r, &c.ropes[0]);
    assert_true(r.inv_freq[0] == 1 && r.inv_freq[1] < 0.5f);
}

/* A model whose file has these lists of factors. */
static const char *with_factors(const char *const *names, uint32_t count, uint64_t keys)
{
    static const float factors[2][16] = {{1, 1.5f, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                         {2, 2.5f, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};
    const char *dir = test_dir();
    begin_model("phi3", keys);
    memcpy(file.bytes + 8, &(uint64_t){count + 1}, 8); /* tensors */
    for (uint64_t i = 0; i < keys; i++) {
        if (i == 0)
            test_gguf_key_u32(&file, "phi3.rope.scaling.original_context_length", 100);
        else
            test_gguf_key_f32(&file, "phi3.rope.scaling.attn_factor", 1.25f);
    }
    test_gguf_info(&file, "token_embd.weight", 2, (const uint64_t[]){64, 1}, 0, 0);
    for (uint32_t i = 0; i < count; i++)
        test_gguf_info(&file, names[i], 1, (const uint64_t[]){16}, 0, 256 + i * 64);
    test_gguf_data(&file, 32, 256, 0);
    for (uint32_t i = 0; i < count; i++)
        test_gguf_put(&file, factors[i], sizeof(factors[i]));
    test_write_file(dir, "m.gguf", file.bytes, file.len);
    return dir;
}

TEST(two_lists_of_factors_are_a_longrope)
{
    static const char *const names[] = {"rope_factors_short.weight", "rope_factors_long.weight"};
    struct config c;
    struct err e = {{0}};
    assert_int_equal(config_load_at(arena(), with_factors(names, 2, 2), &c, NULL), 0);
    assert_int_equal(c.ropes[0].type, ROPE_LONG);
    assert_true(c.ropes[0].factors_short[1] == 1.5f && c.ropes[0].factors_long[15] == 16);
    assert_true(c.ropes[0].original_max == 100 && c.ropes[0].attention_factor == 1.25);
    assert_int_equal(config_load_at(arena(), with_factors(names, 1, 1), &c, &e), -EINVAL);
    assert_non_null(strstr(e.text, "tensor rope_factors_long.weight is missing"));
    assert_int_equal(config_load_at(arena(), with_factors(names + 1, 1, 1), &c, &e), -EINVAL);
    assert_non_null(strstr(e.text, "tensor rope_factors_short.weight is missing"));
}

TEST(scaled_frequencies_are_those_of_a_configuration)
{
    struct config c;
    begin_model("qwen3", 6);
    test_gguf_key_text(&file, "qwen3.rope.scaling.type", "yarn");
    test_gguf_key_f32(&file, "qwen3.rope.scaling.factor", 4);
    test_gguf_key_u32(&file, "qwen3.rope.scaling.original_context_length", 250);
    test_gguf_key_f32(&file, "qwen3.rope.scaling.yarn_beta_fast", 16);
    test_gguf_key_f32(&file, "qwen3.rope.scaling.yarn_beta_slow", 2);
    test_gguf_key_f32(&file, "qwen3.rope.scaling.yarn_attn_factor", 0.5f);
    loads(&c);
    assert_int_equal(c.ropes[0].type, ROPE_YARN);
    assert_true(c.ropes[0].factor == 4 && c.ropes[0].original_max == 250);
    assert_true(c.ropes[0].beta_fast == 16 && c.ropes[0].beta_slow == 2);
    /* The whole factor; attn_factor is times YaRN's own. */
    assert_true(c.ropes[0].attention_factor == 0.5);
    begin_model("qwen3", 3);
    test_gguf_key_text(&file, "qwen3.rope.scaling.type", "yarn");
    test_gguf_key_f32(&file, "qwen3.rope.scaling.factor", 4);
    test_gguf_key_f32(&file, "qwen3.rope.scaling.attn_factor", 0.5f);
    loads(&c);
    assert_true(fabs(c.ropes[0].attention_factor - 0.5 * (1 + 0.1 * log(4))) < 1e-12);
    begin_model("qwen3", 3);
    test_gguf_key_text(&file, "qwen3.rope.scaling.type", "yarn");
    test_gguf_key_f32(&file, "qwen3.rope.scaling.factor", 4);
    test_gguf_key_f32(&file, "qwen3.rope.scaling.yarn_ext_factor", 0.5f);
    refuses(-ENOTSUP, "yarn_ext_factor: 0.5 is not supported");
    begin_model("llama", 1);
    test_gguf_key_f32(&file, "llama.rope.scale_linear", 8);
    loads(&c);
    assert_true(c.ropes[0].type == ROPE_LINEAR && c.ropes[0].factor == 8);
    begin_model("llama", 1);
    test_gguf_key_f32(&file, "llama.rope.scaling.factor", 8);
    loads(&c);
    assert_true(c.ropes[0].type == ROPE_LINEAR && c.ropes[0].factor == 8);
}

TEST(windows_are_a_list_or_a_number)
{
    struct config c;
    begin_model("gemma3", 2);
    test_gguf_key_u32(&file, "gemma3.attention.sliding_window", 100);
    test_gguf_key_u32(&file, "gemma3.attention.sliding_window_pattern", 3);
    loads(&c);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(c.layer[i].window, i == 2 ? 0 : 100);
    begin_model("llama", 2);
    test_gguf_key_u32(&file, "llama.attention.sliding_window", 100);
    test_gguf_key_u32(&file, "llama.attention.sliding_window_pattern", 2);
    refuses(-ENOTSUP, "layer_types[0] is 'sliding_attention'");
}

static void put_kv_heads(const char *key, const int32_t *heads, uint32_t count)
{
    test_gguf_list(&file, key, GGUF_I32, count);
    test_gguf_put(&file, heads, count * sizeof(heads[0]));
}

TEST(layers_without_heads_of_keys_are_of_another_kind)
{
    struct config c;
    begin_model("lfm2", 1);
    put_kv_heads("lfm2.attention.head_count_kv", (const int32_t[]){0, 2, 0, 2}, 4);
    loads(&c);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(c.layer[i].mixer == (i % 2 ? &block_attention : &block_short_conv));
    assert_int_equal(c.kv_heads, 2);
    assert_int_equal(c.intermediate, 96);
    begin_model("lfm2", 1);
    put_kv_heads("lfm2.attention.head_count_kv", (const int32_t[]){0, 2, 4, 0}, 4);
    refuses(-ENOTSUP, "lfm2.attention.head_count_kv: values that differ between layers");
    begin_model("qwen3", 1);
    put_kv_heads("qwen3.attention.head_count_kv", (const int32_t[]){0, 2, 2, 2}, 4);
    refuses(-ENOTSUP, "qwen3.attention.head_count_kv: values that differ between layers");
}

/* Without the layers of an MTP head, which the lists have too. */
TEST(a_list_says_which_layers_are_delta_nets)
{
    struct config c;
    begin_model("qwen35", 8);
    test_gguf_list(&file, "qwen35.attention.recurrent_layers", GGUF_BOOL, 4);
    test_gguf_put(&file, "\0\1\0\0", 4);
    test_gguf_key_u32(&file, "qwen35.full_attention_interval", 4);
    test_gguf_key_u32(&file, "qwen35.nextn_predict_layers", 1);
    test_gguf_key_u32(&file, "qwen35.ssm.conv_kernel", 4);
    test_gguf_key_u32(&file, "qwen35.ssm.state_size", 16);
    test_gguf_key_u32(&file, "qwen35.ssm.group_count", 2);
    test_gguf_key_u32(&file, "qwen35.ssm.time_step_rank", 2);
    test_gguf_key_u32(&file, "qwen35.attention.head_count_kv", 2);
    loads(&c);
    assert_int_equal(c.layers, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(c.layer[i].mixer == (i == 1 ? &block_delta_net : &block_attention));
}

/* Only corrections say that a file of before the key has a sigmoid's scores. */
TEST(a_router_of_latent_attention_is_known_by_its_corrections)
{
    struct config c;
    for (uint32_t function = 0; function < 3; function++) {
        begin_model("deepseek2", function ? 9 : 8);
        test_gguf_key_u32(&file, "deepseek2.rope.dimension_count", 8);
        test_gguf_key_u32(&file, "deepseek2.attention.key_length_mla", 24);
        test_gguf_key_u32(&file, "deepseek2.attention.value_length_mla", 16);
        test_gguf_key_u32(&file, "deepseek2.attention.kv_lora_rank", 32);
        test_gguf_key_u32(&file, "deepseek2.expert_count", 8);
        test_gguf_key_u32(&file, "deepseek2.expert_used_count", 2);
        test_gguf_key_u32(&file, "deepseek2.expert_feed_forward_length", 32);
        test_gguf_key_u32(&file, "deepseek2.expert_group_count", 4);
        if (function)
            test_gguf_key_u32(&file, "deepseek2.expert_gating_func", function);
        loads(&c);
        assert_int_equal(c.route_score, function == 2 ? ROUTE_SIGMOID : ROUTE_SOFTMAX);
        assert_int_equal(c.topk_method, function == 2 ? TOPK_CORRECTED : TOPK_GROUP_MAX);
        assert_int_equal(c.nope_dim, 16);
        assert_int_equal(c.q_rank, 0);
        assert_false(c.normalise);
    }
}

TEST(a_key_may_choose_the_family)
{
    struct config c;
    begin_model("mistral3", 0);
    loads(&c);
    assert_string_equal(c.family_name, "mistral");
    assert_int_equal(c.layer[0].window, 0);
    begin_model("mistral3", 4);
    test_gguf_key_f32(&file, "mistral3.attention.temperature_scale", 0.25f);
    test_gguf_key_text(&file, "mistral3.rope.scaling.type", "yarn");
    test_gguf_key_f32(&file, "mistral3.rope.scaling.factor", 4);
    test_gguf_key_u32(&file, "mistral3.rope.scaling.original_context_length", 250);
    loads(&c);
    assert_string_equal(c.family_name, "ministral3");
}

/* Rows of queries and keys in pairs, and rows of values in one matrix have no order of their own. */
TEST(a_fused_matrix_is_not_read_where_heads_lie_in_pairs)
{
    static const char *const paired[] = {"llama", "granite", "smollm3"};
    for (size_t i = 0; i < COUNT_OF(paired); i++)
        assert_string_equal(
            tensor_naming_of(&gguf_arch_find(NULL, slice_of(paired[i]), false)->naming, ROLE_QKV), "-");
    assert_string_equal(tensor_naming_of(&gguf_arch_find(NULL, SLICE("phi3"), false)->naming, ROLE_QKV),
                        "attn_qkv");
}

TEST(a_decoder_may_see_all_of_its_text)
{
    struct config c;
    begin_model("qwen3", 1);
    test_gguf_key_bool(&file, "qwen3.attention.causal", false);
    loads(&c);
    assert_true(c.both_ways);
}

TEST(an_encoder_says_which_rows_make_its_vector)
{
    static const enum pooling kinds[] = {POOLING_NONE, POOLING_MEAN, POOLING_CLS, POOLING_LAST, POOLING_NONE};
    struct config c;
    const char *dir = test_dir();
    for (uint32_t i = 0; i < COUNT_OF(kinds); i++) {
        struct pooling_config pooling;
        begin_model("bert", 3);
        test_gguf_key_f32(&file, "bert.attention.layer_norm_epsilon", 1e-12f);
        test_gguf_key(&file, "bert.attention.causal", GGUF_BOOL);
        test_gguf_put(&file, "", 1);
        test_gguf_key_u32(&file, "bert.pooling_type", i);
        test_gguf_info(&file, "token_embd.weight", 2, (const uint64_t[]){64, 16}, 0, 0);
        test_gguf_data(&file, 32, (size_t)64 * 16 * 4, 0);
        test_write_file(dir, "m.gguf", file.bytes, file.len);
        assert_int_equal(config_load_at(arena(), dir, &c, NULL), 0);
        assert_true(c.family->encoder && c.eps == 1e-12f);
        assert_int_equal(pooling_config_load_at(dir, 64, &pooling, NULL), 0);
        assert_int_equal(pooling.kind, kinds[i]);
        assert_true(pooling.normalize == (kinds[i] != POOLING_NONE));
    }
}

TEST(metadata_that_are_refused)
{
    begin_model("mamba", 0);
    refuses(
        -ENOTSUP,
        "architecture 'mamba' are not supported: all of its layers are recurrences; docs/models.md lists");
    begin_model("qwen3", 1);
    test_gguf_key_u32(&file, "qwen3.expert_count", 8);
    refuses(-ENOTSUP, "architecture 'qwen3' with experts");
    begin_model("llama", 1);
    test_gguf_list(&file, "llama.attention.head_count_kv", GGUF_I32, 2);
    test_gguf_u32(&file, 2);
    test_gguf_u32(&file, 4);
    refuses(-ENOTSUP, "llama.attention.head_count_kv: values that differ between layers");
    begin_model("llama", 1);
    test_gguf_list(&file, "llama.attention.head_count_kv", GGUF_I32, 0);
    refuses(-EINVAL, "an empty list");
    begin_model("llama", 1);
    test_gguf_key_u32(&file, "llama.attention.head_count_kv", 3);
    refuses(-EINVAL, "metadata: num_attention_heads 4 is not a multiple");
    begin_model("qwen3", 1);
    test_gguf_key_f32(&file, "qwen3.rope.scaling.attn_factor", 0.5f);
    refuses(-ENOTSUP, "attn_factor: 0.5 is not supported without yarn or longrope");
    begin_model("qwen3", 1);
    test_gguf_key_f32(&file, "qwen3.rope.freq_base_swa", 500);
    refuses(-ENOTSUP, "rope.freq_base_swa 500 beside rope.freq_base 10000 is not supported");
    begin_model("qwen3", 1);
    test_gguf_key_u32(&file, "qwen3.expert_group_count", 2);
    refuses(-ENOTSUP, "qwen3.expert_group_count: 2 is not supported");
    begin_model("qwen3", 2);
    test_gguf_key_u32(&file, "qwen3.rope.dimension_count", 32);
    test_gguf_key_u32(&file, "qwen3.rope.dimension_count_swa", 16);
    refuses(-ENOTSUP, "rope.dimension_count_swa: 16 is not supported beside rope.dimension_count 32");
    begin_model("llama4", 1);
    test_gguf_key_u32(&file, "llama4.expert_count", 16);
    refuses(-ENOTSUP, "its layers attend in chunks");
    begin_model("deepseek2", 2);
    test_gguf_key_u32(&file, "deepseek2.rope.dimension_count", 24);
    test_gguf_key_u32(&file, "deepseek2.attention.key_length_mla", 24);
    refuses(-EINVAL, "deepseek2.attention.key_length_mla is 24, not over rope.dimension_count 24");
    begin_model("gemma4", 0);
    refuses(-EINVAL, "tensor rope_freqs.weight is missing");
    begin_model("falcon-h1", 2);
    test_gguf_key_u32(&file, "falcon-h1.ssm.time_step_rank", 3);
    test_gguf_key_u32(&file, "falcon-h1.ssm.inner_size", 64);
    refuses(-EINVAL, "falcon-h1.ssm.time_step_rank is 3, which does not divide ssm.inner_size 64");
    test_gguf_begin(&file, 3, 1, 0);
    refuses(-EINVAL, "general.architecture is missing");
    begin_model("llama", 1);
    test_gguf_key_text(&file, "llama.attention.head_count_kv", "\xff");
    refuses(-EINVAL, "the value of num_key_value_heads is not a number or text");
}

/* A role of a tensor that files of this architecture do not have. */
TEST(names_are_by_role)
{
    const struct gguf_arch *qwen = gguf_arch_find(NULL, SLICE("qwen35moe"), true);
    assert_string_equal(tensor_naming_of(&qwen->naming, ROLE_MLP_NORM), "post_attention_norm");
    assert_string_equal(tensor_naming_of(&qwen->naming, ROLE_DELTA_DECAY), "ssm_a");
    assert_string_equal(tensor_naming_of(&qwen->naming, ROLE_GATE_UP), "-");
    assert_null(gguf_arch_find(NULL, SLICE("qwen35moe"), false));
    assert_null(gguf_arch_find(NULL, SLICE("llam"), false));
    assert_string_equal(gguf_arch_find(NULL, SLICE("olmo2"), false)->model_type, "olmo2");
    assert_string_equal(gguf_arch_find(NULL, SLICE("llama"), false)->model_type, "llama");
}

TEST_MAIN()
