/* Bytes for the tokenizer. The first byte selects their use:
 *
 * * a tokenizer.json of any kind (split at the first zero byte from a tokenizer_config.json);
 * * a tokenizer.json whose vocabulary is completed with tokens for all bytes, so that more code is reached;
 * * text for the bundled model's tokenizer;
 * * token ids for it.
 *
 * Invariants: no crash; a refusal has a reason; decoding returns the encoded text; pieces of a decode give
 * the whole. */
#include "model_path.h"

#include "base/check.h"
#include "tokenizer/detok.h"
#include "tokenizer/tokenizer.h"
#include "unicode/unicode_normal.h"
#include "unicode/utf8.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define TOKENS_MAX 65536

static struct arena *process, *scratch;
static struct tokenizer *canary;
static uint32_t ids[TOKENS_MAX];

static struct arena *arena_of(size_t bytes)
{
    struct arena *a = NULL;
    struct arena_opts opts = {.bytes_max = bytes};
    ASSERT(arena_create(&opts, &a) == 0);
    return a;
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    struct err e = {0};
    process = arena_of((size_t)64 << 20);
    scratch = arena_of((size_t)64 << 20);
    if (tokenizer_load_at(process, PLATEAU_SOURCE_DIR "/models/canary", &canary, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
    return 0;
}

/* Token by token and all at once give the same text. */
static void stream(const struct tokenizer *t, size_t count)
{
    struct buf whole, streamed;
    struct detok d;
    buf_init(&whole, (size_t)16 << 20, NULL);
    buf_init(&streamed, (size_t)16 << 20, NULL);
    ASSERT(tokenizer_decode(t, ids, count, false, &whole) == 0);
    detok_init(&d, t, false);
    for (size_t i = 0; i < count; i++) {
        detok_push(&d, ids[i], &streamed);
        ASSERT(utf8_valid(buf_slice(&streamed)));
    }
    detok_flush(&d, &streamed);
    ASSERT(slice_eq(buf_slice(&whole), buf_slice(&streamed)));
    buf_done(&whole);
    buf_done(&streamed);
}

static void use(const struct tokenizer *t, struct slice text)
{
    struct tokenizer_opts opts = {.added_tokens = true, .add_special = true};
    size_t count = 0;
    struct err e = {0};
    int r = tokenizer_encode(t, scratch, text, &opts, ids, TOKENS_MAX, &count, &e);
    ASSERT(r == 0 || (e.text[0] && (r == -E2BIG || r == -EINVAL || r == -ENOMEM)));
    for (size_t i = 0; r == 0 && i < count; i++)
        ASSERT(tokenizer_is_token(t, ids[i]));
    ASSERT(r < 0 ||
           (tokenizer_exceeds(t, text, count, NULL) == 0 && text.len <= tokenizer_bytes_max(t, count)));
    if (r == 0)
        stream(t, count);
}

static void parse(struct slice json, struct slice config)
{
    struct tokenizer *t = NULL;
    struct err e = {0};
    size_t mark = arena_mark(scratch);
    int r = tokenizer_parse(scratch, json, config, &t, &e);
    if (r == 0) {
        use(t, SLICE("It's 12 cafe\u0301s\r\n  <|im_end|> <s> ab word\n"));
        use(t, config);
        uint32_t id;
        (void)(tokenizer_find(t, tokenizer_bos(t), &id) && tokenizer_find(t, tokenizer_eos(t), &id));
    } else {
        ASSERT(!t && e.text[0] && arena_mark(scratch) == mark);
    }
    arena_rewind(scratch, mark);
}

/* Adds the tokens of all bytes to the given vocabulary: a mutation never invents all 256 of them. */
static void parse_filled(struct slice json, struct slice config)
{
    json_t *root = json_loadb(json.ptr ? json.ptr : "", json.len, 0, NULL);
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    uint32_t following = 0x100;
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool prints = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
        char name[UTF8_BYTES_MAX + 1] = {0};
        utf8_encode(prints ? byte : following++, name);
        json_object_set_new(vocab, name, json_integer(byte));
    }
    char *text = json_dumps(root, JSON_COMPACT);
    if (text)
        parse(slice_of(text), config);
    free(text);
    json_decref(root);
}

static void encode(struct slice text, bool added_tokens)
{
    const size_t bytes[] = {0, text.len / 3, text.len / 2, text.len};
    uint32_t tokens[COUNT_OF(bytes)] = {UINT32_MAX};
    struct tokenizer_marks marks = {bytes, tokens, COUNT_OF(bytes)};
    struct tokenizer_opts opts = {.added_tokens = added_tokens, .marks = &marks};
    size_t count = 0, mark = arena_mark(scratch);
    struct err e = {0};
    struct slice normal;
    int r = tokenizer_encode(canary, scratch, text, &opts, ids, TOKENS_MAX, &count, &e);
    ASSERT(arena_mark(scratch) == mark);
    if (!utf8_valid(text)) {
        ASSERT(r == -EINVAL && e.text[0]);
        return;
    }
    ASSERT(r == 0 && count <= 3 * text.len);
    ASSERT(tokenizer_exceeds(canary, text, count, NULL) == 0);
    ASSERT(text.len <= tokenizer_bytes_max(canary, count));
    ASSERT(tokens[0] == 0 && tokens[1] <= tokens[2] && tokens[3] == count);
    struct buf out;
    buf_init(&out, 3 * text.len + 1, NULL);
    ASSERT(tokenizer_decode(canary, ids, count, false, &out) == 0);
    /* Added tokens split the text before it is normalised, so only the rest equals the whole. */
    if (!added_tokens) {
        ASSERT(unicode_normal(scratch, text, UNICODE_NFC, NULL, &normal) == 0 &&
               slice_eq(normal, buf_slice(&out)));
        arena_rewind(scratch, mark);
    }
    buf_done(&out);
}

static void decode(struct slice bytes)
{
    struct buf whole, streamed, raw;
    struct detok d;
    buf_init(&whole, (size_t)16 << 20, NULL);
    buf_init(&streamed, (size_t)16 << 20, NULL);
    buf_init(&raw, (size_t)16 << 20, NULL);
    detok_init(&d, canary, false);
    for (size_t i = 0; i + 1 < bytes.len; i += 2) {
        uint32_t id = (uint32_t)(unsigned char)bytes.ptr[i] << 8 | (unsigned char)bytes.ptr[i + 1];
        buf_put_slice(&raw, tokenizer_token_bytes(canary, id));
        detok_push(&d, id, &streamed);
        ASSERT(d.held <= 3);
    }
    ASSERT(utf8_valid(buf_slice(&streamed)));
    detok_flush(&d, &streamed);
    utf8_put_lossy(&whole, buf_slice(&raw));
    ASSERT(slice_eq(buf_slice(&whole), buf_slice(&streamed)));
    buf_done(&whole);
    buf_done(&streamed);
    buf_done(&raw);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct slice rest = {(const char *)data + 1, size - 1};
    size_t zero = slice_find(rest, SLICE("\0"), 0);
    struct slice json = slice_sub(rest, 0, zero);
    struct slice config = zero == SIZE_MAX ? (struct slice){0} : slice_sub(rest, zero + 1, rest.len);
    switch (data[0] % 5) {
    case 0:
        parse(json, config);
        break;
    case 1:
        parse_filled(json, config);
        break;
    case 2:
    case 3:
        encode(rest, data[0] % 5 == 2);
        break;
    case 4:
        decode(rest);
        break;
    }
    return 0;
}
