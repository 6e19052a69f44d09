/* tokenizer_json.c - from the JSON of tokenizer.json to a tokenizer, or to the reason of its refusal.
 *
 * Features that would change ids and are not implemented are refused by name: a tokenizer that is slightly
 * wrong makes a model that is slightly worse, and its cause is never found. Keys that cannot change ids are
 * ignored. Merges name tokens by their text. A table from bytes to ids resolves them. It is the last block in
 * the arena and is dropped after that, unless ignore_merges needs it later. */
#include "tokenizer/added.h"
#include "tokenizer/bpe.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pretok_stage.h"
#include "tokenizer/split_regex.h"
#include "tokenizer/token_bound.h"
#include "tokenizer/token_decoder.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_read.h"
#include "tokenizer/tokenizer_state.h"
#include "tokenizer/vocab.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"
#include "base/hash.h"
#include "unicode/unicode_normal.h"

#include <errno.h>
#include <stdio.h>

/* ---- vocabulary ---- */

struct vocab_reader {
    const json_t *vocab, *added; /* an object, an array or NULL */
    uint32_t size;               /* 1 + the highest id until now */
    size_t bytes;                /* bytes of all tokens until now */
    size_t longest;
};

static int vocab_measure_token(struct vocab_reader *v, const json_t *id_value, struct slice token,
                               struct err *e)
{
    uint32_t id = 0;
    int r = tokenizer_id_check(id_value, token, &id, e);
    if (r < 0)
        return r;
    if (token.len == 0)
        return err_set(e, -EINVAL, "tokenizer.json: token %u is empty", id);
    v->size = MAX_OF(v->size, id + 1);
    v->bytes += token.len;
    v->longest = MAX_OF(v->longest, token.len);
    return 0;
}

/* json_object_foreach and json_array_foreach, but for const. */
static struct slice iter_key(void *iter)
{
    return (struct slice){json_object_iter_key(iter), json_object_iter_key_len(iter)};
}

static int vocab_measure(struct vocab_reader *v, struct err *e)
{
    json_t *vocab = (json_t *)v->vocab;
    int r = 0;
    if (!json_is_object(vocab) || json_object_size(vocab) > TOKENIZER_IDS_MAX)
        return err_set(e, -EINVAL, "tokenizer.json: model.vocab is not an object of at most %u tokens",
                       TOKENIZER_IDS_MAX);
    if (json_array_size(v->added) > TOKENIZER_ADDED_MAX ||
        (v->added && !json_is_null(v->added) && !json_is_array(v->added)))
        return err_set(e, -EINVAL, "tokenizer.json: added_tokens is not a list of at most %u tokens",
                       TOKENIZER_ADDED_MAX);
    for (void *i = json_object_iter(vocab); i && r == 0; i = json_object_iter_next(vocab, i))
        r = vocab_measure_token(v, json_object_iter_value(i), iter_key(i), e);
    for (size_t i = 0; i < json_array_size(v->added) && r == 0; i++) {
        const json_t *token = json_array_get(v->added, i);
        r = vocab_measure_token(v, json_object_get(token, "id"),
                                json_slice(json_object_get(token, "content")), e);
    }
    return r;
}

/* An added token may be in model.vocab too, but then as the same token. */
static int vocab_fill_added(struct tokenizer *t, const struct vocab_reader *v, struct err *e)
{
    for (size_t i = 0; i < json_array_size(v->added); i++) {
        const json_t *token = json_array_get(v->added, i);
        struct slice content = json_slice(json_object_get(token, "content"));
        uint32_t id = (uint32_t)json_integer_value(json_object_get(token, "id"));
        const json_t *same = json_object_getn(v->vocab, content.ptr, content.len);
        if (vocab_has(&t->vocab, id) || (same && json_integer_value(same) != id))
            return err_set(e, -EINVAL, "tokenizer.json: added token \"%.*s\" (id %u): %s",
                           SLICE_ARGS(slice_sub(content, 0, 80)), id,
                           same ? "model.vocab gives it another id" : "another added token has this id");
        ASSERT(id < t->vocab.size);
        vocab_add(&t->vocab, id, content);
        t->vocab.entries[id].is_added = true;
        t->vocab.entries[id].is_special = json_is_true(json_object_get(token, "special"));
    }
    return 0;
}

