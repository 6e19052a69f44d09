/* tokenizer_read_model.c - what each kind of model has beside its vocabulary. */
#include "tokenizer/bpe_chars.h"
#include "tokenizer/token_trie.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_read.h"
#include "tokenizer/tokenizer_state.h"
#include "tokenizer/unigram.h"
#include "tokenizer/wordpiece.h"

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"
#include "base/hash.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

int tokenizer_read_kind(struct tokenizer *t, const json_t *model, struct err *e)
{
    if (!json_is_object(model))
        return err_set(e, -EINVAL, "tokenizer.json: \"model\" is missing");
    const json_t *type = json_object_get(model, "type");
    static const char *const types[] = {
        [TOKENIZER_BYTES] = "BPE", [TOKENIZER_WORDPIECE] = "WordPiece", [TOKENIZER_UNIGRAM] = "Unigram"};
    t->model = TOKENIZER_BYTES;
    while (type && t->model < COUNT_OF(types) && !(types[t->model] && json_is(type, types[t->model])))
        t->model++;
    if (t->model == COUNT_OF(types))
        return err_set(
            e, -EINVAL,
            "tokenizer.json: model.type is \"%.*s\"; only \"BPE\", \"WordPiece\" and \"Unigram\" can be "
            "used",
            SLICE_ARGS(slice_sub(json_slice(type), 0, 40)));
    static const char *const unusable[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; t->model == TOKENIZER_BYTES && i < COUNT_OF(unusable); i++) {
        if (!json_is_off(json_object_get(model, unusable[i])))
            return err_set(e, -EINVAL, "tokenizer.json: model.%s is set; it is not supported", unusable[i]);
    }
    t->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    return 0;
}

/* ---- BPE ---- */

/* The two tokens of a merge: "A B" or ["A", "B"]. */
bool tokenizer_merge_parts(const json_t *merge, struct slice *left, struct slice *right)
{
    if (json_is_array(merge)) {
        *left = json_slice(json_array_get(merge, 0));
        *right = json_slice(json_array_get(merge, 1));
        return json_array_size(merge) == 2 && left->len && right->len;
    }
    struct slice both = json_slice(merge);
    size_t space = slice_find(both, SLICE(" "), 0);
    if (space == SIZE_MAX)
        return false;
    *left = slice_sub(both, 0, space);
    *right = slice_sub(both, space + 1, both.len);
    return left->len && right->len && slice_find(*right, SLICE(" "), 0) == SIZE_MAX;
}

/* U+2581, unless some token has it after another character. */
static struct slice word_mark(const struct tokenizer *t, const json_t *merges)
{
    static const struct slice mark = SLICE("\xE2\x96\x81");
    uint32_t id;
    for (size_t i = 0; i < json_array_size(merges); i++) {
        struct slice left, right;
        if (!tokenizer_merge_parts(json_array_get(merges, i), &left, &right))
            return (struct slice){0};
        bool marked = slice_find(right, mark, 0) != SIZE_MAX;
        while (slice_starts(left, mark))
            left = slice_sub(left, mark.len, left.len);
        while (slice_starts(right, mark))
            right = slice_sub(right, mark.len, right.len);
        if ((marked && left.len) || slice_find(left, mark, 0) != SIZE_MAX ||
            slice_find(right, mark, 0) != SIZE_MAX)
            return (struct slice){0};
    }
    return hash_map_get(&t->by_bytes, mark, &id) ? mark : (struct slice){0};
}

/* The tokens of bytes; UINT32_MAX: there is none. */
static void read_fallback(const struct tokenizer *t, const json_t *model, uint32_t ret[256])
{
    bool fallback = json_is_true(json_object_get(model, "byte_fallback"));
    for (unsigned i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof(name), "<0x%02X>", i);
        ret[i] = UINT32_MAX;
        if (fallback)
            hash_map_get(&t->by_bytes, slice_of(name), &ret[i]);
    }
}

static int read_chars(struct tokenizer *t, const json_t *model, struct err *e)
{
    const json_t *unknown = json_object_get(model, "unk_token");
    t->chars = (struct bpe_chars){.bpe = &t->bpe,
                                  .by_text = &t->by_bytes,
                                  .unknown = BPE_CHARS_NONE,
                                  .fuse_unknown = json_is_true(json_object_get(model, "fuse_unk")),
                                  .mark = word_mark(t, json_object_get(model, "merges"))};
    read_fallback(t, model, t->chars.bytes);
    if (unknown && !json_is_null(unknown) &&
        !hash_map_get(&t->by_bytes, json_slice(unknown), &t->chars.unknown))
        return err_set(e, -EINVAL, "tokenizer.json: model.unk_token \"%.*s\" is not in model.vocab",
                       SLICE_ARGS(slice_sub(json_slice(unknown), 0, 80)));
    return 0;
}

