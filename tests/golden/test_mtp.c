/* An MTP head in every form that a checkpoint may have it in, and absent: its drafts, its memory, and the
 * reason why it is absent. */
#include "base/none.h"
#include "model_path.h"
#include "test_rng.h"
#include "small_mtp.h"
#include "test_ledger.h"

#include <errno.h>

enum { TOKENS = 40, AHEAD = 2 };

static struct model_opts opts_with_head(struct account *parent)
{
    struct model_opts o = small_opts(parent);
    o.parts.mtp = true;
    o.parts.drafts_max = AHEAD;
    return o;
}

static struct model *load(const char *dir, const struct model_opts *o)
{
    struct model *m = NULL;
    struct err e = {{0}};
    int r = model_load_at(dir, o, &m, &e);
    if (r < 0)
        print_message("%s: %s\n", dir, e.text);
    assert_int_equal(r, 0);
    return m;
}

struct drafts {
    uint32_t ids[AHEAD];
    float logits[AHEAD];
};

/* Drafts after TOKENS made-up tokens and one more. */
static struct drafts drafts_of(const char *dir)
{
    struct model_opts o = opts_with_head(NULL);
    struct model *m = load(dir, &o);
    const struct model_shape *s = model_shape(m);
    if (!s->mtp)
        print_message("%s\n", s->mtp_absent);
    assert_true(s->mtp && s->has_mtp && s->mtp_weight_bytes > 0);
    uint32_t tokens[TOKENS], table[2] = {1, 0};
    struct rng rng = {9, 0};
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (uint32_t)rng_below(&rng, s->vocab);
    struct model_seq row = {
        .tokens = tokens, .token_count = TOKENS, .pages = {table}, .state_in = NONE, .logits_from = TOKENS};
    struct drafts g;
    struct model_draft_seq draft = {.token = 3,
                                    .position = TOKENS,
                                    .pages = {table},
                                    .count = AHEAD,
                                    .drafts = g.ids,
                                    .logits = g.logits};
    small_mtp_draft(m, &o, &row, 1, &draft);
    model_free(m);
    return g;
}

static void same_drafts(const struct drafts *a, const struct drafts *b)
{
    assert_memory_equal(a, b, sizeof(*a));
}

static char *config_of(const char *golden)
{
    return test_read_file(golden, "config.json", NULL);
}

TEST(both_prefixes_are_the_same_head)
{
    struct drafts expected = drafts_of(small_mtp_model(SMALL_GOLDEN("qwen3_5"))), got;
    struct test_tensors *l = small_read(SMALL_GOLDEN("qwen3_5"));
    char *config = config_of(SMALL_GOLDEN("qwen3_5"));
    small_mtp_add(l);
    for (size_t i = 0; i < l->count; i++) {
        char name[192];
        if (!small_mtp_is_head(l->list[i].name))
            continue;
        snprintf(name, sizeof(name), "language_model.%s", l->list[i].name);
        snprintf(l->list[i].name, sizeof(name), "%s", name);
    }
    got = drafts_of(small_write(config, l));
    same_drafts(&expected, &got);
    free(config);
    small_free(l);
}

/* Norms as w, where HF has w - 1. */
static void make_norms_whole(struct test_tensors *l)
{
    for (size_t i = 0; i < l->count; i++) {
        struct test_tensor *n = &l->list[i];
        if (!small_mtp_is_head(n->name) || !strstr(n->name, "norm"))
            continue;
        small_to_f32(n);
        float *w = (float *)n->t.data;
        for (uint64_t j = 0; j < tensor_count(&n->t); j++)
            w[j] += 1;
    }
}

#define MANIFEST "{\"artifact_schema_version\":1,\"rmsnorm_weight_format\":\"mlx_gamma\",\"weight_keys\":[]}"

/* In a file of its own, its norms whole or not, with a manifest or without: a manifest belongs to whole
 * ones. */