/* Characters that stand for themselves in the byte-level alphabet. */
static bool is_plain(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < 0x21 || s.ptr[i] > 0x7E)
            return false;
    }
    return true;
}

/* Adds the tokens of model.vocab; `by_bytes` gets those to which text can encode. */
static int vocab_fill(struct tokenizer *t, const struct vocab_reader *v, struct hash_map *by_bytes,
                      struct err *e)
{
    json_t *vocab = (json_t *)v->vocab;
    for (void *i = json_object_iter(vocab); i; i = json_object_iter_next(vocab, i)) {
        struct slice token = iter_key(i);
        uint32_t id = (uint32_t)json_integer_value(json_object_iter_value(i));
        ASSERT(id < t->vocab.size);
        bool reachable;
        if (!vocab_has(&t->vocab, id) && t->model == TOKENIZER_BYTES)
            reachable = vocab_add_byte_level(&t->vocab, id, token);
        else if (!vocab_has(&t->vocab, id))
            reachable = (vocab_add(&t->vocab, id, token), true);
        else if (t->vocab.entries[id].is_added && slice_eq(vocab_bytes(&t->vocab, id), token))
            reachable = t->model != TOKENIZER_BYTES || is_plain(token);
        else
            return err_set(e, -EINVAL, "tokenizer.json: id %u is given to two tokens, one of them \"%.*s\"",
                           id, SLICE_ARGS(slice_sub(token, 0, 80)));
        if (reachable)
            hash_map_add(by_bytes, vocab_bytes(&t->vocab, id), id);
    }
    return 0;
}

/* ---- merges ---- */

/* The bytes of a text that is this token. */
static size_t bytes_of(const struct tokenizer *t, struct slice token, char *ret)
{
    if (t->model == TOKENIZER_BYTES)
        return vocab_bytes_of(token, ret);
    memcpy(ret, token.ptr, token.len);
    return token.len;
}

/* `joint` has room for two longest tokens. */
static int read_merge(struct tokenizer *t, const struct hash_map *by_bytes, const json_t *merge,
                      uint32_t rank, size_t longest, char *joint, struct err *e)
{
    struct slice left, right;
    if (!tokenizer_merge_parts(merge, &left, &right))
        return err_set(e, -EINVAL, "tokenizer.json: merge %u is not a pair of tokens", rank);
    struct bpe_merge m = {.rank = rank};
    bool known = left.len <= longest && right.len <= longest;
    if (known) {
        size_t left_len = bytes_of(t, left, joint);
        size_t right_len = left_len == SIZE_MAX ? SIZE_MAX : bytes_of(t, right, joint + left_len);
        ASSERT(right_len == SIZE_MAX || left_len + right_len <= 2 * longest);
        known = right_len != SIZE_MAX && hash_map_get(by_bytes, (struct slice){joint, left_len}, &m.left) &&
                hash_map_get(by_bytes, (struct slice){joint + left_len, right_len}, &m.right) &&
                hash_map_get(by_bytes, (struct slice){joint, left_len + right_len}, &m.merged);
    }
    if (!known)
        return err_set(e, -EINVAL,
                       "tokenizer.json: merge %u of \"%.*s\" and \"%.*s\": one of the two, or the result, is "
                       "not in model.vocab",
                       rank, SLICE_ARGS(slice_sub(left, 0, 40)), SLICE_ARGS(slice_sub(right, 0, 40)));
    bpe_add(&t->bpe, &m);
    return 0;
}

/* Maps each byte to its token. Like the reference, leaves a byte without a token out of texts, unless an
 * unknown token stands for it. */
