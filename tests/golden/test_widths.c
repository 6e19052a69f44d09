/* Widths that no golden has: a model is changed so that it computes the same function with other widths. */
#include "test_floats.h"
#include "small_model.h"

#include <math.h>

/* Within rounding: sums of other lengths have another order. */
static void same_numbers(const char *config, const struct test_tensors *l,
                         const struct small_answer *expected)
{
    struct small_answer got;
    small_ask(small_write(config, l), &got);
    assert_int_equal(got.vocab, expected->vocab);
    for (uint32_t i = 0; i < got.vocab; i++)
        assert_true(fabsf(got.logits[i] - expected->logits[i]) <= 1e-4f * (1 + fabsf(expected->logits[i])));
}

/* Replaces the text by another one that is no longer. */
static void set_config(char *config, const char *before, const char *after)
{
    char *at = strstr(config, before);
    assert_non_null(at);
    assert_true(strlen(after) <= strlen(before));
    memset(at, ' ', strlen(before));
    memcpy(at, after, strlen(after));
}

/* ---- the MLP ---- */

/* Keeps the first `count` units of every MLP, or makes the others zero. */
static void keep_units(struct test_tensors *l, uint64_t count, bool zero)
{
    for (size_t i = 0; i < l->count; i++) {
        struct tensor *t = &l->list[i].t;
        bool down = strstr(l->list[i].name, "down_proj");
        if (!down && !strstr(l->list[i].name, "gate_proj") && !strstr(l->list[i].name, "up_proj"))
            continue;
        uint16_t *to = (uint16_t *)t->data;
        uint64_t rows = t->shape[0], in = t->shape[1], put = 0;
        for (uint64_t at = 0; at < rows * in; at++) {
            bool kept = (down ? at % in : at / in) < count;
            if (kept || zero)
                to[put++] = kept ? to[at] : 0;
        }
        t->shape[down] = zero ? t->shape[down] : count;
        t->bytes = put * sizeof(*to);
    }
}

TEST(an_mlp_may_be_narrower_than_attention)
{
    struct small_answer expected;
    struct test_tensors *l = small_read(SMALL_GOLDEN("llama"));
    char *config = test_read_file(SMALL_GOLDEN("llama"), "config.json", NULL);
    keep_units(l, 16, true);
    small_ask(small_write(config, l), &expected);
    keep_units(l, 16, false);
    set_config(config, "\"intermediate_size\": 48", "\"intermediate_size\": 16");
    same_numbers(config, l, &expected);
    free(config);
    small_free(l);
}

/* ---- linear attention ---- */

enum { KEY_HEADS = 2, VALUE_HEADS = 4, DIM = 16 };

/* Rows of a tensor; row i becomes a copy of row from[i]. */
static void take_rows(struct tensor *t, const uint32_t *from, uint32_t count)
{
    size_t row = t->bytes / t->shape[0];
    char *rows = malloc(count * row);
    assert_non_null(rows);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(from[i] < t->shape[0]);
        memcpy(rows + i * row, (const char *)t->data + from[i] * row, row);
    }
    free((void *)t->data);
    t->data = rows;
    t->shape[0] = count;
    t->bytes = count * row;
}

/* Every value head twice as wide: each of its rows once more. */
static uint32_t widen(uint32_t first, uint32_t heads, uint32_t *ret)
{
    for (uint32_t i = 0; i < heads * 2 * DIM; i++)
        ret[i] = first + i / (2 * DIM) * DIM + i % DIM;
    return heads * 2 * DIM;
}

/* Columns as `widen` has rows, of half the weight each. */
static void widen_columns(struct tensor *t)
{
    uint32_t rows = (uint32_t)t->shape[0], from[VALUE_HEADS * 2 * DIM];
    uint32_t columns = widen(0, VALUE_HEADS, from);
    const uint16_t *in = t->data;
    uint16_t *out = malloc((size_t)rows * columns * sizeof(*out));
    assert_non_null(out);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < columns; c++)
            out[r * columns + c] = f32_to_bf16(bf16_to_f32(in[r * t->shape[1] + from[c]]) / 2);
    free((void *)t->data);
    t->data = out;
    t->shape[1] = columns;
    t->bytes = (size_t)rows * columns * sizeof(*out);
}

/* q | k | v: each head of q and k once more behind itself, and wider heads of v. */
static void widen_qkv(struct tensor *t)
{
    uint32_t from[4 * KEY_HEADS * DIM + 2 * VALUE_HEADS * DIM], count = 4 * KEY_HEADS * DIM;
    for (uint32_t i = 0; i < count; i++)
        from[i] = i / (2 * DIM) * DIM + i % DIM;
    take_rows(t, from, count + widen(2 * KEY_HEADS * DIM, VALUE_HEADS, from + count));
}

TEST(heads_of_keys_and_of_values_may_differ_in_number_and_width)
{
    struct small_answer expected;
    struct test_tensors *l = small_read(SMALL_GOLDEN("qwen3_5"));
    char *config = test_read_file(SMALL_GOLDEN("qwen3_5"), "config.json", NULL);
    uint32_t from[VALUE_HEADS * 2 * DIM];
    small_ask(SMALL_GOLDEN("qwen3_5"), &expected);
    for (size_t i = 0; i < l->count; i++) {
        struct tensor *t = &l->list[i].t;
        const char *name = l->list[i].name;
        if (strstr(name, "in_proj_qkv") || strstr(name, "conv1d"))
            widen_qkv(t);
        else if (strstr(name, "in_proj_z"))
            take_rows(t, from, widen(0, VALUE_HEADS, from));
        else if (strstr(name, "linear_attn.norm"))
            take_rows(t, from, widen(0, 1, from));
        else if (strstr(name, "linear_attn.out_proj"))
            widen_columns(t);
    }
    set_config(config, "\"linear_num_key_heads\": 2", "\"linear_num_key_heads\": 4");
    set_config(config, "\"linear_value_head_dim\": 16", "\"linear_value_head_dim\": 32");
    same_numbers(config, l, &expected);
    free(config);
    small_free(l);
}

TEST_MAIN()
