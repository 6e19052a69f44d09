/* gguf_tokenizer.c - tokenizer.ggml.* as a tokenizer.json: the file has the tables; two names say the rest.
 *
 * "gpt2" is byte-level BPE with merges; `pre` names normaliser and pre-tokenizer. "llama" is SentencePiece's
 * BPE: its merges are all pairs of tokens that make a token, best score first. "gemma4" has that alphabet and
 * merges of its own. "bert" is WordPiece, "t5" SentencePiece's Unigram. */
#include "gguf/gguf_pre.h"
#include "gguf/gguf_view.h"

#include "base/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MERGES_MAX      ((size_t)1 << 23)
#define TOKENS_MAX      ((uint64_t)1 << 22)
#define TOKEN_BYTES_MAX 256
#define TOKEN_BYTES     96u /* a token in a tokenizer.json, with its merges */

/* Token types by their numbers in the file. */
enum token_type { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER, TOKEN_UNUSED, TOKEN_BYTE };

struct reader {
    const struct gguf *g;
    const struct gguf_value *tokens, *types, *scores, *merges;
    struct err *e;
};

static int bad(const struct reader *in, const char *why)
{
    return err_set(in->e, -EINVAL, "tokenizer.ggml: %s", why);
}

static bool flag(const struct reader *in, const char *key, bool absent)
{
    struct gguf_item item;
    struct gguf_walk w = {.value = gguf_find(in->g, key)};
    return w.value && gguf_next(&w, &item) && item.kind == GGUF_IS_BOOL ? item.flag : absent;
}

/* ---- tables ---- */

/* A token and its type, in the order of ids. */
struct token_walk {
    struct gguf_walk tokens, types;
    uint32_t id;
    struct slice text;
    int64_t type;
};

static bool next_token(struct token_walk *w)
{
    struct gguf_item token, type;
    w->id = (uint32_t)w->tokens.index;
    if (!gguf_next(&w->tokens, &token))
        return false;
    w->text = token.string;
    w->type = w->types.value && gguf_next(&w->types, &type) ? type.number : TOKEN_NORMAL;
    return true;
}

static struct token_walk walk_tokens(const struct reader *in)
{
    return (struct token_walk){.tokens = {.value = in->tokens}, .types = {.value = in->types}};
}

static bool is_added(int64_t type)
{
    return type == TOKEN_CONTROL || type == TOKEN_USER;
}

static json_t *added_of(const struct token_walk *w)
{
    json_t *text = json_stringn(w->text.ptr, w->text.len);
    return !text ? NULL
                 : json_pack("{s:i, s:o, s:b, s:b, s:b, s:b, s:b}", "id", (int)w->id, "content", text,
                             "special", w->type == TOKEN_CONTROL, "normalized", 0, "single_word", 0, "lstrip",
                             0, "rstrip", 0);
}

static int read_tokens(const struct reader *in, json_t *vocab, json_t *added)
{
    struct token_walk w = walk_tokens(in);
    while (next_token(&w)) {
        json_t *id = is_added(w.type) ? added_of(&w) : json_integer(w.id);
        if (is_added(w.type)
                ? json_array_append_new(added, id) != 0
                : json_object_setn_new(vocab, w.text.ptr ? w.text.ptr : "", w.text.len, id) != 0) {
            return err_set(in->e, -EINVAL, "tokenizer.ggml.tokens[%u] is not UTF-8", w.id);
        }
    }
    return 0;
}

static int read_merges(const struct reader *in, json_t *merges)
{
    struct gguf_walk w = {.value = in->merges};
    struct gguf_item item;
    while (gguf_next(&w, &item)) {
        if (json_array_append_new(merges, json_stringn(item.string.ptr, item.string.len)) != 0)
            return bad(in, "an entry of merges is not UTF-8");
    }
    return 0;
}

/* ---- merges by scores ---- */

struct pair {
    double score;
    uint32_t left, right, token;
};

struct pairs {
    struct pair *list;
    size_t count, room;
};

static int by_score(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->token != y->token)
        return x->token < y->token ? -1 : 1;
    return x->left != y->left ? (x->left < y->left ? -1 : 1) : (x->right > y->right) - (x->right < y->right);
}

static int add_pair(const struct reader *in, struct pairs *p, const struct pair *one)
{
    if (p->count == p->room) {
        size_t room = p->room ? 2 * p->room : 65536;
        struct pair *list = room > MERGES_MAX ? NULL : realloc(p->list, room * sizeof(*list));
        if (!list)
            return err_set(in->e, -ENOMEM, "tokenizer.ggml: no memory for over %zu merges", p->count);
        p->list = list;
        p->room = room;
    }
    p->list[p->count++] = *one;
    return 0;
}