/* Every character of a text is in some token. */
bool tokenizer_covers_all(const struct tokenizer *t)
{
    for (unsigned i = 0; i < 256; i++)
        if (t->model == TOKENIZER_CHARS && t->chars.bytes[i] == BPE_CHARS_NONE)
            return false;
    return t->model <= TOKENIZER_CHARS;
}

/* ---- WordPiece ---- */

static int read_wordpiece(struct tokenizer *t, struct arena *a, const json_t *model, struct err *e)
{
    struct wordpiece *p = &t->wordpiece;
    const json_t *chars = json_object_get(model, "max_input_chars_per_word");
    const json_t *given = json_object_get(model, "continuing_subword_prefix");
    const json_t *unknown = json_object_get(model, "unk_token");
    struct slice prefix = given ? json_slice(given) : SLICE("##");
    json_int_t chars_max = chars ? json_integer_value(chars) : 100;
    if (chars_max < 0 || chars_max > UINT16_MAX)
        return err_set(e, -EINVAL, "tokenizer.json: model.max_input_chars_per_word is not from 0 to %u",
                       UINT16_MAX);
    p->chars_max = (uint32_t)chars_max;
    if (!hash_map_get(&t->by_bytes, unknown ? json_slice(unknown) : SLICE("[UNK]"), &p->unknown))
        return err_set(e, -EINVAL, "tokenizer.json: model.unk_token is not in model.vocab");
    if (token_trie_init(&p->trie, a, &t->vocab, &t->by_bytes) < 0)
        return tokenizer_no_memory(e);
    p->inner = TOKEN_TRIE_ROOT;
    for (size_t i = 0; i < prefix.len && p->inner != TOKEN_TRIE_NONE; i++)
        p->inner = token_trie_step(&p->trie, p->inner, (unsigned char)prefix.ptr[i]);
    return 0;
}

/* ---- Unigram ---- */

int tokenizer_unigram_ids(const json_t *vocab, json_t **ret, struct err *e)
{
    json_t *ids = json_object();
    int r = 0;
    if (!json_is_array(vocab) || json_array_size(vocab) > TOKENIZER_IDS_MAX)
        r = err_set(e, -EINVAL, "tokenizer.json: model.vocab is not a list of at most %u tokens",
                    TOKENIZER_IDS_MAX);
    for (size_t i = 0; r == 0 && i < json_array_size(vocab); i++) {
        const json_t *entry = json_array_get(vocab, i), *score = json_array_get(entry, 1);
        struct slice token = json_slice(json_array_get(entry, 0));
        if (json_array_size(entry) != 2 || token.len == 0 || !json_is_number(score) ||
            !isfinite(json_number_value(score)))
            r = err_set(e, -EINVAL, "tokenizer.json: entry %zu of model.vocab is not a token and its score",
                        i);
        else if (json_object_getn(ids, token.ptr, token.len))
            r = err_set(e, -EINVAL, "tokenizer.json: \"%.*s\" is twice in model.vocab",
                        SLICE_ARGS(slice_sub(token, 0, 80)));
        else if (json_object_setn_new(ids, token.ptr, token.len, json_integer((json_int_t)i)) < 0)
            r = tokenizer_no_memory(e);
    }
    if (r < 0)
        json_decref(ids);
    else
        *ret = ids;
    return r;
}

static int read_unigram(struct tokenizer *t, struct arena *a, const json_t *model, struct err *e)
{
    struct unigram *u = &t->unigram;
    const json_t *vocab = json_object_get(model, "vocab"), *unknown = json_object_get(model, "unk_id");
    double least = INFINITY;
    u->by_text = &t->by_bytes;
    u->unknown = UNIGRAM_NONE;
    if (json_is_integer(unknown)) {
        json_int_t id = json_integer_value(unknown);
        if (id < 0 || (size_t)id >= json_array_size(vocab))
            return err_set(e, -EINVAL, "tokenizer.json: model.unk_id is not in model.vocab");
        u->unknown = (uint32_t)id;
    }
    read_fallback(t, model, u->bytes);
    u->scores = ARENA_ARRAY(a, double, t->vocab.size);
    if (!u->scores || token_trie_init(&u->trie, a, &t->vocab, &t->by_bytes) < 0)
        return tokenizer_no_memory(e);
    ASSERT(json_array_size(vocab) <= t->vocab.size);
    for (size_t i = 0; i < json_array_size(vocab); i++) {
        u->scores[i] = json_number_value(json_array_get(json_array_get(vocab, i), 1));
        least = fmin(least, u->scores[i]);
    }
    u->unknown_score = least - 10;
    return 0;
}

int tokenizer_read_model(struct tokenizer *t, struct arena *a, const json_t *model, struct err *e)
{
    ASSERT(t->model != TOKENIZER_BYTES);
    if (t->model == TOKENIZER_CHARS)
        return read_chars(t, model, e);
    return t->model == TOKENIZER_UNIGRAM ? read_unigram(t, a, model, e) : read_wordpiece(t, a, model, e);
}