TEST(a_side_file_is_the_same_head)
{
    struct drafts expected = drafts_of(small_mtp_model(SMALL_GOLDEN("qwen3_5_moe"))), got;
    char *config = config_of(SMALL_GOLDEN("qwen3_5_moe")), path[512];
    for (int form = 0; form < 6; form++) {
        bool folder = form % 2, whole = form >= 2, manifest = form >= 4;
        struct test_tensors *l = small_read(SMALL_GOLDEN("qwen3_5_moe"));
        const char *dir = test_dir();
        small_mtp_add(l);
        if (whole)
            make_norms_whole(l);
        snprintf(path, sizeof(path), "%s/mtp", dir);
        if (folder)
            assert_int_equal(mkdir(path, 0700), 0);
        test_write_text(dir, "config.json", config);
        test_write_tensors(l, dir, "model.safetensors", 0, small_mtp_is_text);
        test_write_tensors(l, dir, folder ? "mtp/weights.safetensors" : "model-mtp.safetensors", 1,
                           small_mtp_is_head);
        if (manifest)
            test_write_text(dir, folder ? "mtp/manifest.json" : "manifest.json", MANIFEST);
        got = drafts_of(dir);
        same_drafts(&expected, &got);
        small_free(l);
    }
    free(config);
}

/* The loader follows a manifest, also where the norms' means contradict it. */
TEST(a_manifest_says_what_norms_are)
{
    struct drafts expected = drafts_of(small_mtp_model(SMALL_GOLDEN("qwen3_5"))), got;
    struct test_tensors *l = small_read(SMALL_GOLDEN("qwen3_5"));
    char *config = config_of(SMALL_GOLDEN("qwen3_5"));
    const char *dir = test_dir();
    small_mtp_add(l);
    test_write_text(dir, "config.json", config);
    test_write_tensors(l, dir, "model.safetensors", 0, small_mtp_is_text);
    test_write_tensors(l, dir, "model-mtp.safetensors", 0, small_mtp_is_head);
    test_write_text(dir, "manifest.json", MANIFEST);
    got = drafts_of(dir);
    assert_true(memcmp(&expected, &got, sizeof(got)) != 0);
    test_write_text(dir, "manifest.json", "{\"artifact_schema_version\":1}");
    got = drafts_of(dir);
    same_drafts(&expected, &got);
    test_write_text(dir, "manifest.json", "not one");
    got = drafts_of(dir);
    same_drafts(&expected, &got);
    free(config);
    small_free(l);
}

/* Joins the head's experts as HF 5 stores them: parameters, without ".weight". */
static void fuse_experts(struct test_tensors *l)
{
    enum { EXPERTS = 8 };
    static const char *const parts[] = {"gate_proj", "up_proj", "down_proj"};
    char name[192];
    for (int down = 0; down < 2; down++) {
        int from = down ? 2 : 0, to = down ? 3 : 2;
        snprintf(name, sizeof(name), "mtp.layers.0.mlp.experts.0.%s.weight", parts[from]);
        struct tensor one = test_tensor_find(l, name)->t;
        const uint64_t shape[] = {EXPERTS, one.shape[0] * (uint64_t)(to - from), one.shape[1]};
        char *at = test_tensor_add(
            l, down ? "mtp.layers.0.mlp.experts.down_proj" : "mtp.layers.0.mlp.experts.gate_up_proj",
            one.dtype, 3, shape);
        for (int e = 0; e < EXPERTS; e++) {
            for (int i = from; i < to; i++, at += one.bytes) {
                snprintf(name, sizeof(name), "mtp.layers.0.mlp.experts.%d.%s.weight", e, parts[i]);
                memcpy(at, test_tensor_find(l, name)->t.data, one.bytes);
                test_tensor_remove(l, name);
            }
        }
    }
}

TEST(fused_experts_are_the_same_head)
{
    struct drafts expected = drafts_of(small_mtp_model(SMALL_GOLDEN("qwen3_5_moe"))), got;
    struct test_tensors *l = small_read(SMALL_GOLDEN("qwen3_5_moe"));
    char *config = config_of(SMALL_GOLDEN("qwen3_5_moe"));
    small_mtp_add(l);
    fuse_experts(l);
    got = drafts_of(small_write(config, l));
    same_drafts(&expected, &got);
    free(config);
    small_free(l);
}