static uint32_t id_of(const json_t *vocab, struct slice text)
{
    const json_t *id = json_object_getn(vocab, text.ptr, text.len);
    return id ? (uint32_t)json_integer_value(id) : UINT32_MAX;
}

/* All ways to make a token of two tokens, cut between characters. */
static int split_token(const struct reader *in, const json_t *vocab, uint32_t token, struct slice text,
                       double score, struct pairs *p)
{
    int r = 0;
    for (size_t cut = 1; r == 0 && cut < text.len; cut++) {
        if (((unsigned char)text.ptr[cut] & 0xc0) == 0x80)
            continue;
        struct pair one = {.score = score, .token = token, .left = id_of(vocab, slice_sub(text, 0, cut))};
        if (one.left == UINT32_MAX)
            continue;
        one.right = id_of(vocab, slice_sub(text, cut, text.len));
        if (one.right != UINT32_MAX)
            r = add_pair(in, p, &one);
    }
    return r;
}

static int find_pairs(const struct reader *in, const json_t *vocab, struct pairs *p)
{
    struct token_walk w = walk_tokens(in);
    struct gguf_walk scores = {.value = in->scores};
    struct gguf_item score;
    int r = 0;
    while (r == 0 && next_token(&w) && gguf_next(&scores, &score)) {
        if (w.text.len > TOKEN_BYTES_MAX)
            return err_set(in->e, -EINVAL, "tokenizer.ggml.tokens[%u] is longer than %d bytes", w.id,
                           TOKEN_BYTES_MAX);
        if (!is_added(w.type))
            r = split_token(in, vocab, w.id, w.text, score.real, p);
    }
    if (r == 0 && p->count > 0)
        qsort(p->list, p->count, sizeof(p->list[0]), by_score);
    return r;
}

static int text_of_ids(const struct reader *in, json_t ***ret)
{
    struct token_walk w = walk_tokens(in);
    json_t **texts = calloc((size_t)in->tokens->count + 1, sizeof(json_t *));
    if (!texts)
        return err_set(in->e, -ENOMEM, "tokenizer.ggml: no memory for its tokens");
    while (next_token(&w))
        texts[w.id] = json_stringn(w.text.ptr ? w.text.ptr : "", w.text.len);
    *ret = texts;
    return 0;
}

static int merges_of_scores(const struct reader *in, const json_t *vocab, json_t *merges)
{
    struct pairs p = {0};
    json_t **texts = NULL;
    int r = find_pairs(in, vocab, &p);
    if (r == 0)
        r = text_of_ids(in, &texts);
    for (size_t i = 0; r == 0 && i < p.count; i++) {
        json_t *pair = json_pack("[O, O]", texts[p.list[i].left], texts[p.list[i].right]);
        if (json_array_append_new(merges, pair) != 0)
            r = err_set(in->e, -ENOMEM, "tokenizer.ggml: no memory for its merges");
    }
    for (uint64_t i = 0; texts && i < in->tokens->count; i++)
        json_decref(texts[i]);
    free(texts);
    free(p.list);
    return r;
}

/* ---- byte-level and SentencePiece's BPE ---- */

static const struct gguf_pre *find_pre(const struct reader *in)
{
    struct slice name = {NULL, 0};
    return gguf_string(gguf_find(in->g, "tokenizer.ggml.pre"), &name) ? gguf_pre_find(name) : NULL;
}

static int refuse_pre(const struct reader *in)
{
    struct slice name = {"absent", 6};
    (void)gguf_string(gguf_find(in->g, "tokenizer.ggml.pre"), &name);
    return err_set(in->e, -ENOTSUP,
                   "tokenizer.ggml.pre '%.*s' is not supported; docs/models.md lists the names that are",
                   (int)MIN_OF(name.len, (size_t)64), name.ptr);
}

static json_t *pre_tokenizer_of(const struct gguf_pre *pre)
{
    json_t *list = json_array();
    for (size_t i = 0; i < GGUF_PRE_SPLITS_MAX && pre->patterns[i]; i++)
        json_array_append_new(list, json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex",
                                              pre->patterns[i], "behavior", "Isolated", "invert", 0));
    if (pre->digits)
        json_array_append_new(list, json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1));
    json_array_append_new(list, json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                                          "trim_offsets", 0, "use_regex", pre->patterns[0] == NULL));
    return json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", list);
}