static int read_byte_ids(struct tokenizer *t, const struct hash_map *by_bytes, const json_t *model,
                         struct err *e)
{
    for (unsigned i = 0; i < 256; i++) {
        char byte = (char)i;
        if (hash_map_get(by_bytes, (struct slice){&byte, 1}, &t->bpe.byte_ids[i]))
            continue;
        if (json_is_string(json_object_get(model, "unk_token")))
            return err_set(
                e, -ENOTSUP,
                "tokenizer.json: model.vocab has no token for the byte 0x%02X; with model.unk_token "
                "all 256 are needed",
                i);
        t->bpe.byte_ids[i] = BPE_NONE;
        t->bpe.gaps = true;
    }
    return 0;
}

/* The bytes that tokens decode to, beside their texts. */
static int decode_tokens(struct tokenizer *t, struct arena *a, struct err *e)
{
    struct vocab decoded;
    struct buf one;
    size_t bytes = 0;
    int r = 0;
    t->texts = t->vocab;
    if (t->decoder.byte_level)
        return 0;
    buf_init(&one, TOKENIZER_FILE_BYTES_MAX * 4, NULL);
    for (uint32_t id = 0; id < t->texts.size && !one.error; id++) {
        buf_clear(&one);
        token_decoder_run(&t->decoder, vocab_bytes(&t->texts, id), &one);
        bytes += one.len;
    }
    struct vocab_opts opts = {.size = t->texts.size, .bytes_max = (uint32_t)bytes};
    if (bytes >= TOKENIZER_FILE_BYTES_MAX * 4)
        r = err_set(e, -EINVAL, "tokenizer.json: the decoder makes %zu bytes of the vocabulary", bytes);
    else if (one.error || vocab_init(&decoded, a, &opts) < 0)
        r = tokenizer_no_memory(e);
    for (uint32_t id = 0; id < t->texts.size && r == 0; id++) {
        if (!vocab_has(&t->texts, id))
            continue;
        buf_clear(&one);
        token_decoder_run(&t->decoder, vocab_bytes(&t->texts, id), &one);
        r = one.error ? tokenizer_no_memory(e) : 0;
        if (r < 0)
            break;
        vocab_add(&decoded, id, buf_slice(&one));
        decoded.entries[id].is_added = t->texts.entries[id].is_added;
        decoded.entries[id].is_special = t->texts.entries[id].is_special;
    }
    buf_done(&one);
    if (r == 0)
        t->vocab = decoded;
    return r;
}

static int read_vocab(struct tokenizer *t, struct arena *a, const json_t *root, const json_t *vocab,
                      struct err *e)
{
    const json_t *model = json_object_get(root, "model");
    const json_t *merges = json_object_get(model, "merges");
    struct vocab_reader v = {.vocab = vocab, .added = json_object_get(root, "added_tokens")};
    int r = vocab_measure(&v, e);
    if (r < 0)
        return r;
    if (t->model <= TOKENIZER_CHARS &&
        (!json_is_array(merges) || json_array_size(merges) > TOKENIZER_MERGES_MAX))
        return err_set(e, -EINVAL, "tokenizer.json: model.merges is not a list of at most %u merges",
                       TOKENIZER_MERGES_MAX);
    uint32_t merges_count = t->model <= TOKENIZER_CHARS ? (uint32_t)json_array_size(merges) : 0;
    struct vocab_opts opts = {.size = v.size, .bytes_max = (uint32_t)v.bytes};
    if (vocab_init(&t->vocab, a, &opts) < 0 || bpe_init(&t->bpe, a, merges_count) < 0)
        return tokenizer_no_memory(e);