/* Whichever tensor is missing or wrong: the model loads without a head, and names the tensor. */
TEST(a_head_that_is_not_whole_is_none)
{
    static const char *const names[] = {"mtp.fc.weight",
                                        "mtp.norm.weight",
                                        "mtp.pre_fc_norm_hidden.weight",
                                        "mtp.pre_fc_norm_embedding.weight",
                                        "mtp.layers.0.self_attn.k_proj.weight",
                                        "mtp.layers.0.self_attn.q_norm.weight",
                                        "mtp.layers.0.input_layernorm.weight",
                                        "mtp.layers.0.mlp.down_proj.weight"};
    struct small_answer expected, got;
    char *config = config_of(SMALL_GOLDEN("qwen3_5"));
    small_ask(SMALL_GOLDEN("qwen3_5"), &expected);
    for (size_t i = 0; i < 2 * COUNT_OF(names); i++) {
        const char *name = names[i / 2];
        struct test_tensors *l = small_read(SMALL_GOLDEN("qwen3_5"));
        struct model_opts o = opts_with_head(NULL);
        struct model_shape plain;
        small_mtp_add(l);
        if (i % 2) {
            struct test_tensor *t = test_tensor_find(l, name);
            t->t.shape[0]--;
            t->t.bytes = tensor_count(&t->t) * dtype_bytes(t->t.dtype);
        } else {
            test_tensor_remove(l, name);
        }
        const char *dir = small_write(config, l);
        struct model *m = load(dir, &o);
        const struct model_shape *s = model_shape(m);
        assert_true(s->has_mtp && !s->mtp && s->mtp_weight_bytes == 0);
        if (!strstr(s->mtp_absent, name))
            print_message("%s\n", s->mtp_absent);
        assert_non_null(strstr(s->mtp_absent, name));
        assert_int_equal(
            model_probe_at(SMALL_GOLDEN("qwen3_5"), &(struct model_parts){.drafts_max = AHEAD}, &plain, NULL),
            0);
        assert_true(s->page_bytes == plain.page_bytes && s->state_bytes == plain.state_bytes);
        small_run(m, &o, &got);
        assert_true(got.hash == expected.hash);
        model_free(m);
        small_free(l);
    }
    free(config);
}

TEST(who_has_no_head_or_cannot_use_one_says_so)
{
    static const struct {
        const char *golden, *says;
        struct model_parts parts;
    } cases[] = {
        {SMALL_GOLDEN("qwen3_5"), "no tensor mtp.fc.weight", {.mtp = true, .drafts_max = 1}},
        {SMALL_GOLDEN("qwen3_5"), "states", {.mtp = true}},
        {SMALL_GOLDEN("nemotron_h"), "no tensor mtp.layers.0.eh_proj.weight", {.mtp = true, .drafts_max = 1}},
        {SMALL_GOLDEN("ernie4_5_moe"), "logits have a bias", {.mtp = true, .drafts_max = 1}},
        {SMALL_GOLDEN("llama"), "the heads of llama are not computed", {.mtp = true, .drafts_max = 1}},
        {SMALL_GOLDEN("qwen3_5"), "", {.drafts_max = 1}}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct model_shape s;
        assert_int_equal(model_probe_at(cases[i].golden, &cases[i].parts, &s, NULL), 0);
        assert_false(s.mtp || s.has_mtp);
        assert_non_null(strstr(s.mtp_absent, cases[i].says));
        assert_true((s.mtp_absent[0] == 0) == (cases[i].says[0] == 0));
    }
}

TEST(probing_says_what_a_head_takes)
{
    const char *dir = small_mtp_model(SMALL_GOLDEN("qwen3_5_moe"));
    struct account *parent = test_account(ACCOUNT_NO_LIMIT);
    struct model_opts o = opts_with_head(parent);
    struct model_shape probed, plain;
    assert_int_equal(model_probe_at(dir, &o.parts, &probed, NULL), 0);
    assert_int_equal(model_probe_at(dir, NULL, &plain, NULL), 0);
    assert_true(probed.mtp && plain.has_mtp && !plain.mtp);
    assert_true(probed.page_bytes == 2 * plain.page_bytes && probed.state_bytes > plain.state_bytes);
    assert_int_equal(probed.weight_bytes, plain.weight_bytes);
    struct model *m = load(dir, &o);
    const struct model_shape *s = model_shape(m);
    assert_true(s->mtp_weight_bytes == probed.mtp_weight_bytes && s->page_bytes == probed.page_bytes);
    assert_memory_equal(&s->workspace, &probed.workspace, sizeof(s->workspace));
    struct account *head = account_find(parent, "mtp");
    assert_non_null(head);
    assert_int_equal(account_numbers(head).used, probed.mtp_weight_bytes);
    model_free(m);
    assert_int_equal(account_numbers(parent).reserved, 0);
    assert_int_equal(account_numbers(parent).children, 0);
    /* Memory for a part of the head: nothing of it stays reserved. */
    struct account *narrow = test_account(probed.weight_bytes + probed.mtp_weight_bytes / 2);
    o.parent = narrow;
    m = NULL;
    assert_int_equal(model_load_at(dir, &o, &m, NULL), -ENOMEM);
    assert_null(m);
    assert_int_equal(account_numbers(narrow).reserved, 0);
}

TEST_MAIN()