#define BLANK "\xe2\x96\x81" /* U+2581, a blank's place */

/* U+2581 for blanks, one more in front of a text with `prefix`, and bytes as tokens of their own. */
static void set_blanks(json_t *root, bool prefix)
{
    json_t *model = json_object_get(root, "model");
    json_t *normalizers = json_array(), *decoders = json_array();
    if (prefix)
        json_array_append_new(normalizers, json_pack("{s:s, s:s}", "type", "Prepend", "prepend", BLANK));
    json_array_append_new(normalizers, json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern",
                                                 "String", " ", "content", BLANK));
    json_array_append_new(decoders, json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String",
                                              BLANK, "content", " "));
    json_array_append_new(decoders, json_pack("{s:s}", "type", "ByteFallback"));
    json_array_append_new(decoders, json_pack("{s:s}", "type", "Fuse"));
    if (prefix)
        json_array_append_new(decoders, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content", " ",
                                                  "start", 1, "stop", 0));
    json_object_set_new(root, "normalizer",
                        json_pack("{s:s, s:o}", "type", "Sequence", "normalizers", normalizers));
    json_object_set_new(root, "decoder", json_pack("{s:s, s:o}", "type", "Sequence", "decoders", decoders));
    json_object_set_new(model, "byte_fallback", json_true());
    json_object_set_new(model, "fuse_unk", json_true());
}

/* In a text the unknown token is the token, as in llama.cpp. */
static void set_unknown(const struct reader *in, json_t *root)
{
    struct token_walk w = walk_tokens(in);
    while (next_token(&w)) {
        if (w.type != TOKEN_UNKNOWN)
            continue;
        json_object_set_new(json_object_get(root, "model"), "unk_token",
                            json_stringn(w.text.ptr, w.text.len));
        w.type = TOKEN_CONTROL;
        json_array_insert_new(json_object_get(root, "added_tokens"), 0, added_of(&w));
    }
}

/* SentencePiece's alphabet with BPE's merges: Gemma 4. */
static int read_blanks(const struct reader *in, json_t *root, json_t *vocab, json_t *merges)
{
    (void)vocab;
    set_blanks(root, false);
    set_unknown(in, root);
    return in->merges ? read_merges(in, merges) : bad(in, "merges are missing");
}

static int read_byte_level(const struct reader *in, json_t *root, json_t *vocab, json_t *merges)
{
    const struct gguf_pre *pre = find_pre(in);
    if (!pre)
        return refuse_pre(in);
    if (pre->blanks)
        return read_blanks(in, root, vocab, merges);
    json_object_set_new(root, "normalizer", pre->nfc ? json_pack("{s:s}", "type", "NFC") : json_null());
    json_object_set_new(root, "pre_tokenizer", pre_tokenizer_of(pre));
    json_object_set_new(root, "decoder", json_pack("{s:s}", "type", "ByteLevel"));
    json_object_set_new(json_object_get(root, "model"), "ignore_merges", json_boolean(pre->ignore_merges));
    return in->merges ? read_merges(in, merges) : bad(in, "merges are missing");
}

static int read_sentence_piece(const struct reader *in, json_t *root, json_t *vocab, json_t *merges)
{
    set_blanks(root, flag(in, "tokenizer.ggml.add_space_prefix", true));
    set_unknown(in, root);
    if (!in->scores || in->scores->count != in->tokens->count)
        return bad(in, "there is not one score for each token");
    return merges_of_scores(in, vocab, merges);
}

/* ---- WordPiece ---- */

static bool in_brackets(struct slice text)
{
    return text.len > 2 && text.ptr[0] == '[' && text.ptr[text.len - 1] == ']';
}

/* The writer puts U+2581 in front of what begins a word, and takes "##" from the others. False: no memory. */
static bool add_word(json_t *vocab, const struct token_walk *w)
{
    const struct slice mark = SLICE(BLANK);
    char text[TOKEN_BYTES_MAX + 3];
    if (slice_starts(w->text, mark) || is_added(w->type) || in_brackets(w->text)) {
        const struct slice word =
            slice_starts(w->text, mark) ? slice_sub(w->text, mark.len, w->text.len) : w->text;
        return json_object_setn_new(vocab, word.ptr, word.len, json_integer(w->id)) == 0;
    }
    const int n = snprintf(text, sizeof(text), "##%.*s", SLICE_ARGS(w->text));
    return json_object_setn_new(vocab, text, (size_t)n, json_integer(w->id)) == 0;
}

