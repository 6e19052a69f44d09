/* Factors of NVFP4 matrices in GGUF files (tensors NAME.scale): a power of two beside a matrix gives the same
 * bits as that power in the scales of its blocks. */
#include "small_model.h"
#include "test_gguf.h"

#include <errno.h>

enum { F32 = 0, NVFP4 = 40, HIDDEN = 64, KV = 32, EXPERTS = 3, VOCAB = 32, BLOCK = 64, BLOCK_BYTES = 36 };

/* One layer of qwen3moe. */
static const struct shape {
    const char *name;
    uint32_t columns, rows, experts; /* experts 0: a matrix; rows 0: a vector */
    bool blocks;
} shapes[] = {
    {"token_embd.weight", HIDDEN, VOCAB, 0, false},
    {"output_norm.weight", HIDDEN, 0, 0, false},
    {"blk.0.attn_norm.weight", HIDDEN, 0, 0, false},
    {"blk.0.attn_q.weight", HIDDEN, HIDDEN, 0, true},
    {"blk.0.attn_k.weight", HIDDEN, KV, 0, true},
    {"blk.0.attn_v.weight", HIDDEN, KV, 0, true},
    {"blk.0.attn_output.weight", HIDDEN, HIDDEN, 0, true},
    {"blk.0.attn_q_norm.weight", 16, 0, 0, false},
    {"blk.0.attn_k_norm.weight", 16, 0, 0, false},
    {"blk.0.ffn_norm.weight", HIDDEN, 0, 0, false},
    {"blk.0.ffn_gate_inp.weight", HIDDEN, EXPERTS, 0, false},
    {"blk.0.ffn_gate_exps.weight", HIDDEN, HIDDEN, EXPERTS, true},
    {"blk.0.ffn_up_exps.weight", HIDDEN, HIDDEN, EXPERTS, true},
    {"blk.0.ffn_down_exps.weight", HIDDEN, HIDDEN, EXPERTS, true},
};

static const struct {
    const char *key;
    uint32_t value;
} numbers[] = {
    {"qwen3moe.block_count", 1},           {"qwen3moe.context_length", 512},
    {"qwen3moe.embedding_length", HIDDEN}, {"qwen3moe.feed_forward_length", HIDDEN},
    {"qwen3moe.attention.head_count", 4},  {"qwen3moe.attention.head_count_kv", 2},
    {"qwen3moe.attention.key_length", 16}, {"qwen3moe.expert_count", EXPERTS},
    {"qwen3moe.expert_used_count", 2},     {"qwen3moe.expert_feed_forward_length", HIDDEN},
};

static struct test_gguf file;

static uint32_t experts_of(const struct shape *s)
{
    return MAX_OF(s->experts, 1u);
}

static size_t bytes_of(const struct shape *s)
{
    size_t values = (size_t)s->columns * MAX_OF(s->rows, 1u) * experts_of(s);
    return s->blocks ? values / BLOCK * BLOCK_BYTES : values * sizeof(float);
}

/* The exponent of an expert's factor: 1 to 3. */
static uint32_t power_of(size_t shape, uint32_t expert)
{
    return 1 + (uint32_t)(shape + expert) % 3;
}

/* Four scales of E4M3, whose exponent begins at bit 3, and random codes. */
static void put_blocks(size_t index, bool folded, struct rng *rng)
{
    const struct shape *s = &shapes[index];
    size_t count = bytes_of(s) / BLOCK_BYTES;
    for (size_t b = 0; b < count; b++) {
        const uint32_t power = power_of(index, (uint32_t)(b * experts_of(s) / count));
        uint8_t block[BLOCK_BYTES];
        for (size_t i = 0; i < sizeof(block); i++)
            block[i] =
                (uint8_t)(i < 4 ? 0x10 + rng_below(rng, 8) + (folded ? power << 3 : 0) : rng_next(rng));
        test_gguf_put(&file, block, sizeof(block));
    }
}