    size_t mark = arena_mark(a);
    struct hash_map by_bytes;
    if (hash_map_init(&by_bytes, a, (uint32_t)json_object_size(v.vocab)) < 0)
        return tokenizer_no_memory(e);
    size_t mark_joint = arena_mark(a);
    char *joint = arena_alloc_array(a, v.longest, 2);
    if (!joint)
        return tokenizer_no_memory(e);
    r = vocab_fill_added(t, &v, e);
    if (r == 0)
        r = vocab_fill(t, &v, &by_bytes, e);
    bool keep = t->ignore_merges || t->model != TOKENIZER_BYTES;
    t->by_bytes = by_bytes;
    if (r == 0 && t->model == TOKENIZER_BYTES)
        r = read_byte_ids(t, &by_bytes, model, e);
    for (uint32_t i = 0; i < merges_count && r == 0; i++)
        r = read_merge(t, &by_bytes, json_array_get(merges, i), i, v.longest, joint, e);
    arena_rewind(a, keep ? mark_joint : mark);
    if (r == 0 && t->model != TOKENIZER_BYTES)
        r = tokenizer_read_model(t, a, model, e);
    return r < 0 ? r : decode_tokens(t, a, e);
}

static int read_tokens(struct tokenizer *t, struct arena *a, const struct tokenizer_source *in, struct err *e)
{
    json_t *vocab = json_object_get(json_object_get(in->root, "model"), "vocab"), *ids = NULL;
    int r = t->model == TOKENIZER_UNIGRAM ? tokenizer_unigram_ids(vocab, &ids, e) : 0;
    if (ids)
        vocab = ids;
    if (r == 0 && !in->view)
        r = tokenizer_merge_added(in->root, vocab, in->config, e);
    if (r == 0)
        r = read_vocab(t, a, in->root, vocab, e);
    json_decref(ids);
    return r;
}

/* ---- added tokens ---- */

static int added_set_build(struct added_set *set, struct added_token *tokens, uint32_t count, struct err *e)
{
    const struct added_token *twice = added_set_init(set, tokens, count);
    if (!twice)
        return 0;
    return err_set(e, -EINVAL, "tokenizer.json: added token \"%.*s\" is there twice",
                   SLICE_ARGS(slice_sub(twice->content, 0, 80)));
}

/* Collects the stages' effects on the length of a text. */
static struct token_bound_opts bound_opts(const struct tokenizer *t)
{
    struct token_bound_opts o = {.unbounded = !tokenizer_covers_all(t), .texts = &t->texts};
    if (t->model == TOKENIZER_BYTES && t->bpe.gaps)
        o.byte_ids = t->bpe.byte_ids;
    for (uint32_t i = 0; i < t->normalizer.count; i++) {
        const struct normalizer_stage *s = &t->normalizer.stages[i];
        if (s->kind == NORMALIZE_FORM && s->form == UNICODE_NFC)
            o.normalised = true;
        else if (s->kind != NORMALIZE_PREPEND && !(s->kind == NORMALIZE_REPLACE && s->keeps_bytes))
            o.unbounded = true;
    }
    for (uint32_t i = 0; i < t->pretok.count; i++)
        o.unbounded |= t->pretok.stages[i].behavior == SPLIT_REMOVED;
    return o;
}

static int read_added(struct tokenizer *t, struct arena *a, const json_t *list, struct err *e)
{
    size_t count = json_array_size(list);
    struct added_token *all = ARENA_ARRAY(a, struct added_token, count);
    struct added_token *raw = ARENA_ARRAY(a, struct added_token, count);
    struct added_token *normalized = ARENA_ARRAY(a, struct added_token, count);
    struct token_bound_opts bound = bound_opts(t);
    struct split_budget budget;
    uint32_t raw_count = 0, normalized_count = 0;
    split_budget_init(&budget, NULL);
    if (!all || !raw || !normalized)
        return tokenizer_no_memory(e);
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(list, i);
        uint32_t id = (uint32_t)json_integer_value(json_object_get(entry, "id"));
        ASSERT(vocab_has(&t->texts, id));
        struct added_token token = {.content = vocab_bytes(&t->texts, id),
                                    .id = id,
                                    .single_word = json_is_true(json_object_get(entry, "single_word")),
                                    .lstrip = json_is_true(json_object_get(entry, "lstrip")),
                                    .rstrip = json_is_true(json_object_get(entry, "rstrip"))};
        all[i] = token;
        bound.strips |= token.lstrip || token.rstrip;
        if (!json_is_true(json_object_get(entry, "normalized"))) {
            raw[raw_count++] = token;
            continue;
        }
        int r = normalizer_run(&t->normalizer, a, token.content, &budget, &token.content);
        if (r == -ELOOP)
            return err_set(e, r, "the pattern \"%.*s\" takes too many steps on the added tokens",
                           SLICE_ARGS(split_regex_source(budget.over)));
        if (r < 0)
            return tokenizer_no_memory(e);
        if (token.content.len == 0)
            continue;
        normalized[normalized_count++] = token;
    }
    ASSERT(raw_count + normalized_count <= count);
    token_bound_init(&t->bound, &t->vocab, &bound);
    int r = added_set_build(&t->added_all, all, (uint32_t)count, e);
    if (r == 0)
        r = added_set_build(&t->added_raw, raw, raw_count, e);
    if (r == 0)
        r = added_set_build(&t->added_normalized, normalized, normalized_count, e);
    return r;
}