/* A vocabulary with an upper-case letter is of text whose case counts. */
static bool has_case(const struct reader *in)
{
    struct token_walk w = walk_tokens(in);
    while (next_token(&w)) {
        for (size_t i = 0; !is_added(w.type) && !in_brackets(w.text) && i < w.text.len; i++)
            if (w.text.ptr[i] >= 'A' && w.text.ptr[i] <= 'Z')
                return true;
    }
    return false;
}

/* The first of these ids that the file has, and the token's text. */
static bool special_of(const struct reader *in, const char *const keys[2], uint64_t *id, struct slice *text)
{
    for (int i = 0; i < 2; i++) {
        struct token_walk w = walk_tokens(in);
        if (!gguf_u64(gguf_find(in->g, keys[i]), id))
            continue;
        while (next_token(&w)) {
            *text = w.text;
            if (w.id == *id)
                return true;
        }
    }
    return false;
}

/* BertProcessing or RobertaProcessing: a token in front of the text and one behind it. */
static int set_ends(const struct reader *in, json_t *root, const char *type)
{
    static const char *const front[2] = {"tokenizer.ggml.cls_token_id", "tokenizer.ggml.bos_token_id"};
    static const char *const behind[2] = {"tokenizer.ggml.seperator_token_id", "tokenizer.ggml.eos_token_id"};
    uint64_t ids[2];
    struct slice texts[2];
    if (!special_of(in, front, &ids[0], &texts[0]) || !special_of(in, behind, &ids[1], &texts[1]))
        return bad(in, "the tokens around a text are missing");
    json_t *post = json_pack("{s:s, s:[s%, i], s:[s%, i], s:b, s:b}", "type", type, "cls", texts[0].ptr,
                             texts[0].len, (int)ids[0], "sep", texts[1].ptr, texts[1].len, (int)ids[1],
                             "trim_offsets", 1, "add_prefix_space", 0);
    return json_object_set_new(root, "post_processor", post) == 0 ? 0
                                                                  : bad(in, "a special token is not UTF-8");
}

static int read_word_piece(const struct reader *in, json_t *root, json_t *vocab, json_t *merges)
{
    static const char *const unknown[2] = {"tokenizer.ggml.unknown_token_id", "tokenizer.ggml.unk_token_id"};
    const bool lower = !has_case(in);
    json_t *model = json_object_get(root, "model");
    struct token_walk w = walk_tokens(in);
    struct slice text = SLICE("[UNK]");
    uint64_t id;
    (void)merges;
    json_object_clear(vocab);
    while (next_token(&w)) {
        if (w.text.len == 0 || w.text.len > TOKEN_BYTES_MAX || !add_word(vocab, &w))
            return err_set(in->e, -EINVAL,
                           "tokenizer.ggml.tokens[%u] is not a word of 1 to %d bytes in UTF-8", w.id,
                           TOKEN_BYTES_MAX);
    }
    if (!special_of(in, unknown, &id, &text))
        text = SLICE("[UNK]");
    json_object_set_new(model, "unk_token", json_stringn(text.ptr, text.len));
    json_object_set_new(model, "max_input_chars_per_word", json_integer(100));
    json_object_set_new(model, "continuing_subword_prefix", json_string("##"));
    json_object_set_new(root, "normalizer",
                        json_pack("{s:s, s:b, s:b, s:n, s:b}", "type", "BertNormalizer", "clean_text", 1,
                                  "handle_chinese_chars", 1, "strip_accents", "lowercase", lower));
    json_object_set_new(root, "pre_tokenizer", json_pack("{s:s}", "type", "BertPreTokenizer"));
    json_object_set_new(root, "decoder",
                        json_pack("{s:s, s:s, s:b}", "type", "WordPiece", "prefix", "##", "cleanup", 1));
    return set_ends(in, root, "BertProcessing");
}

/* ---- Unigram ---- */