static void put_floats(const struct shape *s, struct rng *rng)
{
    for (size_t i = 0; i < bytes_of(s) / sizeof(float); i++) {
        const float x = (float)rng_uniform(rng) - (s->rows ? 0.5f : 0);
        test_gguf_put(&file, &x, sizeof(x));
    }
}

static void put_factors(size_t index)
{
    for (uint32_t e = 0; e < experts_of(&shapes[index]); e++) {
        const float x = (float)(1u << power_of(index, e));
        test_gguf_put(&file, &x, sizeof(x));
    }
}

/* The factor of each matrix of blocks. `of` (NULL: none): a tensor that has one, too, of `count` numbers and
 * this type. */
static void put_factor_infos(uint64_t *at, const char *of, uint64_t count, uint32_t type)
{
    char name[64];
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        const bool given = of && strcmp(of, shapes[i].name) == 0;
        const uint64_t dims[1] = {given ? count : experts_of(&shapes[i])};
        if (!shapes[i].blocks && !given)
            continue;
        snprintf(name, sizeof(name), "%.*sscale", (int)(strlen(shapes[i].name) - strlen("weight")),
                 shapes[i].name);
        test_gguf_info(&file, name, 1, dims, given ? type : F32, *at);
        *at += 32;
    }
}

static uint64_t blocks_count(void)
{
    uint64_t n = 0;
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        n += shapes[i].blocks;
    return n;
}

/* Factors stand beside the matrices, or are folded into them. */
static const char *write_model(bool folded, const char *of, uint64_t count, uint32_t type)
{
    const char *dir = test_dir();
    struct rng rng = {5, 0};
    uint64_t at = 0, factors = folded ? 0 : blocks_count() + (of && !strstr(of, "attn_q."));
    test_gguf_begin(&file, 3, COUNT_OF(shapes) + factors, COUNT_OF(numbers) + 1);
    test_gguf_key_text(&file, "general.architecture", "qwen3moe");
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        test_gguf_key_u32(&file, numbers[i].key, numbers[i].value);
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        const struct shape *s = &shapes[i];
        const uint64_t dims[3] = {s->columns, s->rows, s->experts};
        test_gguf_info(&file, s->name, s->experts ? 3 : s->rows ? 2 : 1, dims, s->blocks ? NVFP4 : F32, at);
        at += ROUND_UP(bytes_of(s), (size_t)32);
    }
    if (!folded)
        put_factor_infos(&at, of, count, type);
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        test_gguf_data(&file, 32, 0, 0);
        if (shapes[i].blocks)
            put_blocks(i, folded, &rng);
        else
            put_floats(&shapes[i], &rng);
    }
    for (size_t i = 0; !folded && i < COUNT_OF(shapes); i++) {
        test_gguf_data(&file, 32, 0, 0);
        if (shapes[i].blocks || (of && strcmp(of, shapes[i].name) == 0))
            put_factors(i);
    }
    test_gguf_data(&file, 32, 0, 0);
    test_write_file(dir, "model.gguf", file.bytes, file.len);
    return dir;
}

TEST(factors_beside_blocks_are_those_of_their_matrices_and_experts)
{
    struct small_answer expected, got;
    small_ask(write_model(true, NULL, 0, 0), &expected);
    small_ask(write_model(false, NULL, 0, 0), &got);
    assert_true(got.hash == expected.hash);
}

TEST(factors_that_are_not_computed_are_refused)
{
    small_refuses(write_model(false, "blk.0.ffn_gate_inp.weight", 1, F32), -ENOTSUP,
                  "tensor blk.0.ffn_gate_inp.scale: a factor of a matrix of dtype F32 is not supported");
    small_refuses(write_model(false, "blk.0.attn_q.weight", 2, F32), -EINVAL, "tensor blk.0.attn_q.scale");
    small_refuses(write_model(false, "blk.0.attn_q.weight", 1, 1), -ENOTSUP,
                  "tensor blk.0.attn_q.scale has dtype F16; supported is F32");
}

TEST_MAIN()
