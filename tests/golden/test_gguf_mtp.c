/* An MTP head in a GGUF file: one more block behind the layers, with the drafts of the checkpoint that it was
 * written from. */
#include "base/none.h"
#include "model_path.h"
#include "small_mtp.h"
#include "test_gguf.h"

#include <math.h>

enum { LAYERS = 4, KEY_HEADS = 2, VALUE_HEADS = 4, DIM = 16, CONV = 4 };

static const struct renamed {
    const char *from, *to;
} names[] = {{"model.embed_tokens.weight", "token_embd.weight"},
             {"model.norm.weight", "output_norm.weight"},
             {"lm_head.weight", "output.weight"},
             {"mtp.fc.weight", "blk.4.nextn.eh_proj.weight"},
             {"mtp.pre_fc_norm_embedding.weight", "blk.4.nextn.enorm.weight"},
             {"mtp.pre_fc_norm_hidden.weight", "blk.4.nextn.hnorm.weight"},
             {"mtp.norm.weight", "blk.4.nextn.shared_head_norm.weight"}};

static const struct renamed of_layers[] = {
    {"input_layernorm", "attn_norm"},       {"post_attention_layernorm", "post_attention_norm"},
    {"self_attn.q_proj", "attn_q"},         {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},         {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},          {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},          {"linear_attn.in_proj_qkv", "attn_qkv"},
    {"linear_attn.in_proj_z", "attn_gate"}, {"linear_attn.in_proj_b", "ssm_beta"},
    {"linear_attn.in_proj_a", "ssm_alpha"}, {"linear_attn.conv1d", "ssm_conv1d"},
    {"linear_attn.A_log", "ssm_a"},         {"linear_attn.dt_bias", "ssm_dt.bias"},
    {"linear_attn.norm", "ssm_norm"},       {"linear_attn.out_proj", "ssm_out"}};

static void gguf_name(const char *name, char ret[128])
{
    unsigned layer = LAYERS;
    int len = 0;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (strcmp(name, names[i].from) == 0) {
            snprintf(ret, 128, "%s", names[i].to);
            return;
        }
    }
    if (sscanf(name, "mtp.layers.0.%n", &len) < 0 || len == 0)
        assert_int_equal(sscanf(name, "model.layers.%u.%n", &layer, &len), 1);
    for (size_t i = 0; i < COUNT_OF(of_layers); i++) {
        const size_t n = strlen(of_layers[i].from);
        const char *rest = name + len + n;
        if (strncmp(name + len, of_layers[i].from, n) != 0 || (*rest && *rest != '.'))
            continue;
        snprintf(ret, 128, "blk.%u.%s%s", layer, of_layers[i].to, rest);
        return;
    }
    fail_msg("no name for %s", name);
}

/* Where the file's value head `head` is in the checkpoint. */
static uint64_t head_of(uint64_t head)
{
    return head % KEY_HEADS * (VALUE_HEADS / KEY_HEADS) + head / KEY_HEADS;
}

/* The row of the checkpoint that is row `i` of the file: value heads, each of `each` rows, lie behind `from`
 * rows. */
static uint64_t row_of(uint64_t i, uint64_t from, uint64_t each)
{
    return i < from ? i : from + head_of((i - from) / each) * each + (i - from) % each;
}

/* The value of the file at row and column. */
static float value_at(const struct test_tensor *t, uint64_t row, uint64_t column, uint64_t columns)
{
    static const char part[] = "linear_attn.";
    const char *of = strstr(t->name, part), *name = of ? of + strlen(part) : "";
    const uint64_t keys = 2 * KEY_HEADS * DIM;
    const bool qkv = strncmp(name, "in_proj_qkv", 11) == 0 || strncmp(name, "conv1d", 6) == 0;
    const bool numbers = strstr(name, "in_proj_b") || strstr(name, "in_proj_a") || strstr(name, "A_log") ||
                         strstr(name, "dt_bias");
    if (qkv)
        row = row_of(row, keys, DIM);
    else if (strstr(name, "in_proj_z"))
        row = row_of(row, 0, DIM);
    else if (numbers)
        row = row_of(row, 0, 1);
    else if (strstr(name, "out_proj"))
        column = row_of(column, 0, DIM);
    const float x = tensor_f32_at(&t->t, row * columns + column);
    if (strstr(name, "A_log"))
        return -expf(x);
    return strstr(t->name, "norm") && !of ? x + 1 : x;
}

static void put_values(struct test_gguf *file, const struct test_tensor *t, bool wide)
{
    const uint64_t rows = t->t.shape[0], columns = tensor_count(&t->t) / rows;
    for (uint64_t i = 0; i < rows; i++) {
        for (uint64_t k = 0; k < columns; k++) {
            const float x = value_at(t, i, k, columns);
            const uint16_t half = f32_to_bf16(x);
            test_gguf_put(file, wide ? (const void *)&x : &half, wide ? sizeof(x) : sizeof(half));
        }
    }
}