static json_t *base64_of(struct slice bytes)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = malloc(bytes.len / 3 * 4 + 5);
    size_t n = 0;
    for (size_t i = 0; text && i < bytes.len; i += 3) {
        uint32_t three = 0;
        for (size_t k = 0; k < 3; k++)
            three = three << 8 | (i + k < bytes.len ? (unsigned char)bytes.ptr[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            text[n++] = i + k > bytes.len ? '=' : letters[three >> (18 - 6 * k) & 63];
    }
    json_t *ret = text ? json_stringn(text, n) : NULL;
    free(text);
    return ret;
}

static int read_scored(const struct reader *in, json_t *list)
{
    struct token_walk w = walk_tokens(in);
    struct gguf_walk scores = {.value = in->scores};
    struct gguf_item score;
    while (next_token(&w) && gguf_next(&scores, &score)) {
        json_t *text = json_stringn(w.text.ptr ? w.text.ptr : "", w.text.len);
        if (json_array_append_new(list, json_pack("[o, f]", text, score.real)) != 0)
            return err_set(in->e, -EINVAL, "tokenizer.ggml.tokens[%u] is not UTF-8 or has no finite score",
                           w.id);
    }
    return 0;
}

static json_t *blanks_of(bool behind)
{
    return json_pack("{s:s, s:s, s:s, s:b}", "type", "Metaspace", "replacement", BLANK, "prepend_scheme",
                     "always", "split", !behind);
}

static int read_unigram(const struct reader *in, json_t *root, json_t *vocab, json_t *merges)
{
    json_t *model = json_object_get(root, "model"), *list = json_array();
    const struct gguf_value *map = gguf_find(in->g, "tokenizer.ggml.precompiled_charsmap");
    struct token_walk w = walk_tokens(in);
    (void)vocab;
    (void)merges;
    json_object_set_new(model, "vocab", list);
    if (!in->scores || in->scores->count != in->tokens->count)
        return bad(in, "there is not one score for each token");
    if (map && (!map->list || (map->type != GGUF_U8 && map->type != GGUF_I8)))
        return bad(in, "precompiled_charsmap is not a list of bytes");
    int r = read_scored(in, list);
    if (r < 0)
        return r;
    while (next_token(&w)) {
        if (w.type == TOKEN_UNKNOWN)
            json_object_set_new(model, "unk_id", json_integer(w.id));
    }
    json_object_set_new(root, "normalizer",
                        map && map->count > 0 ? json_pack("{s:s, s:o}", "type", "Precompiled",
                                                          "precompiled_charsmap", base64_of(map->bytes))
                                              : json_null());
    json_object_set_new(root, "pre_tokenizer",
                        json_pack("{s:s, s:[{s:s}, o]}", "type", "Sequence", "pretokenizers", "type",
                                  "WhitespaceSplit", blanks_of(false)));
    json_object_set_new(root, "decoder", blanks_of(true));
    return set_ends(in, root, "RobertaProcessing");
}

/* ---- the objects ---- */

static json_t *text_of(const char *id, int type)
{
    return json_pack("{s:{s:s, s:i}}", "Sequence", "id", id, "type_id", type);
}

/* TemplateProcessing: the end token after each text, if the file has add_eos_token. */
static int add_end(const struct reader *in, json_t *root)
{
    static const char *const keys[2] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eos_token_id"};
    uint64_t id;
    struct slice text;
    if (!flag(in, "tokenizer.ggml.add_eos_token", false) || json_object_get(root, "post_processor"))
        return 0;
    if (!special_of(in, keys, &id, &text))
        return bad(in, "add_eos_token is true, but eos_token_id is not a token");
    json_t *end = json_pack("{s:{s:s, s:i}}", "SpecialToken", "id", "end", "type_id", 0);
    json_t *post = json_pack("{s:s, s:[o, O], s:[o, O, o, O], s:{s:{s:[i]}}}", "type", "TemplateProcessing",
                             "single", text_of("A", 0), end, "pair", text_of("A", 0), end, text_of("B", 0),
                             end, "special_tokens", "end", "ids", (int)id);
    json_decref(end);
    return json_object_set_new(root, "post_processor", post) == 0 ? 0
                                                                  : bad(in, "no memory for add_eos_token");
}

static int set_token(const struct reader *in, const char *key, json_t *config, const char *name)
{
    uint64_t id;
    if (!gguf_u64(gguf_find(in->g, key), &id))
        return 0;
    struct token_walk w = walk_tokens(in);
    while (next_token(&w)) {
        if (w.id == id)
            return json_object_set_new(config, name, json_stringn(w.text.ptr, w.text.len)) == 0
                       ? 0
                       : bad(in, "a special token is not UTF-8");
    }
    return err_set(in->e, -EINVAL, "%s is %llu, which is not a token", key, (ull)id);
}

static int read_config(const struct reader *in, bool bos, json_t *config)
{
    int r = set_token(in, "tokenizer.ggml.bos_token_id", config, "bos_token");
    if (r == 0)
        r = set_token(in, "tokenizer.ggml.eos_token_id", config, "eos_token");
    bool add = flag(in, "tokenizer.ggml.add_bos_token", bos);
    json_object_set_new(config, "add_bos_token",
                        json_boolean(add && json_object_get(config, "bos_token") != NULL));
    return r;
}

static int read_lists(struct reader *in)
{
    in->tokens = gguf_find(in->g, "tokenizer.ggml.tokens");
    in->types = gguf_find(in->g, "tokenizer.ggml.token_type");
    in->scores = gguf_find(in->g, "tokenizer.ggml.scores");
    in->merges = gguf_find(in->g, "tokenizer.ggml.merges");
    if (!in->tokens)
        return err_set(in->e, -ENOENT, "the file has no tokenizer");
    if (in->tokens->type != GGUF_STRING || in->tokens->count > TOKENS_MAX)
        return bad(in, "tokens are not a list of texts of a usable length");
    if (in->types && (in->types->count != in->tokens->count || in->types->type == GGUF_STRING))
        return bad(in, "there is not one type for each token");
    return in->merges && in->merges->type != GGUF_STRING ? bad(in, "merges are not a list of texts") : 0;
}

/* Models that tokenizer.ggml.model names. */
static const struct kind {
    const char *name, *type; /* type: of tokenizer.json's model */
    int (*read)(const struct reader *in, json_t *root, json_t *vocab, json_t *merges);
    bool bos, by_pre; /* a text begins with a token if the file does not say; by_pre: `pre` says so */
} kinds[] = {
    {"gpt2", "BPE", read_byte_level, .by_pre = true},
    {"llama", "BPE", read_sentence_piece, .bos = true},
    {"gemma4", "BPE", read_blanks, .bos = true},
    {"bert", "WordPiece", read_word_piece},
    {"t5", "Unigram", read_unigram},
};

static const struct kind *find_kind(struct slice name)
{
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (slice_eq(name, slice_of(kinds[i].name)))
            return &kinds[i];
    return NULL;
}

static int name_kind(const struct reader *in, const struct kind **ret)
{
    struct slice name = {NULL, 0};
    (void)gguf_string(gguf_find(in->g, "tokenizer.ggml.model"), &name);
    *ret = find_kind(name);
    return *ret
               ? 0
               : err_set(in->e, -ENOTSUP,
                         "tokenizer.ggml.model '%.*s' is not supported; gpt2, llama, gemma4, bert and t5 are",
                         (int)MIN_OF(name.len, (size_t)64), name.ptr ? name.ptr : "");
}

static int fill(struct reader *in, json_t *root)
{
    const struct kind *kind;
    json_t *vocab = json_object(), *merges = json_array(), *added = json_array();
    json_object_set_new(root, "model",
                        json_pack("{s:s, s:o, s:o}", "type", "BPE", "vocab", vocab, "merges", merges));
    json_object_set_new(root, "added_tokens", added);
    int r = read_lists(in);
    if (r == 0)
        r = read_tokens(in, vocab, added);
    if (r == 0)
        r = name_kind(in, &kind);
    if (r < 0)
        return r;
    json_object_set_new(json_object_get(root, "model"), "type", json_string(kind->type));
    r = kind->read(in, root, vocab, merges);
    return r == 0 ? add_end(in, root) : r;
}

static int fill_config(struct reader *in, json_t *config)
{
    const struct kind *kind;
    int r = read_lists(in);
    if (r == 0)
        r = name_kind(in, &kind);
    if (r == 0 && kind->by_pre && !find_pre(in))
        r = refuse_pre(in);
    return r == 0 ? read_config(in, kind->bos || (kind->by_pre && find_pre(in)->bos), config) : r;
}

static int make(const struct gguf *g, int (*with)(struct reader *in, json_t *object), json_t **ret,
                struct err *e)
{
    struct reader in = {.g = g, .e = e};
    json_t *object = json_object();
    int r = with(&in, object);
    if (r < 0)
        json_decref(object);
    else
        *ret = object;
    return r;
}

int gguf_tokenizer_read(const struct gguf_head *file, json_t **ret, struct err *e)
{
    return make(&file->head, fill, ret, e);
}

int gguf_tokenizer_config(const struct gguf_head *file, json_t **ret, struct err *e)
{
    return make(&file->head, fill_config, ret, e);
}

uint64_t gguf_tokenizer_bytes(const struct gguf_head *file)
{
    const struct gguf_value *tokens = gguf_find(&file->head, "tokenizer.ggml.tokens");
    return tokens ? tokens->count * TOKEN_BYTES : 0;
}
