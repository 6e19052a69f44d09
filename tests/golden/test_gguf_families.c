/* Checkpoints as the GGUF files that they would be: names, keys and the order of rows of an architecture, and
 * the same bits. */
#include "model_path.h"
#include "small_model.h"
#include "test_gguf.h"

#include "compute/device.h"
#include "model/load/pack.h"

/* The end of a tensor's name, without "model.layers.N." or "model.". */
struct renamed {
    const char *from, *to;
};

static const struct renamed names[] = {
    {"embed_tokens.weight", "token_embd.weight"},
    {"norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"input_layernorm.weight", "attn_norm.weight"},
    {"post_self_attn_layernorm.weight", "post_attention_norm.weight"},
    {"post_mlp_layernorm.weight", "post_ffw_norm.weight"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_up_proj.weight", "ffn_up.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
    {NULL, NULL},
};

static const struct renamed norm_before_mlp[] = {{"post_attention_layernorm.weight", "ffn_norm.weight"},
                                                 {NULL, NULL}};
static const struct renamed norm_after_mixer[] = {
    {"post_attention_layernorm.weight", "post_attention_norm.weight"},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
    {NULL, NULL}};

static const struct family_case {
    const char *arch, *golden, *config; /* names, and the reference's config beside the common part */
    const char *metadata; /* metadata as "KEY=VALUE ": a word, a number, of F32 where it has a point */
    const struct renamed *own;
    bool paired; /* rows of heads rotate as pairs side by side */
    bool windows;
} cases[] = {
    {"granite", "granite",
     "\"model_type\":\"granite\",\"attention_multiplier\":0.2,\"embedding_multiplier\":6,"
     "\"hidden_size\":32,\"intermediate_size\":40,\"logits_scaling\":0.5,\"num_attention_heads\":4,"
     "\"num_hidden_layers\":3,\"num_key_value_heads\":2,\"residual_multiplier\":0.25,\"rms_norm_eps\":1e-6,"
     "\"rope_theta\":5000",
     "embedding_length=32 feed_forward_length=40 attention.head_count=4 attention.head_count_kv=2 "
     "block_count=3 attention.scale=0.2 embedding_scale=6.0 residual_scale=0.25 logit_scale=0.5 "
     "rope.freq_base=5000.0 attention.layer_norm_rms_epsilon=0.000001 ",
     norm_before_mlp, .paired = true},
    {"phi3", "phi3",
     "\"model_type\":\"phi3\",\"hidden_size\":36,\"intermediate_size\":40,\"num_attention_heads\":3,"
     "\"num_hidden_layers\":3,\"num_key_value_heads\":1,\"rms_norm_eps\":1e-6,"
     "\"partial_rotary_factor\":0.5,\"rope_theta\":10000,\"sliding_window\":24",
     "embedding_length=36 feed_forward_length=40 attention.head_count=3 attention.head_count_kv=1 "
     "block_count=3 rope.dimension_count=6 rope.freq_base=10000.0 attention.sliding_window=24 "
     "rope.scaling.original_context_length=32 attention.layer_norm_rms_epsilon=0.000001 ",
     norm_before_mlp},
    {"glm4", "glm4",
     "\"model_type\":\"glm4\",\"hidden_size\":32,\"head_dim\":12,\"intermediate_size\":40,"
     "\"num_attention_heads\":3,\"num_hidden_layers\":3,\"num_key_value_heads\":1,\"rms_norm_eps\":1e-6,"
     "\"attention_bias\":true,\"partial_rotary_factor\":0.5,\"rope_theta\":5000",
     "embedding_length=32 feed_forward_length=40 attention.head_count=3 attention.head_count_kv=1 "
     "attention.key_length=12 block_count=3 rope.dimension_count=6 rope.freq_base=5000.0 "
     "attention.layer_norm_rms_epsilon=0.000001 ",
     norm_before_mlp},
    {"olmo2", "olmo3",
     "\"model_type\":\"olmo3\",\"hidden_size\":24,\"intermediate_size\":24,\"num_attention_heads\":4,"
     "\"num_hidden_layers\":4,\"num_key_value_heads\":2,\"rms_norm_eps\":1e-6,\"rope_theta\":5000,"
     "\"sliding_window\":16,\"layer_types\":[\"sliding_attention\",\"full_attention\","
     "\"sliding_attention\",\"full_attention\"],\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8,"
     "\"original_max_position_embeddings\":64,\"attention_factor\":1.25}",
     "embedding_length=24 feed_forward_length=24 attention.head_count=4 attention.head_count_kv=2 "
     "block_count=4 rope.freq_base=5000.0 attention.sliding_window=16 rope.scaling.type=yarn "
     "rope.scaling.factor=8.0 rope.scaling.original_context_length=64 rope.scaling.yarn_attn_factor=1.25 "
     "attention.layer_norm_rms_epsilon=0.000001 ",
     norm_after_mixer, .windows = true},
    {"exaone4", "exaone4",
     "\"model_type\":\"exaone4\",\"hidden_size\":32,\"head_dim\":10,\"intermediate_size\":40,"
     "\"num_attention_heads\":4,\"num_hidden_layers\":3,\"num_key_value_heads\":2,\"rms_norm_eps\":1e-6,"
     "\"rope_theta\":5000,\"sliding_window\":null",
     "embedding_length=32 feed_forward_length=40 attention.head_count=4 attention.head_count_kv=2 "
     "attention.key_length=10 block_count=3 rope.freq_base=5000.0 "
     "attention.layer_norm_rms_epsilon=0.000001 ",
     norm_after_mixer},
};

static struct test_gguf file;

static void put_metadata(const struct family_case *c)
{
    char text[1024], *rest = text, *one;
    snprintf(text, sizeof(text), "%scontext_length=512", c->metadata);
    while ((one = strsep(&rest, " "))) {
        char *equals = strchr(one, '='), key[128];
        *equals = 0;
        snprintf(key, sizeof(key), "%s.%s", c->arch, one);
        if (equals[1] >= 'a')
            test_gguf_key_text(&file, key, equals + 1);
        else if (strchr(equals + 1, '.'))
            test_gguf_key_f32(&file, key, strtof(equals + 1, NULL));
        else
            test_gguf_key_u32(&file, key, (uint32_t)strtoul(equals + 1, NULL, 10));
    }
    test_gguf_key_text(&file, "general.architecture", c->arch);
    if (!c->windows)
        return;
    char key[128];
    snprintf(key, sizeof(key), "%s.attention.sliding_window_pattern", c->arch);
    test_gguf_list(&file, key, GGUF_BOOL, 4);
    test_gguf_put(&file, "\1\0\1\0", 4);
}

static uint64_t pairs_of(const struct family_case *c)
{
    uint64_t n = 0;
    for (const char *at = c->metadata; (at = strchr(at, '=')); at++)
        n++;
    return n + 2 + c->windows;
}

static bool rename_by(const struct renamed *list, const char *layer, const char *end, char *ret, size_t bytes)
{
    for (; list && list->from; list++) {
        if (strncmp(end, list->from, strlen(list->from)) != 0)
            continue;
        snprintf(ret, bytes, "%s%s%s", layer, list->to, end + strlen(list->from));
        return true;
    }
    return false;
}

static void gguf_name(const struct family_case *c, const char *name, char *ret, size_t bytes)
{
    char layer[32] = "";
    unsigned index;
    int len = 0;
    const char *end = name;
    if (sscanf(name, "model.layers.%u.%n", &index, &len) == 1 && len > 0) {
        snprintf(layer, sizeof(layer), "blk.%u.", index);
        end += len;
    } else if (strncmp(name, "model.", 6) == 0) {
        end += 6;
    }
    if (!rename_by(c->own, layer, end, ret, bytes) && !rename_by(names, layer, end, ret, bytes))
        fail_msg("no name for %s", name);
}

/* Row 2i + s of a head in the file is row s * half + i of the checkpoint. */
static void put_rows(const struct test_tensor *t, bool paired, uint64_t head)
{
    size_t row = t->t.bytes / (size_t)t->t.shape[0];
    for (uint64_t i = 0; i < t->t.shape[0]; i++) {
        uint64_t in = i % head, from = paired ? i - in + in % 2 * (head / 2) + in / 2 : i;
        test_gguf_put(&file, (const char *)t->t.data + from * row, row);
    }
}

static const char *as_gguf(const struct family_case *c, const struct test_tensors *l, uint64_t head)
{
    uint64_t at = 0;
    test_gguf_begin(&file, 3, l->count, pairs_of(c));
    put_metadata(c);
    for (size_t i = 0; i < l->count; i++) {
        char name[128];
        const struct tensor *t = &l->list[i].t;
        uint64_t dims[2] = {t->shape[t->rank - 1], t->shape[0]};
        gguf_name(c, l->list[i].name, name, sizeof(name));
        assert_true(t->dtype == DTYPE_BF16 || t->dtype == DTYPE_F16);
        test_gguf_info(&file, name, t->rank, dims, t->dtype == DTYPE_BF16 ? 30 : 1, at);
        at += ROUND_UP(t->bytes, (size_t)32);
    }
    for (size_t i = 0; i < l->count; i++) {
        const char *name = l->list[i].name;
        test_gguf_data(&file, 32, 0, 0);
        put_rows(&l->list[i], c->paired && (strstr(name, "q_proj") || strstr(name, "k_proj")), head);
    }
    test_gguf_data(&file, 32, 0, 0);
    const char *dir = test_dir();
    test_write_file(dir, "model.gguf", file.bytes, file.len);
    return dir;
}

TEST(architectures_are_their_families)
{
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct family_case *c = &cases[i];
        struct small_answer expected, got;
        char golden[512], config[1024];
        snprintf(golden, sizeof(golden), "%s/%s", SMALL_GOLDEN(""), c->golden);
        struct test_tensors *l = small_read(golden);
        const struct test_tensor *table = test_tensor_find(l, "model.embed_tokens.weight");
        const bool tied = !test_tensor_find(l, "lm_head.weight");
        snprintf(config, sizeof(config),
                 "{%s,\"vocab_size\":%u,\"max_position_embeddings\":512,\"tie_word_embeddings\":%s}",
                 c->config, (unsigned)table->t.shape[0], tied ? "true" : "false");
        small_ask(small_write(config, l), &expected);
        const char *dir = as_gguf(c, l, 8);
        small_ask(dir, &got);
        if (got.hash != expected.hash)
            print_message("%s\n", c->arch);
        assert_true(got.hash == expected.hash);
        small_free(l);
    }
}

TEST(a_file_is_packed_by_its_name_or_its_folders)
{
    struct test_tensors *l = small_read(SMALL_GOLDEN("granite"));
    const char *dir = as_gguf(&cases[0], l, 8), *out = test_dir();
    static const char fingerprint[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    struct device *device;
    struct pack_result done[2];
    assert_int_equal(device_open_cpu(1, NULL, &device), 0);
    const struct pack_opts o = {.compute = COMPUTE_F32, .device = device, .fingerprint = fingerprint};
    for (int named = 0; named < 2; named++) {
        char from[4096], to[4096];
        struct err e = {{0}};
        snprintf(from, sizeof(from), "%s%s", dir, named ? "/model.gguf" : "");
        snprintf(to, sizeof(to), "%s/%d.plateau", out, named);
        if (pack_model_at(from, to, &o, &done[named], &e) < 0)
            fail_msg("%s: %s", from, e.text);
    }
    assert_int_equal(done[0].weight_bytes, done[1].weight_bytes);
    device_close(device);
    small_free(l);
}

TEST(tensors_that_nothing_reads_are_refused)
{
    struct test_tensors *l = small_read(SMALL_GOLDEN("granite"));
    char metadata[1024];
    struct small_answer expected, got;
    struct family_case shorter = cases[0];
    snprintf(metadata, sizeof(metadata), "%s", shorter.metadata);
    shorter.metadata = metadata;
    strstr(metadata, "block_count=3")[strlen("block_count=")] = '2';
    small_refuses(as_gguf(&shorter, l, 8), -EINVAL,
                  "(9 such in all) is of a layer beyond the configuration's 2");
    small_ask(as_gguf(&cases[0], l, 8), &expected);
    test_tensor_add(l, "model.layers.0.self_attn.q_proj.input_scale", DTYPE_BF16, 1, (const uint64_t[]){1});
    small_ask(as_gguf(&cases[0], l, 8), &got);
    assert_true(got.hash == expected.hash);
    test_tensor_add(l, "model.layers.0.self_attn.q_norm.weight", DTYPE_BF16, 1, (const uint64_t[]){8});
    small_refuses(as_gguf(&cases[0], l, 8), -ENOTSUP,
                  "model.gguf: tensor blk.0.attn_q_norm.weight (1 such in all) is not read");
    small_free(l);
}

/* At every 499th byte, and at each of the first 64: the head, the tables and the values. */
TEST(files_cut_anywhere_are_refused)
{
    struct test_tensors *l = small_read(SMALL_GOLDEN("granite"));
    const char *dir = as_gguf(&cases[0], l, 8);
    size_t len = file.len;
    for (size_t cut = 0; cut < len;
         cut += cut < 64 || cut + 1 >= len ? 1 : MIN_OF((size_t)499, len - 1 - cut)) {
        struct model *m = NULL;
        struct err e = {{0}};
        struct model_opts o = small_opts(NULL);
        test_write_file(dir, "model.gguf", file.bytes, cut);
        assert_int_equal(model_load_at(dir, &o, &m, &e), -EINVAL);
        assert_non_null(strstr(e.text, "model.gguf"));
    }
    small_free(l);
}

TEST_MAIN()