static const char *as_gguf(const struct test_tensors *l, bool head)
{
    static struct test_gguf file;
    static const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {{"embedding_length", 32},          {"feed_forward_length", 48},
                   {"attention.head_count", 4},       {"attention.head_count_kv", 2},
                   {"attention.key_length", DIM},     {"context_length", 4096},
                   {"rope.dimension_count", DIM / 2}, {"full_attention_interval", 4},
                   {"ssm.conv_kernel", CONV},         {"ssm.state_size", DIM},
                   {"ssm.group_count", KEY_HEADS},    {"ssm.time_step_rank", VALUE_HEADS}};
    char key[128];
    uint64_t at = 0;
    test_gguf_begin(&file, 3, l->count, COUNT_OF(numbers) + 6);
    test_gguf_key_text(&file, "general.architecture", "qwen35");
    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        snprintf(key, sizeof(key), "qwen35.%s", numbers[i].key);
        test_gguf_key_u32(&file, key, numbers[i].value);
    }
    test_gguf_key_u32(&file, "qwen35.block_count", LAYERS + head);
    test_gguf_key_u32(&file, "qwen35.nextn_predict_layers", head);
    test_gguf_key_f32(&file, "qwen35.rope.freq_base", 10000);
    test_gguf_key_f32(&file, "qwen35.attention.layer_norm_rms_epsilon", 1e-6f);
    test_gguf_list(&file, "qwen35.rope.dimension_sections", GGUF_I32, 4);
    test_gguf_put(&file, (const int32_t[]){2, 1, 1, 0}, 16);
    for (size_t i = 0; i < l->count; i++) {
        const struct tensor *t = &l->list[i].t;
        const bool wide = t->rank == 1;
        const uint64_t columns = tensor_count(t) / t->shape[0];
        gguf_name(l->list[i].name, key);
        test_gguf_info(&file, key, wide ? 1 : 2,
                       (const uint64_t[]){wide ? t->shape[0] : columns, t->shape[0]}, wide ? 0 : 30, at);
        at += ROUND_UP(tensor_count(t) * (wide ? 4 : 2), (uint64_t)32);
    }
    for (size_t i = 0; i < l->count; i++) {
        test_gguf_data(&file, 32, 0, 0);
        put_values(&file, &l->list[i], l->list[i].t.rank == 1);
    }
    test_gguf_data(&file, 32, 0, 0);
    const char *dir = test_dir();
    test_write_file(dir, "model.gguf", file.bytes, file.len);
    return dir;
}

static void draft(const char *dir, uint32_t ids[2], float logits[2])
{
    enum { TOKENS = 40 };
    struct model_opts o = small_opts(NULL);
    struct model *m = NULL;
    struct err e = {{0}};
    uint32_t tokens[TOKENS], table[2] = {1, 0};
    o.parts.mtp = true;
    o.parts.drafts_max = 2;
    if (model_load_at(dir, &o, &m, &e) < 0)
        fail_msg("%s", e.text);
    assert_true(model_shape(m)->has_mtp && model_shape(m)->mtp);
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = i * 37 % 500;
    const struct model_seq row = {
        .tokens = tokens, .token_count = TOKENS, .pages = {table}, .state_in = NONE, .logits_from = TOKENS};
    const struct model_draft_seq d = {
        .token = 5, .position = TOKENS, .pages = {table}, .count = 2, .drafts = ids, .logits = logits};
    small_mtp_draft(m, &o, &row, 1, &d);
    model_free(m);
}

TEST(the_block_behind_the_layers_is_the_head)
{
    uint32_t ids[2][2];
    float logits[2][2];
    struct small_answer plain, gguf;
    struct test_tensors *l = small_read(SMALL_GOLDEN("qwen3_5"));
    small_mtp_add(l);
    const char *dir = as_gguf(l, true), *source = small_mtp_model(SMALL_GOLDEN("qwen3_5"));
    draft(source, ids[0], logits[0]);
    draft(dir, ids[1], logits[1]);
    assert_memory_equal(ids[0], ids[1], sizeof(ids[0]));
    assert_memory_equal(logits[0], logits[1], sizeof(logits[0]));
    small_ask(source, &plain);
    small_ask(dir, &gguf);
    assert_true(plain.hash == gguf.hash);
    /* Without its norm it counts as missing, with the reason. */
    test_tensor_remove(l, "mtp.pre_fc_norm_hidden.weight");
    const struct model_parts parts = {.mtp = true, .drafts_max = 1};
    struct model_shape s;
    assert_int_equal(model_probe_at(as_gguf(l, true), &parts, &s, NULL), 0);
    assert_true(s.has_mtp && !s.mtp && strstr(s.mtp_absent, "blk.4.nextn.hnorm.weight"));
    small_free(l);
}

TEST_MAIN()