/* ---- tokenizer_config.json ---- */

/* A token of tokenizer_config.json: a string, or an object with a string `content`. */
static int read_special(struct arena *a, const json_t *value, struct slice *ret, struct err *e)
{
    struct slice text = json_slice(json_is_object(value) ? json_object_get(value, "content") : value);
    if (text.len == 0)
        return 0;
    char *copy = arena_strndup(a, text.ptr, text.len);
    if (!copy)
        return tokenizer_no_memory(e);
    *ret = (struct slice){copy, text.len};
    return 0;
}

static int read_config(struct tokenizer *t, struct arena *a, const struct tokenizer_source *in, struct err *e)
{
    const json_t *config = in->config;
    if (config && !json_is_object(config))
        return err_set(e, -EINVAL, "tokenizer_config.json: not an object");
    uint32_t bos;
    int r = read_special(a, json_object_get(config, "bos_token"), &t->bos, e);
    if (r == 0)
        r = read_special(a, json_object_get(config, "eos_token"), &t->eos, e);
    /* A GGUF file has no template. Beside a tokenizer.json transformers ignores the flag. */
    if (r == 0 && in->view && json_is_true(json_object_get(config, "add_bos_token")) &&
        t->prefix_count == 0 && added_set_find(&t->added_all, t->bos, &bos))
        t->prefix[t->prefix_count++] = bos;
    return r;
}

int tokenizer_json_read(struct tokenizer *t, struct arena *a, const struct tokenizer_source *in,
                        struct err *e)
{
    const json_t *root = in->root;
    int r = tokenizer_read_kind(t, json_object_get(root, "model"), e);
    if (r == 0)
        r = tokenizer_read_normalizer(t, a, json_object_get(root, "normalizer"), e);
    if (r == 0)
        r = tokenizer_read_pre_tokenizer(t, a, json_object_get(root, "pre_tokenizer"), e);
    if (r == 0 && t->model > TOKENIZER_CHARS && t->byte_level)
        r = err_set(e, -EINVAL, "tokenizer.json: the pre_tokenizer has a ByteLevel, which only BPE can use");
    if (r == 0 && t->model <= TOKENIZER_CHARS)
        t->model = t->byte_level ? TOKENIZER_BYTES : TOKENIZER_CHARS;
    if (r == 0)
        r = tokenizer_read_decoder(t, a, json_object_get(root, "decoder"), e);
    if (r == 0 && t->decoder.byte_level != t->byte_level)
        r = err_set(e, -EINVAL, "tokenizer.json: only one of pre_tokenizer and decoder has a ByteLevel");
    if (r == 0)
        r = read_tokens(t, a, in, e);
    ASSERT(r < 0 || (t->byte_level == (t->model == TOKENIZER_BYTES) && t->vocab.size == t->texts.size));
    if (r == 0)
        r = read_added(t, a, json_object_get(root, "added_tokens"), e);
    if (r == 0)
        r = tokenizer_read_post_processor(t, json_object_get(root, "post_processor"), e);
    if (r == 0)
        r = read_config(t, a, in, e);
    return r;
}
